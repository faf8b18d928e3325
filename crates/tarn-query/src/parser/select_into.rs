//! What is `SELECT … INTO t`? `CREATE TABLE t AS SELECT …`.

use crate::sqlparser::ast::helpers::stmt_create_table::CreateTableBuilder;
use crate::sqlparser::ast::{SelectInto, SetExpr, Statement};

use super::ParseError;

/// The statement that makes a table of a query which says `INTO`; any other as it is. In the middle of a query it is
/// refused where queries are looked at.
///
/// Errors: [`ParseError::Refused`] for an unlogged table.
pub(super) fn as_create_table(statement: Statement) -> Result<Statement, ParseError> {
    let Statement::Query(mut query) = statement else { return Ok(statement) };
    let Some(into) = take_into(&mut query.body) else { return Ok(Statement::Query(query)) };
    let SelectInto { temporary, unlogged, table: _, name } = into;
    if unlogged {
        let what = "SELECT INTO UNLOGGED".to_owned();
        return Err(ParseError::Refused { what, remedy: "INTO TEMPORARY t, or INTO t: all other tables are logged" });
    }
    Ok(Statement::CreateTable(CreateTableBuilder::new(name).temporary(temporary).query(Some(query)).build()))
}

/// That of the first SELECT, which speaks for those that are united with it.
fn take_into(mut body: &mut SetExpr) -> Option<SelectInto> {
    loop {
        match body {
            SetExpr::Select(select) => return select.into.take(),
            SetExpr::SetOperation { left, .. } => body = left,
            _ => return None,
        }
    }
}
