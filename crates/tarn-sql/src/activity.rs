//! Which clients are there, and what does each of them run?
//!
//! Each session has a [`Backend`], by the name that Postgres gives it: it notes when a message of the client is begun
//! and when it is answered. Who asks (`Activity::all`) looks at the same place. Of a message that took long a line is
//! logged, and the time of each statement is counted.
//!
//! A backend's lock is held for moments. A statement about a key takes it three times, reads the clock three times, and
//! allocates nothing.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tarn_node::auth::Principal;
use tarn_node::metrics::Seconds;
use tarn_node::node::Node;
use tarn_types::Clock;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use crate::error::{SqlError, state};
use crate::session::interrupt::Interrupt;
use crate::session::vars::Vars;

/// So much of a statement's text is kept and shown.
const SHOWN_BYTES: usize = 4 << 10;

/// How a statement is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatementPath {
    /// About keys: without a plan.
    Keyed,
    /// Planned, and read.
    Query,
    /// INSERT, UPDATE and DELETE that were planned.
    Write,
    /// COPY, in or out.
    Copy,
    /// Anything else: definitions, settings, transactions, cursors.
    Other,
}

impl StatementPath {
    const ALL: [StatementPath; 5] =
        [StatementPath::Keyed, StatementPath::Query, StatementPath::Write, StatementPath::Copy, StatementPath::Other];

    /// As metrics and `tarn.queries` call it.
    pub fn name(self) -> &'static str {
        match self {
            StatementPath::Keyed => "keyed",
            StatementPath::Query => "query",
            StatementPath::Write => "write",
            StatementPath::Copy => "copy",
            StatementPath::Other => "other",
        }
    }
}

/// Where a session is between two statements: what ReadyForQuery tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Status {
    /// No transaction is open.
    #[default]
    Idle,
    /// One is open, and goes on.
    InTransaction,
    /// One is open, and only what ends it is taken.
    Failed,
}

/// All clients of a server.
pub struct Activity {
    clock: Arc<dyn Clock>,
    /// What takes longer is logged; 0: nothing is.
    slow_us: u64,
    /// By [`StatementPath`].
    seconds: [Seconds; StatementPath::ALL.len()],
    n_statements: AtomicU64,
    present: Mutex<BackendRegistry>,
}

#[derive(Default)]
struct BackendRegistry {
    backends: BTreeMap<i32, Arc<Backend>>,
    last_pid: i32,
}

impl Activity {
    pub(crate) fn new(node: &Node, slow_statement_ms: u64) -> Arc<Activity> {
        Arc::new(Activity {
            clock: Arc::clone(node.clock()),
            slow_us: slow_statement_ms.saturating_mul(1000),
            seconds: StatementPath::ALL.map(|way| node.metrics().statement_seconds(way.name())),
            n_statements: AtomicU64::new(0),
            present: Mutex::default(),
        })
    }

    /// A session begins, with a number that no other has.
    pub(crate) fn come_in(
        self: &Arc<Self>,
        vars: Arc<Mutex<Vars>>,
        who: Arc<Mutex<Principal>>,
        interrupt: Arc<Interrupt>,
    ) -> Arc<Backend> {
        let began_ms = self.clock.now_ms();
        let mut present = self.present.lock();
        let BackendRegistry { backends, last_pid } = &mut *present;
        loop {
            *last_pid = last_pid.checked_add(1).unwrap_or(1);
            if !backends.contains_key(last_pid) {
                break;
            }
        }
        let backend = Arc::new(Backend {
            of: Arc::clone(self),
            pid: *last_pid,
            began_ms,
            peer: OnceLock::new(),
            vars,
            who,
            interrupt,
            rows: Arc::default(),
            way: AtomicU8::new(NOWAY),
            ended: CancellationToken::new(),
            now: Mutex::new(BackendState { changed_ms: began_ms, ..BackendState::default() }),
        });
        backends.insert(backend.pid, Arc::clone(&backend));
        backend
    }

    /// Its session ends, and with it what it runs.
    pub(crate) fn leave(&self, backend: &Backend) {
        backend.ends(Status::Idle, Some(state::CONNECTION_DOES_NOT_EXIST));
        self.present.lock().backends.remove(&backend.pid);
    }

    /// All whose clients were let in, by their numbers.
    pub(crate) fn all(&self) -> Vec<Arc<Backend>> {
        let present = self.present.lock();
        present.backends.values().filter(|backend| backend.peer.get().is_some()).cloned().collect()
    }

