//! What did the client bind?
//!
//! Parameters arrive as text or binary of the type the client declared, or of the type we described. Here they become
//! values of the type the statement wants, or an error that names the parameter.

use pgwire::api::Type;
use tarn_sql::encoding;
use tarn_sql::error::{Result, SqlError, state};
use tarn_types::{DataType, Value, Zone};

const EPOCH_DAYS: i32 = 10_957;
const EPOCH_MICROS: i64 = EPOCH_DAYS as i64 * 86_400_000_000;

/// One bound parameter as it came.
#[derive(Debug, Clone, Copy)]
pub struct Bound<'a> {
    /// Position, from 1, for errors.
    pub number: usize,
    pub bytes: Option<&'a [u8]>,
    pub binary: bool,
    /// What the client declared, else what we described.
    pub pg_type: &'a Type,
}

impl Bound<'_> {
    /// The value as one of `want`; without `want` as the type it was sent in. Instants in text that have no offset are of `zone`.
    pub fn value(&self, want: Option<&DataType>, zone: &Zone) -> Result<Value> {
        let Some(bytes) = self.bytes else { return Ok(Value::Null) };
        if !self.binary || is_text(self.pg_type) {
            encoding::text(bytes).map_err(|error| error.with_context(format!("parameter ${}", self.number)))?;
        }
        let raw = if self.binary { binary(bytes, self.pg_type) } else { text(bytes).map(Raw::Text) };
        let raw = raw.map_err(|message| {
            let code = if self.binary { state::INVALID_BINARY } else { state::INVALID_TEXT };
            SqlError::new(code, format!("parameter ${} ({}): {message}", self.number, self.pg_type))
        })?;
        let value = match (raw, want) {
            (Raw::Text(text), Some(want)) => Value::parse_in(want, &text, zone),
            (Raw::Text(text), None) => match natural(self.pg_type) {
                Some(data_type) => Value::parse_in(&data_type, &text, zone),
                None => Ok(Value::Text(text)),
            },
            (Raw::Value(value), Some(want)) => value.coerce(want),
            (Raw::Value(value), None) => Ok(value),
        };
        value.map_err(|error| {
            let named = SqlError::from(error);
            SqlError::new(named.state(), format!("parameter ${}: {}", self.number, named.message()))
        })
    }
}

enum Raw {
    Text(String),
    Value(Value),
}

/// Days since 2000 that Postgres takes for a date: from 4714-11-24 BC to the year 5874897.
const DATES: std::ops::Range<i32> = -2_451_545..2_145_031_949;

/// Microseconds of a day. Postgres also has 24:00, which is no time of day here.
const TIMES: std::ops::Range<i64> = 0..86_400_000_000;

/// 4714-11-24 BC, in microseconds since 2000; the end is that of the numbers.
const FIRST_TIMESTAMP: i64 = -211_813_488_000_000_000;

/// The value type of a Postgres type, where it has one of its own.
pub fn natural(pg_type: &Type) -> Option<DataType> {
    Some(match *pg_type {
        Type::BOOL => DataType::Bool,
        Type::INT2 => DataType::Int16,
        Type::INT4 => DataType::Int32,
        Type::INT8 | Type::OID => DataType::Int64,
        Type::FLOAT4 => DataType::Float32,
        Type::FLOAT8 => DataType::Float64,
        Type::NUMERIC => DataType::Decimal { precision: 38, scale: 12 },
        Type::BYTEA => DataType::Bytes,
        Type::DATE => DataType::Date,
        Type::TIME => DataType::Time,
        Type::TIMESTAMP => DataType::Timestamp,
        Type::TIMESTAMPTZ => DataType::TimestampTz,
        Type::UUID => DataType::Uuid,
        Type::JSON => DataType::Json,
        Type::JSONB => DataType::Jsonb,
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::UNKNOWN => DataType::Text,
        _ => return None,
    })
}

/// The Postgres type in which a column's parameter is described.
pub fn pg_type_of(data_type: &DataType) -> Type {
    match data_type {
        DataType::Bool => Type::BOOL,
        DataType::Int16 => Type::INT2,
        DataType::Int32 => Type::INT4,
        DataType::Int64 => Type::INT8,
        DataType::Float32 => Type::FLOAT4,
        DataType::Float64 => Type::FLOAT8,
        DataType::Decimal { .. } => Type::NUMERIC,
        DataType::Text => Type::TEXT,
        DataType::Bytes => Type::BYTEA,
        DataType::Date => Type::DATE,
        DataType::Time => Type::TIME,
        DataType::Timestamp => Type::TIMESTAMP,
        DataType::TimestampTz => Type::TIMESTAMPTZ,
        DataType::Uuid => Type::UUID,
        DataType::Json => Type::JSON,
        DataType::Jsonb => Type::JSONB,
    }
}

