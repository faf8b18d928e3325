//! How is a name written in a statement, and which names are written here? `quote_ident` quotes what is no name as it
//! stands: capitals, signs, words that are reserved. `parse_ident` gives the names of `a."B".c`, and refuses what is
//! none.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, ListBuilder, StringArray, StringBuilder};
use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use tarn_query::datafusion;

use super::averages::undefined;
use super::rowwise::ArgumentRows;
use crate::error::{SqlError, state};
use crate::names::{quote, unquoted};

/// The functions, to be registered over those of the catalog.
pub(crate) fn functions() -> Vec<Arc<ScalarUDF>> {
    let of = |what| OfNames { what, signature: Signature::user_defined(Volatility::Immutable) };
    [IdentifierFunction::Quoted, IdentifierFunction::Parsed]
        .into_iter()
        .map(|what| Arc::new(ScalarUDF::from(of(what))))
        .collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum IdentifierFunction {
    Quoted,
    Parsed,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfNames {
    what: IdentifierFunction,
    signature: Signature,
}

impl ScalarUDFImpl for OfNames {
    fn name(&self) -> &str {
        match self.what {
            IdentifierFunction::Quoted => "quote_ident",
            IdentifierFunction::Parsed => "parse_ident",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let is_text = |of: &DataType| of.is_string() || of.is_null();
        match (self.what, types) {
            (_, [text]) if is_text(text) => Ok(vec![DataType::Utf8]),
            (IdentifierFunction::Parsed, [text, DataType::Boolean | DataType::Null]) if is_text(text) => {
                Ok(vec![DataType::Utf8, DataType::Boolean])
            }
            _ => Err(undefined(self.name(), types).into()),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.what {
            IdentifierFunction::Quoted => DataType::Utf8,
            IdentifierFunction::Parsed => DataType::new_list(DataType::Utf8, true),
        })
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = ArgumentRows::of(&args)?;
        let text = |row: usize| rows.columns[0].as_string::<i32>().value(row);
        let answer: ArrayRef = match self.what {
            IdentifierFunction::Quoted => {
                Arc::new(rows.there().map(|row| row.map(|row| quote(text(row)))).collect::<StringArray>())
            }
            IdentifierFunction::Parsed => {
                let is_strict = |row: usize| rows.columns.get(1).is_none_or(|of| of.as_boolean().value(row));
                let mut names = ListBuilder::new(StringBuilder::new());
                for row in rows.there() {
                    let parsed = row.map(|row| parsed(text(row), is_strict(row))).transpose()?;
                    names.append_option(parsed.map(|parsed| parsed.into_iter().map(Some)));
                }
                Arc::new(names.finish())
            }
        };
        rows.answer(answer)
    }
}

/// The names that are written with points between them. What stands behind the last is an error if it is `strict`.
///
/// Errors: `22023`.
fn parsed(text: &str, strict: bool) -> Result<Vec<String>, SqlError> {
    let fault = || {
        let message = format!("string is not a valid identifier: \"{text}\"");
        SqlError::new(state::INVALID_PARAMETER_VALUE, message)
    };
    let (mut names, mut rest) = (vec![], text.trim_ascii_start());
    loop {
        if let Some(quoted) = rest.strip_prefix('"') {
            let (name, behind) =
                unquoted(quoted).ok_or_else(|| fault().with_detail("String has unclosed double quotes."))?;
            if name.is_empty() {
                return Err(fault().with_detail("Quoted identifier must not be empty."));
            }
            names.push(name);
            rest = behind;
        } else {
            let is_start = |c: char| c.is_ascii_alphabetic() || c == '_' || !c.is_ascii();
            let end = rest.find(|c: char| !is_start(c) && !c.is_ascii_digit() && c != '$').unwrap_or(rest.len());
            match rest.starts_with(is_start) {
                true => names.push(rest[..end].to_ascii_lowercase()),
                false if rest.starts_with('.') => return Err(fault().with_detail("No valid identifier before \".\".")),
                false if !names.is_empty() => return Err(fault().with_detail("No valid identifier after \".\".")),
                false => return Err(fault()),
            }
            rest = &rest[end..];
        }
        rest = rest.trim_ascii_start();
        match rest.strip_prefix('.') {
            Some(behind) => rest = behind.trim_ascii_start(),
            None if rest.is_empty() || !strict => return Ok(names),
            None => return Err(fault()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What PostgreSQL 15 says.
    #[test]
    fn names_are_read() {
        let of = |text: &str, strict: bool| parsed(text, strict).ok().map(|names| names.join("|"));
        assert_eq!(of("A.\"B\".c", true).as_deref(), Some("a|B|c"));
        assert_eq!(of(" a . b$1 ", true).as_deref(), Some("a|b$1"));
        assert_eq!(of("\"a\"\"b\"", true).as_deref(), Some("a\"b"));
        assert_eq!(of("foo.boo[]", false).as_deref(), Some("foo|boo"));
        for text in ["foo.boo[]", "", "a.", ".a", "\"a", "\"\"", "1a", "a b"] {
            assert_eq!(of(text, true), None, "{text}");
        }
        assert_eq!(of("a..b", false), None);
    }
}
