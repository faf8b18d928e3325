//! What does a client get? A server in this process, an ordinary Postgres client, real folders.

#![allow(clippy::unwrap_used)]

mod attach;
mod attach_faults;
mod catalog;
mod copy;
mod errors;
mod harness;
mod http;
mod lake;
mod metastore;
mod model;
mod prepared;
mod remote;
mod restart;
mod rot;
mod slt;
mod transactions;
mod types;
