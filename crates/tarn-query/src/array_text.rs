//! How is a text read as an array? `'{a,"b,c",NULL}'::text[]` has three items, as in Postgres. DataFusion's cast makes an array of the one text.
//!
//! Texts that are written out are read here, before types are known; others are refused.

use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;

use crate::Error;
use crate::rewrite::each_expression;

/// The rule.
#[derive(Debug)]
pub(crate) struct ArrayTexts;

impl AnalyzerRule for ArrayTexts {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, read)
    }

    fn name(&self) -> &str {
        "array_texts"
    }
}

fn read(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let (of, field) = match &mut expr {
        Expr::Cast(cast) => (&mut cast.expr, &cast.field),
        Expr::TryCast(cast) => (&mut cast.expr, &cast.field),
        _ => return Ok(Transformed::no(expr)),
    };
    if !matches!(field.data_type(), DataType::List(_) | DataType::LargeList(_)) {
        return Ok(Transformed::no(expr));
    }
    if let Expr::Literal(text, _) = of.as_ref()
        && let Some(text) = text.try_as_str()
    {
        let array = match text {
            Some(text) => {
                let items: Vec<ScalarValue> = items(text)?.into_iter().map(ScalarValue::Utf8).collect();
                ScalarValue::List(ScalarValue::new_list_nullable(&items, &DataType::Utf8))
            }
            None => ScalarValue::Null,
        };
        **of = Expr::Literal(array, None);
        return Ok(Transformed::yes(expr));
    }
    if of.get_type(schema).is_ok_and(|of| of.is_string()) {
        let what = "a cast of a text that is not written out to an array".to_owned();
        return Err(Error::Unsupported { what, remedy: "use string_to_array(text, ',')" }.into());
    }
    Ok(Transformed::no(expr))
}

/// The items of an array of one dimension, as it is written: `{a,"b,c",NULL}`.
///
/// Errors: it is no such array; it has several dimensions.
pub fn items(text: &str) -> Result<Vec<Option<String>>> {
    let malformed = || ArrowError::CastError(format!("malformed array literal: \"{text}\""));
    let inside = text.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).ok_or_else(malformed)?;
    if inside.trim().is_empty() {
        return Ok(vec![]);
    }
    let (mut items, mut rest) = (vec![], inside.chars());
    loop {
        let (mut item, mut is_quoted, mut kept) = (String::new(), false, 0);
        loop {
            match rest.next() {
                Some('\\') => {
                    item.push(rest.next().ok_or_else(malformed)?);
                    kept = item.len();
                }
                Some('"') if !is_quoted && item.trim().is_empty() => {
                    (item, is_quoted) = (quoted(&mut rest).ok_or_else(malformed)?, true);
                }
                Some('{') => {
                    let what = "a text of an array of several dimensions".to_owned();
                    return Err(Error::Unsupported { what, remedy: "write ARRAY[[1, 2], [3, 4]]" }.into());
                }
                Some('"' | '}') => return Err(malformed().into()),
                end @ (None | Some(',')) => {
                    // Spaces around are not of the item, unless they are quoted or escaped.
                    if !is_quoted {
                        item.truncate(kept.max(item.trim_end().len()));
                    }
                    let is_null = !is_quoted && item.eq_ignore_ascii_case("null");
                    if item.is_empty() && !is_quoted {
                        return Err(malformed().into());
                    }
                    items.push((!is_null).then_some(item));
                    match end {
                        Some(_) => break,
                        None => return Ok(items),
                    }
                }
                Some(space) if space.is_ascii_whitespace() && (is_quoted || item.is_empty()) => {}
                Some(_) if is_quoted => return Err(malformed().into()),
                Some(other) => item.push(other),
            }
        }
    }
}

/// What is up to the next quote; None, if there is none.
fn quoted(rest: &mut impl Iterator<Item = char>) -> Option<String> {
    let mut text = String::new();
    loop {
        match rest.next()? {
            '"' => return Some(text),
            '\\' => text.push(rest.next()?),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_read_as_in_postgres() {
        let read = |text: &str| {
            items(text).unwrap().into_iter().map(|item| item.unwrap_or("∅".to_owned())).collect::<Vec<_>>()
        };
        assert_eq!(read(r#"{"a,b",c}"#), ["a,b", "c"]);
        assert_eq!(read(r#" { a b , "" , NULL, "NULL" , "x\"y\\" , a\, } "#), ["a b", "", "∅", "NULL", "x\"y\\", "a,"]);
        assert!(read("{}").is_empty() && read(" { } ").is_empty());
        for text in ["", "a", "{a", "{a,}", "{,}", "{\"a}", "{\"a\"b}", "{a\"b\"}", "{a}}", "{a\\"] {
            assert!(items(text).is_err(), "{text}");
        }
        assert!(items("{{1,2}}").unwrap_err().to_string().contains("ARRAY[["));
    }
}
