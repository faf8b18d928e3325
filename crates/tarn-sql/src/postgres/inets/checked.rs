//! What becomes of an address that is no function of addresses asked of? It is compared with addresses, cast to texts,
//! kept in arrays, rows and JSON, and counted. Elsewhere PostgreSQL has no function, operator or cast, and neither is
//! there one here (42883, 42846): those of bytes would take it for bytes.

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{AggregateFunction, InList, ScalarFunction, WindowFunction};
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator, cast};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::{datafusion, each_expression};
use tarn_types::{DataType as Stored, Enumerated, data_type_of};

use super::function::InetFunction;
use super::{INET, as_inet, called, is_inet, no_operator};
use crate::error::{SqlError, state};
use crate::postgres::json::is_untyped;
use crate::postgres::numbers::BIT_NOT;

/// What takes values of every type, and gives them back, counts them or writes them: functions, and aggregates.
const OF_ANY: [&str; 40] = [
    "array_agg",
    "array_append",
    "array_fill",
    "array_has",
    "array_position",
    "array_positions",
    "array_prepend",
    "array_remove_all",
    "array_replace_all",
    "coalesce",
    "count",
    "first_value",
    "format",
    "greatest",
    "grouping",
    "json_agg",
    "json_build_array",
    "json_build_object",
    "json_object_agg",
    "jsonb_agg",
    "jsonb_build_array",
    "jsonb_build_object",
    "jsonb_object_agg",
    "lag",
    "last_value",
    "lead",
    "least",
    "make_array",
    "max",
    "min",
    "named_struct",
    "nth_value",
    "nullif",
    "num_nonnulls",
    "num_nulls",
    "pg_typeof",
    "row",
    "struct",
    "to_json",
    "to_jsonb",
];

/// What writes the items of an array, here as bytes.
const OF_TEXTS_OF_ARRAYS: [&str; 4] = ["array_join", "array_to_string", "list_join", "list_to_string"];

/// Functions that the front end calls, of which no statement knows the name.
const OWN: &str = "tarn_";

/// The rule.
#[derive(Debug)]
pub(super) struct CheckedInets;

impl AnalyzerRule for CheckedInets {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        match has_inets(&plan)? {
            true => each_expression(plan, checked),
            false => Ok(plan),
        }
    }

    fn name(&self) -> &str {
        "postgres_inets"
    }
}

/// Whether there may be addresses in it: no types are asked for, which of long statements costs.
fn has_inets(plan: &LogicalPlan) -> Result<bool> {
    let is_of_inets = |of: &DataType| match of {
        DataType::List(item) => *item.data_type() == INET,
        of => *of == INET,
    };
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= node.schema().fields().iter().any(|field| is_of_inets(field.data_type()));
        if !found {
            node.apply_expressions(|expr| {
                expr.apply(|expr| {
                    found |= match expr {
                        Expr::Literal(value, _) => is_of_inets(&value.data_type()),
                        Expr::Cast(Cast { field, .. }) => is_of_inets(field.data_type()),
                        Expr::Placeholder(of) => of.field.as_ref().is_some_and(|of| is_of_inets(of.data_type())),
                        Expr::ScalarFunction(call) => InetFunction::is_named(call.name()),
                        _ => false,
                    };
                    Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
                })
            })?;
        }
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

fn checked(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match &mut expr {
        Expr::ScalarFunction(call) => return in_call(call, schema).map(|made| changed(made, expr)),
        Expr::AggregateFunction(AggregateFunction { func, params }) => {
            refuse(func.name(), &params.args, schema)?;
        }
        Expr::WindowFunction(window) => {
            let WindowFunction { fun, params } = window.as_mut();
            refuse(fun.name(), &params.args, schema)?;
            let mut is_changed = false;
            // A text in the place of a row that is not there.
            if let [of, _, instead] = &mut params.args[..]
                && matches!(fun.name(), "lag" | "lead")
                && is_inet(of, schema)
                && is_untyped(instead)
            {
                let text = std::mem::replace(instead, Expr::Literal(ScalarValue::Null, None));
                *instead = as_inet(text)?;
                is_changed = true;
            }
            return Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) });
        }
        Expr::Cast(Cast { expr: of, field }) => check_cast(of, field.data_type(), schema)?,
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if !matches!(op, Operator::And | Operator::Or) => {
            compared(left, &op.to_string(), right, schema)?;
        }
        Expr::Between(of) => {
            compared(&of.expr, ">=", &of.low, schema)?;
            compared(&of.expr, "<=", &of.high, schema)?;
        }
        Expr::InList(InList { expr: of, list, .. }) => {
            list.iter().try_for_each(|item| compared(of, "=", item, schema))?;
        }
        Expr::InSubquery(of) => {
            if let Some(column) = of.subquery.subquery.schema().fields().first() {
                let typed = Expr::Literal(ScalarValue::try_from(column.data_type())?, None);
                compared(&of.expr, "=", &typed, schema)?;
            }
        }
        Expr::Like(of) | Expr::SimilarTo(of) if is_inet(&of.expr, schema) || is_inet(&of.pattern, schema) => {
            let op = match (of.negated, of.case_insensitive) {
                (false, false) => "~~",
                (false, true) => "~~*",
                (true, false) => "!~~",
                (true, true) => "!~~*",
            };
            return Err(no_operator(&called(&of.expr, schema), op, &called(&of.pattern, schema)).into());
        }
        _ => {}
    }
    Ok(Transformed::no(expr))
}

