//! What does a read of an object get? The bytes of one state of it: pages that are near, and the rest in as few
//! requests as possible.
//!
//! Which state, is decided first, and never by the cache alone:
//!
//! | the caller | the state |
//! |---|---|
//! | hands a [`ReadRequest`] with one (a query knows it from the metastore), or an `if_match` with one ETag | that one; nobody is asked |
//! | says nothing, [`Trust::WrittenOnce`] | the one seen before, else what a HEAD says |
//! | says nothing, [`Trust::Checked`] | what a HEAD says, each time |
//!
//! Every page is fetched under the condition that it is of that state, so an object that was overwritten in place is
//! never answered with bytes of two states, or of an old one. Who knows the checksums of an object hands them in with
//! its [`ReadRequest`], and gets no byte, from the store or from a page that was fetched with them, that is not what
//! was written.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};

use tarn_metastore::Checksums;

use super::bytes::{joined, pieces};
use super::cache::{Origin, PageCache};
use super::fetch::{changed, damaged};
use super::key::{Object, ObjectState, is_strong};
use super::plan::pages_of;
use super::stats::{Meter, NotUsed, PageStats, PageUsage};
use crate::finally::DropGuard;

/// How much of a long read is held in memory at once.
const WINDOW_BYTES: u64 = 16 << 20;
/// How often a read starts again because the object was replaced while it ran.
const MAX_STARTS: usize = 3;

/// Whether an object of a store can become another one under the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// No: names are never used again (the lake's own files). What was seen of an object stays true until it is deleted
    /// through this store.
    WrittenOnce,
    /// Yes: a read that does not say which state it means asks the store first.
    Checked,
}

/// What a caller knows and wants of one read: in the `extensions` of [`GetOptions`], or handed to
/// [`PageStore::read_ranges`].
#[derive(Debug, Clone, Default)]
pub struct ReadRequest {
    /// The state that is meant. The answer is of this state, or an error.
    pub state: Option<ObjectState>,
    /// Go past the cache.
    pub bypass: bool,
    /// Where to count what this read got.
    pub usage: Option<PageUsage>,
    /// Of the object: what the store gives is held against them before anybody sees it or it is kept. A read that does
    /// not match is an error with a [`tarn_metastore::Damage`] in it, and nothing of it is kept.
    pub checksums: Option<Arc<Checksums>>,
}

/// An object store whose reads go through a [`PageCache`]. Writes and listings pass through.
#[derive(Debug)]
pub struct PageStore {
    inner: Arc<dyn ObjectStore>,
    cache: PageCache,
    name: Arc<str>,
    trust: Trust,
}

/// Whose bytes a read is about.
enum ObjectVersion {
    /// The caller's own choice.
    Given(Arc<Object>),
    /// What the store, or the cache of a store that is written once, said a moment ago.
    Found(Arc<Object>),
    Bypass(NotUsed),
}

impl PageStore {
    /// `inner` behind `cache`. `name` tells its objects from those of other stores that share the cache, in every run
    /// (its URL, say).
    pub fn new(inner: Arc<dyn ObjectStore>, cache: PageCache, name: &str, trust: Trust) -> Self {
        PageStore { inner, cache, name: name.into(), trust }
    }

    /// The cache behind it.
    pub fn cache(&self) -> &PageCache {
        &self.cache
    }

    /// The bytes of `ranges`, in their order. A range that ends behind the object is cut there, an empty one gives no
    /// bytes.
    ///
    /// Cost: the missing pages, adjacent ones in one request; see the table above for a HEAD. A page in memory is
    /// handed out without a copy, unless less than half of it is asked for. Errors: those of the store; `Precondition`
    /// when the object no longer has the state that `ask` names and a page of it is missing.
    pub async fn read_ranges(&self, location: &Path, ranges: &[Range<u64>], ask: &ReadRequest) -> Result<Vec<Bytes>> {
        let meter = self.cache.meter(ask.usage.clone());
        for _ in 0..MAX_STARTS {
            let (object, given) = match self.meant(location, None, ask, &meter).await? {
                ObjectVersion::Bypass(why) => return self.past_the_cache(location, ranges, ask, why, &meter).await,
                ObjectVersion::Given(object) => (object, true),
                ObjectVersion::Found(object) => (object, false),
            };
            match self.ranges_of(&object, ranges, ask.checksums.as_ref(), &meter).await {
                Err(error) if !given && is_replaced(&error) => self.replaced(location, &meter),
                answer => return answer,
            }
        }
        self.past_the_cache(location, ranges, ask, NotUsed::Changing, &meter).await
    }

    async fn past_the_cache(
        &self,
        location: &Path,
        ranges: &[Range<u64>],
        ask: &ReadRequest,
        why: NotUsed,
        meter: &Meter,
    ) -> Result<Vec<Bytes>> {
        meter.not_used(why);
        let Some(checksums) = &ask.checksums else { return self.get_as_they_are(location, ranges, ask).await };
        let plan = checksums.plan(ranges);
        let read = self.get_as_they_are(location, plan.runs(), ask).await?;
        plan.take(&read).map_err(damaged)
    }

