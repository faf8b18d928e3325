//! How does an answer look? As a table, as records below each other, or as lines for programs.
//!
//! A table that is wider than the terminal is cut (`…`), never broken by the terminal; numbers are not cut. Where
//! columns would have less than [`MIN_CUT`] places, each row is shown as a record with its values whole. Texts that are
//! read line by line, as the plans of `EXPLAIN`, are wrapped instead.

use std::borrow::Cow;
use std::fmt::Write;

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The fewest places that a column is cut to.
pub const MIN_CUT: usize = 12;

/// One row: values as text, NULL as none.
pub type Row = Vec<Option<String>>;

/// How an answer should look.
#[derive(Debug, Clone)]
pub struct DisplayOptions {
    /// Places of a line of the terminal; none: as wide as it is
    pub width: Option<usize>,
    /// Records instead of a table
    pub expanded: ExpandedMode,
    /// Wrap what is too wide, instead of cutting it
    pub is_wrapped: bool,
    /// Names of columns above the values
    pub has_header: bool,
    /// What stands for NULL
    pub null: String,
}

/// When rows are shown as records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpandedMode {
    /// Always.
    On,
    /// Never.
    Off,
    /// When a table would have to be cut too much
    Auto,
}

impl Default for DisplayOptions {
    fn default() -> DisplayOptions {
        DisplayOptions {
            width: None,
            expanded: ExpandedMode::Off,
            is_wrapped: false,
            has_header: true,
            null: "∅".to_owned(),
        }
    }
}

/// What becomes of an answer under a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultLayout {
    /// All of it fits
    Table,
    /// A table with cut values
    Cut,
    /// A table with values over several lines
    Wrapped,
    /// A record a row
    Records,
}

/// Which shape these rows take.
pub fn shape(header: &[String], rows: &[Row], look: &DisplayOptions) -> ResultLayout {
    if look.expanded == ExpandedMode::On {
        return ResultLayout::Records;
    }
    let widths = natural_widths(header, rows, look);
    let Some(places) = look.width.map(|width| width.saturating_sub(borders(header.len()))) else {
        return ResultLayout::Table;
    };
    if widths.iter().sum::<usize>() <= places {
        return ResultLayout::Table;
    }
    if look.is_wrapped {
        return ResultLayout::Wrapped;
    }
    let numeric = numeric_columns(header, rows);
    let least = |idx: usize| if numeric[idx] { widths[idx] } else { widths[idx].min(MIN_CUT) };
    let can_be_cut = (0..header.len()).map(least).sum::<usize>() <= places;
    match look.expanded {
        ExpandedMode::Auto if !can_be_cut => ResultLayout::Records,
        _ => ResultLayout::Cut,
    }
}

/// The rows as text that ends with a line's end. `first` is the number of the first row, from 1.
pub fn render(header: &[String], rows: &[Row], look: &DisplayOptions, first: u64) -> String {
    match shape(header, rows, look) {
        ResultLayout::Records => records(header, rows, look, first),
        shape => table(header, rows, look, shape),
    }
}

/// A table as wide as its values.
pub fn plain_table(header: &[String], rows: &[Row]) -> String {
    table(header, rows, &DisplayOptions::default(), ResultLayout::Table)
}

/// Names and values with `|` between them, a row a line.
pub fn unaligned<'a>(cells: impl Iterator<Item = Option<&'a str>>, null: &str) -> String {
    let texts = cells.map(|cell| match cell {
        Some(text) => text,
        None => null,
    });
    texts.collect::<Vec<&str>>().join("|")
}

/// A line of CSV. NULL is empty, an empty text is quoted.
pub fn csv_line<'a>(cells: impl Iterator<Item = Option<&'a str>>) -> String {
    let quoted = cells.map(|cell| match cell {
        None => Cow::Borrowed(""),
        Some("") => Cow::Borrowed("\"\""),
        Some(text) if text.contains([',', '"', '\n', '\r']) => Cow::Owned(format!("\"{}\"", text.replace('"', "\"\""))),
        Some(text) => Cow::Borrowed(text),
    });
    quoted.collect::<Vec<_>>().join(",")
}

/// `6001215` → `6,001,215`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (idx, digit) in digits.chars().enumerate() {
        if idx > 0 && (digits.len() - idx).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn table(header: &[String], rows: &[Row], look: &DisplayOptions, shape: ResultLayout) -> String {
    let widths = match (shape, look.width) {
        (ResultLayout::Table, _) | (_, None) => None,
        (_, Some(width)) => Some(shared(header, rows, look, width.saturating_sub(borders(header.len())))),
    };
    let fitted = |idx: usize, text: String| match (&widths, shape) {
        (None, _) => text,
        (Some(widths), ResultLayout::Wrapped) => lines(&text, |line, out| wrap(line, widths[idx], out)),
        (Some(widths), _) => lines(&text, |line, out| out.push(cut(line, widths[idx]).into_owned())),
    };
    let numeric = numeric_columns(header, rows);
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Disabled);
    if look.has_header {
        table.set_header(header.iter().enumerate().map(|(idx, name)| fitted(idx, shown(name))));
    }
    for row in rows {
        table.add_row(row.iter().enumerate().map(|(idx, cell)| {
            let text = fitted(idx, cell.as_deref().map_or_else(|| look.null.clone(), shown));
            let alignment = if numeric.get(idx) == Some(&true) { CellAlignment::Right } else { CellAlignment::Left };
            Cell::new(text).set_alignment(alignment)
        }));
    }
    format!("{table}\n")
}

