//! What is written by a statement of one row? An `UPDATE` or `DELETE` that names its row by the whole key reads it by
//! the key, an `INSERT` has its row in its `VALUES`, and its `DO UPDATE` the row that is there beside it: what is left
//! of the statement are columns that are computed, and nothing is planned while it runs.
//!
//! Whatever is not of this form, and whatever cannot be compiled, is left to the plan, which also words errors.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch, RecordBatchOptions, new_empty_array};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Field, Schema};
use datafusion::common::{DFSchema, ParamValues};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{EmptyRelation, LogicalPlan, Projection, SubqueryAlias};
use datafusion::sql::sqlparser::ast::Statement;
use tarn_types::{DataType, Style, Value, data_type_of};

use crate::Result;
use crate::dml::{Dml, DmlKind, beside, deleted, inserted, key_schema, updated};
use crate::engine::Session;
use crate::keyed::{BoundKeyedPlan, KeyedPlan, row_key};
use crate::row_change::{OneRow, RowChange};
use crate::row_columns::RowColumns;

/// Whose row a statement changes.
#[derive(Debug, Clone, PartialEq)]
pub enum RowKey {
    /// The one of this key: its values, in key order.
    Of(Vec<Value>),
    /// Nobody's: the key was compared with NULL.
    Nobody,
    /// That is the plan's to find.
    Planned,
}

impl Dml {
    /// As it is, and if it is of one row, by the `statement` of which it was planned: as one that needs no plan.
    #[must_use]
    pub fn of_one_row(self, statement: &Statement, style: &Style) -> Dml {
        let one_row = match self.kind {
            DmlKind::Insert { .. } => one_row(&self.source).and_then(|row| RowColumns::of(&row)).map(OneRow::New),
            DmlKind::Update | DmlKind::Delete => self.found_by_key(statement, style),
        };
        let of_pairs = self.change.as_ref().and_then(|change| {
            let nothing =
                |wanted: &DFSchema| Ok(wanted.fields().iter().map(|of| new_empty_array(of.data_type())).collect());
            RowChange::of(&beside(change.clone(), nothing).ok()?, true)
        });
        Dml { one_row, of_pairs, ..self }
    }

    fn found_by_key(&self, statement: &Statement, style: &Style) -> Option<OneRow> {
        let (key, has_condition) = row_key(statement, &self.table, style)?;
        let change = RowChange::of(&self.source, has_condition)?;
        Some(OneRow::Changed { finds: KeyedPlan::Delete { key }, change })
    }

    /// The row that an `UPDATE` or `DELETE` changes.
    pub fn row_key(&self, parameters: Option<&ParamValues>) -> RowKey {
        let Some(OneRow::Changed { finds, .. }) = &self.one_row else { return RowKey::Planned };
        let columns = finds.parameter_columns(&self.table).into_iter().enumerate();
        let values = columns.map(|(place, column)| match column {
            Some(column) => value_of(parameters, place, &self.table.columns[column].data_type),
            None => Some(Value::Null),
        });
        let Some(values) = values.collect::<Option<Vec<_>>>() else { return RowKey::Planned };
        match finds.bind(&self.table, &values) {
            Ok(BoundKeyedPlan::Delete { key }) => RowKey::Of(key),
            Ok(_) => RowKey::Nobody,
            // A value that no row can have: of which error, if any, the plan says.
            Err(_) => RowKey::Planned,
        }
    }
}

impl Session {
    /// The row of an `UPDATE` or `DELETE` of one as [`Session::dml_rows`] has it; none if it does not meet the
    /// condition. `there` is the row as it was read: the table's columns and `__seqno`, of storage types.
    ///
    /// `None`: [`Session::dml_rows`] answers. Errors and cost: as of [`Session::row_columns`].
    pub async fn changed_row(
        &self,
        dml: &Dml,
        there: &RecordBatch,
        parameters: Option<&ParamValues>,
    ) -> Result<Option<RecordBatch>> {
        let Some(OneRow::Changed { change, .. }) = &dml.one_row else { return Ok(None) };
        self.changed_rows(dml, change, there, parameters).await
    }

