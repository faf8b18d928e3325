//! Which regular expression of the engine means what one of PostgreSQL means? Classes, words and newlines are written
//! otherwise; what the engine has not (what is looked at ahead and behind, and what was matched before) is refused.
//!
//! | PostgreSQL | here |
//! |---|---|
//! | `.`, `[^a]` match a newline, `^` and `$` the ends of the text | `(?s)` |
//! | flags `n`, `p`, `w` | without `(?s)`, with `(?m)`, both |
//! | `\m`, `\M`, `\y`, `\Y`, `\Z` | `\b{start}`, `\b{end}`, `\b`, `\B`, `\z` |
//! | `[a&&b]`, `[[a]` | `[a\&\&b]`, `[\[a]` |
//! | `***=a.b`, flag `q` | `a\.b` |
//!
//! Of alternatives the engine takes the first that matches, PostgreSQL the longest: which match it is, `longest` says
//! where the two differ.

use std::cell::Cell;
use std::sync::Arc;

use regex::{Regex, RegexBuilder};

use super::longest::{GroupSpan, Tree};
use super::pattern_flags::Flags;

use crate::error::{SqlError, state};

/// Bytes of a compiled pattern.
const MAX_BYTES: usize = 4 << 20;

/// The most times of a bound: `a{1,255}`.
const MAX_TIMES: u32 = 255;

/// A pattern, and what finds its matches.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    engine: Regex,
    /// Where the engine takes another match than PostgreSQL.
    tree: Option<Arc<Tree>>,
}

impl Pattern {
    /// Groups, the whole among them.
    pub(super) fn n_groups(&self) -> usize {
        self.engine.captures_len()
    }

    pub(super) fn is_match(&self, text: &str) -> bool {
        self.engine.is_match(text)
    }

    /// The places of the groups of the next match at or behind a place, the whole first. `work`: what was done for this
    /// text before.
    ///
    /// Errors: `54001`, there are too many ways to match.
    pub(super) fn groups_at(
        &self,
        text: &str,
        from: usize,
        work: &Cell<usize>,
    ) -> Result<Option<Vec<GroupSpan>>, SqlError> {
        match &self.tree {
            None => {
                let captures = self.engine.captures_at(text, from);
                let place = |group: Option<regex::Match<'_>>| group.map(|of| (of.start(), of.end()));
                Ok(captures.map(|captures| captures.iter().map(place).collect()))
            }
            // Where it begins is the same for both.
            Some(tree) => match self.engine.find_at(text, from) {
                Some(found) => tree.groups(text, found.start(), work),
                None => Ok(None),
            },
        }
    }
}

/// A pattern of PostgreSQL's functions and operators.
///
/// Errors: `2201B`, it is none; `0A000`, it looks ahead, behind or at what was matched before.
pub(super) fn of_postgres(pattern: &str, flags: Flags) -> Result<Pattern, SqlError> {
    let (pattern, flags) = as_of_engine(pattern, flags)?;
    let engine = compiled(&pattern, flags)?;
    let tree = Tree::of(&pattern, flags)?.map(Arc::new);
    Ok(Pattern { engine, tree })
}

/// As the engine reads it.
fn as_of_engine(pattern: &str, flags: Flags) -> Result<(String, Flags), SqlError> {
    if let Some(literal) = pattern.strip_prefix("***=") {
        return Ok((regex::escape(literal), Flags { is_literal: true, ..flags }));
    }
    let (mut pattern, mut flags) = (pattern.strip_prefix("***:").unwrap_or(pattern), flags);
    if flags.is_literal {
        return Ok((regex::escape(pattern), flags));
    }
    // Flags before the pattern: `(?i)abc`.
    if let Some((letters, after)) = pattern.strip_prefix("(?").and_then(|rest| rest.split_once(')'))
        && !letters.is_empty()
        && letters.chars().all(|letter| letter.is_ascii_alphabetic())
    {
        flags = letters.chars().filter(|letter| *letter != 'g').try_fold(flags, Flags::with)?;
        pattern = after;
    }
    Ok((translated(pattern, flags)?, flags))
}

