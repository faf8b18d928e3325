//! What does `\copy` ask for? A `COPY` of the server, and the client's file that it reads or writes.
//!
//! ```text
//! \copy trips (city, at) from 'trips.csv' with (format csv, header)
//! \copy (select * from trips) to stdout csv
//! ```

use crate::lex::{self, SqlToken, TokenKind};

/// A `\copy` that was read.
#[derive(Debug, PartialEq, Eq)]
pub struct Transfer {
    /// What the server runs: `COPY … FROM STDIN …` or `COPY … TO STDOUT …`
    pub sql: String,
    /// Which way the rows go.
    pub direction: Direction,
    /// Where they come from or go to, on the client's side.
    pub file: File,
}

/// Which way rows go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client into a table
    In,
    /// From the server to the client
    Out,
}

/// The client's end.
#[derive(Debug, PartialEq, Eq)]
pub enum File {
    /// stdin, or the lines that follow in a script; stdout
    Standard,
    /// As it was written, without its quotes.
    Path(String),
}

/// What is wrong with a `\copy`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is not understood.
    #[error("\\copy wants TABLE [(COLUMNS)] FROM 'FILE', or TABLE or (QUERY) TO 'FILE', and options as in COPY")]
    Syntax,
    /// It asks for a program's input or output.
    #[error("\\copy … program is not there: use a pipe with `tarn sql -c \"COPY … FROM STDIN\"`")]
    Program,
    /// The client's file would not be text.
    #[error("\\copy with files of format binary or arrow is not there: `tarn load` and `--output parquet` are")]
    Binary,
}

/// Reads what stands behind `\copy`.
pub fn parse(text: &str) -> Result<Transfer, Error> {
    let text = text.trim().trim_end_matches(';').trim_end();
    let pieces: Vec<SqlToken> = lex::pieces(text).filter(SqlToken::is_said).collect();
    let mut depth = 0;
    let direction = pieces.iter().position(|piece| {
        match piece.of(text) {
            "(" => depth += 1,
            ")" => depth -= 1,
            word => return depth == 0 && piece.kind == TokenKind::Word && is_one_of(word, &["from", "to"]),
        }
        false
    });
    let direction_idx = direction.filter(|idx| *idx > 0).ok_or(Error::Syntax)?;
    let direction = if is_one_of(pieces[direction_idx].of(text), &["from"]) { Direction::In } else { Direction::Out };
    let file = pieces.get(direction_idx + 1).ok_or(Error::Syntax)?;
    let (file, file_end) = match (file.kind, file.of(text)) {
        (TokenKind::Word, word) if is_one_of(word, &["program"]) => return Err(Error::Program),
        (TokenKind::Word, word) if is_one_of(word, &["stdin", "stdout", "pstdin", "pstdout"]) => {
            (File::Standard, file.range.end)
        }
        (TokenKind::Text, quoted) if file.is_ended && quoted.starts_with('\'') => {
            (File::Path(quoted[1..quoted.len() - 1].replace("''", "'")), file.range.end)
        }
        // As psql: a file without quotes goes to the next space.
        (TokenKind::Text, _) => return Err(Error::Syntax),
        _ => {
            let rest = &text[file.range.start..];
            let length = rest.find(char::is_whitespace).unwrap_or(rest.len());
            (File::Path(rest[..length].to_owned()), file.range.start + length)
        }
    };
    let (what, options) = (text[..pieces[direction_idx].range.start].trim(), text[file_end..].trim());
    if lex::pieces(options).any(|piece| is_one_of(piece.of(options).trim_matches('\''), &["binary", "arrow"])) {
        return Err(Error::Binary);
    }
    let server_end = if direction == Direction::In { "FROM STDIN" } else { "TO STDOUT" };
    Ok(Transfer { sql: format!("COPY {what} {server_end} {options}").trim_end().to_owned(), direction, file })
}

/// Which way the rows of a `COPY` statement go through the connection; none for any other statement, and for a `COPY`
/// of the server's files.
pub fn direction(sql: &str) -> Option<Direction> {
    let mut depth = 0;
    let outside = lex::pieces(sql).filter(|piece| {
        match piece.of(sql) {
            "(" => depth += 1,
            ")" => depth -= 1,
            _ => {}
        }
        depth == 0 && piece.kind == TokenKind::Word
    });
    let words: Vec<&str> = outside.map(|piece| piece.of(sql)).collect();
    if !words.first().is_some_and(|word| is_one_of(word, &["copy"])) {
        return None;
    }
    let has = |first: &str, second: &str| {
        words.windows(2).any(|pair| is_one_of(pair[0], &[first]) && is_one_of(pair[1], &[second]))
    };
    match (has("from", "stdin"), has("to", "stdout")) {
        (true, false) => Some(Direction::In),
        (false, true) => Some(Direction::Out),
        _ => None,
    }
}

fn is_one_of(word: &str, words: &[&str]) -> bool {
    words.iter().any(|known| known.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(String, Direction, File), Error> {
        parse(text).map(|transfer| (transfer.sql, transfer.direction, transfer.file))
    }

    #[test]
    fn the_file_is_the_clients_and_the_rest_the_servers() {
        let path = |path: &str| File::Path(path.to_owned());
        assert_eq!(
            read("trips (city, \"to\") from 'it''s.csv' with (format csv, header);"),
            Ok((
                "COPY trips (city, \"to\") FROM STDIN with (format csv, header)".into(),
                Direction::In,
                path("it's.csv")
            ))
        );
        assert_eq!(
            read("(select a from t) TO ./x.csv csv"),
            Ok(("COPY (select a from t) TO STDOUT csv".into(), Direction::Out, path("./x.csv")))
        );
        assert_eq!(read("t to stdout"), Ok(("COPY t TO STDOUT".into(), Direction::Out, File::Standard)));
    }

    #[test]
    fn what_is_not_there_is_named() {
        for (text, error) in [
            ("", Error::Syntax),
            ("trips", Error::Syntax),
            ("from 'x'", Error::Syntax),
            ("trips from", Error::Syntax),
            ("trips from 'x", Error::Syntax),
            ("trips from program 'ls'", Error::Program),
            ("trips to 'x' with (format arrow)", Error::Binary),
        ] {
            assert_eq!(read(text), Err(error), "{text}");
        }
    }

    #[test]
    fn statements_that_move_rows_are_known() {
        assert_eq!(direction("copy t from stdin"), Some(Direction::In));
        assert_eq!(direction("COPY (SELECT 1) TO STDOUT (FORMAT csv)"), Some(Direction::Out));
        assert_eq!(direction("COPY (SELECT 1 FROM stdin) TO STDOUT"), Some(Direction::Out));
        assert_eq!(direction("copy t from '/tmp/x'"), None);
        assert_eq!(direction("select 'copy t from stdin'"), None);
    }
}
