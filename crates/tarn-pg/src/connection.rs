//! What does each message of a client do?
//!
//! The handler traits of `pgwire`, over one [`Session`]. Replies are fed, not flushed, until the client waits for them
//! (Sync, Flush, ReadyForQuery): one write a round trip. Rows go out as they are read, so a portal with a row limit
//! (JDBC's fetch size) holds one batch, not the result.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Debug;
use std::ops::DerefMut;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::arrow::array::{Array, ArrayRef, ListArray};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{Field, FieldRef};
use datafusion::common::{ParamValues, ScalarValue};
use datafusion::sql::sqlparser::ast::Statement;
use futures::{Sink, SinkExt};
use parking_lot::Mutex;
use pgwire::api::auth::{StartupHandler, protocol_negotiation, save_startup_parameters_to_metadata};
use pgwire::api::cancel::CancelHandler;
use pgwire::api::copy::CopyHandler;
use pgwire::api::portal::{Format, Portal, PortalExecutionState};
use pgwire::api::query::{ExtendedQueryHandler, SimpleQueryHandler};
use pgwire::api::results::{DescribePortalResponse, DescribeStatementResponse, FieldInfo, Response};
use pgwire::api::stmt::{QueryParser, StoredStatement};
use pgwire::api::store::{Entry, PortalStore};
use pgwire::api::{ClientInfo, ClientPortalStore, DEFAULT_NAME, PgWireConnectionState, PidSecretKeyGenerator, Type};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::cancel::CancelRequest;
use pgwire::messages::copy::{CopyData, CopyDone, CopyFail, CopyInResponse};
use pgwire::messages::data::{NoData, ParameterDescription};
use pgwire::messages::extendedquery::{
    Bind, BindComplete, Close, CloseComplete, Describe, Execute, Parse, ParseComplete, Sync as PgSync,
    TARGET_TYPE_BYTE_PORTAL, TARGET_TYPE_BYTE_STATEMENT,
};
use pgwire::messages::response::{EmptyQueryResponse, NotificationResponse, ReadyForQuery, TransactionStatus};
use pgwire::messages::simplequery::Query;
use pgwire::messages::startup::{Authentication, BackendKeyData, ParameterStatus, SecretKey};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use tarn_net::Peer;
use tarn_net::places::Guest;
use tarn_node::auth::{FAILURE_DELAY, Principal};
use tarn_sql::channels::Notification;
use tarn_sql::error::{Result, SqlError, state};
use tarn_sql::names::{SERVER_VERSION, fold};
use tarn_sql::quiet;
use tarn_sql::rows::{element_of, fields, pg_type};
use tarn_sql::session::{
    Answer, CopyFrom, DeclaredType, Interrupt, Parameter, REPORTED, Session, Status, Tag, is_all, item_type,
};
use tarn_sql::statement::ParsedSql;
use tarn_types::{DataType, arrow_type, data_type_of};

pub use tarn_sql::session::PreparedStatement;

use super::errors::on_wire;
use super::login::{Login, LoginStep};
use super::params::{BoundParameter, natural};
use super::{ServerState, send, startup};

/// One client.
pub struct Connection {
    shared: Arc<ServerState>,
    session: Session,
    /// The COPY FROM that is running.
    copy: tokio::sync::Mutex<Option<CopyFrom>>,
    pid: Mutex<Option<i32>>,
    login: Mutex<Login>,
    /// Waits until it has proved who it is, then sits.
    guest: Guest,
    names: Mutex<ProtocolNames>,
    /// Whether Sync follows the message that is being answered.
    syncs_next: AtomicBool,
}

/// What the client has named in the protocol. The protocol library keeps it, but does not list or count it.
#[derive(Default)]
struct ProtocolNames {
    statements: HashSet<String>,
    portals: HashSet<String>,
}

impl Connection {
    /// A session that nobody has logged in to yet. `guest`: the place that it waits for.
    pub fn new(shared: Arc<ServerState>, guest: Guest) -> Connection {
        let session = Session::new(Arc::clone(&shared.sql));
        Connection {
            shared,
            session,
            copy: tokio::sync::Mutex::new(None),
            pid: Mutex::new(None),
            login: Mutex::default(),
            guest,
            names: Mutex::default(),
            syncs_next: AtomicBool::new(false),
        }
    }

    /// Before an Execute: whether Sync follows it, so that nothing else is of its transaction.
    pub fn tell_next(&self, is_sync: bool) {
        self.syncs_next.store(is_sync, Ordering::Relaxed);
    }

    /// What the client was told as its process, once it is in; a cancel request names it.
    pub fn pid(&self) -> Option<i32> {
        *self.pid.lock()
    }

    /// The connection as places count it.
    pub fn guest(&self) -> &Guest {
        &self.guest
    }

    /// After any error on the wire.
    pub async fn failed(&self) {
        // Its data may still come: it is swallowed.
        *self.copy.lock().await = None;
        self.session.failed().await;
    }

