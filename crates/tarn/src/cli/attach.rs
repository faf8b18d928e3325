//! `tarn attach` and `tarn detach`: files that others write become a table, and are forgotten again. The server reads
//! them: this sends `ATTACH`, and looks at `tarn.attachments` on a second connection meanwhile.

use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tarn_node::stores::same_place;
use tarn_types::settings::duration_ms;
use tokio_postgres::error::SqlState;

use super::Interrupted;
use super::client::{Connection, Target, runtime};
use super::copy::quoted_table;
use super::output::grouped;

/// How often the bar moves.
const LOOK: Duration = Duration::from_millis(200);

/// Make a table of Parquet files that others write, in a folder of the server or in a bucket
#[derive(Args)]
#[command(after_help = "\
Examples:
  tarn attach /data/logs --table logs
  tarn attach s3://bucket/logs --table logs --hour-from 'dt=…/hr=…' --tokens body --bloom trace_id
  tarn attach s3://bucket/logs --table logs --tokens all --follow       and look for new files each minute

The files stay where they are, and are only ever read. Their footers are read once, and the columns of --tokens and
--bloom; queries then read the blocks that can hold the answer. What was read is in the table at once. Ctrl-C
cancels; the same command goes on where it stopped. Who we are to a bucket is set by the server's environment:
AWS_ACCESS_KEY_ID, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME, … (docs/archives.md).")]
pub struct Attach {
    #[command(flatten)]
    target: Target,
    /// Folder (of the server's machine), file:///folder, s3://bucket/prefix, gs://… or az://…; all files below it that
    /// end in .parquet
    url: String,
    /// Name of the table, or SCHEMA.TABLE
    #[arg(long, short)]
    table: String,
    /// Parts of a file's path that say the hour, such as 'dt=…/hr=…' [default: by --time-column]
    #[arg(long, value_name = "PARTS")]
    hour_from: Option<String>,
    /// Column that dates the rows [default: the first timestamp]
    #[arg(long, value_name = "COLUMN")]
    time_column: Option<String>,
    /// Text columns whose words are indexed, for matches(column, 'words'): names, separated by commas, or all
    #[arg(long, value_name = "COLUMNS")]
    tokens: Option<String>,
    /// Columns whose values are indexed, for column = value: names, separated by commas
    #[arg(long, value_name = "COLUMNS")]
    bloom: Option<String>,
    /// 32-byte chunks of one block's bloom filter, a power of two [default: by the number of keys]
    #[arg(long, value_name = "N")]
    bloom_chunks: Option<u32>,
    /// False positives that a bloom filter is sized for [default: 0.001]
    #[arg(long, value_name = "SHARE")]
    bloom_fpp: Option<f64>,
    /// Look for new, changed and removed files so often: --follow, or --follow=5min
    #[arg(long, value_name = "EVERY", num_args = 0..=1, require_equals = true, default_missing_value = "60s")]
    follow: Option<String>,
    /// Files read at once [default: 4]
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,
    /// Read each file whole once, and hold every later read of it against checksums
    #[arg(long)]
    checksums: bool,
    /// What somebody wrote behind `--follow` with a space between.
    #[arg(hide = true)]
    stray: Option<String>,
}

/// Forget an attached archive; its files stay where they are
#[derive(Args)]
pub struct Detach {
    #[command(flatten)]
    target: Target,
    /// Name of the table, or SCHEMA.TABLE
    table: String,
}

impl Detach {
    /// Sends `DETACH TABLE`; files stay where they are.
    pub fn run(self) -> Result<()> {
        runtime()?.block_on(async {
            let connection = self.target.connect().await?;
            connection.execute(&format!("DETACH TABLE {}", quoted_table(&self.table))).await?;
            eprintln!("{} is forgotten, its files are where they were", self.table);
            Ok(())
        })
    }
}

impl Attach {
    /// Sends `ATTACH`, and tells how far it is until the first pass ends.
    pub fn run(self) -> Result<()> {
        if let Some(stray) = &self.stray {
            let is_time = |text: &&String| duration_ms(text).is_ok();
            match [stray, &self.url].into_iter().find(is_time).filter(|_| self.follow.is_some()) {
                Some(every) => bail!("unexpected argument '{every}': write --follow={every}"),
                None => bail!("unexpected argument '{stray}'"),
            }
        }
        runtime()?.block_on(self.attach())
    }

