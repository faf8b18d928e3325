//! How is `COPY t FROM STDIN WITH (on_conflict = skip)` read? sqlparser knows PostgreSQL's options alone, so ours is taken out of the tokens,
//! and what is left is read as ever.

use crate::sqlparser::ast::Statement;
use crate::sqlparser::parser::{Parser, ParserError};
use crate::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::dialect::{Bounds, PgDialect};
use super::{ParseError, check, parse_tokens};

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

/// The next statement, if it is a COPY: what is behind its semicolon are other statements. sqlparser takes it for rows, and throws away what does not look like
/// them. Of any other statement nothing is read.
pub(super) fn copy_alone(parser: &mut Parser<'_>) -> Result<Option<Statement>, ParseError> {
    if !is_word(&parser.peek_token_ref().token, "copy") {
        return Ok(None);
    }
    let mut tokens = Vec::new();
    while !matches!(parser.peek_token_ref().token, Token::EOF | Token::SemiColon) {
        tokens.push(parser.next_token());
    }
    let dialect = PgDialect::new(Bounds::of(tokens.len()));
    parse_tokens(&dialect, tokens, |parser| {
        let statement = parser.parse_statement()?;
        parser.expect_token(&Token::EOF)?;
        Ok(Some(statement))
    })
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

/// Writes `FREEZE on` and `HEADER off` of COPYs as `TRUE` and `FALSE`, which are what sqlparser knows of them. Looks at the options alone: elsewhere
/// `header ON` may be a join.
pub(super) fn spell_booleans(tokens: &mut [TokenWithSpan]) {
    let (mut is_copy, mut begins, mut is_behind, mut depth) = (false, true, false, 0_usize);
    // Whether an option may begin here, and whether one has.
    let (mut may_begin, mut is_named) = (false, false);
    for TokenWithSpan { token, .. } in tokens {
        match &*token {
            Token::Whitespace(_) => continue,
            Token::SemiColon => {
                (is_copy, begins, is_behind, depth) = (false, true, false, 0);
                (may_begin, is_named) = (false, false);
                continue;
            }
            token if begins => is_copy = is_word(token, "copy"),
            _ if !is_copy => {}
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            token if depth == 0 && (is_word(token, "from") || is_word(token, "to")) => is_behind = true,
            _ => {}
        }
        begins = false;
        let is_name = may_begin && (is_word(token, "freeze") || is_word(token, "header"));
        may_begin = is_copy && is_behind && depth == 1 && matches!(token, Token::LParen | Token::Comma);
        let spelled = match is_named {
            true if is_word(token, "on") => Some("TRUE"),
            true if is_word(token, "off") => Some("FALSE"),
            _ => None,
        };
        is_named = is_name;
        if let Some(word) = spelled {
            *token = Token::make_keyword(word);
        }
    }
}

fn is_word(token: &Token, text: &str) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::{next_statement, parse_with};

    #[test]
    fn what_follows_a_copy_is_no_row_of_it() {
        let n_statements = |sql: &str| crate::parser::statements(sql).map(|all| all.len());
        assert_eq!(n_statements("SELECT 0; COPY t FROM STDIN; COPY t FROM STDIN; SELECT 1").unwrap(), 4);
        assert_eq!(n_statements("COPY t FROM STDIN;").unwrap(), 1);
        assert!(n_statements("COPY t FROM STDIN;\n1\tx\n\\.\n").is_err());
    }

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

    #[test]
    fn options_that_are_on_or_off_are_read() {
        for (sql, want) in [
            ("SELECT 1; COPY t FROM STDIN WITH (freeze on)", "COPY t FROM STDIN WITH (FREEZE TRUE)"),
            (
                "COPY t (header) FROM STDIN (FORMAT csv, HEADER off, freeze)",
                "COPY t (header) FROM STDIN (FORMAT csv, HEADER false, FREEZE)",
            ),
            (
                "COPY (SELECT 1 FROM a JOIN header ON true) TO STDOUT (HEADER On)",
                "COPY (SELECT 1 FROM a JOIN header ON true) TO STDOUT (HEADER true)",
            ),
        ] {
            let read = crate::parser::statements(sql).unwrap().pop().map(|statement| statement.to_string());
            assert_eq!(read, Some(statement_text(want)), "{sql}");
        }
        assert!(crate::parser::statements("COPY t FROM STDIN (FORMAT on)").is_ok());
        assert!(crate::parser::statements("COPY t FROM STDIN (DELIMITER on)").is_err());
    }

    fn statement_text(sql: &str) -> String {
        crate::parser::statements(sql).unwrap().remove(0).to_string()
    }
}
