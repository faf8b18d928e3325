//! Which row is less, and which is NULL? Rows of one type are compared field by field, and NULL is equal to NULL and
//! greater than everything, as in an index. DataFusion compares structs with NULL as the least. A row is NULL if all
//! its fields are, and is not NULL if none is.
//!
//! Rows that are both written out, `ROW(a, b) < ROW(1, 2)`, are compared as SQL says, which is another thing
//! (`tarn_query`'s `row_values`).

use arrow::datatypes::{DataType, Field, Fields};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, TableReference};
use datafusion::error::Result;
use datafusion::logical_expr::binary::BinaryTypeCoercer;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, lit, when};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::sqlparser::ast::BinaryOperator;
use tarn_query::{datafusion, each_expression, value_of_query};

use super::convert::type_of;
use super::function::{field, is_absent, name_of, values};
use crate::error::{SqlError, state};
use crate::row_type::named;
use crate::rows::{long_name, pg_type};

/// The rule.
#[derive(Debug)]
pub(super) struct ComparedRows;

impl AnalyzerRule for ComparedRows {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, rewritten)
    }

    fn name(&self) -> &str {
        "postgres_rows_compared"
    }
}

/// Comparisons with what the planner knows no common type of: a text that is a row, and rows of other types.
#[derive(Debug)]
pub(super) struct RowOperators;

impl ExprPlanner for RowOperators {
    /// `v.a` is a column `a` of a table `v`, wherever a column is called `v`: a field of that is `(v).a`, which is
    /// another expression.
    fn plan_compound_identifier(
        &self,
        field: &Field,
        _: Option<&TableReference>,
        names: &[String],
    ) -> Result<PlannerResult<Vec<Expr>>> {
        let names: Vec<&str> = std::iter::once(field.name().as_str()).chain(names.iter().map(String::as_str)).collect();
        let (name, tables) = names.split_last().map_or(("", &[][..]), |(name, tables)| (*name, tables));
        let table = match tables {
            [.., schema, table] => TableReference::partial(*schema, *table),
            _ => TableReference::bare(tables.last().copied().unwrap_or_default()),
        };
        Ok(PlannerResult::Planned(Expr::Column(Column::new(Some(table), name))))
    }

    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
        let op = match expr.op {
            Eq => Operator::Eq,
            NotEq => Operator::NotEq,
            Lt => Operator::Lt,
            LtEq => Operator::LtEq,
            Gt => Operator::Gt,
            GtEq => Operator::GtEq,
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let types = (type_of(&expr.left, schema), type_of(&expr.right, schema));
        let is_known = match &types {
            (Ok(left), Ok(right)) if is_row(left) || is_row(right) => {
                BinaryTypeCoercer::new(left, &op, right).get_result_type().is_ok()
            }
            _ => true,
        };
        if is_known {
            return Ok(PlannerResult::Original(expr));
        }
        let of = BinaryExpr::new(Box::new(expr.left.clone()), op, Box::new(expr.right.clone()));
        let compared = compared(of, schema)?;
        Ok(match compared.transformed {
            true => PlannerResult::Planned(compared.data),
            false => PlannerResult::Original(expr),
        })
    }
}

fn rewritten(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let fields = |of: &Expr| match type_of(of, schema) {
        Ok(DataType::Struct(fields)) => Some(fields),
        _ => None,
    };
    Ok(match expr {
        Expr::IsNull(of) => match fields(&of) {
            Some(fields) if !fields.is_empty() => {
                Transformed::yes(all(&fields, |at, field_of| is_null(&of, at, field_of)))
            }
            _ => Transformed::no(Expr::IsNull(of)),
        },
        Expr::IsNotNull(of) => match fields(&of) {
            Some(fields) if !fields.is_empty() => {
                Transformed::yes(all(&fields, |at, field_of| Expr::Not(Box::new(is_null(&of, at, field_of)))))
            }
            _ => Transformed::no(Expr::IsNotNull(of)),
        },
        Expr::BinaryExpr(of) if is_comparison(of.op) => compared(of, schema)?,
        other => Transformed::no(other),
    })
}

