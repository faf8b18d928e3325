//! What does a text of a path say? The grammar is that of PostgreSQL's `jsonpath`:
//!
//! ```text
//! path       [strict | lax] expr
//! expr       or: and ('||' and)*            and: not ('&&' not)*
//! not        ['!'] compared                 compared: sum [op sum | starts with sum | like_regex "x" [flag "i"]]
//! sum        product (('+' | '-') product)* product: signed (('*' | '/' | '%') signed)*
//! signed     ('+' | '-')* steps             steps: primary step*
//! primary    $ | @ | last | $name | a literal | '(' expr ')' ['is' 'unknown'] | exists '(' expr ')'
//! step       .name | ."name" | .* | .**{1 to 2} | [*] | [1, 2 to last] | ?(condition) | .method()
//! ```
//!
//! What is a condition and what is a value is told apart while it is read. Nothing is deeper than [`MAX_DEPTH`], and no
//! path has more than [`MAX_PARTS`] parts.

use regex::Regex;

use super::number::Number;
use crate::error::{SqlError, state};
use crate::postgres::patterns;

/// Parentheses, signs and filters in each other.
const MAX_DEPTH: usize = 64;
/// Words and signs of a path.
const MAX_PARTS: usize = 2_000;

/// A path, read.
#[derive(Debug)]
pub(super) struct Path {
    /// What does not fit the document is an error.
    pub(super) is_strict: bool,
    pub(super) root: PathNode,
}

