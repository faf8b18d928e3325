//! Which values of an earlier process are still of use? Whoever keeps values in a disk cache says so, group by group.

/// What an earlier process left in a group's folder.
pub(crate) enum FolderContent {
    /// Values with items below this.
    Values { end: u128 },
    /// Values that nobody asks for any more.
    Useless,
    /// No values.
    Foreign,
}

/// Says what a group is; handed its id, and what reads the key of one of its files.
pub(crate) trait GroupValidator: FnMut(u128, &dyn Fn() -> Option<Vec<u8>>) -> FolderContent {}
impl<F: FnMut(u128, &dyn Fn() -> Option<Vec<u8>>) -> FolderContent> GroupValidator for F {}
