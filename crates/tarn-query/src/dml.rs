//! Which rows does this `UPDATE`, `DELETE` or `INSERT` write? A query answers it; the caller turns the rows into mutations.
//!
//! | statement | the source's columns |
//! |---|---|
//! | `INSERT` | the table's columns, of storage types |
//! | `UPDATE` | the table's columns with their new values, of storage types, then `__seqno` |
//! | `DELETE` | the key columns in key order, of storage types, then `__seqno` |
//!
//! `__seqno` is the change that the row was read at: the caller guards its mutation with it, so that a row that somebody else changed
//! meanwhile is not overwritten.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::cast;
use arrow::datatypes::SchemaRef;
use datafusion::common::ParamValues;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    AssignmentTarget, Delete, Expr, GroupByExpr, Ident, Insert, ObjectName, Query, Select, SelectFlavor, SelectItem,
    SetExpr, Statement, TableAlias, TableFactor, TableWithJoins, Update,
};
use futures::TryStreamExt;
use tarn_types::{SEQNO_COLUMN, TableSchema, conform};

use crate::catalog::WITH_SEQNO;
use crate::engine::Session;
use crate::keyed::{does_nothing, from_of, object_name, relation, replaces_all};
use crate::{Error, Result};

/// What to do with the source's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DmlKind {
    /// Put each row, or leave keys that exist.
    Insert {
        /// `ON CONFLICT DO NOTHING`.
        on_conflict_do_nothing: bool,
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
}

impl Session {
    /// Plans an `INSERT`, `UPDATE` or `DELETE` on `table`.
    ///
    /// Errors: what DataFusion says of its parts; `Unsupported` for clauses that Tarn does not have, for a changed key column, and for
    /// anything but `INSERT` on an append-only table.
    pub async fn dml(&self, statement: &Statement, table: &Arc<TableSchema>) -> Result<Dml> {
        let (kind, source) = match statement {
            Statement::Insert(insert) => self.insert(insert, table).await?,
            Statement::Update(update) => (DmlKind::Update, self.update(update, table).await?),
            Statement::Delete(delete) => (DmlKind::Delete, self.delete(delete, table).await?),
            _ => {
                return Err(unsupported(
                    "this statement as a change of rows".to_owned(),
                    "use INSERT, UPDATE or DELETE",
                ));
            }
        };
        Ok(Dml { table: Arc::clone(table), kind, source })
    }