    /// Past the cache, and not held against any checksum.
    async fn get_as_they_are(&self, location: &Path, ranges: &[Range<u64>], ask: &ReadRequest) -> Result<Vec<Bytes>> {
        let Some(state) = &ask.state else { return self.inner.get_ranges(location, ranges).await };
        let ranges = within(location, ranges, state.size_bytes)?;
        let fetch = |range: Range<u64>| async move {
            if range.is_empty() {
                return Ok(Bytes::new());
            }
            let options = GetOptions { range: Some(range.into()), ..GetOptions::default() };
            self.get_as_meant(location, options, ask).await?.bytes().await
        };
        object_store::coalesce_ranges(&ranges, fetch, object_store::OBJECT_STORE_COALESCE_DEFAULT).await
    }

    /// Past the cache too, the answer is of the state that is meant.
    async fn get_as_meant(&self, location: &Path, mut options: GetOptions, ask: &ReadRequest) -> Result<GetResult> {
        let Some(state) = &ask.state else { return self.inner.get_opts(location, options).await };
        let etag = state.strong_etag().map(str::to_owned);
        options.if_match = options.if_match.or(etag);
        let got = self.inner.get_opts(location, options).await?;
        if state.agrees(&got.meta) { Ok(got) } else { Err(changed(location)) }
    }

    /// Which object a read is about.
    async fn meant(
        &self,
        location: &Path,
        if_match: Option<&str>,
        ask: &ReadRequest,
        meter: &Meter,
    ) -> Result<ObjectVersion> {
        if ask.bypass || !self.cache.is_on() {
            return Ok(ObjectVersion::Bypass(if ask.bypass { NotUsed::Asked } else { NotUsed::Off }));
        }
        if let Some(state) = &ask.state
            && (state.identifies() || self.trust == Trust::WrittenOnce)
        {
            return Ok(match if_match {
                Some(etag) if state.strong_etag() != Some(etag) => ObjectVersion::Bypass(NotUsed::Conditions),
                _ => {
                    let object = Object::new(&self.name, location, state.clone());
                    self.cache.intern(object).map_or(ObjectVersion::Bypass(NotUsed::Hash), ObjectVersion::Given)
                }
            });
        }
        let known = match if_match {
            Some(etag) if !is_strong(etag) => return Ok(ObjectVersion::Bypass(NotUsed::Conditions)),
            Some(etag) => self.cache.with_etag(&self.name, location, etag).map(ObjectVersion::Given),
            None if self.trust == Trust::WrittenOnce => {
                self.cache.current(&self.name, location).map(ObjectVersion::Found)
            }
            None => None,
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let writes = self.cache.writes();
        meter.add(PageStats { heads: 1, ..PageStats::default() });
        let options = GetOptions { head: true, if_match: if_match.map(str::to_owned), ..GetOptions::default() };
        let head = self.inner.get_opts(location, options).await;
        let head = head.inspect_err(|_| meter.add(PageStats { failures: 1, ..PageStats::default() }))?;
        if ask.state.as_ref().is_some_and(|state| !state.agrees(&head.meta)) {
            return Err(changed(location));
        }
        let object = Object::new(&self.name, location, ObjectState::of(&head.meta));
        Ok(match (self.cache.found(object, writes), if_match) {
            (None, _) => ObjectVersion::Bypass(NotUsed::Hash),
            (Some(object), Some(_)) => ObjectVersion::Given(object),
            (Some(object), None) => ObjectVersion::Found(object),
        })
    }

    fn replaced(&self, location: &Path, meter: &Meter) {
        self.cache.forget(&self.name, location);
        meter.add(PageStats { replaced: 1, ..PageStats::default() });
    }

    async fn ranges_of(
        &self,
        object: &Arc<Object>,
        ranges: &[Range<u64>],
        checksums: Option<&Arc<Checksums>>,
        meter: &Meter,
    ) -> Result<Vec<Bytes>> {
        let cut = within(&object.path, ranges, object.state.size_bytes)?;
        let page_bytes = u64::from(self.cache.options().page_bytes);
        let mut asked: Vec<u32> = cut.iter().flat_map(|range| pages_of(range, page_bytes)).collect();
        asked.sort_unstable();
        asked.dedup();
        let pages = self.cache.read(&Origin { store: &self.inner, object, checksums }, &asked, meter).await?;
        meter.add(PageStats { asked_bytes: cut.iter().map(|r| r.end - r.start).sum(), ..PageStats::default() });
        Ok(cut.iter().map(|range| joined(pieces(&pages, range, page_bytes), range)).collect())
    }

    /// The bytes of `range` as they come, a window at a time; the first window is there when this returns.
    async fn stream_of(
        &self,
        object: &Arc<Object>,
        range: &Range<u64>,
        checksums: Option<Arc<Checksums>>,
        meter: &Meter,
    ) -> Result<BoxStream<'static, Result<Bytes>>> {
        let page_bytes = u64::from(self.cache.options().page_bytes);
        let window_pages = (WINDOW_BYTES / page_bytes).max(1) as usize;
        let pages: Vec<u32> = pages_of(range, page_bytes).collect();
        let mut windows = pages.chunks(window_pages).map(<[u32]>::to_vec).collect::<Vec<_>>().into_iter();
        let from = Origin { store: &self.inner, object, checksums: checksums.as_ref() };
        let first = match windows.next() {
            Some(window) => self.cache.read(&from, &window, meter).await?,
            None => Default::default(),
        };
        meter.add(PageStats { asked_bytes: range.end - range.start, ..PageStats::default() });
        let (cache, inner, object, meter) =
            (self.cache.clone(), Arc::clone(&self.inner), Arc::clone(object), meter.clone());
        let later = stream::iter(windows).then(move |window| {
            let (cache, inner, object, meter) = (cache.clone(), Arc::clone(&inner), Arc::clone(&object), meter.clone());
            let checksums = checksums.clone();
            async move {
                let from = Origin { store: &inner, object: &object, checksums: checksums.as_ref() };
                cache.read(&from, &window, &meter).await
            }
        });
        let range = range.clone();
        let pieces = stream::iter([Ok(first)]).chain(later).flat_map(move |window| {
            stream::iter(match window {
                Ok(pages) => pieces(&pages, &range, page_bytes).into_iter().map(Ok).collect::<Vec<_>>(),
                Err(error) => vec![Err(error)],
            })
        });
        Ok(pieces.boxed())
    }
}

