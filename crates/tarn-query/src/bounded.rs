//! What does a function allocate? `repeat('x', 2000000000)` is 28 bytes of a statement and 2 GB of memory, of which no
//! operator of a plan knows.
//!
//! The functions whose values may be longer than their arguments are called through [`BoundedFunction`]. Before a call
//! it knows from the arguments how long each row's value can be. A value above the limit is refused, also when the
//! planner computes it. The rows of a batch are computed in slices that fit the limit, each reserved in the memory of
//! queries before it is computed; what came of it stays reserved for as long as somebody holds it. Between slices the
//! call ends if nobody waits for the query any more; for that, functions that take long for each byte are called so,
//! too.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, AsArray, Int64Array, make_array};
use arrow::buffer::Buffer;
use arrow::compute::{CastOptions, cast_with_options, concat};
use arrow::datatypes::{DataType, FieldRef, Int64Type, IntervalMonthDayNanoType, IntervalUnit, TimeUnit};
use bytes::Bytes;
use datafusion::common::ExprSchema;
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ExpressionPlacement, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, StructFieldMapping,
};
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;

use crate::Error;
use crate::long_constants::{called, is_long_literal};
use crate::running::StatementContext;

/// The function that stands for the operator `||` is called as the operator is (`concatenation.rs`).
pub(crate) const OPERATOR: &str = "||";

/// No value of a function is longer, however much memory there is.
const MAX_VALUE_BYTES: usize = 256 << 20;
/// Of the memory of all queries, what one value may take.
const SHARE_OF_MEMORY: usize = 4;
/// Values that are shorter than this together are not worth a reservation.
const FREE_BYTES: usize = 256 << 10;
/// Of arguments and values, what is computed between two looks at whether somebody waits.
const SLICE_BYTES: usize = 4 << 20;
/// The same, where a byte may take a microsecond.
const SLOW_SLICE_BYTES: usize = 256 << 10;

/// What the functions of an engine may allocate.
#[derive(Debug)]
pub(crate) struct Lengths {
    pool: Arc<dyn MemoryPool>,
    value_bytes: usize,
}

impl Lengths {
    /// Of an engine with so much memory for all queries.
    pub(crate) fn new(pool: Arc<dyn MemoryPool>, memory_bytes: usize) -> Self {
        Lengths { pool, value_bytes: MAX_VALUE_BYTES.min(memory_bytes / SHARE_OF_MEMORY) }
    }
}

/// Puts the bound around those functions of a session that need it.
pub(crate) fn bounded(context: &SessionContext, lengths: &Arc<Lengths>) {
    let functions = context.state().scalar_functions().clone();
    let mut seen = HashSet::new();
    for (name, growth) in GROWING {
        let Some(inner) = functions.get(*name) else { continue };
        if seen.insert(inner.name().to_owned()) {
            let bounded = BoundedFunction { inner: Arc::clone(inner), growth: *growth, lengths: Arc::clone(lengths) };
            context.register_udf(ScalarUDF::new_from_impl(bounded));
        }
    }
}

/// A function whose value is as long as its arguments together, with the bound around it.
pub(crate) fn sum_of_arguments(inner: ScalarUDF, lengths: &Arc<Lengths>) -> ScalarUDF {
    let (inner, growth, lengths) = (Arc::new(inner), Growth::Sum(1), Arc::clone(lengths));
    ScalarUDF::new_from_impl(BoundedFunction { inner, growth, lengths })
}

/// How long a function's value may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Growth {
    /// The first argument, the second times.
    Times,
    /// A list of the first argument, so many times.
    Repeated,
    /// The second argument is the number of characters, or of items.
    Padded,
    Items,
    /// Something in the first argument is replaced by the third.
    Replaced,
    /// Items of the first argument are replaced by the third.
    Exchanged,
    /// What a pattern finds is replaced by a text that may name it.
    Matched,
    /// From, to, step.
    Series,
    /// So many times all arguments together.
    Sum(usize),
    /// All arguments together, with the first between each two of the others.
    Joined,
    /// The items of the first argument, with the second between each two, or the third in their place.
    Listed,
    /// Not longer than the arguments, but slow.
    Slow,
}

