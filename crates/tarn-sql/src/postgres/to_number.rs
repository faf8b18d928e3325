//! Which number is a text by a template? `to_number('12,454.8-', '99G999D9S')` is -12454.8. `number_template` reads it;
//! how many digits are behind the point the template says, of a constant the text.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Decimal128Array};
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Field, FieldRef};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;

use super::averages::undefined;
use super::division::{POWERS, too_long};
use super::number_template::NumberTemplate;
use super::rowwise::ArgumentRows;
use crate::digits::{Digits, Rule};
use crate::error::SqlError;

/// The function.
pub(super) fn to_number() -> ScalarUDF {
    ToNumber { signature: Signature::user_defined(Volatility::Immutable) }.into()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ToNumber {
    signature: Signature,
}

impl ScalarUDFImpl for ToNumber {
    fn name(&self) -> &str {
        "to_number"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [text, template] if [text, template].into_iter().all(|of| of.is_string() || of.is_null()) => {
                Ok(vec![DataType::Utf8; 2])
            }
            _ => Err(undefined(self.name(), types).into()),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let text = |idx: usize| args.scalar_arguments[idx].and_then(ScalarValue::try_as_str);
        let scale = match text(1) {
            None => {
                return Err(SqlError::unsupported(
                    "to_number by a template that is no constant is not supported",
                    "write the template out, or cast the text to numeric",
                )
                .into());
            }
            Some(None) => 0,
            Some(Some(template)) => {
                let template = NumberTemplate::parse(template)?;
                let own = text(0).flatten().and_then(|text| template.read(text).ok());
                own.map_or(template.n_behind(), |(_, n_behind)| n_behind)
            }
        };
        let scale = i8::try_from(scale).ok().filter(|scale| *scale <= DECIMAL128_MAX_PRECISION as i8);
        let of = DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale.ok_or_else(too_long)?);
        let field = Field::new(self.name(), of, true);
        // Of a column, each has as many as are written.
        Ok(Arc::new(if text(0).is_some() { field } else { Digits::mark(field, Rule::Natural, 0) }))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = ArgumentRows::of(&args)?;
        let (texts, templates) = (rows.columns[0].as_string::<i32>(), rows.columns[1].as_string::<i32>());
        let DataType::Decimal128(_, scale) = *args.return_field.data_type() else { return Err(too_long().into()) };
        // There is one template.
        let mut template = None;
        let mut of = |row: usize| {
            let template = match &mut template {
                Some(template) => template,
                none => none.insert(NumberTemplate::parse(templates.value(row))?),
            };
            let (value, n_behind) = template.read(texts.value(row))?;
            let missing = usize::try_from(scale).ok().and_then(|scale| scale.checked_sub(n_behind));
            let filled = missing.and_then(|missing| value.checked_mul(*POWERS.get(missing)?));
            filled.filter(|value| value.unsigned_abs() < POWERS[38].unsigned_abs()).ok_or_else(too_long)
        };
        let values =
            rows.there().map(|row| row.map(&mut of).transpose()).collect::<Result<Decimal128Array, SqlError>>()?;
        let values: ArrayRef = Arc::new(values.with_data_type(args.return_field.data_type().clone()));
        rows.answer(values)
    }
}
