//! How many of these are NULL, and is a time finite? `num_nulls`, `num_nonnulls`; `isfinite`, which every interval is.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, Int32Array};
use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use tarn_query::datafusion;

use super::averages::undefined;
use super::infinite_times::infinite;
use super::rowwise::ArgumentRows;

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let several = Signature::one_of(vec![TypeSignature::VariadicAny], Volatility::Immutable);
    let all = [
        (NullFunction::Nulls, several.clone()),
        (NullFunction::NonNulls, several),
        (NullFunction::IsFinite, Signature::user_defined(Volatility::Immutable)),
    ];
    all.into_iter().map(|(what, signature)| Arc::new(ScalarUDF::from(OfNulls { what, signature }))).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum NullFunction {
    Nulls,
    NonNulls,
    IsFinite,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfNulls {
    what: NullFunction,
    signature: Signature,
}

impl ScalarUDFImpl for OfNulls {
    fn name(&self) -> &str {
        match self.what {
            NullFunction::Nulls => "num_nulls",
            NullFunction::NonNulls => "num_nonnulls",
            NullFunction::IsFinite => "isfinite",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [DataType::Date32 | DataType::Timestamp(..) | DataType::Interval(_) | DataType::Duration(_)] => {
                Ok(types.to_vec())
            }
            _ => Err(undefined(self.name(), types).into()),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(if self.what == NullFunction::IsFinite { DataType::Boolean } else { DataType::Int32 })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = ArgumentRows::of(&args)?;
        let nulls: Vec<_> = rows.columns.iter().map(|column| column.logical_nulls()).collect();
        let is_null =
            |row: usize| nulls.iter().map(move |nulls| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)));
        let answer: ArrayRef = match self.what {
            NullFunction::IsFinite => {
                let infinite = infinite(&rows.columns[0]);
                let is_finite = |row: usize| infinite.as_ref().is_none_or(|infinite| !infinite.value(row));
                Arc::new(rows.there().map(|row| row.map(is_finite)).collect::<BooleanArray>())
            }
            what => {
                let counted = what == NullFunction::Nulls;
                let count = |row: usize| is_null(row).filter(|is_null| *is_null == counted).count() as i32;
                Arc::new((0..rows.n_rows).map(count).collect::<Int32Array>())
            }
        };
        rows.answer(answer)
    }
}
