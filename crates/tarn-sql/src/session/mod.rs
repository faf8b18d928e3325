//! What does one connection do with a statement?
//!
//! Protocol-neutral: the Postgres face and HTTP both [`Session::prepare`] and [`Session::execute`]. A statement is one
//! of four kinds: *keyed* (answered from the row engine without a plan), a *query* (DataFusion), *DML* (a query whose
//! rows become mutations), or a *utility* (everything about tables, settings and transactions).
//!
//! Reading order: `answer`, `interrupt`, `vars`, `set_back`, `placeholders`, `named`, `prepare`, `on_key`, `keyed`,
//! `implicit`, `compiled_rules`, `row_rules`, `row_types`, `row_stars`, `defaults`, `generated`, `checks`, `in_parts`,
//! `dml`, `held`, `foreign`, `alone`, `requests`, `returning`, `locking`, `conflicts`, `merge`, `copy`, `fetch`,
//! `current_of`, `explain`, `caches`, `create_as`, `create_like`, `columns`, `rewrite`, `indexes`, `alter`,
//! `alter_held`, `views`, `with_changes`, `sequences`, `types`, `functions`, `schemas`, `temporary`, `vacuum`,
//! `utility`; who may run it: `access`.

mod access;
mod alone;
mod alter;
mod alter_held;
pub mod answer;
mod caches;
mod checks;
mod columns;
mod compiled_rules;
mod conflicts;
mod copy;
mod copy_from;
mod create_as;
mod create_like;
mod current_of;
mod defaults;
mod dml;
mod execute;
mod explain;
mod fetch;
mod foreign;
mod functions;
mod gather;
mod generated;
mod held;
mod implicit;
mod in_parts;
mod indexes;
pub mod interrupt;
mod keyed;
mod literals;
mod locking;
mod merge;
mod moves;
mod named;
mod on_key;
mod placeholders;
mod prepare;
mod requests;
mod returning;
mod rewrite;
mod row_rules;
mod row_stars;
mod row_types;
mod schemas;
mod sequences;
pub(crate) mod set_back;
mod temporary;
mod types;
mod utility;
mod vacuum;
pub(crate) mod vars;
mod views;
mod volatile;
mod with_changes;

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tarn_node::auth::Principal;
use tarn_node::node::Node;
use tarn_query::parser::SMALL_BYTES;
use tarn_types::style::hangs_on_order;
use tarn_types::{DateOrder, Opaque, Style, Zone};

pub use answer::{Answer, Batches, CopyTo, ResultSet, Tag};
pub use copy_from::CopyFrom;
pub use interrupt::Interrupt;
pub use placeholders::{DeclaredType, item_type};
pub use prepare::{Parameter, PreparedStatement};
pub use utility::is_all;
pub use vars::{REPORTED, Vars};

pub use crate::activity::Status;

use self::set_back::{Scope, Settable};
use crate::activity::{self, Backend};
use crate::advisory::OwnLocks;
use crate::channels::{Mail, Notification};
use crate::cursors::book::Book;
use crate::error::{Result, SqlError, state};
use crate::hot::{OwnTables, SeenTables, SessionReader};
use crate::names::check_words;
use crate::sequence_functions::{Numbering, SessionValues};
use crate::service::Sql;
use crate::statement::{ParsedSql, parse};
use crate::temporary::{Temporary, own_schema};
use crate::transaction::{Isolation, PendingChanges, Transaction, drop_made};

const TIME_ZONE: &str = "datafusion.execution.time_zone";

/// While it is there, the engine shows values in their usual forms.
struct PlainForms<'a> {
    session: &'a Session,
}

impl Drop for PlainForms<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.session.show_so() {
            tracing::warn!(%error, "how values are shown was not set back");
        }
    }
}

/// Of a text in an error.
const MAX_SHOWN_CHARS: usize = 100;

