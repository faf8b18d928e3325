//! With how many digits is `sum(n) + 1` shown, where `n` is a `numeric` without a precision? With none that are zeros
//! at its end, as `n` itself: each of PostgreSQL's numbers has its own digits, a column here has one number of them.
//! And `coalesce(avg(x), 0)` has those of the average.
//!
//! Columns say it themselves ([`Digits`]), and so do functions that divide; DataFusion's operators, CASE and aggregates
//! do not. So this rule says it of what a query answers, and of what is made a text: a function around such a value
//! gives the value, marked. Where a query is another's part, what it answers is marked, too.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ExprSchema, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{AggregateFunction, Alias, ScalarFunction, WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::utils::grouping_set_to_exprlist;
use datafusion::logical_expr::{
    BinaryExpr, Cast, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, Projection, RecursiveQuery,
    ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Union, Values, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::sqlparser::ast::{ArrayElemTypeDef, DataType as Named, ExactNumberInfo};
use tarn_query::{NAMED_CAST, datafusion, each_node, visible};
use tarn_types::{BARE_NUMERIC, DIGITS_METADATA, arrow_field, arrow_type};

use super::numeric::{NUMERIC, is_without_digits};
use super::recursion::mismatch;
use super::series::SERIES;
use crate::digits::{Digits, Rule, scale_of};
use crate::spelled::data_type;

/// The rule. It runs when both sides of operators have one type.
#[derive(Debug)]
pub(super) struct ShownDigits;

impl AnalyzerRule for ShownDigits {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut is_changed = false;
        let marked = each_node(plan, |node| {
            let node = if is_changed { node.recompute_schema()? } else { node };
            let marked = of_node(node)?;
            is_changed |= marked.transformed;
            Ok(marked)
        })?;
        Ok(marked.data)
    }

    fn name(&self) -> &str {
        "shown_digits"
    }
}

/// Types as statements write them: a value that is cast to `numeric(p, s)` has `s` digits, whatever it had.
#[derive(Debug)]
pub(super) struct WrittenScales(pub Arc<dyn TypePlanner>);

impl TypePlanner for WrittenScales {
    fn plan_type_field(&self, named: &Named) -> Result<Option<FieldRef>> {
        match named {
            named if is_bare(named) => Ok(None),
            Named::Numeric(_) | Named::Decimal(_) | Named::Dec(_) => Ok(data_type(named).ok().map(|of| {
                let written = [(DIGITS_METADATA.to_owned(), "written".to_owned())];
                Arc::new(Field::new("", arrow_type(&of), true).with_metadata(written.into()))
            })),
            Named::Array(ArrayElemTypeDef::SquareBracket(item, _)) if is_bare(item) => {
                Ok(BARE_NUMERIC.array().map(|of| Arc::new(arrow_field("", &of, true))))
            }
            named => self.0.plan_type_field(named),
        }
    }
}

/// `numeric` without a precision.
fn is_bare(named: &Named) -> bool {
    use ExactNumberInfo::None;
    matches!(named, Named::Numeric(None) | Named::Decimal(None) | Named::Dec(None))
}

fn of_node(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = visible(&node);
    let texts = node.map_expressions(|expr| expr.transform_up(|expr| within(expr, &schema)))?;
    let is_changed = texts.transformed;
    let node = if is_changed { texts.data.recompute_schema()? } else { texts.data };
    let marked = match node {
        LogicalPlan::Projection(projection) => of_projection(projection, &schema)?,
        LogicalPlan::Aggregate(aggregate) => {
            let groups = grouping_set_to_exprlist(&aggregate.group_expr)?;
            // The number of the set, in groups by sets.
            let n_own = aggregate.schema.fields().len() - groups.len() - aggregate.aggr_expr.len();
            let own = std::iter::repeat_n(None, n_own);
            let exprs = groups.into_iter().map(Some).chain(own).chain(aggregate.aggr_expr.iter().map(Some));
            let marks = marks(&aggregate.schema, exprs, &schema);
            projected(LogicalPlan::Aggregate(aggregate), &marks)?
        }
        LogicalPlan::Window(window) => {
            let before = std::iter::repeat_n(None, window.input.schema().fields().len());
            let marks = marks(&window.schema, before.chain(window.window_expr.iter().map(Some)), &schema);
            projected(LogicalPlan::Window(window), &marks)?
        }
        LogicalPlan::Unnest(unnest) => {
            // A column of items has the name of that of their arrays.
            let exprs: Vec<Expr> = unnest.dependency_indices.iter().map(|at| column(&schema, *at)).collect();
            let marks = marks(&unnest.schema, exprs.iter().map(Some), &schema);
            projected(LogicalPlan::Unnest(unnest), &marks)?
        }
        LogicalPlan::Union(union) => of_union(union)?,
        LogicalPlan::RecursiveQuery(query) => of_recursion(query)?,
        LogicalPlan::Values(values) => of_values(values)?,
        other => Transformed::no(other),
    };
    Ok(if is_changed { Transformed::yes(marked.data) } else { marked })
}

