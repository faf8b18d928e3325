//! How is a table made that one session has to itself, and that is gone with it?
//!
//! It is in memory alone: in no metastore, no log, no lake and no catalog of the node, and nothing of it is left when
//! the last handle is dropped, whoever dies. So making and dropping one costs no IO. It has the same store as any other
//! table, over an engine in memory, and what reads or writes tables by a handle does so with it; ids of its own kind
//! tell the two apart ([`TableId::is_temporary`]).
//!
//! Rows that are changed or deleted stay among the recent rows, as they would until a delivery: what they take is
//! bounded for all sessions together (`temporary_room.rs`).
//!
//! [`TableId::is_temporary`]: tarn_types::TableId::is_temporary

use std::sync::Arc;

use parking_lot::Mutex;
use tarn_rows::{Engine, MemoryEngine, Table, Tuning};
use tarn_types::{Column, ColumnId, DataType, KeyPart, TableOptions, TableSchema};
use tokio::sync::{Notify, mpsc};

use crate::catalog::{TableHandle, WayIn};
use crate::error::Result;
use crate::node::Node;
use crate::unlogged::UnloggedWriter;

impl Node {
    /// Makes a temporary table, empty. It is there as long as somebody holds the handle. Its id is given here; options
    /// that are about the log or the lake mean nothing.
    ///
    /// Errors: the definition does not hold together. Cost: no IO.
    pub fn temporary_table(&self, mut schema: TableSchema) -> Result<Arc<TableHandle>> {
        self.number(&mut schema)?;
        let schema = Arc::new(schema);
        self.temporary_over(Arc::clone(&schema), schema)
    }

    /// Makes a temporary view: a definition, over a store that nobody reads or writes.
    ///
    /// Errors: the node closes. Cost: no IO.
    pub fn temporary_view(&self, mut view: TableSchema) -> Result<Arc<TableHandle>> {
        self.number(&mut view)?;
        let column = Column {
            id: ColumnId(1),
            name: "none".to_owned(),
            data_type: DataType::Int64,
            nullable: false,
            default: None,
        };
        let rows = TableSchema {
            columns: vec![column],
            key: vec![KeyPart { column_idx: 0, descending: false }],
            n_partition_key: 1,
            options: TableOptions::default(),
            ..view.clone()
        };
        self.temporary_over(Arc::new(view), Arc::new(rows))
    }

    fn number(&self, schema: &mut TableSchema) -> Result<()> {
        self.check_open()?;
        schema.id = self.parts().temporary.next_id();
        schema.first_tablet = schema.id.0.into();
        Ok(())
    }

    /// What is called `schema` and has the rows of `rows`, none yet.
    fn temporary_over(&self, schema: Arc<TableSchema>, rows: Arc<TableSchema>) -> Result<Arc<TableHandle>> {
        let parts = self.parts();
        let (clock, bytes) = (Arc::clone(&parts.clock), parts.temporary.bytes());
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::counted_in(bytes));
        let table = Table::open_tuned(engine, rows, clock, Tuning::default(), Arc::clone(bytes))?;
        let table = Arc::new(table);
        table.finish_replay()?;
        // Nobody works on it in the background.
        let (jobs, _) = mpsc::channel(1);
        Ok(Arc::new(TableHandle {
            schema,
            way_in: WayIn::Unlogged(UnloggedWriter::new(Arc::clone(&table))),
            table,
            jobs,
            kick: Notify::new(),
            stop: parts.stop.child_token(),
            worker: Mutex::new(None),
            damage: None,
            stuck: Mutex::default(),
            gate: Arc::default(),
            altered_from: None,
        }))
    }
}
