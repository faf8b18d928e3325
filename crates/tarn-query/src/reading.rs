//! Which nodes of a plan read what a spec says?
//!
//! ```text
//! TarnScan ── KeysExec                                     keys
//!          ├─ RowsExec                                     ranges of keys
//!          └─ UnionExec ─┬─ DataSourceExec (LakeSource)    files
//!                        └─ RecentExec                     recent rows, if there are any
//! ```
//!
//! No IO. The same nodes for the same spec, wherever it comes from.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::ColumnStatistics;
use datafusion::error::DataFusionError;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::union::UnionExec;

use crate::files::{BlockCutter, LakeFiles, lake_files};
use crate::hot_exec::RecentExec;
use crate::keys_exec::KeysExec;
use crate::lake_source::{LakeSource, files_config};
use crate::opening::Opener;
use crate::rows_exec::RowsExec;
use crate::scan::{Access, TarnScan};
use crate::spec::{LakeRead, ScanKind, ScanSpec};
use crate::totals::TotalsByColumn;
use crate::{Error, Result};

/// The pieces of files that a scan of the lake reads, and their statistics. `full` is the SQL schema of all columns.
fn pieces(spec: &ScanSpec, lake: &LakeRead, full: &Schema) -> Result<LakeFiles> {
    let cut = BlockCutter {
        table: &spec.table,
        schema: full,
        columns: &lake.columns,
        given: &spec.hot_projection().0,
        // The planner used what it knew.
        known: &TotalsByColumn::new(),
        partitions: spec.partitions,
        bounded: spec.pruning,
    };
    lake_files(&cut, &lake.vectors, &lake.hidden, &lake.pruned)
}

/// The plan of a scan. `made` are the pieces of a scan of the lake, if they were made before: with all that the planner
/// knows of them. `recent` are the statistics of its recent rows, if somebody wanted them.
pub(crate) fn plan(
    spec: ScanSpec,
    made: Option<LakeFiles>,
    recent: Option<Vec<ColumnStatistics>>,
    opener: &Opener,
) -> Result<Arc<dyn ExecutionPlan>> {
    let spec = Arc::new(spec);
    let full = opener.lake().schemas.of(&spec.table, spec.with_seqno);
    let schema = Arc::new(full.project(&spec.projection).map_err(DataFusionError::from)?);
    let input: Arc<dyn ExecutionPlan> = match &spec.how {
        ScanKind::Keys(keys) => Arc::new(KeysExec::new(Arc::clone(&spec), keys, full, schema)),
        ScanKind::Ranges(read) => Arc::new(RowsExec::new(Arc::clone(&spec), read, full, schema)),
        ScanKind::Lake(lake) => {
            let files = made.map_or_else(|| pieces(&spec, lake, &full), Ok)?;
            check_counts(&spec, lake, &files)?;
            let mut inputs: Vec<Arc<dyn ExecutionPlan>> = vec![];
            if !files.groups.is_empty() {
                let config =
                    files_config(&spec, &full, files.groups, Some(files.statistics), lake.late_materialization)?;
                inputs.push(Arc::new(LakeSource::exec(config, &spec)));
            }
            if lake.recent_rows > 0 || inputs.is_empty() {
                inputs.push(Arc::new(RecentExec::new(Arc::clone(&spec), schema, recent)));
            }
            UnionExec::try_new(inputs)?
        }
    };
    let pages_not_used = match spec.lake() {
        Some(_) => opener.pages_not_used(&spec.table, &spec.caches)?,
        None => None,
    };
    Ok(Arc::new(TarnScan::new(input, Access::new(spec, pages_not_used))))
}

/// A spec that lost dead rows on its way would give more rows than there are.
fn check_counts(spec: &ScanSpec, lake: &LakeRead, files: &LakeFiles) -> Result<()> {
    if files.counts == lake.counts {
        return Ok(());
    }
    let (table, found, wanted) = (&spec.table.name, &files.counts, &lake.counts);
    Err(Error::Corrupt { what: format!("a scan of {table} is planned for {wanted:?}, and has {found:?}") })
}
