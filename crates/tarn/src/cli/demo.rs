//! `tarn demo`: the main job on real data, start to end, in a folder and on ports of its own.
//!
//! Everything goes through the front door: a server is started as a child, and this file is a client of it. Results go
//! to stdout, progress to stderr. Whatever ends it (success, an error, Ctrl-C), the server is stopped and the folder
//! removed, unless --keep.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use tarn_console::script::first_words;
use tokio::signal::unix::{SignalKind, signal};

use super::Interrupted;
use super::child::ServerProcess;
use super::client::{Connection, describe, runtime};
use super::copy::Copy;
use super::output::{grouped, table};

mod archive;
mod lineitem;

/// Show the whole job on TPC-H lineitem: load, deliver, change, query, in minutes
#[derive(Args)]
#[command(after_help = "\
Starts a server of its own on free ports, with a temporary folder; both are gone afterwards, also after Ctrl-C.
`tarn demo --keep` leaves the folder and says how to go on with it.")]
pub struct Demo {
    /// Scale factor of the data: 1 is 6 million rows; 0.01 is done in seconds
    #[arg(long, default_value_t = 1.0)]
    sf: f64,
    /// Keep the folder and say how to serve it
    #[arg(long)]
    keep: bool,
    /// Folder of the demo's server [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

impl Demo {
    /// Loads, asks, changes, delivers, asks again; its folder is removed at the end, unless `--keep` was said and all
    /// went well.
    pub fn run(self) -> Result<()> {
        ensure!(self.sf >= 0.002 && self.sf <= 100.0, "--sf takes 0.002 to 100");
        if let Some(folder) = self.data_dir.as_ref().filter(|folder| folder.exists()) {
            ensure!(
                folder.read_dir()?.next().is_none(),
                "{} is not empty: the demo wants a folder of its own",
                folder.display()
            );
        }
        let folder = match &self.data_dir {
            Some(folder) => tempfile::Builder::new().prefix("tarn-demo-").tempdir_in(make(folder)?)?,
            None => tempfile::Builder::new().prefix("tarn-demo-").tempdir()?,
        };
        let data_dir = folder.path().join("data");
        let outcome = runtime()?.block_on(async {
            tokio::select! {
                outcome = tour(self.sf, data_dir.clone()) => outcome,
                signal = stop_asked() => signal,
            }
        });
        if self.keep && outcome.is_ok() {
            let kept = folder.keep().join("data");
            say!("\nThe data is kept in {0}. Serve it with:  tarn serve --data-dir {0}", kept.display())?;
        } else {
            folder.close().context("remove the demo's folder")?;
            if outcome.is_err() {
                eprintln!("the demo's server is stopped and its folder removed");
            }
        }
        outcome
    }
}

fn make(folder: &PathBuf) -> Result<&PathBuf> {
    std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    Ok(folder)
}

/// Ends when the user or the system wants the demo to end.
async fn stop_asked() -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    Err(Interrupted.into())
}

async fn tour(sf: f64, data_dir: PathBuf) -> Result<()> {
    let started = Instant::now();
    heading("1. A server with embedded defaults")?;
    let mut server = ServerProcess::start(&data_dir, &[])?;
    let connection = server.target().connect().await?;
    say!("Postgres on 127.0.0.1:{}, one folder: {}", server.pg_port, data_dir.display())?;

    heading("2. Load through the front door: log, rows, recent columns")?;
    say!("{}", lineitem::CREATE_TABLE.trim())?;
    connection.execute(lineitem::CREATE_TABLE).await?;
    let loaded = load(&connection, sf).await?;

    heading("3. Deliver to Parquet")?;
    call(&connection, "deliver").await?;

    heading("4. Change 10,000 rows, delete 1,000, and look at each stage")?;
    change_and_look(&connection, &loaded).await?;

    heading("5. Five ad-hoc queries on each access path")?;
    ask(&connection, loaded.rows - N_DELETED).await?;

    heading("6. Attach an archive that Tarn did not write, and search it")?;
    archive::tour(&connection, &data_dir.with_file_name("archive")).await?;

    server.stop(Duration::from_secs(20));
    heading("Go on")?;
    say!(
        "The whole tour took {}.\n\n  tarn serve --data-dir ./data          a server to keep\n  tarn sql                              a prompt; \\? helps\n  psql -h 127.0.0.1 -p 5433             or any Postgres client\n  tarn load FILE… --table t             CSV, NDJSON, Parquet\n  tarn attach URL --table logs          Parquet that others write, searched in place\n  tarn demo --keep                      this again, and the data stays",
        HumanDuration(started.elapsed())
    )?;
    Ok(())
}

fn heading(text: &str) -> Result<()> {
    Ok(say!("\n── {text} ──")?)
}

/// What was loaded, and where the rows that will be changed and deleted end.
struct LoadedRows {
    rows: u64,
    changed_end: lineitem::LineKey,
    deleted_end: lineitem::LineKey,
}