    async fn attach(&self) -> Result<()> {
        let (connection, watching) = (self.target.connect().await?, self.target.connect().await?);
        let before = self.look(&watching).await?;
        let sql = self.statement(before.as_ref());
        let started = Instant::now();
        let bar = bar();
        let outcome = {
            let running = connection.cancellable(async { connection.execute(&sql).await });
            tokio::pin!(running);
            loop {
                tokio::select! {
                    outcome = &mut running => break outcome,
                    () = tokio::time::sleep(LOOK) => self.show(&bar, &watching).await,
                }
            }
        };
        bar.finish_and_clear();
        match outcome {
            Ok(_) => self.summary(&watching, before, started).await,
            Err(error) if is_cancelled(&error) => {
                let files = self.look(&watching).await?.map_or(0, |at| at.files);
                let name = quoted_table(&self.table);
                eprintln!(
                    "cancelled: {} files are in table {name}. The same command goes on; `tarn detach {name}` forgets them",
                    grouped(files)
                );
                Err(Interrupted.into())
            }
            Err(error) => Err(error),
        }
    }

    /// `ATTACH`, or one more pass when that was said before.
    fn statement(&self, before: Option<&AttachmentStatus>) -> String {
        let url = self.absolute();
        if let Some(there) = before
            && same_place(&there.url, &url)
        {
            eprintln!(
                "{} is attached already, with the options it was attached with: looking for what is new",
                self.table
            );
            return format!("CALL tarn.attach({})", text(&self.table));
        }
        let named = [
            ("hour_from", &self.hour_from),
            ("time_column", &self.time_column),
            ("tokens", &self.tokens),
            ("bloom", &self.bloom),
            ("follow", &self.follow),
        ];
        let named = named.into_iter().filter_map(|(name, value)| Some(format!("{name} = {}", text(value.as_deref()?))));
        let mut options: Vec<String> = named.collect();
        options.extend(self.bloom_chunks.map(|n| format!("bloom_chunks = {n}")));
        options.extend(self.bloom_fpp.map(|share| format!("bloom_fpp = {share}")));
        options.extend(self.concurrency.map(|n| format!("concurrency = {n}")));
        options.extend(self.checksums.then(|| "checksums = true".to_owned()));
        let with = if options.is_empty() { String::new() } else { format!(" WITH ({})", options.join(", ")) };
        format!("ATTACH {} AS {}{with}", text(&url), quoted_table(&self.table))
    }

    /// A folder as it is called from everywhere.
    fn absolute(&self) -> String {
        if self.url.contains("://") {
            return self.url.clone();
        }
        let folder = std::fs::canonicalize(&self.url).or_else(|_| std::path::absolute(Path::new(&self.url)));
        folder.map_or_else(|_| self.url.clone(), |folder| folder.display().to_string())
    }

    async fn look(&self, connection: &Connection) -> Result<Option<AttachmentStatus>> {
        let sql = format!(
            "SELECT url, listed, known, reading, attached, skipped, rows_attached, bytes_read, files, rows, \
             total_attached, total_removed, total_rows, total_bytes_read FROM tarn.attachments WHERE table_name = {}",
            text(&self.table)
        );
        let rows = connection.rows(&sql).await.context("read tarn.attachments")?;
        let Some(row) = rows.into_iter().next() else { return Ok(None) };
        let number = |idx: usize| row[idx].as_deref().and_then(|text| text.parse().ok()).unwrap_or(0);
        Ok(Some(AttachmentStatus {
            url: row[0].clone().unwrap_or_default(),
            listed: number(1),
            known: number(2),
            reading: number(3),
            attached: number(4),
            skipped: number(5),
            rows_attached: number(6),
            bytes_read: number(7),
            files: number(8),
            rows: number(9),
            total: [10, 11, 12, 13].map(number),
        }))
    }

    async fn show(&self, bar: &ProgressBar, connection: &Connection) {
        // It is there when the files were surveyed.
        let Ok(Some(at)) = self.look(connection).await else { return };
        bar.set_length(at.listed);
        bar.set_position(at.known + at.reading + at.attached + at.skipped);
        bar.set_message(format!("{} rows, {} read", grouped(at.rows_attached), HumanBytes(at.bytes_read)));
    }

