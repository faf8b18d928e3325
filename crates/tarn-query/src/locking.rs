//! Which rows does `SELECT … FOR UPDATE` answer? They are rows of one table, perhaps joined with others (`FOR UPDATE OF
//! t`), and each is answered beside what the table has of it.
//!
//! | columns | |
//! |---|---|
//! | those that were asked for | the answer |
//! | the table's, then `__seqno` | as the source of an `UPDATE` has them (`dml.rs`): what is written again, guarded by the change that it was read at |

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema};
use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, JoinConstraint, JoinOperator, ObjectName, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, Statement, TableFactor, TableWithJoins, WildcardAdditionalOptions,
};
use tarn_types::{SEQNO_COLUMN, TableSchema, full_name};

use crate::dml::{updated, with_seqno};
use crate::keyed::{object_name, relation};
use crate::{Error, Result};

/// The name of the table whose rows a query locks, and what the query calls it: of `OF` the one that is called so, else
/// the only one. `None`: the query reads something else there, or nothing.
pub fn locked_table(query: &Query, of: Option<&str>) -> Option<(String, String)> {
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let place = place_of(select, of)?;
    let (name, alias) = relation(&place.of(select)?)?;
    // What WITH names comes before tables.
    let is_hidden =
        query.with.iter().flat_map(|with| &with.cte_tables).any(|cte| crate::parser::fold(&cte.alias.name) == name);
    let called = alias.unwrap_or_else(|| full_name::bare(&name).to_owned());
    (!is_hidden).then_some((name, called))
}

/// Whether something in FROM is called so.
pub fn reads(query: &Query, called: &str) -> bool {
    matches!(query.body.as_ref(), SetExpr::Select(select) if reads_in(select, called))
}

fn reads_in(select: &Select, called: &str) -> bool {
    places(select).into_iter().any(|place| place.called(select).is_some_and(|of| of == called))
}

/// Where a relation stands in FROM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    from: usize,
    /// Of the joins there. `None`: it is before them.
    join: Option<usize>,
}

fn places(select: &Select) -> Vec<Place> {
    let of = |(from, tables): (usize, &TableWithJoins)| {
        let joins = (0..tables.joins.len()).map(Some);
        std::iter::once(None).chain(joins).map(move |join| Place { from, join }).collect::<Vec<_>>()
    };
    select.from.iter().enumerate().flat_map(of).collect()
}

fn place_of(select: &Select, of: Option<&str>) -> Option<Place> {
    let all = places(select);
    match (of, &all[..]) {
        (None, [only]) => Some(*only),
        (None, _) => None,
        (Some(of), all) => all.iter().find(|place| place.called(select).is_some_and(|called| called == of)).copied(),
    }
}

impl Place {
    fn factor(self, select: &Select) -> Option<&TableFactor> {
        let from = select.from.get(self.from)?;
        match self.join {
            None => Some(&from.relation),
            Some(at) => Some(&from.joins.get(at)?.relation),
        }
    }

    /// The relation by itself.
    fn of(self, select: &Select) -> Option<TableWithJoins> {
        Some(TableWithJoins { relation: self.factor(select)?.clone(), joins: vec![] })
    }

    /// What the query calls it.
    fn called(self, select: &Select) -> Option<String> {
        match self.factor(select)? {
            TableFactor::Table { alias: Some(alias), .. }
            | TableFactor::Derived { alias: Some(alias), .. }
            | TableFactor::Function { alias: Some(alias), .. }
            | TableFactor::UNNEST { alias: Some(alias), .. } => Some(crate::parser::fold(&alias.name)),
            TableFactor::Table { name, alias: None, args: None, .. } => {
                object_name(name).map(|name| full_name::bare(&name).to_owned())
            }
            _ => None,
        }
    }

    /// Whether rows of the answer may have none of it. `None`: such joins are not known.
    fn is_nullable(self, select: &Select) -> Option<bool> {
        let mut is_nullable = false;
        for (at, join) in select.from.get(self.from)?.joins.iter().enumerate() {
            let (left, right) = match &join.join_operator {
                JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(_) => (false, false),
                JoinOperator::Left(_) | JoinOperator::LeftOuter(_) => (false, true),
                JoinOperator::Right(_) | JoinOperator::RightOuter(_) => (true, false),
                JoinOperator::FullOuter(_) => (true, true),
                _ => return None,
            };
            is_nullable |= if self.join == Some(at) { right } else { left && self.join.is_none_or(|own| own < at) };
        }
        Some(is_nullable)
    }
}

