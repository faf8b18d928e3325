//! How are answers shown? What `\pset`, `\x`, `\timing` and flags set.

use anyhow::{Result, bail};
use clap::ValueEnum;
use tarn_console::layout::{DisplayOptions, ExpandedMode};
use tarn_console::variables::Variables;

/// Rows of one answer that a prompt shows, unless `\pset limit` says otherwise.
pub const LIMIT_ROWS: u64 = 10_000;

/// What an answer is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For eyes: columns aligned, number of rows below
    Table,
    /// Values with | between them
    Unaligned,
    /// One object per line
    Json,
    /// With a header line; NULL is empty
    Csv,
    /// One Parquet file; redirect stdout to a file
    Parquet,
}

/// What a session was told.
#[derive(Debug, Clone)]
pub struct ConsoleSettings {
    /// How rows are written.
    pub format: Format,
    /// When rows are shown as records.
    pub expanded: ExpandedMode,
    /// Values alone: no names of columns, no number of rows
    pub has_only_rows: bool,
    /// What stands for NULL in tables
    pub null: Option<String>,
    /// Whether each answer says how long it took.
    pub has_timing: bool,
    /// Whether long answers go through a pager.
    pub has_pager: bool,
    /// Rows of an answer that a terminal gets; 0 is all
    pub limit_rows: u64,
    /// What `:name` stands for.
    pub variables: Variables,
}

impl ConsoleSettings {
    /// NULL in this format.
    pub fn null(&self) -> &str {
        let by_format = if self.format == Format::Unaligned { "" } else { "∅" };
        self.null.as_deref().unwrap_or(by_format)
    }

    /// How a table looks that is `width` places wide.
    pub fn look(&self, width: Option<usize>, is_wrapped: bool) -> DisplayOptions {
        let has_header = !self.has_only_rows;
        DisplayOptions { width, expanded: self.expanded, is_wrapped, has_header, null: self.null().to_owned() }
    }

    /// Whether a script ends at its first error.
    pub fn stops_at_errors(&self) -> bool {
        let mut set = self.variables.all().filter(|(name, _)| *name == "ON_ERROR_STOP");
        !set.any(|(_, value)| matches!(value.to_lowercase().as_str(), "off" | "0" | "false" | "no"))
    }

    /// `\pset NAME [VALUE]`; returns what to tell.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<String> {
        Ok(match name {
            "null" => {
                self.null = Some(value.unwrap_or_default().to_owned());
                format!("NULL is shown as {:?}", self.null())
            }
            "format" => {
                self.format = format(value.unwrap_or_default())?;
                format!("output is {}", name_of(self.format))
            }
            "expanded" | "x" => {
                self.expanded = expanded(value, self.expanded)?;
                format!("expanded is {}", name_of_expanded(self.expanded))
            }
            "tuples_only" | "t" => {
                self.has_only_rows = switch(value, self.has_only_rows)?;
                format!("rows alone: {}", on_off(self.has_only_rows))
            }
            "pager" => {
                self.has_pager = switch(value, self.has_pager)?;
                format!("the pager is {}", on_off(self.has_pager))
            }
            "limit" => {
                let Some(limit) = value.and_then(|value| value.parse().ok()) else {
                    bail!("\\pset limit wants a number of rows, or 0 for all; it is {}", self.limit_rows)
                };
                self.limit_rows = limit;
                if limit == 0 { "all rows are shown".to_owned() } else { format!("at most {limit} rows are shown") }
            }
            _ => bail!("\\pset has no {name}: null, format, expanded, tuples_only, pager and limit are there"),
        })
    }

    /// All that `\pset` sets, as it stands.
    pub fn all(&self) -> String {
        format!(
            "null         {:?}\nformat       {}\nexpanded     {}\ntuples_only  {}\npager        {}\nlimit        {}",
            self.null(),
            name_of(self.format),
            name_of_expanded(self.expanded),
            on_off(self.has_only_rows),
            on_off(self.has_pager),
            self.limit_rows
        )
    }
}

/// `table`, `unaligned`, `json`, `csv` or `parquet`; `aligned` is psql's word.
pub fn format(word: &str) -> Result<Format> {
    let word = if word == "aligned" { "table" } else { word };
    match Format::from_str(word, true) {
        Ok(format) => Ok(format),
        Err(_) => bail!("formats are table, unaligned, json, csv and parquet"),
    }
}

/// `on`, `off`, `auto`, or the other one of on and off.
pub fn expanded(word: Option<&str>, is: ExpandedMode) -> Result<ExpandedMode> {
    Ok(match word {
        Some("auto") => ExpandedMode::Auto,
        Some(word) => {
            if switch(Some(word), false)? {
                ExpandedMode::On
            } else {
                ExpandedMode::Off
            }
        }
        None if is == ExpandedMode::On => ExpandedMode::Off,
        None => ExpandedMode::On,
    })
}

/// `on` or `off`, or the other one.
pub fn switch(word: Option<&str>, is: bool) -> Result<bool> {
    match word {
        None => Ok(!is),
        Some("on" | "1" | "true" | "yes" | "always") => Ok(true),
        Some("off" | "0" | "false" | "no" | "never") => Ok(false),
        Some(word) => bail!("{word} is neither on nor off"),
    }
}

/// As `\pset` shows it.
pub fn on_off(is: bool) -> &'static str {
    if is { "on" } else { "off" }
}

/// As `\x` takes and shows it.
pub fn name_of_expanded(expanded: ExpandedMode) -> &'static str {
    match expanded {
        ExpandedMode::On => "on",
        ExpandedMode::Off => "off",
        ExpandedMode::Auto => "auto",
    }
}

fn name_of(format: Format) -> String {
    format.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_switch() {
        assert!(
            switch(None, false).unwrap() && !switch(Some("off"), true).unwrap() && switch(Some("maybe"), true).is_err()
        );
        assert_eq!(expanded(None, ExpandedMode::Auto).unwrap(), ExpandedMode::On);
        assert_eq!(expanded(None, ExpandedMode::On).unwrap(), ExpandedMode::Off);
        assert_eq!(expanded(Some("auto"), ExpandedMode::On).unwrap(), ExpandedMode::Auto);
        assert_eq!(format("aligned").unwrap(), Format::Table);
    }
}
