//! How does a function of JSON look to the planner? It has a name, what it takes, what it gives, and a function that
//! computes one row; here is what all of them have in common: types are checked, NULL gives NULL, and columns become
//! values and back.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanBuilder, Int32Builder, Int64Array, ListBuilder, StringArray, StringBuilder,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, TypeSignature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::{array_items, datafusion, each_expression};
use tarn_types::json::{JsonFault, normal_form};
use tarn_types::{DataType as Stored, arrow_field, data_type_of};

use crate::error::{SqlError, json_state, state};
use crate::rows::{long_name, pg_type};

/// What an argument is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Takes {
    Json,
    Jsonb,
    Text,
    Boolean,
    /// `text[]`, or a text that is one: `'{a,b}'`.
    Names,
    /// A name, or an index from 0.
    Step,
    /// A name, an index, or several names.
    Steps,
}

/// What a function gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ResultType {
    Json,
    /// In its normal form already: a piece of a `jsonb`.
    Jsonb,
    /// Made of pieces: it becomes one in normal form.
    MadeJsonb,
    Text,
    Boolean,
    Integer,
    /// A list of texts, some of which are JSON.
    List,
}

/// An argument of one row.
#[derive(Debug)]
pub(super) enum Arg<'a> {
    Text(&'a str),
    Index(i64),
    Boolean(bool),
    Names(Vec<Option<Cow<'a, str>>>),
}

impl<'a> Arg<'a> {
    /// Of what takes JSON or text.
    pub(super) fn text(&self) -> &'a str {
        if let Arg::Text(text) = self { text } else { "" }
    }

    pub(super) fn is_true(&self) -> bool {
        matches!(self, Arg::Boolean(true))
    }
}

/// A value of one row.
#[derive(Debug)]
pub(super) enum JsonValue<'a> {
    Null,
    Text(Cow<'a, str>),
    Boolean(bool),
    Integer(i32),
    List(Vec<Option<Cow<'a, str>>>),
}

impl<'a> JsonValue<'a> {
    /// A piece of a text, if it is there.
    pub(super) fn piece(text: Option<&'a str>) -> JsonValue<'a> {
        text.map_or(JsonValue::Null, |text| JsonValue::Text(Cow::Borrowed(text)))
    }
}

/// Computes one row, none of whose arguments is NULL.
pub(super) type Compute = for<'a> fn(&[Arg<'a>]) -> Result<JsonValue<'a>, SqlError>;

/// A function of JSON.
#[derive(Debug)]
pub(super) struct Function {
    name: &'static str,
    takes: &'static [Takes],
    gives: ResultType,
    compute: Compute,
    signature: Signature,
}

impl PartialEq for Function {
    fn eq(&self, other: &Function) -> bool {
        self.name == other.name
    }
}

impl Eq for Function {}

impl std::hash::Hash for Function {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// A function that takes all of these.
pub(super) fn function(
    name: &'static str,
    takes: &'static [Takes],
    gives: ResultType,
    compute: Compute,
) -> Arc<ScalarUDF> {
    let signature = Signature::any(takes.len(), Volatility::Immutable);
    Arc::new(ScalarUDF::from(Function { name, takes, gives, compute, signature }))
}

/// A function that may be called without the last of these.
pub(super) fn with_default(
    name: &'static str,
    takes: &'static [Takes],
    gives: ResultType,
    compute: Compute,
) -> Arc<ScalarUDF> {
    with_defaults(name, takes, takes.len() - 1, gives, compute)
}

/// A function that may be called with so many of these.
pub(super) fn with_defaults(
    name: &'static str,
    takes: &'static [Takes],
    n_wanted: usize,
    gives: ResultType,
    compute: Compute,
) -> Arc<ScalarUDF> {
    let one_of = (n_wanted..=takes.len()).map(TypeSignature::Any).collect();
    let signature = Signature::one_of(one_of, Volatility::Immutable);
    Arc::new(ScalarUDF::from(Function { name, takes, gives, compute, signature }))
}

/// A function that takes the last of these any number of times.
pub(super) fn variadic(
    name: &'static str,
    takes: &'static [Takes],
    gives: ResultType,
    compute: Compute,
) -> Arc<ScalarUDF> {
    let signature = Signature::variadic_any(Volatility::Immutable);
    Arc::new(ScalarUDF::from(Function { name, takes, gives, compute, signature }))
}

impl Function {
    /// What its argument of this place is. The last may come again.
    fn takes_at(&self, idx: usize) -> Takes {
        self.takes[idx.min(self.takes.len() - 1)]
    }
}

/// Looks whether functions of JSON are called with it. The rule runs behind the one that marks what is JSON.
#[derive(Debug)]
pub(super) struct JsonCheckRule;

impl AnalyzerRule for JsonCheckRule {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, checked)
    }

    fn name(&self) -> &str {
        "checked_json"
    }
}

