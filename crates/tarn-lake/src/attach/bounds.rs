//! Which bounds that somebody else wrote can be believed?
//!
//! Parquet's statistics had a wrong order for a while, leave NaN out, and may be as long as the value. A bound that is
//! wrong hides rows, so what is in doubt is dropped:
//!
//! - bytes, texts and unsigned numbers only where the file says that their order is the type's (older writers compared
//!   signed);
//! - floats never: the file cannot tell whether there is a NaN, which filters hold to be greater than everything, or
//!   −NaN;
//! - INT96 never: it has no order.
//!
//! Invariant: no non-null value of the column lies outside, also after nanoseconds were cut in either direction.

use std::cmp::Ordering;

use arrow::datatypes::{DataType as ArrowType, TimeUnit};
use parquet::basic::{ColumnOrder, SortOrder};
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnDescriptor;

use tarn_metastore::compare;
use tarn_types::Value;

/// Longer texts and bytes are cut.
const MAX_BYTES: usize = 64;

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Bounds {
    /// No non-null value is smaller; `None`: nothing that can be believed.
    pub min: Option<Value>,
    /// No non-null value is greater; `None`: as for `min`.
    pub max: Option<Value>,
    /// Both are values that occur.
    pub exact: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum BoundSide {
    Min,
    Max,
}

/// `arrow` is the type of the column as it is read; values are of the column type that it becomes.
pub(crate) fn bounds(of: &Statistics, order: ColumnOrder, leaf: &ColumnDescriptor, arrow: &ArrowType) -> Bounds {
    if !is_ordered(of, order, leaf) {
        return Bounds::default();
    }
    let (Some((min, min_cut)), Some((max, max_cut))) =
        (bound(of, BoundSide::Min, arrow), bound(of, BoundSide::Max, arrow))
    else {
        // One of them alone would do to prune, but a writer that leaves one out is no writer to trust.
        return Bounds::default();
    };
    if !matches!(compare(&min, &max), Some(Ordering::Less | Ordering::Equal)) {
        return Bounds::default();
    }
    let exact = !min_cut && !max_cut && of.min_is_exact() && of.max_is_exact();
    Bounds { min: Some(min), max: Some(max), exact }
}

fn is_ordered(of: &Statistics, order: ColumnOrder, leaf: &ColumnDescriptor) -> bool {
    // What signed comparison, the only one there was, orders as we do.
    let is_signed = || match of {
        Statistics::Boolean(_) => true,
        Statistics::Int32(_) | Statistics::Int64(_) => leaf.sort_order() == SortOrder::SIGNED,
        _ => false,
    };
    match order {
        ColumnOrder::TYPE_DEFINED_ORDER(SortOrder::UNDEFINED) | ColumnOrder::UNKNOWN => false,
        ColumnOrder::TYPE_DEFINED_ORDER(_) => !of.is_min_max_deprecated() || is_signed(),
        ColumnOrder::UNDEFINED => is_signed(),
    }
}

/// The bound, and whether it was cut.
fn bound(of: &Statistics, side: BoundSide, arrow: &ArrowType) -> Option<(Value, bool)> {
    match of {
        Statistics::Boolean(of) => {
            let value = if side == BoundSide::Min { of.min_opt() } else { of.max_opt() };
            (*arrow == ArrowType::Boolean).then_some((Value::Bool(*value?), false))
        }
        Statistics::Int32(of) => {
            let value = if side == BoundSide::Min { of.min_opt() } else { of.max_opt() };
            from_int32(*value?, arrow).map(|value| (value, false))
        }
        Statistics::Int64(of) => {
            let value = if side == BoundSide::Min { of.min_opt() } else { of.max_opt() };
            from_int64(*value?, side, arrow)
        }
        Statistics::ByteArray(_) | Statistics::FixedLenByteArray(_) => {
            from_bytes(if side == BoundSide::Min { of.min_bytes_opt()? } else { of.max_bytes_opt()? }, side, arrow)
        }
        Statistics::Int96(_) | Statistics::Float(_) | Statistics::Double(_) => None,
    }
}

fn from_int32(value: i32, arrow: &ArrowType) -> Option<Value> {
    let unsigned = value as u32;
    Some(match arrow {
        ArrowType::Int8 | ArrowType::Int16 => Value::Int16(value.try_into().ok()?),
        ArrowType::UInt8 => Value::Int16(unsigned.try_into().ok()?),
        ArrowType::Int32 => Value::Int32(value),
        ArrowType::UInt16 => Value::Int32(unsigned.try_into().ok()?),
        ArrowType::UInt32 => Value::Int64(unsigned.into()),
        ArrowType::Date32 => Value::Date(value),
        ArrowType::Time32(TimeUnit::Millisecond) => Value::Time(i64::from(value) * 1000),
        decimal if is_decimal(decimal) => Value::Decimal(value.into()),
        _ => return None,
    })
}

fn from_int64(value: i64, side: BoundSide, arrow: &ArrowType) -> Option<(Value, bool)> {
    // Readers may cut towards zero or downwards: the bound holds either way.
    let cut = |nanos: i64| {
        let down = nanos.div_euclid(1000);
        let is_cut = nanos.rem_euclid(1000) != 0;
        (if is_cut && side == BoundSide::Max { down + 1 } else { down }, is_cut)
    };
    Some(match arrow {
        ArrowType::Int64 => (Value::Int64(value), false),
        ArrowType::UInt64 => (Value::Decimal((value as u64).into()), false),
        ArrowType::Timestamp(TimeUnit::Second, _) => (Value::Timestamp(value.checked_mul(1_000_000)?), false),
        ArrowType::Timestamp(TimeUnit::Millisecond, _) => (Value::Timestamp(value.checked_mul(1000)?), false),
        ArrowType::Timestamp(TimeUnit::Microsecond, _) => (Value::Timestamp(value), false),
        ArrowType::Timestamp(TimeUnit::Nanosecond, _) => {
            let (micros, is_cut) = cut(value);
            (Value::Timestamp(micros), is_cut)
        }
        ArrowType::Time64(TimeUnit::Microsecond) => (Value::Time(value), false),
        ArrowType::Time64(TimeUnit::Nanosecond) => {
            let (micros, is_cut) = cut(value);
            (Value::Time(micros), is_cut)
        }
        decimal if is_decimal(decimal) => (Value::Decimal(value.into()), false),
        _ => return None,
    })
}

fn is_decimal(arrow: &ArrowType) -> bool {
    use ArrowType::*;
    matches!(arrow, Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..))
}