fn changed(made: Option<Expr>, expr: Expr) -> Transformed<Expr> {
    made.map_or_else(|| Transformed::no(expr), Transformed::yes)
}

/// What stands for the call.
fn in_call(call: &mut ScalarFunction, schema: &DFSchema) -> Result<Option<Expr>> {
    let name = call.func.name();
    if InetFunction::is_named(name) {
        // A text that is no constant is of no other type.
        let text = call.args.iter().find(|arg| !is_untyped(arg) && arg.get_type(schema).is_ok_and(|of| of.is_string()));
        return match text {
            Some(_) => Err(no_function(name, &call.args, schema).into()),
            None if matches!(name, "network" | "inet_merge") => {
                let what = format!("{name}(), which gives a cidr");
                Err(SqlError::unsupported(what, "set_masklen(ip & netmask(ip), masklen(ip)), an inet").into())
            }
            None => Ok(None),
        };
    }
    let is_list = |of: &Expr| matches!(of.get_type(schema), Ok(DataType::List(item)) if *item.data_type() == INET);
    if OF_TEXTS_OF_ARRAYS.contains(&name) && call.args.iter().any(is_list) {
        return Err(SqlError::unsupported(format!("{name} of inet[]"), "string_agg(host(x), ',') of its items").into());
    }
    if !call.args.iter().any(|arg| is_inet(arg, schema)) {
        return Ok(None);
    }
    match name {
        BIT_NOT => Ok(Some(InetFunction::Not.call(std::mem::take(&mut call.args)))),
        "quote_literal" | "quote_nullable" => {
            let args = std::mem::take(&mut call.args).into_iter().map(|arg| cast(arg, DataType::Utf8)).collect();
            Ok(Some(Expr::ScalarFunction(ScalarFunction::new_udf(call.func.clone(), args))))
        }
        "concat" | "concat_ws" => {
            let args = std::mem::take(&mut call.args).into_iter();
            let shown = |arg: Expr| if is_inet(&arg, schema) { InetFunction::Abbrev.call(vec![arg]) } else { arg };
            let args = args.map(shown).collect();
            Ok(Some(Expr::ScalarFunction(ScalarFunction::new_udf(call.func.clone(), args))))
        }
        _ => refuse(name, &call.args, schema).map(|()| None),
    }
}

/// Errors: `42883`.
fn refuse(name: &str, args: &[Expr], schema: &DFSchema) -> Result<()> {
    let is_known =
        OF_ANY.contains(&name) || name.starts_with(OWN) || !name.starts_with(|first: char| first.is_ascii_alphabetic());
    if is_known || !args.iter().any(|arg| is_inet(arg, schema)) {
        return Ok(());
    }
    let name = if name == "character_length" { "length" } else { name };
    Err(no_function(name, args, schema).into())
}

fn no_function(name: &str, args: &[Expr], schema: &DFSchema) -> SqlError {
    let types: Vec<String> = args.iter().map(|arg| called(arg, schema)).collect();
    let message = format!("function {name}({}) does not exist", types.join(", "));
    SqlError::new(state::UNDEFINED_FUNCTION, message).with_hint("host(ip) and ip::text are its texts")
}

/// Errors: `42846`.
fn check_cast(of: &Expr, to: &DataType, schema: &DFSchema) -> Result<()> {
    let Ok((_, own)) = of.to_field(schema) else { return Ok(()) };
    let is_text = |of: &DataType| of.is_string() || of.is_null();
    let is_wrong = match (own.data_type(), to) {
        (from, to) if *from == INET => *to != INET && !is_text(to),
        (from, to) if *to == INET => {
            let is_marked =
                data_type_of(&own).is_ok_and(|of| matches!(of, Stored::Uuid | Stored::Json | Stored::Jsonb));
            !is_text(from) || is_marked || Enumerated::of(&own).is_some()
        }
        _ => false,
    };
    if !is_wrong {
        return Ok(());
    }
    let typed = Expr::Literal(ScalarValue::try_from(to)?, None);
    let message = format!("cannot cast type {} to {}", called(of, schema), called(&typed, schema));
    Err(SqlError::new(state::CANNOT_COERCE, message).with_hint("cast it to text first").into())
}

/// Errors: `42883` for an address beside another type.
fn compared(left: &Expr, op: &str, right: &Expr, schema: &DFSchema) -> Result<()> {
    let is_known = |of: &Expr| {
        is_inet(of, schema) || is_untyped(of) || of.get_type(schema).is_ok_and(|of| of.is_null() || of == INET)
    };
    let is_one = is_inet(left, schema) || is_inet(right, schema);
    match is_one && !(is_known(left) && is_known(right)) {
        true => Err(no_operator(&called(left, schema), op, &called(right, schema)).into()),
        false => Ok(()),
    }
}
