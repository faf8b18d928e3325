//! What must hold of documents?

use std::sync::Arc;

use tarn_types::Kind;

use super::samples::{Backend, sample_schema};
use crate::{MAX_DOCUMENT_BYTES, Memory, MetastoreExt, document, is_document, put_document};

/// A document is made and replaced by its version; late and too long ones are refused.
pub async fn a_document_is_replaced_by_whoever_saw_it_last(metastore: Backend) {
    let read = async || document(&*metastore, "users").await.unwrap();
    assert_eq!(read().await, None);
    let text = "{\"naïve\": \"O'Brien\"}";
    assert_eq!(put_document(&*metastore, "users", 0, text).await.unwrap(), 1);
    assert_eq!(read().await.unwrap().text, text);
    let late = put_document(&*metastore, "users", 0, "late").await.unwrap_err();
    assert_eq!(late.kind(), Kind::Conflict, "{late}");
    let long = put_document(&*metastore, "users", 1, &"x".repeat(MAX_DOCUMENT_BYTES + 1)).await.unwrap_err();
    assert_eq!(long.kind(), Kind::Invalid, "{long}");
    assert_eq!(put_document(&*metastore, "users", 1, "").await.unwrap(), 2);
    assert_eq!(put_document(&*metastore, "other", 0, "x").await.unwrap(), 1, "another document");
    assert_eq!((read().await.unwrap().version, read().await.unwrap().text), (2, String::new()));

    let taken = metastore.create_table(sample_schema("tarn-document://users/3")).await.unwrap_err();
    assert_eq!(taken.kind(), Kind::Invalid, "a table that would keep the next version out: {taken}");

    // Of many who saw the same version, one wins.
    let many = (0..8).map(|n| {
        let metastore = Arc::clone(&metastore);
        tokio::spawn(async move { put_document(&*metastore, "users", 2, &n.to_string()).await.map(|_| n) })
    });
    let mut winners = vec![];
    for one in many.collect::<Vec<_>>() {
        match one.await.unwrap() {
            Ok(n) => winners.push(n.to_string()),
            Err(error) => assert_eq!(error.kind(), Kind::Conflict, "{error}"),
        }
    }
    assert_eq!(winners.len(), 1, "{winners:?}");
    let now = read().await.unwrap();
    assert_eq!((now.version, &now.text), (3, &winners[0]));
    put_document(&*metastore, "users", 3, "last").await.unwrap();
    let tables = metastore.tables().await.unwrap();
    assert_eq!(tables.iter().filter(|table| is_document(table)).count(), 2, "old versions are forgotten");
}

/// A copy has the documents of its source, and they can be replaced there.
pub async fn documents_come_along_with_a_copy(metastore: Backend) {
    let source: Backend = Arc::new(Memory::new(Arc::new(tarn_types::ManualClock::new(500))));
    source.create_table(sample_schema("t")).await.unwrap();
    put_document(&*source, "users", 0, "one").await.unwrap();
    put_document(&*source, "users", 1, "two").await.unwrap();
    crate::copy(&*source, &*metastore, &|_| {}).await.unwrap();
    assert_eq!(document(&*metastore, "users").await.unwrap(), document(&*source, "users").await.unwrap());
    put_document(&*metastore, "users", 2, "three").await.unwrap();
}
