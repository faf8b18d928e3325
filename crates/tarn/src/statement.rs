//! What did the client ask for?
//!
//! SQL text becomes a list of [`Parsed`] statements. `DELIVER | COMPACT | EVICT | FLUSH TABLE t`, `ATTACH`, `DETACH`,
//! `CACHE TABLE` and `SYSTEM DROP CACHE` are Tarn's own; the rest is the Postgres dialect, as [`tarn_query::parser`]
//! reads it. Queries of Postgres' catalog are made plannable (`compat.rs`).

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, GroupByExpr, Ident, ObjectName, ObjectNamePart, Select, SelectItem, SetExpr, Statement,
    TableFactor, TableWithJoins, UnaryOperator, Value, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;
pub use tarn_query::parser::fold;
use tarn_query::parser::{self, next_statement, parse_with};

use crate::attach_sql::{self, AttachRequest};
use crate::auth::Access;
use crate::cache_sql::{self, CacheTable, DropCache};
use crate::compat::{CatalogUse, column_of, compatible, is_catalog_name, is_variable};
use crate::error::{Result, SqlError, state};

/// One statement.
#[derive(Debug, Clone, PartialEq)]
pub enum Parsed {
    Sql(Box<Statement>),
    /// `DELIVER TABLE t` and its kin: background work asked for by hand.
    Admin {
        work: Work,
        table: String,
    },
    /// `ATTACH 'url' AS t`: files that others write become a table.
    Attach(Box<AttachRequest>),
    /// `DETACH TABLE t`: forgets such a table.
    Detach {
        table: String,
        if_exists: bool,
    },
    /// `CACHE TABLE t`: brings its files near.
    CacheTable(Box<CacheTable>),
    /// `SYSTEM DROP CACHE`: empties caches.
    DropCache(DropCache),
    /// `CREATE USER`, `GRANT` and their kin.
    Access(Box<Access>),
}

impl Parsed {
    /// Whether settings that clients are told of may be others afterwards.
    pub fn changes_settings(&self) -> bool {
        let Parsed::Sql(statement) = self else { return false };
        matches!(
            statement.as_ref(),
            Statement::Set(_) | Statement::Reset(_) | Statement::Discard { .. } | Statement::Execute { .. }
        )
    }
}

/// Background work of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Recent rows → lake files.
    Deliver,
    /// Small lake files → large ones.
    Compact,
    /// Delivered rows leave the row engine; their addresses stay.
    Evict,
    /// The row engine's memory → disk.
    Flush,
}

impl Work {
    /// The command tag, e.g. `DELIVER TABLE`.
    pub fn tag(self) -> &'static str {
        match self {
            Work::Deliver => "DELIVER TABLE",
            Work::Compact => "COMPACT TABLE",
            Work::Evict => "EVICT TABLE",
            Work::Flush => "FLUSH TABLE",
        }
    }
}

/// Parses all statements of one text. Empty statements vanish.
pub fn parse(sql: &str) -> Result<Vec<Parsed>> {
    let statements = parse_with(sql, |parser| {
        let mut statements = Vec::new();
        while let Some(statement) = next_statement(parser, parse_one)? {
            statements.push(statement);
        }
        Ok::<_, SqlError>(statements)
    })?;
    if !statements.iter().all(is_read) || !statements.iter().any(touches_catalog) {
        return Ok(statements);
    }
    let statements = statements.into_iter().filter_map(|parsed| match parsed {
        Parsed::Sql(statement) => Some(*statement),
        _ => None,
    });
    let statements = compatible(sql, statements.collect()).into_iter();
    statements.map(|statement| crate::pg_catalog::substitute(Parsed::Sql(Box::new(statement)))).collect()
}

fn touches_catalog(parsed: &Parsed) -> bool {
    let Parsed::Sql(statement) = parsed else { return false };
    // A read by key is met by the thousands: most of them name nothing at all.
    let names_nothing = plain_columns(statement).is_some_and(|items| !items.iter().any(names_variable));
    !names_nothing && CatalogUse::of(statement).is_named
}

fn names_variable(item: &SelectItem) -> bool {
    matches!(item, SelectItem::UnnamedExpr(Expr::Identifier(ident)) if ident.quote_style.is_none() && is_variable(&fold(ident)))
}

