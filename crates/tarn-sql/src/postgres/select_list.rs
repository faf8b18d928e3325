//! What stands in a list of columns and in FROM that the planner reads otherwise? Statements are changed as they are
//! written, before they are planned:
//!
//! - A function of sets in a select list gives a row for each item (`unnest` of what DataFusion gives as one array).
//! - The column of `generate_series(1, 3) AS x` is called `x`.
//! - `a = ANY('{1,2}')` is `a IN ('1', '2')`.
//! - `1e308::float8` is no `numeric` on the way, which has 38 digits, and `f < 1e308` compares with such a number.
//! - `x::numeric` has as many digits as `x`, and `x::varchar(3)` three letters.
//! - `a SIMILAR TO b` is a match of a regular expression, `substring(a FROM 'b')` what it matches.
//! - `@ x`, `~ x`, `|/ x` and `||/ x` are functions, and so are `to_date` and `to_timestamp` by a template.
//! - An interval that is written out is read by the fields of its type, and a `make_interval` has its arguments in
//!   their order.
//! - `x::uuid`, `x::json` and `x::jsonb` are functions, and `mod`, `sign`, `every`, `ceiling`, `gen_random_uuid` and
//!   `age(t)` others.
//! - `sum` of small numbers that are written out, as in `sum(CASE WHEN … THEN 1 END)`, is a `bigint`: they are
//!   `integer`s.
//!
//! And refused is what it would get wrong: `count(t.*)`, which counts rows that an outer join made too, and `WITH` of
//! what changes with every reading and is read twice.

use std::ops::ControlFlow;

use tarn_query::sqlparser::ast::{
    ArrayElemTypeDef, BinaryOperator, CastKind, DataType, ExactNumberInfo, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArguments, Ident, Insert, ObjectName, OrderBy, OrderByKind, Query, Select, SelectItem,
    SetExpr, Statement, TableAlias, TableAliasColumnDef, TableFactor, TableWithJoins, UnaryOperator, Value,
    ValueWithSpan, Visitor, VisitorMut,
};
use tarn_query::{ALL_COLUMNS, array_items, walk, walk_mut};

use super::calls::{call, is_call, is_named, is_volatile, number, take};
use super::date_reading::{TO_DATE, TO_TIMESTAMP};
use super::epoch::TO_INSTANT;
use super::fitted::{OverlongText, fitted};
use super::format::SIMILAR;
use super::json::{record_sets, to_record, written as json};
use super::kept_as_text::{UUID, cast_to, items_cast_to};
use super::numbers::BIT_NOT;
use super::numeric::NUMERIC;
use super::regular_expressions::SUBSTRING;
use super::series::SERIES;
use super::{
    any_of, array_depths, array_operators, array_queries, assigned_rows, blank_padded, cast_calls, collations,
    distinct_order, few_names, floats, frame_offsets, grouping_sets, hypothetical_sets, in_from, inner_order,
    interval_types, item_comparisons, joined_alias, lateral_names, local_times, made_times, ordered_sets, ordinality,
    overlaps, recursion, refused, row_access, row_queries, series, single, sorted_sets, string_delimiters, text_sets,
    type_names, using, value_columns, variadic, window_offsets, windows_copied,
};
use crate::error::{Result, SqlError};
use crate::names::{column_of, fold, qualifiers};
use crate::shown::shown_as;

const UNNEST: &str = "unnest";
const LIKE_ESCAPE: &str = "like_escape";
const SUBSCRIPTS: &str = "generate_subscripts";
/// Functions of sequences, which are named by a `regclass`.
const OF_SEQUENCES: [&str; 3] = ["nextval", "currval", "setval"];

