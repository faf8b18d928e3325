//! Which rows does this `UPDATE`, `DELETE` or `INSERT` write? A query answers it; the caller turns the rows into
//! mutations.
//!
//! | statement | the source's columns |
//! |---|---|
//! | `INSERT` | the table's columns, of storage types |
//! | `UPDATE` | the table's columns with their new values, of storage types, then `__seqno` |
//! | `DELETE` | the key columns in key order, of storage types, then `__seqno` |
//! | `DELETE … RETURNING` | the table's columns, of storage types, then `__seqno` |
//!
//! Generated columns ([`tarn_types::GeneratedColumn`]) have any value in the rows of an `INSERT` or `UPDATE`: the
//! caller computes them.
//!
//! `__seqno` is the change that the row was read at: the caller guards its mutation with it, so that a row that
//! somebody else changed meanwhile is not overwritten.
//!
//! `ON CONFLICT (key) DO UPDATE` has a second plan, which is an `UPDATE` of the table beside the rows that were to be
//! inserted (`excluded`). The caller finds the rows that are there by their keys, and [`Session::changed`] answers what
//! becomes of them.
//!
//! `UPDATE … FROM` and `DELETE … USING` read their table beside others. A row of it that is met several times is there
//! several times: the caller takes the first.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType as ArrowType, Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use datafusion::catalog::MemTable;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column as PlannedColumn, DFSchema, ParamValues};
use datafusion::datasource::provider_as_source;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::{Cast, Expr as Planned, LogicalPlan, LogicalPlanBuilder};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, Delete, DoUpdate, Expr, Ident, Insert, Join, JoinConstraint, JoinOperator,
    ObjectName, Parens, Query, SelectItem, SetExpr, Statement, TableAlias, TableFactor, TableWithJoins, UnaryOperator,
    Update, UpdateTableFromKind, Value as Literal, Values, Visitor,
};
use datafusion::sql::sqlparser::parser::ParserError;
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt, stream};
use tarn_types::{Column, DataType, SEQNO_COLUMN, TableSchema, Value, conform, full_name};

use crate::catalog::WITH_SEQNO;
use crate::conflict::{Arbiter, EXCLUDED, OnKey, arbiter, called, is_its_own, on_key, update_of};
use crate::engine::Session;
use crate::inserted_query::{check_count, is_by_itself};
use crate::keyed::{from_of, is_default, object_name, relation};
use crate::parser::{ParseError, RowLocks, query_of, select_of};
use crate::row_change::{OneRow, RowChange};
use crate::walk::{each_expr, walk};
use crate::{Error, Result};

/// Of more rows than these a plan says what becomes of them, and what is asked of them.
pub const FEW_ROWS: usize = 256;

/// What to do with the source's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DmlKind {
    /// Write each row.
    Insert {
        /// What becomes of those whose key is there.
        on_key: OnKey,
    },
    /// Put each row, guarded by its `__seqno`.
    Update,
    /// Delete each key, guarded by its `__seqno`.
    Delete,
}

/// A planned statement: what to do, and the query whose rows to do it with. May be bound and run many times.
#[derive(Debug, Clone)]
pub struct Dml {
    /// The table written to.
    pub table: Arc<TableSchema>,
    /// What to do.
    pub kind: DmlKind,
    /// The query; `$n` unbound, typed where the statement tells their type.
    pub source: LogicalPlan,
    /// What `DO UPDATE` makes of rows that are there ([`Session::changed`]).
    pub change: Option<LogicalPlan>,
    /// By what an `INSERT` finds rows that are there.
    pub arbiter: Arbiter,
    /// Whether a row may be met several times, of which the first counts.
    pub may_repeat: bool,
    /// What it says of rows that others lock, of which its own are those that it changes.
    pub locks: Option<RowLocks>,
    /// Whether the rows of a `DELETE` are whole.
    pub(crate) is_whole: bool,
    /// Of a statement of one row ([`Dml::of_one_row`]).
    pub(crate) one_row: Option<OneRow>,
    /// The change, if nothing has to be planned for it.
    pub(crate) of_pairs: Option<RowChange>,
}

