//! What is `UPDATE t SET doc['a'][0] = '1'`? The whole value with a part that is another: before the parser reads it,
//! which knows whole columns alone, it is written as `SET doc = tarn_assigned(t.doc, '1', 'a', 0)`, a call of
//! [`ASSIGNED`]. What it means is for whoever plans it.

use crate::sqlparser::keywords::Keyword;
use crate::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

use super::tokens::{keyword, said};

/// A value, what its part becomes, and the steps that lead there.
pub const ASSIGNED: &str = "tarn_assigned";

/// Words and points of a name with its alias, `d.s.t AS x`, are fewer.
const MAX_NAME: usize = 8;

/// Writes assignments to parts as calls. Cost: proportional to the tokens.
pub(super) fn write_assigned(tokens: &mut Vec<TokenWithSpan>) {
    let has = |wanted: fn(&Token) -> bool| tokens.iter().any(|token| wanted(&token.token));
    if !has(|token| *token == Token::LBracket) || !has(|token| keyword(token) == Keyword::UPDATE) {
        return;
    }
    let said = said(tokens);
    let mut found = AssignmentScanner {
        tokens: tokens.as_slice(),
        said: &said,
        depth: 0,
        lists: vec![],
        is_update: false,
        table: None,
        assigned: vec![],
    };
    for at in 0..said.len() {
        found.look(at);
    }
    let assigned = found.assigned;
    if !assigned.is_empty() {
        *tokens = written(tokens, assigned);
    }
}

/// An assignment: places of tokens, each behind the one before.
struct PartAssignment {
    column: usize,
    /// What the table is called.
    table: Option<usize>,
    /// What is between each pair of brackets.
    steps: Vec<std::ops::Range<usize>>,
    equals: usize,
    /// Behind the value.
    end: usize,
}

struct AssignmentScanner<'a> {
    tokens: &'a [TokenWithSpan],
    /// Places of the tokens that mean something.
    said: &'a [usize],
    depth: usize,
    /// At which depth each list of assignments is that has not ended.
    lists: Vec<usize>,
    /// Whether UPDATE was said, and SET not yet.
    is_update: bool,
    /// Of the last table that is written to, where its name or alias stands.
    table: Option<usize>,
    assigned: Vec<PartAssignment>,
}

impl<'a> AssignmentScanner<'a> {
    fn token(&self, at: usize) -> Option<&'a Token> {
        self.said.get(at).map(|place| &self.tokens[*place].token)
    }

    fn word(&self, at: usize) -> Keyword {
        self.token(at).map_or(Keyword::NoKeyword, keyword)
    }

    fn look(&mut self, at: usize) {
        let is_in_list = self.lists.last() == Some(&self.depth);
        match self.token(at) {
            Some(Token::LParen | Token::LBracket) => self.depth += 1,
            Some(Token::RParen | Token::RBracket) => {
                self.lists.retain(|depth| *depth < self.depth);
                self.depth = self.depth.saturating_sub(1);
            }
            Some(Token::SemiColon) => (self.depth, self.is_update) = (0, false),
            Some(Token::Comma) if is_in_list => self.begin(at + 1),
            _ => match self.word(at) {
                Keyword::UPDATE => {
                    self.is_update = true;
                    // `DO UPDATE SET` is of the table of its INSERT.
                    self.table = self.called(at + 1).or(self.table);
                }
                Keyword::INTO => self.table = self.called(at + 1),
                Keyword::SET if std::mem::take(&mut self.is_update) => {
                    self.lists.push(self.depth);
                    self.begin(at + 1);
                }
                _ if is_in_list && self.ends(at) => drop(self.lists.pop()),
                _ => {}
            },
        }
    }

    /// Where the name of a table ends that begins there, or its alias.
    fn called(&self, at: usize) -> Option<usize> {
        let is_part = |at: usize| match self.token(at) {
            Some(Token::Period) => true,
            Some(Token::Word(word)) => {
                let ends =
                    [Keyword::SET, Keyword::VALUES, Keyword::SELECT, Keyword::DEFAULT, Keyword::WITH, Keyword::USING];
                word.quote_style.is_some() || !ends.contains(&word.keyword)
            }
            _ => false,
        };
        let n_parts = (at..self.said.len()).take(MAX_NAME).take_while(|at| is_part(*at)).count();
        let last = n_parts.checked_sub(1).filter(|_| n_parts < MAX_NAME)?;
        Some(self.said[at + last])
    }

    /// Whether what stands there ends a list of assignments on its level.
    fn ends(&self, at: usize) -> bool {
        match self.word(at) {
            Keyword::WHERE | Keyword::RETURNING => true,
            Keyword::FROM => at.checked_sub(1).is_none_or(|before| self.word(before) != Keyword::DISTINCT),
            _ => false,
        }
    }

    /// An assignment begins there.
    fn begin(&mut self, at: usize) {
        if !matches!(self.token(at), Some(Token::Word(_))) {
            return;
        }
        let (mut next, mut steps) = (at + 1, vec![]);
        while self.token(next) == Some(&Token::LBracket) {
            let Some(close) = self.until(next + 1, |found, at| found.token(at) == Some(&Token::RBracket)) else {
                return;
            };
            // A slice has no one step.
            if close == next + 1 || (next..close).any(|at| self.token(at) == Some(&Token::Colon)) {
                return;
            }
            steps.push(self.said[next + 1]..self.said[close]);
            next = close + 1;
        }
        if steps.is_empty() || self.token(next) != Some(&Token::Eq) {
            return;
        }
        let is_end = |found: &Self, at: usize| {
            let is_closed = matches!(found.token(at), Some(Token::RParen | Token::Comma | Token::SemiColon) | None);
            is_closed || found.ends(at)
        };
        let end = self.until(next + 1, is_end).and_then(|end| self.said.get(end).copied());
        let end = end.unwrap_or(self.tokens.len());
        self.assigned.push(PartAssignment {
            column: self.said[at],
            table: self.table,
            steps,
            equals: self.said[next],
            end,
        });
    }

    /// The first place from there on, on that level, of which it is true.
    fn until(&self, from: usize, is_there: impl Fn(&Self, usize) -> bool) -> Option<usize> {
        let mut depth = 0_usize;
        for at in from..=self.said.len() {
            if depth == 0 && is_there(self, at) {
                return Some(at);
            }
            match self.token(at) {
                Some(Token::LParen | Token::LBracket) => depth += 1,
                Some(Token::RParen | Token::RBracket) => depth = depth.checked_sub(1)?,
                _ => {}
            }
        }
        None
    }
}

