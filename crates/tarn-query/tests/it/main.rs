//! Does the query crate answer what the model says? Fake hot rows, a memory metastore, real Parquet files in a memory
//! store.
#![allow(clippy::unwrap_used)]

mod answers;
mod archive;
mod block_metadata;
mod cached;
mod changes;
mod column_chunk;
mod explain;
mod fixture;
mod fragments;
mod keyed;
mod nothing_hot;
mod paths;
mod pruning;
mod recording;
mod specs;
mod statistics;
mod stop;
mod union;
mod unknowns;
mod wide;
