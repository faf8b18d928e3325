//! What is done with labels? Four functions, which plans call and nobody else: a text becomes a label, what is one
//! already is said to be, a label becomes its place in the order, and a place its label.
//!
//! What they know of the type are constants among their arguments: so a plan that was made with other labels is another
//! plan.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, ListArray, StringArray};
use arrow::buffer::OffsetBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Int32Type};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;
use tarn_types::Enumerated;

use crate::error::{SqlError, state};

/// A text, or an array of texts, as labels.
///
/// Errors, when it runs: `22P02` for a text that is none.
pub(super) fn as_label(of: Expr, to: &Enumerated) -> Expr {
    call(LabelFunction::Label, vec![of, lit(to.tag()), labels(to)])
}

/// What is a label, or an array of labels, and is not said to be.
pub(in crate::postgres) fn marked_as(of: Expr, tag: &str) -> Expr {
    call(LabelFunction::Marked, vec![of, lit(tag)])
}

/// The place of a label in the order, from 0.
pub(super) fn place_of(of: Expr, to: &Enumerated) -> Expr {
    call(LabelFunction::Place, vec![of, labels(to)])
}

/// The label at a place.
pub(super) fn label_at(place: Expr, to: &Enumerated) -> Expr {
    call(LabelFunction::At, vec![place, lit(to.tag()), labels(to)])
}

/// The array of these labels.
pub(super) fn array_of(labels: impl IntoIterator<Item = Option<String>>, to: &Enumerated) -> Expr {
    marked_as(Expr::Literal(list(labels), None), &to.tag())
}

fn labels(of: &Enumerated) -> Expr {
    Expr::Literal(list(of.labels.iter().cloned().map(Some)), None)
}

fn list(labels: impl IntoIterator<Item = Option<String>>) -> ScalarValue {
    let items: Vec<ScalarValue> = labels.into_iter().map(ScalarValue::Utf8).collect();
    ScalarValue::List(ScalarValue::new_list_nullable(&items, &DataType::Utf8))
}

fn call(what: LabelFunction, args: Vec<Expr>) -> Expr {
    let signature = Signature::any(args.len(), Volatility::Immutable);
    ScalarUDF::from(OfLabels { what, signature }).call(args)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum LabelFunction {
    Label,
    Marked,
    Place,
    At,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfLabels {
    what: LabelFunction,
    signature: Signature,
}

impl ScalarUDFImpl for OfLabels {
    fn name(&self) -> &str {
        match self.what {
            LabelFunction::Label => "tarn_label",
            LabelFunction::Marked => "tarn_as_label",
            LabelFunction::Place => "tarn_label_place",
            LabelFunction::At => "tarn_label_at",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(match (self.what, &types[0]) {
            (LabelFunction::Place, _) => DataType::Int32,
            (LabelFunction::Label | LabelFunction::Marked, DataType::List(_) | DataType::LargeList(_)) => {
                types[0].clone()
            }
            _ => DataType::Utf8,
        })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let of = &args.arg_fields[0];
        if self.what == LabelFunction::Place {
            return Ok(Arc::new(Field::new(self.name(), DataType::Int32, of.is_nullable())));
        }
        let Some(Some(tag)) = args.scalar_arguments.get(1).copied().flatten().map(|tag| tag.try_as_str().flatten())
        else {
            return exec_err!("{} is told its type", self.name());
        };
        let field = match of.data_type() {
            DataType::List(_) | DataType::LargeList(_) => {
                Field::new(self.name(), DataType::List(item(tag)), of.is_nullable())
            }
            _ => Enumerated::tagged(Field::new(self.name(), DataType::Utf8, of.is_nullable()), tag),
        };
        Ok(Arc::new(field))
    }

    /// They are called as what they are of.
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(args[0].schema_name().to_string())
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (values, is_scalar) = match &args.args[0] {
            ColumnarValue::Array(values) => (Arc::clone(values), false),
            ColumnarValue::Scalar(value) => (value.to_array()?, true),
        };
        let of = EnumConstants::read(&args.args[1..])?;
        if matches!(values.data_type(), DataType::List(_) | DataType::LargeList(_)) {
            // A scalar that is made of an array forgets of what its items are.
            let lists = Arc::new(self.lists(&values, &of)?);
            return Ok(match is_scalar {
                true => ColumnarValue::Scalar(ScalarValue::List(lists)),
                false => ColumnarValue::Array(lists),
            });
        }
        let made: ArrayRef = match (self.what, values.data_type()) {
            (LabelFunction::Label, _) => Arc::new(of.checked(&texts(&values)?)?),
            (LabelFunction::Marked, _) => Arc::new(texts(&values)?),
            (LabelFunction::Place, _) => Arc::new(of.places(&texts(&values)?)?),
            (LabelFunction::At, _) => Arc::new(of.at(&values)?),
        };
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?),
            false => ColumnarValue::Array(made),
        })
    }
}

