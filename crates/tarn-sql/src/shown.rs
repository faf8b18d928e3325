//! How is a column of an answer called?
//!
//! The planner wants a name of its own for each column, clients want those that PostgreSQL gives: inside, names have
//! something behind them that is not shown.
//!
//! A column of a query in FROM or WITH that nobody gave a name is called so, too, where something else names it:
//! `SELECT max(count) FROM (SELECT k, count(*) FROM t GROUP BY k) q`. Else it keeps the planner's name, which views may
//! have kept.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::{
    AccessExpr, ArrayElemTypeDef, BinaryOperator, CopySource, CreateTable, DataType, Expr, GroupByExpr, Ident, OrderBy,
    OrderByKind, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, Statement, TableAlias,
    TableFactor, TableWithJoins, TimezoneInfo, TrimWhereField, UnaryOperator, Value, Visitor, VisitorMut,
};
use tarn_query::{each_expr, walk, walk_mut};

use crate::catalog_names::{is_catalog_name, is_variable};
use crate::names::{column_of, fold};
use crate::postgres::in_from::over;
use crate::postgres::row_access::row_of_all;

/// Behind the name of a column that the planner needs by another name: a character that is nobody's.
pub(crate) const OTHER_NAME: char = '\u{F8FE}';

/// The columns of `SELECT a, b FROM t WHERE c = 1 AND d = $1`, and nothing else: no other table, query, function or
/// type is named in it.
pub(crate) fn plain_columns(statement: &Statement) -> Option<&[SelectItem]> {
    let Statement::Query(query) = statement else { return None };
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let [TableWithJoins { relation: TableFactor::Table { name, args: None, .. }, joins }] = &select.from[..] else {
        return None;
    };
    let is_column = |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(Expr::Identifier(_)));
    let is_plain = query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && joins.is_empty()
        && select.having.is_none()
        && select.distinct.is_none()
        && select.qualify.is_none()
        && select.named_window.is_empty()
        && matches!(&select.group_by, GroupByExpr::Expressions(by, _) if by.is_empty())
        && select.projection.iter().all(is_column)
        && select.selection.as_ref().is_none_or(is_plain_condition)
        && !is_catalog_name(name);
    is_plain.then_some(&select.projection)
}

/// Columns beside constants or parameters.
fn is_plain_condition(condition: &Expr) -> bool {
    match condition {
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            is_plain_condition(left) && is_plain_condition(right)
        }
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
            matches!(left.as_ref(), Expr::Identifier(ident) if ident.quote_style.is_some() || !is_variable(&fold(ident)))
                && matches!(right.as_ref(), Expr::Value(_))
        }
        _ => false,
    }
}

fn are_distinct(items: &[SelectItem]) -> bool {
    let name = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(Expr::Identifier(ident)) => Some(fold(ident)),
        _ => None,
    };
    let mut names = HashSet::with_capacity(items.len());
    items.len() == 1 || items.iter().all(|item| name(item).is_some_and(|name| names.insert(name)))
}

/// `SELECT a, a`: the planner wants a name of its own for each column. What is behind [`OTHER_NAME`] is not shown.
///
/// And columns of an answer that have no name are called as Postgres calls them, not as the planner does.
pub(crate) fn name_columns(statement: &mut Statement) {
    if plain_columns(statement).is_some_and(are_distinct) {
        return;
    }
    struct ColumnNamer {
        n_queries: usize,
        has_answer: bool,
        named: HashMap<String, usize>,
    }
    impl VisitorMut for ColumnNamer {
        type Break = ();
        fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
            self.n_queries += 1;
            for cte in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
                name_inside(&mut cte.query, Some(&cte.alias), &self.named);
            }
            if self.n_queries > 1 || !self.has_answer {
                order_inside(query);
            }
            ControlFlow::Continue(())
        }
        fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
            if let TableFactor::Derived { subquery, alias, .. } = factor {
                name_inside(subquery, alias.as_ref(), &self.named);
            }
            ControlFlow::Continue(())
        }
        fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
            self.n_queries -= 1;
            if self.n_queries > 0 || !self.has_answer {
                tell_apart_inside(query);
            }
            ControlFlow::Continue(())
        }
        fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
            let stars = StarColumns::of(select, self.n_queries > 1);
            name_items(&mut select.projection, &stars);
            ControlFlow::Continue(())
        }
    }
    let has_answer = answer(statement).is_some();
    let named = named(statement);
    let _ = walk_mut(statement, &mut ColumnNamer { n_queries: 0, has_answer, named });
    let Some(query) = answer(statement) else { return };
    if let Some(select) = first_select(&mut query.body) {
        let named = name_unnamed(select);
        order_by_columns(query.order_by.as_mut(), &named, &called(&select.projection));
    }
    tell_apart(query);
}