/// Changes a statement to what the planner reads as Postgres reads what was written.
///
/// Errors: `0A000` for what it has no other form of.
pub(crate) fn rewrite(statement: &mut Statement) -> Result<()> {
    refused::check(statement)?;
    let visited = match statement {
        // Defaults and checks are kept as they are written.
        Statement::CreateTable(create) => walk_mut(&mut create.query, &mut Rewrite::default()),
        statement => walk_mut(statement, &mut Rewrite::default()),
    };
    match visited {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

#[derive(Default)]
struct Rewrite {
    /// Subqueries that are compared with as a whole, `a > ALL (SELECT …)`, and do not stand for a value. Told apart by
    /// where they are.
    of_sets: Vec<*const Query>,
    /// Rows that INSERT writes, told apart so, too.
    of_inserts: Vec<*const Query>,
    /// How many queries, and lists in FROM, are around.
    n_around: usize,
}

impl VisitorMut for Rewrite {
    type Break = SqlError;

    fn pre_visit_statement(&mut self, statement: &mut Statement) -> ControlFlow<SqlError> {
        if let Err(error) = assigned_rows::part(statement) {
            return ControlFlow::Break(error);
        }
        if let Statement::Insert(Insert { source: Some(rows), .. }) = statement {
            self.of_inserts.push(&raw const **rows);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        self.n_around += 1;
        let is_of_insert = self.of_inserts.contains(&(&raw const *query));
        in_from::body(query);
        few_names::in_with(query);
        inner_order::read_in_from(query, n_readings);
        inner_order::keep(query);
        sorted_sets::keep(query);
        let is_inserted = is_of_insert && matches!(query.body.as_ref(), SetExpr::Values(_));
        if !is_inserted && let Err(error) = value_columns::as_selects(query) {
            return ControlFlow::Break(error);
        }
        if let SetExpr::Values(values) = query.body.as_mut() {
            json::values(values);
            value_columns::widen(values);
            if !is_of_insert {
                value_columns::type_texts(values);
            }
        }
        if let SetExpr::Select(select) = query.body.as_mut() {
            json::name_rows(select, query.order_by.as_mut());
            if let Err(error) = in_order(query.order_by.as_mut(), select)
                .and_then(|()| windows_copied::write_out(select, query.order_by.as_mut()))
                .and_then(|()| frame_offsets::write_out(select, query.order_by.as_mut()))
                .and_then(|()| using::write_out(select, query.order_by.as_mut()))
            {
                return ControlFlow::Break(error);
            }
        }
        let Some(with) = &query.with else { return ControlFlow::Continue(()) };
        for cte in &with.cte_tables {
            if is_volatile(cte.query.as_ref()) && n_readings(query, &fold(&cte.alias.name)) > 1 {
                let name = &cte.alias.name;
                return ControlFlow::Break(SqlError::unsupported(
                    format!(
                        "the WITH query {name}, whose rows change with every reading, is read twice: this is not supported"
                    ),
                    "write its rows into a table first, or read it once",
                ));
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        self.n_around -= 1;
        recursion::mark(query);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        inner_order::keep_in_aggregates(select);
        if let Err(error) = lateral_names::check(select).and_then(|()| grouping_sets::write_out(select)) {
            return ControlFlow::Break(error);
        }
        // Those of UNION; those of queries are written out already.
        json::name_rows(select, None);
        if let Err(error) = windows_copied::write_out(select, None)
            .and_then(|()| frame_offsets::write_out(select, None))
            .and_then(|()| using::write_out(select, None))
        {
            return ControlFlow::Break(error);
        }
        for item in &mut select.projection {
            name_of_outer(item, &select.from);
            hypothetical_sets::name(item);
            string_delimiters::name(item);
            local_times::name(item);
            overlaps::name(item);
            row_access::name(item);
            // A column that is cast is called as it was, also in a subquery.
            if let SelectItem::UnnamedExpr(expr @ Expr::Cast { .. }) = item
                && is_column(expr)
            {
                let alias = Ident::with_quote('"', shown_as(expr));
                let of = take(expr);
                *item = SelectItem::ExprWithAlias { expr: of, alias };
            }
            if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
                in_from::exists(expr);
                walk_mut(expr, &mut Series { n_queries: 0, n_unnests: 0, n_choices: 0 })?;
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, _: &mut TableFactor) -> ControlFlow<SqlError> {
        self.n_around -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        if self.n_around > 1 {
            array_of_columns(expr);
        }
        in_from::exists_in_list(expr);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<SqlError> {
        self.n_around += 1;
        in_from::lateral_list(factor);
        joined_alias::as_query(factor);
        if let Err(error) = to_record::in_from(factor) {
            return ControlFlow::Break(error);
        }
        in_from::function(factor);
        series::in_from(factor);
        text_sets::in_from(factor);
        if let Err(error) = json::in_from(factor).and_then(|()| ordinality::in_from(factor)) {
            return ControlFlow::Break(error);
        }
        match factor {
            TableFactor::Table { name, alias, args: Some(_), .. } if is_named(name, SERIES) => {
                name_column(alias, SERIES);
            }
            TableFactor::Function { name, alias, .. } if is_named(name, SERIES) => name_column(alias, SERIES),
            TableFactor::UNNEST { alias, array_exprs, .. } => {
                array_exprs.iter_mut().for_each(array_depths::flatten);
                if array_exprs.len() == 1 {
                    name_column(alias, UNNEST);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        cast_calls::as_cast(expr);
        array_operators::without_null(expr);
        type_names::plain(expr);
        blank_padded::as_call(expr);
        row_access::rewrite(expr);
        if let Err(error) = variadic::rewrite(expr).and_then(|()| hypothetical_sets::rewrite(expr)) {
            return ControlFlow::Break(error);
        }
        if let Err(error) = interval_types::rewrite(expr)
            .and_then(|()| array_queries::rewrite(expr))
            .and_then(|()| overlaps::rewrite(expr))
            .and_then(|()| collations::rewrite(expr))
        {
            return ControlFlow::Break(error);
        }
        array_depths::rewrite(expr);
        huge(expr);
        float(expr);
        floats::written_beyond_numerics(expr);
        if let Err(error) = cast(expr) {
            return ControlFlow::Break(error);
        }
        operator(expr);
        function(expr);
        window_offsets::rewrite(expr);
        string_delimiters::rewrite(expr);
        ordered_sets::rewrite(expr);
        distinct_order::rewrite(expr);
        local_times::rewrite(expr);
        if let Err(error) = rows_as_arguments(expr).and_then(|()| json::function(expr)) {
            return ControlFlow::Break(error);
        }
        like(expr);
        similar(expr);
        substring(expr);
        match expr {
            Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } => {
                if let Expr::Subquery(query) = right.as_ref() {
                    self.of_sets.push(&raw const **query);
                }
            }
            Expr::Subquery(query) if self.of_sets.contains(&(&raw const **query)) => {}
            _ => single::subquery(expr),
        }
        if let Err(error) =
            row_queries::rewrite(expr).and_then(|()| array_of_text(expr)).and_then(|()| any_of::rewrite(expr))
        {
            return ControlFlow::Break(error);
        }
        item_comparisons::rewrite(expr);
        let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = expr else {
            return ControlFlow::Continue(());
        };
        if is_named(name, "make_interval")
            && let Err(error) = made_times::in_order(&mut list.args)
        {
            return ControlFlow::Break(error);
        }
        if is_named(name, "sum")
            && let [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Case { conditions, else_result, .. }))] =
                &mut list.args[..]
        {
            let results = conditions.iter_mut().map(|when| &mut when.result).chain(else_result.as_deref_mut());
            results.for_each(integer);
        }
        ControlFlow::Continue(())
    }
}

/// `t.*` among the arguments of a call is the row of the table, as one value.
///
/// Errors: `0A000` for one of `ROW`, whose columns it is.
fn rows_as_arguments(expr: &mut Expr) -> Result<()> {
    let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = expr else { return Ok(()) };
    let is_row = is_named(name, "row");
    for arg in list.args.iter_mut().map(value_of_mut) {
        let FunctionArgExpr::QualifiedWildcard(table) = arg else { continue };
        if is_row {
            return Err(SqlError::unsupported(
                "ROW of the columns of a table is not supported",
                "name the columns, or the table: row_to_json(t)",
            ));
        }
        let mut parts: Vec<Ident> = table.0.iter().filter_map(|part| part.as_ident().cloned()).collect();
        parts.push(Ident::with_quote('"', ALL_COLUMNS));
        *arg = FunctionArgExpr::Expr(Expr::CompoundIdentifier(parts));
    }
    Ok(())
}

fn value_of_mut(arg: &mut FunctionArg) -> &mut FunctionArgExpr {
    match arg {
        FunctionArg::Unnamed(value)
        | FunctionArg::Named { arg: value, .. }
        | FunctionArg::ExprNamed { arg: value, .. } => value,
    }
}

/// `ORDER BY generate_series(1, 3) DESC` is by a column of the list, whose rows are what is ordered.
///
/// Errors: `0A000` for one that is not in the list, which gives rows of its own.
fn in_order(order_by: Option<&mut OrderBy>, select: &Select) -> Result<()> {
    let Some(OrderBy { kind: OrderByKind::Expressions(all), .. }) = order_by else { return Ok(()) };
    for order in all.iter_mut().filter(|order| refused::gives_rows(&order.expr)) {
        let place = select.projection.iter().position(|item| match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => *expr == order.expr,
            _ => false,
        });
        let is_plain = !select
            .projection
            .iter()
            .any(|item| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)));
        match place.filter(|_| is_plain) {
            Some(place) => order.expr = number(place as u64 + 1),
            None => {
                return Err(SqlError::unsupported(
                    "ORDER BY of a set-returning function that is not in the list of columns",
                    "write it into the list, and ORDER BY its name",
                ));
            }
        }
    }
    Ok(())
}

/// The one column of a function of sets is called as the table is.
fn name_column(alias: &mut Option<TableAlias>, function: &str) {
    let alias = alias.get_or_insert_with(|| TableAlias {
        explicit: true,
        name: Ident::new(function),
        columns: vec![],
        at: None,
    });
    if alias.columns.is_empty() {
        alias.columns.push(TableAliasColumnDef { name: alias.name.clone(), data_type: None });
    }
}

/// A small number that is written out.
fn integer(expr: &mut Expr) {
    let Expr::Value(value) = &*expr else { return };
    let Value::Number(digits, false) = &value.value else { return };
    if digits.parse::<i32>().is_ok() {
        let of = take(expr);
        *expr = Expr::Cast {
            kind: CastKind::DoubleColon,
            expr: Box::new(of),
            data_type: DataType::Integer(None),
            array: false,
            format: None,
        };
    }
}

/// `1e308::float8`: a number that is no `numeric` of ours need not become one on the way.
fn float(expr: &mut Expr) {
    let Expr::Cast {
        expr: of,
        data_type: DataType::Float8 | DataType::DoublePrecision | DataType::Float4 | DataType::Real,
        ..
    } = expr
    else {
        return;
    };
    if let Expr::Value(value) = of.as_mut()
        && let Value::Number(digits, _) = &mut value.value
        && digits.contains(['e', 'E'])
    {
        value.value = Value::SingleQuotedString(std::mem::take(digits));
    }
}

/// A number with an exponent of which the planner makes no `numeric` is a `double precision`: `f < 1e300`.
fn huge(expr: &mut Expr) {
    if let Expr::Value(value) = expr
        && let Value::Number(digits, _) = &value.value
        && is_beyond_numerics(digits)
    {
        *expr = floats::written_as_float(digits);
    }
}

/// Whether it has an exponent by which it has more than 76 digits behind the point, or more zeros at its end than 128.
/// One of more digits than tell floats apart would be another number: the planner refuses it. The offset of a frame,
/// which has its type before it, is no number here.
fn is_beyond_numerics(number: &str) -> bool {
    const MOST_DIGITS: usize = 17;
    if !number.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return false;
    }
    let Some((digits, exponent)) = number.split_once(['e', 'E']) else { return false };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.len() + fraction.len() > MOST_DIGITS {
        return false;
    }
    let Ok(exponent) = exponent.parse::<i64>() else { return true };
    let n_behind = (fraction.len() as i64).saturating_sub(exponent);
    !(-128..=76).contains(&n_behind)
}

/// A column of a query around is called as it is there; the planner would call it `outer_ref(a.x)`.
fn name_of_outer(item: &mut SelectItem, from: &[TableWithJoins]) {
    if let SelectItem::UnnamedExpr(expr @ Expr::CompoundIdentifier(_)) = item
        && let Expr::CompoundIdentifier(parts) = &*expr
        && let [.., table, column] = &parts[..]
        && !from.iter().flat_map(qualifiers).any(|own| own == fold(table))
    {
        let alias = column.clone();
        *item = SelectItem::ExprWithAlias { expr: take(expr), alias };
    }
}

fn is_column(expr: &Expr) -> bool {
    match expr {
        Expr::Cast { expr, .. } => is_column(expr),
        expr => column_of(expr).is_some(),
    }
}

/// `x::numeric` has as many digits as `x`, `x::varchar(3)` three letters.
///
/// Errors: as [`length`](crate::column_rules::length) of the type.
fn cast(expr: &mut Expr) -> Result<()> {
    if let Expr::Cast { data_type, .. } = expr
        && let Some(to) = items_cast_to(data_type)
    {
        *data_type = DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(DataType::Text), None));
        *expr = call(to, vec![take(expr)]);
        return Ok(());
    }
    let checked = match expr {
        Expr::Cast { expr: of, data_type, .. } => cast_to(data_type).map(|to| call(to, vec![take(of)])),
        Expr::TypedString(typed) => {
            cast_to(&typed.data_type).map(|to| call(to, vec![Expr::Value(typed.value.clone())]))
        }
        _ => None,
    };
    if let Some(checked) = checked {
        *expr = checked;
        return Ok(());
    }
    if let Some((text, of)) = with_length(expr) {
        if let Some(cut) = fitted(&text, &of, OverlongText::Cut)? {
            *expr = cut;
        }
        return Ok(());
    }
    let Expr::Cast { expr: of, data_type, .. } = expr else { return Ok(()) };
    // The type of a parameter is told by its cast.
    if matches!(of.as_ref(), Expr::Value(value) if matches!(value.value, Value::Placeholder(_))) {
        return Ok(());
    }
    if let DataType::Numeric(ExactNumberInfo::None) | DataType::Decimal(ExactNumberInfo::None) = data_type {
        *expr = call(NUMERIC, vec![take(of)]);
    }
    Ok(())
}

/// What is cast to a type of texts that may have a length, or to an array of such: as a cast to the type without it,
/// and the type.
fn with_length(expr: &Expr) -> Option<(Expr, DataType)> {
    fn plain(of: &DataType) -> Option<DataType> {
        use DataType::{Array, Char, CharVarying, Character, CharacterVarying, Varchar};
        match of {
            Varchar(Some(_)) | CharacterVarying(Some(_)) | CharVarying(Some(_)) | Char(_) | Character(_) => {
                Some(DataType::Text)
            }
            Array(ArrayElemTypeDef::SquareBracket(item, n)) => {
                Some(Array(ArrayElemTypeDef::SquareBracket(Box::new(plain(item)?), *n)))
            }
            _ => None,
        }
    }
    let (value, data_type) = match expr {
        Expr::Cast { expr: value, data_type, .. } => (value.as_ref().clone(), data_type),
        // `char 'abc'` has no length, and `'abc'::char` one.
        Expr::TypedString(typed) if !matches!(typed.data_type, DataType::Char(None) | DataType::Character(None)) => {
            (Expr::Value(typed.value.clone()), &typed.data_type)
        }
        _ => return None,
    };
    let text = Expr::Cast {
        kind: CastKind::DoubleColon,
        expr: Box::new(value),
        data_type: plain(data_type)?,
        array: false,
        format: None,
    };
    Some((text, data_type.clone()))
}

/// `a = ANY('{1,2}')` is `a IN ('1', '2')`, whose texts are read as what `a` is; `a <> ALL('{1,2}')` is `a NOT IN ('1',
/// '2')`.
fn array_of_text(expr: &mut Expr) -> Result<()> {
    let (left, array, negated) = match expr {
        Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. } => (left, right, false),
        Expr::AllOp { left, compare_op: BinaryOperator::NotEq, right } => (left, right, true),
        _ => return Ok(()),
    };
    let inside = match array.as_ref() {
        Expr::Nested(inside) => inside.as_ref(),
        array => array,
    };
    let Expr::Value(value) = inside else { return Ok(()) };
    let Value::SingleQuotedString(text) = &value.value else { return Ok(()) };
    let value = |value: Value| Expr::Value(value.with_empty_span());
    let items = array_items(text)?.into_iter();
    let list: Vec<Expr> = items.map(|item| value(item.map_or(Value::Null, Value::SingleQuotedString))).collect();
    *expr = match list.is_empty() {
        true => value(Value::Boolean(negated)),
        false => Expr::InList { expr: std::mem::replace(left, Box::new(value(Value::Null))), list, negated },
    };
    Ok(())
}

