//! How do missing pages come from the store? One ranged, conditional read per run of pages, cut into pages of their
//! own.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResult, GetResultPayload, ObjectStore};

use tarn_metastore::{ChecksumVerifier, Checksums, Damage};

use super::bytes::PageBytes;
use super::key::Object;
use super::stats::{Meter, PageStats};

/// Pages by number.
pub(crate) type Pages = Vec<(u32, PageBytes)>;

/// Reads pages `run` of `object` as it is named: a store that now has another state gives `Precondition`. With
/// `checksums` the read is as much wider as it takes to check every byte, and pages come back only if all of it is what
/// was written.
pub(crate) async fn fetch(
    store: &dyn ObjectStore,
    object: &Object,
    run: Range<u32>,
    page_bytes: u64,
    checksums: Option<&Checksums>,
    meter: &Meter,
) -> object_store::Result<Pages> {
    let pages = u64::from(run.start) * page_bytes..(u64::from(run.end) * page_bytes).min(object.state.size_bytes);
    let range = checksums.map_or(pages.clone(), |checksums| checksums.around(&pages));
    let options = GetOptions {
        range: Some(GetRange::Bounded(range.clone())),
        if_match: object.state.strong_etag().map(str::to_owned),
        ..GetOptions::default()
    };
    meter.add(PageStats { requests: 1, ..PageStats::default() });
    let read = async {
        let got = store.get_opts(&object.path, options).await?;
        if !object.state.agrees(&got.meta) {
            return Err(changed(&object.path));
        }
        if got.range != range {
            return Err(short(object, &range, got.range.end.saturating_sub(got.range.start)));
        }
        let check = checksums.map(|checksums| checksums.checking(range.start));
        cut(got, object, &PageSlice { range: range.clone(), pages, run, page_bytes }, check).await
    };
    let fetched = read.await.inspect_err(|_| meter.add(PageStats { failures: 1, ..PageStats::default() }))?;
    meter.add(PageStats { remote_bytes: range.end - range.start, ..PageStats::default() });
    Ok(fetched)
}

/// What of a read is pages.
struct PageSlice {
    range: Range<u64>,
    /// Within it: all pages together.
    pages: Range<u64>,
    run: Range<u32>,
    page_bytes: u64,
}

/// Copies what arrives into pages, each in memory of its own. More or fewer bytes than promised is an error, and so are
/// others.
async fn cut(
    got: GetResult,
    object: &Object,
    of: &PageSlice,
    mut check: Option<ChecksumVerifier<'_>>,
) -> object_store::Result<Pages> {
    let PageSlice { range, pages: wanted, run, page_bytes } = of;
    let mut arriving = match got.payload {
        GetResultPayload::File(..) => futures::stream::iter([got.bytes().await]).boxed(),
        GetResultPayload::Stream(stream) => stream,
    };
    let page_len = |page| object.page_len(page, *page_bytes) as usize;
    let mut pages: Pages = vec![];
    let mut page: Vec<u8> = Vec::with_capacity(page_len(run.start));
    let mut n_bytes = 0u64;
    while let Some(piece) = arriving.next().await {
        let mut piece = piece?;
        if let Some(check) = &mut check {
            check.feed(&piece).map_err(damaged)?;
        }
        let (at, len) = (range.start + n_bytes, piece.len() as u64);
        n_bytes += len;
        if n_bytes > range.end - range.start {
            return Err(short(object, range, n_bytes));
        }
        let upto = wanted.end.saturating_sub(at).min(len);
        piece = piece.slice(wanted.start.saturating_sub(at).min(upto) as usize..upto as usize);
        while !piece.is_empty() {
            let number = run.start + pages.len() as u32;
            if number >= run.end {
                return Err(short(object, range, n_bytes));
            }
            let fits = (page_len(number) - page.len()).min(piece.len());
            page.extend_from_slice(&piece.split_to(fits));
            if page.len() == page_len(number) {
                let next = if number + 1 < run.end { page_len(number + 1) } else { 0 };
                let whole = Bytes::from(std::mem::replace(&mut page, Vec::with_capacity(next)));
                pages.push((number, whole.into()));
            }
        }
    }
    if n_bytes != range.end - range.start {
        return Err(short(object, range, n_bytes));
    }
    check.map_or(Ok(()), ChecksumVerifier::finish).map_err(damaged)?;
    Ok(pages)
}

/// What a reader is told whose object has become another one.
pub(crate) fn changed(path: &Path) -> object_store::Error {
    object_store::Error::Precondition {
        path: path.to_string(),
        source: "the object is not the one that was meant".into(),
    }
}

/// What a reader is told of bytes that are not those that were written.
pub(crate) fn damaged(damage: Damage) -> object_store::Error {
    object_store::Error::Generic { store: "PageStore", source: damage.into() }
}

fn short(object: &Object, range: &Range<u64>, n_bytes: u64) -> object_store::Error {
    let source = format!("{}: {n_bytes} bytes for {}..{}", object.path, range.start, range.end);
    object_store::Error::Generic { store: "PageStore", source: source.into() }
}

/// The same error once more: those who waited for one read are told what its reader is told.
pub(crate) fn again(error: &Arc<object_store::Error>) -> object_store::Error {
    use object_store::Error as E;
    let source = Box::new(Arc::clone(error));
    match error.as_ref() {
        E::NotFound { path, .. } => E::NotFound { path: path.clone(), source },
        E::Precondition { path, .. } => E::Precondition { path: path.clone(), source },
        E::NotModified { path, .. } => E::NotModified { path: path.clone(), source },
        E::AlreadyExists { path, .. } => E::AlreadyExists { path: path.clone(), source },
        E::PermissionDenied { path, .. } => E::PermissionDenied { path: path.clone(), source },
        E::Unauthenticated { path, .. } => E::Unauthenticated { path: path.clone(), source },
        E::NotSupported { .. } => E::NotSupported { source },
        _ => E::Generic { store: "PageStore", source },
    }
}
