//! How is `INSERT INTO t OVERRIDING SYSTEM VALUE …` read? sqlparser does not know the words: they are taken out of the
//! tokens, and what is left is read as ever. What they say is kept in two fields of the tree that PostgreSQL has no use
//! for.

use crate::sqlparser::ast::{Insert, Statement};
use crate::sqlparser::parser::Parser;
use crate::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::dialect::{Bounds, PgDialect};
use super::{ParseError, ParsedStatement, parse_tokens, read};

/// The words stand among so many tokens, or nobody looks for them: a list of columns is shorter.
const MAX_AHEAD: usize = 8_192;

/// What an INSERT says of columns that are numbered by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overriding {
    /// Values are taken, also where nobody else gives values.
    System,
    /// Values are left out, and numbers are taken.
    User,
}

impl Overriding {
    /// What an INSERT says.
    #[must_use]
    pub fn of(insert: &Insert) -> Option<Overriding> {
        match (insert.ignore, insert.overwrite) {
            (true, _) => Some(Overriding::System),
            (_, true) => Some(Overriding::User),
            _ => None,
        }
    }

    fn keep(self, insert: &mut Insert) {
        match self {
            Overriding::System => insert.ignore = true,
            Overriding::User => insert.overwrite = true,
        }
    }
}

/// The next statement, if it is an INSERT that says `OVERRIDING`. Of any other nothing is read.
///
/// Errors: as those of [`super::statement`], about what is left without it.
pub fn overriding(parser: &mut Parser<'_>) -> Result<Option<ParsedStatement>, ParseError> {
    let Some((at, says)) = place(parser) else { return Ok(None) };
    let mut tokens = tokens_of_statement(parser);
    tokens.drain(at..at + 3);
    let mut insert = read_whole(tokens)?;
    if let Statement::Insert(insert) = &mut insert.statement {
        says.keep(insert);
    }
    Ok(Some(insert))
}

/// Takes the tokens of the next statement, without what ends it.
pub(super) fn tokens_of_statement(parser: &mut Parser<'_>) -> Vec<TokenWithSpan> {
    let mut tokens = Vec::new();
    while !matches!(parser.peek_token_ref().token, Token::EOF | Token::SemiColon) {
        tokens.push(parser.next_token());
    }
    tokens
}

/// The statement that tokens are, all of them.
///
/// Errors: as those of [`super::statement`].
pub(super) fn read_whole(tokens: Vec<TokenWithSpan>) -> Result<ParsedStatement, ParseError> {
    let dialect = PgDialect::new(Bounds::of(tokens.len()));
    parse_tokens(&dialect, tokens, |parser| {
        let statement = read(parser)?;
        parser.expect_token(&Token::EOF)?;
        Ok(statement)
    })
}

/// Where the three words stand among the tokens that mean something: behind the table and its columns.
fn place(parser: &Parser<'_>) -> Option<(usize, Overriding)> {
    let is_there = |at: usize, word: &str| is_word(&parser.peek_nth_token_ref(at).token, word);
    if !is_there(0, "insert") {
        return None;
    }
    let mut depth = 0_u32;
    for at in 1..MAX_AHEAD {
        match &parser.peek_nth_token_ref(at).token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            token @ Token::Word(_) if depth == 0 => {
                if is_word(token, "overriding") && is_there(at + 2, "value") {
                    let says = [("system", Overriding::System), ("user", Overriding::User)];
                    return says.into_iter().find(|(word, _)| is_there(at + 1, word)).map(|(_, says)| (at, says));
                }
                if ["values", "select", "with", "default", "table"].iter().any(|word| is_word(token, word)) {
                    return None;
                }
            }
            Token::EOF | Token::SemiColon => return None,
            _ => {}
        }
    }
    None
}

pub(super) fn is_word(token: &Token, text: &str) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::parse_with;

    #[test]
    fn the_words_are_taken_out() {
        let read = |sql: &str| {
            let read = parse_with(sql, overriding).unwrap()?;
            let Statement::Insert(insert) = read.statement else { return None };
            let says = Overriding::of(&insert);
            Some((Insert { ignore: false, overwrite: false, ..insert }.to_string(), says))
        };
        for (sql, rest, says) in [
            ("INSERT INTO t OVERRIDING SYSTEM VALUE VALUES (1)", "INSERT INTO t VALUES (1)", Overriding::System),
            (
                "insert into t (a, overriding) overriding user value select 1, 2;",
                "INSERT INTO t (a, overriding) SELECT 1, 2",
                Overriding::User,
            ),
        ] {
            assert_eq!(read(sql), Some((rest.to_owned(), Some(says))), "{sql}");
        }
        for sql in ["INSERT INTO t (overriding) VALUES (1)", "INSERT INTO t SELECT overriding FROM u", "SELECT 1"] {
            assert_eq!(read(sql), None, "{sql}");
        }
    }
}
