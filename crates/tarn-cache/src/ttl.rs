//! How old may it be?

use std::fmt;
use std::sync::Arc;

use tarn_types::Clock;

/// How long something is kept at most.
#[derive(Clone)]
pub struct Ttl {
    /// Age beyond which it counts as gone.
    pub ttl_ms: u64,
    /// Who says what time it is.
    pub clock: Arc<dyn Clock>,
}

impl fmt::Debug for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ttl").field("ttl_ms", &self.ttl_ms).finish_non_exhaustive()
    }
}

/// What is written now is marked with this; 0 where nobody asks for the age.
pub(crate) fn now_ms(ttl: &Option<Ttl>) -> i64 {
    ttl.as_ref().map_or(0, |ttl| ttl.clock.now_ms())
}

/// What was written before this is too old.
pub(crate) fn oldest_ms(ttl: &Option<Ttl>) -> i64 {
    ttl.as_ref().map_or(i64::MIN, |ttl| ttl.clock.now_ms().saturating_sub_unsigned(ttl.ttl_ms))
}
