//! What did the client ask for?
//!
//! SQL text becomes a list of [`ParsedSql`] statements. `DELIVER | COMPACT | EVICT | FLUSH TABLE t`, `ATTACH`,
//! `DETACH`, `CACHE TABLE` and `SYSTEM DROP CACHE` are Tarn's own, `UPSERT` and an option of COPY too
//! (`tarn_query::parser`); the rest is the Postgres dialect, as [`tarn_query::parser`] reads it. Queries of Postgres'
//! catalog are made plannable (`compat.rs`).

use datafusion::sql::sqlparser::ast::{Expr, SelectItem, Statement};
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;
use tarn_node::attach::AttachRequest;
use tarn_node::auth::Access;
use tarn_node::jobs::Work;
use tarn_query::OnKey;
use tarn_query::parser::{self, ParsedInput, next_statement, parse_with};

use crate::alter_sql::Alter;
use crate::cache_sql::{CacheTable, DropCache};
use crate::catalog_names::is_variable;
use crate::comment_sql::Comment;
use crate::compat::{CatalogUse, compatible};
use crate::constraints_sql::SetConstraints;
use crate::cursor_sql::{DeclareCursor, Fetch};
use crate::error::{Result, SqlError, state};
use crate::function_sql::FunctionSql;
use crate::like_sql::CreateLike;
use crate::lock_sql::LockRows;
use crate::names::{fold, is_word, written_name};
use crate::postgres::in_from::whole_table;
use crate::postgres::select_list;
use crate::schema_sql::SchemaSql;
use crate::sequence_sql::SequenceSql;
use crate::shown::{name_columns, plain_columns};
use crate::type_sql::TypeSql;
use crate::vacuum_sql::{self, Vacuum};
use crate::view_sql::{self, CreateView};
use crate::with_sql::WithSql;
use crate::{
    access_sql, alter_sql, attach_sql, cache_sql, comment_sql, constraints_sql, copy_options, cursor_sql, function_sql,
    like_sql, pg_catalog, schema_sql, sequence_sql, type_sql, type_tree,
};

/// One statement.
#[derive(Debug, Clone, PartialEq)]
pub enum ParsedSql {
    /// Anything of PostgreSQL's grammar that is none of the below.
    Sql(Box<Statement>),
    /// A COPY that says what becomes of rows whose key is there.
    Copy {
        /// The COPY.
        statement: Box<Statement>,
        /// What becomes of such rows.
        on_key: OnKey,
    },
    /// `DELIVER TABLE t` and its kin: background work asked for by hand.
    Admin { work: Work, table: String },
    /// `ATTACH 'url' AS t`: files that others write become a table.
    Attach(Box<AttachRequest>),
    /// `DETACH TABLE t`: forgets such a table.
    Detach { table: String, if_exists: bool },
    /// `CACHE TABLE t`: brings its files near.
    CacheTable(Box<CacheTable>),
    /// `SYSTEM DROP CACHE`: empties caches.
    DropCache(DropCache),
    /// `CREATE USER`, `GRANT` and their kin.
    Access(Box<Access>),
    /// `CREATE VIEW`: the text of its query is kept.
    CreateView(Box<CreateView>),
    /// `COMMENT ON`.
    Comment(Box<Comment>),
    /// `CREATE SEQUENCE` and its kin.
    Sequence(Box<SequenceSql>),
    /// `CREATE SCHEMA` and its kin.
    Schema(Box<SchemaSql>),
    /// `CREATE TYPE` and its kin.
    Type(Box<TypeSql>),
    /// `CREATE FUNCTION` and its kin.
    Function(Box<FunctionSql>),
    /// `CREATE TABLE t (LIKE u)`.
    CreateLike(Box<CreateLike>),
    /// `ALTER TABLE` and its kin.
    Alter(Box<Alter>),
    /// `DECLARE … CURSOR`.
    Declare(Box<DeclareCursor>),
    /// `FETCH` and `MOVE`.
    Fetch(Fetch),
    /// `SELECT … FOR UPDATE`.
    Lock(Box<LockRows>),
    /// A statement behind a WITH that changes rows.
    With(Box<WithSql>),
    /// `VACUUM` and `ANALYZE`.
    Vacuum(Box<Vacuum>),
    /// `SET CONSTRAINTS`: when foreign keys are checked.
    Constraints(Box<SetConstraints>),
}

