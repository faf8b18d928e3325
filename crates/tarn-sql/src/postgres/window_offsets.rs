//! What is `lag(x, n)`, `lead(x, n)`, `nth_value(x, n)` and `ntile(n)` where `n` is NULL, or not above 0? NULL, or an
//! error with a SQLSTATE of its own; DataFusion takes a NULL for 0. An `n` that is a parameter is an `integer`.
//!
//! And `lag(x, 1, 2.5)` of integers is a numeric in PostgreSQL, where DataFusion makes 2 of it: it is refused.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, new_null_array};
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::error::Result;
use datafusion::functions_window::{lead_lag, nth_value};
use datafusion::logical_expr::function::{
    ExpressionArgs, PartitionEvaluatorArgs, WindowFunctionSimplification, WindowUDFFieldArgs,
};
use datafusion::logical_expr::{
    Documentation, LimitEffect, PartitionEvaluator, ReversedUDWF, Signature, WindowUDF, WindowUDFImpl,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;
use tarn_query::sqlparser::ast::{
    CastKind, DataType as SqlType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Value,
};

use super::calls::{is_named, take};
use crate::error::{SqlError, state};

const NTILE: &str = "ntile";
const NTH_VALUE: &str = "nth_value";

/// Functions to be registered over those of the same name.
pub(super) fn windows() -> Vec<Arc<WindowUDF>> {
    [lead_lag::lag_udwf(), lead_lag::lead_udwf(), nth_value::nth_value_udwf()].map(checked).to_vec()
}

/// A function, with a look at the number among its arguments.
pub(super) fn checked(inner: Arc<WindowUDF>) -> Arc<WindowUDF> {
    Arc::new(WindowUDF::from(Checked { inner }))
}

/// Which argument the number is.
fn place_of_number(is: impl Fn(&str) -> bool) -> Option<usize> {
    if is(NTILE) {
        return Some(0);
    }
    ["lag", "lead", NTH_VALUE].into_iter().any(is).then_some(1)
}

/// A parameter that is the number is an `integer`, whatever the client says of it.
pub(super) fn rewrite(expr: &mut Expr) {
    let Expr::Function(Function { name, args: FunctionArguments::List(list), over: Some(_), .. }) = expr else {
        return;
    };
    let Some(at) = place_of_number(|function| is_named(name, function)) else { return };
    let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(number))) = list.args.get_mut(at) else { return };
    if matches!(number, Expr::Value(value) if matches!(value.value, Value::Placeholder(_))) {
        *number = Expr::Cast {
            kind: CastKind::DoubleColon,
            expr: Box::new(take(number)),
            data_type: SqlType::Integer(None),
            array: false,
            format: None,
        };
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Checked {
    inner: Arc<WindowUDF>,
}

impl WindowUDFImpl for Checked {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn expressions(&self, args: ExpressionArgs) -> Vec<Arc<dyn PhysicalExpr>> {
        self.inner.expressions(args)
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        let literal = |at: usize| args.input_exprs().get(at)?.downcast_ref::<Literal>().map(Literal::value);
        let number = place_of_number(|function| function == self.name()).and_then(literal);
        if let Some(number) = number {
            if number.is_null() {
                let field = self.inner.field(WindowUDFFieldArgs::new(args.input_fields(), self.name()))?;
                return Ok(Box::new(Nothing(field.data_type().clone())));
            }
            let is_none = matches!(number.cast_to(&DataType::Int64), Ok(ScalarValue::Int64(Some(..=0))));
            let refused = match self.name() {
                NTILE => Some(state::INVALID_NTILE),
                NTH_VALUE => Some(state::INVALID_NTH_VALUE),
                _ => None,
            };
            if let Some(refused) = refused.filter(|_| is_none) {
                let message = format!("argument of {} must be greater than zero", self.name());
                return Err(SqlError::new(refused, message).into());
            }
        }
        let is_of_integers = args.input_fields().first().is_some_and(|field| field.data_type().is_integer());
        let other = literal(2).map(ScalarValue::data_type);
        if is_of_integers && other.is_some_and(|other| other.is_decimal() || other.is_floating()) {
            let message = format!("{} of an integer, with a default that is none, is not supported", self.name());
            return Err(SqlError::unsupported(message, "cast the value to the type of the default").into());
        }
        self.inner.partition_evaluator_factory(args)
    }

    fn simplify(&self) -> Option<WindowFunctionSimplification> {
        self.inner.simplify()
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(self.inner.field(args)?.as_ref().clone().with_nullable(true)))
    }

    fn sort_options(&self) -> Option<SortOptions> {
        self.inner.sort_options()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        match self.inner.reverse_expr() {
            ReversedUDWF::Reversed(inner) => ReversedUDWF::Reversed(checked(inner)),
            other => other,
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn limit_effect(&self, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.inner.inner().limit_effect(args)
    }
}

/// NULL in all rows.
#[derive(Debug)]
struct Nothing(DataType);

impl PartitionEvaluator for Nothing {
    fn evaluate_all(&mut self, _: &[ArrayRef], num_rows: usize) -> Result<ArrayRef> {
        Ok(new_null_array(&self.0, num_rows))
    }

    fn evaluate(&mut self, _: &[ArrayRef], _: &Range<usize>) -> Result<ScalarValue> {
        ScalarValue::try_from(&self.0)
    }
}
