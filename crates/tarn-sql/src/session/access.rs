//! What is a statement about to do, and may its user do it? Asked before any statement runs, at each run: as
//! PostgreSQL, which tells of a right that is missing before it looks at anything else. What the statement then asks of
//! the node is asked there again, by the same rules (`tarn_node::rights`).
//!
//! Everything that a plan reads is asked for, subqueries included; of statements without a plan the table that they
//! name. A kind of statement that is not listed here does not compile, a statement of the parser's that is not listed
//! is for superusers.

use std::net::SocketAddr;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, TableReference};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion::sql::sqlparser::ast::{CopySource, CreateTable, ObjectName, ObjectType, Statement};
use tarn_node::auth::access::{Grant, Objects};
use tarn_node::auth::authorize::{is_superuser, may_see};
use tarn_node::auth::users::Users;
use tarn_node::auth::{Access, AuthAction, Principal, Privilege, audit, authorize};
use tarn_query::dml::DmlKind;
use tarn_query::keyed::KeyedPlan;
use tarn_query::merge::Clause;
use tarn_query::{OnKey, RelationRead, reads};
use tarn_types::{TableSchema, full_name};

use super::literals::call_texts;
use super::prepare::StatementKind;
use super::{Answer, PreparedStatement, Session};
use crate::access_sql::tag;
use crate::altered::NameLookup;
use crate::comment_sql::CommentTarget;
use crate::definition::has_primary_key;
use crate::error::{Result, SqlError};
use crate::names::table_name;
use crate::privileges::is_open_relation;

/// Who asks, and what they may do now.
struct AccessCheck {
    users: Arc<Users>,
    who: Principal,
}

impl AccessCheck {
    fn may(&self, action: AuthAction<'_>) -> Result<()> {
        Ok(authorize(&self.users, &self.who, &action)?)
    }

    fn rows(&self, table: &TableSchema, privilege: Privilege) -> Result<()> {
        self.may(AuthAction::Rows { of: table, privilege })
    }

    /// An INSERT: one that may replace or change rows that are there needs the right to UPDATE them.
    fn inserts(&self, table: &TableSchema, on_key: OnKey) -> Result<()> {
        self.rows(table, Privilege::Insert)?;
        let changes = matches!(on_key, OnKey::Replace | OnKey::ReplaceOnce | OnKey::Change);
        if changes && has_primary_key(table) { self.rows(table, Privilege::Update) } else { Ok(()) }
    }

    /// What a plan reads: tables and views one by one, as the user names them or as the owner of the view that does;
    /// and the catalogs, always as the user.
    fn reads(&self, plan: &LogicalPlan) -> Result<()> {
        for read in reads(plan)? {
            match read {
                RelationRead::Table { table: of, through } | RelationRead::View { view: of, through, .. } => {
                    match through {
                        None => self.rows(&of, Privilege::Select)?,
                        // Its own view has no other owner.
                        Some(view) if view.id.is_temporary() => self.rows(&of, Privilege::Select)?,
                        Some(view) => self.may(AuthAction::Through { view: view.id, of: &of })?,
                    }
                }
                RelationRead::Other(reference) => self.catalog(&reference)?,
            }
        }
        Ok(())
    }

    /// As [`AccessCheck::reads`], of plans whose rows are written: who may read the tables could read there what system
    /// tables say.
    fn reads_to_write<'p>(&self, plans: impl IntoIterator<Item = &'p LogicalPlan>) -> Result<()> {
        let mut is_of_system = false;
        for plan in plans {
            self.reads(plan)?;
            is_of_system |= reads(plan)?.iter().any(is_system);
        }
        match is_of_system {
            true => self.may(AuthAction::Server { what: "write what system tables say" }),
            false => Ok(()),
        }
    }

    fn catalog(&self, reference: &TableReference) -> Result<()> {
        // Functions, and the working tables of recursive queries: schema public has nothing else that is no table.
        let is_open = reference.schema().is_none_or(|schema| is_open_relation(schema, reference.table()));
        match is_open {
            true => self.may(AuthAction::Session),
            false => self.may(AuthAction::Server { what: &format!("read {reference}") }),
        }
    }
}

