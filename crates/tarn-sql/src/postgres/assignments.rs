//! What may be put into a column without a cast that is written? `INSERT INTO t (n) SELECT true` is 42804 in
//! PostgreSQL: of a type's casts those count that `pg_cast` calls assignments. The planner casts whatever can be cast.
//!
//! What an `INSERT` of a query gives has its type in the plan, below the casts. Values that are written out, and those
//! of `SET`, the planner casts where they stand, and a cast that was written looks the same: so before that they become
//! arguments of a call, which tells their type, and the call is taken out again. A constant of no type yet (`'7'`,
//! NULL, `$1`) is what the column is, and stays as it is.

use std::collections::{HashMap, HashSet};
use std::mem::discriminant;
use std::sync::Arc;

use arrow::datatypes::{DataType as ArrowType, Field, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{DFSchema, exec_err};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{
    ColumnarValue, Distinct, Expr, ExprSchemable, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use tarn_query::keyed::is_default;
use tarn_query::sqlparser::ast::{
    self, Assignment, AssignmentTarget, Insert, ObjectName, OnConflict, OnConflictAction, OnInsert, SetExpr, Statement,
    UnaryOperator, Update, Value,
};
use tarn_query::{datafusion, each_expression};
use tarn_types::{DataType, Enumerated, TableSchema, data_type_of};

use super::calls::{call, number, take};
use super::common_types::{Strictness, is_written};
use crate::error::{Result, SqlError, state};
use crate::names::fold;
use crate::rows::{long_name, pg_type};

/// The call of a value and the place of its column.
const PUT: &str = "tarn_put";

/// As [`PUT`], of no type: the planner casts it to anything, so that the type of what it cannot cast is known.
const PUT_ANYHOW: &str = "tarn_put_anyhow";

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    [true, false].map(|is_typed| Arc::new(AssignmentCast::function(is_typed))).to_vec()
}

/// How values are marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AssignmentMark {
    /// A mark has the type of its value.
    Typed,
    /// A mark has no type: for a statement whose values the planner could not cast, to tell why.
    Untyped,
}

impl AssignmentMark {
    fn name(self) -> &'static str {
        match self {
            AssignmentMark::Typed => PUT,
            AssignmentMark::Untyped => PUT_ANYHOW,
        }
    }
}

/// Whether a value of this type is put into a column as PostgreSQL does it, without a cast that is written.
pub(crate) fn is_assigned(of: &Field, to: DataType) -> bool {
    use DataType::{
        Array, Bool, Bytes, Date, Decimal, Float32, Float64, Inet, Int16, Int32, Int64, Interval, Json, Jsonb, Text,
        Time, Timestamp, TimestampTz, Uuid,
    };
    let found = data_type_of(of).ok().or(match of.data_type() {
        ArrowType::Timestamp(_, None) => Some(Timestamp),
        ArrowType::Timestamp(_, Some(_)) => Some(TimestampTz),
        ArrowType::Time64(_) | ArrowType::Time32(_) => Some(Time),
        ArrowType::Duration(_) => Some(Interval),
        _ => None,
    });
    let is_number = |of| matches!(of, Int16 | Int32 | Int64 | Float32 | Float64 | Decimal { .. });
    let is_put = |found, to| match (found, to) {
        // A text takes everything that can be written.
        (_, Text) => true,
        (found, want) if is_number(found) => is_number(want),
        (Date | Timestamp | TimestampTz, Date | Timestamp | TimestampTz) => true,
        (Timestamp | TimestampTz, Time) => true,
        (Bool, Bool) | (Bytes, Bytes) | (Time, Time) | (Uuid, Uuid) | (Interval, Interval) | (Inet, Inet) => true,
        (Time, Interval) | (Interval, Time) => true,
        (Json | Jsonb, Json | Jsonb) => true,
        _ => false,
    };
    of.data_type().is_null()
        || found.is_some_and(|found| match (found, to) {
            (Array(found), Array(want)) => is_put(found.data_type(), want.data_type()),
            (found, want) => is_put(found, want),
        })
}

