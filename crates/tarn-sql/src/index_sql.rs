//! What do `CREATE INDEX` and `CREATE UNIQUE INDEX` say?
//!
//! Of what PostgreSQL has there, columns, their order and their class of operators are understood; what else is said is
//! refused by name. `CONCURRENTLY` is taken: nobody reads the table later for it, and who writes waits as for any other
//! index.

use datafusion::sql::sqlparser::ast::{
    CreateIndex, Expr, IndexColumn, IndexType, ObjectName, OrderByExpr, OrderByOptions,
};
use tarn_types::IndexedColumn;

use crate::error::{Result, SqlError, state};
use crate::names::{fold, table_name};
use crate::unique_rules::SaidUnique;

/// The index that it is.
///
/// Errors: `0A000`; `42704` for an access method that PostgreSQL does not have.
pub fn asked(create: &CreateIndex) -> Result<SaidUnique> {
    // By all of its fields: a newer parser's clause is decided on before it compiles.
    let CreateIndex {
        name,
        table_name: _,
        using,
        columns,
        unique,
        concurrently: _,
        if_not_exists: _,
        include,
        nulls_distinct,
        with,
        predicate,
        index_options,
        alter_options,
    } = create;
    check_method(using.as_ref())?;
    let refused = [
        (!include.is_empty(), "INCLUDE", "leave it out: rows are found by their key"),
        (*nulls_distinct == Some(false), "NULLS NOT DISTINCT", "NOT NULL of its columns"),
        (!with.is_empty() || !index_options.is_empty() || !alter_options.is_empty(), "WITH options", "leave them out"),
        (predicate.is_some() && *unique, "WHERE", "a GENERATED column that is NULL where the condition is false"),
        (predicate.is_some(), "WHERE", "leave it out: an index of all rows finds these, too"),
    ];
    for (present, clause, remedy) in refused {
        if present {
            return Err(SqlError::unsupported(format!("CREATE INDEX {clause}"), remedy));
        }
    }
    let name = name.as_ref().map(|name| name.0.last().and_then(|part| part.as_ident()).cloned());
    let said: Vec<(String, IndexedColumn)> = columns.iter().map(indexed).collect::<Result<_>>()?;
    let (columns, orders) = said.into_iter().unzip();
    Ok(SaidUnique { name: name.flatten(), columns, by_index: true, repeats: !unique, orders })
}

fn check_method(using: Option<&IndexType>) -> Result<()> {
    let Some(using) = using else { return Ok(()) };
    let method = using.to_string().to_lowercase();
    match method.as_str() {
        "btree" => Ok(()),
        "hash" | "gin" | "gist" | "spgist" | "brin" => Err(SqlError::unsupported(
            format!("CREATE INDEX USING {method}"),
            "USING btree, or leave it out; for words in texts, WITH (tokens = '…') of the table",
        )),
        _ => {
            let message = format!("access method \"{method}\" does not exist");
            Err(SqlError::new(state::UNDEFINED_OBJECT, message).with_hint("USING btree, or leave it out"))
        }
    }
}

/// A column of an index, and what is said of it.
///
/// Errors: `0A000` for an expression, and for a collation.
fn indexed(column: &IndexColumn) -> Result<(String, IndexedColumn)> {
    let IndexColumn { column: OrderByExpr { expr, options, with_fill: _ }, operator_class } = column;
    let OrderByOptions { asc, nulls_first } = options;
    let Expr::Identifier(ident) = expr else {
        return Err(match expr {
            Expr::Collate { .. } => {
                SqlError::unsupported("CREATE INDEX … COLLATE", "leave it out: texts have one order")
            }
            _ => SqlError::unsupported(
                "an index of anything but columns",
                "name columns: (a, b); a GENERATED column keeps what an expression gives",
            ),
        });
    };
    let descending = *asc == Some(false);
    let operators = operator_class.as_ref().and_then(|class| class.0.last()?.as_ident().map(fold));
    let order = IndexedColumn { descending, nulls_first: nulls_first.unwrap_or(descending), operators };
    Ok((fold(ident), order))
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
