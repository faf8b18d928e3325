//! What does `CREATE UNIQUE INDEX` say?
//!
//! Of what PostgreSQL has there, columns in their own order are understood; what else is said is refused by name, as are indexes that are not
//! unique: no query would read them.

use datafusion::sql::sqlparser::ast::{CreateIndex, IndexType, ObjectName};

use crate::error::{Result, SqlError};
use crate::names::{fold, table_name};
use crate::unique_rules::{SaidUnique, column};

/// The constraint that it is.
///
/// Errors: `0A000`.
pub fn asked(create: &CreateIndex) -> Result<SaidUnique> {
    // By all of its fields: a newer parser's clause is decided on before it compiles.
    let CreateIndex {
        name,
        table_name: _,
        using,
        columns,
        unique,
        concurrently,
        if_not_exists: _,
        include,
        nulls_distinct,
        with,
        predicate,
        index_options,
        alter_options,
    } = create;
    let is_other_kind = using.as_ref().is_some_and(|using| *using != IndexType::BTree);
    let refused = [
        (!unique, "", "the primary key orders the rows; the lake prunes by statistics and blooms"),
        (*concurrently, "CONCURRENTLY", "leave it out: nobody writes the table until it is made"),
        (is_other_kind, "USING anything but btree", "leave it out"),
        (!include.is_empty(), "INCLUDE", "leave it out: rows are found by their key"),
        (*nulls_distinct == Some(false), "NULLS NOT DISTINCT", "NOT NULL of its columns"),
        (!with.is_empty() || !index_options.is_empty() || !alter_options.is_empty(), "WITH options", "leave them out"),
        (predicate.is_some(), "WHERE", "a GENERATED column that is NULL where the condition is false"),
    ];
    for (present, clause, remedy) in refused {
        if present {
            return Err(SqlError::unsupported(format!("CREATE INDEX {clause}").trim().to_owned(), remedy));
        }
    }
    let name = name.as_ref().map(|name| name.0.last().and_then(|part| part.as_ident()).cloned());
    let columns = columns.iter().map(column).collect::<Result<_>>()?;
    Ok(SaidUnique { name: name.flatten(), columns, by_index: true })
}

/// What `DROP INDEX` names.
///
/// Errors: as of a table's name.
pub fn index_name(name: &ObjectName) -> Result<String> {
    match &name.0[..] {
        [only] => only.as_ident().map_or_else(|| table_name(name), |ident| Ok(fold(ident))),
        _ => table_name(name),
    }
}
