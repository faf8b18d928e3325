//! Which rows does a window's frame leave out, and how far does it reach? What the parser does not know of a frame is
//! written as it knows it, before it reads:
//!
//! - `OVER (ORDER BY a ROWS 1 PRECEDING EXCLUDE TIES)` has a first partition key more, the call
//!   [`EXCLUDING`]`('ties')`, which whoever plans the window takes out again. `EXCLUDE NO OTHERS` says nothing.
//! - `RANGE '1 year'::interval PRECEDING` and `RANGE '1 year' PRECEDING`, which it would take for intervals that are
//!   written out, stand in parentheses.

use crate::sqlparser::keywords::Keyword;
use crate::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::tokens::{keyword, said};

/// The function whose call says what a frame leaves out: `current row`, `group` or `ties`.
pub const EXCLUDING: &str = "tarn_excluding";

/// Writes the frames of a text as the parser reads them. Cost: proportional to the tokens.
pub(super) fn write_frames(tokens: &mut Vec<TokenWithSpan>) {
    let of_frames = [Keyword::EXCLUDE, Keyword::PRECEDING, Keyword::FOLLOWING];
    if !tokens.iter().any(|token| of_frames.contains(&keyword(&token.token))) {
        return;
    }
    let mut changes = TokenEdits { inserted: vec![], is_left_out: vec![false; tokens.len()] };
    changes.find(tokens);
    changes.inserted.sort_by_key(|(place, _)| *place);
    let mut inserted = changes.inserted.into_iter().peekable();
    for (place, token) in std::mem::take(tokens).into_iter().enumerate() {
        while let Some((_, written)) = inserted.next_if(|(at, _)| *at == place) {
            tokens.extend(written.into_iter().map(|written| TokenWithSpan { token: written, span: token.span }));
        }
        if !changes.is_left_out[place] {
            tokens.push(token);
        }
    }
}

/// What is written otherwise.
struct TokenEdits {
    /// Before the token of this place.
    inserted: Vec<(usize, Vec<Token>)>,
    is_left_out: Vec<bool>,
}

/// What was seen of an open parenthesis, which may be that of a window.
#[derive(Default)]
struct OpenParenthesis {
    /// The first key of `PARTITION BY`.
    first_key: Option<usize>,
    /// Where `ORDER BY` or the frame begins.
    rest: Option<usize>,
    has_frame: bool,
}

impl TokenEdits {
    fn find(&mut self, tokens: &[TokenWithSpan]) {
        let said = said(tokens);
        let token = |at: usize| said.get(at).map(|place| &tokens[*place].token);
        let word = |at: usize| token(at).map_or(Keyword::NoKeyword, keyword);
        let mut open: Vec<OpenParenthesis> = vec![];
        for at in 0..said.len() {
            match token(at) {
                Some(Token::LParen) => open.push(OpenParenthesis::default()),
                Some(Token::RParen) => drop(open.pop()),
                _ => {}
            }
            let Some(window) = open.last_mut() else { continue };
            match word(at) {
                Keyword::PARTITION if word(at + 1) == Keyword::BY => window.first_key = said.get(at + 2).copied(),
                Keyword::ORDER if word(at + 1) == Keyword::BY => window.rest = window.rest.or(Some(said[at])),
                Keyword::ROWS | Keyword::RANGE | Keyword::GROUPS => {
                    (window.rest, window.has_frame) = (window.rest.or(Some(said[at])), true);
                }
                Keyword::PRECEDING | Keyword::FOLLOWING if window.has_frame => {
                    if let Some(first) = offset_of_text(at, &token) {
                        self.inserted.push((said[first], vec![Token::LParen]));
                        self.inserted.push((said[at], vec![Token::RParen]));
                    }
                }
                // Behind the last bound.
                Keyword::EXCLUDE
                    if window.has_frame
                        && matches!(word(at - 1), Keyword::PRECEDING | Keyword::FOLLOWING | Keyword::ROW) =>
                {
                    let (what, n_words) = match (word(at + 1), word(at + 2)) {
                        (Keyword::CURRENT, Keyword::ROW) => (Some("current row"), 2),
                        (Keyword::GROUP, _) => (Some("group"), 1),
                        (Keyword::TIES, _) => (Some("ties"), 1),
                        (Keyword::NO, _) if token(at + 2).is_some_and(is_others) => (None, 2),
                        _ => continue,
                    };
                    if token(at + 1 + n_words) != Some(&Token::RParen) {
                        continue;
                    }
                    said[at..=at + n_words].iter().for_each(|place| self.is_left_out[*place] = true);
                    let Some(what) = what else { continue };
                    match (window.first_key, window.rest) {
                        (Some(key), _) => self.inserted.push((key, [marker(what), vec![Token::Comma]].concat())),
                        (None, Some(rest)) => {
                            let by = ["PARTITION", "BY"].map(Token::make_keyword).to_vec();
                            self.inserted.push((rest, [by, marker(what)].concat()));
                        }
                        (None, None) => {}
                    }
                }
                _ => {}
            }
        }
    }
}

/// The place of the first token of an offset that is a text, or one with its type, before the word at `at`.
fn offset_of_text<'a>(at: usize, token: &impl Fn(usize) -> Option<&'a Token>) -> Option<usize> {
    let before = |n: usize| at.checked_sub(n).and_then(token);
    let is_text = |n: usize| matches!(before(n), Some(Token::SingleQuotedString(_)));
    let begins = |n: usize| {
        let words = [Keyword::BETWEEN, Keyword::AND, Keyword::ROWS, Keyword::RANGE, Keyword::GROUPS];
        before(n).is_some_and(|token| words.contains(&keyword(token)))
    };
    if is_text(1) && begins(2) {
        return Some(at - 1);
    }
    let is_cast = matches!((before(1), before(2)), (Some(Token::Word(_)), Some(Token::DoubleColon)));
    (is_cast && is_text(3) && begins(4)).then(|| at - 3)
}

/// `tarn_excluding('ties')`
fn marker(what: &str) -> Vec<Token> {
    vec![Token::make_word(EXCLUDING, None), Token::LParen, Token::SingleQuotedString(what.to_owned()), Token::RParen]
}

/// A word of Postgres' that sqlparser does not know.
fn is_others(token: &Token) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("others"))
}
