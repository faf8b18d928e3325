//! How is it put together and run? Settings and wiring: no algorithm lives here.
//!
//! - [`settings`]: what can be set, and who set it. [`server`]: listeners around a node. [`listen`]: where they may be.
//!
//! What is wired: `tarn-node` (the tables), `tarn-sql` over it, and the faces `tarn-pg` and `tarn-http`.
//!
//! ```no_run
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let mut settings = tarn::settings::Settings::default();
//! settings.node.data_dir = "data".into();
//! let server = tarn::server::start(settings).await?;
//! println!("psql -h {} -p {}", server.pg.ip(), server.pg.port());
//! server.stop().await?;
//! # Ok::<(), tarn_sql::error::SqlError>(())
//! # }).unwrap();
//! ```

#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod listen;
pub mod server;
pub mod settings;
