//! Is `(a, b) = (1, NULL)` unknown? DataFusion makes structs of rows, and of two structs NULL equals NULL: `DELETE …
//! WHERE (a, b) = (1, NULL)` deleted rows.
//!
//! So rows that are written out, and those of subqueries beside them, are compared column by column, as SQL says,
//! before types are known: `a = 1 AND b = NULL`. The lesser row is the one whose first column that differs is the
//! lesser one.

use arrow::datatypes::DataType as ArrowType;
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::functions::core::expr_fn::get_field;
use datafusion::logical_expr::expr::{Between, Case, InList};
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, Subquery, lit};
use datafusion::optimizer::AnalyzerRule;

use crate::Error;
use crate::balance::balanced;
use crate::rewrite::each_expression;
use crate::whole_rows::{self, WHOLE_ROW};

/// Parts of expressions that the comparisons of one may be written out to, where not only columns and constants are
/// compared.
const MAX_PARTS: usize = 50_000;

/// The rule; it runs before literals are read as what they are compared with.
#[derive(Debug)]
pub(crate) struct RowValues;

impl AnalyzerRule for RowValues {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, |expr, _: &DFSchema| by_columns(expr))
    }

    fn name(&self) -> &str {
        "row_values"
    }
}

fn by_columns(expr: Expr) -> Result<Transformed<Expr>> {
    let written = match &expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => compared(left, *op, right)?,
        Expr::Between(between) => in_between(between)?,
        Expr::InList(list) => in_list(list)?,
        Expr::IsNull(of) => fields(of).map(|columns| each(columns, |column| column.clone().is_null(), Operator::And)),
        Expr::IsNotNull(of) => {
            fields(of).map(|columns| each(columns, |column| column.clone().is_not_null(), Operator::And))
        }
        Expr::Case(Case { expr: Some(of), when_then_expr, else_expr }) if row(of).is_some() => {
            repeats(of, when_then_expr.len())?;
            let mut arms = Vec::with_capacity(when_then_expr.len());
            for (when, then) in when_then_expr {
                arms.push((Box::new(equal(of, when)?), then.clone()));
            }
            Some(Expr::Case(Case { expr: None, when_then_expr: arms, else_expr: else_expr.clone() }))
        }
        _ => None,
    };
    Ok(written.map_or_else(|| Transformed::no(expr), Transformed::yes))
}

/// The columns of a row that is written out.
pub(crate) fn row(mut expr: &Expr) -> Option<&[Expr]> {
    while let Expr::Alias(alias) = expr {
        expr = &alias.expr;
    }
    match expr {
        Expr::ScalarFunction(call) if call.func.name() == "struct" => Some(&call.args),
        _ => None,
    }
}

/// The fields of a row, those of a table's included: of these NULL equals NULL in comparisons, as PostgreSQL has it,
/// and structs are right.
fn fields(expr: &Expr) -> Option<&[Expr]> {
    match expr {
        Expr::ScalarFunction(call) if call.func.name() == WHOLE_ROW => Some(whole_rows::values(&call.args)),
        expr => row(expr),
    }
}

fn each(columns: &[Expr], term: impl Fn(&Expr) -> Expr, op: Operator) -> Expr {
    balanced(columns.iter().map(term).collect(), op).unwrap_or_else(|| lit(true))
}

fn binary(left: &Expr, op: Operator, right: &Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr { left: Box::new(left.clone()), op, right: Box::new(right.clone()) })
}

/// A comparison, of rows or of what these have in one place.
fn of_places(left: &Expr, op: Operator, right: &Expr) -> Result<Expr> {
    Ok(compared(left, op, right)?.unwrap_or_else(|| binary(left, op, right)))
}

fn equal(left: &Expr, right: &Expr) -> Result<Expr> {
    of_places(left, Operator::Eq, right)
}

/// The subquery whose value an expression is: alone, or where a condition of the query around it holds, which the front
/// end has taken out of it.
pub fn value_of_query(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::ScalarSubquery(subquery) => Some(subquery),
        Expr::Case(Case { expr: None, when_then_expr, else_expr: None }) => match &when_then_expr[..] {
            [(_, then)] => value_of_query(then),
            _ => None,
        },
        _ => None,
    }
}

/// The columns of the only row of a subquery, whose value that row is. Equal subqueries are computed once.
fn columns_of_query(expr: &Expr) -> Option<Vec<Expr>> {
    let subquery = value_of_query(expr)?;
    let ArrowType::Struct(fields) = subquery.subquery.schema().fields().first()?.data_type() else { return None };
    Some(fields.iter().map(|field| get_field(expr.clone(), field.name().as_str())).collect())
}

