//! Of which type is a column of `VALUES (1.5::float8), (2.5)`? A `double precision`, as a column of a UNION. DataFusion
//! takes it for a `numeric`. And of `VALUES ('sad'::mood), ('ok')`? Of `mood`: what is written out in other rows is
//! cast as it is in one, if that is a type with a name of its own. `VALUES (date '2024-01-01'), ('2024-02-01')` are
//! dates, `VALUES (now()), (date '2024-01-01')` instants, where it can be told from how they are written: the planner
//! knows no type of a text beside these.

use tarn_query::has_query;
use tarn_query::parser::MAX_QUERIES;
use tarn_query::sqlparser::ast::{
    ArrayElemTypeDef, BinaryOperator, CastKind, DataType, ExactNumberInfo, Expr, Function, Ident, OrderBy, OrderByKind,
    Query, SelectItem, SetExpr, SetOperator, SetQuantifier, TableAlias, TimezoneInfo, UnaryOperator, Value, Values,
};

use super::calls::{is_named, number, take};
use super::in_from::{over, query_of};
use super::inner_order::{PLACE, by};
use crate::error::{Result, SqlError, state};

/// Numbers of a column that is cast to floats in another row, and texts of one that is cast to a type that somebody
/// made, or has an interval in another row.
pub(super) fn widen(values: &mut Values) {
    let n_columns = values.rows.first().map_or(0, |row| row.content.len());
    for at in 0..n_columns {
        let column = || values.rows.iter().filter_map(|row| row.content.get(at));
        let made = column().filter_map(cast_to).find(|of| is_made(of)).cloned();
        let interval = || column().any(is_interval).then_some(DataType::Interval { fields: None, precision: None });
        if let Some(to) = made.or_else(interval) {
            let values = values.rows.iter_mut().filter_map(|row| row.content.get_mut(at));
            values.filter(|value| is_open(value)).for_each(|value| cast(value, &to));
            continue;
        }
        let has = |is: fn(&DataType) -> bool| column().any(|expr| cast_to(expr).is_some_and(is));
        let to = match () {
            () if has(is_double) => DataType::DoublePrecision,
            () if has(is_real) => DataType::Real,
            () => continue,
        };
        for value in values.rows.iter_mut().filter_map(|row| row.content.get_mut(at)) {
            if is_number(value) || cast_to(value).is_some_and(is_exact) {
                cast(value, &to);
            }
        }
    }
}

/// `VALUES (1, (SELECT …)), (3, 4)` is `SELECT 1, (SELECT …) UNION ALL SELECT 3, 4`: the planner computes rows of
/// `VALUES` one by one, and has no subqueries in them. Those of INSERT are its own (`tarn_query`, `inserted_query.rs`).
/// Rows that nothing else orders stay in their order, by a number beside them.
///
/// Errors: `54000` for more rows than queries that a UNION may have.
pub(super) fn as_selects(query: &mut Query) -> Result<()> {
    let n_columns = match query.body.as_ref() {
        SetExpr::Values(values) if query.order_by.is_none() => values.rows.first().map_or(0, |row| row.content.len()),
        _ => return as_union(&mut query.body, false).map(drop),
    };
    if !as_union(&mut query.body, true)? {
        return Ok(());
    }
    let Some(mut read) = query_of(vec![]) else { return Ok(()) };
    std::mem::swap(&mut read.body, &mut query.body);
    let items = (0..n_columns).map(|at| SelectItem::UnnamedExpr(Expr::Identifier(column_named(at)))).collect();
    over(&mut read, items, TableAlias { explicit: true, name: Ident::new(ROWS), columns: vec![], at: None });
    query.body = read.body;
    let kind = OrderByKind::Expressions(vec![by(Expr::Identifier(place()))]);
    query.order_by = Some(OrderBy { kind, interpolate: None });
    Ok(())
}

/// What such rows are called where they are read in their order.
const ROWS: &str = "tarn_rows";

/// As `VALUES` calls its columns.
fn column_named(at: usize) -> Ident {
    Ident::new(format!("column{}", at + 1))
}

/// The number of a row.
fn place() -> Ident {
    Ident::with_quote('"', PLACE)
}

