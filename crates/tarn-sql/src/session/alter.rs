//! What do `ALTER TABLE`, `ALTER VIEW` and `ALTER SEQUENCE … RENAME` do?
//!
//! Inside a transaction tables are altered for its own statements, and for others at COMMIT (`alter_held.rs`). Names of views, and names that are
//! free at COMMIT alone, because the transaction drops what has them, are given behind all else: the renames that follow on each other are one
//! change, so that what takes the place of another does so at one moment. Outside of a transaction all of it holds at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::ColumnDef;
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use tarn_node::alter::Altering;
use tarn_node::auth::Principal;
use tarn_node::jobs::Work;
use tarn_node::node::Node;
use tarn_node::renames::Rename;
use tarn_node::views::no_view;
use tarn_types::{ColumnId, ColumnRules, TableSchema, Value, Zone};

use super::access::{may_drop, may_own_relation};
use super::create_as::written;
use super::execute::to_its_end;
use super::sequences::taken;
use super::{Answer, Session};
use crate::alter_sql::{Action, Alter, Change, Kind};
use crate::column_rules::{checks, default_of, length};
use crate::ddl::{Ddl, added_column, check_column_name, keyed};
use crate::error::{Result, SqlError, state};
use crate::expressions::with_column_renamed;
use crate::names::{KEY_SUFFIX, quote};
use crate::spelled::data_type;
use crate::view_columns;
use crate::view_rename::rewrite;

impl Session {
    pub(super) async fn alter(&self, alter: &Alter) -> Result<Answer> {
        self.refuse_own(alter.tag(), &alter.name)?;
        match &alter.change {
            Change::Rename(to) => self.rename(alter, to).await?,
            Change::Actions(actions) => match self.must_hold()? {
                true => self.alter_later(alter, actions).await?,
                false => self.change_table(alter, actions).await?,
            },
        }
        Ok(Answer::done(alter.tag()))
    }

    async fn rename(&self, alter: &Alter, to: &str) -> Result<()> {
        let in_transaction = self.must_hold()?;
        if in_transaction && alter.kind == Kind::Table && self.rename_later(&alter.name, to).await? {
            return Ok(());
        }
        // Then, and now.
        let now = self.temporary.public_names(self.node.catalog()).into_iter().collect();
        let names: BTreeMap<String, String> = self.transaction.lock().names_at_commit(now);
        let sequences = self.node.sequences().all().await?;
        let is_sequence = |name: &str| sequences.iter().any(|(other, _)| other == name);
        let name = &alter.name;
        let Some(now) = names.get(name) else {
            if is_sequence(name) && alter.kind != Kind::View {
                self.outside_transaction("ALTER SEQUENCE … RENAME")?;
                return self.rename_sequence(name, to).await;
            }
            return match alter.if_exists {
                true => Ok(()),
                false => Err(SqlError::undefined_table(name)),
            };
        };
        let schema = self.temporary.schema(self.node.catalog(), now)?;
        match alter.kind {
            Kind::View if !schema.is_view() => return Err(no_view(name).into()),
            Kind::Sequence => {
                return Err(SqlError::new(state::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a sequence")));
            }
            Kind::View | Kind::Table => {}
        }
        if names.contains_key(to) || is_sequence(to) {
            return Err(taken(to));
        }
        may_own_relation(&self.node, &self.principal(), &schema)?;
        let ddl = Ddl::Rename(vec![Rename { from: name.clone(), to: to.to_owned() }]);
        match in_transaction {
            true => self.transaction.lock().drop_later(ddl),
            false => self.run_ddl(ddl).await.map(drop),
        }
    }

    /// All actions, or none. The rows are looked at while nobody writes them.
    fn change_table<'a>(&'a self, alter: &'a Alter, actions: &'a [Action]) -> BoxFuture<'a, Result<()>> {
        // On the heap: what it runs of other statements stands on a deep stack.
        self.changed_table(alter, actions).boxed()
    }

    async fn changed_table(&self, alter: &Alter, actions: &[Action]) -> Result<()> {
        let name = &alter.name;
        if alter.if_exists && !self.node.catalog().contains(name) {
            return Ok(());
        }
        self.check_now()?;
        if let [Action::AddPrimaryKey(key)] = actions {
            return self.add_key(name, key).await;
        }
        // What is wrong with it is told before anybody is kept out, and most of the rows are delivered by then.
        let before = Arc::clone(self.node.catalog().require(name)?.schema());
        let Changed { to, .. } = self.changed(&before, actions).await?;
        if to.arrow() != before.arrow() {
            self.admin(Work::Deliver, name).await?;
        }
        let (node, table) = (Arc::clone(&self.node), name.clone());
        let altering: Altering = to_its_end(async move { node.begin_alter(&table).await }).await?;
        let Changed { to, looks, .. } = self.changed(altering.schema(), actions).await?;
        for look in looks {
            self.look(&to.name, look).await?;
        }
        if to.arrow() != altering.schema().arrow() {
            altering.deliver().await?;
        }
        let finished = to_its_end(async move { altering.finish(to, view_columns::rewrite).await });
        self.interrupt.submit(finished, |()| 0).await
    }

