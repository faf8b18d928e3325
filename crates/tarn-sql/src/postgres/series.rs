//! Which times are `generate_series(date '2024-01-01', '2024-03-01', '1 month')`? Those of PostgreSQL: of dates
//! instants, of the session's clocks; a text is read as what it stands for. And numerics have a series, too.
//! DataFusion's knows dates, and of times those of nanoseconds; in FROM its arguments are constants.
//!
//! So it is a function that gives a list, of which DataFusion's is left the whole numbers. In FROM a list is unnested,
//! `FROM t, unnest(generate_series(1, t.n))`, but for whole numbers that are written out: these are counted as they are
//! read, however many there are. Those of DataFusion are long ones; `generate_series(1, 3)` is of integers.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Decimal128Array, Decimal128Builder, ListBuilder, TimestampMicrosecondBuilder};
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Field, FieldRef, IntervalMonthDayNano, IntervalUnit, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::functions_nested::range::gen_series_udf;
use datafusion::logical_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, LogicalPlanBuilder, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use tarn_query::sqlparser::ast::{
    self, Expr, FunctionArg, FunctionArgExpr, TableFactor, TableFunctionArgs, UnaryOperator, Value,
};
use tarn_query::{datafusion, zone_of};
use tarn_types::{Zone, is_infinite_us};

use super::averages::undefined;
use super::calls::{call, is_named, take};
use super::division::POWERS;
use super::extract::intervals;
use super::instants::later;
use super::integer_series;
use super::rowwise::ArgumentRows;
use super::times::length;
use crate::error::{SqlError, state};

pub(super) const SERIES: &str = "generate_series";

/// Numbers of one series of numerics, which is a list.
const MAX_NUMERICS: i128 = 10_000_000;

/// The function, to be registered over DataFusion's.
pub(super) fn series() -> ScalarUDF {
    Series { inner: gen_series_udf(), signature: Signature::user_defined(Volatility::Stable) }.into()
}

/// A series in FROM whose numbers are not written out is a list that is unnested.
pub(super) fn in_from(factor: &mut TableFactor) {
    let (args, alias) = match factor {
        TableFactor::Table {
            name, alias, args: Some(TableFunctionArgs { args, .. }), with_ordinality: false, ..
        } if is_named(name, SERIES) => (args, alias),
        TableFactor::Function { name, alias, args, with_ordinality: false, .. } if is_named(name, SERIES) => {
            (args, alias)
        }
        _ => return,
    };
    let mut plain = vec![];
    for arg in args.iter_mut() {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) = arg else { return };
        plain.push(arg);
    }
    if !(2..=3).contains(&plain.len()) || plain.iter().all(|arg| is_long(arg).is_some()) {
        return;
    }
    let list = call(SERIES, plain.into_iter().map(take).collect());
    *factor = TableFactor::UNNEST {
        alias: alias.take(),
        array_exprs: vec![list],
        with_offset: false,
        with_offset_alias: None,
        with_ordinality: false,
    };
}

/// Whether a whole number that is written out, or computed of such, is a `bigint`. `None` for anything else: what a
/// parameter is, is not known before there are rows.
fn is_long(expr: &Expr) -> Option<bool> {
    use ast::DataType::{BigInt, Int, Int2, Int4, Int8, Integer, SmallInt};
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => {
                digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse::<i32>().is_err())
            }
            Value::Null => Some(false),
            _ => None,
        },
        Expr::Nested(expr) | Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr } => is_long(expr),
        Expr::BinaryOp { left, right, .. } => Some(is_long(left)? | is_long(right)?),
        Expr::Cast { expr, data_type: BigInt(None) | Int8(None), .. } => is_long(expr).map(|_| true),
        Expr::Cast {
            expr, data_type: Int(None) | Int2(None) | Int4(None) | Integer(None) | SmallInt(None), ..
        } => is_long(expr).map(|_| false),
        _ => None,
    }
}

/// A series of integers that are written out, in FROM.
#[derive(Debug)]
pub(super) struct Integers;

