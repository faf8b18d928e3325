//! When are two `jsonb` equal, and which is less? PostgreSQL compares what they mean; DataFusion would compare the
//! texts, of which `1` and `1.0` differ. So they are compared by their keys (`key`): in comparisons, in the order of
//! rows, in groups, DISTINCT and joins.
//!
//! What is grouped is the key, and what is shown of a group its first value.
//!
//! Values of type `json` are not compared, in PostgreSQL neither (42883).

use std::sync::Arc;

use arrow::datatypes::Field;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::functions::encoding::expr_fn::encode;
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Aggregate, Distinct, Expr, LogicalPlan, Operator, Projection, SortExpr, lit, when};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::{datafusion, each_node};
use tarn_types::{DataType as Stored, data_type_of};

use super::build::{MEMBER, VALUE};
use super::key::key_function;
use super::marked::{is_untyped, json_type, marked};
use crate::error::{SqlError, state};
use crate::postgres::kept_as_text::cast_function;

/// Functions that take texts, and what is cast to one.
pub(in crate::postgres) const OF_TEXTS: [&str; 27] = [
    "ascii",
    "bit_length",
    "btrim",
    "character_length",
    "initcap",
    "left",
    "lower",
    "lpad",
    "ltrim",
    "md5",
    "octet_length",
    "regexp_count",
    "regexp_like",
    "regexp_match",
    "regexp_replace",
    "repeat",
    "replace",
    "reverse",
    "right",
    "rpad",
    "rtrim",
    "split_part",
    "starts_with",
    "strpos",
    "substr",
    "translate",
    "upper",
];

/// The rule.
#[derive(Debug)]
pub(super) struct JsonComparisonRule;

impl AnalyzerRule for JsonComparisonRule {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut is_changed = false;
        let plan = each_node(plan, |node| {
            let rewritten = if has_json(&node) { in_node(node)? } else { Transformed::no(node) };
            is_changed |= rewritten.transformed;
            if is_changed { rewritten.map_data(LogicalPlan::recompute_schema) } else { Ok(rewritten) }
        })?;
        Ok(plan.data)
    }

    fn name(&self) -> &str {
        "postgres_json_compared"
    }
}

/// Whether a value of it may be JSON: one of a table, or one that a function makes.
fn has_json(node: &LogicalPlan) -> bool {
    let is_json = |field: &Arc<Field>| data_type_of(field).is_ok_and(|of| is_any_json(Some(of)));
    if node.inputs().iter().any(|input| input.schema().fields().iter().any(is_json)) {
        return true;
    }
    let mut calls = false;
    let _ = node.apply_expressions(|expr| {
        calls |= expr.exists(|expr| Ok(matches!(expr, Expr::ScalarFunction(call) if call.name().contains("json"))))?;
        Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
    });
    calls
}

fn is_any_json(of: Option<Stored>) -> bool {
    matches!(of, Some(Stored::Json | Stored::Jsonb))
}

fn in_node(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&node.inputs());
    let names = NamePreserver::new(&node);
    let rewritten = node.map_expressions(|expr| {
        let name = names.save(&expr);
        let rewritten = expr.transform_up(|expr| in_expression(expr, &schema))?;
        Ok(rewritten.update_data(|expr| name.restore(expr)))
    })?;
    let is_changed = rewritten.transformed;
    let by_node = match rewritten.data {
        LogicalPlan::Aggregate(aggregate) => grouped(aggregate, &schema)?,
        LogicalPlan::Distinct(Distinct::All(input)) => distinct(input)?,
        LogicalPlan::Distinct(Distinct::On(on)) => {
            check_none(&on.on_expr, &schema, "DISTINCT ON")?;
            Transformed::no(LogicalPlan::Distinct(Distinct::On(on)))
        }
        LogicalPlan::Sort(mut sort) => {
            let is_sorted = sort_keys(&mut sort.expr, &schema)?;
            Transformed::new_transformed(LogicalPlan::Sort(sort), is_sorted)
        }
        LogicalPlan::Join(mut join) => {
            let mut is_joined = false;
            for (left, right) in &mut join.on {
                is_joined |= compared(left, right, &schema, "=")?;
            }
            Transformed::new_transformed(LogicalPlan::Join(join), is_joined)
        }
        other => Transformed::no(other),
    };
    Ok(Transformed::new_transformed(by_node.data, is_changed || by_node.transformed))
}