impl ParsedSql {
    /// Whether settings that clients are told of may be others afterwards.
    pub fn changes_settings(&self) -> bool {
        let ParsedSql::Sql(statement) = self else { return false };
        matches!(
            statement.as_ref(),
            Statement::Set(_) | Statement::Reset(_) | Statement::Discard { .. } | Statement::Execute { .. }
        )
    }
}

impl ParsedSql {
    /// Whether its text is for nobody else.
    pub(crate) fn has_password(&self) -> bool {
        let ParsedSql::Access(access) = self else { return false };
        match access.as_ref() {
            Access::CreateUser { attributes, .. } | Access::AlterUser { attributes, .. } => {
                attributes.password.is_some()
            }
            _ => false,
        }
    }
}

/// The command tag of background work that was asked for, e.g. `DELIVER TABLE`.
pub fn work_tag(work: Work) -> &'static str {
    match work {
        Work::Deliver => "DELIVER TABLE",
        Work::Compact => "COMPACT TABLE",
        Work::Evict => "EVICT TABLE",
        Work::Flush => "FLUSH TABLE",
    }
}

/// Parses all statements of one text. Empty statements vanish.
pub fn parse(sql: &str) -> Result<Vec<ParsedSql>> {
    let statements = parse_with(sql, |parser| {
        let mut statements = Vec::new();
        while let Some(statement) = next_statement(parser, |parser| parse_one(parser, sql))? {
            statements.push(statement);
        }
        Ok::<_, SqlError>(statements)
    })?;
    if !statements.iter().all(is_read) || !statements.iter().any(touches_catalog) {
        return Ok(statements);
    }
    let statements = statements.into_iter().filter_map(|parsed| match parsed {
        ParsedSql::Sql(statement) => Some(*statement),
        _ => None,
    });
    let statements = compatible(sql, statements.collect()).into_iter();
    statements
        .map(|statement| {
            let statement = type_tree::substitute(pg_catalog::substitute(statement)?)?;
            Ok(ParsedSql::Sql(Box::new(statement)))
        })
        .collect()
}

fn touches_catalog(parsed: &ParsedSql) -> bool {
    let ParsedSql::Sql(statement) = parsed else { return false };
    // A read by key is met by the thousands: most of them name nothing at all.
    let names_nothing = plain_columns(statement).is_some_and(|items| !items.iter().any(names_variable));
    !names_nothing && CatalogUse::of(statement).is_named
}

fn names_variable(item: &SelectItem) -> bool {
    matches!(item, SelectItem::UnnamedExpr(Expr::Identifier(ident)) if ident.quote_style.is_none() && is_variable(&fold(ident)))
}

