//! What does a client get? A server in this process, an ordinary Postgres client, real folders.

#![allow(clippy::unwrap_used)]

mod attach;
mod attach_faults;
mod catalog;
mod copy;
mod drops;
mod errors;
mod harness;
mod hostile_functions;
mod http;
mod lake;
mod metastore;
mod model;
mod prepared;
mod remote;
mod restart;
mod slt;
mod together;
mod transactions;
mod types;
