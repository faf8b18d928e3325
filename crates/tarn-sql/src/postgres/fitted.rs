//! What is a text that becomes a `varchar(n)` or a `char(n)`? Where it is read, out of JSON or into a field of a row,
//! the same, or 22001 where it is longer; a cast cuts it off. Both are functions, because the planner knows no text
//! with a length, and of both it is told what their values are. Of arrays, each item is.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
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

/// What becomes of a text that is longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum OverlongText {
    /// 22001, unless it is blanks that are too many.
    Refused,
    Cut,
}

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let kinds = [
        (OverlongText::Refused, false),
        (OverlongText::Refused, true),
        (OverlongText::Cut, false),
        (OverlongText::Cut, true),
    ];
    kinds.into_iter().map(|(longer, is_fixed)| Arc::new(LengthCast::function(longer, is_fixed))).collect()
}

/// A text, or an array of texts, as a value of such a type. `None`: the type has no length.
pub(super) fn fitted(text: &ast::Expr, to: &ast::DataType, longer: OverlongText) -> SqlResult<Option<ast::Expr>> {
    Ok(length(to)?.map(|length| {
        let name = name_of(longer, matches!(length, Length::Fixed(_)));
        call(name, vec![text.clone(), number(length.n_chars().into())])
    }))
}

/// As [`fitted`], in a plan.
pub(super) fn fitted_to(text: Expr, length: Length, longer: OverlongText) -> Expr {
    LengthCast::function(longer, matches!(length, Length::Fixed(_))).call(vec![text, lit(i64::from(length.n_chars()))])
}

/// Whether it makes a `char(n)` of one of the same length.
pub(super) fn is_twice(call: &ScalarFunction) -> bool {
    let name = name_of(OverlongText::Refused, true);
    match &call.args[..] {
        [Expr::ScalarFunction(within), n] => {
            call.name() == name && within.name() == name && within.args.get(1) == Some(n)
        }
        _ => false,
    }
}

fn name_of(longer: OverlongText, is_fixed: bool) -> &'static str {
    match (longer, is_fixed) {
        (OverlongText::Refused, false) => "tarn_fitted_varying",
        (OverlongText::Refused, true) => "tarn_fitted",
        (OverlongText::Cut, false) => "tarn_cut_varying",
        (OverlongText::Cut, true) => "tarn_cut",
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct LengthCast {
    longer: OverlongText,
    is_fixed: bool,
    signature: Signature,
}

impl LengthCast {
    fn function(longer: OverlongText, is_fixed: bool) -> ScalarUDF {
        LengthCast { longer, is_fixed, signature: Signature::any(2, Volatility::Immutable) }.into()
    }

    fn length(&self, n: &ScalarValue) -> Result<Length> {
        match n.cast_to(&DataType::UInt32)? {
            ScalarValue::UInt32(Some(n)) => Ok(if self.is_fixed { Length::Fixed(n) } else { Length::Varying(n) }),
            _ => exec_err!("{} takes a length that is written out", self.name()),
        }
    }

    fn fit(&self, of: &ArrayRef, length: Length) -> Result<ArrayRef> {
        if let Some(lists) = of.as_list_opt::<i32>() {
            let items = self.fit(lists.values(), length)?;
            let item = Arc::new(Field::new_list_field(items.data_type().clone(), true));
            return Ok(Arc::new(ListArray::try_new(item, lists.offsets().clone(), items, lists.nulls().cloned())?));
        }
        let texts = cast(of, &DataType::Utf8)?;
        let fit = |text: &str| {
            let text = match self.longer {
                OverlongText::Refused => text,
                OverlongText::Cut => first(text, length.n_chars()),
            };
            length.fit(text).map(Cow::into_owned).map_err(SqlError::from)
        };
        let fitted = texts.as_string::<i32>().iter().map(|text| text.map(fit).transpose());
        Ok(Arc::new(fitted.collect::<SqlResult<StringArray>>()?))
    }
}

/// So many characters of a text.
fn first(text: &str, n_chars: u32) -> &str {
    let end = text.char_indices().nth(n_chars as usize).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

/// Texts, in as many arrays as there are in what is given.
fn texts_like(of: &DataType) -> DataType {
    match of {
        DataType::List(item) => DataType::new_list(texts_like(item.data_type()), true),
        _ => DataType::Utf8,
    }
}

impl ScalarUDFImpl for LengthCast {
    fn name(&self) -> &str {
        name_of(self.longer, self.is_fixed)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        Ok(given.first().map_or(DataType::Utf8, texts_like))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let Some(n) = args.scalar_arguments.get(1).copied().flatten() else {
            return exec_err!("{} takes a length that is written out", self.name());
        };
        let text = &args.arg_fields[0];
        let field = Field::new(self.name(), texts_like(text.data_type()), text.is_nullable());
        Ok(Arc::new(self.length(n)?.told(field)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [texts, ColumnarValue::Scalar(n)] = &args.args[..] else {
            return exec_err!("{} takes a text and a length", self.name());
        };
        let length = self.length(n)?;
        Ok(match texts {
            ColumnarValue::Array(texts) => ColumnarValue::Array(self.fit(texts, length)?),
            ColumnarValue::Scalar(text) => {
                ColumnarValue::Scalar(ScalarValue::try_from_array(&self.fit(&text.to_array()?, length)?, 0)?)
            }
        })
    }
}
