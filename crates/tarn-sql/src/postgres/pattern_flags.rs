//! What do the letters beside a regular expression say? `i`, that capitals are small letters; `g`, that all matches are
//! meant, and so on: PostgreSQL's, of which those for patterns of other kinds are refused.

use crate::error::{SqlError, state};

/// What the flags of a function say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flags {
    /// All matches, not the first: `g`.
    pub(super) is_global: bool,
    pub(super) ignores_case: bool,
    /// The pattern is a text: `q`.
    pub(super) is_literal: bool,
    /// Blanks and comments mean nothing: `x`.
    pub(super) is_expanded: bool,
    /// `^` and `$` match at newlines.
    pub(super) has_lines: bool,
    /// `.` and `[^a]` match no newline.
    pub(super) stops_at_newline: bool,
}

impl Flags {
    pub(super) const NONE: Flags = Flags {
        is_global: false,
        ignores_case: false,
        is_literal: false,
        is_expanded: false,
        has_lines: false,
        stops_at_newline: false,
    };

    /// Errors: `22023`, a letter that is no flag; `0A000`, expressions of another kind.
    pub(super) fn of(letters: &str) -> Result<Flags, SqlError> {
        letters.chars().try_fold(Flags::NONE, Flags::with)
    }

    pub(super) fn with(mut self, letter: char) -> Result<Flags, SqlError> {
        match letter {
            'g' => self.is_global = true,
            'i' => self.ignores_case = true,
            'c' => self.ignores_case = false,
            'q' => self.is_literal = true,
            'x' => self.is_expanded = true,
            't' => self.is_expanded = false,
            'm' | 'n' => (self.has_lines, self.stops_at_newline) = (true, true),
            's' => (self.has_lines, self.stops_at_newline) = (false, false),
            'p' => (self.has_lines, self.stops_at_newline) = (false, true),
            'w' => (self.has_lines, self.stops_at_newline) = (true, false),
            'b' | 'e' => {
                return Err(SqlError::unsupported(
                    format!("the flag \"{letter}\" of regular expressions is not supported"),
                    "write the pattern as an advanced one, without the flag",
                ));
            }
            other => {
                let message = format!("invalid regular expression option: \"{other}\"");
                return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message).with_hint("g, i, n, p, q, s, w, x"));
            }
        }
        Ok(self)
    }
}
