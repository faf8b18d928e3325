//! Where does a statement name what is not there? The column, table or function of an error, for psql's caret.
//!
//! The planner says which name it did not find, not where it stood. So a name is looked for among those that are
//! written, and has a place only if it stands once: a wrong caret is worse than none.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, JoinConstraint, JoinOperator, ObjectName, Select, Statement, Visitor,
};
use tarn_query::walk;

use crate::error::TextPosition;
use crate::names::fold;

/// The only place at which a query reads a column; `of` is what it is said to be of, if that is said. What writes names
/// columns that are not read, too.
pub fn column(statement: &Statement, of: Option<&str>, name: &str) -> Option<TextPosition> {
    if !matches!(statement, Statement::Query(_) | Statement::Explain { .. }) {
        return None;
    }
    place(statement, MissingObject::Column { of, name })
}

/// The only place at which a relation is named.
pub fn table(statement: &Statement, name: &str) -> Option<TextPosition> {
    place(statement, MissingObject::Table(name))
}

/// The only place at which a function is called.
pub fn function(statement: &Statement, name: &str) -> Option<TextPosition> {
    place(statement, MissingObject::Function(name))
}

fn place(statement: &Statement, wanted: MissingObject<'_>) -> Option<TextPosition> {
    let mut names = MentionFinder { wanted, found: vec![], is_unsure: false };
    let _ = walk(statement, &mut names);
    match names.found.as_slice() {
        // What was rewritten has no place in the text.
        [Some(place)] if !names.is_unsure => Some(*place),
        _ => None,
    }
}

enum MissingObject<'a> {
    Column { of: Option<&'a str>, name: &'a str },
    Table(&'a str),
    Function(&'a str),
}

struct MentionFinder<'a> {
    wanted: MissingObject<'a>,
    found: Vec<Option<TextPosition>>,
    /// It may stand where nothing is looked for.
    is_unsure: bool,
}

impl MentionFinder<'_> {
    /// A name that begins with `first` and is called `last`.
    fn meet(&mut self, first: &Ident, last: &Ident, name: &str) {
        if fold(last) == name {
            let start = first.span.start;
            self.found.push((start.line > 0).then_some(TextPosition::At { line: start.line, column: start.column }));
        }
    }

    fn meet_object(&mut self, object: &ObjectName, name: &str) {
        let mut parts = object.0.iter().filter_map(|part| part.as_ident());
        if let Some(first) = parts.next() {
            self.meet(first, parts.next_back().unwrap_or(first), name);
        }
    }
}

impl Visitor for MentionFinder<'_> {
    type Break = ();

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        if let MissingObject::Table(name) = self.wanted {
            self.meet_object(relation, name);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match (&self.wanted, expr) {
            (MissingObject::Function(name), Expr::Function(function)) => self.meet_object(&function.name, name),
            (MissingObject::Column { of: None, name }, Expr::Identifier(ident)) => self.meet(ident, ident, name),
            (MissingObject::Column { of, name }, Expr::CompoundIdentifier(parts)) => {
                if let [.., table, column] = parts.as_slice()
                    && of.is_none_or(|of| of == fold(table))
                {
                    self.meet(&parts[0], column, name);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        // USING names columns that are no expressions.
        let constraints =
            select.from.iter().flat_map(|from| &from.joins).filter_map(|join| match &join.join_operator {
                JoinOperator::Join(on) | JoinOperator::Inner(on) => Some(on),
                JoinOperator::Left(on) | JoinOperator::LeftOuter(on) => Some(on),
                JoinOperator::Right(on) | JoinOperator::RightOuter(on) | JoinOperator::FullOuter(on) => Some(on),
                _ => None,
            });
        self.is_unsure |= constraints.into_iter().any(|on| matches!(on, JoinConstraint::Using(_)));
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use tarn_query::parser::statements;

    use super::*;

    #[test]
    fn what_stands_once_has_a_place() {
        let at = |sql: &str, find: fn(&Statement) -> Option<TextPosition>| match find(&statements(sql).unwrap()[0]) {
            Some(TextPosition::At { line, column }) => Some((line, column)),
            _ => None,
        };
        let x = |statement: &Statement| column(statement, None, "x");
        assert_eq!(at("SELECT a,\n X FROM t", x), Some((2, 2)));
        assert_eq!(at("SELECT 'x' AS x FROM t WHERE t.x = 1", x), Some((1, 30)));
        assert_eq!(at("SELECT \"x\" FROM t", x), Some((1, 8)));
        for sql in
            ["SELECT x, x FROM t", "SELECT \"X\" FROM t", "SELECT x FROM t JOIN u USING (x)", "SELECT a AS x FROM t"]
        {
            assert_eq!(at(sql, x), None, "{sql}");
        }
        assert_eq!(at("SELECT u.x, t.x FROM t, u", |statement| column(statement, Some("t"), "x")), Some((1, 13)));
        let t = |statement: &Statement| table(statement, "t");
        assert_eq!(at("SELECT t.a FROM public.T", t), Some((1, 17)));
        assert_eq!(at("INSERT INTO t VALUES (1)", t), Some((1, 13)));
        assert_eq!(at("SELECT 1 FROM t, t AS u", t), None);
        assert_eq!(at("SELECT a, F(b) FROM t", |statement| function(statement, "f")), Some((1, 11)));
    }
}
