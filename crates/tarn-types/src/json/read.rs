//! Is a text JSON? It is read piece by piece, from left to right; the containers around a piece are a list, not a stack
//! of calls.

/// Containers in each other, at most. PostgreSQL's bound is its stack, some thousands.
pub const MAX_DEPTH: usize = 500;

/// Why a text is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonFault {
    /// It is no JSON.
    Syntax,
    /// Beyond [`MAX_DEPTH`].
    TooDeep,
    /// `\u0000`, which no text holds.
    Nul,
    /// Half of a character: `\ud83d` without the other half.
    Surrogate,
    /// A number with more digits than PostgreSQL's `numeric` has.
    TooManyDigits,
    /// Short numbers that are long when they are written out, as `1e9999`: too many for the length of the text.
    Expands,
}

impl std::fmt::Display for JsonFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Syntax => f.write_str("invalid input syntax"),
            Self::TooDeep => write!(f, "stack depth limit exceeded: more than {MAX_DEPTH} containers in each other"),
            Self::Nul => f.write_str("unsupported Unicode escape sequence: \\u0000 cannot be converted to text"),
            Self::Surrogate => f.write_str("half of a Unicode surrogate pair"),
            Self::TooManyDigits => f.write_str("value overflows numeric format"),
            Self::Expands => f.write_str("numbers with exponents are too long when they are written out"),
        }
    }
}

/// Checks that a text is JSON, as PostgreSQL's `json` takes it: what escapes mean is not looked at.
///
/// # Errors
/// [`JsonFault::Syntax`] and [`JsonFault::TooDeep`].
pub fn check(text: &str) -> Result<(), JsonFault> {
    let mut reader = JsonReader::new(text);
    while reader.next()?.is_some() {}
    Ok(())
}

