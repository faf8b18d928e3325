//! Which client settings does a connection have?
//!
//! `SET`, `RESET` and `SHOW` of the settings that drivers use. What changes how Tarn answers is held to the values Tarn
//! has (UTF-8, plans without orders); what only informs is kept and shown. `tarn.*` and `datafusion.*` belong to the
//! query engine and are not kept here.

use std::collections::BTreeMap;

use tarn_types::settings::duration_ms;
use tarn_types::style::{date_style, date_style_text};
use tarn_types::{BytesForm, Forms, IntervalForm, Style, Zone};

use crate::error::{Result, SqlError, state};
use crate::names::SERVER_VERSION;
use crate::requests::KEY_SETTING;

const MAX_APPLICATION_NAME_BYTES: usize = 63;

/// A value is told to the client in one message, which drivers bound at 30,000 bytes.
const MAX_VALUE_BYTES: usize = 10_000;

/// Parameters of one connection that differ from their default; a client may invent names.
const MAX_CHANGED: usize = 1_000;

/// What a switch may be set to.
const SWITCH: &[&str] = &["off", "false", "0", "no", "on", "true", "1", "yes"];
/// Of one that stays on: nothing acts on it, and what it says when it is on is what is done anyway.
const STAYS_ON: &[&str] = &["on", "true", "1", "yes"];
const STAYS_OFF: &[&str] = &["off", "false", "0", "no"];

/// Name, default, and the only values accepted (none: any).
const KNOWN: &[(&str, &str, &[&str])] = &[
    ("application_name", "", &[]),
    ("bytea_output", "hex", &["hex", "escape"]),
    // There are no functions of users whose bodies could be looked at.
    ("check_function_bodies", "on", SWITCH),
    ("client_encoding", "UTF8", &[]),
    ("client_min_messages", "notice", &[]),
    ("datestyle", "ISO, MDY", &[]),
    ("default_table_access_method", "heap", &["heap"]),
    ("default_tablespace", "", &[""]),
    // It would wait for a moment that is sure to be serializable, and no transaction here is SERIALIZABLE.
    ("default_transaction_deferrable", "off", SWITCH),
    ("default_transaction_isolation", "read committed", &["read committed", "read uncommitted", "repeatable read"]),
    ("default_transaction_read_only", "off", SWITCH),
    // The planner is kept from nothing.
    ("enable_async_append", "on", STAYS_ON),
    ("enable_bitmapscan", "on", STAYS_ON),
    ("enable_gathermerge", "on", STAYS_ON),
    ("enable_hashagg", "on", STAYS_ON),
    ("enable_hashjoin", "on", STAYS_ON),
    ("enable_incremental_sort", "on", STAYS_ON),
    ("enable_indexonlyscan", "on", STAYS_ON),
    ("enable_indexscan", "on", STAYS_ON),
    ("enable_material", "on", STAYS_ON),
    ("enable_memoize", "on", STAYS_ON),
    ("enable_mergejoin", "on", STAYS_ON),
    ("enable_nestloop", "on", STAYS_ON),
    ("enable_parallel_append", "on", STAYS_ON),
    ("enable_parallel_hash", "on", STAYS_ON),
    ("enable_partition_pruning", "on", STAYS_ON),
    ("enable_seqscan", "on", STAYS_ON),
    ("enable_sort", "on", STAYS_ON),
    ("enable_tidscan", "on", STAYS_ON),
    // It warns of backslashes where `standard_conforming_strings` is off, which it never is.
    ("escape_string_warning", "on", SWITCH),
    ("extra_float_digits", "1", &[]),
    ("geqo", "on", &[]),
    ("idle_in_transaction_session_timeout", "0", &[]),
    ("in_hot_standby", "off", &["off"]),
    ("integer_datetimes", "on", &["on"]),
    // Of `sql_standard`, `-1 2:03` would have to be read otherwise.
    ("intervalstyle", "postgres", &["postgres", "postgres_verbose", "iso_8601"]),
    ("is_superuser", "on", &["on"]),
    ("jit", "off", &[]),
    ("lc_collate", "C", &["C"]),
    ("lc_ctype", "C.UTF-8", &[]),
    ("lc_messages", "C", &[]),
    ("lc_monetary", "C", &[]),
    ("lc_numeric", "C", &[]),
    ("lc_time", "C", &[]),
    ("lock_timeout", "0", &[]),
    ("max_identifier_length", "63", &["63"]),
    ("max_index_keys", "32", &["32"]),
    ("password_encryption", "scram-sha-256", &["scram-sha-256"]),
    ("row_security", "on", &[]),
    ("search_path", "\"$user\", public", &[]),
    ("server_encoding", "UTF8", &["utf8"]),
    ("server_version", SERVER_VERSION, &[SERVER_VERSION]),
    ("server_version_num", "160006", &["160006"]),
    ("session_authorization", "tarn", &[]),
    ("standard_conforming_strings", "on", STAYS_ON),
    ("statement_timeout", "0", &[]),
    ("synchronize_seqscans", "off", STAYS_OFF),
    ("synchronous_commit", "on", &[]),
    // Of the next write statement (`requests.rs`).
    (KEY_SETTING, "", &[]),
    ("timezone", "UTC", &[]),
    ("transaction_deferrable", "off", SWITCH),
    ("transaction_isolation", "read committed", &["read committed", "read uncommitted", "repeatable read"]),
    ("transaction_read_only", "off", SWITCH),
    ("transaction_timeout", "0", &["0"]),
    ("work_mem", "4MB", &[]),
    // There is no type of it.
    ("xmloption", "content", &["content", "document"]),
];

