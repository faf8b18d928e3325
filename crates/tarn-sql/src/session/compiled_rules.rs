//! What do the rules of a table make of rows that were decoded, on whatever thread that was? Its checks say which may be there, its computed
//! defaults give the columns that are missing. They are compiled by a session (`checks.rs`, `defaults.rs`) and know none.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::arrow::record_batch::RecordBatch;
use tarn_query::Compiled;
use tarn_types::{TableSchema, Value};

use crate::error::{Result, SqlError, state};

/// Of a value of a row that is refused, in the error.
const MAX_SHOWN_CHARS: usize = 64;

/// The checks of a table, for the time of one statement.
#[derive(Clone)]
pub(super) struct Checks {
    table: Arc<TableSchema>,
    compiled: Compiled,
}

impl Checks {
    /// `compiled` has a column for each check of the table, in their order.
    pub fn new(table: Arc<TableSchema>, compiled: Compiled) -> Checks {
        Checks { table, compiled }
    }

    /// Rows of the table's columns, of storage types, and perhaps others behind.
    ///
    /// Errors: `23514` for the first row that may not be, naming the first of the checks that say so; what a check says of a row otherwise.
    pub fn check(&self, rows: &RecordBatch) -> Result<()> {
        let checks = &self.table.options.rules.checks;
        let mut failed: Option<(usize, &str)> = None;
        for (column, check) in self.compiled.evaluate(rows)?.iter().zip(checks) {
            let column = column.as_boolean();
            let first = (0..column.len()).find(|row| column.is_valid(*row) && !column.value(*row));
            let found = first.map(|row| (row, check.name.as_str()));
            // In the order of their names, as PostgreSQL looks at them.
            failed = [failed, found].into_iter().flatten().min();
        }
        let Some((row, check)) = failed else { return Ok(()) };
        let table = &self.table.name;
        let message = format!("new row for relation \"{table}\" violates check constraint \"{check}\"");
        Err(SqlError::new(state::CHECK_VIOLATION, message)
            .with_detail(format!("Failing row contains ({}).", self.shown(rows, row)?)))
    }

    fn shown(&self, rows: &RecordBatch, row: usize) -> Result<String> {
        let values = self.table.shown().iter().zip(rows.columns()).map(|(column, cells)| {
            let value = Value::from_arrow(cells.as_ref(), row, &column.data_type)?;
            if value == Value::Null {
                return Ok("null".to_owned());
            }
            let shown = value.to_display(&column.data_type);
            Ok(match shown.char_indices().nth(MAX_SHOWN_CHARS) {
                Some((end, _)) => format!("{}...", &shown[..end]),
                None => shown,
            })
        });
        Ok(values.collect::<Result<Vec<_>>>()?.join(", "))
    }
}

/// What is computed for columns that are missing in the rows of a COPY.
#[derive(Clone, Default)]
pub(super) struct Fills {
    /// By the column's name.
    columns: Arc<[(String, Compiled)]>,
}

impl Fills {
    /// By the columns' names; each computes one column.
    pub fn new(columns: Vec<(String, Compiled)>) -> Fills {
        Fills { columns: columns.into() }
    }

    /// The rows with what is missing. On the caller's thread, which waits where a number of a sequence is waited for.
    pub fn fill(&self, rows: RecordBatch) -> Result<RecordBatch> {
        let missing = |(name, _): &&(String, Compiled)| rows.schema_ref().column_with_name(name).is_none();
        let missing: Vec<_> = self.columns.iter().filter(missing).collect();
        if missing.is_empty() {
            return Ok(rows);
        }
        let (mut fields, mut columns) = (rows.schema_ref().fields().to_vec(), rows.columns().to_vec());
        for (name, default) in missing {
            for column in default.evaluate(&rows)? {
                fields.push(Arc::new(Field::new(name, column.data_type().clone(), true)));
                columns.push(column);
            }
        }
        let schema = Arc::new(Schema::new(fields));
        Ok(RecordBatch::try_new(schema, columns)?)
    }
}
