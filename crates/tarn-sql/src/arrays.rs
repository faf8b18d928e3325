//! How is an array read that a client sends, as `{1,NULL,"a b"}` or in the binary form? Into its elements, which are
//! read as values of their type.
//!
//! Arrays are of one dimension that begins at 1, as those of the engine; others are refused by name. Source: PostgreSQL
//! 16, "Arrays", section "Array Input and Output Syntax"; its `array_recv`. `nested.rs` writes what is read here.

use std::borrow::Cow;

use tarn_types::{NoArray, array_items};

use crate::error::{Result, SqlError, state};

/// Dimensions that Postgres' arrays may have.
const MAX_DIMENSIONS: i32 = 6;

/// The elements of a text; NULL is `None`.
///
/// Errors: 22P02 for what is no array, 0A000 for one of several dimensions or that says its bounds. Cost: its length.
pub fn elements_of_text(text: &str) -> Result<Vec<Option<Cow<'_, str>>>> {
    array_items(text).map_err(|why| match why {
        NoArray::Malformed(what) => {
            let message = format!("malformed array literal: \"{}\"", shortened(text));
            SqlError::new(state::INVALID_TEXT, message).with_detail(what)
        }
        NoArray::Dimensions => several_dimensions(),
        NoArray::Bounds => SqlError::unsupported("an array whose bounds are said", "leave them out: it begins at 1"),
    })
}

/// The elements of the binary form, each the bytes of a value of the type `element` (an OID); NULL is `None`.
///
/// Errors: 22P03 for bytes that are no array, 42804 for one of another type, 0A000 for one of several dimensions or
/// that does not begin at 1. Cost: the elements.
pub fn elements_of_binary(bytes: &[u8], element: u32) -> Result<Vec<Option<&[u8]>>> {
    let bad = |what: &str| SqlError::new(state::INVALID_BINARY, what);
    let mut rest = ByteCursor(bytes);
    let (n_dimensions, flags, sent) = (rest.word()?, rest.word()?, rest.word()? as u32);
    if !(0..=MAX_DIMENSIONS).contains(&n_dimensions) {
        return Err(bad(&format!("invalid number of dimensions: {n_dimensions}")));
    }
    if !(0..=1).contains(&flags) {
        return Err(bad("invalid array flags"));
    }
    if sent != element {
        let message = format!("binary data has array element type {sent} instead of expected {element}");
        return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
    }
    let n_elements = match n_dimensions {
        0 => 0,
        1 => {
            let (n_elements, first) = (rest.word()?, rest.word()?);
            if first != 1 {
                return Err(SqlError::unsupported(format!("an array that begins at {first}"), "begin at 1"));
            }
            usize::try_from(n_elements).map_err(|_| bad("the array has a negative length"))?
        }
        _ => return Err(several_dimensions()),
    };
    // Each has a length before it: room is taken for what has come, not for what is announced.
    let mut elements = Vec::with_capacity(n_elements.min(rest.0.len() / 4));
    for _ in 0..n_elements {
        elements.push(match rest.word()? {
            -1 => None,
            length => Some(rest.bytes(length)?),
        });
    }
    if rest.0.is_empty() { Ok(elements) } else { Err(bad("bytes follow the array")) }
}

/// Of which type the elements of the binary form are, if it says so.
pub fn item_oid(bytes: &[u8]) -> Option<u32> {
    let oid = bytes.get(8..12)?;
    Some(u32::from_be_bytes(oid.try_into().ok()?))
}

/// What is left of the bytes.
struct ByteCursor<'a>(&'a [u8]);

impl<'a> ByteCursor<'a> {
    fn word(&mut self) -> Result<i32> {
        let (word, rest) = self.0.split_first_chunk().ok_or_else(cut_off)?;
        self.0 = rest;
        Ok(i32::from_be_bytes(*word))
    }

    fn bytes(&mut self, length: i32) -> Result<&'a [u8]> {
        let split = usize::try_from(length).ok().and_then(|length| self.0.split_at_checked(length));
        let (bytes, rest) = split.ok_or_else(cut_off)?;
        self.0 = rest;
        Ok(bytes)
    }
}

fn cut_off() -> SqlError {
    SqlError::new(state::INVALID_BINARY, "the array is cut off")
}

fn several_dimensions() -> SqlError {
    SqlError::unsupported("an array of several dimensions", "send one of one dimension")
}

/// The beginning of a text, for an error.
fn shortened(text: &str) -> &str {
    const SHOWN_CHARS: usize = 100;
    text.char_indices().nth(SHOWN_CHARS).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sent(words: &[i32], elements: &[u8]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).chain(elements.iter().copied()).collect()
    }

    #[test]
    fn bytes_are_read_and_never_trusted() {
        let two = sent(&[1, 1, 23, 2, 1], &[0, 0, 0, 4, 0, 0, 0, 7, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(elements_of_binary(&two, 23).unwrap(), [Some(&[0, 0, 0, 7][..]), None]);
        assert_eq!(elements_of_binary(&sent(&[0, 0, 23], &[]), 23).unwrap(), [] as [Option<&[u8]>; 0]);
        let cases = [
            (sent(&[1, 0, 23, i32::MAX, 1], &[]), state::INVALID_BINARY),
            (sent(&[1, 0, 23, -1, 1], &[]), state::INVALID_BINARY),
            (sent(&[1, 0, 23, 1, 1], &[0, 0, 0, 4, 0]), state::INVALID_BINARY),
            (sent(&[1, 0, 23, 1, 1], &[0xff, 0xff, 0xff, 0xfe]), state::INVALID_BINARY),
            (sent(&[7, 0, 23], &[]), state::INVALID_BINARY),
            (sent(&[1, 2, 23, 0, 1], &[]), state::INVALID_BINARY),
            (sent(&[0, 0, 23], &[1]), state::INVALID_BINARY),
            (sent(&[1, 0], &[]), state::INVALID_BINARY),
            (sent(&[1, 0, 25, 0, 1], &[]), state::DATATYPE_MISMATCH),
            (sent(&[2, 0, 23, 1, 1, 1, 1], &[]), state::FEATURE_NOT_SUPPORTED),
            (sent(&[1, 0, 23, 0, 0], &[]), state::FEATURE_NOT_SUPPORTED),
        ];
        for (bytes, want) in cases {
            assert_eq!(elements_of_binary(&bytes, 23).unwrap_err().state(), want, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = elements_of_binary(&bytes, 23);
            let _ = elements_of_binary(&[&sent(&[1, 0, 23], &[]), &bytes[..]].concat(), 23);
        }
    }
}
