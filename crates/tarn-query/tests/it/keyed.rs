//! Which statements are keyed, what do they become, and which are not?

use tarn_query::keyed::{BoundKeyedPlan, KeyedPlan, Slot, table_name};
use tarn_query::parser::statements;
use tarn_query::{KeyedPlanner, OnKey};
use tarn_types::{DataType, TableSchema, Value};

use crate::fixture::schema;

fn analyse(sql: &str, table: &TableSchema) -> Option<KeyedPlan> {
    let statement = statements(sql).unwrap_or_else(|e| panic!("{sql}: {e}")).remove(0);
    KeyedPlanner::analyse(&statement, table)
}

fn lit(v: i64) -> Slot {
    Slot::Literal(Value::Int64(v))
}

#[test]
fn selects_of_a_full_key() {
    let table = schema();
    for sql in [
        "SELECT n, name FROM t WHERE a = 1 AND b = 2",
        "select N, t.name from T where (b = 2) and 1 = a",
        "SELECT x.n, x.name FROM public.t AS x WHERE x.a = 1 AND x.b = '2'",
    ] {
        let Some(KeyedPlan::Select { columns, key, unique: None }) = analyse(sql, &table) else { panic!("{sql}") };
        let columns: Vec<(&str, usize)> = columns.iter().map(|c| (c.name.as_str(), c.column_idx)).collect();
        assert_eq!((columns, key), (vec![("n", 2), ("name", 4)], vec![lit(1), lit(2)]), "{sql}");
    }
    let Some(KeyedPlan::Select { columns, key, unique: None }) =
        analyse("SELECT *, a AS again FROM t WHERE a = $2 AND b = $1::bigint", &table)
    else {
        panic!("parameters")
    };
    assert_eq!(columns.len(), 7);
    assert_eq!((columns[6].name.as_str(), columns[6].column_idx), ("again", 0));
    assert_eq!(key, [Slot::Parameter(1), Slot::Parameter(0)]);
}

#[test]
fn what_is_not_keyed() {
    let table = schema();
    for sql in [
        "SELECT * FROM t",
        "SELECT * FROM t WHERE a = 1",
        "SELECT * FROM t WHERE a = 1 AND b > 2",
        "SELECT * FROM t WHERE a = 1 AND b = 2 AND n = 3",
        "SELECT * FROM t WHERE a = 1 AND b = 2 AND a = 2",
        "SELECT * FROM t WHERE a = 1 OR b = 2",
        "SELECT * FROM t WHERE a = b AND b = 2",
        "SELECT * FROM t WHERE a = NULL AND b = 2",
        "SELECT * FROM t WHERE a = 1.5 AND b = 2",
        "SELECT * FROM t WHERE a = 'x' AND b = 2",
        "SELECT * FROM t WHERE a = 1 AND b = 2 LIMIT 1",
        "SELECT * FROM t WHERE a = 1 AND b = 2 ORDER BY n",
        "SELECT DISTINCT n FROM t WHERE a = 1 AND b = 2",
        "SELECT count(*) FROM t WHERE a = 1 AND b = 2",
        "SELECT n + 1 FROM t WHERE a = 1 AND b = 2",
        "SELECT n FROM t WHERE a = 1 AND b = 2 GROUP BY n",
        "SELECT nothing FROM t WHERE a = 1 AND b = 2",
        "SELECT n FROM t, t AS u WHERE a = 1 AND b = 2",
        "SELECT n FROM other WHERE a = 1 AND b = 2",
        "SELECT u.n FROM t WHERE a = 1 AND b = 2",
        "WITH t AS (SELECT 1) SELECT * FROM t WHERE a = 1 AND b = 2",
        "SELECT * FROM t WHERE a = 1 AND b = 2 UNION SELECT * FROM t",
        "UPDATE t SET n = n + 1 WHERE a = 1 AND b = 2",
        "UPDATE t SET a = 1 WHERE a = 1 AND b = 2",
        "UPDATE t SET n = 1 WHERE a = 1",
        "UPDATE t SET n = 1 WHERE a = 1 AND b = 2 RETURNING n",
        "DELETE FROM t",
        "DELETE FROM t WHERE a = 1",
        "DELETE FROM t USING u WHERE a = 1 AND b = 2",
        "INSERT INTO t SELECT * FROM t",
        "INSERT INTO t (a, b, n) VALUES (1, 2, 1 + 1)",
        "INSERT INTO t (a, b) VALUES (1)",
        "INSERT INTO t (a, a, b) VALUES (1, 1, 2)",
        "INSERT INTO t (a, nothing) VALUES (1, 2)",
        "INSERT INTO t (a, b, day) VALUES (1, 2, '2020-13-01')",
        "INSERT INTO t (a, b) VALUES (1, 2) RETURNING a",
        "INSERT INTO t (a, b) VALUES (1, 2) ON CONFLICT (a) DO NOTHING",
        "INSERT INTO t (a, b) VALUES (1, 2) ON CONFLICT (a, b) DO UPDATE SET n = 1",
        "CREATE TABLE t (a INT)",
    ] {
        assert_eq!(analyse(sql, &table), None, "{sql}");
    }
}

