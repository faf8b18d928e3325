//! Which engine keys can the rows of an answer have, as far as the filters say?
//!
//! ```text
//! key (device, day, n)
//! device IN ('a', 'b') AND day = 3 AND n IN (1, 2)   four keys
//! device = 'a' AND day >= 3 AND day < 5              one range: from (a, 3) up to (a, 5)
//! device IN ('a', 'b')                               two ranges: a partition each
//! day = 3                                            neither: the partition key is not known
//! ```
//!
//! Pure. Invariant: every row for which all filters are true has one of the keys, and lies in one of the ranges. A
//! value that has no place among keys narrows nothing.

use std::collections::BTreeMap;

use tarn_metastore::prune::{Operator, Predicate};
use tarn_types::{DataType, KeyPart, TableSchema, Value, encode_key, encode_partition_prefix, prefix_end};

use crate::hot::KeyRange;

/// More keys than this are not looked up one by one.
pub(crate) const MAX_KEYS: usize = 1_000;

/// More ranges than this are not scanned one by one.
const MAX_RANGES: usize = 64;

/// What the filters leave of the key space.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct KeySet {
    /// When every key column has a value or a list of them: ascending, each once.
    pub keys: Option<Vec<Vec<u8>>>,
    /// When the partition key has: what clustering columns say narrows them.
    pub ranges: Option<Ranges>,
}

/// Ranges of engine keys, ascending.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ranges {
    /// Half-open; they do not overlap.
    pub ranges: Vec<KeyRange>,
    /// So many leading key columns have one value within each range.
    pub n_fixed: usize,
}

/// Of a table that keeps its rows by key.
pub(crate) fn key_set(predicates: &[Predicate], table: &TableSchema) -> KeySet {
    key_set_within(predicates, table, MAX_RANGES)
}

/// The same, with so many ranges at most.
pub(crate) fn key_set_within(predicates: &[Predicate], table: &TableSchema, max_ranges: usize) -> KeySet {
    let lists = lists(predicates, table);
    let of_key: Vec<&[Value]> =
        table.key.iter().map_while(|part| lists.get(&part.column_idx).map(Vec::as_slice)).collect();
    let keys = (of_key.len() == table.key.len()).then(|| keys(table, &of_key)).flatten();
    let ranges = if keys.is_some() { None } else { ranges(table, &of_key, predicates, max_ranges) };
    KeySet { keys, ranges }
}

/// For each column, values one of which every row of the answer has. Of several lists the shortest: the filters see to
/// the others.
fn lists(predicates: &[Predicate], table: &TableSchema) -> BTreeMap<usize, Vec<Value>> {
    let mut lists: BTreeMap<usize, Vec<Value>> = BTreeMap::new();
    for predicate in predicates.iter().filter(|of| matches!(of.op, Operator::Eq | Operator::In)) {
        let Some(column) = table.columns.iter().position(|column| column.id == predicate.column) else { continue };
        match lists.get(&column) {
            Some(shorter) if shorter.len() <= predicate.values.len() => {}
            _ => drop(lists.insert(column, predicate.values.clone())),
        }
    }
    lists
}

fn keys(table: &TableSchema, of_key: &[&[Value]]) -> Option<Vec<Vec<u8>>> {
    let values = product(of_key, MAX_KEYS).filter(|_| !of_key.is_empty())?;
    let mut keys = values.iter().map(|values| encode_key(table, values).ok()).collect::<Option<Vec<_>>>()?;
    keys.sort_unstable();
    keys.dedup();
    Some(keys)
}

fn ranges(table: &TableSchema, of_key: &[&[Value]], predicates: &[Predicate], max: usize) -> Option<Ranges> {
    if table.n_partition_key == 0 || of_key.len() < table.n_partition_key {
        return None;
    }
    // As many columns as do not make too many ranges.
    let n_fixed = (table.n_partition_key..=of_key.len().min(table.key.len() - 1))
        .rev()
        .find(|n| product(&of_key[..*n], max).is_some())?;
    let next = &table.key[n_fixed];
    let bounds: Vec<&Predicate> = predicates.iter().filter(|of| bounds(table, next, of)).collect();
    let mut ranges = vec![];
    for values in product(&of_key[..n_fixed], max)? {
        let mut range = KeyRange::of_prefix(encode_partition_prefix(table, &values).ok()?)?;
        for bound in &bounds {
            narrow(table, &values, next.descending, bound, &mut range);
        }
        ranges.push(range);
    }
    ranges.sort_unstable_by(|a, b| a.start.cmp(&b.start));
    ranges.dedup();
    Some(Ranges { ranges, n_fixed })
}

