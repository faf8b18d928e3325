//! What is `UPDATE jobs SET … WHERE id = (SELECT id FROM jobs … LIMIT 1 FOR UPDATE SKIP LOCKED)`? A change of the rows
//! that its subquery locks: who takes work from a table writes so.
//!
//! The locks end with the change, and each row that is locked is changed, which is guarded by what was read of it. So
//! nothing has to be locked: it is enough that the statement finds other rows where somebody else changed these first.
//! That holds where the whole condition is that a column is what the locked rows have in it:
//!
//! | written | |
//! |---|---|
//! | `WHERE id = (SELECT id FROM jobs … FOR UPDATE)`, `id IN (…)`, `id = ANY (…)` | of `UPDATE` and `DELETE` |
//! | `FROM (SELECT id FROM jobs … FOR UPDATE) q WHERE jobs.id = q.id` | and `USING`, and `WITH q AS (…)` before either |
//!
//! The clause is taken out of these, and kept in a field of the tree that PostgreSQL has no use for. Any other within a
//! statement stays, and is refused.

use std::ops::ControlFlow;

use crate::sqlparser::ast::{
    BinaryOperator, Delete, Expr, FromTable, GroupByExpr, NonBlock, ObjectName, OptimizerHint, OptimizerHintStyle,
    Query, Select, SelectItem, SetExpr, Statement, TableAlias, TableFactor, TableWithJoins, Update,
    UpdateTableFromKind,
};

use super::fold;
use crate::walk::each_expr;

/// What a change of rows says of rows that others lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowLocks {
    /// It waits for them.
    Waits,
    /// `SKIP LOCKED`: it passes over them.
    Skips,
}

/// The hint that keeps what was taken out: PostgreSQL has none.
const MARK: &str = "locks";
const SKIPS: &str = "skips";

/// What a statement says of the rows that it changes. `None`: nothing.
#[must_use]
pub fn row_locks(statement: &Statement) -> Option<RowLocks> {
    let hints = match statement {
        Statement::Update(update) => &update.optimizer_hints,
        Statement::Delete(delete) => &delete.optimizer_hints,
        _ => return None,
    };
    let mark = hints.iter().find(|hint| hint.prefix == MARK)?;
    Some(if mark.text == SKIPS { RowLocks::Skips } else { RowLocks::Waits })
}

/// Takes the clause out of a change of the rows that it locks.
pub(super) fn take_row_locks(statement: &mut Statement) {
    let (table, selection, beside, hints) = match statement {
        Statement::Update(Update { table, selection, from, optimizer_hints, .. }) => {
            let beside = match from {
                None => None,
                Some(UpdateTableFromKind::AfterSet(from)) => Some(from),
                Some(UpdateTableFromKind::BeforeSet(_)) => return,
            };
            (table, selection, beside, optimizer_hints)
        }
        Statement::Delete(Delete {
            from: FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from),
            selection,
            using,
            optimizer_hints,
            ..
        }) => {
            let [table] = &mut from[..] else { return };
            (table, selection, using.as_mut(), optimizer_hints)
        }
        _ => return,
    };
    let TableFactor::Table { name, alias, args: None, .. } = &table.relation else { return };
    let (Some(condition), true) = (selection, table.joins.is_empty()) else { return };
    let Some(changed) = called(name, alias.as_ref()) else { return };
    let locking = match beside.map(Vec::as_mut_slice) {
        None => of_condition(condition, name, &changed),
        Some(
            [
                TableWithJoins {
                    relation: TableFactor::Derived { lateral: false, subquery, alias: Some(beside), .. },
                    joins,
                },
            ],
        ) if joins.is_empty() && beside.columns.is_empty() => {
            let Some(columns) = equal_columns(condition, &changed, &fold(&beside.name)) else { return };
            within(subquery).filter(|query| locks(query, name, &changed, |items, own| has_all(items, &columns, own)))
        }
        Some(_) => None,
    };
    let Some(query) = locking else { return };
    let skips = query.locks.drain(..).any(|lock| lock.nonblock == Some(NonBlock::SkipLocked));
    let text = if skips { SKIPS } else { "" };
    hints.push(OptimizerHint { prefix: MARK.to_owned(), text: text.to_owned(), style: OptimizerHintStyle::MultiLine });
}

