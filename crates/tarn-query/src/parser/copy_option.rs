//! How is `COPY t FROM STDIN WITH (on_conflict = skip)` read? sqlparser knows PostgreSQL's options alone, so ours is
//! taken out of the tokens, and what is left is read as ever.

use crate::sqlparser::ast::Statement;
use crate::sqlparser::parser::{Parser, ParserError};
use crate::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::accepted::check;
use super::copy::is_word;
use super::dialect::{Bounds, PgDialect};
use super::{ParseError, parse_tokens};

/// A COPY, and what its option says.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnCopy {
    /// Without the option.
    pub statement: Statement,
    /// The word behind `on_conflict`, in lower case.
    pub on_conflict: String,
}

/// The next statement, if it is a COPY of a table with the option `on_conflict`. Of any other nothing is read.
///
/// Errors: as those of [`super::statement`], about what is left without it.
pub fn copy_on_conflict(parser: &mut Parser<'_>) -> Result<Option<OwnCopy>, ParseError> {
    if !is_word(&parser.peek_token_ref().token, "copy") {
        return Ok(None);
    }
    // What fails here is read anew, by others.
    let taken = parser.maybe_parse(|parser| {
        let mut tokens = Vec::new();
        while !matches!(parser.peek_token_ref().token, Token::EOF | Token::SemiColon) {
            tokens.push(parser.next_token());
        }
        take_option(tokens).ok_or_else(|| ParserError::ParserError("another COPY".to_owned()))
    })?;
    let Some((tokens, on_conflict)) = taken else { return Ok(None) };
    let dialect = PgDialect::new(Bounds::of(tokens.len()));
    let statement = parse_tokens(&dialect, tokens, |parser| {
        let statement = parser.parse_statement()?;
        parser.expect_token(&Token::EOF)?;
        Ok::<_, ParseError>(statement)
    })?;
    check(&statement)?;
    Ok(Some(OwnCopy { statement, on_conflict }))
}

/// The tokens without `on_conflict = word`, and the word. `None`: it is not there.
fn take_option(mut tokens: Vec<TokenWithSpan>) -> Option<(Vec<TokenWithSpan>, String)> {
    let at = place(&tokens)?;
    let has_equals = tokens.get(at + 1).is_some_and(|token| token.token == Token::Eq);
    let value_at = at + 1 + usize::from(has_equals);
    let value = match &tokens.get(value_at)?.token {
        Token::Word(word) => word.value.to_lowercase(),
        Token::SingleQuotedString(text) => text.to_lowercase(),
        _ => return None,
    };
    let (before, behind) = (tokens[at - 1].token.clone(), tokens.get(value_at + 1)?.token.clone());
    let gone = match (before, behind) {
        // The only option goes with its parentheses.
        (Token::LParen, Token::RParen) => at - 1..value_at + 2,
        (_, Token::RParen) => at - 1..value_at + 1,
        (_, Token::Comma) => at..value_at + 2,
        _ => return None,
    };
    tokens.drain(gone);
    Some((tokens, value))
}

/// Where the option stands: in parentheses behind `FROM` or `TO`, and not as a column of the table.
fn place(tokens: &[TokenWithSpan]) -> Option<usize> {
    let (mut depth, mut is_behind) = (0_usize, false);
    for (at, TokenWithSpan { token, .. }) in tokens.iter().enumerate() {
        match token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.checked_sub(1)?,
            token if depth == 0 && (is_word(token, "from") || is_word(token, "to")) => is_behind = true,
            token if is_behind && depth == 1 && is_word(token, "on_conflict") => {
                let is_first = matches!(tokens[at - 1].token, Token::LParen | Token::Comma);
                return is_first.then_some(at);
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::{next_statement, parse_with};

    fn read(sql: &str) -> Option<(String, String)> {
        let copy = parse_with(sql, |parser| next_statement(parser, copy_on_conflict)).unwrap();
        copy.flatten().map(|copy| (copy.statement.to_string(), copy.on_conflict))
    }

    #[test]
    fn the_option_of_our_own_is_taken_out_wherever_it_stands() {
        let plain = |sql: &str| statement_text(sql);
        for (sql, rest, word) in [
            ("COPY t FROM STDIN WITH (on_conflict = skip)", "COPY t FROM STDIN", "skip"),
            (
                "copy t (a, on_conflict) from stdin (ON_CONFLICT 'Replace')",
                "COPY t (a, on_conflict) FROM STDIN",
                "replace",
            ),
            (
                "COPY t FROM STDIN WITH (FORMAT csv, on_conflict error, HEADER true)",
                "COPY t FROM STDIN WITH (FORMAT csv, HEADER true)",
                "error",
            ),
            ("COPY t FROM STDIN (FORMAT csv, on_conflict = x);", "COPY t FROM STDIN (FORMAT csv)", "x"),
            ("COPY t FROM STDIN (on_conflict = x, FORMAT csv)", "COPY t FROM STDIN (FORMAT csv)", "x"),
        ] {
            assert_eq!(read(sql), Some((plain(rest), word.to_owned())), "{sql}");
        }
    }

    #[test]
    fn any_other_statement_is_left_alone() {
        for sql in [
            "COPY t FROM STDIN",
            "COPY t (on_conflict) FROM STDIN",
            "SELECT on_conflict FROM t",
            "COPY (SELECT 1) TO STDOUT",
        ] {
            let untouched = parse_with(sql, |parser| {
                let first = parser.peek_token_ref().clone();
                assert_eq!(copy_on_conflict(parser)?, None, "{sql}");
                Ok::<_, ParseError>(*parser.peek_token_ref() == first)
            });
            assert!(untouched.unwrap(), "{sql}");
        }
    }

    fn statement_text(sql: &str) -> String {
        crate::parser::statements(sql).unwrap().remove(0).to_string()
    }
}
