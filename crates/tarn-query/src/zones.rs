//! Whose midnight is it? Times with a zone are instants; the session's time zone says what its clocks show.
//!
//! Arrow keeps a zone in the type of every column, Postgres one in the session. Tables say UTC. So where it matters
//! which zone a type says – functions, arithmetic, casts and comparisons with times that have none – an instant first
//! becomes one of the session's zone. That changes no value.
//!
//! `t AT TIME ZONE 'z'` is the function `timezone('z', t)`, as in Postgres: what the clocks of `z` show at an instant,
//! or the instant at which they show a time.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, TimestampMicrosecondBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType as ArrowType, Field, FieldRef, TimeUnit, TimestampMicrosecondType};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{DFSchema, plan_err};
use datafusion::error::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    Between, BinaryExpr, Cast, ColumnarValue, Expr, ExprSchemable, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Subquery, TypeSignature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast;
use tarn_types::Zone;

use crate::Error;
use crate::parser::call;
use crate::rewrite::each_expression;
use crate::walk::walk_mut;

/// The zone of a session by its settings.
pub fn of_config(config: &ConfigOptions) -> Zone {
    let name = config.execution.time_zone.as_deref().unwrap_or("UTC");
    Zone::offset(name).or_else(|| Zone::parse(name)).unwrap_or_default()
}

/// Sets the zone of a session. Functions that were made with another are made anew.
pub(crate) fn set(state: &mut SessionState, zone: &Zone) -> Result<()> {
    state.config_mut().options_mut().execution.time_zone = Some(zone.arrow_name().to_string());
    renew_functions(state)
}

/// Makes the functions anew that look at the settings when they are made: `now()` keeps the zone in its type.
pub(crate) fn renew_functions(state: &mut SessionState) -> Result<()> {
    let options = Arc::clone(state.config().options());
    let functions = state.scalar_functions().values();
    let renewed: Vec<ScalarUDF> =
        functions.filter_map(|function| function.inner().with_updated_config(&options)).collect();
    for function in renewed {
        state.register_udf(Arc::new(function))?;
    }
    Ok(())
}

/// Writes `AT TIME ZONE` as the function that it is. The planner would make a cast of it, which changes the type and
/// shows the same.
pub(crate) fn name_functions(statement: &mut ast::Statement) {
    struct AtTimeZone;
    impl ast::VisitorMut for AtTimeZone {
        type Break = ();
        fn post_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<()> {
            if let ast::Expr::AtTimeZone { timestamp, time_zone } = expr {
                let argument = |expr: &mut ast::Expr| {
                    std::mem::replace(expr, ast::Expr::Value(ast::Value::Null.with_empty_span()))
                };
                let (zone, mut time) = (argument(time_zone), argument(timestamp));
                // A text that is written out is an instant, as in Postgres.
                if matches!(&time, ast::Expr::Value(value) if matches!(value.value, ast::Value::SingleQuotedString(_)))
                {
                    time = ast::Expr::Cast {
                        kind: ast::CastKind::Cast,
                        expr: Box::new(time),
                        data_type: ast::DataType::Timestamp(None, ast::TimezoneInfo::WithTimeZone),
                        array: false,
                        format: None,
                    };
                }
                *expr = call(TIMEZONE, vec![zone, time]);
            }
            ControlFlow::Continue(())
        }
    }
    let _ = walk_mut(statement, &mut AtTimeZone);
}

/// Instants are of the session's zone where the zone matters; what stands beside them becomes one as the session's
/// clocks show it.
#[derive(Debug)]
pub(crate) struct SessionZone;

impl AnalyzerRule for SessionZone {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        let here = ZoneContext::new(config);
        let plan = each_expression(plan, |expr, schema| here.rewritten(expr, schema))?;
        if here.is_utc {
            return Ok(plan);
        }
        plan.apply_with_subqueries(|node| {
            check_sides(node)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(plan)
    }

    fn name(&self) -> &str {
        "session_zone"
    }
}

/// The zone of the session.
struct ZoneContext<'a> {
    zone: Zone,
    /// All tables have UTC.
    is_utc: bool,
    clocks: Arc<ScalarUDF>,
    config: &'a ConfigOptions,
}