/// Keys are hashed; longer ones are no keys.
const MAX_KEY_BYTES: usize = 255;

/// Settings reported to the client at start and whenever they change (ParameterStatus), in the spelling drivers know.
pub const REPORTED: &[(&str, &str)] = &[
    ("application_name", "application_name"),
    ("client_encoding", "client_encoding"),
    ("datestyle", "DateStyle"),
    ("default_transaction_read_only", "default_transaction_read_only"),
    ("in_hot_standby", "in_hot_standby"),
    ("integer_datetimes", "integer_datetimes"),
    ("intervalstyle", "IntervalStyle"),
    ("is_superuser", "is_superuser"),
    ("search_path", "search_path"),
    ("server_encoding", "server_encoding"),
    ("server_version", "server_version"),
    ("session_authorization", "session_authorization"),
    ("standard_conforming_strings", "standard_conforming_strings"),
    ("timezone", "TimeZone"),
];

/// Settings that say who one is: told, never set.
const IDENTITY: [&str; 3] = ["is_superuser", "role", "session_authorization"];

/// The settings of one connection that differ from their default.
#[derive(Debug, Clone, Default)]
pub struct Vars {
    changed: BTreeMap<String, String>,
    /// Those that the client gave when it introduced itself: RESET goes back to them.
    given: BTreeMap<String, String>,
    /// What `timezone`, `datestyle` and their kin say.
    style: Style,
    /// Whether `tarn.idempotency_key` is set: asked for each statement.
    has_request_key: bool,
}

