//! How long is an array, and what if it were shorter? `array_dims` says its bounds as a text, `array_ndims` how many
//! there are, `trim_array` takes items from its end, `array_fill` makes one of equal items. Arrays begin at 1 here, and
//! those that are made have one dimension.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, ListArray, StringArray, UInt32Array};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use tarn_query::datafusion;

use super::averages::undefined;
use super::rowwise::ArgumentRows;
use crate::error::{SqlError, state};

/// Items that `array_fill` makes at most.
const MAX_ITEMS: i64 = 1 << 20;

/// The functions, to be registered over DataFusion's.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let all: [(ShapeFunction, Option<&str>); 4] = [
        (ShapeFunction::Dims, Some("list_dims")),
        (ShapeFunction::Fill, None),
        (ShapeFunction::NDims, Some("list_ndims")),
        (ShapeFunction::Trim, None),
    ];
    let of = |(what, alias): (ShapeFunction, Option<&str>)| {
        let aliases = alias.map(str::to_owned).into_iter().collect();
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::from(OfShapes { what, aliases, signature }))
    };
    all.into_iter().map(of).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ShapeFunction {
    Dims,
    Fill,
    NDims,
    Trim,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfShapes {
    what: ShapeFunction,
    /// DataFusion's other names.
    aliases: Vec<String>,
    signature: Signature,
}

impl ScalarUDFImpl for OfShapes {
    fn name(&self) -> &str {
        match self.what {
            ShapeFunction::Dims => "array_dims",
            ShapeFunction::Fill => "array_fill",
            ShapeFunction::NDims => "array_ndims",
            ShapeFunction::Trim => "trim_array",
        }
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let lengths = || DataType::new_list(DataType::Int64, true);
        let coerced = match (self.what, types) {
            (ShapeFunction::Dims | ShapeFunction::NDims, [DataType::List(_)]) => Some(types.to_vec()),
            (ShapeFunction::Trim, [of @ DataType::List(_), n]) if n.is_integer() => {
                Some(vec![of.clone(), DataType::Int64])
            }
            (ShapeFunction::Fill, [of, DataType::List(n)]) if n.data_type().is_integer() => {
                Some(vec![of.clone(), lengths()])
            }
            _ => None,
        };
        coerced.ok_or_else(|| undefined(self.name(), types).into())
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(match self.what {
            ShapeFunction::Dims => DataType::Utf8,
            ShapeFunction::NDims => DataType::Int32,
            ShapeFunction::Fill => DataType::new_list(types[0].clone(), true),
            ShapeFunction::Trim => types[0].clone(),
        })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let of = &args.arg_fields[0];
        let data_type = match self.what {
            ShapeFunction::Fill => {
                let item = of.as_ref().clone().with_name(Field::LIST_FIELD_DEFAULT_NAME).with_nullable(true);
                DataType::List(Arc::new(item))
            }
            _ => self.return_type(&[of.data_type().clone()])?,
        };
        Ok(Arc::new(Field::new(self.name(), data_type, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = ArgumentRows::of(&args)?;
        let answer: ArrayRef = match self.what {
            ShapeFunction::Dims => {
                let lists = &rows.columns[0];
                Arc::new((0..rows.n_rows).map(|row| dims(lists, row)).collect::<StringArray>())
            }
            ShapeFunction::NDims => {
                let lists = &rows.columns[0];
                let n_dims = |row: usize| dims(lists, row).map(|dims| dims.matches('[').count() as i32);
                Arc::new((0..rows.n_rows).map(n_dims).collect::<Int32Array>())
            }
            ShapeFunction::Trim => trimmed(&rows, args.return_field.data_type())?,
            ShapeFunction::Fill => filled(&rows, args.return_field.data_type())?,
        };
        rows.answer(answer)
    }
}

/// `[1:2][1:3]`; `None` of an array without items.
fn dims(lists: &ArrayRef, row: usize) -> Option<String> {
    let lists = lists.as_list::<i32>();
    let items = lists.is_valid(row).then(|| lists.value(row)).filter(|items| !items.is_empty())?;
    let inner = if items.data_type().is_list() { dims(&items, 0)? } else { String::new() };
    Some(format!("[1:{}]{inner}", items.len()))
}

fn list(of: &DataType, items: &ArrayRef, places: Vec<u32>, ends: Vec<i32>, is_there: Vec<bool>) -> Result<ArrayRef> {
    let DataType::List(item) = of else { return Err(undefined("array", std::slice::from_ref(of)).into()) };
    let items = take(items, &UInt32Array::from(places), None)?;
    let nulls = Some(NullBuffer::from(is_there));
    Ok(Arc::new(ListArray::try_new(Arc::clone(item), OffsetBuffer::new(ends.into()), items, nulls)?))
}

fn trimmed(rows: &ArgumentRows, of: &DataType) -> Result<ArrayRef> {
    let (lists, counts) = (rows.columns[0].as_list::<i32>(), rows.columns[1].as_primitive::<Int64Type>());
    let (mut places, mut ends, mut is_there) = (vec![], vec![0], vec![]);
    for row in rows.there() {
        if let Some(row) = row {
            let (first, behind) = (lists.value_offsets()[row], lists.value_offsets()[row + 1]);
            let n_items = i64::from(behind - first);
            let kept = n_items - counts.value(row);
            if !(0..=n_items).contains(&kept) {
                let message = format!("number of elements to trim must be between 0 and {n_items}");
                return Err(SqlError::new(state::ARRAY_SUBSCRIPT, message).into());
            }
            places.extend((first..first + kept as i32).map(i32::cast_unsigned));
        }
        is_there.push(row.is_some());
        ends.push(places.len() as i32);
    }
    list(of, lists.values(), places, ends, is_there)
}

fn filled(rows: &ArgumentRows, of: &DataType) -> Result<ArrayRef> {
    let lengths = rows.columns[1].as_list::<i32>();
    let (mut places, mut ends, mut is_there) = (vec![], vec![0], vec![]);
    for row in 0..rows.n_rows {
        if lengths.is_null(row) {
            return Err(SqlError::new(
                state::NULL_VALUE_NOT_ALLOWED,
                "dimension array or low bound array cannot be null",
            )
            .into());
        }
        let lengths = lengths.value(row);
        let lengths = cast(&lengths, &DataType::Int64)?;
        let lengths = lengths.as_primitive::<Int64Type>();
        if lengths.null_count() > 0 {
            return Err(SqlError::new(state::NULL_VALUE_NOT_ALLOWED, "dimension values cannot be null").into());
        }
        if lengths.len() > 1 {
            let message = "array_fill of several dimensions is not supported";
            return Err(SqlError::unsupported(message, "one array of all items").into());
        }
        let length = if lengths.is_empty() { 0 } else { lengths.value(0) };
        match length {
            ..0 | MAX_ITEMS.. => {
                return Err(SqlError::new(
                    state::PROGRAM_LIMIT,
                    format!("array size exceeds the maximum allowed ({MAX_ITEMS})"),
                )
                .into());
            }
            length => places.extend(std::iter::repeat_n(row as u32, length as usize)),
        }
        is_there.push(true);
        ends.push(places.len() as i32);
    }
    list(of, &rows.columns[0], places, ends, is_there)
}

#[cfg(test)]
mod tests {
    use arrow::array::ListArray;
    use arrow::datatypes::Int32Type;

    use super::*;

    #[test]
    fn bounds_are_said_of_what_has_items() {
        let lists = vec![Some(vec![Some(1), Some(2), Some(3)]), Some(vec![]), None];
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists));
        assert_eq!([dims(&lists, 0), dims(&lists, 1), dims(&lists, 2)], [Some("[1:3]".to_owned()), None, None]);
    }
}
