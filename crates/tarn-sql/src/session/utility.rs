//! Everything that is neither a query nor a write: tables, settings, transactions, prepared names, cursors.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, StringArray};
use datafusion::arrow::datatypes::{DataType as ArrowType, Field, Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    AlterIndexOperation, ArrayElemTypeDef, CloseCursor, ContextModifier, CreateTable, DataType as SqlType,
    DiscardObject, Expr, FunctionArguments, Ident, ObjectName, ObjectType, Reset, SelectItem, Set, SetExpr,
    SetSessionAuthorizationParamKind, ShowCreateObject, Statement, TransactionAccessMode, TransactionMode,
    Value as Literal,
};
use futures::TryStreamExt;
use tarn_node::jobs::{JobReport, Work};
use tarn_node::split::SplitAt;
use tarn_query::has_query;
use tarn_query::parser::{begins_deferrable, sets_deferrable, statements};
use tarn_types::{Opaque, Style, TableSchema, Token, Value, full_name};

use super::execute::to_its_end;
use super::functions::drop_functions;
use super::literals::{call_texts, only_text};
use super::schemas::drop_schemas;
use super::sequences::create_defined;
use super::set_back::{Scope, Settable};
use super::types::drop_types;
use super::views;
use super::{Answer, DeclaredType, Parameter, Session};
use crate::ddl::{Ddl, TableDefinition, defined};
use crate::definition::{create_statement, default_text, type_text};
use crate::error::{Result, SqlError, state};
use crate::lock_sql::LockRows;
use crate::names::{fold, quote, table_name};
use crate::schema_path;
use crate::statement::ParsedSql;
use crate::temporary::TemporaryObjects;
use crate::transaction::{
    CreatedId, CreatedObject, Isolation, OpenTransaction, RollbackEffects, ToCommit, Transaction, drop_made,
};
use crate::user_types;
use crate::view_rename::rewrite;

impl Session {
    /// The columns a utility statement answers, known before it runs.
    pub(super) fn utility_columns(&self, statement: &Statement) -> Result<Option<SchemaRef>> {
        Ok(match statement {
            Statement::ShowVariable { variable } => Some(texts(&show_columns(&name_of(variable)))),
            Statement::ShowTables { .. } => Some(texts(&["table_name"])),
            Statement::ShowCreate { .. } => Some(texts(&["table_name", "create_statement"])),
            Statement::ShowColumns { .. } | Statement::ExplainTable { .. } => {
                Some(texts(&["column_name", "data_type", "is_nullable", "key", "default"]))
            }
            Statement::Call(function) if dotted(&function.name) == "tarn.split" => Some(split_schema()),
            Statement::Call(_) => Some(report_schema()),
            Statement::Execute { name: Some(name), .. } => {
                let named = self.named.lock();
                named.get(&statement_name(name)?).and_then(|prepared| prepared.columns.clone())
            }
            _ => None,
        })
    }

