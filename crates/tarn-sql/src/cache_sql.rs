//! What do `CACHE TABLE` and `SYSTEM DROP CACHE` ask for?
//!
//! ```text
//! CACHE TABLE t [WHERE …]
//! SYSTEM DROP CACHE [METADATA | FOOTERS | PAGES | FRAGMENTS | LISTINGS] [FOR TABLE t]
//! ```

use datafusion::sql::sqlparser::ast::{SelectItem, Statement, WildcardAdditionalOptions};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;
use tarn_node::caches::Layer;
use tarn_query::dml::{rows_of, table_of};

use crate::error::{Result, SqlError, state};
use crate::names::{is_word, written_name};

/// `SYSTEM DROP CACHE …`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropCache {
    /// None: all.
    pub layer: Option<Layer>,
    /// Of its files alone; `None`: of all.
    pub table: Option<String>,
}

/// `CACHE TABLE …`
#[derive(Debug, Clone, PartialEq)]
pub struct CacheTable {
    pub table: String,
    /// What reads the rows that are meant.
    pub query: Statement,
}

/// What follows `SYSTEM DROP CACHE`.
pub fn drop_cache(parser: &mut Parser<'_>) -> Result<DropCache> {
    let mut layer = None;
    let mut table = None;
    if let Token::Word(word) = &parser.peek_token_ref().token
        && !word.value.eq_ignore_ascii_case("for")
    {
        let found = Layer::ALL.into_iter().find(|layer| word.value.eq_ignore_ascii_case(layer.name()));
        layer = Some(found.ok_or_else(|| {
            let names = Layer::ALL.map(|layer| layer.name().to_uppercase()).join(", ");
            SqlError::new(state::SYNTAX_ERROR, format!("there is no cache \"{}\"", word.value))
                .with_hint(format!("caches: {names}; SYSTEM DROP CACHE alone drops all"))
        })?);
        parser.next_token();
    }
    if parser.parse_keywords(&[Keyword::FOR, Keyword::TABLE]) {
        table = Some(written_name(&parser.parse_object_name(false)?)?);
    }
    Ok(DropCache { layer, table })
}

/// What follows `CACHE TABLE`.
pub fn cache_table(parser: &mut Parser<'_>) -> Result<CacheTable> {
    let name = parser.parse_object_name(false)?;
    let table = written_name(&name)?;
    let filter = parser.parse_keyword(Keyword::WHERE).then(|| parser.parse_expr()).transpose()?;
    let all = SelectItem::Wildcard(WildcardAdditionalOptions::default());
    let query = rows_of(vec![all], table_of(name), filter);
    tarn_query::parser::check(&query)?;
    Ok(CacheTable { table, query })
}

/// Whether `SYSTEM DROP CACHE` is next, or something else that begins with `SYSTEM`.
pub fn is_drop_cache(parser: &Parser<'_>) -> bool {
    let word = |at, text| is_word(&parser.peek_nth_token_ref(at).token, text);
    word(0, "system") && word(1, "drop") && word(2, "cache")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::{ParsedSql, parse};

    #[test]
    fn what_can_be_dropped() {
        let dropped = |sql: &str| match parse(sql).unwrap().remove(0) {
            ParsedSql::DropCache(dropped) => dropped,
            other => panic!("{other:?}"),
        };
        assert_eq!(dropped("system drop cache"), DropCache { layer: None, table: None });
        assert_eq!(
            dropped("SYSTEM DROP CACHE pages FOR TABLE T;"),
            DropCache { layer: Some(Layer::Pages), table: Some("t".to_owned()) }
        );
        assert_eq!(
            dropped("SYSTEM DROP CACHE FOR TABLE \"My\""),
            DropCache { layer: None, table: Some("My".to_owned()) }
        );
        let error = parse("SYSTEM DROP CACHE wine").unwrap_err();
        assert_eq!(error.state(), state::SYNTAX_ERROR);
        assert!(error.hint().unwrap().contains("LISTINGS"), "{error}");
        assert!(parse("SYSTEM DROP CACHE pages lots").is_err());
    }

    #[test]
    fn what_is_cached() {
        let ParsedSql::CacheTable(cached) = parse("cache table T where a > 1 and b like 'x%'").unwrap().remove(0)
        else {
            panic!("another statement");
        };
        assert_eq!(cached.table, "t");
        assert_eq!(cached.query.to_string(), "SELECT * FROM T WHERE a > 1 AND b LIKE 'x%'");
        assert!(parse("CACHE TABLE").is_err() && parse("CACHE TABLE t WHERE").is_err());
    }
}