/// What orders the rows is said by the same words, or by the column's name, and is the column by now. A number is none
/// of a column's words, but its place.
fn order_by_columns(order_by: Option<&mut OrderBy>, named: &[(Expr, Ident)], called: &[String]) {
    let Some(OrderBy { kind: OrderByKind::Expressions(all), .. }) = order_by else { return };
    for order in all.iter_mut().filter(|order| !matches!(order.expr, Expr::Value(_))) {
        // Which of two columns a name means is said by none.
        let is_only = |name: &String| called.iter().filter(|of| *of == name).count() == 1;
        let name = bare_name(&order.expr).map(fold).filter(is_only);
        let is_meant = |(expr, alias): &&(Expr, Ident)| {
            *expr == order.expr || name.as_deref().is_some_and(|name| shown_name(&alias.value) == name)
        };
        if let Some((_, alias)) = named.iter().find(is_meant) {
            order.expr = Expr::Identifier(alias.clone());
        }
    }
}

/// `(SELECT count(*) FROM t GROUP BY k ORDER BY count LIMIT 1)`: a key that is called as the only item without a name
/// is that.
fn order_inside(query: &mut Query) {
    let Some(OrderBy { kind: OrderByKind::Expressions(keys), .. }) = &mut query.order_by else { return };
    let SetExpr::Select(select) = query.body.as_ref() else { return };
    for key in keys {
        let Some(name) = bare_name(&key.expr).map(fold) else { continue };
        let is_called = |item: &&SelectItem| match item {
            SelectItem::ExprWithAlias { alias, .. } => fold(alias) == name,
            SelectItem::UnnamedExpr(expr) => shown_as(expr) == name,
            _ => false,
        };
        let mut called = select.projection.iter().filter(is_called);
        if let (Some(item), None) = (called.next(), called.next())
            && let Some(expr) = unnamed(item)
        {
            key.expr = expr.clone();
        }
    }
}

/// What queries in FROM and WITH give without a name, by what PostgreSQL calls it, and what these queries are called;
/// and how often each is named in the statement. Most statements have none.
fn named(statement: &Statement) -> HashMap<String, usize> {
    #[derive(Default)]
    struct Unnamed(HashMap<String, usize>);
    impl Unnamed {
        fn add(&mut self, query: &Query, alias: Option<&TableAlias>) {
            let mut body = query.body.as_ref();
            let select = loop {
                match body {
                    SetExpr::Select(select) => break select,
                    SetExpr::Query(query) => body = &query.body,
                    SetExpr::SetOperation { left, .. } => body = left,
                    _ => return,
                }
            };
            let mut names = select.projection.iter().filter_map(unnamed).map(shown_as).peekable();
            if names.peek().is_some() {
                self.0.extend(names.chain(alias.map(|alias| fold(&alias.name))).map(|name| (name, 0)));
            }
        }
    }
    impl Visitor for Unnamed {
        type Break = ();
        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
            for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
                self.add(&cte.query, Some(&cte.alias));
            }
            ControlFlow::Continue(())
        }
        fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
            if let TableFactor::Derived { subquery, alias, .. } = factor {
                self.add(subquery, alias.as_ref());
            }
            ControlFlow::Continue(())
        }
    }
    let mut unnamed = Unnamed::default();
    let _ = walk(statement, &mut unnamed);
    let Unnamed(mut named) = unnamed;
    if !named.is_empty() {
        let _ = each_expr(statement, |expr| count_named(expr, &mut named));
    }
    named
}

