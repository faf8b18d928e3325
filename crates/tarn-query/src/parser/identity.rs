//! How are the options of `GENERATED … AS IDENTITY (START WITH 10 INCREMENT BY 5)` read? In any order, as PostgreSQL
//! takes them: sqlparser wants `INCREMENT` before `START`.

use std::mem::discriminant;

use crate::sqlparser::ast::{ColumnOption, GeneratedAs, SequenceOptions};
use crate::sqlparser::parser::{Parser, ParserError};
use crate::sqlparser::tokenizer::Token;

/// What a column says here of its numbers. `None`: it says something else, and nothing of it was read.
pub(super) fn identity(parser: &mut Parser<'_>) -> Result<Option<ColumnOption>, ParserError> {
    let words = |words: &[&str]| {
        let mut words = words.iter().enumerate();
        words.all(|(at, text)| is_word(&parser.peek_nth_token_ref(at).token, text))
    };
    let (generated_as, n_words) = match () {
        () if words(&["generated", "always", "as", "identity"]) => (GeneratedAs::Always, 4),
        () if words(&["generated", "by", "default", "as", "identity"]) => (GeneratedAs::ByDefault, 5),
        () => return Ok(None),
    };
    (0..n_words).for_each(|_| drop(parser.next_token()));
    let mut options: Vec<SequenceOptions> = vec![];
    if parser.consume_token(&Token::LParen) {
        while options.is_empty() || !parser.consume_token(&Token::RParen) {
            let next = option(parser)?;
            if options.iter().any(|said| discriminant(said) == discriminant(&next)) {
                return Err(ParserError::ParserError("conflicting or redundant options".to_owned()));
            }
            options.push(next);
        }
    }
    Ok(Some(ColumnOption::Generated {
        generated_as,
        sequence_options: Some(options),
        generation_expr: None,
        generation_expr_mode: None,
        generated_keyword: true,
    }))
}

fn option(parser: &mut Parser<'_>) -> Result<SequenceOptions, ParserError> {
    let told = parser.next_token();
    let is = |text: &str| is_word(&told.token, text);
    Ok(match () {
        () if is("increment") => {
            let says_by = took(parser, "by");
            SequenceOptions::IncrementBy(parser.parse_number()?, says_by)
        }
        () if is("start") => {
            let says_with = took(parser, "with");
            SequenceOptions::StartWith(parser.parse_number()?, says_with)
        }
        () if is("minvalue") => SequenceOptions::MinValue(Some(parser.parse_number()?)),
        () if is("maxvalue") => SequenceOptions::MaxValue(Some(parser.parse_number()?)),
        () if is("cache") => SequenceOptions::Cache(parser.parse_number()?),
        // The flag says whether it is NO CYCLE.
        () if is("cycle") => SequenceOptions::Cycle(false),
        () if is("no") && took(parser, "minvalue") => SequenceOptions::MinValue(None),
        () if is("no") && took(parser, "maxvalue") => SequenceOptions::MaxValue(None),
        () if is("no") && took(parser, "cycle") => SequenceOptions::Cycle(true),
        () => return parser.expected("START, INCREMENT, MINVALUE, MAXVALUE, CACHE or CYCLE", told),
    })
}

/// Whether this word was next, which is read then.
fn took(parser: &mut Parser<'_>, text: &str) -> bool {
    let is_next = is_word(&parser.peek_token_ref().token, text);
    if is_next {
        parser.next_token();
    }
    is_next
}

fn is_word(token: &Token, text: &str) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(text))
}

#[cfg(test)]
mod tests {
    use crate::parser::statements;

    #[test]
    fn options_come_in_any_order() {
        let read = |options: &str| {
            let sql = format!("CREATE TABLE t (a INT GENERATED ALWAYS AS IDENTITY {options}PRIMARY KEY, b INT)");
            statements(&sql).map(|mut read| read.remove(0).to_string())
        };
        let of =
            |options: &str| format!("CREATE TABLE t (a INT GENERATED ALWAYS AS IDENTITY {options}PRIMARY KEY, b INT)");
        assert_eq!(read("").unwrap(), of(""));
        assert_eq!(
            read("(start with 10 no cycle increment by -5 minvalue 1 no maxvalue cache 2) ").unwrap(),
            of("( START WITH 10 NO CYCLE INCREMENT BY -5 MINVALUE 1 NO MAXVALUE CACHE 2 ) ")
        );
        assert_eq!(read("(CYCLE START 3) ").unwrap(), of("( CYCLE START 3 ) "));
        for wrong in
            ["() ", "(START 1 START 2) ", "(CYCLE NO CYCLE) ", "(SEQUENCE NAME s) ", "(START) ", "(START 1, CYCLE) "]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
