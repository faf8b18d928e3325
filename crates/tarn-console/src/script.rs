//! Where do statements and backslash commands begin and end? Reads text step by step.
//!
//! A statement ends at a semicolon that stands outside quotes and comments. A backslash outside of them begins a
//! command, which ends with its line. Steps are handed out one by one: what a `COPY … FROM STDIN` reads are the lines
//! after it, up to `\.`, and whether there are any is known when it runs.

use crate::lex::{self, TokenKind as Lexical};

/// Text that is read step by step.
pub struct Script<'a> {
    text: &'a str,
    at: usize,
    /// Up to which byte lines were counted, and how many line ends there were
    counted: (usize, usize),
}

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
pub struct ScriptStep<'a> {
    /// What was read.
    pub kind: ScriptItem<'a>,
    /// In which line of the text it begins, from 1
    pub line: usize,
}

/// A piece of a script that is run by itself.
#[derive(Debug, PartialEq, Eq)]
pub enum ScriptItem<'a> {
    /// A statement without its semicolon, space around it and comments before it
    Statement(&'a str),
    /// A backslash command, from its backslash to the end of its line
    Command {
        /// From its backslash to the line's end.
        line: &'a str,
        /// The statement in which it stands; empty if it stands alone
        within: &'a str,
    },
    /// A statement that the text does not end
    Unended(&'a str),
}

impl<'a> Script<'a> {
    /// From its begin; nothing is read yet.
    pub fn new(text: &'a str) -> Script<'a> {
        Script { text, at: 0, counted: (0, 0) }
    }

    /// The lines from the next one up to `\.` or the end, as the data of a `COPY … FROM STDIN`.
    pub fn data(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let first_line = rest.find('\n').map_or(rest.len(), |end| end + 1);
        let data = &rest[first_line..];
        let mut length = 0;
        for line in data.split_inclusive('\n') {
            if line.trim_end_matches(['\r', '\n']) == "\\." {
                self.at += first_line + length + line.len();
                return &data[..length];
            }
            length += line.len();
        }
        self.at = self.text.len();
        data
    }

    /// What is not read yet.
    pub fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Steps begin one behind the other: each line is counted once.
    fn step(&mut self, begin: usize, kind: ScriptItem<'a>) -> ScriptStep<'a> {
        let (counted, n_ends) = self.counted;
        let n_ends = n_ends + self.text[counted..begin].matches('\n').count();
        self.counted = (begin, n_ends);
        ScriptStep { kind, line: 1 + n_ends }
    }
}

impl<'a> Iterator for Script<'a> {
    type Item = ScriptStep<'a>;

    fn next(&mut self) -> Option<ScriptStep<'a>> {
        // Where the statement that is being read begins.
        let mut begin = None;
        while let Some(piece) = lex::piece(self.text, self.at) {
            let piece_begin = piece.range.start;
            self.at = piece.range.end;
            let before = |from: Option<usize>| from.map_or("", |from| self.text[from..piece_begin].trim_end());
            match (piece.kind, piece.of(self.text)) {
                (Lexical::Symbol, ";") => {
                    if let Some(begin) = begin {
                        return Some(self.step(begin, ScriptItem::Statement(before(Some(begin)))));
                    }
                }
                (Lexical::Symbol, "\\") => {
                    let rest = &self.text[piece_begin..];
                    let length = rest.find('\n').unwrap_or(rest.len());
                    let within = before(begin);
                    self.at = piece_begin + length;
                    return Some(
                        self.step(piece_begin, ScriptItem::Command { line: rest[..length].trim_end(), within }),
                    );
                }
                _ if piece.is_said() => _ = begin.get_or_insert(piece_begin),
                _ => {}
            }
        }
        begin.map(|begin| self.step(begin, ScriptItem::Unended(self.text[begin..].trim_end())))
    }
}

/// Whether what was typed can be run: its last statement is ended, or it is a command or one of the words that are
/// understood alone.
pub fn is_complete(text: &str) -> bool {
    is_farewell(text)
        || is_cry_for_help(text)
        || !matches!(Script::new(text).last(), Some(ScriptStep { kind: ScriptItem::Unended(_), .. }))
}

/// `quit` or `exit`, alone.
pub fn is_farewell(text: &str) -> bool {
    matches!(text.trim().trim_end_matches(';'), "quit" | "exit")
}

/// `help`, alone.
pub fn is_cry_for_help(text: &str) -> bool {
    text.trim().trim_end_matches(';') == "help"
}

/// The first `n` words of a statement, upper case; brackets and comments before them are skipped.
pub fn first_words(sql: &str, n: usize) -> String {
    let said = lex::pieces(sql).filter(|piece| piece.is_said()).skip_while(|piece| piece.of(sql) == "(");
    let words = said.take_while(|piece| piece.kind == Lexical::Word).take(n);
    words.map(|piece| piece.of(sql).to_uppercase()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<(usize, ScriptItem<'_>)> {
        Script::new(text).map(|step| (step.line, step.kind)).collect()
    }

    #[test]
    fn statements_end_at_semicolons_outside_of_quotes_and_comments() {
        let text = "select ';' -- a ; b\n; \n-- c\nselect \"a;b\" /* ; */;;select $$ ; $$; rest 'o";
        assert_eq!(
            kinds(text),
            [
                (1, ScriptItem::Statement("select ';' -- a ; b")),
                (4, ScriptItem::Statement("select \"a;b\" /* ; */")),
                (4, ScriptItem::Statement("select $$ ; $$")),
                (4, ScriptItem::Unended("rest 'o"))
            ]
        );
        assert_eq!(kinds(";; -- nothing\n ; "), []);
    }

    #[test]
    fn commands_end_with_their_line_and_know_the_statement_around_them() {
        assert_eq!(
            kinds("\\set a 'x;y'\nselect 1 \\g\nselect\n\\dt\n"),
            [
                (1, ScriptItem::Command { line: "\\set a 'x;y'", within: "" }),
                (2, ScriptItem::Command { line: "\\g", within: "select 1" }),
                (4, ScriptItem::Command { line: "\\dt", within: "select" })
            ]
        );
    }

    #[test]
    fn data_of_copy_ends_at_its_mark() {
        let mut script = Script::new("copy t from stdin;\n1\ta;\n\\N\t'\n\\.\nselect 1;");
        assert_eq!(script.next().unwrap().kind, ScriptItem::Statement("copy t from stdin"));
        assert_eq!(script.data(), "1\ta;\n\\N\t'\n");
        assert_eq!(script.next().unwrap(), ScriptStep { kind: ScriptItem::Statement("select 1"), line: 5 });
        let mut script = Script::new("copy t from stdin;\n1\n");
        script.next();
        assert_eq!((script.data(), script.next()), ("1\n", None));
    }

    #[test]
    fn what_is_typed_is_complete_or_not() {
        for text in ["", "select 1;", "\\dt", "quit", "help;", "select 1 \\g", "-- a", "select\n\\r"] {
            assert!(is_complete(text), "{text}");
        }
        for text in ["select 1", "select ';", "select 1; select", "/* ;"] {
            assert_eq!(is_complete(text), text.starts_with("/*"), "{text}");
        }
    }

    #[test]
    fn first_words_are_found_behind_comments() {
        assert_eq!(first_words("-- hi\n ((select 1))", 1), "SELECT");
        assert_eq!(first_words("create  /* x */ table t", 2), "CREATE TABLE");
        assert_eq!(first_words("", 1), "");
    }
}
