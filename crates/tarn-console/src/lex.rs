//! Which pieces does SQL text consist of? Words, quoted texts, comments and the rest, as PostgreSQL's scanner cuts
//! them.
//!
//! Any text is cut into pieces that follow each other without a gap, so that what is not understood is passed on as it
//! came. Comments nest, `E'…'` has backslashes in it, `$tag$ … $tag$` quotes, and `$1` does not.

use std::ops::Range;

/// What a piece of text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// Blanks, tabs and line ends.
    Space,
    /// `-- …` with its line's end, or `/* … */`
    Comment,
    /// `'…'`, `E'…'` or `$$…$$`
    Text,
    /// `"…"`
    QuotedName,
    /// A keyword, a name, `$1`, or a number
    Word,
    /// One character of anything else
    Symbol,
}

/// One piece of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlToken {
    /// What the scanner takes it for.
    pub kind: TokenKind,
    /// Its bytes in the text
    pub range: Range<usize>,
    /// False if the text ends within it: a quote or a comment that is not closed
    pub is_ended: bool,
}

impl SqlToken {
    /// The piece itself.
    pub fn of<'a>(&self, text: &'a str) -> &'a str {
        &text[self.range.clone()]
    }

    /// Neither space nor comment.
    pub fn is_said(&self) -> bool {
        !matches!(self.kind, TokenKind::Space | TokenKind::Comment)
    }
}

/// All pieces of `text`, in order, without gaps.
pub fn pieces(text: &str) -> impl Iterator<Item = SqlToken> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let piece = piece(text, at)?;
        at = piece.range.end;
        Some(piece)
    })
}

/// The piece that begins at byte `at`; none at the end of `text`.
pub fn piece(text: &str, at: usize) -> Option<SqlToken> {
    let rest = &text[at..];
    let first = rest.chars().next()?;
    let until = |end: Option<usize>| (end.unwrap_or(rest.len()), end.is_some());
    let (kind, (length, is_ended)) = match first {
        _ if first.is_whitespace() => (TokenKind::Space, (run(rest, char::is_whitespace), true)),
        '\'' => (TokenKind::Text, until(quoted(rest, 1, '\'', false))),
        '"' => (TokenKind::QuotedName, until(quoted(rest, 1, '"', false))),
        'e' | 'E' if rest[1..].starts_with('\'') => (TokenKind::Text, until(quoted(rest, 2, '\'', true))),
        '-' if rest.starts_with("--") => (TokenKind::Comment, until(rest.find('\n').map(|end| end + 1))),
        '/' if rest.starts_with("/*") => (TokenKind::Comment, until(nested_comment(rest))),
        '$' => match dollar_tag(rest) {
            Some(tag) => (TokenKind::Text, until(rest[tag.len()..].find(tag).map(|end| end + 2 * tag.len()))),
            None => (TokenKind::Word, (1 + run(&rest[1..], is_word), true)),
        },
        _ if is_word(first) => (TokenKind::Word, (run(rest, |c| is_word(c) || c == '$'), true)),
        _ => (TokenKind::Symbol, (first.len_utf8(), true)),
    };
    Some(SqlToken { kind, range: at..at + length, is_ended })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn run(text: &str, is_in: impl Fn(char) -> bool) -> usize {
    text.find(|c: char| !is_in(c)).unwrap_or(text.len())
}

/// Where what is quoted from byte `open` on ends, its closing quote included. A doubled quote is one in the text.
fn quoted(text: &str, open: usize, quote: char, has_backslashes: bool) -> Option<usize> {
    let mut chars = text[open..].char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if c == '\\' && has_backslashes {
            chars.next();
        } else if c == quote && chars.next_if(|(_, next)| *next == quote).is_none() {
            return Some(open + at + 1);
        }
    }
    None
}

fn nested_comment(text: &str) -> Option<usize> {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let (step, change) = match &text.as_bytes()[at..] {
            [b'/', b'*', ..] => (2, 1),
            [b'*', b'/', ..] => (2, -1),
            _ => (1, 0),
        };
        depth += change;
        at += step;
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// `$$` or `$name$`.
fn dollar_tag(rest: &str) -> Option<&str> {
    let end = rest[1..].find('$')? + 2;
    let name = &rest[1..end - 1];
    let is_name = !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(is_word);
    is_name.then(|| &rest[..end])
}

/// `name` as SQL reads it: without its quotes, or lower case.
pub fn unquoted(name: &str) -> String {
    match name.strip_prefix('"') {
        Some(quoted) => quoted.strip_suffix('"').unwrap_or(quoted).replace("\"\"", "\""),
        None => name.to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(text: &str) -> Vec<(TokenKind, &str)> {
        pieces(text).filter(|piece| piece.kind != TokenKind::Space).map(|piece| (piece.kind, piece.of(text))).collect()
    }

    #[test]
    fn quotes_and_comments_are_one_piece() {
        use TokenKind::{Comment, QuotedName, Symbol, Text, Word};
        assert_eq!(
            cut(r#"a1 'it''s' "x""y" E'\';' $t$;$t$ $1 /* /* ; */ */ é = -- ;"#),
            [
                (Word, "a1"),
                (Text, "'it''s'"),
                (QuotedName, r#""x""y""#),
                (Text, r"E'\';'"),
                (Text, "$t$;$t$"),
                (Word, "$1"),
                (Comment, "/* /* ; */ */"),
                (Word, "é"),
                (Symbol, "="),
                (Comment, "-- ;")
            ]
        );
        assert_eq!(cut("a$b$c"), [(Word, "a$b$c")]);
    }

    #[test]
    fn what_is_not_closed_is_known() {
        for text in ["'a", "\"a", "/* /* */", "$$a", "-- a", "E'\\'", "'a''"] {
            assert!(!pieces(text).last().unwrap().is_ended, "{text}");
        }
    }

    #[test]
    fn names_are_read_as_sql_reads_them() {
        assert_eq!([unquoted("Trips"), unquoted("\"A\"\"b\"")], ["trips", "A\"b"]);
    }

    proptest! {
        #[test]
        fn any_text_is_cut_without_gaps(text in "[a'\"$;/*é\\\\ \n1E-]{0,40}") {
            let mut at = 0;
            for piece in pieces(&text) {
                prop_assert_eq!(piece.range.start, at);
                prop_assert!(piece.range.end > at);
                at = piece.range.end;
            }
            prop_assert_eq!(at, text.len());
        }
    }
}
