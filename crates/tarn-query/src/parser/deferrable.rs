//! How is `BEGIN … [NOT] DEFERRABLE` read, and `SET TRANSACTION … [NOT] DEFERRABLE`? sqlparser does not know the words:
//! they are taken out of the tokens, and what is left is read as ever. What they say is kept in two fields of the tree
//! that PostgreSQL has no use for.

use crate::sqlparser::ast::{Set, Statement, TransactionModifier, Value};
use crate::sqlparser::parser::Parser;
use crate::sqlparser::tokenizer::Token;

use super::accepted::wrong;
use super::overriding::{is_word, read_whole, tokens_of_statement};
use super::{ParseError, ParsedStatement};

/// A statement about a transaction has so many tokens at most that mean something, or nobody looks for the words in it.
const MAX_AHEAD: usize = 64;

/// What a BEGIN says. `None`: nothing of it.
#[must_use]
pub fn begins_deferrable(modifier: Option<&TransactionModifier>) -> Option<bool> {
    match modifier {
        Some(TransactionModifier::Deferred) => Some(true),
        Some(TransactionModifier::Immediate) => Some(false),
        _ => None,
    }
}

/// What a `SET TRANSACTION` says, or a `SET SESSION CHARACTERISTICS`. `None`: nothing of it.
#[must_use]
pub fn sets_deferrable(snapshot: Option<&Value>) -> Option<bool> {
    match snapshot {
        Some(Value::Boolean(deferrable)) => Some(*deferrable),
        _ => None,
    }
}

/// The next statement, if it begins or sets a transaction and says `[NOT] DEFERRABLE`. Of any other nothing is read.
///
/// Errors: as those of [`super::statement`], about what is left without it.
pub fn deferrable(parser: &mut Parser<'_>) -> Result<Option<ParsedStatement>, ParseError> {
    if !is_there(parser) {
        return Ok(None);
    }
    let mut tokens = tokens_of_statement(parser);
    // The last one counts, as in PostgreSQL.
    let mut says = true;
    while let Some(at) = tokens.iter().position(|token| is_word(&token.token, "deferrable")) {
        says = at == 0 || !is_word(&tokens[at - 1].token, "not");
        let from = if says { at } else { at - 1 };
        // A comma is before it, or behind it.
        let comma = |at: usize| tokens.get(at).is_some_and(|token| token.token == Token::Comma);
        let (is_before, is_behind) = (from > 0 && comma(from - 1), comma(at + 1));
        let begins = |at: usize| ["begin", "work", "transaction"].iter().any(|word| is_word(&tokens[at].token, word));
        if (is_before && (from < 2 || begins(from - 2))) || (is_behind && at + 2 == tokens.len()) {
            return Err(wrong("at or near \",\""));
        }
        match (is_before, is_behind) {
            (true, _) => drop(tokens.drain(from - 1..=at)),
            (false, true) => drop(tokens.drain(from..=at + 1)),
            (false, false) => drop(tokens.drain(from..=at)),
        }
    }
    let mut statement = read_whole(tokens)?;
    match &mut statement.statement {
        Statement::StartTransaction { modifier, .. } => {
            *modifier = Some(if says { TransactionModifier::Deferred } else { TransactionModifier::Immediate });
        }
        Statement::Set(Set::SetTransaction { snapshot, .. }) => {
            *snapshot = Some(Value::Boolean(says).with_empty_span());
        }
        _ => {}
    }
    Ok(Some(statement))
}

/// Whether the word stands in a statement about a transaction.
fn is_there(parser: &Parser<'_>) -> bool {
    let word = |at: usize, word: &str| is_word(&parser.peek_nth_token_ref(at).token, word);
    let sets = |at: usize| word(at, "transaction") || word(at, "characteristics");
    let is_about_one = word(0, "begin") || word(0, "start") || (word(0, "set") && (sets(1) || sets(2)));
    let ends = |at: usize| matches!(parser.peek_nth_token_ref(at).token, Token::EOF | Token::SemiColon);
    is_about_one && (1..MAX_AHEAD).take_while(|at| !ends(*at)).any(|at| word(at, "deferrable"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::parse_with;

    #[test]
    fn what_is_said_is_kept_and_the_rest_is_read_as_ever() {
        let read = |sql: &str| {
            let read = parse_with(sql, deferrable)?;
            Ok::<_, ParseError>(read.map(|read| match read.statement {
                Statement::StartTransaction { modes, modifier, .. } => {
                    (modes.len(), begins_deferrable(modifier.as_ref()))
                }
                Statement::Set(Set::SetTransaction { modes, snapshot, .. }) => {
                    (modes.len(), sets_deferrable(snapshot.as_ref().map(|value| &value.value)))
                }
                other => panic!("{other}"),
            }))
        };
        for (sql, want) in [
            ("BEGIN DEFERRABLE", Some((0, Some(true)))),
            ("begin transaction isolation level read committed, not deferrable", Some((1, Some(false)))),
            ("START TRANSACTION DEFERRABLE, READ ONLY", Some((1, Some(true)))),
            ("BEGIN READ ONLY DEFERRABLE ISOLATION LEVEL READ COMMITTED; SELECT 1", Some((2, Some(true)))),
            ("SET TRANSACTION NOT DEFERRABLE", Some((0, Some(false)))),
            ("SET SESSION CHARACTERISTICS AS TRANSACTION DEFERRABLE", Some((0, Some(true)))),
            ("BEGIN READ ONLY", None),
            ("SET x = 'deferrable'", None),
            ("SELECT 1; BEGIN DEFERRABLE", None),
        ] {
            assert_eq!(read(sql).unwrap(), want, "{sql}");
        }
        for sql in ["BEGIN DEFERRABLE twice", "BEGIN , DEFERRABLE", "BEGIN DEFERRABLE,"] {
            assert!(read(sql).is_err(), "{sql}");
        }
    }
}
