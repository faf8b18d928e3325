//! What are the columns of `json_populate_recordset(NULL::t, doc)`? Those of a row of `t`, so it is `json_to_recordset(doc) AS t(a int, b text)`. Which they are
//! is known to a session alone: a statement is changed so when it is prepared.

use datafusion::sql::sqlparser::ast::{
    DataType, Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, Statement, TableAlias, TableAliasColumnDef,
    TableFactor, TableFunctionArgs, Value,
};
use tarn_query::datafusion;

use super::to_record;
use super::written::named;
use crate::error::{Result, SqlError};
use crate::postgres::calls::take;
use crate::postgres::select_list;

/// Whether it is one of these functions, and if so: of which JSON, and whether it gives a row for each item.
fn populates(name: &ObjectName) -> Option<(usize, bool)> {
    let (of, rest) = named(name)?;
    match rest.as_str() {
        "_populate_record" => Some((of, false)),
        "_populate_recordset" => Some((of, true)),
        _ => None,
    }
}

/// Whether a part of FROM is a call of them.
pub(crate) fn is_populated(factor: &TableFactor) -> bool {
    match factor {
        TableFactor::Table { name, args: Some(_), .. } | TableFactor::Function { name, .. } => {
            populates(name).is_some()
        }
        _ => false,
    }
}

/// The same with the columns that `columns_of` knows.
///
/// Errors: those of `columns_of`; `0A000` for a row that others are put into.
pub(crate) fn in_from(
    factor: &mut TableFactor,
    columns_of: impl Fn(&DataType) -> Result<Vec<(String, DataType)>>,
) -> Result<()> {
    let (name, alias, args) = match factor {
        TableFactor::Table {
            name, alias, args: Some(TableFunctionArgs { args, .. }), with_ordinality: false, ..
        }
        | TableFactor::Function { name, alias, args, with_ordinality: false, .. } => (name, alias, args),
        _ => return Ok(()),
    };
    let Some((of, is_set)) = populates(name) else { return Ok(()) };
    let called = name.to_string();
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(row)), FunctionArg::Unnamed(FunctionArgExpr::Expr(doc))] =
        &mut args[..]
    else {
        return Ok(());
    };
    let Expr::Cast { expr, data_type, .. } = row else { return Err(no_type(&called)) };
    if !matches!(expr.as_ref(), Expr::Value(value) if value.value == Value::Null) {
        return Err(SqlError::unsupported(
            format!("{called} of a row that is given"),
            format!("{called}(NULL::type, …), and coalesce its columns"),
        ));
    }
    if alias.as_ref().is_some_and(|alias| !alias.columns.is_empty()) {
        return Err(SqlError::unsupported(
            format!("other names for the columns of {called}"),
            "name them in the list of columns",
        ));
    }
    let columns = columns_of(&*data_type)?.into_iter().map(|(name, data_type)| TableAliasColumnDef {
        name: Ident::with_quote('"', name),
        data_type: Some(data_type),
    });
    let columns = columns.collect();
    *alias = Some(match alias.take() {
        Some(alias) => TableAlias { columns, ..alias },
        None => TableAlias { explicit: true, name: Ident::new(called), columns, at: None },
    });
    let doc = take(doc);
    *args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(doc))];
    let to = format!("{}_to_record{}", ["json", "jsonb"][of], if is_set { "set" } else { "" });
    *name = ObjectName::from(vec![Ident::new(to)]);
    to_record::in_from(factor)?;
    // The casts of its columns are read as those of statements.
    if let TableFactor::Derived { subquery, .. } = factor {
        let mut statement = Statement::Query(subquery.clone());
        select_list::rewrite(&mut statement)?;
        if let Statement::Query(rewritten) = statement {
            *subquery = rewritten;
        }
    }
    Ok(())
}

fn no_type(called: &str) -> SqlError {
    SqlError::unsupported(
        format!("{called} of a row of no named type"),
        format!("{called}(NULL::name of a table, …), or json_to_record(…) AS x(a int, b text)"),
    )
}