fn checked(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    if let Expr::ScalarFunction(call) = &expr
        && let Some(function) = call.func.inner().downcast_ref::<Function>()
    {
        let fields = call.args.iter().map(|arg| Ok(arg.to_field(schema)?.1)).collect::<Result<Vec<FieldRef>>>()?;
        let is_taken = |(idx, field)| is_taken(function.takes_at(idx), field);
        if !fields.iter().enumerate().all(is_taken) {
            return Err(undefined(function.name, &fields).into());
        }
    }
    Ok(Transformed::no(expr))
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.gives {
            ResultType::Json | ResultType::Jsonb | ResultType::MadeJsonb | ResultType::Text => DataType::Utf8,
            ResultType::Boolean => DataType::Boolean,
            ResultType::Integer => DataType::Int32,
            ResultType::List => DataType::new_list(DataType::Utf8, true),
        })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        // When a statement is planned, a CASE of JSON is a text yet: `JsonCheckRule` looks at all of them when they are
        // marked.
        let may_be = |(idx, field): (usize, &FieldRef)| {
            let takes = self.takes_at(idx);
            let is_json = matches!(takes, Takes::Json | Takes::Jsonb);
            is_taken(takes, field) || (is_json && is_taken(Takes::Text, field))
        };
        if args.arg_fields.is_empty() || !args.arg_fields.iter().enumerate().all(may_be) {
            return Err(undefined(self.name, args.arg_fields).into());
        }
        Ok(Arc::new(match self.gives {
            ResultType::Json => arrow_field(self.name, &Stored::Json, true),
            ResultType::Jsonb | ResultType::MadeJsonb => arrow_field(self.name, &Stored::Jsonb, true),
            _ => Field::new(self.name, self.return_type(&[])?, true),
        }))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let n_rows = if is_constant { 1 } else { args.number_rows };
        let columns = args.args.iter().enumerate().map(|(idx, arg)| ArgumentColumn::of(self.takes_at(idx), arg));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let mut rows = ResultRows::new(self.gives, n_rows);
        let mut row_args = Vec::with_capacity(columns.len());
        for row in 0..n_rows {
            row_args.clear();
            for column in &columns {
                row_args.extend(column.arg(row)?);
            }
            match row_args.len() == columns.len() {
                true => rows.push((self.compute)(&row_args)?)?,
                false => rows.push(JsonValue::Null)?,
            }
        }
        let rows = rows.finish();
        Ok(match is_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&rows, 0)?),
            false => ColumnarValue::Array(rows),
        })
    }
}

fn is_taken(takes: Takes, field: &FieldRef) -> bool {
    let of = field.data_type();
    if of.is_null() {
        return true;
    }
    let stored = data_type_of(field).ok();
    let is_text = stored == Some(Stored::Text);
    let is_names = matches!(of, DataType::List(item) if item.data_type().is_string() || item.data_type().is_null());
    let is_index = of.is_signed_integer();
    match takes {
        Takes::Json => stored == Some(Stored::Json),
        Takes::Jsonb => stored == Some(Stored::Jsonb),
        Takes::Text => is_text,
        Takes::Boolean => *of == DataType::Boolean,
        Takes::Names => is_text || is_names,
        Takes::Step => is_text || is_index,
        Takes::Steps => is_text || is_index || is_names,
    }
}

/// `function jsonb_typeof(integer) does not exist`.
pub(super) fn undefined(name: &str, fields: &[FieldRef]) -> SqlError {
    let types = fields.iter().map(type_name).collect::<Vec<_>>().join(", ");
    SqlError::new(state::UNDEFINED_FUNCTION, format!("function {name}({types}) does not exist"))
        .with_hint("cast its arguments: x::jsonb, x::text")
}

/// As PostgreSQL calls it in errors.
pub(super) fn type_name(field: &FieldRef) -> String {
    pg_type(field).map_or_else(|_| field.data_type().to_string(), |of| long_name(&of))
}

/// One argument of all rows.
enum ArgumentColumn {
    Text(StringArray),
    Index(Int64Array),
    Boolean(ArrayRef),
    Names(ArrayRef),
    /// Of one text for all rows.
    Items(Vec<Option<String>>),
    /// The same for all rows.
    Constant(Box<ArgumentColumn>),
    Null,
}

impl ArgumentColumn {
    fn of(takes: Takes, arg: &ColumnarValue) -> Result<ArgumentColumn> {
        match arg {
            ColumnarValue::Array(values) => ArgumentColumn::of_array(takes, values),
            ColumnarValue::Scalar(value) if value.is_null() => Ok(ArgumentColumn::Null),
            ColumnarValue::Scalar(value) => match value.try_as_str().flatten() {
                Some(text) if takes == Takes::Names => Ok(ArgumentColumn::Items(array_items(text)?)),
                _ => Ok(ArgumentColumn::Constant(Box::new(ArgumentColumn::of_array(takes, &value.to_array()?)?))),
            },
        }
    }

