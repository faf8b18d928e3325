//! Here is a key: give me the row. The hot side of tables: engines, tablets, recent rows, addresses, the change log.
//!
//! - [`Engine`]: ordered bytes with snapshots and no log of their own; [`RocksEngine`] on disk, [`MemoryEngine`] in
//!   tests, [`contract`] for both.
//! - [`Table`]: decides what batches come to, applies committed entries, serves keys and [`HotSnapshot`]s, hands recent
//!   rows to a delivery ([`Table::frozen`], [`Table::install`]), evicts what the lake holds, comes back from the log
//!   after a crash.
//! - [`TableChanges`]: the table's [`tarn_feed::ChangeLog`].
//!
//! Who keeps the log, who agrees on its entries and what a lake file is are other rooms' business.
//!
//! ```
//! use std::sync::Arc;
//! use tarn_rows::{Lookup, MemoryEngine, Outcome, Table, UnderWay};
//! use tarn_types::{BatchBuilder, Column, ColumnId, DataType, Entry, KeyPart, ManualClock, SeqNo, TableId, TableOptions, TableSchema};
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
//! let table = Table::open(Arc::new(MemoryEngine::new()), schema.clone(), Arc::new(ManualClock::new(0)))?;
//! table.finish_replay()?; // there is no log yet
//!
//! let key = encode_key(&schema, &[Value::Int64(7)])?;
//! let mut batch = BatchBuilder::new(&schema);
//! batch.insert(&key, &encode_cells(&schema, &[Value::Int64(7), Value::Int64(42)])?);
//! let batch = batch.finish();
//! let known = table.look_up(TabletId(1), &batch, SeqNo::ZERO)?;
//! let (outcome, effects) = table.resolve(SeqNo(1), known, &UnderWay::default())?;
//! assert_eq!(outcome, Outcome::Applied { affected: 1 });
//! table.apply(TabletId(1), SeqNo(1), &Entry::Effects(effects.unwrap()))?; // after the log has made them durable
//!
//! let snapshot = table.snapshot()?; // one moment: keys, recent rows, and which lake rows they hide
//! assert!(matches!(snapshot.get(&key)?, Lookup::Row { seqno: SeqNo(1), .. }));
//! assert_eq!(snapshot.recent(None, false)?[0].num_rows(), 1);
//! assert!(snapshot.hidden()?.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod audit;
mod changes;
pub mod contract;
mod deliver;
mod engine;
mod error;
mod evict;
mod evictions;
mod hide;
mod layout;
mod middle;
mod recent;
mod recent_bytes;
mod replay;
mod requests;
mod resolve;
mod row_scan;
mod snapshot;
mod split;
mod table;
mod tablet;
mod together;
mod under_way;
mod whose;
mod writer;

pub use changes::{EntrySource, TableChanges};
pub use engine::{
    Engine, EngineFault, EngineSnapshot, EngineStats, MemoryEngine, Remedy, RocksEngine, RocksOptions, RowIter, Space,
    StagedFile, WriteBatch,
};
pub use error::{Error, Result};
pub use evict::EvictReport;
pub use recent_bytes::RecentBytes;
pub use requests::{KEPT_ENTRIES, first_outcome, first_outcome_within};
pub use resolve::{BatchReads, Outcome};
pub use row_scan::{KeyRange, RangeOfRows, RowScan, ScannedRows};
pub use snapshot::{HotSnapshot, Lookup};
pub use table::{FlushMark, Table};
pub use tablet::Tuning;
/// How movers and readers of changes see a table: who holds one of its names needs no other crate.
pub use tarn_feed::{
    ChangeLog, DeliveryBacklog, Error as FeedError, FrozenRows, HotTable, Result as FeedResult, Stage, StagedAddresses,
};
pub use together::{EntryEffect, TabletEntry, apply_together};
pub use under_way::UnderWay;
pub use whose::{TableProgress, owner, remove, remove_tables, set_owner, standing, tables_beside, tablets_of};