/// What a table is called in a statement.
fn called(name: &ObjectName, alias: Option<&TableAlias>) -> Option<String> {
    match alias {
        Some(alias) => Some(fold(&alias.name)),
        None => name.0.last()?.as_ident().map(fold),
    }
}

/// The subquery of a condition that says that a column is what the rows of it have there.
fn of_condition<'a>(condition: &'a mut Expr, table: &ObjectName, changed: &str) -> Option<&'a mut Query> {
    let (column, query) = match condition {
        Expr::Nested(inner) => return of_condition(inner, table, changed),
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right }
        | Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. } => (column_of(left)?, subquery(right)?),
        Expr::InSubquery { expr, subquery, negated: false } => (column_of(expr)?, &mut **subquery),
        _ => return None,
    };
    let is_it = |items: &[SelectItem], own: &str| matches!(items, [item] if is_column(item, &column, own));
    locks(query, table, changed, is_it).then_some(query)
}

fn subquery(expr: &mut Expr) -> Option<&mut Query> {
    match expr {
        Expr::Nested(inner) => subquery(inner),
        Expr::Subquery(query) => Some(query.as_mut()),
        _ => None,
    }
}

fn column_of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Nested(inner) => column_of(inner),
        Expr::Identifier(name) => Some(fold(name)),
        Expr::CompoundIdentifier(parts) => parts.last().map(fold),
        _ => None,
    }
}

/// Whether an item is this column of the table that a query reads, and calls `own`.
fn is_column(item: &SelectItem, column: &str, own: &str) -> bool {
    match item {
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => fold(name) == column,
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => {
            matches!(&parts[..], [.., table, name] if fold(table) == own && fold(name) == column)
        }
        _ => false,
    }
}

fn has_all(items: &[SelectItem], columns: &[String], own: &str) -> bool {
    let has = |column: &String| {
        items.iter().any(|item| matches!(item, SelectItem::Wildcard(_)) || is_column(item, column, own))
    };
    columns.iter().all(has)
}

/// Whether a query locks rows of this table alone, answers what is wanted of each, and asks nothing of the row that is
/// changed: other rows than those that it locks would be.
fn locks(query: &Query, table: &ObjectName, changed: &str, is_wanted: impl Fn(&[SelectItem], &str) -> bool) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else { return false };
    let Select { projection, from, group_by, having: None, distinct: None, qualify: None, .. } = select.as_ref() else {
        return false;
    };
    let [TableWithJoins { relation: TableFactor::Table { name, alias, args: None, .. }, joins }] = &from[..] else {
        return false;
    };
    let is_plain = matches!(group_by, GroupByExpr::Expressions(by, _) if by.is_empty());
    let names = |name: &ObjectName| name.0.iter().map(|part| part.as_ident().map(fold)).collect::<Vec<_>>();
    let Some(own) = called(name, alias.as_ref()) else { return false };
    let is_its = |of: &ObjectName| called(of, None).as_ref() == Some(&own);
    let is_of_changed = |expr: &Expr| match expr {
        Expr::CompoundIdentifier(parts) if matches!(&parts[..], [.., table, _] if fold(table) == changed) => {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    };
    let asks_changed = own != changed && each_expr(query, is_of_changed).is_break();
    !query.locks.is_empty()
        && query.locks.iter().all(|lock| lock.of.as_ref().is_none_or(is_its))
        && query.with.is_none()
        && query.fetch.is_none()
        && is_plain
        && joins.is_empty()
        && names(name) == names(table)
        && is_wanted(projection, &own)
        && !asks_changed
}

/// The query of `SELECT * FROM q` behind `WITH q AS (…)`; any other itself.
fn within(query: &mut Query) -> Option<&mut Query> {
    if query.with.is_none() {
        return Some(query);
    }
    let [cte] = &mut query.with.as_mut()?.cte_tables[..] else { return None };
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let is_all = matches!(&select.projection[..], [SelectItem::Wildcard(_)]) && select.selection.is_none();
    match &select.from[..] {
        [TableWithJoins { relation: TableFactor::Table { name, args: None, .. }, joins }]
            if is_all
                && joins.is_empty()
                && cte.alias.columns.is_empty()
                && query.locks.is_empty()
                && called(name, None) == Some(fold(&cte.alias.name)) =>
        {
            Some(cte.query.as_mut())
        }
        _ => None,
    }
}

