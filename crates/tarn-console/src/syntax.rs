//! How is a statement written? What `\h` answers: one shape for each statement of docs/sql.md, and what is not there is not here.

/// A statement and its shape.
struct Entry {
    name: &'static str,
    shape: &'static str,
}

const fn entry(name: &'static str, shape: &'static str) -> Entry {
    Entry { name, shape }
}

const ENTRIES: &[Entry] = &[
    entry("ALTER TABLE", "ALTER TABLE name OWNER TO user"),
    entry("ALTER USER", "ALTER USER name [SUPERUSER | NOSUPERUSER] [PASSWORD 'text']"),
    entry("ANALYZE", "ANALYZE [name]                -- does nothing: counts and bounds are always exact"),
    entry(
        "ATTACH",
        "ATTACH 'url' AS name [WITH (option = value, …)]\n  a folder or bucket of Parquet files that others write; docs/archives.md has the options",
    ),
    entry(
        "BEGIN",
        "BEGIN [ISOLATION LEVEL READ COMMITTED | REPEATABLE READ] [READ ONLY | READ WRITE]\n  until COMMIT or ROLLBACK",
    ),
    entry("CACHE TABLE", "CACHE TABLE name [WHERE condition]"),
    entry(
        "CALL",
        "CALL tarn.deliver('t')         -- recent rows into the lake, now\nCALL tarn.compact('t')         -- small lake files become large ones\nCALL tarn.evict('t')           -- what is past hot_retention leaves the row engine\nCALL tarn.flush('t')           -- the row engine's memory onto its disk\nCALL tarn.split('t', key)      -- parts a tablet\nCALL tarn.attach('t')          -- looks for new files of an attached table",
    ),
    entry("CLOSE", "CLOSE cursor | ALL"),
    entry("COMMIT", "COMMIT"),
    entry("COMPACT TABLE", "COMPACT TABLE name"),
    entry(
        "COPY",
        "COPY name [(column, …)] FROM STDIN [WITH (option, …)]\nCOPY name [(column, …)] | (query) TO STDOUT [WITH (option, …)]\n  options: FORMAT text | csv | arrow, HEADER, DELIMITER 'c', NULL 'text', QUOTE 'c', ESCAPE 'c'\n  files of this machine: \\copy, and tarn load for CSV, NDJSON and Parquet",
    ),
    entry(
        "CREATE TABLE",
        "CREATE TABLE [IF NOT EXISTS] name (\n  column type [NOT NULL] [DEFAULT literal] [PRIMARY KEY], …\n  [, PRIMARY KEY (column [DESC], …)]\n) [WITH (option = value, …)]\nCREATE TABLE name AS query\n  options: partition_key, partitioning, tablets, delivery, delivery_bytes, append_only,\n  hot_retention, feed_retention, tokens, bloom, bloom_chunks, bloom_fpp",
    ),
    entry("CREATE USER", "CREATE USER name [SUPERUSER] [PASSWORD 'text']"),
    entry("DEALLOCATE", "DEALLOCATE name | ALL"),
    entry("DECLARE", "DECLARE name CURSOR FOR query                -- within a transaction"),
    entry("DELETE", "DELETE FROM name [WHERE condition]"),
    entry("DELIVER TABLE", "DELIVER TABLE name"),
    entry("DESCRIBE", "DESCRIBE name"),
    entry("DETACH TABLE", "DETACH TABLE name                            -- forgets it; the files stay"),
    entry("DISCARD ALL", "DISCARD ALL"),
    entry("DROP TABLE", "DROP TABLE [IF EXISTS] name, …"),
    entry("DROP USER", "DROP USER [IF EXISTS] name"),
    entry("EVICT TABLE", "EVICT TABLE name"),
    entry("EXECUTE", "EXECUTE name [(value, …)]"),
    entry(
        "EXPLAIN",
        "EXPLAIN statement                            -- the access path, and why\nEXPLAIN (ANALYZE [, VERBOSE]) query           -- runs it, with what was read and where the time went",
    ),
    entry("FETCH", "FETCH n | ALL FROM cursor"),
    entry("FLUSH TABLE", "FLUSH TABLE name"),
    entry(
        "GRANT",
        "GRANT SELECT | INSERT | UPDATE | DELETE [, …] ON name TO user\nGRANT CREATE ON SCHEMA public TO user",
    ),
    entry(
        "INSERT",
        "INSERT INTO name [(column, …)] VALUES (value, …), … | query\n  [ON CONFLICT [(key, …)] DO NOTHING | DO UPDATE SET column = EXCLUDED.column, …]\n  [RETURNING expression, …]",
    ),
    entry("PREPARE", "PREPARE name [(type, …)] AS statement"),
    entry("RELEASE", "RELEASE [SAVEPOINT] name"),
    entry("RESET", "RESET setting | ALL"),
    entry("REVOKE", "REVOKE SELECT | INSERT | UPDATE | DELETE [, …] ON name FROM user"),
    entry("ROLLBACK", "ROLLBACK [TO [SAVEPOINT] name]"),
    entry("SAVEPOINT", "SAVEPOINT name"),
    entry(
        "SELECT",
        "[WITH [RECURSIVE] name AS (query), …]\nSELECT [DISTINCT [ON (expression, …)]] expression [AS name], …\n  [FROM table [AS alias] [JOIN table ON condition | USING (column, …)] …]\n  [WHERE condition] [GROUP BY expression, …] [HAVING condition] [WINDOW name AS (…)]\n  [UNION [ALL] | INTERSECT | EXCEPT query]\n  [ORDER BY expression [DESC] [NULLS FIRST | LAST], …] [LIMIT n] [OFFSET n]",
    ),
    entry(
        "SET",
        "SET setting = value | TO value\nSET TIME ZONE 'Europe/Berlin'\nSET TRANSACTION ISOLATION LEVEL REPEATABLE READ\n  SHOW ALL lists the settings",
    ),
    entry("SHOW", "SHOW setting | ALL | TABLES\nSHOW COLUMNS FROM name\nSHOW CREATE TABLE name"),
    entry("SYSTEM DROP CACHE", "SYSTEM DROP CACHE [METADATA | FOOTERS | PAGES | FRAGMENTS] [FOR TABLE name]"),
    entry("TABLE", "TABLE name                                   -- SELECT * FROM name"),
    entry("TRUNCATE", "TRUNCATE name, …"),
    entry("UPDATE", "UPDATE name SET column = expression, … [WHERE condition]"),
    entry("VALUES", "VALUES (expression, …), …"),
    entry("WITH", "WITH [RECURSIVE] name AS (query), …\nSELECT …"),
];

