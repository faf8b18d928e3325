//! What are the words of a backslash command? `\pset null 'nothing at all'` → `pset`, `null`, `nothing at all`.
//!
//! Words stand between spaces. `'…'` is one word, in which `''` is a quote and `\n`, `\t`, `\\` and `\'` are what they
//! are in C; `"…"` is one word that keeps its quotes, since it is a name. `:name` is replaced as in a statement.

use crate::variables::Variables;

/// A backslash command that was read.
#[derive(Debug, PartialEq, Eq)]
pub struct Command<'a> {
    /// Without its backslash
    pub name: &'a str,
    /// In order, without their quotes.
    pub words: Vec<String>,
    /// All that stands behind the name, as it was typed
    pub rest: &'a str,
}

impl Command<'_> {
    /// The word at this place.
    pub fn word(&self, idx: usize) -> Option<&str> {
        self.words.get(idx).map(String::as_str)
    }
}

/// What is wrong with the words of a command.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the text of each says what its fields are")]
pub enum Error {
    /// A quote that begins in it does not end.
    #[error("\\{command}: a quote is not closed")]
    Unclosed { command: String },
}

/// Reads a line that begins with a backslash. A semicolon at its end is left out: fingers type it.
pub fn parse<'a>(line: &'a str, variables: &Variables) -> Result<Command<'a>, Error> {
    let line = line.trim();
    let line = line.strip_prefix('\\').unwrap_or(line);
    let end = line.find(char::is_whitespace).unwrap_or(line.len());
    let (name, rest) = (line[..end].trim_end_matches(';'), line[end..].trim());
    let words =
        words(rest.trim_end_matches(';'), variables).ok_or_else(|| Error::Unclosed { command: name.to_owned() })?;
    Ok(Command { name, words, rest })
}

/// None: a quote is not closed.
fn words(text: &str, variables: &Variables) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (word, length) = word(rest, variables)?;
        words.push(word);
        rest = rest[length..].trim_start();
    }
    Some(words)
}

/// The word that `text` begins with, and its length in bytes there.
fn word(text: &str, variables: &Variables) -> Option<(String, usize)> {
    let mut word = String::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        match c {
            _ if c.is_whitespace() => break,
            '\'' => {
                let (inside, length) = single_quoted(rest)?;
                word.push_str(&inside);
                at += length;
            }
            '"' => {
                let length = rest[1..].find('"')? + 2;
                word.push_str(&rest[..length]);
                at += length;
            }
            ':' => match variables.reference(rest) {
                Some((value, length)) => {
                    word.push_str(&value);
                    at += length;
                }
                None => {
                    word.push(c);
                    at += 1;
                }
            },
            _ => {
                word.push(c);
                at += c.len_utf8();
            }
        }
    }
    Some((word, at))
}

fn single_quoted(text: &str) -> Option<(String, usize)> {
    let mut inside = String::new();
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' if chars.next_if(|(_, next)| *next == '\'').is_some() => inside.push('\''),
            '\'' => return Some((inside, at + 1)),
            '\\' => match chars.next()?.1 {
                'n' => inside.push('\n'),
                't' => inside.push('\t'),
                other => inside.push(other),
            },
            _ => inside.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_cut_at_spaces_outside_of_quotes() {
        let mut variables = Variables::default();
        variables.set("f", "a b.sql").unwrap();
        let read = |line| parse(line, &variables).map(|command| (command.name.to_owned(), command.words));
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(read("\\dt"), Ok(("dt".into(), vec![])));
        assert_eq!(read("\\dt;"), Ok(("dt".into(), vec![])));
        assert_eq!(read("\\d \"My t\" ;"), Ok(("d".into(), words(&["\"My t\""]))));
        assert_eq!(read("\\pset null 'it''s \\'no\\''"), Ok(("pset".into(), words(&["null", "it's 'no'"]))));
        assert_eq!(read("\\i :f"), Ok(("i".into(), words(&["a b.sql"]))));
        assert_eq!(read("\\i c:/x"), Ok(("i".into(), words(&["c:/x"]))));
        assert_eq!(read("\\echo 'a"), Err(Error::Unclosed { command: "echo".into() }));
        assert_eq!(parse("\\copy t from 'x' with (null '');", &variables).unwrap().rest, "t from 'x' with (null '');");
    }
}
