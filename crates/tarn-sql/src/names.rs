//! How are things called in a text of SQL?

use datafusion::sql::sqlparser::ast::{Expr, Function, Ident, ObjectName, ObjectNamePart, TableFactor, TableWithJoins};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

pub use tarn_query::parser::fold;
use tarn_types::full_name;

use crate::error::{Result, SqlError, state};

/// The database name clients see.
pub const DATABASE: &str = "tarn";

/// Of the PostgreSQL that we speak like.
pub const SERVER_VERSION: &str = "16.6";

/// A word of the language, in any case; quoted it is a name.
pub(crate) fn is_word(token: &Token, text: &str) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(text))
}

/// Was the word next? Then it is taken.
pub(crate) fn take(parser: &mut Parser<'_>, text: &str) -> bool {
    let is_next = is_word(&parser.peek_token_ref().token, text);
    if is_next {
        parser.next_token();
    }
    is_next
}

/// The syntax error at a token. It shows literals: where one may be a password, write another.
pub(crate) fn near(token: &Token) -> SqlError {
    let shown = if *token == Token::EOF { "end of input".to_owned() } else { token.to_string() };
    SqlError::new(state::SYNTAX_ERROR, format!("syntax error at or near \"{shown}\""))
}

/// Schemas that no table of users is in.
pub(crate) const OF_SYSTEM: [&str; 3] = ["tarn", "pg_catalog", "information_schema"];

/// `t`, `public.t` or `tarn.public.t` → `t`, folded to lower case unless quoted; `s.t` → its full name. Which schema a
/// name without one is in was said before (`session/named.rs`).
pub fn table_name(name: &ObjectName) -> Result<String> {
    let parts: Vec<String> = name
        .0
        .iter()
        .map(|part| match part {
            ObjectNamePart::Identifier(ident) => Ok(fold(ident)),
            ObjectNamePart::Function(_) => {
                Err(SqlError::new(state::SYNTAX_ERROR, format!("\"{name}\" is not a table name")))
            }
        })
        .collect::<Result<_>>()?;
    match parts.as_slice() {
        [table] => Ok(table.clone()),
        // Those that are there were found before (`session/temporary.rs`).
        [schema, _] if schema == "pg_temp" => Err(SqlError::undefined_table(&name.to_string())),
        [schema, table] | [_, schema, table] if !OF_SYSTEM.contains(&schema.as_str()) => {
            Ok(full_name::join(schema, table))
        }
        _ => Err(SqlError::new(
            state::WRONG_OBJECT_TYPE,
            format!(
                "\"{name}\" cannot be written to: tables live in schema public, and in those that CREATE SCHEMA made"
            ),
        )
        .with_hint("the schemas tarn, pg_catalog and information_schema are read-only views")),
    }
}

/// As [`table_name`], of a statement that was not looked at for schemas yet: `public.t` is told from `t`, which may be
/// in another.
///
/// Errors: as of [`table_name`].
pub fn written_name(name: &ObjectName) -> Result<String> {
    let full = table_name(name)?;
    Ok(match (name.0.len(), full_name::split(&full)) {
        (1, _) => full,
        (_, (schema, table)) => full_name::said(schema, table),
    })
}

/// Before the text of a client is read: names in it are none of Tarn's own.
///
/// Errors: `42602`.
pub(crate) fn check_words(sql: &str) -> Result<()> {
    if !full_name::is_reserved(sql) {
        return Ok(());
    }
    // What is no text of SQL is told by the parser.
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize().unwrap_or_default();
    let is_ours = |token: &Token| matches!(token, Token::Word(word) if full_name::is_reserved(&word.value));
    match tokens.iter().any(is_ours) {
        false => Ok(()),
        true => Err(SqlError::new(state::INVALID_NAME, "a name has U+F8FC or U+F8FD")
            .with_hint("these characters are Tarn's own: a table of another schema is written as s.t")),
    }
}

/// How PostgreSQL calls the schema of a session's own tables.
pub(crate) const OWN_SCHEMA: &str = "pg_temp";

/// Bytes of a name, at most: those of PostgreSQL, whose clients and catalogs count on it.
const MAX_NAME_BYTES: usize = 63;