const GROWING: &[(&str, Growth)] = &[
    ("repeat", Growth::Times),
    ("array_repeat", Growth::Repeated),
    ("lpad", Growth::Padded),
    ("rpad", Growth::Padded),
    ("array_resize", Growth::Items),
    ("replace", Growth::Replaced),
    ("translate", Growth::Sum(4)),
    ("regexp_replace", Growth::Matched),
    ("range", Growth::Series),
    ("generate_series", Growth::Series),
    ("concat", Growth::Sum(1)),
    ("concat_ws", Growth::Joined),
    ("overlay", Growth::Sum(1)),
    ("encode", Growth::Sum(2)),
    // "%+" is the longest of what two letters stand for.
    ("to_char", Growth::Sum(20)),
    ("array_replace", Growth::Exchanged),
    ("array_replace_n", Growth::Exchanged),
    ("array_replace_all", Growth::Exchanged),
    ("string_to_array", Growth::Sum(17)),
    ("array_concat", Growth::Sum(1)),
    ("array_to_string", Growth::Listed),
    // A letter of a text may become six, a number five times its digits, and both together is what a value is made of.
    ("tarn_jsonb", Growth::Sum(6)),
    ("to_json", Growth::Sum(6)),
    ("to_jsonb", Growth::Sum(8)),
    ("array_to_json", Growth::Sum(6)),
    ("row_to_json", Growth::Sum(6)),
    ("json_build_object", Growth::Sum(6)),
    ("jsonb_build_object", Growth::Sum(8)),
    ("json_build_array", Growth::Sum(6)),
    ("jsonb_build_array", Growth::Sum(8)),
    ("json_object", Growth::Sum(6)),
    ("jsonb_object", Growth::Sum(8)),
    ("tarn_json_value", Growth::Sum(6)),
    ("tarn_json_member", Growth::Sum(6)),
    ("tarn_json_array", Growth::Sum(2)),
    ("tarn_jsonb_array", Growth::Sum(8)),
    ("tarn_json_object", Growth::Sum(2)),
    ("tarn_jsonb_object", Growth::Sum(8)),
    ("json_strip_nulls", Growth::Sum(6)),
    ("jsonb_strip_nulls", Growth::Sum(2)),
    ("jsonb_set", Growth::Sum(2)),
    ("jsonb_insert", Growth::Sum(2)),
    ("jsonb_pretty", Growth::Sum(64)),
    ("tarn_json_items", Growth::Sum(8)),
    ("tarn_jsonb_items", Growth::Sum(8)),
    ("tarn_json_item_texts", Growth::Sum(8)),
    ("tarn_jsonb_item_texts", Growth::Sum(8)),
    ("tarn_json_names", Growth::Sum(8)),
    ("tarn_jsonb_names", Growth::Sum(8)),
    ("tarn_json_each_names", Growth::Sum(8)),
    ("tarn_jsonb_each_names", Growth::Sum(8)),
    ("tarn_json_values", Growth::Sum(8)),
    ("tarn_jsonb_values", Growth::Sum(8)),
    ("tarn_json_value_texts", Growth::Sum(8)),
    ("tarn_jsonb_value_texts", Growth::Sum(8)),
    ("regexp_like", Growth::Slow),
    ("regexp_match", Growth::Slow),
    ("regexp_count", Growth::Slow),
    ("regexp_instr", Growth::Slow),
    ("levenshtein", Growth::Slow),
];

/// A function that is asked how long its values can be before it is called.
#[derive(Debug)]
struct BoundedFunction {
    inner: Arc<ScalarUDF>,
    growth: Growth,
    lengths: Arc<Lengths>,
}

impl PartialEq for BoundedFunction {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner
    }
}

impl Eq for BoundedFunction {}