impl Vars {
    /// Sets one, or puts the default back (`None`).
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<()> {
        let name = name.to_ascii_lowercase();
        let (_, _, accepted) = known(&name)?;
        if name == KEY_SETTING {
            return self.set_request_key(value);
        }
        let Some(value) = value else {
            match (self.given.get(&name), self.changed.get_mut(&name)) {
                (Some(given), _) => drop(self.changed.insert(name.clone(), given.clone())),
                // As in Postgres: it is empty, not unknown again.
                (None, Some(value)) if is_custom(&name) => value.clear(),
                (None, _) => drop(self.changed.remove(&name)),
            }
            self.read_style();
            return Ok(());
        };
        if value.len() > MAX_VALUE_BYTES && name != "application_name" {
            return Err(SqlError::new(
                state::INVALID_PARAMETER_VALUE,
                format!("the value of parameter \"{name}\" is longer than {MAX_VALUE_BYTES} bytes"),
            ));
        }
        if !self.changed.contains_key(&name) && self.changed.len() >= MAX_CHANGED {
            return Err(SqlError::new(
                state::CONFIGURATION_LIMIT,
                format!("this connection has set {MAX_CHANGED} parameters already"),
            )
            .with_hint("RESET those that are not needed"));
        }
        if !accepted.is_empty() && !accepted.iter().any(|a| a.eq_ignore_ascii_case(value)) {
            return Err(SqlError::new(
                state::INVALID_PARAMETER_VALUE,
                format!("invalid value for parameter \"{name}\": \"{value}\""),
            )
            .with_hint(format!("accepted: {}", accepted.join(", "))));
        }
        let dates = match name.as_str() {
            "datestyle" => Some(date_style(value, self.style.forms).ok_or_else(|| {
                let message = format!("invalid value for parameter \"DateStyle\": \"{value}\"");
                let hint = "a form (ISO, SQL, Postgres, German), an order (MDY, DMY, YMD), or both";
                SqlError::new(state::INVALID_PARAMETER_VALUE, message).with_hint(hint)
            })?),
            _ => None,
        };
        if name == "extra_float_digits" {
            check_float_digits(value)?;
        }
        if name.ends_with("_timeout") && duration_ms(value).is_err() {
            return Err(SqlError::new(
                state::INVALID_PARAMETER_VALUE,
                format!("invalid value for parameter \"{name}\": \"{value}\""),
            ));
        }
        let zone = if name == "timezone" { Some(zone(value)?) } else { None };
        if name == "client_encoding" && !is_utf8(value) {
            return Err(SqlError::new(
                state::INVALID_PARAMETER_VALUE,
                format!("invalid value for parameter \"client_encoding\": \"{value}\""),
            )
            .with_hint("text is UTF8 in both directions"));
        }
        let value = match name.as_str() {
            "datestyle" => match dates {
                Some(forms) => date_style_text(forms),
                None => value,
            },
            "bytea_output" | "intervalstyle" => of_list(accepted, value),
            "client_encoding" => "UTF8",
            "timezone" => zone.as_ref().map_or(value, Zone::name),
            // As it is shown.
            _ if is_switch(accepted) && is_yes(value) => "on",
            _ if is_switch(accepted) => "off",
            // As Postgres cuts it: some drivers put a whole command line there.
            "application_name" => &value[..value.floor_char_boundary(MAX_APPLICATION_NAME_BYTES)],
            _ => value,
        };
        let is_of_style = is_of_style(&name);
        self.changed.insert(name, value.to_owned());
        if is_of_style {
            self.read_style();
        }
        Ok(())
    }

