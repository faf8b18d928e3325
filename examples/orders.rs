//! Orders, by tokio-postgres: prepared statements, a transaction, and what an error says.
//!
//! `cargo run -p tarn --example orders`, with a server at PGHOST:PGPORT (127.0.0.1:5433).

use std::env;
use std::error::Error;

use tokio_postgres::{Client, NoTls};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (mut client, connection) = tokio_postgres::connect(&address(), NoTls).await?;
    let talking = tokio::spawn(connection);
    let done = work(&mut client).await;
    client.batch_execute("DROP TABLE IF EXISTS example_orders").await?;
    drop(client);
    talking.await??;
    done
}

fn address() -> String {
    let setting = |name, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
    let (host, port) = (setting("PGHOST", "127.0.0.1"), setting("PGPORT", "5433"));
    format!("host={host} port={port} user={} dbname=tarn", setting("PGUSER", "tarn"))
}

async fn work(client: &mut Client) -> Result<(), Box<dyn Error>> {
    client
        .batch_execute("CREATE TABLE example_orders (id bigint PRIMARY KEY, buyer text NOT NULL, cents bigint)")
        .await?;

    // Prepared once, planned once: a write or read by key then goes past the planner.
    let insert = client.prepare("INSERT INTO example_orders VALUES ($1, $2, $3)").await?;
    for id in 0..100_i64 {
        client.execute(&insert, &[&id, &format!("buyer {}", id % 7), &(id * 250)]).await?;
    }
    let by_key = client.prepare("SELECT buyer, cents FROM example_orders WHERE id = $1").await?;
    let row = client.query_one(&by_key, &[&42_i64]).await?;
    println!("order 42: {} owes {} cents", row.get::<_, String>(0), row.get::<_, i64>(1));

    // One writing statement, held until COMMIT. Was a row changed meanwhile, COMMIT fails with 40001 and nothing is
    // written.
    let transaction = client.transaction().await?;
    let n_rows =
        transaction.execute("UPDATE example_orders SET cents = cents - 100 WHERE buyer = 'buyer 3'", &[]).await?;
    transaction.commit().await?;
    println!("{n_rows} orders are cheaper");

    // An error has an SQLSTATE, which says what can be done, and often a remedy.
    let refused = client.execute(&insert, &[&7_i64, &None::<String>, &0_i64]).await;
    let error = refused.err().ok_or("an order without a buyer was taken")?;
    let error = error.as_db_error().ok_or("not an error of the server")?;
    println!("refused, {}: {}", error.code().code(), error.message());

    let total: i64 = client.query_one("SELECT sum(cents)::bigint FROM example_orders", &[]).await?.get(0);
    println!("{total} cents in all");
    Ok(())
}