/// The key of a value, in its place.
fn key(of: &mut Expr) {
    let value = std::mem::replace(of, Expr::Literal(ScalarValue::Null, None));
    *of = key_function().call(vec![value]);
}

/// Makes keys of both sides, if one is a `jsonb`.
fn compared(left: &mut Expr, right: &mut Expr, schema: &DFSchema, op: &str) -> Result<bool> {
    let types = (json_type(left, schema), json_type(right, schema));
    if types == (None, None) {
        return Ok(false);
    }
    let as_document = |side: &mut Expr, of: Option<Stored>| {
        if of.is_none() && is_untyped(side) {
            let text = std::mem::replace(side, Expr::Literal(ScalarValue::Null, None));
            *side = cast_function(Stored::Jsonb).call(vec![text]);
            return true;
        }
        of == Some(Stored::Jsonb)
    };
    if !as_document(left, types.0) || !as_document(right, types.1) {
        return Err(not_compared(op, types.0.or(types.1)).into());
    }
    key(left);
    key(right);
    Ok(true)
}

fn not_compared(what: &str, of: Option<Stored>) -> SqlError {
    let name = if of == Some(Stored::Json) { "json" } else { "jsonb" };
    let message = match name {
        "json" => format!("json in {what}: values of type json cannot be compared"),
        _ => format!("operator does not exist: {what} of jsonb and another type"),
    };
    SqlError::new(state::UNDEFINED_FUNCTION, message).with_hint(match name {
        "json" => "cast it to jsonb to compare what it means, to text to compare what was written",
        _ => "cast the other side to jsonb, or take a text with ->> and cast that",
    })
}

fn unsupported(what: &str) -> SqlError {
    let remedy = match what {
        "make_array" | "array_agg" => "make JSON of it: jsonb_build_array(…), jsonb_agg(doc)",
        _ => "take a text out of it with ->> or #>>, or cast it to text",
    };
    SqlError::unsupported(format!("jsonb in {what} is not supported"), remedy)
}

fn check_none(of: &[Expr], schema: &DFSchema, what: &str) -> Result<()> {
    for expr in of {
        match json_type(expr, schema) {
            None => {}
            Some(Stored::Json) if !matches!(what, "make_array" | "array_agg") => {
                return Err(not_compared(what, Some(Stored::Json)).into());
            }
            Some(_) => return Err(unsupported(what).into()),
        }
    }
    Ok(())
}

/// A value that is grouped or sorted by: whether it became a key.
fn by_key(of: &mut Expr, schema: &DFSchema, what: &str) -> Result<bool> {
    match json_type(of, schema) {
        None => Ok(false),
        Some(Stored::Jsonb) => {
            key(of);
            Ok(true)
        }
        Some(of) => Err(not_compared(what, Some(of)).into()),
    }
}

fn sort_keys(by: &mut [SortExpr], schema: &DFSchema) -> Result<bool> {
    let mut is_changed = false;
    for sort in by {
        is_changed |= by_key(&mut sort.expr, schema, "ORDER BY")?;
    }
    Ok(is_changed)
}