    /// A message is answered, with this SQLSTATE if it failed.
    pub fn answered(&self, failed: Option<&str>) {
        self.session.end_statement(failed);
    }

    /// Returns when somebody ends the connection.
    pub async fn terminated(&self) -> SqlError {
        self.session.backend().terminated().await
    }

    /// Whether somebody has ended the connection.
    pub fn is_terminated(&self) -> bool {
        self.session.backend().is_terminated()
    }

    /// What stops the running statement.
    pub fn interrupt(&self) -> &Interrupt {
        self.session.interrupt()
    }

    /// Returns when the COPY that is running has failed.
    pub async fn copy_failed(&self) -> SqlError {
        match self.copy.lock().await.as_mut() {
            Some(copy) => copy.failed().await,
            None => std::future::pending().await,
        }
    }

    /// Ends the COPY that is running, if one is, because of `reason`; what is to be told of that.
    pub async fn abort_copy(&self, reason: SqlError) -> SqlError {
        match self.copy.lock().await.take() {
            Some(mut copy) => copy.abort(reason).await,
            None => reason,
        }
    }

    /// How long it may be silent now, by the session's settings; `None`: for ever.
    pub fn idle_limit(&self) -> Option<Duration> {
        self.session.idle_limit()
    }

    /// What ReadyForQuery says.
    pub fn transaction_status(&self) -> TransactionStatus {
        match self.session.status() {
            Status::Idle => TransactionStatus::Idle,
            Status::InTransaction => TransactionStatus::Transaction,
            Status::Failed => TransactionStatus::Error,
        }
    }

    /// Settings a client is told about, as they are now.
    fn reported(&self) -> Vec<(String, String)> {
        REPORTED.iter().map(|(name, shown)| ((*shown).to_owned(), self.session.var(name).unwrap_or_default())).collect()
    }

    /// The reported settings before a statement that may change them.
    fn before(&self, parsed: &ParsedSql) -> Option<Vec<(String, String)>> {
        parsed.changes_settings().then(|| self.reported())
    }

    async fn tell_changes<C: send::Client>(
        &self,
        client: &mut C,
        before: Option<Vec<(String, String)>>,
    ) -> PgWireResult<()>
    where
        PgWireError: From<C::Error>,
    {
        let Some(before) = before else { return Ok(()) };
        for (name, value) in self.reported() {
            if !before.contains(&(name.clone(), value.clone())) {
                client.feed(PgWireBackendMessage::ParameterStatus(ParameterStatus::new(name, value))).await?;
            }
        }
        Ok(())
    }

    /// Tells what others notified, if the client is in no transaction. Flushed with what follows.
    pub async fn tell_notifications<C: send::Client>(&self, client: &mut C) -> PgWireResult<()>
    where
        PgWireError: From<C::Error>,
    {
        for Notification { pid, channel, payload } in self.session.hear() {
            let response = NotificationResponse::new(pid, channel, payload);
            client.feed(PgWireBackendMessage::NotificationResponse(response)).await?;
        }
        Ok(())
    }

    /// Returns when there may be something to tell.
    pub async fn notified(&self) {
        self.session.notified().await;
    }

    async fn begin_copy<C: send::Client>(&self, client: &mut C, copy: CopyFrom) -> PgWireResult<()>
    where
        PgWireError: From<C::Error>,
    {
        let binary = i8::from(copy.format.kind.is_binary());
        let n_columns = copy.n_columns;
        *self.copy.lock().await = Some(copy);
        let response = CopyInResponse::new(binary, n_columns as i16, vec![binary.into(); n_columns]);
        client.send(PgWireBackendMessage::CopyInResponse(response)).await?;
        Ok(())
    }

    async fn parameters(&self, portal: &Portal<Arc<PreparedStatement>>) -> Result<Vec<Parameter>> {
        let prepared = &portal.statement.statement;
        let mut parameters = Vec::with_capacity(portal.parameters.len());
        for (idx, bytes) in portal.parameters.iter().enumerate() {
            let wanted = prepared.parameters.get(idx).and_then(Option::as_ref);
            let declared = portal.statement.parameter_types.get(idx).cloned().flatten().filter(|t| *t != Type::UNKNOWN);
            let described = match wanted {
                Some(field) => pg_type(field)?,
                None => Type::TEXT,
            };
            let sent = declared.clone().unwrap_or(described);
            let want = wanted.and_then(|field| data_type_of(field).ok());
            let bound = BoundParameter {
                number: idx + 1,
                bytes: bytes.as_deref(),
                binary: is_binary(&portal.parameter_format, idx)?,
                pg_type: &sent,
            };
            if let Some(element) = element_of(&sent).filter(|element| natural(element).is_some()) {
                let item = wanted.and_then(|field| item_type(field));
                let elements = bound.elements(element, item.as_ref(), &self.session.style())?;
                parameters.push(Parameter::Scalar(array(elements, element, item)));
                continue;
            }
            if natural(&sent).is_none() && want.is_none() {
                let is_binary = is_binary(&portal.parameter_format, idx)?;
                parameters.push(odd_parameter(bytes.clone(), is_binary, declared, wanted)?);
                continue;
            }
            let value = bound.value(want.as_ref(), &self.session.style())?;
            let data_type = want.or_else(|| natural(&sent)).unwrap_or(DataType::Text);
            parameters.push(Parameter::Value(value, data_type));
        }
        Ok(parameters)
    }

