//! Which words of a statement have a colour? Keywords are bold, texts green and comments grey, on terminals that have
//! them.

use std::borrow::Cow;

use crate::keywords::is_keyword;
use crate::lex::{self, TokenKind};

const BOLD: &str = "\x1b[1m";
const GREEN: &str = "\x1b[32m";
const GREY: &str = "\x1b[90m";
const PLAIN: &str = "\x1b[0m";

/// `text` with colours; as wide as it was.
pub fn highlight(text: &str) -> Cow<'_, str> {
    if text.trim_start().starts_with('\\') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 64);
    for piece in lex::pieces(text) {
        let part = piece.of(text);
        let style = match piece.kind {
            TokenKind::Comment => GREY,
            TokenKind::Text => GREEN,
            TokenKind::Word if is_keyword(part) => BOLD,
            _ => "",
        };
        // A line's end keeps none: the editor counts rows by it.
        let body = part.trim_end_matches('\n');
        if style.is_empty() {
            out.push_str(part);
        } else {
            out.extend([style, body, PLAIN, &part[body.len()..]]);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_texts_and_comments_have_colours() {
        assert_eq!(
            highlight("select 'a', x -- hm\n"),
            "\x1b[1mselect\x1b[0m \x1b[32m'a'\x1b[0m, x \x1b[90m-- hm\x1b[0m\n"
        );
        assert_eq!(highlight("\\d select"), "\\d select");
    }
}
