//! Where does one SQL statement end? Splits text at semicolons that stand outside quotes, dollar quotes and comments.

/// The complete statements in `text` (without their semicolon, blank ones left out), and the rest that is not yet ended.
pub fn statements(text: &str) -> (Vec<&str>, &str) {
    let mut found = Vec::new();
    let mut start = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with(';') {
            found.push(&text[start..at]);
            start = at + 1;
        }
        at += token_len(rest);
    }
    found.retain(|statement| !is_blank(statement));
    (found, &text[start..])
}

/// Nothing but space and comments.
pub fn is_blank(text: &str) -> bool {
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let is_comment = rest.starts_with("--") || rest.starts_with("/*");
        if !is_comment && !rest.starts_with(char::is_whitespace) {
            return false;
        }
        at += token_len(rest);
    }
    true
}

/// Length of the piece that `rest` begins with: a quoted text, a comment, or one character. An unended one is all of `rest`.
fn token_len(rest: &str) -> usize {
    let first = rest.chars().next().map_or(1, char::len_utf8);
    let end_of = |open: usize, close: &str| rest[open..].find(close).map_or(rest.len(), |at| open + at + close.len());
    match rest.as_bytes()[0] {
        b'\'' => end_of(1, "'"),
        b'"' => end_of(1, "\""),
        b'-' if rest.starts_with("--") => end_of(2, "\n"),
        b'/' if rest.starts_with("/*") => end_of(2, "*/"),
        b'$' => dollar_tag(rest).map_or(first, |tag| end_of(tag.len(), tag)),
        _ => first,
    }
}

/// `$$` or `$name$`; a parameter such as `$1` is none.
fn dollar_tag(rest: &str) -> Option<&str> {
    let end = rest[1..].find('$')? + 2;
    let name = &rest[1..end - 1];
    let is_name =
        !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    is_name.then(|| &rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semicolons_in_quotes_and_comments_do_not_end_a_statement() {
        let text = "select ';' -- a ; b\n; select \"a;b\" /* ; */;select $$ ; $$; select $x$;$x$ , $1; rest 'o";
        let (found, rest) = statements(text);
        assert_eq!(found.len(), 4, "{found:?}");
        assert_eq!(rest, " rest 'o");
    }

    #[test]
    fn blank_statements_are_left_out() {
        let (found, rest) = statements(";; -- nothing\n ; select 1;");
        assert_eq!(found, [" select 1"]);
        assert!(is_blank(rest));
        assert!(is_blank(" /* x */ -- y"));
        assert!(!is_blank("-- y\nselect"));
    }

    #[test]
    fn any_text_is_taken() {
        for text in ["", "'", "$", "$a", "é;'é", "--", "/*", "$1;$2"] {
            let _ = statements(text);
        }
        assert_eq!(statements("$1;$2").1, "$2");
    }
}
