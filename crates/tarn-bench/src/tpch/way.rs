//! In which ways is a query run, and what is known of a run?

use super::options::Options;
use super::workspace::Caches;
use crate::far_store::Asked;

/// Where the lake is, and what is kept of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
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
    pub asked: Asked,
}

impl Way {
    /// In the order of the table's columns.
    pub const ALL: [Way; 8] =
        [Way::FarOff, Way::Cold, Way::Metadata, Way::Pages, Way::Fragments, Way::Warm, Way::LocalOff, Way::LocalWarm];

    /// In names of figures.
    pub fn name(self) -> &'static str {
        match self {
            Way::FarOff => "far_off",
            Way::Cold => "far_cold",
            Way::Metadata => "far_metadata",
            Way::Pages => "far_pages",
            Way::Fragments => "far_fragments",
            Way::Warm => "far_warm",
            Way::LocalOff => "local_off",
            Way::LocalWarm => "local_warm",
        }
    }

    /// Its files are behind the line.
    pub fn is_far(self) -> bool {
        !matches!(self, Way::LocalOff | Way::LocalWarm)
    }

    /// Which layers are on.
    pub fn caches(self) -> Caches {
        match self {
            Way::FarOff | Way::LocalOff => Caches::Off,
            Way::Metadata => Caches::Metadata,
            Way::Pages => Caches::Pages,
            Way::Fragments => Caches::Fragments,
            Way::Cold | Way::Warm | Way::LocalWarm => Caches::All,
        }
    }

    /// Of a first run that fills what is near, if that is a figure of its own.
    pub fn first(self) -> Option<Way> {
        match self {
            Way::Warm => Some(Way::Cold),
            Way::FarOff => Some(Way::FarOff),
            _ => None,
        }
    }

    /// How often each query is run in it, beside the run that fills.
    pub fn rounds(self, options: &Options) -> usize {
        match self {
            Way::FarOff => 0,
            // Everything but the metadata comes from far away in each round.
            Way::Metadata => 1,
            _ => options.rounds,
        }
    }
}