    /// Runs the statement of a portal; rows are left in the portal.
    async fn run_portal(&self, portal: &Portal<Arc<PreparedStatement>>) -> Result<Answer> {
        self.session.begin_statement();
        let prepared = &portal.statement.statement;
        let parameters = self.parameters(portal).await?;
        // What is sent until Sync is one transaction. A statement alone needs none.
        let syncs_next = self.syncs_next.load(Ordering::Relaxed);
        if self.session.is_implicit() {
            self.session.check_beside(prepared.parsed())?;
        }
        if !syncs_next || self.session.is_implicit() {
            let beginning = pin!(self.session.begin_part(prepared.parsed(), syncs_next));
            self.session.interrupt().run(beginning).await?;
        }
        let running = pin!(self.session.execute(prepared, parameters));
        self.session.interrupt().run(running).await
    }

    async fn query<C>(&self, client: &mut C, sql: &str) -> PgWireResult<()>
    where
        C: send::Client + ClientInfo + ClientPortalStore,
        C::PortalStore: PortalStore,
        PgWireError: From<C::Error>,
    {
        let in_text = |error: SqlError| on_wire(error.in_text(sql));
        let statements = self.session.parse(sql).await.map_err(in_text)?;
        if statements.is_empty() {
            client.feed(PgWireBackendMessage::EmptyQueryResponse(EmptyQueryResponse::new())).await?;
        }
        let n_statements = statements.len();
        for (idx, parsed) in statements.into_iter().enumerate() {
            let is_last = idx + 1 == n_statements;
            if n_statements > 1 {
                self.session.check_beside(&parsed).map_err(on_wire)?;
            }
            if n_statements > 1 || self.session.is_implicit() {
                let beginning = pin!(self.session.begin_part(&parsed, is_last));
                self.session.interrupt().run(beginning).await.map_err(on_wire)?;
            }
            let before = self.before(&parsed);
            if self.deallocate(client.portal_store(), &parsed) {
                send::complete(client, &Tag::new("DEALLOCATE")).await?;
                continue;
            }
            let answer = self.session.run_one(parsed).await.map_err(in_text)?;
            let tag = match answer {
                Answer::Rows(rows) => {
                    let format = if rows.is_binary { Format::UnifiedBinary } else { Format::UnifiedText };
                    let mut response = send::response(rows, &format, self.session.style()).map_err(on_wire)?;
                    send::describe(client, &response.row_schema()).await?;
                    send::rows(client, &mut response, 0, self.session.interrupt()).await?
                }
                Answer::Done(tag) => {
                    self.forget_all(client.portal_store(), &tag);
                    self.tell_changes(client, before).await?;
                    Some(tag)
                }
                Answer::CopyTo(copy) => Some(Box::pin(send::copy_to(client, copy, self.session.interrupt())).await?),
                Answer::CopyFrom(copy) => {
                    if !is_last {
                        return Err(on_wire(SqlError::unsupported(
                            "COPY FROM STDIN before other statements of the same text",
                            "send it by itself",
                        )));
                    }
                    self.begin_copy(client, *copy).await?;
                    client.set_state(PgWireConnectionState::CopyInProgress(false));
                    return Ok(());
                }
            };
            // It is done when all of them are.
            if is_last {
                self.session.end_implicit().await.map_err(on_wire)?;
            }
            if let Some(tag) = tag {
                send::complete(client, &tag).await?;
            }
        }
        self.session.end_implicit().await.map_err(on_wire)
    }

    /// `DEALLOCATE name` of a statement that the protocol has. False: it is the session's business.
    fn deallocate(&self, store: &impl PortalStore, parsed: &ParsedSql) -> bool {
        let Some(name) = deallocated(parsed) else { return false };
        if store.get_statement(&name).is_none() {
            return false;
        }
        store.rm_statement(&name);
        self.names.lock().statements.remove(&name);
        true
    }

    /// After `DEALLOCATE ALL` and `DISCARD ALL`, which mean the protocol's names too.
    fn forget_all(&self, store: &impl PortalStore, done: &Tag) {
        if !matches!(done.command.as_str(), "DEALLOCATE ALL" | "DISCARD ALL") {
            return;
        }
        let mut names = self.names.lock();
        for name in names.statements.drain() {
            store.rm_statement(&name);
        }
        store.rm_statement(DEFAULT_NAME);
        if done.command == "DISCARD ALL" {
            store.clear_portals();
            names.portals.clear();
        }
    }