    /// What becomes of those of these rows that are changed. `None`: a plan answers.
    pub(crate) async fn changed_rows(
        &self,
        dml: &Dml,
        change: &RowChange,
        rows: &RecordBatch,
        parameters: Option<&ParamValues>,
    ) -> Result<Option<RecordBatch>> {
        let mut rows = rows.clone();
        if let Some(condition) = change.condition.as_ref().filter(|_| rows.num_rows() > 0) {
            let Some(met) = self.row_columns(condition, &rows, parameters).await? else { return Ok(None) };
            let met = met.column(0).as_boolean_opt();
            let met = met.ok_or_else(|| DataFusionError::Internal("a condition is no boolean".to_owned()))?;
            rows = filter_record_batch(&rows, met).map_err(DataFusionError::from)?;
        }
        let is_key = dml.kind == DmlKind::Delete && !dml.is_whole;
        let table = dml.table.before_generated();
        let schema = if is_key { key_schema(&dml.table)? } else { table.arrow_with_seqno() };
        // Of no row nothing is computed, constants neither.
        if rows.num_rows() == 0 {
            return Ok(Some(RecordBatch::new_empty(schema)));
        }
        let Some(changed) = self.row_columns(&change.columns, &rows, parameters).await? else { return Ok(None) };
        Ok(Some(if is_key { deleted(&changed, &schema)? } else { updated(&changed, &table, &schema)? }))
    }

    /// The only row of an `INSERT` as [`Session::dml_rows`] has it. `None`: the plan answers.
    pub(crate) async fn inserted_row(
        &self,
        dml: &Dml,
        parameters: Option<&ParamValues>,
    ) -> Result<Option<RecordBatch>> {
        let Some(OneRow::New(columns)) = &dml.one_row else { return Ok(None) };
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let nothing = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options);
        let nothing = nothing.map_err(DataFusionError::from)?;
        let row = self.row_columns(columns, &nothing, parameters).await?;
        row.map(|row| inserted(&row, &dml.table.before_generated())).transpose()
    }
}

/// The rows of a plan as columns of nothing, if there is one and its values are written out.
fn one_row(rows: &LogicalPlan) -> Option<LogicalPlan> {
    match rows {
        LogicalPlan::Projection(list) => {
            let of = one_row(&list.input)?;
            Some(LogicalPlan::Projection(Projection::try_new(list.expr.clone(), Arc::new(of)).ok()?))
        }
        LogicalPlan::SubqueryAlias(of) => {
            let row = one_row(&of.input)?;
            Some(LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(row), of.alias.clone()).ok()?))
        }
        LogicalPlan::Values(values) => {
            let [row] = values.values.as_slice() else { return None };
            let nothing = EmptyRelation { produce_one_row: true, schema: Arc::new(DFSchema::empty()) };
            let columns = row.iter().zip(values.schema.iter()).map(|(value, (of, field))| {
                let metadata = (!field.metadata().is_empty()).then(|| field.metadata().into());
                value.clone().alias_qualified_with_metadata(of.cloned(), field.name(), metadata)
            });
            let list = Projection::try_new(columns.collect(), Arc::new(LogicalPlan::EmptyRelation(nothing))).ok()?;
            // Values are of the types of their columns, or become so when they are computed.
            let is_same = |(found, wanted): (&Arc<Field>, &Arc<Field>)| found.data_type() == wanted.data_type();
            let are_same = list.schema.fields().iter().zip(values.schema.fields()).all(is_same);
            are_same.then_some(LogicalPlan::Projection(list))
        }
        _ => None,
    }
}

/// A parameter that a column of this type is compared with. `None`: it is of a type that the plan compares with it.
fn value_of(parameters: Option<&ParamValues>, place: usize, column: &DataType) -> Option<Value> {
    let Some(ParamValues::List(given)) = parameters else { return None };
    let scalar = &given.get(place)?.value;
    if scalar.is_null() {
        return Some(Value::Null);
    }
    let data_type = data_type_of(&Field::new("", scalar.data_type(), true)).ok()?;
    let value = Value::from_arrow(&scalar.to_array().ok()?, 0, &data_type).ok()?;
    match data_type {
        // A key that it is not exactly is not there.
        DataType::Decimal { scale, .. } => Some(value.rescale(scale, column).unwrap_or(Value::Null)),
        _ => Some(value),
    }
}
