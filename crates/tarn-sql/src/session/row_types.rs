//! Which columns has a row of a type that a statement names? Those that it was made with, or of the table or view that is
//! called so: `json_populate_recordset(NULL::t, doc)`.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    DataType, Expr, SelectItem, SetExpr, Statement, TableFactor, Visitor, VisitorMut,
};
use tarn_node::types::{TypeKind, UserType};
use tarn_query::parser::statements;
use tarn_query::{walk, walk_mut};

use super::Session;
use crate::definition::type_text;
use crate::error::{Result, SqlError, state};
use crate::postgres::{is_populated, populate};
use crate::user_types::{type_name, undefined_type};

impl Session {
    /// A statement with what such calls in its FROM come to. `None`: there are none.
    ///
    /// Errors: `42704` for a type that is not there; `0A000` for rows that are given.
    pub(super) fn with_row_types(&self, statement: &Statement) -> Result<Option<Statement>> {
        struct Calls;
        impl Visitor for Calls {
            type Break = ();
            fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
                match is_populated(factor) {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            }
        }
        if walk(statement, &mut Calls).is_continue() {
            return Ok(None);
        }
        struct Populated<'a>(&'a Session);
        impl VisitorMut for Populated<'_> {
            type Break = SqlError;
            fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<SqlError> {
                match populate(factor, |named| self.0.columns_of_type(named)) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(error) => ControlFlow::Break(error),
                }
            }
        }
        let mut own = statement.clone();
        match walk_mut(&mut own, &mut Populated(self)) {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(Some(own)),
        }
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