/// None: they are not two rows, or not compared.
fn compared(left: &Expr, op: Operator, right: &Expr) -> Result<Option<Expr>> {
    let Some(lefts) = row(left) else { return Ok(None) };
    let of_query = columns_of_query(right);
    let Some(rights) = row(right).or(of_query.as_deref()) else { return Ok(None) };
    let strictly = match op {
        Operator::Eq | Operator::NotEq | Operator::IsDistinctFrom | Operator::IsNotDistinctFrom => None,
        Operator::Lt | Operator::LtEq => Some(Operator::Lt),
        Operator::Gt | Operator::GtEq => Some(Operator::Gt),
        _ => return Ok(None),
    };
    // The planner refuses to compare them.
    if lefts.len() != rights.len() {
        return Ok(None);
    }
    let pairs = lefts.iter().zip(rights);
    let Some(strictly) = strictly else {
        let join = match op {
            Operator::Eq | Operator::IsNotDistinctFrom => Operator::And,
            _ => Operator::Or,
        };
        let terms: Vec<Expr> = pairs.map(|(left, right)| of_places(left, op, right)).collect::<Result<_>>()?;
        return Ok(balanced(terms, join));
    };
    repeats(left, 2)?;
    repeats(right, 2)?;
    let mut written: Option<Expr> = None;
    for (left, right) in pairs.rev() {
        written = Some(match written {
            None => of_places(left, op, right)?,
            Some(behind) => of_places(left, strictly, right)?.or(equal(left, right)?.and(behind)),
        });
    }
    Ok(written)
}

fn in_between(between: &Between) -> Result<Option<Expr>> {
    let Between { expr, negated, low, high } = between;
    if row(expr).is_none() || row(low).is_none() || row(high).is_none() {
        return Ok(None);
    }
    repeats(expr, 2)?;
    let within = of_places(expr, Operator::GtEq, low)?.and(of_places(expr, Operator::LtEq, high)?);
    Ok(Some(if *negated { Expr::Not(Box::new(within)) } else { within }))
}

fn in_list(list: &InList) -> Result<Option<Expr>> {
    let InList { expr, list, negated } = list;
    if row(expr).is_none() || !list.iter().all(|item| row(item).is_some()) {
        return Ok(None);
    }
    repeats(expr, list.len())?;
    let (op, join) = if *negated { (Operator::NotEq, Operator::And) } else { (Operator::Eq, Operator::Or) };
    let terms: Vec<Expr> = list.iter().map(|item| of_places(expr, op, item)).collect::<Result<_>>()?;
    Ok(balanced(terms, join))
}

/// Errors: what is to be written so many times gives another value each time, or is large.
fn repeats(expr: &Expr, n_times: usize) -> Result<()> {
    if expr.is_volatile() && n_times > 1 {
        let what = "a row with values that change, compared more than once,".to_owned();
        return Err(Error::Unsupported { what, remedy: "compute them in a subquery of FROM" }.into());
    }
    let mut n_parts = 0_usize;
    expr.apply(|part| {
        n_parts += usize::from(!matches!(part, Expr::Column(_) | Expr::Literal(..) | Expr::Placeholder(_)));
        Ok(TreeNodeRecursion::Continue)
    })?;
    // The row itself is not written.
    if (n_parts - 1).saturating_mul(n_times) > MAX_PARTS {
        let limit = format!("the comparisons of a row are more than {MAX_PARTS} parts when they are written out");
        return Err(Error::TooLarge { limit, remedy: "compute the row's columns in a subquery of FROM" }.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use datafusion::functions::core::expr_fn::r#struct;
    use datafusion::functions::math::expr_fn::{abs, random};
    use datafusion::logical_expr::col;

    use super::*;

    fn written(expr: Expr) -> Result<String> {
        Ok(expr.transform_up(by_columns)?.data.to_string())
    }

    #[test]
    fn rows_are_compared_by_their_columns() {
        let (left, right) = (r#struct(vec![col("a"), col("b")]), r#struct(vec![lit(1), lit(2)]));
        let shown = |op: Operator| written(binary(&left, op, &right)).unwrap();
        assert_eq!(shown(Operator::Eq), "a = Int32(1) AND b = Int32(2)");
        assert_eq!(shown(Operator::NotEq), "a != Int32(1) OR b != Int32(2)");
        assert_eq!(shown(Operator::LtEq), "a < Int32(1) OR a = Int32(1) AND b <= Int32(2)");
        assert_eq!(
            shown(Operator::IsNotDistinctFrom),
            "a IS NOT DISTINCT FROM Int32(1) AND b IS NOT DISTINCT FROM Int32(2)"
        );
        assert_eq!(written(left.clone().is_null()).unwrap(), "a IS NULL AND b IS NULL");
        assert_eq!(
            written(left.clone().in_list(vec![right.clone(), r#struct(vec![lit(3), lit(4)])], true)).unwrap(),
            "(a != Int32(1) OR b != Int32(2)) AND (a != Int32(3) OR b != Int32(4))"
        );
        // Rows in rows, and one row beside what is none.
        let nested = |x: &Expr| r#struct(vec![x.clone(), lit(5)]);
        assert_eq!(
            written(nested(&left).eq(nested(&right))).unwrap(),
            "a = Int32(1) AND b = Int32(2) AND Int32(5) = Int32(5)"
        );
        assert_eq!(written(left.clone().eq(col("s"))).unwrap(), left.clone().eq(col("s")).to_string());
    }

    #[test]
    fn what_cannot_be_written_twice_is_refused() {
        let list = |of: Expr, n: usize| r#struct(vec![of]).in_list(vec![r#struct(vec![lit(1)]); n], false);
        assert!(written(list(col("a"), 60_000)).is_ok());
        assert!(written(list(abs(col("a")), 60_000)).unwrap_err().to_string().contains("parts"));
        assert!(written(list(random(), 2)).unwrap_err().to_string().contains("not supported"));
        assert!(written(list(random(), 1)).is_ok());
    }
}
