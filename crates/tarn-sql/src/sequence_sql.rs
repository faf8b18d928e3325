//! What do statements about sequences say?
//!
//! ```sql
//! CREATE SEQUENCE [IF NOT EXISTS] s [AS type] [INCREMENT [BY] n] [MINVALUE n | NO MINVALUE] [MAXVALUE n | NO MAXVALUE] [START [WITH] n]
//!     [CACHE n] [[NO] CYCLE] [OWNED BY t.c | NONE]
//! ALTER SEQUENCE [IF EXISTS] s … [RESTART [[WITH] n]]          DROP SEQUENCE [IF EXISTS] s, … [RESTRICT]
//! ```
//!
//! Read here and not by the SQL parser, which takes the clauses in one order alone and knows no ALTER. What they say is
//! checked as PostgreSQL does, whose messages these are.

use datafusion::sql::sqlparser::ast::{Expr, SequenceOptions};
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;
use tarn_node::sequences::{Owner, Sequence, Width};

use crate::error::{Result, SqlError, state};
use crate::names::{check_name, fold, is_word, near, take, written_name};
use crate::spelled::{data_type, literal};

/// A statement about sequences.
#[derive(Debug, Clone, PartialEq)]
pub enum SequenceSql {
    /// `CREATE SEQUENCE`.
    Create { name: String, if_not_exists: bool, clauses: Clauses },
    /// `ALTER SEQUENCE`: what is not said stays.
    Alter { name: String, if_exists: bool, clauses: Clauses },
    /// `DROP SEQUENCE`, of all or none.
    Drop { names: Vec<String>, if_exists: bool },
}

/// What is said of a sequence. `Some(None)` is `NO …`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Clauses {
    /// Of `AS`.
    pub width: Option<Width>,
    /// Of `INCREMENT BY`.
    pub increment: Option<i64>,
    /// Of `MINVALUE`.
    pub min: Option<Option<i64>>,
    /// Of `MAXVALUE`.
    pub max: Option<Option<i64>>,
    /// Of `START WITH`.
    pub start: Option<i64>,
    /// Of `CACHE`.
    pub cache: Option<i64>,
    /// Whether it begins anew at its end.
    pub cycle: Option<bool>,
    /// `RESTART`: where it began, or here.
    pub restart: Option<Option<i64>>,
    /// Table and column.
    pub owner: Option<Option<(String, String)>>,
}

impl SequenceSql {
    /// The command tag.
    pub fn tag(&self) -> &'static str {
        match self {
            SequenceSql::Create { .. } => "CREATE SEQUENCE",
            SequenceSql::Alter { .. } => "ALTER SEQUENCE",
            SequenceSql::Drop { .. } => "DROP SEQUENCE",
        }
    }

    /// What it is about, for the log of changes.
    pub fn objects(&self) -> String {
        match self {
            SequenceSql::Create { name, .. } | SequenceSql::Alter { name, .. } => name.clone(),
            SequenceSql::Drop { names, .. } => names.join(", "),
        }
    }
}

/// The statement that begins here, if it is about sequences; nothing is taken if it is not.
pub fn sequence(parser: &mut Parser<'_>) -> Result<Option<SequenceSql>> {
    let word = |at: usize, text: &str| is_word(&parser.peek_nth_token_ref(at).token, text);
    if word(0, "create") && (word(1, "temp") || word(1, "temporary")) && word(2, "sequence") {
        return Err(SqlError::unsupported(
            "CREATE TEMPORARY SEQUENCE",
            "a serial column of a temporary table has one; or CREATE SEQUENCE, and DROP it",
        ));
    }
    let verb = ["create", "alter", "drop"].into_iter().find(|verb| word(0, verb) && word(1, "sequence"));
    let Some(verb) = verb else { return Ok(None) };
    parser.next_token();
    parser.next_token();
    Ok(Some(match verb {
        "create" => {
            let if_not_exists = take(parser, "if") && expect(parser, "not")? && expect(parser, "exists")?;
            let name = name(parser)?;
            check_name("sequence", &name)?;
            SequenceSql::Create { name, if_not_exists, clauses: clauses(parser, Of::Create)? }
        }
        "alter" => {
            let if_exists = take(parser, "if") && expect(parser, "exists")?;
            SequenceSql::Alter { name: name(parser)?, if_exists, clauses: clauses(parser, Of::Alter)? }
        }
        _ => {
            let if_exists = take(parser, "if") && expect(parser, "exists")?;
            let mut names = vec![name(parser)?];
            while parser.consume_token(&Token::Comma) {
                names.push(name(parser)?);
            }
            if take(parser, "cascade") {
                return Err(SqlError::unsupported(
                    "DROP SEQUENCE … CASCADE",
                    "drop the table whose column has it as its default, then the sequence",
                ));
            }
            take(parser, "restrict");
            SequenceSql::Drop { names, if_exists }
        }
    }))
}

