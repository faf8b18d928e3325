//! What do `DECLARE … CURSOR`, `FETCH` and `MOVE` say? The parser knows only some of PostgreSQL's forms: its own order
//! of options, `FROM` always.

use datafusion::sql::sqlparser::ast::Statement;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::error::{Result, SqlError, state};
use crate::lock_sql::LockRows;
use crate::names::{fold, is_word, near, take};

/// A cursor that somebody asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct DeclareCursor {
    /// By which FETCH means it.
    pub name: String,
    /// Its rows are told in PostgreSQL's binary forms.
    pub is_binary: bool,
    /// SCROLL, NO SCROLL, or neither.
    pub scroll: Option<bool>,
    /// It outlives its transaction, with its rows.
    pub is_holdable: bool,
    /// What it goes over.
    pub query: Box<Statement>,
    /// Its query with the rows that it locks, FOR UPDATE or FOR SHARE.
    pub lock: Option<Box<LockRows>>,
    /// As it was written.
    pub text: String,
}

/// What is before its query.
#[derive(Debug, Default)]
pub struct DeclareHeader {
    name: String,
    is_binary: bool,
    scroll: Option<bool>,
    is_holdable: bool,
    is_insensitive: bool,
}

/// `FETCH` or `MOVE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetch {
    pub cursor: String,
    /// Where it goes, and which rows it gives on the way.
    pub step: FetchStep,
    /// The rows are not answered.
    pub is_move: bool,
}

/// Which way, and how far. Rows are numbered from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchStep {
    /// The next so many rows, or, below 0, those before; 0 is the row that it stands on.
    By(i64),
    /// All that are left.
    AllForward,
    /// All that it passed, the last first.
    AllBackward,
    /// The row of this number; below 0 counted from the last one.
    Absolute(i64),
    /// The row so many further.
    Relative(i64),
}

impl DeclareHeader {
    /// With the query that follows it.
    pub fn of(self, query: Statement, text: String) -> DeclareCursor {
        let DeclareHeader { name, is_binary, scroll, is_holdable, is_insensitive: _ } = self;
        DeclareCursor { name, is_binary, scroll, is_holdable, query: Box::new(query), lock: None, text }
    }

    /// With a query that locks.
    ///
    /// Errors: `0A000`, `42P11` for options that such a cursor does not have, as in PostgreSQL.
    pub fn locking(self, lock: LockRows, text: String) -> Result<DeclareCursor> {
        let what = lock.what();
        let refused =
            |option: &str| Err(SqlError::unsupported(format!("DECLARE {option} … {what}"), "leave one of both out"));
        if self.is_holdable {
            return refused("CURSOR WITH HOLD");
        }
        if self.scroll == Some(true) {
            return refused("SCROLL CURSOR");
        }
        if self.is_insensitive {
            let message = format!("DECLARE INSENSITIVE CURSOR ... {what} is not valid");
            let error = SqlError::new(state::INVALID_CURSOR_DEFINITION, message);
            return Err(error.with_detail("Insensitive cursors must be READ ONLY."));
        }
        let query = Statement::Query(lock.query.clone());
        Ok(DeclareCursor { lock: Some(Box::new(lock)), ..self.of(query, text) })
    }
}