fn all(fields: &Fields, term: impl Fn(usize, &Field) -> Expr) -> Expr {
    let terms = fields.iter().enumerate().map(|(at, field)| term(at, field));
    terms.reduce(Expr::and).unwrap_or_else(|| lit(true))
}

/// Of a row in a row it is not asked what its fields are.
fn is_null(row: &Expr, at: usize, of: &Field) -> Expr {
    let value = field(row, at);
    if matches!(of.data_type(), DataType::Struct(_)) { is_absent(&value) } else { value.is_null() }
}

fn is_comparison(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

fn compared(of: BinaryExpr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let BinaryExpr { left, op, right } = of;
    // Those that are written out are compared as SQL says.
    if is_row_written(&left) && is_row_written(&right) {
        if orders_around(op, [&left, &right]) {
            let what = "a row before or behind that of a subquery which asks the row around it";
            return Err(
                SqlError::unsupported(what, "join the table of the subquery, and compare with its columns").into()
            );
        }
        return Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })));
    }
    let types = |left: &Expr, right: &Expr| (type_of(left, schema), type_of(right, schema));
    // PostgreSQL does not know of which type a row is that is written as a text.
    if [(&left, &right), (&right, &left)]
        .into_iter()
        .any(|(row, text)| is_text_written(text) && type_of(row, schema).is_ok_and(|of| is_row(&of)))
    {
        let message = "input of anonymous composite types is not implemented";
        return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message)
            .with_hint("cast it to the type of the row: '(1,x)'::pair")
            .into());
    }
    let (lefts, rights) = match types(&left, &right) {
        (Ok(DataType::Struct(lefts)), Ok(DataType::Struct(rights))) => (lefts, rights),
        (Ok(of), Ok(to)) if is_row(&of) != is_row(&to) && !of.is_null() && !to.is_null() => {
            let message = format!("operator does not exist: {} {op} {}", name_of(&of), name_of(&to));
            return Err(SqlError::new(state::UNDEFINED_FUNCTION, message)
                .with_hint("compare its fields, or rows of one type")
                .into());
        }
        _ => return Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right }))),
    };
    check_types(&lefts, &rights)?;
    if left.is_volatile() || right.is_volatile() {
        return Err(SqlError::unsupported(
            "a comparison of a row that is another each time",
            "compute it in a subquery of FROM",
        )
        .into());
    }
    let not = |expr: Expr| Expr::Not(Box::new(expr));
    let known = match op {
        Operator::Eq => equal(&left, &right, &lefts),
        Operator::NotEq => not(equal(&left, &right, &lefts)),
        Operator::Lt => less(&left, &right, &lefts),
        Operator::Gt => less(&right, &left, &lefts),
        Operator::LtEq => not(less(&right, &left, &lefts)),
        Operator::GtEq => not(less(&left, &right, &lefts)),
        _ => {
            let same = same(&left, &right, &DataType::Struct(lefts));
            return Ok(Transformed::yes(if op == Operator::IsDistinctFrom { not(same) } else { same }));
        }
    };
    Ok(Transformed::yes(match (values(&left), values(&right)) {
        (Some(_), Some(_)) => known,
        _ => {
            let absent = is_absent(&left).or(is_absent(&right));
            when(absent, Expr::Literal(ScalarValue::Boolean(None), None)).otherwise(known)?
        }
    }))
}

fn is_row(of: &DataType) -> bool {
    matches!(of, DataType::Struct(_))
}

fn is_row_written(expr: &Expr) -> bool {
    match expr {
        Expr::ScalarFunction(call) => call.func.name() == "struct",
        // `ROW(1, 2)` is called as it is written.
        Expr::Alias(alias) => is_row_written(&alias.expr),
        other => value_of_query(other).is_some_and(|subquery| gives_row_written(&subquery.subquery)),
    }
}

