//! Is `'\xff'` one byte or four characters? Where text becomes `BYTEA`, it is read as Postgres reads it; back, it is
//! written so.
//!
//! DataFusion's casts take the characters as they are. So that a planned statement finds what a keyed one wrote, every
//! cast from text to bytes, written or added by type coercion, becomes [`TextToBytes`]; casts that somebody wrote from
//! bytes to text become [`BytesToText`].

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryViewBuilder, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::DataType as ArrowType;
use arrow::error::ArrowError;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_types::{DataType, Value};

use crate::rewrite::each_expression;
use crate::style;

/// Rewrites casts between text and bytes. [`Written`](Bytea::Written) runs before type coercion,
/// [`Coerced`](Bytea::Coerced) after.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bytea {
    /// Casts from bytes to text. Those that coercion adds stay: `LIKE` on bytes compares characters.
    Written,
    /// Casts from text to bytes.
    Coerced,
}

impl AnalyzerRule for Bytea {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, |expr, schema| self.rewrite(expr, schema))
    }

    fn name(&self) -> &str {
        match self {
            Bytea::Written => "bytea_to_text",
            Bytea::Coerced => "text_to_bytea",
        }
    }
}

impl Bytea {
    fn rewrite(&self, expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        let Expr::Cast(Cast { expr: inner, field }) = &expr else { return Ok(Transformed::no(expr)) };
        let to = field.data_type();
        // What the planner cannot type is not bytes; it says so later.
        let Ok(from) = inner.get_type(schema) else { return Ok(Transformed::no(expr)) };
        let function = match self {
            // Large bytes are addresses, whose texts are the front end's.
            _ if from == ArrowType::LargeBinary || *to == ArrowType::LargeBinary => return Ok(Transformed::no(expr)),
            Bytea::Written if from.is_binary() && to.is_string() => ScalarUDF::from(BytesToText::new()),
            Bytea::Coerced if from.is_string() && to.is_binary() => ScalarUDF::from(TextToBytes::new()),
            _ => return Ok(Transformed::no(expr)),
        };
        let converted = function.call(vec![inner.as_ref().clone()]);
        Ok(Transformed::yes(converted.cast_to(to, schema)?))
    }
}

/// `\x` and hexadecimal digits, or characters with `\\` and `\ooo`, as bytes.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TextToBytes {
    signature: Signature,
}

impl TextToBytes {
    fn new() -> Self {
        Self { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for TextToBytes {
    fn name(&self) -> &str {
        "text_to_bytea"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[ArrowType]) -> Result<ArrowType> {
        Ok(ArrowType::BinaryView)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let texts = only_column(&args.args)?;
        let texts = cast(&texts, &ArrowType::Utf8View)?;
        let mut bytes = BinaryViewBuilder::with_capacity(texts.len());
        for text in texts.as_string_view() {
            match text.map(|text| Value::parse(&DataType::Bytes, text)).transpose() {
                Ok(Some(Value::Bytes(value))) => bytes.append_value(value),
                Ok(_) => bytes.append_null(),
                Err(error) => return Err(ArrowError::ParseError(error.to_string()).into()),
            }
        }
        answer(Arc::new(bytes.finish()), &args.args)
    }
}

/// Bytes as the session shows them: as `\x` and two hexadecimal digits each, or as characters with `\\` and `\ooo`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct BytesToText {
    signature: Signature,
}

impl BytesToText {
    fn new() -> Self {
        Self { signature: Signature::any(1, Volatility::Stable) }
    }
}

impl ScalarUDFImpl for BytesToText {
    fn name(&self) -> &str {
        "bytea_to_text"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[ArrowType]) -> Result<ArrowType> {
        Ok(ArrowType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let bytes = only_column(&args.args)?;
        let bytes = cast(&bytes, &ArrowType::BinaryView)?;
        let form = style::of_config(&args.config_options).forms.bytes;
        let text = |bytes: &[u8]| form.text(bytes);
        let texts: StringViewArray = bytes.as_binary_view().iter().map(|bytes| bytes.map(text)).collect();
        answer(Arc::new(texts), &args.args)
    }
}

fn only_column(args: &[ColumnarValue]) -> Result<ArrayRef> {
    match args {
        [ColumnarValue::Array(array)] => Ok(Arc::clone(array)),
        [ColumnarValue::Scalar(scalar)] => scalar.to_array(),
        _ => exec_err!("a conversion between text and bytes takes one argument"),
    }
}

/// A scalar for a scalar.
fn answer(array: ArrayRef, args: &[ColumnarValue]) -> Result<ColumnarValue> {
    match args {
        [ColumnarValue::Scalar(_)] => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)),
        _ => Ok(ColumnarValue::Array(array)),
    }
}