    /// Before a portal is made.
    fn check_portal(&self, store: &impl PortalStore, name: &str) -> Result<()> {
        if name == DEFAULT_NAME {
            return Ok(());
        }
        if store.get_portal(name).is_some() || self.session.cursor_columns(name).is_some() {
            return Err(SqlError::new(state::DUPLICATE_CURSOR, format!("cursor \"{name}\" already exists")));
        }
        let (n_portals, limit) =
            (self.names.lock().portals.len(), self.shared.sql.settings().prepared_statements_limit);
        if n_portals >= limit {
            return Err(SqlError::new(
                state::CONFIGURATION_LIMIT,
                format!("this connection has {n_portals} portals, the limit is {limit}"),
            )
            .with_hint("close those that are not needed, or raise the setting prepared_statements_limit"));
        }
        self.names.lock().portals.insert(name.to_owned());
        Ok(())
    }
}

/// What a Bind says of formats must fit the statement.
fn check_formats(message: &Bind, prepared: &PreparedStatement) -> Result<()> {
    let violation = |message| Err(SqlError::new(state::PROTOCOL_VIOLATION, message));
    let (n_formats, n_parameters) = (message.parameter_format_codes.len(), message.parameters.len());
    if n_formats > 1 && n_formats != n_parameters {
        return violation(format!("bind message has {n_formats} parameter formats but {n_parameters} parameters"));
    }
    let n_formats = message.result_column_format_codes.len();
    match &prepared.columns {
        Some(columns) if n_formats > 1 && n_formats != columns.fields().len() => violation(format!(
            "bind message has {n_formats} result formats but query has {} columns",
            columns.fields().len()
        )),
        _ => Ok(()),
    }
}

fn is_binary(format: &Format, idx: usize) -> Result<bool> {
    match format {
        Format::UnifiedText => Ok(false),
        Format::UnifiedBinary => Ok(true),
        Format::Individual(codes) => codes.get(idx).map(|code| *code == 1).ok_or_else(|| {
            SqlError::new(
                state::PROTOCOL_VIOLATION,
                format!("bind message has {} parameter formats but more parameters", codes.len()),
            )
        }),
    }
}

/// An array as the planner has it; without elements, a NULL of its type.
fn array(elements: Option<ArrayRef>, element: &Type, wanted: Option<DataType>) -> ScalarValue {
    let of = wanted.or_else(|| natural(element)).unwrap_or(DataType::Text);
    let field = |of| Arc::new(Field::new_list_field(of, true));
    ScalarValue::List(Arc::new(match elements {
        Some(elements) => {
            let length = OffsetBuffer::from_lengths([elements.len()]);
            ListArray::new(field(elements.data_type().clone()), length, elements, None)
        }
        None => ListArray::new_null(field(arrow_type(&of)), 1),
    }))
}

/// A type that no column has, nor an array of a column's, such as a point: read as the only parameter of a portal.
fn odd_parameter(
    bytes: Option<Bytes>,
    is_binary: bool,
    declared: Option<Type>,
    wanted: Option<&FieldRef>,
) -> Result<Parameter> {
    let mut portal = Portal::<()>::default();
    portal.statement = Arc::new(StoredStatement::new(String::new(), (), vec![declared]));
    portal.parameter_format = if is_binary { Format::UnifiedBinary } else { Format::UnifiedText };
    portal.parameters = vec![bytes];
    let types = [wanted.map(|field| field.data_type())];
    // It trusts the lengths inside an array.
    let read = AssertUnwindSafe(|| arrow_pg::datatypes::df::deserialize_parameters(&portal, &types));
    let one = || SqlError::new(state::INTERNAL, "a parameter is one value");
    let bad = |message: String| SqlError::new(state::INVALID_BINARY, format!("parameters: {message}"));
    let values = quiet::catch(read).map_err(bad)?.map_err(|error| bad(error.to_string()))?;
    match values {
        ParamValues::List(list) if list.len() == 1 => {
            list.into_iter().next().map(|scalar| Parameter::Scalar(scalar.value)).ok_or_else(one)
        }
        _ => Err(one()),
    }
}

/// The name in DEALLOCATE name, which may be one of the protocol's.
fn deallocated(parsed: &ParsedSql) -> Option<String> {
    match parsed {
        ParsedSql::Sql(statement) => match statement.as_ref() {
            Statement::Deallocate { name, .. } if !is_all(name) => Some(fold(name)),
            _ => None,
        },
        _ => None,
    }
}