fn column(schema: &DFSchema, at: usize) -> Expr {
    Expr::Column(Column::from(schema.qualified_field(at)))
}

/// What the columns of a query are marked with, that are not marked themselves. `exprs` are theirs, over `schema`;
/// `None` is one of which nothing more is known.
fn marks<'a>(of: &DFSchema, exprs: impl Iterator<Item = Option<&'a Expr>>, schema: &DFSchema) -> Vec<Option<Digits>> {
    let mark = |(field, expr): (&FieldRef, Option<&Expr>)| {
        let is_open = scale_of(field.data_type()).is_some() && !field.metadata().contains_key(DIGITS_METADATA);
        expr.filter(|_| is_open).and_then(|expr| digits(expr, schema))
    };
    of.fields().iter().zip(exprs).map(mark).collect()
}

fn of_projection(mut projection: Projection, schema: &DFSchema) -> Result<Transformed<LogicalPlan>> {
    // What was planned with a parameter may say other things of it than the value does.
    let mark = |(field, expr): (&FieldRef, &Expr)| {
        scale_of(field.data_type())?;
        let digits = digits(expr, schema)?;
        let is_open = expr.to_field(schema).is_ok_and(|(_, own)| !own.metadata().contains_key(DIGITS_METADATA));
        is_open.then_some(digits)
    };
    let marks: Vec<Option<Digits>> = projection.schema.fields().iter().zip(&projection.expr).map(mark).collect();
    if marks.iter().all(Option::is_none) {
        return Ok(Transformed::no(LogicalPlan::Projection(projection)));
    }
    for (expr, digits) in projection.expr.iter_mut().zip(marks) {
        let Some(digits) = digits else { continue };
        let of = std::mem::take(expr);
        *expr = match of {
            Expr::Alias(alias) => Expr::Alias(Alias { expr: Box::new(shown(*alias.expr, digits, schema)?), ..alias }),
            other => shown(other, digits, schema)?,
        };
    }
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(projection.expr, projection.input)?)))
}

/// The node, under a projection that marks its columns.
fn projected(node: LogicalPlan, marks: &[Option<Digits>]) -> Result<Transformed<LogicalPlan>> {
    if marks.iter().all(Option::is_none) {
        return Ok(Transformed::no(node));
    }
    let own = Arc::clone(node.schema());
    let of = |(at, digits): (usize, &Option<Digits>)| {
        let column = column(&own, at);
        let Some(digits) = digits else { return Ok(column) };
        let (relation, field) = own.qualified_field(at);
        Ok(shown(column, *digits, &own)?.alias_qualified(relation.cloned(), field.name()))
    };
    let exprs = marks.iter().enumerate().map(of).collect::<Result<Vec<_>>>()?;
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(node))?)))
}

/// Queries of which one has such digits give them to all.
fn of_union(mut union: Union) -> Result<Transformed<LogicalPlan>> {
    let of_column = |at: usize| {
        let sides = union.inputs.iter().map(|input| match input.as_ref() {
            LogicalPlan::Projection(of) => side(&of.expr[at], of.input.schema()),
            other => side(&column(other.schema(), at), other.schema()),
        });
        let scale = scale_of(union.schema.field(at).data_type())?;
        Some(one_of(sides)?.with_scale(scale))
    };
    let marks: Vec<Option<Digits>> = (0..union.schema.fields().len()).map(of_column).collect();
    let mut is_changed = false;
    for input in &mut union.inputs {
        let own = input.schema().fields().iter().zip(&marks);
        let missing: Vec<_> = own.map(|(field, mark)| mark.filter(|mark| Digits::of(field) != Some(*mark))).collect();
        if missing.iter().any(Option::is_some) {
            *input = Arc::new(projected(input.as_ref().clone(), &missing)?.data);
            is_changed = true;
        }
    }
    match is_changed {
        true => Ok(Transformed::yes(LogicalPlan::Union(union).recompute_schema()?)),
        false => Ok(Transformed::no(LogicalPlan::Union(union))),
    }
}

