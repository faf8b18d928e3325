//! What do the rules of a table make of rows that were decoded, on whatever thread that was? Its computed defaults give
//! the columns that are missing, its generated columns are computed of the others, its checks say which rows may be
//! there. They are compiled by a session (`defaults.rs`, `generated.rs`, `checks.rs`) and know none.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::arrow::record_batch::RecordBatch;
use tarn_query::CompiledExprs;
use tarn_types::{TableSchema, Value, conform};

use crate::error::{Result, SqlError, state};

/// Of a value of a row that is refused, in the error.
const MAX_SHOWN_CHARS: usize = 64;

/// What a table's definition makes of rows that are about to be written, for the time of one statement. Of most tables
/// that is nothing.
#[derive(Clone)]
pub(super) struct RowRules {
    /// Whose rules they are.
    pub table: Arc<TableSchema>,
    /// A column for each that is generated, in their order.
    pub generated: Option<CompiledExprs>,
    /// A column for each check of the table, in their order.
    pub checks: Option<CompiledExprs>,
}

impl RowRules {
    /// Of rows that go.
    pub fn none(table: &Arc<TableSchema>) -> RowRules {
        RowRules { table: Arc::clone(table), generated: None, checks: None }
    }

    /// The rows as they are written. They have the table's columns, of storage types, generated ones with any value,
    /// and perhaps others behind, which stay as they are.
    ///
    /// Errors: `23514` for the first row that may not be, naming the first of the checks that say so; `23502` for a
    /// generated value that may not be NULL; what an expression says of a row otherwise.
    pub fn applied(&self, rows: RecordBatch) -> Result<RecordBatch> {
        let rows = match &self.generated {
            Some(generated) => self.computed(generated, &rows)?,
            None => rows,
        };
        if let Some(checks) = &self.checks {
            self.check(checks, &rows)?;
        }
        Ok(rows)
    }

    fn computed(&self, generated: &CompiledExprs, rows: &RecordBatch) -> Result<RecordBatch> {
        let n_columns = self.table.columns.len();
        let mut fields = rows.schema_ref().fields().to_vec();
        let mut columns = rows.columns().to_vec();
        let computed = generated.evaluate_rows(rows)?;
        let places = (0..n_columns).filter(|at| self.table.generated(*at).is_some());
        for (at, (field, column)) in places.zip(computed.schema_ref().fields().iter().zip(computed.columns())) {
            let name = &self.table.columns[at].name;
            fields[at] = Arc::new(field.as_ref().clone().with_name(name).with_nullable(true));
            columns[at] = Arc::clone(column);
        }
        let (behind, more) = (fields.split_off(n_columns), columns.split_off(n_columns));
        let own = conform(&RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?, &self.table)
            .map_err(|source| tarn_query::Error::Types { table: self.table.name.clone(), source })?;
        if more.is_empty() {
            return Ok(own);
        }
        let fields: Vec<_> = own.schema_ref().fields().iter().cloned().chain(behind).collect();
        let columns = own.columns().iter().cloned().chain(more).collect();
        Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
    }

    fn check(&self, compiled: &CompiledExprs, rows: &RecordBatch) -> Result<()> {
        let checks = &self.table.options.rules.checks;
        let mut failed: Option<(usize, &str)> = None;
        for (column, check) in compiled.evaluate(rows)?.iter().zip(checks) {
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
            .with_constraint(table, check)
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
pub(super) struct DefaultFiller {
    /// By the column's name.
    columns: Arc<[(String, CompiledExprs)]>,
}

impl DefaultFiller {
    /// By the columns' names; each computes one column.
    pub fn new(columns: Vec<(String, CompiledExprs)>) -> DefaultFiller {
        DefaultFiller { columns: columns.into() }
    }

    /// The rows with what is missing. On the caller's thread, which waits where a number of a sequence is waited for.
    pub fn fill(&self, rows: RecordBatch) -> Result<RecordBatch> {
        let missing = |(name, _): &&(String, CompiledExprs)| rows.schema_ref().column_with_name(name).is_none();
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
