//! What does a `jsonb` become? `||`, `-`, `#-`, which are functions, too (`jsonb_concat`, …), `jsonb_set`,
//! `jsonb_insert`.
//!
//! What is changed is written in any order and made normal behind: names are sorted there, and of two the last stays.

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::logical_expr::ScalarUDF;
use tarn_query::datafusion;

use super::function::{Arg, JsonValue, ResultType, Takes, function, names_of, with_default};
use super::walk::{Json, JsonKind};
use crate::error::{SqlError, state};

pub(super) const CONCAT: &str = "tarn_jsonb_concat";
pub(super) const DELETE: &str = "tarn_jsonb_delete";
pub(super) const DELETE_PATH: &str = "tarn_jsonb_delete_path";

/// The functions that stand for operators.
pub(super) fn operators() -> Vec<Arc<ScalarUDF>> {
    use Takes::{Jsonb, Names, Steps};
    vec![
        function(CONCAT, &[Jsonb, Jsonb], ResultType::MadeJsonb, both),
        function(DELETE, &[Jsonb, Steps], ResultType::MadeJsonb, without),
        function(DELETE_PATH, &[Jsonb, Names], ResultType::MadeJsonb, without_path),
    ]
}

/// The functions that are called by their names.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    use Takes::{Boolean, Jsonb, Names, Steps};
    vec![
        function("jsonb_concat", &[Jsonb, Jsonb], ResultType::MadeJsonb, both),
        function("jsonb_delete", &[Jsonb, Steps], ResultType::MadeJsonb, without),
        function("jsonb_delete_path", &[Jsonb, Names], ResultType::MadeJsonb, without_path),
        with_default("jsonb_set", &[Jsonb, Names, Jsonb, Boolean], ResultType::MadeJsonb, |args| {
            let path = names_of(&args[1])?;
            let creates = args.get(3).is_none_or(Arg::is_true);
            PathChange { path: &path, with: PathEdit::Set { new: args[2].text(), creates } }
                .of(args[0].text(), "set path")
                .map(made)
        }),
        with_default("jsonb_insert", &[Jsonb, Names, Jsonb, Boolean], ResultType::MadeJsonb, |args| {
            let path = names_of(&args[1])?;
            let is_behind = args.get(3).is_some_and(Arg::is_true);
            PathChange { path: &path, with: PathEdit::Insert { new: args[2].text(), is_behind } }
                .of(args[0].text(), "set path")
                .map(made)
        }),
    ]
}

fn both<'a>(args: &[Arg<'a>]) -> Result<JsonValue<'a>, SqlError> {
    Ok(made(concat(Json::of(args[0].text()), Json::of(args[1].text()))))
}

fn without<'a>(args: &[Arg<'a>]) -> Result<JsonValue<'a>, SqlError> {
    delete(Json::of(args[0].text()), &args[1]).map(made)
}

fn without_path<'a>(args: &[Arg<'a>]) -> Result<JsonValue<'a>, SqlError> {
    let path = names_of(&args[1])?;
    PathChange { path: &path, with: PathEdit::Delete }.of(args[0].text(), "delete path").map(made)
}

fn made<'a>(text: String) -> JsonValue<'a> {
    JsonValue::Text(Cow::Owned(text))
}

/// Pieces between brackets, with commas.
fn enclosed<'a>(open: char, pieces: impl IntoIterator<Item = &'a str>, close: char) -> String {
    let mut out = String::from(open);
    for piece in pieces {
        out.push_str(if out.len() > 1 { ", " } else { "" });
        out.push_str(piece);
    }
    out.push(close);
    out
}

/// What stands between the brackets of a container.
fn inside(json: Json<'_>) -> &str {
    json.text().get(1..json.text().len().saturating_sub(1)).unwrap_or("")
}

/// Two objects become one; anything else is an item of an array beside the other's items.
fn concat(left: Json<'_>, right: Json<'_>) -> String {
    if left.kind() == JsonKind::Object && right.kind() == JsonKind::Object {
        return enclosed('{', not_empty([inside(left), inside(right)]), '}');
    }
    enclosed('[', not_empty([items(left), items(right)]), ']')
}

/// Of an array; anything else is its only item.
fn items(json: Json<'_>) -> &str {
    if json.kind() == JsonKind::Array { inside(json) } else { json.text() }
}

fn not_empty(pieces: [&str; 2]) -> impl Iterator<Item = &str> {
    pieces.into_iter().filter(|piece| !piece.trim().is_empty())
}

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(state::INVALID_PARAMETER_VALUE, message)
}

/// Without a member, an item, or several of either.
fn delete(json: Json<'_>, what: &Arg<'_>) -> Result<String, SqlError> {
    if json.is_scalar() {
        return Err(invalid("cannot delete from scalar"));
    }
    let is_gone = |name: &str| match what {
        Arg::Text(gone) => *gone == name,
        Arg::Names(gone) => gone.iter().flatten().any(|gone| *gone == name),
        _ => false,
    };
    if let Arg::Index(index) = what {
        if json.kind() == JsonKind::Object {
            return Err(invalid("cannot delete from object using integer index"));
        }
        let n_items = json.items().count() as i64;
        let gone = if *index < 0 { n_items + index } else { *index };
        let kept = (0..).zip(json.items()).filter(|(at, _)| *at != gone);
        return Ok(enclosed('[', kept.map(|(_, item)| item.text()), ']'));
    }
    if json.kind() == JsonKind::Array {
        let mut kept = vec![];
        for item in json.items() {
            if item.kind() != JsonKind::String || !is_gone(&item.string()?) {
                kept.push(item.text());
            }
        }
        return Ok(enclosed('[', kept, ']'));
    }
    let mut kept = vec![];
    for (name, value) in json.members() {
        if !is_gone(&name.text()?) {
            kept.push(name.with(value));
        }
    }
    Ok(enclosed('{', kept.iter().map(String::as_str), '}'))
}

