//! How is a statement about one key answered? From the row engine, without a plan.
//!
//! A lookup costs one read of the row engine; a row that was evicted costs one page of one lake file more. A write is one
//! mutation of one tablet.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use tarn_feed::HotTable;
use tarn_node::catalog::TableHandle;
use tarn_node::write::{affected, conflict};
use tarn_query::keyed::{Bound, KeyedPlan};
use tarn_rows::{Lookup, Outcome};
use tarn_types::{
    BatchBuilder, MutationBatch, SeqNo, TabletId, Value, decode_row, encode_cells, encode_key, encode_patch, key_tablet,
};

use super::{Answer, Held, Session};
use crate::encoding;
use crate::error::{Result, SqlError, state};

/// How often a read or write is tried again when the row moves under it.
const MAX_TRIES: usize = 32;

/// A row of the table and the change that wrote it.
struct Found {
    values: Vec<Value>,
    seqno: SeqNo,
}

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
            Bound::Insert { rows } => rows.iter().try_for_each(encoding::check_values)?,
            Bound::Update { set, .. } => encoding::check_values(set.iter().map(|(_, value)| value))?,
            _ => {}
        }
        if !matches!(plan, KeyedPlan::Select { .. }) && self.transaction.lock().must_hold()? {
            return Box::pin(self.hold_keyed(plan, handle, bound)).await;
        }
        match (bound, plan) {
            (Bound::Select { key }, KeyedPlan::Select { columns: output, .. }) => {
                self.transaction.lock().check_read()?;
                let found = self.find(handle, &encode_key(handle.schema(), &key)?).await?;
                let rows =
                    found.map(|found| output.iter().map(|column| found.values[column.column_idx].clone()).collect());
                one_row(handle, output, columns, rows)
            }
            (Bound::Nothing, KeyedPlan::Select { columns: output, .. }) => one_row(handle, output, columns, None),
            (Bound::Nothing, KeyedPlan::Update { .. }) => Ok(Answer::counted("UPDATE", 0)),
            (Bound::Nothing, _) => Ok(Answer::counted("DELETE", 0)),
            (Bound::Insert { rows }, KeyedPlan::Insert { on_conflict_do_nothing, .. }) => {
                let batches = insert(handle, &rows, *on_conflict_do_nothing)?;
                let outcomes = self.write(handle, batches).await?;
                Ok(Answer::counted("INSERT", affected(handle, &outcomes)?))
            }
            (Bound::Update { key, set }, _) => Ok(Answer::counted("UPDATE", self.update(handle, &key, &set).await?)),
            (Bound::Delete { key }, _) => {
                let batch =
                    single(handle, &encode_key(handle.schema(), &key)?, |builder, key| builder.delete(key, None))?;
                let outcomes = self.write(handle, vec![batch]).await?;
                Ok(Answer::counted("DELETE", affected(handle, &outcomes)?))
            }
            (bound, plan) => Err(SqlError::new(state::INTERNAL, format!("{bound:?} is no binding of {plan:?}"))),
        }
    }

    /// Inside BEGIN: rows are computed now, written at COMMIT, guarded by what was read.
    async fn hold_keyed(&self, plan: &KeyedPlan, handle: &Arc<TableHandle>, bound: Bound) -> Result<Answer> {
        let table = Arc::clone(handle.schema());
        let (batches, answer, is_plain) = match bound {
            Bound::Insert { rows } => {
                if matches!(plan, KeyedPlan::Insert { on_conflict_do_nothing: true, .. }) {
                    return Err(SqlError::unsupported(
                        "ON CONFLICT DO NOTHING inside BEGIN",
                        "run it outside a transaction (autocommit)",
                    ));
                }
                let batches = insert(handle, &rows, false)?;
                (batches, Answer::counted("INSERT", rows.len() as u64), true)
            }
            Bound::Update { key, set } => {
                self.transaction.lock().check_first_write()?;
                let key = encode_key(handle.schema(), &key)?;
                let Some(found) = self.find(handle, &key).await? else { return Ok(Answer::counted("UPDATE", 0)) };
                (vec![changed(handle, &key, found, &set)?], Answer::counted("UPDATE", 1), false)
            }
            Bound::Delete { key } => {
                self.transaction.lock().check_first_write()?;
                let key = encode_key(handle.schema(), &key)?;
                let Some(found) = self.find(handle, &key).await? else { return Ok(Answer::counted("DELETE", 0)) };
                let batch = single(handle, &key, |builder, key| builder.delete(key, Some(found.seqno)))?;
                (vec![batch], Answer::counted("DELETE", 1), false)
            }
            Bound::Nothing if matches!(plan, KeyedPlan::Update { .. }) => return Ok(Answer::counted("UPDATE", 0)),
            _ => return Ok(Answer::counted("DELETE", 0)),
        };
        self.hold(Held::new(table, batches, is_plain))?;
        Ok(answer)
    }

    /// The row of an engine key, wherever it lies.
    async fn find(&self, handle: &Arc<TableHandle>, key: &[u8]) -> Result<Option<Found>> {
        for _ in 0..MAX_TRIES {
            // Before the lookup: an address names a file of this version or a later one.
            let address = match handle.table().get(key)? {
                Lookup::Row { cells, seqno } => {
                    return Ok(Some(Found { values: decode_row(handle.schema(), key, &cells)?, seqno }));
                }
                Lookup::Absent => return Ok(None),
                Lookup::InLake(address) => address,
            };
            let (version, _) = handle.table().installed();
            // None: a compaction moved it between the two reads; look again.
            let fetching = Box::pin(self.sql.query().fetch_row(handle.schema(), version, address));
            if let Some((values, seqno)) = fetching.await? {
                return Ok(Some(Found { values, seqno }));
            }
        }
        Err(SqlError::new(
            state::SERIALIZATION_FAILURE,
            format!("a row of table \"{}\" moved {MAX_TRIES} times while it was read", handle.schema().name),
        ))
    }

    /// A blind patch; a row that lies in the lake alone is read and put whole, guarded.
    async fn update(&self, handle: &Arc<TableHandle>, key: &[Value], set: &[(usize, Value)]) -> Result<u64> {
        let key = encode_key(handle.schema(), key)?;
        let patch = encode_patch(handle.schema(), set)?;
        for _ in 0..MAX_TRIES {
            let batch = single(handle, &key, |builder, key| builder.patch(key, &patch, None))?;
            let outcomes = self.write(handle, vec![batch]).await?;
            if !matches!(outcomes.as_slice(), [Outcome::NeedsBase { .. }]) {
                return Ok(affected(handle, &outcomes)?);
            }
            let Some(found) = self.find(handle, &key).await? else { continue };
            let outcomes = self.write(handle, vec![changed(handle, &key, found, set)?]).await?;
            if let [Outcome::Applied { affected }] = outcomes.as_slice() {
                return Ok(*affected);
            }
        }
        Err(conflict(&handle.schema().name).into())
    }
}

