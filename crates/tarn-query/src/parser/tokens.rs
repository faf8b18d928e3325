//! Which tokens does a text have, and how many?
//!
//! The tokenizer is sqlparser's; an operator that it made too long is split as Postgres' lexer does: `a>-1` is `a >
//! -1`, because an operator may end in `-` or `+` only if it has one of `` ~ ! @ # % ^ & | ` ? `` in it. There are no
//! operators of users here, so those that no one knows are split as well: `'a'||-1`, `10%-3`.

use crate::sqlparser::keywords::Keyword;
use crate::sqlparser::parser::ParserError;
use crate::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use super::dialect::PgDialect;
use super::{Limit, MAX_SELECTS, MAX_TOKENS, ParseError};

/// Dimensions of one type or subscript: Postgres has six.
const MAX_BRACKETS: usize = 16;

/// How large a text is.
pub(super) struct Size {
    /// At most so many tokens.
    pub n_tokens: usize,
}

/// Counts without keeping: what is too large is refused before it takes memory.
pub(super) fn size(sql: &str) -> Result<Size, Limit> {
    let bytes = sql.as_bytes();
    let (mut at, mut n_tokens, mut n_selects) = (0, 0, 0);
    while at < bytes.len() {
        let start = at;
        at = match bytes[at] {
            b'\'' => end_of_quoted(bytes, at, b'\'', start > 0 && matches!(bytes[start - 1], b'e' | b'E')),
            b'"' => end_of_quoted(bytes, at, b'"', false),
            b'-' if bytes.get(at + 1) == Some(&b'-') => end_of_line(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'*') => end_of_comment(bytes, at),
            b'$' => end_of_dollars(bytes, at).unwrap_or(at + 1),
            byte if is_word(byte) => {
                bytes[at..].iter().position(|byte| !is_word(*byte)).map_or(bytes.len(), |n| at + n)
            }
            _ => at + 1,
        };
        n_tokens += 1;
        if is_part(&bytes[start..at]) {
            n_selects += 1;
        }
    }
    match () {
        () if n_tokens > MAX_TOKENS => Err(Limit::Tokens),
        () if n_selects > MAX_SELECTS => Err(Limit::Selects),
        () => Ok(Size { n_tokens }),
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
pub(super) fn tokens(dialect: &PgDialect, sql: &str, n_tokens: usize) -> Result<Vec<TokenWithSpan>, ParseError> {
    let mut tokens = Vec::with_capacity(n_tokens);
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
    weaken_locks(&mut tokens);
    Ok(tokens)
}

/// `FOR NO KEY UPDATE` is read as `FOR UPDATE`, `FOR KEY SHARE` as `FOR SHARE`, which the parser knows: there are no foreign keys, for which
/// PostgreSQL tells them apart.
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
