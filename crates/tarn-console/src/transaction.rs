//! Is a transaction open? Told by the statements that were run and whether they worked: drivers do not pass on what a
//! server says of it.

use crate::script::first_words;

/// What the statements so far came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transaction {
    /// Each statement is one of its own.
    None,
    /// `COMMIT` or `ROLLBACK` ends it.
    Open,
    /// Statements are refused until it ends
    Failed,
}

impl Transaction {
    /// What it is after a statement, which worked or not.
    pub fn after(self, sql: &str, is_done: bool) -> Transaction {
        let words = first_words(sql, 3);
        let (verb, next) = words.split_once(' ').unwrap_or((&words, ""));
        // ROLLBACK TO a, ROLLBACK WORK TO a
        let is_back_to = verb == "ROLLBACK" && next.split(' ').any(|word| word == "TO");
        match (verb, self, is_done) {
            (_, Transaction::Failed, true) if is_back_to => Transaction::Open,
            (_, is, true) if is_back_to => is,
            ("COMMIT" | "END" | "ROLLBACK" | "ABORT", _, _) if !is_back_to => Transaction::None,
            ("BEGIN" | "START", Transaction::None, true) => Transaction::Open,
            (_, Transaction::Open, false) => Transaction::Failed,
            (_, is, _) => is,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Transaction::{Failed, None, Open};

    #[test]
    fn statements_open_end_and_fail_it() {
        for (before, sql, is_done, after) in [
            (None, "select 1", false, None),
            (None, "begin", true, Open),
            (None, "START TRANSACTION READ ONLY", true, Open),
            (Open, "select nope", false, Failed),
            (Open, "ROLLBACK TO a", true, Open),
            (Open, "rollback to unknown", false, Failed),
            (Failed, "rollback work to a", true, Open),
            (Failed, "select 1", false, Failed),
            (Failed, "ROLLBACK", true, None),
            (Open, "COMMIT", false, None),
        ] {
            assert_eq!(before.after(sql, is_done), after, "{before:?} {sql}");
        }
    }
}
