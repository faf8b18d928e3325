//! Is this mutation agreed, and where? The way of a batch from the front door to the rows, through the log.
//!
//! ```
//! use std::sync::Arc;
//! use tarn_raftlog::{MemoryDisk, Options, RaftLog};
//! use tarn_replica::Replica;
//! use tarn_rows::{MemoryEngine, Outcome, Table};
//! use tarn_types::{BatchBuilder, Column, ColumnId, DataType, KeyPart, ManualClock, SeqNo, TableId, TableOptions, TableSchema};
//! use tarn_types::{TabletId, Value, encode_cells, encode_key};
//!
//! let column = |id, name: &str| Column { id: ColumnId(id), name: name.into(), data_type: DataType::Int64, nullable: false, default: None };
//! let schema = Arc::new(TableSchema {
//!     id: TableId(1),
//!     name: "t".into(),
//!     columns: vec![column(1, "id"), column(2, "v")],
//!     key: vec![KeyPart { column_idx: 0, descending: false }],
//!     n_partition_key: 1,
//!     first_tablet: TabletId(1),
//!     options: TableOptions::default(),
//! });
//! let (log, _) = RaftLog::open_on(Arc::new(MemoryDisk::new(1)), Options::new("/log"))?;
//! let table = Arc::new(Table::open(Arc::new(MemoryEngine::new()), schema.clone(), Arc::new(ManualClock::new(0)))?);
//!
//! let replica = Replica::open(Arc::new(log), Arc::clone(&table), TabletId(1))?;
//! replica.replay()?;
//! table.finish_replay()?;
//!
//! let row = [Value::Int64(7), Value::Int64(42)];
//! let mut batch = BatchBuilder::new(&schema);
//! batch.put(&encode_key(&schema, &row[..1])?, &encode_cells(&schema, &row)?, None);
//! // Durable and visible on return; concurrent proposals share one flush.
//! assert_eq!(replica.propose(batch.finish())?, (Some(SeqNo(1)), Outcome::Applied { affected: 1 }));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod error;
mod reader;
mod replica;
mod replicas;

pub use error::{Error, Result};
pub use reader::LogReader;
pub use replica::{PendingBatch, Replica, group_of, propose_all, propose_named, propose_together};
pub use replicas::{PartDecision, Replicas, TabletReplay, commit_named, commit_together};
