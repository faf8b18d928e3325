//! Which array is `ARRAY(SELECT x FROM t ORDER BY y)`? That of the rows of a query, in its order; without rows an empty
//! one. The planner takes it for a function.
//!
//! So it becomes the array that `array_agg` gives of the query, and an empty one where that gives none. A query that
//! gives a row for each that its condition leaves is asked for the array itself, because the planner knows no columns
//! of the query around it in a query of a query.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, UInt64Array};
use arrow::buffer::OffsetBuffer;
use arrow::compute::take;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::plan_err;
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use tarn_query::dml::table_of;
use tarn_query::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments, GroupByExpr, Ident,
    ObjectName, OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr, TableAlias, TableAliasColumnDef,
    TableFactor, WindowSpec, WindowType,
};
use tarn_query::{datafusion, each_expr};

use super::calls::{call, is_named};
use super::in_from::query_of;
use super::inner_order::{PLACE, by, written_out};
use super::refused::gives_rows;
use super::rowwise::ArgumentRows;
use super::single::aggregates;
use crate::error::{Result, SqlError, state};

/// The array of a group, or an empty one.
const ROWS: &str = "tarn_array_of_rows";
/// What the rows of a query, and the values in them, are called.
const ITEMS: &str = "?items?";

/// Writes the array of a query as the planner reads it.
///
/// Errors: `42601` for a query of several columns; `0A000` for an order that has no other form.
pub(super) fn rewrite(expr: &mut Expr) -> Result<()> {
    let Expr::Function(Function { name, args: FunctionArguments::Subquery(query), over: None, .. }) = expr else {
        return Ok(());
    };
    if !is_named(name, "array") {
        return Ok(());
    }
    if let SetExpr::Select(select) = query.body.as_ref()
        && (select.projection.len() > 1 || select.projection.is_empty())
    {
        return Err(SqlError::new(state::SYNTAX_ERROR, "subquery must return only one column"));
    }
    let array = Expr::Subquery(Box::new(match of_rows(query) {
        Some(array) => array,
        None => of_query(query)?,
    }));
    *expr = call(ROWS, vec![array]);
    Ok(())
}

/// The query of whose rows this is the array, when it is written so.
pub(crate) fn query_of_array(expr: &Expr) -> Option<&Query> {
    let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = expr else { return None };
    match &list.args[..] {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Subquery(query)))] if is_named(name, ROWS) => Some(query),
        _ => None,
    }
}

/// The query itself with the array in the place of its column. `None`: it is none of rows as they are read.
fn of_rows(query: &Query) -> Option<Query> {
    let mut query = query.clone();
    let Query { with: None, body, order_by, limit_clause: None, fetch: None, .. } = &mut query else { return None };
    let SetExpr::Select(select) = body.as_mut() else { return None };
    if !is_plain(select) {
        return None;
    }
    let keys = match order_by.take().map(|order_by| order_by.kind) {
        None => vec![],
        Some(OrderByKind::Expressions(keys)) => {
            keys.iter().map(|key| key_of(key, &select.projection)).collect::<Option<Vec<_>>>()?
        }
        Some(_) => return None,
    };
    let [SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. }] = &select.projection[..] else {
        return None;
    };
    if aggregates(item) || has_rows(item) {
        return None;
    }
    let array = array_of(item.clone(), keys);
    select.projection = vec![SelectItem::UnnamedExpr(array)];
    Some(query)
}

fn is_plain(select: &Select) -> bool {
    let is_grouped = !matches!(&select.group_by, GroupByExpr::Expressions(groups, _) if groups.is_empty());
    select.distinct.is_none() && !is_grouped && select.having.is_none() && select.qualify.is_none()
}

/// A key of ORDER BY as an expression; `1` is the only column.
fn key_of(key: &OrderByExpr, projection: &[SelectItem]) -> Option<OrderByExpr> {
    match (&key.expr, projection) {
        (Expr::Value(_), [SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. }]) => {
            Some(OrderByExpr { expr: item.clone(), ..key.clone() })
        }
        _ => written_out(key, projection),
    }
}

/// Whether a row of it may be several, as of `unnest`.
fn has_rows_of_its_own(projection: &[SelectItem]) -> bool {
    projection.iter().any(|item| match item {
        SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. } => has_rows(item),
        _ => true,
    })
}

