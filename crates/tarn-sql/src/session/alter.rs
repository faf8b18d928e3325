//! What do `ALTER TABLE`, `ALTER VIEW` and `ALTER SEQUENCE … RENAME` do?
//!
//! Inside a transaction tables are altered for its own statements, and for others at COMMIT (`alter_held.rs`). Names of
//! views, and names that are free at COMMIT alone, because the transaction drops what has them, are given behind all
//! else: the renames that follow on each other are one change, so that what takes the place of another does so at one
//! moment. Outside of a transaction all of it holds at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{ColumnOption, DataType as SqlType, Expr};
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use tarn_node::alter::TableAlteration;
use tarn_node::jobs::Work;
use tarn_node::renames::Rename;
use tarn_node::sequences::Sequence;
use tarn_node::types::Types;
use tarn_node::views::no_view;
use tarn_types::{CheckRule, Column, ColumnId, DataType, ForeignKey, Style, TableSchema, Value, full_name};

use super::columns::{
    AddedColumn, InOlderRows, TypeChange, WrittenAnew, as_they_will_be, default_of_type, exists, with_added,
    with_dropped, with_type,
};
use super::create_as::written;
use super::execute::to_its_end;
use super::sequences::taken;
use super::{Answer, Session};
use crate::alter_sql::{Alter, AlterAction, AlterStatement, DropColumn, RelationKind};
use crate::column_rules::{SaidCheck, checks, default_of, generated, length};
use crate::ddl::{Ddl, check_column_name, column_uniques, keyed};
use crate::error::{Result, SqlError, state};
use crate::expressions::{ExpressionContext, kept, read, sequence_of, with_column_renamed};
use crate::foreign_rules::{self, SaidForeignKey};
use crate::names::{fold, quote};
use crate::seen_schemas::REWRITES;
use crate::sequence_sql::{Clauses, SequenceSql};
use crate::spelled::data_type;
use crate::unique_rules::{SaidUnique, name_anew, name_key, uniques};
use crate::user_types::{check_default, enumerated};

impl Session {
    pub(super) async fn alter(&self, alter: &Alter) -> Result<Answer> {
        self.refuse_own(alter.tag(), &alter.name)?;
        match &alter.change {
            AlterStatement::Rename(to) => self.rename(alter, to).await?,
            AlterStatement::SetSchema(schema) => {
                let to = full_name::join(schema, full_name::bare(&alter.name));
                self.check_moved(&alter.name, &to).await?;
                self.rename(alter, &to).await?;
            }
            AlterStatement::Actions(actions) => match self.must_hold()? {
                false if adds_foreign_key(actions) => self.alter_as_one(alter, actions).await?,
                true => self.alter_later(alter, actions).await?,
                false => self.change_table(alter, actions).await?,
            },
            AlterStatement::Counts { column, clauses } => self.count_otherwise(alter, column, clauses).await?,
        }
        Ok(Answer::done(alter.tag()))
    }

    /// Tells the sequence of an identity column, as `ALTER SEQUENCE` does.
    async fn count_otherwise(&self, alter: &Alter, column: &str, clauses: &Clauses) -> Result<()> {
        self.outside_transaction("ALTER TABLE … ALTER COLUMN of the numbers of an identity column")?;
        let table = match self.temporary.entry(self.node.catalog(), &alter.name) {
            Some(entry) => entry.schema(),
            None if alter.if_exists => return Ok(()),
            None => return Err(SqlError::undefined_table(&alter.name)),
        };
        let Some(at) = table.shown().iter().position(|of| of.name == column) else {
            return Err(SqlError::undefined_column(&table.name, column));
        };
        let is_identity = table.rules_of(at).is_some_and(|rules| rules.identity.is_some());
        let sequence = table.computed_default(at).and_then(|text| sequence_of(&read(text).ok()?));
        let Some(name) = sequence.filter(|_| is_identity) else {
            let message = format!("column \"{column}\" of relation \"{}\" is not an identity column", table.name);
            return Err(SqlError::new(state::NOT_IN_PREREQUISITE_STATE, message)
                .with_hint("ALTER SEQUENCE tells that of a serial column"));
        };
        let told = SequenceSql::Alter { name, if_exists: false, clauses: clauses.clone() };
        self.sequence(&told).await.map(drop)
    }

