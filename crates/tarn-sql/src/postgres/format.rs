//! How are values put into texts of SQL? `format('%s of %I', …)`, also with the items of a list, `quote_literal`,
//! `quote_nullable`; and `like_escape` and `similar_to_escape` into patterns. Values are written as clients are shown
//! them.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use datafusion::scalar::ScalarValue;
use tarn_query::{datafusion, style_of};

use crate::error::{SqlError, state};
use crate::names::quote;
use crate::rows::texts;

/// What the pattern of `SIMILAR TO` is written as.
pub(super) const SIMILAR: &str = "similar_to_escape";
/// `format(template, VARIADIC list)`.
pub(super) const FORMAT_LIST: &str = "tarn_format";

/// `concat_ws(between, VARIADIC list)`.
pub(super) const CONCAT_LIST: &str = "tarn_concat";

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let one = Signature::any(1, Volatility::Stable);
    let several = Signature::one_of(vec![TypeSignature::VariadicAny], Volatility::Stable);
    let all: [(&'static str, Signature, Write); 7] = [
        ("format", several, format),
        (FORMAT_LIST, Signature::any(2, Volatility::Stable), format),
        (CONCAT_LIST, Signature::any(2, Volatility::Stable), concat),
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

/// A pattern of SIMILAR TO with its escape, as a regular expression that matches a whole text, and any letter by a
/// point. One with separators, `a#"b#"c`, has a group of what is between them; what is before them is as short as can
/// be.
pub(super) fn similar_to_escape(values: &[Option<&str>]) -> Result<Option<String>, SqlError> {
    let [Some(pattern), Some(escape)] = values else { return Ok(None) };
    let escape = one_escape(escape)?;
    let parts = similar_parts(pattern, escape, false)?;
    if let [whole] = &parts[..] {
        return Ok(Some(format!("^(?:{whole})$")));
    }
    match &similar_parts(pattern, escape, true)?[..] {
        [before, inside] => Ok(Some(format!("^(?:{before})({inside})$"))),
        [before, inside, behind] => Ok(Some(format!("^(?:{before})({inside})(?:{behind})$"))),
        _ => Err(SqlError::new(
            state::INVALID_ESCAPE_USE,
            "SQL regular expression may not contain more than two escape-double-quote separators",
        )
        .with_hint("substring(text SIMILAR 'before#\"inside#\"behind' ESCAPE '#')")),
    }
}

/// What is between the separators of a pattern, as regular expressions. `is_short`: the first matches as little as can
/// be.
fn similar_parts(pattern: &str, escape: Option<char>, is_short: bool) -> Result<Vec<String>, SqlError> {
    let mut parts = vec![];
    let mut written = String::with_capacity(pattern.len() + 16);
    let mut letters = pattern.chars().peekable();
    // Of a class: how many letters of it were read.
    let mut in_class = None;
    let mut in_bound = false;
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
            parts.push(std::mem::take(&mut written));
            continue;
        }
        let short = if is_short && parts.is_empty() { "?" } else { "" };
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
                letter if is_escaped => escaped(letter, &mut written),
                letter => literally(letter, &mut written),
            }
            *n_read += 1;
            continue;
        }
        match letter {
            letter if is_escaped => escaped(letter, &mut written),
            '%' => written.extend([".*", short]),
            '_' => written.push('.'),
            '(' => written.push_str("(?:"),
            ',' if in_bound => written.push(letter),
            '|' | '{' | ')' => {
                in_bound = letter == '{';
                written.push(letter);
            }
            '*' | '+' | '?' | '}' => {
                in_bound = false;
                written.push(letter);
                written.push_str(short);
            }
            '[' => {
                written.push('[');
                in_class = Some(0_usize);
            }
            letter => literally(letter, &mut written),
        }
    }
    parts.push(written);
    Ok(parts)
}

/// A letter that stands for itself in a regular expression.
fn literally(letter: char, written: &mut String) {
    // `\<` and `\>` are the ends of words.
    if letter.is_ascii_punctuation() && !matches!(letter, '<' | '>') {
        written.push('\\');
    }
    written.push(letter);
}

