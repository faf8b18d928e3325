//! What do rows of a file have in a column that came later than the file? What the column was added with
//! ([`TableSchema::missing`]).
//!
//! A file is read by the schema that it has: where a filter, a projection or an order names a column that is not in it,
//! the value stands in the column's place. So whatever is concluded from the expression (which blocks and pages are
//! left out, that nothing is left) is concluded of the value. Columns that were added without one are NULL, as the
//! engine has it.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr_adapter::{
    DefaultPhysicalExprAdapterFactory, PhysicalExprAdapter, PhysicalExprAdapterFactory,
};
use datafusion::scalar::ScalarValue;
use tarn_types::TableSchema;

use crate::Error;
use crate::values::to_scalar;

/// What older files of a table have in its columns, by their names.
#[derive(Debug)]
pub(crate) struct MissingValues(HashMap<String, ScalarValue>);

impl MissingValues {
    /// `None`: NULL in each.
    pub(crate) fn of(table: &TableSchema) -> crate::Result<Option<Arc<dyn PhysicalExprAdapterFactory>>> {
        let mut values = HashMap::new();
        for column in &table.columns {
            let Some(value) = table.missing(column.id) else { continue };
            let scalar = to_scalar(value, &column.data_type).ok_or_else(|| Error::Corrupt {
                what: format!("{value:?} of column {} of table {} is no {}", column.name, table.name, column.data_type),
            })?;
            values.insert(column.name.clone(), scalar);
        }
        Ok((!values.is_empty()).then(|| Arc::new(MissingValues(values)) as _))
    }

    /// Of the columns that are not in a file, each as the table's schema has it.
    fn not_in(&self, file: &Schema, table: &Schema) -> HashMap<String, Arc<dyn PhysicalExpr>> {
        let missing = self.0.iter().filter(|(name, _)| file.index_of(name).is_err());
        let literal = |(name, value): (&String, &ScalarValue)| {
            let told = table.field_with_name(name).ok().map(FieldMetadata::from);
            let literal: Arc<dyn PhysicalExpr> = Arc::new(Literal::new_with_metadata(value.clone(), told));
            (name.clone(), literal)
        };
        missing.map(literal).collect()
    }
}

impl PhysicalExprAdapterFactory for MissingValues {
    fn create(&self, table: SchemaRef, file: SchemaRef) -> Result<Arc<dyn PhysicalExprAdapter>> {
        let values = self.not_in(&file, &table);
        let rest = DefaultPhysicalExprAdapterFactory.create(table, file)?;
        Ok(if values.is_empty() { rest } else { Arc::new(OfFile { values, rest }) })
    }
}

/// Of a file that lacks such columns.
#[derive(Debug)]
struct OfFile {
    values: HashMap<String, Arc<dyn PhysicalExpr>>,
    rest: Arc<dyn PhysicalExprAdapter>,
}

impl PhysicalExprAdapter for OfFile {
    fn rewrite(&self, expr: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
        let filled = expr.transform_down(|expr| {
            let value = expr.downcast_ref::<Column>().and_then(|column| self.values.get(column.name()));
            Ok(value.map_or_else(|| Transformed::no(Arc::clone(&expr)), |value| Transformed::yes(Arc::clone(value))))
        });
        self.rest.rewrite(filled.data()?)
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType as ArrowType, Field};
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::{binary, col};
    use tarn_types::{ColumnId, ColumnRules, DataType, KeyPart, TableId, TableOptions, TabletId, Value};

    use super::*;

    #[test]
    fn a_column_that_a_file_lacks_is_the_value_and_one_that_it_has_is_read() {
        let column = |id, name: &str| tarn_types::Column {
            id: ColumnId(id),
            name: name.to_owned(),
            data_type: DataType::Int64,
            nullable: id > 1,
            default: None,
        };
        let table = TableSchema {
            id: TableId(1),
            name: "t".to_owned(),
            columns: vec![column(1, "k")],
            key: vec![KeyPart { column_idx: 0, descending: false }],
            n_partition_key: 1,
            first_tablet: TabletId(1),
            options: TableOptions::default(),
        };
        assert!(MissingValues::of(&table).unwrap().is_none());
        let rules = ColumnRules { missing: Some(Value::Int64(7)), ..ColumnRules::default() };
        let table =
            table.with_column_added(column(2, "a"), rules).with_column_added(column(3, "b"), ColumnRules::default());
        let full = table.arrow();
        let filter = binary(
            binary(col("a", &full).unwrap(), Operator::Plus, col("k", &full).unwrap(), &full).unwrap(),
            Operator::Eq,
            col("b", &full).unwrap(),
            &full,
        );
        let filter = filter.unwrap();
        let read = |names: &[&str]| {
            let fields: Vec<Field> =
                names.iter().map(|name| Field::new(*name, ArrowType::Int64, *name != "k")).collect();
            let factory = MissingValues::of(&table).unwrap().unwrap();
            let adapter = factory.create(Arc::clone(&full), Arc::new(Schema::new(fields))).unwrap();
            adapter.rewrite(Arc::clone(&filter)).unwrap().to_string()
        };
        assert_eq!(read(&["k", "a", "b"]), "a@1 + k@0 = b@2");
        assert_eq!(read(&["b", "k"]), "7 + k@1 = b@0");
        assert_eq!(read(&["k"]), "7 + k@0 = NULL");
    }
}