fn from_bytes(bytes: &[u8], side: BoundSide, arrow: &ArrowType) -> Option<(Value, bool)> {
    match arrow {
        ArrowType::Utf8 => {
            let (text, is_cut) = cut_text(bytes, side)?;
            Some((Value::Text(text), is_cut))
        }
        ArrowType::Binary | ArrowType::FixedSizeBinary(_) => {
            let (bytes, is_cut) = cut_bytes(bytes, side)?;
            Some((Value::Bytes(bytes), is_cut))
        }
        decimal if is_decimal(decimal) => big_endian(bytes).map(|unscaled| (Value::Decimal(unscaled), false)),
        _ => None,
    }
}

/// Two's complement, most significant byte first; `None` beyond 128 bits.
fn big_endian(bytes: &[u8]) -> Option<i128> {
    let sign = if bytes.first()? & 0x80 == 0 { 0 } else { 0xff };
    let (head, tail) = bytes.split_at(bytes.len().saturating_sub(16));
    let mut whole = [sign; 16];
    whole[16 - tail.len()..].copy_from_slice(tail);
    let fits = head.iter().all(|byte| *byte == sign) && (whole[0] & 0x80 == 0) == (sign == 0);
    fits.then(|| i128::from_be_bytes(whole))
}

fn cut_text(bytes: &[u8], side: BoundSide) -> Option<(String, bool)> {
    let whole = std::str::from_utf8(bytes);
    if let Ok(text) = whole
        && text.len() <= MAX_BYTES
    {
        return Some((text.to_owned(), false));
    }
    // Writers may have cut within a character: up to there it is a lower bound, and above nothing is known.
    let text = match (whole, side) {
        (Ok(text), _) => text,
        (Err(error), BoundSide::Min) => std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()?,
        (Err(_), BoundSide::Max) => return None,
    };
    let mut end = text.len().min(MAX_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let start = &text[..end];
    match side {
        BoundSide::Min => Some((start.to_owned(), true)),
        BoundSide::Max => Some((next_text(start)?, true)),
    }
}

/// A text greater than all that begin like this.
fn next_text(start: &str) -> Option<String> {
    let mut text = start.to_owned();
    while let Some(last) = text.pop() {
        let next = match last {
            '\u{d7ff}' => Some('\u{e000}'),
            last => char::from_u32(last as u32 + 1),
        };
        if let Some(next) = next {
            text.push(next);
            return Some(text);
        }
    }
    None
}

fn cut_bytes(bytes: &[u8], side: BoundSide) -> Option<(Vec<u8>, bool)> {
    if bytes.len() <= MAX_BYTES {
        return Some((bytes.to_vec(), false));
    }
    let mut start = bytes[..MAX_BYTES].to_vec();
    if side == BoundSide::Max {
        while start.last() == Some(&u8::MAX) {
            start.pop();
        }
        *start.last_mut()? += 1;
    }
    Some((start, true))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nanoseconds_are_cut_outwards() {
        let nanos = ArrowType::Timestamp(TimeUnit::Nanosecond, None);
        let of = |value, side| from_int64(value, side, &nanos).unwrap();
        assert_eq!(of(-1500, BoundSide::Min), (Value::Timestamp(-2), true));
        assert_eq!(of(-1500, BoundSide::Max), (Value::Timestamp(-1), true));
        assert_eq!(of(1500, BoundSide::Min), (Value::Timestamp(1), true));
        assert_eq!(of(1500, BoundSide::Max), (Value::Timestamp(2), true));
        assert_eq!(of(2000, BoundSide::Max), (Value::Timestamp(2), false));
        assert_eq!(of(i64::MAX, BoundSide::Max).0, Value::Timestamp(i64::MAX / 1000 + 1));
    }

    #[test]
    fn old_writers_compared_signed() {
        let leaf = |message: &str| {
            let message = parquet::schema::parser::parse_message_type(message).unwrap();
            parquet::schema::types::SchemaDescriptor::new(std::sync::Arc::new(message)).column(0)
        };
        let (text, number) = (leaf("message m { optional binary a (UTF8); }"), leaf("message m { optional int32 a; }"));
        let unsigned = leaf("message m { optional int32 a (UINT_32); }");
        let texts = |old| Statistics::byte_array(Some("a".into()), Some("b".into()), None, Some(0), old);
        let numbers = |old| Statistics::int32(Some(1), Some(2), None, Some(0), old);
        let defined = ColumnOrder::TYPE_DEFINED_ORDER;
        let known =
            |of: &Statistics, order, leaf: &ColumnDescriptor, arrow| bounds(of, order, leaf, arrow).min.is_some();
        for (old, order, want) in [
            (false, defined(SortOrder::UNSIGNED), true),
            (true, defined(SortOrder::UNSIGNED), false),
            (false, ColumnOrder::UNDEFINED, false),
            (false, ColumnOrder::UNKNOWN, false),
        ] {
            assert_eq!(known(&texts(old), order, &text, &ArrowType::Utf8), want, "{old} {order:?}");
            assert_eq!(known(&numbers(old), order, &unsigned, &ArrowType::UInt32), want, "{old} {order:?}");
            let is_signed = order != ColumnOrder::UNKNOWN;
            assert_eq!(known(&numbers(old), order, &number, &ArrowType::Int32), is_signed, "{old} {order:?}");
        }
        let upside_down = Statistics::int32(Some(2), Some(1), None, Some(0), false);
        assert!(!known(&upside_down, defined(SortOrder::SIGNED), &number, &ArrowType::Int32));
    }

    #[test]
    fn unsigned_numbers_are_what_they_say() {
        assert_eq!(from_int32(-1, &ArrowType::UInt32), Some(Value::Int64(4_294_967_295)));
        assert_eq!(from_int32(-1, &ArrowType::UInt8), None, "no value of eight bits");
        assert_eq!(from_int64(-1, BoundSide::Max, &ArrowType::UInt64), Some((Value::Decimal(u64::MAX.into()), false)));
    }

    #[test]
    fn bytes_of_decimals() {
        assert_eq!(big_endian(&[0xff, 0xfe]), Some(-2));
        assert_eq!(big_endian(&[0x01, 0x00]), Some(256));
        assert_eq!(big_endian(&[]), None);
        let mut long = vec![0xff; 20];
        long[19] = 0xfb;
        assert_eq!(big_endian(&long), Some(-5));
        assert_eq!(big_endian(&[1; 17]), None);
        let mut huge = vec![0; 17];
        huge[1] = 0x80;
        assert_eq!(big_endian(&huge), None, "2^127 is no i128");
    }

    #[test]
    fn a_text_that_was_cut_within_a_character_bounds_from_below_alone() {
        assert_eq!(cut_text(b"ab\xc3", BoundSide::Min), Some(("ab".into(), true)));
        assert_eq!(cut_text(b"ab\xc3", BoundSide::Max), None);
        assert_eq!(cut_text(&[0xff], BoundSide::Min), Some((String::new(), true)));
        assert_eq!(next_text("a\u{10ffff}"), Some("b".into()));
        assert_eq!(next_text("\u{10ffff}"), None);
        assert_eq!(next_text("\u{d7ff}"), Some("\u{e000}".into()));
    }

    proptest! {
        #[test]
        fn what_is_cut_still_bounds(text in "[aé\u{10ffff}]{0,90}", bytes in proptest::collection::vec(250u8.., 0..90)) {
            let (min, _) = cut_text(text.as_bytes(), BoundSide::Min).unwrap();
            prop_assert!(min <= text && min.len() <= MAX_BYTES);
            if let Some((max, is_cut)) = cut_text(text.as_bytes(), BoundSide::Max) {
                prop_assert!(max >= text && (is_cut || max == text) && max.len() <= MAX_BYTES + 3);
            }
            let (min, _) = cut_bytes(&bytes, BoundSide::Min).unwrap();
            prop_assert!(min <= bytes);
            if let Some((max, is_cut)) = cut_bytes(&bytes, BoundSide::Max) {
                prop_assert!(max >= bytes && (is_cut || max == bytes));
            }
        }
    }
}