impl<'a> ZoneContext<'a> {
    fn new(config: &'a ConfigOptions) -> ZoneContext<'a> {
        let zone = of_config(config);
        ZoneContext { is_utc: zone == Zone::utc(), zone, clocks: Arc::new(TimeZone::new(config).into()), config }
    }

    /// The function as a session in UTC has it.
    fn of_utc(&self, function: &ScalarUDF) -> Option<ScalarUDF> {
        let mut config = Box::new(self.config.clone());
        config.execution.time_zone = Some(Zone::utc().arrow_name().to_string());
        function.inner().with_updated_config(&config)
    }

    fn rewritten(&self, mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        let changed = match &mut expr {
            Expr::ScalarFunction(function) if !self.is_utc => {
                let mut changed = false;
                for arg in &mut function.args {
                    changed |= self.come(arg, schema);
                }
                // Seconds since 1970 are an instant; made by a session's function they would be what its clocks show.
                let first = function.args.first().and_then(|arg| arg.get_type(schema).ok());
                if function.name().starts_with("to_timestamp")
                    && first.is_some_and(|first| first.is_numeric())
                    && let Some(of_utc) = self.of_utc(&function.func)
                {
                    function.func = Arc::new(of_utc);
                    changed = true;
                }
                changed
            }
            Expr::BinaryExpr(BinaryExpr { left, op: _, right }) => {
                self.meet(&mut [left.as_mut(), right.as_mut()], schema)
            }
            Expr::Between(between) => {
                let Between { expr, low, high, .. } = between;
                self.meet(&mut [expr.as_mut(), low.as_mut(), high.as_mut()], schema)
            }
            Expr::InList(list) => {
                let mut all: Vec<&mut Expr> = std::iter::once(list.expr.as_mut()).chain(&mut list.list).collect();
                self.meet(&mut all, schema)
            }
            Expr::Case(case) => {
                let results = case.when_then_expr.iter_mut().map(|(_, then)| then.as_mut());
                let mut results: Vec<&mut Expr> = results.chain(case.else_expr.as_deref_mut()).collect();
                let mut changed = self.meet(&mut results, schema);
                if !self.is_utc {
                    // Its type says one zone, which the functions around it look at.
                    for result in results {
                        changed |= self.come(result, schema);
                    }
                }
                changed
            }
            Expr::InSubquery(within) => {
                self.check_same(&within.expr, &within.subquery, schema)?;
                false
            }
            Expr::SetComparison(compared) => {
                self.check_same(&compared.expr, &compared.subquery, schema)?;
                false
            }
            Expr::Cast(cast) if !self.is_utc => {
                let to = cast.field.data_type().clone();
                self.cast(&mut cast.expr, &to, schema)
            }
            Expr::TryCast(cast) if !self.is_utc => {
                let to = cast.field.data_type().clone();
                self.cast(&mut cast.expr, &to, schema)
            }
            _ => false,
        };
        Ok(if changed { Transformed::yes(expr) } else { Transformed::no(expr) })
    }

    /// Casts an instant of another zone to the session's. Whether it was one.
    fn come(&self, expr: &mut Expr, schema: &DFSchema) -> bool {
        let Ok(ArrowType::Timestamp(unit, Some(zone))) = expr.get_type(schema) else { return false };
        if zone == *self.zone.arrow_name() {
            return false;
        }
        self.through(expr, unit);
        true
    }

    fn through(&self, expr: &mut Expr, unit: TimeUnit) {
        let zone = Arc::clone(self.zone.arrow_name());
        *expr = Expr::Cast(Cast::new(Box::new(taken(expr)), ArrowType::Timestamp(unit, Some(zone))));
    }

    /// Instants among themselves are the same in every zone. Beside one, a time without a zone is what the session's
    /// clocks show, and an interval may be a day of this zone.
    fn meet(&self, all: &mut [&mut Expr], schema: &DFSchema) -> bool {
        let types: Vec<_> = all.iter().map(|expr| expr.get_type(schema).ok()).collect();
        let is_instant = |of: &Option<ArrowType>| matches!(of, Some(ArrowType::Timestamp(_, Some(_))));
        if !types.iter().any(is_instant) || types.iter().all(|of| is_instant(of) || *of == Some(ArrowType::Null)) {
            return false;
        }
        let mut changed = false;
        for (expr, of) in all.iter_mut().zip(&types) {
            changed |= match of {
                Some(ArrowType::Timestamp(_, None) | ArrowType::Date32 | ArrowType::Date64) => {
                    self.through(expr, TimeUnit::Microsecond);
                    true
                }
                Some(ArrowType::Utf8 | ArrowType::LargeUtf8 | ArrowType::Utf8View) if !self.is_utc => {
                    self.through(expr, TimeUnit::Microsecond);
                    true
                }
                of if is_instant(of) => self.come(expr, schema),
                _ => false,
            };
        }
        changed
    }

    fn check_same(&self, expr: &Expr, subquery: &Subquery, schema: &DFSchema) -> Result<()> {
        let (Ok(left), Some(right)) = (expr.get_type(schema), subquery.subquery.schema().fields().first()) else {
            return Ok(());
        };
        if self.is_utc { Ok(()) } else { check_pair(&left, right.data_type()) }
    }

    fn cast(&self, expr: &mut Expr, to: &ArrowType, schema: &DFSchema) -> bool {
        let Ok(from) = expr.get_type(schema) else { return false };
        match (from, to) {
            (ArrowType::Timestamp(_, Some(_)), ArrowType::Timestamp(_, Some(_))) => false,
            // Arrow would give what the clocks of UTC show.
            (ArrowType::Timestamp(_, Some(_)), ArrowType::Timestamp(_, None)) => {
                let zone = Expr::Literal(ScalarValue::Utf8(Some(self.zone.name().to_owned())), None);
                let args = vec![zone, taken(expr)];
                *expr = Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&self.clocks), args));
                true
            }
            (ArrowType::Timestamp(_, Some(_)), _) => self.come(expr, schema),
            // What the session's clocks show becomes an instant.
            (
                ArrowType::Timestamp(_, None)
                | ArrowType::Date32
                | ArrowType::Date64
                | ArrowType::Utf8
                | ArrowType::LargeUtf8
                | ArrowType::Utf8View,
                ArrowType::Timestamp(unit, Some(zone)),
            ) if zone != self.zone.arrow_name() => {
                self.through(expr, *unit);
                true
            }
            _ => false,
        }
    }
}

