//! What does the planner's complaint mean to a client of PostgreSQL?
//!
//! DataFusion tells a plan that cannot be made by a sentence alone. Here the sentences that statements of users bring
//! about have PostgreSQL's SQLSTATE and words; any other stays as it is (42000). What tables, columns and functions are
//! missing is found elsewhere (`session/prepare.rs`).

use datafusion::common::Column;
use tarn_query::datafusion;
use tarn_types::full_name;

use crate::error::{SqlError, state};

/// Columns that an error lists.
const MAX_LISTED: usize = 12;

/// The error of a name of which there is no column among these: `42P01` where there is no table of that name, either.
pub(crate) fn no_column(name: &Column, columns: &[Column]) -> SqlError {
    let table = |column: &Column| column.relation.as_ref().map(|of| full_name::bare(of.table()).to_owned());
    let (state, message) = match table(name) {
        None => (state::UNDEFINED_COLUMN, format!("column \"{}\" does not exist", name.name)),
        Some(of) if columns.iter().any(|column| table(column).as_ref() == Some(&of)) => {
            (state::UNDEFINED_COLUMN, format!("column {of}.{} does not exist", name.name))
        }
        Some(of) => (state::UNDEFINED_TABLE, format!("missing FROM-clause entry for table \"{of}\"")),
    };
    let shown = |column: &Column| match table(column) {
        Some(of) => format!("{of}.{}", column.name),
        None => column.name.clone(),
    };
    let mut listed: Vec<String> = columns.iter().take(MAX_LISTED).map(shown).collect();
    if columns.len() > MAX_LISTED {
        listed.push("…".to_owned());
    }
    let error = SqlError::new(state, message);
    if listed.is_empty() { error } else { error.with_hint(format!("there are {}", listed.join(", "))) }
}

/// What `= ANY` of a value that is no array is told.
pub(crate) const NO_ARRAY: &str = "op ANY/ALL (array) requires array on right side";

/// The error that a sentence of the planner stands for.
pub(crate) fn told(sentence: &str) -> Option<SqlError> {
    // A function of ours was asked for its types: what it said is within.
    if sentence.contains(NO_ARRAY) {
        return Some(SqlError::new(state::WRONG_OBJECT_TYPE, NO_ARRAY));
    }
    if let Some((_, said)) = sentence.split_once("user-defined coercion failed with: ")
        && let Some((_, operator)) = said.split_once("operator does not exist: ")
    {
        let operator = operator.split_once(". ").map_or(operator, |(operator, _)| operator);
        let message = format!("operator does not exist: {operator}");
        return Some(SqlError::new(state::UNDEFINED_FUNCTION, message).with_hint("cast one of them"));
    }
    if let Some((_, said)) = sentence.split_once("user-defined coercion failed with: ")
        && let Some((function, _)) = said.split_once(" does not exist")
        && let Some((_, function)) = function.split_once(": ")
    {
        let hint = "no function has this name and these arguments: cast them";
        return Some(SqlError::new(state::UNDEFINED_FUNCTION, format!("{function} does not exist")).with_hint(hint));
    }
    if let Some((_, parameter)) = sentence.rsplit_once(": Conflicting types for id ") {
        let message = format!("inconsistent types deduced for parameter {parameter}");
        let hint = format!("say its type where it stands, as in {parameter}::text");
        return Some(SqlError::new(state::AMBIGUOUS_PARAMETER, message).with_hint(hint));
    }
    if sentence.contains("frame offsets for ROWS / GROUPS must be non negative integers") {
        let message = "ROWS and GROUPS of an offset that is a parameter, or computed, are not supported";
        return Some(SqlError::unsupported(message, "write the number into the statement"));
    }
    operator(sentence).or_else(|| clause(sentence)).map(|(state, message)| SqlError::new(state, message))
}

