//! May this statement go on?
//!
//! One [`Interrupt`] a connection: a cancel request or a timeout fires it, the running statement stops at its next wait.
//! Arming it for the next statement forgets a cancel that came too late for the last one.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::error::{SqlError, state};

#[derive(Debug, Default)]
pub struct Interrupt {
    /// Guards the whole; held for moments only.
    current: Mutex<Current>,
}

#[derive(Debug, Default)]
struct Current {
    token: CancellationToken,
    reason: Option<SqlError>,
    deadline: Option<Instant>,
}

impl Interrupt {
    /// Begins a statement, with an optional time limit.
    pub fn arm(&self, limit: Option<Duration>) {
        let deadline = limit.map(|limit| Instant::now() + limit);
        *self.current.lock() = Current { token: CancellationToken::new(), reason: None, deadline };
    }

    /// Stops the running statement with `reason`.
    pub fn cancel(&self, reason: SqlError) {
        let mut current = self.current.lock();
        current.reason.get_or_insert(reason);
        current.token.cancel();
    }

    /// Returns when the statement must stop, and why; never, if it may run to its end.
    pub async fn triggered(&self) -> SqlError {
        let (token, deadline) = {
            let current = self.current.lock();
            (current.token.clone(), current.deadline)
        };
        let timeout = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = token.cancelled() => self.current.lock().reason.clone().unwrap_or_else(SqlError::canceled),
            () = timeout => SqlError::new(state::QUERY_CANCELED, "canceling statement due to statement timeout")
                .with_hint("raise statement_timeout, or make the statement smaller"),
        }
    }

    /// `work`, unless the statement must stop first; `work` is dropped then.
    pub async fn run<T>(&self, work: impl Future<Output = Result<T, SqlError>>) -> Result<T, SqlError> {
        tokio::select! {
            biased;
            error = self.triggered() => Err(error),
            done = work => done,
        }
    }
}
