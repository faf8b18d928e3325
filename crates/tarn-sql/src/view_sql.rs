//! What does `CREATE VIEW` say?
//!
//! The query is kept as it was written, comments and all: [`text_from`] cuts it out of the statement's text.

use datafusion::sql::sqlparser::ast::ObjectName;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Location, Token};
use tarn_types::TableSchema;

use crate::comment_sql::Comment;
use crate::error::{Result, SqlError, state};
use crate::names::{OWN_SCHEMA, fold, is_word, near, written_name};

/// A view that somebody asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateView {
    /// As it was said, or in full once the schema was found.
    pub name: String,
    /// The session has it to itself.
    pub temporary: bool,
    /// A view of the name is written anew, if it has these columns and perhaps more.
    pub or_replace: bool,
    /// Names of its first columns, where they are not the query's.
    pub columns: Vec<String>,
    /// The text of the query.
    pub query: String,
}

/// A change of views, of what is dropped with them, or of what people say of tables.
#[derive(Debug, Clone, PartialEq)]
pub enum ViewStatement {
    /// A view, as its definition is kept.
    Create { schema: Box<TableSchema>, or_replace: bool },
    /// Views or tables; with `cascade` the views that read them, too.
    Drop { names: Vec<String>, are_views: bool, if_exists: bool, cascade: bool },
    /// What is said of something.
    Comment(Comment),
}

/// What is before the query of a `CREATE VIEW`, `AS` included. `None`: it is another statement, and nothing of it was
/// read.
///
/// Errors: `0A000` for views that there are not; `42601`.
pub fn head(parser: &mut Parser<'_>) -> Result<Option<CreateView>> {
    let Some(kind) = kind(parser) else { return Ok(None) };
    if kind.is_materialized {
        return Err(SqlError::unsupported(
            "CREATE MATERIALIZED VIEW",
            "CREATE VIEW; or CREATE TABLE … AS, made anew when it is old",
        ));
    } else if kind.is_recursive {
        return Err(SqlError::unsupported("CREATE RECURSIVE VIEW", "CREATE VIEW name AS WITH RECURSIVE …"));
    }
    for _ in 0..kind.n_words {
        parser.next_token();
    }
    let name = parser.parse_object_name(false)?;
    let own = own_name(&name);
    let temporary = kind.is_temporary || own.is_some();
    if kind.is_temporary && own.is_none() && name.0.len() > 1 {
        let message = "cannot create temporary relation in non-temporary schema";
        return Err(SqlError::new(state::INVALID_TABLE_DEFINITION, message).with_hint("name no schema"));
    }
    let name = own.map_or_else(|| written_name(&name), Ok)?;
    let mut columns = vec![];
    if parser.consume_token(&Token::LParen) {
        loop {
            columns.push(fold(&parser.parse_identifier()?));
            if !parser.consume_token(&Token::Comma) {
                break;
            }
        }
        parser.expect_token(&Token::RParen)?;
    }
    if is_word(&parser.peek_token_ref().token, "with") {
        return Err(SqlError::unsupported(
            "CREATE VIEW … WITH options",
            "leave them out: a view reads with the rights of its owner",
        ));
    }
    if !is_word(&parser.peek_token_ref().token, "as") {
        return Err(near(&parser.peek_token_ref().token));
    }
    parser.next_token();
    let begins = |token: &Token| {
        *token == Token::LParen || ["select", "with", "values", "table"].iter().any(|word| is_word(token, word))
    };
    // Anything else is no query, and may be this statement again, as deep as the text is long.
    if !begins(&parser.peek_token_ref().token) {
        return Err(near(&parser.peek_token_ref().token));
    }
    Ok(Some(CreateView { name, temporary, or_replace: kind.or_replace, columns, query: String::new() }))
}

/// The name in the schema of the session's own tables, if it is said to be there.
fn own_name(name: &ObjectName) -> Option<String> {
    let [schema, name] = &name.0[..] else { return None };
    (fold(schema.as_ident()?) == OWN_SCHEMA).then(|| Some(fold(name.as_ident()?))).flatten()
}

/// What may follow the query: nothing.
pub fn check_end(parser: &Parser<'_>) -> Result<()> {
    match is_word(&parser.peek_token_ref().token, "with") {
        true => Err(SqlError::unsupported("CREATE VIEW … WITH CHECK OPTION", "leave it out: views are not written to")),
        false => Ok(()),
    }
}

/// The text of a query that begins at `start` and that the parser has just read.
pub fn text_from(sql: &str, start: Location, parser: &Parser<'_>) -> String {
    let next = parser.peek_token_ref();
    let end = match next.token {
        Token::EOF => sql.len(),
        _ => place(sql, next.span.start),
    };
    sql.get(place(sql, start)..end).unwrap_or_default().trim().to_owned()
}

