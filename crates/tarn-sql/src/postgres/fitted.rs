//! What is a text that a column of `varchar(n)` or `char(n)` is given? The same, or 22001 where it is longer; a cast cuts it off. So columns that are
//! read out of JSON have a function around them.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;
use tarn_query::sqlparser::ast;
use tarn_types::Length;

use super::calls::{call, number};
use crate::column_rules::length;
use crate::error::{Result as SqlResult, SqlError};

const VARYING: &str = "tarn_fitted_varying";
const FIXED: &str = "tarn_fitted";

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let of = |name| {
        let signature = Signature::any(2, Volatility::Immutable);
        Arc::new(ScalarUDF::from(Fitted { name, signature }))
    };
    vec![of(VARYING), of(FIXED)]
}

/// A text as a value of such a type. `None`: the type has no length.
pub(super) fn fitted(text: &ast::Expr, to: &ast::DataType) -> SqlResult<Option<ast::Expr>> {
    Ok(length(to)?.map(|length| {
        let name = if matches!(length, Length::Varying(_)) { VARYING } else { FIXED };
        call(name, vec![text.clone(), number(length.n_chars().into())])
    }))
}

/// As [`fitted`], in a plan.
pub(super) fn fitted_to(text: Expr, length: Length) -> Expr {
    let name = if matches!(length, Length::Varying(_)) { VARYING } else { FIXED };
    let signature = Signature::any(2, Volatility::Immutable);
    ScalarUDF::from(Fitted { name, signature }).call(vec![text, lit(i64::from(length.n_chars()))])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Fitted {
    name: &'static str,
    signature: Signature,
}

impl Fitted {
    fn length(&self, n: &ScalarValue) -> Result<Length> {
        match n.cast_to(&DataType::UInt32)? {
            ScalarValue::UInt32(Some(n)) if self.name == VARYING => Ok(Length::Varying(n)),
            ScalarValue::UInt32(Some(n)) => Ok(Length::Fixed(n)),
            _ => exec_err!("{} takes a length that is written out", self.name),
        }
    }
}

impl ScalarUDFImpl for Fitted {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let Some(n) = args.scalar_arguments.get(1).copied().flatten() else {
            return exec_err!("{} takes a length that is written out", self.name);
        };
        let field = Field::new(self.name, DataType::Utf8, args.arg_fields[0].is_nullable());
        Ok(Arc::new(self.length(n)?.told(field)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [texts, ColumnarValue::Scalar(n)] = &args.args[..] else {
            return exec_err!("{} takes a text and a length", self.name);
        };
        let length = self.length(n)?;
        let fit = |texts: ArrayRef| -> Result<ArrayRef> {
            let texts = cast(&texts, &DataType::Utf8)?;
            let fitted = texts.as_string::<i32>().iter().map(|text| text.map(|text| length.fit(text)).transpose());
            Ok(Arc::new(fitted.collect::<Result<StringArray, _>>().map_err(SqlError::from)?))
        };
        Ok(match texts {
            ColumnarValue::Array(texts) => ColumnarValue::Array(fit(Arc::clone(texts))?),
            ColumnarValue::Scalar(text) => {
                ColumnarValue::Scalar(ScalarValue::try_from_array(&fit(text.to_array()?)?, 0)?)
            }
        })
    }
}
