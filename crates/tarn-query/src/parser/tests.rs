//! Is text read as PostgreSQL reads it, and is any text read at all without harm?

use std::fmt::Write;

use super::*;
use crate::sqlparser::ast::{Expr, SelectItem, SetExpr};

/// Runs where statements run.
fn on_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work).unwrap().join().unwrap()
    })
}

fn expression(text: &str) -> Result<Expr, ParseError> {
    let Statement::Query(query) = statements(&format!("SELECT {text}"))?.remove(0) else { panic!("{text}") };
    let SetExpr::Select(mut select) = *query.body else { panic!("{text}") };
    match select.projection.remove(0) {
        SelectItem::UnnamedExpr(expr) => Ok(expr),
        other => panic!("{text}: {other}"),
    }
}

/// The expression with all of its parentheses.
fn grouped(text: &str) -> String {
    match expression(text) {
        Ok(expr) => shown(&expr),
        Err(ParseError::Syntax(_)) => "refused".to_owned(),
        Err(error) => panic!("{text}: {error}"),
    }
}

fn shown(expr: &Expr) -> String {
    match expr {
        Expr::BinaryOp { left, op, right } => format!("({} {op} {})", shown(left), shown(right)),
        Expr::UnaryOp { op, expr } => format!("({op} {})", shown(expr)),
        Expr::Like { expr, pattern, .. } => format!("({} LIKE {})", shown(expr), shown(pattern)),
        Expr::IsDistinctFrom(left, right) => format!("({} IS DISTINCT FROM {})", shown(left), shown(right)),
        Expr::IsNotDistinctFrom(left, right) => format!("({} IS NOT DISTINCT FROM {})", shown(left), shown(right)),
        Expr::AtTimeZone { timestamp, time_zone } => {
            format!("({} AT TIME ZONE {})", shown(timestamp), shown(time_zone))
        }
        Expr::IsNull(expr) => format!("({} IS NULL)", shown(expr)),
        Expr::InList { expr, .. } => format!("({} IN (1))", shown(expr)),
        Expr::Between { expr, low, high, .. } => {
            format!("({} BETWEEN {} AND {})", shown(expr), shown(low), shown(high))
        }
        Expr::Cast { expr, .. } => format!("({} :: int)", shown(expr)),
        Expr::Collate { expr, .. } => format!("({} COLLATE x)", shown(expr)),
        expr => expr.to_string(),
    }
}

/// The manual, 4.1.6: what binds closer has a higher number. Those of one number group to the left, or not at all.
const OPERATORS: [(&str, i32); 26] = [
    ("AT TIME ZONE", 6),
    ("^", 5),
    ("*", 4),
    ("/", 4),
    ("%", 4),
    ("+", 3),
    ("-", 3),
    ("||", 2),
    ("~", 2),
    ("!~*", 2),
    ("->", 2),
    ("@>", 2),
    ("&", 2),
    ("|", 2),
    ("#", 2),
    ("<<", 2),
    ("OPERATOR(pg_catalog.~)", 2),
    ("LIKE", 1),
    ("=", 0),
    ("<", 0),
    (">=", 0),
    ("<>", 0),
    ("IS DISTINCT FROM", -1),
    ("IS NOT DISTINCT FROM", -1),
    ("AND", -3),
    ("OR", -4),
];

fn does_not_chain(level: i32) -> bool {
    (-1..=1).contains(&level)
}

#[test]
fn two_operators_group_as_in_postgres() {
    for (first, closer) in OPERATORS {
        for (second, other) in OPERATORS {
            let want = match closer.cmp(&other) {
                std::cmp::Ordering::Equal if does_not_chain(closer) => "refused".to_owned(),
                std::cmp::Ordering::Less => format!("(a {first} (b {second} c))"),
                _ => format!("((a {first} b) {second} c)"),
            };
            let text = format!("a {first} b {second} c");
            assert_eq!(grouped(&text), want, "{text}");
        }
    }
}

