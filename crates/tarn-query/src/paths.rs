//! Which way to a table's rows costs least? Every way is a candidate with a cost, or is closed for a reason; `EXPLAIN`
//! says both.
//!
//! | path | reads | open when |
//! |---|---|---|
//! | `point`, `keys` | the row engine, key by key; an evicted row from its file, by address | every key column has a value, or a list of them |
//! | `index` | the entries of an index while the statement is planned, so that it is known how many rows there are; then as `keys` | the first columns of an index have values, lists of them or bounds |
//! | `range` | the row engine, one run of keys for each partition key, in either direction; evicted rows from their files, by address | the partition key has |
//! | `rows` | the row engine, all of it | it is forced, and no row was evicted |
//! | `lake` | files at the view's version without dead and hidden rows, and recent rows | unless another is forced |
//!
//! Pure: from [`Facts`] to a [`Choice`]. Costs are microseconds, and order the candidates, no more. Of a row of the
//! engine and of the lake they are those of the demo's table (README.md: 6 million rows in 5.3 s and in 0.2 s); of
//! keys, addresses and beginnings they are estimates. `rows` is never taken unasked: it costs less than the lake for a
//! few hundred rows, but tells the planner nothing of its columns.

use crate::settings::AccessPath;

/// One lookup in the row engine.
const KEY_US: f64 = 5.0;

/// A row of a file by its address: a page or two for each column.
const ADDRESS_US: f64 = 300.0;

/// To begin a range.
const RANGE_US: f64 = 20.0;

/// A row of the engine, decoded.
const ROW_US: f64 = 0.9;

/// To prune, open and begin to read files, at least.
const LAKE_US: f64 = 1_000.0;

/// A row of a file, with others in a column.
const LAKE_ROW_US: f64 = 0.03;

/// Nobody counts the rows of a partition: so many are assumed, or all there are.
const RANGE_ROWS: u64 = 1_000;

/// What is known of a scan before a path is taken.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    /// By `SET tarn.access_path`.
    pub forced: AccessPath,
    /// Not append-only, and with a key.
    pub has_rows_by_key: bool,
    /// Then rows are in no row engine.
    pub is_append_only: bool,
    /// Full keys that the filters list.
    pub n_keys: Option<usize>,
    /// Ranges of keys that the filters leave.
    pub n_ranges: Option<usize>,
    /// What the indexes say of the filters; `None`: there are none.
    pub by_index: Option<Result<ByIndex, String>>,
    /// Whether some rows are in the lake alone.
    pub is_evicted: bool,
    /// Blocks of the lake that may hold an evicted row of the ranges.
    pub evicted_blocks: u64,
    /// Enough rows of each range, when nothing else is asked of them.
    pub first_rows: Option<u64>,
    /// Rows that are not delivered yet.
    pub recent_rows: u64,
    /// Live rows of the lake; `None`: nobody was asked.
    pub lake_rows: Option<u64>,
    /// Names of the partition key's columns.
    pub partition_key: String,
}

/// What an index that was asked knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ByIndex {
    /// For `EXPLAIN`.
    pub name: String,
    /// Rows that have an entry.
    pub n_rows: usize,
}

/// A way to the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Path {
    Keys,
    Index,
    Ranges,
    Rows,
    Lake,
}

/// A path that can give the answer.
#[derive(Debug, Clone, PartialEq)]
struct Candidate {
    path: Path,
    cost_us: f64,
    rows: u64,
    why: String,
}

/// The path that is taken.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Choice {
    /// The cheapest that is open, or the one that is forced.
    pub path: Path,
    /// In words, for `EXPLAIN`.
    pub why: String,
    /// About, in microseconds.
    pub cost_us: u64,
    /// Rows that it reads, as far as anybody counts them.
    pub rows: u64,
    /// The others, each with the reason.
    pub not_taken: String,
}