    pub(super) async fn utility(&self, statement: &Statement) -> Result<Answer> {
        match statement {
            Statement::Commit { chain, .. } => {
                let next = self.chained("COMMIT", *chain)?;
                let tag = Box::pin(self.commit()).await?;
                return Ok(self.ended(tag, next));
            }
            Statement::Rollback { savepoint: None, chain } => {
                let next = self.chained("ROLLBACK", *chain)?;
                let tag = self.rollback().await?;
                return Ok(self.ended(tag, next));
            }
            Statement::Rollback { savepoint: Some(name), .. } => return Box::pin(self.roll_back_to(&fold(name))).await,
            _ => self.transaction.lock().check_usable()?,
        }
        match statement {
            Statement::StartTransaction { modes, modifier, .. } => {
                self.begin(Modes::of(modes, begins_deferrable(modifier.as_ref()))?)
            }
            Statement::CreateTable(create) => {
                if let Some(query) = &create.query {
                    return Box::pin(self.create_as(create, query)).await;
                }
                Box::pin(self.create_table(create)).await
            }
            Statement::Drop { object_type, if_exists, names, cascade, .. }
                if matches!(object_type, ObjectType::Table | ObjectType::View) =>
            {
                let names = names.iter().map(table_name).collect::<Result<_>>()?;
                Box::pin(self.drop_relations(names, *object_type == ObjectType::View, *if_exists, *cascade)).await
            }
            Statement::Copy { .. } => Box::pin(self.copy(statement, None)).await,
            Statement::Set(set) => self.set(set),
            Statement::Reset(reset) => self.reset(&reset.reset),
            Statement::ShowVariable { variable } => self.show(&name_of(variable)),
            Statement::ShowTables { .. } => {
                let tables = self.temporary.public(self.node.catalog()).into_iter().filter(|schema| !schema.is_view());
                let own = self.temporary.schemas().into_iter();
                let names = own.chain(tables).map(|schema| full_name::dotted(&schema.name).into_owned());
                text_rows(&["table_name"], vec![names.collect()])
            }
            Statement::ShowCreate { obj_type: ShowCreateObject::Table | ShowCreateObject::View, obj_name } => {
                let table = self.definition(&table_name(obj_name)?)?;
                let tables = self.temporary.public(self.node.catalog());
                text_rows(
                    &["table_name", "create_statement"],
                    vec![vec![full_name::dotted(&table.name).into_owned()], vec![create_statement(&table, &tables)]],
                )
            }
            Statement::ShowColumns { show_options, .. } => {
                match show_options.show_in.as_ref().and_then(|s| s.parent_name.as_ref()) {
                    Some(name) => self.describe(name),
                    None => Err(SqlError::new(state::SYNTAX_ERROR, "SHOW COLUMNS needs FROM table")),
                }
            }
            Statement::ExplainTable { table_name, .. } => self.describe(table_name),
            Statement::Call(function) => Box::pin(self.call(&function.name, &function.args)).await,
            Statement::Prepare { name, statement, data_types } => {
                let declared = data_types.iter().map(|t| declared(t).map(Some)).collect::<Result<Vec<_>>>()?;
                Box::pin(self.prepare_named(&fold(name), statement, &declared)).await
            }
            Statement::Execute { name: Some(name), parameters, .. } => {
                Box::pin(self.execute_named(&statement_name(name)?, parameters)).await
            }
            Statement::Deallocate { name, .. } => self.deallocate(name),
            Statement::Close { cursor } => match cursor {
                CloseCursor::All => self.close_cursor(None),
                CloseCursor::Specific { name } => self.close_cursor(Some(&fold(name))),
            },
            Statement::Discard { object_type } => self.discard(object_type),
            Statement::LISTEN { channel } => {
                self.mail.listen(fold(channel))?;
                Ok(Answer::done("LISTEN"))
            }
            Statement::UNLISTEN { channel } => {
                let is_all = channel.quote_style.is_none() && channel.value == "*";
                self.mail.unlisten((!is_all).then(|| fold(channel)))?;
                Ok(Answer::done("UNLISTEN"))
            }
            Statement::NOTIFY { channel, payload } => {
                self.mail.notify(fold(channel), payload.clone().unwrap_or_default())?;
                Ok(Answer::done("NOTIFY"))
            }
            Statement::Savepoint { name } => {
                self.transaction.lock().savepoint(fold(name), self.temporary.now())?;
                self.mail.savepoint();
                Ok(Answer::done("SAVEPOINT"))
            }
            Statement::ReleaseSavepoint { name } => {
                let n_left = self.transaction.lock().release(&fold(name))?;
                self.cursors.release(n_left);
                self.mail.release(n_left);
                self.settable.release(n_left);
                Ok(Answer::done("RELEASE"))
            }
            Statement::Truncate(truncate) => Box::pin(self.truncate(truncate)).await,
            Statement::CreateIndex(create) => self.create_index(create).await,
            Statement::AlterIndex { name, operation: AlterIndexOperation::RenameIndex { index_name: to } } => {
                self.rename_index(name, to).await
            }
            Statement::Drop { object_type: ObjectType::Index, if_exists, names, .. } => {
                self.drop_indexes(names, *if_exists).await
            }
            other => {
                let text = other.to_string();
                let verb: Vec<&str> = text.split_whitespace().take(2).collect();
                Err(SqlError::unsupported(verb.join(" "), "see `tarn help sql` for the statements there are"))
            }
        }
    }

    fn begin(&self, asked: Modes) -> Result<Answer> {
        let (read_only, isolation) = self.transaction_defaults()?;
        let deferrable = asked.deferrable.unwrap_or_else(|| self.vars.lock().is_on("default_transaction_deferrable"));
        match &mut *self.transaction.lock() {
            // What was before it in the message is a part of it.
            Transaction::Open(open) if open.is_implicit => {
                asked.isolation.map_or(Ok(()), |isolation| open.set_isolation(isolation))?;
                open.read_only = asked.read_only.unwrap_or(open.read_only);
                open.deferrable = deferrable;
                open.is_implicit = false;
            }
            // Postgres only warns: the transaction that is open goes on.
            Transaction::Open(_) => {}
            transaction => {
                let (read_only, isolation) =
                    (asked.read_only.unwrap_or(read_only), asked.isolation.unwrap_or(isolation));
                let mut open = OpenTransaction::new(read_only, isolation, self.temporary.now());
                open.deferrable = deferrable;
                *transaction = Transaction::Open(open);
                self.query.begin();
            }
        }
        Ok(Answer::done("BEGIN"))
    }

    /// The transaction that AND CHAIN begins behind this one.
    fn chained(&self, what: &str, is_asked: bool) -> Result<Option<(bool, Isolation, bool)>> {
        match is_asked {
            true => Ok(Some(self.transaction.lock().chained(what)?)),
            false => Ok(None),
        }
    }

