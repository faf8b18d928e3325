//! What may stand where the cursor is? The candidates for the word before it.
//!
//! Tables stand behind `FROM` and its like, columns are those of the tables that the whole statement names, settings
//! stand behind `SET`. Keywords come in the case in which they were begun. Within quotes and comments there is nothing
//! to complete.

use crate::keywords::{CLAUSES, PROCEDURES, STATEMENTS, TABLE_OPTIONS, TYPES};
use crate::lex::{self, SqlToken, TokenKind, unquoted};
use crate::names::{Catalog, tables, written};
use crate::{script, syntax};

/// The commands, with what their first word may be.
const COMMANDS: &[(&str, CompletionKind)] = &[
    ("?", CompletionKind::Nothing),
    ("c", CompletionKind::Nothing),
    ("conninfo", CompletionKind::Nothing),
    ("copy", CompletionKind::Transfer),
    ("d", CompletionKind::Tables),
    ("d+", CompletionKind::Tables),
    ("df", CompletionKind::Functions),
    ("di", CompletionKind::Tables),
    ("dn", CompletionKind::Nothing),
    ("dt", CompletionKind::Tables),
    ("dt+", CompletionKind::Tables),
    ("du", CompletionKind::Nothing),
    ("dv", CompletionKind::Nothing),
    ("e", CompletionKind::Files),
    ("echo", CompletionKind::Nothing),
    ("files", CompletionKind::Tables),
    ("g", CompletionKind::Nothing),
    ("gx", CompletionKind::Nothing),
    ("h", CompletionKind::Statements),
    ("i", CompletionKind::Files),
    ("ir", CompletionKind::Files),
    ("l", CompletionKind::Nothing),
    ("o", CompletionKind::Files),
    ("output", CompletionKind::These(&["csv", "json", "parquet", "table", "unaligned"])),
    ("p", CompletionKind::Nothing),
    ("pset", CompletionKind::These(&["expanded", "format", "limit", "null", "pager", "tuples_only"])),
    ("q", CompletionKind::Nothing),
    ("r", CompletionKind::Nothing),
    ("set", CompletionKind::Nothing),
    ("t", CompletionKind::These(&["off", "on"])),
    ("timing", CompletionKind::These(&["off", "on"])),
    ("unset", CompletionKind::Nothing),
    ("warn", CompletionKind::Nothing),
    ("watch", CompletionKind::Nothing),
    ("x", CompletionKind::These(&["auto", "off", "on"])),
];

/// What the words behind a command are.
#[derive(Clone, Copy)]
enum CompletionKind {
    Nothing,
    Tables,
    Functions,
    Statements,
    Files,
    Transfer,
    These(&'static [&'static str]),
}

/// What completes a text.
#[derive(Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "what is said of each names its fields")]
pub enum Completion {
    /// Each replaces the text from byte `from` up to the cursor
    Words { from: usize, words: Vec<String> },
    /// A file's name stands there
    File,
}

/// What may stand at byte `at` of `text`.
pub fn complete(text: &str, at: usize, catalog: &Catalog) -> Completion {
    let before = &text[..at];
    let line_begin = before.rfind('\n').map_or(0, |end| end + 1);
    if let Some(command) = before[line_begin..].strip_prefix('\\') {
        return of_command(command, line_begin + 1, catalog);
    }
    let pieces: Vec<SqlToken> = lex::pieces(before).collect();
    let is_open =
        |piece: &SqlToken| !piece.is_ended || (piece.kind == TokenKind::Comment && piece.of(before).starts_with("--"));
    match pieces.last() {
        Some(last) if last.kind == TokenKind::QuotedName && !last.is_ended => {}
        Some(last) if (last.kind == TokenKind::Comment || last.kind == TokenKind::Text) && is_open(last) => {
            return words(at, vec![]);
        }
        _ => {}
    }
    let statement = statement_around(text, at);
    let said: Vec<&SqlToken> = pieces.iter().filter(|piece| piece.is_said()).collect();
    // The word under way begins where its first part does: `t.fa`, `tarn.fi`.
    let mut begin = said.len();
    let touches = |idx: usize, end: usize| said[idx].range.end == end;
    let mut end = at;
    while begin > 0 && touches(begin - 1, end) {
        let piece = said[begin - 1];
        let is_part = matches!(piece.kind, TokenKind::Word | TokenKind::QuotedName) || piece.of(before) == ".";
        if !is_part {
            break;
        }
        begin -= 1;
        end = piece.range.start;
    }
    let typed = &before[end..];
    let earlier: Vec<&str> = said[..begin].iter().map(|piece| piece.of(before)).collect();
    let statement_begin = earlier.iter().rposition(|word| *word == ";").map_or(0, |idx| idx + 1);
    let candidates = of_statement(&earlier[statement_begin..], typed, statement, catalog);
    words(end, candidates)
}