/// The statement with its values marked, which [`checked`] takes out of its plan. `None`: it writes none out that could
/// be of a wrong type.
pub(crate) fn marked(statement: &Statement, table: &TableSchema, marks: AssignmentMark) -> Option<Statement> {
    let change = match statement {
        Statement::Insert(insert) => changes_on_conflict(insert),
        _ => None,
    };
    let in_values = matches!(statement, Statement::Insert(insert) if has_odd_values(insert, table));
    let in_change = change.is_some_and(|change| has_odd(change, table, KeyAssignment::Left));
    let in_set =
        matches!(statement, Statement::Update(update) if has_odd(&update.assignments, table, KeyAssignment::Marked));
    if !in_values && !in_change && !in_set {
        return None;
    }
    let mut statement = statement.clone();
    match &mut statement {
        Statement::Insert(insert) => {
            mark_values(insert, table, marks);
            if let Some(OnInsert::OnConflict(OnConflict { action: OnConflictAction::DoUpdate(change), .. })) =
                &mut insert.on
            {
                mark_all(&mut change.assignments, table, KeyAssignment::Left, marks);
            }
        }
        Statement::Update(Update { assignments, .. }) => mark_all(assignments, table, KeyAssignment::Marked, marks),
        _ => {}
    }
    Some(statement)
}

/// As [`marked`], of the assignments of a clause of MERGE.
pub(crate) fn marked_assignments(assignments: &mut [Assignment], table: &TableSchema) {
    mark_all(assignments, table, KeyAssignment::Marked, AssignmentMark::Typed);
}

/// What becomes of values of key columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyAssignment {
    Marked,
    /// `SET id = excluded.id` is read as it is written.
    Left,
}

fn changes_on_conflict(insert: &Insert) -> Option<&[Assignment]> {
    match &insert.on {
        Some(OnInsert::OnConflict(OnConflict { action: OnConflictAction::DoUpdate(change), .. })) => {
            Some(&change.assignments)
        }
        _ => None,
    }
}

/// Whether what is written could be of a type that the column does not take.
fn is_odd(value: &ast::Expr, column: DataType) -> bool {
    let is_number = matches!(
        column,
        DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Float32
            | DataType::Float64
            | DataType::Decimal { .. }
    );
    match value {
        ast::Expr::Nested(value) => is_odd(value, column),
        ast::Expr::Value(value) => match value.value {
            // A text takes both.
            Value::Number(..) => !is_number && column != DataType::Text,
            Value::Boolean(_) => !matches!(column, DataType::Bool | DataType::Text),
            _ => false,
        },
        ast::Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr } => {
            !matches!(expr.as_ref(), ast::Expr::Value(of) if matches!(of.value, Value::Number(..))) || !is_number
        }
        value => !is_default(value),
    }
}

/// The place of a column that is named, and its type.
fn column_of(name: &ObjectName, table: &TableSchema) -> Option<(usize, DataType)> {
    let name = name.0.last().and_then(|part| part.as_ident()).map(fold)?;
    table.shown().iter().position(|column| column.name == name).map(|at| (at, table.columns[at].data_type))
}

/// The columns that the values of an INSERT are for.
fn columns_given(insert: &Insert, table: &TableSchema) -> Vec<Option<(usize, DataType)>> {
    match insert.columns.as_slice() {
        [] => table.shown().iter().enumerate().map(|(at, column)| Some((at, column.data_type))).collect(),
        named => named.iter().map(|name| column_of(name, table)).collect(),
    }
}

