//! What does a table's definition make of rows that are about to be written?
//!
//! Whatever writes rows asks here, when they are as they will be kept: INSERT, UPDATE and MERGE, and COPY on the thread
//! that decodes. Generated columns are computed, then checks are asked.

use std::sync::Arc;

use tarn_types::TableSchema;

use super::Session;
use super::compiled_rules::RowRules;
use crate::error::Result;

impl Session {
    /// The rules of a table, compiled: to be asked for once a statement.
    pub(super) async fn row_rules(&self, table: &Arc<TableSchema>) -> Result<RowRules> {
        let (generated, checks) = (self.compiled_generated(table).await?, self.compiled_checks(table).await?);
        Ok(RowRules { table: Arc::clone(table), generated, checks })
    }
}
