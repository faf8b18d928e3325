//! What is `'ok'::mood`? The label, or 22P02. And `enum_first`, `enum_last` and `enum_range` of a value, which stands
//! for its type? Constants of that.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    TypeSignature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::{array_items, datafusion, each_expression};
use tarn_types::{DataType as Stored, Enumerated, data_type_of};

use super::function::{array_of, as_label};
use super::{EnumTypes, field_of};
use crate::error::{SqlError, state};
use crate::postgres::casts::as_text;
use crate::rows::{long_name, pg_type};

const FIRST: &str = "enum_first";
const LAST: &str = "enum_last";
const RANGE: &str = "enum_range";

/// The functions that statements name; in a plan they are constants.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let of = |name, n: &[usize]| {
        let signature = Signature::one_of(n.iter().map(|n| TypeSignature::Any(*n)).collect(), Volatility::Stable);
        Arc::new(ScalarUDF::from(OfType { name, signature }))
    };
    vec![of(FIRST, &[1]), of(LAST, &[1]), of(RANGE, &[1, 2])]
}

/// The rule.
#[derive(Debug)]
pub(super) struct EnumCasts(pub EnumTypes);

impl AnalyzerRule for EnumCasts {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, |expr, schema| self.rewritten(expr, schema))
    }

    fn name(&self) -> &str {
        "postgres_enum_casts"
    }
}

impl EnumCasts {
    fn rewritten(&self, expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        match expr {
            Expr::Cast(Cast { expr: of, field }) => {
                let Some(to) = self.0.of_field(&field).or_else(|| self.0.of_items(&field)) else {
                    // A label that is cast to a text is none any more.
                    let is_text = field.data_type().is_string() && self.0.of(&of, schema).is_some();
                    return Ok(match is_text {
                        true => Transformed::yes(as_text(*of, field.data_type())),
                        false => Transformed::no(Expr::Cast(Cast { expr: of, field })),
                    });
                };
                let is_array = !field.data_type().is_string();
                self.cast(*of, &to, is_array, &field, schema).map(Transformed::yes)
            }
            Expr::ScalarFunction(call) if [FIRST, LAST, RANGE].contains(&call.func.name()) => {
                self.of_type(&call, schema).map(Transformed::yes)
            }
            other => Ok(Transformed::no(other)),
        }
    }

    fn cast(&self, of: Expr, to: &Enumerated, is_array: bool, field: &FieldRef, schema: &DFSchema) -> Result<Expr> {
        if let Expr::Placeholder(mut parameter) = of {
            parameter.field.get_or_insert_with(|| Arc::clone(field));
            return Ok(as_label(Expr::Placeholder(parameter), to));
        }
        if let Expr::Literal(text, None) = &of
            && let Some(Some(text)) = text.try_as_str()
        {
            let items = match is_array {
                true => array_items(text)?,
                false => vec![Some(text.to_owned())],
            };
            items.iter().flatten().try_for_each(|item| to.place(item).map(drop)).map_err(SqlError::from)?;
            if is_array {
                return Ok(array_of(items, to));
            }
        }
        let own = field_of(&of, schema);
        let own = own.as_deref();
        let is_text = |of: &Field| data_type_of(of).is_ok_and(|of| of == Stored::Text) && Enumerated::of(of).is_none();
        let is_taken = match own {
            None => true,
            Some(own) if own.data_type().is_null() => true,
            Some(own) if is_array => match own.data_type() {
                DataType::List(item) | DataType::LargeList(item) => {
                    is_text(item) || item.data_type().is_null() || self.0.of_items(own).is_some_and(|of| of.id == to.id)
                }
                _ => false,
            },
            Some(own) => is_text(own) || self.0.of_field(own).is_some_and(|of| of.id == to.id),
        };
        if !is_taken {
            let from = own.map_or_else(|| Ok("unknown".to_owned()), |own| pg_type(own).map(|of| long_name(&of)))?;
            let message = format!("cannot cast type {from} to {}", long_name(&pg_type(field)?));
            return Err(SqlError::new(state::CANNOT_COERCE, message).with_hint("cast it to text first").into());
        }
        if is_array && own.is_none_or(|own| own.data_type().is_null()) {
            let none = Expr::Cast(Cast::new(Box::new(of), DataType::new_list(DataType::Utf8, true)));
            return Ok(as_label(none, to));
        }
        Ok(as_label(of, to))
    }

    fn of_type(&self, call: &ScalarFunction, schema: &DFSchema) -> Result<Expr> {
        let of = call.args.iter().find_map(|arg| self.0.of(arg, schema));
        let Some(of) = of else {
            let message = "could not determine actual enum type";
            return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message)
                .with_hint("give it a value of the type, as in enum_range(NULL::mood)")
                .into());
        };
        let one = |label: Option<&String>| match label {
            Some(label) => Ok(as_label(Expr::Literal(ScalarValue::Utf8(Some(label.clone())), None), &of)),
            None => {
                let message = format!("enum {} contains no values", of.name);
                Err(SqlError::new(state::NOT_IN_PREREQUISITE_STATE, message).into())
            }
        };
        match (call.func.name(), &call.args[..]) {
            (FIRST, _) => one(of.labels.first()),
            (LAST, _) => one(of.labels.last()),
            (_, [from, to]) => {
                let (from, to) = (bound(from, &of)?, bound(to, &of)?);
                let (from, to) = (from.unwrap_or(0), to.map_or(of.labels.len(), |to| to + 1));
                let labels = of.labels.get(from..to.max(from)).unwrap_or_default();
                Ok(array_of(labels.iter().cloned().map(Some), &of))
            }
            _ => Ok(array_of(of.labels.iter().cloned().map(Some), &of)),
        }
    }
}

/// A bound that is written out; NULL is none.
///
/// Errors: `0A000` for one that is computed for each row.
fn bound(expr: &Expr, of: &Enumerated) -> Result<Option<usize>> {
    let text = match expr {
        Expr::Literal(value, _) if value.is_null() => return Ok(None),
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        // A label that is written out, by its cast.
        Expr::ScalarFunction(call) => return call.args.first().map_or(Ok(None), |first| bound(first, of)),
        Expr::Cast(Cast { expr, .. }) => return bound(expr, of),
        _ => None,
    };
    match text {
        Some(text) => Ok(Some(of.place(text).map_err(SqlError::from)?)),
        None => Err(SqlError::unsupported(
            "enum_range between values that are computed",
            "write the labels out, or compare with >= and <=",
        )
        .into()),
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfType {
    name: &'static str,
    signature: Signature,
}

impl ScalarUDFImpl for OfType {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.name {
            RANGE => DataType::new_list(DataType::Utf8, true),
            _ => DataType::Utf8,
        })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let tag = args.arg_fields.iter().find_map(|field| Enumerated::of(field));
        let tagged = |field: Field| match tag {
            Some((id, name)) => Enumerated::tagged(field, &format!("{id} {name}")),
            None => field,
        };
        Ok(Arc::new(match self.name {
            RANGE => {
                let item = tagged(Field::new_list_field(DataType::Utf8, true));
                Field::new(self.name, DataType::List(Arc::new(item)), false)
            }
            _ => tagged(Field::new(self.name, DataType::Utf8, false)),
        }))
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        exec_err!("{} is computed when a statement is planned", self.name)
    }
}