/// Whether a filter bounds this part of the key, in the order in which keys lie.
fn bounds(table: &TableSchema, part: &KeyPart, predicate: &Predicate) -> bool {
    use DataType::*;
    let column = &table.columns[part.column_idx];
    // UUIDs are compared as texts, and zeros and NaN of floats have more than one form: their keys may lie in another
    // order.
    let in_order = matches!(
        column.data_type,
        Bool | Int16 | Int32 | Int64 | Decimal { .. } | Text | Bytes | Date | Time | Timestamp | TimestampTz
    );
    let is_bound = matches!(predicate.op, Operator::Lt | Operator::Le | Operator::Gt | Operator::Ge);
    in_order && is_bound && predicate.column == column.id
}

/// Cuts off what lies outside of a bound of the part behind `fixed`.
fn narrow(table: &TableSchema, fixed: &[Value], descending: bool, bound: &Predicate, range: &mut KeyRange) {
    let values: Vec<Value> = fixed.iter().chain(bound.values.first()).cloned().collect();
    let Ok(first) = encode_partition_prefix(table, &values) else { return };
    let Some(behind) = prefix_end(&first) else { return };
    let is_included = matches!(bound.op, Operator::Ge | Operator::Le);
    let starts = matches!(bound.op, Operator::Gt | Operator::Ge) != descending;
    if starts {
        let start = if is_included { first } else { behind };
        range.start = start.max(std::mem::take(&mut range.start)).min(range.end.clone());
    } else {
        let end = if is_included { behind } else { first };
        range.end = end.min(std::mem::take(&mut range.end)).max(range.start.clone());
    }
}

