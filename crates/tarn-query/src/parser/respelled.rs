//! How is read what PostgreSQL writes and sqlparser does not know? In other words of the same meaning, which take its
//! place among the tokens:
//!
//! | written | read |
//! |---|---|
//! | `ORDER BY a USING <`, `USING >` | `ORDER BY a ASC`, `DESC` |
//! | `trim(BOTH FROM a)`, `trim(FROM a)` | `trim(BOTH a)`, `trim(a)` |
//! | `substring(a SIMILAR b ESCAPE c)` | `substring(a FROM b FOR c)` |
//! | `f(a, VARIADIC b)` | `f(a, VARIADIC => b)` |
//! | `FROM ONLY t`, `UPDATE ONLY t` | `FROM t`, `UPDATE t`: no table inherits from another |
//! | `RESET TIME ZONE` | `RESET timezone` |
//! | `U&'d\0061t'` | `'dat'` |
//! | `(v).*` | `(v)."*"`: no field of a row is called so |

use crate::sqlparser::keywords::Keyword;
use crate::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::tokens::keyword;

/// Changes the tokens of a text. Cost: a look at each of them, and a copy of the list where something may have to be
/// changed.
pub(super) fn respell(tokens: &mut Vec<TokenWithSpan>) {
    let is_star = |tokens: &[TokenWithSpan]| {
        matches!([0, 1, 2].map(|at| &tokens[at].token), [Token::RParen, Token::Period, Token::Mul])
    };
    if tokens.iter().any(|token| may_change(&token.token)) || tokens.windows(3).any(is_star) {
        let read = TokenRewriter { open: vec![], read: Vec::with_capacity(tokens.len() + 8) };
        *tokens = read.of(std::mem::take(tokens));
    }
}

fn may_change(token: &Token) -> bool {
    use Keyword::{BOTH, LEADING, ONLY, RESET, SIMILAR, TRAILING, TRIM, USING, VARIADIC};
    const WORDS: [Keyword; 9] = [BOTH, LEADING, ONLY, RESET, SIMILAR, TRAILING, TRIM, USING, VARIADIC];
    match token {
        Token::UnicodeStringLiteral(_) => true,
        token => WORDS.contains(&keyword(token)),
    }
}

/// What a parenthesis that is open belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ParenthesisKind {
    /// `substring (`
    Substring,
    /// The same, behind SIMILAR.
    Similar,
    Other,
}

struct TokenRewriter {
    open: Vec<ParenthesisKind>,
    read: Vec<TokenWithSpan>,
}

impl TokenRewriter {
    fn of(mut self, tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
        let mut tokens = tokens.into_iter();
        while let Some(token) = tokens.next() {
            let rest = tokens.as_slice();
            let next = |n: usize| significant(rest).nth(n);
            let n_gone = match &token.token {
                Token::LParen => {
                    let is_substring = matches!(self.last(0), Some(Keyword::SUBSTRING | Keyword::SUBSTR));
                    self.open.push(if is_substring { ParenthesisKind::Substring } else { ParenthesisKind::Other });
                    self.keep(token)
                }
                Token::RParen => {
                    self.open.pop();
                    self.keep(token)
                }
                Token::Mul
                    if self.last_token(0) == Some(&Token::Period) && self.last_token(1) == Some(&Token::RParen) =>
                {
                    self.put(Token::make_word("*", Some('"')), &token)
                }
                Token::UnicodeStringLiteral(text) if next(0).map(keyword) != Some(Keyword::UESCAPE) => {
                    let text = Token::SingleQuotedString(text.clone());
                    self.put(text, &token)
                }
                Token::Word(word) if word.quote_style.is_none() => match word.keyword {
                    Keyword::USING if matches!(next(0), Some(Token::Lt | Token::Gt)) => {
                        let order = if next(0) == Some(&Token::Lt) { "ASC" } else { "DESC" };
                        self.put(Token::make_keyword(order), &token);
                        n_until(rest, 1)
                    }
                    Keyword::BOTH | Keyword::LEADING | Keyword::TRAILING
                        if self.is_behind_open(Keyword::TRIM) && next(0).map(keyword) == Some(Keyword::FROM) =>
                    {
                        self.keep(token);
                        n_until(rest, 1)
                    }
                    Keyword::FROM if self.is_behind_open(Keyword::TRIM) => 0,
                    Keyword::SIMILAR
                        if self.open.last() == Some(&ParenthesisKind::Substring)
                            && next(0).map(keyword) != Some(Keyword::TO) =>
                    {
                        self.open.pop();
                        self.open.push(ParenthesisKind::Similar);
                        self.put(Token::make_keyword("FROM"), &token)
                    }
                    Keyword::ESCAPE if self.open.last() == Some(&ParenthesisKind::Similar) => {
                        self.put(Token::make_keyword("FOR"), &token)
                    }
                    Keyword::VARIADIC
                        if matches!(self.last_token(0), Some(Token::LParen | Token::Comma))
                            && next(0) != Some(&Token::RArrow) =>
                    {
                        let arrow = TokenWithSpan { token: Token::RArrow, span: token.span };
                        self.keep(token);
                        self.keep(arrow)
                    }
                    Keyword::ONLY
                        if matches!(self.last(0), Some(Keyword::FROM | Keyword::JOIN | Keyword::UPDATE))
                            && matches!(next(0), Some(Token::Word(_) | Token::LParen)) =>
                    {
                        0
                    }
                    Keyword::TIME
                        if self.last(0) == Some(Keyword::RESET) && next(0).map(keyword) == Some(Keyword::ZONE) =>
                    {
                        self.put(Token::make_keyword("TIMEZONE"), &token);
                        n_until(rest, 1)
                    }
                    _ => self.keep(token),
                },
                _ => self.keep(token),
            };
            tokens.by_ref().take(n_gone).for_each(drop);
        }
        self.read
    }