#[test]
fn changes_of_one_key() {
    let table = schema();
    let Some(KeyedPlan::Update { key, set }) =
        analyse("UPDATE t SET n = -5, name = NULL, price = $1 WHERE a = 1 AND b = 2", &table)
    else {
        panic!("update")
    };
    assert_eq!(key, [lit(1), lit(2)]);
    assert_eq!(set, [(2, lit(-5)), (4, Slot::Literal(Value::Null)), (3, Slot::Parameter(0))]);
    assert_eq!(
        analyse("DELETE FROM t WHERE b = 2 AND a = 1", &table),
        Some(KeyedPlan::Delete { key: vec![lit(1), lit(2)] })
    );
}

#[test]
fn inserts_of_values() {
    let mut table = schema();
    table.columns[2].default = Some(Value::Int64(42));
    let sql = "INSERT INTO t (b, a, day) VALUES (2, 1, DATE '2020-01-01'), ($1, $2, $3) ON CONFLICT (b, a) DO NOTHING";
    let Some(plan @ KeyedPlan::Insert { .. }) = analyse(sql, &table) else { panic!("insert") };
    assert_eq!(plan.n_parameters(), 3);
    let types: Vec<_> =
        plan.parameter_columns(&table).into_iter().map(|at| table.columns[at.unwrap()].data_type).collect();
    assert_eq!(types, [DataType::Int64, DataType::Int64, DataType::Date]);
    let bound = plan.bind(&table, &[Value::Int32(4), Value::Int16(3), Value::Null]).unwrap();
    let BoundKeyedPlan::Insert { rows } = bound else { panic!("{bound:?}") };
    assert_eq!(
        rows[0],
        [Value::Int64(1), Value::Int64(2), Value::Int64(42), Value::Null, Value::Null, Value::Date(18_262)]
    );
    assert_eq!(rows[1], [Value::Int64(3), Value::Int64(4), Value::Int64(42), Value::Null, Value::Null, Value::Null]);
    assert!(matches!(plan, KeyedPlan::Insert { on_key: OnKey::Keep, .. }));
    let on_key = |sql: &str| match analyse(sql, &table) {
        Some(KeyedPlan::Insert { on_key, rows }) => Some((on_key, rows.len())),
        None => None,
        other => panic!("{sql}: {other:?}"),
    };
    let all = "ON CONFLICT (a, b) DO UPDATE SET n = excluded.n, price = excluded.price, name = excluded.name, day = excluded.day";
    assert_eq!(on_key("INSERT INTO t (a, b) VALUES (1, 2)"), Some((OnKey::Refuse, 1)));
    assert_eq!(on_key("UPSERT INTO t (a, b) VALUES (1, 2), (1, 2)"), Some((OnKey::Replace, 2)));
    assert_eq!(on_key("INSERT INTO t (a, b) VALUES (1, 2) ON CONFLICT (a, b) DO UPDATE SET n = 1"), None);
    assert_eq!(on_key("INSERT INTO t DEFAULT VALUES"), Some((OnKey::Refuse, 1)));
    let Some(KeyedPlan::Insert { rows, .. }) = analyse("INSERT INTO t (b, a, n) VALUES (2, 1, DEFAULT)", &table) else {
        panic!("a default")
    };
    assert_eq!(rows[0][..3], [lit(1), lit(2), lit(42)]);
    let replaced = on_key(&format!("INSERT INTO t (a, b) VALUES (1, 2) {all}"));
    let twice = on_key(&format!("INSERT INTO t (a, b) VALUES (1, 2), (1, 2) {all}"));
    assert_eq!((replaced, twice), (Some((OnKey::Replace, 1)), None), "of several rows two may have one key");
}

