//! What do Postgres tools see of the catalog?
//!
//! `pg_catalog` and Postgres' session functions, by crate `datafusion-pg-catalog`, in one session.

use datafusion::prelude::SessionContext;
use datafusion_pg_catalog::pg_catalog::context::EmptyContextProvider;

use crate::error::{Result, SqlError};

/// The database name clients see.
pub const DATABASE: &str = "tarn";

/// Registers schema `pg_catalog` and its functions with a session. Costs milliseconds.
pub fn register(context: &SessionContext) -> Result<()> {
    datafusion_pg_catalog::setup_pg_catalog(context, DATABASE, EmptyContextProvider).map_err(|error| SqlError::from(*error))
}
