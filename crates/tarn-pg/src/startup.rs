//! Which settings does a client bring along? Those of `options` in the startup message, which libpq fills from
//! PGOPTIONS.
//!
//! ```text
//! -c name=value    -cname=value    --name=value    words are parted by blanks; a backslash keeps what is behind it
//! ```

use tarn_sql::error::{Result, SqlError, state};

/// Name and value of each setting, in order.
///
/// Errors: 42601 for any other switch of Postgres' server, of which there are none here.
pub fn settings(options: &str) -> Result<Vec<(String, String)>> {
    let mut settings = Vec::new();
    let mut words = words(options).into_iter();
    while let Some(word) = words.next() {
        let setting = match word.strip_prefix("--") {
            Some(setting) => setting.to_owned(),
            None => match word.strip_prefix("-c") {
                Some("") => words.next().ok_or_else(|| wrong("-c requires a setting".to_owned()))?,
                Some(setting) => setting.to_owned(),
                None => {
                    return Err(wrong(format!("invalid command-line argument for server process: {}", shown(&word)))
                        .with_hint("options takes -c name=value and --name=value"));
                }
            },
        };
        let Some((name, value)) = setting.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(wrong(format!("{} requires a value", shown(&setting))));
        };
        settings.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(settings)
}

/// Errors: 0A000 when a client asks for the protocol of replication.
pub fn check_replication(value: &str) -> Result<()> {
    match ["false", "off", "no", "0"].iter().any(|off| off.eq_ignore_ascii_case(value)) {
        true => Ok(()),
        false => Err(SqlError::unsupported("replication connections are not supported", "connect without replication")),
    }
}

fn words(options: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = options.trim_start();
    while !rest.is_empty() {
        let mut word = String::new();
        let mut chars = rest.char_indices();
        let mut end = rest.len();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => word.extend(chars.next().map(|(_, kept)| kept)),
                blank if blank.is_ascii_whitespace() => {
                    end = at;
                    break;
                }
                plain => word.push(plain),
            }
        }
        words.push(word);
        rest = rest[end..].trim_start();
    }
    words
}

fn wrong(message: String) -> SqlError {
    SqlError::new(state::SYNTAX_ERROR, message)
}

fn shown(word: &str) -> String {
    word.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_words_with_escapes() {
        let of = |options: &str| settings(options).map_err(|error| error.state());
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(of("").unwrap(), []);
        assert_eq!(
            of(r"  -c statement_timeout=5s -cgeqo=off --search-path=public  ").unwrap(),
            [pair("statement_timeout", "5s"), pair("geqo", "off"), pair("search_path", "public")]
        );
        assert_eq!(
            of(r"-c DateStyle=ISO,\ MDY -c application_name=a\\b=c\ ").unwrap(),
            [pair("DateStyle", "ISO, MDY"), pair("application_name", r"a\b=c ")]
        );
        for options in ["-d 5", "x", "-c", "-c geqo", "--geqo", "--=1", "-c =1", "-"] {
            assert_eq!(of(options), Err("42601"), "{options}");
        }
    }
}