#[test]
fn what_stands_before_and_behind_groups_as_in_postgres() {
    for (operator, level) in OPERATORS {
        for (prefix, prefix_level) in [("-", 8), ("+", 8), ("@", 2), ("~", 2), ("NOT", -2)] {
            let want = match level > prefix_level {
                true => format!("({prefix} (a {operator} b))"),
                false => format!("(({prefix} a) {operator} b)"),
            };
            let text = format!("{prefix} a {operator} b");
            assert_eq!(grouped(&text), want, "{text}");
        }
        for (postfix, postfix_level) in
            [(":: int", 9), ("COLLATE x", 7), ("IN (1)", 1), ("BETWEEN 1 AND 2", 1), ("IS NULL", -1)]
        {
            let want = match level.cmp(&postfix_level) {
                std::cmp::Ordering::Equal => "refused".to_owned(),
                std::cmp::Ordering::Less => format!("(a {operator} (b {postfix}))"),
                std::cmp::Ordering::Greater => format!("((a {operator} b) {postfix})"),
            };
            let text = format!("a {operator} b {postfix}");
            assert_eq!(grouped(&text), want, "{text}");
        }
    }
}

#[test]
fn expressions_that_were_read_otherwise() {
    for (text, want) in [
        ("a IS DISTINCT FROM true AND b = 2", "((a IS DISTINCT FROM true) AND (b = 2))"),
        ("a IS NOT DISTINCT FROM b OR c", "((a IS NOT DISTINCT FROM b) OR c)"),
        ("-2 ^ 2", "((- 2) ^ 2)"),
        ("2 ^ -2", "(2 ^ (- 2))"),
        ("-a::int", "(- (a :: int))"),
        ("a::text COLLATE x", "((a :: int) COLLATE x)"),
        ("a BETWEEN 1 AND 2 AND b", "((a BETWEEN 1 AND 2) AND b)"),
        ("a BETWEEN 1 AND 2 = b", "((a BETWEEN 1 AND 2) = b)"),
        ("a BETWEEN SYMMETRIC 1 AND 2 AND b", "((a BETWEEN 1 AND 2 OR a BETWEEN 2 AND 1) AND b)"),
        ("a NOT BETWEEN SYMMETRIC 1 AND 2", "(a NOT BETWEEN 1 AND 2 AND a NOT BETWEEN 2 AND 1)"),
        ("interval(2) '1.239 s' < b", "(INTERVAL '1.239 s' (2) < b)"),
        ("NOT a BETWEEN 1 + 1 AND 2 * 3", "(NOT (a BETWEEN (1 + 1) AND (2 * 3)))"),
        ("a = NOT b = c", "(a = (NOT (b = c)))"),
        ("a ISNULL AND b NOTNULL", "((a IS NULL) AND b IS NOT NULL)"),
        ("a IS NULL IS NULL", "((a IS NULL) IS NULL)"),
        ("a OR b AND c OR d", "((a OR (b AND c)) OR d)"),
        ("a LIKE 'x' ESCAPE '!' AND b", "((a LIKE 'x') AND b)"),
    ] {
        assert_eq!(grouped(text), want, "{text}");
    }
}

#[test]
fn on_conflict_stands_behind_a_query_without_from() {
    for query in ["SELECT 7", "SELECT 7 UNION ALL SELECT 8"] {
        let text = format!("INSERT INTO t (id) {query} ON CONFLICT DO NOTHING");
        let Statement::Insert(insert) = statements(&text).unwrap().remove(0) else { panic!("{text}") };
        assert!(insert.on.is_some(), "{text}");
    }
}

