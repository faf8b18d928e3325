//! What is `'…'::uuid`, and `'…'::json`? A text with the name of its type beside it, as columns of these types are kept; of the planner's
//! types it has none. So the casts are functions: a `uuid` becomes its usual form, a `json` stays as it came, and what is neither is refused.

use std::sync::Arc;

use arrow::array::{AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType as ArrowType, Field, FieldRef};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;
use tarn_query::sqlparser::ast;
use tarn_types::{DataType, Value, arrow_field};

use crate::error::{SqlError, state};
use crate::rows::pg_type;

/// What a cast to such a type is written as, and the type.
const CASTS: [(&str, DataType); 2] = [(UUID, DataType::Uuid), (JSON, DataType::Json)];
pub(super) const UUID: &str = "tarn_uuid";
const JSON: &str = "tarn_json";

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let signature = Signature::any(1, Volatility::Immutable);
    let of = |(name, to)| Arc::new(ScalarUDF::from(KeptAsText { name, to, signature: signature.clone() }));
    CASTS.map(of).to_vec()
}

/// The function that is a cast to this type. A `jsonb` is written otherwise than it came, and has operators: there are no casts to it.
pub(super) fn cast_to(data_type: &ast::DataType) -> Option<&'static str> {
    match data_type {
        ast::DataType::Uuid => Some(UUID),
        ast::DataType::JSON => Some(JSON),
        _ => None,
    }
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
    fn checked(&self, text: &str) -> Result<String> {
        match Value::parse(&self.to, text) {
            Ok(Value::Uuid(text) | Value::Json(text)) => Ok(text),
            _ => {
                let message =
                    format!("invalid input syntax for type {}: \"{text}\"", self.to.to_string().to_lowercase());
                Err(SqlError::new(state::INVALID_TEXT, message).into())
            }
        }
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
        match &types[0] {
            of if of.is_string() || of.is_null() => Ok(ArrowType::Utf8),
            of => {
                let of = pg_type(&Field::new("", of.clone(), true))?;
                let message = format!("cannot cast type {of} to {}", self.to.to_string().to_lowercase());
                Err(SqlError::new(state::CANNOT_COERCE, message).with_hint("cast it to text first").into())
            }
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.return_type(&[args.arg_fields[0].data_type().clone()])?;
        Ok(Arc::new(arrow_field(self.name, &self.to, args.arg_fields[0].is_nullable())))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match &args.args[0] {
            ColumnarValue::Scalar(text) => {
                let text = text.try_as_str().flatten().map(|text| self.checked(text)).transpose()?;
                Ok(ColumnarValue::Scalar(ScalarValue::Utf8(text)))
            }
            ColumnarValue::Array(texts) => {
                let texts = cast(texts, &ArrowType::Utf8)?;
                let checked =
                    texts.as_string::<i32>().iter().map(|text| text.map(|text| self.checked(text)).transpose());
                Ok(ColumnarValue::Array(Arc::new(checked.collect::<Result<StringArray>>()?)))
            }
        }
    }
}
