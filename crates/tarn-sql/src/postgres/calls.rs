//! How is a function called, as it is written?

use tarn_query::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, ObjectName,
};

use crate::names::fold;

/// The call of a function.
pub(super) fn call(name: &str, args: Vec<Expr>) -> Expr {
    let args = args.into_iter().map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg))).collect();
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList { duplicate_treatment: None, args, clauses: vec![] }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}

/// Is it a call of that function?
pub(super) fn is_call(expr: &Expr, name: &str) -> bool {
    matches!(expr, Expr::Function(function) if is_named(&function.name, name))
}

/// Is it this name, without a schema?
pub(super) fn is_named(name: &ObjectName, as_: &str) -> bool {
    matches!(&name.0[..], [part] if part.as_ident().is_some_and(|ident| fold(ident) == as_))
}