/// `DECLARE name … CURSOR … FOR`. `None`: it is another statement, and nothing of it was read.
///
/// Errors: `42601`; `42P11` for options that exclude each other.
pub fn head(parser: &mut Parser<'_>) -> Result<Option<DeclareHeader>> {
    if !take(parser, "declare") {
        return Ok(None);
    }
    let mut head = DeclareHeader { name: fold(&parser.parse_identifier()?), ..DeclareHeader::default() };
    let both = |message: &str| SqlError::new(state::INVALID_CURSOR_DEFINITION, message);
    let mut sensitive = None;
    while !take(parser, "cursor") {
        let (slot, value, conflict) = if take(parser, "binary") {
            head.is_binary = true;
            continue;
        } else if take(parser, "scroll") {
            (&mut head.scroll, true, "cannot specify both SCROLL and NO SCROLL")
        } else if is_word(&parser.peek_token_ref().token, "no") {
            parser.next_token();
            expect(parser, "scroll")?;
            (&mut head.scroll, false, "cannot specify both SCROLL and NO SCROLL")
        } else if take(parser, "insensitive") {
            // Both are what cursors are here: what they read is as it was when they were declared.
            (&mut sensitive, false, "cannot specify both INSENSITIVE and ASENSITIVE")
        } else if take(parser, "asensitive") {
            (&mut sensitive, true, "cannot specify both INSENSITIVE and ASENSITIVE")
        } else {
            return Err(near(&parser.peek_token_ref().token));
        };
        if slot.replace(value).is_some_and(|before| before != value) {
            return Err(both(conflict));
        }
    }
    head.is_insensitive = sensitive == Some(false);
    if is_word(&parser.peek_token_ref().token, "with") || is_word(&parser.peek_token_ref().token, "without") {
        head.is_holdable = is_word(&parser.next_token().token, "with");
        expect(parser, "hold")?;
    }
    expect(parser, "for")?;
    let begins = |token: &Token| {
        *token == Token::LParen || ["select", "with", "values", "table"].iter().any(|word| is_word(token, word))
    };
    // Anything else is no query, and may be this statement again, as deep as the text is long.
    if !begins(&parser.peek_token_ref().token) {
        return Err(near(&parser.peek_token_ref().token));
    }
    Ok(Some(head))
}

/// `FETCH [direction] [FROM | IN] name`, and `MOVE`. `None`: it is another statement, and nothing of it was read.
pub fn fetch(parser: &mut Parser<'_>) -> Result<Option<Fetch>> {
    let is_move = is_word(&parser.peek_token_ref().token, "move");
    if !is_move && !is_word(&parser.peek_token_ref().token, "fetch") {
        return Ok(None);
    }
    parser.next_token();
    let step = step(parser)?;
    let _ = take(parser, "from") || take(parser, "in");
    let cursor = fold(&parser.parse_identifier()?);
    Ok(Some(Fetch { cursor, step, is_move }))
}

fn step(parser: &mut Parser<'_>) -> Result<FetchStep> {
    // A cursor may be called like a direction: then it is the last word of the statement.
    let is_name = |parser: &Parser<'_>| {
        matches!(parser.peek_nth_token_ref(1).token, Token::EOF | Token::SemiColon)
            && matches!(parser.peek_token_ref().token, Token::Word(_))
    };
    if is_name(parser) {
        return Ok(FetchStep::By(1));
    }
    if take(parser, "next") {
        return Ok(FetchStep::By(1));
    } else if take(parser, "prior") {
        return Ok(FetchStep::By(-1));
    } else if take(parser, "first") {
        return Ok(FetchStep::Absolute(1));
    } else if take(parser, "last") {
        return Ok(FetchStep::Absolute(-1));
    } else if take(parser, "all") {
        return Ok(FetchStep::AllForward);
    } else if take(parser, "absolute") {
        return count(parser)?.map(FetchStep::Absolute).ok_or_else(|| near(&parser.peek_token_ref().token));
    } else if take(parser, "relative") {
        return count(parser)?.map(FetchStep::Relative).ok_or_else(|| near(&parser.peek_token_ref().token));
    } else if take(parser, "forward") {
        return all_or(parser, FetchStep::AllForward, 1);
    } else if take(parser, "backward") {
        return all_or(parser, FetchStep::AllBackward, -1);
    }
    Ok(FetchStep::By(count(parser)?.unwrap_or(1)))
}

fn all_or(parser: &mut Parser<'_>, all: FetchStep, sign: i64) -> Result<FetchStep> {
    match take(parser, "all") {
        true => Ok(all),
        false => Ok(FetchStep::By(sign * count(parser)?.unwrap_or(1))),
    }
}

/// A number with a sign, of 32 bits.
fn count(parser: &mut Parser<'_>) -> Result<Option<i64>> {
    let sign = match parser.peek_token_ref().token {
        Token::Minus => -1,
        Token::Plus => 1,
        Token::Number(..) => {
            return number(parser).map(Some);
        }
        _ => return Ok(None),
    };
    parser.next_token();
    Ok(Some(sign * number(parser)?))
}

