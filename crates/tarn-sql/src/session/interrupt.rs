//! May this statement go on?
//!
//! One [`Interrupt`] a connection: a cancel request or a timeout fires it, the running statement stops at its next
//! wait. Arming it for the next statement forgets a cancel that came too late for the last one.
//!
//! What was submitted to the log happens, whatever the client wishes afterwards. So a statement that is stopped while a
//! write of it is submitted waits for what becomes of that, and says so: 57014 means that nothing of it is there, 40003
//! that a part is, and how much.

use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use tarn_node::write::{SubmittedWrite, Waiter};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::error::{SqlError, state};

/// Tells what a stopped statement left behind.
type Leftovers = Box<dyn Fn() -> Option<String> + Send>;

/// Stops what a session runs: its client, another session, a time limit or the server's end. Shared with whoever may.
#[derive(Default)]
pub struct Interrupt {
    /// Guards the whole; held for moments only.
    current: Mutex<Current>,
}

#[derive(Default)]
struct Current {
    token: CancellationToken,
    reason: Option<SqlError>,
    deadline: Option<Instant>,
    /// A write is submitted and not yet decided.
    is_submitted: bool,
    /// Why the statement must stop: nothing more may be submitted.
    stopping: Option<SqlError>,
    /// Rows that this statement has committed.
    committed: u64,
    leftovers: Option<Leftovers>,
}

impl Current {
    fn forget_writes(&mut self) {
        (self.committed, self.stopping, self.leftovers) = (0, None, None);
    }
}

impl Interrupt {
    /// Begins a statement, with an optional time limit.
    pub fn arm(&self, limit: Option<Duration>) {
        let deadline = limit.map(|limit| Instant::now() + limit);
        let mut current = self.current.lock();
        // Most statements are never cancelled: a token that nobody fired is as good for the next one.
        if current.token.is_cancelled() {
            current.token = CancellationToken::new();
        }
        (current.reason, current.deadline, current.is_submitted) = (None, deadline, false);
        current.forget_writes();
    }

    /// Stops the running statement with `reason`.
    pub fn cancel(&self, reason: SqlError) {
        let mut current = self.current.lock();
        current.reason.get_or_insert(reason);
        current.token.cancel();
    }

    /// Rows that the statement has committed so far.
    pub(crate) fn committed(&self) -> u64 {
        self.current.lock().committed
    }

    /// Whether the statement was told to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.current.lock().token.is_cancelled()
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

    /// `work`, unless the statement must stop first; `work` is dropped then, but not while a write of it is submitted.
    pub async fn run<T>(&self, work: impl Future<Output = Result<T, SqlError>>) -> Result<T, SqlError> {
        self.current.lock().forget_writes();
        let work = pin!(work);
        let stop = async {
            let reason = self.triggered().await;
            self.current.lock().stopping = Some(reason.clone());
            reason
        };
        let is_submitted = || self.current.lock().is_submitted;
        match unless(stop, work, is_submitted).await {
            Interruptible::Done(done) | Interruptible::DoneAllTheSame(done, _) => {
                done.map_err(|error| self.truth(self.reason(error)))
            }
            Interruptible::Stopped(reason) => Err(self.truth(reason)),
        }
    }

    /// Runs a change that cannot be taken back once it has begun. `rows` tells how many rows it changed.
    ///
    /// Errors: the write's; why the statement must stop, if it must: the write is not begun then.
    pub async fn submit<T, E>(
        &self,
        write: impl Future<Output = Result<T, E>>,
        rows: impl FnOnce(&T) -> u64,
    ) -> Result<T, SqlError>
    where
        SqlError: From<E>,
    {
        let Some(submitted) = SubmittedWrite::by(self) else {
            return Err(self.reason(SqlError::canceled()));
        };
        let done = write.await?;
        submitted.decided(rows(&done));
        Ok(done)
    }

    /// Asks `leftovers`, if the running statement is stopped, whether something of it is there all the same.
    pub fn leaves(&self, leftovers: impl Fn() -> Option<String> + Send + 'static) {
        self.current.lock().leftovers = Some(Box::new(leftovers));
    }

    /// Who finds the statement cancelled, as a write does that is not submitted any more, does not know why.
    fn reason(&self, error: SqlError) -> SqlError {
        if error.state() != state::QUERY_CANCELED {
            return error;
        }
        let current = self.current.lock();
        current.stopping.clone().or_else(|| current.reason.clone()).unwrap_or(error)
    }

