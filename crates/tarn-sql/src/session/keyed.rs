//! How is a statement about one key answered? From the row engine, without a plan.
//!
//! A write is one mutation of one tablet.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use tarn_node::auth::Privilege;
use tarn_node::catalog::TableHandle;
use tarn_node::tables::Row;
use tarn_node::write::conflict;
use tarn_query::keyed::{BoundKeyedPlan, KeyedPlan};
use tarn_types::{
    BatchBuilder, Mutation, MutationBatch, Op, Value, encode_cells, encode_key, encode_patch, row_of_entry,
};

use super::in_parts::MAX_ROUNDS;
use super::on_key::op_of;
use super::{Answer, PendingChanges, Session};
use crate::encoding;
use crate::error::{Result, SqlError, state};

impl Session {
    pub(super) async fn keyed(
        &self,
        plan: &KeyedPlan,
        handle: &Arc<TableHandle>,
        columns: Option<&SchemaRef>,
        parameters: &[Value],
    ) -> Result<Answer> {
        let bound = plan.bind(handle.schema(), parameters)?;
        match &bound {
            BoundKeyedPlan::Insert { rows } => rows.iter().try_for_each(encoding::check_values)?,
            BoundKeyedPlan::Update { set, .. } => encoding::check_values(set.iter().map(|(_, value)| value))?,
            _ => {}
        }
        if !matches!(plan, KeyedPlan::Select { .. }) && self.must_hold_for(handle.schema())? {
            return Box::pin(self.hold_keyed(plan, handle, bound)).await;
        }
        match (bound, plan) {
            (BoundKeyedPlan::Select { key }, KeyedPlan::Select { columns: output, unique, .. }) => {
                let found = match unique {
                    None => self.find(handle, &encode_key(handle.schema(), &key)?).await?,
                    Some(at) => Box::pin(self.find_by_values(handle, *at, &key)).await?,
                };
                let rows =
                    found.map(|found| output.iter().map(|column| found.values[column.column_idx].clone()).collect());
                one_row(handle, output, columns, rows)
            }
            (BoundKeyedPlan::Nothing, KeyedPlan::Select { columns: output, .. }) => {
                one_row(handle, output, columns, None)
            }
            (BoundKeyedPlan::Nothing, KeyedPlan::Update { .. }) => Ok(Answer::counted("UPDATE", 0)),
            (BoundKeyedPlan::Nothing, _) => Ok(Answer::counted("DELETE", 0)),
            (BoundKeyedPlan::Insert { rows }, KeyedPlan::Insert { on_key, .. }) => {
                let (privilege, batch) = (Privilege::Insert, insert(handle, &rows, op_of(*on_key))?);
                let n_rows = match rows.len() {
                    1 => self.write_all(handle, privilege, vec![batch]).await?,
                    _ => Box::pin(self.write_whole(handle, privilege, batch)).await?,
                };
                Ok(Answer::counted("INSERT", n_rows))
            }
            (BoundKeyedPlan::Update { key, set }, _) => {
                let (key, patch) = (encode_key(handle.schema(), &key)?, encode_patch(handle.schema(), &set)?);
                let batch = single(handle, &key, |builder, key| builder.patch(key, &patch, None))?;
                Ok(Answer::counted("UPDATE", self.write_all(handle, Privilege::Update, vec![batch]).await?))
            }
            (BoundKeyedPlan::Delete { key }, _) => {
                let batch =
                    single(handle, &encode_key(handle.schema(), &key)?, |builder, key| builder.delete(key, None))?;
                Ok(Answer::counted("DELETE", self.write_all(handle, Privilege::Delete, vec![batch]).await?))
            }
            (bound, plan) => Err(SqlError::new(state::INTERNAL, format!("{bound:?} is no binding of {plan:?}"))),
        }
    }

    /// The row that has these values, which a unique constraint is of: by its entry.
    ///
    /// Cost: two reads by key.
    async fn find_by_values(&self, handle: &Arc<TableHandle>, at: usize, values: &[Value]) -> Result<Option<Row>> {
        let table = handle.schema();
        let Some(index) = self.node.tables().indexes(table)?.into_iter().nth(at) else {
            return Err(SqlError::new(state::INTERNAL, "a statement names a constraint that is not there"));
        };
        let key = encode_key(index.entries.schema(), values)?;
        for _ in 0..MAX_ROUNDS {
            let Some(entry) = self.find(&index.entries, &key).await? else { return Ok(None) };
            let Some(row_key) = row_of_entry(&entry.values) else { break };
            // The entry was read a moment before: the row may have other values by now, and another row these.
            let row = self.find(handle, row_key).await?;
            let now = row.as_ref().map(|row| index.key(table, &row.values)).transpose()?.flatten();
            if now.as_ref() == Some(&key) {
                return Ok(row);
            }
        }
        Err(conflict(&table.name).into())
    }

