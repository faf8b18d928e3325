//! Of which type is a parameter? The planner tells those that stand beside a column, the client some. Here are those
//! that the statement tells otherwise: `$1::int`, `LIMIT $1`, and `a = ANY($1)`, which is an array of what `a` is.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow_pg::datatypes::PG_OID_ALIAS_KEY;
use datafusion::arrow::datatypes::{DataType as ArrowType, Field, FieldRef};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr as Planned, ExprSchemable, LogicalPlan};
use datafusion::sql::sqlparser::ast::{
    self, ArrayElemTypeDef, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, LimitClause, Query, Statement,
    Visitor, VisitorMut,
};
use tarn_query::{inet, walk, walk_mut};
use tarn_types::{BARE_NUMERIC, DataType, arrow_field, data_type_of};

use crate::error::{Result, SqlError, state};
use crate::names::fold;
use crate::postgres::kept_as_text::{name_of_cast, type_of_cast};
use crate::postgres::{ITEM_COMPARISON, call};

/// The type that a client says a parameter has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeclaredType {
    /// One value of this type.
    Value(DataType),
    /// An array of such items.
    Array(DataType),
}

/// Types of `$1`, `$2` … in order.
pub(super) fn parameter_fields(plan: &LogicalPlan) -> Result<Vec<Option<FieldRef>>> {
    let mut found = plan.get_parameter_fields()?;
    let highest = found.keys().filter_map(|name| name.strip_prefix('$')?.parse::<usize>().ok()).max().unwrap_or(0);
    if highest > usize::from(u16::MAX) {
        return Err(SqlError::new(state::PROGRAM_LIMIT, format!("parameter ${highest}: at most 65535 parameters")));
    }
    Ok((1..=highest).map(|number| found.remove(&format!("${number}")).flatten()).collect())
}

/// Arrays that something is compared with get the type of that, to the last detail: `a = ANY($1)`. SQL has no name for
/// some. And what is looked for in an array is of the type of its items: `$1 = ANY(tags)`.
pub(super) fn with_arrays(plan: LogicalPlan) -> Result<LogicalPlan> {
    let typed = plan.transform_up_with_subqueries(|node| {
        let schema = schema_below(&node);
        node.map_expressions(|expr| {
            expr.transform_up(|mut expr| {
                let Planned::ScalarFunction(call) = &mut expr else { return Ok(Transformed::no(expr)) };
                let is_compared = matches!(call.name(), "array_has" | ITEM_COMPARISON);
                if type_items(call, &schema) {
                    return Ok(Transformed::yes(expr));
                }
                let [Planned::Placeholder(array), item] = arrays_and_items(call) else {
                    return Ok(Transformed::no(expr));
                };
                if !is_compared || array.field.is_some() {
                    return Ok(Transformed::no(expr));
                }
                let Ok((_, item)) = item.to_field(&schema) else { return Ok(Transformed::no(expr)) };
                let Ok(of) = data_type_of(&item) else { return Ok(Transformed::no(expr)) };
                let storage = match item.data_type() {
                    ArrowType::Dictionary(_, values) => values.as_ref().clone(),
                    other => other.clone(),
                };
                let item = arrow_field(Field::LIST_FIELD_DEFAULT_NAME, &of, true).with_data_type(storage);
                array.field = Some(Arc::new(Field::new("", ArrowType::List(Arc::new(item)), true)));
                Ok(Transformed::yes(expr))
            })
        })
    })?;
    Ok(typed.data)
}

/// Functions of an array and items, which stand behind it.
const OF_ITEMS: [&str; 8] = [
    "array_append",
    "array_has",
    "array_position",
    "array_positions",
    "array_remove",
    "array_remove_all",
    "array_replace",
    "array_replace_all",
];

/// Gives parameters that are items of an array its items' type. Whether there were any.
fn type_items(call: &mut ScalarFunction, schema: &DFSchema) -> bool {
    let n_items = if matches!(call.name(), "array_replace" | "array_replace_all") { 2 } else { 1 };
    let is_first = OF_ITEMS.contains(&call.name()) || call.name() == ITEM_COMPARISON;
    let is_last = call.name() == "array_prepend";
    let (array, items) = match arrays_and_items(call) {
        [array, items @ ..] if is_first => (array, items),
        [item, array] if is_last => (array, std::slice::from_mut(item)),
        _ => return false,
    };
    let Ok(ArrowType::List(of)) = array.get_type(schema) else { return false };
    let mut is_typed = false;
    for item in items.iter_mut().take(n_items) {
        if let Planned::Placeholder(parameter) = item
            && parameter.field.is_none()
        {
            parameter.field = Some(Arc::new(of.as_ref().clone().with_name("")));
            is_typed = true;
        }
    }
    is_typed
}