impl Session {
    /// Plans an `INSERT`, `UPDATE` or `DELETE` on `table`. What it returns is the caller's.
    ///
    /// Errors: what DataFusion says of its parts; `Unsupported` for clauses that Tarn does not have, for a changed key
    /// column, and for anything but `INSERT` on an append-only table; `ConflictTarget` and `NoConstraint` for a
    /// conflict with what is not the key.
    pub fn dml<'a>(&'a self, statement: &'a Statement, table: &'a Arc<TableSchema>) -> BoxFuture<'a, Result<Dml>> {
        // On the heap: who awaits it stands on a deep stack.
        self.planned_dml(statement, table).boxed()
    }

    async fn planned_dml(&self, statement: &Statement, table: &Arc<TableSchema>) -> Result<Dml> {
        let of = |kind, source| Dml {
            table: Arc::clone(table),
            kind,
            source,
            change: None,
            arbiter: Arbiter::Key,
            may_repeat: false,
            locks: None,
            is_whole: false,
            one_row: None,
            of_pairs: None,
        };
        match statement {
            Statement::Insert(insert) => {
                let on_key = on_key(insert, table)?;
                let source = self.insert(insert, table).boxed().await?;
                let arbiter = arbiter(insert, table)?;
                let change = match (on_key, update_of(insert)) {
                    (OnKey::Change, Some(update)) => Some(self.conflict(insert, update, arbiter, table).await?),
                    _ => None,
                };
                Ok(Dml { change, arbiter, ..of(DmlKind::Insert { on_key }, source) })
            }
            Statement::Update(update) => {
                let source = self.update(update, table).await?;
                Ok(Dml { may_repeat: update.from.is_some(), ..of(DmlKind::Update, source) })
            }
            Statement::Delete(delete) => {
                let source = self.delete(delete, table).await?;
                let (may_repeat, is_whole) = (delete.using.is_some(), delete.returning.is_some());
                Ok(Dml { may_repeat, is_whole, ..of(DmlKind::Delete, source) })
            }
            _ => Err(unsupported("this statement as a change of rows".to_owned(), "use INSERT, UPDATE or DELETE")),
        }
    }

    /// The rows of a planned statement, at the newest position. Columns as in the table above.
    pub async fn dml_rows(&self, dml: &Dml, parameters: Option<ParamValues>) -> Result<SendableRecordBatchStream> {
        if let Some(row) = self.inserted_row(dml, parameters.as_ref()).await? {
            return Ok(only(row));
        }
        let rows = self.stream(dml.source.clone(), parameters).await?;
        let table = Arc::clone(&dml.table);
        match dml.kind {
            DmlKind::Insert { .. } => Ok(inserted_rows(rows, table)),
            DmlKind::Delete if !dml.is_whole => {
                let schema = key_schema(&table)?;
                let stored = Arc::clone(&schema);
                let keys = rows
                    .and_then(move |batch| std::future::ready(deleted(&batch, &stored).map_err(DataFusionError::from)));
                Ok(Box::pin(RecordBatchStreamAdapter::new(schema, keys)))
            }
            DmlKind::Update | DmlKind::Delete => Ok(stored_rows(rows, table)),
        }
    }

    /// What `DO UPDATE` makes of rows that are there. `there` has them (the table's columns and `__seqno`, of storage
    /// types), `given` the rows that were to be inserted in their place, one each. Answers those that are changed, as
    /// an `UPDATE` does, in any order.
    ///
    /// Errors: as [`Session::stream`]; of a statement that has no such clause there is nothing.
    pub async fn changed(
        &self,
        dml: &Dml,
        there: &RecordBatch,
        given: &RecordBatch,
        parameters: Option<ParamValues>,
    ) -> Result<SendableRecordBatchStream> {
        let Some(change) = &dml.change else {
            return Err(DataFusionError::Internal("no DO UPDATE was planned".to_owned()).into());
        };
        let n_given = dml.table.shown().len();
        let columns: Vec<_> = there.columns().iter().chain(given.columns().iter().take(n_given)).cloned().collect();
        if let Some(change) = dml.of_pairs.as_ref().filter(|_| there.num_rows() <= FEW_ROWS)
            && let Some(changed) = self.changed_rows(dml, change, &pairs(&columns)?, parameters.as_ref()).await?
        {
            return Ok(only(changed));
        }
        let rows = self.stream(beside(change.clone(), |_| Ok(columns))?, parameters).await?;
        Ok(stored_rows(rows, Arc::clone(&dml.table)))
    }

    async fn insert(&self, insert: &Insert, table: &TableSchema) -> Result<LogicalPlan> {
        // The alias is for what comes behind the rows.
        let mut plain = Insert { on: None, returning: None, table_alias: None, replace_into: false, ..insert.clone() };
        // Who gives fewer values than there are columns means the first ones.
        if let Some(n_given) = plain.source.as_ref().and_then(|rows| arity(rows)) {
            if plain.columns.is_empty() && n_given < table.shown().len() {
                let first = table.shown().iter().take(n_given);
                plain.columns =
                    first.map(|column| ObjectName::from(vec![Ident::with_quote('"', &column.name)])).collect();
            }
            check_count(n_given, if plain.columns.is_empty() { table.shown().len() } else { plain.columns.len() })?;
        }
        write_defaults(&mut plain, table);
        if let Some(query) = plain.source.take_if(|query| is_by_itself(query)) {
            return self.inserted_query(&plain, &query, table).await;
        }
        self.dml_input(Statement::Insert(plain)).await
    }

    /// `DO UPDATE`: an `UPDATE` of the table beside the rows that were to be inserted, which are called `excluded` and
    /// have its columns.
    async fn conflict(
        &self,
        insert: &Insert,
        update: &DoUpdate,
        arbiter: Arbiter,
        table: &TableSchema,
    ) -> Result<LogicalPlan> {
        let name = ObjectName::from(vec![Ident::with_quote('"', &table.name)]);
        let (mut target, mut given) = (table_of(name.clone()), table_of(name));
        let called = called(insert, table);
        if called == EXCLUDED {
            return Err(unsupported(
                format!("ON CONFLICT DO UPDATE of a table that is called {EXCLUDED}"),
                "give it an alias: INSERT INTO … AS t",
            ));
        }
        call(&mut target, &called);
        call(&mut given, EXCLUDED);
        let mut target = with_seqno(&target, table)?;
        target.joins.push(beside_it(given));
        // Where the key is what a row was found by, both rows have the same.
        let own_names = [called.as_str(), EXCLUDED];
        let own_names = if arbiter == Arbiter::Key { &own_names[..] } else { &own_names[..1] };
        let update = Update {
            table: target,
            assignments: assignments(&update.assignments, table, own_names)?,
            selection: update.selection.clone(),
            ..plain_update()
        };
        self.dml_input(Statement::Update(update)).await
    }

    async fn update(&self, update: &Update, table: &TableSchema) -> Result<LogicalPlan> {
        refuse_append_only("UPDATE", table)?;
        let mut target = with_seqno(&update.table, table)?;
        match &update.from {
            None => {}
            Some(UpdateTableFromKind::AfterSet(tables)) => {
                check_lateral(tables, &update.table, table)?;
                target.joins.extend(tables.iter().cloned().map(beside_it));
            }
            Some(UpdateTableFromKind::BeforeSet(_)) => {
                return Err(unsupported("UPDATE … FROM … SET".to_owned(), "write FROM behind SET"));
            }
        }
        let assignments = assignments(&update.assignments, table, &[])?;
        // What is kept among the hints is no hint to the planner (`row_locks`).
        let (from, returning, optimizer_hints) = (None, None, vec![]);
        let update = Update { table: target, assignments, from, returning, optimizer_hints, ..update.clone() };
        self.dml_input(Statement::Update(update)).await
    }

    async fn delete(&self, delete: &Delete, table: &TableSchema) -> Result<LogicalPlan> {
        refuse_append_only("DELETE", table)?;
        let [from] = from_of(delete) else {
            return Err(unsupported("DELETE from several tables".to_owned(), "delete from one at a time"));
        };
        check_lateral(delete.using.as_deref().unwrap_or_default(), from, table)?;
        let mut target = with_seqno(from, table)?;
        let called = name_of(from);
        target.joins.extend(delete.using.iter().flatten().cloned().map(beside_it));
        let quoted = |name: &str| {
            let path = [called.as_str(), name].map(|part| Ident::with_quote('"', part));
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(path.into()))
        };
        let names: Vec<&str> = match delete.returning {
            Some(_) => table.columns.iter().map(|column| column.name.as_str()).collect(),
            None => table.key_columns().map(|column| column.name.as_str()).collect(),
        };
        let columns = names.into_iter().chain([SEQNO_COLUMN]).map(quoted).collect();
        self.plan(&rows_of(columns, target, delete.selection.clone())).await
    }

    /// The query below the plan of an `INSERT` or `UPDATE`.
    pub(crate) async fn dml_input(&self, statement: Statement) -> Result<LogicalPlan> {
        match self.plan_unchecked(statement).await? {
            LogicalPlan::Dml(dml) => Ok(values_may_be_null(Arc::unwrap_or_clone(dml.input))?),
            other => Err(DataFusionError::Internal(format!("no change of rows: {}", other.display())).into()),
        }
    }
}