/// A value, or a condition.
#[derive(Debug)]
pub(super) enum PathNode {
    Root,
    /// What a filter looks at.
    Current,
    /// The last index of the array around.
    Last,
    /// As JSON.
    Literal(String),
    Variable(String),
    Steps(Box<PathNode>, Vec<PathStep>),
    Negated(Box<PathNode>),
    /// A `+` before a value, which must be a number.
    Positive(Box<PathNode>),
    Computed(PathOperation, Box<PathNode>, Box<PathNode>),
    // Conditions.
    And(Box<PathNode>, Box<PathNode>),
    Or(Box<PathNode>, Box<PathNode>),
    Not(Box<PathNode>),
    IsUnknown(Box<PathNode>),
    Compared(Comparison, Box<PathNode>, Box<PathNode>),
    StartsWith(Box<PathNode>, Box<PathNode>),
    Like(Box<PathNode>, Regex),
    Exists(Box<PathNode>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathOperation {
    Plus,
    Minus,
    Times,
    Divided,
    Rest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Where a path goes from a value.
#[derive(Debug)]
pub(super) enum PathStep {
    Key(String),
    AnyKey,
    AnyItem,
    /// Indexes, and ranges of them.
    Items(Vec<(PathNode, Option<PathNode>)>),
    /// Everything so many levels below; `None`: the last.
    Below(Option<u32>, Option<u32>),
    Filter(PathNode),
    Method(Method),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Type,
    Size,
    Double,
    Abs,
    Floor,
    Ceiling,
    KeyValue,
    Datetime,
}

const METHODS: [(&str, Method); 8] = [
    ("type", Method::Type),
    ("size", Method::Size),
    ("double", Method::Double),
    ("abs", Method::Abs),
    ("floor", Method::Floor),
    ("ceiling", Method::Ceiling),
    ("keyvalue", Method::KeyValue),
    ("datetime", Method::Datetime),
];

impl Method {
    pub(super) fn name(self) -> &'static str {
        METHODS.iter().find(|(_, method)| *method == self).map_or("", |(name, _)| name)
    }
}

impl PathNode {
    fn is_condition(&self) -> bool {
        use PathNode::{And, Compared, Exists, IsUnknown, Like, Not, Or, StartsWith};
        matches!(
            self,
            And(..) | Or(..) | Not(..) | IsUnknown(..) | Compared(..) | StartsWith(..) | Like(..) | Exists(..)
        )
    }
}

/// Reads a path.
///
/// Errors: `42601`, with the part that is not understood; `22P02` of an empty text; `54001` of what is too long or
/// deep.
pub(super) fn read(text: &str) -> Result<Path, SqlError> {
    let tokens = tokens(text)?;
    if tokens.is_empty() {
        let message = format!("invalid input syntax for type jsonpath: \"{text}\"");
        return Err(SqlError::new(state::INVALID_TEXT, message).with_hint("a path begins with $"));
    }
    if tokens.len() > MAX_PARTS {
        return Err(too_long());
    }
    let mut reader = PathParser { tokens: &tokens, at: 0, depth: 0, in_filter: 0, in_subscript: 0 };
    let is_strict = reader.word("strict");
    if !is_strict {
        reader.word("lax");
    }
    let root = reader.or()?;
    match reader.peek() {
        None => Ok(Path { is_strict, root }),
        Some(_) => Err(reader.unexpected()),
    }
}

fn too_long() -> SqlError {
    SqlError::new(state::TOO_COMPLEX, "the path is too long or too deep")
        .with_hint(format!("at most {MAX_PARTS} words and signs, and {MAX_DEPTH} parentheses in each other"))
}

fn syntax(message: impl Into<String>) -> SqlError {
    SqlError::new(state::SYNTAX_ERROR, message).with_hint("$.name, $[0], $[*] ? (@ > 1)")
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    /// A name, or a word of the grammar.
    Word(String),
    Text(String),
    Number(String),
    Variable(String),
    /// `==`, `**`, `(` …
    Sign(&'static str),
}

const SIGNS: [&str; 27] = [
    "**", "==", "!=", "<>", "<=", ">=", "&&", "||", "?", "%", "$", ".", "[", "]", "{", "}", "(", ")", "!", "<", ">",
    "@", ",", "*", "-", "+", "/",
];

fn is_special(letter: char) -> bool {
    "?%$.[]{}()|&!=<>@#,*:-+/\"".contains(letter) || letter.is_whitespace()
}

fn tokens(text: &str) -> Result<Vec<Token>, SqlError> {
    let (mut tokens, mut rest) = (vec![], text);
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix("/*") {
            let Some((_, after)) = after.split_once("*/") else {
                return Err(syntax("unexpected end of comment at end of jsonpath input"));
            };
            rest = after;
            continue;
        }
        let Some(first) = rest.chars().next() else { return Ok(tokens) };
        if first == '"' {
            let (value, after) = quoted(&rest[1..])?;
            tokens.push(Token::Text(value));
            rest = after;
            continue;
        }
        let is_digit = |text: &str| text.starts_with(|letter: char| letter.is_ascii_digit());
        // `.5`, but not that of `$.5`.
        let is_number = is_digit(rest)
            || (first == '.'
                && is_digit(&rest[1..])
                && !matches!(tokens.last(), Some(Token::Word(_) | Token::Sign("$" | "@" | "]" | ")"))));
        if is_number {
            let length = length_of_number(rest);
            let after = &rest[length..];
            if after.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_') {
                let junk: String = rest.chars().take(length + 1).collect();
                return Err(syntax(format!(
                    "trailing junk after numeric literal at or near \"{junk}\" of jsonpath input"
                )));
            }
            tokens.push(Token::Number(rest[..length].to_owned()));
            rest = after;
            continue;
        }
        if let Some(after) = rest.strip_prefix('$') {
            if let Some(after) = after.strip_prefix('"') {
                let (name, after) = quoted(after)?;
                tokens.push(Token::Variable(name));
                rest = after;
                continue;
            }
            let (name, after) = word(after)?;
            tokens.push(if name.is_empty() { Token::Sign("$") } else { Token::Variable(name) });
            rest = after;
            continue;
        }
        if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            tokens.push(Token::Sign(sign));
            rest = &rest[sign.len()..];
            continue;
        }
        let (name, after) = word(rest)?;
        if name.is_empty() {
            return Err(syntax(format!("syntax error at or near \"{first}\" of jsonpath input")));
        }
        tokens.push(Token::Word(name));
        rest = after;
    }
}

fn length_of_number(text: &str) -> usize {
    let digits = |from: usize| text[from..].bytes().take_while(|byte| byte.is_ascii_digit()).count();
    let mut at = digits(0);
    if text[at..].starts_with('.') {
        at += 1 + digits(at + 1);
    }
    if text[at..].starts_with(['e', 'E']) {
        let sign = usize::from(text[at + 1..].starts_with(['+', '-']));
        let n_digits = digits(at + 1 + sign);
        if n_digits > 0 {
            at += 1 + sign + n_digits;
        }
    }
    at
}