#[async_trait]
impl StartupHandler for Connection {
    async fn on_startup<C>(&self, client: &mut C, message: PgWireFrontendMessage) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let peer = Peer { address: client.socket_addr(), is_encrypted: client.is_secure() };
        let next = match message {
            PgWireFrontendMessage::Startup(startup) => {
                protocol_negotiation(client, &startup).await?;
                save_startup_parameters_to_metadata(client, &startup);
                let user = client.metadata().get("user").map(String::as_str);
                self.login.lock().begin(self.session.node().users(), user).map_err(on_wire)?
            }
            PgWireFrontendMessage::PasswordMessageFamily(message) => {
                let next = self.login.lock().step(self.session.node().users(), message, peer);
                match next {
                    Ok(next) => next,
                    Err(error) => {
                        tokio::time::sleep(FAILURE_DELAY).await;
                        return Err(on_wire(error));
                    }
                }
            }
            _ => return Err(on_wire(SqlError::new(state::PROTOCOL_VIOLATION, "log in first").fatal())),
        };
        match next {
            LoginStep::Ask(question) => {
                client.set_state(PgWireConnectionState::AuthenticationInProgress);
                client.send(PgWireBackendMessage::Authentication(question)).await?;
                Ok(())
            }
            LoginStep::Welcome(principal, last) => {
                if let Some(last) = last {
                    client.feed(PgWireBackendMessage::Authentication(last)).await?;
                }
                self.welcome(client, principal).await
            }
        }
    }
}

impl Connection {
    /// The settings of the startup message: those of `options` first, as in Postgres. What SET would refuse refuses the
    /// connection.
    fn take_parameters(&self, given: &BTreeMap<String, String>) -> Result<()> {
        if let Some(user) = given.get("user") {
            self.session.call_me(user);
        }
        if let Some(options) = given.get("options") {
            for (name, value) in startup::settings(options)? {
                self.session.give(&name, &value)?;
            }
        }
        for (name, value) in given {
            match name.as_str() {
                // There is one database, whatever it is called.
                "user" | "database" | "options" => {}
                "replication" => startup::check_replication(value)?,
                _ => self.session.give(name, value)?,
            }
        }
        self.session.started();
        Ok(())
    }

    /// Lets a client in: statements are taken from now on.
    async fn welcome<C>(&self, client: &mut C, principal: Principal) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        if !self.guest.sit() {
            return Err(on_wire(too_many(self.shared.door.places.max_seated())));
        }
        self.shared.count_connections();
        self.session.log_in(principal, client.socket_addr());
        let (_, key): (i32, SecretKey) = self.shared.keys.generate(client);
        let pid = self.session.backend().pid();
        client.set_pid_and_secret_key(pid, key.clone());
        self.shared.register(pid, key.clone(), Arc::clone(self.session.interrupt()));
        *self.pid.lock() = Some(pid);

        let given: BTreeMap<String, String> =
            client.metadata().iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        self.take_parameters(&given).map_err(SqlError::fatal).map_err(on_wire)?;
        client.feed(PgWireBackendMessage::Authentication(Authentication::Ok)).await?;
        for (name, value) in self.reported() {
            client.feed(PgWireBackendMessage::ParameterStatus(ParameterStatus::new(name, value))).await?;
        }
        client.feed(PgWireBackendMessage::BackendKeyData(BackendKeyData::new(pid, key))).await?;
        client.send(PgWireBackendMessage::ReadyForQuery(ReadyForQuery::new(TransactionStatus::Idle))).await?;
        client.set_state(PgWireConnectionState::ReadyForQuery);
        tracing::debug!(pid, version = SERVER_VERSION, "client connected");
        Ok(())
    }
}

fn too_many(limit: usize) -> SqlError {
    SqlError::new(state::TOO_MANY_CONNECTIONS, format!("too many connections, the limit is {limit}"))
        .with_hint("raise max_connections (and the limit of open files), or close idle connections")
        .fatal()
}

#[async_trait]
impl CancelHandler for Connection {
    async fn on_cancel_request(&self, request: CancelRequest) {
        self.shared.cancel(request.pid, &request.secret_key);
    }
}

#[async_trait]
impl SimpleQueryHandler for Connection {
    async fn on_query<C>(&self, client: &mut C, query: Query) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        client.set_state(PgWireConnectionState::QueryInProgress);
        self.session.begin_statement();
        self.query(client, &query.query).await?;
        let status = self.transaction_status();
        client.set_transaction_status(status);
        if !matches!(client.state(), PgWireConnectionState::CopyInProgress(_)) {
            client.set_state(PgWireConnectionState::ReadyForQuery);
            self.tell_notifications(client).await?;
            client.send(PgWireBackendMessage::ReadyForQuery(ReadyForQuery::new(status))).await?;
        }
        Ok(())
    }

    async fn do_query<C>(&self, _client: &mut C, _query: &str) -> PgWireResult<Vec<Response>>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        Err(on_wire(SqlError::new(state::INTERNAL, "on_query answers itself")))
    }
}

/// The protocol library asks for a parser; statements are prepared by the session.
#[async_trait]
impl QueryParser for Connection {
    type Statement = Arc<PreparedStatement>;

