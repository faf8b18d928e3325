//! How long is an outcome asked after before it is given up as unknown?
//!
//! Three times when the store is reached and does not say; and as long as a request may take when it is not reached,
//! for connections come back.

use std::time::Duration;

/// Questions that reached the store.
const ROUNDS: u32 = 3;

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct RetryBudget {
    rounds: u32,
    pause: Duration,
    left: Duration,
}

impl RetryBudget {
    /// `limit`: for the pauses together.
    pub fn new(limit: Duration) -> Self {
        Self { rounds: ROUNDS, pause: FIRST_PAUSE, left: limit }
    }

    /// Whether to ask again; waits first when the store was not reached.
    pub async fn again(&mut self, was_reached: bool) -> bool {
        match self.pause(was_reached) {
            None => false,
            Some(Duration::ZERO) => true,
            Some(pause) => {
                tokio::time::sleep(pause).await;
                true
            }
        }
    }

    /// How long to wait; `None`: it is enough.
    fn pause(&mut self, was_reached: bool) -> Option<Duration> {
        if was_reached {
            self.rounds -= 1;
            return (self.rounds > 0).then_some(Duration::ZERO);
        }
        let pause = self.pause.min(self.left);
        self.left -= pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        (!pause.is_zero()).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends() {
        let mut patience = RetryBudget::new(Duration::from_secs(10));
        let pauses: Vec<_> = std::iter::from_fn(|| patience.pause(false)).collect();
        assert_eq!((pauses.len(), pauses.iter().sum()), (15, Duration::from_secs(10)));
        let mut patience = RetryBudget::new(Duration::from_secs(10));
        assert_eq!(patience.pause(true), Some(Duration::ZERO));
        assert_eq!(patience.pause(false), Some(FIRST_PAUSE));
        assert_eq!(patience.pause(true), Some(Duration::ZERO));
        assert_eq!(patience.pause(true), None);
    }
}