/// One connection. Statements run one after another; [`Interrupt`] may be fired from anywhere.
pub struct Session {
    sql: Arc<Sql>,
    node: Arc<Node>,
    query: Opaque<tarn_query::Session>,
    interrupt: Arc<Interrupt>,
    /// What others see of it.
    backend: Arc<Backend>,
    /// Each lock is held for moments, never across a wait.
    vars: Arc<Mutex<Vars>>,
    /// As `vars`: how they are changed.
    settable: Settable,
    /// How the engine shows values.
    shown: Mutex<Style>,
    /// Settings of the engine that the client gave when it introduced itself: RESET goes back to them.
    given: Mutex<BTreeMap<String, String>>,
    principal: Arc<Mutex<Principal>>,
    /// The reader of rows looks here for what the statement sees.
    transaction: Opaque<Arc<Mutex<Transaction>>>,
    cursors: Opaque<Book>,
    named: Opaque<Mutex<HashMap<String, Arc<PreparedStatement>>>>,
    has_pg_catalog: Mutex<bool>,
    locks: Arc<OwnLocks>,
    /// What it notifies, and hears.
    mail: Arc<Mail>,
    /// What sequences gave it.
    numbers: Arc<Mutex<SessionValues>>,
    /// The tables that it has to itself.
    temporary: Arc<Temporary>,
}

impl Session {
    /// Nobody has logged in to it yet; it is seen by others from now on.
    pub fn new(sql: Arc<Sql>) -> Session {
        let principal = Arc::new(Mutex::default());
        let transaction = Opaque::<Arc<Mutex<Transaction>>>::default();
        let (vars, interrupt) = (Arc::<Mutex<Vars>>::default(), Arc::<Interrupt>::default());
        let backend = sql.activity().come_in(Arc::clone(&vars), Arc::clone(&principal), Arc::clone(&interrupt));
        let temporary = Arc::<Temporary>::default();
        let reader = reader(&sql, &principal, &transaction, &temporary);
        let query = Opaque::new(query_session(&sql, reader, &temporary, backend.pid()));
        let locks = Arc::new(OwnLocks::new(&sql.locks, backend.pid()));
        let mail = Arc::new(Mail::new(&sql.channels, backend.pid()));
        let numbers = Arc::<Mutex<SessionValues>>::default();
        let (node, who, given) = (Arc::clone(sql.node()), Arc::clone(&principal), Arc::clone(&numbers));
        let own = Arc::clone(&temporary);
        let settable = Settable::new(&vars, &transaction);
        let (transaction_of, vars_of) = (Arc::clone(&transaction), Arc::clone(&vars));
        let runtime = sql.runtime.clone();
        let numbering = Numbering { node, who, given, own, transaction: transaction_of, vars: vars_of, runtime };
        numbering.functions().for_each(|function| query.context().register_udf(function));
        Session {
            node: Arc::clone(sql.node()),
            sql,
            query,
            interrupt,
            backend,
            vars,
            settable,
            shown: Mutex::default(),
            given: Mutex::default(),
            principal,
            transaction,
            cursors: Opaque::default(),
            named: Opaque::default(),
            has_pg_catalog: Mutex::new(false),
            locks,
            mail,
            numbers,
            temporary,
        }
    }

    /// Whose tables it reads and writes.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Stops what it runs; for whoever reads its connection.
    pub fn interrupt(&self) -> &Arc<Interrupt> {
        &self.interrupt
    }

    /// What others see of it.
    pub fn backend(&self) -> &Arc<Backend> {
        &self.backend
    }

    /// The message that [`Session::begin_statement`] began is answered, with this SQLSTATE if it failed.
    pub fn end_statement(&self, failed: Option<&str>) {
        let status = self.status();
        if status == Status::Idle {
            self.locks.end_transaction();
            // Behind a COPY, whose rows came since the statement was answered.
            self.settle();
            match failed {
                None => self.mail.commit(),
                Some(_) => self.mail.roll_back(),
            }
        }
        self.backend.ends(status, failed);
    }

    /// What other sessions notified, and this one, if it is in no transaction: what it notified itself by a statement
    /// that was none's is heard by then.
    pub fn hear(&self) -> Vec<Notification> {
        if self.status() != Status::Idle {
            return vec![];
        }
        self.mail.commit();
        self.mail.take()
    }

    /// Returns when there is something to hear, and perhaps when there is not.
    pub async fn notified(&self) {
        self.mail.arrived().await;
    }

    /// More rows of a statement are asked for, which gave some before.
    pub fn go_on(&self, prepared: &PreparedStatement) {
        self.backend.begins();
        self.backend.shows(&prepared.text);
    }

    /// Begins one message's worth of statements: forgets old cancels, starts the time limit.
    pub fn begin_statement(&self) {
        self.backend.begins();
        self.limit_statement();
    }

    /// The next statement of the message: forgets old cancels, starts the time limit anew.
    pub fn limit_statement(&self) {
        let limit = self.vars.lock().timeout_ms("statement_timeout", self.sql.settings().statement_timeout_ms);
        self.interrupt.arm(limit.map(Duration::from_millis));
    }

