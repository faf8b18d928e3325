//! What do statements about types say?
//!
//! ```sql
//! CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')          CREATE TYPE pair AS (a int, b text)
//! ALTER TYPE mood ADD VALUE [IF NOT EXISTS] 'fine' [BEFORE 'happy' | AFTER 'ok']
//! ALTER TYPE mood RENAME VALUE 'ok' TO 'well'              ALTER TYPE mood RENAME TO humour
//! ALTER TYPE mood OWNER TO role                            DROP TYPE [IF EXISTS] mood, … [RESTRICT | CASCADE]
//! ```
//!
//! Read here and not by the SQL parser: so every other kind of type is refused by name.

use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;
use tarn_node::types::{Attribute, TypeKind};

use crate::error::{Result, SqlError, state};
use crate::names::{check_name, fold, is_word, near, take, written_name};

/// Bytes of a label, at most, as in PostgreSQL.
const MAX_LABEL_BYTES: usize = 63;

/// Labels of a type, at most: a definition is read whole, by every statement that names it.
const MAX_LABELS: usize = 1_000;

/// Columns of a row type, at most, as in PostgreSQL.
const MAX_ATTRIBUTES: usize = 1_600;

/// A statement about types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TypeSql {
    /// `CREATE TYPE`.
    Create { name: String, kind: TypeKind },
    /// `ALTER TYPE`.
    Alter { name: String, change: TypeChange },
    /// `DROP TYPE`, of all or none.
    Drop { names: Vec<String>, if_exists: bool, cascade: bool },
}

/// What becomes of a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TypeChange {
    /// A label more; rows need no change.
    AddValue { label: String, if_not_exists: bool, beside: Option<LabelPosition> },
    /// A label is called otherwise, in all rows, too.
    RenameValue { from: String, to: String },
    /// In its schema.
    RenameTo(String),
    /// Of this user.
    OwnerTo(String),
}

/// Where a label comes: behind all others, if nothing is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelPosition {
    Before(String),
    After(String),
}

impl TypeSql {
    /// The command tag.
    pub fn tag(&self) -> &'static str {
        match self {
            TypeSql::Create { .. } => "CREATE TYPE",
            TypeSql::Alter { .. } => "ALTER TYPE",
            TypeSql::Drop { .. } => "DROP TYPE",
        }
    }

    /// What it is about, for the log of changes.
    pub fn objects(&self) -> String {
        match self {
            TypeSql::Create { name, .. } | TypeSql::Alter { name, .. } => name.clone(),
            TypeSql::Drop { names, .. } => names.join(", "),
        }
    }
}

/// The statement that begins here, if it is about types; nothing is taken if it is not.
///
/// Errors: `0A000` for other kinds of types; `42601`; `42602` for a label that is too long; `42710` for one that comes
/// twice.
pub fn user_type(parser: &mut Parser<'_>) -> Result<Option<TypeSql>> {
    let word = |at: usize, text: &str| is_word(&parser.peek_nth_token_ref(at).token, text);
    if (word(0, "create") || word(0, "alter") || word(0, "drop")) && word(1, "domain") {
        return Err(SqlError::unsupported(
            "a domain",
            "the type that it is of, with CHECK and NOT NULL at the columns of tables",
        ));
    }
    let verb = ["create", "alter", "drop"].into_iter().find(|verb| word(0, verb) && word(1, "type"));
    let Some(verb) = verb else { return Ok(None) };
    parser.next_token();
    parser.next_token();
    let read = match verb {
        "create" => create(parser)?,
        "alter" => {
            let name = name(parser)?;
            TypeSql::Alter { name, change: change(parser)? }
        }
        _ => drop_of(parser)?,
    };
    match &parser.peek_token_ref().token {
        Token::EOF | Token::SemiColon => Ok(Some(read)),
        other => Err(near(other)),
    }
}