    async fn parse_sql<C>(
        &self,
        _client: &C,
        sql: &str,
        types: &[Option<Type>],
    ) -> PgWireResult<Option<Self::Statement>>
    where
        C: ClientInfo + Unpin + Send + Sync,
    {
        self.session.begin_statement();
        let in_text = |error: SqlError| on_wire(error.in_text(sql));
        let mut statements = self.session.parse(sql).await.map_err(in_text)?;
        if statements.len() > 1 {
            return Err(on_wire(SqlError::new(
                state::SYNTAX_ERROR,
                "cannot insert multiple commands into a prepared statement",
            )));
        }
        let Some(parsed) = statements.pop() else { return Ok(None) };
        let declared: Vec<Option<DeclaredType>> =
            types.iter().map(|t| t.as_ref().filter(|t| **t != Type::UNKNOWN).and_then(declared)).collect();
        let preparing = self.session.prepare(parsed, &declared);
        Ok(Some(self.session.interrupt().run(preparing).await.map_err(in_text)?))
    }

    fn get_parameter_types(&self, statement: &Self::Statement) -> PgWireResult<Vec<Type>> {
        parameter_types(statement, &[]).map_err(on_wire)
    }

    fn get_result_schema(&self, statement: &Self::Statement, format: Option<&Format>) -> PgWireResult<Vec<FieldInfo>> {
        result_fields(statement, format).map_err(on_wire)
    }
}

/// What the planner is told of a type that the client gave a parameter.
fn declared(pg_type: &Type) -> Option<DeclaredType> {
    match element_of(pg_type) {
        Some(element) => natural(element).map(DeclaredType::Array),
        None => natural(pg_type).map(DeclaredType::Value),
    }
}

fn parameter_types(prepared: &PreparedStatement, declared: &[Option<Type>]) -> Result<Vec<Type>> {
    let n = prepared.parameters.len().max(declared.len());
    (0..n)
        .map(|idx| match declared.get(idx).cloned().flatten().filter(|t| *t != Type::UNKNOWN) {
            Some(declared) => Ok(declared),
            None => {
                prepared.parameters.get(idx).and_then(Option::as_ref).map_or(Ok(Type::TEXT), |field| pg_type(field))
            }
        })
        .collect()
}

fn result_fields(prepared: &PreparedStatement, format: Option<&Format>) -> Result<Vec<FieldInfo>> {
    match &prepared.columns {
        None => Ok(vec![]),
        Some(columns) => Ok(fields(columns, format.unwrap_or(&Format::UnifiedText))?.as_ref().clone()),
    }
}

#[async_trait]
impl ExtendedQueryHandler for Connection {
    type Statement = Arc<PreparedStatement>;
    type QueryParser = Connection;

    fn query_parser(&self) -> Arc<Self::QueryParser> {
        unreachable!("on_parse and on_describe are our own, nobody asks for the parser")
    }

