//! By which columns is an answer ordered, and what is the query without its limit?
//!
//! Told from the text: the last ORDER BY and the LIMIT behind it stand outside of all parentheses, and what is ordered
//! by is mostly a column of the answer, by name or number. The first that is none ends the list: behind it nothing is
//! known of the order.

/// Positions in `columns`, the names of the answer's.
pub fn ordered_by(sql: &str, columns: &[String]) -> Vec<usize> {
    let sql = unlimited(sql).unwrap_or(sql);
    let Some(at) = last_outside(sql, "ORDER BY") else { return vec![] };
    let items = split(&sql[at + "ORDER BY".len()..]);
    items.iter().map_while(|item| position(item, columns)).collect()
}

/// Without its LIMIT, if it has one.
pub fn unlimited(sql: &str) -> Option<&str> {
    let at = last_outside(sql, "LIMIT")?;
    let limit = sql[at + "LIMIT".len()..].trim();
    (!limit.is_empty() && limit.bytes().all(|byte| byte.is_ascii_digit())).then(|| sql[..at].trim_end())
}

fn position(item: &str, columns: &[String]) -> Option<usize> {
    let upper = item.to_ascii_uppercase();
    let mut name = item;
    for suffix in [" NULLS FIRST", " NULLS LAST", " ASC", " DESC"] {
        if upper[..name.len()].ends_with(suffix) {
            name = name[..name.len() - suffix.len()].trim_end();
        }
    }
    if let Ok(number) = name.parse::<usize>() {
        return (1..=columns.len()).contains(&number).then(|| number - 1);
    }
    let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let (_, name) = name.rsplit_once('.').unwrap_or(("", name));
    let mut same = columns.iter().enumerate().filter(|(_, column)| column.eq_ignore_ascii_case(name));
    let found = same.next().filter(|_| is_name(name))?;
    // Of two columns of one name nobody knows which is meant.
    same.next().is_none().then_some(found.0)
}

/// At commas outside of parentheses.
fn split(list: &str) -> Vec<String> {
    let (mut items, mut depth) = (vec![String::new()], 0);
    for c in list.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        match (c, items.last_mut()) {
            (',', _) if depth == 0 => items.push(String::new()),
            (c, Some(item)) => item.push(if c.is_whitespace() { ' ' } else { c }),
            (_, None) => {}
        }
    }
    items.iter().map(|item| item.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// Where `words` begin for the last time outside of parentheses.
fn last_outside(sql: &str, words: &str) -> Option<usize> {
    let (mut depth, mut found) = (0, None);
    for (at, byte) in sql.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ if depth == 0 && sql.as_bytes()[at..].len() >= words.len() => {
                let here = &sql.as_bytes()[at..at + words.len()];
                if here.eq_ignore_ascii_case(words.as_bytes()) {
                    found = Some(at);
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sql: &str, columns: &[&str]) -> Vec<usize> {
        ordered_by(sql, &columns.iter().map(|column| (*column).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn columns_are_named_or_numbered() {
        assert_eq!(of("SELECT b, a FROM t ORDER BY a DESC NULLS FIRST,\n t.b LIMIT 100", &["b", "a"]), [1, 0]);
        assert_eq!(of("SELECT b, a FROM t ORDER BY 2, 1", &["b", "a"]), [1, 0]);
        assert_eq!(of("SELECT a, count(*) FROM t ORDER BY a, count(*), a", &["a", "count_star()"]), [0]);
        assert_eq!(of("SELECT a FROM (SELECT a FROM t ORDER BY a) x", &["a"]), [0; 0]);
        assert_eq!(of("SELECT a, a FROM t ORDER BY a", &["a", "a"]), [0; 0]);
        assert_eq!(of("SELECT a FROM t ORDER BY 3", &["a"]), [0; 0]);
    }

    #[test]
    fn the_limit_that_ends_a_query_is_taken_off() {
        assert_eq!(unlimited("SELECT 1 ORDER BY 1\nLIMIT 100 "), Some("SELECT 1 ORDER BY 1"));
        assert_eq!(unlimited("SELECT * FROM (SELECT 1 LIMIT 100) x"), None);
        assert_eq!(unlimited("SELECT 1"), None);
    }
}