/// `VALUES` are planned with the table's columns, of which a NULL that is written out is not one where none may be: so
/// that it is told with the rows, as of any other query. And an array that is written out is of texts, not of `uuid`s:
/// the batch that is made of such values does not tell that, and whoever stores them reads them as what their column
/// has.
fn values_may_be_null(rows: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
    let told = rows.transform_up(|node| match node {
        LogicalPlan::Values(mut values)
            if values.schema.fields().iter().any(|field| !field.is_nullable() || of_plain_items(field).is_some()) =>
        {
            let plain: Vec<Option<ArrowType>> =
                values.schema.fields().iter().map(|field| of_plain_items(field)).collect();
            for (expr, of) in values.values.iter_mut().flat_map(|row| row.iter_mut().zip(&plain)) {
                let Some(of) = of else { continue };
                let value = match std::mem::take(expr) {
                    Planned::Cast(cast) => *cast.expr,
                    other => other,
                };
                *expr = Planned::Cast(Cast::new(Box::new(value), of.clone()));
            }
            let told = |(field, plain): (&FieldRef, &Option<ArrowType>)| {
                let of = plain.clone().unwrap_or_else(|| field.data_type().clone());
                Arc::new(field.as_ref().clone().with_data_type(of).with_nullable(true))
            };
            let named = values.schema.iter().map(|(of, _)| of.cloned());
            let fields = named.zip(values.schema.fields().iter().zip(&plain).map(told)).collect();
            values.schema = Arc::new(DFSchema::new_with_metadata(fields, values.schema.metadata().clone())?);
            Ok(Transformed::yes(LogicalPlan::Values(values)))
        }
        node => Ok(Transformed::no(node)),
    })?;
    // What reads them knows them as they are.
    if told.transformed {
        told.data.transform_up(|node| node.recompute_schema().map(Transformed::yes)).map(|plan| plan.data)
    } else {
        Ok(told.data)
    }
}