impl Hash for BoundedFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl BoundedFunction {
    fn call(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if self.growth == Growth::Padded
            && let Some(length) = args.args.get_mut(1)
        {
            *length = not_negative(length);
        }
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let n_rows = if is_scalar { 1 } else { args.number_rows };
        let (most, taken) = self.growth.most(&args.args, n_rows);
        let limit = self.lengths.value_bytes;
        if let Some(longest) = most.iter().max().filter(|longest| **longest > limit) {
            let function = self.inner.name().to_owned();
            return Err(Error::TooLong { function, bytes: *longest, limit }.into());
        }
        if is_scalar {
            let constants = StatementContext::of(&args.config_options).constants;
            // The planner goes on with what it computes when one of them was refused.
            constants.check()?;
            let _reserved = if most[0] > FREE_BYTES { Some(self.reserve(most[0])?) } else { None };
            let n_rows = args.number_rows;
            let value = self.inner.invoke_with_args(args)?;
            constants.count(&value)?;
            return self.for_each_row(value, n_rows);
        }
        let is_slow = matches!(self.growth, Growth::Slow | Growth::Matched);
        let slice = if is_slow { SLOW_SLICE_BYTES } else { SLICE_BYTES };
        if most.iter().sum::<usize>() <= FREE_BYTES && (!is_slow || taken.iter().sum::<usize>() <= slice) {
            return self.inner.invoke_with_args(args);
        }
        let (mut parts, stop) = (vec![], StatementContext::of(&args.config_options).stop);
        let work: Vec<usize> = most.iter().zip(&taken).map(|(most, taken)| most.saturating_add(*taken)).collect();
        for rows in slices(&work, limit.min(slice)) {
            stop.check()?;
            let reservation = self.reserve(most[rows.clone()].iter().sum())?;
            let part = self.inner.invoke_with_args(sliced(&args, rows.clone()))?.into_array(rows.len())?;
            parts.push(held(&part, reservation)?);
        }
        if let [part] = &parts[..] {
            return Ok(ColumnarValue::Array(Arc::clone(part)));
        }
        // They are there twice while they are put together.
        let whole = self.reserve(parts.iter().map(|part| part.get_array_memory_size()).sum())?;
        let parts: Vec<&dyn Array> = parts.iter().map(|part| part.as_ref()).collect();
        Ok(ColumnarValue::Array(held(&concat(&parts)?, whole)?))
    }

    /// The value of several rows whose arguments are the same, as those of `CASE WHEN true …`: whoever gets it makes a
    /// column of it.
    fn for_each_row(&self, value: ColumnarValue, n_rows: usize) -> Result<ColumnarValue> {
        match value {
            ColumnarValue::Scalar(value) if value.size().saturating_mul(n_rows) > FREE_BYTES && n_rows > 1 => {
                let reservation = self.reserve(value.size().saturating_mul(n_rows))?;
                Ok(ColumnarValue::Array(held(&value.to_array_of_size(n_rows)?, reservation)?))
            }
            value => Ok(value),
        }
    }

    fn reserve(&self, bytes: usize) -> Result<MemoryReservation> {
        let reservation = MemoryConsumer::new(format!("{}()", self.inner.name())).register(&self.lengths.pool);
        reservation.try_grow(bytes)?;
        Ok(reservation)
    }
}

/// Lengths to pad to: DataFusion asks memory for the sum of a column's lengths, of which a negative one is enormous.
fn not_negative(lengths: &ColumnarValue) -> ColumnarValue {
    match lengths {
        ColumnarValue::Scalar(ScalarValue::Int64(length)) => {
            ColumnarValue::Scalar(ScalarValue::Int64(length.map(|length| length.max(0))))
        }
        ColumnarValue::Array(array) if array.data_type() == &DataType::Int64 => {
            let lengths: Int64Array = array.as_primitive::<Int64Type>().unary(|length| length.max(0));
            ColumnarValue::Array(Arc::new(lengths))
        }
        lengths => lengths.clone(),
    }
}

/// Neighbouring rows whose values are at most `limit` bytes together.
fn slices(most: &[usize], limit: usize) -> Vec<Range<usize>> {
    let (mut slices, mut start, mut bytes) = (vec![], 0, 0);
    for (row, most) in most.iter().enumerate() {
        if row > start && bytes + most > limit {
            slices.push(start..row);
            (start, bytes) = (row, 0);
        }
        bytes += most;
    }
    slices.push(start..most.len());
    slices
}

fn sliced(args: &ScalarFunctionArgs, rows: Range<usize>) -> ScalarFunctionArgs {
    let arg = |arg: &ColumnarValue| match arg {
        ColumnarValue::Array(array) => ColumnarValue::Array(array.slice(rows.start, rows.len())),
        scalar => scalar.clone(),
    };
    ScalarFunctionArgs {
        args: args.args.iter().map(arg).collect(),
        arg_fields: args.arg_fields.clone(),
        number_rows: rows.len(),
        return_field: Arc::clone(&args.return_field),
        config_options: Arc::clone(&args.config_options),
    }
}

