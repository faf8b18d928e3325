//! In which order is a text by `COLLATE "C"`? By its bytes, as all texts are here: so it is taken where it is said, and
//! other collations are refused. The planner knows none.
//!
//! It is written as a call that is nothing but its argument, if that is a text: `1 COLLATE "C"` is an error.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::exec_err;
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr as Planned, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use tarn_query::datafusion;
use tarn_query::sqlparser::ast::Expr;

use super::calls::{call, take};
use crate::error::{Result, SqlError, state};
use crate::names::fold;
use crate::rows::{long_name, pg_type};

const COLLATED: &str = "tarn_collated";

/// Collations by whose names texts are in the order of their bytes. `POSIX` would be another one that means the same,
/// and two in one expression are an error.
const BYTES: [&str; 5] = ["C", "C.utf8", "C.UTF-8", "ucs_basic", "default"];

/// Writes the collation of an expression as a call.
///
/// Errors: `0A000` for another order than that of bytes.
pub(super) fn rewrite(expr: &mut Expr) -> Result<()> {
    let Expr::Collate { expr: of, collation } = expr else { return Ok(()) };
    let parts: Option<Vec<String>> = collation.0.iter().map(|part| part.as_ident().map(fold)).collect();
    let is_of_bytes = match parts.as_deref() {
        Some([name]) => BYTES.contains(&name.as_str()),
        Some([schema, name]) => schema == "pg_catalog" && BYTES.contains(&name.as_str()),
        _ => false,
    };
    if !is_of_bytes {
        return Err(SqlError::unsupported(
            format!("COLLATE {collation}"),
            "texts are ordered by their bytes: COLLATE \"C\"",
        ));
    }
    *expr = call(COLLATED, vec![take(of)]);
    Ok(())
}

/// The function.
pub(super) fn collated() -> ScalarUDF {
    Collated { signature: Signature::user_defined(Volatility::Immutable) }.into()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Collated {
    signature: Signature,
}

impl ScalarUDFImpl for Collated {
    fn name(&self) -> &str {
        COLLATED
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> PlanResult<Vec<DataType>> {
        match types {
            [of] if of.is_string() || of.is_null() => Ok(types.to_vec()),
            [of] => {
                let name = long_name(&pg_type(&Field::new("", of.clone(), true))?);
                let message = format!("collations are not supported by type {name}");
                Err(SqlError::new(state::DATATYPE_MISMATCH, message).with_hint("cast it to text").into())
            }
            _ => exec_err!("{COLLATED} is of a text"),
        }
    }

    fn return_type(&self, types: &[DataType]) -> PlanResult<DataType> {
        Ok(types[0].clone())
    }

    /// What is said of the text stays: it may be a `char(n)`.
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> PlanResult<FieldRef> {
        Ok(Arc::clone(&args.arg_fields[0]))
    }

    fn schema_name(&self, args: &[Planned]) -> PlanResult<String> {
        Ok(args[0].schema_name().to_string())
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn simplify(&self, mut args: Vec<Planned>, _: &SimplifyContext) -> PlanResult<ExprSimplifyResult> {
        match args.len() {
            1 => Ok(ExprSimplifyResult::Simplified(args.swap_remove(0))),
            _ => Ok(ExprSimplifyResult::Original(args)),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        Ok(args.args[0].clone())
    }
}
