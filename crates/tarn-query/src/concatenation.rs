//! What does `a || b` allocate? An operator is called by nobody that could be asked before: thirty names of WITH, each of
//! which is the last one twice, are 400 bytes of a statement and a text of gigabytes. So the operator becomes a
//! function, and is bounded as functions are (`bounded.rs`).

use std::sync::Arc;

use arrow::compute::kernels::concat_elements::concat_elements_dyn;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, LogicalPlan, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;

use crate::bounded::{Lengths, OPERATOR, sum_of_arguments};
use crate::long_constants::called;
use crate::rewrite::each_expression;

/// The rule; it runs when types are known.
#[derive(Debug)]
pub(crate) struct Concatenation(Arc<ScalarUDF>);

impl Concatenation {
    pub(crate) fn new(lengths: &Arc<Lengths>) -> Concatenation {
        let function = Concatenated { signature: Signature::any(2, Volatility::Immutable) };
        Concatenation(Arc::new(sum_of_arguments(function.into(), lengths)))
    }
}

impl AnalyzerRule for Concatenation {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, |expr, _| {
            Ok(match expr {
                Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }) => {
                    let call = ScalarFunction { func: Arc::clone(&self.0), args: vec![*left, *right] };
                    Transformed::yes(Expr::ScalarFunction(call))
                }
                other => Transformed::no(other),
            })
        })
    }

    fn name(&self) -> &str {
        "bounded_concatenation"
    }
}

/// The operator as a function of two values of one type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Concatenated {
    signature: Signature,
}

impl ScalarUDFImpl for Concatenated {
    fn name(&self) -> &str {
        OPERATOR
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        Ok(arg_types[0].clone())
    }

    /// NULL only where a side is: what stands above was planned with the operator, and knows it so.
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), args.arg_fields[0].data_type().clone(), is_nullable)))
    }

    /// As the operator is called: columns and grouping sets are found by these names.
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(format!("{} || {}", called(&args[0]), called(&args[1])))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let sides = args.args.into_iter();
        let sides = sides.map(|side| side.into_array(if is_scalar { 1 } else { args.number_rows }));
        let sides = sides.collect::<Result<Vec<_>>>()?;
        let joined = concat_elements_dyn(&sides[0], &sides[1])?;
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&joined, 0)?),
            false => ColumnarValue::Array(joined),
        })
    }
}
