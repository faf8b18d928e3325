//! What do a scan's filters say about single columns?
//!
//! From the conjunction of filters: bounds that prune blocks in the metastore, and values and bounds of keys for access
//! paths. A filter that is not understood says nothing; the filter itself is always applied to the rows later.

use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use tarn_metastore::prune::{Operator as Op, Predicate};
use tarn_types::{TableSchema, Value};

use crate::values::from_scalar;
use crate::zeros::below_one_zero;

/// Everything that prunes. The order of filters is kept.
pub(crate) fn predicates(filters: &[Expr], table: &TableSchema) -> Vec<Predicate> {
    filters.iter().flat_map(split_conjunction).flat_map(|filter| of_filter(filter, table)).collect()
}

fn of_filter(filter: &Expr, table: &TableSchema) -> Vec<Predicate> {
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            either(left, right, table).into_iter().collect()
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let found = comparison(left, *op, right, table);
            found.or_else(|| comparison(right, op.swap()?, left, table)).into_iter().collect()
        }
        Expr::Between(between) if !between.negated => {
            let low = comparison(&between.expr, Operator::GtEq, &between.low, table);
            let high = comparison(&between.expr, Operator::LtEq, &between.high, table);
            low.into_iter().chain(high).collect()
        }
        Expr::InList(list) if !list.negated => in_list(&list.expr, &list.list, table).into_iter().collect(),
        Expr::IsNull(inner) => null_test(inner, Op::IsNull, table).into_iter().collect(),
        Expr::IsNotNull(inner) => null_test(inner, Op::IsNotNull, table).into_iter().collect(),
        // `WHERE flag` and `WHERE NOT flag`.
        Expr::Column(_) => boolean(filter, true, table).into_iter().collect(),
        Expr::Not(inner) => boolean(inner, false, table).into_iter().collect(),
        _ => vec![],
    }
}

/// Values of one column on both sides: the planner writes short lists so.
fn either(left: &Expr, right: &Expr, table: &TableSchema) -> Option<Predicate> {
    let values = |side| match of_filter(side, table).as_slice() {
        [Predicate { column, op: Op::Eq | Op::In, values }] => Some((*column, values.clone())),
        _ => None,
    };
    let ((column, mut values), (other, more)) = (values(left)?, values(right)?);
    values.extend(more);
    (column == other).then_some(Predicate { column, op: Op::In, values })
}

fn column<'a>(expr: &Expr, table: &'a TableSchema) -> Option<&'a tarn_types::Column> {
    match expr {
        Expr::Column(column) => table.column(&column.name).map(|(_, column)| column),
        Expr::Alias(alias) => column(&alias.expr, table),
        // Bounds have one zero, too.
        other => below_one_zero(other).and_then(|inner| column(inner, table)),
    }
}

fn literal(expr: &Expr, data_type: &tarn_types::DataType) -> Option<Value> {
    match expr {
        Expr::Literal(scalar, _) => from_scalar(scalar, data_type),
        _ => None,
    }
}

fn comparison(left: &Expr, op: Operator, right: &Expr, table: &TableSchema) -> Option<Predicate> {
    let column = column(left, table)?;
    let value = literal(right, &column.data_type)?;
    let op = match op {
        Operator::Eq => Op::Eq,
        Operator::Lt => Op::Lt,
        Operator::LtEq => Op::Le,
        Operator::Gt => Op::Gt,
        Operator::GtEq => Op::Ge,
        _ => return None,
    };
    Some(Predicate { column: column.id, op, values: vec![value] })
}

fn in_list(expr: &Expr, list: &[Expr], table: &TableSchema) -> Option<Predicate> {
    let column = column(expr, table)?;
    let values = list.iter().map(|item| literal(item, &column.data_type)).collect::<Option<Vec<_>>>()?;
    Some(Predicate { column: column.id, op: Op::In, values })
}

fn null_test(expr: &Expr, op: Op, table: &TableSchema) -> Option<Predicate> {
    Some(Predicate { column: column(expr, table)?.id, op, values: vec![] })
}

fn boolean(expr: &Expr, value: bool, table: &TableSchema) -> Option<Predicate> {
    let column = column(expr, table)?;
    matches!(column.data_type, tarn_types::DataType::Bool).then(|| Predicate {
        column: column.id,
        op: Op::Eq,
        values: vec![Value::Bool(value)],
    })
}
