//! How do numbers, texts and values look as bytes? What the records of the commit log and of block metadata are made of
//! (docs/formats/metastore.md).
//!
//! Integers are LEB128 varints (signed ones zigzagged), floats their eight or four bytes, texts and byte strings
//! length-prefixed. Numbers come back bit for bit: a bound that is off in its last digit would prune a matching row.
//! Decoding never panics and never allocates more than the input could hold.

use roaring::RoaringBitmap;

use tarn_types::{Cursor, Inet, SeqNo, Span, TabletId, Value};

/// Why bytes are not a record.
#[derive(Debug)]
pub struct Malformed(pub String);

/// What reading answers: bytes from outside are never trusted.
pub type DecodeResult<T> = Result<T, Malformed>;

/// The error, in the place of an answer.
pub fn malformed<T>(reason: impl Into<String>) -> DecodeResult<T> {
    Err(Malformed(reason.into()))
}

/// LEB128: one to ten bytes.
pub fn put_u64(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Zigzagged, so that numbers near zero are short.
pub fn put_i64(out: &mut Vec<u8>, value: i64) {
    put_u64(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// A count, as [`RecordReader::count`] reads it.
pub fn put_len(out: &mut Vec<u8>, len: usize) {
    put_u64(out, len as u64);
}

/// Their number, then the bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_len(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// A value, or the byte 255 for none.
pub fn put_option(out: &mut Vec<u8>, value: Option<&Value>) {
    match value {
        None => out.push(u8::MAX),
        Some(value) => put_value(out, value),
    }
}

/// A byte that says which type, then the value, bit for bit.
pub fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => out.push(0),
        Value::Bool(v) => out.extend_from_slice(&[1, u8::from(*v)]),
        Value::Int16(v) => {
            out.push(2);
            put_i64(out, i64::from(*v));
        }
        Value::Int32(v) => {
            out.push(3);
            put_i64(out, i64::from(*v));
        }
        Value::Int64(v) => {
            out.push(4);
            put_i64(out, *v);
        }
        Value::Float32(v) => {
            out.push(5);
            out.extend_from_slice(&v.to_bits().to_le_bytes());
        }
        Value::Float64(v) => {
            out.push(6);
            out.extend_from_slice(&v.to_bits().to_le_bytes());
        }
        Value::Decimal(v) => {
            out.push(7);
            out.extend_from_slice(&v.to_le_bytes());
        }
        Value::Text(v) => {
            out.push(8);
            put_bytes(out, v.as_bytes());
        }
        Value::Bytes(v) => {
            out.push(9);
            put_bytes(out, v);
        }
        Value::Date(v) => {
            out.push(10);
            put_i64(out, i64::from(*v));
        }
        Value::Time(v) => {
            out.push(11);
            put_i64(out, *v);
        }
        Value::Timestamp(v) => {
            out.push(12);
            put_i64(out, *v);
        }
        Value::Uuid(v) => {
            out.push(13);
            put_bytes(out, v.as_bytes());
        }
        Value::Json(v) => {
            out.push(14);
            put_bytes(out, v.as_bytes());
        }
        Value::Interval(span) => {
            out.push(16);
            out.extend_from_slice(&span.to_bytes());
        }
        Value::Inet(inet) => {
            out.push(17);
            put_bytes(out, &inet.to_bytes());
        }
        Value::Array(items) => {
            out.push(15);
            put_len(out, items.len());
            items.iter().for_each(|item| put_value(out, item));
        }
    }
}

/// Ascending by tablet.
pub fn put_cursor(out: &mut Vec<u8>, cursor: &Cursor) {
    put_len(out, cursor.iter().count());
    for (tablet, seqno) in cursor.iter() {
        put_u64(out, tablet.0.into());
        put_u64(out, seqno.0);
    }
}

/// In roaring's portable form, with its length before it.
pub fn put_bitmap(out: &mut Vec<u8>, bitmap: &RoaringBitmap) {
    put_len(out, bitmap.serialized_size());
    bitmap.serialize_into(out).expect("memory takes every write");
}

/// Takes records apart, from the front.
pub struct RecordReader<'a> {
    /// What is left.
    pub bytes: &'a [u8],
    /// Of the file that the bytes are from: older ones have less.
    pub format: u8,
}

