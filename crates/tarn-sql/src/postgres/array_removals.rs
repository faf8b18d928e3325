//! What is left of an array without an item? `array_remove(ARRAY[1, NULL, 3], NULL)` is `{1,3}`: NULL is an item as any
//! other, also where `array_replace` looks for it. DataFusion answers NULL.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, UInt64Array, make_comparator};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{SortOptions, cast, concat, take};
use arrow::datatypes::{DataType, FieldRef, Float32Type, Float64Type};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::functions_nested::remove::array_remove_all_udf;
use datafusion::functions_nested::replace::array_replace_all_udf;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use tarn_query::datafusion;

use super::rowwise::ArgumentRows;

/// The functions, to be registered over DataFusion's.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let all = [array_remove_all_udf(), array_replace_all_udf()];
    all.into_iter().map(|inner| Arc::new(ScalarUDF::from(Removal { inner }))).collect()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Removal {
    inner: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Removal {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let DataType::List(item) = args.return_field.data_type() else { return self.inner.invoke_with_args(args) };
        let rows = ArgumentRows::of(&args)?;
        let Some(lists) = rows.columns[0].as_list_opt::<i32>() else { return self.inner.invoke_with_args(args) };
        let of = lists.values().data_type();
        let others = rows.columns[1..].iter().map(|column| Ok(cast(column, of)?)).collect::<Result<Vec<_>>>()?;
        let Some(wanted) = others.first() else { return exec_err!("{} has an item to look for", self.name()) };
        let is_wanted = make_comparator(&comparable(lists.values()), &comparable(wanted), SortOptions::default())?;
        // What takes its place lies behind all items.
        let (items, first_new) = match others.get(1) {
            Some(new) => (concat(&[lists.values().as_ref(), new.as_ref()])?, lists.values().len()),
            None => (Arc::clone(lists.values()), 0),
        };
        let (mut kept, mut ends) = (vec![], vec![0_i32]);
        for row in 0..lists.len() {
            let places = lists.value_offsets()[row]..lists.value_offsets()[row + 1];
            for place in places.filter(|_| lists.is_valid(row)) {
                let place = place as usize;
                match is_wanted(place, row).is_eq() {
                    false => kept.push(place as u64),
                    true if first_new > 0 => kept.push((first_new + row) as u64),
                    true => {}
                }
            }
            ends.push(kept.len() as i32);
        }
        let items = take(&items, &UInt64Array::from(kept), None)?;
        let ends = OffsetBuffer::new(ends.into());
        let answer = ListArray::try_new(Arc::clone(item), ends, items, lists.nulls().cloned())?;
        rows.answer(Arc::new(answer))
    }
}

/// Zero is one number, whatever its sign.
fn comparable(values: &ArrayRef) -> ArrayRef {
    match values.data_type() {
        DataType::Float32 => Arc::new(values.as_primitive::<Float32Type>().unary::<_, Float32Type>(|of| of + 0.0)),
        DataType::Float64 => Arc::new(values.as_primitive::<Float64Type>().unary::<_, Float64Type>(|of| of + 0.0)),
        _ => Arc::clone(values),
    }
}