/// What follows is shown as what the query starts with.
///
/// Errors: `42804` for what has got another type since it was planned.
fn of_recursion(mut query: RecursiveQuery) -> Result<Transformed<LogicalPlan>> {
    let (start, step) = (query.static_term.schema(), query.recursive_term.schema());
    let is_other = |(start, step): (&FieldRef, &FieldRef)| {
        start.metadata().get(DIGITS_METADATA) != step.metadata().get(DIGITS_METADATA)
    };
    let pairs = || start.fields().iter().zip(step.fields());
    for (at, (start, step)) in pairs().enumerate() {
        let others = |field: &Field| {
            let mut metadata = field.metadata().clone();
            metadata.remove(DIGITS_METADATA);
            metadata
        };
        if start.data_type() != step.data_type() || others(start) != others(step) {
            return Err(mismatch(&query.name, at, start, step)?.into());
        }
    }
    if !pairs().any(is_other) {
        return Ok(Transformed::no(LogicalPlan::RecursiveQuery(query)));
    }
    let of = |(at, pair): (usize, (&FieldRef, &FieldRef))| {
        let column = column(step, at);
        if !is_other(pair) {
            return column;
        }
        let (relation, field) = step.qualified_field(at);
        let tag = pair.0.metadata().get(DIGITS_METADATA).cloned();
        marked_as(column, tag).alias_qualified(relation.cloned(), field.name())
    };
    let exprs = pairs().enumerate().map(of).collect();
    let step = Projection::try_new(exprs, Arc::clone(&query.recursive_term))?;
    query.recursive_term = Arc::new(LogicalPlan::Projection(step));
    Ok(Transformed::yes(LogicalPlan::RecursiveQuery(query)))
}

/// Numbers that are written out with different digits have each their own.
fn of_values(values: Values) -> Result<Transformed<LogicalPlan>> {
    let none = DFSchema::empty();
    let of = |(at, field): (usize, &FieldRef)| {
        let scale = scale_of(field.data_type())?;
        one_of(values.values.iter().filter_map(|row| Some(side(row.get(at)?, &none)))).map(|of| of.with_scale(scale))
    };
    let marks: Vec<Option<Digits>> = values.schema.fields().iter().enumerate().map(of).collect();
    projected(LogicalPlan::Values(values), &marks)
}

/// What an expression hands to something that looks at the column of a value: texts, functions.
fn within(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let mut is_changed = false;
    let mut mark = |arg: &mut Expr| -> Result<()> {
        // Columns and functions say it themselves.
        if !matches!(arg, Expr::Column(_) | Expr::Literal(..) | Expr::OuterReferenceColumn(..))
            && let Some(digits) = digits(arg, schema)
            && arg.to_field(schema).is_ok_and(|(_, field)| !field.metadata().contains_key(DIGITS_METADATA))
        {
            *arg = shown(std::mem::take(arg), digits, schema)?;
            is_changed = true;
        }
        Ok(())
    };
    let expr = match expr {
        Expr::Cast(Cast { expr: mut of, field }) if field.data_type().is_string() => {
            mark(&mut of)?;
            Expr::Cast(Cast { expr: of, field })
        }
        Expr::ScalarFunction(mut call) if !is_transparent(call.name()) => {
            call.args.iter_mut().try_for_each(mark)?;
            Expr::ScalarFunction(call)
        }
        Expr::AggregateFunction(mut call) if !keeps(call.func.name()) && call.func.name() != SUM => {
            call.params.args.iter_mut().try_for_each(mark)?;
            Expr::AggregateFunction(call)
        }
        other => other,
    };
    Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
}

const SUM: &str = "sum";

/// Aggregates and window functions that answer one of the values, or an array of them.
fn keeps(function: &str) -> bool {
    matches!(
        function,
        "min" | "max" | "first_value" | "last_value" | "nth_value" | "lag" | "lead" | "any_value" | "array_agg"
    )
}

/// Functions that say it themselves.
const MARKING: [&str; 11] =
    [MARK, NUMERIC, "/", "exp", "ln", "log", "log10", "power", "sqrt", "to_number", "trim_scale"];