/// Whether each parameter that is stored as it is, and of which `is_told` does not know the type, has one type.
///
/// Errors: `42P08` for one that columns of two types are given in one row.
pub(crate) fn check_parameters(
    statement: &Statement,
    table: &TableSchema,
    is_told: impl Fn(&str) -> bool,
) -> Result<()> {
    let rows: Vec<Vec<(&str, DataType)>> = match statement {
        Statement::Insert(insert) => {
            let Some(SetExpr::Values(values)) = insert.source.as_ref().map(|source| source.body.as_ref()) else {
                return Ok(());
            };
            let columns = columns_given(insert, table);
            let rows = values.rows.iter().map(|row| {
                let cells = row.content.iter().zip(&columns);
                cells.filter_map(|(value, column)| Some((parameter(value)?, column.as_ref()?.1))).collect()
            });
            rows.collect()
        }
        Statement::Update(update) => {
            let set = update.assignments.iter().flat_map(pairs);
            vec![set.filter_map(|(name, value)| Some((parameter(value)?, column_of(name, table)?.1))).collect()]
        }
        _ => return Ok(()),
    };
    // Of a parameter that an earlier row has, the type is known.
    let mut known: HashSet<&str> = HashSet::new();
    for row in rows {
        let mut types: HashMap<&str, DataType> = HashMap::new();
        for (name, of) in row {
            let first = *types.entry(name).or_insert(of);
            // Of numbers with other digits, the digits are each column's own.
            if discriminant(&first) != discriminant(&of) && !known.contains(name) && !is_told(name) {
                let message = format!("inconsistent types deduced for parameter {name}");
                return Err(SqlError::new(state::AMBIGUOUS_PARAMETER, message)
                    .with_hint(format!("say its type where it stands, as in {name}::text")));
            }
        }
        known.extend(types.into_keys());
    }
    Ok(())
}

fn parameter(value: &ast::Expr) -> Option<&str> {
    match value {
        ast::Expr::Nested(value) => parameter(value),
        ast::Expr::Value(value) => match &value.value {
            Value::Placeholder(name) => Some(name.as_str()),
            _ => None,
        },
        _ => None,
    }
}

fn has_odd_values(insert: &Insert, table: &TableSchema) -> bool {
    let Some(SetExpr::Values(values)) = insert.source.as_ref().map(|source| source.body.as_ref()) else { return false };
    let columns = columns_given(insert, table);
    let mut cells = values.rows.iter().flat_map(|row| row.content.iter().zip(&columns));
    cells.any(|(value, column)| column.is_some_and(|(_, of)| is_odd(value, of)))
}

fn mark_values(insert: &mut Insert, table: &TableSchema, marks: AssignmentMark) {
    let columns = columns_given(insert, table);
    let Some(SetExpr::Values(values)) = insert.source.as_mut().map(|source| source.body.as_mut()) else { return };
    for (value, column) in values.rows.iter_mut().flat_map(|row| row.content.iter_mut().zip(&columns)) {
        if let Some((at, of)) = column {
            mark(value, *at, *of, marks);
        }
    }
}

fn mark(value: &mut ast::Expr, at: usize, of: DataType, marks: AssignmentMark) {
    if is_odd(value, of) {
        *value = call(marks.name(), vec![take(value), number(at as u64)]);
    }
}

/// Each column that an assignment names, with its value. Of several by one value, none.
fn pairs(assignment: &Assignment) -> Vec<(&ObjectName, &ast::Expr)> {
    match (&assignment.target, &assignment.value) {
        (AssignmentTarget::ColumnName(name), value) => vec![(name, value)],
        (AssignmentTarget::Tuple(names), ast::Expr::Tuple(values)) => names.iter().zip(values).collect(),
        (AssignmentTarget::Tuple(names), value) => names.iter().zip([value]).filter(|_| names.len() == 1).collect(),
    }
}

fn is_marked(column: (usize, DataType), table: &TableSchema, keys: KeyAssignment) -> bool {
    keys == KeyAssignment::Marked || !table.is_key(column.0)
}

fn has_odd(assignments: &[Assignment], table: &TableSchema, keys: KeyAssignment) -> bool {
    assignments
        .iter()
        .flat_map(pairs)
        .any(|(name, value)| column_of(name, table).is_some_and(|of| is_marked(of, table, keys) && is_odd(value, of.1)))
}

fn mark_all(assignments: &mut [Assignment], table: &TableSchema, keys: KeyAssignment, marks: AssignmentMark) {
    let mark = |name: &ObjectName, value: &mut ast::Expr| {
        if let Some(of) = column_of(name, table).filter(|of| is_marked(*of, table, keys)) {
            mark(value, of.0, of.1, marks);
        }
    };
    for Assignment { target, value } in assignments {
        match (&*target, value) {
            (AssignmentTarget::ColumnName(name), value) => mark(name, value),
            (AssignmentTarget::Tuple(names), ast::Expr::Tuple(values)) => {
                names.iter().zip(values).for_each(|(name, value)| mark(name, value));
            }
            (AssignmentTarget::Tuple(names), value) => {
                if let [name] = names.as_slice() {
                    mark(name, value);
                }
            }
        }
    }
}

