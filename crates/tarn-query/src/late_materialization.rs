//! Late materialization: are the columns of the filter read first, and the others only where a row is left?
//!
//! That spares decoding what is thrown away, and pages that no row is left in; but walking a selection row by row costs
//! more than decoding in bulk, as soon as most pages have a row left. Measured on lineitem (docs/benchmarks.md):
//! reading late wins up to five times where fewer than one row in some hundreds is left, and loses up to two times
//! where more are.
//!
//! A top-k over a filtered scan reads late whatever the filter leaves: with a filter between them, neither the order
//! nor the threshold of the sort would reach the files.
//!
//! Only a guess about time: the answer is the same either way.

use std::collections::{BTreeMap, HashSet};

use datafusion::common::Statistics;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr, FetchType, Limit, LogicalPlan, SkipType};
use tarn_metastore::prune::{Operator, Predicate};
use tarn_types::{ColumnId, DataType, TableSchema, Value};

use crate::predicate::predicates;
use crate::values::from_scalar;

/// Above this share of rows, reading late does not pay.
const MAX_SHARE: f64 = 1.0 / 400.0;

/// Reading a text costs about as much as reading this many numbers.
const TEXT_WEIGHT: usize = 4;

/// What a statement looks like from above, for the scans below: in its session's configuration while it is planned.
#[derive(Debug, Clone)]
pub(crate) struct StatementShape {
    /// `ORDER BY … LIMIT` of a table's rows as they are.
    top_k: Option<TopK>,
    /// Joins, which are ordered by the bounds of columns.
    joins: bool,
    /// An aggregate of all rows, which bounds may answer.
    aggregates_all: bool,
}

impl StatementShape {
    pub(crate) fn of(plan: &LogicalPlan) -> Result<Self> {
        let mut shape = StatementShape { top_k: None, joins: false, aggregates_all: false };
        let mut n_scans = 0;
        plan.apply_with_subqueries(|node| {
            shape.top_k = shape.top_k.take().or_else(|| top_k(node));
            match node {
                // A subquery becomes a join.
                LogicalPlan::Join(_) | LogicalPlan::Subquery(_) => shape.joins = true,
                LogicalPlan::Aggregate(aggregate) => shape.aggregates_all |= aggregate.group_expr.is_empty(),
                _ => {}
            }
            n_scans += usize::from(matches!(node, LogicalPlan::TableScan(_)));
            Ok(TreeNodeRecursion::Continue)
        })?;
        if let Some(top_k) = shape.top_k.as_mut().filter(|_| n_scans > 1) {
            top_k.order = None;
        }
        Ok(shape)
    }

    pub(crate) fn joins(&self) -> bool {
        self.joins
    }

    /// Whether the bounds of columns are of use to the statement.
    pub(crate) fn uses_bounds(&self) -> bool {
        self.joins || self.aggregates_all
    }

    pub(crate) fn top_k(&self) -> Option<&TopK> {
        self.top_k.as_ref()
    }
}

/// The first rows in an order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TopK {
    /// How many, if the statement says it as a number.
    pub n_rows: Option<usize>,
    /// Columns of the table, and whether they descend. `None`: it is not by columns as they are, or other tables are
    /// read, too.
    pub order: Option<Vec<(String, bool)>>,
}

fn top_k(node: &LogicalPlan) -> Option<TopK> {
    let LogicalPlan::Limit(limit) = node else { return None };
    let mut below = limit.input.as_ref();
    let mut sorted = false;
    let mut order = None;
    loop {
        below = match below {
            LogicalPlan::Sort(sort) => {
                sorted = true;
                order = sort.expr.iter().map(|by| Some((column(&by.expr)?, !by.asc))).collect::<Option<Vec<_>>>();
                &sort.input
            }
            LogicalPlan::Projection(projection) => {
                // By other names below, perhaps.
                let below = |(name, descending): (String, bool)| {
                    let at = projection.schema.fields().iter().position(|field| *field.name() == name)?;
                    Some((column(&projection.expr[at])?, descending))
                };
                order = order.and_then(|order: Vec<_>| order.into_iter().map(below).collect());
                &projection.input
            }
            LogicalPlan::SubqueryAlias(alias) => &alias.input,
            LogicalPlan::Filter(filter) => &filter.input,
            LogicalPlan::TableScan(_) if sorted => return Some(TopK { n_rows: n_rows(limit), order }),
            _ => return None,
        };
    }
}

/// Its name, if it is a column, perhaps by another name.
fn column(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Column(column) => Some(column.name.clone()),
        Expr::Alias(alias) => column(&alias.expr),
        _ => None,
    }
}

