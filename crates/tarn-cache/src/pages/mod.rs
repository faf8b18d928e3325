//! Pages of objects near by: memory in front of a local folder, original bytes.
//!
//! Reading order: [`key`] which state of which object; [`plan`] which pages and requests; [`cache`] the pages and who fetches them;
//! [`store`] the object store around it; below them [`s3fifo`] what goes, [`disk`] the folder, [`format`] one file, [`stats`] counters.

mod cache;
mod disk;
mod fetch;
mod format;
mod key;
mod plan;
mod s3fifo;
mod stats;
mod store;

pub use cache::{Cleared, PageCache, PageOptions};
pub use key::ObjectState;
pub(crate) use key::Slot;
pub(crate) use s3fifo::S3Fifo;
pub use stats::{NotUsed, PageStats, PageUsage, PagesHeld};
pub use store::{Ask, PageStore, Trust};
