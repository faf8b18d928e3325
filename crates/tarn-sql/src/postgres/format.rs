//! How are values put into texts of SQL? `format('%s of %I', …)`, `quote_literal`, `quote_nullable`; and `like_escape` and
//! `similar_to_escape` into patterns. Values are written as clients are shown them.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use datafusion::scalar::ScalarValue;
use tarn_query::{datafusion, zone_of};

use crate::error::{SqlError, state};
use crate::names::quote;
use crate::rows::texts;

/// What the pattern of `SIMILAR TO` is written as.
pub(super) const SIMILAR: &str = "similar_to_escape";

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let one = Signature::any(1, Volatility::Stable);
    let several = Signature::one_of(vec![TypeSignature::VariadicAny], Volatility::Stable);
    let all: [(&'static str, Signature, Write); 5] = [
        ("format", several, format),
        ("like_escape", Signature::any(2, Volatility::Stable), like_escape),
        (SIMILAR, Signature::any(2, Volatility::Stable), similar_to_escape),
        ("quote_literal", one.clone(), literals),
        ("quote_nullable", one, nullables),
    ];
    all.into_iter().map(|(name, signature, write)| Arc::new(OfTexts { name, signature, write }.into())).collect()
}

/// The character of an ESCAPE clause, which may have none.
fn one_escape(escape: &str) -> Result<Option<char>, SqlError> {
    let mut letters = escape.chars();
    let escape = letters.next();
    if letters.next().is_some() {
        return Err(SqlError::new(state::INVALID_ESCAPE, "invalid escape string")
            .with_hint("it is one character, or none for no escapes"));
    }
    Ok(escape)
}

/// A pattern of LIKE with an escape of its own, as one with backslashes.
fn like_escape(values: &[Option<&str>]) -> Result<Option<String>, SqlError> {
    let [Some(pattern), Some(escape)] = values else { return Ok(None) };
    let escape = one_escape(escape)?;
    let mut written = String::with_capacity(pattern.len());
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        if Some(letter) == escape {
            written.push('\\');
            written.extend(letters.next());
        } else {
            written.push_str(if letter == '\\' { "\\" } else { "" });
            written.push(letter);
        }
    }
    Ok(Some(written))
}

/// A pattern of SIMILAR TO with its escape, as a regular expression that matches a whole text, and any letter by a point. What stands between two escaped
/// `"` is its group; what is before them is as short as it can be.
pub(super) fn similar_to_escape(values: &[Option<&str>]) -> Result<Option<String>, SqlError> {
    let [Some(pattern), Some(escape)] = values else { return Ok(None) };
    let escape = one_escape(escape)?;
    let mut written = String::with_capacity(pattern.len() + 16);
    written.push_str("^(?:");
    let mut letters = pattern.chars().peekable();
    // Of a class: how many letters of it were read.
    let (mut in_class, mut n_separators) = (None, 0);
    while let Some(letter) = letters.next() {
        let is_escaped = Some(letter) == escape;
        let letter = match letter {
            _ if is_escaped => letters.next().ok_or_else(|| {
                SqlError::new(state::INVALID_ESCAPE, "invalid escape sequence")
                    .with_hint("nothing may follow the pattern's last character but what it escapes")
            })?,
            letter => letter,
        };
        if is_escaped && letter == '"' && in_class.is_none() {
            n_separators += 1;
            written.push_str(match n_separators {
                1 => "){1,1}?(",
                2 => "){1,1}(?:",
                _ => {
                    let message = "SQL regular expression may not contain more than two escape-double-quote separators";
                    return Err(SqlError::new(state::INVALID_ESCAPE_USE, message)
                        .with_hint("they stand around the part that is wanted"));
                }
            });
            continue;
        }
        if let Some(n_read) = &mut in_class {
            let is_named = letter == '[' && letters.peek() == Some(&':') && !is_escaped;
            match letter {
                ']' if *n_read > 0 && !is_escaped => {
                    written.push(']');
                    in_class = None;
                    continue;
                }
                '^' if *n_read == 0 && !is_escaped => {
                    written.push('^');
                    continue;
                }
                // `[:alpha:]`
                '[' if is_named => {
                    written.push('[');
                    for letter in letters.by_ref() {
                        written.push(letter);
                        if letter == ']' {
                            break;
                        }
                    }
                }
                '-' if !is_escaped => written.push('-'),
                letter => literally(letter, &mut written),
            }
            *n_read += 1;
            continue;
        }
        match letter {
            letter if is_escaped => literally(letter, &mut written),
            '%' => written.push_str(".*"),
            '_' => written.push('.'),
            '(' => written.push_str("(?:"),
            '|' | '*' | '+' | '?' | '{' | '}' | ')' => written.push(letter),
            '[' => {
                written.push('[');
                in_class = Some(0_usize);
            }
            letter => literally(letter, &mut written),
        }
    }
    written.push_str(")$");
    Ok(Some(written))
}