fn taken(expr: &mut Expr) -> Expr {
    std::mem::replace(expr, Expr::Literal(ScalarValue::Null, None))
}

/// Where rows of several plans meet, their types are made one later, by UTC.
fn check_sides(node: &LogicalPlan) -> Result<()> {
    match node {
        LogicalPlan::Union(union) => {
            let Some((first, others)) = union.inputs.split_first() else { return Ok(()) };
            let pairs =
                others.iter().flat_map(|other| first.schema().fields().iter().zip(other.schema().fields().iter()));
            pairs.into_iter().try_for_each(|(a, b)| check_pair(a.data_type(), b.data_type()))
        }
        LogicalPlan::Join(join) => join.on.iter().try_for_each(|(left, right)| {
            match (left.get_type(join.left.schema()), right.get_type(join.right.schema())) {
                (Ok(left), Ok(right)) => check_pair(&left, &right),
                _ => Ok(()),
            }
        }),
        _ => Ok(()),
    }
}

fn check_pair(left: &ArrowType, right: &ArrowType) -> Result<()> {
    let is_instant = |of: &ArrowType| matches!(of, ArrowType::Timestamp(_, Some(_)));
    let is_bare = |of: &ArrowType| matches!(of, ArrowType::Timestamp(_, None) | ArrowType::Date32 | ArrowType::Date64);
    if (is_instant(left) && is_bare(right)) || (is_bare(left) && is_instant(right)) {
        let what = "a time with a zone beside one without, in UNION, IN (SELECT …), ANY or USING, in a session that is not in UTC";
        return Err(refused(what.to_owned(), "cast both to timestamptz"));
    }
    Ok(())
}

const TIMEZONE: &str = "timezone";

/// `timezone('z', instant)`: what the clocks of `z` show; `timezone('z', time)`: when they show it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct TimeZone {
    signature: Signature,
    /// Of instants that it gives.
    session: Arc<str>,
}

impl TimeZone {
    pub(crate) fn new(config: &ConfigOptions) -> TimeZone {
        TimeZone {
            signature: Signature::new(TypeSignature::Any(2), Volatility::Immutable),
            session: Arc::clone(of_config(config).arrow_name()),
        }
    }
}

impl ScalarUDFImpl for TimeZone {
    fn name(&self) -> &str {
        TIMEZONE
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        Some(TimeZone::new(config).into())
    }