const N_CHANGED: u64 = 10_000;
const N_DELETED: u64 = 1_000;

/// Streams lineitem into the table. The generator's rows come in key order, so a position in it is a bound on the key.
async fn load(connection: &Connection, sf: f64) -> Result<LoadedRows> {
    let bar = if std::io::stderr().is_terminal() {
        ProgressBar::new((6_001_215.0 * sf) as u64)
    } else {
        ProgressBar::hidden()
    };
    bar.set_style(ProgressStyle::with_template("loading {bar:40} {percent:>3} % {msg} eta {eta}")?);
    let started = Instant::now();
    let mut batches = lineitem::generate(sf);
    let mut copy = Copy::new(connection, "lineitem", lineitem::schema());
    let mut sent = 0;
    let mut ends = [None, None];
    while let Some(batch) = batches.recv().await {
        let batch = batch?;
        for (end, position) in ends.iter_mut().zip([N_CHANGED, N_CHANGED + N_DELETED]) {
            if (sent..sent + batch.num_rows() as u64).contains(&(position - 1)) {
                *end = Some(lineitem::key_at(&batch, (position - 1 - sent) as usize));
            }
        }
        copy.send(&batch).await?;
        sent += batch.num_rows() as u64;
        bar.set_position(sent);
        bar.set_message(format!("{} rows/s", grouped((sent as f64 / started.elapsed().as_secs_f64()) as u64)));
    }
    let rows = copy.finish().await?;
    bar.finish_and_clear();
    ensure!(rows == sent, "sent {sent} rows, the server acknowledged {rows}");
    let seconds = started.elapsed().as_secs_f64();
    say!(
        "{} rows acknowledged in {seconds:.1} s: {} rows/s, each on stable storage first",
        grouped(rows),
        grouped((rows as f64 / seconds) as u64)
    )?;
    let [Some(changed_end), Some(deleted_end)] = ends else {
        anyhow::bail!("too few rows to change: choose a larger --sf")
    };
    Ok(LoadedRows { rows, changed_end, deleted_end })
}

/// Runs a procedure on the table behind a spinner and says what it answered.
async fn call(connection: &Connection, procedure: &str) -> Result<()> {
    let spinner = if std::io::stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    spinner.set_style(ProgressStyle::with_template("{spinner} {msg} {elapsed}")?);
    spinner.set_message(procedure.to_owned());
    spinner.enable_steady_tick(Duration::from_millis(100));
    let started = Instant::now();
    let outcome = connection.execute(&format!("CALL tarn.{procedure}('lineitem')")).await;
    spinner.finish_and_clear();
    outcome?;
    let files = connection.value("SELECT count(*) FROM tarn.files WHERE table_name = 'lineitem'").await?;
    say!("{procedure}: {:.1} s; the table has {files} Parquet files now", started.elapsed().as_secs_f64())?;
    Ok(())
}

/// Every stage must show the same, exact answer; that it does is checked, not only shown.
async fn change_and_look(connection: &Connection, loaded: &LoadedRows) -> Result<()> {
    let changed = loaded.changed_end.up_to();
    let deleted = format!("NOT ({changed}) AND ({})", loaded.deleted_end.up_to());
    let update = format!("UPDATE lineitem SET l_comment = 'changed', l_discount = 0.50 WHERE {changed}");
    let delete = format!("DELETE FROM lineitem WHERE {deleted}");
    let mut stages = vec![look(connection, "before").await?];
    for sql in [&update, &delete] {
        let started = Instant::now();
        let rows = connection.execute(sql).await?;
        say!("{} {} rows in {:.2} s", first_words(sql, 1), grouped(rows), started.elapsed().as_secs_f64())?;
        let want = if sql == &update { N_CHANGED } else { N_DELETED };
        ensure!(rows == want, "{} touched {rows} rows, want {want}", first_words(sql, 1));
    }
    stages.push(look(connection, "at once, before delivery").await?);
    call(connection, "deliver").await?;
    stages.push(look(connection, "after delivery").await?);
    call(connection, "compact").await?;
    stages.push(look(connection, "after compaction").await?);

    let header = ["stage", "rows", "changed rows", "sum of discounts", "query"].map(str::to_owned);
    let rows: Vec<_> = stages.iter().map(Stage::cells).collect();
    say!("{}", table(&header, &rows))?;
    for stage in &stages[1..] {
        ensure!(
            stage.rows == loaded.rows - N_DELETED,
            "{}: {} rows, want {}",
            stage.name,
            stage.rows,
            loaded.rows - N_DELETED
        );
        ensure!(stage.changed == N_CHANGED, "{}: {} changed rows, want {N_CHANGED}", stage.name, stage.changed);
        ensure!(stage.discounts == stages[1].discounts, "{}: the sum of discounts differs", stage.name);
    }
    say!("The three answers after the change are equal to the last digit: one position, wherever the rows lie.")?;
    Ok(())
}

