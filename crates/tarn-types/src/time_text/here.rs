//! What does a text leave to where it is read? Whose clocks it means, and what time it is.

use crate::Zone;

/// What a text leaves to where it is read.
#[derive(Debug, Clone, Copy)]
pub struct Here<'a> {
    /// Whose clocks show a time that is written without a zone. `None`: those of UTC.
    pub zone: Option<&'a Zone>,
    /// What `now` and `today` are, in microseconds since 1970-01-01 UTC. `None`: nobody says, and they are refused.
    pub now_us: Option<i64>,
}
