//! What do statements about users and rights say?
//!
//! ```sql
//! CREATE USER name [WITH] [LOGIN | NOLOGIN] [SUPERUSER | NOSUPERUSER] [PASSWORD 'text' | PASSWORD NULL]
//! ALTER USER name [WITH] …          DROP USER [IF EXISTS] name, …          (ROLE for USER; CREATE ROLE cannot log in)
//! GRANT SELECT, INSERT, UPDATE, DELETE | ALL ON t, … | ALL TABLES IN SCHEMA public TO name | PUBLIC, …
//! GRANT CREATE ON SCHEMA public TO name          REVOKE … FROM …          ALTER TABLE t OWNER TO name
//! ```
//!
//! Read here and not by the SQL parser: its statements print themselves, passwords included. A password in clear is a
//! verifier when this returns. What PostgreSQL has beyond these is refused, never taken and ignored.

use std::collections::BTreeSet;

use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;
use tarn_node::auth::access::{Access, Attributes, Grant, Objects};
use tarn_node::auth::password::{Verifier, is_hashed};
use tarn_node::auth::{PUBLIC, Privilege};

use crate::error::{Result, SqlError, state};
use crate::names::{fold, is_word, take, written_name};

/// The command tag of a statement about users and rights.
pub fn tag(access: &Access) -> &'static str {
    match access {
        Access::CreateUser { .. } => "CREATE ROLE",
        Access::AlterUser { .. } => "ALTER ROLE",
        Access::DropUser { .. } => "DROP ROLE",
        Access::Grant(_) => "GRANT",
        Access::Revoke(_) => "REVOKE",
        Access::Owner { .. } => "ALTER TABLE",
    }
}

/// The statement that begins here, if it is about users and rights; nothing is taken if it is not.
pub fn access(parser: &mut Parser<'_>) -> Result<Option<Access>> {
    let word = |at: usize, text: &str| is_word(&parser.peek_nth_token_ref(at).token, text);
    let is_user = word(1, "user") || word(1, "role");
    let verb = ["create", "alter", "drop"].into_iter().find(|verb| word(0, verb) && is_user);
    let is_role = word(1, "role");
    let verb = match () {
        () if verb.is_some() => verb,
        () if word(0, "grant") => Some("grant"),
        () if word(0, "revoke") => Some("revoke"),
        () if is_owner(parser) => Some("owner"),
        () => None,
    };
    let Some(verb) = verb else { return Ok(None) };
    parser.next_token();
    if verb == "grant" || verb == "revoke" {
        return grant(parser, verb == "grant").map(Some);
    }
    parser.next_token();
    Ok(Some(match verb {
        "create" => {
            let name = fold(&parser.parse_identifier()?);
            let mut attributes = attributes(parser)?;
            attributes.login = attributes.login.or(Some(!is_role));
            Access::CreateUser { name, attributes }
        }
        "alter" => Access::AlterUser { name: user(parser)?, attributes: attributes(parser)? },
        "drop" => {
            let if_exists = take(parser, "if") && expect(parser, "exists")?;
            Access::DropUser { names: users(parser)?, if_exists }
        }
        _ => {
            take(parser, "only");
            let table = written_name(&parser.parse_object_name(false)?)?;
            expect(parser, "owner")?;
            expect(parser, "to")?;
            Access::Owner { table, to: user(parser)? }
        }
    }))
}

/// Whether this is `ALTER TABLE [ONLY] a.b OWNER …`, or `ALTER VIEW`.
fn is_owner(parser: &Parser<'_>) -> bool {
    let token = |at: usize| &parser.peek_nth_token_ref(at).token;
    if !is_word(token(0), "alter") || !(is_word(token(1), "table") || is_word(token(1), "view")) {
        return false;
    }
    let mut at = if is_word(token(2), "only") { 4 } else { 3 };
    while *token(at) == Token::Period {
        at += 2;
    }
    is_word(token(at), "owner")
}