    /// The rows of a planned statement, at the newest position. Columns as in the table above.
    pub async fn dml_rows(&self, dml: &Dml, parameters: Option<ParamValues>) -> Result<SendableRecordBatchStream> {
        let rows = self.stream(dml.source.clone(), parameters).await?;
        let (table, kind) = (Arc::clone(&dml.table), dml.kind);
        let schema = match kind {
            DmlKind::Insert { .. } => table.arrow(),
            DmlKind::Update => table.arrow_with_seqno(),
            DmlKind::Delete => key_schema(&table)?,
        };
        let stored = Arc::clone(&schema);
        let rows = rows.and_then(move |batch| {
            let batch = match kind {
                DmlKind::Insert { .. } => conform(&batch, &table).map_err(Error::types(&table.name)),
                DmlKind::Update => updated(&batch, &table, &stored),
                DmlKind::Delete => deleted(&batch, &stored),
            };
            std::future::ready(batch.map_err(DataFusionError::from))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }

    async fn insert(&self, insert: &Insert, table: &TableSchema) -> Result<(DmlKind, LogicalPlan)> {
        let on_conflict_do_nothing = match &insert.on {
            None => false,
            Some(_) if table.options.append_only => {
                return Err(unsupported(
                    format!("ON CONFLICT on append-only table {}", table.name),
                    "its keys are not unique",
                ));
            }
            Some(on) if does_nothing(on, table) => true,
            Some(on) if replaces_all(on, table) => false,
            Some(on) if table.is_keyless() => {
                return Err(unsupported(
                    format!("{on} on table {}, which has no primary key", table.name).trim().to_owned(),
                    "make the table with PRIMARY KEY (…)",
                ));
            }
            Some(on) => {
                return Err(unsupported(
                    format!("{on}").trim().to_owned(),
                    "set all other columns to EXCLUDED's: the row is replaced, as by a plain INSERT; or ON CONFLICT DO NOTHING",
                ));
            }
        };
        if insert.returning.is_some() {
            return Err(unsupported("INSERT … RETURNING".to_owned(), "read the rows with SELECT"));
        }
        let mut plain = Insert { on: None, ..insert.clone() };
        // Who gives fewer values than there are columns means the first ones.
        if let Some(n_given) = plain.source.as_ref().filter(|_| plain.columns.is_empty()).and_then(|rows| arity(rows))
            && n_given < table.shown().len()
        {
            let first = table.shown().iter().take(n_given);
            plain.columns = first.map(|column| ObjectName::from(vec![Ident::with_quote('"', &column.name)])).collect();
        }
        Ok((DmlKind::Insert { on_conflict_do_nothing }, self.dml_input(Statement::Insert(plain)).await?))
    }

    async fn update(&self, update: &Update, table: &TableSchema) -> Result<LogicalPlan> {
        refuse_append_only("UPDATE", table)?;
        if update.from.is_some() {
            return Err(unsupported("UPDATE … FROM".to_owned(), "use a subquery in SET or WHERE"));
        }
        if update.returning.is_some() {
            return Err(unsupported("UPDATE … RETURNING".to_owned(), "read the rows with SELECT"));
        }
        for assignment in &update.assignments {
            let AssignmentTarget::ColumnName(name) = &assignment.target else {
                return Err(unsupported("UPDATE of a list of columns".to_owned(), "write SET a = …, b = …"));
            };
            let named =
                name.0.last().and_then(|part| part.as_ident()).map(|ident| ObjectName::from(vec![ident.clone()]));
            let name = named
                .as_ref()
                .and_then(object_name)
                .ok_or_else(|| unsupported(format!("UPDATE of {name}"), "name a column of the table"))?;
            let Some((column, _)) = table.column(&name) else {
                return Err(Error::types(&table.name)(tarn_types::Error::UnknownColumn {
                    table: table.name.clone(),
                    column: name,
                }));
            };
            if table.is_key(column) {
                return Err(unsupported(
                    format!("UPDATE of key column {name}"),
                    "DELETE the row and INSERT it with its new key",
                ));
            }
        }
        let target = with_seqno(&update.table, table)?;
        self.dml_input(Statement::Update(Update { table: target, ..update.clone() })).await
    }

    async fn delete(&self, delete: &Delete, table: &TableSchema) -> Result<LogicalPlan> {
        refuse_append_only("DELETE", table)?;
        if delete.using.is_some() {
            return Err(unsupported("DELETE … USING".to_owned(), "use a subquery in WHERE"));
        }
        if delete.returning.is_some() {
            return Err(unsupported("DELETE … RETURNING".to_owned(), "read the rows with SELECT"));
        }
        let [from] = from_of(delete) else {
            return Err(unsupported("DELETE from several tables".to_owned(), "delete from one at a time"));
        };
        let quoted = |name: &str| SelectItem::UnnamedExpr(Expr::Identifier(Ident::with_quote('"', name)));
        let keys = table.key.iter().map(|part| quoted(&table.columns[part.column_idx].name));
        let columns = keys.chain([quoted(SEQNO_COLUMN)]).collect();
        self.plan(&rows_of(columns, with_seqno(from, table)?, delete.selection.clone())).await
    }

    /// The query below the plan of an `INSERT` or `UPDATE`.
    async fn dml_input(&self, statement: Statement) -> Result<LogicalPlan> {
        match self.plan_unchecked(statement).await? {
            LogicalPlan::Dml(dml) => Ok(Arc::unwrap_or_clone(dml.input)),
            other => Err(DataFusionError::Internal(format!("no change of rows: {}", other.display())).into()),
        }
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
    let select = Select {
        select_token: AttachedToken::empty(),
        optimizer_hints: vec![],
        distinct: None,
        select_modifiers: None,
        top: None,
        top_before_distinct: false,
        projection: columns,
        exclude: None,
        into: None,
        from: vec![from],
        lateral_views: vec![],
        prewhere: None,
        selection: condition,
        connect_by: vec![],
        group_by: GroupByExpr::Expressions(vec![], vec![]),
        cluster_by: vec![],
        distribute_by: vec![],
        sort_by: vec![],
        having: None,
        named_window: vec![],
        qualify: None,
        window_before_qualify: false,
        value_table_mode: None,
        flavor: SelectFlavor::Standard,
    };
    Statement::Query(Box::new(Query {
        with: None,
        body: Box::new(SetExpr::Select(Box::new(select))),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: vec![],
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: vec![],
    }))
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

fn unsupported(what: String, remedy: &'static str) -> Error {
    Error::Unsupported { what, remedy }
}

fn refuse_append_only(what: &str, table: &TableSchema) -> Result<()> {
    match table.options.append_only {
        true => Err(unsupported(
            format!("{what} on append-only table {}", table.name),
            "create the table without append_only",
        )),
        false => Ok(()),
    }
}

/// The same relation, reading the table with `__seqno`, under the name it had.
fn with_seqno(from: &TableWithJoins, table: &TableSchema) -> Result<TableWithJoins> {
    let Some((name, alias)) = relation(from).filter(|(name, _)| *name == table.name) else {
        return Err(unsupported(format!("change of rows of {from}"), "name one table"));
    };
    let mut from = from.clone();
    if let TableFactor::Table { name: relation, alias: as_alias, .. } = &mut from.relation {
        *relation = ObjectName::from(vec![Ident::with_quote('"', format!("{name}{WITH_SEQNO}"))]);
        let alias = Ident::with_quote('"', alias.unwrap_or(name));
        *as_alias = Some(TableAlias { explicit: true, name: alias, columns: vec![], at: None });
    }
    Ok(from)
}

fn key_schema(table: &TableSchema) -> Result<SchemaRef> {
    let mut columns: Vec<usize> = table.key.iter().map(|part| part.column_idx).collect();
    columns.push(table.columns.len());
    Ok(Arc::new(table.arrow_with_seqno().project(&columns).map_err(DataFusionError::from)?))
}

fn updated(batch: &RecordBatch, table: &TableSchema, schema: &SchemaRef) -> Result<RecordBatch> {
    let n_columns = table.columns.len();
    let values = batch.project(&(0..n_columns).collect::<Vec<_>>()).map_err(DataFusionError::from)?;
    let values = conform(&values, table).map_err(Error::types(&table.name))?;
    let columns = values.columns().iter().chain([batch.column(n_columns)]).cloned().collect();
    Ok(RecordBatch::try_new(Arc::clone(schema), columns).map_err(DataFusionError::from)?)
}

fn deleted(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let stored = batch.columns().iter().zip(schema.fields()).map(|(column, field)| cast(column, field.data_type()));
    let columns = stored.collect::<Result<Vec<_>, _>>().map_err(DataFusionError::from)?;
    Ok(RecordBatch::try_new(Arc::clone(schema), columns).map_err(DataFusionError::from)?)
}
