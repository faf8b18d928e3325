//! How is a setting declared? Once, in the room that uses it: its name, type, default, how text becomes a value, and
//! one sentence.
//!
//! [`settings!`](crate::settings!) makes of such a list a struct of plain data, which knows its defaults, can be set by
//! name, and lists what it has for `--help` and `tarn config`. Values travel as text (`64MiB`, `2min`, `true`): files,
//! variables and flags say the same.
//!
//! ```
//! use tarn_types::settings::{bytes, duration_ms};
//!
//! tarn_types::settings! {
//!     /// What a kettle can be told.
//!     pub struct Kettle {
//!         volume_bytes: u64 = "1KiB", bytes, "how much goes in";
//!         boil_ms: u64 = "3min", duration_ms, "how long it takes";
//!     }
//! }
//!
//! let mut kettle = Kettle::default();
//! assert_eq!((kettle.volume_bytes, kettle.boil_ms), (1024, 180_000));
//! assert_eq!(kettle.set("boil_ms", "90s"), Some(Ok(())));
//! assert!(kettle.set("boil_ms", "soon").unwrap().unwrap_err().starts_with("a duration"));
//! assert_eq!(kettle.set("colour", "red"), None);
//! assert_eq!(Kettle::ALL[0].flag(), "--volume-bytes");
//! ```

use std::net::SocketAddr;
use std::path::PathBuf;

/// One documented setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Name in the TOML file; `--name-with-dashes` as a flag, `TARN_NAME` as a variable.
    pub name: &'static str,
    /// As text. Empty: none.
    pub default: &'static str,
    /// One sentence for `tarn config` and `--help`.
    pub doc: &'static str,
}

impl Setting {
    /// `data_dir` → `TARN_DATA_DIR`.
    pub fn variable(&self) -> String {
        format!("TARN_{}", self.name.to_ascii_uppercase())
    }

    /// `data_dir` → `--data-dir`.
    pub fn flag(&self) -> String {
        format!("--{}", self.name.replace('_', "-"))
    }
}

/// A value, or what is wanted instead of the text.
pub type ParseResult<T> = Result<T, &'static str>;

/// Declares the settings of a room: `name: type = "default", parse, "meaning";`. `parse` makes a value of text.
#[macro_export]
macro_rules! settings {
    ($(#[$about:meta])* pub struct $name:ident {
        $($field:ident: $type:ty = $default:literal, $parse:expr, $doc:literal;)*
    }) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq, ::serde::Serialize)]
        pub struct $name {
            $(#[doc = $doc] pub $field: $type,)*
        }

        impl $name {
            /// All of them, in the order in which they are shown.
            pub const ALL: &'static [$crate::settings::Setting] = &[
                $($crate::settings::Setting { name: stringify!($field), default: $default, doc: $doc }),*
            ];

            /// Sets one by its name from text. `None`: there is none of this name here.
            ///
            /// Errors: what is wanted instead.
            pub fn set(&mut self, name: &str, value: &str) -> Option<$crate::settings::ParseResult<()>> {
                Some(match name {
                    $(stringify!($field) => $parse(value).map(|value| self.$field = value),)*
                    _ => return None,
                })
            }
        }

        impl Default for $name {
            fn default() -> Self {
                $name { $($field: $parse($default).expect("the default of a setting can be read"),)* }
            }
        }
    };
}

/// `64MiB`, `1.5GB`, `4096` → bytes. Powers of 1,024 with an `i`, of 1,000 without.
pub fn bytes(text: &str) -> ParseResult<u64> {
    const WANT: &str = "a size such as 64MiB, 1GB or 4096";
    let (number, unit) = split_unit(text).ok_or(WANT)?;
    let factor: f64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "kb" | "k" => 1e3,
        "mb" | "m" => 1e6,
        "gb" | "g" => 1e9,
        "tb" | "t" => 1e12,
        "kib" => 1024.0,
        "mib" => 1024.0 * 1024.0,
        "gib" => 1024.0 * 1024.0 * 1024.0,
        "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return Err(WANT),
    };
    Ok((number * factor) as u64)
}

/// `2min`, `30 days`, `500ms`, `1500` → milliseconds.
pub fn duration_ms(text: &str) -> ParseResult<u64> {
    const WANT: &str = "a duration such as 500ms, 30s, 2min, 1h, 30 days or a number of milliseconds";
    let (number, unit) = split_unit(text).ok_or(WANT)?;
    let factor: f64 = match unit.to_ascii_lowercase().as_str() {
        "" | "ms" | "millisecond" | "milliseconds" => 1.0,
        "s" | "sec" | "second" | "seconds" => 1e3,
        "m" | "min" | "minute" | "minutes" => 60e3,
        "h" | "hour" | "hours" => 3_600e3,
        "d" | "day" | "days" => 86_400e3,
        _ => return Err(WANT),
    };
    Ok((number * factor) as u64)
}

/// As [`duration_ms`], at least 1.
pub fn positive_ms(text: &str) -> ParseResult<u64> {
    duration_ms(text).map(|ms| ms.max(1))
}

/// A whole number; `_` may part its digits.
pub fn count(text: &str) -> ParseResult<usize> {
    text.replace('_', "").parse().map_err(|_| "a whole number")
}

/// As [`count`], at least 1.
pub fn positive(text: &str) -> ParseResult<usize> {
    count(text).map(|count| count.max(1))
}

/// `true`, `on`, `yes`, `1`, and their contraries.
pub fn switch(text: &str) -> ParseResult<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "on" | "yes" | "1" => Ok(true),
        "false" | "off" | "no" | "0" => Ok(false),
        _ => Err("true or false"),
    }
}

/// Any text.
pub fn text(text: &str) -> ParseResult<String> {
    Ok(text.to_owned())
}

/// Text; empty is none.
pub fn optional(text: &str) -> ParseResult<Option<String>> {
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

/// A path, which may not be empty; it is not looked at.
pub fn path(text: &str) -> ParseResult<PathBuf> {
    if text.is_empty() { Err("a path") } else { Ok(text.into()) }
}

/// A path; empty is none.
pub fn optional_path(text: &str) -> ParseResult<Option<PathBuf>> {
    Ok((!text.is_empty()).then(|| text.into()))
}

/// An IP address with its port; names are not looked up.
pub fn address(text: &str) -> ParseResult<SocketAddr> {
    text.parse().map_err(|_| "an address such as 127.0.0.1:5433")
}

/// An address; empty is none.
pub fn optional_address(text: &str) -> ParseResult<Option<SocketAddr>> {
    if text.is_empty() { Ok(None) } else { address(text).map(Some) }
}

fn split_unit(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let number: f64 = text[..end].replace('_', "").parse().ok()?;
    Some((number, text[end..].trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations() {
        assert_eq!(bytes("1.5 KiB"), Ok(1536));
        assert_eq!(bytes("1_000"), Ok(1000));
        assert_eq!(duration_ms("30 days"), Ok(2_592_000_000));
        assert!(duration_ms("soon").is_err());
    }
}
