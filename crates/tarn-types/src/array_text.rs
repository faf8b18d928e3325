//! How is an array written as text, and into which items is it read? `{1,NULL,"a b"}`, as in PostgreSQL 16, "Arrays",
//! section "Array Input and Output Syntax".
//!
//! Arrays begin at 1, as those of the engine. [`array_items`] reads those of one dimension, [`array_parts`] those of
//! several, `{{1,2},{3,4}}`.

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

/// Dimensions that an array may have.
const MAX_DIMENSIONS: usize = 6;

/// An array of any number of dimensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayParts<'a> {
    /// How many items there are in each dimension, the outermost first; none of an array without items.
    pub dimensions: Vec<usize>,
    /// All items; the last dimension runs fastest. NULL is `None`.
    pub items: Vec<Option<Cow<'a, str>>>,
}

/// As [`array_items`], of an array of several dimensions too.
///
/// Errors: as there; arrays of one dimension that are not of one length; more than six dimensions.
pub fn array_parts(text: &str) -> Result<ArrayParts<'_>, NoArray> {
    let body = text.trim_matches(is_space);
    if body.starts_with('[') {
        return Err(NoArray::Bounds);
    }
    let Some(rest) = body.strip_prefix('{') else { return Err(NO_BRACE) };
    let mut parts = ArrayItems::default();
    let rest = parts.level(rest, 0)?;
    if !rest.is_empty() {
        return Err(NoArray::Malformed("Junk after closing right brace."));
    }
    let dimensions = if parts.items.is_empty() { vec![] } else { parts.lengths };
    Ok(ArrayParts { dimensions, items: parts.items })
}

#[derive(Default)]
struct ArrayItems<'a> {
    /// Of each dimension whose first array was read.
    lengths: Vec<usize>,
    items: Vec<Option<Cow<'a, str>>>,
    /// In which dimension items are no arrays.
    last: Option<usize>,
}

impl<'a> ArrayItems<'a> {
    /// Reads what is behind an opening brace, up to the closing one; gives what is behind that.
    fn level(&mut self, mut rest: &'a str, dimension: usize) -> Result<&'a str, NoArray> {
        if dimension == MAX_DIMENSIONS {
            return Err(NoArray::Dimensions);
        }
        if self.lengths.len() == dimension {
            self.lengths.push(usize::MAX);
        }
        let mut length = 0;
        loop {
            rest = rest.trim_start_matches(is_space);
            match rest.chars().next() {
                None => return Err(CUT_OFF),
                // Arrays in arrays have items.
                Some('}') if length == 0 && dimension == 0 => return Ok(&rest[1..]),
                Some('{') if self.last.is_none_or(|last| last > dimension) => {
                    rest = self.level(&rest[1..], dimension + 1)?.trim_start_matches(is_space);
                }
                Some('{') => return Err(MATCHING),
                Some(first) => {
                    if *self.last.get_or_insert(dimension) != dimension {
                        return Err(MATCHING);
                    }
                    if first == '"' {
                        let (item, behind) = quoted(&rest[1..]).ok_or(CUT_OFF)?;
                        self.items.push(Some(item));
                        rest = behind.trim_start_matches(is_space);
                    } else {
                        let (item, behind) = plain(rest)?;
                        self.items.push(item);
                        rest = behind;
                    }
                }
            }
            length += 1;
            match rest.chars().next() {
                None => return Err(CUT_OFF),
                Some(',') => rest = &rest[1..],
                Some('}') => break,
                Some(_) => return Err(MISQUOTED),
            }
        }
        match self.lengths[dimension] {
            usize::MAX => self.lengths[dimension] = length,
            first if first == length => {}
            _ => return Err(MATCHING),
        }
        Ok(&rest[1..])
    }
}

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
        return Err(NO_BRACE);
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

/// An array of items that are texts already, as PostgreSQL writes it: `{1,NULL,"a b"}`. NULL is `None`.
pub fn array_text(items: impl Iterator<Item = Option<String>>) -> String {
    let mut out = String::from("{");
    for item in items {
        if out.len() > 1 {
            out.push(',');
        }
        match item {
            Some(item) => push_item(&mut out, &item),
            None => out.push_str("NULL"),
        }
    }
    out.push('}');
    out
}

/// An item, in quotes if it would be read as something else.
fn push_item(out: &mut String, item: &str) {
    let is_special = |c: char| matches!(c, '{' | '}' | ',' | '"' | '\\') || is_space(c);
    if !item.is_empty() && !item.eq_ignore_ascii_case("null") && !item.contains(is_special) {
        out.push_str(item);
        return;
    }
    out.push('"');
    for c in item.chars() {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
}

const NO_BRACE: NoArray = NoArray::Malformed("Array value must start with \"{\" or dimension information.");
const MATCHING: NoArray = NoArray::Malformed("Multidimensional arrays must have sub-arrays with matching dimensions.");
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

    #[test]
    fn what_would_be_read_as_something_else_is_quoted() {
        let items = [Some("a"), None, Some(""), Some("nuLl"), Some("a b"), Some("x,y"), Some("\"\\")];
        let text = array_text(items.iter().map(|item| item.map(str::to_owned)));
        assert_eq!(text, r#"{a,NULL,"","nuLl","a b","x,y","\"\\"}"#);
        assert_eq!(array_text([].into_iter()), "{}");
    }

    #[test]
    fn arrays_in_arrays_are_of_one_length() {
        let of = |text: &'static str| array_parts(text).map(|parts| (parts.dimensions, parts.items.len()));
        assert_eq!(of("{}"), Ok((vec![], 0)));
        assert_eq!(of("{1,2}"), Ok((vec![2], 2)));
        assert_eq!(of("{{1,2,3},{4,5,6}}"), Ok((vec![2, 3], 6)));
        assert_eq!(of(" { {\"a\" , b} , {NULL,d} } "), Ok((vec![2, 2], 4)));
        assert_eq!(of("{{{1}},{{2}}}"), Ok((vec![2, 1, 1], 2)));
        for bad in
            ["{{1,{2}},{2,3}}", "{{},{}}", "{{1,2},{3}}", "{{1},2}", "{1,{2}}", "{{1,2},{2,3},{4}}", "{{1}", "{{1}}x"]
        {
            assert!(matches!(of(bad), Err(NoArray::Malformed(_))), "{bad}: {:?}", of(bad));
        }
        assert_eq!(of("{{{{{{{1}}}}}}}"), Err(NoArray::Dimensions));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[{}\",\\\\a é]{0,16}") {
            let _ = read(&text);
            let _ = array_parts(&text);
        }

        #[test]
        fn what_is_written_is_read(items in prop::collection::vec(prop::option::of("[{}\",\\\\ nulNé]{0,5}"), 0..5)) {
            prop_assert_eq!(read(&array_text(items.iter().cloned())).unwrap(), items);
        }
    }
}
