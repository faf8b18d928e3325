//! Which are right, and how long did they take?

use std::collections::BTreeMap;

use crate::report::{Report, median};

/// What is known of all queries.
#[derive(Default)]
pub struct Summary {
    queries: BTreeMap<u8, Query>,
}

/// What is known of one query.
#[derive(Default)]
pub struct Query {
    /// Milliseconds of each run.
    pub ours: Vec<f64>,
    /// Milliseconds of each of DuckDB's runs.
    pub theirs: Vec<f64>,
    /// What is wrong, in a line; `None`: nothing.
    pub wrong: Option<String>,
}

impl Summary {
    /// Says on stderr how it went.
    pub fn add(&mut self, number: u8, query: Query) {
        let said = query.wrong.as_deref().unwrap_or("right");
        eprintln!("q{number:02} {:>10.1} ms, duckdb {:>8.1}: {said}", median(&query.ours), median(&query.theirs));
        self.queries.insert(number, query);
    }

    /// Queries whose answers are not DuckDB's, and what is wrong.
    pub fn wrong(&self) -> impl Iterator<Item = (u8, &str)> {
        self.queries.iter().filter_map(|(number, query)| Some((*number, query.wrong.as_deref()?)))
    }

    /// Totals are over the queries that are right, on both sides.
    pub fn report(&self, report: &mut Report) {
        let right: Vec<(&u8, &Query)> = self.queries.iter().filter(|(_, query)| query.wrong.is_none()).collect();
        for (number, query) in &right {
            report.record(&format!("q{number:02}_ms"), "ms", query.ours.clone());
            report.record(&format!("q{number:02}_duckdb_ms"), "ms", query.theirs.clone());
            let ratios = query.ours.iter().zip(&query.theirs).map(|(ours, theirs)| ours / theirs).collect();
            report.record(&format!("q{number:02}_vs_duckdb"), "ratio", ratios);
        }
        let total = |of: fn(&Query) -> &[f64]| right.iter().map(|(_, query)| median(of(query))).sum::<f64>();
        let (ours, theirs) = (total(|query| &query.ours), total(|query| &query.theirs));
        report.figure("tpcds_asked", "queries", vec![self.queries.len() as f64]);
        report.figure("tpcds_right", "queries", vec![right.len() as f64]);
        report.figure("tpcds_total_ms", "ms", vec![ours]);
        report.figure("tpcds_total_duckdb_ms", "ms", vec![theirs]);
        report.figure("tpcds_total_vs_duckdb", "ratio", vec![ours / theirs]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_in_no_total() {
        let mut summary = Summary::default();
        let query = |ours, theirs, wrong: Option<&str>| Query {
            ours: vec![ours],
            theirs: vec![theirs],
            wrong: wrong.map(str::to_owned),
        };
        summary.add(1, query(10.0, 5.0, None));
        summary.add(2, query(1000.0, 1.0, Some("it is not")));
        summary.add(3, query(20.0, 10.0, None));
        let mut report = Report::new("tpcds");
        summary.report(&mut report);
        let value = |name: &str| report.figures[name].value;
        assert_eq!((value("tpcds_asked"), value("tpcds_right")), (3.0, 2.0));
        assert_eq!((value("tpcds_total_ms"), value("tpcds_total_vs_duckdb")), (30.0, 2.0));
        assert_eq!(summary.wrong().collect::<Vec<_>>(), [(2, "it is not")]);
    }
}