/// The type of an array whose items say more than their type, without that.
fn of_plain_items(field: &Field) -> Option<ArrowType> {
    match field.data_type() {
        ArrowType::List(item) if !item.metadata().is_empty() => {
            Some(ArrowType::List(Arc::new(item.as_ref().clone().with_metadata(HashMap::new()))))
        }
        _ => None,
    }
}

fn only(rows: RecordBatch) -> SendableRecordBatchStream {
    let schema = rows.schema();
    Box::pin(RecordBatchStreamAdapter::new(schema, stream::once(std::future::ready(Ok(rows)))))
}

/// The rows of an `INSERT`, and what is planned like one, as the table keeps them but for generated columns, which the
/// caller computes.
pub(crate) fn inserted_rows(rows: SendableRecordBatchStream, table: Arc<TableSchema>) -> SendableRecordBatchStream {
    let table = table.before_generated();
    let schema = table.arrow();
    let rows = rows.and_then(move |batch| std::future::ready(inserted(&batch, &table).map_err(DataFusionError::from)));
    Box::pin(RecordBatchStreamAdapter::new(schema, rows))
}

/// The rows of an `UPDATE`, and what is planned like one, as the table keeps them but for generated columns, which the
/// caller computes.
pub(crate) fn stored_rows(rows: SendableRecordBatchStream, table: Arc<TableSchema>) -> SendableRecordBatchStream {
    let table = table.before_generated();
    let schema = table.arrow_with_seqno();
    let stored = Arc::clone(&schema);
    let rows =
        rows.and_then(move |batch| std::future::ready(updated(&batch, &table, &stored).map_err(DataFusionError::from)));
    Box::pin(RecordBatchStreamAdapter::new(schema, rows))
}