    /// Before a table or view comes into another schema, with its indexes.
    ///
    /// Errors: `3F000`, `42501` of the schema; `42P07` for the name of an index that is taken there; `0A000` for
    /// sequences that would have to come along.
    async fn check_moved(&self, from: &str, to: &str) -> Result<()> {
        self.node.schemas().check_there(to)?;
        self.node.may_make(&self.principal(), to)?;
        let sequences = self.node.sequences().all().await?;
        let is_its = |of: &Sequence| of.owner.as_ref().is_some_and(|owner| owner.table == from);
        if sequences.iter().any(|(name, of)| name == from || is_its(of)) {
            return Err(SqlError::unsupported(
                format!("SET SCHEMA of sequences, and of table {from}, whose columns have some"),
                "CREATE TABLE … AS, or (LIKE …) and INSERT, in the other schema",
            ));
        }
        let Some(table) = self.temporary.entry(self.node.catalog(), from) else { return Ok(()) };
        let table = table.schema();
        let mut indexes = table.options.rules.uniques.iter().map(|unique| full_name::beside(to, &unique.name));
        match indexes.find(|index| self.temporary.has_index(self.node.catalog(), index)) {
            Some(taken_there) => Err(taken(&taken_there)),
            None => Ok(()),
        }
    }

    async fn rename(&self, alter: &Alter, to: &str) -> Result<()> {
        let in_transaction = self.must_hold()?;
        if in_transaction && alter.kind == RelationKind::Table && self.rename_later(&alter.name, to).await? {
            return Ok(());
        }
        // Then, and now.
        let now = self.temporary.public_names(self.node.catalog()).into_iter().collect();
        let names: BTreeMap<String, String> = self.transaction.lock().names_at_commit(now);
        let sequences = self.node.sequences().all().await?;
        let is_sequence = |name: &str| sequences.iter().any(|(other, _)| other == name);
        let name = &alter.name;
        let Some(now) = names.get(name) else {
            if is_sequence(name) && alter.kind != RelationKind::View {
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
            RelationKind::View if !schema.is_view() => return Err(no_view(name).into()),
            RelationKind::Sequence => {
                return Err(SqlError::new(state::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a sequence")));
            }
            RelationKind::View | RelationKind::Table => {}
        }
        if names.contains_key(to) || is_sequence(to) {
            return Err(taken(to));
        }
        self.node.may_own(&self.principal(), &schema)?;
        let ddl = Ddl::Rename(vec![Rename { from: name.clone(), to: to.to_owned() }]);
        match in_transaction {
            true => self.transaction.lock().drop_later(ddl),
            false => self.run_ddl(ddl).await.map(drop),
        }
    }

    /// All actions, or none. The rows are looked at while nobody writes them.
    fn change_table<'a>(&'a self, alter: &'a Alter, actions: &'a [AlterAction]) -> BoxFuture<'a, Result<()>> {
        // On the heap: what it runs of other statements stands on a deep stack.
        self.changed_table(alter, actions).boxed()
    }

    async fn changed_table(&self, alter: &Alter, actions: &[AlterAction]) -> Result<()> {
        let name = &alter.name;
        if alter.if_exists && !self.node.catalog().contains(name) {
            return Ok(());
        }
        self.check_now()?;
        if let [AlterAction::AddPrimaryKey { key, name: said }] = actions {
            return self.add_key(name, key, said.as_deref()).await;
        }
        // What is wrong with it is told before anybody is kept out, and most of the rows are delivered by then.
        let before = Arc::clone(self.node.catalog().require(name)?.schema());
        let AlteredDefinition { to, dropped, anew, .. } = self.changed(&before, actions).await?;
        self.check_dropped(&before, &dropped).await?;
        self.check_references(&before, &to, !anew.is_empty())?;
        if anew.is_empty() && !to.stores_as(&before) {
            self.admin(Work::Deliver, name).await?;
        }
        let (node, who, table) = (Arc::clone(&self.node), self.principal(), name.clone());
        let altering: TableAlteration = to_its_end(async move { node.begin_alter(&who, &table).await }).await?;
        let AlteredDefinition { to, added, dropped, anew, looks, .. } =
            self.changed(altering.schema(), actions).await?;
        self.check_dropped(altering.schema(), &dropped).await?;
        self.check_references(altering.schema(), &to, !anew.is_empty())?;
        let rows = as_they_will_be(&to, &added, &anew);
        // What is computed for a row may be another value each time: its checks are asked of what was written.
        let (behind, looks): (Vec<_>, Vec<_>) = looks.into_iter().partition(|look| look.is_check && !anew.is_empty());
        for look in looks {
            self.look(&rows, look).await?;
        }
        if !anew.is_empty() {
            let filled = self.fill_beside(altering, to, &rows).await?;
            for look in behind {
                self.look(&quote(&filled.name), look).await?;
            }
            return self.take_place(filled).await;
        }
        if !to.stores_as(altering.schema()) {
            altering.deliver().await?;
        }
        let before = Arc::clone(altering.schema());
        let (altering, to) = self.with_indexes(altering, &before, to, &added).await?;
        let finished = to_its_end(async move { altering.finish(to, REWRITES).await });
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
    fn add_key<'a>(
        &'a self,
        name: &'a str,
        key: &'a [(String, bool)],
        said: Option<&'a str>,
    ) -> BoxFuture<'a, Result<()>> {
        self.keyed_anew(name, key, said).boxed()
    }

