//! Which columns has a row of a type that a statement names? Those that it was made with, or of the table or view that
//! is called so: `json_populate_recordset(NULL::t, doc)`, and `unnest(list::t[])`, both in FROM.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, DataType, Expr, Ident, SelectItem, SetExpr, Statement, TableAlias, TableFactor, Visitor,
    VisitorMut,
};
use tarn_node::types::{TypeKind, UserType};
use tarn_query::parser::statements;
use tarn_query::{is_inet, walk, walk_mut};

use super::Session;
use crate::definition::type_text;
use crate::error::{Result, SqlError, state};
use crate::postgres::in_from::query_of;
use crate::postgres::{call, field_of_row, is_populated, populate};
use crate::user_types::{type_name, undefined_type};

impl Session {
    /// A statement with what such calls in its FROM come to. `None`: there are none.
    ///
    /// Errors: `42704` for a type that is not there; `0A000` for rows that are given.
    pub(super) fn with_row_types(&self, statement: &Statement) -> Result<Option<Statement>> {
        struct PopulateCallFinder;
        impl Visitor for PopulateCallFinder {
            type Break = ();
            fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
                match is_populated(factor) || unnested(factor).is_some() {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            }
        }
        if walk(statement, &mut PopulateCallFinder).is_continue() {
            return Ok(None);
        }
        struct PopulateRewriter<'a>(&'a Session);
        impl VisitorMut for PopulateRewriter<'_> {
            type Break = SqlError;
            fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<SqlError> {
                let columns = |named: &DataType| self.0.columns_of_type(named);
                match populate(factor, columns).and_then(|()| self.0.unnest_rows(factor)) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(error) => ControlFlow::Break(error),
                }
            }
        }
        let mut own = statement.clone();
        match walk_mut(&mut own, &mut PopulateRewriter(self)) {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(Some(own)),
        }
    }

    /// The rows of an array have a column for each of their fields.
    fn unnest_rows(&self, factor: &mut TableFactor) -> Result<()> {
        let Some(named) = unnested(factor) else { return Ok(()) };
        let is_label = |name: &str| self.node.types().get(name).is_some_and(|of| of.enumerated().is_some());
        if type_name(named).is_none_or(|name| is_label(&name)) {
            return Ok(());
        }
        let columns = self.columns_of_type(named)?;
        let TableFactor::UNNEST { alias, array_exprs, .. } = factor else { return Ok(()) };
        let rows = call("unnest", std::mem::take(array_exprs));
        let items = columns.into_iter().map(|(name, _)| SelectItem::ExprWithAlias {
            expr: field_of_row(rows.clone(), &name),
            alias: Ident::with_quote('"', name),
        });
        let Some(subquery) = query_of(items.collect()) else { return Ok(()) };
        let mut alias = alias.take().unwrap_or(TableAlias {
            explicit: true,
            name: Ident::new("unnest"),
            columns: vec![],
            at: None,
        });
        // That of a column of values, which was put there.
        if matches!(&alias.columns[..], [column] if column.name == alias.name) {
            alias.columns.clear();
        }
        *factor = TableFactor::Derived { lateral: true, subquery, alias: Some(alias), sample: None };
        Ok(())
    }

    fn columns_of_type(&self, named: &DataType) -> Result<Vec<(String, DataType)>> {
        let name = type_name(named).ok_or_else(|| {
            let message = "first argument of json_populate_record must be a row type";
            SqlError::new(state::DATATYPE_MISMATCH, message).with_hint("NULL::name of a table")
        })?;
        if let Some(UserType { kind: TypeKind::Row { columns }, .. }) = self.node.types().get(&name) {
            return columns.iter().map(|of| Ok((of.name.clone(), written_type(&of.data_type)?))).collect();
        }
        let table = self.definition(&name).map_err(|_| undefined_type(&name))?;
        let columns = table.shown().iter().enumerate();
        columns.map(|(at, column)| Ok((column.name.clone(), written_type(&type_text(&table, at))?))).collect()
    }
}

/// The type of the items of an array that is unnested, if it is said there and is none of the language's.
fn unnested(factor: &TableFactor) -> Option<&DataType> {
    fn items(array: &Expr) -> Option<&DataType> {
        let of = match array {
            Expr::Nested(array) => return items(array),
            Expr::Cast { data_type: DataType::Array(ArrayElemTypeDef::SquareBracket(item, _)), .. } => item.as_ref(),
            Expr::Array(array) => array.elem.iter().find_map(|item| match item {
                Expr::Cast { data_type, .. } => Some(data_type),
                _ => None,
            })?,
            _ => return None,
        };
        (matches!(of, DataType::Custom(..)) && !is_inet(of)).then_some(of)
    }
    match factor {
        TableFactor::UNNEST { array_exprs, with_ordinality: false, .. } => match &array_exprs[..] {
            [array] => items(array),
            _ => None,
        },
        _ => None,
    }
}

/// A type as the parser has it.
fn written_type(text: &str) -> Result<DataType> {
    let none = || SqlError::new(state::INTERNAL, format!("{text} is no type"));
    let Some(Statement::Query(query)) = statements(&format!("SELECT NULL::{text}"))?.pop() else { return Err(none()) };
    let SetExpr::Select(select) = *query.body else { return Err(none()) };
    match select.projection.into_iter().next() {
        Some(SelectItem::UnnamedExpr(Expr::Cast { data_type, .. })) => Ok(data_type),
        _ => Err(none()),
    }
}
