//! Which of these is the greatest? `greatest` and `least` by PostgreSQL's order: an item of an array that is NULL is
//! greater than any other, and an interval is as long as its months of 30 days. DataFusion takes NULL for the least,
//! and compares months alone. And arrays stand in the same order on both sides of `<`.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, Datum, UInt64Array, make_comparator};
use arrow::compute::{SortOptions, cast, concat, take};
use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, exec_err};
use datafusion::error::Result;
use datafusion::functions::core;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    Between, BinaryExpr, ColumnarValue, Documentation, Expr, ExprSchemable, LogicalPlan, Operator, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature,
};
use datafusion::optimizer::AnalyzerRule;
use tarn_query::{BinaryKernel, datafusion, each_expression, operator_function};

use super::interval_aggregates::INTERVAL;
use super::rowwise::ArgumentRows;
use super::times::lengths;

/// The functions, to be registered over DataFusion's.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let all = [(core::greatest(), Ordering::Greater), (core::least(), Ordering::Less)];
    all.into_iter().map(|(inner, wanted)| Arc::new(ScalarUDF::from(GreatestFunction { inner, wanted }))).collect()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct GreatestFunction {
    inner: Arc<ScalarUDF>,
    /// What the value is beside the others.
    wanted: Ordering,
}

impl ScalarUDFImpl for GreatestFunction {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        // A text that is written out beside one.
        if types.iter().any(|of| matches!(of, DataType::Interval(_))) {
            return Ok(vec![INTERVAL; types.len()]);
        }
        self.inner.coerce_types(types)
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let to = args.return_field.data_type();
        if !to.is_nested() && !matches!(to, DataType::Interval(_)) {
            return self.inner.invoke_with_args(args);
        }
        let rows = ArgumentRows::of(&args)?;
        let columns = rows.columns.iter().map(|column| Ok(cast(column, to)?)).collect::<Result<Vec<_>>>()?;
        let columns: Vec<&dyn Array> = columns.iter().map(AsRef::as_ref).collect();
        // One behind the other: the value of a column is so many rows further down.
        let all = concat(&columns)?;
        let ordered = ordered(&all)?;
        let compare = make_comparator(&ordered, &ordered, NULL_IS_GREATEST)?;
        let best = |row: usize| {
            let places = (0..columns.len()).map(|column| column * rows.n_rows + row).filter(|at| all.is_valid(*at));
            let better = |best: usize, at: usize| if compare(at, best) == self.wanted { at } else { best };
            places.reduce(better).map(|at| at as u64)
        };
        let best = (0..rows.n_rows).map(best).collect::<UInt64Array>();
        rows.answer(take(&all, &best, None)?)
    }
}

const NULL_IS_GREATEST: SortOptions = SortOptions { descending: false, nulls_first: false };

/// What values are compared by.
fn ordered(values: &ArrayRef) -> Result<ArrayRef> {
    match values.data_type() {
        DataType::Interval(_) => lengths(values),
        _ => Ok(Arc::clone(values)),
    }
}

/// `<`, `<=`, `>` and `>=` of arrays; the rule runs when types are known.
#[derive(Debug)]
pub(super) struct ComparedArrays([(Operator, Arc<ScalarUDF>); 4]);

impl ComparedArrays {
    pub(super) fn new() -> ComparedArrays {
        let all = [Operator::Lt, Operator::LtEq, Operator::Gt, Operator::GtEq];
        ComparedArrays(all.map(|operator| (operator, Arc::new(operator_function(OfArrays(operator))))))
    }

    fn rewritten(&self, expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        let is_array = |expr: &Expr| matches!(expr.get_type(schema), Ok(DataType::List(_)));
        let call = |function: &Arc<ScalarUDF>, left, right| {
            Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), vec![left, right]))
        };
        match expr {
            Expr::Between(Between { expr, negated, low, high }) if is_array(&expr) => {
                let [_, (_, at_most), _, (_, at_least)] = &self.0;
                let is_within = call(at_least, expr.as_ref().clone(), *low).and(call(at_most, *expr, *high));
                Ok(Transformed::yes(if negated { Expr::Not(Box::new(is_within)) } else { is_within }))
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                // The operator first: chains of AND are long, and a type asks all that is below.
                let function = self.0.iter().find(|(own, _)| *own == op).map(|(_, function)| function);
                Ok(match function.filter(|_| is_array(&left) && is_array(&right)) {
                    Some(function) => Transformed::yes(call(function, *left, *right)),
                    None => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
                })
            }
            other => Ok(Transformed::no(other)),
        }
    }
}

impl AnalyzerRule for ComparedArrays {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, |expr, schema| self.rewritten(expr, schema))
    }

    fn name(&self) -> &str {
        "compared_arrays"
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct OfArrays(Operator);

impl BinaryKernel for OfArrays {
    fn symbol(&self) -> &'static str {
        match self.0 {
            Operator::Lt => "<",
            Operator::LtEq => "<=",
            Operator::Gt => ">",
            _ => ">=",
        }
    }

    fn result(&self, _: &DataType, _: &DataType) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn compute(&self, left: &dyn Datum, right: &dyn Datum) -> Result<ArrayRef> {
        let ((left, left_is_one), (right, right_is_one)) = (left.get(), right.get());
        let n_rows = if left_is_one { right.len() } else { left.len() };
        let compare = make_comparator(left, right, NULL_IS_GREATEST)?;
        let is = match self.0 {
            Operator::Lt => Ordering::is_lt,
            Operator::LtEq => Ordering::is_le,
            Operator::Gt => Ordering::is_gt,
            Operator::GtEq => Ordering::is_ge,
            other => return exec_err!("arrays are not compared by {other}"),
        };
        let of = |row: usize| {
            let (at, beside) = (if left_is_one { 0 } else { row }, if right_is_one { 0 } else { row });
            (left.is_valid(at) && right.is_valid(beside)).then(|| is(compare(at, beside)))
        };
        Ok(Arc::new((0..n_rows).map(of).collect::<BooleanArray>()))
    }
}
