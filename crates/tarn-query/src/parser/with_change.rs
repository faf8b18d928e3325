//! What is `WITH w AS (SELECT …) DELETE FROM t USING w`? A change of rows that reads `w`: the same as `DELETE FROM t
//! USING (WITH w AS (SELECT …) SELECT * FROM w) AS w`. Before an INSERT the WITH is one of the query that it inserts.
//!
//! What is named at several places would be computed at each of them, and its rows may be others each time: that is
//! refused. A WITH that changes rows itself is refused where queries are looked at.

use std::ops::ControlFlow;

use crate::sqlparser::ast::{
    Delete, FromTable, Ident, Insert, ObjectName, Query, SetExpr, Statement, TableAlias, TableFactor, TableWithJoins,
    Update, Values, VisitorMut, With,
};
use crate::walk::{Walkable, walk_mut};

use super::plain_query::query_of;
use super::{ParseError, fold};

/// The change behind a WITH, with the WITH where it is read; any other statement as it is.
///
/// Errors: [`ParseError::Refused`] where a name of the WITH is that of the table that is changed, or of another WITH
/// inside, where none is read, or several places read them.
pub(super) fn as_change(statement: Statement) -> Result<Statement, ParseError> {
    let mut query = match statement {
        Statement::Query(query) => query,
        Statement::Prepare { name, data_types, statement } => {
            return Ok(Statement::Prepare { name, data_types, statement: Box::new(as_change(*statement)?) });
        }
        statement => return Ok(statement),
    };
    let is_change = matches!(*query.body, SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_));
    let is_plain = query.order_by.is_none() && query.limit_clause.is_none() && query.fetch.is_none();
    let Some(with) = query.with.take_if(|_| is_change && is_plain) else { return Ok(Statement::Query(query)) };
    let body = std::mem::replace(&mut *query.body, nothing());
    let (SetExpr::Insert(mut change) | SetExpr::Update(mut change) | SetExpr::Delete(mut change)) = body else {
        return Ok(Statement::Query(query));
    };
    if target(&change).is_some_and(|target| place(&with, target).is_some()) {
        return Err(refused("whose name is that of the table that is changed", "call it otherwise"));
    }
    // The query of an INSERT may read it at several places.
    let mut source = match &mut change {
        Statement::Insert(Insert { source, .. }) => source.take(),
        _ => None,
    };
    let is_in_source = match &mut source {
        Some(source) => WithReferences::of(source.as_mut(), &with, false)? > 0,
        None => false,
    };
    let n_places = usize::from(is_in_source) + WithReferences::of(&mut change, &with, true)?;
    if let Statement::Insert(insert) = &mut change {
        insert.source = match is_in_source {
            true => source.map(|source| behind(source, with)),
            false => source,
        };
    }
    match n_places {
        0 => Err(refused("that nothing reads", "leave it out")),
        1 => Ok(change),
        _ => Err(refused("that several places of a change read", "write it as subqueries, or into a temporary table")),
    }
}

fn refused(what: &str, remedy: &'static str) -> ParseError {
    ParseError::Refused { what: format!("WITH … {what}"), remedy }
}

/// The table that is changed.
fn target(change: &Statement) -> Option<&ObjectName> {
    match change {
        // That of an INSERT is looked for nowhere else.
        Statement::Update(Update { table, .. }) => name_of(table),
        Statement::Delete(Delete {
            from: FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from), ..
        }) => from.first().and_then(name_of),
        _ => None,
    }
}

fn name_of(table: &TableWithJoins) -> Option<&ObjectName> {
    match &table.relation {
        TableFactor::Table { name, .. } => Some(name),
        _ => None,
    }
}

/// Which of the WITH is called so.
fn place(with: &With, name: &ObjectName) -> Option<usize> {
    let [part] = &name.0[..] else { return None };
    let name = fold(part.as_ident()?);
    with.cte_tables.iter().position(|cte| fold(&cte.alias.name) == name)
}

/// What stands where a query was taken out of.
fn nothing() -> SetExpr {
    SetExpr::Values(Values { explicit_row: false, value_keyword: false, rows: vec![] })
}

/// `SELECT * FROM name`
fn all_of(name: &Ident) -> Result<SetExpr, ParseError> {
    let Some(Statement::Query(query)) = super::statements("SELECT * FROM name")?.pop() else { return Ok(nothing()) };
    let mut body = *query.body;
    if let SetExpr::Select(select) = &mut body
        && let Some(TableWithJoins { relation: TableFactor::Table { name: read, .. }, .. }) = select.from.first_mut()
    {
        *read = ObjectName::from(vec![name.clone()]);
    }
    Ok(body)
}