impl OfLabels {
    fn lists(&self, lists: &ArrayRef, of: &EnumConstants) -> Result<ListArray> {
        let plain = Arc::new(Field::new_list_field(DataType::Utf8, true));
        let lists = cast(lists, &DataType::List(plain))?;
        let lists = lists.as_list::<i32>();
        // A slice of arrays keeps the items of all of them.
        let ends = lists.value_offsets();
        let (first, last) = (ends[0], ends[ends.len() - 1]);
        let items = texts(&lists.values().slice(first as usize, (last - first) as usize))?;
        let ends = OffsetBuffer::new(ends.iter().map(|end| end - first).collect());
        let items = if self.what == LabelFunction::Label { of.checked(&items)? } else { items };
        Ok(ListArray::try_new(item(&of.tag), ends, Arc::new(items), lists.nulls().cloned())?)
    }
}

/// Of an array of labels.
fn item(tag: &str) -> FieldRef {
    Arc::new(Enumerated::tagged(Field::new_list_field(DataType::Utf8, true), tag))
}

fn texts(values: &ArrayRef) -> Result<StringArray> {
    Ok(cast(values, &DataType::Utf8)?.as_string::<i32>().clone())
}

/// What the constants behind the value say.
struct EnumConstants {
    tag: String,
    labels: StringArray,
}

impl EnumConstants {
    fn read(constants: &[ColumnarValue]) -> Result<EnumConstants> {
        let mut of = EnumConstants { tag: String::new(), labels: StringArray::from(Vec::<String>::new()) };
        for constant in constants {
            match constant {
                ColumnarValue::Scalar(ScalarValue::List(list)) => of.labels = texts(list.values())?,
                ColumnarValue::Scalar(tag) if tag.try_as_str().is_some() => {
                    of.tag = tag.try_as_str().flatten().unwrap_or_default().to_owned();
                }
                _ => return exec_err!("the labels of a type are constants"),
            }
        }
        Ok(of)
    }

    fn place(&self) -> HashMap<&str, i32> {
        (0..).zip(self.labels.iter().flatten()).map(|(place, label)| (label, place)).collect()
    }

    fn checked(&self, texts: &StringArray) -> Result<StringArray> {
        let known = self.place();
        match texts.iter().flatten().find(|text| !known.contains_key(text)) {
            None => Ok(texts.clone()),
            Some(text) => {
                let (_, name) = self.tag.split_once(' ').unwrap_or_default();
                let (data_type, value) = (name.to_owned(), text.to_owned());
                Err(SqlError::from(tarn_types::Error::NoLabel { data_type, value }).into())
            }
        }
    }

    fn places(&self, texts: &StringArray) -> Result<Int32Array> {
        let known = self.place();
        let place = |text: &str| known.get(text).copied().ok_or_else(|| unknown(text));
        texts.iter().map(|text| text.map(place).transpose()).collect()
    }

    fn at(&self, places: &ArrayRef) -> Result<StringArray> {
        let places = cast(places, &DataType::Int32)?;
        let label = |place: i32| usize::try_from(place).ok().filter(|at| *at < self.labels.len());
        Ok(places
            .as_primitive::<Int32Type>()
            .iter()
            .map(|place| place.and_then(label).map(|at| self.labels.value(at)))
            .collect())
    }
}

/// A column has a label that its type did not have when the statement was planned.
fn unknown(text: &str) -> datafusion::error::DataFusionError {
    SqlError::new(state::SERIALIZATION_FAILURE, format!("the label \"{text}\" came while the statement ran"))
        .with_hint("run it again")
        .into()
}
