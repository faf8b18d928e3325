//! What stands between quotes, and how is a text put between them?

use std::borrow::Cow;
use std::fmt::Write;

use super::read::JsonFault;

/// What the escapes of a text between quotes mean. The text is from a JSON text that was checked.
///
/// # Errors
/// [`JsonFault::Nul`] for `\u0000`, [`JsonFault::Surrogate`] for half a character, [`JsonFault::Syntax`] for what is no
/// escape.
pub fn unescape(raw: &str) -> Result<Cow<'_, str>, JsonFault> {
    let Some(first) = raw.find('\\') else { return Ok(Cow::Borrowed(raw)) };
    let mut out = String::with_capacity(raw.len());
    out.push_str(&raw[..first]);
    let mut rest = &raw[first..];
    while let Some(escape) = rest.strip_prefix('\\') {
        let letter = match escape.as_bytes().first() {
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let (letter, n_bytes) = code_point(rest)?;
                out.push(letter);
                rest = next_escape(&rest[n_bytes..], &mut out);
                continue;
            }
            Some(letter @ (b'"' | b'\\' | b'/')) => char::from(*letter),
            _ => return Err(JsonFault::Syntax),
        };
        out.push(letter);
        rest = next_escape(&escape[1..], &mut out);
    }
    Ok(Cow::Owned(out))
}

/// Takes what stands before the next escape.
fn next_escape<'a>(rest: &'a str, out: &mut String) -> &'a str {
    let end = rest.find('\\').unwrap_or(rest.len());
    out.push_str(&rest[..end]);
    &rest[end..]
}

/// The character of one `\u1234`, or of the two that are halves, and how many bytes they are.
fn code_point(escape: &str) -> Result<(char, usize), JsonFault> {
    let unit = |at: usize| {
        let digits = escape.get(at..at + 6).and_then(|escape| escape.strip_prefix("\\u"))?;
        u32::from_str_radix(digits, 16).ok()
    };
    let first = unit(0).ok_or(JsonFault::Syntax)?;
    match first {
        0 => Err(JsonFault::Nul),
        0xD800..0xDC00 => match unit(6) {
            Some(second @ 0xDC00..0xE000) => {
                let code = 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                Ok((char::from_u32(code).ok_or(JsonFault::Surrogate)?, 12))
            }
            _ => Err(JsonFault::Surrogate),
        },
        _ => Ok((char::from_u32(first).ok_or(JsonFault::Surrogate)?, 6)),
    }
}

/// Appends a text between quotes, with the escapes that PostgreSQL writes.
pub fn quote(text: &str, out: &mut String) {
    out.push('"');
    let mut start = 0;
    for (at, byte) in text.bytes().enumerate() {
        if byte >= b' ' && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.push_str(&text[start..at]);
        start = at + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            0x8 => out.push_str("\\b"),
            0xC => out.push_str("\\f"),
            byte => {
                let _ = write!(out, "\\u{byte:04x}");
            }
        }
    }
    out.push_str(&text[start..]);
    out.push('"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escapes_are_characters() {
        let of = |raw: &'static str| unescape(raw).map(Cow::into_owned);
        assert_eq!(of("plain ü"), Ok("plain ü".to_owned()));
        assert_eq!(of("\\\"\\\\\\/\\b\\f\\n\\r\\t"), Ok("\"\\/\u{8}\u{c}\n\r\t".to_owned()));
        assert_eq!(of("a\\u00e9b\\ud83d\\ude00c"), Ok("aéb😀c".to_owned()));
        assert_eq!(of("\\u0000"), Err(JsonFault::Nul));
        for half in ["\\ud83d", "\\ude00", "\\ud83d\\ud83d", "\\ud83dx", "\\ude00\\ud83d", "\\ud83d\\n"] {
            assert_eq!(of(half), Err(JsonFault::Surrogate), "{half}");
        }
    }

    proptest! {
        #[test]
        fn what_is_quoted_comes_back(text in "[^\\x00]{0,20}") {
            let mut quoted = String::new();
            quote(&text, &mut quoted);
            prop_assert_eq!(super::super::check(&quoted), Ok(()));
            prop_assert_eq!(unescape(&quoted[1..quoted.len() - 1]).unwrap(), text);
        }

        #[test]
        fn no_text_panics(raw in "[\\\\ud8e0-9a-fü\"]{0,24}") {
            let _ = unescape(&raw);
        }
    }
}
