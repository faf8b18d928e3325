//! Which label is less, and of what are labels no texts? They are compared by their places in the declaration: in
//! comparisons, ORDER BY, windows, `min`, `max`, `greatest` and `least`. Equality is that of the texts, and stays.
//! Beside another type, or where a text is wanted, PostgreSQL knows no operator or function (42883).
//!
//! `m < 'ok'` becomes `m IN ('sad')`: so blocks of files are left out by it, too.

use arrow::datatypes::Field;
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Distinct, Expr, LogicalPlan, Operator, SortExpr};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;
use tarn_types::Enumerated;

use super::function::{label_at, place_of};
use super::marked::{is_open, read};
use super::{EnumTypes, above, each_node, field_of};
use crate::error::{SqlError, state};
use crate::postgres::json::OF_TEXTS;
use crate::rows::{long_name, pg_type};

/// A list of more labels costs more than their places.
const MOST_IN_A_LIST: usize = 32;

/// Functions that look at the order of an array's items, which is that of texts to them.
const OF_ORDERED_ARRAYS: [&str; 5] = ["array_sort", "array_max", "array_min", "tarn_mode", "tarn_percentile_disc"];

/// The rule.
#[derive(Debug)]
pub(super) struct ComparedEnums(pub EnumTypes);

impl AnalyzerRule for ComparedEnums {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        if self.0.is_empty() {
            return Ok(plan);
        }
        each_node(plan, |node| self.in_node(node))
    }

    fn name(&self) -> &str {
        "postgres_enums_compared"
    }
}

impl ComparedEnums {
    fn in_node(&self, node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        let mut schema = merge_schema(&node.inputs());
        if let LogicalPlan::TableScan(scan) = &node {
            schema.merge(&scan.projected_schema);
        }
        let extremes = self.extremes(&node, &schema);
        let names = NamePreserver::new(&node);
        let rewritten = node.map_expressions(|expr| {
            let name = names.save(&expr);
            let rewritten = expr.transform_up(|expr| self.in_expression(expr, &schema))?;
            Ok(rewritten.update_data(|expr| name.restore(expr)))
        })?;
        let mut is_changed = rewritten.transformed;
        let node = match rewritten.data {
            LogicalPlan::Sort(mut sort) => {
                is_changed |= self.sorted(&mut sort.expr, &schema)?;
                LogicalPlan::Sort(sort)
            }
            LogicalPlan::Distinct(Distinct::On(mut on)) => {
                if let Some(by) = &mut on.sort_expr {
                    is_changed |= self.sorted(by, &schema)?;
                }
                LogicalPlan::Distinct(Distinct::On(on))
            }
            LogicalPlan::Join(mut join) => {
                for (left, right) in &mut join.on {
                    self.comparable(left, right, &schema, "=")?;
                }
                LogicalPlan::Join(join)
            }
            other => other,
        };
        if extremes.is_empty() {
            return Ok(Transformed::new_transformed(node, is_changed));
        }
        // They are of places, and shown as labels.
        let node = node.recompute_schema()?;
        let made: Vec<_> = extremes.into_iter().map(|(at, of)| (at, move |place: Expr| label_at(place, &of))).collect();
        let made: Vec<(usize, &dyn Fn(Expr) -> Expr)> =
            made.iter().map(|(at, make)| (*at, make as &dyn Fn(Expr) -> Expr)).collect();
        Ok(Transformed::yes(above(node, &made)?))
    }

    /// The places of columns of a node that are the least or the greatest label of several.
    fn extremes(&self, node: &LogicalPlan, schema: &DFSchema) -> Vec<(usize, Enumerated)> {
        let (all, n_before) = match node {
            LogicalPlan::Aggregate(of) => (&of.aggr_expr, of.schema.fields().len().saturating_sub(of.aggr_expr.len())),
            LogicalPlan::Window(of) => (&of.window_expr, of.input.schema().fields().len()),
            _ => return vec![],
        };
        let one = |(at, expr): (usize, &Expr)| Some((n_before + at, self.0.of(extreme_of(expr)?, schema)?));
        all.iter().enumerate().filter_map(one).collect()
    }

