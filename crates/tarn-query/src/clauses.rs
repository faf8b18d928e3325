//! What do a scan's filters ask of blooms?
//!
//! ```text
//! matches(body, 'connection refused') AND trace_id IN ('a', 'b')
//!   ──> [[connection, refused]], [[trace_id=a], [trace_id=b]]     every clause, one of its ways, all of its keys
//! ```
//!
//! Invariant: a row for which the filters are true has, in its block's bloom, all keys of one way of every clause. A
//! filter of which that cannot be said says nothing; the filter itself is always applied to the rows later.

use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use datafusion::scalar::ScalarValue;
use tarn_metastore::{AllOf, Hash, token_hash, value_hash};
use tarn_types::{Column, DataType, Indexing, TableSchema, TokenColumns};

use crate::functions::{MATCHES, distinct_tokens};
use crate::values::from_scalar;

/// A clause with more ways says nothing: testing them all costs more than it spares.
const MAX_WAYS: usize = 64;

/// The clauses of a conjunction of filters. Empty: nothing is asked.
pub(crate) fn clauses(filters: &[Expr], table: &TableSchema) -> Vec<Vec<AllOf>> {
    if !table.options.indexing.any() {
        return vec![];
    }
    let mut clauses: Vec<Vec<AllOf>> = vec![];
    for clause in filters.iter().flat_map(split_conjunction).filter_map(|filter| ways(filter, table)) {
        if !clauses.contains(&clause) {
            clauses.push(clause);
        }
    }
    clauses
}

/// In which ways can the expression be true? `None`: in ways that have no keys.
fn ways(expr: &Expr, table: &TableSchema) -> Option<Vec<AllOf>> {
    let ways = match expr {
        Expr::Alias(alias) => ways(&alias.expr, table)?,
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            let mut either = ways(left, table)?;
            either.extend(ways(right, table)?);
            either
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            match (ways(left, table), ways(right, table)) {
                (Some(left), Some(right)) if left.len() * right.len() <= MAX_WAYS => {
                    left.iter().flat_map(|left| right.iter().map(|right| both(left, right))).collect()
                }
                (left, right) => left.or(right)?,
            }
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            vec![equal(left, right, table).or_else(|| equal(right, left, table))?]
        }
        Expr::InList(list) if !list.negated && list.list.len() <= MAX_WAYS => {
            list.list.iter().map(|item| equal(&list.expr, item, table)).collect::<Option<_>>()?
        }
        Expr::ScalarFunction(call) if call.name() == MATCHES => {
            let [text, words] = call.args.as_slice() else { return None };
            let column = column(text, table).filter(|column| is_in_filters(table, column))?;
            vec![words_of(column, literal(words)?.try_as_str()??, &table.options.indexing)?]
        }
        _ => return None,
    };
    (ways.len() <= MAX_WAYS).then_some(ways)
}

fn both(left: &AllOf, right: &AllOf) -> AllOf {
    let mut keys: AllOf = left.iter().chain(right).copied().collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn equal(left: &Expr, right: &Expr, table: &TableSchema) -> Option<AllOf> {
    let column = column(left, table).filter(|column| is_in_filters(table, column))?;
    let indexing = &table.options.indexing;
    let value = from_scalar(literal(right)?, &column.data_type)?;
    if indexing.bloom.contains(&column.id) {
        return Some(vec![value_hash(column.id, &column.data_type, &value)?]);
    }
    words_of(column, literal(right)?.try_as_str()??, indexing)
}

/// Whether filters know all values of the column: they are silent about what older files have in one that was added
/// with a value.
fn is_in_filters(table: &TableSchema, column: &Column) -> bool {
    table.missing(column.id).is_none()
}

/// The keys of the words that a text in this column must have. `None` when there are none, or they are in no bloom.
fn words_of(column: &Column, words: &str, indexing: &Indexing) -> Option<AllOf> {
    let indexed = match &indexing.tokens {
        TokenColumns::None => false,
        TokenColumns::All => true,
        TokenColumns::Some(columns) => columns.contains(&column.id),
    };
    if !indexed || column.data_type != DataType::Text {
        return None;
    }
    let keys: Vec<Hash> = distinct_tokens(words).iter().map(|word| token_hash(word)).collect();
    (!keys.is_empty()).then_some(keys)
}

fn column<'a>(expr: &Expr, table: &'a TableSchema) -> Option<&'a Column> {
    match expr {
        Expr::Column(column) => table.column(&column.name).map(|(_, column)| column),
        Expr::Alias(alias) => column(&alias.expr, table),
        _ => None,
    }
}