fn number(parser: &mut Parser<'_>) -> Result<i64> {
    let token = parser.next_token().token;
    let number = match &token {
        Token::Number(text, _) => text.parse::<i32>().ok(),
        _ => None,
    };
    number.map(i64::from).ok_or_else(|| near(&token))
}

fn expect(parser: &mut Parser<'_>, word: &str) -> Result<()> {
    match take(parser, word) {
        true => Ok(()),
        false => Err(near(&parser.peek_token_ref().token)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::{ParsedSql, parse};

    #[test]
    fn steps_are_postgres_steps() {
        for (text, want) in [
            ("c", FetchStep::By(1)),
            ("IN c", FetchStep::By(1)),
            ("next from c", FetchStep::By(1)),
            ("PRIOR c", FetchStep::By(-1)),
            ("first from c", FetchStep::Absolute(1)),
            ("LAST IN c", FetchStep::Absolute(-1)),
            ("ABSOLUTE -3 FROM c", FetchStep::Absolute(-3)),
            ("RELATIVE +2 c", FetchStep::Relative(2)),
            ("5 c", FetchStep::By(5)),
            ("-5 FROM c", FetchStep::By(-5)),
            ("ALL FROM c", FetchStep::AllForward),
            ("FORWARD c", FetchStep::By(1)),
            ("FORWARD 0 c", FetchStep::By(0)),
            ("FORWARD ALL c", FetchStep::AllForward),
            ("BACKWARD IN c", FetchStep::By(-1)),
            ("BACKWARD -2 IN c", FetchStep::By(2)),
            ("BACKWARD ALL IN c", FetchStep::AllBackward),
        ] {
            for (verb, is_move) in [("FETCH", false), ("MOVE", true)] {
                let parsed = parse(&format!("{verb} {text}")).unwrap().remove(0);
                let fetch = Fetch { cursor: "c".to_owned(), step: want, is_move };
                assert_eq!(parsed, ParsedSql::Fetch(fetch), "{verb} {text}");
            }
        }
        for text in
            ["FETCH", "FETCH ABSOLUTE FROM c", "FETCH 2147483648 FROM c", "FETCH 1.5 c", "MOVE ALL FROM", "FETCH - c"]
        {
            assert_eq!(parse(text).unwrap_err().state(), "42601", "{text}");
        }
    }

    #[test]
    fn options_come_in_any_order() {
        let parsed = parse("DECLARE c CURSOR FOR SELECT a FROM t FOR UPDATE").unwrap();
        let ParsedSql::Declare(declared) = &parsed[0] else { panic!("{parsed:?}") };
        assert_eq!(declared.lock.as_ref().map(|lock| lock.what()), Some("FOR UPDATE"));
        let parsed =
            parse("DECLARE \"C\" NO SCROLL BINARY INSENSITIVE CURSOR WITH HOLD FOR SELECT 1; SELECT 2").unwrap();
        let ParsedSql::Declare(declared) = &parsed[0] else { panic!("{parsed:?}") };
        assert_eq!((declared.name.as_str(), declared.is_binary, declared.scroll), ("C", true, Some(false)));
        assert!(declared.is_holdable);
        assert!(declared.text.starts_with("DECLARE \"C\"") && declared.text.ends_with("SELECT 1"), "{}", declared.text);
        for (text, state) in [
            ("DECLARE c SCROLL NO SCROLL CURSOR FOR SELECT 1", "42P11"),
            ("DECLARE c ASENSITIVE INSENSITIVE CURSOR FOR SELECT 1", "42P11"),
            ("DECLARE c SCROLL CURSOR FOR SELECT a FROM t FOR SHARE", "0A000"),
            ("DECLARE c CURSOR WITH HOLD FOR SELECT a FROM t FOR UPDATE", "0A000"),
            ("DECLARE c INSENSITIVE CURSOR FOR SELECT a FROM t FOR UPDATE", "42P11"),
            ("DECLARE c CURSOR", "42601"),
            ("DECLARE c CURSOR FOR DELETE FROM t", "42601"),
            ("DECLARE c CURSOR WITH FOR SELECT 1", "42601"),
        ] {
            assert_eq!(parse(text).unwrap_err().state(), state, "{text}");
        }
    }
}
