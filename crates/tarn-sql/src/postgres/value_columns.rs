//! Of which type is a column of `VALUES (1.5::float8), (2.5)`? A `double precision`, as a column of a UNION. DataFusion
//! takes it for a `numeric`. And of `VALUES ('sad'::mood), ('ok')`? Of `mood`: what is written out in other rows is
//! cast as it is in one, if that is a type with a name of its own.

use tarn_query::sqlparser::ast::{CastKind, DataType, Expr, UnaryOperator, Value, Values};

use super::calls::take;

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
