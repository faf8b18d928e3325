//! Is `1e308 * 10` infinite? In PostgreSQL it is an error, as are a division by zero and a product too small to be told
//! from zero. Only what is infinite already stays so.
//!
//! As with integers, a whole column is computed first, and looked at row by row only where a value is infinite or zero.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Datum};
use arrow::compute::kernels::numeric;
use arrow::datatypes::{ArrowPrimitiveType, DataType, Float32Type, Float64Type};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Case, InList, InSubquery, ScalarFunction, SetComparison};
use datafusion::logical_expr::{
    Between, BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, ScalarUDF, Subquery,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;
use tarn_query::sqlparser::ast::{
    BinaryOperator, CastKind, DataType as SqlType, Expr as SqlExpr, UnaryOperator, Value as SqlValue,
};
use tarn_query::{BinaryKernel, each_expression, each_node, operator_function};

use crate::error::{SqlError, state};

/// Beyond these, either way, is no `numeric` of ours.
const MOST_OF_NUMERICS: f64 = 1e38;

/// Numbers that are compared and are no `numeric` of ours are floats: `f < 1e300` is of floats anyhow where `f` is one,
/// and all others are less.
pub(super) fn written_beyond_numerics(expr: &mut SqlExpr) {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    match expr {
        SqlExpr::BinaryOp { left, op: Eq | Gt | GtEq | Lt | LtEq | NotEq, right }
        | SqlExpr::IsDistinctFrom(left, right)
        | SqlExpr::IsNotDistinctFrom(left, right) => {
            [left, right].into_iter().for_each(|side| as_float(side));
        }
        SqlExpr::Between { expr, low, high, .. } => [expr, low, high].into_iter().for_each(|side| as_float(side)),
        SqlExpr::InList { expr, list, .. } => std::iter::once(expr.as_mut()).chain(list).for_each(as_float),
        _ => {}
    }
}

fn as_float(expr: &mut SqlExpr) {
    match expr {
        SqlExpr::Nested(of) | SqlExpr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr: of } => {
            as_float(of);
        }
        SqlExpr::Value(value) => {
            let SqlValue::Number(digits, _) = &value.value else { return };
            let is_numeric = |of: f64| of == 0.0 || (1.0 / MOST_OF_NUMERICS..=MOST_OF_NUMERICS).contains(&of);
            if !digits.contains(['e', 'E']) || digits.parse::<f64>().is_ok_and(is_numeric) {
                return;
            }
            *expr = written_as_float(digits);
        }
        _ => {}
    }
}

/// `'1e300'::float8` of digits: the planner would make a `numeric` of the number on the way.
pub(super) fn written_as_float(digits: &str) -> SqlExpr {
    let text = SqlExpr::Value(SqlValue::SingleQuotedString(digits.to_owned()).with_empty_span());
    let (kind, data_type) = (CastKind::Cast, SqlType::DoublePrecision);
    SqlExpr::Cast { kind, expr: Box::new(text), data_type, array: false, format: None }
}

/// `real` beside a number of another type, and any float beside a `numeric`: both are `double precision`, as in
/// PostgreSQL. The rule runs before types are made one, which DataFusion does by losing digits of the other.
#[derive(Debug)]
pub(super) struct WideFloats;

impl AnalyzerRule for WideFloats {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = each_expression(plan, widened)?;
        Ok(each_node(plan, widened_keys)?.data)
    }

    fn name(&self) -> &str {
        "wide_floats"
    }
}

fn widened(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let is_changed = match &mut expr {
        Expr::BinaryExpr(BinaryExpr { left, right, .. }) => widen(vec![left.as_mut(), right.as_mut()], schema),
        Expr::Between(Between { expr, low, high, .. }) => {
            widen(vec![expr.as_mut(), low.as_mut(), high.as_mut()], schema)
        }
        Expr::InList(InList { expr, list, .. }) => {
            // Several constants are of one type with what is looked for, which is a `real` beside numerics: they are
            // an array of it. Columns, and one constant alone, are compared one by one.
            let constants = list.iter_mut().filter(|of| !of.any_column_refs());
            let all: Vec<&mut Expr> = std::iter::once(expr.as_mut()).chain(constants).collect();
            let is_narrowed = all.len() > 2 && narrow(all, schema);
            widen(std::iter::once(expr.as_mut()).chain(list).collect(), schema) || is_narrowed
        }
        Expr::Case(Case { expr: Some(of), when_then_expr, .. }) => {
            let whens = when_then_expr.iter_mut().map(|(when, _)| when.as_mut());
            widen(std::iter::once(of.as_mut()).chain(whens).collect(), schema)
        }
        Expr::InSubquery(InSubquery { expr, subquery, .. })
        | Expr::SetComparison(SetComparison { expr, subquery, .. }) => {
            let is_changed = match &subquery.subquery.schema().fields()[..] {
                [field] => are_wide(&[expr.get_type(schema).ok(), Some(field.data_type().clone())]),
                _ => false,
            };
            if is_changed {
                to_double(expr);
                *subquery = doubles(subquery)?;
            }
            is_changed
        }
        // What lies between two of them is a `double precision`.
        Expr::AggregateFunction(call)
            if call.func.name() == "percentile_cont"
                && matches!(call.params.args.first().map(|of| of.get_type(schema)), Some(Ok(DataType::Float32))) =>
        {
            let places = call.params.order_by.iter_mut().map(|by| &mut by.expr);
            for of in call.params.args.iter_mut().take(1).chain(places) {
                to_double(of);
            }
            true
        }
        _ => false,
    };
    Ok(Transformed::new_transformed(expr, is_changed))
}