/// The columns of `SELECT a, b FROM t WHERE c = 1 AND d = $1`, and nothing else: no other table, query, function or type is named in it.
fn plain_columns(statement: &Statement) -> Option<&[SelectItem]> {
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

fn parse_one(parser: &mut Parser<'_>) -> Result<Parsed> {
    if let Some((work, words)) = own_statement(parser) {
        for _ in 0..words {
            parser.next_token();
        }
        let table = table_name(&parser.parse_object_name(false)?)?;
        return Ok(Parsed::Admin { work, table });
    }
    if let Some(access) = crate::auth::sql::access(parser)? {
        return Ok(Parsed::Access(Box::new(access)));
    }
    // A text follows, or it is another statement that is called the same.
    let follows_text = matches!(parser.peek_nth_token_ref(1).token, Token::SingleQuotedString(_));
    if is_word(&parser.peek_token_ref().token, "attach") && follows_text {
        parser.next_token();
        return Ok(Parsed::Attach(Box::new(attach_sql::attach(parser)?)));
    }
    if is_word(&parser.peek_token_ref().token, "attach") {
        return Err(SqlError::new(state::SYNTAX_ERROR, "ATTACH needs a URL, and a name for the table")
            .with_hint("ATTACH 's3://bucket/prefix' AS logs WITH (tokens = 'body')"));
    }
    if is_word(&parser.peek_token_ref().token, "detach") && is_word(&parser.peek_nth_token_ref(1).token, "table") {
        parser.next_token();
        parser.next_token();
        let (table, if_exists) = attach_sql::detach(parser)?;
        return Ok(Parsed::Detach { table, if_exists });
    }
    if is_word(&parser.peek_token_ref().token, "cache") && is_word(&parser.peek_nth_token_ref(1).token, "table") {
        parser.next_token();
        parser.next_token();
        return Ok(Parsed::CacheTable(Box::new(cache_sql::cache_table(parser)?)));
    }
    if cache_sql::is_drop_cache(parser) {
        for _ in 0..3 {
            parser.next_token();
        }
        return Ok(Parsed::DropCache(cache_sql::drop_cache(parser)?));
    }
    // Postgres spells it ABORT as well; the parser does not know it.
    if is_word(&parser.peek_token_ref().token, "abort") {
        parser.next_token();
        let _ = parser.parse_one_of_keywords(&[Keyword::WORK, Keyword::TRANSACTION]);
        return Ok(Parsed::Sql(Box::new(Statement::Rollback { chain: false, savepoint: None })));
    }
    let parser::Read { mut statement, has_select } = parser::read(parser)?;
    if has_select {
        name_duplicates(&mut statement);
    }
    Ok(Parsed::Sql(Box::new(statement)))
}

/// Behind the name of a column that the planner needs by another name: a character that is nobody's.
const OTHER_NAME: char = '\u{F8FE}';

/// `SELECT a, a`: the planner wants a name of its own for each column. What is behind [`OTHER_NAME`] is not shown.
fn name_duplicates(statement: &mut Statement) {
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

/// The work asked for and how many words name it.
fn own_statement(parser: &Parser<'_>) -> Option<(Work, usize)> {
    let work = match &parser.peek_token_ref().token {
        token if is_word(token, "deliver") => Work::Deliver,
        token if is_word(token, "compact") => Work::Compact,
        token if is_word(token, "evict") => Work::Evict,
        token if is_word(token, "flush") => Work::Flush,
        _ => return None,
    };
    is_word(&parser.peek_nth_token_ref(1).token, "table").then_some((work, 2))
}

pub(crate) fn is_word(token: &Token, text: &str) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(text))
}

/// `t`, `public.t` or `tarn.public.t` → `t`, folded to lower case unless quoted.
pub fn table_name(name: &ObjectName) -> Result<String> {
    let parts: Vec<String> = name
        .0
        .iter()
        .map(|part| match part {
            ObjectNamePart::Identifier(ident) => Ok(fold(ident)),
            ObjectNamePart::Function(_) => {
                Err(SqlError::new(state::SYNTAX_ERROR, format!("\"{name}\" is not a table name")))
            }
        })
        .collect::<Result<_>>()?;
    match parts.as_slice() {
        [table] => Ok(table.clone()),
        [schema, table] if schema == "public" => Ok(table.clone()),
        [_, schema, table] if schema == "public" => Ok(table.clone()),
        _ => Err(SqlError::new(
            state::WRONG_OBJECT_TYPE,
            format!("\"{name}\" cannot be written to: tables live in schema public"),
        )
        .with_hint("the schemas tarn, pg_catalog and information_schema are read-only views")),
    }
}

