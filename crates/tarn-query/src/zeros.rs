//! Is -0.0 the same as 0.0? As in Postgres: wherever values are compared. Their bits differ, and so does their place
//! in the total order of floats, by which lists of four and more, sorts, windows and functions of arrays compare.
//!
//! What is compared so goes through [`OneZero`]. What is only passed on keeps its sign: a stored -0.0 is shown as -0.
//! Plain comparisons, groups and the hash tables of joins know of zeros by themselves; of floats within arrays they do
//! not.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, make_array};
use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::utils::normalize_float_zero;
use datafusion::common::{DFSchema, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Case, ScalarFunction, Sort};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::{AnalyzerRule, OptimizerConfig, OptimizerRule};
use datafusion::scalar::ScalarValue;

use crate::rewrite::each_node;

/// The rule, at three places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Zeros {
    /// When types are known: before constants are computed.
    Coerced,
    /// Behind what makes lists of comparisons, so that no list is ever pushed anywhere without it.
    Simplified,
    /// When all joins and sorts are there.
    Optimized,
}

impl AnalyzerRule for Zeros {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(self.rewritten(plan)?.data)
    }

    fn name(&self) -> &str {
        "one_zero"
    }
}

impl OptimizerRule for Zeros {
    fn name(&self) -> &str {
        match self {
            Zeros::Coerced => "one_zero",
            Zeros::Simplified => "one_zero_of_lists",
            Zeros::Optimized => "one_zero_of_joins",
        }
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        self.rewritten(plan)
    }
}

impl Zeros {
    fn rewritten(self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        each_node(plan, |node| self.node(node))
    }

    fn node(self, node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        let schema = named_in(&node)?;
        let Transformed { data: mut node, transformed: mut changed, .. } = compared_within(node, &schema)?;
        match &mut node {
            LogicalPlan::Sort(sort) => changed |= sorts(&mut sort.expr, &schema),
            LogicalPlan::Join(join) if self == Zeros::Optimized => {
                for (left, right) in &mut join.on {
                    if holds_floats(left, join.left.schema()) || holds_floats(right, join.right.schema()) {
                        changed |= canonical_in(left);
                        changed |= canonical_in(right);
                    }
                }
            }
            _ => {}
        }
        Ok(Transformed::new(node, changed, TreeNodeRecursion::Continue))
    }
}

/// The columns that the expressions of a node may name; the keys of a join are not asked about.
fn named_in(node: &LogicalPlan) -> Result<Arc<DFSchema>> {
    Ok(match node {
        LogicalPlan::TableScan(scan) => {
            // Filters name columns that are not read, and a table may have many thousands that they do not name.
            let source = scan.source.schema();
            let names: BTreeSet<&str> =
                scan.filters.iter().flat_map(Expr::column_refs).map(|column| column.name.as_str()).collect();
            let fields = names.into_iter().filter_map(|name| source.column_with_name(name));
            let fields = fields.map(|(idx, _)| (Some(scan.table_name.clone()), Arc::clone(&source.fields()[idx])));
            Arc::new(DFSchema::new_with_metadata(fields.collect(), HashMap::new())?)
        }
        LogicalPlan::Join(join) if join.filter.is_some() => {
            let mut both = join.left.schema().as_ref().clone();
            both.merge(join.right.schema());
            Arc::new(both)
        }
        node => match node.inputs()[..] {
            [input] => Arc::clone(input.schema()),
            _ => Arc::new(DFSchema::empty()),
        },
    })
}