    /// A transaction has ended, and the next one begins, if one does.
    fn ended(&self, tag: &str, next: Option<(bool, Isolation, bool)>) -> Answer {
        if let Some((read_only, isolation, deferrable)) = next {
            let mut open = OpenTransaction::new(read_only, isolation, self.temporary.now());
            open.deferrable = deferrable;
            *self.transaction.lock() = Transaction::Open(open);
            self.query.begin();
        }
        Answer::done(tag)
    }

    /// Commits what is open, if it has not failed; the tag says what became of it.
    pub(super) async fn commit(&self) -> Result<&'static str> {
        let held = match self.check_deferred().await {
            Ok(()) => self.read_held().await,
            Err(violated) => Err(violated),
        };
        let mut transaction = std::mem::take(&mut *self.transaction.lock());
        self.query.end();
        let (made, own) = (transaction.take_made(), transaction.take_own());
        let done = match (transaction, held) {
            (Transaction::Open(open), Ok(held)) => {
                let committed = self.commit_open(open, made, own).await;
                if committed.is_ok() {
                    held.into_iter().for_each(|cursor| self.cursors.hold(cursor));
                }
                committed.map(|()| "COMMIT")
            }
            (Transaction::Open(_), Err(error)) => self.undo(made, own).await.and(Err(error)),
            (Transaction::Failed(_), _) => self.undo(made, own).await.map(|()| "ROLLBACK"),
            (Transaction::Idle, _) => Ok("COMMIT"),
        };
        self.cursors.end(0);
        match done {
            Ok("COMMIT") => {
                self.mail.commit();
                self.settings_end(Settable::commit);
            }
            _ => {
                self.mail.roll_back();
                self.settings_end(Settable::roll_back);
            }
        }
        done
    }

    /// Writes what a transaction held, then drops what it drops.
    async fn commit_open(
        &self,
        open: OpenTransaction,
        made: Vec<CreatedObject>,
        before: Option<Arc<TemporaryObjects>>,
    ) -> Result<()> {
        let ToCommit { mut writes, drops, request } = open.into_commit();
        // A table that others refer to since is written by another handle, and is what it was.
        for of_table in &mut writes {
            let (table, schema) = (&of_table.table, of_table.table.schema());
            let now = self.node.catalog().get(&schema.name).filter(|now| !Arc::ptr_eq(now, table));
            if let Some(now) = now.filter(|now| **now.schema() == **schema) {
                of_table.table = now;
            }
        }
        let own = self.temporary.now();
        let is_kept = |table: &TableSchema| !table.id.is_temporary() || own.keeps(table.id);
        writes.retain(|of_table| is_kept(of_table.table.schema()));
        let has_written = !writes.is_empty() || !own.altered.is_empty();
        let committed = match (request, own.altered.is_empty()) {
            (Some(named), _) => self.commit_request(named, writes).await,
            (None, true) => self.commit_held(writes).await,
            (None, false) => self.commit_altered(&own.altered, writes).await,
        };
        let is_index = |made: &CreatedObject| made.name.is_empty();
        if let Err(error) = committed {
            // A table may name them all the same.
            let is_known = error.state() != state::COMPLETION_UNKNOWN;
            self.undo(made.into_iter().filter(|made| is_known || !is_index(made)).collect(), before).await?;
            return Err(error);
        }
        // Of constraints that came and went.
        self.unmake(made.into_iter().filter(is_index).collect()).await?;
        self.temporary.altered_committed();
        self.temporary.commit(&self.node)?;
        for ddl in drops {
            let dropped = Box::pin(self.run_ddl(ddl)).await;
            dropped.map_err(|error| match has_written {
                true => error.with_detail("what the transaction wrote is committed"),
                false => error,
            })?;
        }
        Ok(())
    }

    pub(super) async fn rollback(&self) -> Result<&'static str> {
        let mut undone = std::mem::take(&mut *self.transaction.lock());
        self.query.end();
        let (made, own) = (undone.take_made(), undone.take_own());
        self.cursors.end(0);
        self.mail.roll_back();
        self.settings_end(Settable::roll_back);
        self.undo(made, own).await?;
        Ok("ROLLBACK")
    }

    /// Of a transaction that is undone: what the session had to itself is again, and the tables that it made go.
    pub(super) async fn undo(&self, made: Vec<CreatedObject>, own: Option<Arc<TemporaryObjects>>) -> Result<()> {
        own.into_iter().for_each(|before| self.temporary.restore(before));
        self.unmake(made).await
    }

    /// Drops the tables that a transaction made, which is undone.
    pub(super) async fn unmake(&self, made: Vec<CreatedObject>) -> Result<()> {
        if made.is_empty() {
            return Ok(());
        }
        let node = Arc::clone(&self.node);
        to_its_end(async move { drop_made(&node, made).await }).await
    }

    /// Cursors that were opened since the savepoint are closed.
    async fn roll_back_to(&self, name: &str) -> Result<Answer> {
        let RollbackEffects { n_left, made, own } = self.transaction.lock().roll_back_to(name)?;
        self.cursors.end(n_left);
        self.mail.roll_back_to(n_left);
        self.settings_end(|settings| settings.roll_back_to(n_left));
        self.undo(made, own).await?;
        Ok(Answer::done("ROLLBACK"))
    }

    async fn create_table(&self, create: &CreateTable) -> Result<Answer> {
        if let Some(own) = self.temporary_of(create)? {
            return Box::pin(self.create_temporary(&own)).await;
        }
        let (plain, taken) = user_types::taken(create, self.node.types())?;
        let mut defined = defined(&plain, self.sql.settings(), &self.style())?;
        user_types::put(&mut defined.schema, taken)?;
        self.check_defaults(&defined.schema).await?;
        self.plan_checks(&defined.schema).await?;
        self.plan_generated(&defined.schema).await?;
        if !create.if_not_exists || !self.node.catalog().contains(&defined.schema.name) {
            self.with_foreign_keys(&mut defined)?;
        }
        let made: Vec<usize> = defined.sequences.iter().map(|made| made.column_idx).collect();
        self.check_sequences(&defined.schema, &made, |_| false).await?;
        self.create(defined, create.if_not_exists).await
    }

    /// Makes a table. Inside a transaction it is remembered, to be dropped when that is undone.
    pub(super) async fn create(&self, defined: TableDefinition, if_not_exists: bool) -> Result<Answer> {
        let in_transaction = self.must_hold()?;
        let name = defined.schema.name.clone();
        if self.transaction.lock().check_there(&name).is_err() {
            return Err(made_anew(&name));
        }
        self.check_free(&name)?;
        let is_made = self.run_ddl(Ddl::Create { defined: Box::new(defined), if_not_exists }).await?;
        if in_transaction && is_made {
            let id = self.node.catalog().schema(&name)?.id;
            self.transaction.lock().made(CreatedObject { name, what: CreatedId::Relation(id) });
        }
        Ok(Answer::done("CREATE TABLE"))
    }

    /// Whether a table or view was made.
    pub(super) async fn run_ddl(&self, ddl: Ddl) -> Result<bool> {
        let (node, principal) = (Arc::clone(&self.node), self.principal());
        let changed = to_its_end(async move {
            match ddl {
                Ddl::Create { defined, if_not_exists } => {
                    create_defined(&node, &principal, *defined, if_not_exists).await
                }
                Ddl::Rename(renames) => Ok(node.rename(&principal, &renames, rewrite).await.map(|()| false)?),
                Ddl::Views(change) => views::run(&node, &principal, change).await,
                Ddl::DropSchemas { ids, cascade, .. } => {
                    drop_schemas(&node, &principal, &ids, cascade).await.map(|()| false)
                }
                Ddl::DropTypes(ids) => drop_types(&node, &principal, &ids).await.map(|()| false),
                Ddl::DropFunctions(ids) => drop_functions(&node, &principal, &ids).await.map(|()| false),
                Ddl::Drop { names, if_exists } => {
                    // All are asked for before the first is gone.
                    let mut dropped = BTreeSet::new();
                    for name in names {
                        match node.may_own_named(&principal, &name).map_err(SqlError::from) {
                            Err(absent) if if_exists && absent.state() == state::UNDEFINED_TABLE => {}
                            Err(refused) => return Err(refused),
                            Ok(()) => {
                                if !if_exists {
                                    node.check_droppable(&principal, &name).await?;
                                }
                                dropped.insert(name);
                            }
                        }
                    }
                    for name in dropped {
                        node.drop_table(&principal, &name, if_exists).await?;
                    }
                    Ok(false)
                }
            }
        });
        self.interrupt.submit(changed, |_| 0).await
    }

    fn set(&self, set: &Set) -> Result<Answer> {
        match set {
            Set::SingleAssignment { scope, variable, values, .. } => {
                let name = dotted(variable);
                let mut values = values.iter().map(setting_text).collect::<Result<Vec<_>>>()?;
                let is_default = matches!(&values[..], [value] if value.eq_ignore_ascii_case("default"));
                if name == "search_path" && !is_default {
                    values.iter_mut().for_each(|schema| *schema = quote(schema));
                }
                let value = values.join(", ");
                self.set_for(scope_of(*scope), &name, (!is_default).then_some(value.as_str()))?;
            }
            Set::SetTimeZone { value, local } => {
                let scope = if *local { Scope::Transaction } else { Scope::Session };
                let is_own = |ident: &Ident| {
                    let own = ["local", "default"].iter().any(|word| word.eq_ignore_ascii_case(&ident.value));
                    ident.quote_style.is_none() && own
                };
                match value {
                    Expr::Identifier(ident) if is_own(ident) => self.set_for(scope, "timezone", None)?,
                    value => self.set_for(scope, "timezone", Some(&setting_text(value)?))?,
                }
            }
            Set::SetNames { charset_name, .. } => self.set_var("client_encoding", Some(&charset_name.value))?,
            Set::SetNamesDefault {} => {}
            Set::SetSessionAuthorization(param) => match &param.kind {
                SetSessionAuthorizationParamKind::Default => {}
                SetSessionAuthorizationParamKind::User(name) => self.stay(&fold(name))?,
            },
            Set::SetRole { role_name, .. } => role_name.as_ref().map_or(Ok(()), |name| self.stay(&fold(name)))?,
            Set::SetTransaction { modes, session: true, snapshot } => {
                let says = sets_deferrable(snapshot.as_ref().map(|value| &value.value));
                let Modes { isolation, read_only, deferrable } = Modes::of(modes, says)?;
                if let Some(deferrable) = deferrable {
                    self.set_var("default_transaction_deferrable", Some(if deferrable { "on" } else { "off" }))?;
                }
                if let Some(isolation) = isolation {
                    self.set_var("default_transaction_isolation", Some(isolation.name()))?;
                }
                if let Some(read_only) = read_only {
                    self.set_var("default_transaction_read_only", Some(if read_only { "on" } else { "off" }))?;
                }
            }
            Set::SetTransaction { modes, snapshot, .. } => {
                let says = sets_deferrable(snapshot.as_ref().map(|value| &value.value));
                if snapshot.is_some() && says.is_none() {
                    let remedy = "BEGIN ISOLATION LEVEL REPEATABLE READ";
                    return Err(SqlError::unsupported("SET TRANSACTION SNAPSHOT", remedy));
                }
                self.set_modes(&Modes::of(modes, says)?)?;
            }
            other => return Err(SqlError::unsupported(format!("{other}"), "SET name = value, one at a time")),
        }
        Ok(Answer::done("SET"))
    }

    /// Of the transaction that is open. Outside of one nothing is changed, as PostgreSQL warns.
    fn set_modes(&self, modes: &Modes) -> Result<()> {
        let Transaction::Open(open) = &mut *self.transaction.lock() else { return Ok(()) };
        if let Some(isolation) = modes.isolation {
            open.set_isolation(isolation)?;
        }
        if let Some(read_only) = modes.read_only {
            open.set_read_only(read_only)?;
        }
        if let Some(deferrable) = modes.deferrable {
            open.set_deferrable(deferrable)?;
        }
        Ok(())
    }

    fn reset(&self, reset: &Reset) -> Result<Answer> {
        match reset {
            Reset::ALL => self.reset_all()?,
            Reset::ConfigurationParameter(name) => self.set_var(&dotted(name), None)?,
        }
        Ok(Answer::done("RESET"))
    }

    /// Every setting is again what a new session has: the next client of a pooled connection must not inherit one.
    fn reset_all(&self) -> Result<()> {
        self.settable.change(Scope::Session, |vars| {
            vars.reset_all();
            Ok(())
        })?;
        self.query.reset_settings(&self.fresh_query())?;
        *self.shown.lock() = Style::default();
        self.show_so()?;
        let given = self.given.lock().clone();
        given.iter().try_for_each(|(name, value)| self.set_engine(name, value))
    }

    fn discard(&self, object: &DiscardObject) -> Result<Answer> {
        if matches!(object, DiscardObject::ALL | DiscardObject::SEQUENCES) {
            self.numbers.lock().clear();
        }
        if *object == DiscardObject::TEMP {
            self.temporary.clear();
        }
        // Plans are made anew when tables change.
        if *object != DiscardObject::ALL {
            return Ok(Answer::done(format!("DISCARD {object}")));
        }
        if self.transaction.lock().is_open() {
            return Err(SqlError::new(state::ACTIVE_TRANSACTION, "DISCARD ALL cannot run inside a transaction block"));
        }
        self.reset_all()?;
        self.cursors.close_all();
        self.mail.unlisten(None)?;
        self.named.lock().clear();
        self.temporary.clear();
        Ok(Answer::done("DISCARD ALL"))
    }

    fn show(&self, name: &str) -> Result<Answer> {
        if name == "all" {
            let (names, values) = self.all_settings().into_iter().unzip();
            return text_rows(&["name", "setting"], vec![names, values]);
        }
        let value = if super::vars::is_engine_setting(name) { self.engine_setting(name)? } else { self.var(name)? };
        text_rows(&[name], vec![vec![value]])
    }

    fn all_settings(&self) -> Vec<(String, String)> {
        let mut all = self.vars.lock().all();
        all.extend(self.engine_settings());
        all
    }

    fn engine_settings(&self) -> Vec<(String, String)> {
        let state = self.query.context().state();
        let entries = state.config_options().entries();
        let known = entries.into_iter().filter(|entry| super::vars::is_engine_setting(&entry.key));
        known.map(|entry| (entry.key, entry.value.unwrap_or_default())).collect()
    }

    fn engine_setting(&self, name: &str) -> Result<String> {
        let found = self.engine_settings().into_iter().find(|(known, _)| known == name);
        found
            .map(|(_, value)| value)
            .ok_or_else(|| SqlError::new("42704", format!("unrecognized configuration parameter \"{name}\"")))
    }

    fn describe(&self, name: &ObjectName) -> Result<Answer> {
        let schema = self.definition(&table_name(name)?)?;
        let mut columns: Vec<Vec<String>> = vec![Vec::new(); 5];
        for (idx, column) in schema.shown().iter().enumerate() {
            let part = schema.key.iter().position(|part| part.column_idx == idx);
            let cells = [
                column.name.clone(),
                type_text(&schema, idx),
                if column.nullable { "YES" } else { "NO" }.to_owned(),
                part.map(|part| (part + 1).to_string()).unwrap_or_default(),
                default_text(&schema, idx).unwrap_or_default(),
            ];
            columns.iter_mut().zip(cells).for_each(|(list, cell)| list.push(cell));
        }
        text_rows(&["column_name", "data_type", "is_nullable", "key", "default"], columns)
    }

    /// `CALL tarn.deliver('t')`: background work by name, answering what it did.
    async fn call(&self, name: &ObjectName, arguments: &FunctionArguments) -> Result<Answer> {
        let work = match dotted(name).as_str() {
            "tarn.split" => return self.split(arguments).await,
            "tarn.deliver" => Some(Work::Deliver),
            "tarn.compact" => Some(Work::Compact),
            "tarn.evict" => Some(Work::Evict),
            "tarn.flush" => Some(Work::Flush),
            "tarn.attach" => None,
            other => {
                return Err(SqlError::new(state::UNDEFINED_FUNCTION, format!("procedure {other} does not exist"))
                    .with_hint(
                        "procedures: tarn.deliver(table), tarn.compact(table), tarn.evict(table), tarn.flush(table), tarn.split(table, key), \
                         tarn.attach(table)",
                    ));
            }
        };
        let table = only_text(arguments)
            .ok_or_else(|| SqlError::new(state::SYNTAX_ERROR, format!("CALL {name} takes one table name, as text")))?;
        let table = self.called(&table);
        self.refuse_own(&format!("CALL {name}"), &table)?;
        let report = match work {
            Some(work) => self.admin(work, &table).await?,
            None => self.pass(&table).await?,
        };
        let count = |n: u64| Arc::new(Int64Array::from(vec![n as i64])) as ArrayRef;
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from(vec![full_name::dotted(&table).into_owned()])),
            count(report.rows),
            count(report.files),
            count(report.version),
        ];
        Ok(Answer::batch(RecordBatch::try_new(report_schema(), columns)?, "CALL"))
    }

    /// `CALL tarn.split('t', 1000)`: the values of a partition key, or a token of a table whose keys are hashed.
    /// Answers the new tablet.
    async fn split(&self, arguments: &FunctionArguments) -> Result<Answer> {
        let texts = call_texts(arguments).unwrap_or_default();
        let Some((table, at)) = texts.split_first().filter(|(_, at)| !at.is_empty()) else {
            return Err(SqlError::new(
                state::SYNTAX_ERROR,
                "CALL tarn.split takes the name of a table, and where the new tablet begins: the values of its partition key or, where \
                 keys are hashed, a token",
            ));
        };
        let table = &self.called(table);
        let handle = self.node.catalog().require(table)?;
        let schema = handle.schema();
        let at = match (schema.is_hashed(), at) {
            (true, [token]) => SplitAt::Token(Token(token.parse().map_err(|_| {
                SqlError::new(state::INVALID_TEXT, format!("\"{token}\" is no token: want a number of 64 bits"))
            })?)),
            _ => {
                let parts = schema.key_columns().zip(at).map(|(column, text)| Value::parse(&column.data_type, text));
                SplitAt::Key(parts.collect::<Result<Vec<_>, _>>()?)
            }
        };
        let new = self.node.split(&self.principal(), &handle, at).await?;
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from(vec![full_name::dotted(table).into_owned()])),
            Arc::new(Int64Array::from(vec![i64::from(new.0)])),
        ];
        Ok(Answer::batch(RecordBatch::try_new(split_schema(), columns)?, "CALL"))
    }

    /// The full name of the table that a text names, by itself or with its schema: `t`, `s.t`. Who gave a name with a
    /// dot meant that.
    pub(super) fn called(&self, text: &str) -> String {
        let is_there = |full: &String| self.node.catalog().contains(full);
        let named = match text.split_once('.') {
            Some((schema, name)) => Some(full_name::join(schema, name)).filter(is_there),
            None => {
                let path = schema_path::whole_path(&self.vars, &self.node);
                path.iter().map(|schema| full_name::join(schema, text)).find(is_there)
            }
        };
        named.unwrap_or_else(|| text.to_owned())
    }

    /// One pass over an archive. The rows and files that came into the table.
    async fn pass(&self, table: &str) -> Result<JobReport> {
        let Some(external) = self.node.catalog().external_table(table) else {
            let schema = self.node.catalog().schema(table)?;
            let message = format!("table \"{}\" is not an archive", schema.name);
            return Err(SqlError::new(state::WRONG_OBJECT_TYPE, message)
                .with_hint("ATTACH 'url' AS name makes a table of files that others write"));
        };
        let progress = self.node.pass(&self.principal(), &external).await?;
        Ok(JobReport { rows: progress.rows, files: progress.attached, version: progress.version.0 })
    }

    async fn prepare_named(
        &self,
        name: &str,
        statement: &Statement,
        declared: &[Option<DeclaredType>],
    ) -> Result<Answer> {
        self.check_prepared_limit(self.named.lock().len())?;
        if self.named.lock().contains_key(name) {
            return Err(SqlError::new(
                state::DUPLICATE_PREPARED,
                format!("prepared statement \"{name}\" already exists"),
            ));
        }
        let parsed = match statement.clone() {
            Statement::Query(mut query) if !query.locks.is_empty() => {
                let locks = std::mem::take(&mut query.locks);
                ParsedSql::Lock(Box::new(LockRows { query, locks }))
            }
            statement => ParsedSql::Sql(Box::new(statement)),
        };
        let prepared = self.prepare(Opaque::new(parsed), declared).await?;
        self.named.lock().insert(name.to_owned(), prepared);
        Ok(Answer::done("PREPARE"))
    }

    async fn execute_named(&self, name: &str, given: &[Expr]) -> Result<Answer> {
        let prepared = self.named.lock().get(name).cloned();
        let prepared = prepared.ok_or_else(|| {
            SqlError::new(state::INVALID_STATEMENT_NAME, format!("prepared statement \"{name}\" does not exist"))
        })?;
        if given.len() != prepared.parameters.len() {
            let message = format!("wrong number of parameters for prepared statement \"{name}\"");
            let (want, got) = (prepared.parameters.len(), given.len());
            return Err(SqlError::new(state::SYNTAX_ERROR, message)
                .with_detail(format!("Expected {want} parameters but got {got}.")));
        }
        let mut parameters = Vec::with_capacity(given.len());
        for (expr, field) in given.iter().zip(&prepared.parameters) {
            let is_array = field.as_ref().is_some_and(|field| matches!(field.data_type(), ArrowType::List(_)));
            if let Some(Some(array)) = crate::spelled::literal(expr).filter(|_| is_array) {
                let items: Vec<ScalarValue> =
                    tarn_query::array_items(&array)?.into_iter().map(ScalarValue::Utf8).collect();
                let array = ScalarValue::new_list_nullable(&items, &ArrowType::Utf8);
                parameters.push(Parameter::Scalar(ScalarValue::List(array)));
                continue;
            }
            let data_type =
                field.as_ref().and_then(|f| tarn_types::data_type_of(f).ok()).unwrap_or(tarn_types::DataType::Text);
            parameters.push(match crate::spelled::literal(expr) {
                Some(None) => Parameter::Value(Value::Null, data_type),
                Some(Some(text)) => Parameter::Value(Value::parse_in(&data_type, &text, &self.style())?, data_type),
                None if is_array => Parameter::Scalar(ScalarValue::try_from_array(&self.computed(expr).await?, 0)?),
                None => Parameter::Value(Value::from_arrow(&self.computed(expr).await?, 0, &data_type)?, data_type),
            });
        }
        // Places are those of another text: the one that it was prepared from.
        Box::pin(self.execute_prepared(&prepared, parameters)).await.map_err(|error| error.with_place(None))
    }

    /// The value of an expression by itself, as an array of one.
    async fn computed(&self, expr: &Expr) -> Result<ArrayRef> {
        if has_query(expr) {
            return Err(SqlError::unsupported("a subquery in EXECUTE", "write it into the prepared statement"));
        }
        let mut statement = statements("SELECT NULL")?.pop();
        if let Some(Statement::Query(query)) = &mut statement
            && let SetExpr::Select(select) = query.body.as_mut()
        {
            select.projection = vec![SelectItem::UnnamedExpr(expr.clone())];
        }
        let none = || SqlError::new(state::INTERNAL, format!("{expr} has no value"));
        let plan = self.permitted(self.plan(&statement.ok_or_else(none)?, &[]).await?)?;
        let mut batches = self.query.stream(plan, None).await?;
        while let Some(batch) = batches.try_next().await? {
            if batch.num_rows() > 0 {
                return Ok(batch.column(0).slice(0, 1));
            }
        }
        Err(none())
    }

    fn deallocate(&self, name: &Ident) -> Result<Answer> {
        if is_all(name) {
            self.named.lock().clear();
            return Ok(Answer::done("DEALLOCATE ALL"));
        }
        let name = fold(name);
        if self.named.lock().remove(&name).is_none() {
            return Err(SqlError::new(
                state::INVALID_STATEMENT_NAME,
                format!("prepared statement \"{name}\" does not exist"),
            ));
        }
        Ok(Answer::done("DEALLOCATE"))
    }
}