/// The body, with the names of a WITH.
fn query_with(with: With, body: SetExpr) -> Query {
    Query { with: Some(with), ..query_of(body) }
}

fn behind(mut source: Box<Query>, with: With) -> Box<Query> {
    match &source.with {
        None => {
            source.with = Some(with);
            source
        }
        Some(_) => Box::new(query_with(with, SetExpr::Query(source))),
    }
}

/// Looks for places that read the names of a WITH.
struct WithReferences<'a> {
    with: &'a With,
    n_places: usize,
    /// Whether the query takes the place of its name.
    replaces: bool,
}

impl WithReferences<'_> {
    fn of(part: &mut impl Walkable, with: &With, replaces: bool) -> Result<usize, ParseError> {
        let mut reads = WithReferences { with, n_places: 0, replaces };
        match walk_mut(part, &mut reads) {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(reads.n_places),
        }
    }
}

impl VisitorMut for WithReferences<'_> {
    type Break = ParseError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<ParseError> {
        let mut names = query.with.iter().flat_map(|with| &with.cte_tables).map(|cte| &cte.alias.name);
        match names.any(|name| place(self.with, &ObjectName::from(vec![name.clone()])).is_some()) {
            true => ControlFlow::Break(refused("whose name another WITH has", "call it otherwise")),
            false => ControlFlow::Continue(()),
        }
    }

    // Behind what is in it: the query that takes the place is not looked at.
    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<ParseError> {
        let TableFactor::Table { name, alias, args: None, .. } = factor else { return ControlFlow::Continue(()) };
        let Some(place) = place(self.with, name) else { return ControlFlow::Continue(()) };
        self.n_places += 1;
        if self.replaces {
            let called = &self.with.cte_tables[place].alias.name;
            let alias = alias.take().unwrap_or_else(|| named(called));
            let body = match all_of(called) {
                Ok(body) => body,
                Err(error) => return ControlFlow::Break(error),
            };
            let subquery = Box::new(query_with(self.with.clone(), body));
            *factor = TableFactor::Derived { lateral: false, subquery, alias: Some(alias), sample: None };
        }
        ControlFlow::Continue(())
    }
}

fn named(name: &Ident) -> TableAlias {
    TableAlias { explicit: true, name: name.clone(), columns: vec![], at: None }
}

#[cfg(test)]
mod tests {
    use crate::parser::{ParseError, statements};

    #[test]
    fn a_change_reads_the_with_before_it() {
        for (written, read) in [
            (
                "WITH w AS (SELECT 1) INSERT INTO t SELECT * FROM w, w AS v",
                "INSERT INTO t WITH w AS (SELECT 1) SELECT * FROM w, w AS v",
            ),
            (
                "WITH w AS (SELECT 1 AS a) DELETE FROM t USING w AS v WHERE t.a = v.a RETURNING t.a",
                "DELETE FROM t USING (WITH w AS (SELECT 1 AS a) SELECT * FROM w) AS v WHERE t.a = v.a RETURNING t.a",
            ),
            (
                "WITH w AS (SELECT 1 AS a) UPDATE t SET b = 1 WHERE a IN (SELECT a FROM w)",
                "UPDATE t SET b = 1 WHERE a IN (SELECT a FROM (WITH w AS (SELECT 1 AS a) SELECT * FROM w) AS w)",
            ),
        ] {
            let (written, read) = (statements(written).unwrap(), statements(read).unwrap());
            assert_eq!(written[0].to_string(), read[0].to_string());
        }
        assert!(statements("WITH w AS (SELECT 1) INSERT INTO w SELECT * FROM w").is_ok());
        for sql in [
            "WITH w AS (SELECT 1) DELETE FROM w",
            "WITH w AS (SELECT 1) DELETE FROM t",
            "WITH w AS (SELECT 1 AS a) DELETE FROM t USING w, w AS v",
            "WITH w AS (SELECT 1) INSERT INTO t WITH w AS (SELECT 2) SELECT * FROM w",
            "WITH w AS (DELETE FROM u RETURNING *) INSERT INTO t SELECT * FROM w",
        ] {
            assert!(matches!(statements(sql), Err(ParseError::Refused { .. })), "{sql}");
        }
    }
}
