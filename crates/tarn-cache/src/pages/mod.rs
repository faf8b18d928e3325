//! Pages of objects near by: memory in front of a local folder, original bytes.
//!
//! Reading order: [`key`] which state of which object, [`objects`] those that are known; [`plan`] which pages and
//! requests; [`bytes`] where a page's lie; [`cache`] the pages and who fetches them; [`store`] the object store around
//! it; [`format`] how a file names its page, [`stats`] counters.

mod bytes;
mod cache;
mod fetch;
mod format;
mod key;
mod objects;
mod options;
mod plan;
mod stats;
mod store;

pub use cache::PageCache;
pub use key::ObjectState;
pub use options::PageOptions;
pub use stats::{ClearStats, NotUsed, PageStats, PageUsage, PagesHeld};
pub use store::{PageStore, ReadRequest, Trust};
