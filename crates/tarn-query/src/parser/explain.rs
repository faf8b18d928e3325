//! What do the options of `EXPLAIN (…)` ask for? One that would change nothing of what is shown is refused; one that is
//! off, and of something that is never shown, is what it says.
//!
//! | option | `FORMAT TEXT` | `FORMAT JSON` |
//! |---|---|---|
//! | `ANALYZE`, `VERBOSE` | acts | acts |
//! | `TIMING`, of `ANALYZE` | on as it is; off is refused: times are among what is measured | acts |
//! | `SUMMARY` | refused | acts |
//! | `COSTS`, `BUFFERS`, `WAL`, `SETTINGS`, `MEMORY`, `GENERIC_PLAN` | refused | refused |

use crate::sqlparser::ast::{Expr, Ident, UtilityOption, Value};

use super::ParseError;

const REMEDY: &str = "EXPLAIN (ANALYZE, VERBOSE, FORMAT TEXT | JSON, TIMING, SUMMARY) statement";

/// Reads them. Answers `timing` and `summary`, each on or off, where the plan is to be shown as JSON.
///
/// Errors: [`ParseError::Refused`].
pub(super) fn read(
    given: Vec<UtilityOption>,
    analyze: &mut bool,
    verbose: &mut bool,
) -> Result<Option<Vec<UtilityOption>>, ParseError> {
    let (mut is_json, mut timing, mut summary) = (false, None, None);
    for UtilityOption { name, arg } in given {
        let called = name.value.to_ascii_lowercase();
        if called == "format" {
            is_json = match word(arg.as_ref()).as_deref() {
                Some("text") => false,
                Some("json") => true,
                other => return Err(refused(&format!("FORMAT {}", other.unwrap_or_default().to_uppercase()))),
            };
            continue;
        }
        let Some(is_on) = switch(arg.as_ref()) else { return Err(refused(&format!("with such a value of {name}"))) };
        match called.as_str() {
            "analyze" => *analyze = is_on,
            "verbose" => *verbose = is_on,
            "timing" => timing = Some(is_on),
            "summary" => summary = Some(is_on),
            "costs" | "buffers" | "settings" | "wal" | "memory" | "generic_plan" if !is_on => {}
            _ => return Err(refused(&format!("({name})"))),
        }
    }
    if timing == Some(true) && !*analyze {
        return Err(refused("(TIMING) without ANALYZE"));
    }
    if is_json {
        let named = |name: &str, is_on| UtilityOption {
            name: Ident::new(name),
            arg: Some(Expr::Value(Value::Boolean(is_on).with_empty_span())),
        };
        return Ok(Some(vec![
            named("timing", timing.unwrap_or(*analyze)),
            named("summary", summary.unwrap_or(*analyze)),
        ]));
    }
    match (summary, timing) {
        (Some(true), _) => Err(refused("(SUMMARY) as text")),
        (_, Some(false)) if *analyze => Err(refused("(TIMING OFF) as text")),
        _ => Ok(None),
    }
}

fn refused(what: &str) -> ParseError {
    ParseError::Refused { what: format!("EXPLAIN {what}"), remedy: REMEDY }
}

fn word(arg: Option<&Expr>) -> Option<String> {
    match arg? {
        Expr::Identifier(word) => Some(word.value.to_ascii_lowercase()),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.to_ascii_lowercase()),
            _ => None,
        },
        _ => None,
    }
}

/// Whether an option is on: it is, if nothing is said.
fn switch(arg: Option<&Expr>) -> Option<bool> {
    match arg {
        None => Some(true),
        Some(Expr::Value(value)) => match &value.value {
            Value::Boolean(is_on) => Some(*is_on),
            Value::Number(number, _) => Some(number != "0"),
            _ => None,
        },
        Some(Expr::Identifier(word)) => match word.value.to_ascii_lowercase().as_str() {
            "on" => Some(true),
            "off" => Some(false),
            _ => None,
        },
        Some(_) => None,
    }
}