    fn set_request_key(&mut self, key: Option<&str>) -> Result<()> {
        let key = key.unwrap_or_default();
        if key.len() > MAX_KEY_BYTES {
            let message = format!("the value of parameter \"{KEY_SETTING}\" is longer than {MAX_KEY_BYTES} bytes");
            return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message).with_hint("a UUID is a good key"));
        }
        self.forget(KEY_SETTING);
        if !key.is_empty() {
            self.changed.insert(KEY_SETTING.to_owned(), key.to_owned());
            self.has_request_key = true;
        }
        Ok(())
    }

    /// Whether the next write statement has a key.
    pub fn has_request_key(&self) -> bool {
        self.has_request_key
    }

    /// As if it had never been set; what the client gave when it introduced itself, too. `name` is that of a setting
    /// that says nothing of values.
    pub fn forget(&mut self, name: &str) {
        self.changed.remove(name);
        self.given.remove(name);
        self.has_request_key &= name != KEY_SETTING;
    }

    /// How values are shown, and texts of times are read.
    pub fn style(&self) -> &Style {
        &self.style
    }

    /// Of the settings as they are now.
    fn read_style(&mut self) {
        let said = |name: &str| self.changed.get(name).map(String::as_str);
        let dates = said("datestyle").and_then(|text| date_style(text, Forms::default())).unwrap_or_default();
        let forms = Forms {
            intervals: match said("intervalstyle") {
                Some("postgres_verbose") => IntervalForm::PostgresVerbose,
                Some("iso_8601") => IntervalForm::Iso8601,
                _ => IntervalForm::Postgres,
            },
            bytes: if said("bytea_output") == Some("escape") { BytesForm::Escape } else { BytesForm::Hex },
            float_digits: said("extra_float_digits").and_then(|digits| digits.trim().parse().ok()).unwrap_or(1),
            ..dates
        };
        self.style = Style { zone: said("timezone").and_then(Zone::parse).unwrap_or_default(), forms };
    }

    /// The value of one setting.
    pub fn get(&self, name: &str) -> Result<String> {
        let name = name.to_ascii_lowercase();
        if let Some(value) = self.changed.get(&name) {
            return Ok(value.clone());
        }
        match known(&name)? {
            // One of a client's own is there when it was set.
            _ if is_custom(&name) => Err(unrecognized(&name)),
            (_, default, _) => Ok((*default).to_owned()),
        }
    }

    /// What one was set to, if it is not as it is by default. `name` in small letters.
    pub fn changed(&self, name: &str) -> Option<&str> {
        self.changed.get(name).map(String::as_str)
    }

    /// Whether a switch that is off by default was turned on. `name` in small letters.
    pub fn is_on(&self, name: &str) -> bool {
        self.changed.get(name).is_some_and(|value| is_yes(value))
    }

    /// Milliseconds of a timeout; `None` is off.
    pub fn timeout_ms(&self, name: &str, default_ms: u64) -> Option<u64> {
        let ms = match self.changed.get(name) {
            Some(value) => duration_ms(value).unwrap_or(default_ms),
            None => default_ms,
        };
        (ms > 0).then_some(ms)
    }

    /// Says who the client is.
    pub fn tell(&mut self, name: &str, value: &str) {
        self.changed.insert(name.to_owned(), value.to_owned());
    }

    /// The client has introduced itself.
    pub fn started(&mut self) {
        self.given = self.changed.clone();
    }

    /// As they were when the client had introduced itself; who it is, and of its own settings the names, stay.
    pub fn reset_all(&mut self) {
        let identity: Vec<_> = IDENTITY.iter().filter_map(|name| self.changed.remove_entry(*name)).collect();
        let customs = self.changed.keys().filter(|name| is_custom(name));
        let mut fresh: BTreeMap<String, String> = customs.map(|name| (name.clone(), String::new())).collect();
        fresh.extend(self.given.clone());
        fresh.extend(identity);
        self.changed = fresh;
        self.has_request_key = self.changed.contains_key(KEY_SETTING);
        self.read_style();
    }

    /// Name and value of every setting, by name.
    pub fn all(&self) -> Vec<(String, String)> {
        KNOWN
            .iter()
            .map(|(name, default, _)| {
                ((*name).to_owned(), self.changed.get(*name).cloned().unwrap_or_else(|| (*default).to_owned()))
            })
            .collect()
    }
}

fn is_switch(accepted: &[&str]) -> bool {
    [SWITCH, STAYS_ON, STAYS_OFF].contains(&accepted)
}

fn is_yes(value: &str) -> bool {
    STAYS_ON.iter().any(|on| on.eq_ignore_ascii_case(value))
}

/// Postgres reads names of encodings by their letters and digits: some drivers send quotes. SQL_ASCII asks for no
/// conversion, and gets none.
fn is_utf8(value: &str) -> bool {
    let name: String = value.chars().filter(char::is_ascii_alphanumeric).collect();
    ["utf8", "unicode", "sqlascii"].iter().any(|known| known.eq_ignore_ascii_case(&name))
}

const ZONES: &str = "a name such as Europe/Berlin, or hours east of Greenwich such as -7 or 5.5";

fn zone(value: &str) -> Result<Zone> {
    Zone::parse(value).ok_or_else(|| {
        let value: String = value.chars().take(TIME_ZONE_BYTES).collect();
        let message = format!("invalid value for parameter \"TimeZone\": \"{value}\"");
        SqlError::new(state::INVALID_PARAMETER_VALUE, message).with_hint(format!("accepted: {ZONES}"))
    })
}

/// The zone that the engine's own setting names, which has the offsets of ISO 8601.
pub fn engine_zone(value: &str) -> Result<Zone> {
    Zone::offset(value).map_or_else(|| zone(value), Ok)
}

/// A setting of the query engine that clients may change, and what they may set it to.
enum SettingDomain {
    Switch,
    Number(std::ops::RangeInclusive<usize>),
    /// A multiple of the cores at most.
    PerCore(usize),
    TimeZone,
    OneOf(&'static [&'static str]),
}