/// Keys of joins, each of which is of one side.
fn widened_keys(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Join(mut join) = node else { return Ok(Transformed::no(node)) };
    let mut is_changed = false;
    for (left, right) in &mut join.on {
        let types = [left.get_type(join.left.schema()).ok(), right.get_type(join.right.schema()).ok()];
        if are_wide(&types) {
            to_double(left);
            to_double(right);
            is_changed = true;
        }
    }
    Ok(Transformed::new_transformed(LogicalPlan::Join(join), is_changed))
}

/// Whether numbers of these types are `double precision` beside each other, which the planner would not make of them.
fn are_wide(types: &[Option<DataType>]) -> bool {
    let has = |is_one: fn(&DataType) -> bool| types.iter().flatten().any(is_one);
    let has_numerics = has(DataType::is_decimal);
    (has(|of| *of == DataType::Float32) && (has_numerics || has(DataType::is_integer)))
        || (has(|of| *of == DataType::Float64) && has_numerics)
}

/// Makes numbers `double precision` where they are beside each other. Whether it is necessary.
fn widen(all: Vec<&mut Expr>, schema: &DFSchema) -> bool {
    let types: Vec<_> = all.iter().map(|of| of.get_type(schema).ok()).collect();
    are_wide(&types) && cast_all(all, &types, &DataType::Float64)
}

/// Makes numbers `real` where one is, and none is `double precision`. Whether it is necessary.
fn narrow(all: Vec<&mut Expr>, schema: &DFSchema) -> bool {
    let types: Vec<_> = all.iter().map(|of| of.get_type(schema).ok()).collect();
    let has_doubles = types.iter().flatten().any(|of| *of == DataType::Float64);
    !has_doubles && are_wide(&types) && cast_all(all, &types, &DataType::Float32)
}

fn cast_all(all: Vec<&mut Expr>, types: &[Option<DataType>], to: &DataType) -> bool {
    for (expr, of) in all.into_iter().zip(types) {
        if of.as_ref().is_some_and(|of| of.is_numeric() && of != to) {
            let of = std::mem::replace(expr, Expr::Literal(ScalarValue::Null, None));
            *expr = Expr::Cast(Cast::new(Box::new(of), to.clone()));
        }
    }
    true
}

fn double(of: Expr) -> Expr {
    Expr::Cast(Cast::new(Box::new(of), DataType::Float64))
}

fn to_double(of: &mut Expr) {
    *of = double(std::mem::replace(of, Expr::Literal(ScalarValue::Null, None)));
}

/// The same rows, as floats.
fn doubles(subquery: &Subquery) -> Result<Subquery> {
    let rows = LogicalPlanBuilder::from(Arc::clone(&subquery.subquery));
    let columns = subquery.subquery.schema().columns().into_iter();
    let floats = columns.map(|column| {
        let name = column.name.clone();
        double(Expr::Column(column)).alias(name)
    });
    Ok(subquery.with_plan(Arc::new(rows.project(floats)?.build()?)))
}

/// The rule; it runs when types are known.
#[derive(Debug)]
pub(super) struct CheckedFloats([(Operator, Arc<ScalarUDF>); 4]);

impl CheckedFloats {
    pub(super) fn new() -> CheckedFloats {
        let all = [FloatOperation::Plus, FloatOperation::Minus, FloatOperation::Times, FloatOperation::Divided];
        CheckedFloats(all.map(|one| (one.operator(), Arc::new(operator_function(one)))))
    }

    fn checked(&self, expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else { return Ok(Transformed::no(expr)) };
        let function = self.0.iter().find(|(operator, _)| *operator == op).map(|(_, function)| function);
        Ok(match function.filter(|_| is_float(&left, schema)) {
            Some(function) => {
                let call = ScalarFunction::new_udf(Arc::clone(function), vec![*left, *right]);
                Transformed::yes(Expr::ScalarFunction(call))
            }
            None => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
        })
    }
}

impl AnalyzerRule for CheckedFloats {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, |expr, schema| self.checked(expr, schema))
    }

    fn name(&self) -> &str {
        "checked_floats"
    }
}

