//! What do `ADD COLUMN`, `DROP COLUMN` and `ALTER COLUMN … TYPE` come to?
//!
//! Columns come and go without that a row is written anew. What the rows that are there have in a column that comes is
//! computed once, its default as it is then, and kept with the definition ([`TableSchema::missing`]): whoever reads
//! stored rows gives it to them, whatever the default is by now. A column that goes is not read any more; its id and
//! its name in files are never another column's, and compaction leaves it behind. Where that cannot be, all rows are
//! written anew (`rewrite.rs`): for a default that is another value for each row, and for another type.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::sql::sqlparser::ast::{self, ColumnDef, Expr};
use futures::FutureExt;
use futures::future::BoxFuture;
use tarn_node::types::Types;
use tarn_query::defaults::computing;
use tarn_query::sql_schema;
use tarn_types::{
    Column, ColumnId, DataType, Enumerated, Length, Style, TableSchema, Value, arrow_field, conform, full_name,
};

use super::Session;
use super::sequences::borrower;
use crate::alter_sql::DropColumn;
use crate::column_rules::{ColumnClauses, SaidCheck};
use crate::ddl::added_column;
use crate::definition::type_text;
use crate::error::{Result, SqlError, state};
use crate::expressions::ExpressionContext;
use crate::names::{fold, quote};
use crate::postgres::assignments::is_assigned;
use crate::rows::{long_name, pg_type};
use crate::user_types::{check_default, enumerated};
use crate::view_columns::may_read;

/// A table with a column more.
pub(super) struct AddedColumn {
    /// The table with it.
    pub to: TableSchema,
    pub id: ColumnId,
    /// What is asked of all rows, beside.
    pub checks: Vec<SaidCheck>,
    /// The expression of which the rows that are there have the value; of a constant it is known already.
    pub computed: Option<String>,
    /// What it is generated from.
    pub generated: Option<Expr>,
}

/// What rows that are there have in a column that comes.
pub(super) enum InOlderRows {
    /// In all of them the same; `None`: NULL.
    One(Option<Value>),
    /// In each another, which its default computes.
    Each,
}

/// A column whose rows are written anew, with what they have in it.
#[derive(Debug, Clone)]
pub(super) struct WrittenAnew {
    pub id: ColumnId,
    /// Of the rows that are there.
    pub expr: String,
}

/// A column of another type.
#[derive(Debug, Clone)]
pub(super) struct TypeChange {
    pub id: ColumnId,
    /// What it is called.
    pub column: String,
    /// What a row has in it, if that is said.
    pub using: Option<String>,
    /// The constant that was its default, as a text and as it was.
    pub default: Option<(String, Value)>,
}

/// `ADD COLUMN`. `None`: it is there, and need not come.
///
/// Errors: `42701`; those of CREATE TABLE; `0A000` for a key and for a column that counts by itself.
pub(super) fn with_added(
    table: &TableSchema,
    def: &ColumnDef,
    if_not_exists: bool,
    style: &Style,
    types: &Types,
) -> Result<Option<AddedColumn>> {
    let name = fold(&def.name);
    if table.shown().iter().any(|other| other.name == name) {
        return if if_not_exists { Ok(None) } else { Err(exists(table, &name)) };
    }
    let id = table.next_column_id();
    let enumerated = enumerated(&def.data_type, types)?;
    let plain = enumerated.as_ref().map(|_| ColumnDef { data_type: ast::DataType::Text, ..def.clone() });
    let (column, said) = added_column(plain.as_ref().unwrap_or(def), id, &table.name, style)?;
    let ColumnClauses { mut rules, checks, sequence: _, generated } = said;
    if let Some(of) = &enumerated {
        check_default(column.default.as_ref(), of)?;
    }
    rules.enumerated = enumerated;
    rules.missing = column.default.clone().filter(|value| !value.is_null());
    let computed = rules.default.clone();
    Ok(Some(AddedColumn { to: table.with_column_added(column, rules), id, checks, computed, generated }))
}

pub(super) fn exists(table: &TableSchema, column: &str) -> SqlError {
    let message = format!("column \"{column}\" of relation \"{}\" already exists", table.name);
    SqlError::new(state::DUPLICATE_COLUMN, message)
}

/// `DROP COLUMN`, with the checks and unique constraints that name it, as in PostgreSQL. `None`: it is not there, and
/// need not be.
///
/// Errors: `42703`; `0A000` for a column of the key, and for the only one.
pub(super) fn with_dropped(table: &TableSchema, dropped: &DropColumn) -> Result<Option<TableSchema>> {
    let name = &dropped.column;
    let Some(at) = table.shown().iter().position(|column| column.name == *name) else {
        return match dropped.if_exists {
            true => Ok(None),
            false => Err(SqlError::undefined_column(&table.name, name)),
        };
    };
    if table.is_key(at) {
        return Err(SqlError::unsupported(
            format!("ALTER TABLE … DROP COLUMN of \"{name}\", which is in the primary key"),
            "CREATE TABLE … AS SELECT the other columns, and rename it",
        ));
    }
    if table.shown().len() == 1 {
        return Err(SqlError::unsupported(
            format!("ALTER TABLE that leaves no column of table \"{}\"", table.name),
            "DROP TABLE it, and CREATE TABLE another",
        ));
    }
    Ok(Some(table.with_column_dropped(at)))
}

