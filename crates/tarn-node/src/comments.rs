//! What do people say of tables, views and columns? `COMMENT ON`, kept as a document of the metastore
//! (`docs/formats/comments.md`).
//!
//! Comments hang on the ids of tables and columns: a table that is dropped takes them along, and the next of its name
//! begins without any. They are read once, when the node opens: a table is of one node, and so is what is said of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use tarn_metastore::{Metastore, is_document};
use tarn_types::{ColumnId, TableId, TableSchema};

use crate::error::Result;
use crate::kept::{DocumentFormat, TRIES, changed_by_others, read, write};

/// Of the document.
const FORMAT: u8 = 1;

/// What is said of one table or view.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfTable {
    /// Of the table itself.
    pub table: Option<String>,
    /// Of its columns, by their ids.
    pub columns: BTreeMap<u32, String>,
}

impl OfTable {
    /// What is said of a column.
    pub fn column(&self, id: ColumnId) -> Option<&str> {
        self.columns.get(&id.0).map(String::as_str)
    }
}

/// The document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CommentDocument {
    format: u8,
    tables: BTreeMap<u32, OfTable>,
}

impl Default for CommentDocument {
    fn default() -> Self {
        CommentDocument { format: FORMAT, tables: BTreeMap::new() }
    }
}

impl DocumentFormat for CommentDocument {
    const NAME: &'static str = "comments";
    const FORMAT: u8 = FORMAT;
    const SHORTER: &'static str = "say less, or COMMENT … IS NULL where nobody reads it";

    fn format(&self) -> u8 {
        self.format
    }
}

impl CommentDocument {
    fn say(&mut self, of: &TableSchema, column: Option<ColumnId>, text: Option<String>) {
        let table = self.tables.entry(of.id.0).or_default();
        match (column, text) {
            (None, text) => table.table = text,
            (Some(column), Some(text)) => drop(table.columns.insert(column.0, text)),
            (Some(column), None) => drop(table.columns.remove(&column.0)),
        }
        self.tables.retain(|_, of| *of != OfTable::default());
    }
}

/// The comments of a node. Shared.
pub struct Comments {
    metastore: Arc<dyn Metastore>,
    /// Held for moments only.
    known: RwLock<Arc<CommentDocument>>,
    /// One change at a time.
    changing: tokio::sync::Mutex<()>,
}

impl Comments {
    /// Reads them.
    ///
    /// Errors: the metastore's; `Corrupt` when the document cannot be understood.
    pub async fn open(metastore: Arc<dyn Metastore>) -> Result<Comments> {
        let (said, _) = read::<CommentDocument>(&*metastore).await?;
        Ok(Comments { metastore, known: RwLock::new(Arc::new(said)), changing: tokio::sync::Mutex::default() })
    }

    /// What is said of a table or view and its columns.
    pub fn of(&self, table: TableId) -> OfTable {
        self.known.read().tables.get(&table.0).cloned().unwrap_or_default()
    }

    /// Says something of a table or view, or of one of its columns; None takes it back. Durable when it returns.
    ///
    /// Errors: `ProgramLimit` when all comments together are longer than a document may be.
    pub(crate) async fn say(&self, of: &TableSchema, column: Option<ColumnId>, text: Option<String>) -> Result<()> {
        self.change(|said| said.say(of, column, text.clone())).await
    }

    /// What is said of a table is said of another, too, that is to take its place; `ids` tells its columns.
    pub(crate) async fn copy(
        &self,
        from: &TableSchema,
        to: &TableSchema,
        ids: &(dyn Fn(ColumnId) -> Option<ColumnId> + Sync),
    ) -> Result<()> {
        let Some(before) = self.known.read().tables.get(&from.id.0).cloned() else { return Ok(()) };
        let columns = before.columns.into_iter().filter_map(|(id, text)| Some((ids(ColumnId(id))?.0, text)));
        let copied = OfTable { table: before.table, columns: columns.collect() };
        self.change(|said| drop(said.tables.insert(to.id.0, copied.clone()))).await
    }

    async fn change(&self, change: impl Fn(&mut CommentDocument)) -> Result<()> {
        let _one = self.changing.lock().await;
        for _ in 0..TRIES {
            let (before, version) = read::<CommentDocument>(&*self.metastore).await?;
            let mut said = before.clone();
            let there = self.metastore.tables().await?;
            said.tables.retain(|id, _| there.iter().any(|table| table.id.0 == *id && !is_document(table)));
            change(&mut said);
            if said != before && !write(&*self.metastore, version, &said).await? {
                continue;
            }
            *self.known.write() = Arc::new(said);
            return Ok(());
        }
        Err(changed_by_others::<CommentDocument>())
    }
}

#[cfg(test)]
mod tests {
    use tarn_metastore::{Memory, MetastoreExt};
    use tarn_types::{Column, DataType, KeyPart, ManualClock, TableOptions, TabletId};

    use super::*;
    use crate::error::ErrorKind;
    use crate::kept::of_text;

    async fn made(metastore: &Arc<dyn Metastore>, name: &str) -> Arc<TableSchema> {
        let data_type = DataType::Int32;
        let column = Column { id: ColumnId(1), name: "a".into(), data_type, nullable: false, default: None };
        let schema = TableSchema {
            id: TableId(0),
            name: name.to_owned(),
            columns: vec![column],
            key: vec![KeyPart { column_idx: 0, descending: false }],
            n_partition_key: 1,
            first_tablet: TabletId(0),
            options: TableOptions::default(),
        };
        metastore.create_table(schema).await.unwrap()
    }

    #[tokio::test]
    async fn comments_stay_with_their_table() {
        let metastore: Arc<dyn Metastore> = Arc::new(Memory::new(Arc::new(ManualClock::new(0))));
        let (t, u) = (made(&metastore, "t").await, made(&metastore, "u").await);
        let comments = Comments::open(Arc::clone(&metastore)).await.unwrap();
        assert_eq!(comments.of(t.id), OfTable::default());
        comments.say(&t, None, Some("of t".into())).await.unwrap();
        comments.say(&t, Some(ColumnId(1)), Some("of a".into())).await.unwrap();
        comments.say(&u, None, Some("of u".into())).await.unwrap();
        let again = Comments::open(Arc::clone(&metastore)).await.unwrap();
        assert_eq!(again.of(t.id), comments.of(t.id));
        assert_eq!((again.of(t.id).table.as_deref(), again.of(t.id).column(ColumnId(1))), (Some("of t"), Some("of a")));
        comments.say(&t, Some(ColumnId(1)), None).await.unwrap();
        metastore.drop_table("u").await.unwrap();
        comments.say(&t, None, None).await.unwrap();
        let last = Comments::open(metastore).await.unwrap();
        assert_eq!((last.of(t.id), last.of(u.id)), (OfTable::default(), OfTable::default()));
    }

    #[test]
    fn a_document_that_is_not_understood_is_not_written_over() {
        for text in ["", "{}", "{\"format\":2,\"tables\":{}}", "{\"format\":1,\"tables\":{},\"x\":1}"] {
            assert_eq!(of_text::<CommentDocument>(text).unwrap_err().kind(), ErrorKind::Corrupt, "{text}");
        }
        assert_eq!(of_text::<CommentDocument>("{\"format\":1,\"tables\":{}}").unwrap(), CommentDocument::default());
    }
}