fn parse_one(parser: &mut Parser<'_>, sql: &str) -> Result<ParsedSql> {
    if let Some((work, words)) = own_statement(parser) {
        for _ in 0..words {
            parser.next_token();
        }
        let table = written_name(&parser.parse_object_name(false)?)?;
        return Ok(ParsedSql::Admin { work, table });
    }
    if let Some(copy) = parser::copy_on_conflict(parser)? {
        let on_key = copy_options::on_key(&copy.on_conflict)?;
        return Ok(ParsedSql::Copy { statement: Box::new(copy.statement), on_key });
    }
    if let Some(access) = access_sql::access(parser)? {
        return Ok(ParsedSql::Access(Box::new(access)));
    }
    if let Some(alter) = alter_sql::alter(parser)? {
        return Ok(ParsedSql::Alter(Box::new(alter)));
    }
    if let Some(mut view) = view_sql::head(parser)? {
        let start = parser.peek_token_ref().span.start;
        let statement = match parse_one(parser, sql)? {
            ParsedSql::Sql(statement) => statement,
            ParsedSql::Lock(_) => {
                return Err(SqlError::unsupported("a view … FOR UPDATE", "lock the rows that are read of the table"));
            }
            ParsedSql::With(_) => return Err(no_changes_in("views")),
            _ => return Err(no_query_of("a view")),
        };
        if !matches!(*statement, Statement::Query(_)) {
            return Err(no_query_of("a view"));
        }
        view_sql::check_end(parser)?;
        view.query = view_sql::text_from(sql, start, parser);
        return Ok(ParsedSql::CreateView(Box::new(view)));
    }
    if let Some(statement) = function_sql::user_function(parser, sql)? {
        return Ok(ParsedSql::Function(Box::new(statement)));
    }
    if let Some(statement) = schema_sql::schema(parser)? {
        return Ok(ParsedSql::Schema(Box::new(statement)));
    }
    if let Some(comment) = comment_sql::comment(parser)? {
        return Ok(ParsedSql::Comment(Box::new(comment)));
    }
    if let Some(sequence) = sequence_sql::sequence(parser)? {
        return Ok(ParsedSql::Sequence(Box::new(sequence)));
    }
    if let Some(statement) = type_sql::user_type(parser)? {
        return Ok(ParsedSql::Type(Box::new(statement)));
    }
    if let Some(like) = like_sql::create_like(parser)? {
        return Ok(ParsedSql::CreateLike(Box::new(like)));
    }
    if let Some(said) = constraints_sql::set_constraints(parser)? {
        return Ok(ParsedSql::Constraints(Box::new(said)));
    }
    if let Some(vacuum) = vacuum_sql::vacuum(parser)? {
        return Ok(ParsedSql::Vacuum(Box::new(vacuum)));
    }
    let start = parser.peek_token_ref().span.start;
    if let Some(head) = cursor_sql::head(parser)? {
        let query = match parse_one(parser, sql)? {
            ParsedSql::Sql(query) => query,
            ParsedSql::Lock(lock) => {
                let text = view_sql::text_from(sql, start, parser);
                return Ok(ParsedSql::Declare(Box::new(head.locking(*lock, text)?)));
            }
            ParsedSql::With(_) => return Err(no_changes_in("DECLARE CURSOR")),
            _ => return Err(no_query_of("a cursor")),
        };
        if !matches!(*query, Statement::Query(_)) {
            return Err(no_query_of("a cursor"));
        }
        let text = view_sql::text_from(sql, start, parser);
        return Ok(ParsedSql::Declare(Box::new(head.of(*query, text))));
    }
    if let Some(fetch) = cursor_sql::fetch(parser)? {
        return Ok(ParsedSql::Fetch(fetch));
    }
    // A text follows, or it is another statement that is called the same.
    let follows_text = matches!(parser.peek_nth_token_ref(1).token, Token::SingleQuotedString(_));
    if is_word(&parser.peek_token_ref().token, "attach") && follows_text {
        parser.next_token();
        return Ok(ParsedSql::Attach(Box::new(attach_sql::attach(parser)?)));
    }
    if is_word(&parser.peek_token_ref().token, "attach") {
        return Err(SqlError::new(state::SYNTAX_ERROR, "ATTACH needs a URL, and a name for the table")
            .with_hint("ATTACH 's3://bucket/prefix' AS logs WITH (tokens = 'body')"));
    }
    if is_word(&parser.peek_token_ref().token, "detach") && is_word(&parser.peek_nth_token_ref(1).token, "table") {
        parser.next_token();
        parser.next_token();
        let (table, if_exists) = attach_sql::detach(parser)?;
        return Ok(ParsedSql::Detach { table, if_exists });
    }
    if is_word(&parser.peek_token_ref().token, "cache") && is_word(&parser.peek_nth_token_ref(1).token, "table") {
        parser.next_token();
        parser.next_token();
        return Ok(ParsedSql::CacheTable(Box::new(cache_sql::cache_table(parser)?)));
    }
    if cache_sql::is_drop_cache(parser) {
        for _ in 0..3 {
            parser.next_token();
        }
        return Ok(ParsedSql::DropCache(cache_sql::drop_cache(parser)?));
    }
    if is_word(&parser.peek_token_ref().token, "table") {
        parser.next_token();
        return Ok(ParsedSql::Sql(Box::new(whole_table(parser.parse_object_name(false)?))));
    }
    // Postgres spells it ABORT as well; the parser does not know it.
    if is_word(&parser.peek_token_ref().token, "abort") {
        parser.next_token();
        let chain = parser.parse_commit_rollback_chain()?;
        return Ok(ParsedSql::Sql(Box::new(Statement::Rollback { chain, savepoint: None })));
    }
    let rewritten = match parser::overriding(parser)? {
        None => parser::deferrable(parser)?,
        insert => insert,
    };
    let (read, locks) = match rewritten {
        Some(read) => (read, vec![]),
        None => match parser::sent(parser)? {
            ParsedInput::One(read, locks) => (read, locks),
            ParsedInput::Parts(parser::WithStatement { recursive, named, last }) => {
                let named = named.into_iter().map(|part| Ok((part.alias, in_postgres_words(part.read)?)));
                let with = WithSql::new(recursive, named.collect::<Result<_>>()?, in_postgres_words(last)?)?;
                return Ok(ParsedSql::With(Box::new(with)));
            }
        },
    };
    match in_postgres_words(read)? {
        Statement::Query(query) if !locks.is_empty() => Ok(ParsedSql::Lock(Box::new(LockRows { query, locks }))),
        statement => Ok(ParsedSql::Sql(Box::new(statement))),
    }
}