    async fn on_parse<C>(&self, client: &mut C, message: Parse) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let name = message.name.clone().unwrap_or_else(|| DEFAULT_NAME.to_owned());
        if name != DEFAULT_NAME && client.portal_store().get_statement(&name).is_some() {
            return Err(on_wire(SqlError::new(
                state::DUPLICATE_PREPARED,
                format!("prepared statement \"{name}\" already exists"),
            )));
        }
        if name != DEFAULT_NAME {
            self.session.check_prepared_limit(self.names.lock().statements.len()).map_err(on_wire)?;
        }
        let types: Vec<Option<Type>> = message.type_oids.iter().map(|oid| Type::from_oid(*oid)).collect();
        match self.parse_sql(client, &message.query, &types).await? {
            Some(prepared) => {
                if name != DEFAULT_NAME {
                    self.names.lock().statements.insert(name.clone());
                }
                let statement = StoredStatement::new(name, prepared, types);
                client.portal_store().put_statement(Arc::new(statement));
            }
            None => {
                self.names.lock().statements.insert(name.clone());
                client.portal_store().put_empty_statement(&name);
            }
        }
        client.feed(PgWireBackendMessage::ParseComplete(ParseComplete::new())).await?;
        Ok(())
    }

    async fn on_bind<C>(&self, client: &mut C, message: Bind) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let name = message.statement_name.as_deref().unwrap_or(DEFAULT_NAME);
        let portal_name = message.portal_name.as_deref().unwrap_or(DEFAULT_NAME);
        let wanted = match client.portal_store().get_statement(name) {
            Some(Entry::Value(statement)) => {
                let wanted = statement.statement.parameters.len();
                if message.parameters.len() == wanted {
                    check_formats(&message, &statement.statement).map_err(on_wire)?;
                    self.check_portal(client.portal_store(), portal_name).map_err(on_wire)?;
                    let portal = Portal::try_new(&message, statement)?;
                    client.portal_store().put_portal(Arc::new(portal));
                }
                wanted
            }
            Some(Entry::Empty) => {
                self.check_portal(client.portal_store(), portal_name).map_err(on_wire)?;
                client.portal_store().put_empty_portal(portal_name);
                0
            }
            None => return Err(PgWireError::StatementNotFound(name.to_owned())),
        };
        if message.parameters.len() != wanted {
            let text = format!(
                "bind message supplies {} parameters, but the prepared statement requires {wanted}",
                message.parameters.len()
            );
            return Err(on_wire(SqlError::new(state::PROTOCOL_VIOLATION, text)));
        }
        client.feed(PgWireBackendMessage::BindComplete(BindComplete::new())).await?;
        Ok(())
    }

    async fn on_describe<C>(&self, client: &mut C, message: Describe) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let name = message.name.as_deref().unwrap_or(DEFAULT_NAME);
        let columns = match message.target_type {
            TARGET_TYPE_BYTE_STATEMENT => {
                let (types, columns) = match client.portal_store().get_statement(name) {
                    Some(Entry::Value(statement)) => {
                        let types =
                            parameter_types(&statement.statement, &statement.parameter_types).map_err(on_wire)?;
                        (types, result_fields(&statement.statement, None).map_err(on_wire)?)
                    }
                    Some(Entry::Empty) => (vec![], vec![]),
                    None => return Err(PgWireError::StatementNotFound(name.to_owned())),
                };
                let description = ParameterDescription::new(types.iter().map(Type::oid).collect());
                client.feed(PgWireBackendMessage::ParameterDescription(description)).await?;
                columns
            }
            TARGET_TYPE_BYTE_PORTAL => match client.portal_store().get_portal(name) {
                Some(Entry::Value(portal)) => {
                    result_fields(&portal.statement.statement, Some(&portal.result_column_format)).map_err(on_wire)?
                }
                Some(Entry::Empty) => vec![],
                // A cursor of SQL's DECLARE is a portal too.
                None => match self.session.cursor_columns(name) {
                    Some(columns) => fields(&columns, &Format::UnifiedText).map_err(on_wire)?.as_ref().clone(),
                    None => return Err(PgWireError::PortalNotFound(name.to_owned())),
                },
            },
            other => return Err(PgWireError::InvalidTargetType(other)),
        };
        if columns.is_empty() {
            client.feed(PgWireBackendMessage::NoData(NoData::new())).await?;
        } else {
            send::describe(client, &columns).await?;
        }
        Ok(())
    }

    async fn on_execute<C>(&self, client: &mut C, message: Execute) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let name = message.name.as_deref().unwrap_or(DEFAULT_NAME);
        let max_rows = usize::try_from(message.max_rows).unwrap_or(0);
        let portal = match client.portal_store().get_portal(name) {
            Some(Entry::Value(portal)) => portal,
            Some(Entry::Empty) => {
                client.feed(PgWireBackendMessage::EmptyQueryResponse(EmptyQueryResponse::new())).await?;
                return Ok(());
            }
            None => return Err(PgWireError::PortalNotFound(name.to_owned())),
        };
        client.set_state(PgWireConnectionState::QueryInProgress);
        let shared_state = portal.state();
        let mut portal_state = shared_state.lock().await;
        let is_begun = matches!(*portal_state, PortalExecutionState::Initial);
        if is_begun {
            let before = self.before(portal.statement.statement.parsed());
            if self.deallocate(client.portal_store(), portal.statement.statement.parsed()) {
                *portal_state = PortalExecutionState::Finished;
                send::complete(client, &Tag::new("DEALLOCATE")).await?;
                client.set_state(PgWireConnectionState::ReadyForQuery);
                return Ok(());
            }
            match self.run_portal(&portal).await.map_err(on_wire)? {
                Answer::Rows(rows) => {
                    *portal_state = PortalExecutionState::Suspended(
                        send::response(rows, &portal.result_column_format, self.session.style()).map_err(on_wire)?,
                    )
                }
                Answer::Done(tag) => {
                    self.forget_all(client.portal_store(), &tag);
                    self.tell_changes(client, before).await?;
                    *portal_state = PortalExecutionState::Finished;
                    send::complete(client, &tag).await?;
                    client.set_state(PgWireConnectionState::ReadyForQuery);
                    client.set_transaction_status(self.transaction_status());
                    return Ok(());
                }
                Answer::CopyTo(copy) => {
                    *portal_state = PortalExecutionState::Finished;
                    let tag = Box::pin(send::copy_to(client, copy, self.session.interrupt())).await?;
                    send::complete(client, &tag).await?;
                    client.set_state(PgWireConnectionState::ReadyForQuery);
                    return Ok(());
                }
                Answer::CopyFrom(copy) => {
                    *portal_state = PortalExecutionState::Finished;
                    self.begin_copy(client, *copy).await?;
                    client.set_state(PgWireConnectionState::CopyInProgress(true));
                    return Ok(());
                }
            }
        }
        match portal_state.deref_mut() {
            PortalExecutionState::Suspended(response) => {
                if !is_begun {
                    self.session.go_on(&portal.statement.statement);
                }
                if let Some(tag) = send::rows(client, response, max_rows, self.session.interrupt()).await? {
                    *portal_state = PortalExecutionState::Finished;
                    send::complete(client, &tag).await?;
                }
            }
            // Its rows are used up. What has none ran once, and runs no second time.
            _ if portal.statement.statement.columns.is_some() => {
                send::complete(client, &Tag::rows("SELECT", 0)).await?;
            }
            _ => {
                let shown = if name == DEFAULT_NAME { "" } else { name };
                let message = format!("portal \"{shown}\" cannot be run");
                return Err(on_wire(SqlError::new(state::NOT_IN_PREREQUISITE_STATE, message)));
            }
        }
        client.set_state(PgWireConnectionState::ReadyForQuery);
        client.set_transaction_status(self.transaction_status());
        Ok(())
    }

    async fn on_sync<C>(&self, client: &mut C, _message: PgSync) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        if self.session.is_implicit() {
            self.session.limit_statement();
        }
        let ended = self.session.end_implicit().await;
        let status = self.transaction_status();
        // Portals live as long as their transaction.
        if status == TransactionStatus::Idle {
            client.portal_store().clear_portals();
            self.names.lock().portals.clear();
        }
        ended.map_err(on_wire)?;
        client.set_transaction_status(status);
        self.tell_notifications(client).await?;
        client.send(PgWireBackendMessage::ReadyForQuery(ReadyForQuery::new(status))).await?;
        Ok(())
    }

    async fn on_close<C>(&self, client: &mut C, message: Close) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let name = message.name.as_deref().unwrap_or(DEFAULT_NAME);
        match message.target_type {
            TARGET_TYPE_BYTE_STATEMENT => {
                client.portal_store().rm_statement(name);
                self.names.lock().statements.remove(name);
            }
            _ => {
                client.portal_store().rm_portal(name);
                self.names.lock().portals.remove(name);
            }
        }
        client.feed(PgWireBackendMessage::CloseComplete(CloseComplete::new())).await?;
        Ok(())
    }

    async fn do_describe_statement<C>(
        &self,
        _client: &mut C,
        target: &StoredStatement<Self::Statement>,
    ) -> PgWireResult<DescribeStatementResponse>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let types = parameter_types(&target.statement, &target.parameter_types).map_err(on_wire)?;
        Ok(DescribeStatementResponse::new(types, result_fields(&target.statement, None).map_err(on_wire)?))
    }

    async fn do_describe_portal<C>(
        &self,
        _client: &mut C,
        target: &Portal<Self::Statement>,
    ) -> PgWireResult<DescribePortalResponse>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        Ok(DescribePortalResponse::new(
            result_fields(&target.statement.statement, Some(&target.result_column_format)).map_err(on_wire)?,
        ))
    }

    async fn do_query<C>(
        &self,
        _client: &mut C,
        _portal: &Portal<Self::Statement>,
        _max_rows: usize,
    ) -> PgWireResult<Response>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        Err(on_wire(SqlError::new(state::INTERNAL, "on_execute answers itself")))
    }
}

