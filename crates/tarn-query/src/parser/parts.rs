//! What is `WITH x AS (INSERT … RETURNING …), y AS (SELECT …) SELECT … FROM x, y`? Statements that run as one, of which
//! the last answers.
//!
//! PostgreSQL takes a WITH that changes rows before the statement that a client sends and nowhere else, and so does
//! this: such a statement is taken apart here. Where a query stands within another, or in a definition, it is refused
//! as what is not understood.

use crate::sqlparser::ast::{
    Cte, Delete, FromTable, LockClause, NonBlock, ObjectName, Query, SetExpr, Statement, TableAlias, TableFactor,
    Update, VisitorMut, With,
};
use crate::sqlparser::parser::Parser;
use crate::walk::walk_mut;

use std::ops::ControlFlow;

use super::accepted::{ParsedStatement, next, understood, wrong};
use super::row_locks::take_row_locks;
use super::select_into::as_create_table;
use super::with_change::as_change;
use super::{Limit, MAX_QUERIES, ParseError, fold};

/// What a client sends as one.
#[derive(Debug)]
pub enum ParsedInput {
    /// A statement, and what it locks: that is taken out of it, but where it is a query that is prepared.
    One(ParsedStatement, Vec<LockClause>),
    /// A statement of several parts.
    Parts(WithStatement),
}

/// A statement behind a WITH that changes rows.
#[derive(Debug)]
pub struct WithStatement {
    /// Whether each may name those behind it, and itself.
    pub recursive: bool,
    /// What WITH names, in order.
    pub named: Vec<WithPart>,
    /// The statement that answers.
    pub last: ParsedStatement,
}

/// What WITH names.
#[derive(Debug)]
pub struct WithPart {
    /// The name, and those of its columns.
    pub alias: TableAlias,
    /// A query, `INSERT`, `UPDATE` or `DELETE`.
    pub read: ParsedStatement,
}

/// The next statement, if all of it is understood.
///
/// Errors: it is no SQL; [`ParseError::Refused`] names the clause that is not understood.
pub fn sent(parser: &mut Parser<'_>) -> Result<ParsedInput, ParseError> {
    let statement = next(parser)?;
    if let Statement::Query(query) = &statement
        && let Some(with) = &query.with
        && (with.cte_tables.iter().any(changes) || is_read_more_than_once(&statement))
    {
        return Ok(ParsedInput::Parts(apart(statement)?));
    }
    let mut statement = as_change(as_create_table(statement)?)?;
    let locks = take_locks(&mut statement)?;
    let mut read = understood(statement)?;
    // What a query that is prepared locks stays with it.
    if let Statement::Prepare { statement, .. } = &mut read.statement
        && let Statement::Query(query) = statement.as_mut()
    {
        query.locks = locks;
        return Ok(ParsedInput::One(read, vec![]));
    }
    Ok(ParsedInput::One(read, locks))
}

/// What a query locks, and what a change of rows locks to change it ([`take_row_locks`]), which are taken out.
fn take_locks(statement: &mut Statement) -> Result<Vec<LockClause>, ParseError> {
    match statement {
        Statement::Query(query) => {
            let skips = query.locks.iter().any(|lock| lock.nonblock == Some(NonBlock::SkipLocked));
            if skips && query.fetch.as_ref().is_some_and(|fetch| fetch.with_ties) {
                return Err(wrong("SKIP LOCKED and WITH TIES options cannot be used together"));
            }
            Ok(std::mem::take(&mut query.locks))
        }
        Statement::Prepare { statement, .. } => take_locks(statement),
        statement => {
            take_row_locks(statement);
            Ok(vec![])
        }
    }
}

fn is_change(body: &SetExpr) -> bool {
    matches!(body, SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_))
}

/// Whether a WITH changes rows here.
fn changes(cte: &Cte) -> bool {
    is_change(&cte.query.body)
}

