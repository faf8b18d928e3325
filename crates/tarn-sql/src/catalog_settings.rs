//! What does `pg_settings` say? The settings of the session that asks, as `SHOW ALL` has them. JDBC looks up there how
//! many columns an index may have, before it asks for foreign keys.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, StringArray, new_null_array};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use tarn_query::Error;

use crate::system_activity::PgTables;

/// Its columns of texts. What PostgreSQL says of a setting beside its value (units, bounds, files) is NULL.
const TEXTS: [&str; 15] = [
    "name",
    "setting",
    "unit",
    "category",
    "short_desc",
    "extra_desc",
    "context",
    "vartype",
    "source",
    "min_val",
    "max_val",
    "enumvals",
    "boot_val",
    "reset_val",
    "sourcefile",
];

impl PgTables {
    /// `pg_settings`: a row for each.
    pub(crate) fn settings(&self) -> Result<RecordBatch, Error> {
        let (names, values): (Vec<String>, Vec<String>) = self.vars.lock().all().into_iter().unzip();
        let n_rows = names.len();
        let all = |text: &str| StringArray::from(vec![text; n_rows]);
        let texts = TEXTS.map(|column| -> ArrayRef {
            match column {
                "name" => Arc::new(StringArray::from(names.clone())),
                "setting" => Arc::new(StringArray::from(values.clone())),
                "context" => Arc::new(all("user")),
                "vartype" => Arc::new(all("string")),
                "source" => Arc::new(all("session")),
                _ => new_null_array(&DataType::Utf8, n_rows),
            }
        });
        let restart: ArrayRef = Arc::new(BooleanArray::from(vec![false; n_rows]));
        let lines = new_null_array(&DataType::Int32, n_rows);
        let columns = TEXTS.into_iter().zip(texts).chain([("sourceline", lines), ("pending_restart", restart)]);
        let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) =
            columns.map(|(name, array)| (Field::new(name, array.data_type().clone(), true), array)).unzip();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).map_err(|error| Error::Sql { source: error.into() })
    }
}
