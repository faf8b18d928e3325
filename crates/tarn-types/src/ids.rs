//! How are things numbered? Newtypes, so that two numbers of different meaning never meet in one signature.
//!
//! Tables and tablets count from 1 and are global to a metastore; sequence numbers count from 1 inside a tablet, and
//! [`SeqNo::ZERO`] means "before the first change".

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<$inner> for $name {
            fn from(inner: $inner) -> Self {
                Self(inner)
            }
        }
    };
}

id! {
    /// A table. Counts from 1; never reused, also not after `DROP TABLE`.
    TableId(u32)
}
id! {
    /// The unit of replication and ordering: one token range of one table. Global, counts from 1; a table owns a
    /// contiguous run.
    TabletId(u32)
}
id! {
    /// A column of a table, stable over renames and reordering: what cells are stored under.
    ColumnId(u32)
}
id! {
    /// A type that somebody made. Never reused in a metastore, also not after `DROP TYPE`.
    TypeId(u32)
}
id! {
    /// A position in a tablet's log; equals the Raft index of the entry.
    SeqNo(u64)
}
id! {
    /// The metastore's commit number of a table. 0 is the empty table before its first commit.
    Version(u64)
}
id! {
    /// A file of the lake, unique in a metastore.
    FileId(u64)
}
id! {
    /// The Murmur3 hash (Cassandra's variant) of a partition key.
    Token(i64)
}

impl TableId {
    /// Ids from here on are of temporary tables. They are in no metastore: whoever has the table in memory gives them.
    pub const FIRST_TEMPORARY: Self = Self(1 << 31);

    /// Whether it is that of a table that one session has to itself and that is gone with it: never in the log, nor in
    /// the lake.
    #[must_use]
    pub fn is_temporary(self) -> bool {
        self >= Self::FIRST_TEMPORARY
    }
}

impl SeqNo {
    /// Before the first change of a tablet.
    pub const ZERO: Self = Self(0);

    /// The position after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Version {
    /// The version after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The name of a request, made of what its client called it. Never 0/0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    /// Who makes it.
    pub origin: u64,
    /// Which of theirs it is.
    pub sequence: u64,
}