/// Whether it is an UPDATE or DELETE that does not read its WITH at one place.
fn is_read_more_than_once(statement: &Statement) -> bool {
    let Statement::Query(query) = statement else { return false };
    is_change(&query.body) && matches!(as_change(statement.clone()), Err(ParseError::Refused { .. }))
}

fn apart(statement: Statement) -> Result<WithStatement, ParseError> {
    let Statement::Query(mut query) = statement else {
        return Err(wrong("WITH is before a query or a change of rows"));
    };
    let Some(With { with_token: _, recursive, cte_tables }) = query.with.take() else {
        return Err(wrong("WITH is before a query or a change of rows"));
    };
    if cte_tables.len() > MAX_QUERIES {
        return Err(ParseError::TooLarge(Limit::Queries));
    }
    let named = cte_tables.into_iter().map(|Cte { alias, query, from, materialized: _, closing_paren_token: _ }| {
        if from.is_some() {
            return Err(ParseError::Refused { what: "WITH … FROM".to_owned(), remedy: "leave it out" });
        }
        if matches!(*query.body, SetExpr::Merge(_)) {
            return Err(ParseError::Refused {
                what: "MERGE in a WITH query".to_owned(),
                remedy: "MERGE by a statement of its own, as in PostgreSQL 15",
            });
        }
        Ok(WithPart { alias, read: understood(whole(*query)?)? })
    });
    let named = named.collect::<Result<_, ParseError>>()?;
    Ok(WithStatement { recursive, named, last: understood(whole(*query)?)? })
}

/// A change of rows as the statement that it is; with what its own WITH names in its place.
fn whole(query: Query) -> Result<Statement, ParseError> {
    let is_plain = query.order_by.is_none() && query.limit_clause.is_none() && query.fetch.is_none();
    let is_bare = query.with.is_none() && is_plain && query.locks.is_empty();
    match *query.body {
        SetExpr::Insert(change) | SetExpr::Update(change) | SetExpr::Delete(change) if is_bare => Ok(change),
        body => as_change(Statement::Query(Box::new(Query { body: Box::new(body), ..query }))),
    }
}

/// Calls `put` with each table that a FROM names without a schema, and not as what is changed; what it answers is read
/// in its place, by the name that it had. Answers how many there were.
///
/// Errors: [`ParseError::Refused`] where a WITH within has a name that is put elsewhere.
pub fn put_tables(
    statement: &mut Statement,
    put: &mut dyn FnMut(&str) -> Option<ObjectName>,
) -> Result<usize, ParseError> {
    // What is changed is a table, whatever WITH names: meanwhile its name is one that nobody looks for.
    let hidden = || ObjectName(vec![]);
    let target = target_mut(statement).map(|name| std::mem::replace(name, hidden()));
    let mut reads = RelationReplacer { put, n_read: 0 };
    let walked = walk_mut(statement, &mut reads);
    let n_read = reads.n_read;
    if let (Some(was), Some(name)) = (target, target_mut(statement)) {
        *name = was;
    }
    match walked {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(n_read),
    }
}

fn target_mut(statement: &mut Statement) -> Option<&mut ObjectName> {
    let target = match statement {
        Statement::Update(Update { table, .. }) => table,
        Statement::Delete(Delete {
            from: FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from), ..
        }) => from.first_mut()?,
        _ => return None,
    };
    match &mut target.relation {
        TableFactor::Table { name, .. } => Some(name),
        _ => None,
    }
}

struct RelationReplacer<'a> {
    put: &'a mut dyn FnMut(&str) -> Option<ObjectName>,
    n_read: usize,
}