    /// `said` is what the constraint is called.
    async fn keyed_anew(&self, name: &str, key: &[(String, bool)], said: Option<&str>) -> Result<()> {
        let (node, who, table) = (Arc::clone(&self.node), self.principal(), name.to_owned());
        let altering: TableAlteration = to_its_end(async move { node.begin_alter(&who, &table).await }).await?;
        let table = Arc::clone(altering.schema());
        let mut to = keyed(&table, key)?;
        to.options.rules.key_name = said.filter(|name| !to.is_key_named(name)).map(str::to_owned);
        let others: Vec<_> = self.node.catalog().schemas().into_iter().filter(|other| other.id != table.id).collect();
        name_key(&mut to, &others)?;
        self.check_references(&table, &to, true)?;
        for part in &to.key {
            if table.columns[part.column_idx].nullable {
                self.look(&quote(name), has_null(&table, &table.columns[part.column_idx].name)).await?;
            }
        }
        let filled = self.fill_beside(altering, to, &quote(name)).await?;
        self.take_place(filled).await
    }

    /// The table as it is to be, and what its rows have to be for that.
    pub(super) fn changed<'a>(
        &'a self,
        table: &'a Arc<TableSchema>,
        actions: &'a [AlterAction],
    ) -> BoxFuture<'a, Result<AlteredDefinition>> {
        // On the heap, as what it plans.
        async move {
            let to = (**table).clone();
            let mut changed = AlteredDefinition {
                to,
                added: vec![],
                computed: vec![],
                said: vec![],
                uniques: vec![],
                foreign_keys: vec![],
                dropped: vec![],
                retyped: vec![],
                anew: vec![],
                looks: vec![],
            };
            for action in in_passes(actions) {
                changed.apply(action, &self.style(), self.node.types())?;
            }
            // They may be of columns that come behind theirs.
            let said = std::mem::take(&mut changed.said);
            changed.add_checks(said)?;
            self.add_uniques(&mut changed).await?;
            self.add_foreign_keys_to(&mut changed)?;
            let to = &changed.to;
            to.validate().map_err(|error| {
                SqlError::new(state::INVALID_TABLE_DEFINITION, format!("table \"{}\": {error}", to.name))
            })?;
            let may_compute = |action: &AlterAction| {
                matches!(
                    action,
                    AlterAction::SetDefault { .. } | AlterAction::AddColumn { .. } | AlterAction::SetType { .. }
                )
            };
            self.check_retyped(table, to, &changed.retyped).await?;
            changed.keep_defaults()?;
            let to = &changed.to;
            if actions.iter().any(may_compute) {
                self.check_defaults(to).await?;
                self.check_sequences(to, &[], |_| false).await?;
            }
            let may_check = |action: &AlterAction| {
                matches!(action, AlterAction::AddCheck(_) | AlterAction::AddColumn { .. } | AlterAction::SetType { .. })
            };
            if actions.iter().any(may_check) {
                self.plan_checks(to).await?;
            }
            if actions.iter().any(|action| matches!(action, AlterAction::AddColumn { .. })) {
                self.plan_generated(to).await?;
            }
            for (id, default) in std::mem::take(&mut changed.computed) {
                let value = self.in_older_rows(&changed.to, id, &default).await?;
                changed.fill_in(id, default, value);
            }
            changed.look_for_nulls();
            if !changed.anew.is_empty() && !changed.dropped.is_empty() {
                return Err(SqlError::unsupported(
                    "ALTER TABLE … DROP COLUMN beside a change for which all rows are written anew",
                    "two statements: DROP COLUMN first",
                ));
            }
            Ok(changed)
        }
        .boxed()
    }

    /// The constraints and indexes that come, under names that are free.
    async fn add_uniques(&self, changed: &mut AlteredDefinition) -> Result<()> {
        let said = std::mem::take(&mut changed.uniques);
        if said.is_empty() {
            return Ok(());
        }
        let (come, unnamed) = uniques(said, &changed.to)?;
        let n_before = changed.to.options.rules.uniques.len();
        changed.to.options.rules.uniques.extend(come);
        let sequences = self.node.sequences().all().await?;
        let is_taken =
            |name: &str| self.node.catalog().contains(name) || sequences.iter().any(|(other, _)| other == name);
        unnamed.into_iter().for_each(|at| name_anew(&mut changed.to, n_before + at, is_taken));
        Ok(())
    }

    /// The foreign keys that come, and the indexes that they all need.
    ///
    /// Errors: `0A000` for other values of a column that refers to a parent.
    fn add_foreign_keys_to(&self, changed: &mut AlteredDefinition) -> Result<()> {
        let said = std::mem::take(&mut changed.foreign_keys);
        foreign_rules::add(&mut changed.to, said, |name| self.parent(name))?;
        if changed.to.options.rules.foreign_keys.is_empty() && changed.to.options.rules.uniques.is_empty() {
            return Ok(());
        }
        let is_retyped = |id: &ColumnId| changed.retyped.iter().any(|of| of.id == *id);
        let refers = |key: &&ForeignKey| {
            let is_own = key.parent == ForeignKey::ITSELF;
            key.columns.iter().any(is_retyped) || (is_own && key.parent_columns.iter().any(is_retyped))
        };
        if let Some(key) = changed.to.options.rules.foreign_keys.iter().find(refers) {
            return Err(SqlError::unsupported(
                format!("ALTER TABLE … TYPE of a column of foreign key \"{}\"", key.name),
                "DROP CONSTRAINT it first, and ADD it behind",
            ));
        }
        foreign_rules::serve(&mut changed.to, |name| self.node.catalog().contains(name));
        Ok(())
    }

    /// Whether no row of a FROM is there that must not be.
    pub(super) fn look<'a>(&'a self, rows: &'a str, look: RowCheck) -> BoxFuture<'a, Result<()>> {
        async move {
            let RowCheck { condition, error, is_check: _ } = look;
            let statement = written(&format!("SELECT 1 FROM {rows} WHERE {condition} LIMIT 1"))?;
            let plan = self.permitted(self.plan(&statement, &[]).await?)?;
            let mut batches = self.query.stream(plan, None).await?;
            while let Some(batch) = batches.try_next().await? {
                if batch.num_rows() > 0 {
                    return Err(error);
                }
            }
            Ok(())
        }
        .boxed()
    }
}

