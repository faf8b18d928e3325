//! What tools ask: system tables, SHOW, and the queries psql, JDBC and psycopg send to Postgres' catalog.

use crate::harness::{Server, cell, rows};

async fn table() -> (Server, tokio_postgres::Client) {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE orders (id bigint, line int DEFAULT 1, price numeric(10,2) NOT NULL, note text, PRIMARY KEY (id, line DESC)) WITH (partitioning = 'hash', tablets = 2)").await.unwrap();
    (server, client)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn system_tables_tell_where_rows_are() {
    let (_server, client) = table().await;
    client.batch_execute("INSERT INTO orders VALUES (1, 1, 1, 'a'), (2, 1, 2, 'b'), (3, 1, 3, NULL)").await.unwrap();
    let tables = "SELECT table_name, tablets, primary_key, recent_rows, lake_rows, lake_files FROM tarn.tables";
    assert_eq!(rows(&client, tables).await, [["orders", "2", "id, line DESC", "3", "0", "0"]]);
    client
        .batch_execute("DELIVER TABLE orders; DELETE FROM orders WHERE id = 1 AND line = 1; DELIVER TABLE orders")
        .await
        .unwrap();
    assert_eq!(cell(&client, "SELECT lake_rows FROM tarn.tables").await, "2");
    assert_eq!(cell(&client, "SELECT sum(n_rows - dead_rows) FROM tarn.files WHERE table_name = 'orders'").await, "2");
    assert_eq!(cell(&client, "SELECT sum(n_rows) FROM tarn.blocks").await, "3");
    assert_eq!(
        rows(&client, "SELECT version, kind FROM tarn.deliveries ORDER BY version").await,
        [["1", "delivery"], ["2", "delivery"]]
    );
    assert_eq!(cell(&client, "SELECT count(*) FROM tarn.tablets WHERE applied_seqno = delivered_seqno").await, "2");
    let segments = "SELECT count(*), bool_and(live_bytes > 0 AND NOT sealed), max(live_items) FROM tarn.log_segments";
    assert_eq!(
        rows(&client, segments).await,
        [["1", "t", "6"]],
        "three entries and three freezes, nobody has purged any"
    );
    let blockers = "SELECT DISTINCT table_name, first_seqno, oldest_segment FROM tarn.log_blockers";
    assert_eq!(rows(&client, blockers).await, [["orders", "1", "1"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn show_and_describe() {
    let (_server, client) = table().await;
    assert_eq!(rows(&client, "SHOW TABLES").await, [["orders"]]);
    let create = &rows(&client, "SHOW CREATE TABLE orders").await[0][1];
    assert!(
        create.contains("PRIMARY KEY (id, line DESC)") && create.contains("partitioning = 'hash', tablets = 2"),
        "{create}"
    );
    let copy = create.replacen("orders", "copied", 1);
    client.batch_execute(&copy).await.unwrap();
    assert_eq!(rows(&client, "SHOW COLUMNS FROM orders").await[1][..4], ["line", "INTEGER", "NO", "2"]);
    assert_eq!(cell(&client, "SHOW server_version").await, "16.6");
    client.batch_execute("SET application_name = 'x'").await.unwrap();
    assert_eq!(cell(&client, "SHOW application_name").await, "x");
    client.batch_execute("SET tarn.access_path TO lake").await.unwrap();
    assert_eq!(cell(&client, "SHOW tarn.access_path").await, "lake");
    assert!(rows(&client, "SHOW ALL").await.len() > 20);
    client.batch_execute("RESET ALL").await.unwrap();
    client.batch_execute("DISCARD ALL").await.unwrap();
    assert_eq!(cell(&client, "SHOW tarn.access_path").await, "auto");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn psql_and_driver_queries_are_answered() {
    let (_server, client) = table().await;
    // psql \dt and \d, as psql 15 sends them.
    let listed = rows(
        &client,
        "SELECT n.nspname as \"Schema\", c.relname as \"Name\", CASE c.relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' WHEN 'p' THEN 'partitioned table' END as \"Type\", \
         pg_catalog.pg_get_userbyid(c.relowner) as \"Owner\" FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
         WHERE c.relkind IN ('r','p','') AND n.nspname <> 'pg_catalog' AND n.nspname !~ '^pg_toast' AND n.nspname <> 'information_schema' \
         AND pg_catalog.pg_table_is_visible(c.oid) ORDER BY 1,2",
    )
    .await;
    assert!(listed.iter().any(|row| row[1] == "orders" && row[2] == "table"), "{listed:?}");
    let oid = rows(
        &client,
        "SELECT c.oid, n.nspname, c.relname FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
         WHERE c.relname OPERATOR(pg_catalog.~) '^(orders)$' COLLATE pg_catalog.default AND pg_catalog.pg_table_is_visible(c.oid) ORDER BY 2, 3",
    )
    .await;
    assert_eq!(oid[0][2], "orders");
    let columns = rows(
        &client,
        &format!(
            "SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull FROM pg_catalog.pg_attribute a \
             WHERE a.attrelid = '{}' AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
            oid[0][0]
        ),
    )
    .await;
    let names: Vec<&str> = columns.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(names, ["id", "line", "price", "note"]);
    assert_eq!(cell(&client, "SELECT current_database()").await, "tarn");
    assert_eq!(cell(&client, "SELECT current_schema()").await, "public");
    assert!(
        cell(&client, "SELECT version()").await.contains("Tarn") || !cell(&client, "SELECT version()").await.is_empty()
    );
    assert_eq!(cell(&client, "SELECT count(*) FROM information_schema.tables WHERE table_name = 'orders'").await, "1");
    assert_eq!(cell(&client, "SELECT count(*) FROM pg_catalog.pg_type WHERE typname = 'int4'").await, "1");
}
