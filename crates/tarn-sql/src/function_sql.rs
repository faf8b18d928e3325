//! What do statements about functions say?
//!
//! ```sql
//! CREATE [OR REPLACE] FUNCTION f(a int, OUT b text, c int DEFAULT 1) [RETURNS [SETOF] type | TABLE (b text)] LANGUAGE sql IMMUTABLE STRICT AS 'SELECT …'
//! … RETURN a + 1                                             … BEGIN ATOMIC SELECT a + 1; END
//! ALTER FUNCTION f(int) RENAME TO g | OWNER TO role | STABLE  DROP FUNCTION [IF EXISTS] f(int), … [RESTRICT | CASCADE]
//! COMMENT ON FUNCTION f(int) IS 'text'
//! ```
//!
//! Read here and not by the SQL parser: so what functions there are not is refused by name. Types are what they are
//! when the statement runs.

use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;
use tarn_node::functions::{Body, Mode, Parallel, Volatility};

use crate::error::{Result, SqlError, state};
use crate::names::{check_name, fold, is_word, near, take, written_name};
use crate::view_sql::text_from;

/// Parameters of a function, at most, as in PostgreSQL.
const MAX_PARAMETERS: usize = 100;

/// A statement about functions.
#[derive(Debug, Clone, PartialEq)]
pub enum FunctionSql {
    /// `CREATE [OR REPLACE] FUNCTION`.
    Create(Box<CreateFunction>),
    /// `ALTER FUNCTION`.
    Alter { of: FunctionReference, change: FunctionChange },
    /// `DROP FUNCTION`, of all or none.
    Drop { functions: Vec<FunctionReference>, if_exists: bool, cascade: bool },
    /// `COMMENT ON FUNCTION`; `None` takes it back.
    Comment { of: FunctionReference, text: Option<String> },
}

/// A function as it is to be.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateFunction {
    /// With the schema, where that was said ([`written_name`]).
    pub name: String,
    /// One of the same parameters is written anew, if it answers the same type.
    pub or_replace: bool,
    /// Those of the answer among them, in their order.
    pub parameters: Vec<SaidParameter>,
    /// What is said behind `RETURNS`.
    pub returns: Returns,
    /// Its query, in the form in which it was written.
    pub body: Body,
    /// The rest.
    pub options: FunctionOptions,
}

/// What is said of a parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct SaidParameter {
    /// Which way it goes.
    pub mode: Mode,
    pub name: Option<String>,
    pub data_type: ast::DataType,
    /// As it is written.
    pub default: Option<String>,
}

/// What is said of what it gives.
#[derive(Debug, Clone, PartialEq)]
pub enum Returns {
    /// What its parameters say.
    Nothing,
    /// Of a value, or of several.
    Type { data_type: ast::DataType, is_set: bool },
    /// The columns are among the parameters.
    Table,
}

/// What is said of how it may be called.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FunctionOptions {
    /// `None`, here and below: nothing is said.
    pub volatility: Option<Volatility>,
    pub is_strict: Option<bool>,
    pub is_leakproof: Option<bool>,
    pub parallel: Option<Parallel>,
    pub cost: Option<String>,
    pub rows: Option<String>,
}

/// The function that a statement means; without types the only one of its name.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionReference {
    pub name: String,
    /// Of the parameters that calls give.
    pub types: Option<Vec<ast::DataType>>,
}

/// What becomes of a function.
#[derive(Debug, Clone, PartialEq)]
pub enum FunctionChange {
    /// In its schema.
    RenameTo(String),
    /// Called as it was, there.
    SetSchema(String),
    /// Of this user.
    OwnerTo(String),
    /// What is said takes the place of what was.
    Options(FunctionOptions),
}

impl FunctionSql {
    /// The command tag.
    pub fn tag(&self) -> &'static str {
        match self {
            FunctionSql::Create(_) => "CREATE FUNCTION",
            FunctionSql::Alter { .. } => "ALTER FUNCTION",
            FunctionSql::Drop { .. } => "DROP FUNCTION",
            FunctionSql::Comment { .. } => "COMMENT",
        }
    }

    /// What it is about, for the log of changes.
    pub fn objects(&self) -> String {
        match self {
            FunctionSql::Create(create) => create.name.clone(),
            FunctionSql::Alter { of, .. } | FunctionSql::Comment { of, .. } => of.name.clone(),
            FunctionSql::Drop { functions, .. } => {
                functions.iter().map(|of| of.name.as_str()).collect::<Vec<_>>().join(", ")
            }
        }
    }
}

