//! What does `COMMENT ON` say?

use datafusion::sql::sqlparser::ast::ObjectNamePart;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::error::{Result, SqlError, state};
use crate::names::{fold, is_word, near, written_name};

/// What is said of something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    /// What kind of thing it is.
    pub on: CommentTarget,
    /// The table or view, or the type.
    pub table: String,
    /// None: what was said is taken back.
    pub text: Option<String>,
}

/// What it is said of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommentTarget {
    Table,
    View,
    Type,
    /// One of the table's, or of the view's.
    Column(String),
}

/// Reads a `COMMENT ON`. `None`: it is another statement, and nothing of it was read.
///
/// Errors: `0A000` for things that have no comments; `42601`.
pub fn comment(parser: &mut Parser<'_>) -> Result<Option<Comment>> {
    let word = |at: usize, text: &str| is_word(&parser.peek_nth_token_ref(at).token, text);
    if !word(0, "comment") || !word(1, "on") {
        return Ok(None);
    }
    parser.next_token();
    parser.next_token();
    let kind = parser.next_token().token.to_string().to_lowercase();
    let mut name = match kind.as_str() {
        "table" | "view" | "column" | "type" => parser.parse_object_name(false)?,
        other => {
            return Err(SqlError::unsupported(
                format!("COMMENT ON {}", other.to_uppercase()),
                "COMMENT ON TABLE, VIEW, COLUMN, TYPE or FUNCTION",
            ));
        }
    };
    let on = match kind.as_str() {
        "table" => CommentTarget::Table,
        "view" => CommentTarget::View,
        "type" => CommentTarget::Type,
        _ => match name.0.pop() {
            Some(ObjectNamePart::Identifier(column)) if !name.0.is_empty() => CommentTarget::Column(fold(&column)),
            _ => {
                return Err(SqlError::new(state::SYNTAX_ERROR, "column name must be qualified")
                    .with_hint("COMMENT ON COLUMN table.column IS …"));
            }
        },
    };
    let table = written_name(&name)?;
    if !is_word(&parser.peek_token_ref().token, "is") {
        return Err(near(&parser.peek_token_ref().token));
    }
    parser.next_token();
    let text = match parser.next_token().token {
        Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => Some(text),
        Token::DollarQuotedString(text) => Some(text.value),
        token if is_word(&token, "null") => None,
        other => return Err(near(&other)),
    };
    // As in PostgreSQL: nothing is said by it.
    Ok(Some(Comment { on, table, text: text.filter(|text| !text.is_empty()) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::{ParsedSql, parse};

    #[test]
    fn comments_of_tables_views_and_columns() {
        let of = |sql: &str| match parse(sql).unwrap_or_else(|error| panic!("{sql}: {error}")).remove(0) {
            ParsedSql::Comment(comment) => *comment,
            other => panic!("{other:?}"),
        };
        let said =
            |on, table: &str, text: Option<&str>| Comment { on, table: table.into(), text: text.map(str::to_owned) };
        assert_eq!(of("comment on table T is 'it''s'"), said(CommentTarget::Table, "t", Some("it's")));
        assert_eq!(of("COMMENT ON VIEW v IS $x$two\n'lines'$x$"), said(CommentTarget::View, "v", Some("two\n'lines'")));
        assert_eq!(
            of("COMMENT ON COLUMN v.\"A\" IS E'a\\tb'"),
            said(CommentTarget::Column("A".into()), "v", Some("a\tb"))
        );
        assert_eq!(of("COMMENT ON COLUMN v.a IS NULL"), said(CommentTarget::Column("a".into()), "v", None));
        assert_eq!(of("COMMENT ON TABLE t IS ''").text, None);
        for (sql, want) in [
            ("COMMENT ON DATABASE tarn IS 'x'", state::FEATURE_NOT_SUPPORTED),
            ("COMMENT ON COLUMN a IS 'x'", state::SYNTAX_ERROR),
            ("COMMENT ON TABLE t IS 1", state::SYNTAX_ERROR),
            ("COMMENT ON TABLE t 'x'", state::SYNTAX_ERROR),
            ("COMMENT ON TABLE tarn.tables IS 'x'", state::WRONG_OBJECT_TYPE),
        ] {
            assert_eq!(parse(sql).expect_err(sql).state(), want, "{sql}");
        }
    }
}
