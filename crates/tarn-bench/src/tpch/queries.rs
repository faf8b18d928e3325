//! The 22 queries, with the parameters that the benchmark names for validation.
//!
//! One text for all engines. Two differences to the benchmark's own: Q15 has a common table expression for its view,
//! and Q13's count has its name inside. Q11's fraction depends on the scale factor.

/// One query, and by which columns its rows are in order.
pub struct Query {
    pub number: u8,
    text: &'static str,
    /// Columns of the answer by which it is ordered; rows that are equal in them may come in any order.
    pub ordered_by: &'static [usize],
}

macro_rules! query {
    ($number:literal, $file:literal, $ordered_by:expr) => {
        Query { number: $number, text: include_str!(concat!("queries/", $file, ".sql")), ordered_by: &$ordered_by }
    };
}

/// By number.
pub const QUERIES: [Query; 22] = [
    query!(1, "q01", [0, 1]),
    query!(2, "q02", [0, 2, 1, 3]),
    query!(3, "q03", [1, 2]),
    query!(4, "q04", [0]),
    query!(5, "q05", [1]),
    query!(6, "q06", []),
    query!(7, "q07", [0, 1, 2]),
    query!(8, "q08", [0]),
    query!(9, "q09", [0, 1]),
    query!(10, "q10", [2]),
    query!(11, "q11", [1]),
    query!(12, "q12", [0]),
    query!(13, "q13", [1, 0]),
    query!(14, "q14", []),
    query!(15, "q15", [0]),
    query!(16, "q16", [3, 0, 1, 2]),
    query!(17, "q17", []),
    query!(18, "q18", [4, 3]),
    query!(19, "q19", []),
    query!(20, "q20", [0]),
    query!(21, "q21", [1, 0]),
    query!(22, "q22", [0]),
];

/// Which read and aggregate more than they join.
pub const SCANS: [u8; 9] = [1, 6, 12, 13, 14, 15, 16, 19, 22];

/// Which join more than they read.
pub const JOINS: [u8; 4] = [2, 5, 10, 17];

/// Aggregates of one table: repeated, nothing of it is read.
pub const AGGREGATES: [u8; 2] = [1, 6];

impl Query {
    /// Its text; one parameter goes with the scale factor.
    pub fn sql(&self, sf: f64) -> String {
        self.text.trim_end().replace(":fraction", &format!("{:.10}", 0.0001 / sf))
    }

    /// `q01`
    pub fn name(&self) -> String {
        format!("q{:02}", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_in_order_and_whole() {
        for (idx, query) in QUERIES.iter().enumerate() {
            assert_eq!(usize::from(query.number), idx + 1);
            let sql = query.sql(10.0);
            assert!(!sql.contains([':', ';']), "{sql}");
        }
        assert!(QUERIES[10].sql(10.0).contains("* 0.0000100000"));
    }
}