/// What a function of items is called with, behind the operator of comparisons.
fn arrays_and_items(call: &mut ScalarFunction) -> &mut [Planned] {
    let n_before = usize::from(call.name() == ITEM_COMPARISON);
    call.args.get_mut(n_before..).unwrap_or_default()
}

/// What the expressions of a node are computed of.
fn schema_below(node: &LogicalPlan) -> DFSchema {
    let mut schema = DFSchema::empty();
    node.inputs().iter().for_each(|input| schema.merge(input.schema()));
    schema
}

/// What a statement says of its parameters, by their place: `$1` is 0.
#[derive(Default)]
pub(super) struct ParameterTypes {
    /// Of parameters whose type the statement says.
    pub types: HashMap<usize, DataType>,
    /// Of those that are arrays.
    pub array_items: HashMap<usize, DataType>,
    /// Of those, which are of numbers of objects.
    oids: HashSet<usize>,
}

impl ParameterTypes {
    /// Walks the whole statement once.
    pub fn of(statement: &Statement) -> ParameterTypes {
        let mut told = ParameterTypes::default();
        let _ = walk(statement, &mut told);
        told
    }

    /// And what the plan says of arrays: they are of what they are compared with.
    pub fn beside(mut self, plan: &LogicalPlan) -> Result<ParameterTypes> {
        plan.apply_with_subqueries(|node| {
            let schema = schema_below(node);
            node.apply_expressions(|expr| {
                expr.apply(|expr| {
                    if let Planned::ScalarFunction(call) = expr
                        && let ("array_has", [Planned::Placeholder(array), item])
                        | (ITEM_COMPARISON, [_, Planned::Placeholder(array), item]) = (call.name(), &call.args[..])
                        && let Some(place) = place(&array.id)
                        && let Ok((_, item)) = item.to_field(&schema)
                        && let Ok(item) = data_type_of(&item)
                    {
                        self.array_items.insert(place, item);
                    }
                    Ok(TreeNodeRecursion::Continue)
                })
            })
        })?;
        Ok(self)
    }

    fn tell(&mut self, expr: &Expr, data_type: Option<DataType>) {
        if let (Some(place), Some(data_type)) = (parameter(expr).and_then(place), data_type) {
            self.types.insert(place, data_type);
        }
    }
}

