//! Is this text? Postgres' rule for a database of encoding UTF8: well-formed UTF-8 without NUL bytes. What is not is
//! refused with 22021 at every door, never mended: a client that sends Latin-1 must learn of it, not lose its letters.

use std::fmt::Write as _;

use arrow::array::{Array, AsArray};
use arrow::datatypes::DataType as ArrowType;
use arrow::record_batch::RecordBatch;
use tarn_types::Value;

use crate::error::{Result, SqlError, state};

/// Bytes of a sequence that an error shows.
const SHOWN_BYTES: usize = 4;

/// Bytes from a client as text.
///
/// Errors: 22021 with the first bytes that are none.
pub fn text(bytes: &[u8]) -> Result<&str> {
    match std::str::from_utf8(bytes) {
        Ok(_) if bytes.contains(&0) => Err(refused(&[0])),
        Ok(text) => Ok(text),
        Err(error) => {
            let rest = &bytes[error.valid_up_to()..];
            // As many as their first byte announces: Postgres shows these.
            let announced = match rest[0] {
                0xC0..=0xDF => 2,
                0xE0..=0xEF => 3,
                0xF0..=0xF7 => SHOWN_BYTES,
                _ => 1,
            };
            Err(refused(&rest[..announced.min(rest.len())]))
        }
    }
}

/// Text that came another way than as bytes, such as in JSON: only NUL can be wrong with it.
pub fn check(text: &str) -> Result<()> {
    if text.as_bytes().contains(&0) { Err(refused(&[0])) } else { Ok(()) }
}

/// Values that are about to be stored.
pub fn check_values<'a>(values: impl IntoIterator<Item = &'a Value>) -> Result<()> {
    values.into_iter().try_for_each(|value| match value {
        Value::Text(text) | Value::Json(text) => check(text),
        Value::Array(items) => check_values(items),
        _ => Ok(()),
    })
}

/// Columns that are about to be stored.
pub fn check_columns(rows: &RecordBatch) -> Result<()> {
    rows.columns().iter().try_for_each(|column| check_array(column.as_ref()))
}

fn check_array(array: &dyn Array) -> Result<()> {
    let has_nul = |text: &str| text.as_bytes().contains(&0);
    let found = match array.data_type() {
        // The bytes of all cells at once; only if one is found is it asked whether a cell of this array has it.
        ArrowType::Utf8 => {
            let texts = array.as_string::<i32>();
            texts.value_data().contains(&0) && texts.iter().flatten().any(has_nul)
        }
        ArrowType::LargeUtf8 => {
            let texts = array.as_string::<i64>();
            texts.value_data().contains(&0) && texts.iter().flatten().any(has_nul)
        }
        ArrowType::Utf8View => array.as_string_view().iter().flatten().any(has_nul),
        ArrowType::List(_) => return check_array(array.as_list::<i32>().values().as_ref()),
        ArrowType::Dictionary(..) => return check_array(array.as_any_dictionary().values().as_ref()),
        _ => false,
    };
    if found { Err(refused(&[0])) } else { Ok(()) }
}

fn refused(bytes: &[u8]) -> SqlError {
    let mut message = "invalid byte sequence for encoding \"UTF8\":".to_owned();
    for byte in bytes {
        let _ = write!(message, " 0x{byte:02x}");
    }
    let error = SqlError::new(state::CHARACTER_NOT_IN_REPERTOIRE, message);
    match bytes {
        [0] => error.with_hint("text cannot have NUL bytes; bytea can"),
        _ => error.with_hint("send UTF-8: the only client_encoding there is"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_text_is_told_as_postgres_does() {
        assert_eq!(text("grün €".as_bytes()).unwrap(), "grün €");
        let cases: [(&[u8], &str); 4] =
            [(b"caf\xe9'", "0xe9 0x27"), (b"a\0b", "0x00"), (b"\xff", "0xff"), (b"x\xf0\x9f\x98", "0xf0 0x9f 0x98")];
        for (bytes, shown) in cases {
            let error = text(bytes).unwrap_err();
            assert_eq!(error.state(), "22021");
            assert!(error.message().ends_with(&format!(": {shown}")), "{error}");
        }
    }
}
