//! In which forms does the session of a statement want values shown, and dates read? Functions that write texts know
//! the configuration that they are called with, and find it there.

use datafusion::common::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use tarn_types::{Forms, Style};

use crate::carried::carried;
use crate::zones;

#[derive(Debug, Clone, Default)]
struct SessionForms {
    forms: Forms,
}

/// How values are shown by the settings of a session.
pub fn of_config(config: &ConfigOptions) -> Style {
    let forms = config.extensions.get::<SessionForms>().map(|shown| shown.forms).unwrap_or_default();
    Style { zone: zones::of_config(config), forms }
}

/// Sets it. Functions that were made with another zone are made anew.
pub(crate) fn set(state: &mut SessionState, style: &Style) -> Result<()> {
    state.config_mut().options_mut().extensions.insert(SessionForms { forms: style.forms });
    zones::set(state, &style.zone)
}

carried!(SessionForms, "tarn_shown");