/// The engine's other settings stay as they are: with some a query starves all others, with some it answers wrongly.
const OF_ENGINE: &[(&str, SettingDomain)] = &[
    ("datafusion.execution.batch_size", SettingDomain::Number(16..=65_536)),
    ("datafusion.execution.target_partitions", SettingDomain::PerCore(4)),
    ("datafusion.execution.time_zone", SettingDomain::TimeZone),
    ("datafusion.explain.format", SettingDomain::OneOf(&["indent", "tree", "pgjson", "graphviz"])),
    ("datafusion.explain.logical_plan_only", SettingDomain::Switch),
    ("datafusion.explain.physical_plan_only", SettingDomain::Switch),
    ("datafusion.explain.show_schema", SettingDomain::Switch),
    ("datafusion.explain.show_sizes", SettingDomain::Switch),
    ("datafusion.explain.show_statistics", SettingDomain::Switch),
    ("datafusion.optimizer.repartition_aggregations", SettingDomain::Switch),
    ("datafusion.optimizer.repartition_file_scans", SettingDomain::Switch),
    ("datafusion.optimizer.repartition_joins", SettingDomain::Switch),
    ("datafusion.optimizer.repartition_sorts", SettingDomain::Switch),
    ("datafusion.optimizer.repartition_windows", SettingDomain::Switch),
];

/// Longest name of a time zone.
const TIME_ZONE_BYTES: usize = 64;

impl SettingDomain {
    /// What it takes, when the value is something else.
    fn refuses(&self, value: &str) -> Option<String> {
        let number = |range: std::ops::RangeInclusive<usize>| {
            let fits = value.parse().is_ok_and(|number| range.contains(&number));
            (!fits).then(|| format!("{} to {}", range.start(), range.end()))
        };
        match self {
            SettingDomain::Switch => {
                let is_switch = ["true", "false"].iter().any(|known| known.eq_ignore_ascii_case(value));
                (!is_switch).then(|| "true or false".to_owned())
            }
            SettingDomain::Number(range) => number(range.clone()),
            SettingDomain::PerCore(most) => {
                number(1..=most * std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
            }
            SettingDomain::TimeZone => {
                let known = |c: char| c.is_ascii_alphanumeric() || "+-:/_".contains(c);
                let is_name = !value.is_empty() && value.len() <= TIME_ZONE_BYTES && value.chars().all(known);
                (!is_name).then(|| "a name such as Europe/Berlin, or an offset such as +02:00".to_owned())
            }
            SettingDomain::OneOf(names) => (!names.contains(&value)).then(|| names.join(", ")),
        }
    }
}

/// Whether a client may set a setting of the query engine to this value; `None` puts the default back.
///
/// Errors: 22023 for a setting that clients do not change, and for a value out of its bounds. Unknown names are for the
/// engine to refuse.
pub fn check_engine_setting(name: &str, value: Option<&str>) -> Result<()> {
    if !name.starts_with("datafusion.") {
        return Ok(());
    }
    let Some((_, bound)) = OF_ENGINE.iter().find(|(known, _)| *known == name) else {
        let names: Vec<&str> = OF_ENGINE.iter().map(|(name, _)| *name).collect();
        let error = SqlError::new(state::INVALID_PARAMETER_VALUE, format!("parameter \"{name}\" cannot be changed"));
        return Err(error.with_hint(format!("of the engine's settings a client may change {}", names.join(", "))));
    };
    match value.and_then(|value| bound.refuses(value)) {
        None => Ok(()),
        Some(taken) => {
            let value = value.unwrap_or_default();
            let what = format!("invalid value for parameter \"{name}\": \"{value}\"");
            Err(SqlError::new(state::INVALID_PARAMETER_VALUE, what).with_hint(format!("accepted: {taken}")))
        }
    }
}

/// Whether a setting says who one is.
pub fn is_identity(name: &str) -> bool {
    IDENTITY.contains(&name)
}

/// Whether the query engine keeps a setting of this name.
pub fn is_engine_setting(name: &str) -> bool {
    (name.starts_with("tarn.") && name != KEY_SETTING) || name.starts_with("datafusion.")
}

type SettingInfo = (&'static str, &'static str, &'static [&'static str]);