    fn return_type(&self, types: &[ArrowType]) -> Result<ArrowType> {
        let [zone, time] = types else { return plan_err!("timezone takes a zone and a time") };
        if !matches!(zone, ArrowType::Utf8 | ArrowType::LargeUtf8 | ArrowType::Utf8View | ArrowType::Null) {
            return Err(refused(format!("AT TIME ZONE of a zone of type {zone}"), "name the zone, as 'Europe/Berlin'"));
        }
        match time {
            ArrowType::Timestamp(_, Some(_)) | ArrowType::Null => Ok(ArrowType::Timestamp(TimeUnit::Microsecond, None)),
            ArrowType::Timestamp(_, None) | ArrowType::Date32 | ArrowType::Date64 => {
                Ok(ArrowType::Timestamp(TimeUnit::Microsecond, Some(Arc::clone(&self.session))))
            }
            other => {
                Err(refused(format!("AT TIME ZONE of a value of type {other}"), "cast it to timestamp or timestamptz"))
            }
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<ArrowType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        Ok(Arc::new(Field::new(TIMEZONE, self.return_type(&types)?, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [zones, times] = args.args.as_slice() else { return plan_err!("timezone takes a zone and a time") };
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let n_rows = if is_scalar { 1 } else { args.number_rows };
        let null = || ScalarValue::try_from(args.return_type()).map(ColumnarValue::Scalar);
        let is_null = match times {
            ColumnarValue::Scalar(time) => time.is_null(),
            ColumnarValue::Array(times) => times.null_count() == times.len(),
        };
        // Before anything is wrong with the name.
        if is_null {
            return null();
        }
        let constant = match zones {
            ColumnarValue::Scalar(zone) => match zone.try_as_str().flatten() {
                Some(name) => Some(known(name)?),
                None => return null(),
            },
            ColumnarValue::Array(_) => None,
        };
        let zones = match &constant {
            Some(_) => None,
            None => Some(cast(&zones.to_array(n_rows)?, &ArrowType::Utf8)?),
        };
        let times = times.to_array(n_rows)?;
        let micros = |zone: Option<Arc<str>>| cast(&times, &ArrowType::Timestamp(TimeUnit::Microsecond, zone));
        let (times, are_instants) = match times.data_type() {
            ArrowType::Timestamp(_, Some(zone)) => (micros(Some(Arc::clone(zone)))?, true),
            _ => (micros(None)?, false),
        };
        let times = times.as_primitive::<TimestampMicrosecondType>();
        let mut answer = TimestampMicrosecondBuilder::with_capacity(n_rows).with_data_type(args.return_type().clone());
        for row in 0..n_rows {
            if times.is_null(row) || zones.as_ref().is_some_and(|zones| zones.is_null(row)) {
                answer.append_null();
                continue;
            }
            let of_row;
            let zone = match (&constant, &zones) {
                (None, Some(zones)) => {
                    of_row = known(zones.as_string::<i32>().value(row))?;
                    &of_row
                }
                (Some(zone), _) => zone,
                (None, None) => return plan_err!("timezone takes a zone and a time"),
            };
            let time = times.value(row);
            let shown = if are_instants { Some(zone.local(time)) } else { zone.instant(time) };
            answer.append_option(shown);
        }
        let answer: ArrayRef = Arc::new(answer.finish());
        match is_scalar {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&answer, 0)?)),
            false => Ok(ColumnarValue::Array(answer)),
        }
    }
}

fn known(name: &str) -> Result<Zone> {
    match Zone::at(name) {
        Some(zone) => Ok(zone),
        // PostgreSQL takes `abc3def` and `2:30:15` for zones, with rules of their own.
        None if may_be_a_rule(name) => Err(refused(
            format!("time zone \"{}\" by a rule", name.chars().take(64).collect::<String>().escape_debug()),
            "name it as in the IANA database, or give hours west of Greenwich",
        )),
        None => {
            let name: String = name.chars().take(64).collect();
            Err(datafusion::common::exec_datafusion_err!(
                "time zone \"{}\" not recognized; name it as in the IANA database, or give hours west of Greenwich",
                name.escape_debug()
            ))
        }
    }
}

/// Letters, if any, and hours, which are those of a week at most.
fn may_be_a_rule(name: &str) -> bool {
    let is_of_hours = |letter: char| letter.is_ascii_digit() || matches!(letter, ',' | '-' | '+');
    // What is in angle brackets may be anything.
    let hours = match name.strip_prefix('<').and_then(|name| name.split_once('>')) {
        Some((_, hours)) => hours,
        None => &name[name.find(is_of_hours).unwrap_or(name.len())..],
    };
    let digits = hours.strip_prefix(['-', '+']).unwrap_or(hours);
    let n_digits = digits.bytes().take_while(u8::is_ascii_digit).count();
    digits[..n_digits].parse::<u32>().is_ok_and(|hours| hours < 7 * 24)
}

fn refused(what: String, remedy: &'static str) -> datafusion::error::DataFusionError {
    Error::Unsupported { what, remedy }.into()
}
