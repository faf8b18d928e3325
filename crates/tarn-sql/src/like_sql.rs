//! What does `CREATE TABLE t (LIKE u …)` say? A table with the columns of another, and what else of it is to be copied.

use datafusion::sql::sqlparser::ast::helpers::stmt_create_table::CreateTableBuilder;
use datafusion::sql::sqlparser::ast::{CreateTable, ObjectName, OnCommit};
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::error::{Result, SqlError};
use crate::names::{is_word, near, take};

/// The statement.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateLike {
    /// All but its columns.
    pub create: CreateTable,
    /// The relation whose columns it has.
    pub of: ObjectName,
    /// What else is copied.
    pub including: LikeOptions,
}

/// What is copied beside names, types and `NOT NULL`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LikeOptions {
    /// Of columns.
    pub comments: bool,
    /// Checks.
    pub constraints: bool,
    /// What rows have where nothing is said.
    pub defaults: bool,
    /// What generated columns are computed from; otherwise they are columns like others.
    pub generated: bool,
    /// With sequences of their own.
    pub identity: bool,
    /// The primary key.
    pub indexes: bool,
}

/// The statement that begins here, if it is one; nothing is taken if it is not.
///
/// Errors: `0A000` for what tables do not have; `42601`.
pub fn create_like(parser: &mut Parser<'_>) -> Result<Option<CreateLike>> {
    let Some(head) = CreateHeader::of(parser) else { return Ok(None) };
    (0..head.n_words).for_each(|_| drop(parser.next_token()));
    let name = parser.parse_object_name(false)?;
    parser.expect_token(&Token::LParen)?;
    parser.next_token();
    let of = parser.parse_object_name(false)?;
    let mut including = LikeOptions::default();
    loop {
        let is = take(parser, "including");
        if !is && !take(parser, "excluding") {
            break;
        }
        let Token::Word(what) = parser.next_token().token else { return Err(near(&parser.peek_token_ref().token)) };
        match what.value.to_lowercase().as_str() {
            "all" => {
                including = LikeOptions {
                    comments: is,
                    constraints: is,
                    defaults: is,
                    generated: is,
                    identity: is,
                    indexes: is,
                };
            }
            "comments" => including.comments = is,
            "constraints" => including.constraints = is,
            "defaults" => including.defaults = is,
            "generated" => including.generated = is,
            "identity" => including.identity = is,
            "indexes" => including.indexes = is,
            kind @ ("compression" | "statistics" | "storage") => {
                return Err(SqlError::unsupported(
                    format!("LIKE … {}", kind.to_uppercase()),
                    "leave it out: tables have nothing of the kind",
                ));
            }
            _ => return Err(near(&Token::Word(what))),
        }
    }
    if parser.consume_token(&Token::Comma) {
        return Err(SqlError::unsupported("LIKE beside other columns", "name all columns, or INSERT INTO … SELECT"));
    }
    parser.expect_token(&Token::RParen)?;
    let create = CreateTableBuilder::new(name).temporary(head.temporary).if_not_exists(head.if_not_exists);
    let create = create.on_commit(on_commit(parser)?).build();
    Ok(Some(CreateLike { create, of, including }))
}

fn on_commit(parser: &mut Parser<'_>) -> Result<Option<OnCommit>> {
    if !take(parser, "on") {
        return Ok(None);
    }
    let words = |parser: &mut Parser<'_>, words: &[&str]| words.iter().all(|word| take(parser, word));
    if !take(parser, "commit") {
        return Err(near(&parser.peek_token_ref().token));
    }
    match () {
        () if take(parser, "drop") => Ok(Some(OnCommit::Drop)),
        () if words(parser, &["delete", "rows"]) => Ok(Some(OnCommit::DeleteRows)),
        () if words(parser, &["preserve", "rows"]) => Ok(Some(OnCommit::PreserveRows)),
        () => Err(near(&parser.peek_token_ref().token)),
    }
}

/// The words before the name.
struct CreateHeader {
    n_words: usize,
    temporary: bool,
    if_not_exists: bool,
}

impl CreateHeader {
    /// `None`: what follows is another statement.
    fn of(parser: &Parser<'_>) -> Option<CreateHeader> {
        let token = |at: usize| &parser.peek_nth_token_ref(at).token;
        let word = |at: usize, text: &str| is_word(token(at), text);
        if !word(0, "create") {
            return None;
        }
        let mut at = 1 + usize::from(word(1, "local"));
        let temporary = word(at, "temp") || word(at, "temporary");
        at += usize::from(temporary);
        if !word(at, "table") {
            return None;
        }
        at += 1;
        let if_not_exists = word(at, "if") && word(at + 1, "not") && word(at + 2, "exists");
        at += if if_not_exists { 3 } else { 0 };
        let n_words = at;
        while matches!(token(at), Token::Word(_)) && *token(at + 1) == Token::Period {
            at += 2;
        }
        let is_like = matches!(token(at), Token::Word(_)) && *token(at + 1) == Token::LParen && word(at + 2, "like");
        is_like.then_some(CreateHeader { n_words, temporary, if_not_exists })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::state;
    use crate::statement::{ParsedSql, parse};

    fn read(sql: &str) -> Result<CreateLike> {
        match parse(sql)?.pop() {
            Some(ParsedSql::CreateLike(like)) => Ok(*like),
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[test]
    fn what_is_copied_is_said() {
        let like = read(
            "CREATE LOCAL TEMP TABLE IF NOT EXISTS a.t (LIKE public.u INCLUDING ALL EXCLUDING INDEXES) ON COMMIT DROP",
        )
        .unwrap();
        assert!(like.create.temporary && like.create.if_not_exists && like.create.on_commit == Some(OnCommit::Drop));
        assert_eq!((like.create.name.to_string(), like.of.to_string()), ("a.t".into(), "public.u".into()));
        let all = LikeOptions {
            comments: true,
            constraints: true,
            defaults: true,
            generated: true,
            identity: true,
            indexes: false,
        };
        assert_eq!(like.including, all);
        assert_eq!(read("create table t (like u)").unwrap().including, LikeOptions::default());
    }

    #[test]
    fn what_tables_do_not_have_is_refused() {
        for (sql, want) in [
            ("CREATE TABLE t (LIKE u INCLUDING STORAGE)", state::FEATURE_NOT_SUPPORTED),
            ("CREATE TABLE t (LIKE u, a int)", state::FEATURE_NOT_SUPPORTED),
            ("CREATE TABLE t (LIKE u INCLUDING colours)", state::SYNTAX_ERROR),
            ("CREATE TABLE t (LIKE u) ON COMMIT WAIT", state::SYNTAX_ERROR),
            ("CREATE TABLE t (LIKE)", state::SYNTAX_ERROR),
        ] {
            assert_eq!(parse(sql).unwrap_err().state(), want, "{sql}");
        }
    }
}