fn written(tokens: &[TokenWithSpan], assigned: Vec<PartAssignment>) -> Vec<TokenWithSpan> {
    let mut out = Vec::with_capacity(tokens.len() + 16 * assigned.len());
    let mut done = 0;
    for PartAssignment { column, table, steps, equals, end } in assigned {
        out.extend_from_slice(&tokens[done..=column]);
        let span = tokens[column].span;
        let put = |out: &mut Vec<TokenWithSpan>, token: Token| out.push(TokenWithSpan { token, span });
        [Token::Whitespace(Whitespace::Space), Token::Eq, Token::make_word(ASSIGNED, None), Token::LParen]
            .into_iter()
            .for_each(|token| put(&mut out, token));
        if let Some(table) = table {
            out.push(tokens[table].clone());
            put(&mut out, Token::Period);
        }
        out.push(tokens[column].clone());
        put(&mut out, Token::Comma);
        out.extend_from_slice(&tokens[equals + 1..end]);
        for step in steps {
            put(&mut out, Token::Comma);
            out.extend_from_slice(&tokens[step]);
        }
        put(&mut out, Token::RParen);
        put(&mut out, Token::Whitespace(Whitespace::Space));
        done = end;
    }
    out.extend_from_slice(&tokens[done..]);
    out
}

#[cfg(test)]
mod tests {
    use crate::parser::statements;

    #[test]
    fn assignments_to_parts_are_calls() {
        for (written, read) in [
            (
                "UPDATE t SET a = 1, doc['x'][i + 1] = '{\"b\": [1, 2]}'::jsonb WHERE id = b[1]",
                "UPDATE t SET a = 1, doc = tarn_assigned(t.doc, '{\"b\": [1, 2]}'::JSONB, 'x', i + 1) WHERE id = b[1]",
            ),
            ("UPDATE t SET doc[0] = f(a, b)", "UPDATE t SET doc = tarn_assigned(t.doc, f(a, b), 0)"),
            (
                "INSERT INTO t VALUES (1) ON CONFLICT (id) DO UPDATE SET doc['n'] = NULL, a = 2 RETURNING doc",
                "INSERT INTO t VALUES (1) ON CONFLICT(id) DO UPDATE SET doc = tarn_assigned(t.doc, NULL, 'n'), a = 2 RETURNING doc",
            ),
            (
                "UPDATE s.t AS x SET doc['a'] = u.a FROM u WHERE u.a IS DISTINCT FROM x.a",
                "UPDATE s.t AS x SET doc = tarn_assigned(x.doc, u.a, 'a') FROM u WHERE u.a IS DISTINCT FROM x.a",
            ),
        ] {
            assert_eq!(statements(written).unwrap()[0].to_string(), read);
        }
        for sql in ["SELECT a, b[1] = 2 FROM t FOR UPDATE", "SELECT 1; SELECT a, b[1] = 2"] {
            assert!(!statements(sql).unwrap_or_default().iter().any(|one| one.to_string().contains("tarn_assigned")));
        }
        assert!(statements("UPDATE t SET a[1:2] = b").is_err());
    }
}