impl VisitorMut for RelationReplacer<'_> {
    type Break = ParseError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<ParseError> {
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            if (self.put)(&fold(&cte.alias.name)).is_some() {
                let what = "WITH … whose name another WITH has".to_owned();
                return ControlFlow::Break(ParseError::Refused { what, remedy: "call it otherwise" });
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<ParseError> {
        let TableFactor::Table { name, alias, args: None, .. } = factor else { return ControlFlow::Continue(()) };
        let [part] = &name.0[..] else { return ControlFlow::Continue(()) };
        let Some(called) = part.as_ident().cloned() else { return ControlFlow::Continue(()) };
        let Some(other) = (self.put)(&fold(&called)) else { return ControlFlow::Continue(()) };
        *name = other;
        let is = || TableAlias { explicit: true, name: called, columns: vec![], at: None };
        *alias = Some(alias.take().unwrap_or_else(is));
        self.n_read += 1;
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::{next_statement, parse_with};
    use crate::sqlparser::ast::Ident;

    fn read(sql: &str) -> Result<ParsedInput, ParseError> {
        parse_with(sql, |parser| Ok(next_statement(parser, sent)?.expect("a statement")))
    }

    #[test]
    fn a_with_that_changes_rows_is_taken_apart_at_the_top_and_refused_elsewhere() {
        let sql = "WITH a AS (DELETE FROM t RETURNING *), b(x) AS (SELECT 1) INSERT INTO u SELECT * FROM a";
        let Ok(ParsedInput::Parts(parts)) = read(sql) else { panic!("not taken apart") };
        let named: Vec<_> = parts.named.iter().map(|part| format!("{}: {}", part.alias, part.read.statement)).collect();
        assert_eq!(named, ["a: DELETE FROM t RETURNING *", "b (x): SELECT 1"]);
        assert_eq!(parts.last.statement.to_string(), "INSERT INTO u SELECT * FROM a");
        for sql in [
            "INSERT INTO u WITH a AS (DELETE FROM t RETURNING *) SELECT * FROM a",
            "SELECT * FROM (WITH a AS (DELETE FROM t RETURNING *) SELECT * FROM a) AS s",
            "EXPLAIN WITH a AS (DELETE FROM t RETURNING *) SELECT * FROM a",
            "WITH a AS (WITH b AS (DELETE FROM t RETURNING *) SELECT * FROM b) SELECT * FROM a",
            "WITH a AS (DELETE FROM t RETURNING *) SELECT * FROM a FOR UPDATE",
        ] {
            assert!(matches!(read(sql), Err(ParseError::Refused { .. })), "{sql}");
        }
    }

    #[test]
    fn a_change_that_reads_its_with_at_several_places_is_taken_apart() {
        for (sql, is_apart) in [
            ("WITH w AS (SELECT 1 AS a) DELETE FROM t USING w WHERE t.a = w.a", false),
            ("WITH w AS (SELECT 1 AS a) DELETE FROM t USING w, w AS v", true),
            ("WITH w AS (SELECT 1 AS a) DELETE FROM w", true),
            ("WITH w AS (SELECT 1) INSERT INTO t SELECT * FROM w, w AS v", false),
        ] {
            assert_eq!(matches!(read(sql), Ok(ParsedInput::Parts(_))), is_apart, "{sql}");
        }
    }

    #[test]
    fn names_are_put_where_tables_are_read_and_not_where_one_is_changed() {
        let put = |sql: &str| {
            let Ok(ParsedInput::One(ParsedStatement { mut statement, .. }, _)) = read(sql) else { panic!("{sql}") };
            let name = |name: &str| (name == "a").then(|| ObjectName::from(vec![Ident::new("o"), Ident::new("a")]));
            let n_read = put_tables(&mut statement, &mut { name })?;
            Ok::<_, ParseError>((statement.to_string(), n_read))
        };
        let is = |sql: &str| put(sql).unwrap();
        assert_eq!(is("DELETE FROM a USING a AS b"), ("DELETE FROM a USING o.a AS b".to_owned(), 1));
        assert_eq!(is("UPDATE t SET x = (SELECT max(x) FROM A)").0, "UPDATE t SET x = (SELECT max(x) FROM o.a AS A)");
        assert_eq!(is("INSERT INTO a SELECT a.* FROM a, s.a").0, "INSERT INTO a SELECT a.* FROM o.a AS a, s.a");
        assert!(put("INSERT INTO t WITH a AS (SELECT 1) SELECT * FROM a").is_err());
    }
}