fn name(parser: &mut Parser<'_>) -> Result<String> {
    written_name(&parser.parse_object_name(false)?)
}

/// Of which statement clauses are a part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Create,
    Alter,
    /// `ALTER TABLE … ALTER COLUMN …`, where `SET` stands before each but `RESTART`.
    Column,
}

/// What `ALTER TABLE … ALTER COLUMN c` says of the sequence of an identity column: `RESTART WITH 5 SET INCREMENT BY 2`.
pub fn column_clauses(parser: &mut Parser<'_>) -> Result<Clauses> {
    clauses(parser, Of::Column)
}

fn clauses(parser: &mut Parser<'_>, of: Of) -> Result<Clauses> {
    let mut found = Clauses::default();
    loop {
        let is_set = of == Of::Column && take(parser, "set");
        let token = parser.peek_token_ref().token.clone();
        if matches!(token, Token::EOF | Token::SemiColon) && !is_set {
            return Ok(found);
        }
        if of == Of::Column && !is_set && !is_word(&token, "restart") {
            return Err(near(&token));
        }
        let Token::Word(word) = &token else { return Err(near(&token)) };
        let word = word.value.to_lowercase();
        parser.next_token();
        let is_twice = match word.as_str() {
            "as" if of != Of::Column => found.width.replace(width(parser)?).is_some(),
            "increment" => {
                take(parser, "by");
                found.increment.replace(number(parser)?).is_some()
            }
            "minvalue" => found.min.replace(Some(number(parser)?)).is_some(),
            "maxvalue" => found.max.replace(Some(number(parser)?)).is_some(),
            "no" if take(parser, "minvalue") => found.min.replace(None).is_some(),
            "no" if take(parser, "maxvalue") => found.max.replace(None).is_some(),
            "no" if take(parser, "cycle") => found.cycle.replace(false).is_some(),
            "cycle" => found.cycle.replace(true).is_some(),
            "start" => {
                take(parser, "with");
                found.start.replace(number(parser)?).is_some()
            }
            "restart" if of != Of::Create => {
                let is_told = take(parser, "with") || is_number(&parser.peek_token_ref().token);
                found.restart.replace(if is_told { Some(number(parser)?) } else { None }).is_some()
            }
            "cache" => found.cache.replace(number(parser)?).is_some(),
            "owned" if of != Of::Column => {
                expect(parser, "by")?;
                found.owner.replace(owner(parser)?).is_some()
            }
            "owner" | "set" if of == Of::Alter => {
                return Err(SqlError::unsupported(
                    format!("ALTER SEQUENCE … {}", word.to_uppercase()),
                    "make another sequence, and setval it",
                ));
            }
            _ => return Err(near(&token)),
        };
        if is_twice {
            return Err(SqlError::new(state::SYNTAX_ERROR, "conflicting or redundant options"));
        }
    }
}

fn owner(parser: &mut Parser<'_>) -> Result<Option<(String, String)>> {
    if take(parser, "none") {
        return Ok(None);
    }
    let mut of = parser.parse_object_name(false)?;
    let column = of.0.pop().and_then(|part| part.as_ident().map(fold));
    match column.filter(|_| !of.0.is_empty()) {
        Some(column) => Ok(Some((written_name(&of)?, column))),
        None => Err(SqlError::new(state::SYNTAX_ERROR, "invalid OWNED BY option")
            .with_hint("Specify OWNED BY table.column or OWNED BY NONE.")),
    }
}

fn width(parser: &mut Parser<'_>) -> Result<Width> {
    width_of(&data_type(&parser.parse_data_type()?)?)
}

/// The numbers of a column's type.
pub fn width_of(data_type: &tarn_types::DataType) -> Result<Width> {
    match data_type {
        tarn_types::DataType::Int16 => Ok(Width::Smallint),
        tarn_types::DataType::Int32 => Ok(Width::Integer),
        tarn_types::DataType::Int64 => Ok(Width::Bigint),
        _ => Err(invalid("sequence type must be smallint, integer, or bigint")),
    }
}