/// The plan of a `DO UPDATE`, or of a clause of MERGE, which reads these columns instead of the two tables that it
/// joins: `columns` is asked for those of the join.
pub(crate) fn beside(
    change: LogicalPlan,
    columns: impl FnOnce(&DFSchema) -> Result<Vec<ArrayRef>, DataFusionError>,
) -> Result<LogicalPlan> {
    let mut columns = Some(columns);
    let mut read = |join: &LogicalPlan| -> Result<LogicalPlan, DataFusionError> {
        let wanted = join.schema();
        let columns = columns.take().map_or(Ok(vec![]), |columns| columns(wanted.as_ref()))?;
        let fields = wanted.fields().iter().enumerate();
        let fields = fields.map(|(at, field)| field.as_ref().clone().with_name(pair_column(at)));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<Field>>()));
        let columns = columns.iter().zip(schema.fields()).map(|(column, field)| cast(column, field.data_type()));
        let rows = RecordBatch::try_new(Arc::clone(&schema), columns.collect::<Result<Vec<_>, ArrowError>>()?)?;
        let rows = provider_as_source(Arc::new(MemTable::try_new(Arc::clone(&schema), vec![vec![rows]])?));
        let names = wanted.iter().zip(schema.fields());
        let named = names.map(|((of, field), kept)| {
            Planned::Column(PlannedColumn::from_name(kept.name())).alias_qualified(of.cloned(), field.name())
        });
        LogicalPlanBuilder::scan("pairs", rows, None)?.project(named.collect::<Vec<_>>())?.build()
    };
    let mut is_read = false;
    // Subqueries read the tables themselves.
    let plan = change.transform_down(|node| match node {
        LogicalPlan::Join(_) if !is_read => {
            is_read = true;
            Ok(Transformed::new(read(&node)?, true, TreeNodeRecursion::Stop))
        }
        node => Ok(Transformed::no(node)),
    })?;
    match is_read {
        true => Ok(plan.data),
        false => Err(DataFusionError::Internal("a DO UPDATE reads two tables".to_owned()).into()),
    }
}

/// Names of their own: the two tables have the same.
fn pair_column(at: usize) -> String {
    format!("c{at}")
}

/// The columns of pairs as the plan of [`beside`] reads them, of storage types.
fn pairs(columns: &[ArrayRef]) -> Result<RecordBatch, DataFusionError> {
    let named = columns.iter().enumerate().map(|(at, column)| (pair_column(at), Arc::clone(column), true));
    Ok(RecordBatch::try_from_iter_with_nullable(named)?)
}

/// A relation beside the one that is changed: which of their rows belong together the condition says.
pub(crate) fn beside_it(table: TableWithJoins) -> Join {
    let relation = match table.joins.is_empty() {
        true => table.relation,
        false => TableFactor::NestedJoin { table_with_joins: Box::new(table), alias: None },
    };
    Join { relation, global: false, join_operator: JoinOperator::CrossJoin(JoinConstraint::None) }
}

/// What is LATERAL sees the tables before it, but not the one that is changed: a name of its columns is there that of
/// another table, or of none.
///
/// Errors: there is such a name.
fn check_lateral(tables: &[TableWithJoins], target: &TableWithJoins, table: &TableSchema) -> Result<()> {
    struct Laterals<F>(F);
    impl<F: Fn(&Expr) -> bool> Visitor for Laterals<F> {
        type Break = ();

        fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
            let is_lateral = matches!(
                factor,
                TableFactor::Derived { lateral: true, .. } | TableFactor::Function { lateral: true, .. }
            );
            match is_lateral {
                true => each_expr(factor, |expr| match (self.0)(expr) {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }),
                false => ControlFlow::Continue(()),
            }
        }
    }
    let called = name_of(target);
    let is_its = |expr: &Expr| match expr {
        Expr::Identifier(name) => table.columns.iter().any(|column| column.name.eq_ignore_ascii_case(&name.value)),
        Expr::CompoundIdentifier(path) => path.first().is_some_and(|first| first.value.eq_ignore_ascii_case(&called)),
        _ => false,
    };
    let mut laterals = Laterals(is_its);
    if tables.iter().any(|table| walk(table, &mut laterals).is_break()) {
        return Err(unsupported(
            format!("LATERAL that names columns as those of {called}, which is changed"),
            "name the table of each column; what hangs on the changed table belongs into WHERE",
        ));
    }
    Ok(())
}

/// What the rows of a table are called by: its alias, or its name without a schema.
fn name_of(table: &TableWithJoins) -> String {
    let named = relation(table).map(|(name, alias)| alias.unwrap_or_else(|| full_name::bare(&name).to_owned()));
    named.unwrap_or_default()
}

/// Gives a table another name.
fn call(table: &mut TableWithJoins, called: &str) {
    if let TableFactor::Table { alias, .. } = &mut table.relation {
        *alias = Some(TableAlias { explicit: true, name: Ident::with_quote('"', called), columns: vec![], at: None });
    }
}