/// Functions of whose arguments it is told, which need no marks for it.
fn is_transparent(function: &str) -> bool {
    const ALL: [&str; 12] = [
        MARK,
        NAMED_CAST,
        "abs",
        "array_item",
        "array_slice",
        "coalesce",
        "greatest",
        "least",
        "make_array",
        "mod",
        "nullif",
        "tarn_mode",
    ];
    ALL.contains(&function)
}

/// What is known of the digits of a value that is one of several.
enum OperandDigits {
    Marked(Digits),
    /// So many behind the point, in PostgreSQL, too.
    Exact(i8),
    /// The same, of a number that is written out.
    Written(i8),
    /// It is NULL, or no number.
    Nothing,
}

fn side(expr: &Expr, schema: &DFSchema) -> OperandDigits {
    if let Some(digits) = digits(expr, schema) {
        return OperandDigits::Marked(digits);
    }
    match expr {
        // Made one type with what it stands beside.
        Expr::Cast(cast) if !cast.field.metadata().contains_key(DIGITS_METADATA) => side(&cast.expr, schema),
        Expr::Alias(alias) => side(&alias.expr, schema),
        Expr::Literal(value, _) if value.is_null() => OperandDigits::Nothing,
        Expr::Literal(ScalarValue::Decimal128(_, _, scale), _) => OperandDigits::Written((*scale).max(0)),
        Expr::Literal(value, _) if value.data_type().is_integer() => OperandDigits::Written(0),
        Expr::Negative(of) => side(of, schema),
        other => match other.get_type(schema) {
            Ok(DataType::Decimal128(_, scale)) => OperandDigits::Exact(scale.max(0)),
            Ok(of) if of.is_integer() => OperandDigits::Exact(0),
            _ => OperandDigits::Nothing,
        },
    }
}

/// The digits of a value that is one of these. Of numbers that are written out alone, those that are no zeros.
fn one_of(sides: impl IntoIterator<Item = OperandDigits>) -> Option<Digits> {
    let (mut marked, mut is_one, mut is_written) = (None::<Digits>, true, true);
    let (mut least, mut most) = (i8::MAX, 0);
    for side in sides {
        match side {
            OperandDigits::Marked(digits) => {
                is_one &= marked.is_none_or(|of| of.rule() == digits.rule());
                least = least.min(digits.least());
                marked = Some(digits);
            }
            OperandDigits::Exact(scale) | OperandDigits::Written(scale) => {
                is_written &= matches!(side, OperandDigits::Written(_));
                (least, most) = (least.min(scale), most.max(scale));
            }
            OperandDigits::Nothing => {}
        }
    }
    match marked {
        Some(marked) => is_one.then(|| Digits::new(marked.rule(), least, marked.scale())),
        None => (is_written && least < most).then(|| Digits::new(Rule::Natural, least, most)),
    }
}

/// The digits of what is computed of two values of which one has no zeros at its end.
fn computed(left: OperandDigits, right: OperandDigits, least: impl Fn(i8, i8) -> i8) -> Option<Digits> {
    let natural = |side: &OperandDigits| match side {
        OperandDigits::Marked(digits) if digits.rule() == Rule::Natural => Some((digits.least(), Some(*digits))),
        OperandDigits::Marked(_) => None,
        OperandDigits::Exact(scale) | OperandDigits::Written(scale) => Some((*scale, None)),
        OperandDigits::Nothing => Some((0, None)),
    };
    let ((left, left_digits), (right, right_digits)) = natural(&left).zip(natural(&right))?;
    let of = left_digits.or(right_digits)?;
    Some(Digits::new(Rule::Natural, least(left, right), of.scale()))
}