struct Stage {
    name: &'static str,
    rows: u64,
    changed: u64,
    discounts: String,
    ms: f64,
}

impl Stage {
    fn cells(&self) -> Vec<Option<String>> {
        [
            self.name.to_owned(),
            grouped(self.rows),
            grouped(self.changed),
            self.discounts.clone(),
            format!("{:.0} ms", self.ms),
        ]
        .map(Some)
        .to_vec()
    }
}

async fn look(connection: &Connection, name: &'static str) -> Result<Stage> {
    let started = Instant::now();
    let sql = "SELECT count(*), sum(CASE WHEN l_comment = 'changed' THEN 1 ELSE 0 END), sum(l_discount) FROM lineitem";
    let rows = connection.rows(sql).await?;
    let cells: Vec<String> = rows.into_iter().flatten().map(Option::unwrap_or_default).collect();
    let [rows, changed, discounts] = cells.as_slice() else { anyhow::bail!("unexpected answer to: {sql}") };
    Ok(Stage {
        name,
        rows: rows.parse()?,
        changed: changed.parse()?,
        discounts: discounts.clone(),
        ms: started.elapsed().as_secs_f64() * 1e3,
    })
}

/// The five queries of the article (docs/sources.md, 1.9): each on each path that can serve it.
async fn ask(connection: &Connection, n_rows: u64) -> Result<()> {
    let mut cells = Vec::new();
    for (name, sql) in lineitem::QUERIES {
        for path in ["auto", "rows", "lake"] {
            connection.execute(&format!("SET tarn.access_path = '{path}'")).await?;
            let why = chosen_path(connection, sql).await;
            let row = match time(connection, sql).await {
                Ok(ms) => [format!("{ms:.1} ms"), rows_per_s(n_rows, ms), why.unwrap_or_else(|error| describe(&error))],
                Err(error) => {
                    ["–".into(), String::new(), describe(&error).lines().next().unwrap_or_default().to_owned()]
                }
            };
            let [ms, rate, why] = row;
            cells.push([name.to_owned(), path.to_owned(), ms, rate, why].map(Some).to_vec());
            eprintln!("{name} on {path}: done");
        }
    }
    connection.execute("SET tarn.access_path = 'auto'").await?;
    let header = ["query", "path", "time", "rows/s", "chosen path, and why"].map(str::to_owned);
    say!("{}", table(&header, &cells))?;
    for (name, sql) in lineitem::QUERIES {
        say!("  {name:<20} {sql}")?;
    }
    say!(
        "Time is the median over the wire (of 5, or of fewer where one takes seconds); rows/s is rows of the table per second."
    )?;
    Ok(())
}

fn rows_per_s(n_rows: u64, ms: f64) -> String {
    grouped((n_rows as f64 / (ms / 1e3)) as u64)
}

/// Median time in milliseconds: of five runs, or of as many as start within two seconds.
async fn time(connection: &Connection, sql: &str) -> Result<f64> {
    let began = Instant::now();
    let mut runs = Vec::new();
    while runs.len() < 5 && (runs.is_empty() || began.elapsed() < Duration::from_secs(2)) {
        let started = Instant::now();
        connection.rows(sql).await?;
        runs.push(started.elapsed().as_secs_f64() * 1e3);
    }
    runs.sort_by(f64::total_cmp);
    Ok(runs[runs.len() / 2])
}

/// What EXPLAIN says about the access path: `rows: the whole key is given`.
async fn chosen_path(connection: &Connection, sql: &str) -> Result<String> {
    let rows = connection.rows(&format!("EXPLAIN {sql}")).await?;
    let text: Vec<String> = rows.into_iter().flatten().flatten().collect();
    let folded = "metadata: exact counts and bounds answer it, nothing is read";
    Ok(text.iter().find_map(|cell| path_and_why(cell)).unwrap_or_else(|| folded.to_owned()))
}

/// From `… access_path=rows, why="the whole key is given", …`.
fn path_and_why(explained: &str) -> Option<String> {
    let (_, rest) = explained.split_once("access_path=")?;
    let path: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let why = rest.split_once("why=\"").and_then(|(_, why)| why.split_once('"'));
    Some(why.map_or(path.clone(), |(why, _)| format!("{path}: {why}")))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_path_and_its_reason_are_found_in_a_plan() {
        let plan = "LakeScan: table=t, access_path=lake, why=\"no key in the predicate\", version=3\n";
        assert_eq!(super::path_and_why(plan).as_deref(), Some("lake: no key in the predicate"));
        assert_eq!(super::path_and_why("access_path=rows\n").as_deref(), Some("rows"));
        assert_eq!(super::path_and_why("Projection"), None);
    }
}
