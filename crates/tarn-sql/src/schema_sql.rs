//! What do statements about schemas say?
//!
//! ```sql
//! CREATE SCHEMA [IF NOT EXISTS] s [AUTHORIZATION role]     CREATE SCHEMA [IF NOT EXISTS] AUTHORIZATION role
//! ALTER SCHEMA s RENAME TO r                               ALTER SCHEMA s OWNER TO role
//! DROP SCHEMA [IF EXISTS] s, … [RESTRICT | CASCADE]        COMMENT ON SCHEMA s IS 'text'
//! ```

use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::error::{Result, SqlError};
use crate::names::{check_name, fold, is_word, near, take};

/// A statement about schemas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemaSql {
    /// Without a name it is called as its owner.
    Create {
        name: Option<String>,
        /// `None`: whoever makes it.
        owner: Option<Role>,
        if_not_exists: bool,
    },
    /// What becomes of one that is there.
    Alter { name: String, change: SchemaChange },
    /// All or none.
    Drop { names: Vec<String>, if_exists: bool, cascade: bool },
}

/// What becomes of a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemaChange {
    /// What is in it goes along.
    RenameTo(String),
    /// Somebody else may make tables in it, and drop it.
    OwnerTo(Role),
    /// `None`: what was said of it is taken back.
    Comment(Option<String>),
}

/// Who a schema is to belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    Named(String),
    /// `CURRENT_USER` and its kin.
    Asking,
}

impl SchemaSql {
    /// The command tag.
    pub fn tag(&self) -> &'static str {
        match self {
            SchemaSql::Create { .. } => "CREATE SCHEMA",
            SchemaSql::Alter { change: SchemaChange::Comment(_), .. } => "COMMENT",
            SchemaSql::Alter { .. } => "ALTER SCHEMA",
            SchemaSql::Drop { .. } => "DROP SCHEMA",
        }
    }

    /// What it is about, for the log of changes.
    pub fn objects(&self) -> String {
        match self {
            SchemaSql::Create { name, owner, .. } => match (name, owner) {
                (Some(name), _) | (None, Some(Role::Named(name))) => name.clone(),
                (None, _) => String::new(),
            },
            SchemaSql::Alter { name, .. } => name.clone(),
            SchemaSql::Drop { names, .. } => names.join(", "),
        }
    }
}

/// The statement that begins here, if it is about schemas; nothing is taken if it is not.
///
/// Errors: `0A000` for what is to be made in the schema in the same statement; `42601`.
pub fn schema(parser: &mut Parser<'_>) -> Result<Option<SchemaSql>> {
    let word = |at: usize, text: &str| is_word(&parser.peek_nth_token_ref(at).token, text);
    let is_comment = word(0, "comment") && word(1, "on") && word(2, "schema");
    let verb = ["create", "alter", "drop"].into_iter().find(|verb| word(0, verb) && word(1, "schema"));
    let n_words = if is_comment { 3 } else { 2 };
    if verb.is_none() && !is_comment {
        return Ok(None);
    }
    (0..n_words).for_each(|_| drop(parser.next_token()));
    let read = match verb {
        Some("create") => create(parser)?,
        Some("alter") => alter(parser)?,
        Some(_) => drop_of(parser)?,
        None => comment(parser)?,
    };
    match &parser.peek_token_ref().token {
        Token::EOF | Token::SemiColon => Ok(Some(read)),
        token if verb == Some("create") && ["create", "grant"].iter().any(|word| is_word(token, word)) => {
            Err(SqlError::unsupported(
                "CREATE SCHEMA with what is to be made in it",
                "CREATE SCHEMA alone, and then the others with the schema before their names",
            ))
        }
        other => Err(near(other)),
    }
}

fn create(parser: &mut Parser<'_>) -> Result<SchemaSql> {
    let if_not_exists = take(parser, "if");
    if if_not_exists && !(take(parser, "not") && take(parser, "exists")) {
        return Err(near(&parser.peek_token_ref().token));
    }
    let is_named = !is_word(&parser.peek_token_ref().token, "authorization");
    let name = is_named.then(|| name(parser)).transpose()?;
    let owner = take(parser, "authorization").then(|| role(parser)).transpose()?;
    if let Some(name) = &name {
        check_name("schema", name)?;
    }
    Ok(SchemaSql::Create { name, owner, if_not_exists })
}

