//! Which keys of a row go into its block's bloom, and which does a search ask for?
//!
//! One definition for those who write filters and those who ask: a token here and another there would lose rows. Tokens
//! are hashed as their text; whole values behind a byte that is in no UTF-8 text, so that the two never meet.
//!
//! ```text
//! token   its bytes
//! value   FF | column id u32 LE | kind u8 | canonical bytes
//! ```
//!
//! Canonical bytes are the same for values that SQL calls equal, also after the column's type was widened: integers of
//! every width are one kind, decimals lose their trailing zeros and are integers where they can be, UUID and JSON are
//! text.

use xxhash_rust::xxh64::Xxh64;

use tarn_types::{ColumnId, DataType, Value};

use crate::bloom::Hash;

/// Longer tokens are cut here, at a character.
pub const MAX_TOKEN_BYTES: usize = 64;

const VALUE: u8 = 0xff;

/// The tokens of a text in order, repeated as they repeat: maximal runs of alphanumeric characters and `_`, in lower
/// case (Unicode, character by character), cut after 64 bytes. `scratch` is written over.
pub fn tokens<'a>(text: &'a str, scratch: &'a mut String) -> Tokens<'a> {
    Tokens { rest: text, scratch }
}

/// What [`tokens`] answers. Not an iterator: a token lives until the next one is asked for.
#[derive(Debug)]
pub struct Tokens<'a> {
    rest: &'a str,
    scratch: &'a mut String,
}

fn is_token(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

impl Tokens<'_> {
    /// The next token. Does not allocate once the scratch has its size.
    pub fn next_token(&mut self) -> Option<&str> {
        let start = self.rest.find(is_token)?;
        let run = &self.rest[start..];
        let run_end = run.bytes().position(|byte| !(byte.is_ascii_alphanumeric() || byte == b'_')).unwrap_or(run.len());
        if run_end == run.len() || run.as_bytes()[run_end].is_ascii() {
            // Nothing but ASCII, as in most logs: bytes are characters.
            let (token, rest) = run.split_at(run_end);
            self.rest = rest;
            let token = &token[..token.len().min(MAX_TOKEN_BYTES)];
            self.scratch.clear();
            self.scratch.push_str(token);
            self.scratch.make_ascii_lowercase();
            return Some(self.scratch);
        }
        let (token, rest) = run.split_at(run.find(|c| !is_token(c)).unwrap_or(run.len()));
        self.rest = rest;
        self.scratch.clear();
        'token: for c in token.chars() {
            for lower in c.to_lowercase() {
                if self.scratch.len() + lower.len_utf8() > MAX_TOKEN_BYTES {
                    break 'token;
                }
                self.scratch.push(lower);
            }
        }
        Some(self.scratch)
    }
}

/// The key of a token.
pub fn token_hash(token: &str) -> Hash {
    Hash::of(token.as_bytes())
}

/// The key of a whole value in a column of this type (a decimal does not know its scale). `None`: the type has no
/// equality that bytes can stand for (floats, intervals, arrays; addresses are texts in files), or the value is NULL.
/// Equal in SQL means equal here, whatever width the column had when the value was written.
pub fn value_hash(column: ColumnId, data_type: &DataType, value: &Value) -> Option<Hash> {
    Some(match value {
        Value::Null | Value::Float32(_) | Value::Float64(_) | Value::Interval(_) | Value::Inet(_) | Value::Array(_) => {
            return None;
        }
        Value::Bool(v) => hash(column, 1, &[u8::from(*v)]),
        Value::Int16(v) => integer(column, i64::from(*v)),
        Value::Int32(v) => integer(column, i64::from(*v)),
        Value::Int64(v) => integer(column, *v),
        Value::Decimal(v) => {
            let DataType::Decimal { scale, .. } = data_type else { return None };
            decimal(column, *v, *scale)
        }
        Value::Text(v) | Value::Uuid(v) | Value::Json(v) => hash(column, 4, v.as_bytes()),
        Value::Bytes(v) => hash(column, 5, v),
        Value::Date(v) => hash(column, 6, &v.to_le_bytes()),
        Value::Time(v) => hash(column, 7, &v.to_le_bytes()),
        Value::Timestamp(v) => hash(column, 8, &v.to_le_bytes()),
    })
}

fn integer(column: ColumnId, value: i64) -> Hash {
    hash(column, 2, &value.to_le_bytes())
}

fn decimal(column: ColumnId, mut unscaled: i128, mut scale: i8) -> Hash {
    while scale > 0 && unscaled % 10 == 0 {
        (unscaled, scale) = (unscaled / 10, scale - 1);
    }
    match i64::try_from(unscaled) {
        Ok(whole) if scale == 0 => integer(column, whole),
        _ => {
            let mut bytes = [0; 17];
            bytes[..16].copy_from_slice(&unscaled.to_le_bytes());
            bytes[16] = scale as u8;
            hash(column, 3, &bytes)
        }
    }
}