#[test]
fn binding_checks_values() {
    let table = schema();
    let plan = analyse("INSERT INTO t (a, b, n) VALUES ($1, $2, $3)", &table).unwrap();
    let bind = |values: &[Value]| plan.bind(&table, values).map_err(|e| e.to_string());
    assert!(bind(&[Value::Int64(1)]).unwrap_err().contains("3 parameters, 1"));
    assert!(bind(&[Value::Null, Value::Int64(1), Value::Null]).unwrap_err().contains("key column a"));
    assert!(bind(&[Value::Text("x".into()), Value::Int64(1), Value::Null]).is_err());
    let plan = analyse("SELECT n FROM t WHERE a = $1 AND b = $2", &table).unwrap();
    assert_eq!(plan.bind(&table, &[Value::Null, Value::Int64(1)]).unwrap(), BoundKeyedPlan::Nothing);
    let key = vec![Value::Int64(7), Value::Int64(1)];
    assert_eq!(plan.bind(&table, &[Value::Text("7".into()), Value::Int64(1)]).unwrap(), BoundKeyedPlan::Select { key });
}

#[test]
fn a_literal_that_loses_digits_is_not_a_key() {
    let mut table = schema();
    table.columns[1].data_type = DataType::Decimal { precision: 9, scale: 2 };
    assert!(analyse("SELECT n FROM t WHERE a = 1 AND b = 0.12", &table).is_some());
    assert!(analyse("SELECT n FROM t WHERE a = 1 AND b = 0.125", &table).is_none());
}

#[test]
fn append_only_tables_have_only_inserts() {
    let mut table = schema();
    table.options.append_only = true;
    assert!(analyse("INSERT INTO t (a, b) VALUES (1, 2)", &table).is_some());
    for sql in [
        "SELECT * FROM t WHERE a = 1 AND b = 2",
        "UPDATE t SET n = 1 WHERE a = 1 AND b = 2",
        "DELETE FROM t WHERE a = 1 AND b = 2",
        "INSERT INTO t (a, b) VALUES (1, 2) ON CONFLICT DO NOTHING",
    ] {
        assert_eq!(analyse(sql, &table), None, "{sql}");
    }
}

#[test]
fn the_table_is_named_as_postgres_folds_it() {
    let name = |sql: &str| table_name(&statements(sql).unwrap().remove(0));
    assert_eq!(name("SELECT * FROM Lineitem").as_deref(), Some("lineitem"));
    assert_eq!(name("SELECT * FROM \"Lineitem\" AS l").as_deref(), Some("Lineitem"));
    assert_eq!(name("INSERT INTO public.t VALUES (1)").as_deref(), Some("t"));
    assert_eq!(name("DELETE FROM tarn.public.t").as_deref(), Some("t"));
    assert_eq!(name("SELECT * FROM tarn.tables"), None);
    assert_eq!(name("SELECT 1"), None);
}
