//! Types that users make: how clients see them, in text and in binary, who may change them, and what survives.

use bytes::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, Kind, ToSql, Type, to_sql_checked};

use crate::harness::{Server, cell, failure, rows};

/// A label, as drivers send and read it.
#[derive(Debug, PartialEq)]
struct Label(String);

impl Label {
    fn of(text: &str) -> Label {
        Label(text.to_owned())
    }
}

fn is_enum(of: &Type) -> bool {
    matches!(of.kind(), Kind::Enum(_))
}

impl ToSql for Label {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(of: &Type) -> bool {
        is_enum(of)
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Label {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Label, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Label(std::str::from_utf8(raw)?.to_owned()))
    }

    fn accepts(of: &Type) -> bool {
        is_enum(of)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_find_the_type_and_bind_labels() {
    let server = Server::start().await;
    let client = server.client().await;
    let made = "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy'); CREATE TABLE t (k int PRIMARY KEY, m mood)";
    client.batch_execute(made).await.unwrap();
    // The driver asks the catalog for what it is told: the name, and the labels in their order.
    let by_key = client.prepare("SELECT m FROM t WHERE k = $1").await.unwrap();
    let of = by_key.columns()[0].type_().clone();
    let labels = ["sad", "ok", "happy"].map(str::to_owned).to_vec();
    assert_eq!((of.name(), of.schema(), of.kind()), ("mood", "public", &Kind::Enum(labels)));
    let mut k = 0;
    for insert in ["INSERT INTO t VALUES ($1, $2)", "INSERT INTO t (k, m) VALUES ($1, $2::mood)"] {
        let insert = client.prepare(insert).await.unwrap();
        assert_eq!(insert.params()[1], of);
        for label in ["happy", "sad"] {
            client.execute(&insert, &[&k, &Label::of(label)]).await.unwrap();
            k += 1;
        }
        let (state, message) = failure(client.execute(&insert, &[&100, &Label::of("meh")]).await);
        assert_eq!(state, "22P02");
        assert!(message.contains("invalid input value for enum mood: \"meh\""), "{message}");
    }
    for (compared, want) in [
        ("SELECT k FROM t WHERE m = $1 ORDER BY k", vec![1, 3]),
        ("SELECT k FROM t WHERE m < $1 ORDER BY k", vec![]),
        ("SELECT k FROM t WHERE m >= $1 AND k < 2 ORDER BY k", vec![0, 1]),
        ("SELECT k FROM t WHERE m IN ($1) ORDER BY k", vec![1, 3]),
        ("SELECT k FROM t WHERE m = $1::mood ORDER BY k", vec![1, 3]),
    ] {
        let statement = client.prepare(compared).await.unwrap();
        assert_eq!(statement.params(), std::slice::from_ref(&of), "{compared}");
        let found = client.query(&statement, &[&Label::of("sad")]).await.unwrap();
        assert_eq!(found.iter().map(|row| row.get::<_, i32>(0)).collect::<Vec<_>>(), want, "{compared}");
        let refused = client.query(&statement, &[&Label::of("meh")]).await;
        assert_eq!(failure(refused).0, "22P02", "{compared}");
    }
    assert_eq!(client.query_one(&by_key, &[&0]).await.unwrap().get::<_, Label>(0), Label::of("happy"));
    let all = client.query_one("SELECT array_agg(m ORDER BY m), max(m) FROM t", &[]).await.unwrap();
    assert_eq!(all.columns()[0].type_().kind(), &Kind::Array(of.clone()));
    assert_eq!(all.get::<_, Label>(1), Label::of("happy"));
    // A statement that was prepared knows the labels that came since.
    let insert = client.prepare("INSERT INTO t VALUES ($1, $2)").await.unwrap();
    let cast = client.prepare("SELECT $1::mood").await.unwrap();
    client.batch_execute("ALTER TYPE mood ADD VALUE 'meh' BEFORE 'ok'").await.unwrap();
    client.execute(&insert, &[&7, &Label::of("meh")]).await.unwrap();
    client.query_one(&cast, &[&Label::of("meh")]).await.unwrap();
    assert_eq!(rows(&client, "SELECT DISTINCT m FROM t ORDER BY m").await, [["sad"], ["meh"], ["happy"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn types_are_back_after_a_start_and_copied_both_ways() {
    let server = Server::start().await;
    let client = server.client().await;
    let made = "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TYPE unused AS ENUM (); CREATE TABLE t (k int PRIMARY KEY, m mood DEFAULT 'ok');
                INSERT INTO t VALUES (1, 'sad'); INSERT INTO t (k) VALUES (2)";
    client.batch_execute(made).await.unwrap();
    client.batch_execute("ALTER TYPE mood ADD VALUE 'low' AFTER 'sad'").await.unwrap();
    client.batch_execute("ALTER TYPE mood RENAME TO humour; COMMENT ON TYPE humour IS 'how it is'").await.unwrap();
    let number = cell(&client, "SELECT oid FROM pg_type WHERE typname = 'humour'").await;
    let server = server.restart().await;
    let client = server.client().await;
    assert_eq!(cell(&client, "SELECT oid FROM pg_type WHERE typname = 'humour'").await, number);
    assert_eq!(cell(&client, "SELECT enum_range(NULL::humour)").await, "{sad,low,ok}");
    let said = "SELECT obj_description(oid, 'pg_type') FROM pg_type WHERE typname = 'humour'";
    assert_eq!(cell(&client, said).await, "how it is");
    client.batch_execute("INSERT INTO t VALUES (3, 'low')").await.unwrap();
    assert_eq!(rows(&client, "SELECT k FROM t ORDER BY m").await, [["1"], ["3"], ["2"]]);
    let definition = rows(&client, "SHOW CREATE TABLE t").await[0][1].clone();
    assert!(definition.contains("m humour DEFAULT 'ok'::humour"), "{definition}");
    let sink = client.copy_in::<_, bytes::Bytes>("COPY t FROM STDIN").await.unwrap();
    futures::pin_mut!(sink);
    futures::SinkExt::send(&mut sink, bytes::Bytes::from_static(b"4\thappy\n")).await.unwrap();
    assert_eq!(failure(sink.finish().await).0, "22P02");
    let sink = client.copy_in::<_, bytes::Bytes>("COPY t (k, m) FROM STDIN WITH (FORMAT csv)").await.unwrap();
    futures::pin_mut!(sink);
    futures::SinkExt::send(&mut sink, bytes::Bytes::from_static(b"4,low\n5,\n")).await.unwrap();
    assert_eq!(sink.finish().await.unwrap(), 2);
    assert_eq!(rows(&client, "SELECT m FROM t WHERE k > 3 ORDER BY m").await, [["low"], ["∅"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_type_belongs_to_who_made_it() {
    let server = Server::start().await;
    let first = server.client().await;
    first.batch_execute("CREATE USER root SUPERUSER PASSWORD 'r'").await.unwrap();
    let root = server.client_as("root", "r").await.unwrap();
    root.batch_execute(
        "CREATE USER ann PASSWORD 'a'; CREATE USER bob PASSWORD 'b'; GRANT CREATE ON SCHEMA public TO ann",
    )
    .await
    .unwrap();
    let ann = server.client_as("ann", "a").await.unwrap();
    let bob = server.client_as("bob", "b").await.unwrap();
    ann.batch_execute("CREATE TYPE mood AS ENUM ('sad')").await.unwrap();
    for denied in [
        "CREATE TYPE x AS ENUM ('a')",
        "ALTER TYPE mood ADD VALUE 'ok'",
        "DROP TYPE mood",
        "COMMENT ON TYPE mood IS 'x'",
    ] {
        assert_eq!(failure(bob.batch_execute(denied).await).0, "42501", "{denied}");
    }
    ann.batch_execute("ALTER TYPE mood ADD VALUE 'ok'").await.unwrap();
    root.batch_execute("ALTER TYPE mood OWNER TO bob").await.unwrap();
    assert_eq!(failure(ann.batch_execute("DROP TYPE mood").await).0, "42501");
    bob.batch_execute("DROP TYPE mood").await.unwrap();
}
