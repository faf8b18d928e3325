//! Which row is a JSON object? `json_populate_record(base, doc)` has the members of `doc` that are called as its
//! fields, and of `base` what `doc` does not name. Each member becomes a value of the type of its field, as
//! PostgreSQL's input of that type reads its text: so a call becomes casts of what functions here take out of the
//! document.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, ListArray, StringArray, StringBuilder};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, when,
};
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;
use tarn_types::json::quote;
use tarn_types::{DataType as Stored, data_type_of};

use super::convert::{RowCast, null_of, type_of};
use super::function::{field, name_of, row_of};
use super::text::fields_of_text;
use crate::error::{SqlError, state};
use crate::postgres::json::{JSON_AS, Json, JsonKind, check_escapes};
use crate::postgres::kept_as_text::cast_function;
use crate::postgres::rowwise::ArgumentRows;
use crate::row_type::is_anonymous;

const POPULATE: [(&str, Stored); 2] =
    [("json_populate_record", Stored::Json), ("jsonb_populate_record", Stored::Jsonb)];

/// The functions that statements name; in a plan they are casts.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    POPULATE.map(|(name, _)| written(name, 2, 0)).to_vec()
}

/// It, for statements that are changed before they are planned.
pub(super) fn json_as() -> Arc<ScalarUDF> {
    written(JSON_AS, 4, 1)
}

fn written(name: &'static str, n_args: usize, typed: usize) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(PopulateFunction {
        name,
        typed,
        signature: Signature::any(n_args, Volatility::Immutable),
    }))
}

/// A call that is written out when a statement is planned.
#[derive(Debug, PartialEq, Eq, Hash)]
struct PopulateFunction {
    name: &'static str,
    /// The argument that says which type it gives.
    typed: usize,
    signature: Signature,
}

impl ScalarUDFImpl for PopulateFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[self.typed].clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let of = args.arg_fields[self.typed].as_ref();
        if self.name != JSON_AS {
            check_base(self.name, of.data_type())?;
        }
        Ok(Arc::new(of.clone().with_name(self.name).with_nullable(true)))
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        exec_err!("{} is written out when a statement is planned", self.name)
    }
}

/// Errors: `42804` for what is no row, and for a NULL of no type.
fn check_base(called: &str, of: &DataType) -> Result<()> {
    match of {
        DataType::Struct(_) => Ok(()),
        DataType::Null => {
            let message = "could not determine polymorphic type because input has type unknown";
            Err(SqlError::new(state::DATATYPE_MISMATCH, message)
                .with_hint(format!("{called}(NULL::name of a type or table, …)"))
                .into())
        }
        _ => {
            let message = format!("first argument of {called} must be a row type");
            Err(SqlError::new(state::DATATYPE_MISMATCH, message).into())
        }
    }
}

/// The call with what it comes to, if it is one of these.
///
/// Errors: `0A000` for arrays of rows; those of [`RowCast::cast`].
pub(super) fn written_out(call: ScalarFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let converting = RowCast { schema, is_input: true };
    let name = call.func.name();
    if name == JSON_AS
        && let [json, typed, path, depth] = &call.args[..]
    {
        let to = typed.to_field(schema)?.1;
        let path = match path {
            Expr::Literal(path, _) => path.try_as_str().flatten().unwrap_or_default(),
            _ => "",
        };
        // What the type says of its dimensions was written beside it: a type of the planner's has one.
        let depth = match depth {
            Expr::Literal(depth, _) => depth.cast_to(&DataType::Int64)?,
            _ => return exec_err!("dimensions are a constant"),
        };
        let n_more = match depth {
            ScalarValue::Int64(Some(depth)) => usize::try_from(depth).unwrap_or(0).saturating_sub(dimensions_of(&to)),
            _ => 0,
        };
        let to = match to.data_type() {
            DataType::List(item) => {
                let list = |item: &FieldRef| DataType::List(Arc::clone(item));
                let inner = |item: FieldRef| Arc::new(Field::new_list_field(list(&item), true));
                let item = (0..n_more).fold(Arc::clone(item), |item, _| inner(item));
                Arc::new(to.as_ref().clone().with_data_type(list(&item)))
            }
            _ => to,
        };
        return Ok(Transformed::yes(converting.read_from(json.clone(), &to, path, None)?));
    }
    let Some((called, stored)) = POPULATE.iter().find(|(populate, _)| *populate == name) else {
        return Ok(Transformed::no(Expr::ScalarFunction(call)));
    };
    let [base, doc] = &call.args[..] else { return Ok(Transformed::no(Expr::ScalarFunction(call))) };
    let of_base = type_of(base, schema)?;
    check_base(called, &of_base)?;
    let DataType::Struct(fields) = &of_base else { return exec_err!("a row has fields") };
    let of_doc = doc.to_field(schema).ok().and_then(|(_, field)| data_type_of(&field).ok());
    let doc = match doc {
        doc if of_doc.as_ref() == Some(stored) => doc.clone(),
        Expr::Literal(value, _) if value.is_null() || value.data_type().is_string() => {
            let text = if value.is_null() { null_of(&DataType::Utf8)? } else { doc.clone() };
            cast_function(*stored).call(vec![text])
        }
        Expr::Placeholder(_) => cast_function(*stored).call(vec![doc.clone()]),
        doc => {
            let given =
                [base, doc].map(|arg| type_of(arg, schema).map_or_else(|_| "unknown".to_owned(), |of| name_of(&of)));
            let message = format!("function {called}({}) does not exist", given.join(", "));
            return Err(SqlError::new(state::UNDEFINED_FUNCTION, message)
                .with_hint(format!("cast it to {}", stored.to_string().to_lowercase()))
                .into());
        }
    };
    if doc.is_volatile() || base.is_volatile() {
        let what = format!("{called} of what gives another value each time");
        return Err(SqlError::unsupported(what, "compute it in a subquery of FROM").into());
    }
    let has_base = !matches!(base, Expr::Literal(value, _) if value.is_null());
    let values = converting.members(&doc, fields, has_base.then_some(base), true)?;
    let row = row_of(values, fields);
    Ok(Transformed::yes(when(doc.is_null(), base.clone()).otherwise(row)?))
}

