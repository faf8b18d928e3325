//! What is done with rows? Functions that plans call: values become a row, a row gives a field, a text the texts of its
//! fields; and one that statements call for `(v).a`, whose name is the field's.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, ListBuilder, StringArray, StringBuilder, StructArray};
use arrow::compute::{cast, is_null, nullif};
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;

use super::text::fields_of_text;
use crate::arrays::elements_of_text;
use crate::error::{SqlError, state};
use crate::names::quote;
use crate::postgres::cast_calls::TEXT;
use crate::postgres::row_access::FIELD;
use crate::postgres::rowwise::ArgumentRows;
use crate::row_type::{is_anonymous, named, outside};
use crate::rows::{long_name, pg_type};

/// The function that statements call: a row, and the name of a field that is written out.
pub(super) fn field_by_name() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(CompositeFunction {
        what: CompositeOp::Named,
        signature: Signature::any(2, Volatility::Immutable),
    }))
}

/// The function that statements call for `text(x)`.
pub(super) fn text() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(CompositeFunction {
        what: CompositeOp::Text,
        signature: Signature::any(1, Volatility::Immutable),
    }))
}

/// A row of these values, each of the type of its field.
pub(super) fn row_of(values: Vec<Expr>, fields: &Fields) -> Expr {
    call(CompositeOp::Row(fields.clone()), values)
}

/// The values of a row that is made there.
pub(super) fn values(row: &Expr) -> Option<&[Expr]> {
    match row {
        Expr::ScalarFunction(call) if matches!(what(call.func.inner().as_ref()), Some(CompositeOp::Row(_))) => {
            Some(&call.args)
        }
        _ => None,
    }
}

/// The field of a row at a place; the value itself, where the row is made of values.
pub(super) fn field(row: &Expr, at: usize) -> Expr {
    match values(row).and_then(|values| values.get(at)) {
        Some(value) => value.clone(),
        None => call(CompositeOp::Field(at), vec![row.clone()]),
    }
}

/// What a text, which is a row of this type, says of the field at a place.
pub(super) fn part(text: &Expr, at: usize, n_fields: usize) -> Expr {
    call(CompositeOp::Part(at, n_fields), vec![text.clone()])
}

/// The texts of the items of a text that is an array of one dimension.
pub(super) fn items(text: Expr) -> Expr {
    call(CompositeOp::Items, vec![text])
}

/// Whether there is no row, which is not the same as one whose fields are all NULL.
pub(super) fn is_absent(row: &Expr) -> Expr {
    call(CompositeOp::Absent, vec![row.clone()])
}

/// The field that is called so.
///
/// Errors: `42703` if there is none; `42809` of what is no row.
pub(super) fn place(row: &DataType, name: &str) -> Result<usize, SqlError> {
    let DataType::Struct(fields) = row else {
        let of = pg_type(&Field::new("", row.clone(), true)).map(|of| long_name(&of))?;
        let message = format!("column notation .{name} applied to type {of}, which is not a composite type");
        return Err(SqlError::new(state::WRONG_OBJECT_TYPE, message));
    };
    let by_number = || name.strip_prefix('f')?.parse::<usize>().ok()?.checked_sub(1).filter(|at| *at < fields.len());
    let found = match is_anonymous(fields) {
        true => by_number(),
        false => fields.iter().position(|field| field.name() == name),
    };
    found.ok_or_else(|| {
        let message = match named(row) {
            Some((_, of)) => format!("column \"{name}\" not found in data type {}", quote(of)),
            None => format!("could not identify column \"{name}\" in record data type"),
        };
        SqlError::new(state::UNDEFINED_COLUMN, message)
    })
}

/// As `format_type` writes it.
pub(super) fn name_of(of: &DataType) -> String {
    if let Some((_, name)) = named(of) {
        return quote(name);
    }
    pg_type(&Field::new("", of.clone(), true)).map_or_else(|_| of.to_string(), |of| long_name(&of))
}

fn call(what: CompositeOp, args: Vec<Expr>) -> Expr {
    let signature = match args.len() {
        0 => Signature::nullary(Volatility::Immutable),
        n_args => Signature::any(n_args, Volatility::Immutable),
    };
    ScalarUDF::from(CompositeFunction { what, signature }).call(args)
}