fn words(from: usize, mut words: Vec<String>) -> Completion {
    words.dedup();
    Completion::Words { from, words }
}

/// The statement in which byte `at` stands, with what follows the cursor: tables are often named behind it.
fn statement_around(text: &str, at: usize) -> &str {
    let ends = lex::pieces(text).filter(|piece| piece.of(text) == ";").map(|piece| piece.range.start);
    let (mut begin, mut end) = (0, text.len());
    for semicolon in ends {
        if semicolon < at {
            begin = semicolon + 1;
        } else {
            end = semicolon;
            break;
        }
    }
    &text[begin..end]
}

fn of_command(command: &str, begin: usize, catalog: &Catalog) -> Completion {
    let Some(space) = command.find(' ') else {
        let names = COMMANDS.iter().map(|(name, _)| *name);
        return words(begin, begun(names, command));
    };
    let word_begin = command.rfind(' ').map_or(0, |end| end + 1);
    let typed = &command[word_begin..];
    let from = begin + word_begin;
    let found = COMMANDS
        .iter()
        .find(|(name, _)| *name == &command[..space])
        .map_or(CompletionKind::Nothing, |(_, words)| *words);
    let is_first = command[space..word_begin].trim().is_empty();
    match found {
        CompletionKind::Files => Completion::File,
        CompletionKind::Transfer => {
            let earlier = command[..word_begin].to_lowercase();
            let is_file = earlier.ends_with(" from ") || earlier.ends_with(" to ");
            if is_file {
                Completion::File
            } else if is_first {
                words(from, named_tables(catalog, typed))
            } else {
                words(from, begun(["csv", "format", "from", "header", "to", "with"].into_iter(), typed))
            }
        }
        CompletionKind::Statements => {
            let typed = &command[space..].trim_start();
            words(begin + command.len() - typed.len(), begun(syntax::names(), &typed.to_uppercase()))
        }
        _ if !is_first => words(from, vec![]),
        CompletionKind::Tables => words(from, named_tables(catalog, typed)),
        CompletionKind::Functions => words(from, begun(catalog.functions.iter().map(String::as_str), typed)),
        CompletionKind::These(list) => words(from, begun(list.iter().copied(), typed)),
        CompletionKind::Nothing => words(from, vec![]),
    }
}

/// What may stand behind `earlier`, the words of a statement up to the one that is `typed`.
fn of_statement(earlier: &[&str], typed: &str, statement: &str, catalog: &Catalog) -> Vec<String> {
    let upper: Vec<String> = earlier.iter().map(|word| word.to_uppercase()).collect();
    let word = |back: usize| upper.len().checked_sub(back).map_or("", |idx| upper[idx].as_str());
    if upper.is_empty() {
        return begun_as_typed(STATEMENTS, typed);
    }
    match (word(2), word(1)) {
        (_, "FROM" | "JOIN" | "INTO" | "UPDATE" | "DESCRIBE" | "TRUNCATE" | "ANALYZE" | "VACUUM" | "COPY")
        | (_, "TABLE")
        | ("COLUMNS", "IN") => {
            let mut found = named_tables(catalog, typed);
            if found.is_empty() && !typed.contains('.') {
                found = begun_as_typed(&["IF EXISTS", "IF NOT EXISTS", "LATERAL", "ONLY", "STDIN"], typed);
            }
            return found;
        }
        (_, "SET" | "RESET") if upper.len() == 1 => return begun(catalog.settings.iter().map(String::as_str), typed),
        ("", "SHOW") => {
            let mut found = begun_as_typed(&["ALL", "COLUMNS FROM", "CREATE TABLE", "TABLES"], typed);
            found.extend(begun(catalog.settings.iter().map(String::as_str), typed));
            return found;
        }
        (_, "CALL") => return begun(PROCEDURES.iter().copied(), typed),
        ("", "CREATE" | "DROP" | "ALTER") => {
            return begun_as_typed(&["ROLE", "SEQUENCE", "TABLE", "USER", "VIEW"], typed);
        }
        (_, "USER" | "ROLE") => return begun(catalog.users.iter().map(String::as_str), typed),
        _ => {}
    }
    let from_list = upper.iter().rposition(|word| word == "FROM");
    let is_in_from =
        from_list.is_some_and(|begin| upper[begin + 1..].iter().all(|word| !CLAUSES.contains(&word.as_str())));
    if word(1) == "," && is_in_from {
        return named_tables(catalog, typed);
    }
    if upper[0] == "CREATE" && upper.get(1).is_some_and(|word| word == "TABLE") {
        let is_option = upper.iter().rposition(|word| word == "WITH").is_some();
        return if is_option {
            begun(TABLE_OPTIONS.iter().copied(), typed)
        } else {
            let mut found = begun(TYPES.iter().copied(), &typed.to_lowercase());
            found.extend(begun_as_typed(&["AS", "DEFAULT", "NOT NULL", "PRIMARY KEY", "WITH"], typed));
            found
        };
    }
    let mut found = columns(statement, typed, catalog);
    if typed.contains('.') {
        return found;
    }
    // Without a beginning, columns alone: all functions would hide them.
    if !typed.is_empty() {
        found.extend(begun(catalog.functions.iter().map(String::as_str), typed).into_iter().map(called));
    }
    if !typed.is_empty() || found.is_empty() {
        found.extend(begun_as_typed(CLAUSES, typed));
        found.extend(
            begun_as_typed(&["SELECT", "SET", "VALUES", "WITH"], typed).into_iter().filter(|_| !typed.is_empty()),
        );
    }
    found
}

