//! `tarn config`: which settings are in effect, and who set each? Also the flags that every server command takes.

use std::io::Write;
use std::path::PathBuf;
use std::sync::LazyLock;

use anyhow::Result;
use clap::{Arg, ArgMatches, Args, FromArgMatches, ValueEnum};
use tarn::settings::{Layers, all};
use tarn_types::settings::Setting;

use super::output::table;

/// `data_dir` → `data-dir`, in their order; clap keeps names for as long as the program lives.
static FLAG_NAMES: LazyLock<Vec<String>> =
    LazyLock::new(|| all().map(|setting| setting.name.replace('_', "-")).collect());

/// The flags of every setting, made from the table of settings so that neither can lack one, and `--config`.
#[derive(Debug, Clone, Default)]
pub struct SettingFlags {
    file: Option<PathBuf>,
    given: Vec<(&'static str, String)>,
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = SettingFlags::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.file = matches.get_one::<PathBuf>("config").cloned();
        self.given = all()
            .filter_map(|setting| Some((setting.name, matches.get_one::<String>(setting.name)?.clone())))
            .collect();
        Ok(())
    }
}

impl Args for SettingFlags {
    fn augment_args(mut command: clap::Command) -> clap::Command {
        let file = Arg::new("config").long("config").value_name("FILE").env("TARN_CONFIG");
        command = command.arg(
            file.value_parser(clap::value_parser!(PathBuf)).help("TOML file of settings, weaker than TARN_* and flags"),
        );
        for (setting, name) in all().zip(FLAG_NAMES.iter()) {
            let default =
                if setting.default.is_empty() { String::new() } else { format!(" [default: {}]", setting.default) };
            let flag = Arg::new(setting.name).long(name.as_str()).value_name("VALUE");
            command = command.arg(flag.help(format!("{}{default}", setting.doc)).help_heading("Settings"));
        }
        command
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl SettingFlags {
    /// The file, then the environment, then the flags: the last one wins.
    pub fn layers(&self) -> Result<Layers> {
        let mut layers = Layers::default();
        if let Some(path) = &self.file {
            layers.file(path)?;
        }
        layers.environment(std::env::vars())?;
        for (name, value) in &self.given {
            layers.flag(name, value)?;
        }
        Ok(layers)
    }
}

/// Print every setting in effect, and where its value came from; passwords are left out
#[derive(Args)]
#[command(after_help = "\
Examples:
  tarn config                                   what a server started here would use
  tarn config --output toml > tarn.toml         a file to begin with; every line is explained
  TARN_LOG=debug tarn config --data-dir /data   try out variables and flags")]
pub struct Config {
    #[command(flatten)]
    flags: SettingFlags,
    /// How to print
    #[arg(long, short, value_enum, default_value = "table")]
    output: Style,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Style {
    /// Name, value, origin
    Table,
    /// A file for --config, with explanations
    Toml,
    /// One object: name → {value, origin}
    Json,
}

impl Config {
    /// Prints each setting with its value and its origin; secrets are left out.
    pub fn run(self) -> Result<()> {
        let layers = self.flags.layers()?;
        let mut shown = layers.settings().clone();
        // Whoever reads over one's shoulder learns no password.
        shown.node.metastore = tarn_node::metastores::shown(&shown.node.metastore);
        let values = toml::Table::try_from(shown)?;
        let value = |name: &str| values.get(name).map(ToString::to_string).unwrap_or_default();
        let mut out = std::io::stdout().lock();
        match self.output {
            Style::Table => {
                let header = ["setting", "value", "from", "meaning"].map(str::to_owned);
                let row = |s: &Setting| {
                    [s.name.to_owned(), value(s.name), layers.origin(s.name).to_string(), s.doc.to_owned()]
                };
                let rows: Vec<_> = all().map(|setting| row(setting).map(Some).to_vec()).collect();
                writeln!(out, "{}", table(&header, &rows))?;
            }
            Style::Toml => {
                for setting in all() {
                    writeln!(
                        out,
                        "# {} (default: {})",
                        setting.doc,
                        if setting.default.is_empty() { "none" } else { setting.default }
                    )?;
                    match values.get(setting.name) {
                        Some(value) => writeln!(out, "{} = {value}\n", setting.name)?,
                        None => writeln!(out, "# {} = \"\"\n", setting.name)?,
                    }
                }
            }
            Style::Json => {
                let entry = |s: &Setting| {
                    let described =
                        serde_json::json!({"value": values.get(s.name), "from": layers.origin(s.name).to_string()});
                    (s.name.to_owned(), described)
                };
                let object: serde_json::Map<_, _> = all().map(entry).collect();
                writeln!(out, "{}", serde_json::to_string_pretty(&object)?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_a_flag_and_a_flag_wins() {
        let command = SettingFlags::augment_args(clap::Command::new("x"));
        let matches = command.try_get_matches_from(["x", "--data-dir", "/somewhere", "--log", "debug"]).unwrap();
        let layers = SettingFlags::from_arg_matches(&matches).unwrap().layers().unwrap();
        assert_eq!(layers.settings().node.data_dir, PathBuf::from("/somewhere"));
        assert_eq!(layers.origin("log").to_string(), "--log");
    }
}
