//! `EXPLAIN`: the JSON that PostgreSQL's tools read, and options that would change nothing.

use serde_json::Value;

use crate::harness::{Server, cell, failure};

async fn explained(client: &tokio_postgres::Client, options: &str, query: &str) -> Value {
    let text = cell(client, &format!("EXPLAIN ({options}) {query}")).await;
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn nodes(plan: &Value) -> Vec<&Value> {
    let below = plan["Plans"].as_array().into_iter().flatten().flat_map(nodes);
    std::iter::once(plan).chain(below).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_as_json() {
    let server = Server::start().await;
    let client = server.client().await;
    client
        .batch_execute("CREATE TABLE t (k int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 10), (2, 20)")
        .await
        .unwrap();
    let joined = "SELECT a.v, count(*) FROM t a JOIN t b USING (k) WHERE a.v > 0 GROUP BY a.v ORDER BY 1";
    let plan = explained(&client, "FORMAT JSON", joined).await;
    let root = &plan[0];
    let all = nodes(&root["Plan"]);
    let types: Vec<&str> = all.iter().filter_map(|node| node["Node Type"].as_str()).collect();
    assert_eq!(types.len(), all.len(), "{plan:#}");
    for wanted in ["Seq Scan", "Hash Join", "Aggregate"] {
        assert!(types.contains(&wanted), "{wanted} in {types:?}");
    }
    assert!(all.iter().any(|node| node["Relation Name"] == "t"), "{plan:#}");
    assert!(all.iter().any(|node| node["Join Type"] == "Inner"), "{plan:#}");
    assert!(all.iter().all(|node| node["Details"].is_string() && node["Actual Rows"].is_null()), "{plan:#}");
    assert!(root["Planning Time"].is_null() && root["Execution Time"].is_null());
    assert!(root["Plan"]["Output"].is_null());

    let plan = explained(&client, "ANALYZE, VERBOSE, FORMAT JSON", joined).await;
    let root = &plan[0];
    assert_eq!(root["Plan"]["Actual Rows"], 2, "{plan:#}");
    assert_eq!(root["Plan"]["Actual Loops"], 1);
    assert_eq!(root["Plan"]["Output"][0], "v", "{plan:#}");
    assert!(root["Plan"]["Actual Total Time"].is_number() && root["Execution Time"].is_number());
    let plan = explained(&client, "ANALYZE, TIMING off, SUMMARY off, COSTS off, FORMAT json", joined).await;
    assert!(plan[0]["Plan"]["Actual Total Time"].is_null() && plan[0]["Execution Time"].is_null());
    assert_eq!(plan[0]["Plan"]["Actual Rows"], 2);
    let plan = explained(&client, "FORMAT JSON, SUMMARY", "SELECT v FROM t WHERE k = 1").await;
    assert!(plan[0]["Planning Time"].is_number());
    assert!(nodes(&plan[0]["Plan"]).iter().any(|node| node["Node Type"] == "Index Scan"), "{plan:#}");
    // A query that fails, fails.
    assert_eq!(
        failure(client.batch_execute("EXPLAIN (ANALYZE, FORMAT JSON) SELECT 1 / (v - 10) FROM t").await).0,
        "22012"
    );
    // By parameters, of type json.
    let row = client.query_one("EXPLAIN (FORMAT JSON) SELECT v FROM t WHERE k = $1", &[&1i32]).await.unwrap();
    assert_eq!((row.columns()[0].name(), row.columns()[0].type_().name()), ("QUERY PLAN", "json"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn options_that_change_nothing_are_refused() {
    let server = Server::start().await;
    let client = server.client().await;
    for options in [
        "BUFFERS",
        "ANALYZE, WAL on",
        "COSTS",
        "SETTINGS",
        "FORMAT XML",
        "FORMAT yaml",
        "SUMMARY",
        "TIMING",
        "ANALYZE, TIMING off",
        "nonsense",
    ] {
        let (state, message) = failure(client.batch_execute(&format!("EXPLAIN ({options}) SELECT 1")).await);
        assert_eq!(state, "0A000", "{options}: {message}");
    }
    assert_eq!(failure(client.batch_execute("EXPLAIN FORMAT JSON SELECT 1").await).0, "0A000");
    for options in [
        "ANALYZE false",
        "VERBOSE, COSTS off, BUFFERS off, WAL off, SETTINGS 0, SUMMARY off, TIMING off",
        "FORMAT TEXT, ANALYZE on, TIMING on",
    ] {
        client
            .batch_execute(&format!("EXPLAIN ({options}) SELECT 1"))
            .await
            .unwrap_or_else(|error| panic!("{options}: {error:?}"));
    }
}
