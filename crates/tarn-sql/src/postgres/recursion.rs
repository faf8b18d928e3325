//! Of which type is the column of a recursive query that starts with `1.5`? A `numeric`, of as many digits as each
//! value has: `v * 1.05` of it has more every time. DataFusion takes the type of what it starts with for all,
//! `numeric(2,1)`, and casts what follows to it: interest was rounded to nothing, and a date lost its hours.
//!
//! So what is computed is a bare `numeric` from the start, and what follows is of the type that it starts with, or the
//! query is refused, as by PostgreSQL. Both are asked before the planner casts: the items of both lists are marked as
//! they are written. Whole numbers that it starts with are integers where they fit, which they become too late
//! elsewhere (`integer_literals`).

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::exec_err;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::sqlparser::ast::BinaryOperator::{Divide, Minus, Modulo, Multiply, Plus};
use tarn_query::sqlparser::ast::{self, Query, SelectItem, SetExpr, SetOperator, UnaryOperator};
use tarn_query::{datafusion, each_expression};
use tarn_types::{BARE_NUMERIC, DIGITS_METADATA, Length, arrow_field};

use super::calls::{call, take};
use super::numeric::numbers;
use super::refused::gives_rows;
use crate::digits::Digits;
use crate::error::{SqlError, state};
use crate::rows::{long_name, pg_type};

/// Around what a recursive query starts with.
const START: &str = "tarn_recursive_start";
/// Around what follows.
const STEP: &str = "tarn_recursive_step";

/// Marks the items of recursive queries. It runs when they are written out otherwise.
pub(super) fn mark(query: &mut Query) {
    let Some(with) = query.with.as_mut().filter(|with| with.recursive) else { return };
    for cte in &mut with.cte_tables {
        let SetExpr::SetOperation { op: SetOperator::Union, left, right, .. } = cte.query.body.as_mut() else {
            continue;
        };
        mark_items(left, START);
        mark_items(right, STEP);
    }
}

fn mark_items(of: &mut SetExpr, mark: &str) {
    let select = match of {
        SetExpr::Select(select) => select,
        SetExpr::Query(query) => return mark_items(&mut query.body, mark),
        SetExpr::Values(values) => {
            for value in values.rows.iter_mut().flat_map(|row| &mut row.content) {
                integers(value);
                *value = call(mark, vec![take(value)]);
            }
            return;
        }
        _ => return,
    };
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item
            // A column is of the type that it was given, and a set stands alone.
            && (mark == STEP || !matches!(expr, ast::Expr::Identifier(_) | ast::Expr::CompoundIdentifier(_)))
            && !gives_rows(expr)
        {
            if mark == START {
                integers(expr);
            }
            *expr = call(mark, vec![take(expr)]);
        }
    }
}

/// Whole numbers that are written out, and what is computed of such.
fn integers(expr: &mut ast::Expr) {
    match expr {
        ast::Expr::Nested(of) | ast::Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr: of } => {
            integers(of);
        }
        ast::Expr::BinaryOp { left, op: Plus | Minus | Multiply | Divide | Modulo, right } => {
            integers(left);
            integers(right);
        }
        ast::Expr::Array(array) => array.elem.iter_mut().for_each(integers),
        ast::Expr::Value(value) => {
            if let ast::Value::Number(digits, _) = &value.value
                && digits.parse::<i32>().is_ok()
            {
                *expr = ast::Expr::Cast {
                    kind: ast::CastKind::DoubleColon,
                    expr: Box::new(take(expr)),
                    data_type: ast::DataType::Integer(None),
                    array: false,
                    format: None,
                };
            }
        }
        _ => {}
    }
}

/// The marks, as functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let of = |name| Arc::new(ScalarUDF::from(Mark { name, signature: Signature::any(1, Volatility::Immutable) }));
    [START, STEP].into_iter().map(of).collect()
}

/// The rule, which runs when a statement is planned.
#[derive(Debug)]
pub(super) struct RecursiveTypes;