/// The columns of a condition that says nothing but that two tables have the same in them.
fn equal_columns(condition: &Expr, one: &str, other: &str) -> Option<Vec<String>> {
    match condition {
        Expr::Nested(inner) => equal_columns(inner, one, other),
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            let mut columns = equal_columns(left, one, other)?;
            columns.extend(equal_columns(right, one, other)?);
            Some(columns)
        }
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => match (left.as_ref(), right.as_ref()) {
            (Expr::CompoundIdentifier(left), Expr::CompoundIdentifier(right)) => {
                let ([of_left, left], [of_right, right]) = (&left[..], &right[..]) else { return None };
                let tables = [fold(of_left), fold(of_right)];
                let is_of_both = tables == [one, other] || tables == [other, one];
                (is_of_both && fold(left) == fold(right)).then(|| vec![fold(left)])
            }
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::{ParsedInput, parse_with, sent};

    fn of(sql: &str) -> Result<(Option<RowLocks>, String), String> {
        match parse_with(sql, sent) {
            Ok(ParsedInput::One(read, _)) => {
                let text = read.statement.to_string();
                Ok((row_locks(&read.statement), text))
            }
            Ok(other) => panic!("{sql}: {other:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn rows_that_are_locked_to_be_changed_are_changed() {
        let locked = "SELECT id FROM jobs WHERE a = 1 ORDER BY b LIMIT 1 FOR UPDATE SKIP LOCKED";
        for sql in [
            format!("UPDATE jobs SET a = 2 WHERE id = ({locked}) RETURNING *"),
            format!("UPDATE jobs SET a = 2 WHERE (jobs.id IN ({locked}))"),
            format!("UPDATE jobs AS j SET a = 2 WHERE j.id = ANY ({locked})"),
            format!("UPDATE jobs SET a = 2 FROM ({locked}) q WHERE jobs.id = q.id"),
            format!("WITH q AS ({locked}) UPDATE jobs j SET a = 2 FROM q WHERE q.id = j.id"),
            format!("WITH q AS MATERIALIZED ({locked}) DELETE FROM jobs USING q WHERE q.id = jobs.id"),
            format!("DELETE FROM jobs WHERE id = ({locked})"),
        ] {
            let (locks, text) = of(&sql).unwrap();
            assert_eq!(locks, Some(RowLocks::Skips), "{sql}");
            assert!(!text.contains("FOR UPDATE"), "{text}");
        }
        let waits = "UPDATE jobs SET a = 2 WHERE id = (SELECT id FROM jobs j FOR UPDATE OF j)";
        assert_eq!(of(waits).unwrap().0, Some(RowLocks::Waits));
        assert_eq!(of("UPDATE jobs SET a = 2 WHERE id = (SELECT id FROM jobs)").unwrap().0, None);
        for sql in [
            format!("UPDATE jobs SET a = 2 WHERE id = ({locked}) AND a > 1"),
            format!("UPDATE jobs SET a = 2 WHERE b = ({locked})"),
            format!("UPDATE others SET a = 2 WHERE id = ({locked})"),
            "UPDATE jobs SET a = 2 WHERE id = (SELECT jobs.id FROM jobs j LIMIT 1 FOR UPDATE)".to_owned(),
            "UPDATE jobs SET a = 2 WHERE id IN (SELECT id FROM jobs j WHERE j.b <> jobs.b FOR UPDATE)".to_owned(),
            format!("UPDATE jobs SET a = ({locked})"),
            format!("UPDATE jobs SET a = 2 FROM ({locked}) q WHERE jobs.id > q.id"),
            format!("INSERT INTO jobs {locked}"),
            format!("SELECT * FROM ({locked}) q"),
        ] {
            assert!(of(&sql).is_err(), "{sql}");
        }
    }
}
