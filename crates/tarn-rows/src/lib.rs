//! Here is a key: give me the row. The hot side of tables: engines, tablets, recent rows, addresses, the change log.
//!
//! - [`Engine`]: ordered bytes with snapshots and no log of their own; [`RocksEngine`] on disk, [`MemoryEngine`] in tests,
//!   [`contract`] for both.
//! - [`Table`]: applies committed entries, serves keys and [`HotSnapshot`]s, hands recent rows to a delivery
//!   ([`tarn_feed::HotTable`]), evicts what the lake holds, comes back from the log after a crash.
//! - [`Changes`]: the table's [`tarn_feed::ChangeLog`].
//!
//! Who keeps the log, who agrees on its entries and what a lake file is are other rooms' business.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod changes;
pub mod contract;
mod deliver;
mod engine;
mod error;
mod evict;
mod hide;
mod layout;
mod recent;
mod replay;
mod resolve;
mod snapshot;
mod table;

pub use changes::{Changes, EntrySource};
pub use engine::{
    Engine, EngineSnapshot, EngineStats, MemoryEngine, RocksEngine, RocksOptions, RowIter, Space, StagedFile,
    WriteBatch,
};
pub use error::{Error, Result};
pub use evict::EvictReport;
pub use snapshot::{HotSnapshot, KeyRange, Lookup, RowScan};
pub use table::{FlushMark, Outcome, Table, Tuning};
