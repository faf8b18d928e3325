//! Where do the bytes of files come from? A store, and the pages of it that are near, where there are such.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStore, Result};

use crate::pages::{PageStore, ReadRequest};

/// A store as queries read it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ReadStore {
    store: Arc<dyn ObjectStore>,
    pages: Option<Arc<PageStore>>,
    /// Why there are no pages.
    why: &'static str,
}

impl ReadStore {
    /// Without pages; `why` not is said in `EXPLAIN`.
    pub fn plain(store: Arc<dyn ObjectStore>, why: &'static str) -> Self {
        ReadStore { store, pages: None, why }
    }

    /// Through pages.
    pub fn paged(pages: Arc<PageStore>) -> Self {
        ReadStore { store: Arc::clone(&pages) as _, pages: Some(pages), why: "" }
    }

    /// The store. Reads of it go through the pages too, but ask it which state of a file there is.
    pub fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// Why reads never go through pages; `None`: they do.
    pub fn not_used(&self) -> Option<&'static str> {
        self.pages.is_none().then_some(self.why)
    }

    /// Its pages.
    pub fn pages(&self) -> Option<&Arc<PageStore>> {
        self.pages.as_ref()
    }

    /// `ranges` through the pages, of the state that `ask` names, in the order of `ranges`. `None`: there are no pages.
    pub async fn read_pages(
        &self,
        path: &Path,
        ranges: &[Range<u64>],
        ask: impl FnOnce() -> ReadRequest,
    ) -> Option<Result<Vec<Bytes>>> {
        let pages = self.pages.as_ref()?;
        Some(pages.read_ranges(path, ranges, &ask()).await)
    }
}

impl fmt::Display for ReadStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}