fn what(function: &dyn ScalarUDFImpl) -> Option<&CompositeOp> {
    function.downcast_ref::<CompositeFunction>().map(|of| &of.what)
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum CompositeOp {
    Row(Fields),
    Field(usize),
    /// Of a name among the arguments.
    Named,
    /// The place, of so many.
    Part(usize, usize),
    Items,
    Absent,
    /// Of what is no row, which plans make a cast of.
    Text,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CompositeFunction {
    what: CompositeOp,
    signature: Signature,
}

impl CompositeFunction {
    /// The place of the field that is asked for.
    fn place(&self, row: &DataType, name: Option<&ScalarValue>) -> Result<usize> {
        match (&self.what, name.and_then(|name| name.try_as_str().flatten())) {
            (CompositeOp::Field(at), _) => Ok(*at),
            (_, Some(name)) => Ok(place(row, name)?),
            _ => exec_err!("the name of a field is a constant"),
        }
    }
}

impl ScalarUDFImpl for CompositeFunction {
    fn name(&self) -> &str {
        match self.what {
            CompositeOp::Row(_) => "tarn_row_of",
            CompositeOp::Field(_) => "tarn_row_value",
            CompositeOp::Named => FIELD,
            CompositeOp::Part(..) => "tarn_row_part",
            CompositeOp::Items => "tarn_array_items",
            CompositeOp::Absent => "tarn_no_row",
            CompositeOp::Text => TEXT,
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        exec_err!("the type of a field is that which its row says")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(match &self.what {
            CompositeOp::Row(fields) => Field::new(self.name(), DataType::Struct(fields.clone()), false),
            CompositeOp::Part(..) => Field::new(self.name(), DataType::Utf8, true),
            CompositeOp::Items => Field::new(self.name(), DataType::new_list(DataType::Utf8, true), true),
            CompositeOp::Absent => Field::new(self.name(), DataType::Boolean, false),
            CompositeOp::Text => match args.arg_fields[0].data_type() {
                row @ DataType::Struct(_) => {
                    let message = format!("function text({}) does not exist", name_of(row));
                    return Err(SqlError::new(state::UNDEFINED_FUNCTION, message).with_hint("cast it to text").into());
                }
                _ => Field::new(self.name(), DataType::Utf8, true),
            },
            CompositeOp::Field(_) | CompositeOp::Named => {
                let row = args.arg_fields[0].data_type();
                let name = args.scalar_arguments.get(1).copied().flatten();
                let at = self.place(row, name)?;
                let DataType::Struct(fields) = row else { return exec_err!("a field is of a row") };
                outside(&fields[at]).with_name(self.name())
            }
        }))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = ArgumentRows::of(&args)?;
        let values: ArrayRef = match &self.what {
            CompositeOp::Row(fields) => {
                let columns = rows.columns.iter().zip(fields).map(|(values, field)| match field.data_type() {
                    of if of == values.data_type() => Ok(Arc::clone(values)),
                    of => cast(values, of),
                });
                let columns = columns.collect::<Result<Vec<_>, _>>()?;
                Arc::new(StructArray::try_new_with_length(fields.clone(), columns, None, rows.n_rows)?)
            }
            CompositeOp::Field(_) | CompositeOp::Named => {
                let name = match args.args.get(1) {
                    Some(ColumnarValue::Scalar(name)) => Some(name),
                    _ => None,
                };
                let at = self.place(rows.columns[0].data_type(), name)?;
                let of = rows.columns[0].as_struct();
                nullif(of.column(at), &is_null(&rows.columns[0])?)?
            }
            CompositeOp::Text => cast(&rows.columns[0], &DataType::Utf8)?,
            CompositeOp::Part(at, n_fields) => {
                let texts = cast(&rows.columns[0], &DataType::Utf8)?;
                let part = |text: &str| Ok(fields_of_text(text, *n_fields)?.swap_remove(*at));
                let parts = texts.as_string::<i32>().iter().map(|text| text.map_or(Ok(None), part));
                Arc::new(parts.collect::<Result<StringArray>>()?)
            }
            CompositeOp::Items => {
                let texts = cast(&rows.columns[0], &DataType::Utf8)?;
                let mut lists = ListBuilder::new(StringBuilder::new());
                for text in texts.as_string::<i32>() {
                    match text {
                        Some(text) => lists.append_value(elements_of_text(text)?),
                        None => lists.append_null(),
                    }
                }
                Arc::new(lists.finish())
            }
            CompositeOp::Absent => {
                let absent: BooleanArray = is_null(&rows.columns[0])?;
                Arc::new(absent)
            }
        };
        rows.answer(values)
    }
}