    /// What ReadyForQuery says.
    pub fn status(&self) -> Status {
        match &*self.transaction.lock() {
            Transaction::Idle => Status::Idle,
            Transaction::Open(_) => Status::InTransaction,
            Transaction::Failed(_) => Status::Failed,
        }
    }

    /// After any error: an open transaction is now a failed one. Of what it held and of its cursors, what a savepoint
    /// keeps may come back; the rest is dropped.
    pub async fn failed(&self) {
        let ((depth, is_over), undone) = {
            let mut transaction = self.transaction.lock();
            let undone = transaction.fail();
            let is_over = matches!(&*transaction, Transaction::Idle);
            if is_over {
                self.mail.roll_back();
            }
            ((transaction.depth(), is_over), undone)
        };
        if is_over {
            self.query.end();
            self.settings_end(Settable::roll_back);
        }
        self.cursors.end(depth);
        // The error that it failed with is what the client is told.
        let (made, own) = undone;
        if let Err(error) = self.undo(made, own).await {
            tracing::warn!(%error, "the statements of a message were not undone");
        }
    }

    /// How long the connection may stay idle now; `None` is for ever.
    pub fn idle_limit(&self) -> Option<Duration> {
        if self.status() == Status::Idle {
            return None;
        }
        let default_ms = self.sql.settings().idle_in_transaction_timeout_ms;
        self.vars.lock().timeout_ms("idle_in_transaction_session_timeout", default_ms).map(Duration::from_millis)
    }

    /// A setting, by any case of its name. Errors: `42704`.
    pub fn var(&self, name: &str) -> Result<String> {
        let of_transaction = match &*self.transaction.lock() {
            Transaction::Open(open) => open.setting(&name.to_ascii_lowercase()),
            _ => None,
        };
        match of_transaction {
            Some(value) => Ok(value.to_owned()),
            None => self.vars.lock().get(match &*name.to_ascii_lowercase() {
                "transaction_deferrable" => "default_transaction_deferrable",
                "transaction_isolation" => "default_transaction_isolation",
                "transaction_read_only" => "default_transaction_read_only",
                _ => name,
            }),
        }
    }

    /// Sets one until the session ends, or puts its default back (`None`).
    pub fn set_var(&self, name: &str, value: Option<&str>) -> Result<()> {
        self.set_for(Scope::Session, name, value)
    }

    /// Sets one, or puts the default back (`None`), for that long.
    ///
    /// Errors: as of [`Vars::set`]; `0A000` for a setting of the query engine for a transaction.
    fn set_for(&self, scope: Scope, name: &str, value: Option<&str>) -> Result<()> {
        if vars::is_identity(&name.to_ascii_lowercase()) {
            return value.map_or(Ok(()), |value| self.stay(value));
        }
        if vars::is_engine_setting(name) {
            if scope == Scope::Transaction {
                let remedy = "use SET, and RESET at the end of the transaction";
                return Err(SqlError::unsupported(format!("SET LOCAL {name}"), remedy));
            }
            let name = &name.to_ascii_lowercase();
            self.allow_setting(name)?;
            vars::check_engine_setting(name, value)?;
            if name == TIME_ZONE {
                let zone = value.map(vars::engine_zone).transpose()?;
                return self.set_zone(scope, zone.as_ref().map(Zone::name));
            }
            let value = match value {
                Some(value) => value.to_owned(),
                None => self.fresh_engine_setting(name)?,
            };
            return self.set_engine(name, &value);
        }
        if name.eq_ignore_ascii_case("timezone") {
            return self.set_zone(scope, value);
        }
        if name.eq_ignore_ascii_case("default_transaction_isolation") {
            value.map(Isolation::named).transpose()?;
        }
        let is_mode = ["transaction_deferrable", "transaction_isolation", "transaction_read_only"]
            .iter()
            .any(|mode| mode.eq_ignore_ascii_case(name));
        if let (true, Some(value)) = (is_mode, value) {
            return self.set_mode(&name.to_ascii_lowercase(), value);
        }
        if vars::is_of_style(name) {
            return self.set_style(scope, name, value);
        }
        self.settable.change(scope, |vars| vars.set(name, value))
    }

