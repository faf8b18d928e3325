//! What does `SET CONSTRAINTS { ALL | name, … } { DEFERRED | IMMEDIATE }` say, and which foreign keys does a
//! transaction put off by it?

use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;
use tarn_types::{ForeignKey, full_name};

use crate::error::Result;
use crate::names::{is_word, near, take, written_name};

/// The statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetConstraints {
    /// `None`: all that may be put off. Full names, in the schemas of their tables, once these were found
    /// (`session/named.rs`).
    pub names: Option<Vec<String>>,
    /// To COMMIT; else each statement is held to them, from this one on.
    pub deferred: bool,
}

/// Reads one. `None`: it is another statement, and nothing of it was read.
///
/// Errors: `42601`.
pub fn set_constraints(parser: &mut Parser<'_>) -> Result<Option<SetConstraints>> {
    if !is_word(&parser.peek_token_ref().token, "set") || !is_word(&parser.peek_nth_token_ref(1).token, "constraints") {
        return Ok(None);
    }
    parser.next_token();
    parser.next_token();
    let mut names = None;
    if !take(parser, "all") {
        let mut said = vec![];
        loop {
            said.push(written_name(&parser.parse_object_name(false)?)?);
            if !parser.consume_token(&Token::Comma) {
                break;
            }
        }
        names = Some(said);
    }
    let deferred = take(parser, "deferred");
    if !deferred && !take(parser, "immediate") {
        return Err(near(&parser.peek_token_ref().token));
    }
    Ok(Some(SetConstraints { names, deferred }))
}

/// What a transaction said so far; by default nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deferral {
    all: Option<bool>,
    /// Behind that, of constraints by their full names.
    named: Vec<(String, bool)>,
}

impl Deferral {
    /// Of constraints that may be put off.
    pub fn say(&mut self, said: &SetConstraints) {
        match &said.names {
            None => *self = Deferral { all: Some(said.deferred), named: vec![] },
            Some(names) => {
                self.named.retain(|(name, _)| !names.contains(name));
                self.named.extend(names.iter().map(|name| (name.clone(), said.deferred)));
            }
        }
    }

    /// Whether a foreign key of a table is checked at COMMIT.
    pub fn defers(&self, child: &str, key: &ForeignKey) -> bool {
        if !key.deferrable {
            return false;
        }
        let is_it = |name: &str| *name == full_name::beside(child, &key.name);
        let named = self.named.iter().find(|(name, _)| is_it(name)).map(|(_, deferred)| *deferred);
        named.or(self.all).unwrap_or(key.initially_deferred)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::{ParsedSql, parse};

    fn of(sql: &str) -> SetConstraints {
        match parse(sql).unwrap().remove(0) {
            ParsedSql::Constraints(said) => *said,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_said_last_counts() {
        let key = |name: &str, deferrable, initially_deferred| ForeignKey {
            name: name.into(),
            deferrable,
            initially_deferred,
            ..ForeignKey::default()
        };
        let (late, early, never) = (key("late", true, true), key("early", true, false), key("never", false, false));
        let mut deferral = Deferral::default();
        let of_all = |deferral: &Deferral| [&late, &early, &never].map(|key| deferral.defers("t", key));
        assert_eq!(of_all(&deferral), [true, false, false]);
        deferral.say(&of("SET CONSTRAINTS ALL DEFERRED"));
        assert_eq!(of_all(&deferral), [true, true, false]);
        deferral.say(&of("set constraints late, early immediate"));
        assert_eq!(of_all(&deferral), [false, false, false]);
        deferral.say(&of("SET CONSTRAINTS ALL IMMEDIATE"));
        deferral.say(&of("SET CONSTRAINTS late DEFERRED"));
        assert_eq!(of_all(&deferral), [true, false, false]);
        // One of another schema is another.
        assert!(deferral.defers("t", &late) && !deferral.defers(&full_name::join("s", "t"), &late));
        assert_eq!(of("SET CONSTRAINTS s.late DEFERRED").names, Some(vec![full_name::join("s", "late")]));
        assert!(parse("SET CONSTRAINTS ALL").is_err());
    }
}