/// Operators before a value, which are functions.
fn operator(expr: &mut Expr) {
    let Expr::UnaryOp { op, expr: of } = expr else { return };
    let double = |of: Expr| Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(of),
        data_type: DataType::DoublePrecision,
        array: false,
        format: None,
    };
    *expr = match op {
        UnaryOperator::PGAbs => call("abs", vec![take(of)]),
        UnaryOperator::BitwiseNot => call(BIT_NOT, vec![take(of)]),
        UnaryOperator::PGSquareRoot => call("sqrt", vec![double(take(of))]),
        UnaryOperator::PGCubeRoot => call("cbrt", vec![double(take(of))]),
        _ => return,
    };
}

/// Functions that are others, by another name.
fn function(expr: &mut Expr) {
    let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = expr else { return };
    let args: Vec<&mut Expr> = list.args.iter_mut().filter_map(expr_of).collect();
    let plain = |name: &str| ObjectName::from(vec![Ident::new(name)]);
    // The name of a sequence is a text to the planner.
    if OF_SEQUENCES.iter().any(|function| is_named(name, function)) {
        for arg in args {
            if let Expr::Cast { expr: of, data_type: DataType::Regclass, .. } = arg {
                *arg = take(of);
            }
        }
        return;
    }
    match <[&mut Expr; 2]>::try_from(args) {
        Ok([left, right]) if is_named(name, "mod") => {
            let (left, right) = (Expr::Nested(Box::new(take(left))), Expr::Nested(Box::new(take(right))));
            let modulo = Expr::BinaryOp { left: Box::new(left), op: BinaryOperator::Modulo, right: Box::new(right) };
            *expr = Expr::Nested(Box::new(modulo));
        }
        Ok([text, template]) if is_named(name, "to_date") => *expr = call(TO_DATE, vec![take(text), take(template)]),
        Ok([text, template]) if is_named(name, "to_timestamp") => {
            *expr = call(TO_TIMESTAMP, vec![take(text), take(template)]);
        }
        Ok([_, _]) if is_named(name, "array_remove") => *name = plain("array_remove_all"),
        Err(args) if args.len() == 3 && is_named(name, "array_replace") => *name = plain("array_replace_all"),
        Err(args) if args.len() == 1 && is_named(name, "to_timestamp") => *name = plain(TO_INSTANT),
        Err(args) if args.len() == 1 && is_named(name, "pg_typeof") => {
            // What is not cast is of no type yet.
            let known = match args.first().map(|arg| &**arg) {
                Some(Expr::Value(value)) if matches!(value.value, Value::SingleQuotedString(_) | Value::Null) => {
                    "unknown"
                }
                Some(arg) if is_call(arg, "pg_typeof") => "regtype",
                // Items are texts to the planner.
                Some(Expr::Cast { data_type: DataType::Array(ArrayElemTypeDef::SquareBracket(item, _)), .. })
                    if matches!(**item, DataType::Varchar(_) | DataType::CharacterVarying(_)) =>
                {
                    "character varying[]"
                }
                _ => return,
            };
            *expr = Expr::Value(Value::SingleQuotedString(known.to_owned()).with_empty_span());
        }
        Err(args) if args.len() == 1 && is_named(name, "every") => *name = plain("bool_and"),
        Err(args) if args.len() == 1 && is_named(name, "sign") => *name = plain("signum"),
        Err(args) if args.len() == 1 && is_named(name, "ceiling") => *name = plain("ceil"),
        Err(args) if args.is_empty() && is_named(name, "gen_random_uuid") => {
            *expr = call(UUID, vec![call("uuid", vec![])]);
        }
        Err(args) if args.len() == 1 && is_named(name, "age") => {
            let today = FunctionArg::Unnamed(FunctionArgExpr::Expr(call("current_date", vec![])));
            list.args.insert(0, today);
        }
        _ => {}
    }
}

