//! Is a name one of the catalog's? A relation by its schema or, without one, by what the crate of the catalog and ours
//! have; a word that is written like a column and is a value of the session.

use datafusion::sql::sqlparser::ast::ObjectName;
use datafusion_pg_catalog::pg_catalog::PG_CATALOG_TABLES;

use crate::names::fold;

/// What there is of schema `pg_catalog` beside what crate `datafusion-pg-catalog` has.
pub(crate) const PG_TABLES: [&str; 5] = ["pg_cursors", "pg_indexes", "pg_sequences", "pg_settings", "pg_stat_activity"];

/// The parts of a name, folded.
pub(crate) fn parts(name: &ObjectName) -> Vec<String> {
    name.0.iter().filter_map(|part| part.as_ident()).map(fold).collect()
}

/// Whether a name has one of the catalog's schemas.
pub(crate) fn is_catalog(parts: &[String]) -> bool {
    let schemas = &parts[..parts.len().saturating_sub(1)];
    schemas.last().is_some_and(|schema| schema == "pg_catalog" || schema == "information_schema")
}

/// Whether a relation is one of the catalog's.
pub(crate) fn is_catalog_name(name: &ObjectName) -> bool {
    is_catalog_relation(&parts(name))
}

/// As [`is_catalog_name`], by the parts of the name.
pub(crate) fn is_catalog_relation(parts: &[String]) -> bool {
    let is_known = |name: &str| PG_CATALOG_TABLES.contains(&name) || PG_TABLES.contains(&name);
    is_catalog(parts) || matches!(parts, [name] if is_known(name))
}

/// Variables that are written like columns.
pub(crate) fn is_variable(name: &str) -> bool {
    matches!(name, "current_schema" | "current_user" | "session_user" | "current_catalog" | "current_role" | "user")
}