fn is_number(token: &Token) -> bool {
    matches!(token, Token::Number(..) | Token::Minus | Token::Plus)
}

fn number(parser: &mut Parser<'_>) -> Result<i64> {
    whole(&parser.parse_number()?)
}

fn whole(expr: &Expr) -> Result<i64> {
    let text = literal(expr).flatten().unwrap_or_default();
    text.parse().map_err(|_| {
        SqlError::new(state::NUMERIC_OUT_OF_RANGE, format!("value \"{expr}\" is out of range for type bigint"))
    })
}

/// Those of `GENERATED … AS IDENTITY (…)`.
pub fn clauses_of(options: &[SequenceOptions]) -> Result<Clauses> {
    let mut found = Clauses::default();
    for option in options {
        match option {
            SequenceOptions::IncrementBy(by, _) => found.increment = Some(whole(by)?),
            SequenceOptions::MinValue(least) => found.min = Some(least.as_ref().map(whole).transpose()?),
            SequenceOptions::MaxValue(most) => found.max = Some(most.as_ref().map(whole).transpose()?),
            SequenceOptions::StartWith(start, _) => found.start = Some(whole(start)?),
            SequenceOptions::Cache(n) => found.cache = Some(whole(n)?),
            // The parser says whether it is NO CYCLE.
            SequenceOptions::Cycle(is_no) => found.cycle = Some(!is_no),
        }
    }
    Ok(found)
}

impl Clauses {
    /// A new sequence. Of its owner is said elsewhere.
    pub fn made(&self) -> Result<Sequence> {
        let width = self.width.unwrap_or_default();
        let mut sequence = Sequence::ascending(width);
        sequence.increment = self.increment.unwrap_or(1);
        self.limit(&mut sequence, true);
        sequence.start = self.start.unwrap_or(if sequence.increment > 0 { sequence.min } else { sequence.max });
        (sequence.last, sequence.is_called) = (sequence.start, false);
        self.rest(&mut sequence);
        check(&sequence)?;
        Ok(sequence)
    }

    /// Changes one that is there.
    pub fn alter(&self, sequence: &mut Sequence) -> Result<()> {
        if let Some(width) = self.width {
            // Limits that were those of the old type become those of the new one.
            let old = std::mem::replace(&mut sequence.width, width);
            if sequence.max == old.most() {
                sequence.max = width.most();
            }
            if sequence.min == old.least() {
                sequence.min = width.least();
            }
        }
        sequence.increment = self.increment.unwrap_or(sequence.increment);
        self.limit(sequence, false);
        sequence.start = self.start.unwrap_or(sequence.start);
        if let Some(restart) = self.restart {
            (sequence.last, sequence.is_called) = (restart.unwrap_or(sequence.start), false);
        }
        self.rest(sequence);
        check(sequence)
    }

    fn limit(&self, sequence: &mut Sequence, is_new: bool) {
        let is_up = sequence.increment > 0;
        let least = if is_up { 1 } else { sequence.width.least() };
        let most = if is_up { sequence.width.most() } else { -1 };
        match self.min {
            Some(min) => sequence.min = min.unwrap_or(least),
            None if is_new => sequence.min = least,
            None => {}
        }
        match self.max {
            Some(max) => sequence.max = max.unwrap_or(most),
            None if is_new => sequence.max = most,
            None => {}
        }
    }

    fn rest(&self, sequence: &mut Sequence) {
        sequence.cache = self.cache.unwrap_or(sequence.cache);
        sequence.cycle = self.cycle.unwrap_or(sequence.cycle);
        if let Some(owner) = &self.owner {
            let owned = |(table, column): &(String, String)| Owner {
                table: table.clone(),
                table_id: None,
                column: column.clone(),
                column_id: None,
                is_identity: false,
            };
            sequence.owner = owner.as_ref().map(owned);
        }
    }
}

