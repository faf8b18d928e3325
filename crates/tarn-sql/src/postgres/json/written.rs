//! Which calls of JSON are read as others? Statements are changed as they are written, before they are planned:
//!
//! - `json_agg(x ORDER BY y)` is an array of what `array_agg(tarn_json_value(x) ORDER BY y)` collects, which bounds and
//!   orders it; `json_object_agg(a, b)` is one of members.
//! - `json_array_elements(x)` and `jsonb_path_query(x, path)` give the rows of a list: `unnest` of it in a select list,
//!   and in FROM a query of it.
//! - A text that is written out, or a parameter, where a function takes JSON, is cast to it; and one in VALUES, where
//!   another row has JSON.
//! - `e` of `FROM json_array_elements(x) AS e` is its only column, which is called `value`, too.

use std::ops::ControlFlow;

use tarn_query::parser::ASSIGNED;
use tarn_query::sqlparser::ast::{
    ArrayElemTypeDef, CastKind, DataType, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, Ident, ObjectName, OrderBy, Query, Select, SelectItem, TableAlias, TableAliasColumnDef,
    TableFactor, Value, Values, Visitor, VisitorMut,
};
use tarn_query::{Walkable, walk, walk_mut};

use super::build::{ARRAY_OF, MEMBER, OBJECT_OF, VALUE};
use super::list::{EACH_NAMES, ITEM_TEXTS, ITEMS, NAMES, VALUE_TEXTS, VALUES};
use super::marked::AS_JSON;
use super::{path, set_lax};
use crate::error::{Result, SqlError};
use crate::names::fold;
use crate::postgres::calls::{call, is_named, take};
use crate::postgres::in_from;
use crate::postgres::kept_as_text::{JSON, JSONB, cast_to};
use crate::postgres::ordinality;

/// A column of a function that gives rows.
struct RecordColumn {
    /// As PostgreSQL calls it. `None`: as the table.
    name: Option<&'static str>,
    /// The list of its values, of a `json` and of a `jsonb`.
    list: [&'static str; 2],
    is_json: bool,
}

/// What takes more than a document.
const PATH_QUERY: &str = "_path_query";

/// Functions that give rows, without `json` or `jsonb` before their names.
const SETS: [(&str, &[RecordColumn]); 6] = [
    (PATH_QUERY, &[RecordColumn { name: None, list: [path::FOUND, path::FOUND], is_json: true }]),
    ("_array_elements", &[RecordColumn { name: Some("value"), list: ITEMS, is_json: true }]),
    ("_array_elements_text", &[RecordColumn { name: Some("value"), list: ITEM_TEXTS, is_json: false }]),
    ("_object_keys", &[RecordColumn { name: None, list: NAMES, is_json: false }]),
    (
        "_each",
        &[
            RecordColumn { name: Some("key"), list: EACH_NAMES, is_json: false },
            RecordColumn { name: Some("value"), list: VALUES, is_json: true },
        ],
    ),
    (
        "_each_text",
        &[
            RecordColumn { name: Some("key"), list: EACH_NAMES, is_json: false },
            RecordColumn { name: Some("value"), list: VALUE_TEXTS, is_json: false },
        ],
    ),
];

/// Functions that take a document first, without `json` or `jsonb` before their names.
const OF_DOCUMENT: [&str; 7] =
    ["_array_length", "_extract_path", "_extract_path_text", "_insert", "_pretty", "_set", "_typeof"];

/// Which of `json` and `jsonb` a function is of, and what is behind that in its name.
pub(super) fn named(name: &ObjectName) -> Option<(usize, String)> {
    let [part] = &name.0[..] else { return None };
    let name = fold(part.as_ident()?);
    let rest = name.strip_prefix("jsonb").map(|rest| (1, rest.to_owned()));
    rest.or_else(|| name.strip_prefix("json").map(|rest| (0, rest.to_owned())))
}

fn set(name: &ObjectName) -> Option<(usize, &'static [RecordColumn])> {
    let (of, rest) = named(name)?;
    if rest == PATH_QUERY && of == 0 {
        return None;
    }
    SETS.iter().find(|(name, _)| *name == rest).map(|(_, columns)| (of, *columns))
}

fn is_path(name: &ObjectName) -> bool {
    named(name).is_some_and(|(_, rest)| rest == PATH_QUERY)
}

/// Whether it is a call that gives rows.
pub(in crate::postgres) fn gives_rows(expr: &Expr) -> bool {
    matches!(expr, Expr::Function(function) if set(&function.name).is_some())
}

/// A document that is written out, or a parameter, as one.
pub(in crate::postgres) fn document(arg: &mut Expr, of: usize) {
    if is_text(arg) || is_parameter(arg) {
        *arg = call([JSON, JSONB][of], vec![take(arg)]);
    }
}

fn is_parameter(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if matches!(value.value, Value::Placeholder(_)))
}