fn attributes(parser: &mut Parser<'_>) -> Result<Attributes> {
    let mut found = Attributes::default();
    take(parser, "with");
    loop {
        let token = parser.peek_token_ref().token.clone();
        if matches!(token, Token::EOF | Token::SemiColon) {
            return Ok(found);
        }
        let Token::Word(word) = &token else { return Err(near(&token)) };
        let word = word.value.to_lowercase();
        parser.next_token();
        let twice = match word.as_str() {
            "login" | "nologin" => found.login.replace(word == "login").is_some(),
            "superuser" | "nosuperuser" => found.superuser.replace(word == "superuser").is_some(),
            "encrypted" if is_word(&parser.peek_token_ref().token, "password") => false,
            "password" => found.password.replace(password(parser)?).is_some(),
            // So it is for everybody who is not superuser.
            "nocreatedb" | "nocreaterole" | "noreplication" | "nobypassrls" | "inherit" => false,
            "createdb" | "createrole" | "replication" | "bypassrls" | "noinherit" | "valid" | "connection" | "in"
            | "role" | "user" | "admin" | "sysid" | "rename" | "set" | "reset" => {
                return Err(SqlError::unsupported(
                    format!("{} of a role", word.to_uppercase()),
                    "roles have LOGIN, SUPERUSER and PASSWORD",
                ));
            }
            _ => return Err(near(&token)),
        };
        if twice {
            return Err(SqlError::new(state::SYNTAX_ERROR, "conflicting or redundant options"));
        }
    }
}

/// What follows the word `PASSWORD`. Its text is in no error.
fn password(parser: &mut Parser<'_>) -> Result<Option<Verifier>> {
    if take(parser, "null") {
        return Ok(None);
    }
    let (Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text)) = parser.next_token().token else {
        return Err(SqlError::new(state::SYNTAX_ERROR, "PASSWORD wants a text in quotes, or NULL")
            .with_detail("what came is not shown"));
    };
    if is_hashed(&text) {
        return text.parse().map(Some).map_err(|_| {
            SqlError::new(state::INVALID_PASSWORD, "the password is hashed in a way that is not known")
                .with_hint("give it in clear, or as SCRAM-SHA-256$iterations:salt$key:key; md5 is not taken")
        });
    }
    if text.is_empty() {
        return Err(SqlError::new(state::INVALID_PASSWORD, "the password is empty")
            .with_hint("PASSWORD NULL is for a user that cannot log in with one"));
    }
    Ok(Some(Verifier::of_password(&text)))
}

/// What follows `GRANT` or `REVOKE`.
fn grant(parser: &mut Parser<'_>, give: bool) -> Result<Access> {
    let no_option = || SqlError::unsupported("GRANT OPTION", "the owner and superusers grant");
    if is_word(&parser.peek_token_ref().token, "grant") && is_word(&parser.peek_nth_token_ref(1).token, "option") {
        return Err(no_option());
    }
    let (mut privileges, mut create, mut all) = (BTreeSet::new(), false, false);
    loop {
        let token = parser.next_token().token;
        let Token::Word(word) = &token else { return Err(near(&token)) };
        let name = word.value.to_lowercase();
        match name.as_str() {
            "select" => drop(privileges.insert(Privilege::Select)),
            "insert" => drop(privileges.insert(Privilege::Insert)),
            "update" => drop(privileges.insert(Privilege::Update)),
            "delete" => drop(privileges.insert(Privilege::Delete)),
            "create" => create = true,
            "all" => {
                take(parser, "privileges");
                all = true;
            }
            _ if !["on", ","].contains(&parser.peek_token_ref().token.to_string().to_lowercase().as_str()) => {
                return Err(SqlError::unsupported("membership in roles", "GRANT privileges ON tables TO each user"));
            }
            _ => {
                return Err(SqlError::unsupported(
                    format!("privilege {}", name.to_uppercase()),
                    "privileges: SELECT, INSERT, UPDATE, DELETE on tables, CREATE on schema public",
                ));
            }
        }
        if parser.peek_token_ref().token == Token::LParen {
            return Err(SqlError::unsupported("privileges on columns", "grant on the whole table"));
        }
        if !parser.consume_token(&Token::Comma) {
            break;
        }
    }
    expect(parser, "on")?;
    let on = objects(parser)?;
    match on {
        Objects::Schema if !create || all || !privileges.is_empty() => {
            return Err(SqlError::unsupported(
                "this privilege on a schema",
                "GRANT CREATE ON SCHEMA public lets a user make tables; every user may use it",
            ));
        }
        Objects::Schema => {}
        Objects::Tables(_) | Objects::AllTables(_) if create || (all && !privileges.is_empty()) => {
            return Err(SqlError::new(state::INVALID_GRANT, "invalid privileges for a table")
                .with_hint("privileges on tables: SELECT, INSERT, UPDATE, DELETE, or ALL"));
        }
        Objects::Tables(_) | Objects::AllTables(_) if all => privileges.extend(Privilege::ALL),
        Objects::Tables(_) | Objects::AllTables(_) => {}
    }
    expect(parser, if give { "to" } else { "from" })?;
    let grant = Grant { privileges, on, users: users(parser)? };
    if give && is_word(&parser.peek_token_ref().token, "with") {
        return Err(no_option());
    }
    if !give {
        take(parser, "restrict");
    }
    Ok(if give { Access::Grant(grant) } else { Access::Revoke(grant) })
}

