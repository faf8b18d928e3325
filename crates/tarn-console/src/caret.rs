//! Where in a statement is the error? The line with it, and a caret below its character.
//!
//! ```text
//! LINE 2: FORM trips
//!         ^
//! ```

use unicode_width::UnicodeWidthChar;

/// How many characters of a long line are shown on either side of the error.
const AROUND: usize = 40;

/// A place in a statement, as lines for a person.
#[derive(Debug, PartialEq, Eq)]
pub struct ErrorLocation {
    /// The line of the statement, from 1
    pub line: usize,
    excerpt: String,
    /// Places on a terminal before the caret, within the excerpt
    before: usize,
}

/// The place of the character at `position`, counted from 1 as a server's field `P` does. None: the statement has no
/// such character.
pub fn place(statement: &str, position: usize) -> Option<ErrorLocation> {
    let offset = position.checked_sub(1)?;
    // One behind the last character is the end, where something is missing.
    let byte = statement.char_indices().map(|(at, _)| at).chain([statement.len()]).nth(offset)?;
    let line_begin = statement[..byte].rfind('\n').map_or(0, |at| at + 1);
    let line_end = statement[byte..].find(['\n', '\r']).map_or(statement.len(), |at| byte + at);
    let line: Vec<char> =
        statement[line_begin..line_end].chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let column = statement[line_begin..byte].chars().count().min(line.len());

    let (from, to) = (column.saturating_sub(AROUND), (column + AROUND).min(line.len()));
    let (head, tail) = (if from > 0 { "..." } else { "" }, if to < line.len() { "..." } else { "" });
    let width = |chars: &[char]| chars.iter().map(|c| c.width().unwrap_or(0)).sum::<usize>();
    Some(ErrorLocation {
        line: 1 + statement[..line_begin].matches('\n').count(),
        excerpt: format!("{head}{}{tail}", line[from..to].iter().collect::<String>()),
        before: head.len() + width(&line[from..column]),
    })
}

impl ErrorLocation {
    /// Both lines, without a line's end behind them. `first_line` is where the statement begins in its file, 1 if it
    /// has none.
    pub fn show(&self, first_line: usize) -> String {
        let head = format!("LINE {}: ", first_line + self.line - 1);
        format!("{head}{}\n{}^", self.excerpt, " ".repeat(head.len() + self.before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_stands_below_its_character() {
        assert_eq!(place("SELECT *\nFORM trips", 10).unwrap().show(1), "LINE 2: FORM trips\n        ^");
        assert_eq!(place("SELECT *\r\nFORM trips", 8).unwrap().show(7), "LINE 7: SELECT *\n               ^");
        assert_eq!(place("SELECT", 7).unwrap().show(1), "LINE 1: SELECT\n              ^");
        assert_eq!(place("é日\tx", 4).unwrap().show(1), "LINE 1: é日 x\n            ^");
    }

    #[test]
    fn long_lines_are_cut_around_it() {
        let sql = format!("{}!{}", "a".repeat(100), "b".repeat(100));
        let shown = place(&sql, 101).unwrap().show(1);
        let (line, caret) = shown.split_once('\n').unwrap();
        assert_eq!(line.len(), "LINE 1: ".len() + 2 * AROUND + 6);
        assert_eq!(line.as_bytes()[caret.len() - 1], b'!');
    }

    #[test]
    fn places_that_are_not_there_are_none() {
        assert_eq!((place("", 0), place("a", 3)), (None, None));
        assert!(place("", 1).is_some());
    }
}