/// A query of the query. Its order is that of the numbers of its rows, or that of the values.
fn of_query(query: &Query) -> Result<Query> {
    let mut inner = query.clone();
    let named = |name: &str| Ident::with_quote('"', name);
    let column = |name: &str| Expr::Identifier(named(name));
    let mut columns = vec![TableAliasColumnDef { name: named(ITEMS), data_type: None }];
    let mut keys = vec![];
    if let Some(order_by) = &inner.order_by {
        let refused = || {
            SqlError::unsupported(
                "ARRAY of a query with this ORDER BY is not supported",
                "array_agg(x ORDER BY y) of the query in FROM",
            )
        };
        let OrderByKind::Expressions(written) = &order_by.kind else { return Err(refused()) };
        match inner.body.as_mut() {
            SetExpr::Select(select) if select.distinct.is_none() && !has_rows_of_its_own(&select.projection) => {
                let all = written.iter().map(|key| key_of(key, &select.projection)).collect::<Option<Vec<_>>>();
                let all = all.ok_or_else(refused)?;
                let mut place = call("row_number", vec![]);
                if let Expr::Function(function) = &mut place {
                    let window =
                        WindowSpec { window_name: None, partition_by: vec![], order_by: all, window_frame: None };
                    function.over = Some(WindowType::WindowSpec(window));
                }
                select.projection.push(SelectItem::UnnamedExpr(place));
                columns.push(TableAliasColumnDef { name: named(PLACE), data_type: None });
                keys.push(by(column(PLACE)));
            }
            // Columns are ordered by what they are.
            _ => match &written[..] {
                [OrderByExpr { expr: Expr::Value(_), options, .. }] => {
                    keys.push(OrderByExpr { options: *options, ..by(column(ITEMS)) });
                }
                _ => return Err(refused()),
            },
        }
    }
    let item = SelectItem::UnnamedExpr(array_of(column(ITEMS), keys));
    let mut outer = query_of(vec![item]).ok_or_else(|| SqlError::unsupported("ARRAY of this query", "array_agg"))?;
    if let SetExpr::Select(select) = outer.body.as_mut() {
        let alias = TableAlias { explicit: true, name: named(ITEMS), columns, at: None };
        let mut from = table_of(ObjectName::from(vec![]));
        from.relation =
            TableFactor::Derived { lateral: false, subquery: Box::new(inner), alias: Some(alias), sample: None };
        select.from = vec![from];
    }
    Ok(*outer)
}

/// Whether something in it gives rows.
fn has_rows(expr: &Expr) -> bool {
    let of = |part: &Expr| if gives_rows(part) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    each_expr(expr, of).is_break()
}

fn array_of(item: Expr, keys: Vec<OrderByExpr>) -> Expr {
    let mut array = call("array_agg", vec![item]);
    if let Expr::Function(Function { args: FunctionArguments::List(list), .. }) = &mut array
        && !keys.is_empty()
    {
        list.clauses.push(FunctionArgumentClause::OrderBy(keys));
    }
    array
}

/// The function.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![Arc::new(ArrayOfRows { signature: Signature::any(1, Volatility::Immutable) }.into())]
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ArrayOfRows {
    signature: Signature,
}

impl ScalarUDFImpl for ArrayOfRows {
    fn name(&self) -> &str {
        ROWS
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> PlanResult<DataType> {
        match types {
            [of @ DataType::List(_)] => Ok(of.clone()),
            _ => plan_err!("{ROWS} is of an array"),
        }
    }

    /// What stands beside the type of an item is kept.
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> PlanResult<FieldRef> {
        let of = args.arg_fields[0].as_ref();
        self.return_type(&[of.data_type().clone()])?;
        Ok(Arc::new(of.clone().with_name("array").with_nullable(true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let rows = ArgumentRows::of(&args)?;
        let arrays = rows.columns[0].as_list::<i32>();
        let DataType::List(item) = arrays.data_type() else { return plan_err!("{ROWS} is of an array") };
        // A NULL may have items behind it that are none.
        let places: Vec<u64> = (0..arrays.len())
            .filter(|row| arrays.is_valid(*row))
            .flat_map(|row| {
                let (from, to) = (arrays.value_offsets()[row], arrays.value_offsets()[row + 1]);
                (from..to).map(|at| at.unsigned_abs().into())
            })
            .collect();
        let lengths =
            (0..arrays.len()).map(|row| if arrays.is_valid(row) { arrays.value_length(row) as usize } else { 0 });
        let items = take(arrays.values(), &UInt64Array::from(places), None)?;
        let array: ArrayRef =
            Arc::new(ListArray::try_new(Arc::clone(item), OffsetBuffer::from_lengths(lengths), items, None)?);
        rows.answer(array)
    }
}