/// `ALTER COLUMN … TYPE`: its definition, without its default if that is a constant, and what that was.
///
/// Errors: `0A000` for an identity column.
pub(super) fn with_type(
    table: &TableSchema,
    at: usize,
    to: DataType,
    length: Option<Length>,
    enumerated: Option<Enumerated>,
) -> Result<(TableSchema, Option<(String, Value)>)> {
    let mut retyped = table.clone();
    let Column { id, name, data_type, default, .. } = &mut retyped.columns[at];
    if table.rules_of(at).is_some_and(|rules| rules.identity.is_some()) {
        return Err(SqlError::unsupported(
            format!("ALTER TABLE … TYPE of \"{name}\", which is an identity column: its sequence would change, too"),
            "CREATE TABLE … with the other type, INSERT INTO … OVERRIDING SYSTEM VALUE SELECT, and rename it",
        ));
    }
    let default = default.take().map(|value| (value.to_display(data_type), value));
    *data_type = to;
    let rules = retyped.options.rules.entry(*id);
    (rules.length, rules.enumerated, rules.missing) = (length, enumerated, None);
    retyped.options.rules.forget_empty();
    Ok((retyped, default))
}

/// The default of a column of another type, as one of that.
///
/// Errors: `42804` for one that PostgreSQL does not take without a cast; `22001`.
pub(super) fn default_of_type(column: &Column, length: Option<Length>, of: &(String, Value)) -> Result<Value> {
    let (text, value) = of;
    let value = match column.data_type {
        DataType::Text if !value.is_null() => Value::Text(text.clone()),
        to => value.clone().coerce(&to).map_err(|_| {
            let message =
                format!("default for column \"{}\" cannot be cast automatically to type {}", column.name, called(to));
            SqlError::new(state::DATATYPE_MISMATCH, message)
                .with_hint("ALTER COLUMN … DROP DEFAULT first, and SET DEFAULT anew afterwards")
        })?,
    };
    Ok(match length {
        Some(length) => length.fit_value(value)?,
        None => value,
    })
}

/// A type as PostgreSQL writes it.
fn called(data_type: DataType) -> String {
    pg_type(&arrow_field("", &data_type, true)).map_or_else(|_| data_type.to_string(), |of| long_name(&of))
}

/// The rows of a table as they are to be, in a FROM: columns that come have the value that they are added with.
pub(super) fn as_they_will_be(to: &TableSchema, added: &[ColumnId], anew: &[WrittenAnew]) -> String {
    if added.is_empty() && anew.is_empty() {
        return quote(&to.name);
    }
    let columns = to.shown().iter().enumerate().map(|(at, column)| {
        let name = quote(&column.name);
        if let Some(WrittenAnew { expr, .. }) = anew.iter().find(|of| of.id == column.id) {
            if to.enumerated(at).is_some() {
                return format!("({expr})::{} AS {name}", type_text(to, at));
            }
            // No cast that is written here takes what an assignment would not: that was looked at.
            return format!("({expr})::{} AS {name}", column.data_type);
        }
        match (added.contains(&column.id), to.missing(column.id)) {
            (false, _) => name,
            (true, None) => format!("NULL::{} AS {name}", plain_type(to, at)),
            (true, Some(value)) => {
                let text = value.to_display(&column.data_type).replace('\'', "''");
                format!("'{text}'::{} AS {name}", plain_type(to, at))
            }
        }
    });
    let columns = columns.collect::<Vec<_>>().join(", ");
    format!("(SELECT {columns} FROM {}) AS {}", quote(&to.name), quote(full_name::bare(&to.name)))
}

/// A column's type without its length.
fn plain_type(table: &TableSchema, at: usize) -> String {
    match table.enumerated(at) {
        Some(_) => type_text(table, at),
        None => table.columns[at].data_type.to_string(),
    }
}

/// On the heap: what is planned here stands on a deep stack.
impl Session {
    /// A view that may read a column of a table.
    fn reader_of(&self, table: &TableSchema, column: &str) -> Option<Arc<TableSchema>> {
        let reads = |view: &TableSchema| {
            let of = view.options.view.as_ref();
            of.is_some_and(|of| of.reads.values().any(|id| *id == table.id)) && may_read(view, column)
        };
        self.node.catalog().views().into_iter().find(|view| reads(view))
    }