fn hash(column: ColumnId, kind: u8, canonical: &[u8]) -> Hash {
    let mut head = [VALUE, 0, 0, 0, 0, kind];
    head[1..5].copy_from_slice(&column.0.to_le_bytes());
    let mut hasher = Xxh64::new(0);
    hasher.update(&head);
    hasher.update(canonical);
    Hash(hasher.digest())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(text: &str) -> Vec<String> {
        let mut scratch = String::new();
        let mut tokens = tokens(text, &mut scratch);
        let mut all = vec![];
        while let Some(token) = tokens.next_token() {
            all.push(token.to_owned());
        }
        all
    }

    /// The definition, read plainly.
    fn plainly(text: &str) -> Vec<String> {
        let runs = text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|run| !run.is_empty());
        runs.map(|run| {
            let lower: Vec<char> = run.chars().flat_map(char::to_lowercase).collect();
            let fits = |n: &usize| lower[..*n].iter().map(|c| c.len_utf8()).sum::<usize>() <= 64;
            let n = (0..=lower.len()).rev().find(fits).unwrap();
            lower[..n].iter().collect()
        })
        .collect()
    }

    #[test]
    fn tokens_are_words_in_lower_case() {
        assert_eq!(
            all("GET /api/v1/users?id=42 HTTP/1.1"),
            ["get", "api", "v1", "users", "id", "42", "http", "1", "1"]
        );
        assert_eq!(all("trace_id=A-B a"), ["trace_id", "a", "b", "a"]);
        assert_eq!(all("Zürich ÉTÉ 東京都, Straße"), ["zürich", "été", "東京都", "straße"]);
        assert_eq!(all("abcÄ defÖ"), ["abcä", "defö"], "a run may begin in ASCII and leave it");
        assert_eq!(all(" –—…!"), Vec::<String>::new());
        assert_eq!(all(&"X".repeat(100)), ["x".repeat(64)]);
        assert_eq!(all(&format!("{}é b", "x".repeat(63))), ["x".repeat(63), "b".into()], "cut at a character");
        assert_eq!(all("İ"), ["i\u{307}"], "one character may become two");
    }

    proptest! {
        #[test]
        fn tokens_are_as_defined(text in "[a-zA-Z0-9_ äÄßİΣ東.=]{0,120}|.{0,60}|[xX]{50,90}[éÉ]{0,20}") {
            prop_assert_eq!(all(&text), plainly(&text));
        }

        #[test]
        fn a_token_of_a_token_is_itself(text in ".{0,80}") {
            for token in all(&text) {
                // A character that lower-casing made may part words ("i̇"), and only then.
                if token.chars().all(is_token) {
                    prop_assert_eq!(all(&token), [token]);
                }
            }
        }
    }

    #[test]
    fn equal_values_have_one_key_whatever_their_width() {
        let column = ColumnId(7);
        let decimal = |scale| DataType::Decimal { precision: 38, scale };
        let of = |data_type, value| value_hash(column, &data_type, &value).unwrap();
        let five = of(DataType::Int64, Value::Int64(5));
        assert_eq!(of(DataType::Int16, Value::Int16(5)), five);
        assert_eq!(of(DataType::Int32, Value::Int32(5)), five);
        assert_eq!(of(decimal(0), Value::Decimal(5)), five);
        assert_eq!(of(decimal(3), Value::Decimal(5_000)), five);
        assert_eq!(of(decimal(3), Value::Decimal(1_250)), of(decimal(2), Value::Decimal(125)));
        assert_ne!(of(decimal(3), Value::Decimal(125)), of(decimal(2), Value::Decimal(125)));
        assert_eq!(of(decimal(2), Value::Decimal(0)), of(DataType::Int16, Value::Int16(0)));
        let huge = i128::from(i64::MAX) * 100;
        assert_eq!(of(decimal(0), Value::Decimal(huge)), of(decimal(1), Value::Decimal(huge * 10)));
        let text = |v: &str| of(DataType::Text, Value::Text(v.into()));
        assert_eq!(of(DataType::Uuid, Value::Uuid("ab".into())), text("ab"));
        assert_ne!(of(DataType::Bytes, Value::Bytes(b"ab".to_vec())), text("ab"));
        assert_ne!(value_hash(ColumnId(8), &DataType::Text, &Value::Text("ab".into())), Some(text("ab")));
        assert_ne!(text("ab"), token_hash("ab"), "a value is not a token");
        for nothing in [Value::Null, Value::Float32(1.0), Value::Float64(f64::NAN)] {
            assert_eq!(value_hash(column, &DataType::Float64, &nothing), None);
        }
    }

    #[test]
    fn keys_stay_what_they_were_written_as() {
        // These numbers are in filters on disk.
        assert_eq!(token_hash("connection").0, xxhash_rust::xxh64::xxh64(b"connection", 0));
        let value = value_hash(ColumnId(3), &DataType::Int32, &Value::Int32(-2)).unwrap();
        let mut key = vec![0xff, 3, 0, 0, 0, 2];
        key.extend_from_slice(&(-2i64).to_le_bytes());
        assert_eq!(value, Hash::of(&key));
    }
}