/// A statement with the names of columns that PostgreSQL gives.
fn in_postgres_words(read: parser::ParsedStatement) -> Result<Statement> {
    let parser::ParsedStatement { mut statement, has_select, has_calls } = read;
    if has_select {
        name_columns(&mut statement);
    }
    let creates = matches!(statement, Statement::CreateTable(_));
    let is_query = matches!(statement, Statement::Query(_));
    if has_select || has_calls || creates || is_query {
        select_list::rewrite(&mut statement)?;
    }
    Ok(statement)
}

fn no_query_of(what: &str) -> SqlError {
    SqlError::new(state::SYNTAX_ERROR, format!("{what} is made of one query"))
}

fn no_changes_in(what: &str) -> SqlError {
    let message = format!("{what} must not contain data-modifying statements in WITH");
    SqlError::new(state::FEATURE_NOT_SUPPORTED, message).with_hint("change the rows by a statement of its own")
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

fn is_read(parsed: &ParsedSql) -> bool {
    let ParsedSql::Sql(statement) = parsed else { return false };
    matches!(statement.as_ref(), Statement::Query(_) | Statement::Explain { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shown::{OTHER_NAME, shown_name};

    #[test]
    fn own_statements_and_several_in_one_text() {
        let parsed = parse("; DELIVER TABLE T ; select 1;; evict table \"My\"").unwrap();
        assert_eq!(parsed.len(), 3);
        assert_eq!(parsed[0], ParsedSql::Admin { work: Work::Deliver, table: "t".into() });
        assert_eq!(parsed[2], ParsedSql::Admin { work: Work::Evict, table: "My".into() });
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
        let own = &parse("COPY t FROM STDIN WITH (FORMAT csv, on_conflict = skip);").unwrap()[0];
        assert!(matches!(own, ParsedSql::Copy { on_key: OnKey::Keep, .. }), "{own:?}");
        let refused = parse("COPY t FROM STDIN WITH (on_conflict = ignore)").unwrap_err();
        assert_eq!(refused.state(), state::INVALID_PARAMETER_VALUE);
    }

    #[test]
    fn columns_that_share_a_name_are_told_apart_inside() {
        let names = |sql: &str| match parse(sql).unwrap().remove(0) {
            ParsedSql::Sql(statement) => statement.to_string().replace(OTHER_NAME, "#"),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            names("SELECT t.a, t.a, 1, 1 FROM t"),
            "SELECT t.a, t.a AS \"a#1\", 1 AS \"?column?#2\", 1 AS \"?column?#3\" FROM t"
        );
        assert_eq!(names("SELECT a, a::text FROM t"), "SELECT a, a::TEXT AS \"a#1\" FROM t");
        assert_eq!(names("SELECT a AS x, id AS x FROM t"), "SELECT a AS x, id AS \"x#1\" FROM t");
        assert_eq!(
            names("SELECT abs(a::int), abs(a::text) FROM t"),
            "SELECT abs(a::INT) AS \"abs#0\", abs(a::TEXT) AS \"abs#1\" FROM t"
        );
        assert_eq!(names("SELECT *, a FROM t"), "SELECT *, a AS \"a#1\" FROM t");
        assert_eq!(names("SELECT a, b FROM t"), "SELECT a, b FROM t");
        assert_eq!(shown_name("a\u{F8FE}1"), "a");
    }

    #[test]
    fn abort_is_rollback() {
        assert!(matches!(&parse("abort").unwrap()[0], ParsedSql::Sql(s) if matches!(**s, Statement::Rollback { .. })));
    }
}
