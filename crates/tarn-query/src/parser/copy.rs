//! How is a COPY read? sqlparser takes what is behind its semicolon for rows, and knows `TRUE` and `FALSE` of
//! PostgreSQL's words for options that are on or off: it gets the tokens of a COPY alone, and those words.

use crate::sqlparser::ast::Statement;
use crate::sqlparser::parser::Parser;
use crate::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::dialect::{Bounds, PgDialect};
use super::{ParseError, parse_tokens};

/// The next statement, if it is a COPY: what is behind its semicolon are other statements. sqlparser takes it for rows,
/// and throws away what does not look like them. Of any other statement nothing is read.
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

/// Writes `FREEZE on` and `HEADER off` of COPYs as `TRUE` and `FALSE`, which are what sqlparser knows of them. Looks at
/// the options alone: elsewhere `header ON` may be a join.
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

pub(super) fn is_word(token: &Token, text: &str) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(text))
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_follows_a_copy_is_no_row_of_it() {
        let n_statements = |sql: &str| crate::parser::statements(sql).map(|all| all.len());
        assert_eq!(n_statements("SELECT 0; COPY t FROM STDIN; COPY t FROM STDIN; SELECT 1").unwrap(), 4);
        assert_eq!(n_statements("COPY t FROM STDIN;").unwrap(), 1);
        assert!(n_statements("COPY t FROM STDIN;\n1\tx\n\\.\n").is_err());
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