#[async_trait]
impl CopyHandler for Connection {
    async fn on_copy_data<C>(&self, _client: &mut C, data: CopyData) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let mut running = self.copy.lock().await;
        let Some(copy) = running.as_mut() else { return Ok(()) };
        let reason = tokio::select! {
            biased;
            reason = self.session.interrupt().triggered() => reason,
            pushed = copy.push(data.data) => return pushed.map_err(on_wire),
        };
        let stopped = copy.abort(reason).await;
        *running = None;
        Err(on_wire(stopped))
    }

    async fn on_copy_done<C>(&self, client: &mut C, _done: CopyDone) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let Some(mut copy) = self.copy.lock().await.take() else { return Ok(()) };
        let finished = tokio::select! {
            biased;
            finished = self.session.finish_copy(&mut copy) => Ok(finished.map_err(on_wire)?),
            reason = self.session.interrupt().triggered() => Err(reason),
        };
        let rows = match finished {
            Ok(rows) => rows,
            Err(reason) => return Err(on_wire(copy.abort(reason).await)),
        };
        self.session.end_copy().await.map_err(on_wire)?;
        // Behind other statements of a simple query it is the last of one transaction; by the extended protocol Sync
        // ends that.
        if !matches!(client.state(), PgWireConnectionState::CopyInProgress(true)) {
            self.session.end_implicit().await.map_err(on_wire)?;
        }
        client.set_transaction_status(self.transaction_status());
        send::complete(client, &Tag::rows("COPY", rows)).await
    }

    async fn on_copy_fail<C>(&self, _client: &mut C, fail: CopyFail) -> PgWireError
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let reason = SqlError::new(state::QUERY_CANCELED, format!("COPY from stdin failed: {}", fail.message));
        on_wire(self.abort_copy(reason).await)
    }
}

impl pgwire::api::ErrorHandler for Connection {}