/// The same array, whose reservation lives as long as its bytes.
fn held(array: &ArrayRef, reservation: MemoryReservation) -> Result<ArrayRef> {
    struct ReservedBuffer {
        buffer: Buffer,
        _reservation: Arc<MemoryReservation>,
    }

    impl AsRef<[u8]> for ReservedBuffer {
        fn as_ref(&self) -> &[u8] {
            self.buffer.as_slice()
        }
    }

    fn hold(data: ArrayData, reservation: &Arc<MemoryReservation>) -> Result<ArrayData> {
        let buffers = data.buffers().iter().map(|buffer| match buffer.len() < FREE_BYTES / 8 {
            true => buffer.clone(),
            false => {
                let held = ReservedBuffer { buffer: buffer.clone(), _reservation: Arc::clone(reservation) };
                Buffer::from(Bytes::from_owner(held))
            }
        });
        let buffers = buffers.collect();
        let children = data.child_data().iter().map(|child| hold(child.clone(), reservation));
        let children = children.collect::<Result<Vec<_>>>()?;
        Ok(data.into_builder().buffers(buffers).child_data(children).build()?)
    }

    reservation.try_resize(array.get_array_memory_size())?;
    Ok(make_array(hold(array.to_data(), &Arc::new(reservation))?))
}

impl Growth {
    /// For each row, bytes that its value takes at most, and those of its arguments.
    fn most(self, args: &[ColumnarValue], n_rows: usize) -> (Vec<usize>, Vec<usize>) {
        let is_global = is_global(args);
        let args: Vec<Argument> = args.iter().map(|arg| Argument::of(arg, self)).collect();
        let bytes = |idx: usize, row: usize| args.get(idx).map_or(0, |arg| at(&arg.bytes, row));
        let number = |idx: usize, row: usize| args.get(idx).map_or(0, |arg| at(&arg.numbers, row));
        let count = |idx: usize, row: usize| usize::try_from(number(idx, row)).unwrap_or(0);
        let all = |row: usize| (0..args.len()).map(|idx| bytes(idx, row)).fold(0, usize::saturating_add);
        let most = |row: usize| match self {
            Growth::Times => bytes(0, row).max(1).saturating_mul(count(1, row)),
            Growth::Repeated => bytes(0, row).saturating_add(ITEM_BYTES).saturating_mul(count(1, row)),
            // A character takes up to four bytes.
            Growth::Padded => count(1, row).saturating_mul(4),
            Growth::Items => {
                let items = bytes(2, row).max(ITEM_BYTES).saturating_mul(count(1, row));
                bytes(0, row).saturating_add(items)
            }
            Growth::Replaced => match bytes(1, row) {
                0 => bytes(0, row),
                from => (bytes(0, row) / from).saturating_mul(bytes(2, row)).saturating_add(bytes(0, row)),
            },
            Growth::Exchanged => {
                let n_items = bytes(0, row) / ITEM_BYTES + 1;
                bytes(0, row).saturating_add(n_items.saturating_mul(bytes(2, row)))
            }
            Growth::Matched => {
                // Matches do not overlap: what is named of them is not longer than the text, each time it is named.
                let times = if is_global { bytes(0, row) + 1 } else { 1 };
                let named = args.get(2).map_or(0, |arg| at(&arg.names, row)).saturating_mul(bytes(0, row));
                times.saturating_mul(bytes(2, row)).saturating_add(named).saturating_add(bytes(0, row))
            }
            Growth::Series => {
                let (from, to, step) = match args.len() {
                    1 => (0, number(0, row), 1),
                    2 => (number(0, row), number(1, row), 1),
                    _ => (number(0, row), number(1, row), number(2, row)),
                };
                // A step of nothing is an error of the function.
                let is_empty = step == 0 || (step > 0 && to < from) || (step < 0 && to > from);
                let n_items = from.abs_diff(to) / step.unsigned_abs().max(1) + 1;
                if is_empty { 0 } else { (n_items as usize).saturating_mul(ITEM_BYTES) }
            }
            Growth::Sum(factor) => all(row).saturating_mul(factor),
            Growth::Joined => bytes(0, row).saturating_mul(args.len().saturating_sub(2)).saturating_add(all(row)),
            Growth::Listed => {
                // An item takes as many bytes at least, and is not longer than eight times these as a text.
                let n_items = bytes(0, row) / ITEM_BYTES + 1;
                let between = bytes(1, row).saturating_add(bytes(2, row));
                bytes(0, row).saturating_mul(8).saturating_add(n_items.saturating_mul(between))
            }
            Growth::Slow => 0,
        };
        (0..n_rows).map(|row| (most(row), all(row))).unzip()
    }
}

