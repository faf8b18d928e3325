//! What does a table's definition make of rows that are about to be written?
//!
//! Whatever writes rows asks here, when they are as they will be kept: INSERT, UPDATE and MERGE, and COPY on the thread that decodes.
//! Generated columns are computed, then checks are asked.

use std::sync::Arc;

use datafusion::arrow::record_batch::RecordBatch;
use tarn_types::TableSchema;

use super::Session;
use super::compiled_rules::RowRules;
use crate::error::Result;

impl Session {
    /// The rules of a table; of most there are none.
    pub(super) async fn row_rules(&self, table: &Arc<TableSchema>) -> Result<Option<RowRules>> {
        if !table.options.rules.look_at_rows() {
            return Ok(None);
        }
        let (generated, checks) = (self.compiled_generated(table).await?, self.compiled_checks(table).await?);
        Ok(Some(RowRules { table: Arc::clone(table), generated, checks }))
    }

    /// The rows as they are written, for those who write few batches.
    ///
    /// Errors: as of [`RowRules::applied`].
    pub(super) async fn ruled(&self, table: &Arc<TableSchema>, rows: RecordBatch) -> Result<RecordBatch> {
        match self.row_rules(table).await? {
            None => Ok(rows),
            Some(rules) => rules.applied(rows),
        }
    }
}