/// The statement that begins here, if it is about functions; nothing is taken if it is not. `sql` is the text that the
/// parser reads.
///
/// Errors: `0A000` for procedures, for other languages, and for what has no effect here that it promises; `42601`;
/// `42P13`.
pub fn user_function(parser: &mut Parser<'_>, sql: &str) -> Result<Option<FunctionSql>> {
    let word = |at: usize, text: &str| is_word(&parser.peek_nth_token_ref(at).token, text);
    if word(0, "comment") && word(1, "on") && word(2, "function") {
        skip(parser, 3);
        let said = comment(parser)?;
        return end(parser, said);
    }
    let verb = ["create", "alter", "drop"].into_iter().find(|verb| word(0, verb));
    let Some(verb) = verb else { return Ok(None) };
    let or_replace = verb == "create" && word(1, "or") && word(2, "replace");
    let at = if or_replace { 3 } else { 1 };
    if word(at, "procedure") || word(at, "aggregate") {
        let kind = if word(at, "procedure") { "PROCEDURE" } else { "AGGREGATE" };
        return Err(SqlError::unsupported(
            format!("{} {kind}", verb.to_uppercase()),
            "CREATE FUNCTION … LANGUAGE sql of one query; what writes is sent by the client",
        ));
    }
    let is_function = word(at, "function") || (verb == "drop" && word(at, "routine"));
    if !is_function {
        return Ok(None);
    }
    skip(parser, at + 1);
    let read = match verb {
        "create" => FunctionSql::Create(Box::new(create(parser, sql, or_replace)?)),
        "alter" => {
            let of = named(parser)?;
            FunctionSql::Alter { of, change: change(parser)? }
        }
        _ => drop_of(parser)?,
    };
    end(parser, read)
}

fn end(parser: &Parser<'_>, read: FunctionSql) -> Result<Option<FunctionSql>> {
    match &parser.peek_token_ref().token {
        Token::EOF | Token::SemiColon => Ok(Some(read)),
        other => Err(near(other)),
    }
}

fn create(parser: &mut Parser<'_>, sql: &str, or_replace: bool) -> Result<CreateFunction> {
    let name = written_name(&parser.parse_object_name(false)?)?;
    check_name("function", &name)?;
    let mut parameters = vec![];
    expect(parser, &Token::LParen)?;
    while parser.peek_token_ref().token != Token::RParen {
        if !parameters.is_empty() {
            expect(parser, &Token::Comma)?;
        }
        parameters.push(parameter(parser, sql)?);
    }
    parser.next_token();
    let mut returns = Returns::Nothing;
    // RETURNS NULL ON NULL INPUT is another thing.
    if is_word(&parser.peek_token_ref().token, "returns") && !is_word(&parser.peek_nth_token_ref(1).token, "null") {
        parser.next_token();
        if take(parser, "table") {
            returns = Returns::Table;
            expect(parser, &Token::LParen)?;
            loop {
                let name = Some(fold(&parser.parse_identifier()?));
                let data_type = parser.parse_data_type()?;
                parameters.push(SaidParameter { mode: Mode::Table, name, data_type, default: None });
                if !parser.consume_token(&Token::Comma) {
                    break;
                }
            }
            expect(parser, &Token::RParen)?;
        } else {
            let is_set = take(parser, "setof");
            returns = Returns::Type { data_type: parser.parse_data_type()?, is_set };
        }
    }
    if parameters.len() > MAX_PARAMETERS {
        let message = format!("functions cannot have more than {MAX_PARAMETERS} arguments");
        return Err(SqlError::new(state::TOO_MANY_ARGUMENTS, message));
    }
    check_names(&parameters)?;
    let mut said = FunctionClauses::default();
    while said.option(parser)? || said.body(parser, sql)? {}
    let body = said.body.ok_or_else(|| invalid("no function body specified"))?;
    match said.language.as_deref() {
        Some("sql") => {}
        None if matches!(body, Body::Return(_) | Body::Atomic(_)) => {}
        None => return Err(invalid("no language specified")),
        Some(language @ ("plpgsql" | "c" | "internal" | "plpython3u" | "plperl" | "pltcl")) => {
            return Err(SqlError::unsupported(
                format!("a function in LANGUAGE {language}"),
                "LANGUAGE sql, of one query; what a client can compute, it can send",
            ));
        }
        Some(other) => {
            return Err(SqlError::new(state::UNDEFINED_OBJECT, format!("language \"{other}\" does not exist"))
                .with_hint("LANGUAGE sql is what there is"));
        }
    }
    Ok(CreateFunction { name, or_replace, parameters, returns, body, options: said.options })
}