/// `a LIKE b ESCAPE '/'` is a LIKE of a pattern whose escapes are backslashes.
fn like(expr: &mut Expr) {
    let (Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. }) = expr else { return };
    if let Some(escape) =
        escape_char.take_if(|escape| !matches!(&escape.value, Value::SingleQuotedString(of) if of == "\\"))
    {
        **pattern = call(LIKE_ESCAPE, vec![take(pattern), Expr::Value(escape)]);
    }
}

/// `a SIMILAR TO b` is a match of a regular expression.
fn similar(expr: &mut Expr) {
    let Expr::SimilarTo { negated, expr: of, pattern, escape_char } = expr else { return };
    let escape = escape_char
        .take()
        .map_or_else(|| Expr::Value(Value::SingleQuotedString("\\".to_owned()).with_empty_span()), Expr::Value);
    let op = if *negated { BinaryOperator::PGRegexNotMatch } else { BinaryOperator::PGRegexMatch };
    let pattern = call(SIMILAR, vec![take(pattern), escape]);
    let of = Expr::Nested(Box::new(take(of)));
    *expr = Expr::Nested(Box::new(Expr::BinaryOp { left: Box::new(of), op, right: Box::new(pattern) }));
}

/// `substring(a FROM 'pattern')` is what a regular expression matches, `substring(a FROM 'pattern' FOR '#')` what one
/// of SIMILAR TO does.
fn substring(expr: &mut Expr) {
    let is_text = |expr: &Expr| matches!(expr, Expr::Value(value) if matches!(value.value, Value::SingleQuotedString(_) | Value::EscapedStringLiteral(_)));
    let is_null = |expr: &Expr| matches!(expr, Expr::Value(value) if value.value == Value::Null);
    let Expr::Substring { expr: of, substring_from: Some(pattern), substring_for, .. } = expr else { return };
    let is_nothing = match of.as_ref() {
        Expr::Cast { expr: of, .. } => is_null(of),
        of => is_null(of),
    };
    if is_nothing && substring_for.as_ref().is_some_and(|escape| is_text(escape)) {
        // Of no text, whatever the escape.
        *expr = take(of);
        return;
    }
    let pattern = match substring_for {
        None if is_text(pattern) => take(pattern),
        Some(escape) if is_text(escape) || (is_text(pattern) && is_null(escape)) => {
            call(SIMILAR, vec![take(pattern), take(escape)])
        }
        _ => return,
    };
    *expr = call(SUBSTRING, vec![take(of), pattern]);
}