fn records(header: &[String], rows: &[Row], look: &DisplayOptions, first: u64) -> String {
    let names: Vec<String> = header.iter().map(|name| shown(name).replace('\n', " ")).collect();
    let name_width = names.iter().map(|name| name.width()).max().unwrap_or(0);
    let mut text = String::new();
    for (number, row) in (first..).zip(rows) {
        if look.has_header {
            let _ = writeln!(text, "─[ {number} ]{}", "─".repeat(name_width.saturating_sub(4) + 4));
        }
        for (name, cell) in names.iter().zip(row) {
            let padding = " ".repeat(name_width - name.width());
            let value = cell.as_deref().map_or_else(|| look.null.clone(), shown);
            let value = value.replace('\n', &format!("\n{} │ ", " ".repeat(name_width)));
            let _ = writeln!(text, "{}", format!("{name}{padding} │ {value}").trim_end());
        }
    }
    text
}

/// Places that frames and the space beside values take.
fn borders(n_columns: usize) -> usize {
    3 * n_columns + 1
}

fn natural_widths(header: &[String], rows: &[Row], look: &DisplayOptions) -> Vec<usize> {
    let width = |text: &str| shown(text).lines().map(|line| line.width()).max().unwrap_or(0);
    let of_column = |idx: usize| {
        let cells = rows.iter().filter_map(|row| row.get(idx));
        let widest = cells.map(|cell| cell.as_deref().map_or_else(|| look.null.width(), width)).max().unwrap_or(0);
        widest.max(if look.has_header { width(&header[idx]) } else { 0 })
    };
    (0..header.len()).map(of_column).collect()
}

/// `places` shared between the columns: what is narrower than its fair part stays as it is, the others share the rest.
fn shared(header: &[String], rows: &[Row], look: &DisplayOptions, places: usize) -> Vec<usize> {
    let natural = natural_widths(header, rows, look);
    let mut widths = natural.clone();
    let numeric = numeric_columns(header, rows);
    let kept = (0..natural.len()).filter(|idx| numeric[*idx]).map(|idx| natural[idx]).sum();
    let mut left = places.saturating_sub(kept);
    let mut open: Vec<usize> = (0..natural.len()).filter(|idx| !numeric[*idx]).collect();
    // From the narrowest on: once one is wider than its part, all that follow are.
    open.sort_by_key(|idx| natural[*idx]);
    for (done, idx) in open.iter().enumerate() {
        let part = left / (open.len() - done);
        widths[*idx] = natural[*idx].min(part.max(1));
        left = left.saturating_sub(widths[*idx]);
    }
    widths
}

/// A line within `width` places; what is cut ends with `…`.
fn cut(line: &str, width: usize) -> Cow<'_, str> {
    if line.width() <= width {
        return Cow::Borrowed(line);
    }
    let (end, _) = end_within(line, width.saturating_sub(1));
    Cow::Owned(format!("{}…", &line[..end]))
}

/// A line as lines within `width` places, broken at spaces where there are some. Those that follow are indented as the
/// first one, and two more.
fn wrap(line: &str, width: usize, out: &mut Vec<String>) {
    let indent = " ".repeat((line.len() - line.trim_start().len() + 2).min(width / 2));
    let mut rest = line;
    let mut head = "";
    while head.len() + rest.width() > width {
        let (end, _) = end_within(rest, width.saturating_sub(head.len()).max(1));
        let ends_a_word = rest[end..].starts_with(' ').then_some(end);
        let begin_of_word = ends_a_word.or_else(|| rest[..end].rfind(' ')).filter(|at| !rest[..*at].trim().is_empty());
        let end = begin_of_word.unwrap_or(end).max(rest.chars().next().map_or(1, char::len_utf8));
        out.push(format!("{head}{}", &rest[..end]));
        rest = rest[end..].trim_start_matches(' ');
        head = &indent;
    }
    out.push(format!("{head}{rest}"));
}

/// How many bytes of `text` fit into `width` places, and how many places they take.
fn end_within(text: &str, width: usize) -> (usize, usize) {
    let mut taken = 0;
    for (at, c) in text.char_indices() {
        let wide = c.width().unwrap_or(0);
        if taken + wide > width {
            return (at, taken);
        }
        taken += wide;
    }
    (text.len(), taken)
}

