//! What are the columns of `json_populate_recordset(NULL::t, doc)`? Those of a row of `t`, so it is
//! `json_to_recordset(doc) AS t(a int, b text)`. Which they are is known to a session alone: a statement is changed so
//! when it is prepared. Of a row that is given, `row(1, 'x')::t`, it is a query of the fields of what the function
//! gives.

use datafusion::sql::sqlparser::ast::{
    DataType, Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, SelectItem, Statement, TableAlias,
    TableAliasColumnDef, TableFactor, TableFunctionArgs, Value,
};
use tarn_query::datafusion;

use super::record_sets::{populated, populates};
use super::to_record;
use crate::error::{Result, SqlError};
use crate::postgres::calls::take;
use crate::postgres::in_from::query_of;
use crate::postgres::row_access::field_of;
use crate::postgres::select_list;

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
/// Errors: those of `columns_of`; `0A000` for a row whose type is not told by a cast.
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
        let columns = columns_of(&*data_type)?;
        let populated = populated(of, is_set, take(row), take(doc));
        let items = columns.into_iter().map(|(name, _)| SelectItem::ExprWithAlias {
            expr: field_of(populated.clone(), &name),
            alias: Ident::with_quote('"', name),
        });
        let Some(subquery) = query_of(items.collect()) else { return Ok(()) };
        let alias =
            alias.take().unwrap_or(TableAlias { explicit: true, name: Ident::new(called), columns: vec![], at: None });
        *factor = TableFactor::Derived { lateral: true, subquery, alias: Some(alias), sample: None };
        return Ok(());
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
