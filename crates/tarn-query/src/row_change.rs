//! What does a statement say of its row, if it is of one? The columns that are computed of it, and whether it is
//! changed at all. How they are computed is in `one_row.rs`.

use std::sync::Arc;

use datafusion::logical_expr::{Expr, LogicalPlan, Projection};

use crate::keyed::KeyedPlan;
use crate::row_columns::RowColumns;

/// A statement of one row.
#[derive(Debug, Clone)]
pub(crate) enum OneRow {
    /// The row that is inserted.
    New(RowColumns),
    /// One that is there is changed.
    Changed {
        /// The statement as one that only finds its row.
        finds: KeyedPlan,
        change: RowChange,
    },
}

/// What becomes of rows that were read.
#[derive(Debug, Clone)]
pub(crate) struct RowChange {
    /// Which of them are changed, as one column.
    pub condition: Option<RowColumns>,
    pub columns: RowColumns,
}

impl RowChange {
    /// That of a query that reads one table; without its condition, if rows meet that anyway.
    pub fn of(query: &LogicalPlan, has_condition: bool) -> Option<RowChange> {
        let LogicalPlan::Projection(list) = query else { return None };
        let (condition, read) = match list.input.as_ref() {
            LogicalPlan::Filter(filter) => (Some(&filter.predicate), &filter.input),
            _ => (None, &list.input),
        };
        let of_read = |exprs: Vec<Expr>| {
            let list = Projection::try_new(exprs, Arc::clone(read)).ok()?;
            RowColumns::of(&LogicalPlan::Projection(list))
        };
        let condition = match condition.filter(|_| has_condition) {
            Some(condition) => Some(of_read(vec![condition.clone()])?),
            None => None,
        };
        Some(RowChange { condition, columns: of_read(list.expr.clone())? })
    }
}
