//! How is a text read as an array? `'{a,"b,c",NULL}'::text[]` has three items, as in Postgres. DataFusion's cast makes an array of the one text.
//!
//! And `ARRAY[['a'], ['b']]::text[]` has two dimensions, as before the cast; DataFusion makes texts of the rows.
//!
//! Texts that are written out are read here, before types are known; others are refused.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_types::{NoArray, array_items};

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
        Expr::Cast(cast) => (&mut cast.expr, &mut cast.field),
        Expr::TryCast(cast) => (&mut cast.expr, &mut cast.field),
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
    // The type of an array says nothing of its dimensions: what is cast are the items of all of them.
    let (n_of, n_to) = (of.get_type(schema).map_or(0, |of| n_dimensions(&of)), n_dimensions(field.data_type()));
    if n_of <= n_to {
        return Ok(Transformed::no(expr));
    }
    let to = (n_to..n_of).fold(field.data_type().clone(), |item, _| DataType::new_list(item, true));
    *field = Arc::new(field.as_ref().clone().with_data_type(to));
    Ok(Transformed::yes(expr))
}

fn n_dimensions(of: &DataType) -> usize {
    match of {
        DataType::List(item) | DataType::LargeList(item) => 1 + n_dimensions(item.data_type()),
        _ => 0,
    }
}

/// The items of an array of one dimension, as it is written: `{a,"b,c",NULL}`.
///
/// Errors: it is no such array; it has several dimensions.
pub fn items(text: &str) -> Result<Vec<Option<String>>> {
    match array_items(text) {
        Ok(items) => Ok(items.into_iter().map(|item| item.map(Cow::into_owned)).collect()),
        Err(NoArray::Malformed(what)) => {
            Err(ArrowError::CastError(format!("malformed array literal: \"{text}\": {what}")).into())
        }
        Err(NoArray::Dimensions) => {
            let what = "a text of an array of several dimensions".to_owned();
            Err(Error::Unsupported { what, remedy: "write ARRAY[[1, 2], [3, 4]]" }.into())
        }
        Err(NoArray::Bounds) => {
            let what = "a text of an array that says its bounds".to_owned();
            Err(Error::Unsupported { what, remedy: "leave them out: an array begins at 1" }.into())
        }
    }
}
