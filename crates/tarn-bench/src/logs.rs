//! An archive as others write them: log lines in Parquet files, an hour a folder, zstd, blooms on the trace id.
//!
//! Each needle is in three lines of three files and nowhere else; everything else comes again in every file, or is
//! random.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use arrow::array::{ArrayRef, Int32Array, StringArray, TimestampMicrosecondArray};
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

/// The archive's folder, and its bucket in the store that is far away.
pub const BUCKET: &str = "archive";

const FIRST_HOUR: u64 = 490_000;
const FILES_PER_HOUR: u64 = 84;
const LINES_OF_NEEDLE: u64 = 3;

const METHODS: [&str; 4] = ["GET", "POST", "PUT", "DELETE"];
const SERVICES: [&str; 8] = ["orders", "payments", "search", "cart", "users", "stock", "mail", "auth"];
const OUTCOMES: [&str; 4] = ["done", "connection refused by upstream", "timeout, will retry", "cache miss"];

/// How large the archive is.
#[derive(Debug, Clone, Copy)]
pub struct Archive {
    pub n_files: u64,
    pub rows_per_file: u64,
}

/// Numbers that look random and come again (splitmix64).
fn random(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 30)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Archive {
    /// A token that three lines have.
    pub fn needle(n: u64) -> String {
        format!("needle{:08x}", random(n) as u32)
    }

    /// The trace id of a line in a file that depends on `n`.
    pub fn trace(&self, n: u64) -> String {
        Self::trace_id(random(n) % self.n_files, random(n + 1) % self.rows_per_file)
    }

    fn trace_id(file: u64, row: u64) -> String {
        let seed = file << 32 | row;
        format!("{:016x}{:016x}", random(seed), random(!seed))
    }

    /// Which file and row needle `n` is in for the `copy`-th time.
    fn place(&self, n: u64, copy: u64) -> (u64, u64) {
        let seed = n * LINES_OF_NEEDLE + copy;
        (random(seed) % self.n_files, random(seed + 1_000) % self.rows_per_file)
    }

    /// Writes all files below `folder`, on all cores. `needles`: how many there are.
    pub fn write(&self, folder: &Path, needles: u64) -> Result<()> {
        let n_threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..n_threads)
                .map(|thread| {
                    scope.spawn(move || {
                        let mine = (0..self.n_files).filter(|file| file % n_threads == thread);
                        mine.into_iter().try_for_each(|file| self.write_file(folder, file, needles))
                    })
                })
                .collect();
            writers.into_iter().try_for_each(|writer| writer.join().ok().context("a writer of files panicked")?)
        })
    }

    fn write_file(&self, folder: &Path, file: u64, needles: u64) -> Result<()> {
        let hour = FIRST_HOUR + file / FILES_PER_HOUR;
        let (day, hour_of_day) = (hour / 24, hour % 24);
        let folder = folder.join(format!("dt={}/hr={hour_of_day:02}", date(day)));
        fs::create_dir_all(&folder)?;
        let rows = self.rows(file, hour, needles)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
            .set_column_bloom_filter_enabled("trace_id".into(), true)
            .set_column_bloom_filter_max_ndv("trace_id".into(), self.rows_per_file)
            .build();
        let out = File::create(folder.join(format!("part-{file:05}.parquet")))?;
        let mut writer = ArrowWriter::try_new(out, rows.schema(), Some(properties))?;
        writer.write(&rows)?;
        writer.close()?;
        Ok(())
    }

    fn rows(&self, file: u64, hour: u64, needles: u64) -> Result<RecordBatch> {
        let mut extra = vec![String::new(); self.rows_per_file as usize];
        for (n, copy) in (0..needles).flat_map(|n| (0..LINES_OF_NEEDLE).map(move |copy| (n, copy))) {
            let (of, row) = self.place(n, copy);
            if of == file {
                extra[row as usize] = format!(" {}", Self::needle(n));
            }
        }
        let rows = || 0..self.rows_per_file;
        let at = |row: u64, what: u64| random((file << 32 | row).wrapping_mul(31) + what);
        let step_us = 3_600_000_000 / self.rows_per_file.max(1);
        let ts = rows().map(|row| (hour * 3_600_000_000 + row * step_us) as i64);
        let body = rows().zip(&extra).map(|(row, extra)| {
            let pick = |what, of: &[&'static str]| of[at(row, what) as usize % of.len()];
            let (method, service, outcome) = (pick(1, &METHODS), pick(2, &SERVICES), pick(3, &OUTCOMES));
            let (id, ms, user) = (at(row, 4) % 20_000, at(row, 5) % 3_000, at(row, 6) % 5_000);
            format!("{method} /api/v2/{service}/{id} for user {user} took {ms} ms: {outcome}{extra}")
        });
        Ok(RecordBatch::try_from_iter([
            ("ts", Arc::new(TimestampMicrosecondArray::from_iter_values(ts)) as ArrayRef),
            ("trace_id", Arc::new(StringArray::from_iter_values(rows().map(|row| Self::trace_id(file, row))))),
            ("status", Arc::new(Int32Array::from_iter_values(rows().map(|row| 200 + (at(row, 7) % 4) as i32 * 100)))),
            ("service", Arc::new(StringArray::from_iter_values(rows().map(|row| SERVICES[at(row, 2) as usize % 8])))),
            ("body", Arc::new(StringArray::from_iter_values(body))),
        ])?)
    }
}

/// Days since 1970 as a date (Howard Hinnant's civil calendar).
fn date(day: u64) -> String {
    let z = day + 719_468;
    let (era, of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{:02}", of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_dates() {
        assert_eq!(
            (date(0), date(11_016), date(20_454)),
            ("1970-01-01".into(), "2000-02-29".into(), "2026-01-01".into())
        );
    }

    #[test]
    fn a_needle_is_in_three_lines() {
        let archive = Archive { n_files: 7, rows_per_file: 100 };
        let mut found = 0;
        for file in 0..7 {
            let rows = archive.rows(file, FIRST_HOUR, 4).unwrap();
            let body = arrow::array::AsArray::as_string::<i32>(rows.column(4));
            found += body.iter().flatten().filter(|line| line.ends_with(&Archive::needle(2))).count();
        }
        assert_eq!(found, 3);
    }
}
