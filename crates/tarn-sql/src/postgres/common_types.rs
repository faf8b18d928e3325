//! Of which type are values that stand for one another? The results of a CASE, the arguments of `coalesce` and its kin,
//! the items of an array and the sides of a UNION have one type together in PostgreSQL: a text that is written out is
//! of the type of the others (`coalesce(1, '2')`), a `numeric` beside a `double precision` is one, and what has no type
//! together is refused (42804). DataFusion makes texts of numbers and numerics of floats, and `1` the second of January
//! 1970.
//!
//! Here the values are cast, before DataFusion makes their types one; and a value that is one of several `char(n)` is
//! one, which DataFusion forgets.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{InList, ScalarFunction};
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::{datafusion, each_expression, zone_of};
use tarn_types::{DataType as Stored, Enumerated, Length, TypeId, data_type_of};

use super::filled::{self, is_filled};
use super::fitted::{OverlongText, fitted_to, is_twice};
use super::interval_aggregates::INTERVAL;
use super::kept_as_text::cast_function;
use super::numeric::numeric;
use crate::error::{SqlError, state};
use crate::rows::{long_name, pg_type};

/// The rule for expressions; it runs before types are made one.
#[derive(Debug)]
pub(super) struct CommonTypes;

impl AnalyzerRule for CommonTypes {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        let common = Common::of(&plan, config)?;
        each_expression(plan, |expr, schema| rewritten(expr, schema, &common))
    }

    fn name(&self) -> &str {
        "common_types"
    }
}

/// Whether types that have none together are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strictness {
    Strict,
    /// Columns of the catalog have not all the types that PostgreSQL's have: what clients ask of it is right there.
    Lenient,
}

impl Strictness {
    pub(super) fn of(plan: &LogicalPlan) -> Result<Strictness> {
        let mut strictness = Strictness::Strict;
        plan.apply_with_subqueries(|node| {
            if let LogicalPlan::TableScan(scan) = node
                && matches!(scan.table_name.schema(), Some("pg_catalog" | "information_schema"))
            {
                strictness = Strictness::Lenient;
                return Ok(TreeNodeRecursion::Stop);
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(strictness)
    }
}

/// How the values of a statement are made one.
#[derive(Debug, Clone)]
pub(super) struct Common {
    strictness: Strictness,
    /// The zone whose clocks say when a date begins.
    here: Arc<str>,
}

impl Common {
    pub(super) fn of(plan: &LogicalPlan, config: &ConfigOptions) -> Result<Common> {
        let here = Arc::clone(zone_of(config).arrow_name());
        Ok(Common { strictness: Strictness::of(plan)?, here })
    }
}

fn rewritten(expr: Expr, schema: &DFSchema, common: &Common) -> Result<Transformed<Expr>> {
    let made_one = cast_together(expr, schema, common)?;
    let results: Vec<&Expr> = match &made_one.data {
        Expr::Case(case) => {
            case.when_then_expr.iter().map(|(_, then)| then.as_ref()).chain(case.else_expr.as_deref()).collect()
        }
        Expr::ScalarFunction(call) if matches!(call.name(), "coalesce" | "greatest" | "least") => {
            call.args.iter().collect()
        }
        Expr::ScalarFunction(call) if call.name() == "nullif" => call.args.iter().take(1).collect(),
        // It was told before, when the statement was planned.
        Expr::ScalarFunction(call) if is_twice(call) => {
            return Ok(Transformed::yes(match made_one.data {
                Expr::ScalarFunction(mut call) => call.args.swap_remove(0),
                other => other,
            }));
        }
        _ => return Ok(made_one),
    };
    Ok(match length_together(&results, schema) {
        Some(length) => Transformed::yes(fitted_to(made_one.data, length, OverlongText::Refused)),
        None => made_one,
    })
}

/// The length that values of `char(n)` have, beside texts that are written out and are not longer. `None`: they have
/// several, or others are among them.
fn length_together(all: &[&Expr], schema: &DFSchema) -> Option<Length> {
    let mut length: Option<Length> = None;
    for expr in all.iter().filter(|expr| !is_written(expr)) {
        let (_, field) = expr.to_field(schema).ok()?;
        let own = Length::of(&field).filter(|own| matches!(own, Length::Fixed(_)) && field.data_type().is_string())?;
        if length.is_some_and(|of| of != own) {
            return None;
        }
        length = Some(own);
    }
    let n_chars = length?.n_chars() as usize;
    let is_longer = |text: &str| text.trim_end_matches(' ').chars().count() > n_chars;
    if all.iter().any(|expr| text_of(expr).is_some_and(is_longer)) { None } else { length }
}

fn cast_together(mut expr: Expr, schema: &DFSchema, common: &Common) -> Result<Transformed<Expr>> {
    let is_changed = match &mut expr {
        Expr::Case(case) => {
            let thens = case.when_then_expr.iter_mut().map(|(_, then)| then.as_mut());
            make_one("CASE", thens.chain(case.else_expr.as_deref_mut()).collect(), schema, common)?
        }
        Expr::ScalarFunction(ScalarFunction { func, args }) => {
            let what = match func.name() {
                "coalesce" => "COALESCE",
                "greatest" => "GREATEST",
                "least" => "LEAST",
                "make_array" => "ARRAY",
                "nullif" => {
                    let is_changed = match &mut args[..] {
                        [of, other] => without_blanks_in(of, std::slice::from_mut(other), schema),
                        _ => false,
                    };
                    return Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) });
                }
                _ => return Ok(Transformed::no(expr)),
            };
            make_one(what, args.iter_mut().collect(), schema, common)?
        }
        Expr::InList(InList { expr: of, list, .. }) if common.strictness == Strictness::Strict => {
            without_blanks_in(of, list, schema) | as_arrays(of, list, schema)
        }
        _ => false,
    };
    Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
}