/// The plan without the marks of [`marked`].
///
/// Errors: `42804` for a value that its column does not take.
pub(crate) fn checked(plan: LogicalPlan, table: &TableSchema) -> Result<LogicalPlan> {
    let told = TypeKnowledge::of(&plan)?;
    let plan = each_expression(plan, |expr, schema| match expr {
        Expr::ScalarFunction(mut call) if matches!(call.func.name(), PUT | PUT_ANYHOW) => {
            let at = place(call.args.get(1), table)?;
            let value = call.args.swap_remove(0);
            check(field_of(&value, schema)?.as_ref(), table, at, told)?;
            Ok(Transformed::yes(value))
        }
        expr => Ok(Transformed::no(expr)),
    });
    Ok(plan?)
}

/// The field of a value. Integers that are written out alone have had no type until now.
fn field_of(value: &Expr, schema: &DFSchema) -> PlanResult<FieldRef> {
    match value {
        Expr::Literal(ScalarValue::Int64(Some(number)), _) if i32::try_from(*number).is_ok() => {
            Ok(Arc::new(Field::new("", ArrowType::Int32, false)))
        }
        value => Ok(value.to_field(schema)?.1),
    }
}

fn place(expr: Option<&Expr>, table: &TableSchema) -> PlanResult<usize> {
    let place = match expr {
        Some(Expr::Literal(ScalarValue::Int32(Some(at)), _)) => usize::try_from(*at).ok(),
        Some(Expr::Literal(ScalarValue::Int64(Some(at)), _)) => usize::try_from(*at).ok(),
        _ => None,
    };
    // Whoever writes the call in a statement may write anything.
    let place = place.filter(|at| *at < table.shown().len());
    place.map_or_else(|| exec_err!("{PUT} takes the place of a column"), Ok)
}

/// Whether a table takes what a query gives it: the rows of an INSERT as they are planned, the columns that it leaves
/// out among them.
///
/// Errors: `42804` for a column that does not.
pub(crate) fn check_rows(rows: &LogicalPlan, table: &TableSchema) -> Result<()> {
    let LogicalPlan::Projection(list) = rows else { return Ok(()) };
    let told = TypeKnowledge::of(rows)?;
    for (at, expr) in list.expr.iter().enumerate().take(table.shown().len()) {
        // A column that is given is one of the query, whatever it is cast to.
        let Some(given) = expr.column_refs().into_iter().next() else { continue };
        let Some(from) = list.input.schema().maybe_index_of_column(given) else { continue };
        if !is_constant(&list.input, from) {
            check(list.input.schema().field(from), table, at, told)?;
        }
    }
    Ok(())
}

/// As [`check_rows`], of a query that is planned by itself, and the places that its columns are for.
pub(crate) fn check_query(query: &LogicalPlan, insert: &Insert, table: &TableSchema) -> Result<()> {
    let (columns, told) = (columns_given(insert, table), TypeKnowledge::of(query)?);
    for (from, (field, column)) in query.schema().fields().iter().zip(columns).enumerate() {
        if let Some((at, _)) = column.filter(|_| !is_constant(query, from)) {
            check(field, table, at, told)?;
        }
    }
    Ok(())
}

/// What the fields of a plan tell of PostgreSQL's types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TypeKnowledge {
    All,
    /// The planner's types alone: items of an array that become rows are texts there, and not told to be `uuid`s.
    OfPlanner,
    /// Columns of the catalog have not all the types that PostgreSQL's have.
    Nothing,
}

impl TypeKnowledge {
    fn of(plan: &LogicalPlan) -> PlanResult<TypeKnowledge> {
        if Strictness::of(plan)? == Strictness::Lenient {
            return Ok(TypeKnowledge::Nothing);
        }
        let mut told = TypeKnowledge::All;
        plan.apply_with_subqueries(|node| match node {
            LogicalPlan::Unnest(_) => {
                told = TypeKnowledge::OfPlanner;
                Ok(TreeNodeRecursion::Stop)
            }
            _ => Ok(TreeNodeRecursion::Continue),
        })?;
        Ok(told)
    }
}

