//! What does a path find in a document?
//!
//! `lax`, where nothing else is said: what a step does not fit is passed over, an array is unwrapped where one of its
//! items is meant, and one value is an array of itself. `strict`: both are errors. In a condition an error is neither
//! true nor false: it is unknown.

use std::borrow::Cow;
use std::cell::Cell;
use std::cmp::Ordering;

use chrono::{NaiveDate, NaiveDateTime, NaiveTime};

use super::super::walk::{Json, JsonKind};
use super::grammar::{Comparison, Method, Path, PathNode, PathOperation, PathStep, quote};
use super::number::Number;
use crate::error::{SqlError, state};

/// The work of one evaluation, in bytes that are looked at: a second's, or two. A step is as much as [`STEP`] of them.
const MAX_WORK: usize = if cfg!(test) { 1 << 23 } else { 1 << 30 };
const STEP: usize = 64;

/// A value that a path found.
#[derive(Debug, Clone)]
pub(super) enum PathItem<'a> {
    Json(Cow<'a, str>),
    /// What `.datetime()` read.
    Time(Time),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Time {
    Date(NaiveDate),
    OfDay(NaiveTime),
    Timestamp(NaiveDateTime),
}

/// Why an evaluation ends.
pub(super) enum PathFailure {
    /// What a condition does not know, and a silent call says NULL to.
    Soft(SqlError),
    Hard(SqlError),
    /// Something was found, and nobody asks for more.
    Enough,
}

type Outcome = Result<(), PathFailure>;

fn soft<T>(state: &'static str, message: impl Into<String>) -> Result<T, PathFailure> {
    let error =
        SqlError::new(state, message).with_hint("lax paths pass over what they do not fit; silent => true gives NULL");
    Err(PathFailure::Soft(error))
}

impl From<tarn_types::json::JsonFault> for PathFailure {
    fn from(fault: tarn_types::json::JsonFault) -> PathFailure {
        PathFailure::Hard(fault.into())
    }
}

impl<'a> PathItem<'a> {
    fn json(&self) -> Option<Json<'_>> {
        match self {
            PathItem::Json(text) => Some(Json::of(text)),
            PathItem::Time(_) => None,
        }
    }

    fn kind(&self) -> Option<JsonKind> {
        self.json().map(Json::kind)
    }

    fn is_array(&self) -> bool {
        self.kind() == Some(JsonKind::Array)
    }

    fn is_container(&self) -> bool {
        matches!(self.kind(), Some(JsonKind::Array | JsonKind::Object))
    }

    fn made(text: impl Into<String>) -> PathItem<'a> {
        PathItem::Json(Cow::Owned(text.into()))
    }

    /// As it is shown.
    pub(super) fn into_text(self) -> Cow<'a, str> {
        match self {
            PathItem::Json(text) => text,
            PathItem::Time(Time::Date(date)) => Cow::Owned(format!("\"{}\"", date.format("%Y-%m-%d"))),
            PathItem::Time(Time::OfDay(time)) => Cow::Owned(format!("\"{}\"", time.format("%H:%M:%S%.f"))),
            PathItem::Time(Time::Timestamp(time)) => Cow::Owned(format!("\"{}\"", time.format("%Y-%m-%dT%H:%M:%S%.f"))),
        }
    }

    /// Of an array; of what is made, copies.
    fn items(&self) -> Vec<PathItem<'a>> {
        match self {
            PathItem::Json(Cow::Borrowed(text)) => Json::of(text).items().map(PathItem::piece).collect(),
            PathItem::Json(Cow::Owned(text)) => {
                Json::of(text).items().map(|item| PathItem::made(item.text())).collect()
            }
            PathItem::Time(_) => vec![],
        }
    }

    /// The values of an object.
    fn values(&self) -> Vec<PathItem<'a>> {
        match self {
            PathItem::Json(Cow::Borrowed(text)) => {
                Json::of(text).members().map(|(_, value)| PathItem::piece(value)).collect()
            }
            PathItem::Json(Cow::Owned(text)) => {
                Json::of(text).members().map(|(_, value)| PathItem::made(value.text())).collect()
            }
            PathItem::Time(_) => vec![],
        }
    }

    fn member(&self, name: &str) -> Result<Option<PathItem<'a>>, PathFailure> {
        Ok(match self {
            PathItem::Json(Cow::Borrowed(text)) => Json::of(text).member(name)?.map(PathItem::piece),
            PathItem::Json(Cow::Owned(text)) => Json::of(text).member(name)?.map(|value| PathItem::made(value.text())),
            PathItem::Time(_) => None,
        })
    }

    fn piece(json: Json<'a>) -> PathItem<'a> {
        PathItem::Json(Cow::Borrowed(json.text()))
    }

    /// `None`: it is none.
    fn number(&self) -> Result<Option<Number>, PathFailure> {
        match self.json() {
            Some(json) if json.kind() == JsonKind::Number => {
                Number::of(json.text()).map(Some).map_err(PathFailure::Soft)
            }
            _ => Ok(None),
        }
    }
}