    /// Whether what rows have in columns of other types is what PostgreSQL would put there.
    ///
    /// Errors: `42804`; `0A000` while a view reads it; what planning says of the expression.
    pub(super) fn check_retyped<'a>(
        &'a self,
        table: &'a TableSchema,
        to: &'a TableSchema,
        retyped: &'a [TypeChange],
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            for TypeChange { id, column, using, default: _ } in retyped {
                let Some((at, wanted)) = to.columns.iter().enumerate().find(|(_, column)| column.id == *id) else {
                    continue;
                };
                let (wanted, labels) = (wanted.data_type, to.enumerated(at));
                let called = |wanted| labels.map_or_else(|| called(wanted), |of| quote(&of.name));
                if let Some(view) = self.reader_of(table, column) {
                    let why = format!("rule _RETURN on view {} depends on column \"{column}\"", view.name);
                    let instead = format!("DROP VIEW {} first, and make it anew afterwards", quote(&view.name));
                    let message = "cannot alter type of a column used by a view or rule";
                    return Err(SqlError::unsupported(message, instead).with_detail(why));
                }
                let named = quote(column);
                let plan =
                    self.plan_of_rows(table, using.as_deref().unwrap_or(&named), ExpressionContext::Transform).await?;
                let given = plan.schema().field(0);
                let is_given = match labels {
                    Some(of) => given.data_type().is_null() || Enumerated::of(given).is_some_and(|(id, _)| id == of.id),
                    None => is_assigned(given, wanted),
                };
                if is_given {
                    continue;
                }
                let (what, hint) = match using {
                    None => (
                        format!("column \"{column}\""),
                        format!("You might need to specify \"USING {}::{}\".", quote(column), called(wanted)),
                    ),
                    Some(_) => (
                        format!("result of USING clause for column \"{column}\""),
                        "You might need to add an explicit cast.".to_owned(),
                    ),
                };
                let message = format!("{what} cannot be cast automatically to type {}", called(wanted));
                return Err(SqlError::new(state::DATATYPE_MISMATCH, message).with_hint(hint));
            }
            Ok(())
        }
        .boxed()
    }

    /// What the rows that are there have in a column that comes with this default.
    ///
    /// Errors: what the expression says; a value that the column does not take.
    pub(super) fn in_older_rows<'a>(
        &'a self,
        to: &'a TableSchema,
        id: ColumnId,
        default: &'a str,
    ) -> BoxFuture<'a, Result<InOlderRows>> {
        async move {
            let Some((place, column)) = to.columns.iter().enumerate().find(|(_, column)| column.id == id) else {
                return Err(SqlError::new(state::INTERNAL, format!("column {id} was added, and is not there")));
            };
            let default = self.planned_default(default).await?;
            if default.is_volatile() {
                return Ok(InOlderRows::Each);
            }
            let plan = computing(default, sql_schema(to, false).field(place))?;
            let compiled = self.query.compile(plan).await?;
            let options = RecordBatchOptions::new().with_row_count(Some(1));
            let row = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options)?;
            let values = compiled.evaluate(&row)?;
            let fields: Vec<Field> =
                values.iter().map(|value| Field::new(&column.name, value.data_type().clone(), true)).collect();
            let row = RecordBatch::try_new(Arc::new(Schema::new(fields)), values)?;
            // A NULL is the caller's to judge: there may be no rows.
            let column = Column { nullable: true, ..column.clone() };
            let alone = TableSchema { columns: vec![column.clone()], key: vec![], ..to.clone() };
            let value = Value::from_arrow(conform(&row, &alone)?.column(0).as_ref(), 0, &column.data_type)?;
            Ok(InOlderRows::One(Some(value).filter(|value| !value.is_null())))
        }
        .boxed()
    }

    /// Whether nothing needs the columns that go.
    ///
    /// Errors: `2BP01` for what does; with CASCADE, by which PostgreSQL drops it, `0A000`.
    pub(super) fn check_dropped<'a>(
        &'a self,
        table: &'a TableSchema,
        dropped: &'a [DropColumn],
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            for DropColumn { column, cascade, .. } in dropped {
                let refused = |why: String, instead: String| {
                    let name = &table.name;
                    let error = match cascade {
                        true => {
                            SqlError::unsupported("ALTER TABLE … DROP COLUMN … CASCADE of what depends on it", instead)
                        }
                        false => {
                            let message = format!(
                                "cannot drop column {column} of table {name} because other objects depend on it"
                            );
                            SqlError::new(state::DEPENDENT_OBJECTS, message).with_hint(instead)
                        }
                    };
                    error.with_detail(why)
                };
                if let Some(view) = self.reader_of(table, column) {
                    let why = format!("view {} depends on column {column} of table {}", view.name, table.name);
                    let instead = format!("DROP VIEW {} first, and make it anew without the column", quote(&view.name));
                    return Err(refused(why, instead));
                }
                if let Some(why) = borrower(&self.node, table, column).await? {
                    return Err(refused(
                        why,
                        "ALTER TABLE … ALTER COLUMN … DROP DEFAULT of the other column first".to_owned(),
                    ));
                }
            }
            Ok(())
        }
        .boxed()
    }
}
