//! What does `:name` in a statement stand for? Variables of the console, as psql's: set by `\set` and `-v`.
//!
//! | written | becomes |
//! |---|---|
//! | `:name` | the value as it is |
//! | `:'name'` | the value as a literal |
//! | `:"name"` | the value as a name |
//!
//! Only where SQL has neither quotes nor comments, never in a cast (`x::int`), and only names that are set:
//! `array[1:n]` and `:p` of other clients pass as they came.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::lex::{self, TokenKind};

/// The variables of a session.
#[derive(Debug, Default, Clone)]
pub struct Variables {
    values: BTreeMap<String, String>,
}

/// Why a variable is not set.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the text of each says what its fields are")]
pub enum Error {
    /// Nothing could ask for such a variable.
    #[error("{name:?} is not a name of a variable: letters, digits and _ are")]
    NotAName { name: String },
}

impl Variables {
    /// Sets one; what it was is forgotten.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(Error::NotAName { name: name.to_owned() });
        }
        self.values.insert(name.to_owned(), value.to_owned());
        Ok(())
    }

    /// Forgets one; false if it was not set.
    pub fn unset(&mut self, name: &str) -> bool {
        self.values.remove(name).is_some()
    }

    /// Names and values, by name.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// `sql` with what its references stand for.
    pub fn substitute<'a>(&self, sql: &'a str) -> Cow<'a, str> {
        if self.values.is_empty() || !sql.contains(':') {
            return Cow::Borrowed(sql);
        }
        let mut text = String::with_capacity(sql.len());
        let mut at = 0;
        while let Some(piece) = lex::piece(sql, at) {
            let is_colon = piece.kind == TokenKind::Symbol && piece.of(sql) == ":";
            let is_cast = sql[at..].starts_with("::");
            match self.reference(&sql[at..]).filter(|_| is_colon && !is_cast) {
                Some((value, length)) => {
                    text.push_str(&value);
                    at += length;
                }
                None => {
                    // Both colons of a cast: the second one begins nothing.
                    let end = if is_colon && is_cast { at + 2 } else { piece.range.end };
                    text.push_str(&sql[at..end]);
                    at = end;
                }
            }
        }
        Cow::Owned(text)
    }

    /// What the reference stands for that `text`, which begins with a colon, begins with, and its length. None: it is
    /// none, or the name is not set.
    pub fn reference(&self, text: &str) -> Option<(String, usize)> {
        let behind = text.strip_prefix(':')?;
        let quote = behind.chars().next().filter(|c| matches!(c, '\'' | '"'));
        let begin = quote.map_or(0, char::len_utf8);
        let name = &behind[begin..];
        let name = &name[..name.find(|c: char| !is_name(c)).unwrap_or(name.len())];
        let value = self.values.get(name)?;
        let end = begin + name.len();
        match quote {
            None => Some((value.clone(), 1 + end)),
            Some(quote) if behind[end..].starts_with(quote) => {
                let doubled = value.replace(quote, &format!("{quote}{quote}"));
                Some((format!("{quote}{doubled}{quote}"), 1 + end + 1))
            }
            Some(_) => None,
        }
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_replaced_where_sql_has_no_quotes() {
        let mut variables = Variables::default();
        variables.set("t", "trips").unwrap();
        variables.set("who", "o'x \"y\"").unwrap();
        let of = |sql| variables.substitute(sql).into_owned();
        assert_eq!(of("select * from :t where r = :'who'"), "select * from trips where r = 'o''x \"y\"'");
        assert_eq!(of("select :\"who\""), "select \"o'x \"\"y\"\"\"");
        for untouched in
            ["select ':t'", "select 1::t", "-- :t", "select :unset, :'unset'", "select $$:t$$", "a[1:2]", ":"]
        {
            assert_eq!(of(untouched), untouched);
        }
        assert_eq!(of(":t::text"), "trips::text");
    }

    #[test]
    fn names_are_letters_digits_and_underscores() {
        let mut variables = Variables::default();
        assert!(variables.set("a b", "").is_err() && variables.set("", "").is_err());
        variables.set("a_1", "x").unwrap();
        assert!(variables.unset("a_1") && !variables.unset("a_1"));
    }
}