/// The old one is there until COMMIT, for everybody.
pub(super) fn made_anew(name: &str) -> SqlError {
    SqlError::unsupported(
        format!("making \"{name}\" anew in the transaction that drops or changes it"),
        "COMMIT between the two; or TRUNCATE it, or DELETE FROM it, and INSERT, which ROLLBACK undoes",
    )
}

/// What BEGIN and SET TRANSACTION say of a transaction.
struct Modes {
    isolation: Option<Isolation>,
    read_only: Option<bool>,
    deferrable: Option<bool>,
}

impl Modes {
    fn of(modes: &[TransactionMode], deferrable: Option<bool>) -> Result<Modes> {
        let mut asked = Modes { isolation: None, read_only: None, deferrable };
        for mode in modes {
            match mode {
                TransactionMode::AccessMode(access) => {
                    asked.read_only = Some(*access == TransactionAccessMode::ReadOnly);
                }
                TransactionMode::IsolationLevel(level) => asked.isolation = Some(Isolation::named(&level.to_string())?),
            }
        }
        Ok(asked)
    }
}

/// The ALL of DEALLOCATE ALL.
pub fn is_all(name: &Ident) -> bool {
    name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all")
}

fn name_of(variable: &[Ident]) -> String {
    let name = variable.iter().map(|part| part.value.to_lowercase()).collect::<Vec<_>>().join(".");
    match name.as_str() {
        "time.zone" => "timezone".to_owned(),
        "transaction.isolation.level" => "transaction_isolation".to_owned(),
        _ => name,
    }
}