fn create(parser: &mut Parser<'_>) -> Result<TypeSql> {
    let name = name(parser)?;
    check_name("type", &name)?;
    if !take(parser, "as") {
        let what =
            if parser.peek_token_ref().token == Token::LParen { "of functions (INPUT = …)" } else { "without AS" };
        return Err(other_kind(what));
    }
    if take(parser, "enum") {
        let mut labels = vec![];
        expect(parser, &Token::LParen)?;
        while parser.peek_token_ref().token != Token::RParen {
            if !labels.is_empty() {
                expect(parser, &Token::Comma)?;
            }
            let label = label(parser)?;
            if labels.contains(&label) {
                let message = format!("enum label \"{label}\" used more than once");
                return Err(SqlError::new(state::DUPLICATE_OBJECT, message));
            }
            labels.push(label);
        }
        parser.next_token();
        check_count(labels.len())?;
        return Ok(TypeSql::Create { name, kind: TypeKind::Enum { labels } });
    }
    if is_word(&parser.peek_token_ref().token, "range") {
        return Err(other_kind("AS RANGE"));
    }
    expect(parser, &Token::LParen)?;
    let mut columns: Vec<Attribute> = vec![];
    while parser.peek_token_ref().token != Token::RParen {
        if !columns.is_empty() {
            expect(parser, &Token::Comma)?;
        }
        let name = fold(&parser.parse_identifier()?);
        check_name("column", &name)?;
        if columns.iter().any(|column| column.name == name) {
            let message = format!("attribute \"{name}\" specified more than once");
            return Err(SqlError::new(state::DUPLICATE_COLUMN, message));
        }
        columns.push(Attribute { name, data_type: parser.parse_data_type()?.to_string() });
        if is_word(&parser.peek_token_ref().token, "collate") {
            let remedy = "leave it out: texts are compared by their bytes";
            return Err(SqlError::unsupported("COLLATE of a column of a row type", remedy));
        }
    }
    parser.next_token();
    if columns.len() > MAX_ATTRIBUTES {
        let message = format!("a row type has {MAX_ATTRIBUTES} columns at most");
        return Err(SqlError::new(state::PROGRAM_LIMIT, message));
    }
    Ok(TypeSql::Create { name, kind: TypeKind::Row { columns } })
}

/// Errors: `54000` for more labels than a type may have.
pub fn check_count(n_labels: usize) -> Result<()> {
    if n_labels <= MAX_LABELS {
        return Ok(());
    }
    let message = format!("a type of {n_labels} labels, {MAX_LABELS} is the most");
    Err(SqlError::new(state::PROGRAM_LIMIT, message).with_hint("a table of them, whose key rows refer to"))
}

fn other_kind(what: &str) -> SqlError {
    SqlError::unsupported(format!("CREATE TYPE {what}"), "CREATE TYPE … AS ENUM ('a', 'b'), or AS (a int, b text)")
}

fn change(parser: &mut Parser<'_>) -> Result<TypeChange> {
    if take(parser, "add") {
        if !take(parser, "value") {
            return Err(SqlError::unsupported("ALTER TYPE … ADD ATTRIBUTE", "DROP TYPE it, and make it anew"));
        }
        let if_not_exists = take(parser, "if") && all(parser, &["not", "exists"])?;
        let label = label(parser)?;
        let beside = match () {
            () if take(parser, "before") => Some(LabelPosition::Before(self::label(parser)?)),
            () if take(parser, "after") => Some(LabelPosition::After(self::label(parser)?)),
            () => None,
        };
        return Ok(TypeChange::AddValue { label, if_not_exists, beside });
    }
    if take(parser, "rename") {
        if take(parser, "value") {
            let from = label(parser)?;
            all(parser, &["to"])?;
            return Ok(TypeChange::RenameValue { from, to: label(parser)? });
        }
        if is_word(&parser.peek_token_ref().token, "attribute") {
            return Err(SqlError::unsupported("ALTER TYPE … RENAME ATTRIBUTE", "DROP TYPE it, and make it anew"));
        }
        all(parser, &["to"])?;
        let to = fold(&parser.parse_identifier()?);
        check_name("type", &to)?;
        return Ok(TypeChange::RenameTo(to));
    }
    if take(parser, "owner") {
        all(parser, &["to"])?;
        return Ok(TypeChange::OwnerTo(fold(&parser.parse_identifier()?)));
    }
    let token = &parser.peek_token_ref().token;
    for other in ["set", "alter", "drop"] {
        if is_word(token, other) {
            return Err(SqlError::unsupported(
                format!("ALTER TYPE … {}", other.to_uppercase()),
                "ADD VALUE, RENAME VALUE, RENAME TO and OWNER TO; or DROP TYPE it, and make it anew",
            ));
        }
    }
    Err(near(token))
}

fn drop_of(parser: &mut Parser<'_>) -> Result<TypeSql> {
    let if_exists = take(parser, "if") && all(parser, &["exists"])?;
    let mut names = vec![name(parser)?];
    while parser.consume_token(&Token::Comma) {
        names.push(name(parser)?);
    }
    let cascade = take(parser, "cascade");
    if !cascade {
        take(parser, "restrict");
    }
    Ok(TypeSql::Drop { names, if_exists, cascade })
}

fn name(parser: &mut Parser<'_>) -> Result<String> {
    written_name(&parser.parse_object_name(false)?)
}

fn label(parser: &mut Parser<'_>) -> Result<String> {
    let label = match parser.next_token().token {
        Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => text,
        Token::DollarQuotedString(text) => text.value,
        other => return Err(near(&other)),
    };
    if label.len() > MAX_LABEL_BYTES {
        let message = format!("invalid enum label \"{label}\"");
        return Err(SqlError::new(state::INVALID_NAME, message)
            .with_detail(format!("Labels must be {MAX_LABEL_BYTES} bytes or less.")));
    }
    Ok(label)
}