/// A pattern of `like_regex`, with its flags.
///
/// Errors: as [`of_postgres`]; `42601`, a letter that is no flag.
pub(super) fn of_xquery(pattern: &str, letters: &str) -> Result<Regex, SqlError> {
    let mut flags = Flags { stops_at_newline: true, ..Flags::NONE };
    for letter in letters.chars() {
        match letter {
            'i' => flags.ignores_case = true,
            's' => flags.stops_at_newline = false,
            'm' => flags.has_lines = true,
            'q' => flags.is_literal = true,
            'x' => {
                return Err(SqlError::unsupported(
                    "XQuery \"x\" flag (expanded regular expressions) is not implemented",
                    "write the pattern without blanks",
                ));
            }
            _ => {
                let message = "invalid input syntax for type jsonpath";
                return Err(SqlError::new(state::SYNTAX_ERROR, message)
                    .with_detail(format!("Unrecognized flag character \"{letter}\" in LIKE_REGEX predicate.")));
            }
        }
    }
    let (pattern, flags) = as_of_engine(pattern, flags)?;
    compiled(&pattern, flags)
}

fn invalid(what: &str) -> SqlError {
    SqlError::new(state::INVALID_REGULAR_EXPRESSION, format!("invalid regular expression: {what}"))
}

fn unsupported(what: &str) -> SqlError {
    SqlError::unsupported(
        format!("{what} in a regular expression is not supported"),
        "match more, and take the part that is wanted by a group",
    )
}

fn compiled(pattern: &str, flags: Flags) -> Result<Regex, SqlError> {
    let mut builder = RegexBuilder::new(pattern);
    builder.case_insensitive(flags.ignores_case).size_limit(MAX_BYTES);
    builder.dot_matches_new_line(!flags.stops_at_newline).multi_line(flags.has_lines);
    builder.build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => SqlError::new(state::TOO_COMPLEX, "the regular expression is too complex")
            .with_hint("smaller bounds: a{1,9}"),
        error => {
            let text = error.to_string();
            let reason = text.lines().last().unwrap_or("").trim_start_matches("error: ");
            invalid(reason)
        }
    })
}

fn translated(pattern: &str, flags: Flags) -> Result<String, SqlError> {
    let mut out = String::with_capacity(pattern.len() + 8);
    let (mut rest, mut n_open) = (pattern, 0_usize);
    while let Some(letter) = rest.chars().next() {
        rest = &rest[letter.len_utf8()..];
        match letter {
            '\\' => rest = escape(rest, &mut out)?,
            '[' => rest = class(rest, flags, &mut out)?,
            '(' if rest.starts_with("?:") => {
                n_open += 1;
                out.push_str("(?:");
                rest = &rest[2..];
            }
            '(' if rest.starts_with("?#") => {
                rest = rest.split_once(')').ok_or_else(|| invalid("parentheses () not balanced"))?.1;
            }
            '(' if ["?=", "?!", "?<=", "?<!"].iter().any(|ahead| rest.starts_with(ahead)) => {
                return Err(unsupported("what is looked at ahead or behind"));
            }
            '(' if rest.starts_with('?') => return Err(invalid("quantifier operand invalid")),
            '(' => {
                n_open += 1;
                out.push('(');
            }
            ')' => {
                n_open = n_open.checked_sub(1).ok_or_else(|| invalid("parentheses () not balanced"))?;
                out.push(')');
            }
            '{' if rest.starts_with(|next: char| next.is_ascii_digit()) => {
                let (bounds, after) = rest.split_once('}').ok_or_else(|| invalid("braces {} not balanced"))?;
                let times = bounds.split(',').filter(|times| !times.is_empty());
                for times in times {
                    if times.parse::<u32>().ok().filter(|times| *times <= MAX_TIMES).is_none() {
                        return Err(invalid("invalid repetition count(s)"));
                    }
                }
                out.extend(["{", bounds, "}"]);
                rest = after;
            }
            '{' | '}' => out.extend(['\\', letter]),
            '#' if flags.is_expanded => rest = rest.split_once('\n').map_or("", |(_, after)| after),
            letter if flags.is_expanded && letter.is_whitespace() => {}
            letter => out.push(letter),
        }
    }
    if n_open > 0 { Err(invalid("parentheses () not balanced")) } else { Ok(out) }
}