/// Rewrites what is compared within the expressions of a node. The expressions keep their names.
fn compared_within(node: LogicalPlan, schema: &DFSchema) -> Result<Transformed<LogicalPlan>> {
    let is_aggregate = matches!(node, LogicalPlan::Aggregate(_));
    let concerns = |expr: &Expr| {
        expr.exists(|part| Ok(compares(part))).map(|found| found || is_aggregate && is_nested_floats(expr, schema))
    };
    let mut found = false;
    node.apply_expressions(|expr| {
        found |= concerns(expr)?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    if !found {
        return Ok(Transformed::no(node));
    }
    let is_sort = matches!(node, LogicalPlan::Sort(_));
    let names = NamePreserver::new(&node);
    let changed = node.map_expressions(|expr| {
        if !concerns(&expr)? {
            return Ok(Transformed::no(expr));
        }
        let name = names.save(&expr);
        let mut rewritten = expr.transform_up(|part| rewrite(part, schema))?;
        // Groups by arrays; those by floats know of zeros.
        if is_aggregate && is_nested_floats(&rewritten.data, schema) {
            rewritten.transformed |= canonical_in(&mut rewritten.data);
        }
        Ok(match rewritten.transformed && !is_sort {
            true => rewritten.update_data(|expr| name.restore(expr)),
            false => rewritten,
        })
    })?;
    if changed.transformed { changed.map_data(LogicalPlan::recompute_schema) } else { Ok(changed) }
}

/// May two values meet in it that are compared by bits?
fn compares(expr: &Expr) -> bool {
    match expr {
        Expr::InList(_) | Expr::Between(_) | Expr::Case(Case { expr: Some(_), .. }) | Expr::WindowFunction(_) => true,
        Expr::BinaryExpr(BinaryExpr { op, .. }) => is_comparison(*op),
        Expr::ScalarFunction(call) => COMPARING.contains(&call.name()),
        Expr::AggregateFunction(call) => {
            call.params.distinct || !call.params.order_by.is_empty() || call.func.name() == COUNTING
        }
        _ => false,
    }
}

fn is_comparison(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// Functions that ask whether two of their arguments, or the items in them, are equal.
const COMPARING: [&str; 16] = [
    NULLIF,
    "array_distinct",
    "array_except",
    "array_has",
    "array_has_all",
    "array_has_any",
    "array_intersect",
    "array_position",
    "array_positions",
    "array_remove",
    "array_remove_all",
    "array_remove_n",
    "array_replace",
    "array_replace_all",
    "array_replace_n",
    "array_union",
];

const NULLIF: &str = "nullif";

/// An aggregate that tells its values apart without DISTINCT.
const COUNTING: &str = "approx_distinct";

fn rewrite(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::InList(mut list) if holds_floats(&list.expr, schema) => {
            let mut changed = canonical_in(&mut list.expr);
            list.list.iter_mut().for_each(|item| changed |= canonical_in(item));
            Transformed::new(Expr::InList(list), changed, TreeNodeRecursion::Continue)
        }
        Expr::BinaryExpr(mut binary) if is_comparison(binary.op) => {
            let of = match (&*binary.left, &*binary.right) {
                (Expr::Literal(scalar, _), _) | (_, Expr::Literal(scalar, _)) => Ok(scalar.data_type()),
                (left, _) => left.get_type(schema),
            };
            let mut changed = false;
            if let Ok(of) = of {
                for side in [&mut binary.left, &mut binary.right] {
                    changed |= in_comparison(side, &of);
                }
            }
            Transformed::new(Expr::BinaryExpr(binary), changed, TreeNodeRecursion::Continue)
        }
        Expr::Between(mut between) => {
            let mut changed = false;
            if let Ok(of) = between.expr.get_type(schema) {
                for side in [&mut between.expr, &mut between.low, &mut between.high] {
                    changed |= in_comparison(side, &of);
                }
            }
            Transformed::new(Expr::Between(between), changed, TreeNodeRecursion::Continue)
        }
        Expr::Case(Case { expr: Some(mut base), mut when_then_expr, else_expr }) => {
            let mut changed = false;
            if holds_floats(&base, schema) {
                changed |= canonical_in(&mut base);
                when_then_expr.iter_mut().for_each(|(when, _)| changed |= canonical_in(when));
            }
            let case = Expr::Case(Case { expr: Some(base), when_then_expr, else_expr });
            Transformed::new(case, changed, TreeNodeRecursion::Continue)
        }
        Expr::ScalarFunction(call) if COMPARING.contains(&call.name()) => comparing(call, schema)?,
        Expr::AggregateFunction(mut call) => {
            let mut changed = false;
            if call.params.distinct || call.func.name() == COUNTING {
                changed |= arguments(&mut call.params.args, schema);
            }
            // There the order says what the function is of.
            if !call.func.supports_within_group_clause() {
                changed |= sorts(&mut call.params.order_by, schema);
            }
            Transformed::new(Expr::AggregateFunction(call), changed, TreeNodeRecursion::Continue)
        }
        Expr::WindowFunction(mut call) => {
            let params = &mut call.params;
            let mut changed = arguments(&mut params.partition_by, schema);
            changed |= sorts(&mut params.order_by, schema);
            if params.distinct {
                changed |= arguments(&mut params.args, schema);
            }
            Transformed::new(Expr::WindowFunction(call), changed, TreeNodeRecursion::Continue)
        }
        other => Transformed::no(other),
    })
}

fn comparing(mut call: ScalarFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    if call.name() == NULLIF
        && let [value, other] = &call.args[..]
        && let Ok(of) = value.get_type(schema)
        && of.is_floating()
        && !value.is_volatile()
    {
        // The value keeps its sign.
        let equal = value.clone().eq(other.clone());
        let null = Expr::Literal(ScalarValue::try_from(&of)?, None);
        let case = Case {
            expr: None,
            when_then_expr: vec![(Box::new(equal), Box::new(null))],
            else_expr: Some(Box::new(value.clone())),
        };
        return Ok(Transformed::yes(Expr::Case(case)));
    }
    let changed = arguments(&mut call.args, schema);
    Ok(Transformed::new(Expr::ScalarFunction(call), changed, TreeNodeRecursion::Continue))
}

/// An operand of a comparison. Floats are compared rightly; but the planner compares literals by their bits.
fn in_comparison(side: &mut Expr, of: &DataType) -> bool {
    has_floats(of) && (!of.is_floating() || is_constant(side)) && canonical_in(side)
}

fn is_constant(expr: &Expr) -> bool {
    let found = expr.exists(|part| {
        Ok(!matches!(
            part,
            Expr::Literal(..)
                | Expr::Cast(_)
                | Expr::TryCast(_)
                | Expr::Negative(_)
                | Expr::BinaryExpr(_)
                | Expr::ScalarFunction(_)
        ))
    });
    matches!(found, Ok(false))
}

fn arguments(args: &mut [Expr], schema: &DFSchema) -> bool {
    let mut changed = false;
    for arg in args {
        changed |= holds_floats(arg, schema) && canonical_in(arg);
    }
    changed
}

fn sorts(sorts: &mut [Sort], schema: &DFSchema) -> bool {
    let mut changed = false;
    for sort in sorts {
        changed |= holds_floats(&sort.expr, schema) && canonical_in(&mut sort.expr);
    }
    changed
}

fn holds_floats(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|of| has_floats(&of))
}