/// The whole row with its new values, guarded by the change it was read at.
fn changed(handle: &TableHandle, key: &[u8], found: Found, set: &[(usize, Value)]) -> Result<MutationBatch> {
    let mut values = found.values;
    for (column, value) in set {
        values[*column] = value.clone();
    }
    let cells = encode_cells(handle.schema(), &values)?;
    single(handle, key, |builder, key| builder.put(key, &cells, Some(found.seqno)))
}

fn single(handle: &TableHandle, key: &[u8], push: impl FnOnce(&mut BatchBuilder, &[u8])) -> Result<MutationBatch> {
    let mut builder = BatchBuilder::new(handle.schema(), key_tablet(key)?);
    push(&mut builder, key);
    Ok(builder.finish())
}

/// Whole rows, one batch a tablet.
fn insert(handle: &TableHandle, rows: &[Vec<Value>], keep_existing: bool) -> Result<Vec<MutationBatch>> {
    let schema = handle.schema();
    let mut builders: BTreeMap<TabletId, BatchBuilder> = BTreeMap::new();
    for row in rows {
        let key: Vec<Value> = schema.key.iter().map(|part| row[part.column_idx].clone()).collect();
        let key = encode_key(schema, &key)?;
        let cells = encode_cells(schema, row)?;
        let tablet = key_tablet(&key)?;
        let builder = builders.entry(tablet).or_insert_with(|| BatchBuilder::new(schema, tablet));
        if keep_existing {
            builder.insert(&key, &cells);
        } else {
            builder.put(&key, &cells, None);
        }
    }
    Ok(builders.into_values().map(BatchBuilder::finish).collect())
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
