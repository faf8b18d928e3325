//! In which order do rows go into files? By primary key, each part ascending or descending as the table says.
//!
//! Keys are compared in Arrow's row format: one `memcmp` per comparison. Rows that arrive in order, as loads do, are
//! only looked at, not moved.

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::{SortOptions, interleave_record_batch};
use arrow::row::{RowConverter, Rows, SortField};

use tarn_types::{TableSchema, arrow_type};

use crate::error::arrow_error;
use crate::{Error, Result};

/// The most rows of one delivery: indices are 32 bits wide.
const MAX_ROWS: u64 = u32::MAX as u64;

/// Makes comparable rows of the key columns of batches.
pub(crate) struct KeyOrder {
    converter: RowConverter,
    columns: Vec<String>,
}

impl KeyOrder {
    /// Of the table's primary key; NULL comes last.
    pub fn new(table: &TableSchema) -> Result<Self> {
        let fields = table.key.iter().map(|part| {
            let options = SortOptions { descending: part.descending, nulls_first: false };
            SortField::new_with_options(arrow_type(&table.columns[part.column_idx].data_type), options)
        });
        let converter = RowConverter::new(fields.collect()).map_err(arrow_error("order keys"))?;
        Ok(Self { converter, columns: key_columns(table) })
    }

    /// The keys of a batch, as bytes that are compared.
    pub fn rows(&self, batch: &RecordBatch) -> Result<Rows> {
        let mut rows = self.converter.empty_rows(batch.num_rows(), 0);
        self.append(&mut rows, batch)?;
        Ok(rows)
    }

    fn append(&self, rows: &mut Rows, batch: &RecordBatch) -> Result<()> {
        let columns: Option<Vec<ArrayRef>> =
            self.columns.iter().map(|name| batch.column_by_name(name).cloned()).collect();
        let columns = columns.expect("rows have the key columns of their table");
        self.converter.append(rows, &columns).map_err(arrow_error("order keys"))
    }
}

/// The names of the key columns, in key order.
pub(crate) fn key_columns(table: &TableSchema) -> Vec<String> {
    table.key.iter().map(|part| table.columns[part.column_idx].name.clone()).collect()
}

/// All rows of some batches in key order, some at a time.
pub(crate) struct SortedBatches {
    batches: Vec<RecordBatch>,
    order: Order,
    output_rows: usize,
}

enum Order {
    /// As they came: the next row.
    AsIs { batch: usize, row: usize },
    /// Positions (batch, row); the next one to give out.
    By { positions: Vec<(u32, u32)>, at: usize },
}

impl SortedBatches {
    /// Sorts; rows of one key stay in the order they came in. Costs the keys' bytes and eight bytes a row, or only the
    /// look.
    pub fn new(table: &TableSchema, batches: Vec<RecordBatch>, output_rows: usize) -> Result<Self> {
        let n_rows: u64 = batches.iter().map(|batch| batch.num_rows() as u64).sum();
        if n_rows > MAX_ROWS {
            return Err(Error::TooMany { n_rows, max: MAX_ROWS });
        }
        let order = KeyOrder::new(table)?;
        let mut keys = order.converter.empty_rows(n_rows as usize, 0);
        for batch in &batches {
            order.append(&mut keys, batch)?;
        }
        let in_order = (1..keys.num_rows()).all(|row| keys.row(row - 1) <= keys.row(row));
        let order = if in_order { Order::AsIs { batch: 0, row: 0 } } else { by_key(&keys, &batches) };
        Ok(Self { batches, order, output_rows })
    }
}

fn by_key(keys: &Rows, batches: &[RecordBatch]) -> Order {
    let mut rows: Vec<u32> = (0..keys.num_rows() as u32).collect();
    // Stable, and quick on runs that are in order already: each batch often is.
    rows.sort_by(|a, b| keys.row(*a as usize).cmp(&keys.row(*b as usize)));
    let places: Vec<(u32, u32)> =
        (0..).zip(batches).flat_map(|(batch, rows)| (0..rows.num_rows() as u32).map(move |row| (batch, row))).collect();
    Order::By { positions: rows.into_iter().map(|row| places[row as usize]).collect(), at: 0 }
}

impl Iterator for SortedBatches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.order {
            Order::AsIs { batch, row } => {
                while self.batches.get(*batch).is_some_and(|rows| *row == rows.num_rows()) {
                    (*batch, *row) = (*batch + 1, 0);
                }
                let rows = self.batches.get(*batch)?;
                let len = (rows.num_rows() - *row).min(self.output_rows);
                let output = rows.slice(*row, len);
                *row += len;
                Some(Ok(output))
            }
            Order::By { positions, at } => {
                let end = positions.len().min(*at + self.output_rows);
                let chosen: Vec<_> = positions[*at..end].iter().map(|(b, r)| (*b as usize, *r as usize)).collect();
                if chosen.is_empty() {
                    return None;
                }
                *at = end;
                let batches: Vec<_> = self.batches.iter().collect();
                Some(interleave_record_batch(&batches, &chosen).map_err(arrow_error("sort rows")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_data::{batch, event, events};

    fn sorted(batches: &[&[(&str, i64)]], output_rows: usize) -> (Vec<(String, i64, i64)>, bool) {
        use arrow::array::AsArray;
        use arrow::datatypes::Int64Type;
        let table = events();
        let mut seqno = 0;
        let mut next = |(device, at): &(&str, i64)| {
            seqno += 1;
            event(device, *at, seqno)
        };
        let batches = batches.iter().map(|rows| batch(&table, &rows.iter().map(&mut next).collect::<Vec<_>>()));
        let sorted = SortedBatches::new(&table, batches.collect(), output_rows).unwrap();
        let as_is = matches!(sorted.order, Order::AsIs { .. });
        let rows = sorted.flat_map(|output| {
            let output = output.unwrap();
            assert!((1..=output_rows).contains(&output.num_rows()));
            let (device, at) = (output.column(0).as_string::<i32>(), output.column(1).as_primitive::<Int64Type>());
            let seqno = output.column(4).as_primitive::<Int64Type>();
            let row = |row| (device.value(row).to_owned(), at.value(row), seqno.value(row));
            (0..output.num_rows()).map(row).collect::<Vec<_>>()
        });
        (rows.collect(), as_is)
    }

    #[test]
    fn rows_in_order_are_left_where_they_are() {
        let (rows, as_is) = sorted(&[&[("a", 9), ("a", 8)], &[], &[("a", 7), ("b", 9), ("b", 1)]], 2);
        assert!(as_is);
        assert_eq!(rows.iter().map(|row| row.2).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        assert_eq!(sorted(&[], 2).0, []);
    }

    #[test]
    fn rows_out_of_order_are_sorted_by_each_part_as_declared_and_ties_keep_their_order() {
        let (rows, as_is) = sorted(&[&[("b", 1), ("a", 1)], &[("a", 2), ("b", 1), ("", 5)]], 2);
        assert!(!as_is);
        let expected = [("", 5, 5), ("a", 2, 3), ("a", 1, 2), ("b", 1, 1), ("b", 1, 4)];
        assert_eq!(rows, expected.map(|(device, at, seqno)| (device.to_owned(), at, seqno)));
    }
}
