//! What is a query with nothing around it?

use crate::sqlparser::ast::{Query, SetExpr};

/// The query of a body: without WITH, an order or a limit.
pub(crate) fn query_of(body: SetExpr) -> Query {
    Query {
        with: None,
        body: Box::new(body),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: vec![],
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: vec![],
    }
}