impl RowCast<'_> {
    /// The fields of a row that is an object, and of `base` those that it does not name.
    fn members(self, json: &Expr, fields: &Fields, base: Option<&Expr>, is_document: bool) -> Result<Vec<Expr>> {
        let are_anonymous = is_anonymous(fields);
        let members = fields.iter().enumerate().map(|(at, of)| {
            let name = if are_anonymous { format!("f{}", at + 1) } else { of.name().clone() };
            let member = FieldMember { name, at, n_fields: fields.len(), is_document };
            let base = base.map(|base| field(base, at));
            let taken_out = taken(JsonAccess::Member(member.clone()), json);
            let read = self.read_from(taken_out, of, &member.name, base.as_ref())?;
            match base {
                Some(base) => when(taken(JsonAccess::Has(member), json), read).otherwise(base),
                None => Ok(read),
            }
        });
        members.collect()
    }

    /// A piece of JSON, a text, as a value of the type of this field. `path` says where it is from; a row has of `base`
    /// what it does not name.
    fn read_from(self, json: Expr, to: &Field, path: &str, base: Option<&Expr>) -> Result<Expr> {
        let stored = data_type_of(to).ok().filter(|of| matches!(of, Stored::Json | Stored::Jsonb));
        match (to.data_type(), stored) {
            (_, Some(stored)) => Ok(cast_function(stored).call(vec![taken(JsonAccess::Value, &json)])),
            (DataType::Struct(fields), _) => {
                let row = row_of(self.members(&json, fields, base, false)?, fields);
                when(taken(JsonAccess::IsNull, &json), null_of(to.data_type())?).otherwise(row)
            }
            (DataType::List(item), _) => {
                let (mut leaf, mut depth) = (item, 1);
                while let DataType::List(item) = leaf.data_type() {
                    (leaf, depth) = (item, depth + 1);
                }
                if matches!(leaf.data_type(), DataType::Struct(_)) {
                    let of = name_of(leaf.data_type());
                    return Err(SqlError::unsupported(
                        format!("type {of}[] as one that is read out of JSON"),
                        format!("a field of type jsonb, and jsonb_populate_recordset(NULL::{of}, …) of it"),
                    )
                    .into());
                }
                let is_json = data_type_of(leaf).is_ok_and(|of| matches!(of, Stored::Json | Stored::Jsonb));
                self.cast(taken(JsonAccess::List { depth, is_json, path: path.to_owned() }, &json), to)
            }
            _ => self.cast(taken(JsonAccess::Text, &json), to),
        }
    }
}

/// A member that is a field of a row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct FieldMember {
    name: String,
    /// Its place, where the row is not an object but a text that is a row.
    at: usize,
    n_fields: usize,
    /// Whether it is that of a whole document, which is no text.
    is_document: bool,
}