fn in_expression(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    // The value is what is shown, and its key what is compared.
    if let Expr::ScalarFunction(call) = &expr
        && call.name() == "nullif"
        && let [value, other] = &call.args[..]
        && json_type(value, schema) == Some(Stored::Jsonb)
        && !value.is_volatile()
    {
        let (value, mut left, mut right) = (value.clone(), value.clone(), other.clone());
        compared(&mut left, &mut right, schema, "=")?;
        let chosen = when(left.eq(right), Expr::Literal(ScalarValue::Null, None)).otherwise(value)?;
        return Ok(Transformed::yes(chosen));
    }
    let is_changed = match &mut expr {
        Expr::BinaryExpr(of) if is_comparison(of.op) => {
            compared(&mut of.left, &mut of.right, schema, &of.op.to_string())?
        }
        Expr::BinaryExpr(of) if !matches!(of.op, Operator::And | Operator::Or | Operator::StringConcat) => {
            if is_any_json(json_type(&of.left, schema)) || is_any_json(json_type(&of.right, schema)) {
                let message = format!("operator does not exist: {} of json", of.op);
                return Err(SqlError::new(state::UNDEFINED_FUNCTION, message)
                    .with_hint("take a text out of it with ->>, and cast that")
                    .into());
            }
            false
        }
        Expr::Like(of) | Expr::SimilarTo(of) => {
            if is_any_json(json_type(&of.expr, schema)) {
                return Err(not_compared("LIKE", Some(Stored::Json)).into());
            }
            false
        }
        Expr::InList(of) => {
            let (value, mut keyed) = (of.expr.as_ref().clone(), None);
            for (n_before, item) in of.list.iter_mut().enumerate() {
                let mut value = value.clone();
                let is_keyed = compared(&mut value, item, schema, "IN")?;
                if n_before > 0 && is_keyed != keyed.is_some() {
                    return Err(not_compared("IN", Some(Stored::Jsonb)).into());
                }
                keyed = is_keyed.then_some(value);
            }
            let is_changed = keyed.is_some();
            *of.expr = keyed.unwrap_or(value);
            is_changed
        }
        Expr::Between(of) => {
            let mut value = of.expr.as_ref().clone();
            let is_low = compared(&mut value, &mut of.low, schema, "BETWEEN")?;
            let is_high = compared(&mut of.expr, &mut of.high, schema, "BETWEEN")?;
            if is_low != is_high {
                return Err(not_compared("BETWEEN", Some(Stored::Jsonb)).into());
            }
            is_high
        }
        Expr::InSubquery(of) => {
            check_none(std::slice::from_ref(of.expr.as_ref()), schema, "IN (SELECT …)")?;
            false
        }
        Expr::SetComparison(of) => {
            check_none(std::slice::from_ref(of.expr.as_ref()), schema, "ANY (SELECT …)")?;
            false
        }
        Expr::Case(of) => {
            if let Some(operand) = &of.expr {
                check_none(std::slice::from_ref(operand.as_ref()), schema, "CASE of a value")?;
            }
            false
        }
        Expr::ScalarFunction(call) => {
            let name = call.name();
            if matches!(name, "nullif" | "greatest" | "least" | "make_array") || name.starts_with("array_") {
                check_none(&call.args, schema, name)?;
            }
            if OF_TEXTS.contains(&name)
                && let Some(of) = call.args.iter().find_map(|arg| json_type(arg, schema))
            {
                let of = of.to_string().to_lowercase();
                let message = format!("function {name}({of}) does not exist");
                return Err(SqlError::new(state::UNDEFINED_FUNCTION, message)
                    .with_hint(format!("cast it to text: {name}(doc::text)"))
                    .into());
            }
            false
        }
        Expr::AggregateFunction(call) => {
            let params = &mut call.params;
            if matches!(call.func.name(), "min" | "max")
                && params.args.iter().any(|of| is_any_json(json_type(of, schema)))
            {
                return Err(not_compared(call.func.name(), json_type(&params.args[0], schema)).into());
            }
            // An array does not know that its items are JSON.
            let is_item =
                |of: &Expr| matches!(of, Expr::ScalarFunction(call) if [VALUE, MEMBER].contains(&call.name()));
            if call.func.name() == "array_agg" && !params.args.iter().all(is_item) {
                check_none(&params.args, schema, "array_agg")?;
            }
            let is_sorted = sort_keys(&mut params.order_by, schema)?;
            let is_counted = match (params.distinct, call.func.name(), &mut params.args[..]) {
                (true, "count", [of]) => by_key(of, schema, "DISTINCT")?,
                (true, ..) => {
                    check_none(&params.args, schema, "DISTINCT")?;
                    false
                }
                _ => false,
            };
            is_sorted | is_counted
        }
        Expr::WindowFunction(call) => {
            let params = &mut call.params;
            let mut is_changed = false;
            for sort in &mut params.order_by {
                if by_key(&mut sort.expr, schema, "ORDER BY")? {
                    // Frames are of texts, and of no bytes. The order is the same.
                    let bytes = std::mem::replace(&mut sort.expr, Expr::Literal(ScalarValue::Null, None));
                    sort.expr = encode(bytes, lit("hex"));
                    is_changed = true;
                }
            }
            for by in &mut params.partition_by {
                is_changed |= by_key(by, schema, "PARTITION BY")?;
            }
            is_changed
        }
        _ => false,
    };
    Ok(Transformed::new_transformed(expr, is_changed))
}