fn objects(parser: &mut Parser<'_>) -> Result<Objects> {
    let word = |at: usize, text: &str| is_word(&parser.peek_nth_token_ref(at).token, text);
    let follows_name =
        matches!(parser.peek_nth_token_ref(1).token, Token::Word(_)) && !word(1, "to") && !word(1, "from");
    if follows_name && word(0, "all") {
        for word in ["all", "tables", "in", "schema"] {
            expect(parser, word)?;
        }
        return Ok(Objects::AllTables(fold(&parser.parse_identifier()?)));
    }
    if follows_name && word(0, "schema") {
        parser.next_token();
        public(parser)?;
        return Ok(Objects::Schema);
    }
    if follows_name && !word(0, "table") {
        let kind = parser.peek_token_ref().token.to_string().to_uppercase();
        return Err(SqlError::unsupported(format!("privileges on {kind}"), "grant on tables, or on schema public"));
    }
    if follows_name {
        parser.next_token();
    }
    let mut names = Vec::new();
    loop {
        names.push(written_name(&parser.parse_object_name(false)?)?);
        if !parser.consume_token(&Token::Comma) {
            return Ok(Objects::Tables(names));
        }
    }
}

fn public(parser: &mut Parser<'_>) -> Result<()> {
    let schema = fold(&parser.parse_identifier()?);
    if schema == "public" {
        return Ok(());
    }
    Err(SqlError::unsupported(
        format!("privileges on schema \"{schema}\""),
        "its owner makes tables in it (ALTER SCHEMA … OWNER TO), and every user may use it",
    ))
}

fn users(parser: &mut Parser<'_>) -> Result<Vec<String>> {
    let mut names = Vec::new();
    loop {
        names.push(user(parser)?);
        if !parser.consume_token(&Token::Comma) {
            return Ok(names);
        }
    }
}

fn user(parser: &mut Parser<'_>) -> Result<String> {
    let ident = parser.parse_identifier()?;
    let name = fold(&ident);
    let stands_for_another = ["current_user", "session_user", "current_role", "group", "all"];
    if ident.quote_style.is_none() && name != PUBLIC && stands_for_another.contains(&name.as_str()) {
        return Err(SqlError::unsupported(format!("{} here", name.to_uppercase()), "name the user"));
    }
    Ok(name)
}

/// True, or an error.
fn expect(parser: &mut Parser<'_>, text: &str) -> Result<bool> {
    if take(parser, text) { Ok(true) } else { Err(near(&parser.peek_token_ref().token)) }
}