fn known(name: &str) -> Result<&'static SettingInfo> {
    // A driver's own namespace, as Postgres allows it.
    const CUSTOM: SettingInfo = ("custom", "", &[]);
    if let Some(row) = KNOWN.iter().find(|(known, _, _)| *known == name) {
        return Ok(row);
    }
    if !is_custom(name) {
        return Err(unrecognized(name));
    }
    let invalid = || SqlError::new(state::INVALID_NAME, format!("invalid configuration parameter name \"{name}\""));
    if RESERVED.iter().any(|prefix| name.split_once('.').is_some_and(|(first, _)| first == *prefix)) {
        return Err(invalid().with_hint("there is no such extension here: a setting of it would do nothing"));
    }
    if !name.split('.').all(is_simple) {
        return Err(invalid().with_hint("custom parameter names are two or more simple identifiers with dots between"));
    }
    Ok(&CUSTOM)
}

/// Extensions of PostgreSQL's that are always there, and have settings.
const RESERVED: [&str; 1] = ["plpgsql"];

/// Whether a client may invent it.
fn is_custom(name: &str) -> bool {
    name.contains('.') && !is_engine_setting(name) && name != KEY_SETTING
}

fn is_simple(name: &str) -> bool {
    let begins = |c: char| c == '_' || c.is_ascii_alphabetic() || !c.is_ascii();
    name.starts_with(begins) && name.chars().all(|c| begins(c) || c == '$' || c.is_ascii_digit())
}

/// Whether a setting says how values are shown.
pub(crate) fn is_of_style(name: &str) -> bool {
    const OF_STYLE: [&str; 5] = ["bytea_output", "datestyle", "extra_float_digits", "intervalstyle", "timezone"];
    OF_STYLE.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// As the list has it.
fn of_list<'a>(accepted: &[&'static str], value: &'a str) -> &'a str {
    accepted.iter().copied().find(|known| known.eq_ignore_ascii_case(value)).unwrap_or(value)
}

fn check_float_digits(value: &str) -> Result<()> {
    const DIGITS: std::ops::RangeInclusive<i64> = -15..=3;
    let message = match value.trim().parse::<i64>() {
        Ok(digits) if DIGITS.contains(&digits) => return Ok(()),
        Ok(digits) => {
            format!("{digits} is outside the valid range for parameter \"extra_float_digits\" (-15 .. 3)")
        }
        Err(_) => format!("invalid value for parameter \"extra_float_digits\": \"{value}\""),
    };
    Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message).with_hint("1 shows all digits that count"))
}

pub(super) fn unrecognized(name: &str) -> SqlError {
    SqlError::new("42704", format!("unrecognized configuration parameter \"{name}\"")).with_hint("SHOW ALL lists them")
}

#[cfg(test)]
mod tests {
    use tarn_types::DateOrder;

    use super::*;

    #[test]
    fn set_show_reset() {
        let mut vars = Vars::default();
        assert_eq!(vars.get("TimeZone").unwrap(), "UTC");
        vars.set("Application_Name", Some("psql")).unwrap();
        assert_eq!(vars.get("application_name").unwrap(), "psql");
        vars.set("statement_timeout", Some("2s")).unwrap();
        assert_eq!(vars.timeout_ms("statement_timeout", 0), Some(2_000));
        vars.set("statement_timeout", None).unwrap();
        assert_eq!(vars.timeout_ms("statement_timeout", 0), None);
        vars.set("my.own", Some("1")).unwrap();
    }

