//! Of which type is `coalesce(d, '2024-01-01')`? A date, if `d` is one: a text that is written out is of the type of
//! what it stands beside in `coalesce`, `greatest`, `least` and `nullif`. DataFusion has no type that a date, an array,
//! bytes or a truth and a text are of together, and makes nanoseconds, which end in 2262, of a time beside a text.
//!
//! The type is told by the functions, when a statement is planned. They are not told which texts are written out: other
//! texts are refused by rules, and those that are written out are cast by them. For `nullif`, which compares, that is
//! done here, and for the other three in `common_types`.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::functions::core;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    Cast, ColumnarValue, Documentation, Expr, ExprSchemable, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::{datafusion, each_expression};

use super::common_types::{Strictness, is_written, time_together};
use super::inets::INET;
use super::interval_aggregates::INTERVAL;
use crate::error::{SqlError, state};
use crate::rows::{long_name, pg_type};

const COALESCE: &str = "coalesce";
const NULLIF: &str = "nullif";

/// These functions. `greatest` and `least` tell the type of texts beside others.
pub(super) fn told(functions: Vec<Arc<ScalarUDF>>) -> Vec<Arc<ScalarUDF>> {
    let told = |function: Arc<ScalarUDF>| match matches!(function.name(), "greatest" | "least") {
        true => Arc::new(LiteralTypeFunction::function(function)),
        false => function,
    };
    functions.into_iter().map(told).collect()
}

/// To be registered over DataFusion's.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    [core::coalesce(), core::nullif()].map(|function| Arc::new(LiteralTypeFunction::function(function))).to_vec()
}

/// Whether a text beside a value of this type is read as one by these functions. Beside numbers and addresses
/// DataFusion, or the function itself, does so.
fn is_read(of: &DataType) -> bool {
    use DataType::{Binary, BinaryView, Boolean, Date32, Duration, Interval, List, Time64, Timestamp};
    matches!(
        of,
        Boolean | Date32 | Timestamp(..) | Time64(_) | Interval(_) | Duration(_) | Binary | BinaryView | List(_)
    )
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct LiteralTypeFunction {
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

impl LiteralTypeFunction {
    fn function(inner: Arc<ScalarUDF>) -> ScalarUDF {
        LiteralTypeFunction { inner, signature: Signature::user_defined(Volatility::Immutable) }.into()
    }

    fn by_inner(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        // What it says is told once, not as a fault of a fault.
        if self.inner.signature().type_signature == TypeSignature::UserDefined {
            return self.inner.coerce_types(types);
        }
        let fields: Vec<FieldRef> = types.iter().map(|of| Arc::new(Field::new("", of.clone(), true))).collect();
        let coerced = fields_with_udf(&fields, self.inner.as_ref())?;
        Ok(coerced.iter().map(|field| field.data_type().clone()).collect())
    }
}

impl ScalarUDFImpl for LiteralTypeFunction {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        // DataFusion knows no type of an address and another together; values of others are refused by `common_types`.
        if self.name() == COALESCE && types.contains(&INET) {
            return Ok(vec![INET; types.len()]);
        }
        let others: Vec<DataType> = types.iter().filter(|of| !of.is_string() && !of.is_null()).cloned().collect();
        let [first, rest @ ..] = &others[..] else { return self.by_inner(types) };
        // DataFusion makes a `timestamp` of an instant beside a date.
        if self.name() != NULLIF
            && let Some(to) = time_together(&others)
        {
            return Ok(vec![to; types.len()]);
        }
        if !types.iter().any(DataType::is_string) || !others.iter().all(is_read) {
            return self.by_inner(types);
        }
        // What the others are together: of one type, the function need not be asked.
        let to = match rest.iter().all(|of| of == first) {
            true => first.clone(),
            false => self.by_inner(&others)?.swap_remove(0),
        };
        // What lies between two times is an interval.
        let to = if matches!(to, DataType::Duration(_)) { INTERVAL } else { to };
        Ok(vec![to; types.len()])
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.inner.simplify(args, info)
    }

    fn short_circuits(&self) -> bool {
        self.inner.short_circuits()
    }

    fn conditional_arguments<'a>(&self, args: &'a [Expr]) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner.conditional_arguments(args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.inner.invoke_with_args(args)
    }
}

/// Casts texts that are written out in `nullif`. It runs before intervals are compared, and types made one.
#[derive(Debug)]
pub(super) struct ComparedTexts;

impl AnalyzerRule for ComparedTexts {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let strictness = Strictness::of(&plan)?;
        each_expression(plan, |mut expr, schema| {
            let is_changed = match &mut expr {
                Expr::ScalarFunction(call) if call.func.name() == NULLIF => match &mut call.args[..] {
                    [left, right] => compared(left, right, schema, strictness)?,
                    _ => false,
                },
                _ => false,
            };
            Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
        })
    }

    fn name(&self) -> &str {
        "compared_texts"
    }
}

/// Casts the side that is a text and is written out. Whether there was one.
///
/// Errors: `42883` for a text that has its type, which is compared with no value of another.
fn compared(left: &mut Expr, right: &mut Expr, schema: &DFSchema, strictness: Strictness) -> Result<bool> {
    let (Ok((_, of_left)), Ok((_, of_right))) = (left.to_field(schema), right.to_field(schema)) else {
        return Ok(false);
    };
    let (text, value, to) = if of_left.data_type().is_string() && is_read(of_right.data_type()) {
        (left, right, of_right.data_type())
    } else if of_right.data_type().is_string() && is_read(of_left.data_type()) {
        (right, left, of_left.data_type())
    } else {
        return Ok(false);
    };
    if is_written(text) {
        let cast_to = |expr: &mut Expr, to: DataType| {
            let of = std::mem::replace(expr, Expr::Literal(ScalarValue::Null, None));
            *expr = Expr::Cast(Cast::new(Box::new(of), to));
        };
        if let DataType::Duration(_) = to {
            cast_to(value, INTERVAL);
            cast_to(text, INTERVAL);
        } else {
            cast_to(text, to.clone());
        }
        return Ok(true);
    }
    if strictness == Strictness::Lenient {
        return Ok(false);
    }
    let (left, right) = (long_name(&pg_type(&of_left)?), long_name(&pg_type(&of_right)?));
    let message = format!("operator does not exist: {left} = {right}");
    Err(SqlError::new(state::UNDEFINED_FUNCTION, message).with_hint("cast one of them").into())
}
