//! What if the bytes in the tables are not those that were written? They are named, and nothing is answered from them.

use std::sync::Arc;

use tarn_metastore::contract::{append, everything, sample_block_metadata, with_files};
use tarn_metastore::{Commit, Definition, Metastore, Probe, VersionSelector, hour_blocks, token_hash};
use tarn_types::{Kind, Version};

use crate::server::TestServer;

#[test]
fn damage_is_named() {
    let Some(server) = TestServer::find() else { return };
    server.run(async {
        let metastore: Arc<dyn Metastore> = Arc::new(server.open().await);
        let admin = server.admin().await;
        let (table, file) = with_files(&metastore, 2).await;
        let with_block_metadata =
            |id, file| Commit { block_metadata: [(file, sample_block_metadata(&["k"]))].into(), ..append(id, file) };
        metastore.commit(table, with_block_metadata(1, file)).await.unwrap();
        metastore.expire(table, Version(1)).await.unwrap();
        metastore.commit(table, with_block_metadata(2, tarn_types::FileId(file.0 + 1))).await.unwrap();
        let hours = hour_blocks(&metastore.snapshot(table, VersionSelector::Latest).await.unwrap().files);
        // Once while the blocks are loose, once when they are in a pack.
        for is_packed in [false, true] {
            if is_packed {
                admin.execute("UPDATE loose SET column_bytes = 1 << 30", &[]).await.unwrap();
                while metastore.maintain(1 << 30).await.unwrap().more {}
            }
            let columns: &[(&str, &str)] = match is_packed {
                false => &[
                    ("tables", "definition"),
                    ("tables", "base"),
                    ("files", "file"),
                    ("commits", "payload"),
                    ("loose", "bloom"),
                    ("loose", "columns"),
                ],
                true => &[("packs", "slots"), ("pack_rows", "bits"), ("pack_slabs", "slab")],
            };
            for (of, column) in columns {
                let flip = format!("UPDATE {of} SET {column} = set_byte({column}, 5, get_byte({column}, 5) # 16)");
                assert!(admin.execute(&flip, &[]).await.unwrap() > 0, "{of}");
                let fresh = server.open().await;
                let probe = Probe { hours: hours.clone(), clauses: vec![vec![vec![token_hash("k"), token_hash("l")]]] };
                let mut read = vec![
                    fresh.tables().await.err(),
                    fresh.snapshot(table, VersionSelector::Latest).await.err(),
                    fresh.block_metadata(table, everything(hours.clone())).await.err(),
                ];
                for n in 0..16 {
                    let clauses = vec![vec![vec![token_hash(&format!("token{n}"))]]];
                    read.push(fresh.probe(table, Probe { clauses, ..probe.clone() }).await.err());
                }
                let errors: Vec<_> = read.into_iter().flatten().collect();
                assert!(!errors.is_empty(), "nobody saw {of}.{column}");
                for error in errors {
                    assert_eq!(error.kind(), Kind::Corrupt, "{error}");
                    assert!(error.to_string().contains(of), "{error}");
                }
                admin.execute(&flip, &[]).await.unwrap();
            }
            let fresh = server.open().await;
            assert_eq!(fresh.block_metadata(table, everything(hours.clone())).await.unwrap().blooms.len(), 2);
        }
        admin.execute("DELETE FROM pack_rows WHERE chunk = 1", &[]).await.unwrap();
        let missing = metastore.block_metadata(table, everything(hours)).await.unwrap_err();
        assert_eq!(missing.kind(), Kind::Corrupt, "{missing}");
        metastore.define(Definition::Drop { name: "t".into() }).await.unwrap();
    });
}