fn lines(text: &str, each: impl Fn(&str, &mut Vec<String>)) -> String {
    let mut out = Vec::new();
    text.split('\n').for_each(|line| each(line, &mut out));
    out.join("\n")
}

/// A value as a terminal may get it: a tab is spaces, any other control character its number, since it could steer the
/// terminal.
fn shown(text: &str) -> String {
    if !text.contains(|c: char| c.is_control() && c != '\n') {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push(c),
            '\t' => out.push_str("    "),
            _ if c.is_control() => _ = write!(out, "\\x{:02x}", u32::from(c)),
            _ => out.push(c),
        }
    }
    out
}

/// Which columns have numbers alone, and at least one.
fn numeric_columns(header: &[String], rows: &[Row]) -> Vec<bool> {
    let is_numeric = |idx: usize| {
        let mut cells = rows.iter().filter_map(|row| row.get(idx)?.as_deref()).peekable();
        cells.peek().is_some() && cells.all(is_number)
    };
    (0..header.len()).map(is_numeric).collect()
}

fn is_number(text: &str) -> bool {
    let digits = text.trim_start_matches('-');
    digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.chars().all(|c| c.is_ascii_digit() || ".,e+- ".contains(c))
        && !digits.contains('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: &[&str]) -> Row {
        cells.iter().map(|cell| (*cell != "NULL").then(|| (*cell).to_owned())).collect()
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn narrow(width: usize) -> DisplayOptions {
        DisplayOptions { width: Some(width), expanded: ExpandedMode::Auto, ..DisplayOptions::default() }
    }

    #[test]
    fn numbers_stand_right_and_nothing_is_cut_that_fits() {
        let rows = [row(&["Bern", "7.20"]), row(&["日本", "12.50"]), row(&["NULL", "NULL"])];
        let text = render(&names(&["city", "fare"]), &rows, &narrow(80), 1);
        assert_eq!(
            text,
            "┌──────┬───────┐\n│ city ┆ fare  │\n╞══════╪═══════╡\n│ Bern ┆  7.20 │\n│ 日本 ┆ 12.50 │\n│ ∅    ┆     ∅ │\n└──────┴───────┘\n"
        );
    }

    #[test]
    fn long_values_are_cut_and_numbers_are_not() {
        let rows = [row(&["123456789012", &"x".repeat(50), "ab"])];
        let header = names(&["n", "long", "s"]);
        let look = narrow(40);
        assert_eq!(shape(&header, &rows, &look), ResultLayout::Cut);
        let text = render(&header, &rows, &look, 1);
        assert!(text.lines().all(|line| line.width() == 40), "{text}");
        assert!(text.contains("123456789012") && text.contains("x…") && text.contains(" ab "), "{text}");
    }

    #[test]
    fn too_many_columns_become_records() {
        let header = names(&["a", "longer", "c"]);
        let rows = [row(&[&"x".repeat(30), "two\nlines", "NULL"]), row(&["1", &"y".repeat(30), &"z".repeat(30)])];
        let text = render(&header, &rows, &narrow(40), 5);
        assert!(text.starts_with("─[ 5 ]──"), "{text}");
        assert!(text.contains("\nlonger │ two\n       │ lines\nc      │ ∅\n─[ 6 ]"), "{text}");
        let off = DisplayOptions { expanded: ExpandedMode::Off, ..narrow(40) };
        assert_eq!(shape(&header, &rows, &off), ResultLayout::Cut);
        assert_eq!(shape(&header, &rows, &DisplayOptions::default()), ResultLayout::Table);
    }

    #[test]
    fn plans_are_wrapped_with_their_indent() {
        let look = DisplayOptions { is_wrapped: true, ..narrow(30) };
        let text = render(&names(&["plan"]), &[row(&["Scan\n  Filter: city = 'Bern' AND at > now()"])], &look, 1);
        assert!(text.contains("│   Filter: city = 'Bern' A") || text.contains("│   Filter: city = 'Bern'"), "{text}");
        assert!(text.contains("│     AND at > now()"), "{text}");
        assert!(text.lines().all(|line| line.width() <= 30), "{text}");
    }

    #[test]
    fn values_do_not_steer_the_terminal() {
        let text = render(&names(&["a"]), &[row(&["\x1b[2J\tx\r"])], &DisplayOptions::default(), 1);
        assert!(text.contains("\\x1b[2J    x\\x0d") && !text.contains('\x1b'), "{text}");
    }

    #[test]
    fn lines_for_programs() {
        assert_eq!(csv_line([Some("a,b"), None, Some(""), Some("x\"y")].into_iter()), "\"a,b\",,\"\",\"x\"\"y\"");
        assert_eq!(unaligned([Some("a"), None].into_iter(), ""), "a|");
        assert_eq!([grouped(0), grouped(999), grouped(6_001_215)], ["0", "999", "6,001,215"]);
        assert!(is_number("-12.5") && is_number("6,001") && !is_number("1996-03-13") && !is_number("x"));
    }
}