/// One of each list, in every way; `None` if there are more than `max`.
fn product(lists: &[&[Value]], max: usize) -> Option<Vec<Vec<Value>>> {
    let n = lists.iter().try_fold(1_usize, |n, list| n.checked_mul(list.len()).filter(|n| *n <= max))?;
    let mut rows: Vec<Vec<Value>> = Vec::with_capacity(n);
    rows.push(vec![]);
    for list in lists {
        let longer = |row: Vec<Value>| {
            list.iter().map(move |value| {
                let mut row = row.clone();
                row.push(value.clone());
                row
            })
        };
        rows = rows.into_iter().flat_map(longer).collect();
    }
    Some(rows)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tarn_types::{Column, ColumnId, TableId, TableOptions, TabletId};

    use super::*;

    /// `a`, then `b` ascending or descending, then `c`.
    fn table(descending: bool) -> TableSchema {
        let column = |id: u32| Column {
            id: ColumnId(id),
            name: format!("c{id}"),
            data_type: if id == 2 { DataType::Text } else { DataType::Int64 },
            nullable: false,
            default: None,
        };
        let part = |column_idx, descending| KeyPart { column_idx, descending };
        TableSchema {
            id: TableId(1),
            name: "t".to_owned(),
            columns: (1..=4).map(column).collect(),
            key: vec![part(0, false), part(1, descending), part(2, false)],
            n_partition_key: 1,
            first_tablet: TabletId(1),
            options: TableOptions { tablets: 3, ..TableOptions::default() },
        }
    }

    fn says(column: u32, op: Operator, values: Vec<Value>) -> Predicate {
        Predicate { column: ColumnId(column), op, values }
    }

    fn ints(values: &[i64]) -> Vec<Value> {
        values.iter().copied().map(Value::Int64).collect()
    }

    fn text(value: &str) -> Value {
        Value::Text(value.to_owned())
    }

    #[test]
    fn lists_of_all_key_columns_are_keys() {
        let table = table(false);
        let some = [
            says(1, Operator::In, ints(&[1, 2, 1])),
            says(2, Operator::Eq, vec![text("x")]),
            says(3, Operator::In, ints(&[5, 6])),
            says(4, Operator::Eq, ints(&[9])),
        ];
        let set = key_set(&some, &table);
        assert_eq!(set.keys.as_ref().map(Vec::len), Some(4));
        assert!(set.ranges.is_none());
        let one = encode_key(&table, &[Value::Int64(2), text("x"), Value::Int64(6)]).unwrap();
        assert!(set.keys.unwrap().contains(&one));
        // Of two lists of a column the shorter one.
        let both = [&some[..], &[says(1, Operator::Eq, ints(&[2]))]].concat();
        assert_eq!(key_set(&both, &table).keys.map(|keys| keys.len()), Some(2));
    }

    #[test]
    fn too_many_keys_are_ranges_and_too_many_ranges_are_nothing() {
        let table = table(false);
        let many: Vec<i64> = (0..40).collect();
        let set = key_set(
            &[
                says(1, Operator::In, ints(&many)),
                says(2, Operator::In, vec![text("x"), text("y"), text("z")]),
                says(3, Operator::In, ints(&many)),
            ],
            &table,
        );
        assert_eq!(set.keys, None);
        assert_eq!(set.ranges.map(|ranges| (ranges.ranges.len(), ranges.n_fixed)), Some((40, 1)));
        let more: Vec<i64> = (0..MAX_RANGES as i64 + 1).collect();
        assert_eq!(key_set(&[says(1, Operator::In, ints(&more))], &table), KeySet::default());
        assert_eq!(key_set(&[says(2, Operator::Eq, vec![text("x")])], &table), KeySet::default());
    }

    #[test]
    fn a_value_that_no_key_has_narrows_nothing() {
        let mut table = table(false);
        table.columns[0].data_type = DataType::Uuid;
        let no_uuid = says(1, Operator::Eq, vec![Value::Uuid("no uuid".to_owned())]);
        assert_eq!(key_set(&[no_uuid], &table), KeySet::default());
    }

    fn operator() -> impl Strategy<Value = Operator> {
        prop_oneof![
            Just(Operator::Eq),
            Just(Operator::In),
            Just(Operator::Lt),
            Just(Operator::Le),
            Just(Operator::Gt),
            Just(Operator::Ge)
        ]
    }

    fn holds(predicate: &Predicate, value: &Value) -> bool {
        let order = value.cmp_same_type(&predicate.values[0]);
        match predicate.op {
            Operator::Eq => order.is_eq(),
            Operator::In => predicate.values.contains(value),
            Operator::Lt => order.is_lt(),
            Operator::Le => order.is_le(),
            Operator::Gt => order.is_gt(),
            Operator::Ge => order.is_ge(),
            Operator::IsNull | Operator::IsNotNull => false,
        }
    }

    proptest! {
        #[test]
        fn no_row_of_the_answer_lies_outside(
            asked in proptest::collection::vec((1..4u32, operator(), proptest::collection::vec(0..5i64, 1..4)), 1..6),
            descending in any::<bool>(),
        ) {
            let table = table(descending);
            let value = |column: u32, n: i64| if column == 2 { text(&"v\0".repeat(n as usize)) } else { Value::Int64(n) };
            let asked: Vec<Predicate> = asked
                .into_iter()
                .map(|(column, op, values)| {
                    let values = values.into_iter().map(|n| value(column, n)).collect::<Vec<_>>();
                    says(column, op, if op == Operator::In { values } else { values[..1].to_vec() })
                })
                .collect();
            let set = key_set(&asked, &table);
            let (mut inside, mut all) = (0, 0);
            for n in 0..125 {
                let row = [value(1, n / 25), value(2, n / 5 % 5), value(3, n % 5)];
                let key = encode_key(&table, &row).unwrap();
                let is_answer = asked.iter().all(|predicate| holds(predicate, &row[predicate.column.0 as usize - 1]));
                if let Some(keys) = &set.keys {
                    prop_assert!(!is_answer || keys.contains(&key), "{row:?}");
                }
                if let Some(Ranges { ranges, .. }) = &set.ranges {
                    let n_ranges = ranges.iter().filter(|range| range.start <= key && key < range.end).count();
                    prop_assert!(n_ranges <= 1, "ranges do not overlap");
                    prop_assert!(!is_answer || n_ranges == 1, "{row:?}");
                    inside += n_ranges;
                    all += usize::from(is_answer);
                }
            }
            // When nothing is asked beyond the partition key and one bound, the ranges hold the answer alone.
            if let ([Predicate { op: Operator::Eq, column: ColumnId(1), .. }, next], Some(_)) = (asked.as_slice(), &set.ranges) && next.column == ColumnId(2) {
                prop_assert_eq!(inside, all);
            }
        }
    }
}