    /// A setting of the transaction that is open. Outside of one it ends with the statement, as in PostgreSQL.
    fn set_mode(&self, name: &str, value: &str) -> Result<()> {
        let isolation = (name == "transaction_isolation").then(|| Isolation::named(value)).transpose()?;
        let mut of_value = Vars::default();
        of_value.set(name, Some(value))?;
        let Transaction::Open(open) = &mut *self.transaction.lock() else { return Ok(()) };
        match isolation {
            Some(isolation) => open.set_isolation(isolation),
            None if name == "transaction_deferrable" => open.set_deferrable(of_value.is_on(name)),
            None => open.set_read_only(of_value.is_on(name)),
        }
    }

    /// Has the engine show values in their usual forms until the guard is dropped.
    fn in_plain_forms(&self) -> Result<PlainForms<'_>> {
        let plain = Style::of_zone(self.zone());
        let mut shown = self.shown.lock();
        if *shown != plain {
            self.query.set_style(&plain)?;
            *shown = plain;
        }
        Ok(PlainForms { session: self })
    }

    fn set_zone(&self, scope: Scope, value: Option<&str>) -> Result<()> {
        self.set_style(scope, "timezone", value)
    }

    /// A setting that says how values are shown.
    fn set_style(&self, scope: Scope, name: &str, value: Option<&str>) -> Result<()> {
        self.settable.change(scope, |vars| vars.set(name, value))?;
        self.show_so()
    }

    /// Has the engine show values as the settings say; some are set while a statement runs (`set_config`).
    fn show_so(&self) -> Result<()> {
        let style = self.style();
        let mut shown = self.shown.lock();
        if *shown != style {
            self.query.set_style(&style)?;
            *shown = style;
        }
        Ok(())
    }

    /// What becomes of settings when a transaction ends, or a part of it.
    fn settings_end(&self, end: impl FnOnce(&Settable)) {
        if !self.settable.is_changed() {
            return;
        }
        end(&self.settable);
        if let Err(error) = self.show_so() {
            tracing::warn!(%error, "how values are shown was not set back");
        }
    }

    /// The time zone: of texts without an offset, and in which instants are written.
    pub fn zone(&self) -> Zone {
        self.vars.lock().style().zone.clone()
    }

    /// Before an expression is planned that a definition keeps as a text.
    ///
    /// Errors: `0A000` for one that may mean other days in the order that the session has.
    fn check_order(&self, sql: &str) -> Result<()> {
        if self.style().forms.order == DateOrder::Mdy || !hangs_on_order(sql) {
            return Ok(());
        }
        let message = format!(
            "a definition with a date that DateStyle may turn round: {}",
            sql.chars().take(MAX_SHOWN_CHARS).collect::<String>()
        );
        Err(SqlError::unsupported(message, "write the year first ('2026-11-25'), or SET DateStyle = 'MDY'"))
    }

    /// How values are shown, and texts of times read.
    pub fn style(&self) -> Style {
        self.vars.lock().style().clone()
    }

    /// A setting that the client gave when it introduced itself: RESET goes back to it.
    pub fn give(&self, name: &str, value: &str) -> Result<()> {
        self.set_var(name, Some(value))?;
        if vars::is_engine_setting(name) && !name.eq_ignore_ascii_case(TIME_ZONE) {
            self.given.lock().insert(name.to_ascii_lowercase(), value.to_owned());
        }
        Ok(())
    }

    /// What is set now is what RESET goes back to.
    pub fn started(&self) {
        self.vars.lock().started();
    }

    fn set_engine(&self, name: &str, value: &str) -> Result<()> {
        let state = self.query.context().state_ref();
        let mut state = state.write();
        state.config_mut().options_mut().set(name, value)?;
        Ok(())
    }

    /// Parses a text of one or more statements, within the time limit of the statement.
    ///
    /// Errors: `54000` for a text over the setting `statement_bytes`, or over what the parser takes.
    pub fn parse<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<Vec<Opaque<ParsedSql>>>> {
        self.parse_within(sql).boxed()
    }

    async fn parse_within(&self, sql: &str) -> Result<Vec<Opaque<ParsedSql>>> {
        let limit = self.sql.settings().statement_bytes;
        if sql.len() as u64 > limit {
            let message = format!("the statement is {} bytes long, the limit is {limit}", sql.len());
            return Err(SqlError::new(state::PROGRAM_LIMIT, message)
                .with_hint("load rows with COPY, or raise the setting statement_bytes"));
        }
        check_words(sql)?;
        let parsed = match sql.len() <= SMALL_BYTES {
            true => parse(sql)?,
            false => {
                let text = sql.to_owned();
                let parsing = self.query.compute(async move { Ok(parse(&text)) });
                Box::pin(self.interrupt.run(async { parsing.await? })).await?
            }
        };
        self.backend.shows(&activity::shown(sql, parsed.iter().any(ParsedSql::has_password)));
        Ok(parsed.into_iter().map(Opaque::new).collect())
    }

    /// As it was when this session began.
    pub(super) fn fresh_query(&self) -> tarn_query::Session {
        let reader = reader(&self.sql, &self.principal, &self.transaction, &self.temporary);
        query_session(&self.sql, reader, &self.temporary, self.backend.pid())
    }

    /// What a setting of the query engine is in a new session.
    fn fresh_engine_setting(&self, name: &str) -> Result<String> {
        if let Some(given) = self.given.lock().get(name) {
            return Ok(given.clone());
        }
        if name.starts_with("tarn.") {
            return Ok("default".to_owned());
        }
        let state = self.fresh_query().context().state();
        let found = state.config_options().entries().into_iter().find(|entry| entry.key == name);
        found.map(|entry| entry.value.unwrap_or_default()).ok_or_else(|| vars::unrecognized(name))
    }

    /// Before a statement is prepared by name on a connection that has so many.
    ///
    /// Errors: 53400: a client that never deallocates would take all memory.
    pub fn check_prepared_limit(&self, n_prepared: usize) -> Result<()> {
        let limit = self.sql.settings().prepared_statements_limit;
        if n_prepared < limit {
            return Ok(());
        }
        Err(SqlError::new(
            state::CONFIGURATION_LIMIT,
            format!("this connection has {n_prepared} prepared statements, the limit is {limit}"),
        )
        .with_hint("DEALLOCATE those that are not needed, or raise the setting prepared_statements_limit"))
    }

    /// Parses and runs a text of one or more statements, each by itself, without parameters; for HTTP and tests.
    pub fn run<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<Vec<Answer>>> {
        let running = async move {
            let mut answers = Vec::new();
            for parsed in self.parse(sql).await? {
                answers.push(self.run_one(parsed).await?);
            }
            Ok(answers)
        };
        running.boxed()
    }

    /// Prepares and runs one statement without parameters. An error fails an open transaction.
    pub fn run_one(&self, parsed: Opaque<ParsedSql>) -> BoxFuture<'_, Result<Answer>> {
        let running = async move {
            let answer = self.interrupt.run(pin!(self.execute_once(parsed))).await;
            if answer.is_err() {
                self.failed().await;
            }
            answer
        };
        running.boxed()
    }
}

