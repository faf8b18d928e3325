//! How is a table made that one session has to itself, and that is gone with it?
//!
//! It is in memory alone: in no metastore, no log, no lake and no catalog of the node, and nothing of it is left when the last handle is
//! dropped, whoever dies. So making and dropping one costs no IO. It has the same store as any other table, over an engine in memory, and
//! what reads or writes tables by a handle does so with it; ids of its own kind tell the two apart ([`TableId::is_temporary`]).
//!
//! Rows that are changed or deleted stay among the recent rows, as they would until a delivery: what they take is bounded for all sessions
//! together (`temporary_room.rs`).
//!
//! [`TableId::is_temporary`]: tarn_types::TableId::is_temporary

use std::sync::Arc;

use parking_lot::Mutex;
use tarn_rows::{Engine, MemoryEngine, Table, Tuning};
use tarn_types::TableSchema;
use tokio::sync::{Notify, mpsc};

use crate::catalog::{TableHandle, WayIn};
use crate::error::Result;
use crate::node::Node;
use crate::unlogged::Unlogged;

impl Node {
    /// Makes a temporary table, empty. It is there as long as somebody holds the handle. Its id is given here; options that are about the
    /// log or the lake mean nothing.
    ///
    /// Errors: the definition does not hold together. Cost: no IO.
    pub fn temporary_table(&self, mut schema: TableSchema) -> Result<Arc<TableHandle>> {
        self.check_open()?;
        let parts = self.parts();
        schema.id = parts.temporary.next_id();
        schema.first_tablet = schema.id.0.into();
        let (clock, bytes) = (Arc::clone(&parts.clock), parts.temporary.bytes());
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::counted_in(bytes));
        let schema = Arc::new(schema);
        let table = Table::open_tuned(engine, Arc::clone(&schema), clock, Tuning::default(), Arc::clone(bytes))?;
        let table = Arc::new(table);
        table.finish_replay()?;
        // Nobody works on it in the background.
        let (jobs, _) = mpsc::channel(1);
        Ok(Arc::new(TableHandle {
            schema,
            way_in: WayIn::Unlogged(Unlogged::new(Arc::clone(&table))),
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