fn is_text(pg_type: &Type) -> bool {
    natural(pg_type).is_some_and(|natural| matches!(natural, DataType::Text | DataType::Json | DataType::Jsonb))
}

fn text(bytes: &[u8]) -> Result<String, String> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(error) => Err(format!("invalid UTF-8 at byte {}", error.valid_up_to())),
    }
}

fn binary(bytes: &[u8], pg_type: &Type) -> Result<Raw, String> {
    fn fixed<const N: usize>(bytes: &[u8]) -> Result<[u8; N], String> {
        bytes.try_into().map_err(|_| format!("{} bytes, want {N}", bytes.len()))
    }
    let value = match *pg_type {
        Type::BOOL => Value::Bool(fixed::<1>(bytes)?[0] != 0),
        Type::INT2 => Value::Int16(i16::from_be_bytes(fixed(bytes)?)),
        Type::INT4 => Value::Int32(i32::from_be_bytes(fixed(bytes)?)),
        Type::OID => Value::Int64(u32::from_be_bytes(fixed(bytes)?).into()),
        Type::INT8 => Value::Int64(i64::from_be_bytes(fixed(bytes)?)),
        Type::FLOAT4 => Value::Float32(f32::from_be_bytes(fixed(bytes)?)),
        Type::FLOAT8 => Value::Float64(f64::from_be_bytes(fixed(bytes)?)),
        Type::NUMERIC => return numeric(bytes).map(Raw::Text),
        Type::BYTEA => Value::Bytes(bytes.to_vec()),
        Type::DATE => {
            let days = Some(i32::from_be_bytes(fixed(bytes)?)).filter(|days| DATES.contains(days));
            Value::Date(days.and_then(|days| days.checked_add(EPOCH_DAYS)).ok_or("date out of range")?)
        }
        Type::TIME => {
            let micros = Some(i64::from_be_bytes(fixed(bytes)?)).filter(|micros| TIMES.contains(micros));
            Value::Time(micros.ok_or("time out of range")?)
        }
        Type::TIMESTAMP | Type::TIMESTAMPTZ => {
            let micros = Some(i64::from_be_bytes(fixed(bytes)?)).filter(|micros| *micros >= FIRST_TIMESTAMP);
            Value::Timestamp(
                micros.and_then(|micros| micros.checked_add(EPOCH_MICROS)).ok_or("timestamp out of range")?,
            )
        }
        Type::UUID => Value::Uuid(uuid::Uuid::from_bytes(fixed(bytes)?).to_string()),
        Type::JSON => Value::Json(text(bytes)?),
        Type::JSONB => match bytes.split_first() {
            Some((1, json)) => Value::Json(text(json)?),
            _ => return Err("unknown jsonb version".to_owned()),
        },
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::UNKNOWN => return text(bytes).map(Raw::Text),
        _ => return Err("no binary form of this type is known; send it as text".to_owned()),
    };
    Ok(Raw::Value(value))
}

