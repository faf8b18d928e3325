//! How does Postgres write arrays and rows that are values? The frames around their cells, as text and binary.
//!
//! Source: PostgreSQL 16, "Arrays" (section "Array Input and Output Syntax") and "Composite Types" (section "Composite
//! Type Input and Output Syntax"); the binary forms are those of its `array_send` and `record_send`.

use bytes::{BufMut, BytesMut};
use pgwire::api::Type;

use crate::error::{Result, SqlError, state};

/// Of the text of a value inside another. Each level of rows in rows doubles the quotes of those below: thirty would be
/// gigabytes.
const MAX_INNER_BYTES: usize = 64 << 20;

/// Dimensions that an array may have.
pub const MAX_DIMENSIONS: usize = 6;

/// `{1,NULL,"a b"}`. `cell` appends the text of one element; false: it is NULL.
pub fn array_text(
    out: &mut BytesMut,
    elements: impl Iterator<Item = usize>,
    mut cell: impl FnMut(usize, &mut BytesMut) -> Result<bool>,
) -> Result<()> {
    let mut text = BytesMut::new();
    out.put_u8(b'{');
    for (nth, element) in elements.enumerate() {
        if nth > 0 {
            out.put_u8(b',');
        }
        text.clear();
        match cell(element, &mut text)? {
            true => array_element(out, &text)?,
            false => out.put_slice(b"NULL"),
        }
    }
    out.put_u8(b'}');
    Ok(())
}

fn array_element(out: &mut BytesMut, text: &[u8]) -> Result<()> {
    check_length(text)?;
    let is_special = |byte: &u8| matches!(byte, b'{' | b'}' | b',' | b'"' | b'\\') || is_space(*byte);
    if !text.is_empty() && !text.eq_ignore_ascii_case(b"null") && !text.iter().any(is_special) {
        out.put_slice(text);
        return Ok(());
    }
    out.put_u8(b'"');
    for byte in text {
        if matches!(byte, b'"' | b'\\') {
            out.put_u8(b'\\');
        }
        out.put_u8(*byte);
    }
    out.put_u8(b'"');
    Ok(())
}

/// `(1,,"a b")`. `cell` appends the text of one field; false: it is NULL, of which nothing is written.
pub fn row_text(
    out: &mut BytesMut,
    n_fields: usize,
    mut cell: impl FnMut(usize, &mut BytesMut) -> Result<bool>,
) -> Result<()> {
    let mut text = BytesMut::new();
    out.put_u8(b'(');
    for field in 0..n_fields {
        if field > 0 {
            out.put_u8(b',');
        }
        text.clear();
        if cell(field, &mut text)? {
            row_field(out, &text)?;
        }
    }
    out.put_u8(b')');
    Ok(())
}

fn row_field(out: &mut BytesMut, text: &[u8]) -> Result<()> {
    check_length(text)?;
    let is_special = |byte: &u8| matches!(byte, b'(' | b')' | b',' | b'"' | b'\\') || is_space(*byte);
    if !text.is_empty() && !text.iter().any(is_special) {
        out.put_slice(text);
        return Ok(());
    }
    out.put_u8(b'"');
    for byte in text {
        if matches!(byte, b'"' | b'\\') {
            out.put_u8(*byte);
        }
        out.put_u8(*byte);
    }
    out.put_u8(b'"');
    Ok(())
}

fn check_length(text: &[u8]) -> Result<()> {
    if text.len() <= MAX_INNER_BYTES {
        return Ok(());
    }
    let message = format!("the text of a value inside an array or row is longer than {} MiB", MAX_INNER_BYTES >> 20);
    Err(SqlError::new(state::PROGRAM_LIMIT, message)
        .with_hint("each level of rows in rows doubles its quotes: SELECT their fields"))
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

/// The items of each dimension, which begin at 1, none for an empty array. `cell` appends an element with its length.
pub fn array_binary(
    out: &mut BytesMut,
    element: &Type,
    has_null: bool,
    shape: &[usize],
    elements: impl ExactSizeIterator<Item = usize>,
    mut cell: impl FnMut(usize, &mut BytesMut) -> Result<()>,
) -> Result<()> {
    out.put_i32(shape.len() as i32);
    out.put_i32(has_null.into());
    out.put_u32(element.oid());
    for length in shape {
        out.put_i32(*length as i32);
        out.put_i32(1);
    }
    for element in elements {
        cell(element, out)?;
    }
    Ok(())
}

/// Each field with its type. `cell` appends it with its length.
pub fn row_binary<'a>(
    out: &mut BytesMut,
    fields: impl ExactSizeIterator<Item = &'a Type>,
    mut cell: impl FnMut(usize, &mut BytesMut) -> Result<()>,
) -> Result<()> {
    out.put_i32(fields.len() as i32);
    for (nth, field) in fields.enumerate() {
        out.put_u32(field.oid());
        cell(nth, out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(cells: &[Option<&str>], as_row: bool) -> String {
        let mut out = BytesMut::new();
        let cell = |at: usize, out: &mut BytesMut| {
            out.put_slice(cells[at].unwrap_or_default().as_bytes());
            Ok(cells[at].is_some())
        };
        match as_row {
            true => row_text(&mut out, cells.len(), cell).unwrap(),
            false => array_text(&mut out, 0..cells.len(), cell).unwrap(),
        }
        String::from_utf8(out.to_vec()).unwrap()
    }

    /// What PostgreSQL 16 says of the same values.
    #[test]
    fn what_would_be_read_as_something_else_is_quoted() {
        let array = [Some("a"), None, Some(""), Some("NULL"), Some("nuLl"), Some("a b"), Some("x,y"), Some("\"\\")];
        assert_eq!(texts(&array, false), r#"{a,NULL,"","NULL","nuLl","a b","x,y","\"\\"}"#);
        assert_eq!(texts(&[Some("{}"), Some("a\u{b}b"), Some("(é)")], false), "{\"{}\",\"a\u{b}b\",(é)}");
        assert_eq!(texts(&[], false), "{}");
        let row = [Some("a"), None, Some(""), Some("NULL"), Some("a b"), Some("x,y"), Some("\"\\"), Some("(")];
        assert_eq!(texts(&row, true), r#"(a,,"",NULL,"a b","x,y","""\\","(")"#);
        assert_eq!(texts(&[Some("{1}")], true), "({1})");
        assert_eq!(texts(&[], true), "()");
    }
}
