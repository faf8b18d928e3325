//! What is `'ab'::bpchar`? A text that is compared as a `char(n)` is, without regard to blanks at its end, and has any
//! length. As of a `char(n)`, what is kept are the letters before these blanks; but nobody knows how many to show. So a
//! text that ends with blanks is refused, and all others are what they are in PostgreSQL.
//!
//! Columns have a length (`column_rules::length`).

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;
use tarn_query::sqlparser::ast;

use super::calls::{call, take};
use super::common_types::TypeClass;
use super::filled::is_filled;
use crate::error::SqlError;
use crate::names::fold;
use crate::rows::{bpchar, long_name, pg_type};

const BLANK_PADDED: &str = "tarn_bpchar";

/// Makes a call of a cast to `bpchar` without a length.
pub(super) fn as_call(expr: &mut ast::Expr) {
    let of = match expr {
        ast::Expr::Cast { expr: of, data_type, .. } if is_named(data_type) => of.as_mut(),
        _ => return,
    };
    let mut of = take(of);
    // The type of a parameter is told by its cast.
    if matches!(&of, ast::Expr::Value(value) if matches!(value.value, ast::Value::Placeholder(_))) {
        let (kind, data_type) = (ast::CastKind::DoubleColon, ast::DataType::Text);
        of = ast::Expr::Cast { kind, expr: Box::new(of), data_type, array: false, format: None };
    }
    *expr = call(BLANK_PADDED, vec![of]);
}

/// Whether a type is `bpchar`, without a length.
fn is_named(data_type: &ast::DataType) -> bool {
    let ast::DataType::Custom(name, modifiers) = data_type else { return false };
    let parts: Vec<String> = name.0.iter().filter_map(|part| part.as_ident()).map(fold).collect();
    let is_it = match parts.as_slice() {
        [name] => name == "bpchar",
        [schema, name] => schema == "pg_catalog" && name == "bpchar",
        _ => false,
    };
    is_it && modifiers.is_empty()
}

/// The function.
pub(super) fn blank_padded() -> ScalarUDF {
    BlankPadded { signature: Signature::any(1, Volatility::Immutable) }.into()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct BlankPadded {
    signature: Signature,
}

/// Errors: `0A000` for a text that ends with blanks.
fn check(texts: &ArrayRef) -> Result<()> {
    let texts = cast(texts, &DataType::Utf8)?;
    match texts.as_string::<i32>().iter().flatten().any(|text| text.ends_with(' ')) {
        false => Ok(()),
        true => Err(SqlError::unsupported(
            "a bpchar with blanks at its end",
            "char(n), which is shown with them, or rtrim of the text",
        )
        .into()),
    }
}

impl ScalarUDFImpl for BlankPadded {
    fn name(&self) -> &str {
        BLANK_PADDED
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match &types[0] {
            DataType::Null => Ok(DataType::Utf8),
            text if text.is_string() => Ok(text.clone()),
            other => exec_err!("a bpchar of {other}"),
        }
    }

    /// A `char(n)` is one already, and is shown as it was.
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let of = &args.arg_fields[0];
        if is_filled(of) {
            return Ok(Arc::clone(of));
        }
        if !of.data_type().is_null() && TypeClass::of(of) != Some(TypeClass::Text) {
            let what = format!("a cast of type {} to bpchar", long_name(&pg_type(of)?));
            return Err(SqlError::unsupported(what, "cast it to text first").into());
        }
        let to = self.return_type(&[of.data_type().clone()])?;
        Ok(Arc::new(bpchar(Field::new(self.name(), to, of.is_nullable()))))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match &args.args[0] {
            ColumnarValue::Scalar(of) if of.is_null() => Ok(ColumnarValue::Scalar(match of {
                ScalarValue::Null => ScalarValue::Utf8(None),
                of => of.clone(),
            })),
            value => {
                // What a `char(n)` keeps has none.
                check(&value.to_array(args.number_rows)?)?;
                Ok(value.clone())
            }
        }
    }
}
