//! What does `ATTACH` mean?
//!
//! ```sql
//! ATTACH 's3://bucket/logs' AS logs WITH (hour_from = 'dt=…/hr=…', tokens = 'body', bloom = 'trace_id', follow = '60s')
//! DETACH TABLE [IF EXISTS] logs
//! ```
//!
//! SQL text to a request, a request and what was found there to the table, and a table back to the text.

use datafusion::sql::sqlparser::ast::SqlOption;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::Parser;
use tarn_node::attach::AttachRequest;
use tarn_types::settings::duration_ms;

use crate::ddl::option_text;
use crate::error::{Result, SqlError, state};
use crate::names::{check_name, fold, written_name};

/// How often an archive is looked at that is followed, if nobody says.
const FOLLOW_MS: u64 = 60_000;

/// And at most: each time is a listing.
const MIN_FOLLOW_MS: u64 = 1_000;

/// Files read at once, at most.
const MAX_CONCURRENCY: u32 = 256;

const OPTIONS: &str =
    "options: hour_from, time_column, tokens, bloom, bloom_chunks, bloom_fpp, follow, concurrency, checksums";

/// What follows the word `ATTACH`.
pub fn attach(parser: &mut Parser<'_>) -> Result<AttachRequest> {
    let url = parser.parse_literal_string()?;
    parser.expect_keyword(Keyword::AS)?;
    let name = written_name(&parser.parse_object_name(false)?)?;
    check_name("table", &name)?;
    let mut request = AttachRequest { url, name, ..AttachRequest::default() };
    for option in parser.parse_options(Keyword::WITH)? {
        let SqlOption::KeyValue { key, value } = option else {
            return Err(SqlError::new(state::SYNTAX_ERROR, format!("WITH option {option}: want name = value")));
        };
        set(&mut request, &fold(&key), option_text(&key, &value)?)?;
    }
    Ok(request)
}

/// What follows the words `DETACH TABLE`: the name, and whether there may be none.
pub fn detach(parser: &mut Parser<'_>) -> Result<(String, bool)> {
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    Ok((written_name(&parser.parse_object_name(false)?)?, if_exists))
}