/// Reads for whoever `who` is by then, and what `transaction` sees by then.
fn reader(
    sql: &Sql,
    who: &Arc<Mutex<Principal>>,
    transaction: &Arc<Mutex<Transaction>>,
    temporary: &Arc<Temporary>,
) -> SessionReader {
    let (who, transaction, temporary) = (Arc::clone(who), Arc::clone(transaction), Arc::clone(temporary));
    SessionReader { node: Arc::clone(sql.node()), who, transaction, temporary }
}

/// A session of the query engine, with the tables that session `pid` has to itself by then.
fn query_session(sql: &Sql, reader: SessionReader, temporary: &Arc<Temporary>, pid: i32) -> tarn_query::Session {
    let own = Arc::new(OwnTables(Arc::clone(temporary)));
    let seen = Arc::new(SeenTables { node: Arc::clone(sql.node()), temporary: Arc::clone(temporary) });
    sql.query().session_beside(Arc::new(reader), seen, own, &own_schema(pid))
}

impl Drop for Session {
    fn drop(&mut self) {
        // What a transaction held is gone with it: nothing was written. The tables that it made go, too.
        let made = self.transaction.lock().take_made();
        if let (false, Ok(runtime)) = (made.is_empty(), tokio::runtime::Handle::try_current()) {
            let node = Arc::clone(&self.node);
            runtime.spawn(async move {
                if let Err(error) = drop_made(&node, made).await {
                    tracing::warn!(%error, "a transaction was not undone");
                }
            });
        }
        self.interrupt.cancel(SqlError::canceled());
        self.locks.leave();
        self.mail.leave();
        self.sql.activity().leave(&self.backend);
        if *self.has_pg_catalog.lock() {
            crate::pg_catalog::forget(self.query.context());
        }
    }
}
