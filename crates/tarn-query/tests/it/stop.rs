//! A query that nobody waits for lets go of its thread, wherever it is.

use std::time::Duration;

use futures::StreamExt;
use tarn_query::Options;
use tokio::runtime::Builder;
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
        let free = timeout(Duration::from_secs(60), queries.spawn(sleep(Duration::ZERO))).await;
        queries.shutdown_background();
        assert!(free.is_ok(), "it goes on: {statement}");
    }
}
