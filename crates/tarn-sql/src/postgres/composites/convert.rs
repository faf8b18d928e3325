//! What becomes a row? `ROW(1, 'x')::pair`, `'(1,x)'::pair`, a text that is read when the statement runs, and a row of
//! no named type: field by field, each cast to the type of its field. So what a cast of a field means is what any cast
//! means.
//!
//! Many texts and rows are written several times in what a cast becomes, once a field; the optimizer computes them
//! once. What gives another value each time is refused.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::Array;
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::functions_nested::expr_fn::make_array;
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, when};
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;
use tarn_types::{DataType as Stored, Enumerated, Length, data_type_of};

use super::function::{field, items, name_of, part, row_of};
use super::text::fields_of_text;
use crate::arrays::elements_of_text;
use crate::error::{SqlError, state};
use crate::postgres::fitted::{OverlongText, fitted_to};
use crate::postgres::kept_as_text::cast_function;
use crate::row_type::{named, outside};

/// Whether it is a row, or an array of rows.
pub(super) fn has_rows(of: &DataType) -> bool {
    match of {
        DataType::Struct(_) => true,
        DataType::List(item) => has_rows(item.data_type()),
        _ => false,
    }
}

/// The type of an expression; that of a subquery is its only column's.
pub(super) fn type_of(expr: &Expr, schema: &DFSchema) -> Result<DataType> {
    match expr {
        Expr::ScalarSubquery(query) => Ok(query.subquery.schema().field(0).data_type().clone()),
        expr => expr.get_type(schema),
    }
}

/// A NULL of a type.
pub(super) fn null_of(of: &DataType) -> Result<Expr> {
    Ok(Expr::Literal(ScalarValue::try_new_null(of)?, None))
}

/// What is cast, where columns are these.
#[derive(Clone, Copy)]
pub(super) struct RowCast<'a> {
    pub(super) schema: &'a DFSchema,
    /// Whether values are read out of a text, as when a row is stored: a text that is too long is an error there, and
    /// is cut where somebody casts it.
    pub(super) is_input: bool,
}

