//! Where is block metadata written to, and read from, while a store goes from one schema to the next? And who may take
//! part?
//!
//! ```text
//! schema 1 settled ─ expand ─ both ─ backfill ─ switch ─ schema 2 settled
//! written     1        1       1+2      1+2       1+2         2
//! read        1        1        1        1         2          2
//! epoch       e        e       e+1      e+1       e+1        e+2
//! ```
//!
//! Every change reads the phase in its own transaction; a step of a migration locks that row's table, so it waits for
//! those who have read the phase before it, and those who come later see it. Readers may be behind: what they read is
//! written until the tables are gone, and then they look again.

use tarn_metastore::{Error, Result};

use crate::pool::{RequestFailure, col};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Settled,
    /// The tables of the next schema are there, nobody uses them.
    Expand,
    /// Both are written.
    Both,
    /// What came before is copied, hour by hour.
    Backfill,
    /// The next one is read.
    Switch,
}

impl Phase {
    const ALL: [Self; 5] = [Self::Settled, Self::Expand, Self::Both, Self::Backfill, Self::Switch];

    /// As the table `meta` has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::Expand => "expand",
            Self::Both => "both",
            Self::Backfill => "backfill",
            Self::Switch => "switch",
        }
    }
}

/// Which tables block metadata is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Commits write schema 1's rows.
    pub writes_first: bool,
    /// Commits write schema 2's rows.
    pub writes_second: bool,
    /// Readers use schema 2's rows; else those of schema 1.
    pub reads_second: bool,
}

impl Layout {
    /// Of a store that is at schema 2 and moves nowhere.
    pub const SECOND: Self = Self { writes_first: false, writes_second: true, reads_second: true };
}

/// The schemas that a process works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SchemaRange {
    /// The oldest schema of a store that it can be used with.
    pub oldest: u32,
    /// The schema that it makes.
    pub newest: u32,
}

/// How a store stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Meta {
    /// Of the schema.
    pub version: u32,
    /// How far a migration is.
    pub phase: Phase,
    /// File ids below are given out.
    pub next_file: u64,
}

impl Meta {
    /// What [`Meta::of`] reads.
    pub const QUERY: &str = "SELECT schema_version, phase, next_file FROM meta";

    /// Anything but one row is damage.
    pub fn of(rows: &[tokio_postgres::Row]) -> Result<Self, RequestFailure> {
        let damaged = |reason: String| RequestFailure::Damaged { place: "meta".to_owned(), reason };
        let [row] = rows else { return Err(damaged(format!("{} rows", rows.len()))) };
        let name: &str = col(row, 1)?;
        // A phase of a migration to a schema that we do not know: whoever asks for the layout is told.
        let phase = Phase::ALL.into_iter().find(|phase| phase.name() == name).unwrap_or(Phase::Switch);
        let version = u32::try_from(col::<i64>(row, 0)?).map_err(|e| damaged(e.to_string()))?;
        Ok(Self { version, phase, next_file: col::<i64>(row, 2)? as u64 })
    }

    /// Where block metadata is, for a process that knows these schemas.
    pub fn layout(&self, knows: SchemaRange, address: &str) -> Result<Layout> {
        let wrong = |found, needed| Err(Error::SchemaVersion { address: address.to_owned(), found, needed });
        let SchemaRange { oldest, newest } = knows;
        let (writes_second, reads_second) = match (self.version, self.phase) {
            (1, Phase::Settled | Phase::Expand) => (false, false),
            (1, Phase::Both | Phase::Backfill) => (true, false),
            (1, Phase::Switch) => (true, true),
            (2, Phase::Settled) if newest >= 2 => return Ok(Layout::SECOND),
            (found, _) => return wrong(found, newest),
        };
        if writes_second && newest < 2 {
            // It is on its way there.
            return wrong(2, newest);
        } else if !writes_second && oldest > 1 {
            return wrong(self.version, oldest);
        }
        Ok(Layout { writes_first: true, writes_second, reads_second })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_take_part_in_which_phase() {
        let (old, new) = (SchemaRange { oldest: 1, newest: 1 }, SchemaRange { oldest: 2, newest: 2 });
        let layout = |knows, version, phase| Meta { version, phase, next_file: 1 }.layout(knows, "postgres://db");
        for phase in Phase::ALL {
            let is_begun = !matches!(phase, Phase::Settled | Phase::Expand);
            assert_eq!(layout(old, 1, phase).is_ok(), !is_begun, "{phase:?}");
            assert_eq!(layout(new, 1, phase).is_ok(), is_begun, "{phase:?}");
        }
        assert_eq!(layout(new, 2, Phase::Settled).unwrap(), Layout::SECOND);
        let names = |knows, version, words: &str| {
            let error = layout(knows, version, Phase::Settled).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        names(new, 1, "tarn metastore migrate");
        names(old, 2, "schema version 2");
        names(new, 3, "schema version 3");
    }
}
