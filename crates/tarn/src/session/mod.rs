//! What does one connection do with a statement?
//!
//! Protocol-neutral: the Postgres face and HTTP both [`Session::prepare`] and [`Session::execute`]. A statement is one of
//! four kinds: *keyed* (answered from the row engine without a plan), a *query* (DataFusion), *DML* (a query whose rows
//! become mutations), or a *utility* (everything about tables, settings and transactions).
//!
//! Reading order: `answer`, `interrupt`, `vars`, `transaction`, `prepare`, `keyed`, `dml`, `copy`, `cursor`, `caches`, `utility`.

pub mod answer;
mod caches;
pub mod copy;
mod cursor;
mod dml;
mod execute;
pub mod interrupt;
mod keyed;
mod literals;
mod prepare;
mod transaction;
mod utility;
mod vars;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

pub use answer::{Answer, Batches, Rows, Tag};
pub use copy::{CopyFrom, CopyTo};
pub use interrupt::Interrupt;
pub use prepare::{Parameter, Prepared};
pub use transaction::{Held, Transaction};
pub use vars::{REPORTED, SERVER_VERSION, Vars};

use self::cursor::Cursor;
use crate::error::{Result, SqlError};
use crate::node::Node;
use crate::statement::{Parsed, parse};

/// One connection. Statements run one after another; [`Interrupt`] may be fired from anywhere.
pub struct Session {
    node: Arc<Node>,
    query: tarn_query::Session,
    interrupt: Arc<Interrupt>,
    /// Each lock is held for moments, never across a wait.
    vars: Mutex<Vars>,
    transaction: Mutex<Transaction>,
    cursors: Mutex<HashMap<String, Cursor>>,
    named: Mutex<HashMap<String, Arc<Prepared>>>,
    has_pg_catalog: Mutex<bool>,
}

/// What ReadyForQuery tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Idle,
    InTransaction,
    Failed,
}

impl Session {
    pub fn new(node: Arc<Node>) -> Session {
        let query = node.query().session();
        Session {
            node,
            query,
            interrupt: Arc::default(),
            vars: Mutex::default(),
            transaction: Mutex::default(),
            cursors: Mutex::default(),
            named: Mutex::default(),
            has_pg_catalog: Mutex::new(false),
        }
    }

    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    pub fn interrupt(&self) -> &Arc<Interrupt> {
        &self.interrupt
    }

    /// Begins one message's worth of statements: forgets old cancels, starts the time limit.
    pub fn begin_statement(&self) {
        let limit = self.vars.lock().timeout_ms("statement_timeout", self.node.settings().statement_timeout_ms);
        self.interrupt.arm(limit.map(Duration::from_millis));
    }

    pub fn status(&self) -> Status {
        match &*self.transaction.lock() {
            Transaction::Idle => Status::Idle,
            Transaction::Open { .. } => Status::InTransaction,
            Transaction::Failed => Status::Failed,
        }
    }

    /// After any error: an open transaction is now a failed one, and what it held is dropped.
    pub fn failed(&self) {
        let mut transaction = self.transaction.lock();
        if transaction.is_open() {
            *transaction = Transaction::Failed;
        }
        drop(transaction);
        self.cursors.lock().clear();
    }

    /// How long the connection may stay idle now; `None` is for ever.
    pub fn idle_limit(&self) -> Option<Duration> {
        if self.status() == Status::Idle {
            return None;
        }
        let default_ms = self.node.settings().idle_in_transaction_timeout_ms;
        self.vars.lock().timeout_ms("idle_in_transaction_session_timeout", default_ms).map(Duration::from_millis)
    }

    pub fn var(&self, name: &str) -> Result<String> {
        self.vars.lock().get(name)
    }

    pub fn set_var(&self, name: &str, value: Option<&str>) -> Result<()> {
        if vars::is_engine_setting(name) {
            vars::check_engine_setting(name, value)?;
            return self.set_engine(name, value.unwrap_or("default"));
        }
        self.vars.lock().set(name, value)
    }

    fn set_engine(&self, name: &str, value: &str) -> Result<()> {
        let state = self.query.context().state_ref();
        let mut state = state.write();
        state.config_mut().options_mut().set(name, value)?;
        Ok(())
    }

    /// Parses and runs a text of one or more statements, each by itself, without parameters; for HTTP and tests.
    pub async fn run(&self, sql: &str) -> Result<Vec<Answer>> {
        let mut answers = Vec::new();
        for parsed in parse(sql)? {
            answers.push(self.run_one(parsed).await?);
        }
        Ok(answers)
    }

    /// Prepares and runs one statement without parameters. An error fails an open transaction.
    pub async fn run_one(&self, parsed: Parsed) -> Result<Answer> {
        let answer = self.interrupt.run(self.execute_once(parsed)).await;
        answer.inspect_err(|_| self.failed())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // What a transaction held is gone with it: nothing was written.
        self.interrupt.cancel(SqlError::canceled());
    }
}