#[test]
fn operators_before_a_sign_are_split() {
    for (text, want) in [
        ("a>-1", "(a > (- 1))"),
        ("a<>-1", "(a <> (- 1))"),
        ("a!=-1", "(a <> (- 1))"),
        ("a>=-1", "(a >= (- 1))"),
        ("a<=+1", "(a <= (+ 1))"),
        ("a=-1", "(a = (- 1))"),
        ("3*-2", "(3 * (- 2))"),
        ("10%-3", "(10 % (- 3))"),
        ("'a'||-1", "('a' || (- 1))"),
        ("a<-1 AND b>-2", "((a < (- 1)) AND (b > (- 2)))"),
        ("a->'b'", "(a -> 'b')"),
        ("a - -1", "(a - (- 1))"),
    ] {
        assert_eq!(grouped(text), want, "{text}");
    }
    // To the end of the line: a comment, as in Postgres.
    assert_eq!(grouped("a --1"), "a");
}

#[test]
fn literals_on_two_lines_are_one() {
    assert_eq!(grouped("'a'\n 'b'"), "'ab'");
}

#[test]
fn clauses_that_are_not_understood_are_refused() {
    for sql in [
        "DELETE FROM t WHERE v = 1 LIMIT 1",
        "DELETE FROM t ORDER BY k",
        "DELETE FROM t ORDER BY k LIMIT 2",
        "DELETE t FROM t WHERE v = 1",
        "UPDATE t SET v = 1 LIMIT 1",
        "UPDATE t SET v = 1 ORDER BY k LIMIT 1",
        "INSERT OVERWRITE INTO t VALUES (1)",
        "INSERT OR IGNORE INTO t VALUES (1)",
        "REPLACE INTO t VALUES (1)",
        "INSERT INTO t SET a = 1",
        "SELECT * FROM t FOR UPDATE",
        "SELECT * FROM t FOR SHARE NOWAIT",
        "SELECT a FROM t WHERE k = 1 FOR UPDATE",
        "SELECT TOP 1 a FROM t WHERE k = 1",
        "SELECT a FROM t TABLESAMPLE BERNOULLI (10) WHERE k = 1",
        "SELECT * FROM (SELECT * FROM t FOR UPDATE) x",
        "SELECT * FROM t TABLESAMPLE BERNOULLI (10)",
        "SELECT * FROM (SELECT a INTO u FROM t) x",
        "SELECT a FROM t UNION SELECT a INTO u FROM t",
        "SELECT a INTO UNLOGGED u FROM t",
        "INSERT INTO v SELECT a INTO u FROM t",
        "SELECT * FROM t ORDER BY a FETCH FIRST 10 PERCENT ROWS ONLY",
        "SELECT * FROM t LIMIT 1 FETCH FIRST 1 ROW ONLY",
        "SELECT * FROM t WITH ORDINALITY",
        "SELECT * FROM unnest(ARRAY[1, 2]) WITH OFFSET",
        "SELECT TOP 1 * FROM t",
        "WITH x AS (SELECT 1) DELETE FROM t",
        "WITH x AS (DELETE FROM t RETURNING 1) SELECT * FROM x",
        "FROM t",
        "SHOW TABLES LIKE 'a%'",
        "ROLLBACK AND CHAIN TO a",
        "PREPARE p AS DELETE FROM t LIMIT 1",
        "EXPLAIN DELETE FROM t LIMIT 1",
        "EXPLAIN (FORMAT yaml) SELECT 1",
        "EXPLAIN (ANALYZE, BUFFERS) SELECT 1",
        "DROP TABLE t PURGE",
        "CREATE TABLE u AS SELECT * FROM t FOR UPDATE",
        "COPY (SELECT * FROM t FOR UPDATE) TO STDOUT",
    ] {
        assert!(statements(sql).is_err(), "{sql}");
    }
    let error = statements("DELETE FROM t LIMIT 1").unwrap_err();
    assert!(matches!(&error, ParseError::Refused { what, .. } if what == "DELETE … LIMIT"), "{error:?}");
}

