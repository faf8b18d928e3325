//! What is `json_populate_recordset(base, doc)` in a select list? `json_populate_record` of each object of the array,
//! which `unnest` makes rows of.

use tarn_query::sqlparser::ast::{Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName};

use super::list::FILLED_RECORDS;
use super::marked::AS_JSON;
use super::written::{document, named};
use crate::postgres::calls::{call, take};

/// The functions of one row.
const POPULATE_RECORD: [&str; 2] = ["json_populate_record", "jsonb_populate_record"];

/// Whether it is one of these functions, and if so: of which JSON, and whether it gives a row for each item.
pub(super) fn populates(name: &ObjectName) -> Option<(usize, bool)> {
    let (of, rest) = named(name)?;
    match rest.as_str() {
        "_populate_record" => Some((of, false)),
        "_populate_recordset" => Some((of, true)),
        _ => None,
    }
}

/// Whether it is a call that gives rows.
pub(in crate::postgres) fn gives_rows(expr: &Expr) -> bool {
    matches!(expr, Expr::Function(function) if populates(&function.name).is_some_and(|(_, is_set)| is_set))
}

/// A call in a select list that gives rows.
pub(in crate::postgres) fn in_select_list(expr: &mut Expr) {
    let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = expr else { return };
    let Some((of, is_set)) = populates(name) else { return };
    if let [FunctionArg::Unnamed(FunctionArgExpr::Expr(row)), FunctionArg::Unnamed(FunctionArgExpr::Expr(doc))] =
        &mut list.args[..]
    {
        *expr = populated(of, is_set, take(row), take(doc));
    }
}

/// A row that is filled from JSON, or one for each object of an array.
pub(super) fn populated(of: usize, is_set: bool, row: Expr, mut doc: Expr) -> Expr {
    if is_set {
        document(&mut doc, of);
        doc = call(AS_JSON[of], vec![call("unnest", vec![call(FILLED_RECORDS[of], vec![doc])])]);
    }
    call(POPULATE_RECORD[of], vec![row, doc])
}