fn n_rows(limit: &Limit) -> Option<usize> {
    match (limit.get_skip_type().ok()?, limit.get_fetch_type().ok()?) {
        (SkipType::Literal(skip), FetchType::Literal(Some(fetch))) => skip.checked_add(fetch),
        _ => None,
    }
}

/// Whether a scan of `projection` with these filters is quicker when it reads late. `statistics` are of what is
/// left after pruning, over the table's columns.
pub(crate) fn pays(
    shape: Option<&StatementShape>,
    filters: &[Expr],
    projection: &[usize],
    table: &TableSchema,
    statistics: &Statistics,
) -> bool {
    if shape.is_some_and(|shape| shape.top_k.is_some()) {
        return true;
    }
    let in_filters: HashSet<&str> =
        filters.iter().flat_map(Expr::column_refs).map(|column| column.name.as_str()).collect();
    let (mut first, mut later) = (0, 0);
    for (idx, column) in table.columns.iter().enumerate() {
        if in_filters.contains(column.name.as_str()) {
            first += weight(&column.data_type);
        } else if projection.contains(&idx) {
            later += weight(&column.data_type);
        }
    }
    later > first && share(filters, table, statistics).is_none_or(|share| share < MAX_SHARE)
}

fn weight(data_type: &DataType) -> usize {
    match data_type {
        DataType::Text | DataType::Bytes | DataType::Inet | DataType::Uuid | DataType::Json | DataType::Jsonb => {
            TEXT_WEIGHT
        }
        DataType::Array(_) => 2 * TEXT_WEIGHT,
        _ => 1,
    }
}

/// Which share of the rows the filters leave, were the values spread evenly between their bounds and the columns
/// independent. `None` when a filter is not a range of a column with bounds: it may leave next to nothing.
fn share(filters: &[Expr], table: &TableSchema, statistics: &Statistics) -> Option<f64> {
    let mut ranges: BTreeMap<ColumnId, (f64, f64)> = BTreeMap::new();
    for filter in filters.iter().flat_map(split_conjunction) {
        let understood = predicates(std::slice::from_ref(filter), table);
        if understood.is_empty() {
            return None;
        }
        for Predicate { column, op, values } in understood {
            let (low, high) = ranges.entry(column).or_insert((f64::NEG_INFINITY, f64::INFINITY));
            let bound = number(values.first()?)?;
            match op {
                Operator::Gt | Operator::Ge => *low = low.max(bound),
                Operator::Lt | Operator::Le => *high = high.min(bound),
                _ => return None,
            }
        }
    }
    let mut share = 1.0;
    for (column, (low, high)) in ranges {
        let idx = table.columns.iter().position(|known| known.id == column)?;
        let known = statistics.column_statistics.get(idx)?;
        let bound = |value| number(&from_scalar(value, &table.columns[idx].data_type)?);
        let (min, max) = (bound(known.min_value.get_value()?)?, bound(known.max_value.get_value()?)?);
        if max > min {
            share *= ((high.min(max) - low.max(min)) / (max - min)).max(0.0);
        }
    }
    Some(share)
}