/// A type that PREPARE gives a parameter.
fn declared(data_type: &SqlType) -> Result<DeclaredType> {
    match data_type {
        SqlType::Array(ArrayElemTypeDef::SquareBracket(item, None)) => {
            crate::spelled::data_type(item).map(DeclaredType::Array)
        }
        other => crate::spelled::data_type(other).map(DeclaredType::Value),
    }
}

/// The name in EXECUTE.
fn statement_name(name: &ObjectName) -> Result<String> {
    match name.0.as_slice() {
        [part] if part.as_ident().is_some() => Ok(part.as_ident().map(fold).unwrap_or_default()),
        _ => Err(SqlError::new(state::SYNTAX_ERROR, format!("\"{name}\" is no name of a prepared statement"))),
    }
}

fn show_columns(name: &str) -> Vec<&str> {
    if name == "all" { vec!["name", "setting"] } else { vec![name] }
}

/// `Tarn.Access_Path` → `tarn.access_path`.
fn dotted(name: &ObjectName) -> String {
    let parts = name.0.iter().filter_map(|part| part.as_ident()).map(|part| part.value.to_lowercase());
    parts.collect::<Vec<_>>().join(".")
}

fn scope_of(modifier: Option<ContextModifier>) -> Scope {
    match modifier {
        Some(ContextModifier::Local) => Scope::Transaction,
        _ => Scope::Session,
    }
}

