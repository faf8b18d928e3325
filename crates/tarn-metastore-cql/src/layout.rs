//! In which version of the tables is the store, and where do filters go while it moves to the next?
//!
//! ```text
//! schema  phase      reads   writes        since then
//!   1                fixed   fixed
//!   1     expand     fixed   fixed         version 2's tables are there
//!   1     both       fixed   fixed, wide   every commit is in both
//!   1     backfill   fixed   fixed, wide   (hours are copied)
//!   1     switch     wide    fixed, wide   readers need version 2 only
//!   1     contract   wide    wide          version 1's table goes
//!   2                wide    wide
//! ```
//!
//! Every step raises the epoch, in the catalog first and then in the head of each table. A commit names the epoch under
//! which its rows were written; after a step no commit with rows of the step before goes in. A reader sees the head's
//! epoch with every answer, and asks again when it knows an older one.

use tarn_metastore::{Error, Result};

/// What this build reads and writes.
pub(crate) const NEWEST: u32 = 2;

/// How filters lie in rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowLayout {
    /// `bloom_chunks32`: a row is a chunk.
    Fixed,
    /// `bloom_chunks`: a row is 1, 2, 4 or 8 chunks, the same for all blocks of an hour.
    Wide,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Phase {
    #[default]
    None,
    Expand,
    Both,
    Backfill,
    Switch,
    Contract,
}

impl Phase {
    /// In the order in which a migration goes through them.
    pub const ALL: [Phase; 6] =
        [Phase::None, Phase::Expand, Phase::Both, Phase::Backfill, Phase::Switch, Phase::Contract];

    /// As the catalog has it.
    pub fn name(self) -> &'static str {
        match self {
            Phase::None => "",
            Phase::Expand => "expand",
            Phase::Both => "both",
            Phase::Backfill => "backfill",
            Phase::Switch => "switch",
            Phase::Contract => "contract",
        }
    }

    /// By its name in the catalog; `None`: of a build that is newer than this one.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.name() == name)
    }

    /// The phase after this one; after the last there is none again.
    pub fn next(self) -> Self {
        let at = Self::ALL.iter().position(|phase| *phase == self).expect("all are there");
        Self::ALL[(at + 1) % Self::ALL.len()]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The version of the tables, from which `reads` follows.
    pub schema: u32,
    /// Where the store is moving to; `schema` when it is not.
    pub target: u32,
    /// How far the migration is.
    pub phase: Phase,
    /// One more with every step.
    pub epoch: i32,
}

impl Default for Layout {
    fn default() -> Self {
        Self { schema: NEWEST, target: NEWEST, phase: Phase::None, epoch: 0 }
    }
}

impl Layout {
    /// Where filters are read.
    pub fn reads(&self) -> RowLayout {
        match (self.schema, self.phase) {
            (1, Phase::None | Phase::Expand | Phase::Both | Phase::Backfill) => RowLayout::Fixed,
            _ => RowLayout::Wide,
        }
    }

    /// Where every commit writes filters: to all of these.
    pub fn writes(&self) -> &'static [RowLayout] {
        match (self.schema, self.phase) {
            (1, Phase::None | Phase::Expand) => &[RowLayout::Fixed],
            (1, Phase::Both | Phase::Backfill | Phase::Switch) => &[RowLayout::Fixed, RowLayout::Wide],
            _ => &[RowLayout::Wide],
        }
    }

    /// Whether a build that knows versions up to `known` may read.
    pub fn check_reads(&self, known: u32, address: &str) -> Result<()> {
        // Once the old tables may be gone, who knows them only reads nothing instead of something.
        let needed = if self.phase == Phase::Contract { self.target } else { self.schema };
        if needed > known {
            return Err(Error::SchemaVersion { address: address.to_owned(), found: needed, needed: known });
        }
        Ok(())
    }

    /// Whether it may write: what it writes must be seen by who reads the next version.
    pub fn check_writes(&self, known: u32, address: &str) -> Result<()> {
        if self.phase != Phase::None && self.target > known {
            let (schema, target) = (self.schema, self.target);
            return Err(Error::Unavailable {
                address: address.to_owned(),
                setting: "metastore",
                source: format!("metastore schema {schema}, another node is migrating to {target}").into(),
            });
        }
        self.check_reads(known, address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_was_written_since_the_step_before() {
        let mut layout = Layout { schema: 1, target: 2, phase: Phase::None, epoch: 0 };
        loop {
            let phase = layout.phase.next();
            let next = Layout { phase, schema: if phase == Phase::None { 2 } else { 1 }, ..layout };
            assert!(layout.writes().contains(&next.reads()), "{next:?} reads what {layout:?} did not write");
            assert!(next.writes().contains(&layout.reads()), "{layout:?} still reads what {next:?} does not write");
            assert_eq!(Phase::named(phase.name()), Some(phase));
            layout = next;
            if phase == Phase::None {
                return;
            }
        }
    }

    #[test]
    fn older_builds_are_fenced_off() {
        let layout = |schema, target, phase| Layout { schema, target, phase, epoch: 0 };
        let text = |result: Result<()>| result.unwrap_err().to_string();
        assert!(layout(1, 2, Phase::Both).check_reads(1, "a").is_ok());
        assert!(layout(1, 2, Phase::Both).check_writes(1, "a").is_err());
        assert!(layout(1, 2, Phase::Both).check_writes(2, "a").is_ok());
        assert!(text(layout(1, 2, Phase::Contract).check_reads(1, "a")).contains("version 2"));
        assert!(text(layout(3, 3, Phase::None).check_reads(2, "a")).contains("at least as new"));
        assert!(layout(2, 3, Phase::Both).check_reads(2, "a").is_ok());
    }
}