/// Whether a `*` has all columns of all that is joined.
fn joins_columns(select: &Select) -> bool {
    let joins = select.from.iter().flat_map(|from| &from.joins);
    joins.map(|join| &join.join_operator).any(|join| match join {
        JoinOperator::Join(on)
        | JoinOperator::Inner(on)
        | JoinOperator::CrossJoin(on)
        | JoinOperator::Left(on)
        | JoinOperator::LeftOuter(on)
        | JoinOperator::Right(on)
        | JoinOperator::RightOuter(on)
        | JoinOperator::FullOuter(on) => matches!(on, JoinConstraint::Using(_) | JoinConstraint::Natural),
        _ => true,
    })
}

/// The query, which answers the columns of `table` behind its own, then `__seqno`. `of`: as of [`locked_table`].
///
/// Errors: `Unsupported` for clauses that make one row of several, for the side of an outer join that may have no row,
/// as in PostgreSQL, and for tables whose rows are not changed.
pub fn locking(query: &Query, of: Option<&str>, table: &TableSchema, what: &str) -> Result<Statement> {
    let refused = |clause: &str| Err(not_allowed(what, clause));
    let mut query = query.clone();
    let Some((_, called)) = locked_table(&query, of) else { return refused("anything but rows of one table") };
    let SetExpr::Select(select) = query.body.as_mut() else { return refused("UNION, INTERSECT or EXCEPT") };
    if table.options.append_only {
        return Err(Error::Unsupported {
            what: format!("{what} of append-only table {}", table.name),
            remedy: "leave it out: its rows are not changed",
        });
    }
    check(select, what)?;
    let Some(place) = place_of(select, of) else { return refused("anything but rows of one table") };
    match place.is_nullable(select) {
        Some(false) => {}
        Some(true) => return refused("the nullable side of an outer join"),
        None => return refused("such a join"),
    }
    let column = |name: &str| {
        Expr::CompoundIdentifier([called.as_str(), name].map(|part| Ident::with_quote('"', part)).to_vec())
    };
    let shown = || table.shown().iter().map(|shown| SelectItem::UnnamedExpr(column(&shown.name)));
    let all_of = |name: &str| {
        let name = SelectItemQualifiedWildcardKind::ObjectName(ObjectName::from(vec![Ident::with_quote('"', name)]));
        SelectItem::QualifiedWildcard(name, WildcardAdditionalOptions::default())
    };
    let mut items = Vec::with_capacity(select.projection.len() + table.columns.len() + 1);
    for item in std::mem::take(&mut select.projection) {
        match item {
            SelectItem::Wildcard(options) if options == WildcardAdditionalOptions::default() => {
                let all = places(select);
                if all.len() > 1 && joins_columns(select) {
                    return refused("such a *");
                }
                for other in all {
                    match other.called(select) {
                        _ if other == place => items.extend(shown()),
                        Some(other) => items.push(all_of(&other)),
                        None => return refused("such a *"),
                    }
                }
            }
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options)
                if options == WildcardAdditionalOptions::default() =>
            {
                match object_name(&name) {
                    Some(name) if name == called => items.extend(shown()),
                    Some(name) if reads_in(select, &name) => items.push(all_of(&name)),
                    _ => return refused("such a *"),
                }
            }
            SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => return refused("such a *"),
            item => items.push(item),
        }
    }
    let Some(alone) = place.of(select) else { return refused("anything but rows of one table") };
    let with_seqno = with_seqno(&alone, table)?.relation;
    if let Some(from) = select.from.get_mut(place.from) {
        match place.join.and_then(|at| from.joins.get_mut(at)) {
            Some(join) => join.relation = with_seqno,
            None => from.relation = with_seqno,
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
        remedy: "lock rows of one table, by a SELECT of their own, or FOR UPDATE OF t where others are joined",
    }
}
