//! The metastore in PostgreSQL against a real server: the contract that all backends pass, a network that fails,
//! damaged bytes, and a migration that is killed at every step. `TARN_TEST_POSTGRES` names the server; without it, the
//! tests say so and pass.

#![allow(clippy::unwrap_used)]

mod contract;
mod damage;
mod faults;
mod migration;
mod server;