fn expr_of(arg: &mut FunctionArg) -> Option<&mut Expr> {
    match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    }
}

/// `ARRAY[a, b]` inside a query becomes a call: DataFusion looks for the columns of a call in the queries around, too,
/// for those of an array in its own query alone.
fn array_of_columns(expr: &mut Expr) {
    let Expr::Array(array) = expr else { return };
    if array.elem.iter().any(in_from::names_columns) {
        *expr = call("make_array", std::mem::take(&mut array.elem));
    }
}

/// Wraps calls in a select list that give sets.
struct Series {
    /// Of subqueries, which have lists of their own.
    n_queries: usize,
    n_unnests: usize,
    /// What is not computed for every row gives no rows.
    n_choices: usize,
}

impl VisitorMut for Series {
    type Break = SqlError;

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<SqlError> {
        self.n_queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<SqlError> {
        self.n_queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        self.n_unnests += usize::from(is_call(expr, UNNEST));
        self.n_choices += usize::from(is_choice(expr));
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        subscripts(expr);
        self.n_unnests -= usize::from(is_call(expr, UNNEST));
        self.n_choices -= usize::from(is_choice(expr));
        let (is_json_set, is_text_set) = (json::gives_rows(expr), text_sets::gives_rows(expr));
        let is_record_set = record_sets::gives_rows(expr);
        let gives_rows = is_json_set || is_text_set || is_record_set || is_call(expr, SERIES);
        if self.n_queries == 0 && self.n_choices > 0 && gives_rows {
            return ControlFlow::Break(SqlError::unsupported(
                "set-returning functions are not allowed in CASE and COALESCE",
                "call them in FROM, with LATERAL",
            ));
        }
        if is_call(expr, SERIES) && says_infinity(expr) {
            return ControlFlow::Break(series::without_end());
        }
        if self.n_queries == 0 && self.n_unnests == 0 && is_call(expr, SERIES) {
            let series = take(expr);
            *expr = call(UNNEST, vec![series]);
        }
        if self.n_queries == 0 && is_record_set {
            record_sets::in_select_list(expr);
        }
        if self.n_queries == 0 && is_text_set {
            text_sets::in_select_list(expr);
        }
        if self.n_queries == 0
            && is_json_set
            && let Err(error) = json::in_select_list(expr)
        {
            return ControlFlow::Break(error);
        }
        ControlFlow::Continue(())
    }
}

/// Those of an array are numbers from 1.
fn subscripts(expr: &mut Expr) {
    let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = expr else { return };
    let args: Vec<&mut Expr> = list.args.iter_mut().filter_map(expr_of).collect();
    if let Ok([array, dimension]) = <[&mut Expr; 2]>::try_from(args)
        && is_named(name, SUBSCRIPTS)
    {
        let length = call("array_length", vec![take(array), take(dimension)]);
        *expr = call(SERIES, vec![number(1), length]);
    }
}

/// Whether a text in it is `infinity`, whatever it is cast to.
fn says_infinity(expr: &Expr) -> bool {
    let mut texts = InfinityFinder::default();
    let _ = walk(expr, &mut texts);
    texts.0
}

#[derive(Default)]
struct InfinityFinder(bool);

impl Visitor for InfinityFinder {
    type Break = ();

    fn pre_visit_value(&mut self, value: &ValueWithSpan) -> ControlFlow<()> {
        let Value::SingleQuotedString(text) = &value.value else { return ControlFlow::Continue(()) };
        self.0 |= text.trim().trim_start_matches(['-', '+']).eq_ignore_ascii_case("infinity");
        ControlFlow::Continue(())
    }
}

fn is_choice(expr: &Expr) -> bool {
    matches!(expr, Expr::Case { .. }) || is_call(expr, "coalesce")
}

/// How often a query reads what it calls so.
fn n_readings(query: &Query, name: &str) -> usize {
    struct Readings<'a> {
        name: &'a str,
        n: usize,
    }
    impl Visitor for Readings<'_> {
        type Break = ();
        fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
            self.n += usize::from(is_named(relation, self.name));
            ControlFlow::Continue(())
        }
    }
    let mut readings = Readings { name, n: 0 };
    let _ = walk(query, &mut readings);
    readings.n
}