    #[test]
    fn settings_of_the_engine_are_a_list_with_bounds() {
        for (name, value) in [
            ("datafusion.execution.batch_size", "8192"),
            ("datafusion.execution.target_partitions", "1"),
            ("datafusion.execution.time_zone", "+05:00"),
            ("datafusion.explain.format", "tree"),
            ("datafusion.optimizer.repartition_joins", "FALSE"),
            ("tarn.pruning", "off"),
        ] {
            check_engine_setting(name, Some(value)).unwrap();
            check_engine_setting(name, None).unwrap();
        }
        for (name, value) in [
            ("datafusion.execution.target_partitions", "1000000"),
            ("datafusion.execution.target_partitions", "0"),
            ("datafusion.execution.target_partitions", "-1"),
            ("datafusion.execution.batch_size", "1"),
            ("datafusion.execution.batch_size", "18446744073709551616"),
            ("datafusion.execution.time_zone", "'; DROP TABLE t"),
            ("datafusion.optimizer.repartition_joins", "2"),
            ("datafusion.optimizer.enable_dynamic_filter_pushdown", "true"),
            ("datafusion.optimizer.enable_aggregate_dynamic_filter_pushdown", "true"),
            ("datafusion.runtime.memory_limit", "100G"),
            ("datafusion.nonsense", "1"),
        ] {
            let error = check_engine_setting(name, Some(value)).unwrap_err();
            assert_eq!(error.state(), state::INVALID_PARAMETER_VALUE, "{name} = {value}");
        }
    }

    #[test]
    fn what_tarn_cannot_do_is_refused() {
        let mut vars = Vars::default();
        vars.set("application_name", Some(&"é".repeat(50_000))).unwrap();
        assert_eq!(vars.get("application_name").unwrap(), "é".repeat(31));
        assert_eq!(vars.set("search_path", Some(&"x".repeat(20_000))).unwrap_err().state(), "22023");
        for (name, value) in [
            ("client_encoding", "latin1"),
            ("bytea_output", "base64"),
            ("datestyle", "ISO, SQL"),
            ("datestyle", "de"),
            ("intervalstyle", "sql_standard"),
            ("extra_float_digits", "4"),
            ("extra_float_digits", "x"),
            ("lock_timeout", "x"),
            ("enable_hashjoin", "off"),
        ] {
            assert_eq!(vars.set(name, Some(value)).unwrap_err().state(), state::INVALID_PARAMETER_VALUE, "{name}");
        }
        assert_eq!(vars.set("colour", Some("red")).unwrap_err().state(), "42704");
        vars.set("enable_hashjoin", Some("TRUE")).unwrap();
        assert_eq!(vars.get("enable_hashjoin").unwrap(), "on");
        vars.set("datestyle", Some("US, ISO")).unwrap();
        assert_eq!(vars.get("datestyle").unwrap(), "ISO, MDY");
    }

    #[test]
    fn how_values_are_shown_is_what_the_settings_say() {
        let mut vars = Vars::default();
        assert_eq!(*vars.style(), Style::default());
        vars.set("DateStyle", Some("German")).unwrap();
        vars.set("bytea_output", Some("ESCAPE")).unwrap();
        vars.set("timezone", Some("Europe/Berlin")).unwrap();
        vars.set("extra_float_digits", Some("-3")).unwrap();
        assert_eq!([vars.get("datestyle").unwrap(), vars.get("bytea_output").unwrap()], ["German, DMY", "escape"]);
        vars.set("datestyle", Some("ISO")).unwrap();
        assert_eq!(vars.get("datestyle").unwrap(), "ISO, DMY");
        let Forms { order, bytes, float_digits, .. } = vars.style().forms;
        assert_eq!((order, bytes, float_digits), (DateOrder::Dmy, BytesForm::Escape, -3));
        assert_eq!(vars.style().zone, Zone::parse("Europe/Berlin").unwrap());
        vars.set("timezone", None).unwrap();
        vars.reset_all();
        assert_eq!(*vars.style(), Style::default());
    }

    /// What PostgreSQL 15 says.
    #[test]
    fn settings_of_clients_have_simple_names() {
        let mut vars = Vars::default();
        for name in ["my.own", "a.b.c", "_a.b$1"] {
            assert_eq!(vars.get(name).unwrap_err().state(), "42704", "{name}");
            vars.set(name, Some("1")).unwrap();
            assert_eq!(vars.get(name).unwrap(), "1", "{name}");
        }
        for name in ["custom.bad-guc", "special.weird name", "a..b", ".a", "a.1", "plpgsql.extra_foo_warnings"] {
            assert_eq!(vars.set(name, Some("1")).unwrap_err().state(), state::INVALID_NAME, "{name}");
        }
        vars.set("my.own", None).unwrap();
        assert_eq!(vars.get("my.own").unwrap(), "");
        vars.reset_all();
        assert_eq!(vars.get("a.b.c").unwrap(), "");
    }
}