/// Bytes of a name, at most: those of PostgreSQL, whose clients and catalogs count on it.
const MAX_NAME_BYTES: usize = 63;

/// Whether something may be called so. PostgreSQL cuts longer names off and says so in a notice, and then two may be one.
///
/// Errors: `42622`, naming the limit; `42601` for no name at all.
pub fn check_name(what: &str, name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(SqlError::new(state::SYNTAX_ERROR, format!("a {what} needs a name of at least one character")));
    }
    if name.len() <= MAX_NAME_BYTES {
        return Ok(());
    }
    let shown: String = name.chars().take(20).collect();
    let message = format!(
        "the name \"{shown}…\" of a {what} is too long: it has {} bytes, and {MAX_NAME_BYTES} is the most",
        name.len()
    );
    Err(SqlError::new(state::NAME_TOO_LONG, message).with_hint("letters beyond ASCII take 2 to 4 bytes each"))
}

fn is_read(parsed: &Parsed) -> bool {
    matches!(parsed, Parsed::Sql(statement) if matches!(statement.as_ref(), Statement::Query(_) | Statement::Explain { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_statements_and_several_in_one_text() {
        let parsed = parse("; DELIVER TABLE Public.T ; select 1;; evict table \"My\"").unwrap();
        assert_eq!(parsed.len(), 3);
        assert_eq!(parsed[0], Parsed::Admin { work: Work::Deliver, table: "t".into() });
        assert_eq!(parsed[2], Parsed::Admin { work: Work::Evict, table: "My".into() });
    }

    #[test]
    fn syntax_errors_are_42601() {
        for sql in ["selec 1", "select 1 from", "select 'open", "deliver table", "select 1 select 2"] {
            assert_eq!(parse(sql).unwrap_err().state(), state::SYNTAX_ERROR, "{sql}");
        }
    }

    #[test]
    fn deep_nesting_is_an_error_not_a_crash() {
        let sql = format!("select {}1{}", "(".repeat(10_000), ")".repeat(10_000));
        assert_eq!(parse(&sql).unwrap_err().state(), state::PROGRAM_LIMIT);
    }

    #[test]
    fn copy_from_stdin_parses_with_and_without_semicolon() {
        assert_eq!(parse("COPY t (a, b) FROM STDIN WITH (FORMAT csv, HEADER true)").unwrap().len(), 1);
        assert_eq!(parse("COPY t FROM STDIN;").unwrap().len(), 1);
        assert_eq!(parse("COPY t FROM STDIN WITH (FORMAT arrow)").unwrap().len(), 1);
    }

    #[test]
    fn columns_that_share_a_name_are_told_apart_inside() {
        let names = |sql: &str| match parse(sql).unwrap().remove(0) {
            Parsed::Sql(statement) => statement.to_string().replace(OTHER_NAME, "#"),
            other => panic!("{other:?}"),
        };
        assert_eq!(names("SELECT t.a, t.a, 1, 1 FROM t"), "SELECT t.a, t.a AS \"a#1\", 1, 1 AS \"?column?#3\" FROM t");
        assert_eq!(names("SELECT a, a::text FROM t"), "SELECT a, a::TEXT AS \"a#1\" FROM t");
        assert_eq!(names("SELECT a AS x, id AS x FROM t"), "SELECT a AS x, id AS \"x#1\" FROM t");
        assert_eq!(
            names("SELECT abs(a::int), abs(a::text) FROM t"),
            "SELECT abs(a::INT), abs(a::TEXT) AS \"abs#1\" FROM t"
        );
        assert_eq!(names("SELECT *, a FROM t"), "SELECT *, a AS \"a#1\" FROM t");
        assert_eq!(names("SELECT a, b FROM t"), "SELECT a, b FROM t");
        assert_eq!(shown_name("a\u{F8FE}1"), "a");
    }

    #[test]
    fn abort_is_rollback() {
        assert!(matches!(&parse("abort").unwrap()[0], Parsed::Sql(s) if matches!(**s, Statement::Rollback { .. })));
    }
}