impl Session {
    /// From now on statements are this user's, who is at `peer`.
    pub fn log_in(&self, principal: Principal, peer: SocketAddr) {
        let users = self.node.users().users();
        let is_superuser = is_superuser(&users, &principal);
        self.vars.lock().tell("is_superuser", if is_superuser { "on" } else { "off" });
        *self.principal.lock() = principal;
        self.backend.is_let_in(peer);
    }

    /// What `current_user` is. It gives no rights.
    pub fn call_me(&self, user: &str) {
        self.vars.lock().tell("session_authorization", user);
    }

    /// Whether a setting of the engine may be set: some would let one session take all memory.
    pub(super) fn allow_setting(&self, name: &str) -> Result<()> {
        match name.starts_with("datafusion.") {
            true => self.asking().may(AuthAction::Server { what: "change settings of the engine" }),
            false => Ok(()),
        }
    }

    /// Who the session acts for now; a copy.
    pub fn principal(&self) -> Principal {
        self.principal.lock().clone()
    }

    fn asking(&self) -> AccessCheck {
        AccessCheck { users: self.node.users().users(), who: self.principal() }
    }

    /// Whether a prepared statement may run now.
    pub(super) fn allow(&self, prepared: &PreparedStatement) -> Result<()> {
        let asking = self.asking();
        if asking.users.is_empty() {
            return Ok(());
        }
        // Who may do nothing at all is told so, whatever the statement.
        asking.may(AuthAction::Session)?;
        self.allow_kind(&asking, &prepared.kind)
    }

    fn allow_kind(&self, asking: &AccessCheck, kind: &StatementKind) -> Result<()> {
        match kind {
            StatementKind::With(with) => with.steps.iter().try_for_each(|step| self.allow_kind(asking, &step.kind)),
            StatementKind::Keyed { plan, table, .. } => {
                // The one that has the name now: it is the one that is read.
                let table = self.definition(&table.name)?;
                let reads = match plan {
                    KeyedPlan::Select { .. } => true,
                    KeyedPlan::Insert { on_key, .. } => {
                        asking.inserts(&table, *on_key)?;
                        false
                    }
                    KeyedPlan::Update { .. } => {
                        asking.rows(&table, Privilege::Update)?;
                        true
                    }
                    KeyedPlan::Delete { .. } => {
                        asking.rows(&table, Privilege::Delete)?;
                        true
                    }
                };
                if reads { asking.rows(&table, Privilege::Select) } else { Ok(()) }
            }
            StatementKind::Query { plan, .. } => asking.reads(plan),
            StatementKind::Move { dml, rows, returning } => {
                let table = self.definition(&dml.table.name)?;
                asking.rows(&table, Privilege::Update)?;
                asking.reads_to_write([&dml.source, rows.as_ref()])?;
                returning.as_ref().map_or(Ok(()), |returning| asking.reads(&returning.plan))
            }
            StatementKind::Dml { dml, returning, .. } => {
                let table = self.definition(&dml.table.name)?;
                match dml.kind {
                    DmlKind::Insert { on_key } => asking.inserts(&table, on_key)?,
                    DmlKind::Update => asking.rows(&table, Privilege::Update)?,
                    DmlKind::Delete => asking.rows(&table, Privilege::Delete)?,
                }
                asking.reads_to_write(std::iter::once(&dml.source).chain(&dml.change))?;
                returning.as_ref().map_or(Ok(()), |returning| asking.reads(&returning.plan))
            }
            StatementKind::Merge(merge) => {
                let table = self.definition(&merge.table.name)?;
                for clause in &merge.clauses {
                    match clause {
                        Clause::Nothing => {}
                        Clause::Update(_) => asking.rows(&table, Privilege::Update)?,
                        Clause::Delete => asking.rows(&table, Privilege::Delete)?,
                        Clause::Insert(_) => asking.rows(&table, Privilege::Insert)?,
                    }
                }
                let of_clauses = merge.clauses.iter().filter_map(Clause::plan);
                asking.reads_to_write(std::iter::once(&merge.pairs).chain(of_clauses))
            }
            StatementKind::Utility(statement) => self.allow_utility(asking, statement),
            StatementKind::Copy { statement, on_key } => {
                self.allow_utility(asking, statement)?;
                match statement.as_ref() {
                    Statement::Copy { source: CopySource::Table { table_name, .. }, .. }
                        if *on_key == OnKey::Replace =>
                    {
                        self.allow_rows(asking, table_name, Privilege::Update)
                    }
                    _ => Ok(()),
                }
            }
            StatementKind::Admin { table, .. } => self.allow_own(asking, table),
            // Its condition may read other tables: they are asked for when it is planned.
            StatementKind::CacheTable(asked) => self.allow_own(asking, &asked.table),
            StatementKind::Attach(_) => Ok(self.node.may_attach(&asking.who)?),
            StatementKind::Detach { .. } => Ok(self.node.may_detach(&asking.who)?),
            StatementKind::DropCache(_) => Ok(self.node.may_drop_caches(&asking.who)?),
            StatementKind::Access(access) => self.allow_access(asking, access),
            // What its query reads is asked for when it is planned, and its owner when it is replaced.
            StatementKind::CreateView(view) if view.temporary => Ok(()),
            StatementKind::CreateView(view) => Ok(self.node.may_make(&asking.who, &view.name)?),
            // Asked for when it is known whose it is.
            StatementKind::Comment(comment) if comment.on == CommentTarget::Type => asking.may(AuthAction::Session),
            StatementKind::Comment(comment) => self.allow_own(asking, &comment.table),
            StatementKind::Sequence(statement) => self.allow_sequence(statement),
            StatementKind::Type(statement) => self.allow_types(statement),
            StatementKind::Function(statement) => self.allow_functions(statement),
            StatementKind::Schema(statement) => self.allow_schemas(statement),
            StatementKind::CreateLike(like) => {
                if let Ok(of) = self.relation(&like.of) {
                    asking.rows(&of, Privilege::Select)?;
                }
                self.allow_create(&like.create)
            }
            StatementKind::Alter(alter) => match self.temporary.entry(self.node.catalog(), &alter.name).is_some() {
                true => self.allow_own(asking, &alter.name),
                // It may be a sequence, or need not be there: asked for when it is known whose it is.
                false => asking.may(AuthAction::Session),
            },
            StatementKind::Declare { plan, locked, .. } => {
                if let Some(table) = locked {
                    asking.rows(&*self.definition(&table.name)?, Privilege::Update)?;
                }
                asking.reads(plan)
            }
            StatementKind::Explain(asked) => asking.reads(&asked.plan),
            // As in PostgreSQL: who locks keeps others from changing the row.
            StatementKind::Lock(asked) => {
                asking.rows(&*self.definition(&asked.table.name)?, Privilege::Update)?;
                asking.reads(&asked.plan)
            }
            StatementKind::Fetch(_) => Ok(()),
            // Of what is not there, and of the session's own, is told when it runs.
            StatementKind::Vacuum(asked) if asked.vacuums => {
                let names = asked.tables.iter().filter_map(|table| table_name(&table.name).ok());
                let mut there = names.filter(|name| self.node.catalog().contains(name));
                there.try_for_each(|name| self.allow_own(asking, &name))
            }
            StatementKind::Vacuum(_) | StatementKind::Constraints(_) => Ok(()),
        }
    }

