//! Which rows does a frame leave out? `sum(x) OVER (ORDER BY y ROWS 2 PRECEDING EXCLUDE CURRENT ROW)`. DataFusion's
//! frames leave out none.
//!
//! The parser writes what is left out as a call of [`EXCLUDING`] among the keys of the partition. When the window is
//! planned it is taken out again, and the function becomes one that is asked for its value row by row: an aggregate
//! begins anew for each, as PostgreSQL's does where rows are left out, and `first_value`, `last_value` and `nth_value`
//! are the items of the rows that stay. Ranks, and all that look at no frame, are as they were.
//!
//! So are `nth_value(x, n)`, `lag(x, n)` and `lead(x, n)` whose `n` is another for each row, and those whose default
//! is, `lag(x, 1, y)`: DataFusion's take what is written out.
//!
//! Bound: frames of one partition that hold more than [`MAX_ROWS`] rows together are refused, `54000`.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::compute::{filter, partition};
use arrow::datatypes::{DataType, FieldRef, Int64Type, Schema};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::binary::comparison_coercion;
use datafusion::logical_expr::expr::{WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::function::{AccumulatorArgs, ExpressionArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawWindowExpr};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    AggregateUDF, ColumnarValue, Expr, LimitEffect, PartitionEvaluator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility, WindowFunctionDefinition, WindowUDF, WindowUDFImpl, lit,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;
use tarn_query::parser::EXCLUDING;

use super::averages::undefined;
use crate::error::{SqlError, state};

/// Rows that the frames of one partition may hold together.
const MAX_ROWS: usize = 1 << 30;

/// The function that says what a frame leaves out.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![Arc::new(Marker { signature: Signature::any(1, Volatility::Volatile) }.into())]
}

/// It stands in windows alone, where it is taken out.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Marker {
    signature: Signature,
}

impl ScalarUDFImpl for Marker {
    fn name(&self) -> &str {
        EXCLUDING
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Err(SqlError::unsupported(format!("{EXCLUDING} outside of a window"), "EXCLUDE, behind a window's frame")
            .into())
    }
}

/// Plans windows whose frames leave rows out.
#[derive(Debug)]
pub(super) struct Exclusions;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum FrameExclusion {
    Nothing,
    CurrentRow,
    Group,
    Ties,
}

/// Functions whose value is that of one row of the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum RowFunction {
    First,
    Last,
    Nth,
    /// So many rows before this one, whatever the frame is.
    Lag,
    /// So many rows behind it.
    Lead,
}

impl ExprPlanner for Exclusions {
    fn plan_window(&self, mut raw: RawWindowExpr) -> Result<PlannerResult<RawWindowExpr>> {
        let marker = raw.partition_by.iter().position(|key| excluded(key).is_some());
        let excluded = marker.and_then(|at| excluded(&raw.partition_by.remove(at)));
        let is_by_row = raw.args.get(1).is_some_and(|n| !is_written_out(n));
        let has_own_default = raw.args.get(2).is_some_and(Expr::any_column_refs);
        let inner = match &raw.func_def {
            WindowFunctionDefinition::AggregateUDF(aggregate) if excluded.is_some() => {
                FrameFunction::Aggregate(Arc::clone(aggregate))
            }
            WindowFunctionDefinition::AggregateUDF(_) => return Ok(PlannerResult::Original(raw)),
            WindowFunctionDefinition::WindowUDF(window) => match window.name() {
                "first_value" if excluded.is_some() => FrameFunction::Item(RowFunction::First),
                "last_value" if excluded.is_some() => FrameFunction::Item(RowFunction::Last),
                "nth_value" if excluded.is_some() || is_by_row => FrameFunction::Item(RowFunction::Nth),
                "lag" if is_by_row || has_own_default => FrameFunction::Item(RowFunction::Lag),
                "lead" if is_by_row || has_own_default => FrameFunction::Item(RowFunction::Lead),
                _ => return Ok(PlannerResult::Original(raw)),
            },
        };
        if raw.distinct || raw.null_treatment.is_some() {
            let message = "DISTINCT and IGNORE NULLS in a window whose frame leaves rows out, or that looks at another row each time, are not supported";
            return Err(SqlError::unsupported(message, "a frame without EXCLUDE, and a constant").into());
        }
        let (n_args, mut args) = (raw.args.len(), raw.args);
        // `count(*)`
        args.iter_mut().filter(|arg| is_wildcard(arg)).for_each(|arg| *arg = lit(1_i64));
        let has_filter = raw.filter.is_some();
        args.extend(raw.filter.map(|filter| *filter));
        // Windows are told apart by their arguments.
        args.push(lit(format!("{excluded:?}")));
        let signature = Signature::user_defined(Volatility::Immutable);
        let excluded = excluded.unwrap_or(FrameExclusion::Nothing);
        let function = ExcludingFunction { inner, excluded, n_args, has_filter, signature };
        let call = WindowFunction {
            fun: WindowFunctionDefinition::WindowUDF(Arc::new(WindowUDF::from(function))),
            params: WindowFunctionParams {
                args,
                partition_by: raw.partition_by,
                order_by: raw.order_by,
                window_frame: raw.window_frame,
                filter: None,
                null_treatment: None,
                distinct: false,
            },
        };
        Ok(PlannerResult::Planned(Expr::WindowFunction(Box::new(call))))
    }
}