    fn in_expression(&self, mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        let is_changed = match &mut expr {
            Expr::BinaryExpr(of) => return self.in_operator(expr_of(of), schema),
            Expr::Like(of) | Expr::SimilarTo(of) => {
                let op = match (of.negated, of.case_insensitive) {
                    (false, false) => "~~",
                    (false, true) => "~~*",
                    (true, false) => "!~~",
                    (true, true) => "!~~*",
                };
                match self.0.of(&of.expr, schema).or_else(|| self.0.of(&of.pattern, schema)) {
                    Some(_) => return Err(no_operator(&type_of(&of.expr, schema), op, &type_of(&of.pattern, schema))),
                    None => false,
                }
            }
            Expr::InList(of) => {
                let mut is_changed = false;
                let mut one = of.expr.as_ref().clone();
                for item in &mut of.list {
                    is_changed |= self.comparable(&mut one, item, schema, "=")?.is_some();
                }
                *of.expr = one;
                is_changed
            }
            Expr::InSubquery(of) => {
                let column = of.subquery.subquery.schema().fields().first().cloned();
                let (left, right) = (self.0.of(&of.expr, schema), column.as_ref().and_then(|f| self.0.of_field(f)));
                if left.map(|of| of.id) != right.map(|of| of.id) && !is_open(&of.expr, schema) {
                    return Err(no_operator(&type_of(&of.expr, schema), "=", &called(column.as_deref())));
                }
                false
            }
            Expr::Between(of) => {
                let mut one = of.expr.as_ref().clone();
                let low = self.comparable(&mut one, &mut of.low, schema, ">=")?;
                let high = self.comparable(&mut one, &mut of.high, schema, "<=")?;
                match low.or(high) {
                    Some(by) => {
                        *of.expr = place_of(one, &by);
                        for bound in [&mut of.low, &mut of.high] {
                            **bound = place_of(take(bound), &by);
                        }
                        true
                    }
                    None => false,
                }
            }
            Expr::Case(of) => {
                let mut is_changed = false;
                if let Some(operand) = &mut of.expr {
                    for (when, _) in &mut of.when_then_expr {
                        is_changed |= self.comparable(operand, when, schema, "=")?.is_some();
                    }
                }
                is_changed
            }
            Expr::ScalarFunction(call) => {
                let name = call.func.name().to_owned();
                let of = call.args.iter().find_map(|arg| self.0.of(arg, schema));
                match (name.as_str(), of) {
                    ("nullif", Some(_)) => match &mut call.args[..] {
                        [left, right] => self.comparable(left, right, schema, "=")?.is_some(),
                        _ => false,
                    },
                    ("greatest" | "least", Some(of)) => {
                        for arg in &mut call.args {
                            self.check_is(arg, &of, schema, &name.to_uppercase())?;
                            *arg = place_of(take(arg), &of);
                        }
                        return Ok(Transformed::yes(label_at(expr, &of)));
                    }
                    (name, Some(of)) if OF_TEXTS.contains(&name) => {
                        let message = format!("function {name}({}) does not exist", crate::names::quote(&of.name));
                        return Err(SqlError::new(state::UNDEFINED_FUNCTION, message)
                            .with_hint(format!("cast it to text: {name}(value::text)"))
                            .into());
                    }
                    (name, _) if OF_ORDERED_ARRAYS.contains(&name) => {
                        let is_of_labels =
                            |arg: &Expr| field_of(arg, schema).is_some_and(|field| self.0.of_items(&field).is_some());
                        if call.args.iter().any(is_of_labels) {
                            return Err(ordered_arrays(name).into());
                        }
                        false
                    }
                    _ => false,
                }
            }
            Expr::AggregateFunction(call) => {
                if call.func.name() == "string_agg"
                    && let Some(of) = call.params.args.first().and_then(|arg| self.0.of(arg, schema))
                {
                    let message =
                        format!("function string_agg({}, unknown) does not exist", crate::names::quote(&of.name));
                    return Err(SqlError::new(state::UNDEFINED_FUNCTION, message).with_hint("cast it to text").into());
                }
                let is_sorted = self.sorted(&mut call.params.order_by, schema)?;
                if is_sorted && call.params.distinct {
                    return Err(SqlError::unsupported(
                        format!("{}(DISTINCT … ORDER BY …) of an enumerated type is not supported", call.func.name()),
                        "SELECT DISTINCT in a subquery, and ORDER BY in the aggregate",
                    )
                    .into());
                }
                self.of_places(call.func.name(), &mut call.params.args, schema) | is_sorted
            }
            Expr::WindowFunction(call) => {
                let name = call.fun.name().to_owned();
                let is_sorted = self.sorted(&mut call.params.order_by, schema)?;
                self.of_places(&name, &mut call.params.args, schema) | is_sorted
            }
            _ => false,
        };
        Ok(Transformed::new_transformed(expr, is_changed))
    }