/// The byte at a place. Lines and characters are counted from 1.
pub(crate) fn place(sql: &str, at: Location) -> usize {
    let (mut line, mut column) = (1, 1);
    for (byte, c) in sql.char_indices() {
        if (line, column) >= (at.line, at.column) {
            return byte;
        }
        (line, column) = if c == '\n' { (line + 1, 1) } else { (line, column + 1) };
    }
    sql.len()
}

/// The words before the name.
#[derive(Default)]
struct ViewHeader {
    n_words: usize,
    or_replace: bool,
    is_temporary: bool,
    is_recursive: bool,
    is_materialized: bool,
}

fn kind(parser: &Parser<'_>) -> Option<ViewHeader> {
    let word = |at: usize, text: &str| is_word(&parser.peek_nth_token_ref(at).token, text);
    if !word(0, "create") {
        return None;
    }
    let mut kind = ViewHeader { n_words: 1, ..ViewHeader::default() };
    if word(1, "or") && word(2, "replace") {
        (kind.n_words, kind.or_replace) = (3, true);
    }
    loop {
        let at = kind.n_words;
        kind.n_words += 1;
        match () {
            () if word(at, "view") => return Some(kind),
            () if word(at, "temp") || word(at, "temporary") => kind.is_temporary = true,
            () if word(at, "recursive") => kind.is_recursive = true,
            () if word(at, "materialized") => kind.is_materialized = true,
            () => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::{ParsedSql, parse};

    fn of(sql: &str) -> Vec<CreateView> {
        let parsed = parse(sql).unwrap_or_else(|error| panic!("{sql}: {error}")).into_iter();
        parsed
            .map(|parsed| if let ParsedSql::CreateView(view) = parsed { *view } else { panic!("{parsed:?}") })
            .collect()
    }

    #[test]
    fn the_query_is_kept_as_it_was_written() {
        let all = of(
            "create or Replace view \"V\" (a, \"B\") AS\n  select 'é;',  x -- why\n  from t ;; CREATE VIEW w as (SELECT  u)",
        );
        let (v, w) = (&all[0], &all[1]);
        assert_eq!((v.name.as_str(), v.or_replace, &v.columns[..]), ("V", true, &["a".to_owned(), "B".to_owned()][..]));
        assert_eq!(v.query, "select 'é;',  x -- why\n  from t");
        assert_eq!((w.name.as_str(), w.or_replace, w.query.as_str()), ("w", false, "(SELECT  u)"));
        assert_eq!(
            of("CREATE VIEW public.v AS WITH a AS (SELECT 1) SELECT * FROM a")[0].query,
            "WITH a AS (SELECT 1) SELECT * FROM a"
        );
        assert_eq!(of("CREATE VIEW v AS VALUES (1), (2);")[0].query, "VALUES (1), (2)");
        assert_eq!(of("CREATE VIEW v AS TABLE u")[0].query, "TABLE u");
        let own = of(
            "CREATE TEMP VIEW v AS SELECT 1; CREATE OR REPLACE TEMPORARY VIEW v AS SELECT 1; CREATE VIEW pg_temp.v AS SELECT 1",
        );
        assert!(own.iter().all(|view| view.temporary && view.name == "v"));
    }

    #[test]
    fn what_is_no_view_of_ours_is_refused() {
        for (sql, want) in [
            ("CREATE MATERIALIZED VIEW v AS SELECT 1", state::FEATURE_NOT_SUPPORTED),
            ("CREATE TEMP VIEW public.v AS SELECT 1", state::INVALID_TABLE_DEFINITION),
            ("CREATE RECURSIVE VIEW v (a) AS SELECT 1", state::FEATURE_NOT_SUPPORTED),
            ("CREATE VIEW v WITH (security_barrier) AS SELECT 1", state::FEATURE_NOT_SUPPORTED),
            ("CREATE VIEW v AS SELECT 1 WITH CHECK OPTION", state::FEATURE_NOT_SUPPORTED),
            ("CREATE VIEW v AS SELECT 1 WITH LOCAL CHECK OPTION", state::FEATURE_NOT_SUPPORTED),
            ("CREATE VIEW v", state::SYNTAX_ERROR),
            ("CREATE VIEW v AS", state::SYNTAX_ERROR),
            ("CREATE VIEW v AS DELETE FROM t", state::SYNTAX_ERROR),
            ("CREATE VIEW IF NOT EXISTS v AS SELECT 1", state::SYNTAX_ERROR),
            ("CREATE VIEW v (a AS SELECT 1", state::SYNTAX_ERROR),
            ("CREATE VIEW tarn.v AS SELECT 1", state::WRONG_OBJECT_TYPE),
            ("CREATE VIEW v AS SELECT 1 SELECT 2", state::SYNTAX_ERROR),
        ] {
            assert_eq!(parse(sql).expect_err(sql).state(), want, "{sql}");
        }
        let deep = format!("{}SELECT 1", "CREATE VIEW v AS ".repeat(100_000));
        assert_eq!(parse(&deep).unwrap_err().state(), state::SYNTAX_ERROR);
    }
}