/// Takes the candidate that costs least.
///
/// Errors: why the forced path cannot give the answer.
pub(crate) fn choose(facts: &Facts) -> Result<Choice, &'static str> {
    let weighed = [Path::Keys, Path::Index, Path::Ranges, Path::Rows, Path::Lake].map(|path| (path, facts.weigh(path)));
    let open = weighed.iter().filter_map(|(_, weighed)| weighed.as_ref().ok());
    let Some(best) = open.min_by(|a, b| a.cost_us.total_cmp(&b.cost_us)) else {
        return Err(match facts.is_append_only {
            true => "append-only tables are not kept by key",
            false => "some of its rows are only in the lake",
        });
    };
    let other = |(path, weighed): &(Path, Result<Candidate, String>)| match weighed {
        Ok(candidate) if candidate == best => None,
        _ if *path == Path::Index && facts.by_index.is_none() => None,
        Ok(candidate) => {
            // Of an index it is known how many rows there are.
            let why = if *path == Path::Index { format!(", {}", candidate.why) } else { String::new() };
            Some(format!("{}: costs {}us{why}", facts.name(*path), candidate.cost_us.round()))
        }
        Err(why) => Some(format!("{}: {why}", facts.name(*path))),
    };
    let not_taken = weighed.iter().filter_map(other).collect::<Vec<_>>().join("; ");
    let Candidate { path, cost_us, rows, why } = best.clone();
    Ok(Choice { path, why, cost_us: cost_us.round() as u64, rows, not_taken })
}

impl Facts {
    /// Whether a path by keys costs less than any scan of the lake: nobody needs to ask how large that is.
    pub(crate) fn is_cheap_by_key(&self) -> bool {
        let costs =
            [Path::Keys, Path::Index, Path::Ranges].map(|path| self.weigh(path).map(|candidate| candidate.cost_us));
        costs.into_iter().flatten().any(|cost| cost < LAKE_US)
    }