fn alter(parser: &mut Parser<'_>) -> Result<SchemaSql> {
    let of = name(parser)?;
    let change = if take(parser, "rename") {
        expect(parser, "to")?;
        let to = name(parser)?;
        check_name("schema", &to)?;
        SchemaChange::RenameTo(to)
    } else {
        expect(parser, "owner")?;
        expect(parser, "to")?;
        SchemaChange::OwnerTo(role(parser)?)
    };
    Ok(SchemaSql::Alter { name: of, change })
}

fn drop_of(parser: &mut Parser<'_>) -> Result<SchemaSql> {
    let if_exists = take(parser, "if");
    if if_exists {
        expect(parser, "exists")?;
    }
    let mut names = vec![name(parser)?];
    while parser.consume_token(&Token::Comma) {
        names.push(name(parser)?);
    }
    let cascade = take(parser, "cascade");
    if !cascade {
        take(parser, "restrict");
    }
    Ok(SchemaSql::Drop { names, if_exists, cascade })
}

fn comment(parser: &mut Parser<'_>) -> Result<SchemaSql> {
    let of = name(parser)?;
    expect(parser, "is")?;
    let text = match parser.next_token().token {
        Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => Some(text),
        Token::DollarQuotedString(text) => Some(text.value),
        token if is_word(&token, "null") => None,
        other => return Err(near(&other)),
    };
    // As in PostgreSQL: nothing is said by it.
    Ok(SchemaSql::Alter { name: of, change: SchemaChange::Comment(text.filter(|text| !text.is_empty())) })
}

fn name(parser: &mut Parser<'_>) -> Result<String> {
    match &parser.peek_token_ref().token {
        Token::Word(_) => Ok(fold(&parser.parse_identifier()?)),
        other => Err(near(other)),
    }
}

fn role(parser: &mut Parser<'_>) -> Result<Role> {
    let asking = ["current_user", "session_user", "current_role"];
    match asking.iter().any(|word| take(parser, word)) {
        true => Ok(Role::Asking),
        false => name(parser).map(Role::Named),
    }
}

fn expect(parser: &mut Parser<'_>, text: &str) -> Result<()> {
    if take(parser, text) { Ok(()) } else { Err(near(&parser.peek_token_ref().token)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::state;
    use crate::statement::{ParsedSql, parse};

    fn of(sql: &str) -> SchemaSql {
        match parse(sql).unwrap_or_else(|error| panic!("{sql}: {error}")).remove(0) {
            ParsedSql::Schema(statement) => *statement,
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[test]
    fn statements_about_schemas_are_read() {
        let made = |name: &str, owner: Option<Role>, if_not_exists| {
            let name = (!name.is_empty()).then(|| name.to_owned());
            SchemaSql::Create { name, owner, if_not_exists }
        };
        assert_eq!(of("create schema S"), made("s", None, false));
        assert_eq!(
            of("CREATE SCHEMA IF NOT EXISTS \"S\" AUTHORIZATION bob;"),
            made("S", Some(Role::Named("bob".into())), true)
        );
        assert_eq!(of("CREATE SCHEMA AUTHORIZATION CURRENT_USER"), made("", Some(Role::Asking), false));
        let change = SchemaChange::RenameTo("r".into());
        assert_eq!(of("ALTER SCHEMA s RENAME TO r"), SchemaSql::Alter { name: "s".into(), change });
        let names = vec!["s".to_owned(), "r".to_owned()];
        assert_eq!(of("DROP SCHEMA IF EXISTS s, r CASCADE"), SchemaSql::Drop { names, if_exists: true, cascade: true });
        let change = SchemaChange::Comment(Some("it's".into()));
        assert_eq!(of("COMMENT ON SCHEMA s IS 'it''s'"), SchemaSql::Alter { name: "s".into(), change });
        assert_eq!(of("COMMENT ON SCHEMA s IS 'it''s'").tag(), "COMMENT");
    }

    #[test]
    fn what_is_none_of_these_is_an_error() {
        for (sql, state) in [
            ("CREATE SCHEMA s CREATE TABLE t (a int)", state::FEATURE_NOT_SUPPORTED),
            ("CREATE SCHEMA", state::SYNTAX_ERROR),
            ("CREATE SCHEMA s t", state::SYNTAX_ERROR),
            ("DROP SCHEMA s,", state::SYNTAX_ERROR),
            ("ALTER SCHEMA s SET x", state::SYNTAX_ERROR),
        ] {
            assert_eq!(parse(sql).expect_err(sql).state(), state, "{sql}");
        }
    }
}
