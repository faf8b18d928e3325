//! What does a COPY say of its format, and of keys that are there? The options of the statement become a [`Format`];
//! what would make lines that read as something else is refused.

use datafusion::sql::sqlparser::ast::{CopyLegacyCsvOption, CopyLegacyOption, CopyOption};
use tarn_query::OnKey;
use tarn_types::Style;

use crate::copy_format::{CopyFormat, Format};
use crate::error::{Result, SqlError, state};

/// What becomes of rows whose key is there, by the word behind `on_conflict`.
pub fn on_key(word: &str) -> Result<OnKey> {
    match word {
        "error" => Ok(OnKey::Refuse),
        "skip" => Ok(OnKey::Keep),
        "replace" => Ok(OnKey::Replace),
        other => {
            let message = format!("COPY on_conflict must be error, skip or replace, not \"{}\"", other.escape_debug());
            Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message))
        }
    }
}

impl Format {
    /// Reads `WITH (…)` and the old spelling `CSV HEADER DELIMITER ','`.
    pub fn new(options: &[CopyOption], legacy: &[CopyLegacyOption], style: Style) -> Result<Format> {
        let kind = kind(options, legacy)?;
        let csv = kind == CopyFormat::Csv;
        let mut format = Format {
            kind,
            delimiter: if csv { b',' } else { b'\t' },
            null: if csv { String::new() } else { "\\N".to_owned() },
            header: false,
            quote: b'"',
            escape: b'"',
            style,
        };
        let mut escape = None;
        for option in options {
            match option {
                CopyOption::Format(_) | CopyOption::Freeze(_) => {}
                CopyOption::Delimiter(c) => format.delimiter = byte("DELIMITER", *c)?,
                CopyOption::Null(text) => format.null = text.clone(),
                CopyOption::Header(header) => format.header = *header,
                CopyOption::Quote(c) => format.quote = byte("QUOTE", *c)?,
                CopyOption::Escape(c) => escape = Some(byte("ESCAPE", *c)?),
                CopyOption::Encoding(name)
                    if name.eq_ignore_ascii_case("utf8") || name.eq_ignore_ascii_case("utf-8") => {}
                other => return Err(SqlError::unsupported(format!("COPY option {other}"), OPTIONS)),
            }
        }
        for option in legacy {
            match option {
                CopyLegacyOption::Csv(csv) => {
                    for option in csv {
                        match option {
                            CopyLegacyCsvOption::Header => format.header = true,
                            CopyLegacyCsvOption::Quote(c) => format.quote = byte("QUOTE", *c)?,
                            CopyLegacyCsvOption::Escape(c) => escape = Some(byte("ESCAPE", *c)?),
                            other => return Err(SqlError::unsupported(format!("COPY option {other}"), OPTIONS)),
                        }
                    }
                }
                CopyLegacyOption::Delimiter(c) => format.delimiter = byte("DELIMITER", *c)?,
                CopyLegacyOption::Null(text) => format.null = text.clone(),
                CopyLegacyOption::Header => format.header = true,
                CopyLegacyOption::Binary => {}
                other => return Err(SqlError::unsupported(format!("COPY option {other}"), OPTIONS)),
            }
        }
        format.escape = escape.unwrap_or(format.quote);
        format.check()?;
        if kind.is_binary() {
            check_binary(options, legacy)?;
        }
        Ok(format)
    }

    /// What would make lines that read as something else.
    fn check(&self) -> Result<()> {
        let refuse = |message: String| Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
        let delimiter = char::from(self.delimiter);
        let is_letter = self.delimiter.is_ascii_lowercase() || self.delimiter.is_ascii_digit();
        match self.kind {
            CopyFormat::Text if is_letter || delimiter == '.' || delimiter == '\\' => {
                return refuse(format!("COPY delimiter cannot be \"{delimiter}\""));
            }
            CopyFormat::Csv if self.delimiter == self.quote => {
                return refuse("COPY delimiter and quote must be different".to_owned());
            }
            _ => {}
        }
        if self.null.contains(['\n', '\r']) {
            return refuse("COPY null representation cannot use newline or carriage return".to_owned());
        }
        if self.null.contains(delimiter) {
            return refuse("COPY delimiter character must not appear in the NULL specification".to_owned());
        }
        if self.kind == CopyFormat::Csv && self.null.contains(char::from(self.quote)) {
            return refuse("CSV quote character must not appear in the NULL specification".to_owned());
        }
        Ok(())
    }
}