fn count_named(expr: &Expr, named: &mut HashMap<String, usize>) -> ControlFlow<()> {
    if let Some(n_named) = column_of(expr).and_then(|name| named.get_mut(&fold(name))) {
        *n_named += 1;
    }
    ControlFlow::Continue(())
}

/// Gives what a query in FROM or WITH has without a name PostgreSQL's name, if something beside its list names it, or
/// its whole row.
fn name_inside(query: &mut Query, alias: Option<&TableAlias>, named: &HashMap<String, usize>) {
    if named.is_empty() {
        return;
    }
    let Some(select) = first_select(&mut query.body) else { return };
    let mut own: HashMap<String, usize> = named.keys().map(|name| (name.clone(), 0)).collect();
    let _ = each_expr(&*select, |expr| count_named(expr, &mut own));
    let is_beside = |name: &String| named.get(name) > own.get(name);
    let is_row = alias.is_some_and(|alias| is_beside(&fold(&alias.name)));
    let grouped = group_names(select);
    let has_star = select
        .projection
        .iter()
        .any(|item| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)));
    let given = called(&select.projection);
    let mut taken = HashSet::new();
    let mut renamed = vec![];
    for (idx, item) in select.projection.iter_mut().enumerate() {
        let Some(expr) = unnamed(item) else { continue };
        let name = shown_as(expr);
        // What `*` may have, and what has the name for its own, is meant by it.
        let is_another = given.contains(&name) || (has_star && own.get(&name).is_some_and(|n_named| *n_named > 0));
        if is_another || !(is_row || is_beside(&name) || grouped.contains(&name)) {
            continue;
        }
        let alias = match taken.insert(name.clone()) {
            true => Ident::with_quote('"', &name),
            false => numbered_name(&name, idx),
        };
        renamed.push((expr.clone(), alias.clone()));
        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
    }
    // What is DISTINCT is ordered by its columns alone.
    if select.distinct.is_some() {
        order_by_columns(query.order_by.as_mut(), &renamed, &called(&select.projection));
    }
}

/// The expression of an item that nobody gave a name.
fn unnamed(item: &SelectItem) -> Option<&Expr> {
    match item {
        SelectItem::UnnamedExpr(expr) if column_of(expr).is_none() && row_of_all(expr).is_none() => Some(expr),
        _ => None,
    }
}

/// The names that items have by themselves, as they are shown.
fn called(items: &[SelectItem]) -> Vec<String> {
    let name = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(shown_name(&fold(alias)).to_owned()),
        SelectItem::UnnamedExpr(expr) => column_of(expr).map(fold),
        _ => None,
    };
    items.iter().filter_map(name).collect()
}

/// Keys of GROUP BY that are names: of a column of FROM, or of the list.
fn group_names(select: &Select) -> HashSet<String> {
    match &select.group_by {
        GroupByExpr::Expressions(keys, _) => keys.iter().filter_map(bare_name).map(fold).collect(),
        GroupByExpr::All(_) => HashSet::new(),
    }
}

/// The query whose columns a client is shown, or a table gets.
fn answer(statement: &mut Statement) -> Option<&mut Query> {
    match statement {
        Statement::Query(query)
        | Statement::Copy { source: CopySource::Query(query), .. }
        | Statement::CreateTable(CreateTable { query: Some(query), .. }) => Some(query),
        // EXECUTE answers it.
        Statement::Prepare { statement, .. } => answer(statement),
        _ => None,
    }
}