    /// As `EXPLAIN` says it.
    pub(crate) fn name(&self, path: Path) -> &'static str {
        match path {
            Path::Keys if self.n_keys.is_none_or(|n| n == 1) => "point",
            Path::Keys => "keys",
            Path::Index => "index",
            Path::Ranges => "range",
            Path::Rows => "rows",
            Path::Lake => "lake",
        }
    }

    /// The path as a candidate, or why it is none.
    fn weigh(&self, path: Path) -> Result<Candidate, String> {
        let by_key = match path {
            Path::Lake => true,
            Path::Keys | Path::Index | Path::Ranges | Path::Rows => self.has_rows_by_key,
        };
        match (self.forced, path) {
            (AccessPath::Lake, Path::Keys | Path::Index | Path::Ranges) | (AccessPath::Rows, Path::Lake) => {
                return Err(format!("tarn.access_path is '{}'", self.forced));
            }
            (AccessPath::Index, Path::Ranges | Path::Lake) if matches!(self.by_index, Some(Ok(_))) => {
                return Err(format!("tarn.access_path is '{}'", self.forced));
            }
            (AccessPath::Auto | AccessPath::Lake | AccessPath::Index, Path::Rows) => {
                return Err("only if tarn.access_path is 'rows'".to_owned());
            }
            _ if !by_key => return Err("the table has no rows by key".to_owned()),
            _ => {}
        }
        let of_all = |cost_us, row_us, why| (cost_us + self.n_rows() as f64 * row_us, self.n_rows(), why);
        let (cost_us, rows, why) = match path {
            Path::Keys => self.by_keys()?,
            Path::Index => self.of_index()?,
            Path::Ranges => self.by_ranges()?,
            Path::Rows if self.is_evicted => return Err("rows were evicted".to_owned()),
            Path::Rows => of_all(RANGE_US, ROW_US, "forced by tarn.access_path".to_owned()),
            Path::Lake => of_all(LAKE_US, LAKE_ROW_US, self.why_lake()),
        };
        Ok(Candidate { path, cost_us, rows, why })
    }

    fn by_keys(&self) -> Result<(f64, u64, String), String> {
        let n = self.n_keys.ok_or("not every key column has a value")?;
        let keys = if n == 1 { "full key".to_owned() } else { format!("{n} full keys") };
        Ok(match self.is_evicted {
            false => (n as f64 * KEY_US, n as u64, keys),
            true => (
                n as f64 * ADDRESS_US,
                n as u64,
                format!("{keys}, an evicted row is read from the lake by its address"),
            ),
        })
    }

    /// What is read beside the entries, which were read to know it.
    fn of_index(&self) -> Result<(f64, u64, String), String> {
        let ByIndex { name, n_rows } = self.by_index.clone().unwrap_or_else(|| Err("there is none".to_owned()))?;
        let rows = if n_rows == 1 { "1 row".to_owned() } else { format!("{n_rows} rows") };
        let (row_us, evicted) = match self.is_evicted && n_rows > 0 {
            false => (KEY_US, ""),
            true => (ADDRESS_US, ", an evicted one is read from the lake by its address"),
        };
        Ok((RANGE_US + n_rows as f64 * row_us, n_rows as u64, format!("{name} has entries of {rows}{evicted}")))
    }

    /// Whether the entries of so many ranges are read sooner than all rows.
    pub(crate) fn may_ask_index(&self, n_ranges: usize) -> bool {
        n_ranges as f64 * RANGE_US <= LAKE_US + self.n_rows() as f64 * LAKE_ROW_US
    }

    fn by_ranges(&self) -> Result<(f64, u64, String), String> {
        let Some(n) = self.n_ranges else {
            return Err(match self.n_keys {
                Some(_) => "the keys are known".to_owned(),
                None => format!("no equality on {}", self.partition_key),
            });
        };
        let (row_us, evicted) = match (self.is_evicted, self.evicted_blocks) {
            (false, _) => (ROW_US, "no row evicted"),
            (true, 0) => (ROW_US, "no row of it evicted"),
            (true, _) => (ADDRESS_US, "an evicted row is read from the lake by its address"),
        };
        let n_rows = self.rows_of_a_range().min(self.first_rows.unwrap_or(u64::MAX));
        let first = self.first_rows.map_or_else(String::new, |n| format!(", the first {n} rows"));
        let keys = if n == 1 { "one partition key".to_owned() } else { format!("{n} partition keys") };
        let cost_us = n as f64 * (RANGE_US + n_rows as f64 * row_us);
        Ok((cost_us, n as u64 * n_rows, format!("{keys}{first}, {evicted}")))
    }

    fn rows_of_a_range(&self) -> u64 {
        match self.lake_rows {
            Some(_) => self.n_rows().min(RANGE_ROWS),
            None => RANGE_ROWS,
        }
    }

    fn why_lake(&self) -> String {
        match self.forced {
            AccessPath::Lake => "forced by tarn.access_path".to_owned(),
            _ if !self.has_rows_by_key => "the table has no rows by key".to_owned(),
            _ if self.n_keys.is_some() => "columns cost less than so many keys".to_owned(),
            _ if matches!(self.by_index, Some(Ok(_))) => "columns cost less than so many rows of an index".to_owned(),
            _ if self.n_ranges.is_none() => {
                format!("no equality on {}: columns cost less than rows", self.partition_key)
            }
            _ if self.is_evicted && self.evicted_blocks > 0 => "one partition key, but rows were evicted".to_owned(),
            _ => "columns cost less than so many ranges of rows".to_owned(),
        }
    }

    /// As far as anybody was asked.
    fn n_rows(&self) -> u64 {
        self.recent_rows + self.lake_rows.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of 6 million delivered rows.
    fn facts() -> Facts {
        Facts { has_rows_by_key: true, lake_rows: Some(6_000_000), partition_key: "a".to_owned(), ..Facts::default() }
    }

    /// What is asked, what is taken, a part of why, and a part of why not.
    #[test]
    fn the_cheapest_path_is_taken_and_the_others_have_reasons() {
        use AccessPath::{Auto, Index, Lake, Rows};
        let evicted = || Facts { is_evicted: true, ..facts() };
        let keys = |n, facts| Facts { n_keys: Some(n), ..facts };
        let ranges = |n, facts| Facts { n_ranges: Some(n), ..facts };
        let forced = |forced, facts| Facts { forced, ..facts };
        let small = |facts| Facts { lake_rows: Some(0), recent_rows: 500, ..facts };
        let touched = |blocks, facts| Facts { evicted_blocks: blocks, ..facts };
        let first = |n, facts| Facts { first_rows: Some(n), ..facts };
        let by = |n_rows, facts| Facts { by_index: Some(Ok(ByIndex { name: "t_b_idx".to_owned(), n_rows })), ..facts };
        let no_index = |facts| Facts { by_index: Some(Err("nothing is said".to_owned())), ..facts };
        for (facts, taken, why, not) in [
            (facts(), "lake", "no equality on a: columns cost less than rows", "range: no equality on a"),
            (keys(1, facts()), "point", "full key", "lake: costs 181000us"),
            (keys(1, evicted()), "point", "by its address", "range: the keys are known"),
            (keys(1_000, facts()), "keys", "1000 full keys", "lake: costs 181000us"),
            (keys(1_000, evicted()), "lake", "columns cost less than so many keys", "keys: costs 300000us"),
            (keys(500, evicted()), "keys", "500 full keys", "lake: costs"),
            (keys(500, small(facts())), "lake", "than so many keys", "keys: costs 2500us"),
            (keys(20, small(facts())), "keys", "20 full keys", "lake: costs 1015us"),
            (ranges(1, facts()), "range", "one partition key, no row evicted", "point: not every key column"),
            (ranges(64, facts()), "range", "64 partition keys", "lake: costs"),
            (ranges(64, small(facts())), "lake", "so many ranges", "range: costs"),
            (ranges(1, touched(3, evicted())), "lake", "but rows were evicted", "range: costs 300020us"),
            (
                first(10, ranges(1, touched(3, evicted()))),
                "range",
                "the first 10 rows, an evicted row is read",
                "lake: costs",
            ),
            (ranges(1, touched(0, evicted())), "range", "no row of it evicted", "lake: costs"),
            (by(3, facts()), "index", "t_b_idx has entries of 3 rows", "lake: costs 181000us"),
            (by(1, ranges(1, facts())), "index", "entries of 1 row", "range: costs 920us"),
            (by(3, keys(1, facts())), "point", "full key", "index: costs 35us"),
            (by(3, evicted()), "index", "3 rows, an evicted one is read from the lake", "lake: costs"),
            (by(700, evicted()), "lake", "than so many rows of an index", "index: costs 210020us"),
            (by(0, evicted()), "index", "entries of 0 rows", "lake: costs"),
            (by(700, small(facts())), "lake", "than so many rows of an index", "index: costs 3520us, t_b_idx has"),
            (forced(Index, by(700, small(facts()))), "index", "700 rows", "lake: tarn.access_path is 'index'"),
            (forced(Index, no_index(facts())), "lake", "no equality on a", "index: nothing is said"),
            (forced(Lake, by(3, facts())), "lake", "forced", "index: tarn.access_path is 'lake'"),
            (no_index(facts()), "lake", "no equality on a", "index: nothing is said"),
            (forced(Rows, facts()), "rows", "forced by tarn.access_path", "lake: tarn.access_path is 'rows'"),
            (forced(Rows, keys(1, facts())), "point", "full key", "rows: costs"),
            (forced(Lake, keys(1, facts())), "lake", "forced", "point: tarn.access_path is 'lake'"),
            (forced(Auto, small(facts())), "lake", "no equality", "rows: only if tarn.access_path is 'rows'"),
            (Facts::default(), "lake", "the table has no rows by key", "point: the table has no rows by key"),
        ] {
            let choice = choose(&facts).unwrap();
            assert_eq!(facts.name(choice.path), taken, "{facts:?}");
            assert!(choice.why.contains(why), "{choice:?}");
            assert!(choice.not_taken.contains(not), "{choice:?}");
        }
    }

    #[test]
    fn of_a_table_without_indexes_nothing_is_said_of_them() {
        assert!(!choose(&facts()).unwrap().not_taken.contains("index"));
    }

    #[test]
    fn an_index_is_not_asked_of_more_values_than_reading_all_rows_costs() {
        let small = Facts { lake_rows: Some(0), recent_rows: 500, ..facts() };
        assert!(small.may_ask_index(50) && !small.may_ask_index(60));
        assert!(facts().may_ask_index(1_000));
    }

    #[test]
    fn a_forced_path_that_cannot_answer_says_why() {
        let forced = |facts| choose(&Facts { forced: AccessPath::Rows, ..facts }).unwrap_err();
        assert!(forced(Facts { is_evicted: true, ..facts() }).contains("only in the lake"));
        assert!(forced(Facts { is_append_only: true, ..Facts::default() }).contains("append-only"));
    }

    #[test]
    fn the_planner_is_told_how_many_rows_a_path_reads() {
        let rows = |facts| choose(&facts).unwrap().rows;
        let ranges = |n, facts| Facts { n_ranges: Some(n), ..facts };
        assert_eq!(rows(facts()), 6_000_000);
        assert_eq!(rows(Facts { n_keys: Some(3), ..facts() }), 3);
        assert_eq!(rows(ranges(3, facts())), 3 * RANGE_ROWS);
        assert_eq!(rows(ranges(3, Facts { first_rows: Some(10), ..facts() })), 30);
        assert_eq!(rows(ranges(1, Facts { lake_rows: Some(0), recent_rows: 20, ..facts() })), 20);
    }

    #[test]
    fn the_lake_is_not_measured_when_a_few_keys_are_asked() {
        let few = Facts { n_keys: Some(3), lake_rows: None, ..facts() };
        assert!(few.is_cheap_by_key());
        assert!(!Facts { n_keys: Some(900), ..few.clone() }.is_cheap_by_key());
        assert!(!Facts { forced: AccessPath::Lake, ..few.clone() }.is_cheap_by_key());
        assert_eq!(choose(&few).unwrap().path, Path::Keys);
    }
}