/// A piece of a JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JsonToken<'a> {
    StartArray,
    StartObject,
    /// Of the innermost container.
    End,
    /// What stands between the quotes of a member's name.
    Name(&'a str),
    /// What stands between the quotes.
    String(&'a str),
    Number(&'a str),
    /// `true`, `false` or `null`.
    Word(&'a str),
}

/// What may come next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ParserState {
    Value,
    /// A value, or the end of the array that has just begun.
    ValueOrEnd,
    NameOrEnd,
    Name,
    CommaOrEnd,
    /// Nothing any more.
    Nothing,
}

/// Gives the pieces in order.
pub(super) struct JsonReader<'a> {
    text: &'a str,
    at: usize,
    next: ParserState,
    /// Of the containers around: whether it is an object.
    around: Vec<bool>,
}

impl<'a> JsonReader<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        JsonReader { text, at: 0, next: ParserState::Value, around: vec![] }
    }

    /// `None` behind the last.
    pub(super) fn next(&mut self) -> Result<Option<JsonToken<'a>>, JsonFault> {
        loop {
            self.skip_blanks();
            let byte = self.peek();
            match self.next {
                ParserState::Nothing => return if byte.is_none() { Ok(None) } else { Err(JsonFault::Syntax) },
                ParserState::ValueOrEnd if byte == Some(b']') => return self.end(),
                ParserState::NameOrEnd | ParserState::CommaOrEnd if byte == Some(self.closing()) => return self.end(),
                ParserState::Value | ParserState::ValueOrEnd => return self.value().map(Some),
                ParserState::NameOrEnd | ParserState::Name => return self.name().map(Some),
                ParserState::CommaOrEnd => {
                    self.expect(b',')?;
                    let is_object = self.around.last() == Some(&true);
                    self.next = if is_object { ParserState::Name } else { ParserState::Value };
                }
            }
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), JsonFault> {
        if self.peek() != Some(byte) {
            return Err(JsonFault::Syntax);
        }
        self.at += 1;
        Ok(())
    }

    fn closing(&self) -> u8 {
        if self.around.last() == Some(&true) { b'}' } else { b']' }
    }

    fn end(&mut self) -> Result<Option<JsonToken<'a>>, JsonFault> {
        self.at += 1;
        self.around.pop();
        self.behind_value();
        Ok(Some(JsonToken::End))
    }

    fn behind_value(&mut self) {
        self.next = if self.around.is_empty() { ParserState::Nothing } else { ParserState::CommaOrEnd };
    }

    fn name(&mut self) -> Result<JsonToken<'a>, JsonFault> {
        let name = self.string()?;
        self.skip_blanks();
        self.expect(b':')?;
        self.next = ParserState::Value;
        Ok(JsonToken::Name(name))
    }

    fn value(&mut self) -> Result<JsonToken<'a>, JsonFault> {
        let piece = match self.peek() {
            Some(b'{') => return self.start(true),
            Some(b'[') => return self.start(false),
            Some(b'"') => JsonToken::String(self.string()?),
            Some(b'-' | b'0'..=b'9') => JsonToken::Number(self.number()?),
            _ => JsonToken::Word(self.word()?),
        };
        self.behind_value();
        Ok(piece)
    }

    fn start(&mut self, is_object: bool) -> Result<JsonToken<'a>, JsonFault> {
        if self.around.len() == MAX_DEPTH {
            return Err(JsonFault::TooDeep);
        }
        self.at += 1;
        self.around.push(is_object);
        self.next = if is_object { ParserState::NameOrEnd } else { ParserState::ValueOrEnd };
        Ok(if is_object { JsonToken::StartObject } else { JsonToken::StartArray })
    }

    fn string(&mut self) -> Result<&'a str, JsonFault> {
        self.expect(b'"')?;
        let start = self.at;
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => self.escape()?,
                Some(b' '..) => self.at += 1,
                _ => return Err(JsonFault::Syntax),
            }
        }
        self.at += 1;
        Ok(&self.text[start..self.at - 1])
    }

    fn escape(&mut self) -> Result<(), JsonFault> {
        let bytes = &self.text.as_bytes()[self.at + 1..];
        self.at += match bytes.first() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 2,
            Some(b'u') if bytes.get(1..5).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) => 6,
            _ => return Err(JsonFault::Syntax),
        };
        Ok(())
    }

    fn digits(&mut self) -> Result<(), JsonFault> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start { Err(JsonFault::Syntax) } else { Ok(()) }
    }

    fn number(&mut self) -> Result<&'a str, JsonFault> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        // `01` and `1x` are no numbers with something behind them.
        match self.peek() {
            Some(byte) if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'+' | b'-' | b'_') => {
                Err(JsonFault::Syntax)
            }
            _ => Ok(&self.text[start..self.at]),
        }
    }

    fn word(&mut self) -> Result<&'a str, JsonFault> {
        let rest = &self.text[self.at..];
        let word =
            ["true", "false", "null"].into_iter().find(|word| rest.starts_with(word)).ok_or(JsonFault::Syntax)?;
        let behind = rest.as_bytes().get(word.len());
        if behind.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_' || !byte.is_ascii()) {
            return Err(JsonFault::Syntax);
        }
        self.at += word.len();
        Ok(&rest[..word.len()])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn json_is_what_the_standard_says() {
        for text in [
            "{}",
            "[]",
            "null",
            " true ",
            "-0",
            "1.5e+10",
            "\"\"",
            "\"\\u12aF\\n\"",
            "[1, [2, {\"a\": [ ]}]]",
            "\t{\"a\":1,\"a\":2}\n",
            "\"\\ud83d\"",
            "\"\\u0000\"",
            "\"ü\"",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        for text in [
            "",
            " ",
            "{",
            "}",
            "[1,]",
            "[,1]",
            "{\"a\"}",
            "{\"a\":}",
            "{a:1}",
            "{\"a\":1,}",
            "01",
            "+1",
            "1.",
            ".5",
            "1e",
            "-",
            "tru",
            "trues",
            "nullü",
            "\"a",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\n\"",
            "1 2",
            "[1 2]",
            "{} {}",
            "'a'",
            "NaN",
            "[1]]",
            "[1}",
            "\u{feff}1",
            "1-2",
        ] {
            assert_eq!(check(text), Err(JsonFault::Syntax), "{text}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert_eq!(check(&nested(MAX_DEPTH)), Ok(()));
        assert_eq!(check(&nested(MAX_DEPTH + 1)), Err(JsonFault::TooDeep));
        assert_eq!(check(&"{\"a\":".repeat(1_000_000)), Err(JsonFault::TooDeep));
    }

    proptest! {
        #[test]
        fn it_agrees_with_another_reader(text in "[-\\[\\]{}\",:0-9a.eE+\\\\ntrulfs ]{0,12}") {
            let other = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
            prop_assert_eq!(check(&text).is_ok(), other);
        }
    }
}
