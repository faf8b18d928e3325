//! What is `row_to_json(q)` where `q` is a subquery? JSON of all its columns: `SELECT json_agg(q) FROM (SELECT a, b FROM t) q` is how documents are made
//! of rows. The planner knows `q` as a table alone.
//!
//! Where a SELECT reads one subquery, whose columns are named in its list, `to_json`, `row_to_json`, `to_jsonb`, `json_agg` and `jsonb_agg` of its name
//! are those of a row that is written out, `tarn_json_row('a', q.a, 'b', q.b)`. Elsewhere the columns are not known before the statement is planned.

use tarn_query::sqlparser::ast::{
    DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Query, Select, SelectItem,
    SetExpr, TableFactor, TableWithJoins, Value,
};

use super::calls::{call, each_outside_queries};
use super::json::ROW_OF;
use crate::names::fold;
use crate::shown::shown_name;

/// Functions of a row, and whether they give `jsonb`.
const OF_ROWS: [(&str, bool); 5] =
    [("to_json", false), ("row_to_json", false), ("json_agg", false), ("to_jsonb", true), ("jsonb_agg", true)];

/// Writes out the rows of a SELECT.
pub(super) fn write_out(select: &mut Select) {
    let [TableWithJoins { relation, joins }] = &select.from[..] else { return };
    let TableFactor::Derived { subquery, alias: Some(alias), .. } = relation else { return };
    let Some(columns) = joins.is_empty().then(|| columns(subquery)).flatten() else { return };
    let named = alias.columns.iter().map(|column| Some(column.name.clone())).chain(std::iter::repeat(None));
    let columns = columns.into_iter().zip(named).map(|(column, named)| named.or(column));
    let Some(columns) = columns.collect::<Option<Vec<Ident>>>() else { return };
    let table = alias.name.clone();
    // A column of that name is meant before the row.
    if columns.is_empty() || columns.iter().any(|column| fold(column) == fold(&table)) {
        return;
    }
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            each_outside_queries(expr, |expr| of_row(expr, &table, &columns));
        }
    }
}

/// The names of its columns; `None` of those that have none. `None`: it is not known which it has.
fn columns(query: &Query) -> Option<Vec<Option<Ident>>> {
    let mut body = query.body.as_ref();
    // The first of several that are united names them.
    while let SetExpr::SetOperation { left, .. } = body {
        body = left;
    }
    let select = match body {
        SetExpr::Select(select) => select,
        SetExpr::Query(query) => return columns(query),
        _ => return None,
    };
    // Those of the catalog are shown otherwise than they are kept.
    let is_of_catalog = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
            matches!(expr, Expr::Cast { data_type: DataType::Regclass | DataType::Custom(..), .. })
        }
        _ => false,
    };
    if select.projection.iter().any(is_of_catalog) {
        return None;
    }
    let name = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(Some(alias.clone())),
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(Some(name.clone())),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => Some(parts.last().cloned()),
        SelectItem::UnnamedExpr(_) => Some(None),
        _ => None,
    };
    select.projection.iter().map(name).collect()
}

fn of_row(expr: &mut Expr, table: &Ident, columns: &[Ident]) {
    let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = expr else { return };
    let function = name.0.last().and_then(|part| part.as_ident()).map(fold).unwrap_or_default();
    let Some((_, is_jsonb)) = OF_ROWS.into_iter().find(|(of, _)| *of == function) else { return };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(arg))] = &mut list.args[..] else { return };
    if !matches!(&*arg, Expr::Identifier(name) if fold(name) == fold(table)) {
        return;
    }
    let args = columns.iter().flat_map(|column| {
        let name = Value::SingleQuotedString(shown_name(&fold(column)).to_owned());
        [Expr::Value(name.with_empty_span()), Expr::CompoundIdentifier(vec![table.clone(), column.clone()])]
    });
    let row = call(ROW_OF[usize::from(is_jsonb)], args.collect());
    match function.ends_with("_agg") {
        true => *arg = row,
        false => *expr = row,
    }
}