fn is_nested_floats(expr: &Expr, schema: &DFSchema) -> bool {
    let is_group = !matches!(expr, Expr::AggregateFunction(_) | Expr::GroupingSet(_) | Expr::Alias(_));
    is_group && expr.get_type(schema).is_ok_and(|of| !of.is_floating() && has_floats(&of))
}

fn has_floats(of: &DataType) -> bool {
    match of {
        DataType::Float16 | DataType::Float32 | DataType::Float64 => true,
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::Map(item, _) => has_floats(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_floats(field.data_type())),
        DataType::Dictionary(_, values) => has_floats(values),
        _ => false,
    }
}

/// What [`OneZero`] is applied to, whose order and equality it does not change otherwise.
pub(crate) fn below_one_zero(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::ScalarFunction(call) if call.func.inner().is::<OneZero>() => call.args.first(),
        _ => None,
    }
}

/// Whether it was not so before.
fn canonical_in(expr: &mut Expr) -> bool {
    match expr {
        Expr::Literal(scalar, _) => match one_zero_of(scalar) {
            Some(canonical) => {
                *scalar = canonical;
                true
            }
            None => false,
        },
        Expr::Alias(alias) => canonical_in(&mut alias.expr),
        known if below_one_zero(known).is_some() => false,
        other => {
            let inner = std::mem::take(other);
            *other = Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&ONE_ZERO), vec![inner]));
            true
        }
    }
}

/// `None`: it has no other zero.
fn one_zero_of(scalar: &ScalarValue) -> Option<ScalarValue> {
    match scalar {
        ScalarValue::Float64(Some(float)) if *float == 0.0 && float.is_sign_negative() => {
            Some(ScalarValue::Float64(Some(0.0)))
        }
        ScalarValue::Float32(Some(float)) if *float == 0.0 && float.is_sign_negative() => {
            Some(ScalarValue::Float32(Some(0.0)))
        }
        scalar if scalar.data_type().is_nested() && has_floats(&scalar.data_type()) => {
            let array = scalar.to_array().ok()?;
            let canonical = one_zero(&array).ok()?;
            (array.to_data() != canonical.to_data()).then(|| ScalarValue::try_from_array(&canonical, 0).ok()).flatten()
        }
        _ => None,
    }
}

static ONE_ZERO: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::from(OneZero { signature }))
});

/// The same values, with 0.0 for each -0.0 among their floats.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OneZero {
    signature: Signature,
}

impl ScalarUDFImpl for OneZero {
    fn name(&self) -> &str {
        "tarn_one_zero"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        Ok(arg_types[0].clone())
    }

    fn is_strict(&self) -> bool {
        true
    }

    /// Two values become one, so that what is ordered by more columns behind it is no longer in order.
    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        Ok(inputs.first().map_or(SortProperties::Unordered, |input| input.sort_properties))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(match &args.args[..] {
            [ColumnarValue::Array(array)] => ColumnarValue::Array(one_zero(array)?),
            [ColumnarValue::Scalar(scalar)] => {
                ColumnarValue::Scalar(one_zero_of(scalar).unwrap_or_else(|| scalar.clone()))
            }
            _ => return exec_err!("tarn_one_zero takes one value"),
        })
    }
}

fn one_zero(array: &ArrayRef) -> Result<ArrayRef> {
    match array.data_type() {
        of if of.is_floating() => Ok(normalize_float_zero(array)),
        of if has_floats(of) => {
            let data = array.to_data();
            let children = data.child_data().iter().map(|child| Ok(one_zero(&make_array(child.clone()))?.to_data()));
            let children = children.collect::<Result<Vec<_>>>()?;
            Ok(make_array(data.into_builder().child_data(children).build()?))
        }
        _ => Ok(Arc::clone(array)),
    }
}