impl RelationPlanner for Integers {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let (TableFactor::Table {
            name,
            args: Some(TableFunctionArgs { args, .. }),
            with_ordinality: false,
            alias,
            ..
        }
        | TableFactor::Function { name, args, with_ordinality: false, alias, .. }) = &relation
        else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let integers = args.iter().map(|arg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) if is_long(arg) == Some(false) => Some(arg.clone()),
            _ => None,
        });
        let Some(integers) = integers.collect::<Option<Vec<Expr>>>().filter(|_| is_named(name, SERIES)) else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let no_columns = DFSchema::empty();
        let integers = integers.into_iter().map(|arg| context.sql_expr_to_logical_expr(arg, &no_columns));
        let integers = integers.collect::<Result<Vec<_>>>()?;
        let long = context.context_provider().get_table_function_source(SERIES, integers)?;
        let plan = LogicalPlanBuilder::scan(SERIES, integer_series::of(&long)?, None)?.build()?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias.clone()))))
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Series {
    /// Of whole numbers.
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

/// What a series is of.
enum SeriesType {
    Whole,
    Numerics(i8),
    Times(DataType),
}

fn kind(types: &[DataType]) -> SeriesType {
    let instants = || DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let ends = &types[..types.len().min(2)];
    let is_instant = |of: &DataType| matches!(of, DataType::Timestamp(_, Some(_)));
    let is_time = |of: &DataType| matches!(of, DataType::Timestamp(_, None));
    if let Some(of) = ends.iter().find(|of| is_instant(of)) {
        let DataType::Timestamp(_, zone) = of else { return SeriesType::Whole };
        return SeriesType::Times(DataType::Timestamp(TimeUnit::Microsecond, zone.clone()));
    }
    if ends.iter().any(is_time) {
        return SeriesType::Times(DataType::Timestamp(TimeUnit::Microsecond, None));
    }
    if ends.contains(&DataType::Date32) {
        return SeriesType::Times(instants());
    }
    let scale = types.iter().filter_map(|of| match of {
        DataType::Decimal128(_, scale) => Some((*scale).max(0)),
        _ => None,
    });
    scale.max().map_or(SeriesType::Whole, SeriesType::Numerics)
}

/// The type of a series of whole numbers.
fn whole(types: &[DataType]) -> DataType {
    match types.iter().any(|of| matches!(of, DataType::Int64 | DataType::UInt64)) {
        true => DataType::Int64,
        false => DataType::Int32,
    }
}

impl ScalarUDFImpl for Series {
    fn name(&self) -> &str {
        SERIES
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match kind(types) {
            SeriesType::Times(of) if types.len() == 3 => {
                Ok(vec![of.clone(), of, DataType::Interval(IntervalUnit::MonthDayNano)])
            }
            SeriesType::Numerics(scale) if (2..=3).contains(&types.len()) => {
                Ok(vec![DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale); types.len()])
            }
            SeriesType::Whole if types.iter().all(|of| of.is_integer() || of.is_null() || of.is_string()) => {
                // Texts are written out.
                (2..=3)
                    .contains(&types.len())
                    .then(|| vec![whole(types); types.len()])
                    .ok_or_else(|| undefined(SERIES, types).into())
            }
            _ => Err(undefined(SERIES, types).into()),
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let item = match kind(types) {
            SeriesType::Times(of) => of,
            SeriesType::Numerics(scale) => DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale),
            SeriesType::Whole => whole(types),
        };
        Ok(DataType::new_list(item, true))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        Ok(Arc::new(Field::new(SERIES, self.return_type(&types)?, true)))
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = ArgumentRows::of(&args)?;
        let item = match args.return_field.data_type() {
            DataType::List(item) => Arc::clone(item),
            other => return datafusion::common::exec_err!("{SERIES} gives no {other}"),
        };
        let zone = match item.data_type() {
            DataType::Timestamp(_, Some(_)) => zone_of(&args.config_options),
            _ => Zone::utc(),
        };
        let list: ArrayRef = match item.data_type() {
            DataType::Timestamp(..) => {
                let [from, to] = [0, 1].map(|idx| rows.columns[idx].as_primitive::<TimestampMicrosecondType>());
                let steps = intervals(&rows.columns[2])?;
                let values = TimestampMicrosecondBuilder::new().with_data_type(item.data_type().clone());
                let mut lists = ListBuilder::new(values).with_field(item);
                for row in rows.there() {
                    if let Some(row) = row {
                        times(from.value(row), to.value(row), steps.value(row), &zone, lists.values())?;
                    }
                    lists.append(row.is_some());
                }
                Arc::new(lists.finish())
            }
            DataType::Decimal128(..) => {
                let column = |idx: usize| rows.columns.get(idx).map(|of| of.as_primitive::<Decimal128Type>());
                let values = Decimal128Builder::new().with_data_type(item.data_type().clone());
                let mut lists = ListBuilder::new(values).with_field(item);
                for row in rows.there() {
                    if let (Some(row), Some(from), Some(to)) = (row, column(0), column(1)) {
                        let one = || POWERS[usize::from(from.scale().unsigned_abs())];
                        let step = column(2).map_or_else(one, |steps: &Decimal128Array| steps.value(row));
                        numerics(from.value(row), to.value(row), step, lists.values())?;
                    }
                    lists.append(row.is_some());
                }
                Arc::new(lists.finish())
            }
            of => {
                let mut wide = args.clone();
                for arg in &mut wide.args {
                    *arg = arg.cast_to(&DataType::Int64, None)?;
                }
                let long = DataType::new_list(DataType::Int64, true);
                wide.return_field = Arc::new(Field::new(SERIES, long, true));
                check_whole_steps(&rows)?;
                let series = self.inner.invoke_with_args(wide)?;
                return series.cast_to(&DataType::new_list(of.clone(), true), None);
            }
        };
        rows.answer(list)
    }
}