    /// Inside BEGIN: rows are computed now, written at COMMIT, guarded by what was read.
    async fn hold_keyed(&self, plan: &KeyedPlan, handle: &Arc<TableHandle>, bound: BoundKeyedPlan) -> Result<Answer> {
        let (batch, command, privilege) = match bound {
            BoundKeyedPlan::Insert { rows } => {
                let KeyedPlan::Insert { on_key, .. } = plan else {
                    return Err(SqlError::new(state::INTERNAL, "rows that are no INSERT's"));
                };
                (insert(handle, &rows, op_of(*on_key))?, "INSERT", Privilege::Insert)
            }
            BoundKeyedPlan::Update { key, set } => {
                let key = encode_key(handle.schema(), &key)?;
                let Some(found) = self.find(handle, &key).await? else { return Ok(Answer::counted("UPDATE", 0)) };
                (changed(handle, &key, found, &set)?, "UPDATE", Privilege::Update)
            }
            BoundKeyedPlan::Delete { key } => {
                let key = encode_key(handle.schema(), &key)?;
                let Some(found) = self.find(handle, &key).await? else { return Ok(Answer::counted("DELETE", 0)) };
                let batch = single(handle, &key, |builder, key| builder.delete(key, Some(found.seqno)))?;
                (batch, "DELETE", Privilege::Delete)
            }
            BoundKeyedPlan::Nothing if matches!(plan, KeyedPlan::Update { .. }) => {
                return Ok(Answer::counted("UPDATE", 0));
            }
            _ => return Ok(Answer::counted("DELETE", 0)),
        };
        let held = PendingChanges { table: Arc::clone(handle), privilege, batches: vec![batch] };
        Ok(Answer::counted(command, self.hold(held).await?))
    }
}

/// The whole row with its new values, guarded by the change it was read at.
fn changed(handle: &TableHandle, key: &[u8], found: Row, set: &[(usize, Value)]) -> Result<MutationBatch> {
    let mut values = found.values;
    for (column, value) in set {
        values[*column] = value.clone();
    }
    let cells = encode_cells(handle.schema(), &values)?;
    single(handle, key, |builder, key| builder.put(key, &cells, Some(found.seqno)))
}

fn single(handle: &TableHandle, key: &[u8], push: impl FnOnce(&mut BatchBuilder, &[u8])) -> Result<MutationBatch> {
    let mut builder = BatchBuilder::new(handle.schema());
    push(&mut builder, key);
    Ok(builder.finish())
}

/// Whole rows.
fn insert(handle: &TableHandle, rows: &[Vec<Value>], op: Op) -> Result<MutationBatch> {
    let schema = handle.schema();
    let mut builder = BatchBuilder::new(schema);
    for row in rows {
        let key: Vec<Value> = schema.key.iter().map(|part| row[part.column_idx].clone()).collect();
        let key = encode_key(schema, &key)?;
        let cells = encode_cells(schema, row)?;
        builder.push(&Mutation { op, key: &key, guard: None, cells: &cells });
    }
    Ok(builder.finish())
}

fn one_row(
    handle: &TableHandle,
    output: &[tarn_query::keyed::OutputColumn],
    columns: Option<&SchemaRef>,
    row: Option<Vec<Value>>,
) -> Result<Answer> {
    let schema = columns.ok_or_else(|| SqlError::new(state::INTERNAL, "a keyed SELECT has columns"))?;
    let batch = match row {
        None => RecordBatch::new_empty(Arc::clone(schema)),
        Some(values) => {
            let arrays = output
                .iter()
                .zip(values)
                .map(|(column, value)| value.to_array(&handle.schema().columns[column.column_idx].data_type, 1));
            let arrays = arrays.collect::<std::result::Result<Vec<_>, _>>()?;
            RecordBatch::try_new_with_options(
                Arc::clone(schema),
                arrays,
                &RecordBatchOptions::new().with_row_count(Some(1)),
            )?
        }
    };
    Ok(Answer::batch(batch, "SELECT"))
}
