//! Which tokens does a text have, and how many?
//!
//! The tokenizer is sqlparser's; an operator that it made too long is split as Postgres' lexer does: `a>-1` is `a >
//! -1`, because an operator may end in `-` or `+` only if it has one of `` ~ ! @ # % ^ & | ` ? `` in it. There are no
//! operators of users here, so those that no one knows are split as well: `'a'||-1`, `10%-3`.

use std::ops::Range;

use crate::sqlparser::keywords::Keyword;
use crate::sqlparser::parser::ParserError;
use crate::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, Whitespace};

use super::dialect::PgDialect;
use super::{Limit, MAX_SELECTS, MAX_TOKENS, ParseError};

/// Dimensions of one type or subscript: Postgres has six.
const MAX_BRACKETS: usize = 16;

/// The word of the language that a token is, in no quotes.
pub(super) fn keyword(token: &Token) -> Keyword {
    match token {
        Token::Word(word) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    }
}

/// The places of tokens that are no white space.
pub(super) fn said(tokens: &[TokenWithSpan]) -> Vec<usize> {
    (0..tokens.len()).filter(|place| !matches!(tokens[*place].token, Token::Whitespace(_))).collect()
}

/// How large a text is.
pub(super) struct TokenCount {
    /// At most so many tokens.
    pub n_tokens: usize,
    /// Whether there is a comment between `/*` and `*/`.
    pub has_comment: bool,
}

/// Counts without keeping: what is too large is refused before it takes memory.
///
/// Errors: a limit; letters behind a number, which the tokenizer takes for a name.
pub(super) fn size(sql: &str) -> Result<TokenCount, ParseError> {
    let bytes = sql.as_bytes();
    let (mut at, mut n_tokens, mut n_selects, mut has_comment) = (0, 0, 0, false);
    while at < bytes.len() {
        let start = at;
        at = match bytes[at] {
            b'\'' => end_of_quoted(bytes, at, b'\'', start > 0 && matches!(bytes[start - 1], b'e' | b'E')),
            b'"' => end_of_quoted(bytes, at, b'"', false),
            b'-' if bytes.get(at + 1) == Some(&b'-') => end_of_line(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                has_comment = true;
                end_of_comment(bytes, at)
            }
            b'$' => end_of_dollars(bytes, at).unwrap_or(at + 1),
            byte if is_word(byte) => {
                bytes[at..].iter().position(|byte| !is_word(*byte)).map_or(bytes.len(), |n| at + n)
            }
            _ => at + 1,
        };
        if bytes[start].is_ascii_digit()
            && let Some(literal) = junk(bytes, start..at)
        {
            let place = &sql[sql.floor_char_boundary(literal.start)..sql.ceil_char_boundary(literal.end)];
            let kind = if place.starts_with('$') { "parameter" } else { "numeric literal" };
            let message = format!("trailing junk after {kind} at or near \"{place}\"");
            return Err(ParseError::Syntax(ParserError::ParserError(message)));
        }
        n_tokens += 1;
        if is_part(&bytes[start..at]) {
            n_selects += 1;
        }
    }
    match () {
        () if n_tokens > MAX_TOKENS => Err(ParseError::TooLarge(Limit::Tokens)),
        () if n_selects > MAX_SELECTS => Err(ParseError::TooLarge(Limit::Selects)),
        () => Ok(TokenCount { n_tokens, has_comment }),
    }
}

/// Where a number or parameter stands that has letters behind it: `123abc`, `0x1F`, `1_000`, `0.a`, `1.5e`, `$1a`.
/// `word` begins with a digit.
fn junk(bytes: &[u8], word: Range<usize>) -> Option<Range<usize>> {
    let before = word.start.checked_sub(1).map(|at| bytes[at]);
    let n_digits = bytes[word.clone()].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let behind = &bytes[word.start + n_digits..word.end];
    if before == Some(b'$') {
        // `a$1b` is a name.
        let is_name = word.start.checked_sub(2).is_some_and(|at| is_word(bytes[at]));
        return (!behind.is_empty() && !is_name).then_some(word.start - 1..word.end);
    }
    let is_fraction = before == Some(b'.');
    match behind {
        // `0.a`, but `0.5` and `0.e5`.
        [] if !is_fraction && bytes.get(word.end) == Some(&b'.') => {
            let start = word.end + 1;
            let rest = bytes[start..].iter().take_while(|byte| is_word(**byte)).count();
            let rest = start..start + rest;
            let is_junk = bytes.get(start).is_some_and(|byte| is_word(*byte) && !byte.is_ascii_digit());
            (is_junk && !is_exponent(bytes, rest.clone())).then_some(word.start..rest.end)
        }
        [] => None,
        _ => (!is_exponent(bytes, word.start + n_digits..word.end)).then_some(word),
    }
}

