//! Which rows does `SELECT … FOR UPDATE` answer? They are rows of one table, and each is answered beside what the table
//! has of it.
//!
//! | columns | |
//! |---|---|
//! | those that were asked for | the answer |
//! | the table's, then `__seqno` | as the source of an `UPDATE` has them (`dml.rs`): what is written again, guarded by the change that it was read at |

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema};
use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, Statement,
    WildcardAdditionalOptions,
};
use tarn_types::{SEQNO_COLUMN, TableSchema, full_name};

use crate::dml::{updated, with_seqno};
use crate::keyed::{object_name, relation};
use crate::{Error, Result};

/// The name of a table that is read alone, and what the query calls it. `None`: the query reads something else, or
/// nothing.
pub fn locked_table(query: &Query) -> Option<(String, String)> {
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let [from] = select.from.as_slice() else { return None };
    if !from.joins.is_empty() {
        return None;
    }
    let (name, alias) = relation(from)?;
    // What WITH names comes before tables.
    let is_hidden =
        query.with.iter().flat_map(|with| &with.cte_tables).any(|cte| crate::parser::fold(&cte.alias.name) == name);
    let called = alias.unwrap_or_else(|| full_name::bare(&name).to_owned());
    (!is_hidden).then_some((name, called))
}

/// The query, which answers the columns of `table` behind its own, then `__seqno`.
///
/// Errors: `Unsupported` for clauses that make one row of several, as in PostgreSQL, and for tables whose rows are not
/// changed.
pub fn locking(query: &Query, table: &TableSchema, what: &str) -> Result<Statement> {
    let refused = |clause: &str| Err(not_allowed(what, clause));
    let mut query = query.clone();
    let Some((_, called)) = locked_table(&query) else { return refused("anything but rows of one table") };
    let SetExpr::Select(select) = query.body.as_mut() else { return refused("UNION, INTERSECT or EXCEPT") };
    if table.options.append_only {
        return Err(Error::Unsupported {
            what: format!("{what} of append-only table {}", table.name),
            remedy: "leave it out: its rows are not changed",
        });
    }
    check(select, what)?;
    select.from = vec![with_seqno(&select.from[0], table)?];
    let column = |name: &str| {
        Expr::CompoundIdentifier([called.as_str(), name].map(|part| Ident::with_quote('"', part)).to_vec())
    };
    let shown = || table.shown().iter().map(|shown| SelectItem::UnnamedExpr(column(&shown.name)));
    let mut items = Vec::with_capacity(select.projection.len() + table.columns.len() + 1);
    for item in std::mem::take(&mut select.projection) {
        match item {
            SelectItem::Wildcard(options) if options == WildcardAdditionalOptions::default() => items.extend(shown()),
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _)
                if object_name(&name).is_some_and(|name| name == called) =>
            {
                items.extend(shown());
            }
            SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => return refused("such a *"),
            item => items.push(item),
        }
    }
    let names = table.columns.iter().map(|column| column.name.as_str()).chain([SEQNO_COLUMN]);
    let kept = names.enumerate().map(|(at, name)| SelectItem::ExprWithAlias {
        expr: column(name),
        alias: Ident::with_quote('"', format!("__locked_{at}")),
    });
    items.extend(kept);
    select.projection = items;
    Ok(Statement::Query(Box::new(query)))
}

/// What one batch of such a query answers, and the rows of the table, as an `UPDATE` writes them.
pub fn split(batch: &RecordBatch, table: &Arc<TableSchema>) -> Result<(RecordBatch, RecordBatch)> {
    let of = |columns: std::ops::Range<usize>| {
        batch.project(&columns.collect::<Vec<_>>()).map_err(|error| Error::Sql { source: error.into() })
    };
    let n_answered = batch.num_columns() - table.columns.len() - 1;
    let rows = of(n_answered..batch.num_columns())?;
    let schema = rows.schema();
    let names = table.columns.iter().map(|column| column.name.as_str()).chain([SEQNO_COLUMN]);
    let fields = schema.fields().iter().zip(names).map(|(field, name)| field.as_ref().clone().with_name(name));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<Field>>()));
    let rows = RecordBatch::try_new(schema, rows.columns().to_vec());
    let rows = rows.map_err(|error| Error::Sql { source: error.into() })?;
    Ok((of(0..n_answered)?, updated(&rows, table, &table.arrow_with_seqno())?))
}

fn check(select: &Select, what: &str) -> Result<()> {
    let groups = match &select.group_by {
        GroupByExpr::Expressions(groups, modifiers) => !groups.is_empty() || !modifiers.is_empty(),
        GroupByExpr::All(_) => true,
    };
    for (is_there, clause) in [
        (select.distinct.is_some(), "DISTINCT"),
        (groups, "GROUP BY"),
        (select.having.is_some(), "HAVING"),
        (select.qualify.is_some(), "window functions"),
    ] {
        if is_there {
            return Err(not_allowed(what, clause));
        }
    }
    Ok(())
}

/// `0A000`, as PostgreSQL has it where it has no rows to lock.
pub fn not_allowed(what: &str, clause: &str) -> Error {
    Error::Unsupported {
        what: format!("{what} with {clause}"),
        remedy: "lock rows of one table, by a SELECT of their own",
    }
}