    /// Errors: `55000` while the session reads an earlier version.
    pub(super) fn check_now(&self) -> Result<()> {
        match self.query.settings().as_of {
            None => Ok(()),
            Some(_) => {
                Err(SqlError::new(state::NOT_IN_PREREQUISITE_STATE, "ALTER TABLE looks at the rows as they are now")
                    .with_hint("RESET tarn.as_of_version, or tarn.as_of_time, first"))
            }
        }
    }

    /// Writes all rows into a table with that key, which takes the place. The table is read meanwhile.
    fn add_key<'a>(&'a self, name: &'a str, key: &'a [(String, bool)]) -> BoxFuture<'a, Result<()>> {
        self.keyed_anew(name, key).boxed()
    }

    async fn keyed_anew(&self, name: &str, key: &[(String, bool)]) -> Result<()> {
        let (node, table) = (Arc::clone(&self.node), name.to_owned());
        let mut altering: Altering = to_its_end(async move { node.begin_alter(&table).await }).await?;
        let table = Arc::clone(altering.schema());
        let mut to = keyed(&table, key)?;
        for part in &to.key {
            if table.columns[part.column_idx].nullable {
                self.look(name, has_null(&table, &table.columns[part.column_idx].name)).await?;
            }
        }
        // What is said of columns holds of the rows; identity columns would be given other numbers by it.
        // Files of the table that is made are written by the names of now.
        let mut rules = std::mem::take(&mut to.options.rules);
        rules.columns.iter_mut().for_each(|of| of.stored = None);
        rules.forget_empty();
        let lengths = rules.columns.iter().filter(|of| of.length.is_some());
        let only = |of: &ColumnRules| ColumnRules { id: of.id, length: of.length, ..ColumnRules::default() };
        to.options.rules.columns = lengths.map(only).collect();
        let (beside, altering) = to_its_end(async move {
            let beside = altering.make_beside(to).await?;
            Ok::<_, SqlError>((beside, altering))
        })
        .await?;
        let names: Vec<String> = table.shown().iter().map(|column| quote(&column.name)).collect();
        let names = names.join(", ");
        let fill = format!("INSERT INTO {} ({names}) SELECT {names} FROM {}", quote(&beside), quote(name));
        self.change_rows(written(&fill)?).await.map_err(|error| match error.state() {
            state::UNIQUE_VIOLATION => {
                let told = SqlError::new(
                    state::UNIQUE_VIOLATION,
                    format!("could not create unique index \"{name}{KEY_SUFFIX}\""),
                );
                let detail = error.detail().unwrap_or_default().replace("already exists", "is duplicated");
                told.with_detail(detail).with_hint("DELETE all but one of the rows that have it, or name more columns")
            }
            _ => error,
        })?;
        let placed = to_its_end(async move { altering.take_place(rules).await });
        self.interrupt.submit(placed, |()| 0).await
    }

    /// The table as it is to be, and what its rows have to be for that.
    pub(super) async fn changed(&self, table: &Arc<TableSchema>, actions: &[Action]) -> Result<Changed> {
        let mut changed = Changed { to: (**table).clone(), n_new: 0, looks: vec![] };
        for action in actions {
            changed.apply(action, &self.zone())?;
        }
        let Changed { to, .. } = &changed;
        to.validate().map_err(|error| {
            SqlError::new(state::INVALID_TABLE_DEFINITION, format!("table \"{}\": {error}", to.name))
        })?;
        if actions.iter().any(|action| matches!(action, Action::SetDefault { .. })) {
            self.check_defaults(to).await?;
            self.check_sequences(to, &[], |_| false).await?;
        }
        if actions.iter().any(|action| matches!(action, Action::AddCheck(_))) {
            self.plan_checks(to).await?;
        }
        Ok(changed)
    }

    /// Whether a table has no row that must not be there.
    pub(super) async fn look(&self, table: &str, Look { condition, error }: Look) -> Result<()> {
        let statement = written(&format!("SELECT 1 FROM {} WHERE {condition} LIMIT 1", quote(table)))?;
        let plan = self.permitted(self.plan(&statement, &[]).await?)?;
        let mut batches = self.query.stream(plan, None).await?;
        while let Some(batch) = batches.try_next().await? {
            if batch.num_rows() > 0 {
                return Err(error);
            }
        }
        Ok(())
    }
}