/// What would mean nothing in data that are no lines.
fn check_binary(options: &[CopyOption], legacy: &[CopyLegacyOption]) -> Result<()> {
    let named = options.iter().find_map(|option| match option {
        CopyOption::Delimiter(_) => Some("DELIMITER"),
        CopyOption::Null(_) => Some("NULL"),
        CopyOption::Header(true) => Some("HEADER"),
        CopyOption::Quote(_) => Some("QUOTE"),
        CopyOption::Escape(_) => Some("ESCAPE"),
        _ => None,
    });
    let old = legacy.iter().find_map(|option| match option {
        CopyLegacyOption::Delimiter(_) => Some("DELIMITER"),
        CopyLegacyOption::Null(_) => Some("NULL"),
        CopyLegacyOption::Header => Some("HEADER"),
        _ => None,
    });
    match named.or(old) {
        Some(option) => Err(SqlError::new(state::SYNTAX_ERROR, format!("cannot specify {option} in BINARY mode"))),
        None => Ok(()),
    }
}

const OPTIONS: &str = "COPY takes FORMAT text | csv | binary | arrow, HEADER, DELIMITER, NULL, QUOTE, ESCAPE, ENCODING 'utf8', and on_conflict";

fn kind(options: &[CopyOption], legacy: &[CopyLegacyOption]) -> Result<CopyFormat> {
    for option in options {
        if let CopyOption::Format(name) = option {
            return match name.value.to_ascii_lowercase().as_str() {
                "text" => Ok(CopyFormat::Text),
                "csv" => Ok(CopyFormat::Csv),
                "binary" => Ok(CopyFormat::Binary),
                "arrow" => Ok(CopyFormat::Arrow),
                _ => Err(SqlError::unsupported(format!("COPY format \"{name}\""), OPTIONS)),
            };
        }
    }
    if legacy.iter().any(|option| matches!(option, CopyLegacyOption::Binary)) {
        return Ok(CopyFormat::Binary);
    }
    Ok(if legacy.iter().any(|option| matches!(option, CopyLegacyOption::Csv(_))) {
        CopyFormat::Csv
    } else {
        CopyFormat::Text
    })
}

fn byte(option: &str, c: char) -> Result<u8> {
    match u8::try_from(c) {
        Ok(byte) if byte.is_ascii() && byte != b'\n' && byte != b'\r' => Ok(byte),
        _ => Err(SqlError::new(state::INVALID_PARAMETER_VALUE, format!("COPY {option} must be one ASCII character"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delimiter_that_data_would_hide_is_refused() {
        let with = |kind: &str, options: Vec<CopyOption>| {
            let kind = CopyOption::Format(kind.into());
            Format::new(&[vec![kind], options].concat(), &[], Style::default())
                .map(|_| ())
                .map_err(|error| error.state())
        };
        for bad in ['n', '7', '.', '\\'] {
            assert_eq!(with("text", vec![CopyOption::Delimiter(bad)]), Err("22023"), "{bad}");
        }
        assert_eq!(with("csv", vec![CopyOption::Delimiter('"')]), Err("22023"));
        assert_eq!(with("csv", vec![CopyOption::Null("a,b".into())]), Err("22023"));
        assert_eq!(with("csv", vec![CopyOption::Delimiter('n')]), Ok(()));
    }

    #[test]
    fn binary_data_have_no_lines() {
        let format = |options: &[CopyOption], legacy: &[CopyLegacyOption]| {
            Format::new(options, legacy, Style::default()).map(|format| format.kind).map_err(|error| error.state())
        };
        let binary = CopyOption::Format("BINARY".into());
        assert_eq!(format(&[], &[CopyLegacyOption::Binary]), Ok(CopyFormat::Binary));
        assert_eq!(format(&[binary.clone(), CopyOption::Header(false)], &[]), Ok(CopyFormat::Binary));
        for option in [CopyOption::Header(true), CopyOption::Delimiter(','), CopyOption::Null("x".into())] {
            assert_eq!(format(&[binary.clone(), option], &[]), Err("42601"));
        }
        assert_eq!(format(&[], &[CopyLegacyOption::Binary, CopyLegacyOption::Null("x".into())]), Err("42601"));
    }
}