/// `SELECT -x AS x FROM t ORDER BY x + 0`: a key that is a name is the column of the answer, a name within a key is the
/// table's. The planner takes the answer's for both, so that gets another name.
fn tell_apart(query: &mut Query) -> bool {
    let mut has_renamed = false;
    struct ColumnNameCollector(HashSet<String>);
    impl Visitor for ColumnNameCollector {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            self.0.extend(column_of(expr).map(fold));
            ControlFlow::Continue(())
        }
    }
    let Some(OrderBy { kind: OrderByKind::Expressions(keys), .. }) = &mut query.order_by else { return false };
    let SetExpr::Select(select) = query.body.as_mut() else { return false };
    let mut within = ColumnNameCollector(HashSet::new());
    for key in keys.iter().filter(|key| bare_name(&key.expr).is_none()) {
        let _ = walk(&key.expr, &mut within);
    }
    for (idx, item) in select.projection.iter_mut().enumerate() {
        let SelectItem::ExprWithAlias { expr, alias } = item else { continue };
        let name = fold(alias);
        if !within.0.contains(&name) || column_of(expr).map(fold).as_ref() == Some(&name) {
            continue;
        }
        *alias = numbered_name(&name, idx);
        for key in keys.iter_mut().filter(|key| bare_name(&key.expr).map(fold).as_ref() == Some(&name)) {
            key.expr = Expr::Identifier(alias.clone());
        }
        has_renamed = true;
    }
    has_renamed
}

/// The same of a query inside, whose columns others name: what is around it calls them so again. Without a limit its
/// order is nobody's.
fn tell_apart_inside(query: &mut Query) {
    if query.limit_clause.is_none() && query.fetch.is_none() {
        return;
    }
    let called = |select: &Select| -> Option<Vec<Ident>> {
        let name = |item: &SelectItem| match item {
            SelectItem::ExprWithAlias { alias, .. } => Some(alias.clone()),
            SelectItem::UnnamedExpr(expr) => column_of(expr).cloned(),
            _ => None,
        };
        select.projection.iter().map(name).collect()
    };
    let SetExpr::Select(select) = query.body.as_ref() else { return };
    let Some(names) = called(select) else { return };
    if !tell_apart(query) {
        return;
    }
    let SetExpr::Select(select) = query.body.as_ref() else { return };
    let Some(inside) = called(select) else { return };
    let items = inside.into_iter().zip(names);
    let items = items.map(|(of, alias)| SelectItem::ExprWithAlias { expr: Expr::Identifier(of), alias });
    let alias = TableAlias { explicit: true, name: Ident::new(TOLD_APART), columns: vec![], at: None };
    over(query, items.collect(), alias);
}

/// The name of such a query.
const TOLD_APART: &str = "tarn_told_apart";

fn bare_name(key: &Expr) -> Option<&Ident> {
    match key {
        Expr::Identifier(name) => Some(name),
        Expr::Nested(key) => bare_name(key),
        _ => None,
    }
}

/// That which names the columns.
fn first_select(body: &mut SetExpr) -> Option<&mut Select> {
    match body {
        SetExpr::Select(select) => Some(select),
        SetExpr::Query(query) => first_select(&mut query.body),
        SetExpr::SetOperation { left, .. } => first_select(left),
        _ => None,
    }
}

/// What got a name, and which. What rows are grouped by finds it by the name alone.
fn name_unnamed(select: &mut Select) -> Vec<(Expr, Ident)> {
    let mut taken: HashSet<String> = called(&select.projection).into_iter().collect();
    let grouped = group_names(select);
    let mut named = vec![];
    for (idx, item) in select.projection.iter_mut().enumerate() {
        let SelectItem::UnnamedExpr(expr) = item else { continue };
        if column_of(expr).is_some() {
            continue;
        }
        let name = shown_as(expr);
        let alias = match grouped.contains(&name) && taken.insert(name.clone()) {
            true => Ident::with_quote('"', name),
            false => numbered_name(&name, idx),
        };
        named.push((expr.clone(), alias.clone()));
        let empty = Expr::Value(Value::Null.with_empty_span());
        *item = SelectItem::ExprWithAlias { expr: std::mem::replace(expr, empty), alias };
    }
    named
}

