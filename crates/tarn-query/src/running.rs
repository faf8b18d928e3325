//! What does a statement carry to where it is planned and run? Rules, operators and functions know the configuration
//! that they are called with, and nothing else of the statement they work for.

use std::any::Any;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::error::{DataFusionError, Result};

use crate::constants::Constants;
use crate::plan_size::PlanMemory;
use crate::stop::Stop;

/// Of one statement; copies of its configuration have the same. What belongs to no statement has one that bounds nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Running {
    pub stop: Stop,
    pub constants: Constants,
    pub plan: PlanMemory,
    /// What `now()` is, in microseconds since 1970-01-01 UTC.
    pub began_us: Option<i64>,
    /// When the statement began, which may be one of many of its transaction.
    pub statement_us: Option<i64>,
}

/// What `now()` is in the statement that is planned or run with this configuration, in microseconds since 1970-01-01 UTC. `None`: it is of
/// none that runs.
pub fn now_of(config: &ConfigOptions) -> Option<i64> {
    config.extensions.get::<Running>().and_then(|running| running.began_us)
}

/// As [`now_of`]: `statement_timestamp()`.
pub fn statement_of(config: &ConfigOptions) -> Option<i64> {
    config.extensions.get::<Running>().and_then(|running| running.statement_us)
}

impl Running {
    /// Of the statement that is planned or run with this configuration.
    pub(crate) fn of(config: &ConfigOptions) -> Running {
        config.extensions.get::<Running>().cloned().unwrap_or_default()
    }
}

impl ConfigExtension for Running {
    const PREFIX: &'static str = "tarn_running";
}

/// It has no entries: it is no setting.
impl ExtensionOptions for Running {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, _: &str) -> Result<()> {
        Err(DataFusionError::Configuration(format!("there is no setting tarn_running.{key}")))
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        vec![]
    }
}
