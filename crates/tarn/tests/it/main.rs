//! What does a client get? A server in this process, an ordinary Postgres client, real folders.

#![allow(clippy::unwrap_used)]

mod activity;
mod alter;
mod alter_in_transactions;
mod array_columns;
mod attach;
mod attach_faults;
mod auth;
mod catalog;
#[path = "../child/mod.rs"]
mod child;
mod connections;
mod console;
mod copy;
mod cursors;
mod definitions;
mod drops;
mod errors;
mod explain;
mod faults;
mod follow;
mod harness;
mod hostile_functions;
mod http;
mod implicit;
mod indexes;
mod inserts;
mod lake;
mod logged;
mod merge;
mod metastore;
mod model;
mod notify;
mod one_moment;
mod prepared;
mod protocol;
mod raw;
mod remote;
mod restart;
mod rot;
mod row_locks;
mod scans;
mod slt;
mod split;
mod sql_front;
mod styles;
mod temporary;
mod tls;
mod together;
mod transactions;
mod types;
mod unique;
mod user_types;
mod views;
mod zones;