/// What is shifted is of the type of its left side, as which it is planned later (`shifts`).
fn field_of(expr: &Expr, schema: &DFSchema) -> Result<FieldRef> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::BitwiseShiftLeft | Operator::BitwiseShiftRight, .. }) => {
            field_of(left, schema)
        }
        other => Ok(other.to_field(schema)?.1),
    }
}

/// Casts those that are not of the type that all have together. Whether there were any.
fn make_one(what: &str, mut all: Vec<&mut Expr>, schema: &DFSchema, common: &Common) -> Result<bool> {
    let mut fields = vec![];
    for expr in &all {
        match is_written(expr) {
            true => fields.push(None),
            false => match field_of(expr, schema) {
                Ok(field) => fields.push(Some(field)),
                // What is wrong with it is told by others.
                Err(_) => return Ok(false),
            },
        }
    }
    let known: Vec<&Field> = fields.iter().flatten().map(AsRef::as_ref).collect();
    let Some(to) = together(what, &known, common)? else { return Ok(false) };
    // JSON has rules of its own.
    if matches!(TypeClass::of(to), Some(TypeClass::KeptAsText(_))) {
        return Ok(false);
    }
    let mut is_changed = false;
    for (expr, own) in all.iter_mut().zip(&fields) {
        if let Some(change) = TypeCoercion::of(own.as_deref(), expr, to, common)? {
            let of = std::mem::replace(*expr, Expr::Literal(ScalarValue::Null, None));
            **expr = change.applied(of);
            is_changed = true;
        }
    }
    Ok(is_changed)
}

/// Texts that are written out, in a list that a `char(n)` is looked for in, or compared with. Whether there were any.
pub(super) fn without_blanks_in(of: &Expr, list: &mut [Expr], schema: &DFSchema) -> bool {
    let ends_so = |item: &Expr| text_of(item).is_some_and(|text| text.ends_with(' '));
    if !list.iter().any(ends_so) || !of.to_field(schema).is_ok_and(|(_, field)| is_filled(&field)) {
        return false;
    }
    let mut is_changed = false;
    for item in list.iter_mut().filter(|item| ends_so(item)) {
        let text = std::mem::replace(item, Expr::Literal(ScalarValue::Null, None));
        *item = filled::without_blanks(text);
        is_changed = true;
    }
    is_changed
}

/// Texts that are written out, in a list that an array is looked for in. Whether there were any.
fn as_arrays(of: &Expr, list: &mut [Expr], schema: &DFSchema) -> bool {
    let Ok(array) = of.get_type(schema) else { return false };
    let mut is_changed = false;
    for item in list.iter_mut().filter(|item| array.is_list() && text_of(item).is_some()) {
        let text = std::mem::replace(item, Expr::Literal(ScalarValue::Null, None));
        *item = TypeCoercion::To(array.clone()).applied(text);
        is_changed = true;
    }
    is_changed
}

/// What becomes of a value.
#[derive(Debug, Clone)]
pub(super) enum TypeCoercion {
    To(DataType),
    /// A number, of as many digits as the text has.
    ToNumeric,
    ToKeptAsText(Stored),
}