    fn of_array(takes: Takes, values: &ArrayRef) -> Result<ArgumentColumn> {
        Ok(match values.data_type() {
            DataType::Null => ArgumentColumn::Null,
            DataType::Boolean => ArgumentColumn::Boolean(Arc::clone(values)),
            DataType::List(_) => ArgumentColumn::Names(cast(values, &DataType::new_list(DataType::Utf8, true))?),
            of if of.is_integer() && matches!(takes, Takes::Step | Takes::Steps) => {
                ArgumentColumn::Index(cast(values, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
            }
            _ => ArgumentColumn::Text(texts(values)?),
        })
    }

    /// `None`: NULL.
    fn arg(&self, row: usize) -> Result<Option<Arg<'_>>> {
        Ok(match self {
            ArgumentColumn::Null => None,
            ArgumentColumn::Constant(column) => return column.arg(0),
            ArgumentColumn::Items(items) => {
                Some(Arg::Names(items.iter().map(|item| item.as_deref().map(Cow::Borrowed)).collect()))
            }
            ArgumentColumn::Text(texts) => (!texts.is_null(row)).then(|| Arg::Text(texts.value(row))),
            ArgumentColumn::Index(indexes) => (!indexes.is_null(row)).then(|| Arg::Index(indexes.value(row))),
            ArgumentColumn::Boolean(truths) => {
                (!truths.is_null(row)).then(|| Arg::Boolean(truths.as_boolean().value(row)))
            }
            ArgumentColumn::Names(lists) => {
                let lists = lists.as_list::<i32>();
                let range = lists.value_offsets()[row] as usize..lists.value_offsets()[row + 1] as usize;
                let items = lists.values().as_string::<i32>();
                let item = |at: usize| (!items.is_null(at)).then(|| Cow::Borrowed(items.value(at)));
                (!lists.is_null(row)).then(|| Arg::Names(range.map(item).collect()))
            }
        })
    }
}

/// What takes names as a text of each row.
pub(super) fn names_of<'a>(arg: &Arg<'a>) -> Result<Vec<Option<Cow<'a, str>>>, SqlError> {
    match arg {
        Arg::Names(names) => Ok(names.clone()),
        Arg::Text(text) => {
            let items = array_items(text).map_err(|error| SqlError::new(state::INVALID_TEXT, error.to_string()))?;
            Ok(items.into_iter().map(|item| item.map(Cow::Owned)).collect())
        }
        _ => Ok(vec![]),
    }
}

/// The values so far.
enum ResultRows {
    Text(StringBuilder, bool),
    Boolean(BooleanBuilder),
    Integer(Int32Builder),
    List(ListBuilder<StringBuilder>),
}

impl ResultRows {
    fn new(gives: ResultType, n_rows: usize) -> ResultRows {
        match gives {
            ResultType::Boolean => ResultRows::Boolean(BooleanBuilder::with_capacity(n_rows)),
            ResultType::Integer => ResultRows::Integer(Int32Builder::with_capacity(n_rows)),
            ResultType::List => ResultRows::List(ListBuilder::new(StringBuilder::new())),
            _ => ResultRows::Text(StringBuilder::new(), gives == ResultType::MadeJsonb),
        }
    }

    fn push(&mut self, given: JsonValue<'_>) -> Result<()> {
        match (self, given) {
            (ResultRows::Text(texts, is_made), JsonValue::Text(text)) => match is_made {
                true => texts.append_value(normal_form(&text).map_err(failed)?),
                false => texts.append_value(text),
            },
            (ResultRows::Boolean(truths), JsonValue::Boolean(truth)) => truths.append_value(truth),
            (ResultRows::Integer(integers), JsonValue::Integer(integer)) => integers.append_value(integer),
            (ResultRows::List(lists), JsonValue::List(items)) => lists.append_value(items),
            (ResultRows::Text(texts, _), _) => texts.append_null(),
            (ResultRows::Boolean(truths), _) => truths.append_null(),
            (ResultRows::Integer(integers), _) => integers.append_null(),
            (ResultRows::List(lists), _) => lists.append_null(),
        }
        Ok(())
    }

    fn finish(self) -> ArrayRef {
        match self {
            ResultRows::Text(mut texts, _) => Arc::new(texts.finish()),
            ResultRows::Boolean(mut truths) => Arc::new(truths.finish()),
            ResultRows::Integer(mut integers) => Arc::new(integers.finish()),
            ResultRows::List(mut lists) => Arc::new(lists.finish()),
        }
    }
}

/// Texts of any kind as such.
pub(super) fn texts(values: &ArrayRef) -> Result<StringArray> {
    Ok(cast(values, &DataType::Utf8)?.as_string::<i32>().clone())
}

/// What is wrong with a JSON text, as PostgreSQL says it.
pub(super) fn failed(fault: JsonFault) -> SqlError {
    let message = match fault {
        JsonFault::Syntax | JsonFault::Surrogate => format!("invalid input syntax for type json: {fault}"),
        fault => fault.to_string(),
    };
    SqlError::new(json_state(fault), message)
}

impl From<JsonFault> for SqlError {
    fn from(fault: JsonFault) -> SqlError {
        failed(fault)
    }
}