fn is_comparison(op: Operator) -> bool {
    matches!(
        op,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom
    )
}

fn distinct(input: Arc<LogicalPlan>) -> Result<Transformed<LogicalPlan>> {
    let schema = Arc::clone(input.schema());
    let columns: Vec<Expr> = schema.columns().into_iter().map(Expr::Column).collect();
    if !columns.iter().any(|column| is_any_json(json_type(column, &schema))) {
        return Ok(Transformed::no(LogicalPlan::Distinct(Distinct::All(input))));
    }
    grouped(Aggregate::try_new(input, columns, vec![])?, &schema)
}

/// Groups by keys, of which each has the first value beside it; above, the columns are as they were.
fn grouped(aggregate: Aggregate, schema: &DFSchema) -> Result<Transformed<LogicalPlan>> {
    let is_json: Vec<bool> = aggregate.group_expr.iter().map(|of| is_any_json(json_type(of, schema))).collect();
    let in_sets = aggregate.group_expr.iter().any(|of| {
        matches!(of, Expr::GroupingSet(sets) if sets.distinct_expr().iter().any(|of| is_any_json(json_type(of, schema))))
    });
    if in_sets {
        return Err(unsupported("GROUPING SETS").into());
    }
    if !is_json.contains(&true) {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let Aggregate { input, mut group_expr, mut aggr_expr, schema: was, .. } = aggregate;
    let (mut firsts, n_aggregates) = (vec![], aggr_expr.len());
    for (idx, by) in group_expr.iter_mut().enumerate() {
        if is_json[idx] {
            let first =
                AggregateFunction::new_udf(first_value_udaf(), vec![by.clone().unalias()], false, None, vec![], None);
            firsts.push(format!("tarn_first_{idx}"));
            aggr_expr.push(Expr::AggregateFunction(first).alias(format!("tarn_first_{idx}")));
            by_key(by, schema, "GROUP BY")?;
            *by = std::mem::replace(by, Expr::Literal(ScalarValue::Null, None)).alias(format!("tarn_key_{idx}"));
        }
    }
    let n_groups = group_expr.len();
    let below = LogicalPlan::Aggregate(Aggregate::try_new(input, group_expr, aggr_expr)?);
    let mut firsts = firsts.into_iter();
    let shown = (0..n_groups + n_aggregates).map(|idx| {
        let (qualifier, field) = was.qualified_field(idx);
        match is_json.get(idx) {
            Some(true) => {
                let first = Expr::Column(Column::from_name(firsts.next().unwrap_or_default()));
                marked(first, Stored::Jsonb).alias_qualified(qualifier.cloned(), field.name())
            }
            _ => Expr::Column(Column::from(below.schema().qualified_field(idx))),
        }
    });
    let shown = shown.collect();
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(shown, Arc::new(below))?)))
}