impl TypeCoercion {
    /// Of a value, which is of no type yet if it has no field.
    ///
    /// Errors: `22P02`, it is written out, and is no number.
    pub(super) fn of(own: Option<&Field>, expr: &Expr, to: &Field, common: &Common) -> Result<Option<TypeCoercion>> {
        let Some(own) = own else {
            let Some(text) = text_of(expr) else { return Ok(None) };
            return Ok(match TypeClass::of(to) {
                None if to.data_type().is_list() => Some(TypeCoercion::To(to.data_type().clone())),
                // What is no label was refused before (`enums`).
                None | Some(TypeClass::Text | TypeClass::Bytes | TypeClass::Enumerated(_)) => None,
                Some(TypeClass::KeptAsText(of)) => Some(TypeCoercion::ToKeptAsText(of)),
                Some(TypeClass::Number) => {
                    check_number(text, to)?;
                    let is_exact = to.data_type().is_decimal();
                    Some(if is_exact { TypeCoercion::ToNumeric } else { TypeCoercion::To(to.data_type().clone()) })
                }
                Some(TypeClass::Interval) => Some(TypeCoercion::To(INTERVAL)),
                Some(_) => Some(TypeCoercion::To(to.data_type().clone())),
            });
        };
        Ok(match TypeClass::of(to) {
            Some(TypeClass::Number) if to.data_type().is_floating() && own.data_type() != to.data_type() => {
                Some(TypeCoercion::To(to.data_type().clone()))
            }
            // DataFusion says that a CASE is of the type of its first result, and a UNION of its first query's.
            Some(TypeClass::Number) if is_integer(own.data_type()) && rank(own.data_type()) < rank(to.data_type()) => {
                match to.data_type() {
                    to if is_integer(to) => Some(TypeCoercion::To(to.clone())),
                    to if to.is_decimal() => Some(TypeCoercion::To(whole(own.data_type()))),
                    _ => None,
                }
            }
            // It would count nanoseconds, which end in 2262, and forget the zone.
            Some(TypeClass::Moment) if rank(own.data_type()) < rank(to.data_type()) => {
                let zone = is_instant(to.data_type()).then(|| Arc::clone(&common.here));
                Some(TypeCoercion::To(DataType::Timestamp(TimeUnit::Microsecond, zone)))
            }
            // What lies between two times is one, too.
            Some(TypeClass::Interval) if own.data_type() != &INTERVAL => Some(TypeCoercion::To(INTERVAL)),
            // Functions give one kind of them, columns another.
            Some(TypeClass::Bytes) if own.data_type().is_binary() && own.data_type() != to.data_type() => {
                Some(TypeCoercion::To(to.data_type().clone()))
            }
            _ => None,
        })
    }

    pub(super) fn applied(self, of: Expr) -> Expr {
        match self {
            TypeCoercion::To(to) => Expr::Cast(Cast::new(Box::new(of), to)),
            TypeCoercion::ToNumeric => numeric().call(vec![of]),
            TypeCoercion::ToKeptAsText(to) => cast_function(to).call(vec![of]),
        }
    }
}

/// PostgreSQL reads what is written out before anything runs.
fn check_number(text: &str, to: &Field) -> Result<(), SqlError> {
    let text_of_number = text.trim();
    let is_number = match to.data_type() {
        of if of.is_integer() => text_of_number.parse::<i128>().is_ok(),
        _ => text_of_number.parse::<f64>().is_ok(),
    };
    if is_number {
        return Ok(());
    }
    let name = pg_type(to).map_or_else(|_| "numeric".to_owned(), |of| long_name(&of));
    Err(SqlError::new(state::INVALID_TEXT, format!("invalid input syntax for type {name}: \"{text}\"")))
}

/// Types that become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TypeClass {
    Number,
    Text,
    Truth,
    Moment,
    TimeOfDay,
    Interval,
    Inet,
    Bytes,
    /// Of no other.
    KeptAsText(Stored),
    /// As that.
    Enumerated(TypeId),
}