/// A name that is shown as `name`, and is another for each column.
pub(crate) fn numbered_name(name: &str, idx: usize) -> Ident {
    Ident::with_quote('"', format!("{name}{OTHER_NAME}{idx}"))
}

/// What `*` and `t.*` of a list may have among their columns.
struct StarColumns {
    /// `*`, or `t.*` in an answer, whose columns nobody names.
    has_all: bool,
    /// Of `t.*` in a query inside, whose columns are named by the one around it.
    tables: Vec<String>,
    /// There is no other table that a column without one could be of.
    is_only: bool,
}

impl StarColumns {
    fn of(select: &Select, is_inside: bool) -> StarColumns {
        let mut stars = StarColumns { has_all: false, tables: vec![], is_only: false };
        for item in &select.projection {
            match item {
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) if is_inside => {
                    stars.tables.extend(name.0.last().and_then(|part| part.as_ident()).map(fold));
                }
                SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => stars.has_all = true,
                _ => {}
            }
        }
        stars.is_only = matches!(&select.from[..], [table] if table.joins.is_empty());
        stars
    }

    /// May this column be one of theirs?
    fn may_have(&self, column: &Expr) -> bool {
        let table = match column {
            Expr::CompoundIdentifier(parts) => parts.iter().rev().nth(1).map(fold),
            _ => None,
        };
        self.has_all || table.map_or(self.is_only && !self.tables.is_empty(), |table| self.tables.contains(&table))
    }
}

fn name_items(items: &mut [SelectItem], stars: &StarColumns) {
    if items.len() < 2 {
        return;
    }
    let mut seen = HashSet::with_capacity(items.len());
    for (idx, item) in items.iter_mut().enumerate() {
        let (expr, name) = match item {
            SelectItem::UnnamedExpr(expr) => {
                let (plain, name) = (without_casts(expr.clone()), shown_as(expr));
                let is_beside = column_of(&plain).is_some() && stars.may_have(&plain);
                let key = match column_of(&plain) {
                    Some(column) => ColumnIdentity::Name(fold(column)),
                    None => ColumnIdentity::Expr(Box::new(plain)),
                };
                if seen.insert(key) && !is_beside {
                    continue;
                }
                (expr, name)
            }
            SelectItem::ExprWithAlias { expr, alias } => {
                let name = fold(alias);
                if seen.insert(ColumnIdentity::Name(name.clone())) {
                    continue;
                }
                (expr, name)
            }
            _ => continue,
        };
        let empty = Expr::Value(Value::Null.with_empty_span());
        *item = SelectItem::ExprWithAlias { expr: std::mem::replace(expr, empty), alias: numbered_name(&name, idx) };
    }
}

/// What two columns must not share.
#[derive(PartialEq, Eq, Hash)]
enum ColumnIdentity {
    Name(String),
    Expr(Box<Expr>),
}

/// The planner names a cast, and a sign that changes nothing, by what is below.
fn without_casts(mut expr: Expr) -> Expr {
    struct Casts;
    impl VisitorMut for Casts {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            while let Expr::Cast { expr: inner, .. }
            | Expr::Nested(inner)
            | Expr::UnaryOp { op: UnaryOperator::Plus, expr: inner } = expr
            {
                *expr = std::mem::replace(inner, Expr::Value(Value::Null.with_empty_span()));
            }
            ControlFlow::Continue(())
        }
    }
    let _ = walk_mut(&mut expr, &mut Casts);
    expr
}

/// How Postgres names a column of an answer.
pub(crate) fn shown_as(expr: &Expr) -> String {
    match name_of(expr) {
        Some((name, _)) => name,
        None => "?column?".to_owned(),
    }
}