fn check(of: &Sequence) -> Result<()> {
    if of.increment == 0 {
        return Err(invalid("INCREMENT must not be zero"));
    }
    let within = of.width.least()..=of.width.most();
    for (word, limit) in [("MAXVALUE", of.max), ("MINVALUE", of.min)] {
        if !within.contains(&limit) {
            let name = of.width.name();
            return Err(invalid(format!("{word} ({limit}) is out of range for sequence data type {name}")));
        }
    }
    if of.min >= of.max {
        return Err(invalid(format!("MINVALUE ({}) must be less than MAXVALUE ({})", of.min, of.max)));
    }
    for (word, value) in [("START", of.start), ("RESTART", of.last)] {
        if value < of.min {
            return Err(invalid(format!("{word} value ({value}) cannot be less than MINVALUE ({})", of.min)));
        }
        if value > of.max {
            return Err(invalid(format!("{word} value ({value}) cannot be greater than MAXVALUE ({})", of.max)));
        }
    }
    if of.cache <= 0 {
        return Err(invalid(format!("CACHE ({}) must be greater than zero", of.cache)));
    }
    Ok(())
}

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(state::INVALID_PARAMETER_VALUE, message)
}

/// True, or an error.
fn expect(parser: &mut Parser<'_>, text: &str) -> Result<bool> {
    if take(parser, text) { Ok(true) } else { Err(near(&parser.peek_token_ref().token)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::{ParsedSql, parse};

    fn of(sql: &str) -> Result<SequenceSql> {
        match parse(sql)?.remove(0) {
            ParsedSql::Sequence(sequence) => Ok(*sequence),
            other => panic!("{sql}: {other:?}"),
        }
    }

    fn made(clauses: &str) -> Result<Sequence> {
        match of(&format!("CREATE SEQUENCE s {clauses}"))? {
            SequenceSql::Create { clauses, .. } => clauses.made(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn clauses_come_in_any_order() {
        let sequence =
            made("START 10 AS smallint CACHE 5 NO CYCLE INCREMENT BY 2 MAXVALUE 20 OWNED BY t.\"C\"").unwrap();
        assert_eq!((sequence.start, sequence.last, sequence.increment, sequence.max), (10, 10, 2, 20));
        assert_eq!((sequence.width, sequence.cache, sequence.min), (Width::Smallint, 5, 1));
        assert_eq!(
            sequence.owner,
            Some(Owner { table: "t".into(), table_id: None, column: "C".into(), column_id: None, is_identity: false })
        );
        let down = made("INCREMENT -1").unwrap();
        assert_eq!((down.start, down.max, down.min), (-1, -1, i64::MIN));
        assert_eq!(
            of("drop sequence if exists a, B restrict").unwrap(),
            SequenceSql::Drop { names: vec!["a".into(), "b".into()], if_exists: true }
        );
    }

    #[test]
    fn what_is_altered_keeps_the_rest() {
        let mut sequence = made("AS integer MAXVALUE 2147483647 START 5").unwrap();
        sequence.is_called = true;
        let SequenceSql::Alter { clauses, .. } = of("ALTER SEQUENCE s AS bigint RESTART").unwrap() else { panic!() };
        clauses.alter(&mut sequence).unwrap();
        assert_eq!((sequence.last, sequence.is_called, sequence.max), (5, false, i64::MAX));
        let SequenceSql::Alter { clauses, .. } = of("ALTER SEQUENCE s RESTART WITH 7").unwrap() else { panic!() };
        clauses.alter(&mut sequence).unwrap();
        assert_eq!((sequence.last, sequence.start), (7, 5));
    }

    #[test]
    fn mistakes_are_told_as_postgres_tells_them() {
        let cases = [
            ("INCREMENT 0", "INCREMENT must not be zero"),
            ("MINVALUE 5 MAXVALUE 5", "MINVALUE (5) must be less than MAXVALUE (5)"),
            ("START 0", "START value (0) cannot be less than MINVALUE (1)"),
            ("START 9 MAXVALUE 8", "START value (9) cannot be greater than MAXVALUE (8)"),
            ("AS smallint MAXVALUE 40000", "MAXVALUE (40000) is out of range for sequence data type smallint"),
            ("AS text", "sequence type must be smallint, integer, or bigint"),
            ("CACHE 0", "CACHE (0) must be greater than zero"),
            ("START 1 START 2", "conflicting or redundant options"),
            ("RESTART", "syntax error at or near \"RESTART\""),
            ("OWNED BY t", "invalid OWNED BY option"),
        ];
        for (clauses, want) in cases {
            assert_eq!(made(clauses).unwrap_err().message(), want, "{clauses}");
        }
    }
}