    /// What came in since `before`: the pass that was asked for, the one that it waited for, and those that followed at
    /// once.
    async fn summary(&self, connection: &Connection, before: Option<AttachmentStatus>, started: Instant) -> Result<()> {
        let seconds = started.elapsed().as_secs_f64();
        let at = self.look(connection).await?.context("it was detached meanwhile")?;
        let [attached, removed, rows, bytes_read] = at.since(before.as_ref());
        eprintln!(
            "attached {} files with {} rows to {} in {seconds:.1} s, {} read",
            grouped(attached),
            grouped(rows),
            self.table,
            HumanBytes(bytes_read)
        );
        if removed > 0 {
            eprintln!("{} files are no longer there", grouped(removed));
        }
        if at.files > attached {
            eprintln!("the table has {} files with {} rows", grouped(at.files), grouped(at.rows));
        }
        let errors = format!("SELECT count(*) FROM tarn.attach_errors WHERE table_name = {}", text(&self.table));
        let of = |condition: &str| format!("{errors} AND {condition}");
        let skipped: u64 = connection.value(&of("is_skipped")).await?.parse()?;
        let partly: u64 = connection.value(&of("NOT is_skipped")).await?.parse()?;
        if skipped + partly > 0 {
            eprintln!(
                "{} files are not in it, of {} something is not: SELECT * FROM tarn.attach_errors WHERE table_name = {}",
                grouped(skipped),
                grouped(partly),
                text(&self.table)
            );
        }
        Ok(())
    }
}

/// What `tarn.attachments` says of one table.
struct AttachmentStatus {
    url: String,
    listed: u64,
    known: u64,
    reading: u64,
    attached: u64,
    skipped: u64,
    rows_attached: u64,
    bytes_read: u64,
    files: u64,
    rows: u64,
    /// Files attached, files removed, rows, bytes read: by all passes of the server.
    total: [u64; 4],
}

impl AttachmentStatus {
    /// Of the totals, what was added. A table that was attached anew, or a server that was started again, counts from
    /// nothing.
    fn since(&self, before: Option<&AttachmentStatus>) -> [u64; 4] {
        match before {
            Some(before) if self.total.iter().zip(before.total).all(|(now, before)| *now >= before) => {
                std::array::from_fn(|idx| self.total[idx] - before.total[idx])
            }
            _ => self.total,
        }
    }
}

fn bar() -> ProgressBar {
    let shown = std::io::stderr().is_terminal();
    let bar = ProgressBar::with_draw_target(
        Some(0),
        if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() },
    );
    let style = ProgressStyle::with_template("{bar:30} {human_pos}/{human_len} files  {msg}  {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

fn is_cancelled(error: &anyhow::Error) -> bool {
    let server = error.chain().find_map(|cause| cause.downcast_ref::<tokio_postgres::Error>()?.code());
    server == Some(&SqlState::QUERY_CANCELED)
}

/// A text literal of SQL.
fn text(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_in_is_the_difference() {
        let at = |total| AttachmentStatus {
            url: String::new(),
            listed: 0,
            known: 0,
            reading: 0,
            attached: 0,
            skipped: 0,
            rows_attached: 0,
            bytes_read: 0,
            files: 0,
            rows: 0,
            total,
        };
        let now = at([24, 1, 240, 5_000]);
        assert_eq!(now.since(None), [24, 1, 240, 5_000]);
        assert_eq!(now.since(Some(&at([20, 0, 200, 4_000]))), [4, 1, 40, 1_000]);
        assert_eq!(now.since(Some(&at([25, 0, 250, 0]))), [24, 1, 240, 5_000], "it was attached anew");
    }

    #[test]
    fn the_same_place_is_recognised() {
        for (one, other) in
            [("/data", "/data/"), ("file:///data", "/data"), ("s3a://b/x", "s3://b/x/"), ("azure://b", "az://b")]
        {
            assert!(same_place(one, other), "{one} {other}");
        }
        assert!(!same_place("s3://b/x", "s3://b/y"));
    }
}