fn literal(letter: char, out: &mut String) {
    out.push_str(&regex::escape(letter.encode_utf8(&mut [0; 4])));
}

/// What stands behind a backslash; gives what is behind that.
fn escape<'a>(rest: &'a str, out: &mut String) -> Result<&'a str, SqlError> {
    let Some(letter) = rest.chars().next() else { return Err(invalid("invalid escape \\ sequence")) };
    let after = &rest[letter.len_utf8()..];
    match letter {
        'm' => out.push_str(r"\b{start}"),
        'M' => out.push_str(r"\b{end}"),
        'y' => out.push_str(r"\b"),
        'Y' => out.push_str(r"\B"),
        'A' => out.push_str(r"\A"),
        'Z' => out.push_str(r"\z"),
        'd' | 'D' | 's' | 'S' | 'w' | 'W' => out.extend(['\\', letter]),
        '1'..='9' => return Err(unsupported("what was matched before")),
        _ => {
            let (letter, after) = character(letter, after)?;
            literal(letter, out);
            return Ok(after);
        }
    }
    Ok(after)
}

/// One that Unicode says is none.
const NO_CHARACTER: char = '\u{10FFFF}';

/// A character that is escaped.
fn character(letter: char, after: &str) -> Result<(char, &str), SqlError> {
    let hex = |n_digits: usize| {
        let digits: String = after.chars().take_while(char::is_ascii_hexdigit).take(n_digits).collect();
        // What is no character is in no text.
        let code = u32::from_str_radix(&digits, 16).ok();
        let code = code.map(|code| char::from_u32(code).unwrap_or(NO_CHARACTER));
        let is_whole = digits.len() == n_digits || letter == 'x';
        let code = code.filter(|_| is_whole).ok_or_else(|| invalid("invalid escape \\ sequence"))?;
        Ok((code, &after[digits.len()..]))
    };
    Ok((
        match letter {
            'a' => '\u{7}',
            'b' => '\u{8}',
            'B' => '\\',
            'e' => '\u{1b}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            '0' => '\0',
            'c' => {
                let of =
                    after.chars().next().filter(char::is_ascii).ok_or_else(|| invalid("invalid escape \\ sequence"))?;
                return Ok((char::from(of as u8 & 0x1F), &after[1..]));
            }
            'x' => return hex(8),
            'u' => return hex(4),
            'U' => return hex(8),
            letter if letter.is_ascii_alphanumeric() => return Err(invalid("invalid escape \\ sequence")),
            letter => letter,
        },
        after,
    ))
}

/// A class in brackets; gives what is behind it.
fn class<'a>(rest: &'a str, flags: Flags, out: &mut String) -> Result<&'a str, SqlError> {
    let not_balanced = || invalid("brackets [] not balanced");
    for (ends, of) in [("[:<:]]", r"\b{start}"), ("[:>:]]", r"\b{end}")] {
        if let Some(after) = rest.strip_prefix(ends) {
            out.push_str(of);
            return Ok(after);
        }
    }
    out.push('[');
    let mut rest = match rest.strip_prefix('^') {
        Some(after) => {
            out.push_str(if flags.stops_at_newline { r"^\n" } else { "^" });
            after
        }
        None => rest,
    };
    let mut is_first = true;
    loop {
        let letter = rest.chars().next().ok_or_else(not_balanced)?;
        let after = &rest[letter.len_utf8()..];
        match letter {
            ']' if !is_first => {
                out.push(']');
                return Ok(after);
            }
            '[' if after.starts_with(':') => {
                let (name, after) = after[1..].split_once(":]").ok_or_else(not_balanced)?;
                let known = [
                    "alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper",
                    "word", "xdigit",
                ];
                let class = match name {
                    // Of all letters, not those of ASCII alone.
                    "alpha" => r"\p{Alphabetic}",
                    "digit" => r"\d",
                    "alnum" => r"\p{Alphabetic}\d",
                    "lower" => r"\p{Lowercase}",
                    "upper" => r"\p{Uppercase}",
                    "space" => r"\s",
                    "word" => r"\w",
                    _ => "",
                };
                match class {
                    "" if known.contains(&name) => out.extend(["[:", name, ":]"]),
                    "" => return Err(invalid("invalid character class")),
                    class => out.push_str(class),
                }
                rest = after;
                is_first = false;
                continue;
            }
            '[' if after.starts_with(['.', '=']) => return Err(unsupported("a collating element")),
            '\\' => {
                let escaped = after.chars().next().ok_or_else(not_balanced)?;
                let behind = &after[escaped.len_utf8()..];
                if matches!(escaped, 'd' | 's' | 'w') {
                    out.extend(['\\', escaped]);
                    rest = behind;
                } else {
                    let (letter, behind) = character(escaped, behind)?;
                    in_class(letter, out);
                    rest = behind;
                }
                is_first = false;
                continue;
            }
            '-' => out.push_str(if is_first || after.starts_with(']') { r"\-" } else { "-" }),
            letter => in_class(letter, out),
        }
        rest = after;
        is_first = false;
    }
}