/// Writes rows with subqueries as a UNION, those below set operations, too. Whether its rows are numbered.
fn as_union(body: &mut SetExpr, is_numbered: bool) -> Result<bool> {
    let values = match body {
        SetExpr::SetOperation { left, right, .. } => {
            as_union(left, false)?;
            as_union(right, false)?;
            return Ok(false);
        }
        SetExpr::Values(values) => values,
        _ => return Ok(false),
    };
    let n_columns = values.rows.first().map_or(0, |row| row.content.len());
    let asks = values.rows.iter().flat_map(|row| &row.content).any(has_query);
    if !asks || values.rows.iter().any(|row| row.content.len() != n_columns) {
        return Ok(false);
    }
    if values.rows.len() > MAX_QUERIES {
        let message = format!("VALUES has more than {MAX_QUERIES} rows, and subqueries in them");
        return Err(SqlError::new(state::PROGRAM_LIMIT, message).with_hint("INSERT the rows into a table first"));
    }
    let is_numbered = is_numbered && values.rows.len() > 1;
    let mut selects = Vec::with_capacity(values.rows.len());
    for (at, row) in std::mem::take(&mut values.rows).into_iter().enumerate() {
        let columns = row.content.into_iter().enumerate();
        let columns = columns.map(|(at, expr)| SelectItem::ExprWithAlias { expr, alias: column_named(at) });
        let numbered = is_numbered.then(|| SelectItem::ExprWithAlias { expr: number(at as u64), alias: place() });
        selects.extend(query_of(columns.chain(numbered).collect()).map(|query| *query.body));
    }
    if let Some(all) = union_all(selects) {
        *body = all;
    }
    Ok(is_numbered)
}

/// A balanced tree: a chain would be as deep as it is long.
fn union_all(mut queries: Vec<SetExpr>) -> Option<SetExpr> {
    if queries.len() < 2 {
        return queries.pop();
    }
    let behind = queries.split_off(queries.len() / 2);
    let (left, right) = (Box::new(union_all(queries)?), Box::new(union_all(behind)?));
    Some(SetExpr::SetOperation { op: SetOperator::Union, set_quantifier: SetQuantifier::All, left, right })
}

/// Texts of a column that has a date, a time, a truth, bytes, an array or a number with a point in another row, and
/// dates beside times. Not of the rows of INSERT: each of their values is of its column's type.
pub(super) fn type_texts(values: &mut Values) {
    let n_columns = values.rows.first().map_or(0, |row| row.content.len());
    for at in 0..n_columns {
        let column = || values.rows.iter().filter_map(|row| row.content.get(at));
        let has_texts = column().any(|value| is_open(value) && !is_null(value));
        let mut types = column().filter_map(type_of);
        let Some(first) = types.next() else { continue };
        let Some(to) = types.try_fold(first, together) else { continue };
        if !has_texts && moment(&to).is_none() {
            continue;
        }
        let is_other = |value: &Expr| match type_of(value) {
            Some(of) => of != to,
            None => is_open(value) && !is_null(value),
        };
        let values = values.rows.iter_mut().filter_map(|row| row.content.get_mut(at));
        values.filter(|value| is_other(value)).for_each(|value| cast(value, &to));
    }
}

/// The type of two values. `None`: there is none, which others tell.
fn together(one: DataType, other: DataType) -> Option<DataType> {
    match (moment(&one), moment(&other)) {
        (Some(one_as), Some(other_as)) => Some(if other_as > one_as { other } else { one }),
        _ => (one == other).then_some(one),
    }
}

