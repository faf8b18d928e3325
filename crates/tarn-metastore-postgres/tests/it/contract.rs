//! What must hold of every backend: in the schema that this build makes, and in the one before it while a store is not
//! migrated yet.

use tarn_metastore::contract::Backend;
use tarn_metastore::contract::many_writers;
use tarn_metastore_postgres::Postgres;

use crate::server::TestServer;

fn make() -> Option<(Postgres, TestServer)> {
    let server = TestServer::find()?;
    let metastore = server.run(server.open());
    Some((metastore, server))
}

tarn_metastore::contract::suite!(make);

mod first {
    use tarn_metastore_postgres::Postgres;

    use crate::server::TestServer;

    fn make() -> Option<(Postgres, TestServer)> {
        let server = TestServer::find()?;
        let metastore = server.run(async { server.connect_as(&server.remote().await, 1..=2).await.unwrap() });
        Some((metastore, server))
    }

    tarn_metastore::contract::suite!(
        make;
        commits_make_versions,
        block_metadata_come_back_bit_for_bit,
        block_metadata_of_unknown_blocks_are_missing_not_wrong,
        a_probe_never_drops_a_block_that_has_the_keys,
        maintenance_changes_no_answer,
        expire_frees_block_metadata,
        restore_equals_the_source,
    );
}

#[test]
fn thirty_two_writers_over_four_processes() {
    let Some(server) = TestServer::find() else { return };
    server.run(async {
        let mut clients: Vec<Backend> = vec![];
        for _ in 0..4 {
            clients.push(std::sync::Arc::new(server.open().await));
        }
        many_writers(clients, 250).await;
    });
}