/// A letter that stands for itself in a class.
fn in_class(letter: char, out: &mut String) {
    if letter.is_ascii_punctuation() {
        out.push('\\');
    }
    out.push(letter);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found<'a>(pattern: &str, flags: &str, text: &'a str) -> Option<&'a str> {
        let pattern =
            of_postgres(pattern, Flags::of(flags).unwrap()).unwrap_or_else(|error| panic!("{pattern}: {error}"));
        let (start, end) = pattern.groups_at(text, 0, &Cell::default()).unwrap()?[0]?;
        Some(&text[start..end])
    }

    /// What PostgreSQL 15 says.
    #[test]
    fn patterns_mean_what_they_do() {
        for (pattern, flags, text, part) in [
            ("a.b", "", "a\nb", Some("a\nb")),
            ("a.b", "n", "a\nb", None),
            ("^b", "n", "a\nb", Some("b")),
            ("^b", "", "a\nb", None),
            ("a[^x]b", "p", "a\nb", None),
            (r"\mabc\M", "", "xabc abc", Some("abc")),
            ("[[:<:]]b", "", "ab b", Some("b")),
            ("a.b", "q", "axb a.b", Some("a.b")),
            ("***=a.b", "", "axb a.b", Some("a.b")),
            ("(?i)B", "", "abc", Some("b")),
            ("[]a]+", "", "x]a]", Some("]a]")),
            ("[a&&b]", "", "&", Some("&")),
            ("[a-]+", "", "-a-", Some("-a-")),
            (r"[\d.]+", "", "x1.5", Some("1.5")),
            ("[[:alpha:]]+", "", "1äb2", Some("äb")),
            ("a b # c", "x", "ab", Some("ab")),
            (r"\u0041", "", "A", Some("A")),
            ("a{,2}", "", "a{,2}", Some("a{,2}")),
        ] {
            assert_eq!(found(pattern, flags, text), part, "{pattern}");
        }
    }

    #[test]
    fn what_is_none_or_not_there_is_told_apart() {
        let refused = |pattern: &str| of_postgres(pattern, Flags::NONE).unwrap_err().state();
        for pattern in ["(", ")", "[a", "a{2,1}", "a{256}", "*a", r"\q", "[[:nothing:]]", "(?a", r"a\"] {
            assert_eq!(refused(pattern), state::INVALID_REGULAR_EXPRESSION, "{pattern}");
        }
        for pattern in [r"(a)\1", "a(?=b)", "a(?!b)", "[[.a.]]"] {
            assert_eq!(refused(pattern), state::FEATURE_NOT_SUPPORTED, "{pattern}");
        }
        assert_eq!(refused("((((a{255}){255}){255}){255})"), state::TOO_COMPLEX);
        assert_eq!(Flags::of("y").unwrap_err().state(), state::INVALID_PARAMETER_VALUE);
    }
}
