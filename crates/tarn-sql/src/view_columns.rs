//! What does the query of a view say when columns of a table that it reads are called otherwise? The same, by the names
//! that they had.
//!
//! The text stays as it was written, but where the table stands, its columns are given their old names: `FROM t`
//! becomes `FROM (SELECT id, text AS note FROM t) AS t`. So whatever names a column in the query means the same one
//! still, and the view's own columns keep their names, as in PostgreSQL, which shows `text AS note` too. A text that
//! names neither the old nor the new name, and not all columns, stays as it is.

use std::collections::BTreeMap;

use datafusion::sql::sqlparser::tokenizer::Token;
use tarn_node::error::{Error, ErrorKind};
use tarn_query::parser::parse_with;
use tarn_types::{Column, TableSchema};

use crate::error::{Result, SqlError};
use crate::names::quote;
use crate::view_rename::rewritten;

/// The query of a view that reads `before`, which is `after` from then on. `None`: it stays.
///
/// Errors: `Depended` for a text of which that cannot be made.
pub fn rewrite(
    view: &TableSchema,
    before: &TableSchema,
    after: &TableSchema,
) -> tarn_node::error::Result<Option<String>> {
    let text = view.options.view.as_ref().map(|view| view.query.as_str()).unwrap_or_default();
    of_text(text, before, after).ok().flatten().map_or_else(|| Err(depended(view, before)), Ok)
}

fn depended(view: &TableSchema, table: &TableSchema) -> Error {
    let message = format!("cannot rename columns of table {} because view {} depends on it", table.name, view.name);
    Error::new(ErrorKind::Depended, message).with_hint(
        "DROP VIEW it first, and make it anew afterwards: its text is not one in which the table can be replaced",
    )
}

/// `None`: it cannot be said; inside, `None`: it stays.
fn of_text(text: &str, before: &TableSchema, after: &TableSchema) -> Result<Option<Option<String>>> {
    let pairs = || before.shown().iter().filter_map(|old| Some((old, after.column_by_id(old.id)?)));
    let renamed: Vec<(&Column, &Column)> = pairs().filter(|(old, new)| old.name != new.name).collect();
    // What has the new name may be another table's column: with this one beside it, it would be ambiguous.
    if !names_any(text, |name| renamed.iter().any(|(old, new)| old.name == name || new.name == name))? {
        return Ok(Some(None));
    }
    let column = |(old, new): (&Column, &Column)| match old.name == new.name {
        true => quote(&new.name),
        false => format!("{} AS {}", quote(&new.name), quote(&old.name)),
    };
    let columns: Vec<String> = pairs().map(column).collect();
    let read = format!("(SELECT {} FROM {})", columns.join(", "), quote(&before.name));
    let instead = BTreeMap::from([(before.name.clone(), read)]);
    let new = rewritten(text, &instead, &BTreeMap::new())?;
    // Where the table was not found, the query would read columns that are not there any more.
    Ok(new.filter(|new| new != text).map(Some))
}

/// Whether the query of a view may read this column of a table that it reads: it names one that is called so, or
/// whatever there is.
pub fn may_read(view: &TableSchema, column: &str) -> bool {
    let text = view.options.view.as_ref().map(|view| view.query.as_str()).unwrap_or_default();
    names_any(text, |name| name == column).unwrap_or(true)
}

/// Whether a text names one of these, or whatever columns there are.
fn names_any(text: &str, is_it: impl Fn(&str) -> bool) -> Result<bool> {
    parse_with(text, |parser| {
        loop {
            let names = match parser.next_token().token {
                Token::EOF => return Ok::<_, SqlError>(false),
                Token::Mul => true,
                Token::Word(word) if word.quote_style.is_some() => is_it(&word.value),
                Token::Word(word) => word.value.eq_ignore_ascii_case("natural") || is_it(&word.value.to_lowercase()),
                _ => false,
            };
            if names {
                return Ok(true);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ddl::defined;
    use crate::settings::SqlSettings;
    use crate::statement::{ParsedSql, parse};
    use datafusion::sql::sqlparser::ast::Statement;
    use tarn_types::Style;

    fn of(text: &str) -> Option<Option<String>> {
        let ParsedSql::Sql(statement) =
            parse("CREATE TABLE t (id int PRIMARY KEY, note text, n int)").unwrap().remove(0)
        else {
            panic!("no statement")
        };
        let Statement::CreateTable(create) = *statement else { panic!("no table") };
        let before = defined(&create, &SqlSettings::default(), &Style::default()).unwrap().schema;
        of_text(text, &before, &before.with_column_renamed(1, "Text")).unwrap()
    }

    #[test]
    fn the_table_gives_its_columns_by_their_old_names() {
        let read = "(SELECT id, \"Text\" AS note, n FROM t)";
        for (text, want) in [
            ("SELECT note FROM t", format!("SELECT note FROM {read} AS t")),
            ("SELECT * FROM public.t x, u", format!("SELECT * FROM {read} x, u")),
            ("SELECT 1 FROM u NATURAL JOIN t", format!("SELECT 1 FROM u NATURAL JOIN {read} AS t")),
            ("SELECT u.\"Text\" FROM u, t", format!("SELECT u.\"Text\" FROM u, {read} AS t")),
        ] {
            assert_eq!(of(text), Some(Some(want)), "{text}");
        }
        assert_eq!(of("SELECT id, n AS noted, 'note' FROM t"), Some(None));
    }

    #[test]
    fn a_view_may_read_what_it_names_and_what_there_is() {
        let names_note = |text: &str| names_any(text, |name| name == "note").unwrap();
        for text in
            ["SELECT NOTE FROM t", "SELECT t.* FROM t", "SELECT 1 FROM t NATURAL JOIN u", "SELECT \"note\" FROM t"]
        {
            assert!(names_note(text), "{text}");
        }
        for text in ["SELECT notes, 'note' FROM t -- note", "SELECT \"Note\" FROM t"] {
            assert!(!names_note(text), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_told_apart_is_refused() {
        assert_eq!(of("WITH t AS (SELECT 1 AS note) SELECT note FROM t"), None);
        assert_eq!(of("SELECT note FROM u"), None);
    }
}
