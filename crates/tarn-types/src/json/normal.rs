//! Which text is a `jsonb` kept as? The one that PostgreSQL shows: members in the order of their names, shorter names
//! first, of equal names the last; one blank behind `:` and `,`; numbers as `numeric`s are written.
//!
//! Two that are equal may still differ, in the zeros behind a point: `1.0` is `1`, and stays `1.0`.

use std::borrow::Cow;

use super::number;
use super::read::{JsonFault, JsonReader, JsonToken};
use super::string::{quote, unescape};

/// Zeros that a text may have more when its exponents are written out: so many, and four for each of its bytes.
const FREE_ZEROS: usize = 1_000;

/// The normal form of a JSON text. At most five times as long as the text, and a thousand digits.
///
/// # Errors
/// All faults: what escapes mean is looked at here.
pub fn normal_form(text: &str) -> Result<String, JsonFault> {
    let mut out = JsonNormalizer { out: String::with_capacity(text.len() + text.len() / 8), around: vec![] };
    let (mut reader, mut n_zeros) = (JsonReader::new(text), 0);
    let max_zeros = FREE_ZEROS + 4 * text.len();
    while let Some(piece) = reader.next()? {
        match piece {
            JsonToken::StartArray => out.start('[', None),
            JsonToken::StartObject => out.start('{', Some(vec![])),
            JsonToken::End => out.end(),
            JsonToken::Name(name) => out.name(unescape(name)?),
            JsonToken::String(text) => {
                out.before_value();
                quote(&unescape(text)?, &mut out.out);
            }
            JsonToken::Number(number) => {
                out.before_value();
                n_zeros += number::write(number, &mut out.out)?;
                if n_zeros > max_zeros {
                    return Err(JsonFault::Expands);
                }
            }
            JsonToken::Word(word) => {
                out.before_value();
                out.out.push_str(word);
            }
        }
    }
    Ok(out.out)
}

struct JsonNormalizer<'a> {
    out: String,
    around: Vec<Container<'a>>,
}

struct Container<'a> {
    /// Of its bracket.
    start: usize,
    is_empty: bool,
    /// Of an object.
    members: Option<Vec<Member<'a>>>,
}

/// From here to where the next begins, without what is between them.
struct Member<'a> {
    name: Cow<'a, str>,
    start: usize,
}

/// What stands between two members or items.
const BETWEEN: &str = ", ";

impl<'a> JsonNormalizer<'a> {
    fn start(&mut self, bracket: char, members: Option<Vec<Member<'a>>>) {
        self.before_value();
        self.around.push(Container { start: self.out.len(), is_empty: true, members });
        self.out.push(bracket);
    }

    /// Of an item of an array; a member's name says what is before it.
    fn before_value(&mut self) {
        if let Some(array) = self.around.last_mut().filter(|around| around.members.is_none()) {
            self.out.push_str(if array.is_empty { "" } else { BETWEEN });
            array.is_empty = false;
        }
    }

    fn name(&mut self, name: Cow<'a, str>) {
        let Some(Container { is_empty, members: Some(members), .. }) = self.around.last_mut() else { return };
        self.out.push_str(if *is_empty { "" } else { BETWEEN });
        *is_empty = false;
        let start = self.out.len();
        quote(&name, &mut self.out);
        self.out.push_str(": ");
        members.push(Member { name, start });
    }

    fn end(&mut self) {
        let Some(container) = self.around.pop() else { return };
        let Some(members) = container.members else { return self.out.push(']') };
        if !members.is_sorted_by(|one, next| order(one) < order(next)) {
            let sorted = self.sorted(&members);
            self.out.truncate(container.start + 1);
            self.out.push_str(&sorted);
        }
        self.out.push('}');
    }

    /// The members' texts in order, the last of each name.
    fn sorted(&self, members: &[Member<'_>]) -> String {
        let ends = members.iter().skip(1).map(|next| next.start - BETWEEN.len()).chain([self.out.len()]);
        let mut spans: Vec<_> = members.iter().zip(ends).collect();
        spans.sort_by(|(one, _), (other, _)| order(one).cmp(&order(other)));
        let mut sorted = String::new();
        for (idx, (member, end)) in spans.iter().enumerate() {
            let is_last = spans.get(idx + 1).is_none_or(|(next, _)| next.name != member.name);
            if is_last {
                sorted.push_str(if sorted.is_empty() { "" } else { BETWEEN });
                sorted.push_str(&self.out[member.start..*end]);
            }
        }
        sorted
    }
}

fn order<'a>(member: &'a Member<'_>) -> (usize, &'a [u8]) {
    (member.name.len(), member.name.as_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::MAX_DEPTH;
    use super::*;

    #[test]
    fn texts_that_mean_the_same_become_one() {
        for (text, wanted) in [
            (" { \"b\":1 ,\"a\" : [ ] } ", "{\"a\": [], \"b\": 1}"),
            ("{\"aa\":1,\"b\":2,\"a\":3}", "{\"a\": 3, \"b\": 2, \"aa\": 1}"),
            ("{\"a\":1,\"b\":{\"z\":1,\"y\":2},\"a\":[1,2.50]}", "{\"a\": [1, 2.50], \"b\": {\"y\": 2, \"z\": 1}}"),
            ("{\"a\":1,\"a\":2,\"a\":3}", "{\"a\": 3}"),
            ("{\"\\u0061\":1,\"a\":2}", "{\"a\": 2}"),
            ("[1e2,-0,\"\\u00e9\\/\\n\",true,null,{}]", "[100, 0, \"é/\\n\", true, null, {}]"),
            ("\"x\"", "\"x\""),
        ] {
            assert_eq!(normal_form(text).as_deref(), Ok(wanted), "{text}");
        }
        assert_eq!(normal_form("{\"a\":\"\\u0000\"}"), Err(JsonFault::Nul));
        assert_eq!(normal_form("[\"\\ud83d\"]"), Err(JsonFault::Surrogate));
        assert_eq!(normal_form("{\"a\":1"), Err(JsonFault::Syntax));
    }

    #[test]
    fn what_a_text_becomes_is_bounded() {
        assert_eq!(normal_form("1e900").map(|text| text.len()), Ok(901));
        assert_eq!(normal_form("1e131000"), Err(JsonFault::Expands));
        assert_eq!(normal_form(&format!("[{}1]", "1e300,".repeat(1_000))), Err(JsonFault::Expands));
        let deep = "{\"b\":1,\"a\":".repeat(MAX_DEPTH);
        let deep = format!("{deep}1{}", "}".repeat(MAX_DEPTH));
        assert!(normal_form(&deep).unwrap().starts_with("{\"a\": {\"a\": "));
        assert_eq!(normal_form(&"[".repeat(100_000)), Err(JsonFault::TooDeep));
    }

    proptest! {
        #[test]
        fn it_means_what_was_written_and_stays(text in "(\\[|\\{\"[a-c]{1,2}\":|\"[a-c\\\\n]\",|[1-9][0-9],|\\]|\\}|,| ){0,12}") {
            if let Ok(normal) = normal_form(&text) {
                prop_assert_eq!(normal_form(&normal), Ok(normal.clone()));
                let value = |text: &str| serde_json::from_str::<serde_json::Value>(text);
                if let (Ok(one), Ok(other)) = (value(&text), value(&normal)) {
                    prop_assert_eq!(one, other);
                }
            }
        }
    }
}
