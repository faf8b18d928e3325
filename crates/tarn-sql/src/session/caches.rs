//! How are caches emptied and filled by hand? `SYSTEM DROP CACHE` and `CACHE TABLE`.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType as ArrowType, Field, Schema, SchemaRef};
use futures::{StreamExt, stream};
use tarn_node::caches::DropStats;
use tarn_query::{Warm, WarmedPart};

use super::{Answer, ResultSet, Session};
use crate::cache_sql::{CacheTable, DropCache};
use crate::error::{Result, SqlError};

/// `CACHE TABLE` says how far it is at most so often.
const STEPS: u64 = 20;

pub(super) fn dropped_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("layer", ArrowType::Utf8, false),
        Field::new("dropped", ArrowType::Int64, false),
    ]))
}

pub(super) fn warmed_schema() -> SchemaRef {
    let count = |name| Field::new(name, ArrowType::Int64, false);
    Arc::new(Schema::new(vec![
        Field::new("table_name", ArrowType::Utf8, false),
        count("percent"),
        count("blocks"),
        count("bytes"),
        count("fetched_bytes"),
        Field::new("note", ArrowType::Utf8, true),
    ]))
}

impl Session {
    /// One row a layer: how many entries went.
    pub(super) async fn drop_cache(&self, asked: &DropCache) -> Result<Answer> {
        asked.table.as_deref().map_or(Ok(()), |table| self.refuse_own("SYSTEM DROP CACHE", table))?;
        let dropped = self.node.drop_caches(&self.principal(), asked.layer, asked.table.as_deref()).await?;
        let (layers, entries): (Vec<_>, Vec<_>) =
            dropped.into_iter().map(|DropStats { layer, entries }| (layer, entries as i64)).unzip();
        let columns: Vec<ArrayRef> = vec![Arc::new(StringArray::from(layers)), Arc::new(Int64Array::from(entries))];
        Ok(Answer::batch(RecordBatch::try_new(dropped_schema(), columns)?, "SYSTEM DROP CACHE"))
    }

    /// A row for each twentieth of the way, as it goes; the last one says what was done.
    pub(super) async fn cache_table(&self, asked: &CacheTable) -> Result<Answer> {
        self.refuse_own("CACHE TABLE", &asked.table)?;
        let plan = self.permitted(self.plan(&asked.query, &[]).await?)?;
        let Warm { n_pieces, not_used, stream } = self.query.warm(&plan).await?;
        let caches = Arc::clone(self.node.caches());
        let before = caches.lost_pages();
        let table = asked.table.clone();
        let mut sum = WarmedPart::default();
        let mut done = 0;
        let mut said = 0;
        let rows = stream.map(Some).chain(stream::iter([None])).filter_map(move |read| {
            let row = match read {
                Some(Err(error)) => Some(Err(SqlError::from(error))),
                Some(Ok(read)) => {
                    done += 1;
                    sum.blocks += read.blocks;
                    sum.bytes += read.bytes;
                    sum.fetched_bytes = sum.fetched_bytes.max(read.fetched_bytes);
                    let step = done * STEPS / n_pieces.max(1);
                    let is_worth_a_row = step > said && done < n_pieces;
                    said = step;
                    is_worth_a_row.then(|| row(&table, done * 100 / n_pieces.max(1), &sum, None))
                }
                None => {
                    let lost = caches.lost_pages() - before;
                    let note = match (not_used, lost) {
                        (Some(why), _) => Some(format!("only metadata is kept, no pages: {why}")),
                        (None, 0) => None,
                        (None, n) => Some(format!("{n} pages found no room or had to go: see tarn.caches")),
                    };
                    Some(row(&table, 100, &sum, note))
                }
            };
            std::future::ready(row)
        });
        Ok(Answer::Rows(ResultSet {
            schema: warmed_schema(),
            batches: rows.boxed(),
            command: "CACHE TABLE",
            is_binary: false,
        }))
    }
}

fn row(table: &str, percent: u64, sum: &WarmedPart, note: Option<String>) -> Result<RecordBatch> {
    let count = |n: u64| Arc::new(Int64Array::from(vec![n as i64])) as ArrayRef;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(vec![table])),
        count(percent),
        count(sum.blocks),
        count(sum.bytes),
        count(sum.fetched_bytes),
        Arc::new(StringArray::from(vec![note])),
    ];
    Ok(RecordBatch::try_new(warmed_schema(), columns)?)
}
