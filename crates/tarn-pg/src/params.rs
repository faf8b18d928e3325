//! What did the client bind?
//!
//! Parameters arrive as text or binary of the type the client declared, or of the type we described. Here they become
//! values of the type the statement wants, or an error that names the parameter.

use arrow::array::ArrayRef;
use pgwire::api::Type;
use tarn_sql::cells::ValueBuilder;
use tarn_sql::error::{Result, SqlError, state};
use tarn_sql::rows::pg_type;
use tarn_sql::{arrays, binary, encoding};
use tarn_types::{DataType, Style, Value, arrow_field};

/// Types that users made have numbers from here on (`tarn_node::types`).
const FIRST_OF_USERS: u32 = 16_384;

/// One bound parameter as it came.
#[derive(Debug, Clone, Copy)]
pub struct BoundParameter<'a> {
    /// Position, from 1, for errors.
    pub number: usize,
    /// As they came; `None`: NULL.
    pub bytes: Option<&'a [u8]>,
    /// In PostgreSQL's binary form of the type; else in its text.
    pub binary: bool,
    /// What the client declared, else what we described.
    pub pg_type: &'a Type,
}

impl BoundParameter<'_> {
    /// The elements of an array whose elements are of `element`, as a column of `want`, else of the type they were sent
    /// in; `None` is a NULL. A `uuid` is kept as its text.
    ///
    /// Errors: 22P02 and 22P03 for what is no array, 0A000 for one of several dimensions, and those of
    /// [`BoundParameter::value`].
    pub fn elements(&self, element: &Type, want: Option<&DataType>, style: &Style) -> Result<Option<ArrayRef>> {
        let Some(bytes) = self.bytes else { return Ok(None) };
        let named = |error: SqlError| error.with_context(format!("parameter ${}", self.number));
        let of = want.copied().or_else(|| natural(element)).unwrap_or(DataType::Text);
        let mut cells = ValueBuilder::new(if of == DataType::Uuid { DataType::Text } else { of });
        let mut append = |bytes: Option<&[u8]>| match (BoundParameter { bytes, pg_type: element, ..*self })
            .value(Some(&of), style)?
        {
            Value::Uuid(id) => cells.append_value(Value::Text(id)),
            value => cells.append_value(value),
        };
        if self.binary {
            let elements = arrays::elements_of_binary(bytes, element.oid()).map_err(named)?;
            elements.into_iter().try_for_each(&mut append)?;
        } else {
            let elements = arrays::elements_of_text(encoding::text(bytes).map_err(named)?).map_err(named)?;
            elements.iter().try_for_each(|element| append(element.as_deref().map(str::as_bytes)))?;
        }
        Ok(Some(cells.finish()))
    }

    /// The value as one of `want`; without `want` as the type it was sent in. Texts of times are read as `style` says.
    pub fn value(&self, want: Option<&DataType>, style: &Style) -> Result<Value> {
        let Some(bytes) = self.bytes else { return Ok(Value::Null) };
        if !self.binary || is_text(self.pg_type) {
            encoding::text(bytes).map_err(|error| error.with_context(format!("parameter ${}", self.number)))?;
        }
        let raw = if self.binary { binary(bytes, self.pg_type) } else { text(bytes).map(DecodedParameter::Text) };
        let raw = raw.map_err(|message| {
            let code = if self.binary { state::INVALID_BINARY } else { state::INVALID_TEXT };
            SqlError::new(code, format!("parameter ${} ({}): {message}", self.number, self.pg_type))
        })?;
        let value = match (raw, want) {
            (DecodedParameter::Text(text), Some(want)) => Value::parse_in(want, &text, style),
            (DecodedParameter::Text(text), None) => match natural(self.pg_type) {
                Some(data_type) => Value::parse_in(&data_type, &text, style),
                None => Ok(Value::Text(text)),
            },
            (DecodedParameter::Value(value), Some(want)) => value.coerce(want),
            (DecodedParameter::Value(value), None) => Ok(value),
        };
        value.map_err(|error| {
            let named = SqlError::from(error);
            SqlError::new(named.state(), format!("parameter ${}: {}", self.number, named.message()))
        })
    }
}

