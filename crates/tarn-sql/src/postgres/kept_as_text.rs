//! What is `'…'::uuid`, `'…'::json` and `'…'::jsonb`? A text with the name of its type beside it, as columns of these
//! types are kept; of the planner's types it has none. So the casts are functions: a `uuid` becomes its usual form, a
//! `json` stays as it came, a `jsonb` becomes its normal form, and what is none is refused. A cast to an array of them
//! is the same function, of an array of texts.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, StringArray};
use arrow::buffer::OffsetBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType as ArrowType, Field, FieldRef};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;
use tarn_query::sqlparser::ast;
use tarn_types::{DataType, Error, Value, arrow_field, data_type_of};

use crate::error::{SqlError, state};
use crate::rows::pg_type;

/// What a cast to such a type is written as, and the type.
const CASTS: [(&str, DataType); 3] = [(UUID, DataType::Uuid), (JSON, DataType::Json), (JSONB, DataType::Jsonb)];
pub(super) const UUID: &str = "tarn_uuid";
pub(super) const JSON: &str = "tarn_json";
pub(super) const JSONB: &str = "tarn_jsonb";

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    CASTS.map(|(_, to)| cast_function(to)).to_vec()
}

/// The cast to `uuid`, `json` or `jsonb`; to `json`, if it is to another.
pub(super) fn cast_function(to: DataType) -> Arc<ScalarUDF> {
    let (name, to) = CASTS.into_iter().find(|(_, of)| *of == to).unwrap_or((JSON, DataType::Json));
    Arc::new(ScalarUDF::from(KeptAsText { name, to, signature: Signature::any(1, Volatility::Immutable) }))
}

/// The function that is a cast to this type.
pub(super) fn cast_to(data_type: &ast::DataType) -> Option<&'static str> {
    match data_type {
        ast::DataType::Uuid => Some(UUID),
        ast::DataType::JSON => Some(JSON),
        ast::DataType::JSONB => Some(JSONB),
        _ => None,
    }
}

/// As [`cast_to`], for an array of such items.
pub(super) fn items_cast_to(data_type: &ast::DataType) -> Option<&'static str> {
    match data_type {
        ast::DataType::Array(ast::ArrayElemTypeDef::SquareBracket(item, None)) => cast_to(item),
        _ => None,
    }
}

/// The function that is a cast to it.
pub(crate) fn name_of_cast(to: DataType) -> Option<&'static str> {
    CASTS.into_iter().find(|(_, of)| *of == to).map(|(name, _)| name)
}

/// The type that a function of this name casts to.
pub(crate) fn type_of_cast(function: &str) -> Option<DataType> {
    CASTS.into_iter().find(|(name, _)| *name == function).map(|(_, to)| to)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct KeptAsText {
    name: &'static str,
    to: DataType,
    signature: Signature,
}

impl KeptAsText {
    /// A text becomes any of them; of each other, `json` and `jsonb` alone.
    fn check(&self, of: &Field) -> Result<()> {
        let is_taken = match data_type_of(of) {
            Ok(DataType::Text) => true,
            Ok(of @ (DataType::Json | DataType::Jsonb)) => of == self.to || self.to != DataType::Uuid,
            Ok(of) => of == self.to,
            Err(_) => false,
        };
        if is_taken {
            return Ok(());
        }
        let message = format!("cannot cast type {} to {}", pg_type(of)?, self.to.to_string().to_lowercase());
        Err(SqlError::new(state::CANNOT_COERCE, message).with_hint("cast it to text first").into())
    }

    fn checked(&self, text: &str) -> Result<String> {
        match Value::parse(&self.to, text) {
            Ok(Value::Uuid(text) | Value::Json(text)) => Ok(text),
            Err(error @ Error::Json { .. }) => Err(SqlError::from(error).into()),
            _ => {
                let name = if self.to == DataType::Uuid { "uuid" } else { "json" };
                let message = format!("invalid input syntax for type {name}: \"{text}\"");
                Err(SqlError::new(state::INVALID_TEXT, message).into())
            }
        }
    }

    fn checked_texts(&self, texts: &ArrayRef) -> Result<StringArray> {
        let texts = cast(texts, &ArrowType::Utf8)?;
        texts.as_string::<i32>().iter().map(|text| text.map(|text| self.checked(text)).transpose()).collect()
    }

    fn checked_arrays(&self, arrays: &ArrayRef) -> Result<ListArray> {
        let arrays = cast(arrays, &ArrowType::List(self.item()))?;
        let arrays = arrays.as_list::<i32>();
        // A slice of arrays keeps the items of all of them.
        let ends = arrays.value_offsets();
        let (first, last) = (ends[0], ends[ends.len() - 1]);
        let items = arrays.values().slice(first as usize, (last - first) as usize);
        let ends = OffsetBuffer::new(ends.iter().map(|end| end - first).collect());
        Ok(ListArray::try_new(self.item(), ends, Arc::new(self.checked_texts(&items)?), arrays.nulls().cloned())?)
    }

    /// Of an array.
    fn item(&self) -> FieldRef {
        Arc::new(arrow_field(Field::LIST_FIELD_DEFAULT_NAME, &self.to, true))
    }
}

/// The item of an array.
fn item_of(data_type: &ArrowType) -> Option<&FieldRef> {
    match data_type {
        ArrowType::List(item) => Some(item),
        _ => None,
    }
}

impl ScalarUDFImpl for KeptAsText {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[ArrowType]) -> Result<ArrowType> {
        if let Some(item) = item_of(&types[0]) {
            self.check(item)?;
            return Ok(ArrowType::List(self.item()));
        }
        self.check(&Field::new("", types[0].clone(), true))?;
        Ok(ArrowType::Utf8)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        if let Some(item) = item_of(args.arg_fields[0].data_type()) {
            self.check(item)?;
            let arrays = ArrowType::List(self.item());
            return Ok(Arc::new(Field::new(self.name, arrays, args.arg_fields[0].is_nullable())));
        }
        self.check(&args.arg_fields[0])?;
        Ok(Arc::new(arrow_field(self.name, &self.to, args.arg_fields[0].is_nullable())))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match &args.args[0] {
            ColumnarValue::Scalar(array) if array.data_type().is_list() => {
                let checked = self.checked_arrays(&array.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::List(Arc::new(checked))))
            }
            ColumnarValue::Array(arrays) if arrays.data_type().is_list() => {
                Ok(ColumnarValue::Array(Arc::new(self.checked_arrays(arrays)?)))
            }
            ColumnarValue::Scalar(text) => {
                let text = text.try_as_str().flatten().map(|text| self.checked(text)).transpose()?;
                Ok(ColumnarValue::Scalar(ScalarValue::Utf8(text)))
            }
            ColumnarValue::Array(texts) => Ok(ColumnarValue::Array(Arc::new(self.checked_texts(texts)?))),
        }
    }
}
