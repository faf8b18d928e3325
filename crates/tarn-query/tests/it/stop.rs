//! A query that nobody waits for lets go of its thread, wherever it is.

use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use futures::StreamExt;
use tarn_query::Options;
use tarn_query::parser::STACK_BYTES;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

use crate::fixture::{Fixture, schema};

/// Each is at one batch for minutes, without a pause of its own.
const LONG: &[&str] = &[
    "SELECT count(*) FROM generate_series(1, 100000) a(v) JOIN generate_series(1, 100000) b(v) ON a.v % 2 = b.v % 2 AND a.v + b.v = -1",
    "SELECT count(*) FROM generate_series(1, 100000) a(v) \
     WHERE NOT EXISTS (SELECT 1 FROM generate_series(1, 100000) b(v) WHERE b.v % 2 = a.v % 2 AND a.v + b.v = -1)",
    "SELECT sum(levenshtein(repeat(v::text, 2000), repeat(v::text, 1999))) FROM generate_series(100, 100000) a(v)",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_nobody_waits_for_lets_go_of_its_thread() {
    for statement in LONG {
        let queries = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let options = Options { threads: Some(queries.handle().clone()), ..Options::default() };
        let fixture = Fixture::with_options(schema(), options).await;
        let mut stream = fixture.session.sql(statement).await.unwrap();
        let first = timeout(Duration::from_millis(500), stream.next()).await;
        assert!(first.is_err(), "it is answered too soon to say anything: {statement}: {first:?}");
        drop(stream);
        // The one thread takes another task: far later than it should, but long before the query would have ended.
        let free = timeout(Duration::from_secs(300), queries.spawn(sleep(Duration::ZERO))).await;
        queries.shutdown_background();
        assert!(free.is_ok(), "it goes on: {statement}");
    }
}

fn chain_of_joins(n_tables: usize) -> String {
    let table = |idx: usize| match idx {
        0 => "generate_series(0, 99) AS t0(v)".to_owned(),
        idx => format!("JOIN generate_series(0, 99) AS t{idx}(v) ON t{idx}.v = t{}.v", idx - 1),
    };
    format!("SELECT count(*) FROM {}", (0..n_tables).map(table).collect::<Vec<_>>().join(" "))
}

/// An engine, and its one thread for queries with the stack that the server's have.
async fn engine() -> (Fixture, Runtime) {
    let queries =
        Builder::new_multi_thread().worker_threads(1).thread_stack_size(STACK_BYTES).enable_all().build().unwrap();
    let options = Options { threads: Some(queries.handle().clone()), ..Options::default() };
    (Fixture::with_options(schema(), options).await, queries)
}

/// A pause that each poll counts anew was never over for the lowest of so many.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_of_two_hundred_tables_are_answered() {
    let (fixture, queries) = engine().await;
    let sql = chain_of_joins(200);
    let batches = timeout(Duration::from_secs(300), fixture.session.collect(&sql)).await;
    queries.shutdown_background();
    let batches = batches.expect("it never ends").unwrap();
    assert_eq!(batches[0].column(0).as_primitive::<Int64Type>().value(0), 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn planning_that_nobody_waits_for_ends() {
    let (fixture, queries) = engine().await;
    let sql = chain_of_joins(1_000);
    let planned = timeout(Duration::from_millis(500), fixture.session.sql(&sql)).await;
    assert!(planned.is_err(), "it is planned too soon to say anything");
    let free = timeout(Duration::from_secs(120), queries.spawn(sleep(Duration::ZERO))).await;
    queries.shutdown_background();
    assert!(free.is_ok(), "it goes on");
}