/// Postgres' binary numeric as text.
fn numeric(bytes: &[u8]) -> Result<String, String> {
    let short = || "numeric is cut off".to_owned();
    let word = |idx: usize| -> Result<[u8; 2], String> {
        bytes.get(idx * 2..idx * 2 + 2).and_then(|b| b.try_into().ok()).ok_or_else(short)
    };
    let n_groups = u16::from_be_bytes(word(0)?);
    let weight = i32::from(i16::from_be_bytes(word(1)?));
    let sign = u16::from_be_bytes(word(2)?);
    let scale = usize::from(u16::from_be_bytes(word(3)?));
    match sign {
        0 | 0x4000 => {}
        0xC000 => return Err("NaN has no place in a decimal column".to_owned()),
        _ => return Err("infinity has no place in a decimal column".to_owned()),
    }
    if !(-2_000..=2_000).contains(&weight) || scale > 2_000 {
        return Err("numeric has too many digits".to_owned());
    }
    let mut groups = Vec::with_capacity(usize::from(n_groups));
    for idx in 0..usize::from(n_groups) {
        let group = u16::from_be_bytes(word(4 + idx)?);
        if group > 9_999 {
            return Err(format!("numeric has the group {group}, which is not of four digits"));
        }
        groups.push(group);
    }
    let group =
        |position: i32| groups.get(usize::try_from(weight - position).unwrap_or(usize::MAX)).copied().unwrap_or(0);
    let mut out = String::new();
    if sign == 0x4000 {
        out.push('-');
    }
    if weight < 0 {
        out.push('0');
    }
    for position in (0..=weight).rev() {
        out.push_str(&if position == weight { group(position).to_string() } else { format!("{:04}", group(position)) });
    }
    if scale > 0 {
        let n_fraction = scale.div_ceil(4) as i32;
        let fraction: String = (1..=n_fraction).map(|below| format!("{:04}", group(-below))).collect();
        out.push('.');
        out.push_str(&fraction[..scale]);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound<'a>(bytes: &'a [u8], binary: bool, pg_type: &'a Type) -> Bound<'a> {
        Bound { number: 1, bytes: Some(bytes), binary, pg_type }
    }

    #[test]
    fn binary_and_text_agree() {
        let int = DataType::Int64;
        assert_eq!(
            bound(&7i32.to_be_bytes(), true, &Type::INT4).value(Some(&int), &Zone::utc()).unwrap(),
            Value::Int64(7)
        );
        assert_eq!(bound(b"7", false, &Type::INT4).value(Some(&int), &Zone::utc()).unwrap(), Value::Int64(7));
        let decimal = DataType::Decimal { precision: 10, scale: 3 };
        let wire = [0, 3, 0, 1, 0, 0, 0, 3, 0, 1, 0x09, 0x29, 0x1a, 0x7c];
        assert_eq!(
            bound(&wire, true, &Type::NUMERIC).value(Some(&decimal), &Zone::utc()).unwrap(),
            Value::Decimal(12_345_678)
        );
        assert_eq!(
            bound(&[0, 1, 0xff, 0xff, 0x40, 0, 0, 4, 0, 1], true, &Type::NUMERIC).value(None, &Zone::utc()).unwrap(),
            Value::Decimal(-100_000_000)
        );
        let epoch = 0i64.to_be_bytes();
        assert_eq!(
            bound(&epoch, true, &Type::TIMESTAMPTZ).value(None, &Zone::utc()).unwrap(),
            Value::Timestamp(EPOCH_MICROS)
        );
    }

    #[test]
    fn bad_values_name_the_parameter() {
        let error = bound(b"seven", false, &Type::INT4).value(Some(&DataType::Int32), &Zone::utc()).unwrap_err();
        assert_eq!(error.state(), state::INVALID_TEXT);
        assert!(error.message().starts_with("parameter $1"), "{error}");
        for bytes in [&b"caf\xe9"[..], b"a\0b"] {
            for binary in [false, true] {
                assert_eq!(
                    bound(bytes, binary, &Type::TEXT).value(None, &Zone::utc()).unwrap_err().state(),
                    "22021",
                    "{bytes:?}"
                );
            }
        }
        assert_eq!(
            bound(&[1, 2], true, &Type::INT4).value(None, &Zone::utc()).unwrap_err().state(),
            state::INVALID_BINARY
        );
        for (bytes, pg_type) in [
            (&(1i64 << 62).to_be_bytes()[..], &Type::TIME),
            (&(-5i64).to_be_bytes(), &Type::TIME),
            (&86_400_000_000i64.to_be_bytes(), &Type::TIME),
            (&(i32::MIN + 5).to_be_bytes(), &Type::DATE),
            (&i32::MAX.to_be_bytes(), &Type::DATE),
            (&i64::MIN.to_be_bytes(), &Type::TIMESTAMP),
            (&i64::MAX.to_be_bytes(), &Type::TIMESTAMPTZ),
            (&[0, 1, 0, 0, 0, 0, 0, 0, 0x27, 0x10], &Type::NUMERIC),
        ] {
            let refused = bound(bytes, true, pg_type).value(None, &Zone::utc()).unwrap_err();
            assert_eq!(refused.state(), state::INVALID_BINARY, "{pg_type}: {refused}");
        }
        assert_eq!(
            bound(&[0; 7], true, &Type::NUMERIC).value(None, &Zone::utc()).unwrap_err().state(),
            state::INVALID_BINARY
        );
    }
}