/// Whether something may be called so. PostgreSQL cuts longer names off and says so in a notice, and then two may be
/// one.
///
/// Errors: `42622`, naming the limit; `42601` for no name at all.
pub fn check_name(what: &str, name: &str) -> Result<()> {
    let name = full_name::bare(name);
    if full_name::is_reserved(name) {
        return Err(SqlError::new(state::RESERVED_NAME, format!("the name of a {what} has U+F8FC or U+F8FD"))
            .with_hint("these characters are Tarn's own: call it otherwise"));
    }
    if name.is_empty() {
        return Err(SqlError::new(state::SYNTAX_ERROR, format!("a {what} needs a name of at least one character")));
    }
    if name.len() <= MAX_NAME_BYTES {
        return Ok(());
    }
    let shown: String = name.chars().take(20).collect();
    let message = format!(
        "the name \"{shown}…\" of a {what} is too long: it has {} bytes, and {MAX_NAME_BYTES} is the most",
        name.len()
    );
    Err(SqlError::new(state::NAME_TOO_LONG, message).with_hint("letters beyond ASCII take 2 to 4 bytes each"))
}

/// The identifier of a column, however it is qualified.
pub fn column_of(expr: &Expr) -> Option<&Ident> {
    match expr {
        Expr::Identifier(ident) => Some(ident),
        Expr::CompoundIdentifier(parts) => parts.last(),
        _ => None,
    }
}

/// The name of the function that is called, without its schema.
pub(crate) fn function_name(function: &Function) -> Option<String> {
    function.name.0.last()?.as_ident().map(fold)
}

/// The relation that a text names, as `regclass` reads it: `s`, `public.S`, `"S"`, and by its full name `r.s`.
///
/// Errors: `42602` for what is no name; `42P01` for one of a schema that has no relations of users.
pub fn relation_named(text: &str) -> Result<String> {
    let mut parts = parts_named(text)?;
    match &mut parts[..] {
        [name] => Ok(std::mem::take(name)),
        [schema, name] if !OF_SYSTEM.contains(&schema.as_str()) => Ok(full_name::join(schema, name)),
        [catalog, schema, name] if catalog == DATABASE && !OF_SYSTEM.contains(&schema.as_str()) => {
            Ok(full_name::join(schema, name))
        }
        _ => Err(SqlError::new(state::UNDEFINED_TABLE, format!("relation \"{text}\" does not exist"))),
    }
}

/// The parts of a name, folded where they are not quoted; blanks may stand around the dots.
///
/// Errors: `42602` for what is no name.
pub(crate) fn parts_named(text: &str) -> Result<Vec<String>> {
    let invalid = || SqlError::new(state::INVALID_NAME, "invalid name syntax");
    let (mut parts, mut rest) = (Vec::new(), text.trim());
    loop {
        let part = match rest.strip_prefix('"') {
            Some(quoted) => {
                let (part, behind) = unquoted(quoted).ok_or_else(invalid)?;
                rest = behind.trim_start();
                part
            }
            None => {
                let end = rest.find('.').unwrap_or(rest.len());
                let (part, behind) = rest.split_at(end);
                rest = behind;
                part.trim().to_lowercase()
            }
        };
        if part.is_empty() {
            return Err(invalid());
        }
        parts.push(part);
        match rest.strip_prefix('.') {
            Some(more) => rest = more.trim_start(),
            None if rest.is_empty() => break,
            None => return Err(invalid()),
        }
    }
    Ok(parts)
}

/// What stands before the next quote that is not doubled, and behind it.
pub(crate) fn unquoted(text: &str) -> Option<(String, &str)> {
    let (mut name, mut rest) = (String::new(), text);
    loop {
        let (before, behind) = rest.split_once('"')?;
        name.push_str(before);
        match behind.strip_prefix('"') {
            Some(more) => {
                name.push('"');
                rest = more;
            }
            None => return Some((name, behind)),
        }
    }
}