    /// Whether a COPY may begin. Asked when it is prepared, too: some drivers lose count of messages when it is denied
    /// later.
    pub(super) fn allow_copy(&self, statement: &Statement) -> Result<()> {
        let asking = self.asking();
        if asking.users.is_empty() { Ok(()) } else { self.allow_utility(&asking, statement) }
    }

    /// A plan that was made just now, if it may be read, without what is not to be seen.
    pub(super) fn permitted(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let asking = self.asking();
        if asking.users.is_empty() {
            return Ok(plan);
        }
        asking.reads(&plan)?;
        if is_superuser(&asking.users, &asking.who) {
            return Ok(plan);
        }
        let mut seen = None;
        let restricted = plan.transform_down_with_subqueries(|node| {
            let LogicalPlan::TableScan(scan) = &node else { return Ok(Transformed::no(node)) };
            if scan.table_name.schema() != Some("tarn") {
                return Ok(Transformed::no(node));
            }
            let column = Expr::Column(Column::new(Some(scan.table_name.clone()), "table_name"));
            let names = seen.get_or_insert_with(|| self.visible(&asking)).clone();
            let is_seen = if names.is_empty() { lit(false) } else { column.in_list(names, false) };
            let only = LogicalPlanBuilder::from(node).filter(is_seen)?.build()?;
            Ok(Transformed::new(only, true, TreeNodeRecursion::Jump))
        })?;
        Ok(restricted.data)
    }