/// An `UPDATE` without any clause.
pub(crate) fn plain_update() -> Update {
    Update {
        update_token: AttachedToken::empty(),
        optimizer_hints: vec![],
        table: table_of(ObjectName::from(vec![])),
        assignments: vec![],
        from: None,
        selection: None,
        returning: None,
        output: None,
        or: None,
        order_by: vec![],
        limit: None,
    }
}

/// `SET`, with one column in each assignment and defaults written out. A key column may be set to what `own_name`s have
/// there, which is what it is: that is left out.
pub(crate) fn assignments(given: &[Assignment], table: &TableSchema, own_names: &[&str]) -> Result<Vec<Assignment>> {
    let mut plain = Vec::with_capacity(given.len());
    for assignment in given.iter().map(single).collect::<Result<Vec<_>>>()?.into_iter().flatten() {
        let AssignmentTarget::ColumnName(name) = &assignment.target else { continue };
        let named = name.0.last().and_then(|part| part.as_ident()).map(|ident| ObjectName::from(vec![ident.clone()]));
        let name = named
            .as_ref()
            .and_then(object_name)
            .ok_or_else(|| unsupported(format!("UPDATE of {name}"), "name a column of the table"))?;
        let Some((place, column)) = table.column(&name) else {
            return Err(Error::types(&table.name)(tarn_types::Error::UnknownColumn {
                table: table.name.clone(),
                column: name,
            }));
        };
        if table.is_key(place) && own_names.iter().any(|own| is_its_own(&assignment, own).is_some()) {
            continue;
        }
        if table.is_key(place) {
            return Err(unsupported(
                format!("UPDATE of key column {name}"),
                "DELETE the row and INSERT it with its new key",
            ));
        }
        let value = if is_default(&assignment.value) { default_of(column) } else { assignment.value };
        plain.push(Assignment { target: assignment.target, value });
    }
    Ok(plain)
}

/// `(a, b) = (1, 2)` is `a = 1, b = 2`.
fn single(assignment: &Assignment) -> Result<Vec<Assignment>> {
    let AssignmentTarget::Tuple(columns) = &assignment.target else { return Ok(vec![assignment.clone()]) };
    let values = match &assignment.value {
        Expr::Tuple(values) => values.as_slice(),
        Expr::Nested(value) => std::slice::from_ref(&**value),
        _ => return Err(unsupported("UPDATE of a list of columns by one value".to_owned(), "write SET a = …, b = …")),
    };
    if columns.len() != values.len() {
        let message = "number of columns does not match number of values";
        let error = ParserError::ParserError(message.to_owned());
        return Err(ParseError::Syntax(error).into());
    }
    let pairs = columns.iter().zip(values);
    Ok(pairs
        .map(|(column, value)| Assignment {
            target: AssignmentTarget::ColumnName(column.clone()),
            value: value.clone(),
        })
        .collect())
}

/// Writes what columns have by default where a row of `VALUES` says `DEFAULT`, and all of it for `DEFAULT VALUES`.
fn write_defaults(insert: &mut Insert, table: &TableSchema) {
    let Some(source) = &mut insert.source else {
        let row = table.shown().iter().map(default_of).collect();
        insert.source = Some(Box::new(query_of(SetExpr::Values(Values {
            explicit_row: false,
            value_keyword: false,
            rows: vec![Parens::with_empty_span(row)],
        }))));
        return;
    };
    let SetExpr::Values(values) = source.body.as_mut() else { return };
    let columns: Vec<Option<&Column>> = match insert.columns.as_slice() {
        [] => table.shown().iter().map(Some).collect(),
        named => named.iter().map(|name| table.column(&object_name(name)?).map(|(_, column)| column)).collect(),
    };
    for row in &mut values.rows {
        for (value, column) in row.content.iter_mut().zip(&columns) {
            if let Some(column) = column.filter(|_| is_default(value)) {
                *value = default_of(column);
            }
        }
    }
}