/// A letter behind the escape. It is one of a regular expression's, too: `'7' SIMILAR TO '\d'`.
fn escaped(letter: char, written: &mut String) {
    if letter.is_ascii_alphanumeric() {
        written.push('\\');
    }
    literally(letter, written);
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

impl OfTexts {
    fn takes_list(&self) -> bool {
        matches!(self.name, FORMAT_LIST | CONCAT_LIST)
    }
}

impl ScalarUDFImpl for OfTexts {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        if self.takes_list() && !matches!(types, [_, DataType::List(_) | DataType::Null]) {
            let message = "VARIADIC argument must be an array";
            return Err(SqlError::new(state::DATATYPE_MISMATCH, message).with_hint("VARIADIC ARRAY[a, b]").into());
        }
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let style = style_of(&args.config_options);
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let n_rows = if is_scalar { 1 } else { args.number_rows };
        let text = |values: &ArrayRef, field: &Field| -> Result<ArrayRef> {
            Ok(cast(&texts(values, field, &style)?, &DataType::Utf8View)?)
        };
        let (mut columns, mut list) = (vec![], None);
        for (arg, field) in args.args.iter().zip(&args.arg_fields) {
            let values = arg.to_array(n_rows)?;
            match (field.data_type(), values.as_list_opt::<i32>()) {
                (DataType::List(item), Some(lists)) if self.takes_list() => {
                    list = Some((lists.clone(), text(lists.values(), item)?));
                }
                _ => columns.push(text(&values, field)?),
            }
        }
        let mut written = StringViewBuilder::with_capacity(n_rows);
        let mut values = vec![];
        for row in 0..n_rows {
            values.clear();
            values.extend(columns.iter().map(|column| value_of(column, row)));
            if self.name == CONCAT_LIST && list.as_ref().is_none_or(|(lists, _)| lists.is_null(row)) {
                written.append_null();
                continue;
            }
            if let Some((lists, items)) = list.as_ref().filter(|(lists, _)| lists.is_valid(row)) {
                let range = lists.value_offsets()[row] as usize..lists.value_offsets()[row + 1] as usize;
                values.extend(range.map(|item| value_of(items, item)));
            }
            written.append_option((self.write)(&values)?);
        }
        let written: ArrayRef = Arc::new(written.finish());
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&written, 0)?),
            false => ColumnarValue::Array(written),
        })
    }
}

/// Those that are not NULL, with the first between them.
fn concat(values: &[Option<&str>]) -> Result<Option<String>, SqlError> {
    let [Some(between), rest @ ..] = values else { return Ok(None) };
    Ok(Some(rest.iter().copied().flatten().collect::<Vec<_>>().join(between)))
}

fn value_of(texts: &ArrayRef, row: usize) -> Option<&str> {
    let texts = texts.as_string_view();
    (!texts.is_null(row)).then(|| texts.value(row))
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
enum ArgumentSource {
    Next,
    Place(usize),
}

/// `%[position$][-][width]type` of `values[0]`, where type is `s`, `I` or `L`.
fn format(values: &[Option<&str>]) -> Result<Option<String>, SqlError> {
    let Some(template) = values.first().copied().flatten() else { return Ok(None) };
    let refused = |message: String| Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
    let mut last = 0;
    let mut take = |from: ArgumentSource| {
        last = match from {
            ArgumentSource::Next => last + 1,
            ArgumentSource::Place(place) => place,
        };
        match values.get(last) {
            Some(value) if last > 0 => Ok(*value),
            _ if matches!(from, ArgumentSource::Place(0)) => {
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
        let mut from = ArgumentSource::Next;
        if let Some((place, after)) = number(rest).and_then(|(place, after)| Some((place, after.strip_prefix('$')?))) {
            (from, rest) = (ArgumentSource::Place(place), after);
        }
        let mut to_left = false;
        while let Some(after) = rest.strip_prefix('-') {
            (to_left, rest) = (true, after);
        }
        let mut width = 0;
        if let Some(after) = rest.strip_prefix('*') {
            let place = number(after).and_then(|(place, after)| Some((place, after.strip_prefix('$')?)));
            let (from, after) =
                place.map_or((ArgumentSource::Next, after), |(place, after)| (ArgumentSource::Place(place), after));
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
    fn parts_of_patterns_are_between_separators() {
        let of = |pattern: &str| similar_to_escape(&[Some(pattern), Some("#")]);
        for (pattern, written) in [
            ("a%g", "^(?:a.*g)$"),
            ("a#\"(b_d)#\"%", "^(?:a)((?:b.d))(?:.*)$"),
            ("%a{1,2}#\"%g", "^(?:.*?a{1,2}?)(.*g)$"),
            ("[#\"]_", "^(?:[\\\"].)$"),
        ] {
            assert_eq!(of(pattern).unwrap().as_deref(), Some(written));
        }
        assert_eq!(of("a#\"b#\"c#\"d").unwrap_err().state(), state::INVALID_ESCAPE_USE);
    }

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