/// What is looked for in the rows of a table, and what is wrong if it is there.
pub(super) struct Look {
    condition: String,
    error: SqlError,
}

fn has_null(table: &TableSchema, column: &str) -> Look {
    let message = format!("column \"{column}\" of relation \"{}\" contains null values", table.name);
    Look {
        condition: format!("{} IS NULL", quote(column)),
        error: SqlError::new(state::NOT_NULL_VIOLATION, message).with_hint("UPDATE these rows, or DELETE them, first"),
    }
}

/// A table as it is to be.
pub(super) struct Changed {
    pub to: TableSchema,
    /// Columns that were not there before, the last that are shown.
    n_new: usize,
    pub looks: Vec<Look>,
}

impl Changed {
    fn apply(&mut self, action: &Action, zone: &Zone) -> Result<()> {
        match action {
            Action::SetDefault { column, to } => {
                let at = self.column(column)?;
                self.check_no_identity(at)?;
                let rules = self.to.rules_of(at).cloned().unwrap_or_default();
                let (constant, computed) = default_of(to, &self.to.columns[at], rules.length, &self.to.name, zone)?;
                self.set_default(at, constant, computed);
            }
            Action::DropDefault { column } => {
                let at = self.column(column)?;
                self.check_no_identity(at)?;
                self.set_default(at, None, None);
            }
            Action::SetNotNull { column } => {
                let at = self.column(column)?;
                if self.to.columns[at].nullable {
                    self.to.columns[at].nullable = false;
                    self.looks.push(has_null(&self.to, column));
                }
            }
            Action::DropNotNull { column } => {
                let at = self.column(column)?;
                self.check_no_identity(at)?;
                if self.to.key.iter().any(|part| part.column_idx == at) {
                    let message = format!("column \"{column}\" is in a primary key");
                    return Err(SqlError::new(state::INVALID_TABLE_DEFINITION, message));
                }
                self.to.columns[at].nullable = true;
                let name = column;
                self.looks.retain(|look| look.condition != format!("{} IS NULL", quote(name)));
            }
            Action::AddCheck(said) => {
                for check in checks(vec![said.clone()], &self.to)? {
                    let named = self.to.columns.iter().filter(|column| check.columns.contains(&column.id));
                    named.clone().try_for_each(|column| self.column(&column.name).map(drop))?;
                    let message = format!(
                        "check constraint \"{}\" of relation \"{}\" is violated by some row",
                        check.name, self.to.name
                    );
                    self.looks.push(Look {
                        condition: format!("NOT ({})", check.expr),
                        error: SqlError::new(state::CHECK_VIOLATION, message)
                            .with_hint("UPDATE these rows, or DELETE them, first"),
                    });
                    self.to.options.rules.checks.push(check);
                }
            }
            Action::AddPrimaryKey(_) => {
                return Err(SqlError::unsupported(
                    "ALTER TABLE … ADD PRIMARY KEY beside other actions",
                    "ALTER TABLE t ADD PRIMARY KEY (…) in a statement of its own",
                ));
            }
            Action::RenameColumn { column, to } => self.rename_column(column, to)?,
            Action::AddColumn { def, if_not_exists } => self.add_column(def, *if_not_exists)?,
            Action::DropConstraint { name, if_exists } => self.drop_constraint(name, *if_exists)?,
            Action::SetType { column, to } => {
                let at = self.column(column)?;
                let (wanted, n_chars) = (data_type(to)?, length(to)?);
                let of = &self.to.columns[at];
                let before = self.to.rules_of(at).and_then(|rules| rules.length);
                let is_wider = match (before, n_chars) {
                    (_, None) => true,
                    (None, Some(_)) => false,
                    (Some(before), Some(after)) => before == after || before.widens_to(after),
                };
                if wanted != of.data_type || !is_wider {
                    return Err(SqlError::unsupported(
                        format!(
                            "ALTER TABLE … TYPE {to} of column \"{column}\", whose rows would have to be written anew"
                        ),
                        "a varchar may become longer, or text; else CREATE TABLE … AS with a cast, and rename it",
                    ));
                }
                let id = of.id;
                self.to.options.rules.entry(id).length = n_chars;
                self.to.options.rules.forget_empty();
            }
        }
        Ok(())
    }