/// What is done at the end of a path.
#[derive(Debug, Clone, Copy)]
enum PathEdit<'a> {
    Delete,
    Set { new: &'a str, creates: bool },
    Insert { new: &'a str, is_behind: bool },
}

/// A change of what is at a path.
struct PathChange<'a> {
    path: &'a [Option<Cow<'a, str>>],
    with: PathEdit<'a>,
}

impl PathChange<'_> {
    fn of(&self, text: &str, doing: &str) -> Result<String, SqlError> {
        let json = Json::of(text);
        if json.is_scalar() {
            return Err(invalid(format!("cannot {doing} in scalar")));
        }
        let is_empty = json.items().next().is_none() && json.members().next().is_none();
        let may_create = !matches!(self.with, PathEdit::Delete | PathEdit::Set { creates: false, .. });
        if self.path.is_empty() || (is_empty && !may_create) {
            return Ok(text.to_owned());
        }
        let mut out = String::with_capacity(text.len());
        self.value(json, 0, &mut out)?;
        Ok(out)
    }

    fn value(&self, json: Json<'_>, level: usize, out: &mut String) -> Result<(), SqlError> {
        let Some(step) = &self.path[level] else {
            let message = format!("path element at position {} is null", level + 1);
            return Err(SqlError::new(state::NULL_NOT_ALLOWED, message));
        };
        match json.kind() {
            JsonKind::Object => self.object(json, step, level, out),
            JsonKind::Array => self.array(json, step, level, out),
            _ => {
                out.push_str(json.text());
                Ok(())
            }
        }
    }

    fn is_last(&self, level: usize) -> bool {
        level + 1 == self.path.len()
    }

    /// What is put where there was nothing.
    fn created(&self) -> Option<&str> {
        match self.with {
            PathEdit::Set { new, creates: true } | PathEdit::Insert { new, .. } => Some(new),
            _ => None,
        }
    }

    fn object(&self, json: Json<'_>, step: &str, level: usize, out: &mut String) -> Result<(), SqlError> {
        let (mut pieces, mut is_found) = (vec![], false);
        for (name, value) in json.members() {
            if !name.is(step)? {
                pieces.push(name.with(value));
                continue;
            }
            is_found = true;
            match self.with {
                _ if !self.is_last(level) => {
                    let mut changed = String::new();
                    self.value(value, level + 1, &mut changed)?;
                    pieces.push(name.with(Json::of(&changed)));
                }
                PathEdit::Delete => {}
                PathEdit::Set { new, .. } => pieces.push(name.with(Json::of(new))),
                PathEdit::Insert { .. } => {
                    return Err(invalid("cannot replace existing key")
                        .with_hint("Try using the function jsonb_set to replace key value."));
                }
            }
        }
        if let Some(new) = self.created().filter(|_| !is_found && self.is_last(level)) {
            let mut piece = String::new();
            tarn_types::json::quote(step, &mut piece);
            piece.push_str(": ");
            piece.push_str(new);
            pieces.push(piece);
        }
        out.push_str(&enclosed('{', pieces.iter().map(String::as_str), '}'));
        Ok(())
    }

    fn array(&self, json: Json<'_>, step: &str, level: usize, out: &mut String) -> Result<(), SqlError> {
        let Some(index) = super::get::index(step) else {
            let message = format!("path element at position {} is not an integer: \"{step}\"", level + 1);
            return Err(SqlError::new(state::INVALID_TEXT, message));
        };
        let n_items = json.items().count() as i64;
        // Before the first, and behind the last, is beside it.
        let at = if index < 0 { n_items + index } else { index.min(n_items) };
        let (mut pieces, mut is_found): (Vec<Cow<'_, str>>, bool) = (vec![], false);
        if at < 0
            && let Some(new) = self.created().filter(|_| self.is_last(level))
        {
            pieces.push(Cow::Borrowed(new));
            is_found = true;
        }
        for (idx, item) in (0..).zip(json.items()) {
            let item_text = Cow::Borrowed(item.text());
            if idx != at {
                pieces.push(item_text);
                continue;
            }
            is_found = true;
            match self.with {
                _ if !self.is_last(level) => {
                    let mut changed = String::new();
                    self.value(item, level + 1, &mut changed)?;
                    pieces.push(Cow::Owned(changed));
                }
                PathEdit::Delete => {}
                PathEdit::Set { new, .. } => pieces.push(Cow::Borrowed(new)),
                PathEdit::Insert { new, is_behind: true } => pieces.extend([item_text, Cow::Borrowed(new)]),
                PathEdit::Insert { new, is_behind: false } => pieces.extend([Cow::Borrowed(new), item_text]),
            }
        }
        if let Some(new) = self.created().filter(|_| !is_found && self.is_last(level)) {
            pieces.push(Cow::Borrowed(new));
        }
        out.push_str(&enclosed('[', pieces.iter().map(AsRef::as_ref), ']'));
        Ok(())
    }
}