/// A function as its call begins.
fn called(name: String) -> String {
    let is_bare = matches!(name.as_str(), "current_date" | "current_time" | "current_timestamp" | "session_user");
    if is_bare { name } else { name + "(" }
}

/// Columns of the tables that the statement names; behind `alias.` those of that table.
fn columns(statement: &str, typed: &str, catalog: &Catalog) -> Vec<String> {
    let named = tables(statement);
    let (qualifier, name) = typed.rsplit_once('.').map_or((None, typed), |(qualifier, name)| (Some(qualifier), name));
    let asked = qualifier.map(|qualifier| qualifier.split('.').map(unquoted).collect::<Vec<_>>().join("."));
    let mut found: Vec<String> = named
        .iter()
        .filter(|named| asked.as_ref().is_none_or(|asked| named.alias == *asked || named.table == *asked))
        .flat_map(|named| catalog.tables.get(&named.table).into_iter().flatten())
        .filter(|column| is_begun(column, name))
        .map(|column| match qualifier {
            Some(qualifier) => format!("{qualifier}.{}", written(column)),
            None => written(column),
        })
        .collect();
    if let Some(qualifier) = qualifier.filter(|_| found.is_empty()) {
        // Behind `schema.`, its tables.
        found = named_tables(catalog, &format!("{qualifier}.{name}"));
    }
    found.sort();
    found
}

/// Tables that `typed` begins; those of other schemas only behind their schema's name, which stands for them before.
fn named_tables(catalog: &Catalog, typed: &str) -> Vec<String> {
    let typed = typed.trim_start_matches('"');
    let mut found = Vec::new();
    for name in catalog.tables.keys().filter(|name| is_begun(name, typed)) {
        match name.split_once('.') {
            Some((schema, table)) if typed.contains('.') => {
                found.push(format!("{}.{}", written(schema), written(table)))
            }
            Some((schema, _)) => found.push(format!("{}.", written(schema))),
            None => found.push(written(name)),
        }
    }
    found.dedup();
    found
}

fn is_begun(name: &str, typed: &str) -> bool {
    let typed = typed.trim_start_matches('"');
    name.get(..typed.len()).is_some_and(|head| head.eq_ignore_ascii_case(typed))
}

fn begun<'a>(list: impl Iterator<Item = &'a str>, typed: &str) -> Vec<String> {
    list.filter(|word| is_begun(word, typed)).map(str::to_owned).collect()
}

/// Keywords, in lower case if that is how they were begun.
fn begun_as_typed(list: &[&str], typed: &str) -> Vec<String> {
    let is_lower = typed.contains(|c: char| c.is_lowercase());
    let found = begun(list.iter().copied(), typed);
    if is_lower { found.into_iter().map(|word| word.to_lowercase()).collect() } else { found }
}

