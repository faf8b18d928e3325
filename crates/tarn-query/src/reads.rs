//! What does a plan read? Every table that it scans and every view, subqueries included, and through which view, so
//! that whoever runs it can ask whether it may be read.

use std::sync::Arc;

use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::TableReference;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::{LogicalPlan, TableScan};
use tarn_types::TableSchema;

use crate::Result;
use crate::hot::HotSource;
use crate::table::TarnTable;
use crate::view_table::marked;

/// One scan of a plan, or one view of it.
#[derive(Debug, Clone)]
pub enum RelationRead {
    /// A table of schema `public`. It is the one that will be read, whatever has its name by then.
    Table {
        /// Its definition.
        table: Arc<TableSchema>,
        /// The view whose query names it. `None`: the statement does.
        through: Option<Arc<TableSchema>>,
    },
    /// A view, whose query is part of the plan.
    View {
        /// Its definition.
        view: Arc<TableSchema>,
        /// The view whose query names it. `None`: the statement does.
        through: Option<Arc<TableSchema>>,
        /// In how many views it is.
        depth: usize,
    },
    /// Anything else, as the statement names it: a table of another schema, a function, the working table of a
    /// recursive query.
    Other(TableReference),
}

/// The scans and views of a logical plan, in no order; a table that is read twice is there twice.
pub fn reads(plan: &LogicalPlan) -> Result<Vec<RelationRead>> {
    let mut found = Vec::new();
    each_read(plan, None, &mut |step, within| {
        let (through, depth) = within.map_or((None, 0), |within| (Some(Arc::clone(within.view)), within.depth));
        found.push(match step {
            PlanRead::View(view) => RelationRead::View { view: Arc::clone(view), through, depth },
            PlanRead::Scan(_, Some(table)) => RelationRead::Table { table: Arc::clone(table.table_schema()), through },
            PlanRead::Scan(scan, None) => RelationRead::Other(scan.table_name.clone()),
        });
    })?;
    Ok(found)
}

/// The tables of schema `public` among them.
#[derive(Default)]
pub(crate) struct ScannedTables {
    /// Of a table that is read directly and through a view the direct one comes last.
    pub sources: Vec<Arc<dyn HotSource>>,
    /// Whether some are read through views.
    pub has_views: bool,
}

pub(crate) fn tables(plan: &LogicalPlan) -> Result<ScannedTables> {
    let (mut direct, mut found) = (Vec::new(), ScannedTables::default());
    each_read(plan, None, &mut |step, within| match (step, within) {
        (PlanRead::View(_), _) => found.has_views = true,
        (PlanRead::Scan(_, Some(table)), None) => direct.push(Arc::clone(table.source())),
        (PlanRead::Scan(_, Some(table)), Some(within)) => {
            let source = table.source();
            found.sources.push(source.through(within.view.id).unwrap_or_else(|| Arc::clone(source)));
        }
        (PlanRead::Scan(_, None), _) => {}
    })?;
    found.sources.append(&mut direct);
    Ok(found)
}

/// What is seen on the way through a plan.
enum PlanRead<'a> {
    /// Of a table, if it is one of ours.
    Scan(&'a TableScan, Option<&'a TarnTable>),
    View(&'a Arc<TableSchema>),
}

/// The view that a step is a part of, and in how many it is.
#[derive(Clone, Copy)]
struct EnclosingView<'a> {
    view: &'a Arc<TableSchema>,
    depth: usize,
}

type ReadVisitor<'a> = &'a mut dyn FnMut(PlanRead<'_>, Option<EnclosingView<'_>>);

/// `within`: what `plan` is a part of. Queries in expressions are as deep as the parser lets through; the rest may be
/// deeper.
fn each_read(plan: &LogicalPlan, within: Option<EnclosingView<'_>>, see: ReadVisitor<'_>) -> Result<()> {
    let mut waiting = vec![(plan, within)];
    while let Some((plan, mut within)) = waiting.pop() {
        if let LogicalPlan::TableScan(scan) = plan {
            let provider = source_as_provider(&scan.source);
            see(PlanRead::Scan(scan, provider.as_ref().ok().and_then(|provider| provider.downcast_ref())), within);
        }
        if let Some(view) = marked(plan) {
            see(PlanRead::View(view), within);
            within = Some(EnclosingView { view, depth: within.map_or(0, |within| within.depth) + 1 });
        }
        let mut result = Ok(());
        plan.apply_subqueries(|subquery| {
            result = each_read(subquery, within, see);
            Ok(if result.is_ok() { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
        })?;
        result?;
        waiting.extend(plan.inputs().into_iter().map(|input| (input, within)));
    }
    Ok(())
}