/// `e5`, or `e` before `+5`.
fn is_exponent(bytes: &[u8], word: Range<usize>) -> bool {
    match &bytes[word.clone()] {
        [b'e' | b'E'] => {
            let sign = bytes.get(word.end).is_some_and(|byte| matches!(byte, b'+' | b'-'));
            sign && bytes.get(word.end + 1).is_some_and(u8::is_ascii_digit)
        }
        [b'e' | b'E', digits @ ..] => digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// Whether a word begins another statement or query.
fn is_part(word: &[u8]) -> bool {
    match word.len() {
        1 => word == b";",
        5 => word.eq_ignore_ascii_case(b"union"),
        6 => word.eq_ignore_ascii_case(b"select") || word.eq_ignore_ascii_case(b"except"),
        9 => word.eq_ignore_ascii_case(b"intersect"),
        _ => false,
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn end_of_quoted(bytes: &[u8], start: usize, quote: u8, has_escapes: bool) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if has_escapes => at += 2,
            byte if byte == quote && bytes.get(at + 1) == Some(&quote) => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn end_of_line(bytes: &[u8], start: usize) -> usize {
    bytes[start..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |n| start + n)
}

fn end_of_comment(bytes: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start + 2, 1);
    while depth > 0 && at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => (at, depth) = (at + 2, depth + 1),
            [b'*', b'/', ..] => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
    }
    at
}

/// The end of `$tag$ … $tag$`; `None` for a parameter.
fn end_of_dollars(bytes: &[u8], start: usize) -> Option<usize> {
    let tag_end = start + 1 + bytes[start + 1..].iter().position(|byte| !is_word(*byte))?;
    if bytes[tag_end] != b'$' || bytes[start + 1].is_ascii_digit() {
        return None;
    }
    let tag = &bytes[start..=tag_end];
    let rest = &bytes[tag_end + 1..];
    let end = rest.windows(tag.len()).position(|window| window == tag);
    Some(end.map_or(bytes.len(), |n| tag_end + 1 + n + tag.len()))
}

/// The tokens of a text, with their places.
pub(super) fn tokens(dialect: &PgDialect, sql: &str, size: &TokenCount) -> Result<Vec<TokenWithSpan>, ParseError> {
    let mut tokens = Vec::with_capacity(size.n_tokens);
    let tokenized = Tokenizer::new(dialect, sql).tokenize_with_location_into_buf(&mut tokens);
    tokenized.map_err(|error| ParseError::Syntax(ParserError::from(error)))?;
    if tokens.iter().any(|token| split(&token.token).is_some()) {
        let halves = tokens.into_iter().flat_map(|token| match split(&token.token) {
            None => [Some(token), None],
            Some((operator, sign)) => {
                let span = token.span;
                [operator, sign].map(|token| Some(TokenWithSpan { token, span }))
            }
        });
        tokens = halves.flatten().collect();
    }
    check_brackets(&tokens)?;
    if size.has_comment {
        check_continued(&tokens)?;
    }
    weaken_locks(&mut tokens);
    Ok(tokens)
}

/// `FOR NO KEY UPDATE` is read as `FOR UPDATE`, `FOR KEY SHARE` as `FOR SHARE`, which the parser knows: there are no
/// foreign keys, for which PostgreSQL tells them apart.
fn weaken_locks(tokens: &mut Vec<TokenWithSpan>) {
    let keyword = |token: &TokenWithSpan| match &token.token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.keyword),
        _ => None,
    };
    let mut at = 0;
    while let Some(found) = tokens[at..].iter().position(|token| keyword(token) == Some(Keyword::FOR)) {
        at += found + 1;
        let behind = |place: usize| {
            let mut words = tokens.iter().enumerate().skip(place);
            words
                .find(|(_, token)| !matches!(token.token, Token::Whitespace(_)))
                .map(|(place, token)| (place, keyword(token)))
        };
        let mut last = behind(at);
        if let Some((place, Some(Keyword::NO))) = last {
            last = behind(place + 1);
        }
        let Some((key, Some(Keyword::KEY))) = last else { continue };
        if let Some((end, Some(Keyword::UPDATE | Keyword::SHARE))) = behind(key + 1) {
            tokens.drain(at..end);
        }
    }
}

/// `>-` is `>` and `-`.
fn split(token: &Token) -> Option<(Token, Token)> {
    let Token::CustomBinaryOperator(text) = token else { return None };
    let (operator, sign) = match text.strip_suffix('-') {
        Some(operator) => (operator, Token::Minus),
        None => (text.strip_suffix('+')?, Token::Plus),
    };
    let operator = match operator {
        "<" => Token::Lt,
        ">" => Token::Gt,
        "=" => Token::Eq,
        "<=" => Token::LtEq,
        ">=" => Token::GtEq,
        "<>" | "!=" => Token::Neq,
        "+" => Token::Plus,
        "-" => Token::Minus,
        "*" => Token::Mul,
        "/" => Token::Div,
        "%" => Token::Mod,
        "^" => Token::Caret,
        "||" => Token::StringConcat,
        "|" => Token::Pipe,
        "&" => Token::Ampersand,
        "#" => Token::Sharp,
        "<<" => Token::ShiftLeft,
        ">>" => Token::ShiftRight,
        "~" => Token::Tilde,
        "->" => Token::Arrow,
        "->>" => Token::LongArrow,
        _ => return None,
    };
    Some((operator, sign))
}

/// A text goes on in the next line, but not behind a comment.
fn check_continued(tokens: &[TokenWithSpan]) -> Result<(), ParseError> {
    let (mut is_text, mut has_comment) = (false, false);
    for token in tokens {
        match &token.token {
            Token::Whitespace(Whitespace::MultiLineComment(_)) => has_comment = true,
            Token::Whitespace(_) => {}
            Token::SingleQuotedString(text) if is_text && has_comment => {
                let message = format!("at or near \"'{text}'\"{}", token.span.start);
                return Err(ParseError::Syntax(ParserError::ParserError(message)));
            }
            other => (is_text, has_comment) = (matches!(other, Token::SingleQuotedString(_)), false),
        }
    }
    Ok(())
}

/// Each bracket of a type is a box around what is before it: thousands are refused before the parser builds them.
fn check_brackets(tokens: &[TokenWithSpan]) -> Result<(), ParseError> {
    let mut run = 0;
    for token in tokens {
        match &token.token {
            Token::RBracket => run += 1,
            Token::LBracket | Token::Number(..) | Token::Whitespace(_) => {}
            Token::Word(word) if word.keyword == Keyword::ARRAY => run += 1,
            _ => run = 0,
        }
        if run > MAX_BRACKETS {
            return Err(ParseError::TooLarge(Limit::Brackets));
        }
    }
    Ok(())
}