/// A value of SET as text: what is written as a literal or as a name.
fn setting_text(value: &Expr) -> Result<String> {
    let named = match value {
        Expr::Identifier(ident) => Some(ident.value.clone()),
        Expr::Value(value) => match &value.value {
            Literal::DoubleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    };
    let text = crate::spelled::literal(value).flatten().or(named);
    text.ok_or_else(|| SqlError::unsupported("SET to a value that is computed", "write a literal or a name"))
}

fn split_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("table_name", ArrowType::Utf8, false),
        Field::new("tablet_id", ArrowType::Int64, false),
    ]))
}

fn report_schema() -> SchemaRef {
    let count = |name| Field::new(name, ArrowType::Int64, false);
    Arc::new(Schema::new(vec![
        Field::new("table_name", ArrowType::Utf8, false),
        count("rows"),
        count("files"),
        count("version"),
    ]))
}

fn texts(names: &[&str]) -> SchemaRef {
    Arc::new(Schema::new(names.iter().map(|name| Field::new(*name, ArrowType::Utf8, true)).collect::<Vec<_>>()))
}

fn text_rows(names: &[&str], columns: Vec<Vec<String>>) -> Result<Answer> {
    let arrays = columns.into_iter().map(|column| Arc::new(StringArray::from(column)) as ArrayRef).collect();
    Ok(Answer::batch(RecordBatch::try_new(texts(names), arrays)?, "SHOW"))
}