/// `x::text[]`.
fn as_texts(of: Expr) -> Expr {
    let texts = DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(DataType::Text), None));
    Expr::Cast { kind: CastKind::DoubleColon, expr: Box::new(of), data_type: texts, array: false, format: None }
}

fn is_text(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value)
        if matches!(value.value, Value::SingleQuotedString(_) | Value::EscapedStringLiteral(_)))
}

/// Texts and NULLs of a column of VALUES that is a `uuid`, `json` or `jsonb` in another row.
pub(in crate::postgres) fn values(values: &mut Values) {
    let n_columns = values.rows.first().map_or(0, |row| row.content.len());
    for at in 0..n_columns {
        let cast = |expr: &Expr| match expr {
            Expr::Cast { data_type, .. } => cast_to(data_type),
            Expr::TypedString(typed) => cast_to(&typed.data_type),
            _ => None,
        };
        let Some(cast) = values.rows.iter().find_map(|row| row.content.get(at).and_then(cast)) else { continue };
        for value in values.rows.iter_mut().filter_map(|row| row.content.get_mut(at)) {
            if is_text(value) || matches!(&*value, Expr::Value(value) if value.value == Value::Null) {
                *value = call(cast, vec![take(value)]);
            }
        }
    }
}

/// Names the column of a function that gives rows as its table is, where it is asked for by that name.
pub(in crate::postgres) fn name_rows(select: &mut Select, mut order_by: Option<&mut OrderBy>) {
    let factors = select.from.iter_mut().flat_map(|from| {
        std::iter::once(&mut from.relation).chain(from.joins.iter_mut().map(|join| &mut join.relation))
    });
    let aliases = factors.filter_map(|factor| match factor {
        TableFactor::Table { name, alias: Some(alias), args: Some(_), .. }
        | TableFactor::Function { name, alias: Some(alias), .. } => {
            let (_, [RecordColumn { name: Some(_), .. }]) = set(name)? else { return None };
            alias.columns.is_empty().then(|| alias.name.clone())
        }
        _ => None,
    });
    let aliases: Vec<Ident> = aliases.collect();
    for alias in aliases {
        let called = fold(&alias);
        if is_asked(select, &called) || order_by.as_deref().is_some_and(|order_by| is_asked(order_by, &called)) {
            keep_names(&mut select.projection, &alias);
            rename(select, &alias);
            order_by.iter_mut().for_each(|order_by| rename(*order_by, &alias));
        }
    }
}

/// Whether a column is asked for by that name alone.
fn is_asked(part: &impl Walkable, called: &str) -> bool {
    struct NameFinder<'a>(&'a str);
    impl Visitor for NameFinder<'_> {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Identifier(ident) if fold(ident) == self.0 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    walk(part, &mut NameFinder(called)).is_break()
}

/// A column that is shown is called `value` still.
fn keep_names(items: &mut [SelectItem], alias: &Ident) {
    for item in items {
        if let SelectItem::UnnamedExpr(expr @ Expr::CompoundIdentifier(_)) = item
            && let Expr::CompoundIdentifier(parts) = &*expr
            && let [table, column] = &parts[..]
            && fold(table) == fold(alias)
            && fold(column) == "value"
        {
            *item = SelectItem::ExprWithAlias { expr: take(expr), alias: Ident::new("value") };
        }
    }
}