/// Whether a column of a query is a constant that has no type yet.
fn is_constant(plan: &LogicalPlan, at: usize) -> bool {
    let of = |expr: Option<&Expr>, input: &LogicalPlan| match expr.map(|expr| expr.clone().unalias()) {
        Some(Expr::Column(column)) => {
            input.schema().maybe_index_of_column(&column).is_some_and(|at| is_constant(input, at))
        }
        Some(expr) => is_written(&expr),
        None => false,
    };
    match plan {
        LogicalPlan::Projection(list) => of(list.expr.get(at), &list.input),
        LogicalPlan::Distinct(Distinct::On(on)) => of(on.select_expr.get(at), &on.input),
        LogicalPlan::Unnest(unnest) => {
            unnest.dependency_indices.get(at).is_some_and(|at| is_constant(&unnest.input, *at))
        }
        LogicalPlan::Sort(_) | LogicalPlan::Limit(_) | LogicalPlan::Filter(_) | LogicalPlan::SubqueryAlias(_) => {
            plan.inputs().first().is_some_and(|input| is_constant(input, at))
        }
        _ => false,
    }
}

/// Errors: `42804`, in PostgreSQL's words.
fn check(of: &Field, table: &TableSchema, at: usize, told: TypeKnowledge) -> Result<()> {
    if told == TypeKnowledge::Nothing || is_taken(of, table, at, told) {
        return Ok(());
    }
    let called = |field: &Field| pg_type(field).map_or_else(|_| field.data_type().to_string(), |of| long_name(&of));
    let (want, found) = (called(&table.field(at)), called(of));
    let message = format!("column \"{}\" is of type {want} but expression is of type {found}", table.columns[at].name);
    Err(SqlError::new(state::DATATYPE_MISMATCH, message).with_hint("You will need to rewrite or cast the expression."))
}

fn is_taken(of: &Field, table: &TableSchema, at: usize, told: TypeKnowledge) -> bool {
    let to = table.columns[at].data_type;
    let is_kept_as_text = |of| matches!(of, DataType::Uuid | DataType::Json | DataType::Jsonb);
    let is_marked = is_kept_as_text(to) || table.enumerated(at).is_some();
    match of.data_type() {
        found if told == TypeKnowledge::OfPlanner && is_marked && found.is_string() => return true,
        // `ids || ids` of `uuid`s is an array of texts.
        ArrowType::List(item) if to.item().is_some_and(is_kept_as_text) && item.data_type().is_string() => return true,
        _ => {}
    }
    if let Some(labels) = table.enumerated(at).filter(|_| to == DataType::Text) {
        return of.data_type().is_null() || Enumerated::of(of).is_some_and(|(id, _)| id == labels.id);
    }
    match of.data_type() {
        _ if to == DataType::Text || is_assigned(of, to) => true,
        // PostgreSQL takes it; here it is refused where it is cast.
        ArrowType::Interval(_) | ArrowType::Duration(_) => to == DataType::Time,
        // Of more digits than a column has: they are counted when there are values.
        found if found.is_numeric() && data_type_of(of).is_err() => {
            is_assigned(&Field::new("", ArrowType::Float64, true), to)
        }
        // Nothing is said of the items yet.
        ArrowType::List(item) if item.data_type().is_null() => to.item().is_some(),
        // What no column keeps is told where the values are.
        _ => data_type_of(of).is_err(),
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct AssignmentCast {
    is_typed: bool,
    signature: Signature,
}

impl AssignmentCast {
    fn function(is_typed: bool) -> ScalarUDF {
        AssignmentCast { is_typed, signature: Signature::any(2, Volatility::Immutable) }.into()
    }
}

impl ScalarUDFImpl for AssignmentCast {
    fn name(&self) -> &str {
        if self.is_typed { PUT } else { PUT_ANYHOW }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[ArrowType]) -> PlanResult<ArrowType> {
        Ok(if self.is_typed { types[0].clone() } else { ArrowType::Null })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> PlanResult<FieldRef> {
        Ok(match self.is_typed {
            true => Arc::clone(&args.arg_fields[0]),
            false => Arc::new(Field::new(PUT_ANYHOW, ArrowType::Null, true)),
        })
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        exec_err!("{} is taken out of a plan before that runs", self.name())
    }
}
