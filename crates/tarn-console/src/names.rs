//! Which names does a statement use, and which does the server have? What completion and colours go by.

use std::collections::BTreeMap;

use crate::keywords;
use crate::lex::{self, SqlToken, TokenKind, unquoted};

/// What a server has, as it was last asked.
#[derive(Debug, Default, Clone)]
pub struct Catalog {
    /// Tables of `public` by their name, those of other schemas as `schema.name`; with their columns in order
    pub tables: BTreeMap<String, Vec<String>>,
    /// Names, in any order.
    pub functions: Vec<String>,
    /// Names, in any order.
    pub settings: Vec<String>,
    /// Names, in any order.
    pub users: Vec<String>,
}

/// A table that a statement names.
#[derive(Debug, PartialEq, Eq)]
pub struct TableReference {
    /// As in [`Catalog::tables`]
    pub table: String,
    /// What its columns may be qualified with
    pub alias: String,
}

/// The tables that a statement names behind `FROM`, `JOIN`, `INTO`, `UPDATE`, `TABLE` or `COPY`, with their aliases.
pub fn tables(statement: &str) -> Vec<TableReference> {
    let said: Vec<SqlToken> = lex::pieces(statement).filter(SqlToken::is_said).collect();
    let of = |idx: usize| said.get(idx).map_or("", |piece| piece.of(statement));
    let is_name = |idx: usize| {
        said.get(idx).is_some_and(|piece| match piece.kind {
            TokenKind::QuotedName => true,
            TokenKind::Word => !keywords::is_keyword(piece.of(statement)),
            _ => false,
        })
    };
    let mut found = Vec::new();
    let mut idx = 0;
    // Behind a comma there is a table only in the list of a FROM.
    let mut is_list = false;
    while idx < said.len() {
        let word = of(idx).to_uppercase();
        let begins = matches!(word.as_str(), "FROM" | "JOIN" | "INTO" | "UPDATE" | "TABLE" | "COPY" | "DESCRIBE");
        is_list = if begins {
            word == "FROM"
        } else {
            is_list && (word == "," || word == "AS" || !keywords::is_keyword(&word))
        };
        if !(begins || (word == "," && is_list)) || !is_name(idx + 1) {
            idx += 1;
            continue;
        }
        let mut parts = vec![unquoted(of(idx + 1))];
        idx += 2;
        while of(idx) == "." && is_name(idx + 1) {
            parts.push(unquoted(of(idx + 1)));
            idx += 2;
        }
        let alias_at = if of(idx).eq_ignore_ascii_case("AS") { idx + 1 } else { idx };
        let last = parts.last().cloned().unwrap_or_default();
        let alias = if is_name(alias_at) { unquoted(of(alias_at)) } else { last };
        let table = parts.join(".").trim_start_matches("public.").to_owned();
        found.push(TableReference { table, alias });
    }
    found
}

/// `name` as it is written in SQL: quoted where it must be.
pub fn written(name: &str) -> String {
    let is_plain = !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_found_with_their_aliases() {
        let found = |sql| tables(sql).into_iter().map(|named| (named.table, named.alias)).collect::<Vec<_>>();
        let pairs = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(table, alias)| ((*table).to_owned(), (*alias).to_owned())).collect::<Vec<_>>()
        };
        assert_eq!(
            found("SELECT a, b FROM trips t, \"My t\" AS m JOIN tarn.files ON x, y WHERE c IN (SELECT 1 FROM z)"),
            pairs(&[("trips", "t"), ("My t", "m"), ("tarn.files", "files"), ("z", "z")])
        );
        assert_eq!(found("INSERT INTO public.Trips (a, b) VALUES"), pairs(&[("trips", "trips")]));
        assert_eq!(found("UPDATE trips SET a = 1, b = 2"), pairs(&[("trips", "trips")]));
        assert_eq!(found("SELECT 1 FROM"), pairs(&[]));
    }

    #[test]
    fn names_are_quoted_where_they_must_be() {
        assert_eq!([written("a_1"), written("A"), written("a\"b")], ["a_1", "\"A\"", "\"a\"\"b\""]);
    }
}
