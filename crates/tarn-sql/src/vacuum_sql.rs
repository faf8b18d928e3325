//! What do `VACUUM` and `ANALYZE` ask for? An option that would change nothing of what is done is refused; one that is
//! said to be off is what it is.

use datafusion::sql::sqlparser::ast::{Ident, ObjectName};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::error::{Result, SqlError, state};
use crate::names::{is_word, near, take};

/// Options of `VACUUM` that are there in PostgreSQL, and change nothing here.
const OF_VACUUM: [&str; 8] = [
    "full",
    "freeze",
    "verbose",
    "disable_page_skipping",
    "skip_locked",
    "process_toast",
    "process_main",
    "skip_database_stats",
];

/// The same of `ANALYZE`.
const OF_ANALYZE: [&str; 2] = ["verbose", "skip_locked"];

/// Options of `VACUUM` that say how, and are on by default or take a number: of these every form is refused.
const HOW: [&str; 5] = ["index_cleanup", "truncate", "parallel", "only_database_stats", "buffer_usage_limit"];

/// One of both.
#[derive(Debug, Clone, PartialEq)]
pub struct Vacuum {
    /// Whether files are written and merged. Else it is an `ANALYZE`, to which there is nothing: what it would count is
    /// known exactly.
    pub vacuums: bool,
    /// None are named: all.
    pub tables: Vec<Vacuumed>,
}

/// A table that it names.
#[derive(Debug, Clone, PartialEq)]
pub struct Vacuumed {
    /// As it was written.
    pub name: ObjectName,
    /// Those to be analysed.
    pub columns: Vec<Ident>,
}

impl Vacuum {
    /// The command tag of its answer.
    pub fn tag(&self) -> &'static str {
        if self.vacuums { "VACUUM" } else { "ANALYZE" }
    }
}

/// Reads one of both. `None`: it is another statement, and nothing of it was read.
///
/// Errors: `0A000` for options that would change nothing; `42601`.
pub fn vacuum(parser: &mut Parser<'_>) -> Result<Option<Vacuum>> {
    let vacuums = take(parser, "vacuum");
    if !vacuums && !take(parser, "analyze") && !take(parser, "analyse") {
        return Ok(None);
    }
    let mut analyzes = !vacuums;
    if parser.consume_token(&Token::LParen) {
        loop {
            analyzes |= option(parser, vacuums)?;
            if !parser.consume_token(&Token::Comma) {
                break;
            }
        }
        parser.expect_token(&Token::RParen)?;
    } else {
        for word in ["full", "freeze", "verbose"] {
            if (vacuums || word == "verbose") && take(parser, word) {
                return Err(refused(vacuums, word));
            }
        }
        analyzes |= vacuums && (take(parser, "analyze") || take(parser, "analyse"));
    }
    let mut tables = vec![];
    if !matches!(parser.peek_token_ref().token, Token::EOF | Token::SemiColon) {
        tables = parser.parse_comma_separated(table)?;
    }
    if !analyzes && tables.iter().any(|table| !table.columns.is_empty()) {
        let message = "ANALYZE option must be specified when a column list is provided";
        return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message).with_hint("VACUUM (ANALYZE) t (a, b)"));
    }
    Ok(Some(Vacuum { vacuums, tables }))
}

fn table(parser: &mut Parser<'_>) -> std::result::Result<Vacuumed, ParserError> {
    let name = parser.parse_object_name(false)?;
    let mut columns = vec![];
    if parser.consume_token(&Token::LParen) {
        columns = parser.parse_comma_separated(Parser::parse_identifier)?;
        parser.expect_token(&Token::RParen)?;
    }
    Ok(Vacuumed { name, columns })
}