/// What a person should do about a command that was typed within a statement; none if it belongs there, or stands
/// alone.
pub fn remedy_within(command: &str, within: &str) -> Option<String> {
    if within.is_empty() || matches!(command, "g" | "gx" | "r" | "p" | "e" | "q" | "watch") {
        return None;
    }
    let begun = script::first_words(within, 2);
    Some(format!("\\{command} was not run: the statement {begun} … is not ended. End it with ; or drop it with \\r"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog() -> Catalog {
        let columns = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        Catalog {
            tables: [
                ("trips".to_owned(), columns(&["city", "fare", "at"])),
                ("Trees".to_owned(), columns(&["Kind", "height"])),
                ("tarn.files".to_owned(), columns(&["path"])),
                ("tarn.blocks".to_owned(), columns(&["block"])),
            ]
            .into(),
            functions: columns(&["count", "coalesce", "cos"]),
            settings: columns(&["statement_timeout", "tarn.access_path", "tarn.pruning"]),
            users: columns(&["ada"]),
        }
    }

    /// What completes the text at `|`.
    fn at(text: &str) -> Vec<String> {
        let cursor = text.find('|').unwrap();
        let (text, typed) = (text.replace('|', ""), &text[..cursor]);
        match complete(&text, cursor, &catalog()) {
            Completion::Words { from, words } => {
                words.into_iter().map(|word| format!("{}{word}", &typed[..from])).collect()
            }
            Completion::File => vec!["FILE".to_owned()],
        }
    }

    #[test]
    fn tables_stand_behind_from() {
        assert_eq!(at("SELECT * FROM tr|"), ["SELECT * FROM \"Trees\"", "SELECT * FROM trips"]);
        assert_eq!(at("select 1; update tri|"), ["select 1; update trips"]);
        assert_eq!(at("SELECT * FROM ta|"), ["SELECT * FROM tarn."]);
        assert_eq!(at("SELECT * FROM tarn.f|"), ["SELECT * FROM tarn.files"]);
        assert_eq!(at("SELECT * FROM a, tri|"), ["SELECT * FROM a, trips"]);
    }

    #[test]
    fn columns_are_those_of_the_tables_that_are_named() {
        assert_eq!(at("SELECT fa| FROM trips"), ["SELECT fare", "SELECT false"]);
        assert_eq!(at("SELECT | FROM trips"), ["SELECT at", "SELECT city", "SELECT fare"]);
        assert_eq!(at("SELECT * FROM trips t WHERE t.c|"), ["SELECT * FROM trips t WHERE t.city"]);
        assert_eq!(
            at("SELECT * FROM \"Trees\" x WHERE x.|"),
            ["SELECT * FROM \"Trees\" x WHERE x.\"Kind\"", "SELECT * FROM \"Trees\" x WHERE x.height"]
        );
        assert_eq!(at("INSERT INTO trips (ci|"), ["INSERT INTO trips (city"]);
    }

    #[test]
    fn keywords_come_in_the_case_that_was_begun() {
        assert_eq!(at("sel|"), ["select"]);
        assert_eq!(at("SEL|"), ["SELECT"]);
        assert_eq!(at("SELECT 1 HAV|"), ["SELECT 1 HAVING"]);
        assert_eq!(at("SELECT coa|"), ["SELECT coalesce("]);
    }

    #[test]
    fn settings_procedures_and_users_have_their_places() {
        assert_eq!(at("SET tarn.a|"), ["SET tarn.access_path"]);
        assert_eq!(at("SHOW stat|"), ["SHOW statement_timeout"]);
        assert_eq!(at("CALL tarn.de|"), ["CALL tarn.deliver"]);
        assert_eq!(at("DROP USER a|"), ["DROP USER ada"]);
        assert_eq!(at("CREATE TABLE t (a bigi|"), ["CREATE TABLE t (a bigint"]);
        assert_eq!(at("CREATE TABLE t (a int) WITH (dele| "), Vec::<String>::new());
        assert_eq!(
            at("CREATE TABLE t (a int) WITH (deliv|"),
            ["CREATE TABLE t (a int) WITH (delivery", "CREATE TABLE t (a int) WITH (delivery_bytes"]
        );
    }

    #[test]
    fn nothing_completes_quotes_and_comments() {
        for text in ["SELECT 'tr|", "SELECT 1 -- tr|", "/* tr|", "SELECT $$tr|"] {
            assert_eq!(at(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn commands_and_their_words() {
        assert_eq!(at("\\con|"), ["\\conninfo"]);
        assert_eq!(at("\\d tri|"), ["\\d trips"]);
        assert_eq!(at("\\x a|"), ["\\x auto"]);
        assert_eq!(at("\\i x|"), ["FILE"]);
        assert_eq!(at("\\copy tri|"), ["\\copy trips"]);
        assert_eq!(at("\\copy trips from |"), ["FILE"]);
        assert_eq!(at("\\copy trips f|"), ["\\copy trips format", "\\copy trips from"]);
        assert_eq!(at("\\h create t|"), ["\\h CREATE TABLE", "\\h CREATE TYPE"]);
        assert!(COMMANDS.is_sorted_by_key(|(name, _)| *name));
    }

    #[test]
    fn a_command_within_a_statement_is_told_what_to_do() {
        assert!(remedy_within("dt", "select 1 from t").unwrap().contains("SELECT 1 … is not ended"));
        assert_eq!((remedy_within("g", "select 1"), remedy_within("dt", "")), (None, None));
    }
}