    /// `min` and `max` of labels are those of their places.
    fn of_places(&self, name: &str, args: &mut [Expr], schema: &DFSchema) -> bool {
        match args {
            [of] if matches!(name, "min" | "max") => match self.0.of(of, schema) {
                Some(by) => {
                    *of = place_of(take(of), &by);
                    true
                }
                None => false,
            },
            _ => false,
        }
    }

    fn sorted(&self, by: &mut [SortExpr], schema: &DFSchema) -> Result<bool> {
        let mut is_changed = false;
        for sort in by {
            if let Some(of) = self.0.of(&sort.expr, schema) {
                sort.expr = place_of(take(&mut sort.expr), &of);
                is_changed = true;
            } else if field_of(&sort.expr, schema).is_some_and(|field| self.0.of_items(&field).is_some()) {
                return Err(ordered_arrays("ORDER BY").into());
            }
        }
        Ok(is_changed)
    }

    fn in_operator(&self, of: BinaryExpr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        let BinaryExpr { mut left, op, mut right } = of;
        let again = |left, right| Expr::BinaryExpr(BinaryExpr { left, op, right });
        if matches!(op, Operator::And | Operator::Or) {
            return Ok(Transformed::no(again(left, right)));
        }
        let (of_left, of_right) = (self.0.of(&left, schema), self.0.of(&right, schema));
        if of_left.is_none() && of_right.is_none() {
            let is_of_labels =
                |side: &Expr| field_of(side, schema).is_some_and(|field| self.0.of_items(&field).is_some());
            if is_order(op) && (is_of_labels(&left) || is_of_labels(&right)) {
                return Err(ordered_arrays(&op.to_string()).into());
            }
            return Ok(Transformed::no(again(left, right)));
        }
        if op == Operator::StringConcat && !(of_left.is_some() && of_right.is_some()) {
            return Ok(Transformed::no(again(left, right)));
        }
        if !is_equality(op) && !is_order(op) {
            return Err(no_operator(&type_of(&left, schema), &op.to_string(), &type_of(&right, schema)));
        }
        let Some(by) = self.comparable(&mut left, &mut right, schema, &op.to_string())? else {
            return Ok(Transformed::no(again(left, right)));
        };
        if is_equality(op) {
            return Ok(Transformed::yes(again(left, right)));
        }
        let listed = match (written(&left), written(&right)) {
            (None, Some(label)) => in_list(&left, op, label, &by),
            (Some(label), None) => op.swap().and_then(|op| in_list(&right, op, label, &by)),
            _ => None,
        };
        Ok(Transformed::yes(match listed {
            Some(listed) => listed,
            None => again(Box::new(place_of(*left, &by)), Box::new(place_of(*right, &by))),
        }))
    }

    /// The type of two sides that are compared, if one is of an enumerated one: what is written out on the other is a
    /// label then.
    ///
    /// Errors: `42883` for another type; `22P02`.
    fn comparable(&self, left: &mut Expr, right: &mut Expr, schema: &DFSchema, op: &str) -> Result<Option<Enumerated>> {
        let of = match (self.0.of(left, schema), self.0.of(right, schema)) {
            (None, None) => return Ok(None),
            (Some(of), Some(other)) if of.id == other.id => of,
            (Some(of), None) if is_open(right, schema) => of,
            (None, Some(of)) if is_open(left, schema) => of,
            _ => return Err(no_operator(&type_of(left, schema), op, &type_of(right, schema))),
        };
        for side in [left, right] {
            // The column beside it told its type: what is bound is checked.
            if let Expr::Placeholder(parameter) = side {
                parameter.field = None;
                read(side, &of)?;
            } else if let Expr::Literal(text, _) = side
                && let Some(Some(text)) = text.try_as_str()
            {
                // It stays a text: files are looked through by it.
                of.place(text).map_err(SqlError::from)?;
            }
        }
        Ok(Some(of))
    }

