//! Which fields are in a text that is a row? `(1,"a b",)` has three, the last of which is NULL.
//!
//! Source: PostgreSQL 15, "Composite Types", section "Composite Type Input and Output Syntax"; its `record_in`.

use crate::error::{Result, SqlError, state};

/// The texts of the fields; NULL is `None`.
///
/// Errors: `22P02` for what is no row, or of another number of fields. Cost: its length.
pub(super) fn fields_of_text(text: &str, n_fields: usize) -> Result<Vec<Option<String>>> {
    let malformed = |why: &str| {
        let message = format!("malformed record literal: \"{text}\"");
        SqlError::new(state::INVALID_TEXT, message).with_detail(why)
    };
    let is_blank = |letter: char| letter.is_ascii_whitespace() || letter == '\u{b}';
    let Some(inside) = text.trim_start_matches(is_blank).strip_prefix('(') else {
        return Err(malformed("Missing left parenthesis."));
    };
    let mut letters = inside.chars().peekable();
    let mut fields = Vec::with_capacity(n_fields);
    if n_fields == 0 {
        return match letters.next() {
            Some(')') if letters.all(is_blank) => Ok(fields),
            Some(')') => Err(malformed("Junk after right parenthesis.")),
            _ => Err(malformed("Too many columns.")),
        };
    }
    loop {
        let is_null = matches!(letters.peek(), Some(',' | ')'));
        let (mut field, mut is_quoted) = (String::new(), false);
        loop {
            match letters.peek() {
                None => return Err(malformed("Unexpected end of input.")),
                Some(',' | ')') if !is_quoted => break,
                _ => {}
            }
            match letters.next() {
                Some('\\') => match letters.next() {
                    Some(letter) => field.push(letter),
                    None => return Err(malformed("Unexpected end of input.")),
                },
                // Two of them between quotes are one.
                Some('"') if is_quoted && letters.next_if_eq(&'"').is_some() => field.push('"'),
                Some('"') => is_quoted = !is_quoted,
                Some(letter) => field.push(letter),
                None => {}
            }
        }
        fields.push((!is_null).then_some(field));
        match letters.next() {
            Some(',') if fields.len() == n_fields => return Err(malformed("Too many columns.")),
            Some(',') => {}
            _ if fields.len() < n_fields => return Err(malformed("Too few columns.")),
            _ if letters.all(is_blank) => return Ok(fields),
            _ => return Err(malformed("Junk after right parenthesis.")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str, n_fields: usize) -> Vec<Option<String>> {
        fields_of_text(text, n_fields).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn fields_are_parted_as_in_postgres() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(read(" (1,\"a b\",) ", 3), [some("1"), some("a b"), None]);
        assert_eq!(read("(\"\",)", 2), [some(""), None]);
        assert_eq!(read("( a ,\"say \"\"x\"\", \\\\y\")", 2), [some(" a "), some("say \"x\", \\y")]);
        assert_eq!(read("(Jo\"e,\"Blow)", 1), [some("Joe,Blow")]);
        assert_eq!(read("()", 1), [None]);
        assert_eq!(read("()", 0), []);
    }

    #[test]
    fn what_is_no_row_is_refused_with_the_reason() {
        for (text, n_fields, why) in [
            ("Joe,Blow", 2, "Missing left parenthesis."),
            ("", 1, "Missing left parenthesis."),
            ("(Joe,,)", 2, "Too many columns."),
            ("(Joe)", 2, "Too few columns."),
            ("(Joe,,", 2, "Too many columns."),
            ("(Joe,", 2, "Unexpected end of input."),
            ("(Joe,\\", 2, "Unexpected end of input."),
            ("(Joe,Blow) /", 2, "Junk after right parenthesis."),
            ("(1)", 0, "Too many columns."),
        ] {
            let error = fields_of_text(text, n_fields).expect_err(text);
            assert_eq!((error.state(), error.detail()), (state::INVALID_TEXT, Some(why)), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[()\",\\\\a ü]{0,16}", n_fields in 0..4_usize) {
            let _ = fields_of_text(&text, n_fields);
        }
    }
}
