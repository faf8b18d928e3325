//! What do a scan's filters say about single columns?
//!
//! From the conjunction of filters: bounds that prune blocks in the metastore, and equalities that pick an access path. A filter
//! that is not understood says nothing; the filter itself is always applied to the rows later.

use std::collections::BTreeMap;

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

/// Columns that every answer row has equal to one value, by column position. Of contradicting equalities the first.
pub(crate) fn equalities(predicates: &[Predicate], table: &TableSchema) -> BTreeMap<usize, Value> {
    let mut found = BTreeMap::new();
    for predicate in predicates {
        let single = matches!(predicate.op, Op::Eq) || (matches!(predicate.op, Op::In) && predicate.values.len() == 1);
        let column = table.columns.iter().position(|column| column.id == predicate.column);
        if let (true, Some(column), Some(value)) = (single, column, predicate.values.first()) {
            found.entry(column).or_insert_with(|| value.clone());
        }
    }
    found
}

fn of_filter(filter: &Expr, table: &TableSchema) -> Vec<Predicate> {
    match filter {
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