fn expect(parser: &mut Parser<'_>, token: &Token) -> Result<()> {
    match parser.consume_token(token) {
        true => Ok(()),
        false => Err(near(&parser.peek_token_ref().token)),
    }
}

fn all(parser: &mut Parser<'_>, words: &[&str]) -> Result<bool> {
    for word in words {
        if !take(parser, word) {
            return Err(near(&parser.peek_token_ref().token));
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::{ParsedSql, parse};

    fn of(sql: &str) -> TypeSql {
        match parse(sql).unwrap_or_else(|error| panic!("{sql}: {error}")).remove(0) {
            ParsedSql::Type(statement) => *statement,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn types_are_made_changed_and_dropped() {
        let labels = |labels: &[&str]| TypeKind::Enum { labels: labels.iter().map(|label| (*label).into()).collect() };
        assert_eq!(
            of("create type Mood as enum ('sad', 'o''k');"),
            TypeSql::Create { name: "mood".into(), kind: labels(&["sad", "o'k"]) }
        );
        assert_eq!(of("CREATE TYPE \"E\" AS ENUM ()"), TypeSql::Create { name: "E".into(), kind: labels(&[]) });
        let TypeSql::Create { kind: TypeKind::Row { columns }, .. } =
            of("CREATE TYPE p AS (a int, \"B\" numeric(4, 2))")
        else {
            panic!("no row type")
        };
        let columns: Vec<(&str, &str)> = columns.iter().map(|of| (of.name.as_str(), of.data_type.as_str())).collect();
        assert_eq!(columns, [("a", "INT"), ("B", "NUMERIC(4,2)")]);
        let altered = |sql: &str| match of(sql) {
            TypeSql::Alter { change, .. } => change,
            other => panic!("{other:?}"),
        };
        let add = |if_not_exists, beside| TypeChange::AddValue { label: "fine".into(), if_not_exists, beside };
        assert_eq!(altered("ALTER TYPE mood ADD VALUE 'fine'"), add(false, None));
        assert_eq!(
            altered("ALTER TYPE mood ADD VALUE IF NOT EXISTS 'fine' BEFORE 'ok'"),
            add(true, Some(LabelPosition::Before("ok".into())))
        );
        assert_eq!(
            altered("ALTER TYPE mood ADD VALUE 'fine' AFTER 'ok'"),
            add(false, Some(LabelPosition::After("ok".into())))
        );
        assert_eq!(
            altered("ALTER TYPE mood RENAME VALUE 'a' TO 'b'"),
            TypeChange::RenameValue { from: "a".into(), to: "b".into() }
        );
        assert_eq!(altered("ALTER TYPE mood RENAME TO \"H\""), TypeChange::RenameTo("H".into()));
        assert_eq!(altered("ALTER TYPE mood OWNER TO bob"), TypeChange::OwnerTo("bob".into()));
        let drop = |if_exists, cascade| TypeSql::Drop { names: vec!["a".into(), "b".into()], if_exists, cascade };
        assert_eq!(of("DROP TYPE a, b RESTRICT"), drop(false, false));
        assert_eq!(of("DROP TYPE IF EXISTS a, b CASCADE"), drop(true, true));
    }

    #[test]
    fn what_there_is_not_is_refused_by_name() {
        let long = format!("CREATE TYPE e AS ENUM ('{}')", "x".repeat(64));
        for (sql, want) in [
            ("CREATE TYPE e", state::FEATURE_NOT_SUPPORTED),
            ("CREATE TYPE e AS RANGE (subtype = float8)", state::FEATURE_NOT_SUPPORTED),
            ("CREATE TYPE e (INPUT = f, OUTPUT = g)", state::FEATURE_NOT_SUPPORTED),
            ("CREATE DOMAIN d AS int", state::FEATURE_NOT_SUPPORTED),
            ("ALTER TYPE e SET SCHEMA s", state::FEATURE_NOT_SUPPORTED),
            ("ALTER TYPE p ADD ATTRIBUTE c int", state::FEATURE_NOT_SUPPORTED),
            ("CREATE TYPE e AS ENUM ('a', 'a')", state::DUPLICATE_OBJECT),
            ("CREATE TYPE p AS (a int, a int)", state::DUPLICATE_COLUMN),
            ("CREATE TYPE e AS ENUM (a)", state::SYNTAX_ERROR),
            ("CREATE TYPE e AS ENUM ('a'", state::SYNTAX_ERROR),
            ("DROP TYPE", state::SYNTAX_ERROR),
            ("ALTER TYPE e ADD VALUE 'a' BEHIND 'b'", state::SYNTAX_ERROR),
            (&long, state::INVALID_NAME),
        ] {
            assert_eq!(parse(sql).expect_err(sql).state(), want, "{sql}");
        }
    }
}
