//! What is there? `\d`, `\dt` and their like, by the server's own catalog.

use std::io::Write;

use anyhow::{Result, bail};
use tarn_console::lex::unquoted;

use super::session::Session;

/// Schemas that have no definitions to show.
const OF_SYSTEM: [&str; 3] = ["tarn", "pg_catalog", "information_schema"];

/// `\d NAME`, `\d+ NAME`: columns, key and options of a table; with `has_more` what it takes, too.
pub fn table(session: &mut Session, name: &str, has_more: bool) -> Result<()> {
    let parts: Vec<String> = name.split('.').map(unquoted).collect();
    let (schema, table) = match parts.as_slice() {
        [table] => ("public", table.as_str()),
        [schema, table] => (schema.as_str(), table.as_str()),
        _ => bail!("{name} is no name of a table: TABLE or SCHEMA.TABLE"),
    };
    let (quoted_schema, quoted) = (literal(schema), literal(table));
    let here = format!("table_schema = {quoted_schema} AND table_name = {quoted}");
    if session.rows(&format!("SELECT 1 FROM information_schema.tables WHERE {here}"))?.is_empty() {
        bail!("there is no table {name}: \\dt lists the tables, \\dv the views");
    }
    if OF_SYSTEM.contains(&schema) {
        return session.show(&format!(
            "SELECT column_name, data_type FROM information_schema.columns WHERE {here} ORDER BY ordinal_position"
        ));
    }
    session.show(&format!("DESCRIBE {name}"))?;
    // As the server's tables call it.
    let quoted = if schema == "public" { quoted } else { literal(&format!("{schema}.{table}")) };
    let asked = format!("SELECT primary_key, definition FROM tarn.tables WHERE table_name = {quoted}");
    let told = session.rows(&asked)?;
    let mut told = told.into_iter().next().unwrap_or_default().into_iter();
    let (key, definition) = (told.next().flatten(), told.next().flatten());
    if let Some(key) = key {
        let key = if key.is_empty() { "none: rows may be equal" } else { &key };
        writeln!(session.out, "Primary key: {key}")?;
    }
    if let Some(options) = definition.as_deref().and_then(options) {
        writeln!(session.out, "Options: {options}")?;
    }
    session.out.finish()?;
    if has_more {
        session.show(&format!("SELECT {SIZES} FROM tarn.tables WHERE table_name = {quoted}"))?;
    }
    Ok(())
}

/// What stands behind `WITH (` in a definition.
fn options(definition: &str) -> Option<&str> {
    let (_, options) = definition.rsplit_once(") WITH (")?;
    Some(options.trim_end().trim_end_matches(')'))
}

const SIZES: &str = "tablets, recent_rows, recent_bytes, lake_rows, dead_rows, lake_files, lake_bytes";

/// `\dt`, `\dt+`.
pub fn tables(session: &mut Session, pattern: &str, has_more: bool) -> Result<()> {
    let columns =
        if has_more { format!("table_name, primary_key, {SIZES}") } else { "table_name, primary_key".to_owned() };
    session.show(&format!("SELECT {columns} FROM tarn.tables WHERE {} ORDER BY 1", like("table_name", pattern)))
}

/// `\dv`: views, which are the system's.
pub fn views(session: &mut Session, pattern: &str) -> Result<()> {
    let (schema, name) = pattern.split_once('.').unwrap_or(("", pattern));
    let schemas = if schema.is_empty() {
        "table_schema NOT IN ('pg_catalog', 'information_schema')".to_owned()
    } else {
        like("table_schema", schema)
    };
    session.show(&format!(
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'VIEW' AND {schemas} AND {} ORDER BY 1, 2",
        like("table_name", name)
    ))
}

/// `\di`.
pub fn indexes(session: &mut Session, pattern: &str) -> Result<()> {
    session.show(&format!(
        "SELECT c.relname AS index_name, t.relname AS table_name, pg_get_indexdef(c.oid) AS definition \
         FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid \
         JOIN pg_catalog.pg_class t ON t.oid = i.indrelid WHERE {} ORDER BY 2, 1",
        like("c.relname", pattern)
    ))
}

/// `\df`.
pub fn functions(session: &mut Session, pattern: &str) -> Result<()> {
    session.show(&format!(
        "SELECT DISTINCT routine_name AS function, lower(function_type) AS kind, syntax_example AS call \
         FROM information_schema.routines WHERE {} ORDER BY 1, 2, 3",
        like("routine_name", pattern)
    ))
}

/// `\du`.
pub fn users(session: &mut Session, pattern: &str) -> Result<()> {
    session.show(&format!(
        "SELECT rolname AS user_name, rolsuper AS is_superuser, rolcanlogin AS may_log_in FROM pg_catalog.pg_roles \
         WHERE {} ORDER BY 1",
        like("rolname", pattern)
    ))
}

/// `\l`.
pub fn databases(session: &mut Session) -> Result<()> {
    session.show("SELECT datname AS database_name FROM pg_catalog.pg_database ORDER BY 1")
}

/// `\dn`.
pub fn schemas(session: &mut Session, pattern: &str) -> Result<()> {
    session.show(&format!(
        "SELECT schema_name FROM information_schema.schemata WHERE {} ORDER BY 1",
        like("schema_name", pattern)
    ))
}

/// `\files`: the Parquet files of a table, or of all.
pub fn files(session: &mut Session, pattern: &str) -> Result<()> {
    session.show(&format!("SELECT * FROM tarn.files WHERE {}", like("table_name", pattern)))
}

/// A condition on a name: `*` and `?` in a pattern are what they are for a shell, `"A"` keeps its case.
fn like(column: &str, pattern: &str) -> String {
    if pattern.is_empty() {
        return "true".to_owned();
    }
    let name = unquoted(pattern);
    if !name.contains(['*', '?']) {
        return format!("{column} = {}", literal(&name));
    }
    let escaped = name.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
    format!("{column} LIKE {}", literal(&escaped.replace('*', "%").replace('?', "_")))
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_conditions() {
        assert_eq!(like("n", ""), "true");
        assert_eq!(like("n", "O'x"), "n = 'o''x'");
        assert_eq!(like("n", "\"O\""), "n = 'O'");
        assert_eq!(like("n", "a_*"), "n LIKE 'a\\_%'");
    }

    #[test]
    fn options_are_cut_out_of_a_definition() {
        let definition = "CREATE TABLE t (\n  a INTEGER\n) WITH (partitioning = 'range', tablets = 1)";
        assert_eq!(options(definition), Some("partitioning = 'range', tablets = 1"));
        assert_eq!(options("CREATE TABLE t (a INTEGER)"), None);
    }
}