impl TypeClass {
    pub(super) fn of(field: &Field) -> Option<TypeClass> {
        Some(match field.data_type() {
            of if of.is_numeric() => TypeClass::Number,
            of if of.is_string() && Enumerated::of(field).is_some() => TypeClass::Enumerated(Enumerated::of(field)?.0),
            of if of.is_string() => match data_type_of(field).ok()? {
                of @ (Stored::Uuid | Stored::Json | Stored::Jsonb) => TypeClass::KeptAsText(of),
                _ => TypeClass::Text,
            },
            DataType::Boolean => TypeClass::Truth,
            DataType::Date32 | DataType::Timestamp(..) => TypeClass::Moment,
            DataType::Time32(_) | DataType::Time64(_) => TypeClass::TimeOfDay,
            DataType::Interval(_) | DataType::Duration(_) => TypeClass::Interval,
            DataType::LargeBinary => TypeClass::Inet,
            of if of.is_binary() => TypeClass::Bytes,
            _ => return None,
        })
    }
}

/// The field whose type all have; of texts and what this file knows nothing of, the first. `None`: nobody knows.
///
/// Errors: `42804`, there is none.
pub(super) fn together<'a>(what: &str, known: &[&'a Field], common: &Common) -> Result<Option<&'a Field>> {
    let Some((first, others)) = known.split_first() else { return Ok(None) };
    let mut to = *first;
    for other in others {
        if to.data_type().is_list() && to.data_type() == other.data_type() {
            continue;
        }
        let (left, right) = (TypeClass::of(to), TypeClass::of(other));
        // An array has no type together with what is none.
        let is_one_array =
            (left.is_some() && other.data_type().is_list()) || (right.is_some() && to.data_type().is_list());
        if (left.is_none() || right.is_none()) && !is_one_array {
            return Ok(None);
        }
        if left != right {
            // The functions of JSON give what their rules say.
            let is_marked = matches!(
                (left, right),
                (Some(TypeClass::KeptAsText(_)), Some(TypeClass::Text))
                    | (Some(TypeClass::Text), Some(TypeClass::KeptAsText(_)))
            );
            if common.strictness == Strictness::Lenient || is_marked {
                return Ok(None);
            }
            let name = |field: &Field| pg_type(field).map(|of| long_name(&of));
            let message = format!("{what} types {} and {} cannot be matched", name(to)?, name(other)?);
            return Err(SqlError::new(state::DATATYPE_MISMATCH, message).with_hint("cast one of them").into());
        }
        if matches!(left, Some(TypeClass::Number | TypeClass::Moment)) && rank(other.data_type()) > rank(to.data_type())
        {
            to = other;
        }
    }
    Ok(Some(to))
}

/// Which number becomes which other one, and which time.
fn rank(of: &DataType) -> u8 {
    match of {
        DataType::Float64 => 5,
        DataType::Float32 | DataType::Float16 => 4,
        of if of.is_decimal() => 3,
        DataType::Int64 | DataType::UInt64 | DataType::Timestamp(_, Some(_)) => 2,
        DataType::Int32 | DataType::Timestamp(_, None) => 1,
        _ => 0,
    }
}

/// Those that PostgreSQL has.
fn is_integer(of: &DataType) -> bool {
    matches!(of, DataType::Int16 | DataType::Int32 | DataType::Int64)
}

/// The `numeric` that has all integers of a type.
fn whole(integers: &DataType) -> DataType {
    let precision = match integers {
        DataType::Int16 => 5,
        DataType::Int32 => 10,
        _ => 20,
    };
    DataType::Decimal128(precision, 0)
}

fn is_instant(of: &DataType) -> bool {
    matches!(of, DataType::Timestamp(_, Some(_)))
}

/// The type that dates and times have together. `None`: one is something else, or all are dates.
pub(super) fn time_together<'a>(types: impl IntoIterator<Item = &'a DataType>) -> Option<DataType> {
    let mut widest = &DataType::Date32;
    for of in types {
        match of {
            DataType::Date32 | DataType::Timestamp(..) if rank(of) > rank(widest) => widest = of,
            DataType::Date32 | DataType::Timestamp(..) => {}
            _ => return None,
        }
    }
    match widest {
        DataType::Timestamp(_, zone) => Some(DataType::Timestamp(TimeUnit::Microsecond, zone.clone())),
        _ => None,
    }
}

/// A text or a NULL that is written out, which is of no type yet.
pub(super) fn is_written(expr: &Expr) -> bool {
    match expr {
        Expr::Alias(alias) => is_written(&alias.expr),
        Expr::Literal(ScalarValue::Null | ScalarValue::Utf8(Some(_)) | ScalarValue::Utf8View(Some(_)), None) => true,
        _ => false,
    }
}

/// The text that is written out.
fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Alias(alias) => text_of(&alias.expr),
        Expr::Literal(value, None) => value.try_as_str().flatten(),
        _ => None,
    }
}
