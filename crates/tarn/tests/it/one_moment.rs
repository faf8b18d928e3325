//! Does a statement see all its tables at one moment?

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::{Server, rows};

/// Rounds of each statement beside a writer.
const ROUNDS: usize = 300;

/// Each gives what it sees of `a` and of `b`.
const BOTH: [&str; 4] = [
    "SELECT a.n, b.n FROM a JOIN b ON a.k = b.k",
    "SELECT a.n, b.n FROM b JOIN a ON a.k = b.k",
    "SELECT (SELECT max(n) FROM a), (SELECT max(n) FROM b)",
    "SELECT max(x), max(y) FROM (SELECT n AS x, 0 AS y FROM a UNION ALL SELECT 0, n FROM b) AS s",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_before_something_that_is_seen_is_seen() {
    let server = Server::start().await;
    let client = server.client().await;
    let made = "CREATE TABLE a (k int PRIMARY KEY, n int); CREATE TABLE b (k int PRIMARY KEY, n int); \
                INSERT INTO a VALUES (1, 0); INSERT INTO b VALUES (1, 0)";
    client.batch_execute(made).await.unwrap();
    let ended = Arc::new(AtomicBool::new(false));
    let writer = {
        let (writer, ended) = (server.client().await, Arc::clone(&ended));
        tokio::spawn(async move {
            let mut n = 0;
            while !ended.load(Ordering::Relaxed) {
                n += 1;
                for table in ["a", "b"] {
                    writer.batch_execute(&format!("UPDATE {table} SET n = {n} WHERE k = 1")).await.unwrap();
                }
            }
            n
        })
    };
    let mut seen = 0;
    for sql in BOTH {
        for _ in 0..ROUNDS {
            let both = &rows(&client, sql).await[0];
            let (a, b): (i64, i64) = (both[0].parse().unwrap(), both[1].parse().unwrap());
            assert!(b <= a && a <= b + 1, "{sql}: a is at {a}, b at {b}: the writer writes a, then b");
            assert!(a >= seen, "{sql}: {a} after {seen}");
            seen = a;
        }
    }
    ended.store(true, Ordering::Relaxed);
    assert!(writer.await.unwrap() > 100, "the writer wrote beside the readers");
}