/// What is known of an argument, for each row or once for all; of NULL: nothing, which takes nothing.
struct Argument {
    bytes: Vec<usize>,
    /// Numbers, where the growth asks for them; of times, microseconds.
    numbers: Vec<i64>,
    /// How often a text may name what a pattern found.
    names: Vec<usize>,
}

fn at<T: Copy + Default>(values: &[T], row: usize) -> T {
    match values {
        [one] => *one,
        many => many.get(row).copied().unwrap_or_default(),
    }
}

impl Argument {
    fn of(arg: &ColumnarValue, growth: Growth) -> Argument {
        let array = match arg {
            ColumnarValue::Array(array) => Arc::clone(array),
            // Nothing decides of a scalar that has no array.
            ColumnarValue::Scalar(scalar) => match scalar.to_array() {
                Ok(array) => array,
                Err(_) => return Argument { bytes: vec![0], numbers: vec![0], names: vec![0] },
            },
        };
        let has_numbers =
            matches!(growth, Growth::Times | Growth::Repeated | Growth::Padded | Growth::Items | Growth::Series);
        Argument {
            bytes: bytes_of(&array),
            numbers: has_numbers.then(|| numbers_of(&array)).flatten().unwrap_or_default(),
            names: if growth == Growth::Matched { names_of(&array) } else { vec![] },
        }
    }
}

fn bytes_of(array: &ArrayRef) -> Vec<usize> {
    let differences = |offsets: &[i32]| offsets.windows(2).map(|pair| (pair[1] - pair[0]) as usize).collect::<Vec<_>>();
    let views = |views: &[u128]| views.iter().map(|view| *view as u32 as usize).collect::<Vec<_>>();
    let items = |lengths: Vec<usize>, items: &ArrayRef| {
        let item = items.get_array_memory_size() / items.len().max(1);
        lengths.into_iter().map(|length| length.saturating_mul(item.max(ITEM_BYTES))).collect()
    };
    match array.data_type() {
        DataType::Utf8 => differences(array.as_string::<i32>().value_offsets()),
        DataType::Binary => differences(array.as_binary::<i32>().value_offsets()),
        DataType::Utf8View => views(array.as_string_view().views()),
        DataType::BinaryView => views(array.as_binary_view().views()),
        DataType::List(_) => {
            items(differences(array.as_list::<i32>().value_offsets()), array.as_list::<i32>().values())
        }
        DataType::LargeUtf8 | DataType::LargeBinary | DataType::LargeList(_) => {
            let all = array.to_data().get_slice_memory_size().unwrap_or_else(|_| array.get_array_memory_size());
            vec![all / array.len().max(1); array.len()]
        }
        _ => vec![ITEM_BYTES],
    }
}

fn numbers_of(array: &ArrayRef) -> Option<Vec<i64>> {
    const DAY_US: i64 = 86_400_000_000;
    // The shortest month: a step that is taken for shorter only makes a series look longer.
    const MONTH_US: i64 = 28 * DAY_US;
    if let DataType::Interval(IntervalUnit::MonthDayNano) = array.data_type() {
        let steps = array.as_primitive::<IntervalMonthDayNanoType>().iter();
        let us = |step: i32, of: i64| i64::from(step).saturating_mul(of);
        return Some(
            steps
                .map(|step| {
                    step.map_or(0, |step| us(step.months, MONTH_US) + us(step.days, DAY_US) + step.nanoseconds / 1000)
                })
                .collect(),
        );
    }
    let numbers = match array.data_type() {
        DataType::Date32 | DataType::Timestamp(..) => casted(array, &DataType::Timestamp(TimeUnit::Microsecond, None))?,
        of if of.is_numeric() => Arc::clone(array),
        _ => return None,
    };
    let numbers = casted(&numbers, &DataType::Int64)?;
    // What does not fit is too long in any case.
    let lost = |row: usize| if array.is_null(row) { 0 } else { i64::MAX };
    Some(numbers.as_primitive::<Int64Type>().iter().enumerate().map(|(row, n)| n.unwrap_or(lost(row))).collect())
}

