//! What is in a JSON text? It was checked before: a walk over it finds where values end, and makes nothing of what it
//! passes.
//!
//! A text that is no JSON after all gives pieces that mean nothing, and no panic.

use std::borrow::Cow;

use tarn_types::json::{JsonFault, unescape};

/// A value, as a piece of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::postgres) struct Json<'a>(&'a str);

/// What a value is, in the order of PostgreSQL's `jsonb`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::postgres) enum JsonKind {
    Null,
    String,
    Number,
    Boolean,
    Array,
    Object,
}

impl JsonKind {
    /// As `jsonb_typeof` says it.
    pub(in crate::postgres) fn name(self) -> &'static str {
        match self {
            JsonKind::Null => "null",
            JsonKind::String => "string",
            JsonKind::Number => "number",
            JsonKind::Boolean => "boolean",
            JsonKind::Array => "array",
            JsonKind::Object => "object",
        }
    }
}

impl<'a> Json<'a> {
    pub(in crate::postgres) fn of(text: &'a str) -> Json<'a> {
        Json(text.trim_matches(is_blank))
    }

    pub(in crate::postgres) fn text(self) -> &'a str {
        self.0
    }

    pub(in crate::postgres) fn kind(self) -> JsonKind {
        match self.0.as_bytes().first() {
            Some(b'{') => JsonKind::Object,
            Some(b'[') => JsonKind::Array,
            Some(b'"') => JsonKind::String,
            Some(b't' | b'f') => JsonKind::Boolean,
            Some(b'n') | None => JsonKind::Null,
            Some(_) => JsonKind::Number,
        }
    }

    pub(in crate::postgres) fn is_scalar(self) -> bool {
        !matches!(self.kind(), JsonKind::Array | JsonKind::Object)
    }

    /// The items of an array; of anything else, none.
    pub(in crate::postgres) fn items(self) -> impl Iterator<Item = Json<'a>> {
        let mut rest = if self.kind() == JsonKind::Array { &self.0[1..] } else { "" };
        std::iter::from_fn(move || next_value(&mut rest))
    }

    /// The members of an object, in the order of the text; of anything else, none.
    pub(in crate::postgres) fn members(self) -> impl Iterator<Item = (Name<'a>, Json<'a>)> {
        let mut rest = if self.kind() == JsonKind::Object { &self.0[1..] } else { "" };
        std::iter::from_fn(move || {
            let name = next_value(&mut rest)?;
            Some((Name(name.between_quotes()), next_value(&mut rest)?))
        })
    }

    /// Of several members of that name, the last.
    pub(in crate::postgres) fn member(self, name: &str) -> Result<Option<Json<'a>>, JsonFault> {
        let mut found = None;
        for (of, value) in self.members() {
            if of.is(name)? {
                found = Some(value);
            }
        }
        Ok(found)
    }

    /// From the end, if negative.
    pub(in crate::postgres) fn item(self, index: i64) -> Option<Json<'a>> {
        match usize::try_from(index) {
            Ok(index) => self.items().nth(index),
            Err(_) => {
                let from_end = usize::try_from(index.unsigned_abs()).ok()?;
                self.items().nth(self.items().count().checked_sub(from_end)?)
            }
        }
    }

    /// What a string says.
    pub(in crate::postgres) fn string(self) -> Result<Cow<'a, str>, JsonFault> {
        unescape(self.between_quotes())
    }

    /// As `->>` gives it: what a string says, of anything else its text. `None`: `null`.
    pub(in crate::postgres) fn as_text(self) -> Result<Option<Cow<'a, str>>, JsonFault> {
        match self.kind() {
            JsonKind::Null => Ok(None),
            JsonKind::String => self.string().map(Some),
            _ => Ok(Some(Cow::Borrowed(self.0))),
        }
    }

    fn between_quotes(self) -> &'a str {
        self.0.get(1..self.0.len().saturating_sub(1)).unwrap_or("")
    }
}

/// The name of a member.
#[derive(Debug, Clone, Copy)]
pub(in crate::postgres) struct Name<'a>(&'a str);

impl<'a> Name<'a> {
    pub(in crate::postgres) fn text(self) -> Result<Cow<'a, str>, JsonFault> {
        unescape(self.0)
    }

    /// The member with this value, as it is written in a `jsonb`.
    pub(in crate::postgres) fn with(self, value: Json<'_>) -> String {
        format!("\"{}\": {}", self.0, value.text())
    }

    pub(in crate::postgres) fn is(self, name: &str) -> Result<bool, JsonFault> {
        Ok(if self.0.contains('\\') { self.text()? == name } else { self.0 == name })
    }
}

fn is_blank(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\n' | '\r')
}

/// Takes a value and what parts it from the next. `None` at the end of the container.
fn next_value<'a>(rest: &mut &'a str) -> Option<Json<'a>> {
    let text = rest.trim_start_matches(is_blank);
    let length = length_of_value(text.as_bytes());
    if length == 0 {
        return None;
    }
    let behind = text.get(length..)?.trim_start_matches(is_blank);
    *rest = behind.strip_prefix([',', ':']).unwrap_or(behind);
    Some(Json(&text[..length]))
}

/// Of what begins the text; 0 if that is no value.
fn length_of_value(text: &[u8]) -> usize {
    match text.first() {
        Some(b'"') => length_of_string(text),
        Some(b'{' | b'[') => {
            let (mut at, mut depth) = (0, 0_usize);
            while let Some(byte) = text.get(at) {
                match byte {
                    b'"' => {
                        at += length_of_string(&text[at..]);
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                at += 1;
                if depth == 0 {
                    return at;
                }
            }
            text.len()
        }
        _ => text.iter().position(|byte| !is_of_word(*byte)).unwrap_or(text.len()),
    }
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')
}

fn length_of_string(text: &[u8]) -> usize {
    let mut at = 1;
    while let Some(byte) = text.get(at) {
        at += match byte {
            b'"' => return at + 1,
            b'\\' => 2,
            _ => 1,
        };
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_are_pieces_of_the_text() {
        let object = Json::of(" {\"a\" : [1, {\"b\":\"]\"} ,null] ,\"c\\u0062\":\"\\\"\", \"a\":-1.5e3} ");
        assert_eq!(object.kind(), JsonKind::Object);
        let members: Vec<_> = object.members().map(|(name, value)| (name.text().unwrap(), value.text())).collect();
        let wanted = [("a", "[1, {\"b\":\"]\"} ,null]"), ("cb", "\"\\\"\""), ("a", "-1.5e3")];
        assert_eq!(members, wanted.map(|(name, value)| (Cow::Borrowed(name), value)));
        assert_eq!(object.member("a").unwrap().map(Json::text), Some("-1.5e3"));
        let array = Json::of("[1, {\"b\":\"]\"} ,null, []]");
        assert_eq!(array.items().map(Json::text).collect::<Vec<_>>(), ["1", "{\"b\":\"]\"}", "null", "[]"]);
        assert_eq!((array.item(-4), array.item(-5), array.item(4)), (Some(Json("1")), None, None));
        assert_eq!((Json::of("[ ]").items().count(), Json::of("{}").members().count()), (0, 0));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[\\[\\]{}\",:0-9a\\\\ü ]{0,16}") {
            let json = Json::of(&text);
            json.members().take(100).for_each(|(name, value)| drop((name.text(), value.as_text())));
            let _ = (json.items().take(100).count(), json.item(-1), json.string());
        }
    }
}