/// One of those in parentheses; whether it is ANALYZE, and on.
fn option(parser: &mut Parser<'_>, vacuums: bool) -> Result<bool> {
    let token = parser.next_token().token;
    let Token::Word(word) = &token else { return Err(near(&token)) };
    let name = word.value.to_lowercase();
    let value = match &parser.peek_token_ref().token {
        Token::Comma | Token::RParen => None,
        _ => Some(parser.next_token().token),
    };
    let name = name.as_str();
    let is_analyze = vacuums && matches!(name, "analyze" | "analyse");
    let says_how = vacuums && HOW.contains(&name);
    let can_be_off = if vacuums { OF_VACUUM.contains(&name) } else { OF_ANALYZE.contains(&name) };
    if !(can_be_off || is_analyze || says_how) {
        let of = if vacuums { "VACUUM" } else { "ANALYZE" };
        return Err(SqlError::new(state::SYNTAX_ERROR, format!("unrecognized {of} option \"{name}\"")));
    }
    if says_how {
        return Err(refused(vacuums, name));
    }
    let is_on = match &value {
        None => true,
        Some(Token::Number(number, _)) if number == "0" || number == "1" => number == "1",
        Some(token) if is_word(token, "true") || is_word(token, "on") => true,
        Some(token) if is_word(token, "false") || is_word(token, "off") => false,
        Some(Token::SingleQuotedString(text)) if ["true", "on"].contains(&text.to_lowercase().as_str()) => true,
        Some(Token::SingleQuotedString(text)) if ["false", "off"].contains(&text.to_lowercase().as_str()) => false,
        Some(_) => return Err(SqlError::new(state::SYNTAX_ERROR, format!("{name} requires a Boolean value"))),
    };
    if is_on && can_be_off {
        return Err(refused(vacuums, name));
    }
    Ok(is_analyze && is_on)
}

fn refused(vacuums: bool, option: &str) -> SqlError {
    let (of, remedy) = match vacuums {
        true => ("VACUUM", "leave it out: VACUUM [ANALYZE] t delivers and compacts the table"),
        false => ("ANALYZE", "leave it out: counts and bounds are always exact, and nothing is done"),
    };
    SqlError::unsupported(format!("{of} … {}", option.to_uppercase()), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::{ParsedSql, parse};

    #[test]
    fn both_with_their_options_and_tables() {
        let of = |sql: &str| match parse(sql).unwrap_or_else(|error| panic!("{sql}: {error}")).remove(0) {
            ParsedSql::Vacuum(vacuum) => {
                let tables = vacuum.tables.iter().map(|of| format!("{}/{}", of.name, of.columns.len()));
                (vacuum.vacuums, tables.collect::<Vec<_>>().join(" "))
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(of("VACUUM"), (true, String::new()));
        assert_eq!(of("vacuum analyze pgbench_branches"), (true, "pgbench_branches/0".into()));
        assert_eq!(of("VACUUM (ANALYZE, FULL off, verbose false) a (x, y), public.b"), (true, "a/2 public.b/0".into()));
        assert_eq!(of("ANALYZE"), (false, String::new()));
        assert_eq!(of("ANALYZE (VERBOSE 0) a, b (c)"), (false, "a/0 b/1".into()));
        for (sql, want) in [
            ("VACUUM FULL a", state::FEATURE_NOT_SUPPORTED),
            ("VACUUM (FREEZE) a", state::FEATURE_NOT_SUPPORTED),
            ("VACUUM (PARALLEL 2) a", state::FEATURE_NOT_SUPPORTED),
            ("VACUUM a (x)", state::FEATURE_NOT_SUPPORTED),
            ("ANALYZE VERBOSE a", state::FEATURE_NOT_SUPPORTED),
            ("VACUUM (nonsense) a", state::SYNTAX_ERROR),
            ("ANALYZE (full) a", state::SYNTAX_ERROR),
            ("VACUUM (analyze maybe) a", state::SYNTAX_ERROR),
            ("VACUUM (analyze a", state::SYNTAX_ERROR),
            ("VACUUM a b", state::SYNTAX_ERROR),
        ] {
            assert_eq!(parse(sql).expect_err(sql).state(), want, "{sql}");
        }
    }
}