/// `ranges` cut at the end of an object of `size` bytes. Errors: one that begins behind it.
fn within(location: &Path, ranges: &[Range<u64>], size: u64) -> Result<Vec<Range<u64>>> {
    let cut = ranges.iter().map(|range| match range {
        range if range.start >= range.end && range.start <= size => Ok(range.start..range.start),
        range => GetRange::Bounded(range.clone()).as_range(size).map_err(|e| out_of_range(location, e)),
    });
    cut.collect()
}

fn is_replaced(error: &Error) -> bool {
    matches!(error, Error::Precondition { .. } | Error::NotFound { .. })
}

fn out_of_range(location: &Path, error: impl fmt::Display) -> Error {
    Error::Generic { store: "PageStore", source: format!("{location}: {error}").into() }
}

impl fmt::Display for PageStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageStore({})", self.inner)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl ObjectStore for PageStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        // Also after an error: it may have happened.
        let _written = DropGuard(|| self.cache.forget(&self.name, location));
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.cache.forget(&self.name, location);
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if options.head {
            return self.inner.get_opts(location, options).await;
        }
        let ask = options.extensions.get::<ReadRequest>().cloned().unwrap_or_default();
        let meter = self.cache.meter(ask.usage.clone());
        let only_the_store_can_judge = options.if_none_match.is_some()
            || options.if_modified_since.is_some()
            || options.if_unmodified_since.is_some()
            || options.version.is_some()
            || options.range.as_ref().is_some_and(|range| range.is_valid().is_err());
        let mut why = NotUsed::Changing;
        for _ in 0..MAX_STARTS {
            let meant = match only_the_store_can_judge {
                true => ObjectVersion::Bypass(NotUsed::Conditions),
                false => self.meant(location, options.if_match.as_deref(), &ask, &meter).await?,
            };
            let (object, given) = match meant {
                ObjectVersion::Bypass(reason) => {
                    why = reason;
                    break;
                }
                ObjectVersion::Given(object) => (object, true),
                ObjectVersion::Found(object) => (object, false),
            };
            let range = match &options.range {
                Some(range) => range.as_range(object.state.size_bytes).map_err(|e| out_of_range(location, e))?,
                None => 0..object.state.size_bytes,
            };
            match self.stream_of(&object, &range, ask.checksums.clone(), &meter).await {
                Err(error) if !given && is_replaced(&error) => self.replaced(location, &meter),
                Err(error) => return Err(error),
                Ok(stream) => {
                    return Ok(GetResult {
                        payload: GetResultPayload::Stream(stream),
                        meta: object.meta(),
                        range,
                        attributes: Default::default(),
                    });
                }
            }
        }
        meter.not_used(why);
        self.get_as_meant(location, options, &ask).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.read_ranges(location, ranges, &ReadRequest::default()).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (cache, name) = (self.cache.clone(), Arc::clone(&self.name));
        let asked = locations.inspect(move |location| {
            if let Ok(location) = location {
                cache.forget(&name, location);
            }
        });
        let (cache, name) = (self.cache.clone(), Arc::clone(&self.name));
        let deleted = self.inner.delete_stream(asked.boxed()).inspect(move |location| {
            if let Ok(location) = location {
                cache.forget(&name, location);
            }
        });
        deleted.boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let _written = DropGuard(|| self.cache.forget(&self.name, to));
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let _written = DropGuard(|| [from, to].iter().for_each(|path| self.cache.forget(&self.name, path)));
        self.inner.rename_opts(from, to, options).await
    }
}
