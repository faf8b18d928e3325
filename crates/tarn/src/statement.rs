//! What did the client ask for?
//!
//! SQL text becomes a list of [`Parsed`] statements. `DELIVER | COMPACT | EVICT | FLUSH TABLE t`, `ATTACH`, `DETACH`, `CACHE TABLE` and
//! `SYSTEM DROP CACHE` are Tarn's own; the rest is the Postgres dialect. Text that touches Postgres' catalog goes through the compatibility rewrites that make psql's,
//! JDBC's and psycopg's metadata queries plannable; other queries never do, because those rewrites may replace what they
//! do not understand by NULL.

use std::collections::HashMap;
use std::sync::LazyLock;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Insert, ObjectName, ObjectNamePart, SelectItem, SetExpr, Statement,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;
use datafusion_pg_catalog::sql::PostgresCompatibilityParser;

use crate::attach_sql::{self, AttachRequest};
use crate::auth::Access;
use crate::cache_sql::{self, CacheTable, DropCache};
use crate::error::{Result, SqlError, state};

/// Nesting of one statement; deeper text is refused before it can exhaust a stack.
const RECURSION_LIMIT: usize = 128;

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
    let dialect = PostgreSqlDialect {};
    let mut parser = Parser::new(&dialect).with_recursion_limit(RECURSION_LIMIT).try_with_sql(sql)?;
    let mut statements = Vec::new();
    loop {
        while parser.consume_token(&Token::SemiColon) {}
        if parser.peek_token_ref().token == Token::EOF {
            break;
        }
        statements.push(parse_one(&mut parser)?);
        let next = &parser.peek_token_ref().token;
        if *next != Token::EOF && *next != Token::SemiColon {
            return Err(SqlError::new(state::SYNTAX_ERROR, format!("syntax error at or near \"{next}\"")));
        }
    }
    if touches_catalog(sql) && statements.iter().all(is_read) {
        let statements = compatible(sql).unwrap_or(statements);
        return statements.into_iter().map(crate::pg_catalog::substitute).collect();
    }
    Ok(statements)
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
    let mut statement = parser.parse_statement()?;
    name_duplicates(&mut statement);
    Ok(Parsed::Sql(Box::new(statement)))
}

/// `SELECT a, a`: the planner wants a name of its own for each column; the second becomes `a_2`.
fn name_duplicates(statement: &mut Statement) {
    let query = match statement {
        Statement::Query(query) => query,
        Statement::Insert(Insert { source: Some(query), .. }) => query,
        _ => return,
    };
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    let mut seen = HashMap::<String, usize>::new();
    for item in &mut select.projection {
        let SelectItem::UnnamedExpr(expr) = item else { continue };
        let text = expr.to_string();
        let n = seen.entry(text.clone()).or_default();
        *n += 1;
        if *n > 1 {
            let name = match &expr {
                Expr::Identifier(ident) => fold(ident),
                Expr::CompoundIdentifier(parts) => parts.last().map(fold).unwrap_or_default(),
                _ => text,
            };
            let alias = Ident::with_quote('"', format!("{name}_{n}"));
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
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

/// Postgres' folding of identifiers: lower case unless quoted.
pub fn fold(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

fn is_read(parsed: &Parsed) -> bool {
    matches!(parsed, Parsed::Sql(statement) if matches!(statement.as_ref(), Statement::Query(_) | Statement::Explain { .. }))
}

/// Whether Postgres' own catalog or session functions are named.
pub fn touches_catalog(sql: &str) -> bool {
    const MARKS: [&str; 9] = [
        "pg_",
        "information_schema",
        "regclass",
        "regtype",
        "regproc",
        "current_schema",
        "current_user",
        "session_user",
        "version()",
    ];
    let lower = sql.to_ascii_lowercase();
    MARKS.iter().any(|mark| lower.contains(mark))
}

fn compatible(sql: &str) -> Option<Vec<Parsed>> {
    static PARSER: LazyLock<PostgresCompatibilityParser> = LazyLock::new(PostgresCompatibilityParser::new);
    let statements = PARSER.parse(sql).ok()?;
    Some(statements.into_iter().map(|s| Parsed::Sql(Box::new(s))).collect())
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
    fn a_column_asked_for_twice_gets_a_second_name() {
        let shown = |sql: &str| match &parse(sql).unwrap()[0] {
            Parsed::Sql(statement) => statement.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(shown("SELECT t.a, t.a, 1, 1 FROM t"), "SELECT t.a, t.a AS \"a_2\", 1, 1 AS \"1_2\" FROM t");
        assert_eq!(shown("SELECT a, b FROM t"), "SELECT a, b FROM t");
    }

    #[test]
    fn abort_is_rollback() {
        assert!(matches!(&parse("abort").unwrap()[0], Parsed::Sql(s) if matches!(**s, Statement::Rollback { .. })));
    }
}