type TranslatedMessage = Option<(&'static str, String)>;

/// Of operators and subscripts whose operands have the wrong types.
fn operator(sentence: &str) -> TranslatedMessage {
    let operands = sentence
        .strip_prefix("Cannot infer common string type for string concat operation ")
        .or_else(|| sentence.strip_prefix("Cannot infer common argument type for comparison operation "))
        .or_else(|| sentence.strip_prefix("Cannot coerce arithmetic expression ")?.strip_suffix(" to valid types"));
    if let Some(operands) = operands {
        let (left, rest) = operands.split_once(' ')?;
        // A type may have blanks within its parentheses.
        let (left, rest) = match left.contains('(') && !left.ends_with(')') {
            true => operands.split_at(operands.find(") ")? + 1),
            false => (left, rest),
        };
        let (operator, right) = rest.trim_start().split_once(' ')?;
        let operator = if operator == "!=" { "<>" } else { operator };
        let message = format!("operator does not exist: {} {operator} {}", called(left)?, called(right)?);
        return Some((state::UNDEFINED_FUNCTION, message));
    }
    if let Some((_, types)) = sentence
        .strip_prefix("Inconsistent data type across values list")
        .and_then(|places| places.split_once(". Was "))
    {
        let (first, other) = types.split_once(" but found ")?;
        let message = format!("VALUES types {} and {} cannot be matched", called(first)?, called(other)?);
        return Some((state::DATATYPE_MISMATCH, message));
    }
    if let Some((item, rest)) = sentence
        .strip_prefix("Failed to coerce arguments to satisfy a call to 'array_has' function: coercion from List(")
        .and_then(|types| types.split_once("), "))
    {
        let (of, _) = rest.split_once(" to the signature")?;
        let item = item.split_once(", metadata").map_or(item, |(item, _)| item);
        let message = format!("operator does not exist: {} = {}", called(of)?, called(item)?);
        return Some((state::UNDEFINED_FUNCTION, message));
    }
    // Of one argument that is an address.
    if let Some((name, _)) = sentence
        .strip_prefix("Function '")
        .filter(|of| of.contains("(DataType: LargeBinary)"))
        .and_then(|of| of.split_once('\''))
    {
        return Some((state::UNDEFINED_FUNCTION, format!("function {name}(inet) does not exist")));
    }
    if let Some((of, _)) =
        sentence.strip_prefix("array_element does not support type ").and_then(|of| of.split_once(". "))
    {
        let message = format!("cannot subscript type {} because it does not support subscripting", called(of)?);
        return Some((state::DATATYPE_MISMATCH, message));
    }
    None
}

/// Of clauses that may not be there, or not so.
fn clause(sentence: &str) -> TranslatedMessage {
    if sentence.contains("must appear in the GROUP BY clause or must be part of an aggregate function") {
        let column = sentence.split('"').nth(1)?;
        let message =
            format!("column \"{column}\" must appear in the GROUP BY clause or be used in an aggregate function");
        return Some((state::GROUPING_ERROR, message));
    }
    if let Some(of) = sentence.strip_prefix("HAVING clause references: ") {
        return Some((state::GROUPING_ERROR, of.to_owned()));
    }
    if let Some(position) = sentence.strip_prefix("Cannot find column with position ") {
        let (position, _) = position.split_once(' ')?;
        return Some((state::INVALID_COLUMN_REFERENCE, format!("position {position} is not in select list")));
    }
    if let Some(columns) = sentence.strip_prefix("Source table contains ") {
        let (there, named) = columns.split_once(" columns but only ")?;
        let (named, _) = named.split_once(' ')?;
        // It names what is aliased nowhere.
        let message = format!("table has {there} columns available but {named} columns specified");
        return Some((state::INVALID_COLUMN_REFERENCE, message));
    }
    if let Some(window) =
        sentence.strip_prefix("The window ").and_then(|of| of.strip_suffix(" is defined multiple times!"))
    {
        return Some((state::WINDOWING_ERROR, format!("window \"{window}\" is already defined")));
    }
    let (_, state, message) = CLAUSES.iter().find(|(begin, ..)| sentence.starts_with(begin))?;
    Some((state, (*message).to_owned()))
}

/// By the beginning of a sentence.
const CLAUSES: [(&str, &str, &str); 13] = [
    ("INSERT has more expressions", state::SYNTAX_ERROR, "INSERT has more expressions than target columns"),
    ("INSERT has more target columns", state::SYNTAX_ERROR, "INSERT has more target columns than expressions"),
    (
        "Column count doesn't match insert query",
        state::SYNTAX_ERROR,
        "INSERT has not as many expressions as target columns",
    ),
    ("Aggregate function calls cannot be nested", state::GROUPING_ERROR, "aggregate function calls cannot be nested"),
    (
        "Aggregate functions are not allowed in the WHERE clause",
        state::GROUPING_ERROR,
        "aggregate functions are not allowed in WHERE",
    ),
    ("Window function calls cannot be nested", state::WINDOWING_ERROR, "window function calls cannot be nested"),
    (
        "SELECT DISTINCT ON expressions must match",
        state::INVALID_COLUMN_REFERENCE,
        "SELECT DISTINCT ON expressions must match initial ORDER BY expressions",
    ),
    (
        "For SELECT DISTINCT, ORDER BY expressions",
        state::INVALID_COLUMN_REFERENCE,
        "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
    ),
    ("Step cannot be zero", state::INVALID_PARAMETER_VALUE, "step size cannot equal zero"),
    ("Inconsistent data length across values list", state::SYNTAX_ERROR, "VALUES lists must all be the same length"),
    (
        "ORDER BY and WITHIN GROUP clauses cannot be used together",
        state::SYNTAX_ERROR,
        "cannot use multiple ORDER BY clauses with WITHIN GROUP",
    ),
    (
        "WITHIN GROUP is only supported for ordered-set",
        state::WRONG_OBJECT_TYPE,
        "WITHIN GROUP is for ordered-set aggregate functions alone",
    ),
    (
        "Failed to coerce arguments to satisfy a call to 'array_slice' function: coercion from Utf8",
        state::DATATYPE_MISMATCH,
        "the value does not support slices: it is no array",
    ),
];

/// What clients call a type of the engine.
fn called(of: &str) -> Option<&'static str> {
    let is = |begin: &str| of.starts_with(begin);
    Some(match of {
        "Int16" => "smallint",
        "Int32" => "integer",
        "Int64" => "bigint",
        "Float32" => "real",
        "Float64" => "double precision",
        "Boolean" => "boolean",
        "Date32" => "date",
        "Utf8" | "Utf8View" | "LargeUtf8" => "text",
        "Binary" | "BinaryView" => "bytea",
        "LargeBinary" => "inet",
        _ if is("Decimal") => "numeric",
        _ if is("Time64") || is("Time32") => "time without time zone",
        _ if is("Timestamp(") && of.contains(", ") => "timestamp with time zone",
        _ if is("Timestamp(") => "timestamp without time zone",
        _ if is("Interval") || is("Duration") => "interval",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_told_as_postgres_does() {
        let cases = [
            (
                "Cannot infer common string type for string concat operation Int64 || Decimal128(2, 1)",
                "42883: operator does not exist: bigint || numeric",
            ),
            (
                "Cannot coerce arithmetic expression Decimal128(2, 1) + Boolean to valid types",
                "42883: operator does not exist: numeric + boolean",
            ),
            (
                "array_element does not support type Timestamp(µs, \"UTC\"). No function matches",
                "42804: cannot subscript type timestamp with time zone because it does not support subscripting",
            ),
            (
                "Column in SELECT must be in GROUP BY or an aggregate function: While expanding wildcard, column \"t.a\" must appear in the \
                 GROUP BY clause or must be part of an aggregate function, currently only \"min(t.b)\" appears",
                "42803: column \"t.a\" must appear in the GROUP BY clause or be used in an aggregate function",
            ),
            (
                "Source table contains 1 columns but only 2 names given as column alias",
                "42P10: table has 1 columns available but 2 columns specified",
            ),
            (
                "Cannot find column with position 3 in SELECT clause. Valid columns: 1 to 2",
                "42P10: position 3 is not in select list",
            ),
            ("The window w is defined multiple times!", "42P20: window \"w\" is already defined"),
            ("Step cannot be zero", "22023: step size cannot equal zero"),
            (
                "Execution error: Function 'div' user-defined coercion failed with: External error: function div(Utf8) does not exist. No",
                "42883: function div(Utf8) does not exist",
            ),
            (
                "Function 'array_has' user-defined coercion failed with: External error: operator does not exist: a = b. No",
                "42883: operator does not exist: a = b",
            ),
        ];
        for (sentence, expected) in cases {
            let error = told(sentence).unwrap_or_else(|| panic!("{sentence}"));
            assert_eq!(format!("{}: {}", error.state(), error.message()), expected);
        }
        assert_eq!(told("Something else"), None);
    }
}
