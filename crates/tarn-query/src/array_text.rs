//! How is a text read as an array? `'{a,"b,c",NULL}'::text[]` has three items, as in Postgres. DataFusion's cast makes
//! an array of the one text.
//!
//! And `ARRAY[['a'], ['b']]::text[]` has two dimensions, as before the cast; DataFusion makes texts of the rows.
//!
//! Texts that are written out are read here, before types are known; others are refused. An array of several dimensions
//! is one of arrays, and a cast says of how many.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{ArrayRef, ListArray, StringArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field};
use arrow::error::ArrowError;
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_types::{ArrayParts, NoArray, array_items, array_parts};

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
    let n_dimensions = dimensions(field.data_type());
    if let Expr::Literal(text, _) = of.as_ref()
        && let Some(text) = text.try_as_str()
    {
        let array = match text {
            Some(text) => {
                let parts = array_parts(text).map_err(|why| refused(text, why))?;
                if !parts.items.is_empty() && parts.dimensions.len() != n_dimensions {
                    return Err(refused(text, NoArray::Dimensions));
                }
                ScalarValue::List(Arc::new(texts(&parts, n_dimensions)))
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
    let n_of = of.get_type(schema).map_or(0, |of| dimensions(&of));
    if n_of <= n_dimensions {
        return Ok(Transformed::no(expr));
    }
    let to = (n_dimensions..n_of).fold(field.data_type().clone(), |item, _| DataType::new_list(item, true));
    *field = Arc::new(field.as_ref().clone().with_data_type(to));
    Ok(Transformed::yes(expr))
}

/// How many arrays are in each other.
fn dimensions(of: &DataType) -> usize {
    match of {
        DataType::List(item) | DataType::LargeList(item) => 1 + dimensions(item.data_type()),
        _ => 0,
    }
}

/// One array of texts.
fn texts(parts: &ArrayParts<'_>, n_dimensions: usize) -> ListArray {
    let items: StringArray = parts.items.iter().map(|item| item.as_deref()).collect();
    let of_no_items = vec![0; n_dimensions];
    let lengths = if parts.items.is_empty() { &of_no_items } else { &parts.dimensions };
    let (outer, inner) = lengths.split_first().expect("an array has a dimension");
    let list = |items: ArrayRef, length: usize, n_lists: usize| {
        let item = Arc::new(Field::new_list_field(items.data_type().clone(), true));
        ListArray::new(item, OffsetBuffer::from_lengths(std::iter::repeat_n(length, n_lists)), items, None)
    };
    let mut n_lists = parts.items.len();
    let mut items: ArrayRef = Arc::new(items);
    for length in inner.iter().rev() {
        n_lists = n_lists.checked_div(*length).unwrap_or(0);
        items = Arc::new(list(items, *length, n_lists));
    }
    list(items, *outer, 1)
}

/// The items of an array of one dimension, as it is written: `{a,"b,c",NULL}`.
///
/// Errors: it is no such array; it has several dimensions.
pub fn items(text: &str) -> Result<Vec<Option<String>>> {
    let items = array_items(text).map_err(|why| refused(text, why))?;
    Ok(items.into_iter().map(|item| item.map(Cow::into_owned)).collect())
}

fn refused(text: &str, why: NoArray) -> DataFusionError {
    match why {
        NoArray::Malformed(what) => {
            ArrowError::CastError(format!("malformed array literal: \"{text}\": {what}")).into()
        }
        NoArray::Dimensions => {
            let what = "a text of an array of several dimensions here".to_owned();
            Error::Unsupported { what, remedy: "write ARRAY[[1, 2], [3, 4]], with six dimensions at most" }.into()
        }
        NoArray::Bounds => {
            let what = "a text of an array that says its bounds".to_owned();
            Error::Unsupported { what, remedy: "leave them out: an array begins at 1" }.into()
        }
    }
}
