//! Of which type is `coalesce(doc, '{}')`? A `jsonb`, if `doc` is one: the text beside it is read as one. DataFusion
//! knows the text of it alone, and what stands beside that says that it is JSON, or a `uuid`, is lost in CASE,
//! COALESCE, NULLIF and subqueries, and in rows of a list.
//!
//! So there are functions that give what they take, as JSON or as `uuid`, and stand around these.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::{datafusion, each_expression};
use tarn_types::{DataType as Stored, arrow_field, data_type_of};

use super::function::texts;
use crate::postgres::kept_as_text::cast_function;

pub(super) const AS_JSON: [&str; 2] = ["tarn_as_json", "tarn_as_jsonb"];
const AS_UUID: &str = "tarn_as_uuid";

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    [Stored::Json, Stored::Jsonb, Stored::Uuid].map(as_kept).to_vec()
}

fn as_kept(to: Stored) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(AsKept { to, signature: Signature::any(1, Volatility::Immutable) }))
}

/// Gives what it takes.
#[derive(Debug, PartialEq, Eq, Hash)]
struct AsKept {
    to: Stored,
    signature: Signature,
}

impl ScalarUDFImpl for AsKept {
    fn name(&self) -> &str {
        match self.to {
            Stored::Uuid => AS_UUID,
            Stored::Jsonb => AS_JSON[1],
            _ => AS_JSON[0],
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(arrow_field(self.name(), &self.to, args.arg_fields[0].is_nullable())))
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(args[0].schema_name().to_string())
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(match &args.args[0] {
            ColumnarValue::Array(values) => ColumnarValue::Array(Arc::new(texts(values)?)),
            ColumnarValue::Scalar(value) => {
                ColumnarValue::Scalar(ScalarValue::try_from_array(&texts(&value.to_array()?)?, 0)?)
            }
        })
    }
}

/// The rule.
#[derive(Debug)]
pub(super) struct JsonMarkRule;

impl AnalyzerRule for JsonMarkRule {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, |expr, schema| {
            Ok(match kept_of_several(&expr, schema) {
                Some(to) => Transformed::yes(marked(expr, to)),
                None => Transformed::no(expr),
            })
        })
    }

    fn name(&self) -> &str {
        "postgres_kept_marked"
    }
}

/// The JSON type of an expression, also of those whose type DataFusion loses.
pub(super) fn json_type(expr: &Expr, schema: &DFSchema) -> Option<Stored> {
    kept_type(expr, schema).filter(|of| matches!(of, Stored::Json | Stored::Jsonb))
}

/// Its type, if values of that are kept as text.
pub(in crate::postgres) fn kept_type(expr: &Expr, schema: &DFSchema) -> Option<Stored> {
    if let Some(of) = kept_of_several(expr, schema) {
        return Some(of);
    }
    let (_, field) = expr.to_field(schema).ok()?;
    let is_text = field.data_type().is_string();
    data_type_of(&field).ok().filter(|of| is_text && is_kept(of))
}

fn is_kept(of: &Stored) -> bool {
    matches!(of, Stored::Json | Stored::Jsonb | Stored::Uuid)
}

/// That of a CASE, of a function that gives one of its arguments, or of a subquery, which is known until it is
/// computed.
fn kept_of_several(expr: &Expr, schema: &DFSchema) -> Option<Stored> {
    if let Expr::ScalarSubquery(query) = expr {
        let of = data_type_of(query.subquery.schema().fields().first()?).ok()?;
        return Some(of).filter(is_kept);
    }
    let of = values_of(expr)?.into_iter().find_map(|value| kept_type(value, schema))?;
    // The texts of `uuid`s are in their order, those of JSON are not.
    let by_order = matches!(expr, Expr::ScalarFunction(call) if matches!(call.name(), "greatest" | "least"));
    (!by_order || of == Stored::Uuid).then_some(of)
}

/// The values that an expression gives one of.
pub(in crate::postgres) fn values_of(expr: &Expr) -> Option<Vec<&Expr>> {
    match expr {
        Expr::Case(case) => {
            let results = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
            Some(results.chain(case.else_expr.as_deref()).collect())
        }
        Expr::ScalarFunction(call) if matches!(call.name(), "coalesce" | "nvl" | "ifnull" | "greatest" | "least") => {
            Some(call.args.iter().collect())
        }
        Expr::ScalarFunction(call) if call.name() == "nullif" => call.args.first().map(|value| vec![value]),
        Expr::Alias(alias) => values_of(&alias.expr),
        _ => None,
    }
}

/// Around an expression that DataFusion takes for a text. Texts that are written out in it are read as what they stand
/// beside.
pub(super) fn marked(expr: Expr, to: Stored) -> Expr {
    let read = |value: &mut Expr| {
        if is_untyped(value) {
            let of = std::mem::replace(value, Expr::Literal(ScalarValue::Null, None));
            *value = cast_function(to).call(vec![of]);
        }
    };
    let mut expr = expr;
    match &mut expr {
        Expr::Case(case) => {
            case.when_then_expr.iter_mut().for_each(|(_, then)| read(then));
            case.else_expr.iter_mut().for_each(|value| read(value));
        }
        Expr::ScalarFunction(call) if call.name() != "nullif" => call.args.iter_mut().for_each(read),
        _ => {}
    }
    as_kept(to).call(vec![expr])
}

/// A text that is written out, NULL, or a parameter of which nobody said the type.
pub(in crate::postgres) fn is_untyped(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(ScalarValue::Null, _) => true,
        Expr::Literal(value, None) => value.try_as_str().is_some_and(|text| text.is_some()),
        Expr::Placeholder(parameter) => parameter.field.as_ref().is_none_or(|field| {
            field.data_type().is_string() && data_type_of(field).is_ok_and(|of| of == Stored::Text)
        }),
        _ => false,
    }
}