    /// The names of the tables of which the user may know more than the name.
    fn visible(&self, asking: &AccessCheck) -> Vec<Expr> {
        let catalog = self.node.catalog();
        let is_seen =
            |name: &String| catalog.schema(name).is_ok_and(|table| may_see(&asking.users, &asking.who, &table));
        catalog.names().into_iter().filter(is_seen).map(|name| lit(full_name::dotted(&name).into_owned())).collect()
    }

    fn allow_own(&self, asking: &AccessCheck, table: &str) -> Result<()> {
        match self.temporary.called(table) {
            NameLookup::Altered(altered) => Ok(self.node.may_own(&asking.who, altered.handle.schema())?),
            NameLookup::AsCommitted | NameLookup::Nothing => Ok(self.node.may_own_named(&asking.who, table)?),
        }
    }

    /// Anybody may make temporary tables.
    fn allow_create(&self, create: &CreateTable) -> Result<()> {
        let is_own = create.temporary || self.own_name(&create.name).is_some();
        if is_own { Ok(()) } else { Ok(self.node.may_make(&self.principal(), &table_name(&create.name)?)?) }
    }

    fn allow_rows(&self, asking: &AccessCheck, name: &ObjectName, privilege: Privilege) -> Result<()> {
        let table = table_name(name).and_then(|name| self.definition(&name));
        table.map_or(Ok(()), |table| asking.rows(&table, privilege))
    }

    fn allow_utility(&self, asking: &AccessCheck, statement: &Statement) -> Result<()> {
        match statement {
            Statement::CreateTable(create) => self.allow_create(create),
            Statement::Drop { object_type: ObjectType::Table | ObjectType::View, names, .. } => {
                let names = names.iter().map(table_name).collect::<Result<Vec<_>>>()?;
                // Those that are not there may be fine (IF EXISTS); `may_drop` asks again when it is done.
                let is_others = |name: &str| {
                    self.temporary.entry(self.node.catalog(), name).is_some() && self.temporary.table(name).is_none()
                };
                let mut there = names.iter().filter(|name| is_others(name));
                there.try_for_each(|name| self.allow_own(asking, name))
            }
            Statement::Copy { source: CopySource::Table { table_name, .. }, to: false, .. } => {
                self.allow_rows(asking, table_name, Privilege::Insert)
            }
            // What they read is asked for when it is planned (`permitted`).
            Statement::Copy { to: true, .. } => Ok(()),
            Statement::ShowCreate { obj_name: name, .. } | Statement::ExplainTable { table_name: name, .. } => {
                self.allow_rows(asking, name, Privilege::Select)
            }
            Statement::ShowColumns { show_options, .. } => {
                match show_options.show_in.as_ref().and_then(|shown| shown.parent_name.as_ref()) {
                    Some(name) => self.allow_rows(asking, name, Privilege::Select),
                    None => Ok(()),
                }
            }
            Statement::Call(function) => match call_texts(&function.args).and_then(|texts| texts.into_iter().next()) {
                Some(table) => self.allow_own(asking, &self.called(&table)),
                None => Ok(()),
            },
            // They concern the session, or are refused whoever asks. The statement of an EXECUTE, and settings of the
            // engine, are asked for by themselves.
            Statement::Set(_)
            | Statement::Reset(_)
            | Statement::StartTransaction { .. }
            | Statement::Commit { .. }
            | Statement::Rollback { .. }
            | Statement::Savepoint { .. }
            | Statement::ReleaseSavepoint { .. }
            | Statement::ShowVariable { .. }
            | Statement::ShowTables { .. }
            | Statement::Prepare { .. }
            | Statement::Execute { .. }
            | Statement::Deallocate { .. }
            | Statement::Close { .. }
            | Statement::Discard { .. }
            | Statement::LISTEN { .. }
            | Statement::UNLISTEN { .. }
            | Statement::NOTIFY { .. }
            | Statement::Truncate(_)
            // Asked for when it is known whose table it is.
            | Statement::CreateIndex(_)
            | Statement::AlterIndex { .. }
            | Statement::Drop { object_type: ObjectType::Index, .. } => Ok(()),
            _ => asking.may(AuthAction::Server { what: "run this statement" }),
        }
    }