    fn check_is(&self, arg: &Expr, of: &Enumerated, schema: &DFSchema, what: &str) -> Result<()> {
        if is_open(arg, schema) || self.0.of(arg, schema).is_some_and(|own| own.id == of.id) {
            return Ok(());
        }
        let name = crate::names::quote(&of.name);
        let message = format!("{what} types {name} and {} cannot be matched", type_of(arg, schema));
        Err(SqlError::new(state::DATATYPE_MISMATCH, message).with_hint("cast one of them").into())
    }
}

fn expr_of(of: &mut BinaryExpr) -> BinaryExpr {
    let none = || Box::new(Expr::Literal(ScalarValue::Null, None));
    BinaryExpr {
        left: std::mem::replace(&mut of.left, none()),
        op: of.op,
        right: std::mem::replace(&mut of.right, none()),
    }
}

fn take(of: &mut Expr) -> Expr {
    std::mem::replace(of, Expr::Literal(ScalarValue::Null, None))
}

fn is_equality(op: Operator) -> bool {
    matches!(op, Operator::Eq | Operator::NotEq | Operator::IsDistinctFrom | Operator::IsNotDistinctFrom)
}

fn is_order(op: Operator) -> bool {
    matches!(op, Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq)
}

/// What an aggregate or a window is the least or the greatest of.
fn extreme_of(expr: &Expr) -> Option<&Expr> {
    let (name, args) = match expr {
        Expr::Alias(alias) => return extreme_of(&alias.expr),
        Expr::AggregateFunction(call) => (call.func.name(), &call.params.args),
        Expr::WindowFunction(call) => (call.fun.name(), &call.params.args),
        _ => return None,
    };
    match &args[..] {
        [of] if matches!(name, "min" | "max") => Some(of),
        _ => None,
    }
}

/// A label that is written out, as a text or by its cast.
fn written(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(text, _) => text.try_as_str().flatten(),
        Expr::ScalarFunction(call) if call.func.name() == "tarn_label" => call.args.first().and_then(written),
        _ => None,
    }
}

/// The labels that stand so to one of them. `None`: their places are compared.
fn in_list(value: &Expr, op: Operator, label: &str, of: &Enumerated) -> Option<Expr> {
    let at = of.place(label).ok()?;
    let labels = match op {
        Operator::Lt => &of.labels[..at],
        Operator::LtEq => &of.labels[..=at],
        Operator::Gt => &of.labels[at + 1..],
        _ => &of.labels[at..],
    };
    // Of no label at all it is false, and of NULL it is NULL.
    if labels.is_empty() || labels.len() > MOST_IN_A_LIST {
        return None;
    }
    let list = labels.iter().map(|label| Expr::Literal(ScalarValue::Utf8(Some(label.clone())), None)).collect();
    Some(Expr::InList(InList { expr: Box::new(value.clone()), list, negated: false }))
}

fn type_of(expr: &Expr, schema: &DFSchema) -> String {
    called(field_of(expr, schema).filter(|_| !is_open(expr, schema)).as_deref())
}

fn called(field: Option<&Field>) -> String {
    field.and_then(|field| pg_type(field).ok()).map_or_else(|| "unknown".to_owned(), |of| long_name(&of))
}

fn no_operator(left: &str, op: &str, right: &str) -> DataFusionError {
    let message = format!("operator does not exist: {left} {op} {right}");
    SqlError::new(state::UNDEFINED_FUNCTION, message).with_hint("cast one of them").into()
}

fn ordered_arrays(what: &str) -> SqlError {
    SqlError::unsupported(
        format!("{} of arrays of an enumerated type is not supported", what.trim_start_matches("tarn_")),
        "unnest them, and order their items",
    )
}
