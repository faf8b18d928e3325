//! Does the query crate answer what the model says? Fake hot rows, a memory metastore, real Parquet files in a memory store.
#![allow(clippy::unwrap_used)]

mod answers;
mod changes;
mod explain;
mod fixture;
mod keyed;
mod union;
