//! What do readers share? 64 readers of 8 objects, cold; and what is left of 64 hot pages after a scan of four times
//! the room.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tarn_cache::{PageCache, PageOptions, PageStore, Trust};
use tokio::runtime::Handle;

use crate::remote::{Link, Remote};
use crate::report::Report;

const READERS: usize = 64;
const OBJECTS: usize = 8;
const PAGE: u64 = 64 << 10;
const OBJECT_PAGES: u64 = 128;
const HOT_PAGES: u64 = 64;
/// Pages that memory has room for.
const ROOM_PAGES: u64 = 512;

/// Adds how often pages were fetched, and how many of the hot ones were left.
pub async fn run(report: &mut Report, progress: &impl Fn(&str)) -> Result<()> {
    progress("shared: 64 readers of 8 objects");
    let near: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    for object in 0..OBJECTS {
        near.put(&Path::from(format!("{object}")), vec![object as u8; (OBJECT_PAGES * PAGE) as usize].into()).await?;
    }
    let link = Link { latency: Duration::from_millis(10), bytes_per_second: 500_000_000 };
    let remote = Arc::new(Remote::new(Arc::clone(&near), link));
    let store = opened(Arc::clone(&remote) as Arc<dyn ObjectStore>, 1 << 30)?;
    let readers: Vec<_> = (0..READERS)
        .map(|reader| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for i in 0..OBJECTS {
                    let path = Path::from(format!("{}", (reader + i) % OBJECTS));
                    store.get_range(&path, 0..OBJECT_PAGES * PAGE).await?;
                }
                Ok::<(), object_store::Error>(())
            })
        })
        .collect();
    for reader in readers {
        reader.await??;
    }
    let stats = store.cache().stats();
    let n_pages = OBJECTS as f64 * OBJECT_PAGES as f64;
    report.figure("shared_fetched_of_each_page".into(), "times", &[stats.misses as f64 / n_pages]);
    report.figure("shared_bytes_over_objects".into(), "ratio", &[stats.remote_bytes as f64 / n_pages / PAGE as f64]);

    progress("shared: a scan beside what is hot");
    near.put(&Path::from("hot"), vec![1; (HOT_PAGES * PAGE) as usize].into()).await?;
    near.put(&Path::from("scan"), vec![2; (4 * ROOM_PAGES * PAGE) as usize].into()).await?;
    let store = opened(near, ROOM_PAGES * PAGE)?;
    let hot = Path::from("hot");
    for _ in 0..3 {
        store.get_range(&hot, 0..HOT_PAGES * PAGE).await?;
    }
    for page in 0..4 * ROOM_PAGES {
        store.get_range(&Path::from("scan"), page * PAGE..(page + 1) * PAGE).await?;
    }
    let before = store.cache().stats().ram_hits;
    store.get_range(&hot, 0..HOT_PAGES * PAGE).await?;
    let left = store.cache().stats().ram_hits - before;
    report.figure("hot_pages_left_of_64_after_scan".into(), "pages", &[left as f64]);
    Ok(())
}

fn opened(inner: Arc<dyn ObjectStore>, ram_bytes: u64) -> Result<Arc<PageStore>> {
    let options = PageOptions { page_bytes: PAGE as u32, ram_bytes, ..PageOptions::default() };
    let cache = PageCache::open(options, Handle::current())?;
    Ok(Arc::new(PageStore::new(inner, cache, "bench", Trust::WrittenOnce)))
}
