//! Which conditions may be asked inside of a file? Those that cannot fail. `WHERE a > 0 AND 10 / a = 2` must not divide
//! in rows that the first condition leaves out, and of an error in there the reader of files keeps the text alone: a
//! division by zero came out as a fault of the disk.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

/// Functions that have a value of all arguments, and that are asked where late reading pays.
const ALWAYS_A_VALUE: [&str; 9] =
    ["matches", "lower", "upper", "starts_with", "ends_with", "contains", "coalesce", "character_length", "strpos"];

/// Whether there may be rows that it is an error for.
pub(crate) fn may_fail(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let here = if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
        matches!(
            binary.op(),
            Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide | Operator::Modulo
        )
    } else if let Some(cast) = expr.downcast_ref::<CastExpr>() {
        may_not_fit(cast.cast_type())
    } else if let Some(call) = expr.downcast_ref::<ScalarFunctionExpr>() {
        !ALWAYS_A_VALUE.contains(&call.name())
    } else {
        false
    };
    here || expr.children().into_iter().any(may_fail)
}

/// The planner casts to what is wider, a statement to anything.
fn may_not_fit(to: &DataType) -> bool {
    !matches!(to, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Int64 | DataType::Float64)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Field, Schema};
    use datafusion::physical_expr::expressions::{binary, cast, col, lit};

    use super::*;

    #[test]
    fn what_divides_or_narrows_may_fail() {
        let schema = Schema::new(vec![Field::new("a", DataType::Int32, true)]);
        let a = || col("a", &schema).unwrap();
        let divided = binary(lit(10_i32), Operator::Divide, a(), &schema).unwrap();
        let narrow = cast(a(), &schema, DataType::Int16).unwrap();
        for (expr, fails) in [
            (binary(a(), Operator::Gt, lit(1_i32), &schema).unwrap(), false),
            (binary(divided, Operator::Eq, lit(2_i32), &schema).unwrap(), true),
            (binary(narrow, Operator::Eq, lit(2_i16), &schema).unwrap(), true),
        ] {
            assert_eq!(may_fail(&expr), fails, "{expr}");
        }
    }
}