/// Whether others may not write the parent meanwhile, either.
fn adds_foreign_key(actions: &[AlterAction]) -> bool {
    let adds = |action: &AlterAction| match action {
        AlterAction::AddForeignKey(_) => true,
        AlterAction::AddColumn { def, .. } => {
            def.options.iter().any(|option| matches!(option.option, ColumnOption::ForeignKey(_)))
        }
        _ => false,
    };
    actions.iter().any(adds)
}

/// Whether `USING` says no more than `TYPE` does: `TYPE varchar(9) USING code::varchar(9)`, as Django writes it.
fn is_own_cast(using: &Expr, column: &str, to: &SqlType) -> bool {
    match using {
        Expr::Nested(of) => is_own_cast(of, column, to),
        Expr::Cast { expr, data_type, format: None, array: false, .. } => {
            matches!(expr.as_ref(), Expr::Identifier(name) if fold(name) == column) && data_type == to
        }
        _ => false,
    }
}

/// In the order of PostgreSQL, whatever the order in which they are said: `SET NOT NULL, DROP NOT NULL` leaves a column
/// that is NOT NULL.
fn in_passes(actions: &[AlterAction]) -> Vec<&AlterAction> {
    let pass = |action: &&AlterAction| match action {
        AlterAction::DropColumn(_)
        | AlterAction::DropConstraint { .. }
        | AlterAction::DropIndex { .. }
        | AlterAction::RenameIndex { .. }
        | AlterAction::RenameConstraint { .. }
        | AlterAction::DropNotNull { .. }
        | AlterAction::DropDefault { .. }
        | AlterAction::DropExpression { .. } => 0,
        AlterAction::SetType { .. } => 1,
        AlterAction::AddColumn { .. } => 2,
        AlterAction::AddCheck(_) | AlterAction::AddUnique(_) | AlterAction::AddForeignKey(_) => 3,
        AlterAction::SetNotNull { .. } => 4,
        AlterAction::SetDefault { .. } => 5,
        // By themselves.
        AlterAction::AddPrimaryKey { .. } | AlterAction::RenameColumn { .. } => 6,
    };
    let mut actions: Vec<&AlterAction> = actions.iter().collect();
    actions.sort_by_key(pass);
    actions
}

