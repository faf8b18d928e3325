//! What is a fragment the answer to? A question that the query room encodes, within a scope.

use std::sync::Arc;

use bytes::Bytes;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::disk_cache::{DiskKey, EntryId};

/// What a fragment is the answer to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FragmentKey {
    /// What is cleared together: a table.
    pub scope: Arc<str>,
    /// The whole question in one canonical form: compared, not only hashed.
    pub bytes: Bytes,
}

/// Memory of a fragment besides its key's and value's bytes.
const ENTRY_BYTES: u64 = 256;

/// Where the fragments of a scope lie.
pub(super) fn group(scope: &str) -> u128 {
    xxh3_128(scope.as_bytes())
}

/// Layout: docs/formats/fragment.md.
impl DiskKey for FragmentKey {
    const MAGIC: [u8; 4] = *b"TFR\x01";
    /// Most are small.
    const ALIGN: usize = 64;
    const ITEM_DIGITS: usize = 32;

    fn entry_id(&self) -> EntryId {
        let mut hash = Xxh3::new();
        for field in [self.scope.as_bytes(), &self.bytes] {
            hash.update(&(field.len() as u64).to_le_bytes());
            hash.update(field);
        }
        EntryId { group: group(&self.scope), item: hash.digest128() }
    }

    fn encode(&self) -> Option<Vec<u8>> {
        let scope_len = u32::try_from(self.scope.len()).ok()?;
        Some([&scope_len.to_le_bytes(), self.scope.as_bytes(), &self.bytes].concat())
    }

    fn encoded_len(&self) -> usize {
        4 + self.scope.len() + self.bytes.len()
    }

    fn memory_bytes(&self) -> u64 {
        ENTRY_BYTES + self.scope.len() as u64 + self.bytes.len() as u64
    }

    fn matches(&self, encoded: &[u8]) -> bool {
        let rest = encoded.strip_prefix(&(self.scope.len() as u32).to_le_bytes());
        rest.and_then(|rest| rest.strip_prefix(self.scope.as_bytes())).is_some_and(|bytes| bytes == self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(scope: &str, bytes: &str) -> FragmentKey {
        FragmentKey { scope: scope.into(), bytes: Bytes::copy_from_slice(bytes.as_bytes()) }
    }

    #[test]
    fn where_scope_ends_and_question_begins_is_part_of_the_key() {
        let (ab, a) = (key("ab", "c"), key("a", "bc"));
        assert_ne!(ab.entry_id().item, a.entry_id().item);
        assert_eq!(key("a", "b").entry_id().group, key("a", "c").entry_id().group);
        let encoded = ab.encode().unwrap();
        assert_eq!(encoded.len(), ab.encoded_len());
        assert!(ab.matches(&encoded) && !a.matches(&encoded) && !key("ab", "").matches(&encoded));
        assert!((0..encoded.len()).all(|len| !ab.matches(&encoded[..len])));
    }
}
