//! Which sets of keys are in each other? `GROUPING SETS (a, GROUPING SETS (b, ()))`, which the parser reads on the
//! first level alone.
//!
//! Before it reads, what is on the inner levels is written as calls, of [`GROUPING_SETS`] and, for `()`, of
//! [`NO_KEYS`]; whoever plans the SELECT writes them out.

use crate::sqlparser::keywords::Keyword;
use crate::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::tokens::{keyword, said};

/// `GROUPING SETS (…)` among sets of keys.
pub const GROUPING_SETS: &str = "tarn_grouping_sets";
/// `()` among them.
pub const NO_KEYS: &str = "tarn_no_keys";

/// Writes the inner levels as calls. Cost: proportional to the tokens.
pub(super) fn write_groupings(tokens: &mut Vec<TokenWithSpan>) {
    if tokens.iter().filter(|token| keyword(&token.token) == Keyword::GROUPING).nth(1).is_none() {
        return;
    }
    let said = said(tokens);
    let token = |at: usize| said.get(at).map(|place| &tokens[*place].token);
    let word = |at: usize| token(at).map_or(Keyword::NoKeyword, keyword);
    // Of each open parenthesis, on which level of sets it is.
    let (mut open, mut level_of_next): (Vec<usize>, usize) = (vec![], 0);
    // By the place of a token: what stands there instead, or before it.
    let mut written: Vec<(usize, usize, &'static str)> = vec![];
    for at in 0..said.len() {
        match token(at) {
            Some(Token::LParen) => {
                let level = open.last().copied().unwrap_or(0);
                if level > 1 && token(at + 1) == Some(&Token::RParen) && !matches!(token(at - 1), Some(Token::Word(_)))
                {
                    written.push((said[at], 0, NO_KEYS));
                }
                open.push(std::mem::take(&mut level_of_next));
            }
            Some(Token::RParen) => drop(open.pop()),
            _ if word(at) == Keyword::GROUPING
                && word(at + 1) == Keyword::SETS
                && token(at + 2) == Some(&Token::LParen) =>
            {
                let level = open.last().copied().unwrap_or(0);
                level_of_next = level + 1;
                if level > 0 {
                    written.push((said[at], said[at + 1] - said[at] + 1, GROUPING_SETS));
                }
            }
            _ => {}
        }
    }
    if written.is_empty() {
        return;
    }
    let mut written = written.into_iter().peekable();
    let mut n_left_out = 0;
    for (place, token) in std::mem::take(tokens).into_iter().enumerate() {
        if let Some((_, n, name)) = written.next_if(|(at, ..)| *at == place) {
            tokens.push(TokenWithSpan { token: Token::make_word(name, None), span: token.span });
            n_left_out = n;
        }
        match n_left_out {
            0 => tokens.push(token),
            _ => n_left_out -= 1,
        }
    }
}
