//! What does a statement carry to where it is planned and run? Rules, operators and functions know the configuration
//! that they are called with, and nothing else of the statement they work for.

use datafusion::common::config::ConfigOptions;

use crate::carried::carried;
use crate::constants::Constants;
use crate::plan_size::PlanMemory;
use crate::stop::Stop;

/// Of one statement; copies of its configuration have the same. What belongs to no statement has one that bounds
/// nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct StatementContext {
    /// Whether anybody still waits for it.
    pub stop: Stop,
    /// Memory of what the planner computes of constants.
    pub constants: Constants,
    /// Memory of the plan itself.
    pub plan: PlanMemory,
    /// What `now()` is, in microseconds since 1970-01-01 UTC.
    pub began_us: Option<i64>,
    /// When the statement began, which may be one of many of its transaction.
    pub statement_us: Option<i64>,
}

/// What `now()` is in the statement that is planned or run with this configuration, in microseconds since 1970-01-01
/// UTC. `None`: it is of none that runs.
pub fn now_of(config: &ConfigOptions) -> Option<i64> {
    config.extensions.get::<StatementContext>().and_then(|running| running.began_us)
}

/// As [`now_of`]: `statement_timestamp()`.
pub fn statement_of(config: &ConfigOptions) -> Option<i64> {
    config.extensions.get::<StatementContext>().and_then(|running| running.statement_us)
}

impl StatementContext {
    /// Of the statement that is planned or run with this configuration.
    pub(crate) fn of(config: &ConfigOptions) -> StatementContext {
        config.extensions.get::<StatementContext>().cloned().unwrap_or_default()
    }
}

carried!(StatementContext, "tarn_running");