/// The statements that are known, in order.
pub fn names() -> impl Iterator<Item = &'static str> {
    ENTRIES.iter().map(|entry| entry.name)
}

/// The shapes of the statements that begin as `asked` does, in any case; empty if none does.
pub fn of(asked: &str) -> String {
    let asked = asked.split_whitespace().collect::<Vec<_>>().join(" ").to_uppercase();
    let exact = ENTRIES.iter().filter(|entry| entry.name == asked);
    let begun = ENTRIES.iter().filter(|entry| entry.name != asked && entry.name.starts_with(&asked));
    let longer = ENTRIES.iter().filter(|entry| asked.starts_with(&format!("{} ", entry.name)));
    exact.chain(begun).chain(longer).map(|entry| format!("{}\n", entry.shape)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::keywords::STATEMENTS;

    #[test]
    fn shapes_are_found_by_their_beginning() {
        assert!(of("insert into").starts_with("INSERT INTO name"));
        assert!(of("create  table").starts_with("CREATE TABLE [IF"));
        assert!(of("CREATE").contains("CREATE USER"));
        assert_eq!(of("CREATE INDEX"), "");
        assert!(names().is_sorted());
        for line in ENTRIES.iter().flat_map(|entry| entry.shape.lines()) {
            assert!(line.chars().count() <= 100, "wider than a terminal may be: {line}");
        }
    }

    #[test]
    fn every_statement_that_is_completed_has_a_shape() {
        for statement in STATEMENTS {
            assert_ne!(of(statement), "", "{statement}");
        }
    }

    /// The statements of docs/sql.md's examples are the list.
    #[test]
    fn every_statement_of_the_documentation_has_a_shape() {
        let page = include_str!("../../../docs/sql.md");
        let mut missing = BTreeSet::new();
        let examples = page.split("```sql").skip(1).filter_map(|block| block.split("```").next());
        for step in examples.flat_map(crate::script::Script::new) {
            let crate::script::Kind::Statement(statement) = step.kind else { continue };
            let words = crate::script::first_words(statement, 2);
            let is_known = [words.as_str(), words.split(' ').next().unwrap_or_default()];
            if is_known.iter().all(|words| of(words).is_empty()) {
                missing.insert(words);
            }
        }
        assert!(missing.is_empty(), "{missing:?}");
    }
}
