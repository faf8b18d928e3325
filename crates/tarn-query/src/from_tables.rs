//! Which tables stand in a FROM, and what is each called?

use datafusion::sql::sqlparser::ast::{JoinOperator, TableFactor, TableWithJoins};

use crate::parser::fold;

/// Shows each table of a FROM: what it is called, itself, and whether it is on a side that may have no row.
pub(crate) fn each_table<'a>(from: &'a TableWithJoins, see: &mut impl FnMut(String, &'a TableFactor, bool)) {
    within(from, false, see);
}

fn within<'a>(from: &'a TableWithJoins, is_open: bool, see: &mut impl FnMut(String, &'a TableFactor, bool)) {
    // A join further on may leave out rows of all that are before it.
    let opens_left = |join: &JoinOperator| {
        matches!(join, JoinOperator::Right(_) | JoinOperator::RightOuter(_) | JoinOperator::FullOuter(_))
    };
    let opens_right = |join: &JoinOperator| {
        matches!(join, JoinOperator::Left(_) | JoinOperator::LeftOuter(_) | JoinOperator::FullOuter(_))
    };
    let behind = |at: usize| from.joins[at..].iter().any(|join| opens_left(&join.join_operator));
    one(&from.relation, is_open || behind(0), see);
    for (at, join) in from.joins.iter().enumerate() {
        one(&join.relation, is_open || opens_right(&join.join_operator) || behind(at + 1), see);
    }
}

fn one<'a>(factor: &'a TableFactor, is_open: bool, see: &mut impl FnMut(String, &'a TableFactor, bool)) {
    if let TableFactor::NestedJoin { table_with_joins, alias: None } = factor {
        return within(table_with_joins, is_open, see);
    }
    if let Some(name) = name_in_from(factor) {
        see(name, factor, is_open);
    }
}

/// What something in FROM is called in its query: the alias, or the name of the table without its schema.
pub fn name_in_from(factor: &TableFactor) -> Option<String> {
    let (alias, own) = match factor {
        TableFactor::Table { name, alias, .. } => (alias, name.0.last().and_then(|part| part.as_ident())),
        TableFactor::Derived { alias, .. }
        | TableFactor::Function { alias, .. }
        | TableFactor::UNNEST { alias, .. }
        | TableFactor::NestedJoin { alias, .. } => (alias, None),
        _ => return None,
    };
    alias.as_ref().map(|alias| &alias.name).or(own).map(fold)
}