/// Whether a row is put in an order with that of a subquery which asks the row around it. Such a subquery becomes a
/// join, and the planner finds no names for the fields of its row where they are asked for more than twice.
fn orders_around(op: Operator, sides: [&Expr; 2]) -> bool {
    let asks = |side| value_of_query(side).is_some_and(|subquery| !subquery.outer_ref_columns.is_empty());
    !matches!(op, Operator::Eq | Operator::NotEq) && sides.into_iter().any(asks)
}

/// Whether the value of a subquery is a row that is written out: `(SELECT a, b FROM t)` is one beside a row.
fn gives_row_written(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(of) => match &of.expr[..] {
            [Expr::Column(_)] => gives_row_written(&of.input),
            [only] => is_row_written(only),
            _ => false,
        },
        // The only row of several.
        LogicalPlan::Aggregate(of) => match &of.aggr_expr[..] {
            [Expr::AggregateFunction(only)] => only.params.args.first().is_some_and(is_row_written),
            _ => false,
        },
        LogicalPlan::Sort(_) | LogicalPlan::Limit(_) | LogicalPlan::SubqueryAlias(_) => {
            plan.inputs().into_iter().all(gives_row_written)
        }
        _ => false,
    }
}

fn is_text_written(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(value, _) if value.try_as_str().flatten().is_some())
}

/// Errors: `42804` for rows that are not of the same fields.
fn check_types(lefts: &Fields, rights: &Fields) -> Result<()> {
    if lefts.len() != rights.len() {
        let message = "cannot compare record types with different numbers of columns";
        return Err(SqlError::new(state::DATATYPE_MISMATCH, message).into());
    }
    for (at, (left, right)) in lefts.iter().zip(rights).enumerate() {
        let (of, to) = (pg_type(left)?, pg_type(right)?);
        let is_anonymous = |field: &Field| {
            field.data_type().is_null() || named(field.data_type()).is_none() && is_row(field.data_type())
        };
        if of.oid() != to.oid() && !(is_anonymous(left) || is_anonymous(right)) {
            let (of, to) = (long_name(&of), long_name(&to));
            let message = format!("cannot compare dissimilar column types {of} and {to} at record column {}", at + 1);
            return Err(SqlError::new(state::DATATYPE_MISMATCH, message).into());
        }
    }
    Ok(())
}

/// Whether two values are the same, NULL being one of them.
fn same(left: &Expr, right: &Expr, of: &DataType) -> Expr {
    let DataType::Struct(fields) = of else {
        return Expr::BinaryExpr(BinaryExpr::new(
            Box::new(left.clone()),
            Operator::IsNotDistinctFrom,
            Box::new(right.clone()),
        ));
    };
    let (no_left, no_right) = (is_absent(left), is_absent(right));
    let both = Expr::Not(Box::new(no_left.clone())).and(Expr::Not(Box::new(no_right.clone())));
    no_left.and(no_right).or(both.and(equal(left, right, fields)))
}

/// Of two rows that are there.
fn equal(left: &Expr, right: &Expr, fields: &Fields) -> Expr {
    all(fields, |at, of| same(&field(left, at), &field(right, at), of.data_type()))
}

/// Of two rows that are there.
fn less(left: &Expr, right: &Expr, fields: &Fields) -> Expr {
    let mut written: Option<Expr> = None;
    for (at, of) in fields.iter().enumerate().rev() {
        let (left, right) = (field(left, at), field(right, at));
        let strictly = match of.data_type() {
            DataType::Struct(fields) => less(&left, &right, fields),
            _ => left.clone().lt(right.clone()),
        };
        let absent = |value: &Expr| if is_row(of.data_type()) { is_absent(value) } else { value.clone().is_null() };
        // NULL is greater than what is none.
        let strictly = Expr::Not(Box::new(absent(&left))).and(absent(&right).or(strictly));
        written = Some(match written {
            None => strictly,
            Some(behind) => strictly.or(same(&left, &right, of.data_type()).and(behind)),
        });
    }
    written.unwrap_or_else(|| lit(false))
}