/// By the first operand, as that of integers.
fn is_float(expr: &Expr, schema: &DFSchema) -> bool {
    match expr {
        Expr::ScalarFunction(call) if FloatOperation::of(&call.func) => is_float(&call.args[0], schema),
        expr => matches!(expr.get_type(schema), Ok(DataType::Float32 | DataType::Float64)),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum FloatOperation {
    Plus,
    Minus,
    Times,
    Divided,
}

impl FloatOperation {
    fn of(function: &ScalarUDF) -> bool {
        ["+", "-", "*", "/"].contains(&function.name())
    }

    fn operator(self) -> Operator {
        match self {
            FloatOperation::Plus => Operator::Plus,
            FloatOperation::Minus => Operator::Minus,
            FloatOperation::Times => Operator::Multiply,
            FloatOperation::Divided => Operator::Divide,
        }
    }

    /// Of one row, where the value is infinite, zero or no number.
    fn check(self, left: f64, right: f64, value: f64) -> Result<(), SqlError> {
        let out = |how: &str| Err(SqlError::new(state::NUMERIC_OUT_OF_RANGE, format!("value out of range: {how}")));
        match self {
            FloatOperation::Divided if right == 0.0 && !left.is_nan() => {
                Err(SqlError::new(state::DIVISION_BY_ZERO, "division by zero"))
            }
            _ if value.is_infinite() && !left.is_infinite() && !right.is_infinite() => out("overflow"),
            FloatOperation::Times if value == 0.0 && left != 0.0 && right != 0.0 => out("underflow"),
            FloatOperation::Divided if value == 0.0 && left != 0.0 && !right.is_infinite() => out("underflow"),
            _ => Ok(()),
        }
    }
}

impl BinaryKernel for FloatOperation {
    fn symbol(&self) -> &'static str {
        match self {
            FloatOperation::Plus => "+",
            FloatOperation::Minus => "-",
            FloatOperation::Times => "*",
            FloatOperation::Divided => "/",
        }
    }

    fn result(&self, left: &DataType, _: &DataType) -> Result<DataType> {
        Ok(left.clone())
    }

    fn compute(&self, left: &dyn Datum, right: &dyn Datum) -> Result<ArrayRef> {
        let values = match self {
            FloatOperation::Plus => numeric::add(left, right)?,
            FloatOperation::Minus => numeric::sub(left, right)?,
            FloatOperation::Times => numeric::mul(left, right)?,
            FloatOperation::Divided => numeric::div(left, right)?,
        };
        match values.data_type() {
            DataType::Float32 => check::<Float32Type>(*self, left, right, &values)?,
            DataType::Float64 => check::<Float64Type>(*self, left, right, &values)?,
            other => return exec_err!("{} of {other}", self.symbol()),
        }
        Ok(values)
    }
}

fn check<T>(operation: FloatOperation, left: &dyn Datum, right: &dyn Datum, values: &ArrayRef) -> Result<()>
where
    T: ArrowPrimitiveType<Native: Into<f64>>,
{
    let values = values.as_primitive::<T>();
    let is_special = |value: &T::Native| {
        let value: f64 = (*value).into();
        value == 0.0 || !value.is_finite()
    };
    // Without a branch for each value, so that it is as fast as the arithmetic.
    if !values.values().iter().fold(false, |any, value| any | is_special(value)) {
        return Ok(());
    }
    let ((left, left_is_one), (right, right_is_one)) = (left.get(), right.get());
    let (left, right) = (left.as_primitive::<T>(), right.as_primitive::<T>());
    for (row, value) in
        values.values().iter().enumerate().filter(|(row, value)| is_special(value) && values.is_valid(*row))
    {
        let (left, right) =
            (left.value(if left_is_one { 0 } else { row }), right.value(if right_is_one { 0 } else { row }));
        operation.check(left.into(), right.into(), (*value).into())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_infinite_is() {
        use FloatOperation::{Divided, Minus, Plus, Times};
        let refused = |operation: FloatOperation, left: f64, right: f64, value: f64| {
            operation.check(left, right, value).err().map(|error| error.state())
        };
        let (inf, range, zero) = (f64::INFINITY, Some(state::NUMERIC_OUT_OF_RANGE), Some(state::DIVISION_BY_ZERO));
        assert_eq!(refused(Plus, f64::MAX, f64::MAX, inf), range);
        assert_eq!(refused(Minus, inf, 1.0, inf), None);
        assert_eq!(refused(Times, 1e-300, 1e-300, 0.0), range);
        assert_eq!(refused(Times, 0.0, 1e-300, 0.0), None);
        assert_eq!(refused(Divided, 1.0, 0.0, inf), zero);
        assert_eq!(refused(Divided, inf, 0.0, inf), zero);
        assert_eq!(refused(Divided, f64::NAN, 0.0, f64::NAN), None);
        assert_eq!(refused(Divided, 1.0, inf, 0.0), None);
        assert_eq!(refused(Divided, 1e-300, 1e300, 0.0), range);
    }
}