/// A letter that stands for itself in a regular expression.
fn literally(letter: char, written: &mut String) {
    // `\<` and `\>` are the ends of words.
    if letter.is_ascii_punctuation() && !matches!(letter, '<' | '>') {
        written.push('\\');
    }
    written.push(letter);
}

/// The text of one row's values.
type Write = fn(&[Option<&str>]) -> Result<Option<String>, SqlError>;

/// A function of texts, whatever the types of its arguments.
#[derive(Debug)]
struct OfTexts {
    name: &'static str,
    signature: Signature,
    write: Write,
}

impl PartialEq for OfTexts {
    fn eq(&self, other: &OfTexts) -> bool {
        self.name == other.name
    }
}

impl Eq for OfTexts {}

impl std::hash::Hash for OfTexts {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for OfTexts {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let zone = zone_of(&args.config_options);
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let n_rows = if is_scalar { 1 } else { args.number_rows };
        let columns = args.args.iter().zip(&args.arg_fields).map(|(arg, field)| {
            let values = arg.to_array(n_rows)?;
            Ok(cast(&texts(&values, field, &zone)?, &DataType::Utf8View)?)
        });
        let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        let mut written = StringViewBuilder::with_capacity(n_rows);
        for row in 0..n_rows {
            let values = columns.iter().map(|column| {
                let column = column.as_string_view();
                (!column.is_null(row)).then(|| column.value(row))
            });
            written.append_option((self.write)(&values.collect::<Vec<_>>())?);
        }
        let written: ArrayRef = Arc::new(written.finish());
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&written, 0)?),
            false => ColumnarValue::Array(written),
        })
    }
}

fn literals(values: &[Option<&str>]) -> Result<Option<String>, SqlError> {
    Ok(values[0].map(literal))
}

fn nullables(values: &[Option<&str>]) -> Result<Option<String>, SqlError> {
    Ok(Some(values[0].map_or_else(|| "NULL".to_owned(), literal)))
}

/// As Postgres writes it: one with a backslash has an E before it.
fn literal(text: &str) -> String {
    let escapes = if text.contains('\\') { "E" } else { "" };
    format!("{escapes}'{}'", text.replace('\'', "''").replace('\\', "\\\\"))
}

/// Where the value of a specifier, or its width, comes from.
#[derive(Clone, Copy)]
enum From {
    Next,
    Place(usize),
}