impl Visitor for ParameterTypes {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let (limit, offset) = match &query.limit_clause {
            Some(LimitClause::LimitOffset { limit, offset, .. }) => {
                (limit.as_ref(), offset.as_ref().map(|offset| &offset.value))
            }
            Some(LimitClause::OffsetCommaLimit { offset, limit }) => (Some(limit), Some(offset)),
            None => (None, None),
        };
        let fetch = query.fetch.as_ref().and_then(|fetch| fetch.quantity.as_ref());
        for count in [limit, offset, fetch].into_iter().flatten() {
            self.tell(count, Some(DataType::Int64));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Cast {
                expr, data_type: ast::DataType::Array(ArrayElemTypeDef::SquareBracket(item, None)), ..
            } => {
                match parameter(expr).and_then(place) {
                    // As the catalog keeps them.
                    Some(place) if is_oid(item) => {
                        self.oids.insert(place);
                        self.array_items.insert(place, DataType::Int32);
                    }
                    Some(place) => {
                        if let Ok(item) = crate::spelled::data_type(item) {
                            self.array_items.entry(place).or_insert(item);
                        }
                    }
                    None => {}
                }
            }
            Expr::Cast { expr, data_type, .. } => self.tell(expr, crate::spelled::data_type(data_type).ok()),
            // Such a cast is written as a function.
            Expr::Function(function) => {
                let name = function.name.0.last().and_then(|part| part.as_ident()).map(fold);
                if let (Some(to), FunctionArguments::List(list)) =
                    (name.and_then(|name| type_of_cast(&name)), &function.args)
                    && let [FunctionArg::Unnamed(FunctionArgExpr::Expr(of))] = &list.args[..]
                {
                    self.tell(of, Some(to));
                    if let Expr::Cast { expr: of, data_type: ast::DataType::Array(_), .. } = of
                        && let Some(place) = parameter(of).and_then(place)
                    {
                        self.array_items.insert(place, to);
                    }
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Casts parameters to what the client says they are, where the planner's types have no name for it: `uuid`, `json`,
/// `jsonb`.
pub(super) fn cast_declared(statement: &mut Statement, declared: impl Fn(usize) -> Option<DataType>) {
    each_parameter(statement, |place, expr| {
        if let Some(cast) = declared(place).and_then(name_of_cast) {
            *expr = call(cast, vec![expr.clone()]);
        }
    });
}

/// The types that parameters have to be cast to, since what the planner took for theirs is another. It takes the type
/// of the column beside them, `numeric(10,2)` or `date`, and a value would be made such a one before it is compared.
/// In PostgreSQL a parameter is of the type that the client says, and beside a number a number of any digits.
pub(super) fn meant(
    statement: &Statement,
    found: &[Option<FieldRef>],
    declared: &[Option<DeclaredType>],
) -> Vec<Option<DeclaredType>> {
    let is_other = |place: usize| {
        let declared = declared.get(place).copied().flatten();
        let known = |field: &&FieldRef| !field.data_type().is_null();
        let Some(found) = found.get(place).and_then(Option::as_ref).filter(known) else { return declared };
        let any_digits = DeclaredType::Value(BARE_NUMERIC);
        let is_cut = |of: DataType| matches!(of, DataType::Decimal { .. }) && of != BARE_NUMERIC;
        match (data_type_of(found), item_type(found), declared) {
            (Ok(found), _, Some(DeclaredType::Value(declared))) if is_cut(found) && is_number(declared) => {
                Some(DeclaredType::Value(declared))
            }
            (Ok(found), _, None) if is_cut(found) => Some(any_digits),
            (Ok(found), _, Some(DeclaredType::Value(declared)))
                if differs(found, declared) || is_assigned_to_text(found, declared) =>
            {
                Some(DeclaredType::Value(declared))
            }
            (_, Some(item), None | Some(DeclaredType::Array(_))) if is_cut(item) => {
                Some(DeclaredType::Array(BARE_NUMERIC))
            }
            _ => None,
        }
    };
    let n_places = found.len().max(declared.len());
    let mut meant: Vec<_> = (0..n_places).map(is_other).collect();
    if meant.iter().any(Option::is_some) {
        let is_stored = StoredParameters::of(statement);
        for (place, declared) in meant.iter_mut().enumerate() {
            let found = found.get(place).and_then(Option::as_ref).map(|field| data_type_of(field));
            let keeps = match (&found, &declared) {
                // By the session's time zone.
                (_, Some(DeclaredType::Value(of))) if is_time(*of) => true,
                // Rounded, or written as a text.
                (Some(Ok(found)), Some(DeclaredType::Value(of))) => {
                    (is_integer(*found) && !is_integer(*of)) || is_assigned_to_text(*found, *of)
                }
                (None, _) => true,
                _ => false,
            };
            // Otherwise it becomes what its column is all the same.
            if !keeps && is_stored.is_all(place) {
                *declared = None;
            }
        }
    }
    meant
}

pub(super) fn is_number(of: DataType) -> bool {
    is_integer(of) || matches!(of, DataType::Float32 | DataType::Float64 | DataType::Decimal { .. })
}

fn is_integer(of: DataType) -> bool {
    matches!(of, DataType::Int16 | DataType::Int32 | DataType::Int64)
}

fn is_time(of: DataType) -> bool {
    matches!(of, DataType::Date | DataType::Time | DataType::Timestamp | DataType::TimestampTz | DataType::Interval)
}

/// Whether it is no text where one is wanted: a column of texts takes what is assigned to it, other places refuse it.
pub(super) fn is_assigned_to_text(found: DataType, declared: DataType) -> bool {
    found == DataType::Text && (is_number(declared) || is_time(declared) || declared == DataType::Bool)
}

/// Whether a value of the one type is not the same when it is made one of the other.
fn differs(found: DataType, declared: DataType) -> bool {
    let width = |of| match of {
        DataType::Int16 => 2,
        DataType::Int32 => 4,
        _ => 8,
    };
    match (found, declared) {
        (found, declared) if found == declared => false,
        (found, declared) if is_integer(found) && is_integer(declared) => width(found) < width(declared),
        (DataType::Float32 | DataType::Float64, declared) if is_integer(declared) => false,
        // A number of any digits takes all of them but the largest.
        (DataType::Decimal { .. }, declared) if is_integer(declared) => false,
        (found, declared) if is_number(found) && is_number(declared) => true,
        (found, declared) => {
            (is_time(found) && (is_time(declared) || is_number(declared))) || (is_number(found) && is_time(declared))
        }
    }
}

/// How often parameters are in a statement, and how often of it as the whole value of a column.
#[derive(Default)]
struct StoredParameters {
    n_times: HashMap<usize, usize>,
    n_stored: HashMap<usize, usize>,
}

impl StoredParameters {
    fn of(statement: &Statement) -> StoredParameters {
        let mut stored = StoredParameters::default();
        let _ = walk(statement, &mut stored);
        let assigned: Vec<&ast::Assignment> = match statement {
            Statement::Update(update) => update.assignments.iter().collect(),
            Statement::Insert(insert) => match &insert.on {
                Some(ast::OnInsert::OnConflict(ast::OnConflict {
                    action: ast::OnConflictAction::DoUpdate(change),
                    ..
                })) => change.assignments.iter().collect(),
                _ => vec![],
            },
            _ => vec![],
        };
        let rows = match statement {
            Statement::Insert(insert) => insert.source.as_deref().and_then(|source| match source.body.as_ref() {
                ast::SetExpr::Values(values) => Some(&values.rows),
                _ => None,
            }),
            _ => None,
        };
        let cells = rows.into_iter().flatten().flat_map(|row| &row.content);
        for value in assigned.iter().map(|assignment| &assignment.value).chain(cells) {
            if let Some(place) = parameter(value).and_then(place) {
                *stored.n_stored.entry(place).or_default() += 1;
            }
        }
        stored
    }

    fn is_all(&self, place: usize) -> bool {
        self.n_stored.get(&place).is_some_and(|n_stored| self.n_times.get(&place) == Some(n_stored))
    }
}

impl Visitor for StoredParameters {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let Expr::Value(_) = expr
            && let Some(place) = parameter(expr).and_then(place)
        {
            *self.n_times.entry(place).or_default() += 1;
        }
        ControlFlow::Continue(())
    }
}

/// The statement with a cast of each parameter to the type that the client says it has. `None`: it says it of none that
/// is there.
pub(super) fn with_casts(statement: &Statement, declared: &[Option<DeclaredType>]) -> Option<Statement> {
    let (mut statement, mut is_cast) = (statement.clone(), false);
    each_parameter(&mut statement, |place, expr| {
        let Some(declared) = declared.get(place).copied().flatten() else { return };
        is_cast = true;
        let of = expr.clone();
        *expr = match declared {
            // As many digits as there are.
            DeclaredType::Value(DataType::Decimal { .. }) => {
                cast(of, ast::DataType::Numeric(ast::ExactNumberInfo::None))
            }
            DeclaredType::Value(to) => match name_of_cast(to) {
                Some(cast) => call(cast, vec![of]),
                None => cast(of, sql_type(Some(to))),
            },
            DeclaredType::Array(item) => cast(of, array_type(item)),
        };
    });
    is_cast.then_some(statement)
}

/// Gives each parameter, by its place, to who may write something else there.
fn each_parameter(statement: &mut Statement, change: impl FnMut(usize, &mut Expr)) {
    struct ParameterVisitor<F>(F);
    impl<F: FnMut(usize, &mut Expr)> VisitorMut for ParameterVisitor<F> {
        type Break = ();
        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            let is_value = matches!(expr, Expr::Value(_));
            if let Some(place) = parameter(expr).filter(|_| is_value).and_then(place) {
                (self.0)(place, expr);
            }
            ControlFlow::Continue(())
        }
    }
    let _ = walk_mut(statement, &mut ParameterVisitor(change));
}

fn cast(expr: Expr, data_type: ast::DataType) -> Expr {
    Expr::Cast { kind: ast::CastKind::Cast, expr: Box::new(expr), data_type, array: false, format: None }
}

/// Parameters that nothing is said of but what they are cast to are of that type.
pub(super) fn typed_by_casts(plan: LogicalPlan) -> Result<LogicalPlan> {
    let typed = plan.transform_up_with_subqueries(|node| {
        node.map_expressions(|expr| {
            expr.transform_up(|mut expr| {
                let Planned::Cast(cast) = &mut expr else { return Ok(Transformed::no(expr)) };
                let field = Arc::clone(&cast.field);
                match cast.expr.as_mut() {
                    Planned::Placeholder(parameter) if parameter.field.is_none() => {
                        parameter.field = Some(Arc::new(field.as_ref().clone().with_name("").with_nullable(true)));
                        Ok(Transformed::yes(expr))
                    }
                    _ => Ok(Transformed::no(expr)),
                }
            })
        })
    })?;
    Ok(typed.data)
}

fn is_oid(data_type: &ast::DataType) -> bool {
    match data_type {
        ast::DataType::Custom(name, _) => {
            name.0.last().and_then(|part| part.as_ident()).is_some_and(|n| fold(n) == "oid")
        }
        _ => false,
    }
}

/// A parameter, as it is written.
fn parameter(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => match &value.value {
            ast::Value::Placeholder(name) => Some(name),
            _ => None,
        },
        Expr::Nested(inner) => parameter(inner),
        _ => None,
    }
}

/// `$1` is 0; there is no `$0`.
fn place(parameter: &str) -> Option<usize> {
    parameter.strip_prefix('$')?.parse::<usize>().ok()?.checked_sub(1)
}

/// Parameters as the client is told them: those that the planner knows no type of as the statement says, and a `uuid`,
/// `json` or `jsonb`, which is a text to the planner, as what it is, also as the item of an array.
pub(super) fn described(
    mut parameters: Vec<Option<FieldRef>>,
    statement: &Statement,
    plan: &LogicalPlan,
) -> Result<Vec<Option<FieldRef>>> {
    if parameters.is_empty() {
        return Ok(parameters);
    }
    let ParameterTypes { types, array_items, oids } = ParameterTypes::of(statement).beside(plan)?;
    for (place, data_type) in types {
        let Some(field) = parameters.get_mut(place) else { continue };
        let told = arrow_field("", &data_type, true);
        match (field.as_ref(), data_type) {
            // Others are read of a text by their cast, which takes more of them than a parameter does.
            (None, DataType::Uuid | DataType::Json | DataType::Jsonb | DataType::Int64) => {
                *field = Some(Arc::new(told))
            }
            (Some(text), DataType::Uuid | DataType::Json | DataType::Jsonb) => {
                *field = Some(Arc::new(told.with_data_type(text.data_type().clone())));
            }
            _ => {}
        }
    }
    for (place, item) in array_items {
        if let Some(Some(field)) = parameters.get_mut(place)
            && let ArrowType::List(list) = field.data_type()
            && (matches!(item, DataType::Uuid | DataType::Json | DataType::Jsonb) || oids.contains(&place))
        {
            let mut item = arrow_field(list.name(), &item, true).with_data_type(list.data_type().clone());
            if oids.contains(&place) {
                item = item.with_metadata([(PG_OID_ALIAS_KEY.to_owned(), "oid".to_owned())].into());
            }
            let of = field.as_ref().clone().with_data_type(ArrowType::List(Arc::new(item)));
            *field = Arc::new(of);
        }
    }
    Ok(parameters)
}

/// What an array is of, if tables have values of that.
pub fn item_type(array: &Field) -> Option<DataType> {
    match array.data_type() {
        ArrowType::List(item) | ArrowType::LargeList(item) => data_type_of(item).ok(),
        _ => None,
    }
}

/// An array of such items.
pub(super) fn array_type(item: DataType) -> ast::DataType {
    ast::DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(sql_type(Some(item))), None))
}