/// What is looked for in the rows of a table, and what is wrong if it is there.
pub(super) struct RowCheck {
    condition: String,
    error: SqlError,
    is_check: bool,
}

impl RowCheck {
    /// For any row at all.
    fn for_any(error: SqlError) -> RowCheck {
        RowCheck { condition: "true".to_owned(), error, is_check: false }
    }
}

fn has_null(table: &TableSchema, column: &str) -> RowCheck {
    let error = contains_null(table, column).with_hint("UPDATE these rows, or DELETE them, first");
    RowCheck { condition: format!("{} IS NULL", quote(column)), error, is_check: false }
}

fn contains_null(table: &TableSchema, column: &str) -> SqlError {
    let message = format!("column \"{column}\" of relation \"{}\" contains null values", table.name);
    SqlError::new(state::NOT_NULL_VIOLATION, message)
}

fn violates(table: &TableSchema, check: &CheckRule) -> RowCheck {
    let message = format!("check constraint \"{}\" of relation \"{}\" is violated by some row", check.name, table.name);
    let error = SqlError::new(state::CHECK_VIOLATION, message)
        .with_constraint(&table.name, &check.name)
        .with_hint("UPDATE these rows, or DELETE them, first");
    RowCheck { condition: format!("NOT ({})", check.expr), error, is_check: true }
}

/// A table as it is to be.
pub(super) struct AlteredDefinition {
    /// Its definition, as far as the actions so far have changed it.
    pub to: TableSchema,
    /// Columns that were not there before.
    pub added: Vec<ColumnId>,
    /// Those of them whose value in the rows that are there is still to be computed, and of which expression.
    computed: Vec<(ColumnId, String)>,
    /// Checks that were said with them.
    said: Vec<SaidCheck>,
    /// Constraints and indexes that come; their entries are still to be made.
    uniques: Vec<SaidUnique>,
    foreign_keys: Vec<SaidForeignKey>,
    /// Columns that go.
    pub dropped: Vec<DropColumn>,
    /// Columns of other types, whose values are others for that.
    retyped: Vec<TypeChange>,
    /// If any, all rows are written anew.
    pub anew: Vec<WrittenAnew>,
    /// What must be true of the rows that are there, asked before anything changes.
    pub looks: Vec<RowCheck>,
}