/// A value's place on a line.
fn number(value: &Value) -> Option<f64> {
    Some(match value {
        Value::Int16(v) => f64::from(*v),
        Value::Int32(v) | Value::Date(v) => f64::from(*v),
        Value::Int64(v) | Value::Time(v) | Value::Timestamp(v) => *v as f64,
        Value::Float32(v) => f64::from(*v),
        Value::Float64(v) => *v,
        Value::Decimal(v) => *v as f64,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::Schema;
    use datafusion::common::ColumnStatistics;
    use datafusion::common::stats::Precision;
    use datafusion::functions_aggregate::expr_fn::count;
    use datafusion::logical_expr::{LogicalPlanBuilder, col, exists, lit, table_scan};
    use datafusion::scalar::ScalarValue;
    use tarn_types::{Column, KeyPart, TableId, TableOptions, TabletId};

    use super::*;

    /// `a` and `b` numbers from 0 to 1000, `c` a number, `t` a text.
    fn table() -> (TableSchema, Statistics) {
        let column = |id, name: &str, data_type| Column {
            id: ColumnId(id),
            name: name.to_owned(),
            data_type,
            nullable: false,
            default: None,
        };
        let columns = vec![
            column(1, "a", DataType::Int64),
            column(2, "b", DataType::Int64),
            column(3, "c", DataType::Int64),
            column(4, "t", DataType::Text),
        ];
        let bounds = ColumnStatistics {
            min_value: Precision::Exact(ScalarValue::Int64(Some(0))),
            max_value: Precision::Inexact(ScalarValue::Int64(Some(1000))),
            ..ColumnStatistics::new_unknown()
        };
        let unknown = ColumnStatistics::new_unknown;
        let statistics = Statistics {
            num_rows: Precision::Exact(1),
            total_byte_size: Precision::Absent,
            column_statistics: vec![bounds.clone(), bounds, unknown(), unknown()],
        };
        let table = TableSchema {
            id: TableId(1),
            name: "t".to_owned(),
            columns,
            key: vec![KeyPart { column_idx: 0, descending: false }],
            n_partition_key: 1,
            first_tablet: TabletId(1),
            options: TableOptions::default(),
        };
        (table, statistics)
    }

    fn late(filter: Expr, projection: &[usize]) -> bool {
        let (table, statistics) = table();
        pays(None, &[filter], projection, &table, &statistics)
    }

    #[test]
    fn a_filter_that_leaves_many_rows_is_applied_after_reading() {
        assert!(!late(col("a").gt(lit(100_i64)), &[0, 1, 2, 3]));
        assert!(late(col("a").gt(lit(999_i64)), &[0, 1, 2, 3]));
        // 1/20 of 1/50.
        assert!(late(col("a").gt(lit(950_i64)).and(col("b").lt(lit(20_i64))), &[0, 1, 2, 3]));
        assert!(!late(col("a").gt(lit(950_i64)).and(col("a").lt(lit(1_050_i64))), &[0, 1, 2, 3]));
    }

    #[test]
    fn what_nothing_is_known_of_may_leave_few() {
        assert!(late(col("t").like(lit("%x%")), &[0, 1, 2, 3]) == (3 > TEXT_WEIGHT));
        assert!(late(col("a").eq(lit(7_i64)), &[0, 1, 2, 3]));
        assert!(late(col("c").lt(lit(7_i64)), &[0, 1, 2, 3]));
        assert!(late(col("a").gt(lit(10_i64)).and((col("b") + col("a")).gt(lit(3_i64))), &[0, 3]));
    }

    #[test]
    fn few_other_columns_are_read_with_the_filter() {
        assert!(!late(col("a").eq(lit(7_i64)), &[0]));
        assert!(!late(col("a").eq(lit(7_i64)).and(col("b").gt(lit(999_i64))), &[0, 1, 2]));
        assert!(late(col("a").eq(lit(7_i64)).and(col("b").gt(lit(999_i64))), &[3]));
    }

    #[test]
    fn bounds_are_of_use_to_joins_and_to_aggregates_of_all_rows() {
        let rows =
            |name| LogicalPlanBuilder::from(table_scan(Some(name), &Schema::empty(), None).unwrap().build().unwrap());
        let uses = |plan: LogicalPlanBuilder| {
            let shape = StatementShape::of(&plan.build().unwrap()).unwrap();
            (shape.joins(), shape.uses_bounds())
        };
        let none: [Expr; 0] = [];
        assert_eq!(uses(rows("t")), (false, false));
        assert_eq!(uses(rows("t").cross_join(rows("u").build().unwrap()).unwrap()), (true, true));
        assert_eq!(uses(rows("t").aggregate(none, [count(lit(1))]).unwrap()), (false, true));
        assert_eq!(uses(rows("t").aggregate([lit(1)], [count(lit(1))]).unwrap()), (false, false));
        let below = Arc::new(rows("u").build().unwrap());
        assert_eq!(uses(rows("t").filter(exists(below)).unwrap()), (true, true), "a subquery becomes a join");
    }

    #[test]
    fn a_top_k_of_rows_reads_late() {
        let rows = || LogicalPlanBuilder::from(table_scan(Some("t"), &Schema::empty(), None).unwrap().build().unwrap());
        let order = || [lit(1).sort(true, false)];
        let top_k = rows().filter(lit(true)).unwrap().sort(order()).unwrap().limit(0, Some(3)).unwrap();
        assert!(StatementShape::of(&top_k.build().unwrap()).unwrap().top_k.is_some());
        let counted =
            rows().aggregate([lit(1)], [count(lit(1))]).unwrap().sort(order()).unwrap().limit(0, Some(3)).unwrap();
        assert_eq!(StatementShape::of(&counted.build().unwrap()).unwrap().top_k, None);
        let any = rows().filter(lit(true)).unwrap().limit(0, Some(3)).unwrap();
        assert_eq!(StatementShape::of(&any.build().unwrap()).unwrap().top_k, None);
        let (table, statistics) = table();
        let top_k = Some(TopK { n_rows: Some(1), order: None });
        let shape = StatementShape { top_k, joins: false, aggregates_all: false };
        assert!(pays(Some(&shape), &[col("a").gt(lit(1_i64))], &[0], &table, &statistics));
    }
}
