//! What does a plan read? Every table that it scans, subqueries included, so that whoever runs it can ask whether it
//! may be read.

use std::sync::Arc;

use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::TableReference;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::{LogicalPlan, TableScan};
use tarn_types::TableSchema;

use crate::Result;
use crate::hot::HotSource;
use crate::table::TarnTable;

/// One scan of a plan.
#[derive(Debug, Clone)]
pub enum Read {
    /// A table of schema `public`. It is the one that will be read, whatever has its name by then.
    Table(Arc<TableSchema>),
    /// Anything else, as the statement names it: a table of another schema, a function, the working table of a
    /// recursive query.
    Other(TableReference),
}

/// The scans of a logical plan, in no order; a table that is read twice is there twice.
pub fn reads(plan: &LogicalPlan) -> Result<Vec<Read>> {
    let mut found = Vec::new();
    each_scan(plan, |scan, table| {
        found.push(match table {
            Some(table) => Read::Table(Arc::clone(table.table_schema())),
            None => Read::Other(scan.table_name.clone()),
        });
    })?;
    Ok(found)
}

/// The tables of schema `public` among them.
pub(crate) fn tables(plan: &LogicalPlan) -> Result<Vec<Arc<dyn HotSource>>> {
    let mut found = Vec::new();
    each_scan(plan, |_, table| found.extend(table.map(|table| Arc::clone(table.source()))))?;
    Ok(found)
}

fn each_scan(plan: &LogicalPlan, mut see: impl FnMut(&TableScan, Option<&TarnTable>)) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            let provider = source_as_provider(&scan.source);
            see(scan, provider.as_ref().ok().and_then(|provider| provider.downcast_ref::<TarnTable>()));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}
