//! In which ways is a query run, and what is known of a run?

use super::options::TpchOptions;
use super::workspace::Caches;
use crate::far_store::RequestCounts;

/// Where the lake is, and what is kept of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunMode {
    /// The first run after `SYSTEM DROP CACHE`, all layers on.
    Cold,
    FarOff,
    Metadata,
    Pages,
    Fragments,
    Warm,
    LocalOff,
    LocalWarm,
}

/// One run of one query.
#[derive(Debug, Clone)]
pub struct Run {
    pub ms: f64,
    /// CPU time of the server.
    pub cpu_s: f64,
    /// Of the store; of local disks nothing is counted.
    pub asked: RequestCounts,
}

impl RunMode {
    /// In the order of the table's columns.
    pub const ALL: [RunMode; 8] = [
        RunMode::FarOff,
        RunMode::Cold,
        RunMode::Metadata,
        RunMode::Pages,
        RunMode::Fragments,
        RunMode::Warm,
        RunMode::LocalOff,
        RunMode::LocalWarm,
    ];

    /// In names of figures.
    pub fn name(self) -> &'static str {
        match self {
            RunMode::FarOff => "far_off",
            RunMode::Cold => "far_cold",
            RunMode::Metadata => "far_metadata",
            RunMode::Pages => "far_pages",
            RunMode::Fragments => "far_fragments",
            RunMode::Warm => "far_warm",
            RunMode::LocalOff => "local_off",
            RunMode::LocalWarm => "local_warm",
        }
    }

    /// Its files are behind the line.
    pub fn is_far(self) -> bool {
        !matches!(self, RunMode::LocalOff | RunMode::LocalWarm)
    }

    /// Which layers are on.
    pub fn caches(self) -> Caches {
        match self {
            RunMode::FarOff | RunMode::LocalOff => Caches::Off,
            RunMode::Metadata => Caches::Metadata,
            RunMode::Pages => Caches::Pages,
            RunMode::Fragments => Caches::Fragments,
            RunMode::Cold | RunMode::Warm | RunMode::LocalWarm => Caches::All,
        }
    }

    /// Of a first run that fills what is near, if that is a figure of its own.
    pub fn first(self) -> Option<RunMode> {
        match self {
            RunMode::Warm => Some(RunMode::Cold),
            RunMode::FarOff => Some(RunMode::FarOff),
            _ => None,
        }
    }

    /// How often each query is run in it, beside the run that fills.
    pub fn rounds(self, options: &TpchOptions) -> usize {
        match self {
            RunMode::FarOff => 0,
            // Everything but the metadata comes from far away in each round.
            RunMode::Metadata => 1,
            _ => options.rounds,
        }
    }
}
