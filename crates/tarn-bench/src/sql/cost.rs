//! How much slower are queries and keyed statements than another build's?
//!
//! Both servers have the same rows, delivered and compacted, and keep no fragments; they take turns. Ratios are this
//! build's over the other's, by processor time of the server for queries (what else runs disturbs it less) and by the
//! client's clock for keyed statements.

use std::path::Path;

use anyhow::{Context, Result};

use super::options::SqlOptions;
use crate::adhoc::{LOOKUP, Q1, Q6};
use crate::data::{CREATE_TABLE, LineItem};
use crate::keyed;
use crate::load::load;
use crate::report::{Report, median};
use crate::server::ServerProcess;

/// Where is the time taken?
enum TimedStatement {
    /// By the server's processor time.
    Query(&'static str),
    /// By the client, of one key.
    Keyed(&'static str),
}

const ASKED: [(&str, TimedStatement); 4] = [
    ("q1", TimedStatement::Query(Q1)),
    ("q6", TimedStatement::Query(Q6)),
    ("key_lookup", TimedStatement::Keyed(LOOKUP)),
    (
        "key_update",
        TimedStatement::Keyed(
            "UPDATE lineitem SET l_quantity = l_quantity + 1 WHERE l_orderkey = $1 AND l_linenumber = $2",
        ),
    ),
];

/// A query is asked so often in one run: the processor's clock has hundredths of a second.
const QUERIES_PER_RUN: usize = 20;

/// Keyed statements of one run; its figure is their median.
const KEYED_PER_RUN: usize = 500;

/// The two builds take turns.
pub async fn measure(options: &SqlOptions, scratch: &Path, report: &mut Report) -> Result<()> {
    let base = options.base.as_deref().context("`cost` compares with the program that --base names")?;
    eprintln!("cost: making lineitem, scale factor {} …", options.sf);
    let data = LineItem::make(options.sf, scratch)?;
    let mut servers = Vec::new();
    for (name, program) in [("now", options.tarn()?.as_path()), ("base", base)] {
        eprintln!("cost: loading {} rows into {name} ({}), delivering, compacting …", data.n_rows, program.display());
        servers.push(loaded(program, &scratch.join(name), &data).await?);
    }
    let keys = keyed::keys(&servers[0]).await?;
    for (name, asked) in ASKED {
        let mut runs = [Vec::new(), Vec::new()];
        for run in 0..=options.runs {
            for (side, server) in servers.iter().enumerate() {
                let ms = asked.ms(server, &keys, run).await?;
                eprintln!("cost: {name}, run {run} of {} of {}: {ms:.3} ms", options.runs, ["now", "base"][side]);
                // The first run of each side warms up.
                if run > 0 {
                    runs[side].push(ms);
                }
            }
        }
        let [now, base] = runs;
        let ratios = now.iter().zip(&base).map(|(now, base)| now / base).collect();
        let ending = asked.ending();
        report.figure(&format!("{name}_{ending}"), "ms", now);
        report.figure(&format!("{name}_base_{ending}"), "ms", base);
        report.figure(&format!("{name}_vs_base"), "ratio", ratios);
    }
    for server in servers {
        server.stop().await?;
    }
    Ok(())
}

async fn loaded(program: &Path, folder: &Path, data: &LineItem) -> Result<ServerProcess> {
    let variables = [("TARN_CACHE_FRAGMENTS", "off")];
    let server = ServerProcess::start_with(Some(program), folder, &variables).await?;
    server.execute(CREATE_TABLE).await?;
    load(&server, data).await?;
    server.execute("CALL tarn.deliver('lineitem')").await?;
    server.execute("CALL tarn.compact('lineitem')").await?;
    Ok(server)
}

impl TimedStatement {
    /// Milliseconds of one statement of this run.
    async fn ms(&self, server: &ServerProcess, keys: &[i64], run: usize) -> Result<f64> {
        match self {
            TimedStatement::Query(sql) => {
                let before = server.cpu_s()?;
                for _ in 0..QUERIES_PER_RUN {
                    server.execute(sql).await?;
                }
                Ok((server.cpu_s()? - before) * 1e3 / QUERIES_PER_RUN as f64)
            }
            TimedStatement::Keyed(sql) => Ok(median(&keyed::times(server, sql, keys, run, KEYED_PER_RUN).await?)),
        }
    }

    /// How the names of its figures end.
    fn ending(&self) -> &'static str {
        match self {
            TimedStatement::Query(_) => "cpu_ms",
            TimedStatement::Keyed(_) => "ms",
        }
    }
}
