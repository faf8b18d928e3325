//! Which state of which object do these bytes belong to? Two answers are the same object only if store, path and
//! everything that tells one state from the next are equal.

use std::sync::Arc;

use chrono::DateTime;
use object_store::ObjectMeta;
use object_store::path::Path;
use xxhash_rust::xxh3::Xxh3;

/// What tells one state of an object from the next.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ObjectState {
    /// Size of the whole object.
    pub size_bytes: u64,
    /// ETag, where the store gives one. A strong one identifies the state together with the size.
    pub etag: Option<String>,
    /// Time of last change in ns since 1970, where it is known. Part of the identity only without a strong ETag.
    pub modified_ns: Option<i64>,
}

impl ObjectState {
    /// The state that a store reports.
    pub fn of(meta: &ObjectMeta) -> Self {
        ObjectState {
            size_bytes: meta.size,
            etag: meta.e_tag.clone(),
            modified_ns: meta.last_modified.timestamp_nanos_opt(),
        }
    }

    /// Whether two different states cannot be taken for each other.
    pub(crate) fn identifies(&self) -> bool {
        self.strong_etag().is_some() || self.modified_ns.is_some()
    }

    /// The ETag, if equal ETags mean equal bytes.
    pub(crate) fn strong_etag(&self) -> Option<&str> {
        self.etag.as_deref().filter(|etag| is_strong(etag))
    }

    /// Whether an object that the store reports as `other` has this state.
    pub(crate) fn agrees(&self, other: &ObjectMeta) -> bool {
        let etags_agree = match (&self.etag, &other.e_tag) {
            (Some(mine), Some(theirs)) => mine == theirs,
            _ => true,
        };
        let known_by_etag = self.strong_etag().is_some() && other.e_tag.is_some();
        let times_agree = self.modified_ns.is_none_or(|ns| other.last_modified.timestamp_nanos_opt() == Some(ns));
        self.size_bytes == other.size && etags_agree && (known_by_etag || times_agree)
    }
}

/// Whether a condition or ETag names exactly one state: not `*`, not a list, not weak.
pub(crate) fn is_strong(etag: &str) -> bool {
    !etag.is_empty() && etag != "*" && !etag.starts_with("W/") && !etag.contains(',')
}

/// One state of one object of one store. Immutable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Object {
    /// Hash of everything below that identifies it. Equal ids of different objects are possible: whoever looks one up
    /// compares the rest.
    pub id: u128,
    /// Name of the store, the same in every run.
    pub store: Arc<str>,
    /// In the store.
    pub path: Path,
    /// What tells this content from what lies, or lay, at the same path.
    pub state: ObjectState,
}

impl Object {
    pub(crate) fn new(store: &Arc<str>, path: &Path, state: ObjectState) -> Self {
        let mut hash = Xxh3::new();
        let mut field = |bytes: &[u8]| {
            hash.update(&(bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        field(store.as_bytes());
        field(path.as_ref().as_bytes());
        field(&state.size_bytes.to_le_bytes());
        field(state.etag.as_deref().unwrap_or_default().as_bytes());
        if state.strong_etag().is_none() {
            field(&state.modified_ns.map_or([0; 8], i64::to_le_bytes));
        }
        Object { id: hash.digest128(), store: Arc::clone(store), path: path.clone(), state }
    }

    /// Whether the two name the same bytes.
    pub(crate) fn is_same(&self, other: &Object) -> bool {
        self.id == other.id
            && self.store == other.store
            && self.path == other.path
            && self.state.size_bytes == other.state.size_bytes
            && self.state.etag == other.state.etag
            && (self.state.strong_etag().is_some() || self.state.modified_ns == other.state.modified_ns)
    }

    /// What a store would report of it. A time that nobody told is 1970.
    pub(crate) fn meta(&self) -> ObjectMeta {
        ObjectMeta {
            location: self.path.clone(),
            last_modified: DateTime::from_timestamp_nanos(self.state.modified_ns.unwrap_or(0)),
            size: self.state.size_bytes,
            e_tag: self.state.etag.clone(),
            version: None,
        }
    }

    /// How many pages of `page_bytes` it has.
    pub(crate) fn n_pages(&self, page_bytes: u64) -> u64 {
        self.state.size_bytes.div_ceil(page_bytes)
    }

    /// Length of its page `page`; the last one is short.
    pub(crate) fn page_len(&self, page: u32, page_bytes: u64) -> u64 {
        page_bytes.min(self.state.size_bytes.saturating_sub(u64::from(page) * page_bytes))
    }
}

/// A page of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PageKey {
    /// The object's id.
    pub object: u128,
    /// Counted from the object's begin.
    pub page: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(size_bytes: u64, etag: Option<&str>, modified_ns: Option<i64>) -> ObjectState {
        ObjectState { size_bytes, etag: etag.map(str::to_owned), modified_ns }
    }

    #[test]
    fn a_strong_etag_identifies_and_without_one_the_time_does() {
        let store: Arc<str> = "s3://b".into();
        let object = |state| Object::new(&store, &Path::from("a"), state);
        let base = object(state(10, Some("x"), Some(1)));
        assert!(base.is_same(&object(state(10, Some("x"), None))));
        assert!(!base.is_same(&object(state(10, Some("y"), Some(1)))));
        assert!(!base.is_same(&object(state(11, Some("x"), Some(1)))));
        assert!(!base.is_same(&Object::new(&"s3://c".into(), &Path::from("a"), state(10, Some("x"), Some(1)))));
        let timed = object(state(10, None, Some(1)));
        assert!(timed.is_same(&object(state(10, None, Some(1)))));
        assert!(!timed.is_same(&object(state(10, None, Some(2)))));
        let weak = object(state(10, Some("W/x"), Some(1)));
        assert!(!weak.is_same(&object(state(10, Some("W/x"), Some(2)))));
    }

    #[test]
    fn only_one_state_is_named_by_a_strong_etag() {
        assert!(is_strong("\"abc\"") && is_strong("abc"));
        assert!(["*", "", "W/\"abc\"", "\"a\", \"b\""].iter().all(|etag| !is_strong(etag)));
    }

    #[test]
    fn the_last_page_is_short() {
        let object = Object::new(&"s".into(), &Path::from("a"), state(25, None, None));
        assert_eq!(object.n_pages(10), 3);
        assert_eq!([0, 1, 2, 3].map(|page| object.page_len(page, 10)), [10, 10, 5, 0]);
    }
}