/// Errors: `42P13`, as in PostgreSQL.
fn check_names(parameters: &[SaidParameter]) -> Result<()> {
    let mut has_default = false;
    for (at, parameter) in parameters.iter().enumerate() {
        if let Some(name) = &parameter.name {
            // A column of what it gives may be called as what it takes, in PostgreSQL neither.
            if parameters[..at].iter().any(|other| other.name.as_ref() == Some(name)) {
                return Err(invalid(&format!("parameter name \"{name}\" used more than once")));
            }
        }
        match parameter.mode.is_taken() {
            true if parameter.default.is_some() => has_default = true,
            true if has_default => {
                return Err(invalid("input parameters after one with a default value must also have defaults"));
            }
            false if parameter.default.is_some() => {
                return Err(invalid("only input parameters can have default values"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn parameter(parser: &mut Parser<'_>, sql: &str) -> Result<SaidParameter> {
    let mut mode = mode(parser)?;
    let (mut name, mut data_type) = (None, None);
    // A name of one word is a type, too, as long as nothing follows.
    let first = parser.peek_token_ref().token.clone();
    let behind = parser.peek_nth_token_ref(1).token.clone();
    let ends = |token: &Token| matches!(token, Token::Comma | Token::RParen | Token::Eq) || is_word(token, "default");
    let is_name = matches!(&first, Token::Word(_))
        && matches!(&behind, Token::Word(_))
        && !ends(&behind)
        && !TYPES_OF_WORDS.iter().any(|(one, two)| is_word(&first, one) && is_word(&behind, two));
    if is_name {
        name = Some(fold(&parser.parse_identifier()?));
        // `a IN int` is another spelling of `IN a int`.
        if mode.is_none() {
            mode = self::mode(parser)?;
        }
    } else {
        data_type = Some(parser.parse_data_type()?);
    }
    let data_type = match data_type {
        Some(data_type) => data_type,
        None => parser.parse_data_type()?,
    };
    if parser.peek_token_ref().token == Token::Mod {
        return Err(SqlError::unsupported("a parameter of the type of a column, %TYPE", "name the type itself"));
    }
    let default = match take(parser, "default") || parser.consume_token(&Token::Eq) {
        false => None,
        true => {
            let start = parser.peek_token_ref().span.start;
            parser.parse_expr()?;
            Some(text_from(sql, start, parser))
        }
    };
    Ok(SaidParameter { mode: mode.unwrap_or(Mode::In), name, data_type, default })
}

/// Types of several words; the first is no name then.
const TYPES_OF_WORDS: [(&str, &str); 10] = [
    ("bit", "varying"),
    ("char", "varying"),
    ("character", "varying"),
    ("double", "precision"),
    ("national", "char"),
    ("national", "character"),
    ("time", "with"),
    ("time", "without"),
    ("timestamp", "with"),
    ("timestamp", "without"),
];

fn mode(parser: &mut Parser<'_>) -> Result<Option<Mode>> {
    if take(parser, "variadic") {
        return Err(SqlError::unsupported("a VARIADIC parameter", "an array: f(ARRAY[1, 2])"));
    }
    if take(parser, "in") {
        return Ok(Some(if take(parser, "out") { Mode::InOut } else { Mode::In }));
    }
    Ok(match () {
        () if take(parser, "out") => Some(Mode::Out),
        () if take(parser, "inout") => Some(Mode::InOut),
        () => None,
    })
}

/// What was said, each thing once.
#[derive(Default)]
struct FunctionClauses {
    language: Option<String>,
    body: Option<Body>,
    says_security: bool,
    options: FunctionOptions,
}

impl FunctionClauses {
    /// Whether there was an option here.
    fn option(&mut self, parser: &mut Parser<'_>) -> Result<bool> {
        let options = &mut self.options;
        let is_next = |parser: &Parser<'_>, text: &str| is_word(&parser.peek_token_ref().token, text);
        if take(parser, "language") {
            let language = match parser.next_token().token {
                Token::Word(word) => word.value.to_lowercase(),
                Token::SingleQuotedString(text) => text.to_lowercase(),
                other => return Err(near(&other)),
            };
            once(&mut self.language, language)?;
            return Ok(true);
        }
        for (text, volatility) in
            [("immutable", Volatility::Immutable), ("stable", Volatility::Stable), ("volatile", Volatility::Volatile)]
        {
            if take(parser, text) {
                once(&mut options.volatility, volatility)?;
                return Ok(true);
            }
        }
        if take(parser, "strict") {
            once(&mut options.is_strict, true)?;
        } else if take(parser, "called") {
            words(parser, &["on", "null", "input"])?;
            once(&mut options.is_strict, false)?;
        } else if take(parser, "returns") {
            words(parser, &["null", "on", "null", "input"])?;
            once(&mut options.is_strict, true)?;
        } else if take(parser, "not") {
            words(parser, &["leakproof"])?;
            once(&mut options.is_leakproof, false)?;
        } else if take(parser, "leakproof") {
            once(&mut options.is_leakproof, true)?;
        } else if take(parser, "parallel") {
            let word = parser.next_token().token;
            let parallel = match &word {
                word if is_word(word, "safe") => Parallel::Safe,
                word if is_word(word, "restricted") => Parallel::Restricted,
                word if is_word(word, "unsafe") => Parallel::Unsafe,
                other => {
                    let message = format!("parameter \"parallel\" must be SAFE, RESTRICTED, or UNSAFE, not {other}");
                    return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
                }
            };
            once(&mut options.parallel, parallel)?;
        } else if take(parser, "cost") {
            once(&mut options.cost, positive(parser, "COST")?)?;
        } else if take(parser, "rows") {
            once(&mut options.rows, positive(parser, "ROWS")?)?;
        } else if is_next(parser, "external") || is_next(parser, "security") {
            take(parser, "external");
            words(parser, &["security"])?;
            if take(parser, "definer") {
                return Err(SqlError::unsupported(
                    "SECURITY DEFINER",
                    "a view, which reads with the rights of its owner; or GRANT what the function reads",
                ));
            }
            words(parser, &["invoker"])?;
            if std::mem::replace(&mut self.says_security, true) {
                return Err(twice());
            }
        } else if is_next(parser, "set") {
            let remedy = "leave it out, and SET before the function is called";
            return Err(SqlError::unsupported("a function with settings of its own, SET", remedy));
        } else {
            for text in ["window", "transform", "support"] {
                if is_next(parser, text) {
                    let what = format!("a function with {}", text.to_uppercase());
                    return Err(SqlError::unsupported(what, "leave it out: it is of functions in C"));
                }
            }
            return Ok(false);
        }
        Ok(true)
    }

    /// Whether there was a body here.
    fn body(&mut self, parser: &mut Parser<'_>, sql: &str) -> Result<bool> {
        let body = if take(parser, "as") {
            let text = match parser.next_token().token {
                Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => text,
                Token::DollarQuotedString(text) => text.value,
                other => return Err(near(&other)),
            };
            if parser.peek_token_ref().token == Token::Comma {
                return Err(SqlError::unsupported("a function of a library, AS 'file', 'name'", "LANGUAGE sql"));
            }
            Body::Text(text)
        } else if take(parser, "return") {
            let start = parser.peek_token_ref().span.start;
            parser.parse_expr()?;
            Body::Return(text_from(sql, start, parser))
        } else if is_word(&parser.peek_token_ref().token, "begin")
            && is_word(&parser.peek_nth_token_ref(1).token, "atomic")
        {
            skip(parser, 2);
            atomic(parser, sql)?
        } else {
            return Ok(false);
        };
        match self.body.replace(body) {
            None => Ok(true),
            Some(_) => Err(twice()),
        }
    }
}

/// What is between `BEGIN ATOMIC` and its `END`.
fn atomic(parser: &mut Parser<'_>, sql: &str) -> Result<Body> {
    let start = parser.peek_token_ref().span.start;
    let mut n_open = 0;
    loop {
        let token = &parser.peek_token_ref().token;
        if *token == Token::EOF {
            return Err(near(token));
        }
        if is_word(token, "case") {
            n_open += 1;
        } else if is_word(token, "end") {
            if n_open == 0 {
                break;
            }
            n_open -= 1;
        }
        parser.next_token();
    }
    let text = text_from(sql, start, parser);
    parser.next_token();
    Ok(Body::Atomic(text))
}

fn change(parser: &mut Parser<'_>) -> Result<FunctionChange> {
    if take(parser, "rename") {
        words(parser, &["to"])?;
        let to = fold(&parser.parse_identifier()?);
        check_name("function", &to)?;
        return Ok(FunctionChange::RenameTo(to));
    }
    if take(parser, "owner") {
        words(parser, &["to"])?;
        return Ok(FunctionChange::OwnerTo(fold(&parser.parse_identifier()?)));
    }
    let is_next = |at: usize, text: &str| is_word(&parser.peek_nth_token_ref(at).token, text);
    if is_next(0, "set") && is_next(1, "schema") {
        words(parser, &["set", "schema"])?;
        return Ok(FunctionChange::SetSchema(fold(&parser.parse_identifier()?)));
    }
    if is_next(0, "depends") || (is_next(0, "no") && is_next(1, "depends")) {
        return Err(SqlError::unsupported("ALTER FUNCTION … DEPENDS ON EXTENSION", "leave it out"));
    }
    let mut said = FunctionClauses::default();
    let mut n_said = 0;
    while said.option(parser)? {
        n_said += 1;
    }
    take(parser, "restrict");
    match (n_said, said.language) {
        (0, _) | (_, Some(_)) => Err(near(&parser.peek_token_ref().token)),
        (_, None) => Ok(FunctionChange::Options(said.options)),
    }
}

fn drop_of(parser: &mut Parser<'_>) -> Result<FunctionSql> {
    let if_exists = take(parser, "if");
    if if_exists {
        words(parser, &["exists"])?;
    }
    let mut functions = vec![named(parser)?];
    while parser.consume_token(&Token::Comma) {
        functions.push(named(parser)?);
    }
    let cascade = take(parser, "cascade");
    if !cascade {
        take(parser, "restrict");
    }
    Ok(FunctionSql::Drop { functions, if_exists, cascade })
}

fn comment(parser: &mut Parser<'_>) -> Result<FunctionSql> {
    let of = named(parser)?;
    words(parser, &["is"])?;
    let text = match parser.next_token().token {
        Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => Some(text),
        Token::DollarQuotedString(text) => Some(text.value),
        token if is_word(&token, "null") => None,
        other => return Err(near(&other)),
    };
    Ok(FunctionSql::Comment { of, text: text.filter(|text| !text.is_empty()) })
}

/// `f`, `f(int, text)`; names and modes of parameters may stand there, and what it gives is not asked for.
fn named(parser: &mut Parser<'_>) -> Result<FunctionReference> {
    let name = written_name(&parser.parse_object_name(false)?)?;
    if !parser.consume_token(&Token::LParen) {
        return Ok(FunctionReference { name, types: None });
    }
    let mut types = vec![];
    let mut is_first = true;
    while parser.peek_token_ref().token != Token::RParen {
        if !std::mem::replace(&mut is_first, false) {
            expect(parser, &Token::Comma)?;
        }
        let parameter = parameter(parser, "")?;
        if parameter.mode.is_taken() {
            types.push(parameter.data_type);
        }
    }
    parser.next_token();
    Ok(FunctionReference { name, types: Some(types) })
}

fn positive(parser: &mut Parser<'_>, what: &str) -> Result<String> {
    let is_negative = parser.consume_token(&Token::Minus);
    let number = match parser.next_token().token {
        Token::Number(number, _) => number,
        other => return Err(near(&other)),
    };
    match !is_negative && number.parse::<f64>().is_ok_and(|number| number > 0.0) {
        true => Ok(number),
        false => Err(SqlError::new(state::INVALID_PARAMETER_VALUE, format!("{what} must be positive"))),
    }
}

fn once<T>(place: &mut Option<T>, value: T) -> Result<()> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(twice()),
    }
}

fn twice() -> SqlError {
    SqlError::new(state::SYNTAX_ERROR, "conflicting or redundant options")
}

/// `42P13`
pub fn invalid(message: &str) -> SqlError {
    SqlError::new(state::INVALID_FUNCTION_DEFINITION, message)
}

fn skip(parser: &mut Parser<'_>, n_tokens: usize) {
    for _ in 0..n_tokens {
        parser.next_token();
    }
}

fn expect(parser: &mut Parser<'_>, token: &Token) -> Result<()> {
    match parser.consume_token(token) {
        true => Ok(()),
        false => Err(near(&parser.peek_token_ref().token)),
    }
}

fn words(parser: &mut Parser<'_>, words: &[&str]) -> Result<()> {
    for word in words {
        if !take(parser, word) {
            return Err(near(&parser.peek_token_ref().token));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::{ParsedSql, parse};
    use tarn_types::full_name;

    fn of(sql: &str) -> FunctionSql {
        match parse(sql).unwrap_or_else(|error| panic!("{sql}: {error}")).remove(0) {
            ParsedSql::Function(statement) => *statement,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn functions_are_read() {
        let FunctionSql::Create(create) = of(
            "create or replace function public.F(a int, \"B\" double precision = 1.5, timestamp with time zone default now()) returns setof text \
             language SQL immutable strict parallel safe cost 10 as $$ select 'x;' $$;",
        ) else {
            panic!("no CREATE")
        };
        assert!(create.or_replace && create.name == full_name::said("public", "f"));
        let names: Vec<_> = create.parameters.iter().map(|parameter| parameter.name.as_deref()).collect();
        assert_eq!(names, [Some("a"), Some("B"), None]);
        let defaults: Vec<_> = create.parameters.iter().map(|parameter| parameter.default.as_deref()).collect();
        assert_eq!(defaults, [None, Some("1.5"), Some("now()")]);
        assert_eq!(create.body, Body::Text(" select 'x;' ".into()));
        assert!(matches!(create.returns, Returns::Type { is_set: true, .. }));
        assert_eq!(create.options.is_strict, Some(true));
        let FunctionSql::Create(create) =
            of("CREATE FUNCTION g(x int) RETURNS int BEGIN ATOMIC SELECT CASE WHEN x > 1 THEN 2 ELSE 3 END; END")
        else {
            panic!("no CREATE")
        };
        assert_eq!(create.body, Body::Atomic("SELECT CASE WHEN x > 1 THEN 2 ELSE 3 END;".into()));
        let FunctionSql::Create(create) =
            of("CREATE FUNCTION g(int, text) RETURNS TABLE (a int, b text) RETURN $1 + 1")
        else {
            panic!("no CREATE")
        };
        assert_eq!((create.parameters.len(), create.body), (4, Body::Return("$1 + 1".into())));
        let FunctionSql::Drop { functions, if_exists: true, cascade: true } =
            of("DROP FUNCTION IF EXISTS f(a int, OUT b text), g CASCADE")
        else {
            panic!("no DROP")
        };
        assert_eq!(functions[0].types.as_ref().map(Vec::len), Some(1));
        assert_eq!(functions[1].types, None);
        assert!(matches!(
            of("ALTER FUNCTION f(int) STABLE COST 1"),
            FunctionSql::Alter {
                change: FunctionChange::Options(FunctionOptions { volatility: Some(Volatility::Stable), .. }),
                ..
            }
        ));
    }

    #[test]
    fn what_there_is_not_is_refused_by_name() {
        let cases = [
            ("CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS 'BEGIN END'", state::FEATURE_NOT_SUPPORTED),
            ("CREATE FUNCTION f() RETURNS int LANGUAGE klingon AS ''", state::UNDEFINED_OBJECT),
            ("CREATE FUNCTION f() RETURNS int AS 'SELECT 1'", state::INVALID_FUNCTION_DEFINITION),
            ("CREATE FUNCTION f() RETURNS int LANGUAGE sql", state::INVALID_FUNCTION_DEFINITION),
            ("CREATE FUNCTION f(a int, a int) RETURNS int LANGUAGE sql AS ''", state::INVALID_FUNCTION_DEFINITION),
            ("CREATE FUNCTION f(a int = 1, b int) RETURNS int LANGUAGE sql AS ''", state::INVALID_FUNCTION_DEFINITION),
            ("CREATE FUNCTION f() RETURNS int LANGUAGE sql SECURITY DEFINER AS ''", state::FEATURE_NOT_SUPPORTED),
            ("CREATE FUNCTION f() RETURNS int LANGUAGE sql SET a = 1 AS ''", state::FEATURE_NOT_SUPPORTED),
            ("CREATE FUNCTION f(VARIADIC a int[]) RETURNS int LANGUAGE sql AS ''", state::FEATURE_NOT_SUPPORTED),
            ("CREATE FUNCTION f() RETURNS int LANGUAGE sql STABLE VOLATILE AS ''", state::SYNTAX_ERROR),
            ("CREATE FUNCTION f() RETURNS int LANGUAGE sql COST 0 AS ''", state::INVALID_PARAMETER_VALUE),
            ("CREATE PROCEDURE p() LANGUAGE sql AS ''", state::FEATURE_NOT_SUPPORTED),
            ("DROP FUNCTION", state::SYNTAX_ERROR),
            ("ALTER FUNCTION f()", state::SYNTAX_ERROR),
        ];
        for (sql, want) in cases {
            assert_eq!(parse(sql).expect_err(sql).state(), want, "{sql}");
        }
    }
}
