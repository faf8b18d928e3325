//! How does text become statements, whatever the text is?
//!
//! ```text
//! text ──> its size ──> tokens, split as Postgres splits them ──> sqlparser, in our dialect ──> statements
//!             │ too large: 54000      (tokens.rs)                     (dialect.rs) │ too deep, too many readings: 54000
//! ```
//!
//! What sqlparser does not know is written in its words before it reads (`respelled`, `assigned_parts`, `copy`), or
//! taken out (`copy_option`, `overriding`, `deferrable`, `row_locks`); what it reads in two ways is said in one behind
//! (`accepted`,
//! `select_into`, `with_change`); what runs as several statements is taken apart (`parts`).
//!
//! Every parse of the product comes through [`parse_with`]: one grammar, one set of bounds. A statement is never
//! printed and parsed again.
//!
//! Invariants: the time of a parse is proportional to its tokens, its memory too, and what it gives is at most so deep
//! that the stacks of [`STACK_BYTES`] and [`CONNECTION_STACK_BYTES`] hold whatever walks, copies or drops it.

mod accepted;
mod assigned_parts;
mod calls;
mod copy;
mod copy_option;
mod deferrable;
mod dialect;
mod explain;
mod frames;
mod groupings;
mod identity;
mod limits;
mod merge;
mod null_asks;
mod overriding;
mod parts;
mod plain_query;
mod respelled;
mod row_locks;
mod select_into;
mod tokens;
mod with_change;

#[cfg(test)]
mod tests;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::sqlparser::ast::{Ident, Statement};
use crate::sqlparser::parser::{Parser, ParserError};
use crate::sqlparser::tokenizer::{Token, TokenWithSpan};

pub use self::accepted::{ParsedStatement, WITH_TIES, check, read, statement};
pub use self::assigned_parts::ASSIGNED;
pub use self::calls::{CURRENT_OF, call};
pub use self::copy_option::{OwnCopy, copy_on_conflict};
pub use self::deferrable::{begins_deferrable, deferrable, sets_deferrable};
use self::dialect::{Bounds, PgDialect};
pub use self::frames::EXCLUDING;
pub use self::groupings::{GROUPING_SETS, NO_KEYS};
pub use self::limits::{
    CONNECTION_STACK_BYTES, Limit, MAX_CHAIN, MAX_COMPUTED, MAX_GROUPINGS, MAX_KEYS, MAX_LOOKS, MAX_NESTING,
    MAX_QUERIES, MAX_SELECTED, MAX_SELECTS, MAX_TABLES, MAX_TERMS, MAX_TOKENS, SMALL_BYTES, STACK_BYTES,
};
pub(crate) use self::plain_query::{query_of, select_of};

pub use self::overriding::{Overriding, overriding};
pub use self::parts::{ParsedInput, WithPart, WithStatement, put_tables, sent};
pub use self::row_locks::{RowLocks, row_locks};

/// Why a text is no statement of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParseError {
    /// It is no SQL.
    Syntax(ParserError),
    /// It is more than one text may be.
    TooLarge(Limit),
    /// It says something that is not understood.
    Refused {
        /// The clause.
        what: String,
        /// What to do instead.
        remedy: &'static str,
    },
}

impl From<ParserError> for ParseError {
    fn from(error: ParserError) -> ParseError {
        match error {
            ParserError::RecursionLimitExceeded => ParseError::TooLarge(Limit::Nesting),
            error => ParseError::Syntax(error),
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParseError::Syntax(error) => error.fmt(f),
            ParseError::TooLarge(limit) => limit.fmt(f),
            ParseError::Refused { what, remedy } => write!(f, "{what} is not supported: {remedy}"),
        }
    }
}

impl std::error::Error for ParseError {}

/// All statements of a text; empty ones vanish.
///
/// Errors: as [`parse_with`] and [`statement`].
pub fn statements(sql: &str) -> Result<Vec<Statement>, ParseError> {
    parse_with(sql, |parser| {
        let mut statements = Vec::new();
        while let Some(statement) = next_statement(parser, statement)? {
            statements.push(statement);
        }
        Ok(statements)
    })
}

/// Postgres' folding of identifiers: lower case unless quoted.
pub fn fold(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

/// What `read` makes of the next statement; `None` at the end. Between statements there is a semicolon.
pub fn next_statement<T, E: From<ParseError>>(
    parser: &mut Parser<'_>,
    read: impl FnOnce(&mut Parser<'_>) -> Result<T, E>,
) -> Result<Option<T>, E> {
    while parser.consume_token(&Token::SemiColon) {}
    if parser.peek_token_ref().token == Token::EOF {
        return Ok(None);
    }
    let statement = read(parser)?;
    let next = parser.peek_token_ref();
    if next.token != Token::EOF && next.token != Token::SemiColon {
        let error = ParserError::ParserError(format!("at or near \"{}\"{}", next.token, next.span.start));
        return Err(ParseError::Syntax(error).into());
    }
    Ok(Some(statement))
}

/// Reads a text with `read`, which gets a parser at its beginning.
///
/// Errors: a limit of this module; what `read` says. Cost: proportional to the tokens of the text.
pub fn parse_with<T, E: From<ParseError>>(
    sql: &str,
    read: impl FnOnce(&mut Parser<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let size = tokens::size(sql)?;
    let dialect = PgDialect::new(Bounds::of(size.n_tokens));
    bounded(&dialect, || {
        let mut tokens = tokens::tokens(&dialect, sql, &size)?;
        copy::spell_booleans(&mut tokens);
        frames::write_frames(&mut tokens);
        groupings::write_groupings(&mut tokens);
        respelled::respell(&mut tokens);
        assigned_parts::write_assigned(&mut tokens);
        read(&mut parser_of(&dialect, tokens))
    })
}

/// Reads tokens of a text with `read`, as [`parse_with`] reads all of them.
fn parse_tokens<T, E: From<ParseError>>(
    dialect: &PgDialect,
    tokens: Vec<TokenWithSpan>,
    read: impl FnOnce(&mut Parser<'_>) -> Result<T, E>,
) -> Result<T, E> {
    bounded(dialect, || read(&mut parser_of(dialect, tokens)))
}

fn parser_of(dialect: &PgDialect, tokens: Vec<TokenWithSpan>) -> Parser<'_> {
    // The parser refuses what is nested as deeply as its limit.
    Parser::new(dialect).with_recursion_limit(MAX_NESTING).with_tokens_with_locations(tokens)
}

/// What a parse gives, or the limit that its dialect stopped it at.
fn bounded<T, E: From<ParseError>>(dialect: &PgDialect, parse: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let parsed = catch_unwind(AssertUnwindSafe(parse));
    match (parsed, dialect.refused()) {
        (Ok(Ok(parsed)), _) => Ok(parsed),
        // Whatever the parser made of it: this is why it stopped.
        (_, Some(limit)) => Err(ParseError::TooLarge(limit).into()),
        (Ok(Err(error)), None) => Err(error),
        (Err(panic), None) => resume_unwind(panic),
    }
}
