//! In which order is everything measured?
//!
//! Round by round; in a round the disk first, then cell by cell, and within a cell the engines one after another,
//! another one first each time. What is compared is thus measured seconds apart on the same file system, and a slow
//! minute hits all sides.

use std::path::Path;

use anyhow::Result;

use crate::cells::{self, Extent, NamedJob};
use crate::child::Children;
use crate::disk;
use crate::flips;
use crate::job::{EngineName, Job, JobOutput, Task};
use crate::measure::evict;
use crate::results::Results;

/// What is measured, on whom and where.
pub struct Bench<'a> {
    pub extent: Extent,
    pub engines: Vec<EngineName>,
    /// Parts of names of the cells that are measured; empty: all.
    pub only: Vec<String>,
    pub children: Children,
    pub scratch: &'a Path,
    pub results: Results,
    pub failures: Vec<String>,
}

impl Bench<'_> {
    /// Measures everything asked for. A measurement that fails is told and left out.
    pub fn run(&mut self) -> Result<()> {
        let commits = self.wanted(cells::grid(&self.extent));
        let queries = self.wanted(cells::queries(&self.extent));
        let reopen = self.wanted(vec![cells::reopen(&self.extent)]);
        let space = self.wanted(vec![cells::space(&self.extent)]);
        let flips = self.wanted(vec![cells::flips(&self.extent)]);
        for round in 0..self.extent.rounds {
            eprintln!("round {} of {}", round + 1, self.extent.rounds);
            self.results.add_disk(round, &disk::general(self.scratch, self.extent.disk_writes)?);
            self.round(round, &commits, &commit)?;
            self.round(round, &queries, &query)?;
            self.round(round, &reopen, &reopened)?;
            self.round(round, &space, &commit)?;
        }
        // Nothing here depends on time: once is enough.
        let n_tries = self.extent.flips;
        self.round(0, &flips, &|children, job| flips::run(children, job, &job.dir, n_tries))
    }

    fn wanted(&self, cells: Vec<NamedJob>) -> Vec<NamedJob> {
        let named =
            |cell: &NamedJob| self.only.is_empty() || self.only.iter().any(|part| cell.name.contains(part.as_str()));
        cells.into_iter().filter(named).collect()
    }

    fn round(
        &mut self,
        round: usize,
        cells: &[NamedJob],
        measure: &dyn Fn(&Children, &Job) -> Result<JobOutput>,
    ) -> Result<()> {
        for (at, cell) in cells.iter().enumerate() {
            let mut engines = self.engines.clone();
            engines.retain(|&engine| cells::takes_part(engine, &cell.name));
            let first = (round + at) % engines.len().max(1);
            engines.rotate_left(first);
            for engine in engines {
                let dir = self.scratch.join("engine");
                // The limit is compared with this one figure, so it is taken on both sides of it.
                let limited = engine == EngineName::Tarn && cell.name == cells::single(cell.job.entry_bytes);
                let mut limits = if limited { self.limit(&cell.job)? } else { Vec::new() };
                let measured = measure(&self.children, &Job { engine, dir: dir.clone(), ..cell.job.clone() });
                if dir.exists() {
                    std::fs::remove_dir_all(&dir)?;
                }
                if limited {
                    limits.extend(self.limit(&cell.job)?);
                    self.results.add_disk(round, &disk::limit_figures(cell.job.entry_bytes, limits));
                }
                self.keep(round, &cell.name, engine, measured);
            }
        }
        Ok(())
    }

    fn limit(&self, job: &Job) -> Result<Vec<u32>> {
        disk::limit(self.scratch, job.entry_bytes, self.extent.disk_writes)
    }

    fn keep(&mut self, round: usize, cell: &str, engine: EngineName, measured: Result<JobOutput>) {
        match measured {
            Ok(answer) => {
                let told: Vec<String> =
                    answer.figures.iter().map(|(name, value)| format!("{name} {value:.3}")).collect();
                eprintln!("{cell:<24} {:<22} {}", engine.name(), told.join("  "));
                self.results.add(round, cell, engine, &answer);
            }
            Err(error) => {
                let failure = format!("{cell} {} round {}: {error:#}", engine.name(), round + 1);
                eprintln!("{failure}");
                self.failures.push(failure);
            }
        }
    }
}

fn commit(children: &Children, job: &Job) -> Result<JobOutput> {
    children.run(job)
}

/// Fill, ask while warm, ask after the page cache is emptied of the files.
fn query(children: &Children, job: &Job) -> Result<JobOutput> {
    children.run(&Job { task: Task::Fill, ..job.clone() })?;
    let mut answer = children.run(job)?;
    evict(&job.dir)?;
    answer.figures.extend(children.run(&Job { task: Task::ColdRanges, ..job.clone() })?.figures);
    Ok(answer)
}

/// Fill, then open for the first time after that process ended, with nothing in the page cache.
fn reopened(children: &Children, job: &Job) -> Result<JobOutput> {
    let mut answer = children.run(&Job { task: Task::Fill, ..job.clone() })?;
    evict(&job.dir)?;
    answer.figures.extend(children.run(job)?.figures);
    Ok(answer)
}