pub(crate) fn text(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

/// Words that are no names unless they are quoted. Source: PostgreSQL 16, appendix C.
#[rustfmt::skip]
const RESERVED: [&str; 156] = [
    "all", "analyse", "analyze", "and", "any", "array", "as", "asc", "asymmetric", "authorization", "between", "bigint", "binary",
    "bit", "boolean", "both", "case", "cast", "char", "character", "check", "coalesce", "collate", "collation", "column",
    "concurrently", "constraint", "create", "cross", "current_catalog", "current_date", "current_role", "current_schema",
    "current_time", "current_timestamp", "current_user", "dec", "decimal", "default", "deferrable", "desc", "distinct", "do", "else",
    "end", "except", "exists", "extract", "false", "fetch", "float", "for", "foreign", "freeze", "from", "full", "grant", "greatest",
    "group", "grouping", "having", "ilike", "in", "initially", "inner", "inout", "int", "integer", "intersect", "interval", "into",
    "is", "isnull", "join", "json_array", "json_arrayagg", "json_object", "json_objectagg", "lateral", "leading", "least", "left",
    "like", "limit", "localtime", "localtimestamp", "national", "natural", "nchar", "none", "normalize", "not", "notnull", "null",
    "nullif", "numeric", "offset", "on", "only", "or", "order", "out", "outer", "overlaps", "overlay", "placing", "position",
    "precision", "primary", "real", "references", "returning", "right", "row", "select", "session_user", "setof", "similar",
    "smallint", "some", "substring", "symmetric", "system_user", "table", "tablesample", "then", "time", "timestamp", "to", "trailing",
    "treat", "trim", "true", "union", "unique", "user", "using", "values", "varchar", "variadic", "verbose", "when", "where", "window",
    "with", "xmlattributes", "xmlconcat", "xmlelement", "xmlexists", "xmlforest", "xmlnamespaces", "xmlparse", "xmlpi", "xmlroot",
    "xmlserialize", "xmltable",
];

/// Quotes an identifier where Postgres would have to; a full name becomes `s.t`.
pub fn quote(name: &str) -> String {
    match full_name::split(name) {
        (full_name::PUBLIC, name) => quote_part(name),
        (schema, name) => format!("{}.{}", quote_part(schema), quote_part(name)),
    }
}

fn quote_part(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if plain && RESERVED.binary_search(&name).is_err() {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

/// What columns of these tables are qualified by: their names, and those that they are given.
pub(crate) fn qualifiers(from: &TableWithJoins) -> Vec<String> {
    let of = |factor: &TableFactor| match factor {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::Function { alias: Some(alias), .. }
        | TableFactor::UNNEST { alias: Some(alias), .. }
        | TableFactor::NestedJoin { alias: Some(alias), .. } => vec![fold(&alias.name)],
        TableFactor::Table { name, .. } => {
            name.0.last().and_then(|part| part.as_ident()).map(fold).into_iter().collect()
        }
        TableFactor::NestedJoin { table_with_joins, .. } => qualifiers(table_with_joins),
        _ => vec![],
    };
    std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation)).flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relations_are_named_as_regclass_reads_them() {
        let named = |text: &str| relation_named(text).map_err(|error| error.state());
        for (text, want) in [
            ("s", "s"),
            (" Public . S ", "s"),
            ("r.\"S\"", "\u{F8FC}r\u{F8FD}S"),
            ("public.\"S\"", "S"),
            ("\"a\"\"b.c\"", "a\"b.c"),
        ] {
            assert_eq!(named(text).as_deref(), Ok(want), "{text}");
        }
        for (text, want) in [
            ("", state::INVALID_NAME),
            ("a.", state::INVALID_NAME),
            ("\"a", state::INVALID_NAME),
            ("tarn.tables", state::UNDEFINED_TABLE),
            ("a.b.c", state::UNDEFINED_TABLE),
        ] {
            assert_eq!(named(text), Err(want), "{text}");
        }
    }

    #[test]
    fn no_text_names_a_table_by_its_full_name() {
        let full = full_name::join("s", "t");
        assert_eq!(check_words(&format!("SELECT * FROM \"{full}\"")).unwrap_err().state(), state::INVALID_NAME);
        assert_eq!(check_words(&format!("SELECT '{full}' -- {full}")), Ok(()));
    }

    #[test]
    fn reserved_words_are_sorted() {
        assert!(RESERVED.is_sorted());
        assert_eq!(
            (quote("order"), quote("orders"), quote("a\"b")),
            ("\"order\"".into(), "orders".into(), "\"a\"\"b\"".into())
        );
        assert_eq!(quote(&full_name::join("r", "S")), "r.\"S\"");
    }
}
