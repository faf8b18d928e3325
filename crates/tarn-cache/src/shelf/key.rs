//! What must a key say for its value to be kept in a file?

/// Where a value lies: by a hash of its own or its number, among those that go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Shelfmark {
    pub group: u128,
    pub item: u128,
}

/// The key of a value, as a shelf needs it. Two keys may have one mark: equality decides.
pub(crate) trait ShelfKey: Clone + PartialEq + Send + Sync + 'static {
    /// The first bytes of each file, the last of them the version of the key's layout.
    const MAGIC: [u8; 4];
    /// Values begin at a multiple of this.
    const ALIGN: usize;
    /// Hex digits of a file's name.
    const ITEM_DIGITS: usize;

    fn mark(&self) -> Shelfmark;

    /// The whole key as its file has it. `None`: it is too long to be kept.
    fn encode(&self) -> Option<Vec<u8>>;

    /// Length of what [`ShelfKey::encode`] gives.
    fn encoded_len(&self) -> usize;

    /// Whether `encoded` is this key.
    fn matches(&self, encoded: &[u8]) -> bool;

    /// Memory of the key itself, where it is not shared with others.
    fn memory_bytes(&self) -> u64 {
        0
    }

    /// How long its value must be, where the key says so.
    fn value_len(&self) -> Option<u64> {
        None
    }
}