impl RowCast<'_> {
    /// A value as one of the type of this field.
    ///
    /// Errors: `42846` for what has no such cast; `22P02` for a text that is no row.
    pub(super) fn cast(self, of: Expr, to: &Field) -> Result<Expr> {
        match to.data_type() {
            DataType::Struct(fields) => self.row(of, to, fields),
            DataType::List(item) if has_rows(item.data_type()) => self.rows(of, to, item),
            _ => self.value(of, to),
        }
    }

    fn row(self, of: Expr, to: &Field, fields: &Fields) -> Result<Expr> {
        let mut of = of.unalias();
        if let Expr::Placeholder(parameter) = &mut of {
            parameter.field.get_or_insert_with(|| Arc::new(Field::new("", DataType::Utf8, true)));
        }
        if let Expr::Literal(value, _) = &of {
            if value.is_null() {
                return null_of(to.data_type());
            }
            if let Some(Some(text)) = value.try_as_str() {
                let texts = fields_of_text(text, fields.len())?;
                let texts = texts.into_iter().map(|text| Expr::Literal(ScalarValue::Utf8(text), None));
                return self.read().each(texts, fields);
            }
        }
        if let Expr::ScalarFunction(call) = &of
            && call.func.name() == "struct"
        {
            check_count(call.args.len(), to, fields)?;
            return self.each(call.args.iter().cloned(), fields);
        }
        let from = type_of(&of, self.schema)?;
        if from == *to.data_type() {
            return Ok(of);
        }
        let converting = match &from {
            DataType::Null => return null_of(to.data_type()),
            DataType::Struct(own) if named(&from).is_none() => {
                check_count(own.len(), to, fields)?;
                self
            }
            of if of.is_string() => self.read(),
            _ => return Err(no_cast(&from, to)),
        };
        if of.is_volatile() {
            return Err(SqlError::unsupported(
                "a cast to a row type of what gives another value each time",
                "compute it in a subquery of FROM",
            )
            .into());
        }
        let parts = (0..fields.len()).map(|at| match from.is_string() {
            true => part(&of, at, fields.len()),
            false => field(&of, at),
        });
        let row = converting.each(parts, fields)?;
        when(of.is_null(), null_of(to.data_type())?).otherwise(row)
    }

    fn read(self) -> Self {
        RowCast { is_input: true, ..self }
    }

    fn each(self, values: impl IntoIterator<Item = Expr>, fields: &Fields) -> Result<Expr> {
        let values = values.into_iter().zip(fields).map(|(value, field)| self.cast(value, field));
        Ok(row_of(values.collect::<Result<_>>()?, fields))
    }

    /// An array of rows, which is written out.
    fn rows(self, of: Expr, to: &Field, item: &FieldRef) -> Result<Expr> {
        let of = of.unalias();
        let items = match &of {
            Expr::Literal(value, _) if value.is_null() => return null_of(to.data_type()),
            Expr::Literal(ScalarValue::List(list), _) => {
                let items = list.value(0);
                (0..items.len())
                    .map(|at| Ok(Expr::Literal(ScalarValue::try_from_array(&items, at)?, None)))
                    .collect::<Result<Vec<_>>>()?
            }
            Expr::Literal(value, _) if value.try_as_str().is_some() => {
                let items = elements_of_text(value.try_as_str().flatten().unwrap_or_default())?;
                let text = |item: Option<Cow<'_, str>>| ScalarValue::Utf8(item.map(Cow::into_owned));
                items.into_iter().map(|item| Expr::Literal(text(item), None)).collect()
            }
            Expr::ScalarFunction(call) if call.func.name() == "make_array" => call.args.clone(),
            of => {
                let from = type_of(of, self.schema)?;
                if from == *to.data_type() {
                    return Ok(of.clone());
                }
                return Err(match from.is_string() {
                    true => SqlError::unsupported(
                        "a text that is not written out as an array of rows",
                        "ARRAY[ROW(…)::type], or a cast of each item",
                    )
                    .into(),
                    false => no_cast(&from, to),
                });
            }
        };
        if items.is_empty() {
            return Ok(Expr::Literal(ScalarValue::List(ScalarValue::new_list_nullable(&[], item.data_type())), None));
        }
        let items = items.into_iter().map(|value| self.cast(value, item));
        Ok(make_array(items.collect::<Result<_>>()?))
    }

    /// What is no row.
    fn value(self, of: Expr, to: &Field) -> Result<Expr> {
        let is_null = matches!(&of, Expr::Literal(value, _) if value.is_null());
        let of = if is_null { null_of(to.data_type())? } else { of };
        let stored = match to.data_type() {
            DataType::List(item) => data_type_of(item),
            _ => data_type_of(to),
        };
        let stored = stored.ok().filter(|of| matches!(of, Stored::Uuid | Stored::Json | Stored::Jsonb));
        let of = match to.data_type().is_list() && type_of(&of, self.schema)?.is_string() && !is_literal(&of) {
            true => items(of),
            false => of,
        };
        if let Some(stored) = stored {
            let of = match to.data_type().is_list() && type_of(&of, self.schema)?.is_string() {
                true => Expr::Cast(Cast::new(Box::new(of), DataType::new_list(DataType::Utf8, true))),
                false => of,
            };
            return Ok(cast_function(stored).call(vec![of]));
        }
        if let Some(length) = Length::of(to) {
            let of = Expr::Cast(Cast::new(Box::new(of), to.data_type().clone()));
            return Ok(fitted_to(of, length, if self.is_input { OverlongText::Refused } else { OverlongText::Cut }));
        }
        if Enumerated::of(to).is_none() && !is_null && type_of(&of, self.schema)? == *to.data_type() {
            let is_plain = !to.data_type().is_string() || is_literal(&of);
            if is_plain {
                return Ok(of);
            }
        }
        Ok(Expr::Cast(Cast { expr: Box::new(of), field: Arc::new(outside(to).with_name("")) }))
    }
}

fn is_literal(of: &Expr) -> bool {
    matches!(of, Expr::Literal(..))
}

/// Errors: `42846` for a row that has more or fewer fields than the type.
fn check_count(n_given: usize, to: &Field, fields: &Fields) -> Result<()> {
    if n_given == fields.len() {
        return Ok(());
    }
    let many = if n_given < fields.len() { "few" } else { "many" };
    let message = format!("cannot cast type record to {}", name_of(to.data_type()));
    Err(SqlError::new(state::CANNOT_COERCE, message).with_detail(format!("Input has too {many} columns.")).into())
}

fn no_cast(from: &DataType, to: &Field) -> datafusion::error::DataFusionError {
    let message = format!("cannot cast type {} to {}", name_of(from), name_of(to.data_type()));
    SqlError::new(state::CANNOT_COERCE, message).into()
}
