//! What does asyncpg ask of types that it does not know? Before it binds or reads an array it asks of what the array
//! is, by a recursive query over domains, composites and ranges that is correlated twice. Here a type has elements and
//! no other parts, so a plain query gives the same rows: the items of an array before it, if they are of a type that
//! somebody made.

use datafusion::sql::sqlparser::ast::Statement;
use tarn_query::parser::statements;

use crate::error::Result;
use crate::names::fold;

/// In the columns of its own query; those of parts that no type has are NULL, of types that it knows without asking.
const TYPES: &str = "SELECT t.oid, n.nspname AS ns, t.typname AS name, t.typtype AS kind, NULL::text AS basetype, t.typelem AS elemtype, \
     e.typdelim AS elemdelim, NULL::text AS range_subtype, NULL::text[] AS attrtypoids, NULL::text[] AS attrnames, 0 AS depth, \
     NULL::text AS basetype_name, e.typname AS elemtype_name, NULL::text AS range_subtype_name \
     FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace \
     LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem AND t.typlen = -1 \
     WHERE t.oid = ANY($1::oid[]) \
     OR (t.typtype = 'e' AND t.typarray = ANY($1::oid[])) \
     ORDER BY t.typelem";

/// The plain query in the place of asyncpg's, which names its steps like no other.
pub fn substitute(statement: Statement) -> Result<Statement> {
    let is_asked = match &statement {
        Statement::Query(query) => query.with.as_ref().is_some_and(|with| {
            with.recursive && matches!(with.cte_tables.as_slice(), [only] if fold(&only.alias.name) == "typeinfo_tree")
        }),
        _ => false,
    };
    match is_asked {
        true => Ok(statements(TYPES)?.pop().unwrap_or(statement)),
        false => Ok(statement),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_recursive_queries_stay() {
        let parsed = |sql: &str| statements(sql).unwrap().remove(0);
        let asked =
            parsed("WITH RECURSIVE typeinfo_tree(oid) AS (SELECT 1 UNION ALL SELECT 2) SELECT * FROM typeinfo_tree");
        assert_eq!(substitute(asked).unwrap(), parsed(TYPES));
        let other = parsed("WITH RECURSIVE n(oid) AS (SELECT 1 UNION ALL SELECT 2) SELECT * FROM n");
        assert_eq!(substitute(other.clone()).unwrap(), other);
    }
}