    /// The one with this number.
    pub(crate) fn find(&self, pid: i32) -> Option<Arc<Backend>> {
        self.present.lock().backends.get(&pid).filter(|backend| backend.peer.get().is_some()).cloned()
    }
}

/// No statement has told its way.
const NOWAY: u8 = u8::MAX;

/// One session, as others see it.
pub struct Backend {
    of: Arc<Activity>,
    pid: i32,
    began_ms: i64,
    /// Where its client is, once that has proved who it is.
    peer: OnceLock<SocketAddr>,
    vars: Arc<Mutex<Vars>>,
    who: Arc<Mutex<Principal>>,
    interrupt: Arc<Interrupt>,
    /// Given out by the statement that runs.
    rows: Arc<AtomicU64>,
    /// Place in [`StatementPath::ALL`] of the statement that runs, or [`NOWAY`].
    way: AtomicU8,
    ended: CancellationToken,
    now: Mutex<BackendState>,
}

/// Guarded by the backend's lock.
#[derive(Debug, Default)]
struct BackendState {
    status: Status,
    running: Option<RunningStatement>,
    /// Of the statement that runs or ran last; `None` until it is parsed.
    text: Option<Arc<str>>,
    /// When it began or ended to run something.
    changed_ms: i64,
    /// When the last statement that ended had begun.
    ran_ms: Option<i64>,
    /// When the statement began after which a transaction was open.
    transaction_ms: Option<i64>,
}

#[derive(Debug, Clone, Copy)]
struct RunningStatement {
    statement: u64,
    began_ms: i64,
    began_us: u64,
}

/// What a backend is and does at one moment.
#[derive(Debug, Clone)]
pub struct BackendActivity {
    /// What the client was told as its process.
    pub pid: i32,
    /// Who proved it at the login.
    pub who: Principal,
    /// What `current_user` is.
    pub user: String,
    /// As the client says; at most 63 bytes.
    pub application_name: String,
    /// `None`: it did not come over a network that this server sees.
    pub peer: Option<SocketAddr>,
    /// Unix time at which it came.
    pub began_ms: i64,
    /// Unix time at which it began or ended its last statement.
    pub changed_ms: i64,
    /// When the last statement that ended had begun.
    pub ran_ms: Option<i64>,
    /// When the statement began after which a transaction was open.
    pub transaction_ms: Option<i64>,
    /// As ReadyForQuery would say.
    pub status: Status,
    /// `None`: it waits for its client.
    pub running: Option<SeenRunning>,
    /// Of the statement that runs or ran last, at most 4 KiB.
    pub text: String,
}

/// The statement that a backend runs.
#[derive(Debug, Clone)]
pub struct SeenRunning {
    /// Its number; in the log's spans, too.
    pub statement: u64,
    /// Unix time.
    pub began_ms: i64,
    /// How it is answered, once that is known.
    pub way: Option<StatementPath>,
    /// Given out, or written, so far.
    pub rows: u64,
    /// It was cancelled, and has not ended yet.
    pub is_stopping: bool,
}

impl Backend {
    /// As Postgres' clients call it.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Its client, which is there, has proved who it is: from now on it is shown.
    pub(crate) fn is_let_in(&self, peer: SocketAddr) {
        let _ = self.peer.set(peer);
    }

    /// A message is begun.
    pub(crate) fn begins(&self) {
        let (began_ms, began_us) = (self.of.clock.now_ms(), self.of.clock.monotonic_us());
        let statement = self.of.n_statements.fetch_add(1, Ordering::Relaxed) + 1;
        self.rows.store(0, Ordering::Relaxed);
        self.way.store(NOWAY, Ordering::Relaxed);
        let mut now = self.now.lock();
        (now.running, now.text, now.changed_ms) =
            (Some(RunningStatement { statement, began_ms, began_us }), None, began_ms);
    }

    /// What it runs, as it may be shown.
    pub(crate) fn shows(&self, text: &Arc<str>) {
        self.now.lock().text = Some(Arc::clone(text));
    }

    /// What it runs, as it is shown.
    pub(crate) fn text(&self) -> Arc<str> {
        self.now.lock().text.clone().unwrap_or_default()
    }

    pub(crate) fn goes(&self, way: StatementPath) {
        self.way.store(way as u8, Ordering::Relaxed);
    }

