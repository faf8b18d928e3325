//! Are two answers the same?
//!
//! Integers, decimals, dates and texts must be equal; what the other side has as a float (averages and quotients, which
//! are decimals here) must be equal to nine digits or to the last digit that a decimal shows. Rows must come in the
//! query's order; rows that are equal in it may change places.

use anyhow::{Result, ensure};
use serde_json::Value;

/// Of floats, relative.
const TOLERANCE: f64 = 1e-9;

/// Ours and theirs, of one query.
pub fn same(ours: &[Vec<String>], theirs: &[Vec<Value>], ordered_by: &[usize]) -> Result<()> {
    same_order(ours, theirs, ordered_by)?;
    same_rows(ours, theirs)
}

/// As many rows, of the same columns, equal in those by which they are ordered.
pub fn same_order(ours: &[Vec<String>], theirs: &[Vec<Value>], ordered_by: &[usize]) -> Result<()> {
    ensure!(ours.len() == theirs.len(), "{} rows, want {}", ours.len(), theirs.len());
    for (idx, (our_row, their_row)) in ours.iter().zip(theirs).enumerate() {
        ensure!(our_row.len() == their_row.len(), "row {idx} has {} cells, want {}", our_row.len(), their_row.len());
        let ordered = ordered_by.iter().all(|column| same_cell(&our_row[*column], &their_row[*column]));
        ensure!(ordered, "row {idx} in the query's order is {our_row:?}, want {their_row:?}");
    }
    Ok(())
}

/// The same rows in any order. There are as many of both.
fn same_rows(ours: &[Vec<String>], theirs: &[Vec<Value>]) -> Result<()> {
    // By what is exact on both sides, so that equal rows meet.
    let n_columns = theirs.first().map_or(0, Vec::len);
    let exact = |column: &usize| !theirs.iter().any(|row| row[*column].is_number());
    let exact: Vec<usize> = (0..n_columns).filter(exact).collect();
    let (mut ours, mut theirs): (Vec<_>, Vec<_>) = (ours.iter().collect(), theirs.iter().collect());
    ours.sort_by_cached_key(|row| exact.iter().map(|column| plain(&row[*column])).collect::<Vec<_>>());
    theirs.sort_by_cached_key(|row| {
        exact.iter().map(|column| row[*column].as_str().map(plain).unwrap_or_default()).collect::<Vec<_>>()
    });
    for (our_row, their_row) in ours.into_iter().zip(theirs) {
        let differs = our_row.iter().zip(their_row).position(|(our, their)| !same_cell(our, their));
        ensure!(differs.is_none(), "column {} of {our_row:?}, want {their_row:?}", differs.unwrap_or_default());
    }
    Ok(())
}

fn same_cell(ours: &str, theirs: &Value) -> bool {
    match theirs {
        Value::Null => ours.is_empty(),
        Value::Number(number) => {
            let (Ok(ours_number), Some(theirs)) = (ours.parse::<f64>(), number.as_f64()) else { return false };
            let digits = ours.split_once('.').map_or(0, |(_, fraction)| fraction.len() as i32);
            let last_digit = if ours.contains('.') { 10_f64.powi(-digits) } else { 0.0 };
            (ours_number - theirs).abs() <= (TOLERANCE * theirs.abs()).max(last_digit)
        }
        Value::String(theirs) => plain(ours) == plain(theirs),
        _ => false,
    }
}

/// A number without zeros that say nothing; other texts as they are.
fn plain(text: &str) -> String {
    let is_decimal = text.contains('.') && text.bytes().all(|byte| byte.is_ascii_digit() || b".-".contains(&byte));
    let short = if is_decimal { text.trim_end_matches('0').trim_end_matches('.') } else { text };
    if short == "-0" { "0".to_owned() } else { short.to_owned() }
}

/// Against the benchmark's own answers at scale factor 1: lines of cells, numbers with two decimals.
pub fn same_as_reference(ours: &[Vec<String>], reference: &str) -> Result<()> {
    // The first line has the columns' names.
    let lines: Vec<&str> = reference.lines().filter(|line| !line.trim().is_empty()).skip(1).collect();
    ensure!(ours.len() == lines.len(), "{} rows, the reference has {}", ours.len(), lines.len());
    for (idx, (row, line)) in ours.iter().zip(&lines).enumerate() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let equal = row.len() == cells.len() && row.iter().zip(&cells).all(|(our, their)| close(our.trim(), their));
        ensure!(equal, "row {idx} is {row:?}, the reference has {cells:?}");
    }
    Ok(())
}

fn close(ours: &str, reference: &str) -> bool {
    match (ours.parse::<f64>(), reference.parse::<f64>()) {
        (Ok(ours), Ok(theirs)) if reference.contains('.') => (ours - theirs).abs() <= 0.01 + TOLERANCE * theirs.abs(),
        (Ok(ours), Ok(theirs)) => ours == theirs,
        _ => ours == reference,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rows(cells: &[&[&str]]) -> Vec<Vec<String>> {
        cells.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect()
    }

    #[test]
    fn decimals_are_exact_and_floats_nearly() {
        let ours = rows(&[&["1.500", "0.333333", "1996-01-01", "7"]]);
        assert!(
            same(&ours, &[vec![json!("1.5"), json!(0.3333333333333), json!("1996-01-01"), json!("7")]], &[0]).is_ok()
        );
        assert!(
            same(&ours, &[vec![json!("1.51"), json!(0.3333333333333), json!("1996-01-01"), json!("7")]], &[]).is_err()
        );
        assert!(same(&ours, &[vec![json!("1.5"), json!(0.33334), json!("1996-01-01"), json!("7")]], &[]).is_err());
        assert!(same(&rows(&[&["70"]]), &[vec![json!("7")]], &[]).is_err());
        assert!(same(&rows(&[&[""]]), &[vec![json!(null)]], &[]).is_ok());
    }

    #[test]
    fn rows_keep_the_order_but_for_ties() {
        let ours = rows(&[&["a", "1"], &["a", "2"], &["b", "3"]]);
        let tied = [vec![json!("a"), json!("2")], vec![json!("a"), json!("1")], vec![json!("b"), json!("3")]];
        assert!(same(&ours, &tied, &[0]).is_ok());
        assert!(same(&ours, &tied, &[0, 1]).is_err());
        let swapped = [vec![json!("b"), json!("3")], vec![json!("a"), json!("1")], vec![json!("a"), json!("2")]];
        assert!(same(&ours, &swapped, &[0]).is_err());
        assert!(same(&ours, &tied[..2], &[0]).is_err());
    }

    #[test]
    fn reference_answers_have_two_decimals() {
        let ours = rows(&[&["A", "25.522006", "3"]]);
        assert!(same_as_reference(&ours, "\nf|avg|n\nA|25.52|3\n").is_ok());
        assert!(same_as_reference(&ours, "\nf|avg|n\nA|25.54|3\n").is_err());
        assert!(same_as_reference(&ours, "\nf|avg|n\nA|25.52|4\n").is_err());
    }
}