/// `e.value` is `e.e`, where the column of `e` is called so.
fn rename(part: &mut impl Walkable, alias: &Ident) {
    struct Rename<'a>(&'a Ident);
    impl VisitorMut for Rename<'_> {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if let Expr::CompoundIdentifier(parts) = expr
                && let [table, column] = &mut parts[..]
                && fold(table) == fold(self.0)
                && fold(column) == "value"
            {
                *column = self.0.clone();
            }
            ControlFlow::Continue(())
        }
        fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
            if let TableFactor::Table { name, alias: Some(alias), args: Some(_), .. }
            | TableFactor::Function { name, alias: Some(alias), .. } = factor
                && set(name).is_some()
                && fold(&alias.name) == fold(self.0)
            {
                alias.columns = vec![TableAliasColumnDef { name: self.0.clone(), data_type: None }];
            }
            ControlFlow::Continue(())
        }
    }
    let _ = walk_mut(part, &mut Rename(alias));
}

fn args_of(function: &mut Function) -> Vec<&mut Expr> {
    let FunctionArguments::List(list) = &mut function.args else { return vec![] };
    list.args.iter_mut().filter_map(plain).collect()
}

fn plain(arg: &mut FunctionArg) -> Option<&mut Expr> {
    match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    }
}

/// Calls that are aggregates, and documents that are arguments.
pub(in crate::postgres) fn function(expr: &mut Expr) -> Result<()> {
    let Expr::Function(function) = expr else { return Ok(()) };
    if is_named(&function.name, ASSIGNED) {
        args_of(function).into_iter().skip(1).take(1).for_each(|value| document(value, 1));
        return Ok(());
    }
    let Some((of, rest)) = named(&function.name) else { return Ok(()) };
    match rest.as_str() {
        "_agg" => {
            let mut args = args_of(function);
            let [value] = &mut args[..] else { return Ok(()) };
            let json = call(VALUE, vec![take(value)]);
            collected(expr, json, ARRAY_OF[of])
        }
        "_object_agg" => {
            let mut args = args_of(function);
            let [name, value] = &mut args[..] else { return Ok(()) };
            let member = call(MEMBER, vec![take(name), take(value)]);
            collected(expr, member, OBJECT_OF[of])
        }
        "_object" => {
            // `'{a,1}'` is an array of texts.
            for arg in args_of(function).into_iter().filter(|arg| is_text(arg) || is_parameter(arg)) {
                *arg = as_texts(take(arg));
            }
            Ok(())
        }
        "_contains" | "_contained" | "_concat" if of == 1 => {
            args_of(function).into_iter().for_each(|arg| document(arg, of));
            Ok(())
        }
        "_exists" | "_exists_any" | "_exists_all" | "_delete" | "_delete_path" if of == 1 => {
            args_of(function).into_iter().take(1).for_each(|arg| document(arg, of));
            Ok(())
        }
        "_set_lax" if of == 1 => set_lax::write_out(expr),
        rest if rest.starts_with("_path_") => {
            of_path(args_of(function));
            Ok(())
        }
        rest if OF_DOCUMENT.contains(&rest) || rest == "_strip_nulls" => {
            for (idx, arg) in args_of(function).into_iter().enumerate() {
                let changes = matches!(rest, "_set" | "_insert");
                if idx == 0 || (idx == 2 && changes) {
                    document(arg, of);
                } else if idx == 1 && changes && is_parameter(arg) {
                    *arg = as_texts(take(arg));
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Arguments of a function that asks a document by a path: a path that is cast is a text, and variables are a document.
fn of_path(args: Vec<&mut Expr>) {
    for (idx, arg) in args.into_iter().enumerate() {
        match idx {
            0 | 2 => document(arg, 1),
            1 => {
                if let Expr::Cast { expr: of, data_type: DataType::Custom(name, _), .. } = arg
                    && is_named(name, "jsonpath")
                {
                    *arg = take(of);
                }
            }
            _ => {}
        }
    }
}

/// An aggregate becomes a function of what `array_agg` collects of `value`.
fn collected(expr: &mut Expr, value: Expr, whole: &str) -> Result<()> {
    let Expr::Function(mut aggregate) = take(expr) else { return Ok(()) };
    if let FunctionArguments::List(list) = &mut aggregate.args {
        if list.duplicate_treatment == Some(DuplicateTreatment::Distinct) {
            return Err(SqlError::unsupported(
                format!("{} of DISTINCT values is not supported", aggregate.name),
                "aggregate a subquery of them: FROM (SELECT DISTINCT … ORDER BY …)",
            ));
        }
        list.args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(value))];
    }
    aggregate.name = ObjectName::from(vec![Ident::new("array_agg")]);
    *expr = call(whole, vec![Expr::Function(aggregate)]);
    Ok(())
}

/// The rows of a column, in a select list.
fn rows(column: &RecordColumn, of: usize, args: Vec<Expr>) -> Expr {
    let rows = call("unnest", vec![call(column.list[of], args)]);
    if column.is_json { call(AS_JSON[of], vec![rows]) } else { rows }
}

/// A call in a select list that gives rows.
pub(in crate::postgres) fn in_select_list(expr: &mut Expr) -> Result<()> {
    let Expr::Function(function) = expr else { return Ok(()) };
    let Some((of, columns)) = set(&function.name) else { return Ok(()) };
    let name = function.name.to_string();
    let is_path = is_path(&function.name);
    let mut args = args_of(function);
    let [column] = columns else {
        return Err(SqlError::unsupported(
            format!("{name} in a select list is not supported"),
            format!("call it in FROM: SELECT key, value FROM {name}(…)"),
        ));
    };
    if is_path {
        of_path(args);
    } else if let [arg] = &mut args[..] {
        document(arg, of);
    } else {
        return Ok(());
    }
    let args = args_of(function).into_iter().map(take).collect();
    *expr = rows(column, of, args);
    Ok(())
}

/// A call in FROM that gives rows becomes a query of them.
pub(in crate::postgres) fn in_from(factor: &mut TableFactor) -> Result<()> {
    let (name, alias, args, is_numbered) = match factor {
        TableFactor::Table { name, alias, args: Some(args), with_ordinality, .. } => {
            (name, alias, &mut args.args, *with_ordinality)
        }
        TableFactor::Function { name, alias, args, with_ordinality, .. } => (name, alias, args, *with_ordinality),
        _ => return Ok(()),
    };
    let Some((of, columns)) = set(name) else { return Ok(()) };
    let is_path = is_path(name);
    let mut given: Vec<&mut Expr> = args.iter_mut().filter_map(plain).collect();
    if is_path {
        of_path(given);
    } else if let [arg] = &mut given[..] {
        document(arg, of);
    } else {
        return Ok(());
    }
    let args: Vec<Expr> = args.iter_mut().filter_map(plain).map(take).collect();
    let called = alias.as_ref().map_or_else(|| Ident::new(fold_of(name)), |alias| alias.name.clone());
    let items = columns.iter().map(|column| SelectItem::ExprWithAlias {
        expr: rows(column, of, args.clone()),
        alias: column.name.map_or_else(|| called.clone(), Ident::new),
    });
    let list = is_numbered.then(|| call(columns[0].list[of], args.clone()));
    let items = items.chain(list.map(ordinality::numbers)).collect();
    let Some(subquery): Option<Box<Query>> = in_from::query_of(items) else { return Ok(()) };
    let alias = alias.take().unwrap_or(TableAlias { explicit: true, name: called, columns: vec![], at: None });
    *factor = TableFactor::Derived { lateral: true, subquery, alias: Some(alias), sample: None };
    Ok(())
}

fn fold_of(name: &ObjectName) -> String {
    name.0.last().and_then(|part| part.as_ident()).map(fold).unwrap_or_default()
}