/// Which of dates and times becomes which.
fn moment(of: &DataType) -> Option<u8> {
    match of {
        DataType::Date => Some(0),
        DataType::Timestamp(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => Some(1),
        DataType::Timestamp(..) => Some(2),
        _ => None,
    }
}

/// The type of a value beside which a text is one of it, where that can be told from how it is written.
fn type_of(value: &Expr) -> Option<DataType> {
    const INSTANT: DataType = DataType::Timestamp(None, TimezoneInfo::Tz);
    match value {
        Expr::Nested(inner) => type_of(inner),
        Expr::Cast { data_type, .. } => is_told(data_type).then(|| data_type.clone()),
        Expr::TypedString(typed) => is_told(&typed.data_type).then(|| typed.data_type.clone()),
        Expr::Value(value) => match &value.value {
            Value::Boolean(_) => Some(DataType::Boolean),
            Value::Number(digits, _) if digits.contains(['.', 'e', 'E']) => {
                Some(DataType::Numeric(ExactNumberInfo::None))
            }
            _ => None,
        },
        Expr::Array(array) => {
            let is_whole = |item: &Expr| {
                matches!(item, Expr::Value(value)
                    if matches!(&value.value, Value::Number(digits, _) if digits.parse::<i32>().is_ok()))
            };
            let item = match array.elem.first()? {
                _ if array.elem.iter().all(is_whole) => DataType::Integer(None),
                _ if array.elem.iter().all(is_open) => DataType::Text,
                first => type_of(first)?,
            };
            Some(DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(item), None)))
        }
        Expr::Function(Function { name, .. }) => {
            let is_one_of = |names: &[&str]| names.iter().any(|of| is_named(name, of));
            match () {
                () if is_one_of(&["current_date", "make_date", "to_date"]) => Some(DataType::Date),
                () if is_one_of(&["localtimestamp", "make_timestamp"]) => {
                    Some(DataType::Timestamp(None, TimezoneInfo::None))
                }
                () if is_one_of(&INSTANTS) => Some(INSTANT),
                () => None,
            }
        }
        Expr::BinaryOp { left, op: BinaryOperator::Plus | BinaryOperator::Minus, right } => {
            match (type_of(left)?, right.as_ref()) {
                (DataType::Date, by) if is_number(by) => Some(DataType::Date),
                (DataType::Date, by) if is_interval(by) => Some(DataType::Timestamp(None, TimezoneInfo::None)),
                (of @ DataType::Timestamp(..), by) if is_interval(by) => Some(of),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Functions that answer an instant.
const INSTANTS: [&str; 7] = [
    "clock_timestamp",
    "current_timestamp",
    "make_timestamptz",
    "now",
    "statement_timestamp",
    "to_timestamp",
    "transaction_timestamp",
];

fn is_told(of: &DataType) -> bool {
    use DataType::{Array, Bool, Boolean, Bytea, Date, Time, Timestamp};
    matches!(of, Array(_) | Bool | Boolean | Bytea | Date | Time(..) | Timestamp(..))
}

fn is_null(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_null(inner),
        Expr::Value(value) => matches!(value.value, Value::Null),
        _ => false,
    }
}

fn cast(value: &mut Expr, to: &DataType) {
    let (of, data_type) = (take(value), to.clone());
    *value = Expr::Cast { kind: CastKind::Cast, expr: Box::new(of), data_type, array: false, format: None };
}

fn is_made(of: &DataType) -> bool {
    matches!(of, DataType::Custom(_, modifiers) if modifiers.is_empty())
}

/// A text that is written out, NULL, or a parameter.
fn is_open(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_open(inner),
        Expr::Value(value) => {
            matches!(
                value.value,
                Value::SingleQuotedString(_) | Value::EscapedStringLiteral(_) | Value::Null | Value::Placeholder(_)
            )
        }
        _ => false,
    }
}

fn cast_to(expr: &Expr) -> Option<&DataType> {
    match expr {
        Expr::Nested(inner) => cast_to(inner),
        Expr::Cast { data_type, .. } => Some(data_type),
        Expr::TypedString(typed) => Some(&typed.data_type),
        _ => None,
    }
}

fn is_interval(of: &Expr) -> bool {
    match of {
        Expr::Nested(inner) => is_interval(inner),
        Expr::Interval(_) => true,
        of => matches!(cast_to(of), Some(DataType::Interval { .. })),
    }
}

fn is_double(of: &DataType) -> bool {
    matches!(of, DataType::DoublePrecision | DataType::Float8)
}

fn is_real(of: &DataType) -> bool {
    matches!(of, DataType::Real | DataType::Float4)
}

fn is_exact(of: &DataType) -> bool {
    matches!(of, DataType::Numeric(_) | DataType::Decimal(_))
}

/// A number that is written out.
fn is_number(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_number(inner),
        Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr } => is_number(expr),
        Expr::Value(value) => matches!(value.value, Value::Number(..)),
        _ => false,
    }
}
