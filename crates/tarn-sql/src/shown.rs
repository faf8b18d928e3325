//! How is a column of an answer called?
//!
//! The planner wants a name of its own for each column, clients want those that PostgreSQL gives: inside, names have something behind
//! them that is not shown.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, GroupByExpr, Ident, Select, SelectItem, SetExpr, Statement, TableFactor, TableWithJoins,
    UnaryOperator, Value, VisitMut, VisitorMut,
};

use crate::compat::{is_catalog_name, is_variable};
use crate::names::{column_of, fold};

/// Behind the name of a column that the planner needs by another name: a character that is nobody's.
pub(crate) const OTHER_NAME: char = '\u{F8FE}';

/// The columns of `SELECT a, b FROM t WHERE c = 1 AND d = $1`, and nothing else: no other table, query, function or type is named in it.
pub(crate) fn plain_columns(statement: &Statement) -> Option<&[SelectItem]> {
    let Statement::Query(query) = statement else { return None };
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let [TableWithJoins { relation: TableFactor::Table { name, args: None, .. }, joins }] = &select.from[..] else {
        return None;
    };
    let is_column = |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(Expr::Identifier(_)));
    let is_plain = query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && joins.is_empty()
        && select.having.is_none()
        && select.distinct.is_none()
        && select.qualify.is_none()
        && select.named_window.is_empty()
        && matches!(&select.group_by, GroupByExpr::Expressions(by, _) if by.is_empty())
        && select.projection.iter().all(is_column)
        && select.selection.as_ref().is_none_or(is_plain_condition)
        && !is_catalog_name(name);
    is_plain.then_some(&select.projection)
}

/// Columns beside constants or parameters.
fn is_plain_condition(condition: &Expr) -> bool {
    match condition {
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            is_plain_condition(left) && is_plain_condition(right)
        }
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
            matches!(left.as_ref(), Expr::Identifier(ident) if ident.quote_style.is_some() || !is_variable(&fold(ident)))
                && matches!(right.as_ref(), Expr::Value(_))
        }
        _ => false,
    }
}

fn are_distinct(items: &[SelectItem]) -> bool {
    let name = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(Expr::Identifier(ident)) => Some(fold(ident)),
        _ => None,
    };
    let mut names = HashSet::with_capacity(items.len());
    items.len() == 1 || items.iter().all(|item| name(item).is_some_and(|name| names.insert(name)))
}

/// `SELECT a, a`: the planner wants a name of its own for each column. What is behind [`OTHER_NAME`] is not shown.
pub(crate) fn name_duplicates(statement: &mut Statement) {
    if plain_columns(statement).is_some_and(are_distinct) {
        return;
    }
    struct Names;
    impl VisitorMut for Names {
        type Break = ();
        fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
            name_items(&mut select.projection);
            ControlFlow::Continue(())
        }
    }
    let _ = VisitMut::visit(statement, &mut Names);
}

fn name_items(items: &mut [SelectItem]) {
    if items.len() < 2 {
        return;
    }
    let has_wildcard =
        items.iter().any(|item| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)));
    let mut seen = HashSet::with_capacity(items.len());
    for (idx, item) in items.iter_mut().enumerate() {
        let (expr, name) = match item {
            SelectItem::UnnamedExpr(expr) => {
                let plain = without_casts(expr.clone());
                let name = shown_as(&plain);
                let key = match column_of(&plain) {
                    Some(column) => Key::Name(fold(column)),
                    None => Key::Expr(Box::new(plain)),
                };
                let is_column = matches!(key, Key::Name(_));
                if seen.insert(key) && !(has_wildcard && is_column) {
                    continue;
                }
                (expr, name)
            }
            SelectItem::ExprWithAlias { expr, alias } => {
                let name = fold(alias);
                if seen.insert(Key::Name(name.clone())) {
                    continue;
                }
                (expr, name)
            }
            _ => continue,
        };
        let empty = Expr::Value(Value::Null.with_empty_span());
        let alias = Ident::with_quote('"', format!("{name}{OTHER_NAME}{idx}"));
        *item = SelectItem::ExprWithAlias { expr: std::mem::replace(expr, empty), alias };
    }
}

/// What two columns must not share.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Name(String),
    Expr(Box<Expr>),
}

/// The planner names a cast, and a sign that changes nothing, by what is below.
fn without_casts(mut expr: Expr) -> Expr {
    struct Casts;
    impl VisitorMut for Casts {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            while let Expr::Cast { expr: inner, .. }
            | Expr::Nested(inner)
            | Expr::UnaryOp { op: UnaryOperator::Plus, expr: inner } = expr
            {
                *expr = std::mem::replace(inner, Expr::Value(Value::Null.with_empty_span()));
            }
            ControlFlow::Continue(())
        }
    }
    let _ = VisitMut::visit(&mut expr, &mut Casts);
    expr
}

/// How Postgres names a column of an answer.
fn shown_as(expr: &Expr) -> String {
    match expr {
        Expr::Function(function) => {
            function.name.0.last().and_then(|part| part.as_ident()).map(fold).unwrap_or_default()
        }
        Expr::Case { .. } => "case".to_owned(),
        expr => column_of(expr).map_or_else(|| "?column?".to_owned(), fold),
    }
}

/// A column's name as the client sees it.
pub fn shown_name(name: &str) -> &str {
    name.split_once(OTHER_NAME).map_or(name, |(name, _)| name)
}

/// The columns of an answer as the client sees them.
pub fn shown(schema: &SchemaRef) -> SchemaRef {
    if !schema.fields().iter().any(|field| field.name().contains(OTHER_NAME)) {
        return Arc::clone(schema);
    }
    let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_name(shown_name(field.name())));
    Arc::new(Schema::new_with_metadata(fields.collect::<Vec<Field>>(), schema.metadata().clone()))
}
