//! What must a key say for its value to be kept in a file?

/// Which file of the folder holds a value: the folder of its group, and in it a name that is a hash of its key or its
/// number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct EntryId {
    /// Values that go together, such as the pages of one object.
    pub group: u128,
    /// Within its group.
    pub item: u128,
}

/// The key of a value, as a disk cache needs it. Two keys may have one id: equality decides.
pub(crate) trait DiskKey: Clone + PartialEq + Send + Sync + 'static {
    /// The first bytes of each file, the last of them the version of the key's layout.
    const MAGIC: [u8; 4];
    /// Values begin at a multiple of this.
    const ALIGN: usize;
    /// Hex digits of a file's name.
    const ITEM_DIGITS: usize;

    fn entry_id(&self) -> EntryId;

    /// The whole key as its file has it. `None`: it is too long to be kept.
    fn encode(&self) -> Option<Vec<u8>>;

    /// Length of what [`DiskKey::encode`] gives.
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