    fn allow_access(&self, asking: &AccessCheck, access: &Access) -> Result<()> {
        match access {
            // By the names that its transaction gave them.
            Access::Grant(Grant { on: Objects::Tables(names), .. })
            | Access::Revoke(Grant { on: Objects::Tables(names), .. }) => {
                names.iter().try_for_each(|name| self.allow_own(asking, name))
            }
            other => Ok(self.node.may_change_access(&asking.who, other)?),
        }
    }

    /// Changes users and rights.
    pub(super) async fn access(&self, access: &Access) -> Result<Answer> {
        for name in named(access) {
            self.refuse_own(tag(access), name)?;
        }
        if let Access::DropUser { names, .. } = access {
            names.iter().try_for_each(|name| self.check_owns_no_schema(name))?;
        }
        let (node, who, change) = (Arc::clone(&self.node), self.principal(), access.clone());
        super::execute::to_its_end(async move { node.change_access(&who, &change).await }).await?;
        Ok(Answer::done(tag(access)))
    }

    /// `SET ROLE` and its kin: nobody becomes another.
    pub(super) fn stay(&self, wanted: &str) -> Result<()> {
        let is_own = ["none", "default"].contains(&wanted.to_ascii_lowercase().as_str())
            || self.var("session_authorization")? == wanted;
        match is_own {
            true => Ok(()),
            false => Err(SqlError::unsupported(
                format!("becoming role \"{}\"", wanted.escape_debug()),
                "connect as that user",
            )),
        }
    }

    /// Writes down what changed tables, users and rights, or was to.
    pub(super) fn audit(&self, prepared: &PreparedStatement, failed: Option<&SqlError>) {
        let (statement, objects) = match &*prepared.kind {
            StatementKind::Access(access) => (tag(access), access.objects()),
            StatementKind::Sequence(statement) => (statement.tag(), statement.objects()),
            StatementKind::Type(statement) => (statement.tag(), statement.objects()),
            StatementKind::Function(statement) => (statement.tag(), statement.objects()),
            StatementKind::Schema(statement) => (statement.tag(), statement.objects()),
            StatementKind::Attach(request) => ("ATTACH", request.name.clone()),
            StatementKind::Detach { table, .. } => ("DETACH TABLE", table.clone()),
            StatementKind::CreateView(view) => ("CREATE VIEW", view.name.clone()),
            StatementKind::Comment(comment) => ("COMMENT", comment.table.clone()),
            StatementKind::CreateLike(like) => ("CREATE TABLE", like.create.name.to_string()),
            StatementKind::Alter(alter) => (alter.tag(), alter.name.clone()),
            StatementKind::Utility(statement) => match statement.as_ref() {
                Statement::CreateTable(create) => ("CREATE TABLE", create.name.to_string()),
                Statement::Drop { names, .. } => {
                    ("DROP", names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
                }
                _ => return,
            },
            StatementKind::Keyed { .. }
            | StatementKind::Copy { .. }
            | StatementKind::Query { .. }
            | StatementKind::Dml { .. }
            | StatementKind::Merge(_)
            | StatementKind::Move { .. }
            | StatementKind::With(_)
            | StatementKind::Admin { .. }
            | StatementKind::CacheTable(_)
            | StatementKind::DropCache(_)
            | StatementKind::Declare { .. }
            | StatementKind::Lock(_)
            | StatementKind::Explain(_)
            | StatementKind::Vacuum(_)
            | StatementKind::Constraints(_)
            | StatementKind::Fetch(_) => return,
        };
        let objects = full_name::dotted(&objects);
        audit::change(&self.principal(), statement, &objects, failed.map(SqlError::state));
    }
}

/// Whether it is one of the tables about the system: rows that are written of it would not be held back by table, as
/// those of a query are.
fn is_system(read: &RelationRead) -> bool {
    matches!(read, RelationRead::Other(of) if of.schema() == Some("tarn"))
}

/// The tables that it names.
fn named(access: &Access) -> &[String] {
    match access {
        Access::Owner { table, .. } => std::slice::from_ref(table),
        Access::Grant(grant) | Access::Revoke(grant) => match &grant.on {
            Objects::Tables(names) => names,
            Objects::AllTables(_) | Objects::Schema => &[],
        },
        Access::CreateUser { .. } | Access::AlterUser { .. } | Access::DropUser { .. } => &[],
    }
}
