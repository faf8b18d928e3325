//! How do the requests of one call go side by side, but not too many at once?

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt, TryStreamExt};

use tarn_metastore::Result;

/// One of them; boxed, so that they can borrow what the call has.
pub(crate) type Request<'a, T> = BoxFuture<'a, Result<T>>;

/// All answers in the order of the requests, or the first error.
pub(crate) async fn answers<T>(at_once: usize, requests: Vec<Request<'_, T>>) -> Result<Vec<T>> {
    stream::iter(requests).buffered(at_once).try_collect().await
}

/// As `answers`; nothing but errors is of interest, and they come in any order.
pub(crate) async fn done(at_once: usize, requests: Vec<Request<'_, ()>>) -> Result<()> {
    stream::iter(requests).buffer_unordered(at_once).try_collect().await
}