/// A name, and whether it is better than that of a type around it. Source: PostgreSQL 16, `FigureColname`.
fn name_of(expr: &Expr) -> Option<(String, bool)> {
    let good = |name: &str| Some((name.to_owned(), true));
    let weak = |name: &str| Some((name.to_owned(), false));
    match expr {
        Expr::Function(function) => {
            function.name.0.last().and_then(|part| part.as_ident()).map(|name| (fold(name), true))
        }
        Expr::Cast { expr, data_type, .. } => {
            name_of(expr).filter(|(_, is_good)| *is_good).or_else(|| Some((type_name(data_type), false)))
        }
        Expr::TypedString(typed) => Some((type_name(&typed.data_type), false)),
        Expr::Interval(_) => weak("interval"),
        Expr::Case { else_result, .. } => {
            let otherwise = else_result.as_deref().and_then(name_of).filter(|(_, is_good)| *is_good);
            otherwise.or_else(|| weak("case"))
        }
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => name_of(inner),
        Expr::Extract { .. } => good("extract"),
        Expr::AtTimeZone { .. } => good("timezone"),
        Expr::Substring { .. } => good("substring"),
        Expr::Position { .. } => good("position"),
        Expr::Overlay { .. } => good("overlay"),
        Expr::Ceil { .. } => good("ceil"),
        Expr::Floor { .. } => good("floor"),
        Expr::Trim { trim_where, .. } => good(match trim_where {
            Some(TrimWhereField::Leading) => "ltrim",
            Some(TrimWhereField::Trailing) => "rtrim",
            _ => "btrim",
        }),
        Expr::Array(_) => good("array"),
        Expr::Tuple(items) if items.len() != 1 => good("row"),
        Expr::Exists { negated: false, .. } => good("exists"),
        Expr::Subquery(query) => match query.body.as_ref() {
            SetExpr::Select(select) => match &select.projection[..] {
                [SelectItem::UnnamedExpr(expr)] => name_of(expr),
                [SelectItem::ExprWithAlias { alias, .. }] => good(shown_name(&fold(alias))),
                _ => None,
            },
            _ => None,
        },
        Expr::CompoundFieldAccess { root, access_chain } => {
            let field = access_chain.iter().rev().find_map(|access| match access {
                AccessExpr::Dot(field) => Some(field),
                AccessExpr::Subscript(_) => None,
            });
            name_of(field.unwrap_or(root))
        }
        expr => column_of(expr).map(|name| (fold(name), true)),
    }
}

/// As Postgres' catalog has it.
fn type_name(of: &DataType) -> String {
    let name = match of {
        DataType::Bool | DataType::Boolean => "bool",
        DataType::SmallInt(_) | DataType::Int2(_) => "int2",
        DataType::Int(_) | DataType::Integer(_) | DataType::Int4(_) => "int4",
        DataType::BigInt(_) | DataType::Int8(_) => "int8",
        DataType::Real | DataType::Float4 => "float4",
        DataType::DoublePrecision | DataType::Float8 | DataType::Double(_) | DataType::Float(_) => "float8",
        DataType::Numeric(_) | DataType::Decimal(_) | DataType::Dec(_) => "numeric",
        DataType::Text => "text",
        DataType::Varchar(_) | DataType::CharacterVarying(_) | DataType::CharVarying(_) => "varchar",
        DataType::Char(_) | DataType::Character(_) => "bpchar",
        DataType::Timestamp(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => "timestamp",
        DataType::Timestamp(..) => "timestamptz",
        DataType::Time(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => "time",
        DataType::Time(..) => "timetz",
        DataType::Interval { .. } => "interval",
        DataType::Array(ArrayElemTypeDef::SquareBracket(item, _) | ArrayElemTypeDef::AngleBracket(item)) => {
            return type_name(item);
        }
        other => return other.to_string().to_lowercase(),
    };
    name.to_owned()
}

/// A column's name as the client sees it.
pub fn shown_name(name: &str) -> &str {
    name.split_once(OTHER_NAME).map_or(name, |(name, _)| name)
}

/// The columns of an answer as the client sees them.
pub fn shown(schema: &SchemaRef) -> SchemaRef {
    if !schema.fields().iter().any(|field| field.name().contains(OTHER_NAME)) {
        return Arc::clone(schema);
    }
    let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_name(shown_name(field.name())));
    Arc::new(Schema::new_with_metadata(fields.collect::<Vec<Field>>(), schema.metadata().clone()))
}