enum DecodedParameter {
    Text(String),
    Value(Value),
}

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
        Type::INTERVAL => DataType::Interval,
        Type::INET => DataType::Inet,
        Type::UUID => DataType::Uuid,
        Type::JSON => DataType::Json,
        Type::JSONB => DataType::Jsonb,
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::UNKNOWN => DataType::Text,
        ref of if is_label(of) => DataType::Text,
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
        DataType::Interval => Type::INTERVAL,
        DataType::Inet => Type::INET,
        DataType::Uuid => Type::UUID,
        DataType::Json => Type::JSON,
        DataType::Jsonb => Type::JSONB,
        DataType::Array(_) => pg_type(&arrow_field("", data_type, true)).unwrap_or(Type::TEXT_ARRAY),
    }
}

/// Whether a type is one that somebody made: of those, parameters are of enumerations, and a label is its text in both
/// forms.
fn is_label(pg_type: &Type) -> bool {
    pg_type.oid() >= FIRST_OF_USERS
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

fn binary(bytes: &[u8], pg_type: &Type) -> Result<DecodedParameter, String> {
    let value = match *pg_type {
        Type::BOOL => Value::Bool(binary::boolean(bytes)?),
        Type::INT2 => Value::Int16(i16::from_be_bytes(binary::fixed(bytes)?)),
        Type::INT4 => Value::Int32(i32::from_be_bytes(binary::fixed(bytes)?)),
        Type::OID => Value::Int64(u32::from_be_bytes(binary::fixed(bytes)?).into()),
        Type::INT8 => Value::Int64(i64::from_be_bytes(binary::fixed(bytes)?)),
        Type::FLOAT4 => Value::Float32(f32::from_be_bytes(binary::fixed(bytes)?)),
        Type::FLOAT8 => Value::Float64(f64::from_be_bytes(binary::fixed(bytes)?)),
        Type::NUMERIC => return Ok(DecodedParameter::Text(binary::Numeric::new(bytes)?.text())),
        Type::BYTEA => Value::Bytes(bytes.to_vec()),
        Type::DATE => Value::Date(binary::date(bytes)?),
        Type::TIME => Value::Time(binary::time(bytes)?),
        Type::TIMESTAMP | Type::TIMESTAMPTZ => Value::Timestamp(binary::timestamp(bytes)?),
        Type::INTERVAL => {
            let span = binary::interval(bytes)?;
            span.to_arrow().map(|_| Value::Interval(span)).ok_or("interval out of range")?
        }
        Type::INET => Value::Inet(binary::inet(bytes)?),
        Type::UUID => Value::Uuid(binary::uuid(bytes)?.to_string()),
        Type::JSON => Value::Json(text(bytes)?),
        Type::JSONB => Value::Json(text(binary::jsonb(bytes)?)?),
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::UNKNOWN => {
            return text(bytes).map(DecodedParameter::Text);
        }
        ref of if is_label(of) => return text(bytes).map(DecodedParameter::Text),
        _ => return Err("no binary form of this type is known; send it as text".to_owned()),
    };
    Ok(DecodedParameter::Value(value))
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array, StringArray};
    use arrow::datatypes::Int64Type;
    use tarn_sql::binary::EPOCH_MICROS;

    use super::*;

    fn bound<'a>(bytes: &'a [u8], binary: bool, pg_type: &'a Type) -> BoundParameter<'a> {
        BoundParameter { number: 1, bytes: Some(bytes), binary, pg_type }
    }

    #[test]
    fn binary_and_text_agree() {
        let int = DataType::Int64;
        assert_eq!(
            bound(&7i32.to_be_bytes(), true, &Type::INT4).value(Some(&int), &Style::default()).unwrap(),
            Value::Int64(7)
        );
        assert_eq!(bound(b"7", false, &Type::INT4).value(Some(&int), &Style::default()).unwrap(), Value::Int64(7));
        let decimal = DataType::Decimal { precision: 10, scale: 3 };
        let wire = [0, 3, 0, 1, 0, 0, 0, 3, 0, 1, 0x09, 0x29, 0x1a, 0x7c];
        assert_eq!(
            bound(&wire, true, &Type::NUMERIC).value(Some(&decimal), &Style::default()).unwrap(),
            Value::Decimal(12_345_678)
        );
        assert_eq!(
            bound(&[0, 1, 0xff, 0xff, 0x40, 0, 0, 4, 0, 1], true, &Type::NUMERIC)
                .value(None, &Style::default())
                .unwrap(),
            Value::Decimal(-100_000_000)
        );
        let epoch = 0i64.to_be_bytes();
        assert_eq!(
            bound(&epoch, true, &Type::TIMESTAMPTZ).value(None, &Style::default()).unwrap(),
            Value::Timestamp(EPOCH_MICROS)
        );
    }

    #[test]
    fn bad_values_name_the_parameter() {
        let error = bound(b"seven", false, &Type::INT4).value(Some(&DataType::Int32), &Style::default()).unwrap_err();
        assert_eq!(error.state(), state::INVALID_TEXT);
        assert!(error.message().starts_with("parameter $1"), "{error}");
        for bytes in [&b"caf\xe9"[..], b"a\0b"] {
            for binary in [false, true] {
                assert_eq!(
                    bound(bytes, binary, &Type::TEXT).value(None, &Style::default()).unwrap_err().state(),
                    "22021",
                    "{bytes:?}"
                );
            }
        }
        assert_eq!(
            bound(&[1, 2], true, &Type::INT4).value(None, &Style::default()).unwrap_err().state(),
            state::INVALID_BINARY
        );
        for (bytes, pg_type) in [
            (&(1i64 << 62).to_be_bytes()[..], &Type::TIME),
            (&(-5i64).to_be_bytes(), &Type::TIME),
            (&86_400_000_000i64.to_be_bytes(), &Type::TIME),
            (&(i32::MIN + 5).to_be_bytes(), &Type::DATE),
            (&(i32::MAX - 1).to_be_bytes(), &Type::DATE),
            (&(i64::MIN + 1).to_be_bytes(), &Type::TIMESTAMP),
            (&(i64::MAX - 1).to_be_bytes(), &Type::TIMESTAMPTZ),
            (&[0, 1, 0, 0, 0, 0, 0, 0, 0x27, 0x10], &Type::NUMERIC),
        ] {
            let refused = bound(bytes, true, pg_type).value(None, &Style::default()).unwrap_err();
            assert_eq!(refused.state(), state::INVALID_BINARY, "{pg_type}: {refused}");
        }
        assert_eq!(
            bound(&[0; 7], true, &Type::NUMERIC).value(None, &Style::default()).unwrap_err().state(),
            state::INVALID_BINARY
        );
    }

    #[test]
    fn arrays_are_read_in_both_forms() {
        let ints = DataType::Int64;
        let mut wire = [1_i32, 1, 23, 2, 1, 4, 7, -1].map(i32::to_be_bytes).concat();
        for (bytes, binary) in [(&wire[..], true), (b"{7,null}", false)] {
            let elements =
                bound(bytes, binary, &Type::INT4_ARRAY).elements(&Type::INT4, Some(&ints), &Style::default());
            assert_eq!(elements.unwrap().unwrap().as_primitive::<Int64Type>(), &Int64Array::from(vec![Some(7), None]));
        }
        let texts =
            bound(br#"{a,"b c",NULL}"#, false, &Type::TEXT_ARRAY).elements(&Type::TEXT, None, &Style::default());
        assert_eq!(texts.unwrap().unwrap().as_string::<i32>(), &StringArray::from(vec![Some("a"), Some("b c"), None]));
        wire[31] = 9;
        for (bytes, binary, want) in [(&wire[..], true, "22P03"), (b"{a}", false, "22P02"), (b"{1", false, "22P02")] {
            let refused = bound(bytes, binary, &Type::INT4_ARRAY).elements(&Type::INT4, Some(&ints), &Style::default());
            assert_eq!(refused.unwrap_err().state(), want);
        }
    }
}