impl AlteredDefinition {
    fn apply(&mut self, action: &AlterAction, style: &Style, types: &Types) -> Result<()> {
        match action {
            AlterAction::SetDefault { column, to } => {
                let at = self.column(column)?;
                self.check_own_default(at)?;
                let rules = self.to.rules_of(at).cloned().unwrap_or_default();
                let (constant, computed) = default_of(to, &self.to.columns[at], rules.length, &self.to.name, style)?;
                if let Some(of) = &rules.enumerated {
                    check_default(constant.as_ref(), of)?;
                }
                self.set_default(at, constant, computed);
            }
            AlterAction::DropDefault { column } => {
                let at = self.column(column)?;
                self.check_own_default(at)?;
                self.set_default(at, None, None);
            }
            AlterAction::SetNotNull { column } => {
                let at = self.column(column)?;
                if self.to.columns[at].nullable {
                    self.to.columns[at].nullable = false;
                    self.looks.push(has_null(&self.to, column));
                }
            }
            AlterAction::DropNotNull { column } => {
                let at = self.column(column)?;
                self.check_no_identity(at)?;
                if self.to.key.iter().any(|part| part.column_idx == at) {
                    let message = format!("column \"{column}\" is in a primary key");
                    return Err(SqlError::new(state::INVALID_TABLE_DEFINITION, message));
                }
                self.to.columns[at].nullable = true;
            }
            AlterAction::DropExpression { column, if_exists } => self.drop_expression(column, *if_exists)?,
            AlterAction::AddCheck(said) => self.add_checks(vec![said.clone()])?,
            AlterAction::AddUnique(said) => self.uniques.push(said.clone()),
            AlterAction::AddForeignKey(said) => self.foreign_keys.push((**said).clone()),
            AlterAction::RenameIndex { name, to } => {
                let uniques = self.to.options.rules.uniques.iter_mut();
                uniques.filter(|unique| unique.name == *name).for_each(|unique| unique.name.clone_from(to));
                if self.to.is_key_named(name) {
                    self.to.options.rules.key_name = Some(to.clone());
                }
            }
            AlterAction::RenameConstraint { name, to } => self.rename_constraint(name, to)?,
            AlterAction::DropIndex { name } => self.to.options.rules.uniques.retain(|unique| unique.name != *name),
            AlterAction::AddPrimaryKey { .. } => {
                return Err(SqlError::unsupported(
                    "ALTER TABLE … ADD PRIMARY KEY beside other actions",
                    "ALTER TABLE t ADD PRIMARY KEY (…) in a statement of its own",
                ));
            }
            AlterAction::RenameColumn { column, to } => self.rename_column(column, to)?,
            AlterAction::AddColumn { def, if_not_exists } => {
                if let Some(AddedColumn { to, id, checks, computed, generated }) =
                    with_added(&self.to, def, *if_not_exists, style, types)?
                {
                    self.to = to;
                    self.added.push(id);
                    if let Some(expr) = generated {
                        self.add_generated(id, &expr)?;
                    }
                    self.computed.extend(computed.map(|default| (id, default)));
                    self.said.extend(checks);
                    self.uniques.extend(column_uniques(def, &fold(&def.name))?);
                    self.foreign_keys.extend(SaidForeignKey::of_column(def)?);
                }
            }
            AlterAction::DropColumn(dropped) => {
                self.check_not_computed_of(&dropped.column, || {
                    let (column, table) = (&dropped.column, &self.to.name);
                    let message =
                        format!("cannot drop column {column} of table {table} because other objects depend on it");
                    SqlError::new(state::DEPENDENT_OBJECTS, message)
                        .with_hint("DROP the generated column first, or ALTER COLUMN … DROP EXPRESSION")
                })?;
                if let Some(to) = with_dropped(&self.to, dropped)? {
                    self.to = to;
                    self.dropped.push(dropped.clone());
                }
            }
            AlterAction::DropConstraint { name, if_exists } => self.drop_constraint(name, *if_exists)?,
            AlterAction::SetType { column, to, using } => self.set_type(column, to, using.as_ref(), types)?,
        }
        Ok(())
    }

    /// Whether no generated column is computed of this one; `refused` says what is wrong otherwise.
    fn check_not_computed_of(&self, column: &str, refused: impl FnOnce() -> SqlError) -> Result<()> {
        let Some(id) = self.to.column(column).map(|(_, column)| column.id) else { return Ok(()) };
        let of = |at: &usize| self.to.generated(*at).is_some_and(|generated| generated.columns.contains(&id));
        match (0..self.to.columns.len()).find(of) {
            None => Ok(()),
            Some(at) => {
                let by = &self.to.columns[at].name;
                Err(refused().with_detail(format!("Column \"{column}\" is used by generated column \"{by}\".")))
            }
        }
    }