fn near(token: &Token) -> SqlError {
    // A text may be a password that somebody forgot to announce.
    let shown = match token {
        Token::Word(word) => word.value.clone(),
        Token::EOF => "end of input".to_owned(),
        Token::SingleQuotedString(_) | Token::EscapedStringLiteral(_) | Token::Number(..) => "a literal".to_owned(),
        other => other.to_string(),
    };
    SqlError::new(state::SYNTAX_ERROR, format!("syntax error at or near \"{shown}\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::{ParsedSql, parse};

    fn of(sql: &str) -> Access {
        match parse(sql).unwrap_or_else(|error| panic!("{sql}: {error}")).remove(0) {
            ParsedSql::Access(access) => *access,
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[test]
    fn users_and_their_attributes() {
        let Access::CreateUser { name, attributes } = of("create user Bob with superuser password 'x'") else {
            panic!()
        };
        assert_eq!((name.as_str(), attributes.login, attributes.superuser), ("bob", Some(true), Some(true)));
        assert!(attributes.password.unwrap().unwrap().fits("x"));
        let Access::CreateUser { attributes, .. } = of("CREATE ROLE r NOCREATEDB INHERIT ENCRYPTED PASSWORD 'x'")
        else {
            panic!()
        };
        assert_eq!(attributes.login, Some(false));
        let Access::AlterUser { name, attributes } = of("ALTER USER \"B o b\" PASSWORD NULL") else { panic!() };
        assert_eq!((name.as_str(), attributes.password, attributes.login), ("B o b", Some(None), None));
        let hashed = Verifier::of_password("x");
        let Access::AlterUser { attributes, .. } = of(&format!("ALTER ROLE b PASSWORD '{hashed}'")) else { panic!() };
        assert_eq!(attributes.password, Some(Some(hashed)));
        assert_eq!(
            of("DROP USER IF EXISTS a, b"),
            Access::DropUser { names: vec!["a".into(), "b".into()], if_exists: true }
        );
        assert_eq!(of("ALTER TABLE T OWNER TO bob"), Access::Owner { table: "t".into(), to: "bob".into() });
    }

    #[test]
    fn grants() {
        let Access::Grant(grant) = of("GRANT select, Insert ON TABLE a, b TO bob, PUBLIC") else { panic!() };
        assert_eq!(grant.privileges, [Privilege::Select, Privilege::Insert].into());
        assert_eq!(
            (grant.on, grant.users),
            (Objects::Tables(vec!["a".into(), "b".into()]), vec!["bob".into(), "public".into()])
        );
        let Access::Revoke(grant) = of("REVOKE ALL PRIVILEGES ON ALL TABLES IN SCHEMA public FROM bob RESTRICT") else {
            panic!()
        };
        assert_eq!((grant.privileges.len(), grant.on), (4, Objects::AllTables("public".into())));
        let Access::Grant(grant) = of("GRANT CREATE ON SCHEMA public TO bob") else { panic!() };
        assert_eq!(grant.on, Objects::Schema);
    }

    #[test]
    fn what_is_not_understood_is_refused_and_no_password_is_shown() {
        for (sql, want) in [
            ("CREATE USER a VALID UNTIL 'infinity'", state::FEATURE_NOT_SUPPORTED),
            ("CREATE USER a CREATEDB", state::FEATURE_NOT_SUPPORTED),
            ("CREATE USER a CONNECTION LIMIT 3", state::FEATURE_NOT_SUPPORTED),
            ("CREATE USER a IN ROLE b", state::FEATURE_NOT_SUPPORTED),
            ("CREATE USER a LOGIN NOLOGIN", state::SYNTAX_ERROR),
            ("CREATE USER a PASSWORD hunter2", state::SYNTAX_ERROR),
            ("CREATE USER a PASSWORD ''", state::INVALID_PASSWORD),
            ("CREATE USER a PASSWRD 'hunter2'", state::SYNTAX_ERROR),
            ("CREATE USER a 'hunter2'", state::SYNTAX_ERROR),
            ("CREATE USER a PASSWORD 'hunter2' 'hunter2'", state::SYNTAX_ERROR),
            ("ALTER USER a RENAME TO b", state::FEATURE_NOT_SUPPORTED),
            ("ALTER USER a PASSWORD 'md500112233445566778899aabbccddeeff'", state::INVALID_PASSWORD),
            ("ALTER USER a PASSWORD 'SCRAM-SHA-256$4096:hunter2'", state::INVALID_PASSWORD),
            ("ALTER USER CURRENT_USER PASSWORD 'hunter2'", state::FEATURE_NOT_SUPPORTED),
            ("GRANT a TO b", state::FEATURE_NOT_SUPPORTED),
            ("GRANT SELECT (x) ON t TO b", state::FEATURE_NOT_SUPPORTED),
            ("GRANT TRUNCATE ON t TO b", state::FEATURE_NOT_SUPPORTED),
            ("GRANT SELECT ON t TO b WITH GRANT OPTION", state::FEATURE_NOT_SUPPORTED),
            ("REVOKE GRANT OPTION FOR SELECT ON t FROM b", state::FEATURE_NOT_SUPPORTED),
            ("GRANT USAGE ON SCHEMA public TO b", state::FEATURE_NOT_SUPPORTED),
            ("GRANT ALL ON DATABASE tarn TO b", state::FEATURE_NOT_SUPPORTED),
            ("GRANT CREATE ON t TO b", state::INVALID_GRANT),
            ("GRANT SELECT ON t", state::SYNTAX_ERROR),
            ("REVOKE SELECT ON t FROM b CASCADE", state::SYNTAX_ERROR),
        ] {
            let error = parse(sql).expect_err(sql);
            assert_eq!(error.state(), want, "{sql}: {error}");
            assert!(!format!("{error:?}").contains("hunter2"), "{sql}: {error:?}");
        }
        let shown = format!("{:?}", of("CREATE USER a PASSWORD 'hunter2'"));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