/// A name up to the next sign or blank, in which letters may be escaped.
fn word(text: &str) -> Result<(String, &str), SqlError> {
    let (mut name, mut rest) = (String::new(), text);
    while let Some(letter) = rest.chars().next() {
        if letter == '\\' {
            rest = escaped(&rest[1..], &mut name)?;
        } else if is_special(letter) {
            break;
        } else {
            name.push(letter);
            rest = &rest[letter.len_utf8()..];
        }
    }
    Ok((name, rest))
}

/// Up to the closing quote.
fn quoted(text: &str) -> Result<(String, &str), SqlError> {
    let (mut value, mut rest) = (String::new(), text);
    loop {
        let Some(letter) = rest.chars().next() else {
            return Err(syntax("unterminated quoted string at end of jsonpath input"));
        };
        rest = &rest[letter.len_utf8()..];
        match letter {
            '"' => return Ok((value, rest)),
            '\\' => rest = escaped(rest, &mut value)?,
            letter => value.push(letter),
        }
    }
}

/// What stands behind a backslash; gives what is behind that.
fn escaped<'a>(text: &'a str, to: &mut String) -> Result<&'a str, SqlError> {
    let invalid = || syntax("invalid Unicode escape sequence of jsonpath input");
    let Some(letter) = text.chars().next() else {
        return Err(syntax("unexpected end after backslash at end of jsonpath input"));
    };
    let rest = &text[letter.len_utf8()..];
    let digits = |rest: &'a str, n: usize| rest.get(..n).and_then(|hex| u32::from_str_radix(hex, 16).ok());
    match letter {
        'b' => to.push('\u{8}'),
        'f' => to.push('\u{c}'),
        'n' => to.push('\n'),
        'r' => to.push('\r'),
        't' => to.push('\t'),
        'v' => to.push('\u{b}'),
        'x' => {
            let code = digits(rest, 2).and_then(char::from_u32).filter(|code| *code != '\0').ok_or_else(invalid)?;
            to.push(code);
            return Ok(&rest[2..]);
        }
        'u' if rest.starts_with('{') => {
            let (code, after) = rest[1..].split_once('}').ok_or_else(invalid)?;
            let code = u32::from_str_radix(code, 16).ok().and_then(char::from_u32).filter(|code| *code != '\0');
            to.push(code.ok_or_else(invalid)?);
            return Ok(after);
        }
        'u' => {
            let first = digits(rest, 4).ok_or_else(invalid)?;
            let after = &rest[4..];
            if (0xD800..0xDC00).contains(&first) {
                let second = after.strip_prefix("\\u").and_then(|after| digits(after, 4)).ok_or_else(invalid)?;
                let pair = char::decode_utf16([first as u16, second as u16]).next().and_then(Result::ok);
                to.push(pair.ok_or_else(invalid)?);
                return Ok(&after[6..]);
            }
            to.push(char::from_u32(first).filter(|code| *code != '\0').ok_or_else(invalid)?);
            return Ok(after);
        }
        other => to.push(other),
    }
    Ok(rest)
}

struct PathParser<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: usize,
    in_filter: usize,
    in_subscript: usize,
}

