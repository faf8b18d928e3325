//! How does a column become the one of its lake file, and back? Intervals and addresses are texts there
//! ([`crate::file_field`]); of addresses Arrow would cast the bytes.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, LargeBinaryBuilder, ListArray, StringBuilder};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::DataType as ArrowType;

use crate::error::{Error, Result, shorten};
use crate::inet::Inet;

/// The column in the type of its file, or of its table. No copy where that is its type.
///
/// # Errors
/// [`Error::Arrow`] for a value that has no place in the type, [`Error::Parse`] for a text that is no address.
pub fn file_column(column: &ArrayRef, to: &ArrowType) -> Result<ArrayRef> {
    if column.data_type() == to {
        return Ok(Arc::clone(column));
    }
    match (column.data_type(), to) {
        (ArrowType::LargeBinary, to) if to.is_string() => as_type(&texts(column)?, to),
        (of, ArrowType::LargeBinary) if of.is_string() => addresses(column),
        (ArrowType::List(of), ArrowType::List(item))
            if (of.data_type().is_string() || item.data_type().is_string())
                && [of.data_type(), item.data_type()].contains(&&ArrowType::LargeBinary) =>
        {
            let lists = column.as_list::<i32>();
            let ends = lists.value_offsets();
            let (first, last) = (ends[0], ends[lists.len()]);
            let items = file_column(&lists.values().slice(first as usize, (last - first) as usize), item.data_type())?;
            let ends = OffsetBuffer::new(ends.iter().map(|end| end - first).collect());
            let lists = ListArray::try_new(Arc::clone(item), ends, items, lists.nulls().cloned());
            Ok(Arc::new(lists.map_err(Error::arrow("change the type of a column"))?))
        }
        _ => as_type(column, to),
    }
}

fn as_type(column: &ArrayRef, to: &ArrowType) -> Result<ArrayRef> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(column, to, &options).map_err(Error::arrow("change the type of a column"))
}

/// Addresses as PostgreSQL shows them.
fn texts(column: &ArrayRef) -> Result<ArrayRef> {
    let addresses = column.as_binary::<i64>();
    let mut out = StringBuilder::with_capacity(column.len(), 16 * column.len());
    for bytes in addresses {
        match bytes {
            Some(bytes) => out.append_value(Inet::of_row(bytes)?.to_string()),
            None => out.append_null(),
        }
    }
    Ok(Arc::new(out.finish()))
}

fn addresses(column: &ArrayRef) -> Result<ArrayRef> {
    let texts = cast(column, &ArrowType::Utf8View).map_err(Error::arrow("read a column as text"))?;
    let mut out = LargeBinaryBuilder::with_capacity(column.len(), 10 * column.len());
    for text in texts.as_string_view() {
        match text {
            Some(text) => {
                let no_inet = |_| Error::Parse { value: shorten(text), data_type: "INET".to_owned() };
                out.append_value(text.parse::<Inet>().map_err(no_inet)?.to_bytes());
            }
            None => out.append_null(),
        }
    }
    Ok(Arc::new(out.finish()))
}
