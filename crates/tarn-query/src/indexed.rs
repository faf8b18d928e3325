//! Where among the entries of an index are those of the rows of an answer, as far as the filters say?
//!
//! ```text
//! index (name, age)      key of an entry: n1, k1, n2, k2, row
//! name = 'ada' AND age > 30        n1 = false AND k1 = 'ada' AND n2 = false AND k2 > 30        one range
//! name IN ('ada', 'bob')           n1 = false AND k1 IN ('ada', 'bob')                         two
//! name IS NULL                     n1 = true AND k1 = ''                                       one
//! age = 30                         nothing of its first column: none
//! ```
//!
//! What is said of the columns is said of those of the index, and ranges are those of any table (`key_ranges.rs`).
//! Pure. Invariant: the entry of every row for which all filters are true lies in one of the ranges.

use tarn_metastore::prune::{Operator, Predicate};
use tarn_types::{
    ColumnId, MARK_OF_NULL, TableId, TableSchema, Unique, Value, index_table, place_in_index, prefix_end, stand_in,
};

use crate::hot::KeyRange;
use crate::key_ranges::{MAX_KEYS, key_set_within};

/// An index that can be asked.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct IndexRequest {
    /// The table whose rows are its entries.
    pub index: TableId,
    /// For `EXPLAIN`.
    pub name: String,
    /// Ascending; they do not overlap.
    pub ranges: Vec<KeyRange>,
    /// So many of its leading columns have values; of one behind them there may be bounds.
    pub n_fixed: usize,
}

/// The indexes of a table that the filters say something of, the most useful first: those that are unique, and those
/// with more columns that have values.
pub(crate) fn asked(predicates: &[Predicate], table: &TableSchema) -> Vec<IndexRequest> {
    // Of a foreign key's own, rows that are older than a column of it have no entries.
    let uniques = table.options.rules.uniques.iter().filter(|unique| !unique.of_foreign_key);
    let mut found: Vec<(bool, IndexRequest)> =
        uniques.filter_map(|unique| Some((unique.repeats, of_index(predicates, table, unique)?))).collect();
    found.sort_by_key(|(repeats, asked)| (*repeats, std::cmp::Reverse(asked.n_fixed)));
    found.into_iter().map(|(_, asked)| asked).collect()
}

fn of_index(predicates: &[Predicate], table: &TableSchema, unique: &Unique) -> Option<IndexRequest> {
    let index = TableSchema { id: unique.index, ..index_table(table, unique).ok()? };
    let mut said = vec![];
    let mut may_be_null = false;
    for (place, id) in unique.columns.iter().enumerate() {
        let column = table.column_by_id(*id)?;
        let at = place_in_index(unique, place);
        let of = |at: usize, op, values: Vec<Value>| Predicate { column: index.columns[at].id, op, values };
        let mut is_value = false;
        for predicate in predicates.iter().filter(|predicate| predicate.column == *id) {
            let is_null = predicate.op == Operator::IsNull;
            is_value |= !is_null;
            if unique.repeats {
                said.push(of(at - 1, Operator::Eq, vec![Value::Bool(is_null == MARK_OF_NULL)]));
            }
            match predicate.op {
                Operator::IsNull if unique.repeats => {
                    said.push(of(at, Operator::Eq, vec![stand_in(column.data_type)]));
                }
                Operator::IsNull | Operator::IsNotNull => {}
                op => said.push(of(at, op, predicate.values.clone())),
            }
        }
        may_be_null |= column.nullable && !is_value;
    }
    // Of a row with NULL a constraint has no entry.
    if may_be_null && !unique.repeats {
        return None;
    }
    let set = key_set_within(&said, &index, MAX_KEYS);
    let n_before = usize::from(unique.repeats);
    if let Some(keys) = set.keys {
        let range = |key: Vec<u8>| Some(KeyRange { end: prefix_end(&key)?, start: key });
        let ranges = keys.into_iter().map(range).collect::<Option<Vec<_>>>()?;
        return Some(IndexRequest {
            index: unique.index,
            name: unique.name.clone(),
            ranges,
            n_fixed: unique.columns.len(),
        });
    }
    let ranges = set.ranges.filter(|ranges| n_before == 0 || narrows(&said, &index, ranges.n_fixed))?;
    let n_fixed = ranges.n_fixed / (1 + n_before);
    Some(IndexRequest { index: unique.index, name: unique.name.clone(), ranges: ranges.ranges, n_fixed })
}