/// `0A000`
pub(super) fn without_end() -> SqlError {
    SqlError::unsupported("generate_series without an end", "say where it ends: LIMIT asks for no more than there are")
}

fn no_step() -> SqlError {
    SqlError::new(state::INVALID_PARAMETER_VALUE, "step size cannot equal zero")
}

fn check_whole_steps(rows: &ArgumentRows) -> Result<()> {
    let Some(steps) = rows.columns.get(2) else { return Ok(()) };
    let steps = arrow::compute::cast(steps, &DataType::Int64)?;
    let steps = steps.as_primitive::<arrow::datatypes::Int64Type>();
    if rows.there().flatten().any(|row| steps.value(row) == 0) { Err(no_step().into()) } else { Ok(()) }
}

/// Errors: `22023` for a step of nothing; `0A000` for a series without an end; `22008`, it leaves the calendar.
fn times(
    from: i64,
    to: i64,
    step: IntervalMonthDayNano,
    zone: &Zone,
    values: &mut TimestampMicrosecondBuilder,
) -> Result<(), SqlError> {
    let direction = length(step).signum();
    if direction == 0 {
        return Err(no_step());
    }
    if is_infinite_us(from) || is_infinite_us(to) {
        return Err(without_end());
    }
    let mut at = from;
    while (direction > 0 && at <= to) || (direction < 0 && at >= to) {
        values.append_value(at);
        at = later(at, step, zone).ok_or_else(|| SqlError::new(state::DATETIME_OVERFLOW, "timestamp out of range"))?;
    }
    Ok(())
}

/// Errors: `22023` for a step of nothing; `54000` for a list that is too long.
fn numerics(from: i128, to: i128, step: i128, values: &mut Decimal128Builder) -> Result<(), SqlError> {
    if step == 0 {
        return Err(no_step());
    }
    if to.saturating_sub(from) / step > MAX_NUMERICS {
        let message = format!("a series of more than {MAX_NUMERICS} numerics");
        return Err(SqlError::new(state::PROGRAM_LIMIT, message).with_hint("of whole numbers, and divide"));
    }
    let mut at = from;
    while (step > 0 && at <= to) || (step < 0 && at >= to) {
        values.append_value(at);
        let Some(next) = at.checked_add(step) else { break };
        at = next;
    }
    Ok(())
}