pub(super) fn sql_type(data_type: Option<DataType>) -> ast::DataType {
    use ast::{ExactNumberInfo, TimezoneInfo};
    match data_type {
        Some(DataType::Bool) => ast::DataType::Boolean,
        Some(DataType::Int16) => ast::DataType::SmallInt(None),
        Some(DataType::Int32) => ast::DataType::Integer(None),
        Some(DataType::Int64) => ast::DataType::BigInt(None),
        Some(DataType::Float32) => ast::DataType::Real,
        Some(DataType::Float64) => ast::DataType::DoublePrecision,
        Some(DataType::Decimal { precision, scale }) => {
            ast::DataType::Numeric(ExactNumberInfo::PrecisionAndScale(precision.into(), scale.into()))
        }
        Some(DataType::Bytes) => ast::DataType::Bytea,
        Some(DataType::Date) => ast::DataType::Date,
        Some(DataType::Time) => ast::DataType::Time(None, TimezoneInfo::None),
        Some(DataType::Timestamp) => ast::DataType::Timestamp(None, TimezoneInfo::None),
        Some(DataType::TimestampTz) => ast::DataType::Timestamp(None, TimezoneInfo::WithTimeZone),
        Some(DataType::Interval) => ast::DataType::Interval { fields: None, precision: None },
        Some(DataType::Inet) => inet(),
        Some(DataType::Array(item)) => array_type(item.data_type()),
        Some(DataType::Text | DataType::Uuid | DataType::Json | DataType::Jsonb) | None => ast::DataType::Text,
    }
}
