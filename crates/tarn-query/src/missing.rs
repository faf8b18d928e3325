//! What do rows of a file have in a column that came later than the file? What the column was added with
//! ([`TableSchema::missing`]).
//!
//! A file is read by the schema that it has: where a filter, a projection or an order names a column that is not in it,
//! the value stands in the column's place. So whatever is concluded from the expression (which blocks and pages are
//! left out, that nothing is left) is concluded of the value. Columns that were added without one are NULL, as the
//! engine has it.
//!
//! Addresses are texts in files: of such a column, what is read becomes its bytes there, and what is asked of it is
//! asked of these.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::datatypes::{DataType as ArrowType, FieldRef, Schema, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_expr_adapter::{
    DefaultPhysicalExprAdapterFactory, PhysicalExprAdapter, PhysicalExprAdapterFactory,
};
use datafusion::scalar::ScalarValue;
use tarn_types::{DataType, TableSchema, file_column};

use crate::Error;
use crate::values::to_scalar;

/// What older files of a table have in its columns, by their names; and which of its columns are texts in files alone.
#[derive(Debug)]
pub(crate) struct MissingValues {
    values: HashMap<String, ScalarValue>,
    texts: HashSet<String>,
}

impl MissingValues {
    /// `None`: NULL in each, and each is read as it lies there.
    pub(crate) fn of(table: &TableSchema) -> crate::Result<Option<Arc<dyn PhysicalExprAdapterFactory>>> {
        let mut values = HashMap::new();
        for column in &table.columns {
            let Some(value) = table.missing(column.id) else { continue };
            let scalar = to_scalar(value, &column.data_type).ok_or_else(|| Error::Corrupt {
                what: format!("{value:?} of column {} of table {} is no {}", column.name, table.name, column.data_type),
            })?;
            values.insert(column.name.clone(), scalar);
        }
        let is_text = |of: &DataType| [Some(*of), of.item()].contains(&Some(DataType::Inet));
        let texts = table.columns.iter().filter(|column| is_text(&column.data_type)).map(|column| column.name.clone());
        let texts: HashSet<String> = texts.collect();
        Ok((!values.is_empty() || !texts.is_empty()).then(|| Arc::new(MissingValues { values, texts }) as _))
    }

    /// Of the columns that are not in a file, each as the table's schema has it.
    fn not_in(&self, file: &Schema, table: &Schema) -> HashMap<String, Arc<dyn PhysicalExpr>> {
        let missing = self.values.iter().filter(|(name, _)| file.index_of(name).is_err());
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
        // The rest takes them for what they are in the file.
        let (mut texts, mut seen) = (HashMap::new(), vec![]);
        for field in table.fields() {
            let in_file = file.field_with_name(field.name()).ok().filter(|_| self.texts.contains(field.name()));
            match in_file {
                Some(in_file) => {
                    seen.push(Arc::new(in_file.clone()));
                    texts.insert(field.name().clone(), Arc::clone(field));
                }
                None => seen.push(Arc::clone(field)),
            }
        }
        let seen = Arc::new(Schema::new_with_metadata(seen, table.metadata().clone()));
        let rest = DefaultPhysicalExprAdapterFactory.create(seen, file)?;
        Ok(if values.is_empty() && texts.is_empty() { rest } else { Arc::new(OfFile { values, texts, rest }) })
    }
}

/// Of a file that lacks such columns, or has such texts.
#[derive(Debug)]
struct OfFile {
    values: HashMap<String, Arc<dyn PhysicalExpr>>,
    /// Each as its table has it.
    texts: HashMap<String, FieldRef>,
    rest: Arc<dyn PhysicalExprAdapter>,
}

impl PhysicalExprAdapter for OfFile {
    fn rewrite(&self, expr: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
        let filled = expr.transform_down(|expr| {
            let value = expr.downcast_ref::<Column>().and_then(|column| self.values.get(column.name()));
            Ok(value.map_or_else(|| Transformed::no(Arc::clone(&expr)), |value| Transformed::yes(Arc::clone(value))))
        });
        let read = self.rest.rewrite(filled.data()?)?.transform_up(|expr| {
            let field = expr.downcast_ref::<Column>().and_then(|column| self.texts.get(column.name()));
            Ok(match field {
                Some(field) => Transformed::yes(as_column(&expr, field)),
                None => Transformed::no(expr),
            })
        });
        read.data()
    }
}

/// A column of a file as its table has it.
fn as_column(read: &Arc<dyn PhysicalExpr>, field: &FieldRef) -> Arc<dyn PhysicalExpr> {
    let signature = Signature::any(1, Volatility::Immutable);
    let function = ScalarUDF::from(OfFileColumn { to: field.data_type().clone(), signature });
    let (name, args) = (function.name().to_owned(), vec![Arc::clone(read)]);
    let config = Arc::new(ConfigOptions::default());
    Arc::new(ScalarFunctionExpr::new(&name, Arc::new(function), args, Arc::clone(field), config))
}

/// [`file_column`].
#[derive(Debug, PartialEq, Eq, Hash)]
struct OfFileColumn {
    to: ArrowType,
    signature: Signature,
}

impl ScalarUDFImpl for OfFileColumn {
    fn name(&self) -> &str {
        "of_file"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[ArrowType]) -> Result<ArrowType> {
        Ok(self.to.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let read = ColumnarValue::values_to_arrays(&args.args)?;
        let column = file_column(&read[0], &self.to).map_err(|error| DataFusionError::External(Box::new(error)))?;
        Ok(ColumnarValue::Array(column))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch, StringArray};
    use arrow::datatypes::Field;
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

    #[test]
    fn an_address_is_read_from_its_text() {
        let column = |id, name: &str, data_type, nullable| tarn_types::Column {
            id: ColumnId(id),
            name: name.to_owned(),
            data_type,
            nullable,
            default: None,
        };
        let table = TableSchema {
            id: TableId(1),
            name: "t".to_owned(),
            columns: vec![column(1, "k", DataType::Int64, false), column(2, "ip", DataType::Inet, true)],
            key: vec![KeyPart { column_idx: 0, descending: false }],
            n_partition_key: 1,
            first_tablet: TabletId(1),
            options: TableOptions::default(),
        };
        let full = table.arrow();
        let Value::Inet(wanted) = Value::parse(&DataType::Inet, "10.0.0.9").unwrap() else { unreachable!() };
        let wanted = Arc::new(Literal::new(ScalarValue::LargeBinary(Some(wanted.to_bytes()))));
        // `10.0.0.10` is less as a text.
        let filter = binary(col("ip", &full).unwrap(), Operator::Gt, wanted, &full).unwrap();
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("10.0.0.10"), Some("10.0.0.9/8"), None]));
        let file = RecordBatch::try_from_iter_with_nullable([("ip", texts, true)]).unwrap();
        let adapter = MissingValues::of(&table).unwrap().unwrap().create(full, file.schema()).unwrap();
        let found = adapter.rewrite(filter).unwrap().evaluate(&file).unwrap().into_array(3).unwrap();
        assert_eq!(found.as_boolean(), &BooleanArray::from(vec![Some(true), Some(false), None]));
    }
}
