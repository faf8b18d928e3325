//! Where does a part of a text end? `08-Jan-1999 04:05:06.789-8` is a date, a time and a zone.
//!
//! Blanks and commas part; what a number is, year or seconds, is said later, by what stands around it.

use super::words;

/// More parts than any date, time or interval has.
const MAX_FIELDS: usize = 25;

/// What a part looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldKind {
    /// `1999-01-08`, `8-jan-1999`, `jan-08-1999`, but also `america/new_york` and `est5edt`.
    Date,
    /// Digits with a colon among them.
    Time,
    /// Digits, and perhaps one point.
    Number,
    /// Letters.
    Word,
    /// Digits behind a sign: a zone, or what is negative of an interval.
    Signed,
    /// Letters behind a sign.
    SignedWord,
}

/// One part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field<'a> {
    pub(super) kind: FieldKind,
    /// In lower case, without its sign.
    pub(super) text: &'a str,
    /// Whether its sign was a minus.
    pub(super) is_negative: bool,
}

/// The parts of a text in lower case. `None`: nothing has such parts.
pub(super) fn fields(text: &str) -> Option<Vec<Field<'_>>> {
    let bytes = text.as_bytes();
    let mut fields = vec![];
    let mut at = 0;
    while let Some(&first) = bytes.get(at) {
        let while_is = |from: usize, is: &dyn Fn(u8) -> bool| {
            bytes[from..].iter().position(|byte| !is(*byte)).map_or(bytes.len(), |n| from + n)
        };
        let is_digit = |byte: u8| byte.is_ascii_digit();
        let (mut start, mut is_negative) = (at, false);
        let (kind, end) = match first {
            b'0'..=b'9' => {
                let end = while_is(at, &is_digit);
                match bytes.get(end).copied() {
                    Some(b':') => (FieldKind::Time, while_is(end, &|b| is_digit(b) || matches!(b, b':' | b'.'))),
                    Some(part @ (b'-' | b'/' | b'.')) if bytes.get(end + 1).is_some_and(u8::is_ascii_digit) => {
                        let second = while_is(end + 1, &is_digit);
                        match bytes.get(second) {
                            Some(next) if *next == part => {
                                (FieldKind::Date, while_is(second, &|b| is_digit(b) || b == part))
                            }
                            _ => (if part == b'.' { FieldKind::Number } else { FieldKind::Date }, second),
                        }
                    }
                    Some(part @ (b'-' | b'/' | b'.')) => {
                        (FieldKind::Date, while_is(end, &|b| b.is_ascii_alphanumeric() || b == part))
                    }
                    _ => (FieldKind::Number, end),
                }
            }
            b'.' => (FieldKind::Number, while_is(at + 1, &is_digit)),
            b'a'..=b'z' => {
                let end = while_is(at, &|b| b.is_ascii_lowercase());
                let is_date = match bytes.get(end) {
                    Some(b'-' | b'/' | b'.') => true,
                    Some(b'+' | b'0'..=b'9') => words::of_dates(&text[at..end]).is_none(),
                    _ => false,
                };
                let in_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'/' | b'_' | b'.' | b':');
                if is_date { (FieldKind::Date, while_is(end, &in_name)) } else { (FieldKind::Word, end) }
            }
            b'+' | b'-' => {
                is_negative = first == b'-';
                start = while_is(at + 1, &|b| b.is_ascii_whitespace());
                match bytes.get(start) {
                    Some(b'0'..=b'9') => {
                        (FieldKind::Signed, while_is(start, &|b| is_digit(b) || matches!(b, b':' | b'.' | b'-')))
                    }
                    Some(b'a'..=b'z') => (FieldKind::SignedWord, while_is(start, &|b| b.is_ascii_lowercase())),
                    _ => return None,
                }
            }
            other if other.is_ascii_whitespace() || other.is_ascii_punctuation() => {
                at += 1;
                continue;
            }
            _ => return None,
        };
        if fields.len() == MAX_FIELDS {
            return None;
        }
        fields.push(Field { kind, text: &text[start..end], is_negative });
        at = end;
    }
    Some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_into_its_parts() {
        let shown = |text: &str| {
            let fields = fields(text).unwrap();
            let shown = fields
                .iter()
                .map(|field| format!("{:?} {}{}", field.kind, if field.is_negative { "-" } else { "" }, field.text));
            shown.collect::<Vec<_>>().join(", ")
        };
        assert_eq!(shown("08-jan-1999 04:05:06.789-8"), "Date 08-jan-1999, Time 04:05:06.789, Signed -8");
        assert_eq!(shown("jan 8, 1999 america/new_york"), "Word jan, Number 8, Number 1999, Date america/new_york");
        assert_eq!(shown("j2451187 pst8pdt"), "Word j, Number 2451187, Date pst8pdt");
        assert_eq!(shown("1.5 .5 1.2.3 - 08"), "Number 1.5, Number .5, Date 1.2.3, Signed -08");
        assert_eq!(shown("+infinity"), "SignedWord infinity");
        for text in ["- ", "10:00 +", "ä"] {
            assert_eq!(fields(text), None, "{text}");
        }
    }
}