    /// A stopped statement of which something is there did not simply not happen.
    fn truth(&self, error: SqlError) -> SqlError {
        if error.state() != state::QUERY_CANCELED {
            return error;
        }
        let current = self.current.lock();
        let left = current.leftovers.as_ref().and_then(|leftovers| leftovers());
        match left {
            Some(left) => error.with_state(state::COMPLETION_UNKNOWN).with_detail(left),
            None => part_of_it(error, current.committed),
        }
    }
}

/// How something ended that was to be stopped.
pub(super) enum Interruptible<T, R> {
    Done(T),
    Stopped(R),
    /// It was to be stopped, and had submitted what cannot be taken back.
    DoneAllTheSame(T, R),
}

/// `work`, unless `stop` ends first; `work` is dropped then, but not while a write of it is submitted. Work that never
/// waits is done before anybody looks at `stop`: most statements about a key are.
pub(super) async fn unless<T, R>(
    stop: impl Future<Output = R>,
    mut work: Pin<&mut impl Future<Output = T>>,
    is_submitted: impl Fn() -> bool,
) -> Interruptible<T, R> {
    let reason = tokio::select! {
        biased;
        done = &mut work => return Interruptible::Done(done),
        reason = stop => reason,
    };
    // Polled only for the sake of what is submitted: it is given up at the first wait that is for something else.
    let decided = std::future::poll_fn(|context| {
        if !is_submitted() {
            return Poll::Ready(None);
        }
        match work.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if is_submitted() => Poll::Pending,
            Poll::Pending => Poll::Ready(None),
        }
    });
    match decided.await {
        Some(done) => Interruptible::DoneAllTheSame(done, reason),
        None => Interruptible::Stopped(reason),
    }
}

impl Waiter for Interrupt {
    fn submits(&self) -> bool {
        let mut current = self.current.lock();
        // Cancelled already, it may only not have been told yet.
        current.is_submitted = current.stopping.is_none() && !current.token.is_cancelled();
        current.is_submitted
    }

    fn decided(&self, rows: u64) {
        let mut current = self.current.lock();
        current.is_submitted = false;
        current.committed += rows;
    }
}

/// What a stopped statement answers that has committed so many rows.
pub(super) fn part_of_it(error: SqlError, committed: u64) -> SqlError {
    if committed == 0 {
        return error;
    }
    error.with_state(state::COMPLETION_UNKNOWN).with_detail(format!(
        "{committed} rows of this statement are committed already: large statements commit in batches"
    ))
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    fn canceled(interrupt: &Interrupt) {
        interrupt.cancel(SqlError::canceled());
    }

    #[tokio::test]
    async fn what_is_submitted_is_waited_for() {
        let interrupt = Interrupt::default();
        interrupt.arm(None);
        let (decide, decided) = oneshot::channel();
        let statement =
            interrupt.run(interrupt.submit(async { Ok::<_, SqlError>(decided.await.unwrap_or(0)) }, |rows| *rows));
        let outside = async {
            canceled(&interrupt);
            tokio::task::yield_now().await;
            let _ = decide.send(1);
        };
        let (answer, ()) = tokio::join!(statement, outside);
        assert_eq!(answer, Ok(1), "it happened, so it is not told as cancelled");
    }

    #[tokio::test]
    async fn nothing_more_is_submitted_and_the_rest_is_told() {
        let interrupt = Interrupt::default();
        interrupt.arm(None);
        let two = async {
            interrupt.submit(async { Ok::<_, SqlError>(7) }, |rows| *rows).await?;
            canceled(&interrupt);
            tokio::task::yield_now().await;
            interrupt.submit(async { Ok::<_, SqlError>(7) }, |rows| *rows).await
        };
        let error = interrupt.run(two).await.unwrap_err();
        assert_eq!(error.state(), "40003");
        assert!(error.detail().is_some_and(|detail| detail.contains("7 rows")), "{error}");
        // The next statement of the text has done nothing.
        let error = interrupt.run(interrupt.submit(async { Ok::<_, SqlError>(1) }, |rows| *rows)).await.unwrap_err();
        assert_eq!((error.state(), error.detail()), ("57014", None));
    }
}
