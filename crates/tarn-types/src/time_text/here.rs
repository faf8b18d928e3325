//! What does a text leave to where it is read? Whose clocks it means, in which order its
//! numbers are, and what time it is.

use crate::{DateOrder, Zone};

/// What a text leaves to where it is read.
#[derive(Debug, Clone, Copy)]
pub struct ParseContext<'a> {
    /// Whose clocks show a time that is written without a zone. `None`: those of UTC.
    pub zone: Option<&'a Zone>,
    /// What the numbers of `1/2/2026` are.
    pub order: DateOrder,
    /// What `now` and `today` are, in microseconds since 1970-01-01 UTC. `None`: nobody says, and they are refused.
    pub now_us: Option<i64>,
}