/// One evaluation.
pub(super) struct Evaluation<'a> {
    path: &'a Path,
    document: PathItem<'a>,
    variables: Option<Json<'a>>,
    work: Cell<usize>,
}

/// Where in the document, and in the path.
#[derive(Clone, Copy)]
struct PathContext<'i, 'a> {
    current: Option<&'i PathItem<'a>>,
    /// Of the array whose items are asked for.
    n_items: Option<usize>,
    /// Below `.**`, where a step that does not fit is no error in a strict path, either.
    is_lenient: bool,
}

/// What was found.
struct PathMatches<'a> {
    items: Vec<PathItem<'a>>,
    /// One is enough.
    is_asked_for_one: bool,
}

impl<'a> PathMatches<'a> {
    fn all() -> PathMatches<'a> {
        PathMatches { items: vec![], is_asked_for_one: false }
    }

    fn push(&mut self, item: PathItem<'a>) -> Outcome {
        self.items.push(item);
        if self.is_asked_for_one { Err(PathFailure::Enough) } else { Ok(()) }
    }
}

impl<'a> Evaluation<'a> {
    /// Of a `jsonb`, with the variables of the path as members of another one.
    ///
    /// Errors: `22023`, the variables are no object.
    pub(super) fn new(path: &'a Path, document: &'a str, variables: Option<&'a str>) -> Result<Self, SqlError> {
        let variables = variables.map(Json::of);
        if variables.is_some_and(|variables| variables.kind() != JsonKind::Object) {
            return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, "\"vars\" argument is not an object")
                .with_detail("Jsonpath parameters should be encoded as key-value pairs of \"vars\" object."));
        }
        let document = PathItem::piece(Json::of(document));
        Ok(Evaluation { path, document, variables, work: Cell::new(0) })
    }

    /// All that the path finds.
    pub(super) fn all(&self) -> Result<Vec<PathItem<'a>>, PathFailure> {
        let mut found = PathMatches::all();
        self.value(&self.path.root, self.top(), &mut found)?;
        Ok(found.items)
    }

    /// Whether it finds anything: a lax path stops there.
    pub(super) fn any(&self) -> Result<bool, PathFailure> {
        self.finds(&self.path.root, self.top())
    }

    fn top(&self) -> PathContext<'_, 'a> {
        PathContext { current: None, n_items: None, is_lenient: false }
    }

    fn is_lax(&self) -> bool {
        !self.path.is_strict
    }

    fn finds(&self, node: &'a PathNode, at: PathContext<'_, 'a>) -> Result<bool, PathFailure> {
        let mut found = PathMatches { items: vec![], is_asked_for_one: self.is_lax() };
        match self.value(node, at, &mut found) {
            Ok(()) | Err(PathFailure::Enough) => Ok(!found.items.is_empty()),
            Err(failure) => Err(failure),
        }
    }

    fn count(&self) -> Outcome {
        self.work(STEP)
    }

    /// Before the text of an item is walked through.
    fn walk(&self, item: &PathItem<'a>) -> Outcome {
        self.work(item.json().map_or(0, |json| json.text().len()))
    }

    fn work(&self, n_bytes: usize) -> Outcome {
        self.work.set(self.work.get() + n_bytes);
        match self.work.get() {
            ..=MAX_WORK => Ok(()),
            _ => Err(PathFailure::Hard(
                SqlError::new(state::TOO_COMPLEX, "the path takes too long in this document")
                    .with_hint("without .** in another one, or in parts"),
            )),
        }
    }

    fn value(&self, node: &'a PathNode, at: PathContext<'_, 'a>, found: &mut PathMatches<'a>) -> Outcome {
        self.count()?;
        match node {
            PathNode::Root => found.push(self.document.clone()),
            PathNode::Current => match at.current {
                Some(current) => found.push(current.clone()),
                None => Ok(()),
            },
            PathNode::Last => found.push(PathItem::made((at.n_items.unwrap_or(0) as i64 - 1).to_string())),
            PathNode::Literal(json) => found.push(PathItem::Json(Cow::Borrowed(json))),
            PathNode::Variable(name) => found.push(self.variable(name)?),
            PathNode::Steps(of, steps) => {
                let mut from = PathMatches::all();
                self.value(of, at, &mut from)?;
                from.items.into_iter().try_for_each(|item| self.steps(steps, &item, self.is_lax(), at, found))
            }
            PathNode::Negated(of) | PathNode::Positive(of) => {
                let is_negated = matches!(node, PathNode::Negated(_));
                for item in self.unwrapped(of, at)? {
                    let Some(number) = item.number()? else {
                        // Whoever asks whether there is any passes over what is none.
                        if found.is_asked_for_one {
                            continue;
                        }
                        let sign = if is_negated { "-" } else { "+" };
                        let message = format!("operand of unary jsonpath operator {sign} is not a numeric value");
                        return soft(state::NO_JSON_NUMBER, message);
                    };
                    found.push(if is_negated { PathItem::made(number.negated().to_string()) } else { item })?;
                }
                Ok(())
            }
            PathNode::Computed(operation, left, right) => {
                let left = self.one_number(left, at, *operation, "left")?;
                let right = self.one_number(right, at, *operation, "right")?;
                let computed = match operation {
                    PathOperation::Plus => Ok(left.plus(&right)),
                    PathOperation::Minus => Ok(left.minus(&right)),
                    PathOperation::Times => left.times(&right),
                    PathOperation::Divided => left.divided(&right),
                    PathOperation::Rest => left.rest(&right),
                };
                found.push(PathItem::made(computed.map_err(PathFailure::Soft)?.to_string()))
            }
            condition => {
                let truth = self.truth(condition, at)?;
                found.push(PathItem::made(truth.map_or("null", |truth| if truth { "true" } else { "false" })))
            }
        }
    }

    fn variable(&self, name: &str) -> Result<PathItem<'a>, PathFailure> {
        let value = match self.variables {
            Some(variables) => variables.member(name)?,
            None => None,
        };
        value.map(PathItem::piece).ok_or_else(|| {
            let message = format!("could not find jsonpath variable \"{name}\"");
            PathFailure::Hard(
                SqlError::new(state::UNDEFINED_OBJECT, message).with_hint("it is a member of the third argument"),
            )
        })
    }

    /// In a lax path, the items of arrays instead of them.
    fn unwrapped(&self, node: &'a PathNode, at: PathContext<'_, 'a>) -> Result<Vec<PathItem<'a>>, PathFailure> {
        let mut found = PathMatches::all();
        self.value(node, at, &mut found)?;
        if !self.is_lax() || !found.items.iter().any(PathItem::is_array) {
            return Ok(found.items);
        }
        let items = found.items.into_iter();
        Ok(items.flat_map(|item| if item.is_array() { item.items() } else { vec![item] }).collect())
    }

    fn one_number(
        &self,
        node: &'a PathNode,
        at: PathContext<'_, 'a>,
        of: PathOperation,
        side: &str,
    ) -> Result<Number, PathFailure> {
        let items = self.unwrapped(node, at)?;
        if let [item] = &items[..]
            && let Some(number) = item.number()?
        {
            return Ok(number);
        }
        let sign = match of {
            PathOperation::Plus => "+",
            PathOperation::Minus => "-",
            PathOperation::Times => "*",
            PathOperation::Divided => "/",
            PathOperation::Rest => "%",
        };
        let message = format!("{side} operand of jsonpath operator {sign} is not a single numeric value");
        soft(state::NO_SINGLE_JSON, message)
    }

    /// The steps that are left, from an item on. `unwraps`: an array stands for its items, where the step is not one of
    /// arrays.
    fn steps(
        &self,
        steps: &'a [PathStep],
        item: &PathItem<'a>,
        unwraps: bool,
        at: PathContext<'_, 'a>,
        found: &mut PathMatches<'a>,
    ) -> Outcome {
        self.count()?;
        let Some((step, rest)) = steps.split_first() else { return found.push(item.clone()) };
        self.walk(item)?;
        let is_error = self.path.is_strict && !at.is_lenient;
        let next = |item: &PathItem<'a>, found: &mut PathMatches<'a>| self.steps(rest, item, self.is_lax(), at, found);
        let each_of_array = |found: &mut PathMatches<'a>| {
            item.items().iter().try_for_each(|item| self.steps(steps, item, false, at, found))
        };
        match step {
            PathStep::Key(_) | PathStep::AnyKey | PathStep::Filter(_) | PathStep::Method(_)
                if unwraps && item.is_array() && !matches!(step, PathStep::Method(Method::Type | Method::Size)) =>
            {
                each_of_array(found)
            }
            PathStep::Key(name) => match item.kind() == Some(JsonKind::Object) {
                true => match item.member(name)? {
                    Some(value) => next(&value, found),
                    None if is_error => {
                        soft(state::NO_JSON_MEMBER, format!("JSON object does not contain key \"{name}\""))
                    }
                    None => Ok(()),
                },
                false if is_error => {
                    soft(state::NO_JSON_MEMBER, "jsonpath member accessor can only be applied to an object")
                }
                false => Ok(()),
            },
            PathStep::AnyKey => match item.kind() == Some(JsonKind::Object) {
                true => item.values().iter().try_for_each(|value| next(value, found)),
                false if is_error => {
                    soft(state::NO_JSON_OBJECT, "jsonpath wildcard member accessor can only be applied to an object")
                }
                false => Ok(()),
            },
            PathStep::AnyItem => match item.is_array() {
                true => item.items().iter().try_for_each(|item| next(item, found)),
                false if self.is_lax() => next(item, found),
                false if is_error => {
                    soft(state::NO_JSON_ARRAY, "jsonpath wildcard array accessor can only be applied to an array")
                }
                false => Ok(()),
            },
            PathStep::Items(ranges) => self.items(ranges, item, at, &mut |item| next(item, found)),
            PathStep::Below(first, last) => self.below(rest, (*first, *last), item, at, found),
            PathStep::Filter(condition) => {
                let inside = PathContext { current: Some(item), ..at };
                if self.truth(condition, inside)? == Some(true) { next(item, found) } else { Ok(()) }
            }
            PathStep::Method(method) => match self.method(*method, item, is_error)? {
                Some(values) => values.iter().try_for_each(|value| next(value, found)),
                None => Ok(()),
            },
        }
    }

    fn items(
        &self,
        ranges: &'a [(PathNode, Option<PathNode>)],
        item: &PathItem<'a>,
        at: PathContext<'_, 'a>,
        next: &mut dyn FnMut(&PathItem<'a>) -> Outcome,
    ) -> Outcome {
        let is_error = self.path.is_strict && !at.is_lenient;
        let items = match item.is_array() {
            true => item.items(),
            false if self.is_lax() => vec![item.clone()],
            false if is_error => {
                return soft(state::NO_JSON_ARRAY, "jsonpath array accessor can only be applied to an array");
            }
            false => return Ok(()),
        };
        let inside = PathContext { n_items: Some(items.len()), ..at };
        for (from, to) in ranges {
            let from = self.index(from, inside)?;
            let to = to.as_ref().map_or(Ok(from), |to| self.index(to, inside))?;
            let n_items = items.len() as i64;
            let (first, last) = (i64::from(from), i64::from(to));
            if is_error && (first < 0 || first > last || last >= n_items) {
                return soft(state::JSON_SUBSCRIPT, "jsonpath array subscript is out of bounds");
            }
            for idx in first.max(0)..=last.min(n_items - 1) {
                next(&items[idx as usize])?;
            }
        }
        Ok(())
    }

    fn index(&self, node: &'a PathNode, at: PathContext<'_, 'a>) -> Result<i32, PathFailure> {
        let mut found = PathMatches::all();
        self.value(node, at, &mut found)?;
        let number = if let [item] = &found.items[..] { item.number()? } else { None };
        let Some(number) = number else {
            return soft(state::JSON_SUBSCRIPT, "jsonpath array subscript is not a single numeric value");
        };
        match number.truncated() {
            Some(index) => Ok(index),
            None => soft(state::JSON_SUBSCRIPT, "jsonpath array subscript is out of integer range"),
        }
    }

    /// Everything between two levels below an item, itself the level 0.
    fn below(
        &self,
        rest: &'a [PathStep],
        (first, last): (Option<u32>, Option<u32>),
        item: &PathItem<'a>,
        at: PathContext<'_, 'a>,
        found: &mut PathMatches<'a>,
    ) -> Outcome {
        let lenient = PathContext { is_lenient: true, ..at };
        if first == Some(0) {
            self.steps(rest, item, self.is_lax(), lenient, found)?;
        }
        if !item.is_container() {
            // The last level is where nothing is below.
            return if first.is_none() { self.steps(rest, item, self.is_lax(), lenient, found) } else { Ok(()) };
        }
        self.deeper(rest, (first, last), item, 1, lenient, found)
    }

    fn deeper(
        &self,
        rest: &'a [PathStep],
        (first, last): (Option<u32>, Option<u32>),
        item: &PathItem<'a>,
        level: u32,
        at: PathContext<'_, 'a>,
        found: &mut PathMatches<'a>,
    ) -> Outcome {
        if last.is_some_and(|last| level > last) {
            return Ok(());
        }
        self.walk(item)?;
        let inside = if item.is_array() { item.items() } else { item.values() };
        for value in &inside {
            self.count()?;
            let is_meant = match (first, last) {
                (Some(first), _) => level >= first,
                (None, None) => !value.is_container(),
                (None, Some(_)) => false,
            };
            if is_meant {
                self.steps(rest, value, self.is_lax(), at, found)?;
            }
            if value.is_container() {
                self.deeper(rest, (first, last), value, level + 1, at, found)?;
            }
        }
        Ok(())
    }

    /// `None`: it is not of such a value, which is no error.
    fn method(
        &self,
        method: Method,
        item: &PathItem<'a>,
        is_error: bool,
    ) -> Result<Option<Vec<PathItem<'a>>>, PathFailure> {
        let name = method.name();
        let wrong = |what: &str| {
            soft(state::NO_JSON_NUMERIC, format!("jsonpath item method .{name}() can only be applied to a {what}"))
        };
        let made = |text: String| Ok(Some(vec![PathItem::made(text)]));
        match method {
            Method::Type => made(quote(match item {
                PathItem::Json(_) => item.kind().map_or("null", JsonKind::name),
                PathItem::Time(Time::Date(_)) => "date",
                PathItem::Time(Time::OfDay(_)) => "time without time zone",
                PathItem::Time(Time::Timestamp(_)) => "timestamp without time zone",
            })),
            Method::Size if item.is_array() => made(item.items().len().to_string()),
            Method::Size if self.is_lax() => made("1".to_owned()),
            Method::Size if is_error => {
                soft(state::NO_JSON_ARRAY, "jsonpath item method .size() can only be applied to an array")
            }
            Method::Size => Ok(None),
            Method::Abs | Method::Floor | Method::Ceiling => match item.number()? {
                None => wrong("numeric value"),
                Some(number) => made(match method {
                    Method::Abs => number.abs().to_string(),
                    Method::Floor => number.floor().to_string(),
                    _ => number.ceiling().to_string(),
                }),
            },
            Method::Double => match (item.kind(), item.json()) {
                (Some(JsonKind::Number), Some(json)) => match json.text().parse::<f64>() {
                    Ok(float) if float.is_finite() => Ok(Some(vec![item.clone()])),
                    _ => soft(
                        state::NO_JSON_NUMERIC,
                        "numeric argument of jsonpath item method .double() is out of range for type double precision",
                    ),
                },
                (Some(JsonKind::String), Some(json)) => match json.string()?.trim().parse::<f64>() {
                    Ok(float) if float.is_finite() => made(numeric_of(float)),
                    _ => soft(
                        state::NO_JSON_NUMERIC,
                        "string argument of jsonpath item method .double() is not a valid representation of a double precision number",
                    ),
                },
                _ => wrong("string or numeric value"),
            },
            Method::KeyValue => self.key_values(item).map(Some),
            Method::Datetime => {
                let text = match (item.kind(), item.json()) {
                    (Some(JsonKind::String), Some(json)) => json.string()?,
                    _ => {
                        let message = "jsonpath item method .datetime() can only be applied to a string";
                        return soft(state::NO_JSON_TIME, message);
                    }
                };
                Ok(Some(vec![PathItem::Time(time_of(&text)?)]))
            }
        }
    }

    fn key_values(&self, item: &PathItem<'a>) -> Result<Vec<PathItem<'a>>, PathFailure> {
        let Some(json) = item.json().filter(|json| json.kind() == JsonKind::Object) else {
            return soft(state::NO_JSON_OBJECT, "jsonpath item method .keyvalue() can only be applied to an object");
        };
        // PostgreSQL's number of an object is where it lies in its own form of the document: of the whole document 0.
        let is_whole =
            matches!(&self.document, PathItem::Json(document) if std::ptr::eq(document.as_ptr(), json.text().as_ptr()));
        if !is_whole {
            return Err(PathFailure::Hard(SqlError::unsupported(
                "the jsonpath method .keyvalue() of a part of a document is not supported",
                "jsonb_each gives names and values",
            )));
        }
        let members = json.members().map(|(name, value)| {
            let name = quote(&name.text()?);
            Ok(PathItem::made(format!("{{\"id\": 0, \"key\": {name}, \"value\": {}}}", value.text())))
        });
        members.collect()
    }

    /// A condition; `None`: it is not known.
    fn truth(&self, node: &'a PathNode, at: PathContext<'_, 'a>) -> Result<Option<bool>, PathFailure> {
        self.count()?;
        Ok(match node {
            PathNode::And(left, right) => match self.truth(left, at)? {
                Some(false) => Some(false),
                left => match (left, self.truth(right, at)?) {
                    (_, Some(false)) => Some(false),
                    (Some(true), Some(true)) => Some(true),
                    _ => None,
                },
            },
            PathNode::Or(left, right) => match self.truth(left, at)? {
                Some(true) => Some(true),
                left => match (left, self.truth(right, at)?) {
                    (_, Some(true)) => Some(true),
                    (Some(false), Some(false)) => Some(false),
                    _ => None,
                },
            },
            PathNode::Not(of) => self.truth(of, at)?.map(|truth| !truth),
            PathNode::IsUnknown(of) => Some(self.truth(of, at)?.is_none()),
            PathNode::Exists(of) => known(self.finds(of, at))?,
            PathNode::Compared(comparison, left, right) => {
                let sides = (known(self.unwrapped(left, at))?, known(self.unwrapped(right, at))?);
                let (Some(left), Some(right)) = sides else { return Ok(None) };
                self.pairs(&left, &right, |left, right| compared(*comparison, left, right))?
            }
            PathNode::StartsWith(left, initial) => {
                let Some(left) = known(self.unwrapped(left, at))? else { return Ok(None) };
                let mut found = PathMatches::all();
                self.value(initial, at, &mut found)?;
                self.pairs(&left, &found.items, |left, initial| match (text_of(left)?, text_of(initial)?) {
                    (Some(left), Some(initial)) => Ok(Some(left.starts_with(initial.as_ref()))),
                    _ => Ok(None),
                })?
            }
            PathNode::Like(of, pattern) => {
                let Some(of) = known(self.unwrapped(of, at))? else { return Ok(None) };
                self.pairs(&of, &of[..of.len().min(1)], |of, _| Ok(text_of(of)?.map(|text| pattern.is_match(&text))))?
            }
            _ => None,
        })
    }

    /// A lax path is content with one pair that holds, a strict one looks at all for errors.
    fn pairs(
        &self,
        left: &[PathItem<'a>],
        right: &[PathItem<'a>],
        holds: impl Fn(&PathItem<'a>, &PathItem<'a>) -> Result<Option<bool>, PathFailure>,
    ) -> Result<Option<bool>, PathFailure> {
        let (mut is_found, mut is_unknown) = (false, false);
        for one in left {
            for other in right {
                self.count()?;
                match holds(one, other)? {
                    None if self.path.is_strict => return Ok(None),
                    None => is_unknown = true,
                    Some(true) if self.is_lax() => return Ok(Some(true)),
                    Some(truth) => is_found |= truth,
                }
            }
        }
        Ok(if is_found {
            Some(true)
        } else if is_unknown {
            None
        } else {
            Some(false)
        })
    }
}

/// What an error in a condition comes to.
fn known<T>(outcome: Result<T, PathFailure>) -> Result<Option<T>, PathFailure> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(PathFailure::Soft(_)) => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn text_of<'i>(item: &'i PathItem<'_>) -> Result<Option<Cow<'i, str>>, PathFailure> {
    match item.json() {
        Some(json) if json.kind() == JsonKind::String => Ok(Some(json.string()?)),
        _ => Ok(None),
    }
}

fn compared(comparison: Comparison, left: &PathItem<'_>, right: &PathItem<'_>) -> Result<Option<bool>, PathFailure> {
    let order = match (left, right) {
        (PathItem::Time(left), PathItem::Time(right)) => match order_of_times(*left, *right) {
            Some(order) => order,
            None => return Ok(None),
        },
        _ => {
            let (left_kind, right_kind) = (left.kind(), right.kind());
            if left_kind != right_kind {
                // NULL is unequal to all else; anything else is not compared with what it is not.
                let has_null = [left_kind, right_kind].contains(&Some(JsonKind::Null));
                return Ok(has_null.then_some(comparison == Comparison::NotEqual));
            }
            match left_kind {
                Some(JsonKind::Null) => Ordering::Equal,
                Some(JsonKind::Boolean) => {
                    let is_true = |item: &PathItem<'_>| item.json().is_some_and(|json| json.text() == "true");
                    is_true(left).cmp(&is_true(right))
                }
                Some(JsonKind::Number) => match known(left.number())?.flatten().zip(known(right.number())?.flatten()) {
                    Some((left, right)) => left.cmp(&right),
                    None => return Ok(None),
                },
                Some(JsonKind::String) => text_of(left)?.cmp(&text_of(right)?),
                _ => return Ok(None),
            }
        }
    };
    Ok(Some(match comparison {
        Comparison::Equal => order.is_eq(),
        Comparison::NotEqual => order.is_ne(),
        Comparison::Less => order.is_lt(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::GreaterOrEqual => order.is_ge(),
    }))
}

fn order_of_times(left: Time, right: Time) -> Option<Ordering> {
    let instant = |time: Time| match time {
        Time::Date(date) => Some(date.and_time(NaiveTime::MIN)),
        Time::Timestamp(time) => Some(time),
        Time::OfDay(_) => None,
    };
    match (left, right) {
        (Time::OfDay(left), Time::OfDay(right)) => Some(left.cmp(&right)),
        (left, right) => instant(left).zip(instant(right)).map(|(left, right)| left.cmp(&right)),
    }
}

/// Times in ISO form, without a zone.
fn time_of(text: &str) -> Result<Time, PathFailure> {
    let timestamp = |format: &str| NaiveDateTime::parse_from_str(text, format).map(Time::Timestamp);
    let time = NaiveDate::parse_from_str(text, "%Y-%m-%d").map(Time::Date);
    let time = time.or_else(|_| NaiveTime::parse_from_str(text, "%H:%M:%S%.f").map(Time::OfDay));
    let time = time.or_else(|_| timestamp("%Y-%m-%d %H:%M:%S%.f")).or_else(|_| timestamp("%Y-%m-%dT%H:%M:%S%.f"));
    if let Ok(time) = time {
        return Ok(time);
    }
    let is_zoned = text.rfind(['+', '-', 'Z']).is_some_and(|at| text[..at].contains(':'));
    if is_zoned {
        return Err(PathFailure::Hard(SqlError::unsupported(
            "the jsonpath method .datetime() of a time with a time zone is not supported",
            "take the text with ->> and cast it to timestamptz",
        )));
    }
    let n_digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if n_digits > 4 && text[n_digits..].starts_with('-') {
        return Err(PathFailure::Hard(SqlError::unsupported(
            "the jsonpath method .datetime() of a year beyond 9999 is not supported",
            "take the text with ->> and cast it to timestamp",
        )));
    }
    soft(state::NO_JSON_TIME, format!("datetime format is not recognized: \"{text}\""))
}

/// A float as PostgreSQL makes a numeric of it: with fifteen digits.
fn numeric_of(float: f64) -> String {
    let digits = format!("{float:.14e}");
    let (mantissa, exponent) = digits.split_once('e').unwrap_or((&digits, "0"));
    let mantissa = if mantissa.contains('.') { mantissa.trim_end_matches('0').trim_end_matches('.') } else { mantissa };
    match Number::of(&format!("{mantissa}e{exponent}")) {
        Ok(number) => number.to_string(),
        Err(_) => digits,
    }
}
