//! Which text is written with escapes? `unistr('d\0061t')` is `dat`: `\` and 4 hexadecimal digits, `\+` and 6, `\u` and
//! 4, `\U` and 8 are a character each, two surrogates are one, and `\\` is a backslash.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StringArray};
use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use tarn_query::datafusion;

use super::rowwise::ArgumentRows;
use crate::error::{SqlError, state};

/// The function.
pub(super) fn unistr() -> ScalarUDF {
    Unistr { signature: Signature::exact(vec![DataType::Utf8], Volatility::Immutable) }.into()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Unistr {
    signature: Signature,
}

impl ScalarUDFImpl for Unistr {
    fn name(&self) -> &str {
        "unistr"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = ArgumentRows::of(&args)?;
        let texts = rows.columns[0].as_string::<i32>();
        let of = |row: usize| unescaped(texts.value(row));
        let answer: StringArray = rows.there().map(|row| row.map(of).transpose()).collect::<Result<_, SqlError>>()?;
        rows.answer(Arc::new(answer) as ArrayRef)
    }
}

fn unescaped(text: &str) -> Result<String, SqlError> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    // The first half of a pair.
    let mut high = None;
    while let Some(letter) = rest.chars().next() {
        let is_escape = letter == '\\' && !rest[1..].starts_with('\\');
        if high.is_some() && !is_escape {
            return Err(no_pair());
        }
        if !is_escape {
            out.push(letter);
            let n_bytes = if letter == '\\' { 2 } else { letter.len_utf8() };
            rest = &rest[n_bytes..];
            continue;
        }
        let (code, n_bytes) = code_point(rest)?;
        rest = &rest[n_bytes..];
        let code = match (high.take(), code) {
            (None, 0xD800..=0xDBFF) => {
                high = Some(code);
                continue;
            }
            (Some(high), 0xDC00..=0xDFFF) => 0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00),
            (Some(_), _) | (None, 0xDC00..=0xDFFF) => return Err(no_pair()),
            (None, code) => code,
        };
        let letter = char::from_u32(code).filter(|letter| *letter != '\0');
        out.push(letter.ok_or_else(|| {
            SqlError::new(state::INVALID_PARAMETER_VALUE, format!("invalid Unicode code point: {code:04X}"))
        })?);
    }
    if high.is_some() { Err(no_pair()) } else { Ok(out) }
}

/// The number that an escape writes, and how long it is.
fn code_point(text: &str) -> Result<(u32, usize), SqlError> {
    let (start, n_digits) = match text.as_bytes().get(1) {
        Some(b'+') => (2, 6),
        Some(b'u') => (2, 4),
        Some(b'U') => (2, 8),
        _ => (1, 4),
    };
    let digits = text.get(start..start + n_digits).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
    let code = code.ok_or_else(|| {
        SqlError::new(state::SYNTAX_ERROR, "invalid Unicode escape")
            .with_hint("Unicode escapes must be \\XXXX, \\+XXXXXX, \\uXXXX, or \\UXXXXXXXX.")
    })?;
    Ok((code, start + n_digits))
}

fn no_pair() -> SqlError {
    SqlError::new(state::SYNTAX_ERROR, "invalid Unicode surrogate pair")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What PostgreSQL 15 says.
    #[test]
    fn escapes_are_characters() {
        for (text, want) in [
            ("\\0064at\\+0000610", "data0"),
            ("d\\u0061t\\U000000610", "data0"),
            ("a\\\\b", "a\\b"),
            ("\\d83d\\ude04", "\u{1F604}"),
        ] {
            assert_eq!(unescaped(text).unwrap(), want);
        }
        for (text, state) in [
            ("\\db99", "42601"),
            ("\\db99\\0061", "42601"),
            ("\\db99a", "42601"),
            ("\\dc00", "42601"),
            ("\\+2FFFFF", "22023"),
            ("\\0000", "22023"),
            ("\\xyz", "42601"),
            ("\\00ä", "42601"),
            ("\\", "42601"),
        ] {
            assert_eq!(unescaped(text).unwrap_err().state(), state, "{text}");
        }
    }
}
