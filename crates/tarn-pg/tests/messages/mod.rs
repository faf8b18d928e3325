//! What clients say, byte by byte. Used by the tests of the server too.

pub fn message(kind: char, body: &[u8]) -> Vec<u8> {
    let mut message = vec![kind as u8];
    message.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    message.extend_from_slice(body);
    message
}

pub fn query(sql: &str) -> Vec<u8> {
    message('Q', format!("{sql}\0").as_bytes())
}

pub fn parse(name: &str, sql: &str) -> Vec<u8> {
    message('P', format!("{name}\0{sql}\0\0\0").as_bytes())
}

/// Without parameters.
pub fn bind(portal: &str, statement: &str) -> Vec<u8> {
    message('B', format!("{portal}\0{statement}\0\0\0\0\0\0\0").as_bytes())
}

pub fn execute(portal: &str, max_rows: i32) -> Vec<u8> {
    let mut body = format!("{portal}\0").into_bytes();
    body.extend_from_slice(&max_rows.to_be_bytes());
    message('E', &body)
}

pub fn sync() -> Vec<u8> {
    message('S', b"")
}