/// One option.
fn set(request: &mut AttachRequest, name: &str, value: String) -> Result<()> {
    let bad = |want: &str| {
        let message = format!("ATTACH option {name} = '{value}': want {want}");
        Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message))
    };
    match name {
        "hour_from" => request.hour_from = Some(value),
        "time_column" => request.time_column = Some(value),
        "tokens" | "bloom" | "bloom_chunks" | "bloom_fpp" => request.indexing.push((name.to_owned(), value)),
        "follow" => {
            request.follow_ms = match value.to_ascii_lowercase().as_str() {
                "false" | "off" | "no" => None,
                "true" | "on" | "yes" => Some(FOLLOW_MS),
                text => match duration_ms(text) {
                    Ok(ms) if ms >= MIN_FOLLOW_MS => Some(ms),
                    _ => return bad("a duration of at least 1s, such as 60s, or off"),
                },
            }
        }
        "concurrency" => match value.parse() {
            Ok(n) if (1..=MAX_CONCURRENCY).contains(&n) => request.concurrency = Some(n),
            _ => return bad("a number from 1 to 256"),
        },
        "checksums" => {
            request.checksums = match value.to_ascii_lowercase().as_str() {
                "true" | "on" | "yes" => true,
                "false" | "off" | "no" => false,
                _ => return bad("true or false"),
            }
        }
        _ => {
            let message = format!("unknown ATTACH option {name}");
            return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message).with_hint(OPTIONS));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tarn_types::{Column, ColumnId, DataType, TableId, TableOptions, TableSchema, TabletId};

    use super::*;
    use crate::definition::create_statement;
    use crate::statement::{ParsedSql, parse};

    fn request(sql: &str) -> Result<AttachRequest> {
        match parse(sql)?.remove(0) {
            ParsedSql::Attach(request) => Ok(*request),
            other => panic!("{other:?}"),
        }
    }

    fn surveyed(request: &AttachRequest) -> TableSchema {
        let types = [DataType::TimestampTz, DataType::Text, DataType::Float64];
        let column = |(idx, data_type): (usize, DataType)| Column {
            id: ColumnId(idx as u32 + 1),
            name: ["ts", "Body text", "share"][idx].to_owned(),
            data_type,
            nullable: true,
            default: None,
        };
        let archive = Some(request.archive(request.url.clone()));
        TableSchema {
            id: TableId(0),
            name: request.name.clone(),
            columns: types.into_iter().enumerate().map(column).collect(),
            key: Vec::new(),
            n_partition_key: 0,
            first_tablet: TabletId(0),
            options: TableOptions { tablets: 0, archive, ..TableOptions::default() },
        }
    }

    #[test]
    fn a_statement_comes_back_as_it_was() {
        let sql = "ATTACH 's3://b/it''s' AS \"Logs\" WITH (hour_from = 'dt=…/hr=…', time_column = 'ts', tokens = '\"Body text\"', \
                   bloom = '\"Body text\", ts', bloom_chunks = 8192, bloom_fpp = 0.01, follow = '1500ms', concurrency = 8, checksums = true)";
        let asked = request(sql).unwrap();
        let table = asked.table(surveyed(&asked)).unwrap();
        assert_eq!(create_statement(&table, &[]), sql);
        let short = request("attach '/data' as logs").unwrap();
        assert_eq!((short.name.as_str(), short.follow_ms, short.concurrency), ("logs", None, None));
        assert_eq!(request("ATTACH '/d' AS t WITH (follow = true)").unwrap().follow_ms, Some(60_000));
        assert_eq!(request("ATTACH '/d' AS t WITH (follow = 1000)").unwrap().follow_ms, Some(1000));
        let error = request("ATTACH '/d' AS t WITH (follow = '999ms')").unwrap_err();
        assert_eq!(
            error.message(),
            "ATTACH option follow = '999ms': want a duration of at least 1s, such as 60s, or off"
        );
    }

    #[test]
    fn mistakes_have_states_and_remedies() {
        for (sql, want) in [
            ("ATTACH logs AS t", state::SYNTAX_ERROR),
            ("ATTACH '/d'", state::SYNTAX_ERROR),
            ("ATTACH '/d' AS t WITH (colour = 1)", state::INVALID_PARAMETER_VALUE),
            ("ATTACH '/d' AS t WITH (follow = 'soon')", state::INVALID_PARAMETER_VALUE),
            ("ATTACH '/d' AS t WITH (follow = 0)", state::INVALID_PARAMETER_VALUE),
            ("ATTACH '/d' AS t WITH (concurrency = 0)", state::INVALID_PARAMETER_VALUE),
            ("ATTACH '/d' AS t WITH (checksums = 'crc')", state::INVALID_PARAMETER_VALUE),
            ("ATTACH '/d' AS tarn.t", state::WRONG_OBJECT_TYPE),
            ("DETACH TABLE", state::SYNTAX_ERROR),
        ] {
            assert_eq!(parse(sql).unwrap_err().state(), want, "{sql}");
        }
        for (options, want) in [
            ("time_column = 'tz'", state::UNDEFINED_COLUMN),
            ("time_column = 'share'", state::INVALID_TABLE_DEFINITION),
            ("tokens = 'body'", state::UNDEFINED_COLUMN),
            ("tokens = 'ts'", state::INVALID_TABLE_DEFINITION),
            ("bloom = 'share'", state::INVALID_TABLE_DEFINITION),
            ("bloom_chunks = 100", state::INVALID_PARAMETER_VALUE),
        ] {
            let asked = request(&format!("ATTACH '/d' AS t WITH ({options})")).unwrap();
            let error = SqlError::from(asked.table(surveyed(&asked)).unwrap_err());
            assert_eq!(error.state(), want, "{options}: {error}");
        }
        let asked = request("ATTACH '/d' AS t WITH (bloom = 'x')").unwrap();
        let error = asked.table(surveyed(&asked)).unwrap_err();
        assert_eq!(error.hint(), Some("columns of the files looked at: ts, Body text, share"));
    }
}