/// With which digits is a value shown, where that is not those of its type? Of the scale of one of its parts.
fn digits(expr: &Expr, schema: &DFSchema) -> Option<Digits> {
    let of_all = |all: &[Expr]| one_of(all.iter().map(|expr| side(expr, schema)));
    match expr {
        Expr::Column(column) => Digits::of(schema.field_from_column(column).ok()?),
        Expr::OuterReferenceColumn(field, _) => Digits::of(field),
        // A parameter: a number that is written out has a type of its own.
        Expr::Literal(value, _) => bare(&value.data_type()),
        Expr::Placeholder(of) => bare(of.field.as_ref()?.data_type()),
        Expr::Alias(alias) => digits(&alias.expr, schema),
        Expr::Negative(of) => digits(of, schema),
        Expr::Cast(cast) if !cast.field.metadata().contains_key(DIGITS_METADATA) => {
            let scale = scale_of(cast.field.data_type())?;
            match cast.expr.get_type(schema) {
                Ok(of) if scale_of(&of).is_none() => bare(cast.field.data_type()),
                _ => digits(&cast.expr, schema).filter(|digits| digits.scale() <= scale),
            }
        }
        Expr::Case(case) => {
            let results = case.when_then_expr.iter().map(|(_, then)| then).chain(&case.else_expr);
            one_of(results.map(|expr| side(expr, schema)))
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let least: fn(i8, i8) -> i8 = match op {
                Operator::Plus | Operator::Minus | Operator::Modulo => i8::max,
                Operator::Multiply => i8::saturating_add,
                _ => return None,
            };
            computed(side(left, schema), side(right, schema), least)
        }
        Expr::ScalarSubquery(of) => Digits::of(of.subquery.schema().field(0)),
        Expr::Unnest(of) => digits(&of.expr, schema),
        Expr::ScalarFunction(call) => match (call.name(), &call.args[..]) {
            ("+" | "-" | "%" | "mod", [left, right]) => computed(side(left, schema), side(right, schema), i8::max),
            ("*", [left, right]) => computed(side(left, schema), side(right, schema), i8::saturating_add),
            ("coalesce" | "greatest" | "least" | "make_array", all) => of_all(all),
            (SERIES, all) if all.iter().any(|arg| digits(arg, schema).is_some()) => of_all(all),
            (
                "abs" | "nullif" | "array_item" | "array_slice" | "tarn_mode" | "tarn_percentile_disc" | NAMED_CAST,
                [of, ..],
            ) => digits(of, schema),
            (name, _) if MARKING.contains(&name) => Digits::of(&expr.to_field(schema).ok()?.1),
            _ => None,
        },
        Expr::AggregateFunction(AggregateFunction { func, params }) => of_aggregate(func.name(), &params.args, schema),
        Expr::WindowFunction(call) => {
            let WindowFunction { fun, params: WindowFunctionParams { args, .. } } = call.as_ref();
            of_aggregate(fun.name(), args, schema)
        }
        _ => None,
    }
}

/// The digits of a type that nobody wrote: a bare numeric's, and a parameter's that is cast to `numeric`.
fn bare(of: &DataType) -> Option<Digits> {
    let scale = scale_of(of)?;
    is_without_digits(of).then(|| Digits::new(Rule::Natural, 0, scale))
}

fn of_aggregate(function: &str, args: &[Expr], schema: &DFSchema) -> Option<Digits> {
    let of = args.first().filter(|_| function == SUM || keeps(function)).and_then(|arg| digits(arg, schema))?;
    // A sum of quotients has the digits of the longest of PostgreSQL's.
    (function != SUM || of.rule() == Rule::Natural).then_some(of)
}

const MARK: &str = "shown_digits";

/// The value, whose column is marked.
fn shown(of: Expr, digits: Digits, schema: &DFSchema) -> Result<Expr> {
    let data_type = of.get_type(schema)?;
    let Some(scale) = scale_of(&data_type) else { return Ok(of) };
    Ok(marked_as(of, Some(digits.with_scale(scale).tag())))
}

fn marked_as(of: Expr, tag: Option<String>) -> Expr {
    let function = ScalarUDF::from(DigitsMark { tag, signature: Signature::any(1, Volatility::Immutable) });
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function), vec![of]))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DigitsMark {
    /// What is said of its digits. `None`: it has those of its type.
    tag: Option<String>,
    signature: Signature,
}

impl ScalarUDFImpl for DigitsMark {
    fn name(&self) -> &str {
        MARK
    }

    /// As the value is.
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(args[0].schema_name().to_string())
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        Ok(args[0].to_string())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let of = &args.arg_fields[0];
        let field = Field::new(self.name(), of.data_type().clone(), of.is_nullable());
        Ok(Arc::new(match &self.tag {
            Some(tag) => field.with_metadata([(DIGITS_METADATA.to_owned(), tag.clone())].into()),
            None => field,
        }))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> Result<Interval> {
        Ok(inputs[0].clone())
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        Ok(inputs[0].sort_properties)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match <[ColumnarValue; 1]>::try_from(args.args) {
            Ok([of]) => Ok(of),
            Err(_) => exec_err!("{MARK} is of one value"),
        }
    }
}
