//! How is it put together and run? Settings, protocols and wiring: no algorithm lives here.
//!
//! - [`settings`]: what can be set, and who set it. [`node`]: everything opened and wired; used in-process by tests and benches.
//! - [`server`]: listeners around a node. [`pg`]: the Postgres wire protocol. [`http`]: probes, metrics, SQL as JSON.
//! - [`session`]: what one connection does with a statement. [`write`]: how mutations get in. [`worker`]: what happens behind.
//! - [`auth`]: who may do what. [`attachments`]: tables that others write. [`stores`]: where they are.
//!
//! ```no_run
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let settings = tarn::settings::Settings { data_dir: "data".into(), ..Default::default() };
//! let server = tarn::server::start(settings).await?;
//! println!("psql -h {} -p {}", server.pg.ip(), server.pg.port());
//! server.stop().await?;
//! # Ok::<(), tarn::error::SqlError>(())
//! # }).unwrap();
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod attach_sql;
pub mod attachments;
pub mod auth;
pub mod budget;
mod cache_metrics;
pub mod cache_sql;
pub mod caches;
pub mod catalog;
pub mod clock;
mod compat;
pub mod ddl;
mod descriptors;
mod drops;
mod encoding;
pub mod error;
mod error_from;
mod health;
mod hot;
pub mod http;
mod http_login;
mod http_tls;
mod lake_store;
mod ledger;
mod log_metrics;
pub mod metastores;
mod metrics;
pub mod node;
pub mod pg;
mod pg_catalog;
mod privileges;
mod quiet;
mod reserve;
mod scrub;
pub mod server;
pub mod session;
pub mod settings;
pub mod statement;
pub mod stores;
mod stream;
mod system;
mod system_attach;
mod system_caches;
mod threads;
mod together;
pub mod worker;
pub mod write;