/// What is taken out of JSON. NULL, and what is not there, gives NULL.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum JsonAccess {
    /// As JSON.
    Member(FieldMember),
    /// Whether it has this member.
    Has(FieldMember),
    /// Whether it is `null`, or NULL.
    IsNull,
    /// The JSON itself, but NULL for `null`.
    Value,
    /// As `->>` gives it.
    Text,
    /// An array of so many dimensions, of texts, or of JSON.
    List { depth: usize, is_json: bool, path: String },
}

fn taken(what: JsonAccess, json: &Expr) -> Expr {
    let signature = Signature::any(1, Volatility::Immutable);
    ScalarUDF::from(OfJson { what, signature }).call(vec![json.clone()])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfJson {
    what: JsonAccess,
    signature: Signature,
}

impl ScalarUDFImpl for OfJson {
    fn name(&self) -> &str {
        match self.what {
            JsonAccess::Member(_) => "tarn_json_field",
            JsonAccess::Has(_) => "tarn_json_has_field",
            JsonAccess::IsNull => "tarn_json_is_null",
            JsonAccess::Value => "tarn_json_there",
            JsonAccess::Text => "tarn_json_text",
            JsonAccess::List { .. } => "tarn_json_list",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match &self.what {
            JsonAccess::Member(_) | JsonAccess::Value | JsonAccess::Text => DataType::Utf8,
            JsonAccess::Has(_) | JsonAccess::IsNull => DataType::Boolean,
            JsonAccess::List { depth, .. } => list_type(*depth),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = ArgumentRows::of(&args)?;
        let texts = cast(&rows.columns[0], &DataType::Utf8)?;
        let texts = texts.as_string::<i32>();
        let each = |take: &dyn Fn(Json<'_>) -> Result<Option<String>, SqlError>| -> Result<ArrayRef> {
            let taken = texts.iter().map(|text| text.map_or(Ok(None), |text| take(Json::of(text))));
            Ok(Arc::new(taken.collect::<Result<StringArray, _>>()?))
        };
        let values: ArrayRef = match &self.what {
            JsonAccess::Member(piece) => each(&|json| Ok(piece.of(json)?.flatten().map(Cow::into_owned)))?,
            JsonAccess::Has(piece) => {
                let has =
                    texts.iter().map(|text| text.map_or(Ok(false), |text| Ok(piece.of(Json::of(text))?.is_some())));
                Arc::new(has.map(|has| has.map(Some)).collect::<Result<BooleanArray, SqlError>>()?)
            }
            JsonAccess::IsNull => {
                let is_null = |text: Option<&str>| text.is_none_or(|text| Json::of(text).kind() == JsonKind::Null);
                Arc::new(BooleanArray::from_iter(texts.iter().map(|text| Some(is_null(text)))))
            }
            JsonAccess::Value => each(&|json| Ok((json.kind() != JsonKind::Null).then(|| json.text().to_owned())))?,
            JsonAccess::Text => each(&|json| Ok(json.as_text()?.map(Cow::into_owned)))?,
            JsonAccess::List { depth, is_json, path } => {
                let mut lists = Lists::new(*depth);
                for text in texts {
                    match text.map(Json::of).filter(|json| json.kind() != JsonKind::Null) {
                        Some(json) => lists.append(json, *is_json, path)?,
                        None => lists.levels[0].end(false),
                    }
                }
                lists.finish()?
            }
        };
        rows.answer(values)
    }
}

impl FieldMember {
    /// The member: `Some(None)` if it is `null`.
    ///
    /// Errors: `22023` for what has no members; `22P02` for a text that is no row.
    fn of<'a>(&self, json: Json<'a>) -> Result<Option<Option<Cow<'a, str>>>, SqlError> {
        let refused = |what: &str| {
            let message = format!("cannot call populate_composite on {what}");
            SqlError::new(state::INVALID_PARAMETER_VALUE, message).with_hint("an object has members")
        };
        match json.kind() {
            JsonKind::Object => {
                check_escapes(json.text())?;
                let member = json.member(&self.name)?;
                Ok(member.map(|of| (of.kind() != JsonKind::Null).then(|| Cow::Borrowed(of.text()))))
            }
            JsonKind::String if !self.is_document => {
                let field = fields_of_text(&json.string()?, self.n_fields)?.swap_remove(self.at);
                Ok(Some(field.map(|text| Cow::Owned(quoted(&text)))))
            }
            JsonKind::Array => Err(refused("an array")),
            _ => Err(refused("a scalar")),
        }
    }
}

fn quoted(text: &str) -> String {
    let mut json = String::new();
    quote(text, &mut json);
    json
}

fn dimensions_of(of: &Field) -> usize {
    match of.data_type() {
        DataType::List(item) => 1 + dimensions_of(item),
        _ => 0,
    }
}

fn list_type(depth: usize) -> DataType {
    (0..depth).fold(DataType::Utf8, |item, _| DataType::new_list(item, true))
}

/// Arrays of a column as they are read.
struct Lists {
    /// The outermost first.
    levels: Vec<Level>,
    items: StringBuilder,
}

#[derive(Default)]
struct Level {
    /// How many there are in each list.
    lengths: Vec<usize>,
    is_there: Vec<bool>,
    /// In the list that has not ended.
    n_open: usize,
}

impl Level {
    fn end(&mut self, is_there: bool) {
        self.lengths.push(std::mem::take(&mut self.n_open));
        self.is_there.push(is_there);
    }
}

impl Lists {
    fn new(depth: usize) -> Lists {
        Lists { levels: (0..depth).map(|_| Level::default()).collect(), items: StringBuilder::new() }
    }

    /// Errors: `22P02` for what is no array, or has arrays of several lengths in it; `0A000` for one of other
    /// dimensions.
    fn append(&mut self, json: Json<'_>, is_json: bool, path: &str) -> Result<(), SqlError> {
        if json.kind() == JsonKind::String {
            return self.append_text(&json.string()?);
        }
        if json.kind() != JsonKind::Array {
            return Err(no_array(path, &[]));
        }
        let (mut sizes, mut places) = (vec![None; self.levels.len()], vec![]);
        let has_items = json.items().next().is_some();
        self.within(json, is_json, path, &mut sizes, &mut places)?;
        let n_dimensions = sizes.iter().flatten().count();
        match !has_items || n_dimensions == self.levels.len() {
            true => Ok(()),
            false => Err(dimensions()),
        }
    }

    fn within(
        &mut self,
        json: Json<'_>,
        is_json: bool,
        path: &str,
        sizes: &mut [Option<usize>],
        places: &mut Vec<usize>,
    ) -> Result<(), SqlError> {
        let level = places.len();
        let is_last = level + 1 == self.levels.len();
        let mut kind = None;
        for (at, item) in json.items().enumerate() {
            let is_array = item.kind() == JsonKind::Array && !is_json;
            places.push(at);
            if *kind.get_or_insert(is_array) != is_array {
                return Err(if is_array { malformed() } else { no_array(path, places) });
            }
            self.levels[level].n_open += 1;
            match (is_array, is_last) {
                (false, true) if is_json => {
                    self.items.append_option((item.kind() != JsonKind::Null).then(|| item.text()));
                }
                (false, true) => self.items.append_option(item.as_text()?),
                (true, false) => self.within(item, is_json, path, sizes, places)?,
                _ => return Err(dimensions()),
            }
            places.pop();
        }
        let n_items = self.levels[level].n_open;
        if *sizes[level].get_or_insert(n_items) != n_items {
            return Err(malformed());
        }
        self.levels[level].end(true);
        Ok(())
    }

    /// `{1,2}`
    fn append_text(&mut self, text: &str) -> Result<(), SqlError> {
        let [level] = &mut self.levels[..] else { return Err(dimensions()) };
        for item in crate::arrays::elements_of_text(text)? {
            level.n_open += 1;
            self.items.append_option(item);
        }
        level.end(true);
        Ok(())
    }

    fn finish(mut self) -> Result<ArrayRef> {
        let items: ArrayRef = Arc::new(self.items.finish());
        self.levels.into_iter().rev().try_fold(items, |items, level| {
            let item = Arc::new(Field::new_list_field(items.data_type().clone(), true));
            let ends = OffsetBuffer::from_lengths(level.lengths);
            let nulls = NullBuffer::from(level.is_there);
            Ok(Arc::new(ListArray::try_new(item, ends, items, Some(nulls))?) as ArrayRef)
        })
    }
}

fn no_array(path: &str, places: &[usize]) -> SqlError {
    let of_key = |rest: &str| if path.is_empty() { String::new() } else { format!("{rest}key \"{path}\"") };
    let hint = match places {
        [] => format!("See the value of {}.", of_key("")),
        places => {
            let at: String = places.iter().map(|at| format!("[{at}]")).collect();
            format!("See the array element {at}{}.", of_key(" of "))
        }
    };
    SqlError::new(state::INVALID_TEXT, "expected JSON array").with_hint(hint)
}

fn malformed() -> SqlError {
    SqlError::new(state::INVALID_TEXT, "malformed JSON array")
        .with_detail("Multidimensional arrays must have sub-arrays with matching dimensions.")
}

fn dimensions() -> SqlError {
    SqlError::unsupported(
        "an array of JSON that has other dimensions than its type says",
        "int[] is of one dimension here, int[][] of two; or jsonb",
    )
}
