//! How is an array written as text, and into which items is it read? `{1,NULL,"a b"}`, as in PostgreSQL 16, "Arrays", section "Array
//! Input and Output Syntax".
//!
//! Arrays are of one dimension that begins at 1, as those of the engine.

use std::borrow::Cow;
use std::fmt;

/// Why a text is no array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoArray {
    /// It is not written as one; what is wrong, in PostgreSQL's words.
    Malformed(&'static str),
    /// Items are arrays.
    Dimensions,
    /// It says where it begins and ends: `[0:1]={1,2}`.
    Bounds,
}

impl fmt::Display for NoArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoArray::Malformed(what) => what,
            NoArray::Dimensions => "it has several dimensions",
            NoArray::Bounds => "it says its bounds",
        })
    }
}

impl std::error::Error for NoArray {}

/// A blank, as PostgreSQL sees it.
fn is_space(c: char) -> bool {
    c.is_ascii_whitespace() || c == '\u{b}'
}

/// The items of an array, in order; NULL is `None`. What is not escaped is not copied.
///
/// Errors: it is none, or none of ours. Cost: its length.
pub fn array_items(text: &str) -> Result<Vec<Option<Cow<'_, str>>>, NoArray> {
    let body = text.trim_matches(is_space);
    if body.starts_with('[') {
        return Err(NoArray::Bounds);
    }
    let Some(mut rest) = body.strip_prefix('{') else {
        return Err(NoArray::Malformed("Array value must start with \"{\" or dimension information."));
    };
    let mut items = Vec::new();
    loop {
        rest = rest.trim_start_matches(is_space);
        match rest.chars().next() {
            None => return Err(CUT_OFF),
            Some('}') if items.is_empty() => {
                rest = &rest[1..];
                break;
            }
            Some('{') => return Err(NoArray::Dimensions),
            Some('"') => {
                let (item, behind) = quoted(&rest[1..]).ok_or(CUT_OFF)?;
                items.push(Some(item));
                rest = behind.trim_start_matches(is_space);
            }
            Some(_) => {
                let (item, behind) = plain(rest)?;
                items.push(item);
                rest = behind;
            }
        }
        match rest.chars().next() {
            None => return Err(CUT_OFF),
            Some(',') => rest = &rest[1..],
            Some('}') => {
                rest = &rest[1..];
                break;
            }
            Some(_) => return Err(MISQUOTED),
        }
    }
    if rest.is_empty() { Ok(items) } else { Err(NoArray::Malformed("Junk after closing right brace.")) }
}

const CUT_OFF: NoArray = NoArray::Malformed("Unexpected end of input.");
const MISQUOTED: NoArray = NoArray::Malformed("Incorrectly quoted array element.");

/// An item behind its opening quote, and what is behind the closing one.
fn quoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let mut item = Cow::Borrowed("");
    let mut start = 0;
    loop {
        let at = start + text[start..].find(['"', '\\'])?;
        push(&mut item, &text[start..at]);
        if text[at..].starts_with('"') {
            return Some((item, &text[at + 1..]));
        }
        let escaped = text[at + 1..].chars().next()?;
        start = at + 1 + escaped.len_utf8();
        push(&mut item, &text[at + 1..start]);
    }
}

/// An item without quotes, and what begins with the comma or brace behind it.
fn plain(text: &str) -> Result<(Option<Cow<'_, str>>, &str), NoArray> {
    let mut item = Cow::Borrowed("");
    let (mut start, mut is_escaped) = (0, false);
    // Spaces behind it are no part of it, unless they are escaped.
    let mut n_kept = 0;
    loop {
        let Some(n) = text[start..].find(['"', '\\', ',', '{', '}']) else { return Err(CUT_OFF) };
        let at = start + n;
        push(&mut item, &text[start..at]);
        match text.as_bytes()[at] {
            b'\\' => {
                let Some(escaped) = text[at + 1..].chars().next() else { return Err(CUT_OFF) };
                start = at + 1 + escaped.len_utf8();
                push(&mut item, &text[at + 1..start]);
                (is_escaped, n_kept) = (true, item.len());
            }
            b'"' => return Err(MISQUOTED),
            b'{' => return Err(NoArray::Malformed("Unexpected \"{\" character.")),
            end => {
                let n_trimmed = item.trim_end_matches(is_space).len();
                truncate(&mut item, n_trimmed.max(n_kept));
                let is_null = !is_escaped && item.eq_ignore_ascii_case("null");
                return match item.is_empty() {
                    true if end == b',' => Err(NoArray::Malformed("Unexpected \",\" character.")),
                    true => Err(NoArray::Malformed("Unexpected \"}\" character.")),
                    false => Ok(((!is_null).then_some(item), &text[at..])),
                };
            }
        }
    }
}

fn push<'a>(item: &mut Cow<'a, str>, more: &'a str) {
    match item {
        Cow::Borrowed("") => *item = Cow::Borrowed(more),
        _ => item.to_mut().push_str(more),
    }
}

fn truncate(item: &mut Cow<'_, str>, length: usize) {
    match item {
        Cow::Borrowed(text) => *text = &text[..length],
        Cow::Owned(text) => text.truncate(length),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<Vec<Option<String>>, NoArray> {
        Ok(array_items(text)?.into_iter().map(|item| item.map(Cow::into_owned)).collect())
    }

    /// What PostgreSQL 15 says of the same texts.
    #[test]
    fn texts_are_read_as_postgres_does() {
        let some = |texts: &[&str]| texts.iter().map(|text| Some((*text).to_owned())).collect::<Vec<_>>();
        assert_eq!(read("{}").unwrap(), []);
        assert_eq!(read(" { } ").unwrap(), []);
        assert_eq!(read("{1,2}").unwrap(), some(&["1", "2"]));
        assert_eq!(read(" { a b , \" c\" ,d\\ } ").unwrap(), some(&["a b", " c", "d "]));
        assert_eq!(read("{null,NULL,\"null\",n\\ull}").unwrap(), [vec![None, None], some(&["null", "null"])].concat());
        assert_eq!(read(r#"{"a\"\\b","",é\,x}"#).unwrap(), some(&["a\"\\b", "", "é,x"]));
        for bad in [
            "", "1,2", "{1,2", "{1,,2}", "{1,}", "{,1}", "{1}x", "{\"a", "{\"a\"b}", "{a\"b\"}", "{a{b}}", "{1}}",
            "{a\\",
        ] {
            assert!(matches!(read(bad), Err(NoArray::Malformed(_))), "{bad}");
        }
        assert_eq!(read("{{1,2},{3,4}}"), Err(NoArray::Dimensions));
        assert_eq!(read("[0:1]={1,2}"), Err(NoArray::Bounds));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[{}\",\\\\a é]{0,16}") {
            let _ = read(&text);
        }
    }
}