fn literal(expr: &Expr) -> Option<&ScalarValue> {
    match expr {
        Expr::Literal(scalar, _) => Some(scalar),
        Expr::Alias(alias) => literal(&alias.expr),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{ScalarUDF, col, lit};
    use tarn_types::{ColumnId, KeyPart, TableId, TableOptions, TabletId, Value};

    use super::*;

    /// `body` has its tokens in the bloom, `trace` and `status` their values, `other` and `n` nothing.
    fn table() -> TableSchema {
        let columns = [
            ("body", DataType::Text),
            ("trace", DataType::Text),
            ("status", DataType::Int64),
            ("other", DataType::Text),
            ("n", DataType::Int64),
        ];
        let column = |(id, (name, data_type)): (u32, (&str, _))| Column {
            id: ColumnId(id),
            name: name.to_owned(),
            data_type,
            nullable: true,
            default: None,
        };
        let indexing = Indexing {
            tokens: TokenColumns::Some(vec![ColumnId(1)]),
            bloom: vec![ColumnId(2), ColumnId(3)],
            ..Indexing::default()
        };
        TableSchema {
            id: TableId(1),
            name: "t".to_owned(),
            columns: (1..).zip(columns).map(column).collect(),
            key: vec![KeyPart { column_idx: 0, descending: false }],
            n_partition_key: 1,
            first_tablet: TabletId(1),
            options: TableOptions { indexing, ..TableOptions::default() },
        }
    }

    fn matches(column: &str, words: &str) -> Expr {
        let [_, matches]: [ScalarUDF; 2] = crate::functions::all();
        matches.call(vec![col(column), lit(words)])
    }

    fn of(filter: Expr) -> Vec<Vec<AllOf>> {
        clauses(&[filter], &table())
    }

    fn words(words: &[&str]) -> AllOf {
        words.iter().map(|word| token_hash(word)).collect()
    }

    fn trace(id: &str) -> AllOf {
        vec![value_hash(ColumnId(2), &DataType::Text, &Value::Text(id.into())).unwrap()]
    }

    fn status(n: i64) -> AllOf {
        vec![value_hash(ColumnId(3), &DataType::Int64, &Value::Int64(n)).unwrap()]
    }

    #[test]
    fn what_is_in_the_bloom_is_asked_of_it() {
        assert_eq!(of(matches("body", "Connection refused")), [[words(&["connection", "refused"])]]);
        assert_eq!(of(col("body").eq(lit("GET /"))), [[words(&["get"])]]);
        assert_eq!(of(lit("x-1").eq(col("trace"))), [[trace("x-1")]]);
        assert_eq!(of(col("trace").in_list(vec![lit("a"), lit("b")], false)), [[trace("a"), trace("b")]]);
        let either = col("status").eq(lit(500_i64)).or(matches("body", "error"));
        assert_eq!(of(either.clone()), [[status(500), words(&["error"])]]);
        let both = either.and(matches("body", "x").and(col("n").gt(lit(3_i64))));
        assert_eq!(of(both), [vec![status(500), words(&["error"])], vec![words(&["x"])]]);
        let nested = matches("body", "a").and(col("n").gt(lit(1_i64))).or(col("trace").eq(lit("b")));
        assert_eq!(of(nested), [[words(&["a"]), trace("b")]]);
        let crossed = matches("body", "a").and(matches("body", "b a")).or(col("trace").eq(lit("c")));
        assert_eq!(of(crossed)[0][0].len(), 2);
    }

    #[test]
    fn what_is_not_in_the_bloom_says_nothing() {
        for filter in [
            matches("other", "a"),
            matches("trace", "a"),
            matches("body", " -- "),
            !matches("body", "a"),
            matches("body", "a").or(col("n").eq(lit(1_i64))),
            col("n").eq(lit(1_i64)),
            col("status").gt(lit(1_i64)),
            col("status").eq(lit(1_i32)),
            col("trace").not_eq(lit("a")),
            col("trace").in_list(vec![lit("a")], true),
            col("trace").in_list(vec![lit("a"), col("body")], false),
            col("trace").in_list((0..65).map(|n| lit(n.to_string())).collect(), false),
            col("body").like(lit("%a%")),
            col("trace").eq(lit(ScalarValue::Utf8(None))),
        ] {
            assert!(of(filter.clone()).is_empty(), "{filter}");
        }
        let mut added = table();
        added.options.rules.entry(ColumnId(1)).missing = Some(Value::Text("older".into()));
        assert!(clauses(&[matches("body", "a"), col("body").eq(lit("a"))], &added).is_empty());
        assert_eq!(clauses(&[matches("body", "a").and(col("trace").eq(lit("b")))], &added), [[trace("b")]]);
        let mut plain = table();
        plain.options.indexing = Indexing::default();
        assert!(clauses(&[matches("body", "a")], &plain).is_empty());
    }
}