    /// Counts what a statement gives out.
    pub(crate) fn rows(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.rows)
    }

    /// What is said of a statement goes into this span.
    pub(crate) fn span(&self) -> Span {
        tracing::debug_span!("statement", pid = self.pid, statement = self.statement())
    }

    fn statement(&self) -> u64 {
        self.now.lock().running.map_or(0, |running| running.statement)
    }

    /// The message is answered, with this SQLSTATE if it failed. Nothing happens when none was begun.
    pub(crate) fn ends(&self, status: Status, failed: Option<&str>) {
        let mut now = self.now.lock();
        let Some(RunningStatement { statement, began_ms, began_us }) = now.running.take() else { return };
        let took_us = self.of.clock.monotonic_us().saturating_sub(began_us);
        now.changed_ms = began_ms.saturating_add((took_us / 1000) as i64);
        (now.status, now.ran_ms) = (status, Some(began_ms));
        now.transaction_ms = match status {
            Status::Idle => None,
            Status::InTransaction | Status::Failed => now.transaction_ms.or(Some(began_ms)),
        };
        if let Some(seconds) = self.of.seconds.get(usize::from(self.way.load(Ordering::Relaxed))) {
            seconds.observe_us(took_us);
        }
        if self.of.slow_us > 0 && took_us >= self.of.slow_us {
            let text = now.text.clone().unwrap_or_default();
            drop(now);
            let (pid, rows, duration_ms) = (self.pid, self.n_rows(), took_us / 1000);
            let user = self.vars.lock().get("session_authorization").unwrap_or_default();
            tracing::warn!(target: "tarn::slow", pid, statement, %user, duration_ms, rows, failed, ?text, "slow statement");
        }
    }

    fn n_rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed) + self.interrupt.committed()
    }

    /// What it is and does now.
    pub fn look(&self) -> BackendActivity {
        let (user, application_name) = {
            let vars = self.vars.lock();
            (vars.get("session_authorization").unwrap_or_default(), vars.get("application_name").unwrap_or_default())
        };
        let now = self.now.lock();
        let running = now.running.map(|running| SeenRunning {
            statement: running.statement,
            began_ms: running.began_ms,
            way: StatementPath::ALL.get(usize::from(self.way.load(Ordering::Relaxed))).copied(),
            rows: self.n_rows(),
            is_stopping: self.interrupt.is_stopping(),
        });
        BackendActivity {
            pid: self.pid,
            who: self.who.lock().clone(),
            user,
            application_name,
            peer: self.peer.get().copied(),
            began_ms: self.began_ms,
            changed_ms: now.changed_ms,
            ran_ms: now.ran_ms,
            transaction_ms: now.transaction_ms,
            status: now.status,
            running,
            text: now.text.as_deref().unwrap_or_default().to_owned(),
        }
    }

    /// Who it is.
    pub(crate) fn who(&self) -> Principal {
        self.who.lock().clone()
    }

    /// Stops the statement that runs.
    pub(crate) fn cancel(&self) {
        self.interrupt.cancel(SqlError::canceled());
    }

    /// Ends the session, and with it the statement that runs.
    pub(crate) fn terminate(&self) {
        self.ended.cancel();
        self.interrupt.cancel(terminated());
    }

    /// Whether somebody has ended the session.
    pub fn is_terminated(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Returns when somebody ends the session, with what its client is told.
    pub async fn terminated(&self) -> SqlError {
        self.ended.cancelled().await;
        terminated()
    }
}

fn terminated() -> SqlError {
    SqlError::new(state::ADMIN_SHUTDOWN, "terminating connection due to administrator command").fatal()
}

/// As much of a text as is kept, and whether it `is_secret`.
pub(crate) fn shown(sql: &str, is_secret: bool) -> Arc<str> {
    if is_secret {
        return "(a statement with a password)".into();
    }
    match sql.len() <= SHOWN_BYTES {
        true => sql.trim().into(),
        false => format!("{} …", sql[..sql.floor_char_boundary(SHOWN_BYTES)].trim()).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::parse;

    #[test]
    fn texts_are_shown_without_passwords_and_not_without_end() {
        let is_secret = |sql: &str| parse(sql).unwrap().iter().any(|parsed| parsed.has_password());
        assert!(is_secret("SELECT 1; ALTER USER a PASSWORD 'x'") && is_secret("CREATE USER a PASSWORD 'x'"));
        assert!(!is_secret("SELECT password FROM t WHERE password = 'x'") && !is_secret("CREATE USER a"));
        assert_eq!(&*shown("SELECT 1", true), "(a statement with a password)");
        assert_eq!(&*shown(" SELECT 1\n", false), "SELECT 1");
        let long = shown(&"ä".repeat(SHOWN_BYTES), false);
        assert!(long.ends_with("ä …") && long.len() < SHOWN_BYTES + 8, "{}", long.len());
    }
}
