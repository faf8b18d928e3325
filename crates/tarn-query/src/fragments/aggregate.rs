//! Is an aggregate the same whatever the order of its rows, and however they are grouped into partial states?
//!
//! Counts, sums of integers and decimals, bounds of what is totally ordered: yes. Sums of floats differ in the last
//! bits, bounds of floats in the sign of zero, and what collects rows in their order. Only the first kind is kept as
//! partial states; above the second kind nothing is kept at all, not even filtered rows: a fragment gives them in
//! another order than a scan.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_plan::InputOrderMode;
use datafusion::physical_plan::aggregates::AggregateExec;

use super::canonical::{Canonical, Encoder, Reason, data_type, unknown};

/// Exact whatever the order, where their states have no floats.
const EXACT: [&str; 10] = ["count", "sum", "min", "max", "avg", "bool_and", "bool_or", "bit_and", "bit_or", "bit_xor"];

/// One part of what a leaf gives: some neighbouring columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Output {
    /// What tells it from every other output.
    pub bytes: Arc<[u8]>,
    /// Of the leaf's schema.
    pub n_columns: usize,
}

/// Why the order of rows matters to this aggregate; `None`: it does not.
pub(crate) fn order_matters(aggregate: &AggregateExec) -> Option<Reason> {
    let schema = aggregate.input().schema();
    let float = |expr: &Arc<dyn PhysicalExpr>| expr.data_type(&schema).map_or(true, |of| of.is_floating());
    // Of a final aggregate, the group is a column of its input, the arguments are not.
    let group = aggregate.group_expr().expr().iter().find(|(expr, _)| float(expr));
    if let Some((expr, _)) = group {
        return Some(unknown(&format!("the order of rows matters to a group by a float, {expr}")));
    }
    let sensitive = aggregate.aggr_expr().iter().find(|expr| !is_exact(expr));
    sensitive.map(|expr| unknown(&format!("the order of rows matters to {}", shown(expr))))
}

fn shown(expr: &AggregateFunctionExpr) -> &str {
    expr.human_display().unwrap_or(expr.name())
}

fn is_exact(expr: &AggregateFunctionExpr) -> bool {
    let states = expr.state_fields();
    EXACT.contains(&expr.fun().name())
        && states.is_ok_and(|states| states.iter().all(|field| !has_floats(field.data_type())))
}

/// Also inside the sets that a DISTINCT collects.
fn has_floats(of: &DataType) -> bool {
    match of {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            has_floats(item.data_type())
        }
        DataType::Struct(fields) => fields.iter().any(|field| has_floats(field.data_type())),
        of => of.is_floating(),
    }
}

/// What a partial aggregate gives, group columns and states, over rows of `canonical`.
pub(crate) fn outputs(aggregate: &AggregateExec, canonical: &Canonical<'_>) -> Result<Vec<Output>, Reason> {
    if let Some(reason) = order_matters(aggregate) {
        return Err(reason);
    }
    if aggregate.limit_options().is_some() {
        return Err("a limit".to_owned());
    }
    if *aggregate.input_order_mode() != InputOrderMode::Linear {
        return Err("an aggregate of ordered rows".to_owned());
    }
    let group = aggregate.group_expr();
    if group.has_grouping_set() || !(group.is_true_no_grouping() || group.is_single()) {
        return Err("grouping sets".to_owned());
    }
    let mut outputs = vec![];
    for (expr, _) in group.expr() {
        let bytes = Encoder::new(b"group").term(&canonical.term(expr)?).finish().bytes;
        outputs.push(Output { bytes, n_columns: 1 });
    }
    for (expr, filter) in aggregate.aggr_expr().iter().zip(aggregate.filter_expr()) {
        if expr.is_distinct() || !expr.order_bys().is_empty() {
            return Err(unknown(&shown(expr)));
        }
        let mut encoder = Encoder::new(b"aggregate");
        encoder.put(expr.fun().name().as_bytes()).flag(expr.ignore_nulls()).flag(filter.is_some());
        if let Some(filter) = filter {
            encoder.term(&canonical.term(filter)?);
        }
        let args = expr.expressions();
        encoder.number(args.len() as u64);
        for arg in &args {
            encoder.term(&canonical.term(arg)?);
        }
        let states = expr.state_fields().map_err(|_| unknown(&shown(expr)))?;
        encoder.number(states.len() as u64);
        for state in &states {
            encoder.put(&data_type(state.data_type())?);
        }
        outputs.push(Output { bytes: encoder.finish().bytes, n_columns: states.len() });
    }
    Ok(outputs)
}