impl<'a> RecordReader<'a> {
    /// The next `n` bytes.
    pub fn take(&mut self, n: usize) -> DecodeResult<&'a [u8]> {
        match self.bytes.split_at_checked(n) {
            Some((taken, rest)) => {
                self.bytes = rest;
                Ok(taken)
            }
            None => malformed(format!("record ends {} bytes early", n - self.bytes.len())),
        }
    }

    /// Malformed, if anything is left: a record is read whole.
    pub fn end(&self) -> DecodeResult<()> {
        if self.bytes.is_empty() {
            Ok(())
        } else {
            malformed(format!("{} bytes after the record's end", self.bytes.len()))
        }
    }

    /// So many bytes, for numbers of a fixed size.
    pub fn array<const N: usize>(&mut self) -> DecodeResult<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("take answers as many bytes as asked"))
    }

    /// One byte.
    pub fn byte(&mut self) -> DecodeResult<u8> {
        Ok(self.take(1)?[0])
    }

    /// A byte that is 0 or 1.
    pub fn bool(&mut self) -> DecodeResult<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => malformed(format!("flag is {other}")),
        }
    }

    /// What [`put_u64`] wrote; longer forms of a number are taken, more than 64 bits are not.
    pub fn u64(&mut self) -> DecodeResult<u64> {
        let mut value = 0;
        for (at, byte) in self.bytes.iter().enumerate().take(10) {
            let bits = u64::from(byte & 0x7f);
            if at == 9 && bits > 1 {
                break;
            }
            value |= bits << (7 * at);
            if *byte < 0x80 {
                self.bytes = &self.bytes[at + 1..];
                return Ok(value);
            }
        }
        malformed(if self.bytes.len() < 10 { "record ends within an integer" } else { "integer has more than 64 bits" })
    }

    /// Passes over so many integers.
    pub fn skip_integers(&mut self, n: usize) -> DecodeResult<()> {
        let ends = self.bytes.iter().enumerate().filter(|(_, byte)| **byte < 0x80);
        match n.checked_sub(1).map(|before| ends.map(|(at, _)| at + 1).nth(before)) {
            None => Ok(()),
            Some(Some(behind)) => self.take(behind).map(drop),
            Some(None) => malformed("record ends within an integer"),
        }
    }

    /// Passes over a value, or none.
    pub fn skip_option(&mut self) -> DecodeResult<()> {
        match self.byte()? {
            0 | u8::MAX => Ok(()),
            1 => self.take(1).map(drop),
            2..=4 | 10..=12 => self.skip_integers(1),
            5 => self.take(4).map(drop),
            6 => self.take(8).map(drop),
            7 | 16 => self.take(16).map(drop),
            8 | 9 | 13 | 14 | 17 => self.bytes().map(drop),
            15 => (0..self.count()?).try_for_each(|_| self.item().map(drop)),
            kind => malformed(format!("value kind {kind} is not known")),
        }
    }

    /// What [`put_i64`] wrote.
    pub fn i64(&mut self) -> DecodeResult<i64> {
        let value = self.u64()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// As `u64`, for what must fit 32 bits.
    pub fn u32(&mut self) -> DecodeResult<u32> {
        let value = self.u64()?;
        u32::try_from(value).or_else(|_| malformed(format!("{value} does not fit 32 bits")))
    }

    /// A count of things of at least one byte each: more than what is left cannot be.
    pub fn count(&mut self) -> DecodeResult<usize> {
        let len = self.u64()?;
        match usize::try_from(len) {
            Ok(len) if len <= self.bytes.len() => Ok(len),
            _ => malformed(format!("count {len} exceeds the {} bytes left", self.bytes.len())),
        }
    }

    /// What [`put_bytes`] wrote; not copied.
    pub fn bytes(&mut self) -> DecodeResult<&'a [u8]> {
        let len = self.count()?;
        self.take(len)
    }

    /// As `bytes`, copied, and UTF-8.
    pub fn text(&mut self) -> DecodeResult<String> {
        String::from_utf8(self.bytes()?.to_vec()).or_else(|_| malformed("text is not UTF-8"))
    }

    /// What `put_option` wrote.
    pub fn option(&mut self) -> DecodeResult<Option<Value>> {
        if self.bytes.first() == Some(&u8::MAX) {
            self.byte()?;
            return Ok(None);
        }
        self.value().map(Some)
    }

    /// Of an array, whose items are none: what is read here does not go deeper.
    fn item(&mut self) -> DecodeResult<Value> {
        match self.bytes.first() {
            Some(15) => malformed("an array in an array"),
            _ => self.value(),
        }
    }

    /// What `put_value` wrote; numbers beyond their type are malformed.
    pub fn value(&mut self) -> DecodeResult<Value> {
        let narrow = |value: i64| Malformed(format!("{value} is out of its type's range"));
        Ok(match self.byte()? {
            0 => Value::Null,
            1 => Value::Bool(self.bool()?),
            2 => {
                let value = self.i64()?;
                Value::Int16(value.try_into().map_err(|_| narrow(value))?)
            }
            3 => {
                let value = self.i64()?;
                Value::Int32(value.try_into().map_err(|_| narrow(value))?)
            }
            4 => Value::Int64(self.i64()?),
            5 => Value::Float32(f32::from_bits(u32::from_le_bytes(self.array()?))),
            6 => Value::Float64(f64::from_bits(u64::from_le_bytes(self.array()?))),
            7 => Value::Decimal(i128::from_le_bytes(self.array()?)),
            8 => Value::Text(self.text()?),
            9 => Value::Bytes(self.bytes()?.to_vec()),
            10 => {
                let value = self.i64()?;
                Value::Date(value.try_into().map_err(|_| narrow(value))?)
            }
            11 => Value::Time(self.i64()?),
            12 => Value::Timestamp(self.i64()?),
            13 => Value::Uuid(self.text()?),
            14 => Value::Json(self.text()?),
            15 => Value::Array((0..self.count()?).map(|_| self.item()).collect::<DecodeResult<_>>()?),
            16 => Value::Interval(Span::from_bytes(self.array()?)),
            17 => match Inet::from_bytes(self.bytes()?) {
                Some(inet) => Value::Inet(inet),
                None => return malformed("an address that is none".to_owned()),
            },
            kind => return malformed(format!("value kind {kind} is not known")),
        })
    }

    /// What [`put_cursor`] wrote.
    pub fn cursor(&mut self) -> DecodeResult<Cursor> {
        let mut cursor = Cursor::default();
        for _ in 0..self.count()? {
            let tablet = TabletId(self.u32()?);
            cursor.set(tablet, SeqNo(self.u64()?));
        }
        Ok(cursor)
    }

    /// What [`put_bitmap`] wrote.
    pub fn bitmap(&mut self) -> DecodeResult<RoaringBitmap> {
        let bytes = self.bytes()?;
        RoaringBitmap::deserialize_from(bytes).map_err(|e| Malformed(format!("deletion vector: {e}")))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::FORMAT;
    use crate::contract::any_value;

    proptest! {
        #[test]
        fn values_come_back_bit_for_bit(value in any_value()) {
            let mut out = Vec::new();
            put_option(&mut out, Some(&value));
            put_option(&mut out, None);
            let mut reader = RecordReader { bytes: &out, format: FORMAT };
            let back = reader.option().unwrap().unwrap();
            let same = match (&value, &back) {
                (Value::Float32(a), Value::Float32(b)) => a.to_bits() == b.to_bits(),
                (Value::Float64(a), Value::Float64(b)) => a.to_bits() == b.to_bits(),
                (a, b) => a == b,
            };
            prop_assert!(same, "{value:?} came back as {back:?}");
            prop_assert!(reader.option().unwrap().is_none());
            prop_assert!(reader.end().is_ok());
            let mut passing = RecordReader { bytes: &out, format: FORMAT };
            passing.skip_option().unwrap();
            prop_assert_eq!(passing.bytes, &[u8::MAX]);
            passing.skip_option().unwrap();
            prop_assert!(passing.end().is_ok());
        }

        #[test]
        fn integers_come_back(unsigned: u64, signed: i64) {
            let mut out = Vec::new();
            put_u64(&mut out, unsigned);
            put_i64(&mut out, signed);
            let mut reader = RecordReader { bytes: &out, format: FORMAT };
            prop_assert_eq!(reader.u64().unwrap(), unsigned);
            prop_assert_eq!(reader.i64().unwrap(), signed);
            for n in 0..3 {
                let mut passing = RecordReader { bytes: &out, format: FORMAT };
                passing.skip_integers(n).unwrap();
                prop_assert_eq!(passing.skip_integers(2 - n).is_ok() && passing.end().is_ok(), true);
                prop_assert!(passing.skip_integers(1).is_err());
            }
        }
    }
}