    /// No token behind it is left out.
    fn keep(&mut self, token: TokenWithSpan) -> usize {
        self.read.push(token);
        0
    }

    fn put(&mut self, token: Token, instead_of: &TokenWithSpan) -> usize {
        self.keep(TokenWithSpan { token, span: instead_of.span })
    }

    /// The n-th last token that was read, without blanks.
    fn last_token(&self, n: usize) -> Option<&Token> {
        let all = self.read.iter().rev().map(|token| &token.token);
        all.filter(|token| !matches!(token, Token::Whitespace(_))).nth(n)
    }

    fn last(&self, n: usize) -> Option<Keyword> {
        self.last_token(n).map(keyword)
    }

    fn is_behind_open(&self, word: Keyword) -> bool {
        self.last_token(0) == Some(&Token::LParen) && self.last(1) == Some(word)
    }
}

fn significant(tokens: &[TokenWithSpan]) -> impl Iterator<Item = &Token> {
    tokens.iter().map(|token| &token.token).filter(|token| !matches!(token, Token::Whitespace(_)))
}

/// How many tokens there are up to the n-th that is no blank, with it.
fn n_until(tokens: &[TokenWithSpan], n: usize) -> usize {
    let mut places = tokens.iter().enumerate().filter(|(_, token)| !matches!(token.token, Token::Whitespace(_)));
    places.nth(n.saturating_sub(1)).map_or(tokens.len(), |(at, _)| at + 1)
}

#[cfg(test)]
mod tests {
    use crate::parser::statements;

    #[test]
    fn what_postgres_writes_is_read_as_what_it_means() {
        for (written, read) in [
            ("SELECT a FROM t ORDER BY a USING <, b using >", "SELECT a FROM t ORDER BY a ASC, b DESC"),
            ("SELECT a FROM t JOIN u USING (a)", "SELECT a FROM t JOIN u USING(a)"),
            (
                "SELECT trim(BOTH FROM a), trim(trailing FROM a), trim(FROM a), trim(BOTH 'x' FROM a)",
                "SELECT TRIM(BOTH a), TRIM(TRAILING a), TRIM(a), TRIM(BOTH 'x' FROM a)",
            ),
            ("SELECT substring(a SIMILAR b ESCAPE '#')", "SELECT SUBSTRING(a FROM b FOR '#')"),
            (
                "SELECT substring((a SIMILAR TO b ESCAPE '#')::text, 1)",
                "SELECT SUBSTRING((a SIMILAR TO b ESCAPE '#')::TEXT, 1)",
            ),
            ("SELECT concat_ws(',', VARIADIC a)", "SELECT concat_ws(',', VARIADIC => a)"),
            (
                "SELECT * FROM ONLY t JOIN only u ON true FETCH FIRST 1 ROW ONLY",
                "SELECT * FROM t JOIN u ON true LIMIT 1",
            ),
            ("DELETE FROM ONLY t", "DELETE FROM t"),
            ("UPDATE ONLY t SET a = 1", "UPDATE t SET a = 1"),
            ("RESET TIME ZONE", "RESET timezone"),
            ("SELECT U&'d\\0061t'", "SELECT 'dat'"),
            ("SELECT (v).*, t.*, 2 * (3)", "SELECT (v).\"*\", t.*, 2 * (3)"),
        ] {
            let statement = statements(written).unwrap().remove(0).to_string();
            assert_eq!(statement.to_lowercase(), read.to_lowercase());
        }
    }
}