    fn set_type(&mut self, column: &str, to: &SqlType, using: Option<&Expr>, types: &Types) -> Result<()> {
        let at = self.column(column)?;
        if self.to.generated(at).is_some() {
            return Err(SqlError::unsupported(
                format!("ALTER TABLE … TYPE of \"{column}\", which is a generated column"),
                "ALTER COLUMN … DROP EXPRESSION first, or DROP COLUMN and ADD COLUMN anew",
            ));
        }
        self.check_not_computed_of(column, || {
            let message = "cannot alter type of a column used by a generated column";
            SqlError::new(state::FEATURE_NOT_SUPPORTED, message)
                .with_hint("ALTER COLUMN … DROP EXPRESSION of the generated column, first")
        })?;
        let labels = enumerated(to, types)?;
        let (wanted, n_chars) = match labels {
            Some(_) => (DataType::Text, None),
            None => (data_type(to)?, length(to)?),
        };
        let Column { id, data_type: now, nullable, .. } = self.to.columns[at];
        let before = self.to.rules_of(at).and_then(|rules| rules.length);
        if self.retyped.iter().any(|of| of.id == id) {
            let message = format!("cannot alter type of column \"{column}\" twice");
            return Err(SqlError::unsupported(message, "say the type that it is to have"));
        }
        let is_wider = match (before, n_chars) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(before), Some(after)) => before == after || before.widens_to(after),
        };
        let is_of_type = self.to.enumerated(at).map(|of| of.id) == labels.as_ref().map(|of| of.id);
        let says_no_more = using.is_none_or(|expr| is_own_cast(expr, column, to));
        if wanted == now && is_wider && says_no_more && is_of_type {
            self.to.options.rules.entry(id).length = n_chars;
            self.to.options.rules.forget_empty();
            return Ok(());
        }
        let using = using.map(|expr| kept(expr, ExpressionContext::Transform)).transpose()?;
        let (to, default) = with_type(&self.to, at, wanted, n_chars, labels)?;
        self.to = to;
        self.anew.push(WrittenAnew { id, expr: using.clone().unwrap_or_else(|| quote(column)) });
        self.retyped.push(TypeChange { id, column: column.to_owned(), using, default });
        if !nullable {
            self.looks.push(RowCheck { error: contains_null(&self.to, column), ..has_null(&self.to, column) });
        }
        let checks = self.to.options.rules.checks.iter().filter(|check| check.columns.contains(&id));
        self.looks.extend(checks.map(|check| violates(&self.to, check)));
        Ok(())
    }

    /// What names it in the definition goes with it: checks say the other name.
    fn rename_column(&mut self, column: &str, to: &str) -> Result<()> {
        let at = self.column(column)?;
        check_column_name(to)?;
        if self.to.column(to).is_some() {
            return Err(exists(&self.to, to));
        }
        let id = self.to.columns[at].id;
        for check in self.to.options.rules.checks.iter_mut().filter(|check| check.columns.contains(&id)) {
            check.expr = with_column_renamed(&check.expr, ExpressionContext::Check, column, to)?;
        }
        let generated = self.to.options.rules.columns.iter_mut().filter_map(|rules| rules.generated.as_mut());
        for generated in generated.filter(|generated| generated.columns.contains(&id)) {
            generated.expr = with_column_renamed(&generated.expr, ExpressionContext::Generated, column, to)?;
        }
        self.to = self.to.with_column_renamed(at, to);
        Ok(())
    }

    /// A column that is computed of the others: so it is in the rows that are there.
    fn add_generated(&mut self, id: ColumnId, expr: &Expr) -> Result<()> {
        let is_one = |at: usize| self.to.columns[at].id == id || self.to.generated(at).is_some();
        let generated = generated(expr, is_one, &self.to)?;
        self.anew.push(WrittenAnew { id, expr: generated.expr.clone() });
        self.to.options.rules.entry(id).generated = Some(generated);
        Ok(())
    }

    fn add_checks(&mut self, said: Vec<SaidCheck>) -> Result<()> {
        for check in checks(said, &self.to)? {
            self.looks.push(violates(&self.to, &check));
            self.to.options.rules.checks.push(check);
        }
        Ok(())
    }

    /// What the rows that are there have in a column that comes.
    fn fill_in(&mut self, id: ColumnId, default: String, value: InOlderRows) {
        match value {
            InOlderRows::One(value) => {
                self.to.options.rules.entry(id).missing = value;
                self.to.options.rules.forget_empty();
            }
            InOlderRows::Each => self.anew.push(WrittenAnew { id, expr: default }),
        }
    }

    /// Constants that were defaults of columns of other types are those of the types that they have now, unless another
    /// default was said.
    fn keep_defaults(&mut self) -> Result<()> {
        for TypeChange { id, default, .. } in &self.retyped {
            let (Some(default), Some(at)) = (default, self.to.columns.iter().position(|column| column.id == *id))
            else {
                continue;
            };
            let rules = self.to.rules_of(at);
            let (length, is_computed) = (rules.and_then(|of| of.length), rules.is_some_and(|of| of.default.is_some()));
            let default = default_of_type(&self.to.columns[at], length, default)?;
            if let Some(of) = self.to.enumerated(at) {
                check_default(Some(&default), of)?;
            }
            if !is_computed && self.to.columns[at].default.is_none() {
                self.to.columns[at].default = Some(default);
            }
        }
        Ok(())
    }

    /// A column that comes without a value cannot be NOT NULL where there are rows.
    fn look_for_nulls(&mut self) {
        for column in self.to.columns.iter().filter(|column| self.added.contains(&column.id) && !column.nullable) {
            if self.to.missing(column.id).is_none() && !self.anew.iter().any(|of| of.id == column.id) {
                self.looks.push(RowCheck::for_any(contains_null(&self.to, &column.name)));
            }
        }
    }

    fn column(&self, name: &str) -> Result<usize> {
        let found = self.to.shown().iter().position(|column| column.name == name);
        found.ok_or_else(|| SqlError::undefined_column(&self.to.name, name))
    }

    /// Whether a column may have another default.
    fn check_own_default(&self, at: usize) -> Result<()> {
        self.check_no_identity(at)?;
        match self.to.generated(at) {
            None => Ok(()),
            Some(_) => {
                let (column, table) = (&self.to.columns[at].name, &self.to.name);
                let message = format!("column \"{column}\" of relation \"{table}\" is a generated column");
                Err(SqlError::new(state::SYNTAX_ERROR, message).with_hint("ALTER COLUMN … DROP EXPRESSION, first"))
            }
        }
    }

    /// The values of a generated column stay as they are, and are given like others from now on.
    fn drop_expression(&mut self, column: &str, if_exists: bool) -> Result<()> {
        let at = self.column(column)?;
        let id = self.to.columns[at].id;
        if self.to.options.rules.entry(id).generated.take().is_none() && !if_exists {
            let message =
                format!("column \"{column}\" of relation \"{}\" is not a stored generated column", self.to.name);
            return Err(SqlError::new(state::NOT_IN_PREREQUISITE_STATE, message));
        }
        self.to.options.rules.forget_empty();
        Ok(())
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

    /// The index of a constraint is called as it is.
    fn rename_constraint(&mut self, name: &str, to: &str) -> Result<()> {
        let table = full_name::bare(&self.to.name);
        let has_index = |name: &str| {
            let mut uniques = self.to.options.rules.uniques.iter();
            self.to.is_key_named(name) || uniques.any(|unique| unique.name == name)
        };
        if has_index(name) && has_index(to) {
            return Err(taken(to));
        }
        if foreign_rules::has_constraint(&self.to, to) {
            let message = format!("constraint \"{to}\" for relation \"{table}\" already exists");
            return Err(SqlError::new(state::DUPLICATE_OBJECT, message));
        }
        let missing = || {
            let message = format!("constraint \"{name}\" for table \"{table}\" does not exist");
            SqlError::new(state::UNDEFINED_OBJECT, message)
        };
        if !foreign_rules::has_constraint(&self.to, name) {
            return Err(missing());
        }
        if self.to.is_key_named(name) {
            self.to.options.rules.key_name = Some(to.to_owned());
            return Ok(());
        }
        let rules = &mut self.to.options.rules;
        let checks = rules.checks.iter_mut().map(|check| &mut check.name);
        let uniques = rules.uniques.iter_mut().filter(|unique| !unique.by_index).map(|unique| &mut unique.name);
        let keys = rules.foreign_keys.iter_mut().map(|key| &mut key.name);
        checks.chain(uniques).chain(keys).filter(|of| of.as_str() == name).for_each(|of| to.clone_into(of));
        Ok(())
    }

    fn drop_constraint(&mut self, name: &str, if_exists: bool) -> Result<()> {
        let checks = &mut self.to.options.rules.checks;
        if let Some(at) = checks.iter().position(|check| check.name == name) {
            checks.remove(at);
            return Ok(());
        }
        let uniques = &mut self.to.options.rules.uniques;
        if let Some(at) = uniques.iter().position(|unique| unique.name == name && !unique.by_index) {
            uniques.remove(at);
            return Ok(());
        }
        let keys = &mut self.to.options.rules.foreign_keys;
        if let Some(at) = keys.iter().position(|key| key.name == name) {
            keys.remove(at);
            return Ok(());
        }
        if self.to.is_key_named(name) {
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
