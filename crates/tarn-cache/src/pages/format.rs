//! How does a page's file name its page? Layout: docs/formats/page.md.

use std::sync::Arc;

use object_store::path::Path;

use super::key::{Object, ObjectState};
use crate::disk_cache::{DiskKey, EntryId};

/// Bytes before the names.
const FIXED_BYTES: usize = 36;
const HAS_ETAG: u8 = 1;
const HAS_TIME: u8 = 2;

/// A page as its file knows it.
#[derive(Debug, Clone)]
pub(crate) struct FiledPage {
    /// In one state of it.
    pub object: Arc<Object>,
    /// Counted from the object's begin.
    pub page: u32,
    /// The size that pages had when it was written: one of another size is of no use.
    pub page_bytes: u32,
}

impl PartialEq for FiledPage {
    fn eq(&self, other: &Self) -> bool {
        self.page == other.page && self.page_bytes == other.page_bytes && self.object.is_same(&other.object)
    }
}

impl FiledPage {
    fn names(&self) -> [&[u8]; 3] {
        let etag = self.object.state.etag.as_deref().unwrap_or_default();
        [self.object.store.as_bytes(), self.object.path.as_ref().as_bytes(), etag.as_bytes()]
    }
}

impl DiskKey for FiledPage {
    const MAGIC: [u8; 4] = *b"TPG\x02";
    /// Copies out of the system's page cache are faster where its own pages begin. It costs a file one block at most.
    const ALIGN: usize = 4096;
    const ITEM_DIGITS: usize = 8;

    fn entry_id(&self) -> EntryId {
        EntryId { group: self.object.id, item: self.page.into() }
    }

    /// `None`: a name is 64 KiB or longer.
    fn encode(&self) -> Option<Vec<u8>> {
        let state = &self.object.state;
        let flags = state.etag.as_ref().map_or(0, |_| HAS_ETAG) | state.modified_ns.map_or(0, |_| HAS_TIME);
        let mut out = Vec::with_capacity(self.encoded_len());
        out.extend(self.page.to_le_bytes());
        out.extend(self.page_bytes.to_le_bytes());
        out.extend(state.size_bytes.to_le_bytes());
        out.extend(state.modified_ns.unwrap_or(0).to_le_bytes());
        out.extend([flags, 0, 0, 0, 0, 0]);
        for name in self.names() {
            out.extend(u16::try_from(name.len()).ok()?.to_le_bytes());
        }
        self.names().iter().for_each(|name| out.extend(*name));
        Some(out)
    }

    fn encoded_len(&self) -> usize {
        FIXED_BYTES + self.names().iter().map(|name| name.len()).sum::<usize>()
    }

    fn matches(&self, encoded: &[u8]) -> bool {
        let Some(found) = PageName::read(encoded) else { return false };
        let (mine, theirs) = (&self.object.state, &found);
        let times_agree = mine.strong_etag().is_some() || mine.modified_ns == theirs.modified_ns;
        self.page == found.page
            && self.page_bytes == found.page_bytes
            && mine.size_bytes == theirs.size_bytes
            && mine.etag.as_deref() == theirs.etag
            && times_agree
            && *self.object.store == *found.store
            && self.object.path.as_ref() == found.path
    }

    fn value_len(&self) -> Option<u64> {
        Some(self.object.page_len(self.page, self.page_bytes.into()))
    }
}

/// What a page's file says it is.
#[derive(Debug, PartialEq)]
pub(crate) struct PageName<'a> {
    page: u32,
    pub page_bytes: u32,
    size_bytes: u64,
    modified_ns: Option<i64>,
    store: &'a str,
    path: &'a str,
    etag: Option<&'a str>,
}

impl<'a> PageName<'a> {
    pub(crate) fn read(encoded: &'a [u8]) -> Option<Self> {
        let fixed = encoded.get(..FIXED_BYTES)?;
        let number = |at: usize, len: usize| fixed[at..at + len].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
        let flags = fixed[24];
        let names = std::str::from_utf8(&encoded[FIXED_BYTES..]).ok()?;
        let (store, rest) = names.split_at_checked(number(30, 2) as usize)?;
        let (path, etag) = rest.split_at_checked(number(32, 2) as usize)?;
        (etag.len() as u64 == number(34, 2)).then(|| PageName {
            page: number(0, 4) as u32,
            page_bytes: number(4, 4) as u32,
            size_bytes: number(8, 8),
            modified_ns: (flags & HAS_TIME != 0).then(|| number(16, 8) as i64),
            store,
            path,
            etag: (flags & HAS_ETAG != 0).then_some(etag),
        })
    }

    /// Whose page it is. `None`: no store has such a path.
    pub(crate) fn object(&self) -> Option<Object> {
        let state = ObjectState {
            size_bytes: self.size_bytes,
            etag: self.etag.map(str::to_owned),
            modified_ns: self.modified_ns,
        };
        Some(Object::new(&Arc::from(self.store), &Path::parse(self.path).ok()?, state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(path: &str, etag: Option<&str>, modified_ns: Option<i64>, page: u32) -> FiledPage {
        let state = ObjectState { size_bytes: 25, etag: etag.map(str::to_owned), modified_ns };
        let object = Object::new(&"s3://bucket".into(), &Path::from(path), state);
        FiledPage { object: Arc::new(object), page, page_bytes: 10 }
    }

    #[test]
    fn a_name_comes_back() {
        for etag in [None, Some(""), Some("\"abc\"")] {
            for time in [None, Some(-1_700_000_000_000_000_000)] {
                let key = page("a/ü b.parquet", etag, time, 2);
                let encoded = key.encode().unwrap();
                assert_eq!(encoded.len(), key.encoded_len());
                assert!(key.matches(&encoded));
                let name = PageName::read(&encoded).unwrap();
                assert_eq!((name.page, name.page_bytes, name.object().unwrap()), (2, 10, (*key.object).clone()));
                assert!((0..encoded.len()).all(|len| !key.matches(&encoded[..len])));
            }
        }
        assert_eq!(page("a", None, None, 2).value_len(), Some(5));
    }

    #[test]
    fn another_page_object_or_state_does_not_match() {
        let encoded = page("a", Some("x"), Some(1), 1).encode().unwrap();
        assert!(page("a", Some("x"), None, 1).matches(&encoded), "a strong ETag is enough");
        let others = [("b", "x", Some(1), 1), ("a", "y", Some(1), 1), ("a", "x", Some(1), 0), ("a", "", Some(1), 1)];
        for (path, etag, time, number) in others {
            assert!(!page(path, Some(etag), time, number).matches(&encoded), "{path} {etag} {number}");
        }
        let weak = page("a", Some("W/x"), Some(1), 1).encode().unwrap();
        assert!(page("a", Some("W/x"), Some(1), 1).matches(&weak));
        assert!(!page("a", Some("W/x"), Some(2), 1).matches(&weak));
        assert_eq!(page(&"a".repeat(70_000), None, None, 0).encode(), None);
    }
}