#[test]
fn what_may_be_said_in_two_ways_is_said_in_one() {
    let shown = |sql: &str| statements(sql).unwrap()[0].to_string();
    assert_eq!(shown("SELECT a FROM t FETCH FIRST ROW ONLY"), "SELECT a FROM t LIMIT 1");
    assert_eq!(shown("SELECT a FROM t OFFSET 2 FETCH NEXT 3 ROWS ONLY"), "SELECT a FROM t LIMIT 3 OFFSET 2");
    assert_eq!(shown("SELECT a INTO u FROM t WHERE k = 1"), "CREATE TABLE u AS SELECT a FROM t WHERE k = 1");
    let united = "CREATE TEMPORARY TABLE u AS SELECT a FROM t UNION SELECT 1";
    assert_eq!(shown("SELECT a INTO TEMP TABLE u FROM t UNION SELECT 1"), united);
    assert_eq!(shown("EXPLAIN (ANALYZE, VERBOSE off, COSTS off) SELECT 1"), "EXPLAIN ANALYZE SELECT 1");
}

/// A form of the grammar that may be nested or repeated.
type NestedForm = (&'static str, fn(usize) -> String);

fn around(before: &str, inside: &str, after: &str, n: usize) -> String {
    format!("{}{inside}{}", before.repeat(n), after.repeat(n))
}

fn joined(part: &str, with: &str, n: usize) -> String {
    vec![part; n.max(1)].join(with)
}

/// Each of them, at a size.
pub(crate) const FORMS: &[NestedForm] = &[
    ("or", |n| format!("SELECT 1 WHERE {}", joined("a = 1", " OR ", n))),
    ("and", |n| format!("SELECT 1 WHERE {}", joined("a = 1", " AND ", n))),
    ("plus", |n| format!("SELECT {}", joined("1", "+", n))),
    ("concat", |n| format!("SELECT {}", joined("a", "||", n))),
    ("cast", |n| format!("SELECT a{}", "::int".repeat(n))),
    ("is null", |n| format!("SELECT a{}", " IS NULL".repeat(n))),
    ("is distinct", |n| format!("SELECT {}", joined("a", " IS DISTINCT FROM ", n))),
    ("time zone", |n| format!("SELECT a{}", " AT TIME ZONE 'UTC'".repeat(n))),
    ("collate", |n| format!("SELECT a{}", " COLLATE \"C\"".repeat(n))),
    ("brackets", |n| format!("SELECT a::int{}", "[]".repeat(n))),
    ("subscripts", |n| format!("SELECT a{}", "[1]".repeat(n))),
    ("dots", |n| format!("SELECT {}", joined("a", ".", n))),
    ("parentheses", |n| format!("SELECT {}", around("(", "1", ")", n))),
    ("not", |n| format!("SELECT {}", around("NOT ", "a", "", n))),
    ("minus", |n| format!("SELECT {}", around("- ", "a", "", n))),
    ("calls", |n| format!("SELECT {}", around("abs(", "a", ")", n))),
    ("two arguments", |n| format!("SELECT {}", around("date_trunc('day', ", "a", ")", n))),
    ("coalesce", |n| format!("SELECT {}", around("coalesce(a, ", "a", ", 1)", n))),
    ("in calls", |n| format!("SELECT {}", around("1 IN (abs(", "a", "))", n))),
    ("case", |n| format!("SELECT {}", around("CASE WHEN ", "a", " THEN 1 END", n))),
    ("casts", |n| format!("SELECT {}", around("CAST(", "a", " AS int)", n))),
    ("ceil", |n| format!("SELECT {}", around("ceil(", "a", ")", n))),
    ("position", |n| format!("SELECT {}", around("position(", "a", ", b)", n))),
    ("substring", |n| format!("SELECT {}", around("substring(", "a", " FROM 1)", n))),
    ("trim", |n| format!("SELECT {}", around("trim(", "a", ")", n))),
    ("extract", |n| format!("SELECT {}", around("extract(day FROM ", "a", ")", n))),
    ("interval", |n| format!("SELECT {}", around("interval(", "a", ")", n))),
    ("arrays", |n| format!("SELECT {}", around("ARRAY[", "1", "]", n))),
    ("array types", |n| format!("SELECT CAST(a AS {})", around("ARRAY<", "int", ">", n))),
    ("named arguments", |n| format!("SELECT {}", around("f(a => ", "a", ")", n))),
    ("scalar subqueries", |n| around("SELECT (", "SELECT 1", ")", n)),
    ("subqueries", |n| around("SELECT * FROM (", "SELECT 1", ") x", n)),
    ("joins in parentheses", |n| format!("SELECT * FROM {}", around("(", "t", " JOIN u USING (a))", n))),
    ("subqueries or joins", |n| format!("SELECT * FROM {}", around("((SELECT * FROM ", "t", ") a CROSS JOIN b)", n))),
    ("exists", |n| format!("SELECT {}", around("EXISTS (SELECT ", "1", ")", n))),
    ("in subqueries", |n| format!("SELECT {}", around("1 IN (SELECT ", "1", ")", n))),
    ("with", |n| around("WITH x AS (", "SELECT 1", ") SELECT * FROM x", n)),
    ("with chain", |n| {
        let mut text = "WITH x0 AS (SELECT 1)".to_owned();
        (1..n.max(1)).for_each(|i| write!(text, ", x{i} AS (SELECT * FROM x{})", i - 1).unwrap());
        text + " SELECT 1"
    }),
    ("union all", |n| joined("SELECT 1", " UNION ALL ", n)),
    ("union", |n| joined("SELECT 1", " UNION ", n)),
    ("except", |n| joined("SELECT 1", " EXCEPT ", n)),
    ("values union", |n| joined("VALUES (1)", " UNION ALL ", n)),
    ("queries in parentheses", |n| around("(", "SELECT 1", ")", n)),
    ("comma joins", |n| format!("SELECT * FROM {}", joined("t", ", ", n))),
    ("joins", |n| format!("SELECT * FROM t{}", " JOIN t USING (a)".repeat(n))),
    ("joins to the right", |n| format!("SELECT * FROM {}t{}", "t JOIN ".repeat(n), " ON true".repeat(n))),
    ("in list", |n| format!("SELECT 1 WHERE a IN ({})", joined("1", ", ", n))),
    ("values", |n| format!("INSERT INTO t VALUES {}", joined("(1, 'a')", ", ", n))),
    ("columns", |n| format!("SELECT {}", joined("a", ", ", n))),
    ("between", |n| format!("SELECT a{}", " BETWEEN 1 AND 2 AND b".repeat(n))),
    ("like", |n| format!("SELECT {}", joined("a", " LIKE ", n))),
    ("prepare", |n| around("PREPARE p AS ", "SELECT 1", "", n)),
    ("explain", |n| around("EXPLAIN ", "SELECT 1", "", n)),
    ("open", |n| format!("SELECT {}", "(".repeat(n))),
    ("open calls", |n| format!("SELECT {}", "ceil(".repeat(n))),
    ("open cases", |n| format!("SELECT {}", "CASE WHEN ".repeat(n))),
    ("open subqueries", |n| "SELECT (".repeat(n)),
    ("open from", |n| "SELECT * FROM (".repeat(n)),
    ("comments", |n| format!("SELECT 1 {}{}", "/*".repeat(n), "*/".repeat(n))),
    ("semicolons", |n| ";".repeat(n)),
    ("statements", |n| "SELECT 1;".repeat(n)),
    ("spaces", |n| format!("SELECT{}1", " ".repeat(n))),
    ("an error behind", |n| format!("SELECT {} FROM FROM", joined("1", "+", n))),
    ("an error behind or", |n| format!("SELECT 1 WHERE {} FROM FROM", joined("a", " OR ", n))),
];

#[test]
fn any_form_at_any_size_is_parsed_or_refused() {
    on_stack(|| {
        for (name, form) in FORMS {
            for n in [0, 1, 2, 7, 20, 60, 130, 300, 1_000, 10_000] {
                // Whatever it is, it ends: the bounds of the dialect are on steps, not on time.
                match statements(&form(n)) {
                    Ok(parsed) => drop(parsed.clone()),
                    Err(ParseError::TooLarge(_)) => assert!(n > 2, "{name} {n}"),
                    Err(_) => {}
                }
            }
        }
    });
}

#[test]
fn what_people_nest_is_not_refused() {
    on_stack(|| {
        for (name, n) in [
            ("or", 20_000),
            ("and", 20_000),
            ("union all", 1_000),
            ("union", 1_000),
            ("in list", 100_000),
            ("values", 50_000),
            ("columns", 10_000),
            ("plus", 200),
            ("cast", 100),
            ("calls", 60),
            ("two arguments", 60),
            ("coalesce", 60),
            ("in calls", 20),
            ("case", 60),
            ("parentheses", 60),
            ("scalar subqueries", 20),
            ("subqueries", 20),
            ("comma joins", 500),
            ("joins", 500),
            ("with chain", 500),
            ("statements", 10_000),
        ] {
            let (_, form) = FORMS.iter().find(|(form, _)| *form == name).unwrap();
            if let Err(error) = statements(&form(n)) {
                panic!("{name} {n}: {error}");
            }
        }
    });
}

#[test]
fn chains_of_conditions_are_shallow() {
    fn depth(expr: &Expr) -> usize {
        match expr {
            Expr::BinaryOp { left, right, .. } => 1 + depth(left).max(depth(right)),
            _ => 1,
        }
    }
    for word in [" AND ", " OR "] {
        let expr = on_stack(|| expression(&joined("a = 1", word, 20_000)).unwrap());
        assert!(depth(&expr) <= 17, "{}", depth(&expr));
    }
}

#[test]
fn limits_are_named() {
    on_stack(|| {
        let limit = |sql: String| match statements(&sql) {
            Err(ParseError::TooLarge(limit)) => limit,
            other => panic!("{other:?}"),
        };
        assert_eq!(limit(format!("SELECT {}1", "(".repeat(1_000))), Limit::Nesting);
        assert_eq!(limit(format!("SELECT {}", joined("1", "+", 1_000))), Limit::Chain);
        assert_eq!(limit(joined("SELECT 1", " UNION ALL ", 3_000)), Limit::Queries);
        assert_eq!(limit(format!("SELECT * FROM {}", joined("t", ",", 3_000))), Limit::Queries);
        assert_eq!(limit(format!("SELECT {}", joined("a", ",", MAX_SELECTED + 1))), Limit::Selected);
        assert_eq!(limit(format!("SELECT {}", joined("a + 1", ",", MAX_COMPUTED + 1))), Limit::Computed);
        // Each level of these doubles the time of the planner.
        for (before, after) in [
            ("SELECT (", ")"),
            ("SELECT 1 WHERE EXISTS (", ")"),
            ("SELECT a FROM t WHERE a IN (", ")"),
            ("SELECT a FROM t WHERE a > ALL (", ")"),
            ("WITH c AS (", ") SELECT * FROM c"),
        ] {
            let of = |n, inner: &str| format!("{}{inner}{}", before.repeat(n), after.repeat(n));
            assert!(statements(&of(18, "SELECT 1 AS a")).is_ok(), "{before}");
            assert_eq!(limit(of(24, "SELECT 1 AS a")), Limit::Looks, "{before}");
            // The more is in them, the less deep they may be.
            let large = format!("SELECT a FROM t WHERE a IN ({})", joined("1", ",", 50_000));
            assert!(statements(&of(4, &large)).is_ok(), "{before}");
            assert_eq!(limit(of(10, &large)), Limit::Looks, "{before}");
        }
        // Of a condition it is asked whether it may be NULL, and of each of its parts.
        let cases = |n, before: &str, after: &str| {
            statements(&format!("SELECT {}v{} FROM t", before.repeat(n), after.repeat(n)))
        };
        for (before, after) in [
            ("CASE WHEN ", " LIKE 'x' THEN v END"),
            ("CASE WHEN upper(trim(", ")) = 'x' THEN v ELSE 'z' END"),
            ("CASE WHEN a THEN b WHEN NOT b AND ", " IS NULL THEN v END"),
        ] {
            assert!(cases(8, before, after).is_ok(), "{before}");
            assert_eq!(cases(40, before, after), Err(ParseError::TooLarge(Limit::Cases)), "{before}");
        }
        for (n, before, after) in [
            (60, "CASE WHEN b THEN v ELSE upper(", ") END"),
            (60, "CASE WHEN b THEN upper(", ") ELSE v END"),
            // What they give is never NULL, so nothing is asked.
            (60, "CASE WHEN ", " LIKE 'x' THEN 'y' END"),
            (60, "CASE ", " WHEN 'x' THEN v END"),
        ] {
            assert!(cases(n, before, after).is_ok(), "{before}");
        }
        let whens = joined("WHEN a = 1 AND b LIKE 'x' OR c THEN v", " ", 20_000);
        assert!(statements(&format!("SELECT CASE {whens} END FROM t")).is_ok());
        // Those of FROM are looked at once.
        let derived = format!("{}SELECT 1{}", "SELECT * FROM (".repeat(60), ") AS s".repeat(60));
        assert!(statements(&derived).is_ok());
        for list in [
            "a FROM t ORDER BY #",
            "1 FROM t GROUP BY #",
            "DISTINCT ON (#) a FROM t",
            "sum(a) OVER (PARTITION BY #) FROM t",
        ] {
            let of = |n| format!("SELECT {}", list.replace('#', &joined("a", ",", n)));
            assert!(statements(&of(MAX_KEYS)).is_ok(), "{list}");
            assert_eq!(limit(of(MAX_KEYS + 1)), Limit::Keys, "{list}");
        }
        assert_eq!(
            limit(format!("SELECT sum(a) OVER w FROM t WINDOW w AS (ORDER BY {})", joined("a", ",", 2_000))),
            Limit::Keys
        );
        assert_eq!(limit(format!("SELECT 1::int{}", "[]".repeat(100))), Limit::Brackets);
        assert_eq!(limit(";".repeat(MAX_SELECTS + 1)), Limit::Selects);
        assert_eq!(limit(" ".repeat(MAX_TOKENS + 1)), Limit::Tokens);
        assert_eq!(limit(format!("SELECT {}", joined("a", " OR ", MAX_TERMS + 2))), Limit::Terms);
        let doubled = |with: &str| {
            let names = (1..40).map(|i| format!("x{i} AS ({})", with.replace('#', &format!("x{}", i - 1))));
            format!("WITH x0 AS (SELECT 1 AS a), {} SELECT * FROM x39", names.collect::<Vec<_>>().join(", "))
        };
        assert_eq!(limit(doubled("SELECT x.* FROM # x, # y")), Limit::Tables);
        assert_eq!(limit(doubled("SELECT (SELECT a FROM #) + (SELECT a FROM #) AS a")), Limit::Tables);
        assert!(statements(&doubled("SELECT a FROM # WHERE a > 0")).is_ok());
        assert_eq!(limit(format!("SELECT 1 FROM t GROUP BY CUBE ({})", joined("a", ", ", 30))), Limit::Groupings);
        for limit in [Limit::Tokens, Limit::Selects, Limit::Chain, Limit::Steps] {
            assert!(!limit.to_string().is_empty() && !limit.remedy().is_empty());
        }
    });
}

#[test]
fn texts_with_words_of_the_limits_in_them_are_small() {
    let text = format!(
        "SELECT 'it''s {}', E'\\'{}', $x${}$x$ -- {}",
        "; ".repeat(60_000),
        "; ".repeat(60_000),
        "select ".repeat(60_000),
        "; ".repeat(60_000)
    );
    assert_eq!(statements(&text).unwrap().len(), 1);
}

/// What sqlparser does not know is written as it knows it.
#[test]
fn frames_groupings_and_arrays_of_arguments_are_written_as_calls() {
    let written = |text: &str| match statements(&format!("SELECT {text}")) {
        Ok(statements) => statements[0].to_string()["SELECT ".len()..].to_owned(),
        Err(_) => "refused".to_owned(),
    };
    for (text, want) in [
        (
            "sum(a) OVER (ORDER BY b ROWS 1 PRECEDING EXCLUDE TIES)",
            "sum(a) OVER (PARTITION BY tarn_excluding('ties') ORDER BY b ROWS 1 PRECEDING)",
        ),
        (
            "sum(a) OVER (PARTITION BY c ROWS 1 PRECEDING EXCLUDE /* it */ CURRENT ROW)",
            "sum(a) OVER (PARTITION BY tarn_excluding('current row'), c ROWS 1 PRECEDING)",
        ),
        (
            "sum(a) OVER (w ROWS 1 PRECEDING EXCLUDE GROUP) FROM t WINDOW w AS (ORDER BY (b))",
            "sum(a) OVER (w PARTITION BY tarn_excluding('group') ROWS 1 PRECEDING) FROM t WINDOW w AS (ORDER BY (b))",
        ),
        ("sum(a) OVER (ROWS 1 PRECEDING EXCLUDE NO OTHERS)", "sum(a) OVER (ROWS 1 PRECEDING)"),
        ("sum(a) OVER (ORDER BY a EXCLUDE TIES)", "refused"),
        ("sum(a) OVER (ROWS 1 PRECEDING EXCLUDE SOME)", "refused"),
        ("a FROM (SELECT rows FROM t EXCLUDE NO OTHERS) s", "refused"),
        (
            "sum(a) OVER (ORDER BY b RANGE BETWEEN '1 year'::interval PRECEDING AND '2' FOLLOWING)",
            "sum(a) OVER (ORDER BY b RANGE BETWEEN ('1 year'::INTERVAL) PRECEDING AND ('2') FOLLOWING)",
        ),
        ("\"exclude\", preceding FROM t", "\"exclude\", preceding FROM t"),
        (
            "a FROM t GROUP BY GROUPING SETS (a, GROUPING SETS (b, ()), ())",
            "a FROM t GROUP BY GROUPING SETS ((a), (tarn_grouping_sets(b, tarn_no_keys())), ())",
        ),
        (
            "grouping(a), grouping(b) FROM t GROUP BY GROUPING SETS (a, ())",
            "grouping(a), grouping(b) FROM t GROUP BY GROUPING SETS ((a), ())",
        ),
        ("concat(VARIADIC ARRAY[f(1), 2])", "concat(VARIADIC => ARRAY[f(1), 2])"),
        ("f(a, variadic b), c", "f(a, variadic => b), c"),
        ("f(days := 1)", "f(days := 1)"),
    ] {
        assert_eq!(written(text), want, "{text}");
    }
}

#[test]
fn words_of_other_systems_are_names() {
    for sql in [
        "SELECT 1 end, 2 view, 3 select, 4 top FROM t sample",
        "SELECT exists, trim.id, interval - 1 FROM trim WHERE exists OR interval > 2",
        "SELECT start.x FROM a start JOIN b partition ON start.id = partition.id",
        "SELECT CASE WHEN EXISTS (SELECT 1) THEN interval '1 day' END, trim(' a ')",
    ] {
        assert!(statements(sql).is_ok(), "{sql}");
    }
}