fn casted(array: &ArrayRef, to: &DataType) -> Option<ArrayRef> {
    cast_with_options(array, to, &CastOptions { safe: true, ..CastOptions::default() }).ok()
}

fn names_of(array: &ArrayRef) -> Vec<usize> {
    let names = |text: &str| text.bytes().filter(|byte| matches!(byte, b'\\' | b'$')).count();
    match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().iter().map(|text| text.map_or(0, names)).collect(),
        DataType::Utf8View => array.as_string_view().iter().map(|text| text.map_or(0, names)).collect(),
        _ => vec![0],
    }
}

/// An item of a list of numbers or times.
const ITEM_BYTES: usize = 16;

/// Whether the flags of a `regexp_replace` may have a `g`.
fn is_global(args: &[ColumnarValue]) -> bool {
    match args.get(3) {
        None => false,
        Some(ColumnarValue::Scalar(flags)) => flags.try_as_str().flatten().is_some_and(|flags| flags.contains('g')),
        Some(ColumnarValue::Array(_)) => true,
    }
}

#[deny(clippy::missing_trait_methods)]
impl ScalarUDFImpl for BoundedFunction {
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.call(args)
    }

    /// The same function with other settings is bounded, too.
    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let updated = self.inner.inner().with_updated_config(config)?;
        let (growth, lengths) = (self.growth, Arc::clone(&self.lengths));
        Some(ScalarUDF::new_from_impl(BoundedFunction { inner: Arc::new(updated), growth, lengths }))
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        #[expect(deprecated, reason = "every call is passed on")]
        self.inner.inner().display_name(args)
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        if self.name() != OPERATOR && args.iter().any(is_long_literal) {
            return Ok(format!("{}({})", self.name(), args.iter().map(called).collect::<Vec<_>>().join(",")));
        }
        self.inner.schema_name(args)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arg_types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn is_nullable(&self, args: &[Expr], schema: &dyn ExprSchema) -> bool {
        #[expect(deprecated, reason = "every call is passed on")]
        self.inner.inner().is_nullable(args, schema)
    }

    fn is_strict(&self) -> bool {
        self.inner.is_strict()
    }

    /// Not where constants would be joined to a long one here: the call knows what that may take.
    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let constant = |arg: &Expr| match arg {
            Expr::Literal(value, _) => Some(ColumnarValue::Scalar(value.clone())),
            _ => None,
        };
        let constants: Vec<ColumnarValue> = args.iter().filter_map(constant).collect();
        if self.growth == Growth::Joined && self.growth.most(&constants, 1).0[0] > FREE_BYTES {
            return Ok(ExprSimplifyResult::Original(args));
        }
        self.inner.simplify(args, info)
    }

    fn preimage(&self, args: &[Expr], literal: &Expr, info: &SimplifyContext) -> Result<PreimageResult> {
        self.inner.preimage(args, literal, info)
    }

    fn short_circuits(&self) -> bool {
        self.inner.short_circuits()
    }

    fn conditional_arguments<'a>(&self, args: &'a [Expr]) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner.conditional_arguments(args)
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> Result<Interval> {
        self.inner.evaluate_bounds(inputs)
    }

    fn propagate_constraints(&self, interval: &Interval, inputs: &[&Interval]) -> Result<Option<Vec<Interval>>> {
        self.inner.propagate_constraints(interval, inputs)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.inner.output_ordering(inputs)
    }

    fn preserves_lex_ordering(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.inner.preserves_lex_ordering(inputs)
    }

    fn strictly_order_preserving(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.inner.strictly_order_preserving(inputs)
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arg_types)
    }

    fn struct_field_mapping(&self, literals: &[Option<ScalarValue>]) -> Option<StructFieldMapping> {
        self.inner.struct_field_mapping(literals)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn placement(&self, args: &[ExpressionPlacement]) -> ExpressionPlacement {
        self.inner.placement(args)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::StringViewArray;
    use datafusion::execution::FunctionRegistry;
    use datafusion::execution::memory_pool::GreedyMemoryPool;

    use super::*;

    fn text(text: &str) -> ColumnarValue {
        ColumnarValue::Scalar(ScalarValue::from(text))
    }

    fn number(number: i64) -> ColumnarValue {
        ColumnarValue::Scalar(ScalarValue::from(number))
    }

    #[test]
    fn no_value_is_longer_than_its_arguments_let_expect() {
        let most = |growth: Growth, args: &[ColumnarValue]| growth.most(args, 1).0[0];
        assert_eq!(most(Growth::Times, &[text("abc"), number(1_000)]), 3_000);
        assert_eq!(most(Growth::Times, &[text("abc"), number(-5)]), 0);
        assert_eq!(most(Growth::Times, &[text("abc"), ColumnarValue::Scalar(ScalarValue::Int64(None))]), 0);
        // An item of a list takes more than what is in it.
        assert_eq!(most(Growth::Repeated, &[text("a"), number(1_000)]), 17_000);
        assert_eq!(most(Growth::Padded, &[text("a"), number(10), text("b")]), 40);
        assert_eq!(most(Growth::Replaced, &[text("aaaa"), text("a"), text("xyz")]), 16);
        assert_eq!(most(Growth::Exchanged, &[text("0123456789abcdef"), text("a"), text("xyz")]), 16 + 2 * 3);
        assert_eq!(most(Growth::Matched, &[text("aaaa"), text("a"), text("xyz")]), 7);
        assert_eq!(most(Growth::Matched, &[text("aaaa"), text("a"), text("xyz"), text("g")]), 19);
        assert_eq!(most(Growth::Matched, &[text("aaaa"), text("(a)"), text("\\1\\1")]), 4 + 4 + 8);
        assert_eq!(most(Growth::Joined, &[text("--"), text("a"), text("b"), text("c")]), 2 + 3 + 2 * 2);
        assert_eq!(most(Growth::Series, &[number(0), number(99)]), 1600);
        assert_eq!(most(Growth::Series, &[number(0), number(i64::MAX), number(1)]), usize::MAX);
        assert_eq!(most(Growth::Series, &[number(9), number(0)]), 0);
        assert_eq!(most(Growth::Series, &[number(9), number(0), number(-1)]), 160);
        let texts = ColumnarValue::Array(Arc::new(StringViewArray::from(vec![Some("ab"), None, Some("abcdef")])));
        let times = ColumnarValue::Array(Arc::new(Int64Array::from(vec![1, 2, 3])));
        assert_eq!(Growth::Times.most(&[texts, times], 3).0, [2, 2, 18]);
    }

    #[test]
    fn rows_are_cut_where_their_values_would_be_too_long() {
        assert_eq!(slices(&[5, 5, 5], 10), [0..2, 2..3]);
        assert_eq!(slices(&[11, 1, 9, 1], 10), [0..1, 1..3, 3..4]);
        assert_eq!(slices(&[0], 10), std::slice::from_ref(&(0..1)));
    }

    #[test]
    fn what_is_held_is_counted_until_it_is_gone() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(100 << 20));
        let lengths = Arc::new(Lengths::new(Arc::clone(&pool), 100 << 20));
        let context = SessionContext::new();
        bounded(&context, &lengths);
        let repeat = context.udf("repeat").unwrap();
        let call = |n_rows: usize, times: i64| {
            let args = vec![
                ColumnarValue::Array(Arc::new(StringViewArray::from(vec!["0123456789"; n_rows]))),
                ColumnarValue::Scalar(ScalarValue::Int64(Some(times))),
            ];
            let of = |data_type| Arc::new(arrow::datatypes::Field::new("x", data_type, true));
            repeat.invoke_with_args(ScalarFunctionArgs {
                args,
                arg_fields: vec![of(DataType::Utf8View), of(DataType::Int64)],
                number_rows: n_rows,
                return_field: of(DataType::Utf8View),
                config_options: Arc::new(ConfigOptions::default()),
            })
        };
        let few = call(3, 100_000).unwrap();
        assert!((3_000_000..4_000_000).contains(&pool.reserved()), "{}", pool.reserved());
        drop(few);
        assert_eq!(pool.reserved(), 0);
        // One value is too long; many are, together.
        assert!(call(1, 10 << 20).unwrap_err().to_string().contains("repeat"));
        assert!(call(1_000, 1_000_000).is_err());
        assert_eq!(pool.reserved(), 0);
        assert_eq!(call(3, 0).unwrap().into_array(3).unwrap().len(), 3);
    }
}