/// Whether more is known of the first column than that it is not NULL.
fn narrows(said: &[Predicate], index: &TableSchema, n_fixed: usize) -> bool {
    let first: ColumnId = index.columns[1].id;
    n_fixed > 1 || said.iter().any(|of| of.column == first && !matches!(of.op, Operator::Eq | Operator::In))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tarn_types::{Column, DataType, IndexedColumn, KeyPart, TableOptions, TabletId, entry_key};

    use super::*;

    /// `id`, then `a` and `b` that may be NULL, and `c` that may not.
    fn table(unique: Unique) -> TableSchema {
        let column = |id: u32| Column {
            id: ColumnId(id),
            name: format!("c{id}"),
            data_type: if id == 3 { DataType::Text } else { DataType::Int64 },
            nullable: id == 2 || id == 3,
            default: None,
        };
        let mut options = TableOptions::default();
        options.rules.uniques = vec![unique];
        TableSchema {
            id: TableId(1),
            name: "t".to_owned(),
            columns: (1..=4).map(column).collect(),
            key: vec![KeyPart { column_idx: 0, descending: false }],
            n_partition_key: 1,
            first_tablet: TabletId(1),
            options,
        }
    }

    fn of(columns: &[u32], repeats: bool) -> Unique {
        Unique {
            name: "i".into(),
            columns: columns.iter().map(|id| ColumnId(*id)).collect(),
            index: TableId(9),
            by_index: repeats,
            repeats,
            orders: vec![],
            of_foreign_key: false,
        }
    }

    fn says(column: u32, op: Operator, values: &[i64]) -> Predicate {
        let value = |n: &i64| if column == 3 { Value::Text(format!("v{n}")) } else { Value::Int64(*n) };
        Predicate { column: ColumnId(column), op, values: values.iter().map(value).collect() }
    }

    fn n_ranges(predicates: &[Predicate], unique: Unique) -> Option<usize> {
        asked(predicates, &table(unique)).first().map(|asked| asked.ranges.len())
    }

    #[test]
    fn an_index_is_asked_where_the_filters_say_something_of_its_first_column() {
        use Operator::{Eq, Gt, In, IsNotNull, IsNull};
        let two = || of(&[2, 3], true);
        assert_eq!(n_ranges(&[says(2, Eq, &[1])], two()), Some(1));
        assert_eq!(n_ranges(&[says(2, In, &[1, 2, 3])], two()), Some(3));
        assert_eq!(n_ranges(&[says(2, In, &[1, 2, 3]), says(3, In, &[1, 2])], two()), Some(6));
        assert_eq!(n_ranges(&[says(2, Gt, &[1])], two()), Some(1));
        assert_eq!(n_ranges(&[says(2, IsNull, &[])], two()), Some(1));
        assert_eq!(n_ranges(&[says(2, IsNotNull, &[])], two()), None);
        assert_eq!(n_ranges(&[says(3, Eq, &[1])], two()), None);
        let many: Vec<i64> = (0..=MAX_KEYS as i64).collect();
        assert_eq!(n_ranges(&[says(2, In, &many[1..])], two()), Some(MAX_KEYS));
        assert_eq!(n_ranges(&[says(2, In, &many)], two()), None);
    }

    /// Rows with NULL have no entry in it.
    #[test]
    fn a_constraint_is_asked_where_no_row_of_the_answer_has_null() {
        use Operator::{Eq, In, IsNotNull, IsNull};
        let two = || of(&[2, 3], false);
        assert_eq!(n_ranges(&[says(2, Eq, &[1]), says(3, In, &[1, 2])], two()), Some(2));
        assert_eq!(n_ranges(&[says(2, Eq, &[1])], two()), None);
        assert_eq!(n_ranges(&[says(2, Eq, &[1]), says(3, IsNull, &[])], two()), None);
        assert_eq!(n_ranges(&[says(2, Eq, &[1]), says(3, IsNotNull, &[])], two()), Some(1));
        assert_eq!(n_ranges(&[says(2, Eq, &[1])], of(&[2, 4], false)), Some(1));
    }

    #[test]
    fn the_index_with_more_values_is_the_first_and_a_constraint_before_it() {
        let mut table = table(of(&[2], true));
        let more = [(of(&[2, 3], true), "both"), (of(&[4], false), "one")];
        table.options.rules.uniques.extend(more.map(|(unique, name)| Unique { name: name.into(), ..unique }));
        let said = [2, 3, 4].map(|column| says(column, Operator::Eq, &[1]));
        let names: Vec<String> = asked(&said, &table).into_iter().map(|asked| asked.name).collect();
        assert_eq!(names, ["one", "both", "i"]);
    }

    fn holds(predicate: &Predicate, value: &Value) -> bool {
        use Operator::{Eq, Ge, Gt, In, IsNotNull, IsNull, Le, Lt};
        let is_null = value.is_null();
        match predicate.op {
            IsNull => return is_null,
            IsNotNull => return !is_null,
            _ if is_null => return false,
            In => return predicate.values.contains(value),
            _ => {}
        }
        let order = value.cmp_same_type(&predicate.values[0]);
        match predicate.op {
            Eq => order.is_eq(),
            Lt => order.is_lt(),
            Le => order.is_le(),
            Gt => order.is_gt(),
            Ge => order.is_ge(),
            _ => unreachable!("handled above"),
        }
    }

    fn operator() -> impl Strategy<Value = Operator> {
        use Operator::{Eq, Ge, Gt, In, IsNotNull, IsNull, Le, Lt};
        prop_oneof![Just(Eq), Just(In), Just(Lt), Just(Le), Just(Gt), Just(Ge), Just(IsNull), Just(IsNotNull)]
    }

    proptest! {
        #[test]
        fn the_entry_of_every_row_of_the_answer_is_in_one_range(
            said in proptest::collection::vec((2..5u32, operator(), proptest::collection::vec(0..4i64, 1..4)), 1..5),
            columns in Just(vec![2u32, 3, 4]).prop_shuffle(),
            n_columns in 1..4usize,
            orders in proptest::collection::vec((any::<bool>(), any::<bool>()), 3),
            repeats in any::<bool>(),
        ) {
            let mut unique = of(&columns[..n_columns], repeats);
            let order = |(descending, nulls_first): &(bool, bool)| {
                IndexedColumn { descending: *descending, nulls_first: *nulls_first, operators: None }
            };
            unique.orders = orders[..n_columns].iter().map(order).collect();
            let table = table(unique.clone());
            let said: Vec<Predicate> = said
                .into_iter()
                .map(|(column, op, values)| {
                    let n = match op { Operator::In => values.len(), Operator::IsNull | Operator::IsNotNull => 0, _ => 1 };
                    says(column, op, &values[..n])
                })
                .collect();
            let index = TableSchema { id: TableId(9), ..index_table(&table, &unique).unwrap() };
            let Some(asked) = asked(&said, &table).pop() else { return Ok(()) };
            for n in 0..125_i64 {
                let part = |n: i64, column: u32| match (n, column) {
                    (4, 2 | 3) => Value::Null,
                    (n, 3) => Value::Text(format!("v{n}")),
                    (n, _) => Value::Int64(n),
                };
                let row = [Value::Int64(n), part(n / 25, 2), part(n / 5 % 5, 3), part(n % 5, 4)];
                let entry = entry_key(&table, &unique, &index, &row, b"some row").unwrap();
                let is_answer = said.iter().all(|predicate| holds(predicate, &row[predicate.column.0 as usize - 1]));
                let within = |entry: &Vec<u8>| {
                    asked.ranges.iter().filter(|range| range.start <= *entry && *entry < range.end).count()
                };
                let n_within = entry.as_ref().map_or(0, within);
                prop_assert!(n_within <= 1, "ranges do not overlap");
                prop_assert!(!is_answer || n_within == 1, "{row:?} of {said:?} in {asked:?}");
            }
        }
    }
}
