//! In which order are the items of `array_agg(DISTINCT x)`? PostgreSQL finds equal ones by sorting, so they are sorted,
//! NULL last. DataFusion finds them by their hashes.
//!
//! So the call is written with that order, unless it has one. What gives another value each time has none.

use tarn_query::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments,
    OrderByExpr, OrderByOptions,
};

use super::calls::{is_named, is_volatile};

/// Orders what is collected of values that differ.
pub(super) fn rewrite(expr: &mut Expr) {
    let Expr::Function(Function { name, args: FunctionArguments::List(list), over: None, .. }) = expr else { return };
    let collects = is_named(name, "array_agg") || is_named(name, "string_agg");
    let is_ordered = list.clauses.iter().any(|clause| matches!(clause, FunctionArgumentClause::OrderBy(_)));
    if !collects || is_ordered || list.duplicate_treatment != Some(DuplicateTreatment::Distinct) {
        return;
    }
    if let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(of))) = list.args.first()
        && !is_volatile(of)
    {
        let options = OrderByOptions { asc: None, nulls_first: None };
        let by = OrderByExpr { expr: of.clone(), options, with_fill: None };
        list.clauses.push(FunctionArgumentClause::OrderBy(vec![by]));
    }
}