/// The literal that is a column's default.
fn default_of(column: &Column) -> Expr {
    let literal = |value: Literal| Expr::Value(value.into());
    let Some(value) = &column.default else { return literal(Literal::Null) };
    let text = value.to_display(&column.data_type);
    match (value, column.data_type) {
        (Value::Null, _) => literal(Literal::Null),
        (Value::Bool(value), _) => literal(Literal::Boolean(*value)),
        (
            _,
            DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Float32
            | DataType::Float64
            | DataType::Decimal { .. },
        ) if text.ends_with(|end: char| end.is_ascii_digit()) => match text.strip_prefix('-') {
            Some(number) => Expr::UnaryOp {
                op: UnaryOperator::Minus,
                expr: Box::new(literal(Literal::Number(number.to_owned(), false))),
            },
            None => literal(Literal::Number(text, false)),
        },
        _ => literal(Literal::SingleQuotedString(text)),
    }
}

/// How many columns the rows of an INSERT have, where that is written.
fn arity(rows: &Query) -> Option<usize> {
    match rows.body.as_ref() {
        SetExpr::Values(values) => values.rows.first().map(|row| row.len()),
        SetExpr::Select(select) => {
            let is_one =
                |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
            select.projection.iter().all(is_one).then_some(select.projection.len())
        }
        SetExpr::Query(query) => arity(query),
        _ => None,
    }
}

/// `SELECT columns FROM from WHERE condition`.
pub fn rows_of(columns: Vec<SelectItem>, from: TableWithJoins, condition: Option<Expr>) -> Statement {
    let select = select_of(columns, vec![from], condition);
    Statement::Query(Box::new(query_of(SetExpr::Select(Box::new(select)))))
}

/// A table as a query reads it.
pub fn table_of(name: ObjectName) -> TableWithJoins {
    let relation = TableFactor::Table {
        name,
        alias: None,
        args: None,
        with_hints: vec![],
        version: None,
        with_ordinality: false,
        partitions: vec![],
        json_path: None,
        sample: None,
        index_hints: vec![],
    };
    TableWithJoins { relation, joins: vec![] }
}

pub(crate) fn unsupported(what: String, remedy: &'static str) -> Error {
    Error::Unsupported { what, remedy }
}

pub(crate) fn refuse_append_only(what: &str, table: &TableSchema) -> Result<()> {
    match table.options.append_only {
        true => Err(unsupported(
            format!("{what} on append-only table {}", table.name),
            "create the table without append_only",
        )),
        false => Ok(()),
    }
}

/// The same relation, reading the table with `__seqno`, under the name it had.
pub(crate) fn with_seqno(from: &TableWithJoins, table: &TableSchema) -> Result<TableWithJoins> {
    let Some((name, alias)) = relation(from).filter(|(name, _)| *name == table.name) else {
        return Err(unsupported(format!("change of rows of {from}"), "name one table"));
    };
    let mut from = from.clone();
    if let TableFactor::Table { name: relation, alias: as_alias, .. } = &mut from.relation {
        *relation = ObjectName::from(vec![Ident::with_quote('"', format!("{name}{WITH_SEQNO}"))]);
        let alias = Ident::with_quote('"', alias.unwrap_or_else(|| full_name::bare(&name).to_owned()));
        *as_alias = Some(TableAlias { explicit: true, name: alias, columns: vec![], at: None });
    }
    Ok(from)
}

pub(crate) fn key_schema(table: &TableSchema) -> Result<SchemaRef> {
    let mut columns: Vec<usize> = table.key.iter().map(|part| part.column_idx).collect();
    columns.push(table.columns.len());
    Ok(Arc::new(table.arrow_with_seqno().project(&columns).map_err(DataFusionError::from)?))
}

pub(crate) fn inserted(batch: &RecordBatch, table: &TableSchema) -> Result<RecordBatch> {
    conform(batch, table).map_err(Error::types(&table.name))
}

pub(crate) fn updated(batch: &RecordBatch, table: &TableSchema, schema: &SchemaRef) -> Result<RecordBatch> {
    let n_columns = table.columns.len();
    let values = batch.project(&(0..n_columns).collect::<Vec<_>>()).map_err(DataFusionError::from)?;
    let values = conform(&values, table).map_err(Error::types(&table.name))?;
    let columns = values.columns().iter().chain([batch.column(n_columns)]).cloned().collect();
    Ok(RecordBatch::try_new(Arc::clone(schema), columns).map_err(DataFusionError::from)?)
}

pub(crate) fn deleted(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let stored = batch.columns().iter().zip(schema.fields()).map(|(column, field)| cast(column, field.data_type()));
    let columns = stored.collect::<Result<Vec<_>, _>>().map_err(DataFusionError::from)?;
    Ok(RecordBatch::try_new(Arc::clone(schema), columns).map_err(DataFusionError::from)?)
}
