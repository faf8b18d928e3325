//! When does the server read its lake to see whether it is still what was written?
//!
//! One round reads every file once, at the pace of `scrub_bytes_per_s`; the next begins `scrub_interval_ms` after the
//! one before began. Damage is logged once, counted, and shown in `tarn.files`; who reads a damaged block is told in
//! any case.

use std::time::Duration;

use tarn_lake::{Flaw, ScrubPosition, ScrubStats};

use crate::parts::NodeParts;

/// How often it is looked whether there is something to do: the pace is kept within this.
const STEP: Duration = Duration::from_secs(1);

/// A server that has just started has other things to do.
const FIRST_MS: u64 = 600_000;

/// Reads the lake for ever, at the pace of the settings; at once, if that is none.
pub(crate) async fn run(parts: &NodeParts) {
    if !parts.settings.background || parts.settings.scrub_bytes_per_s == 0 {
        return;
    }
    let (mut round, mut step) = (ScrubPosition::default(), tokio::time::interval(STEP));
    step.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let interval_ms = parts.settings.scrub_interval_ms;
    let mut begins_ms = parts.clock.now_ms().saturating_add_unsigned(FIRST_MS.min(interval_ms));
    let mut is_under_way = false;
    loop {
        step.tick().await;
        let now_ms = parts.clock.now_ms();
        if !is_under_way && now_ms < begins_ms {
            continue;
        }
        if !is_under_way {
            (is_under_way, begins_ms) = (true, now_ms.saturating_add_unsigned(interval_ms));
        }
        let budget_bytes = parts.settings.scrub_bytes_per_s.saturating_mul(STEP.as_secs());
        match parts.lake.scrub(&mut round, budget_bytes).await {
            Ok(scrubbed) => {
                is_under_way = !scrubbed.is_round;
                tell(parts, &scrubbed);
            }
            Err(error) => {
                parts.metrics.background_failures.inc();
                tracing::error!(%error, "the scrub of the lake stopped, will go on");
            }
        }
    }
}

fn tell(parts: &NodeParts, scrubbed: &ScrubStats) {
    let ScrubStats { bytes, files, found, is_round } = scrubbed;
    parts.metrics.scrub_bytes.inc_by(*bytes);
    parts.metrics.scrub_files.inc_by(*files);
    parts.metrics.scrub_rounds.inc_by(u64::from(*is_round));
    for Flaw { table, file, what, .. } in found {
        tracing::error!(%table, %file, "{what}");
    }
}