#[expect(deprecated, reason = "the planner makes it")]
fn is_wildcard(expr: &Expr) -> bool {
    matches!(expr, Expr::Wildcard { .. })
}

/// A constant, or a parameter, which is one when the statement runs.
fn is_written_out(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(..) | Expr::Placeholder(_) => true,
        Expr::Negative(inner) => is_written_out(inner),
        Expr::Cast(cast) => is_written_out(&cast.expr),
        _ => false,
    }
}

fn excluded(key: &Expr) -> Option<FrameExclusion> {
    let Expr::ScalarFunction(call) = key else { return None };
    if call.func.name() != EXCLUDING {
        return None;
    }
    match call.args.first()? {
        Expr::Literal(what, _) => match what.try_as_str()?? {
            "current row" => Some(FrameExclusion::CurrentRow),
            "group" => Some(FrameExclusion::Group),
            "ties" => Some(FrameExclusion::Ties),
            _ => None,
        },
        _ => None,
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum FrameFunction {
    Aggregate(Arc<AggregateUDF>),
    Item(RowFunction),
}

/// A function of the rows that a frame keeps. Behind its arguments stand the condition of its FILTER, and what the
/// frame leaves out.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ExcludingFunction {
    inner: FrameFunction,
    excluded: FrameExclusion,
    n_args: usize,
    has_filter: bool,
    signature: Signature,
}

impl ExcludingFunction {
    fn value_field(&self, fields: &[FieldRef]) -> Result<FieldRef> {
        match &self.inner {
            FrameFunction::Aggregate(aggregate) => aggregate.return_field(&fields[..self.n_args]),
            FrameFunction::Item(_) => match fields.first() {
                Some(field) => Ok(Arc::new(field.as_ref().clone().with_nullable(true))),
                None => plan_err!("{} is of a value", self.name()),
            },
        }
    }
}

impl WindowUDFImpl for ExcludingFunction {
    fn name(&self) -> &str {
        match &self.inner {
            FrameFunction::Aggregate(aggregate) => aggregate.name(),
            FrameFunction::Item(RowFunction::First) => "first_value",
            FrameFunction::Item(RowFunction::Last) => "last_value",
            FrameFunction::Item(RowFunction::Nth) => "nth_value",
            FrameFunction::Item(RowFunction::Lag) => "lag",
            FrameFunction::Item(RowFunction::Lead) => "lead",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let (args, rest) = types.split_at(self.n_args.min(types.len()));
        let mut coerced = match (&self.inner, args) {
            (FrameFunction::Aggregate(aggregate), args) => {
                let field = |of: &DataType| Arc::new(arrow::datatypes::Field::new("", of.clone(), true));
                let fields: Vec<FieldRef> = args.iter().map(field).collect();
                let coerced = fields_with_udf(&fields, aggregate.as_ref())?;
                coerced.iter().map(|field| field.data_type().clone()).collect()
            }
            (FrameFunction::Item(RowFunction::First | RowFunction::Last), [of]) => vec![of.clone()],
            (FrameFunction::Item(RowFunction::Nth), [of, n]) if n.is_integer() || n.is_null() => {
                vec![of.clone(), DataType::Int64]
            }
            (FrameFunction::Item(RowFunction::Lag | RowFunction::Lead), [of, n]) if n.is_integer() || n.is_null() => {
                vec![of.clone(), DataType::Int64]
            }
            (FrameFunction::Item(RowFunction::Lag | RowFunction::Lead), [of, n, other])
                if n.is_integer() || n.is_null() =>
            {
                match comparison_coercion(of, other) {
                    Some(to) if of.is_string() == other.is_string() => vec![to.clone(), DataType::Int64, to],
                    _ => return Err(undefined(self.name(), args).into()),
                }
            }
            _ => return Err(undefined(self.name(), args).into()),
        };
        let what = rest.last().cloned();
        coerced.extend(self.has_filter.then_some(DataType::Boolean).into_iter().chain(what));
        Ok(coerced)
    }

    fn expressions(&self, args: ExpressionArgs) -> Vec<Arc<dyn PhysicalExpr>> {
        args.input_exprs().to_vec()
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        let field = self.value_field(args.input_fields())?;
        Ok(Arc::new(field.as_ref().clone().with_name(args.name()).with_nullable(true)))
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        let fields = args.input_fields();
        Ok(Box::new(ExclusionEvaluator {
            inner: self.inner.clone(),
            excluded: self.excluded,
            exprs: args.input_exprs()[..self.n_args].to_vec(),
            schema: Schema::new(fields[..self.n_args].to_vec()),
            field: self.value_field(fields)?,
            has_filter: self.has_filter,
            row: 0,
            n_read: 0,
            peers: vec![],
            last: None,
        }))
    }

    fn limit_effect(&self, _: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        LimitEffect::Unknown
    }
}

/// The values of one partition, row by row.
#[derive(Debug)]
struct ExclusionEvaluator {
    inner: FrameFunction,
    excluded: FrameExclusion,
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    schema: Schema,
    field: FieldRef,
    has_filter: bool,
    /// Whose value is asked for next.
    row: usize,
    /// How many rows frames have held until now.
    n_read: usize,
    /// Rows that the order of the window does not tell apart; in order, found at the first row.
    peers: Vec<Range<usize>>,
    /// What the aggregate made of the rows that were kept last.
    last: Option<(Vec<Range<usize>>, ScalarValue)>,
}

impl PartitionEvaluator for ExclusionEvaluator {
    fn uses_window_frame(&self) -> bool {
        true
    }

    /// `values`: the arguments, and what the window is ordered by.
    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        let (args, rest) = values.split_at(self.exprs.len().min(values.len()));
        let (condition, rest) = rest.split_at(usize::from(self.has_filter).min(rest.len()));
        let keys = rest.split_first().map_or(rest, |(_, keys)| keys);
        let row = self.row;
        self.row += 1;
        if row == 0 && matches!(self.excluded, FrameExclusion::Group | FrameExclusion::Ties) {
            let n_rows = values.first().map_or(range.end, |values| values.len());
            self.peers = match keys {
                [] => std::iter::once(0..n_rows).collect(),
                keys => partition(keys)?.ranges(),
            };
        }
        let kept = kept(range, row, self.excluded, self.peers_of(row));
        match &self.inner {
            FrameFunction::Item(item) => self.item(*item, args, condition.first(), &kept, row),
            FrameFunction::Aggregate(aggregate) => {
                if let Some((of, value)) = &self.last
                    && *of == kept
                {
                    return Ok(value.clone());
                }
                self.n_read += kept.iter().map(Range::len).sum::<usize>();
                if self.n_read > MAX_ROWS {
                    let message = format!("the frames of a window that leaves rows out hold more than {MAX_ROWS} rows");
                    let error = SqlError::new(state::PROGRAM_LIMIT, message);
                    return Err(error.with_hint("smaller frames, or no EXCLUDE").into());
                }
                let value = self.aggregated(&Arc::clone(aggregate), args, condition.first(), &kept)?;
                self.last = Some((kept, value.clone()));
                Ok(value)
            }
        }
    }
}

impl ExclusionEvaluator {
    fn peers_of(&self, row: usize) -> Range<usize> {
        let at = self.peers.partition_point(|peers| peers.end <= row);
        self.peers.get(at).cloned().unwrap_or(row..row + 1)
    }

    fn aggregated(
        &self,
        aggregate: &AggregateUDF,
        args: &[ArrayRef],
        condition: Option<&ArrayRef>,
        kept: &[Range<usize>],
    ) -> Result<ScalarValue> {
        let mut accumulator = aggregate.accumulator(AccumulatorArgs {
            return_field: Arc::clone(&self.field),
            schema: &self.schema,
            ignore_nulls: false,
            order_bys: &[],
            is_reversed: false,
            name: aggregate.name(),
            is_distinct: false,
            exprs: &self.exprs,
            expr_fields: self.schema.fields(),
        })?;
        for rows in kept {
            let part = |values: &ArrayRef| values.slice(rows.start, rows.len());
            let mut parts: Vec<ArrayRef> = args.iter().map(part).collect();
            if let Some(condition) = condition {
                let condition = part(condition);
                let condition: &BooleanArray = condition.as_boolean();
                parts = parts.iter().map(|part| filter(part, condition)).collect::<Result<_, _>>()?;
            }
            accumulator.update_batch(&parts)?;
        }
        accumulator.evaluate()
    }

    /// The value of one of the rows. There is no FILTER of these in PostgreSQL.
    fn item(
        &self,
        item: RowFunction,
        args: &[ArrayRef],
        condition: Option<&ArrayRef>,
        kept: &[Range<usize>],
        row: usize,
    ) -> Result<ScalarValue> {
        if condition.is_some() {
            return plan_err!("FILTER is not implemented for non-aggregate window functions");
        }
        let Some(values) = args.first() else { return plan_err!("{item:?} of no value") };
        let place = match item {
            RowFunction::Lag | RowFunction::Lead => {
                let Some(n) = args.get(1) else { return plan_err!("{item:?} of no number") };
                let n = n.as_primitive::<Int64Type>();
                if n.is_null(row) {
                    return ScalarValue::try_from(values.data_type());
                }
                let n = if item == RowFunction::Lag { n.value(row).checked_neg() } else { Some(n.value(row)) };
                let place = n.and_then(|n| (row as i64).checked_add(n)).and_then(|place| usize::try_from(place).ok());
                match (place.filter(|place| *place < values.len()), args.get(2)) {
                    (Some(place), _) => Some(place),
                    (None, Some(others)) => return ScalarValue::try_from_array(others, row),
                    (None, None) => None,
                }
            }
            RowFunction::First => kept.first().map(|rows| rows.start),
            RowFunction::Last => kept.last().map(|rows| rows.end - 1),
            RowFunction::Nth => {
                let Some(n) = args.get(1) else { return plan_err!("nth_value is of a value and a number") };
                let n = n.as_primitive::<Int64Type>();
                if n.is_null(row) {
                    return ScalarValue::try_from(values.data_type());
                }
                let Some(mut n) = usize::try_from(n.value(row)).ok().and_then(|n| n.checked_sub(1)) else {
                    let message = "argument of nth_value must be greater than zero";
                    return Err(SqlError::new(state::INVALID_NTH_VALUE, message).into());
                };
                kept.iter().find_map(|rows| match n < rows.len() {
                    true => Some(rows.start + n),
                    false => {
                        n -= rows.len();
                        None
                    }
                })
            }
        };
        match place {
            Some(place) => ScalarValue::try_from_array(values, place),
            None => ScalarValue::try_from(values.data_type()),
        }
    }
}

/// What a frame keeps: up to three runs of rows, in order, none of them empty.
fn kept(frame: &Range<usize>, row: usize, excluded: FrameExclusion, peers: Range<usize>) -> Vec<Range<usize>> {
    let cut = |from: usize, to: usize| from.max(frame.start)..to.min(frame.end);
    let parts = match excluded {
        FrameExclusion::Nothing => [frame.clone(), 0..0, 0..0],
        FrameExclusion::CurrentRow => [cut(0, row), 0..0, cut(row + 1, usize::MAX)],
        FrameExclusion::Group => [cut(0, peers.start), 0..0, cut(peers.end, usize::MAX)],
        FrameExclusion::Ties => [cut(0, peers.start), cut(row, row + 1), cut(peers.end, usize::MAX)],
    };
    parts.into_iter().filter(|part| !part.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_keep_what_is_not_left_out() {
        let kept = |excluded| kept(&(2..9), 4, excluded, 3..6);
        assert_eq!(kept(FrameExclusion::CurrentRow), [2..4, 5..9]);
        assert_eq!(kept(FrameExclusion::Group), [2..3, 6..9]);
        assert_eq!(kept(FrameExclusion::Ties), [2..3, 4..5, 6..9]);
        // The row itself need not be in its frame.
        assert!(super::kept(&(7..9), 4, FrameExclusion::Ties, 3..6).into_iter().eq(std::iter::once(7..9)));
        assert!(super::kept(&(3..6), 4, FrameExclusion::Group, 3..6).is_empty());
    }
}
