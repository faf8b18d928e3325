//! What does somebody see who follows a table? What happened, each once, and nothing that was only asked.

use tarn_node::auth::Principal;
use tarn_node::error::ErrorKind;
use tarn_types::{Cursor, Value, decode_key};

use crate::harness::Server;

/// Each with the effects that it has: the key, and whether there is a row then.
const STATEMENTS: [(&str, &[(i32, bool)]); 9] = [
    ("INSERT INTO t VALUES (1, 'a')", &[(1, true)]),
    ("INSERT INTO t VALUES (1, 'b') ON CONFLICT DO NOTHING", &[]),
    ("INSERT INTO t VALUES (1, 'b'), (2, 'b') ON CONFLICT DO NOTHING", &[(2, true)]),
    ("UPDATE t SET v = 'c' WHERE k = 1", &[(1, true)]),
    ("UPDATE t SET v = 'c' WHERE k = 9", &[]),
    ("DELETE FROM t WHERE k = 1", &[(1, false)]),
    ("DELETE FROM t WHERE k = 1", &[]),
    ("UPDATE t SET v = v || 'x' WHERE v = 'b'", &[(2, true)]),
    ("DELETE FROM t", &[(2, false)]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_what_happened() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, v text)").await.unwrap();
    let node = &server.running.node;
    let table = node.catalog().require("t").unwrap();
    let mut at = Cursor::default();
    for (sql, effects) in STATEMENTS {
        client.batch_execute(sql).await.unwrap();
        let changes = node.tables().changes(&Principal::Nobody, &table, &at, 1 << 20).await.unwrap();
        let mut seen = Vec::new();
        for change in &changes {
            assert_eq!(change.seqno, at.get(change.tablet).next(), "{sql}");
            at.set(change.tablet, change.seqno);
            for effect in change.effects.iter() {
                let Value::Int32(k) = decode_key(table.schema(), effect.key).unwrap()[0] else { panic!("{sql}") };
                seen.push((k, effect.cells.is_some()));
            }
        }
        assert_eq!(seen, effects, "{sql}");
    }
    let again = node.tables().changes(&Principal::Nobody, &table, &Cursor::default(), 1 << 20).await.unwrap();
    assert_eq!(again.iter().map(|change| change.effects.len()).sum::<usize>(), 6);

    client.batch_execute("CREATE USER root SUPERUSER LOGIN PASSWORD 'r'").await.unwrap();
    let denied = node.tables().changes(&Principal::Nobody, &table, &at, 1).await.unwrap_err();
    assert_eq!(denied.kind(), ErrorKind::NotAllowedIn);
}