impl<'a> PathParser<'a> {
    fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.at)
    }

    fn unexpected(&self) -> SqlError {
        match self.peek() {
            None => syntax("syntax error at end of jsonpath input"),
            Some(Token::Word(word) | Token::Number(word)) => {
                syntax(format!("syntax error at or near \"{word}\" of jsonpath input"))
            }
            Some(Token::Text(text)) => syntax(format!("syntax error at or near \"\"{text}\"\" of jsonpath input")),
            Some(Token::Variable(name)) => syntax(format!("syntax error at or near \"${name}\" of jsonpath input")),
            Some(Token::Sign(sign)) => syntax(format!("syntax error at or near \"{sign}\" of jsonpath input")),
        }
    }

    /// Takes a sign, if it is the next.
    fn sign(&mut self, sign: &str) -> bool {
        let is_next = matches!(self.peek(), Some(Token::Sign(next)) if *next == sign);
        self.at += usize::from(is_next);
        is_next
    }

    /// Takes a word of the grammar, if it is the next: in any case, but for `true`, `false` and `null`.
    fn word(&mut self, word: &str) -> bool {
        let is_next = match self.peek() {
            Some(Token::Word(next)) if matches!(word, "true" | "false" | "null") => next == word,
            Some(Token::Word(next)) => next.eq_ignore_ascii_case(word),
            _ => false,
        };
        self.at += usize::from(is_next);
        is_next
    }

    fn want(&mut self, sign: &str) -> Result<(), SqlError> {
        if self.sign(sign) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn text(&mut self) -> Result<String, SqlError> {
        match self.peek() {
            Some(Token::Text(text)) => {
                self.at += 1;
                Ok(text.clone())
            }
            _ => Err(self.unexpected()),
        }
    }

    /// One level deeper.
    fn inside<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, SqlError>) -> Result<T, SqlError> {
        if self.depth == MAX_DEPTH {
            return Err(too_long());
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    fn condition(&self, node: PathNode) -> Result<Box<PathNode>, SqlError> {
        if node.is_condition() { Ok(Box::new(node)) } else { Err(self.unexpected()) }
    }

    fn value(&self, node: PathNode) -> Result<Box<PathNode>, SqlError> {
        if node.is_condition() { Err(self.unexpected()) } else { Ok(Box::new(node)) }
    }

    fn or(&mut self) -> Result<PathNode, SqlError> {
        let mut left = self.and()?;
        while matches!(self.peek(), Some(Token::Sign("||"))) {
            let of = self.condition(left)?;
            self.at += 1;
            let right = self.and()?;
            left = PathNode::Or(of, self.condition(right)?);
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<PathNode, SqlError> {
        let mut left = self.not()?;
        while matches!(self.peek(), Some(Token::Sign("&&"))) {
            let of = self.condition(left)?;
            self.at += 1;
            let right = self.not()?;
            left = PathNode::And(of, self.condition(right)?);
        }
        Ok(left)
    }

    fn not(&mut self) -> Result<PathNode, SqlError> {
        if self.sign("!") {
            // `!` is of what stands in parentheses.
            let is_delimited = matches!(self.peek(), Some(Token::Sign("("))) || self.is_word("exists");
            if !is_delimited {
                return Err(self.unexpected());
            }
            let of = self.inside(PathParser::steps)?;
            return Ok(PathNode::Not(self.condition(of)?));
        }
        self.compared()
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Some(Token::Word(next)) if next.eq_ignore_ascii_case(word))
    }

    fn compared(&mut self) -> Result<PathNode, SqlError> {
        use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
        let left = self.sum()?;
        let signs = [
            ("==", Equal),
            ("!=", NotEqual),
            ("<>", NotEqual),
            ("<=", LessOrEqual),
            (">=", GreaterOrEqual),
            ("<", Less),
            (">", Greater),
        ];
        for (sign, comparison) in signs {
            if self.sign(sign) {
                let left = self.value(left)?;
                let right = self.sum()?;
                return Ok(PathNode::Compared(comparison, left, self.value(right)?));
            }
        }
        if self.word("starts") {
            if !self.word("with") {
                return Err(self.unexpected());
            }
            let left = self.value(left)?;
            let initial = match self.peek() {
                Some(Token::Text(text)) => PathNode::Literal(quote(text)),
                Some(Token::Variable(name)) => PathNode::Variable(name.clone()),
                _ => return Err(self.unexpected()),
            };
            self.at += 1;
            return Ok(PathNode::StartsWith(left, Box::new(initial)));
        }
        if self.word("like_regex") {
            let left = self.value(left)?;
            let pattern = self.text()?;
            let flags = if self.word("flag") { self.text()? } else { String::new() };
            return Ok(PathNode::Like(left, patterns::of_xquery(&pattern, &flags)?));
        }
        Ok(left)
    }

    fn sum(&mut self) -> Result<PathNode, SqlError> {
        let mut left = self.product()?;
        loop {
            let operation = match self.peek() {
                Some(Token::Sign("+")) => PathOperation::Plus,
                Some(Token::Sign("-")) => PathOperation::Minus,
                _ => return Ok(left),
            };
            let of = self.value(left)?;
            self.at += 1;
            let right = self.product()?;
            left = PathNode::Computed(operation, of, self.value(right)?);
        }
    }

    fn product(&mut self) -> Result<PathNode, SqlError> {
        let mut left = self.signed()?;
        loop {
            let operation = match self.peek() {
                Some(Token::Sign("*")) => PathOperation::Times,
                Some(Token::Sign("/")) => PathOperation::Divided,
                Some(Token::Sign("%")) => PathOperation::Rest,
                _ => return Ok(left),
            };
            let of = self.value(left)?;
            self.at += 1;
            let right = self.signed()?;
            left = PathNode::Computed(operation, of, self.value(right)?);
        }
    }

    fn signed(&mut self) -> Result<PathNode, SqlError> {
        let is_negative = match self.peek() {
            Some(Token::Sign("-")) => true,
            Some(Token::Sign("+")) => false,
            _ => return self.steps(),
        };
        self.at += 1;
        let of = self.inside(PathParser::signed)?;
        let of = self.value(of)?;
        Ok(if is_negative { PathNode::Negated(of) } else { PathNode::Positive(of) })
    }

    fn steps(&mut self) -> Result<PathNode, SqlError> {
        let of = self.primary()?;
        let mut steps = vec![];
        while let Some(step) = self.step()? {
            steps.push(step);
        }
        Ok(if steps.is_empty() { of } else { PathNode::Steps(Box::new(of), steps) })
    }

    fn primary(&mut self) -> Result<PathNode, SqlError> {
        if self.sign("(") {
            let of = self.inside(PathParser::or)?;
            self.want(")")?;
            if self.is_word("is") {
                self.at += 1;
                if !self.word("unknown") {
                    return Err(self.unexpected());
                }
                return Ok(PathNode::IsUnknown(self.condition(of)?));
            }
            return Ok(of);
        }
        if self.sign("$") {
            return Ok(PathNode::Root);
        }
        if self.sign("@") {
            return match self.in_filter {
                0 => Err(syntax("@ is not allowed in root expressions")),
                _ => Ok(PathNode::Current),
            };
        }
        for word in ["null", "true", "false"] {
            if self.word(word) {
                return Ok(PathNode::Literal(word.to_owned()));
            }
        }
        if self.word("last") {
            return match self.in_subscript {
                0 => Err(syntax("LAST is allowed only in array subscripts")),
                _ => Ok(PathNode::Last),
            };
        }
        if self.is_word("exists") && matches!(self.tokens.get(self.at + 1), Some(Token::Sign("("))) {
            self.at += 2;
            let of = self.inside(PathParser::or)?;
            let of = self.value(of)?;
            self.want(")")?;
            return Ok(PathNode::Exists(of));
        }
        let primary = match self.peek() {
            Some(Token::Text(text)) => PathNode::Literal(quote(text)),
            Some(Token::Number(digits)) => PathNode::Literal(Number::of(digits)?.to_string()),
            Some(Token::Variable(name)) => PathNode::Variable(name.clone()),
            _ => return Err(self.unexpected()),
        };
        self.at += 1;
        Ok(primary)
    }

    fn step(&mut self) -> Result<Option<PathStep>, SqlError> {
        if self.sign("?") {
            self.want("(")?;
            self.in_filter += 1;
            let condition = self.inside(PathParser::or)?;
            self.in_filter -= 1;
            self.want_condition(&condition)?;
            self.want(")")?;
            return Ok(Some(PathStep::Filter(condition)));
        }
        if self.sign("[") {
            if self.sign("*") {
                self.want("]")?;
                return Ok(Some(PathStep::AnyItem));
            }
            let mut items = vec![];
            self.in_subscript += 1;
            loop {
                let from = self.inside(PathParser::sum)?;
                self.want_value(&from)?;
                let to = if self.word("to") { Some(self.inside(PathParser::sum)?) } else { None };
                items.push((from, to));
                if !self.sign(",") {
                    break;
                }
            }
            self.in_subscript -= 1;
            self.want("]")?;
            return Ok(Some(PathStep::Items(items)));
        }
        if !self.sign(".") {
            return Ok(None);
        }
        if self.sign("**") {
            if !self.sign("{") {
                return Ok(Some(PathStep::Below(Some(0), None)));
            }
            let from = self.level()?;
            let to = if self.word("to") { self.level()? } else { from };
            self.want("}")?;
            return Ok(Some(PathStep::Below(from, to)));
        }
        if self.sign("*") {
            return Ok(Some(PathStep::AnyKey));
        }
        let name = match self.peek() {
            Some(Token::Word(name) | Token::Text(name)) => name.clone(),
            _ => return Err(self.unexpected()),
        };
        let is_word = matches!(self.peek(), Some(Token::Word(_)));
        self.at += 1;
        if !is_word || !self.sign("(") {
            return Ok(Some(PathStep::Key(name)));
        }
        let method = METHODS.iter().find(|(of, _)| name.eq_ignore_ascii_case(of)).map(|(_, method)| *method);
        let Some(method) = method else {
            self.at -= 1;
            return Err(self.unexpected());
        };
        if method == Method::Datetime && matches!(self.peek(), Some(Token::Text(_))) {
            return Err(SqlError::unsupported(
                "a template of the jsonpath method .datetime() is not supported",
                "keep times in ISO form: 2026-11-24T10:15:00",
            ));
        }
        self.want(")")?;
        Ok(Some(PathStep::Method(method)))
    }

    fn want_condition(&self, node: &PathNode) -> Result<(), SqlError> {
        if node.is_condition() { Ok(()) } else { Err(self.unexpected()) }
    }

    fn want_value(&self, node: &PathNode) -> Result<(), SqlError> {
        if node.is_condition() { Err(self.unexpected()) } else { Ok(()) }
    }

    /// `None`: the last.
    fn level(&mut self) -> Result<Option<u32>, SqlError> {
        if self.word("last") {
            return Ok(None);
        }
        let Some(Token::Number(digits)) = self.peek() else { return Err(self.unexpected()) };
        let level = digits.parse().map_err(|_| self.unexpected())?;
        self.at += 1;
        Ok(Some(level))
    }
}

/// A text as JSON.
pub(super) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    tarn_types::json::quote(text, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_path_is_refused_where_it_begins() {
        let refused = |path: &str| read(path).unwrap_err();
        assert_eq!(refused("").state(), state::INVALID_TEXT);
        for (path, near) in [
            ("$.", "at end"),
            ("$.a..b", "near \".\""),
            ("@", "@ is not"),
            ("last", "LAST is"),
            ("$ $", "near \"$\""),
            ("$.a ? (@.b)", "near \")\""),
            ("1 == 1 + (2 == 2)", "at end"),
            ("$[1", "at end"),
            ("\"a", "unterminated"),
            ("1a", "junk"),
            ("$.a(", "near \"(\""),
        ] {
            let error = refused(path);
            assert_eq!(error.state(), state::SYNTAX_ERROR, "{path}");
            assert!(error.to_string().contains(near), "{path}: {error}");
        }
        assert_eq!(refused(&"(".repeat(1000)).state(), state::TOO_COMPLEX);
        assert_eq!(refused(&"$.a".repeat(2000)).state(), state::TOO_COMPLEX);
        assert_eq!(refused("$ like_regex \"(\"").state(), "2201B");
    }

    #[test]
    fn paths_are_read() {
        for path in [
            "$",
            "strict $.a.\"b c\"[*] ? (@.d == 1 && !(@.e starts with \"x\"))",
            "lax $[1, 2 to last - 1].**{2 to last}.size()",
            "-$.a * 2 + 1.5e3 % (3)",
            "exists($.a ? (@ like_regex \"^a\" flag \"i\")) || (1 == 2) is unknown",
            "$\"v w\" /* why */ <> null",
            "$.last.to.exists",
            ".5 + $.double",
        ] {
            read(path).unwrap();
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[$@.*\\[\\]()?!&|<>=+/%{},\"\\\\a0-9eu ü-]{0,24}") {
            let _ = read(&text);
        }
    }
}