impl AnalyzerRule for RecursiveTypes {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut is_recursive = false;
        plan.apply_with_subqueries(|node| {
            if let LogicalPlan::RecursiveQuery(query) = node {
                is_recursive = true;
                check(&query.name, query.static_term.schema().fields(), &query.recursive_term)?;
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        if !is_recursive {
            return Ok(plan);
        }
        each_expression(plan, |expr, _| match expr {
            Expr::ScalarFunction(mut call) if call.name() == STEP => Ok(Transformed::yes(call.args.swap_remove(0))),
            other => Ok(Transformed::no(other)),
        })
    }

    fn name(&self) -> &str {
        "recursive_types"
    }
}

/// Errors: `42804` for a column that what follows gives another type than it has from the start.
fn check(name: &str, start: &[FieldRef], step: &LogicalPlan) -> Result<()> {
    let LogicalPlan::Projection(step) = step else { return Ok(()) };
    for (at, (start, expr)) in start.iter().zip(&step.expr).enumerate() {
        // The planner casts what is of another type.
        let Expr::Cast(cast) = expr.clone().unalias_nested().data else { continue };
        if !matches!(cast.expr.as_ref(), Expr::ScalarFunction(call) if call.name() == STEP) {
            continue;
        }
        let (_, given) = cast.expr.to_field(step.input.schema())?;
        if is_one(start, &given) {
            continue;
        }
        return Err(mismatch(name, at, start, &given)?.into());
    }
    Ok(())
}

/// `42804`: a column that starts with one type and goes on with another.
pub(super) fn mismatch(name: &str, at: usize, start: &Field, step: &Field) -> Result<SqlError> {
    let mut of = long_name(&pg_type(start)?);
    match (start.data_type(), Length::of(start)) {
        (DataType::Decimal128(precision, scale), _) if Digits::of(start).is_none() => {
            of.push_str(&format!("({precision},{scale})"));
        }
        (_, Some(length)) => of = length.to_string(),
        _ => {}
    }
    let (at, overall) = (at + 1, long_name(&pg_type(step)?));
    let message = format!(
        "recursive query \"{name}\" column {at} has type {of} in non-recursive term but type {overall} overall"
    );
    Ok(SqlError::new(state::DATATYPE_MISMATCH, message)
        .with_hint("Cast the output of the non-recursive term to the correct type."))
}

/// Whether a column that starts with one type has it, with another beside it.
fn is_one(start: &Field, given: &Field) -> bool {
    use DataType::{Date32, Decimal128, Float32, Float64, Null, Timestamp};
    match (start.data_type(), given.data_type()) {
        (Null, _) | (_, Null) => true,
        (start, given) if start.is_integer() && given.is_integer() => true,
        (Decimal128(..), given) => Digits::of(start).is_some() && (given.is_decimal() || given.is_integer()),
        (Float64, given) => given.is_numeric(),
        (Float32, given) => given.is_integer() || matches!(given, Float32),
        (Timestamp(_, _), Date32 | Timestamp(_, None)) => true,
        _ => pg_type(start).ok() == pg_type(given).ok(),
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Mark {
    name: &'static str,
    signature: Signature,
}

impl ScalarUDFImpl for Mark {
    fn name(&self) -> &str {
        self.name
    }

    /// As the item is.
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(args[0].schema_name().to_string())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let of = &args.arg_fields[0];
        let is_computed = of.data_type().is_decimal() && !of.metadata().contains_key(DIGITS_METADATA);
        Ok(match self.name == START && is_computed {
            true => Arc::new(arrow_field(self.name, &BARE_NUMERIC, of.is_nullable())),
            false => Arc::new(of.as_ref().clone().with_name(self.name)),
        })
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let to = args.return_field.data_type();
        let [of] = &args.args[..] else { return exec_err!("{} is of one value", self.name) };
        if of.data_type() == *to || !to.is_decimal() {
            return Ok(of.clone());
        }
        Ok(match of {
            ColumnarValue::Array(values) => ColumnarValue::Array(numbers(values, to)?),
            ColumnarValue::Scalar(value) => {
                ColumnarValue::Scalar(ScalarValue::try_from_array(&numbers(&value.to_array()?, to)?, 0)?)
            }
        })
    }
}