/// `%[position$][-][width]type` of `values[0]`, where type is `s`, `I` or `L`.
fn format(values: &[Option<&str>]) -> Result<Option<String>, SqlError> {
    let Some(template) = values.first().copied().flatten() else { return Ok(None) };
    let refused = |message: String| Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
    let mut last = 0;
    let mut take = |from: From| {
        last = match from {
            From::Next => last + 1,
            From::Place(place) => place,
        };
        match values.get(last) {
            Some(value) if last > 0 => Ok(*value),
            _ if matches!(from, From::Place(0)) => {
                Err("format specifies argument 0, but arguments are numbered from 1".to_owned())
            }
            _ => Err("too few arguments for format()".to_owned()),
        }
    };
    let (mut out, mut rest) = (String::new(), template);
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        rest = after;
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let mut from = From::Next;
        if let Some((place, after)) = number(rest).and_then(|(place, after)| Some((place, after.strip_prefix('$')?))) {
            (from, rest) = (From::Place(place), after);
        }
        let mut to_left = false;
        while let Some(after) = rest.strip_prefix('-') {
            (to_left, rest) = (true, after);
        }
        let mut width = 0;
        if let Some(after) = rest.strip_prefix('*') {
            let place = number(after).and_then(|(place, after)| Some((place, after.strip_prefix('$')?)));
            let (from, after) = place.map_or((From::Next, after), |(place, after)| (From::Place(place), after));
            rest = after;
            match take(from) {
                Ok(None) => {}
                Ok(Some(text)) => match text.parse::<i32>() {
                    Ok(number) => (width, to_left) = (number.unsigned_abs() as usize, to_left || number < 0),
                    Err(_) => {
                        let message = format!("invalid input syntax for type integer: \"{text}\"");
                        return Err(SqlError::new(state::INVALID_TEXT, message));
                    }
                },
                Err(message) => return refused(message),
            }
        } else if let Some((number, after)) = number(rest) {
            (width, rest) = (number, after);
        }
        if width > MAX_WIDTH {
            let message = format!("format() of {width} letters, the limit is {MAX_WIDTH}");
            return Err(SqlError::new(state::PROGRAM_LIMIT, message).with_hint("give a smaller width"));
        }
        let mut letters = rest.chars();
        let kind = letters.next();
        rest = letters.as_str();
        let Some(kind @ ('s' | 'I' | 'L')) = kind else {
            return match kind {
                None => refused("unterminated format() type specifier".to_owned()),
                Some(other) => refused(format!("unrecognized format() type specifier \"{other}\"")),
            };
        };
        let value = match take(from) {
            Ok(value) => value,
            Err(message) => return refused(message),
        };
        let text = match (kind, value) {
            ('s', value) => value.unwrap_or_default().to_owned(),
            ('L', value) => value.map_or_else(|| "NULL".to_owned(), literal),
            (_, Some(name)) => quote(name),
            (_, None) => {
                return Err(SqlError::new(
                    state::NULL_VALUE_NOT_ALLOWED,
                    "null values cannot be formatted as an SQL identifier",
                ));
            }
        };
        let n_missing = width.saturating_sub(text.chars().count());
        let spaces = " ".repeat(n_missing);
        match to_left {
            true => out.extend([text, spaces]),
            false => out.extend([spaces, text]),
        }
    }
    out.push_str(rest);
    Ok(Some(out))
}

const MAX_WIDTH: usize = 1 << 20;

fn number(text: &str) -> Option<(usize, &str)> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What PostgreSQL 15 says.
    #[test]
    fn values_are_put_into_templates() {
        let of = |values: &[&str]| format(&values.iter().copied().map(Some).collect::<Vec<_>>());
        assert_eq!(of(&["%s and %2$s, %1$s, %s%%", "a", "b"]).unwrap().unwrap(), "a and b, a, b%");
        assert_eq!(
            of(&["|%10s|%-5s|%*s|%-*s|", "a", "b", "-3", "c", "3", "d"]).unwrap().unwrap(),
            "|         a|b    |c  |d  |"
        );
        assert_eq!(of(&["%I %I %L %L", "a", "A b", "it's", "a\\b"]).unwrap().unwrap(), "a \"A b\" 'it''s' E'a\\\\b'");
        assert_eq!(format(&[Some("[%s %L]"), None, None]).unwrap().unwrap(), "[ NULL]");
        for wrong in [&["%s"][..], &["%0$s", "a"], &["%x", "a"], &["%1", "a"], &["%2$s", "a"]] {
            assert_eq!(of(wrong).unwrap_err().state(), state::INVALID_PARAMETER_VALUE, "{wrong:?}");
        }
        assert_eq!(format(&[Some("%I"), None]).unwrap_err().state(), state::NULL_VALUE_NOT_ALLOWED);
    }
}
