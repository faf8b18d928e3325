//! Which arguments are the items of an array? `concat(a, VARIADIC ARRAY[b, c])`. The parser does not know the word.
//!
//! Before it reads, the array is written as a call of [`VARIADIC`], which whoever plans the call around it writes out.

use crate::sqlparser::keywords::Keyword;
use crate::sqlparser::tokenizer::{Token, TokenWithSpan};

/// The call that says it.
pub const VARIADIC: &str = "tarn_variadic";

/// Writes the arrays as calls. Cost: proportional to the tokens.
pub(super) fn write_variadic(tokens: &mut Vec<TokenWithSpan>) {
    if !tokens.iter().any(|token| is_variadic(&token.token)) {
        return;
    }
    // Of each open parenthesis, whether such an array ends with it.
    let mut open: Vec<bool> = vec![];
    let mut begins_argument = false;
    for token in std::mem::take(tokens) {
        let write = |written: Token| TokenWithSpan { token: written, span: token.span };
        match &token.token {
            of if is_variadic(of) && begins_argument && open.last() == Some(&false) => {
                tokens.extend([write(Token::make_word(VARIADIC, None)), write(Token::LParen)]);
                open.pop();
                open.push(true);
                begins_argument = false;
                continue;
            }
            Token::LParen => open.push(false),
            Token::RParen if open.pop() == Some(true) => tokens.push(write(Token::RParen)),
            _ => {}
        }
        if !matches!(token.token, Token::Whitespace(_)) {
            begins_argument = matches!(token.token, Token::LParen | Token::Comma);
        }
        tokens.push(token);
    }
}

fn is_variadic(token: &Token) -> bool {
    match token {
        Token::Word(word) if word.quote_style.is_none() => {
            word.keyword == Keyword::VARIADIC || word.value.eq_ignore_ascii_case("variadic")
        }
        _ => false,
    }
}