    /// What names it in the definition goes with it: checks say the other name.
    fn rename_column(&mut self, column: &str, to: &str) -> Result<()> {
        let at = self.column(column)?;
        check_column_name(to)?;
        if self.to.column(to).is_some() {
            return Err(self.column_exists(to));
        }
        let id = self.to.columns[at].id;
        for check in self.to.options.rules.checks.iter_mut().filter(|check| check.columns.contains(&id)) {
            check.expr = with_column_renamed(&check.expr, column, to)?;
        }
        self.to = self.to.with_column_renamed(at, to);
        Ok(())
    }

    fn column_exists(&self, name: &str) -> SqlError {
        let message = format!("column \"{name}\" of relation \"{}\" already exists", self.to.name);
        SqlError::new(state::DUPLICATE_COLUMN, message)
    }

    fn add_column(&mut self, def: &ColumnDef, if_not_exists: bool) -> Result<()> {
        let id = self.to.columns.iter().map(|column| column.id.0).max().unwrap_or_default() + 1;
        let (column, mut rules) = added_column(def, ColumnId(id))?;
        if self.to.shown().iter().any(|other| other.name == column.name) {
            return if if_not_exists { Ok(()) } else { Err(self.column_exists(&column.name)) };
        }
        if self.to.stored_names().contains(&column.name.as_str()) {
            // Files that are there have another column by this name.
            rules.stored = Some(format!("__{id}"));
        }
        let at = self.to.shown().len();
        if self.to.is_keyless() {
            // The hidden key stays the last.
            self.to.key.iter_mut().for_each(|part| part.column_idx += 1);
        }
        self.to.columns.insert(at, column);
        self.to.options.rules.columns.push(rules);
        self.to.options.rules.forget_empty();
        self.n_new += 1;
        Ok(())
    }

    /// The place of a column whose rows can be looked at.
    fn column(&self, name: &str) -> Result<usize> {
        let found = self.to.shown().iter().position(|column| column.name == name);
        let at = found.ok_or_else(|| SqlError::undefined_column(&self.to.name, name))?;
        match at + self.n_new >= self.to.shown().len() {
            false => Ok(at),
            true => Err(SqlError::unsupported(
                format!("ALTER TABLE of column \"{name}\" that the same statement adds"),
                "ADD COLUMN in a statement of its own",
            )),
        }
    }

    fn check_no_identity(&self, at: usize) -> Result<()> {
        match self.to.rules_of(at).is_some_and(|rules| rules.identity.is_some()) {
            false => Ok(()),
            true => {
                let (column, table) = (&self.to.columns[at].name, &self.to.name);
                let message = format!("column \"{column}\" of relation \"{table}\" is an identity column");
                Err(SqlError::new(state::SYNTAX_ERROR, message))
            }
        }
    }

    fn set_default(&mut self, at: usize, constant: Option<Value>, computed: Option<String>) {
        let id = self.to.columns[at].id;
        self.to.columns[at].default = constant;
        self.to.options.rules.entry(id).default = computed;
        self.to.options.rules.forget_empty();
    }

    fn drop_constraint(&mut self, name: &str, if_exists: bool) -> Result<()> {
        let checks = &mut self.to.options.rules.checks;
        if let Some(at) = checks.iter().position(|check| check.name == name) {
            let gone = checks.remove(at);
            let condition = format!("NOT ({})", gone.expr);
            self.looks.retain(|look| look.condition != condition);
            return Ok(());
        }
        if !self.to.is_keyless() && name == format!("{}{KEY_SUFFIX}", self.to.name) {
            return Err(SqlError::unsupported(
                "ALTER TABLE … DROP CONSTRAINT of a primary key",
                "CREATE TABLE … AS makes a table without a key; rename it then",
            ));
        }
        match if_exists {
            true => Ok(()),
            false => {
                let message = format!("constraint \"{name}\" of relation \"{}\" does not exist", self.to.name);
                Err(SqlError::new(state::UNDEFINED_OBJECT, message))
            }
        }
    }
}

/// Calls tables and views otherwise, if all of them are the principal's.
pub(super) async fn rename_all(node: &Node, principal: &Principal, renames: &[Rename]) -> Result<()> {
    let mut now: BTreeMap<&str, &str> = BTreeMap::new();
    for Rename { from, to } in renames {
        let name = now.remove(from.as_str()).unwrap_or(from);
        may_drop(node, principal, name)?;
        now.insert(to, name);
    }
    Ok(node.rename(renames, rewrite).await?)
}
