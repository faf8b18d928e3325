//! Which number, or truth, is a `jsonb`? `'1.5'::jsonb::int` is 2, `'"a"'::jsonb::int` an error (22023). A `json` is
//! neither, and a type that has no cast from them is refused (42846).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::{datafusion, each_expression};
use tarn_types::{DataType as Stored, Value, data_type_of};

use super::function::{texts, type_name};
use super::walk::{Json, JsonKind};
use crate::error::{SqlError, state};
use crate::postgres::numeric::NUMERIC;

/// The rule.
#[derive(Debug)]
pub(super) struct JsonCasts;

impl AnalyzerRule for JsonCasts {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, rewritten)
    }

    fn name(&self) -> &str {
        "postgres_json_casts"
    }
}

/// Of what does not say how many digits it has.
const ANY_NUMERIC: DataType = DataType::Decimal128(38, 10);

fn rewritten(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let (of, to) = match &expr {
        Expr::Cast(Cast { expr: of, field }) => (of.as_ref(), field.data_type().clone()),
        Expr::ScalarFunction(call) if call.name() == NUMERIC && call.args.len() == 1 => (&call.args[0], ANY_NUMERIC),
        _ => return Ok(Transformed::no(expr)),
    };
    let Ok((_, field)) = of.to_field(schema) else { return Ok(Transformed::no(expr)) };
    let stored = data_type_of(&field).ok();
    if !field.data_type().is_string() || !matches!(stored, Some(Stored::Json | Stored::Jsonb)) || to.is_string() {
        return Ok(Transformed::no(expr));
    }
    let stored_to = data_type_of(&Field::new("", to.clone(), true)).ok();
    let (Some(Stored::Jsonb), Some(wanted)) = (stored, stored_to.filter(is_wanted)) else {
        let to = type_name(&Arc::new(Field::new("", to, true)));
        let message = format!("cannot cast type {} to {to}", type_name(&field));
        return Err(SqlError::new(state::CANNOT_COERCE, message)
            .with_hint("take a text out of it with ->>, and cast that")
            .into());
    };
    let name = format!("tarn_jsonb_as_{}", wanted.to_string().to_lowercase());
    let cast = OfJsonb { name, to, wanted, signature: Signature::any(1, Volatility::Immutable) };
    let call = ScalarFunction::new_udf(Arc::new(ScalarUDF::from(cast)), vec![of.clone()]);
    Ok(Transformed::yes(Expr::ScalarFunction(call)))
}

fn is_wanted(of: &Stored) -> bool {
    matches!(
        of,
        Stored::Bool
            | Stored::Int16
            | Stored::Int32
            | Stored::Int64
            | Stored::Float32
            | Stored::Float64
            | Stored::Decimal { .. }
    )
}

/// The cast to one type, which is in its name. It is called as what is cast.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OfJsonb {
    name: String,
    to: DataType,
    wanted: Stored,
    signature: Signature,
}

impl ScalarUDFImpl for OfJsonb {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.to.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(self.name(), self.to.clone(), args.arg_fields[0].is_nullable())))
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(args[0].schema_name().to_string())
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = matches!(args.args[0], ColumnarValue::Scalar(_));
        let values = texts(&args.args[0].to_array(if is_constant { 1 } else { args.number_rows })?)?;
        let cast = values.iter().map(|text| match text {
            Some(text) => self.value(Json::of(text)),
            None => Ok(ScalarValue::try_from(&self.to)?),
        });
        let cast = cast.collect::<Result<Vec<_>>>()?;
        if is_constant {
            return Ok(ColumnarValue::Scalar(cast.into_iter().next().unwrap_or(ScalarValue::Null)));
        }
        let cast: ArrayRef = match cast.is_empty() {
            true => arrow::array::new_empty_array(&self.to),
            false => ScalarValue::iter_to_array(cast)?,
        };
        debug_assert_eq!(cast.len(), values.len(), "a value for each");
        Ok(ColumnarValue::Array(cast))
    }
}

impl OfJsonb {
    fn value(&self, json: Json<'_>) -> Result<ScalarValue> {
        let is_right = match self.wanted {
            Stored::Bool => json.kind() == JsonKind::Boolean,
            _ => json.kind() == JsonKind::Number,
        };
        let name = type_name(&Arc::new(Field::new("", self.to.clone(), true)));
        if !is_right {
            let kind = match json.kind() {
                JsonKind::Array | JsonKind::Object => "array or object",
                kind => kind.name(),
            };
            let message = format!("cannot cast jsonb {kind} to type {name}");
            return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message)
                .with_hint("jsonb_typeof says what a value is")
                .into());
        }
        let out_of_range = || SqlError::new(state::NUMERIC_OUT_OF_RANGE, format!("{name} out of range"));
        // Integers are rounded as numerics are, half away from zero.
        let text = match self.wanted {
            Stored::Int16 | Stored::Int32 | Stored::Int64 => {
                let whole = Value::parse(&Stored::Decimal { precision: 38, scale: 0 }, json.text());
                whole.map_err(|_| out_of_range())?.to_display(&Stored::Int64)
            }
            _ => json.text().to_owned(),
        };
        let value = Value::parse(&self.wanted, &text).map_err(|_| out_of_range())?;
        let array = value.to_array(&self.wanted, 1).map_err(SqlError::from)?;
        ScalarValue::try_from_array(&array, 0)?.cast_to(&self.to)
    }
}
