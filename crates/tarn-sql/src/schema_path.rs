//! Which schemas does a session look into? `current_schema` and `current_schemas(true)` read `search_path` as PostgreSQL does: what is there of
//! it, in its order. Tables are found in `public` and, those that the session has to itself, before, whatever it says.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{AsArray, ListArray, StringArray};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion::scalar::ScalarValue;
use parking_lot::Mutex;

use crate::session::vars::Vars;

const THERE: [&str; 4] = ["public", "pg_catalog", "information_schema", "tarn"];
/// It is looked into first where a path does not name it.
const CATALOG: &str = "pg_catalog";

/// The functions.
pub(crate) fn functions(vars: &Arc<Mutex<Vars>>) -> [ScalarUDF; 2] {
    [false, true].map(|gives_all| {
        let types = if gives_all { vec![DataType::Boolean] } else { vec![] };
        let signature = Signature::exact(types, Volatility::Stable);
        OfPath { gives_all, vars: Arc::clone(vars), signature }.into()
    })
}

#[derive(Debug)]
struct OfPath {
    gives_all: bool,
    vars: Arc<Mutex<Vars>>,
    signature: Signature,
}

impl PartialEq for OfPath {
    fn eq(&self, other: &OfPath) -> bool {
        self.gives_all == other.gives_all && Arc::ptr_eq(&self.vars, &other.vars)
    }
}

impl Eq for OfPath {}

impl Hash for OfPath {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.gives_all.hash(state);
    }
}

impl ScalarUDFImpl for OfPath {
    fn name(&self) -> &str {
        if self.gives_all { "current_schemas" } else { "current_schema" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.gives_all {
            true => DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true))),
            false => DataType::Utf8,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let path = self.vars.lock().get("search_path")?;
        let schemas = there(&path);
        if !self.gives_all {
            return Ok(ColumnarValue::Scalar(ScalarValue::Utf8(schemas.into_iter().next())));
        }
        let asks = args.args[0].to_array(args.number_rows)?;
        let lists = asks.as_boolean().iter().map(|with_implicit| {
            let is_implicit = with_implicit == Some(true) && !schemas.iter().any(|schema| schema == CATALOG);
            let implicit = is_implicit.then(|| CATALOG.to_owned());
            implicit.into_iter().chain(schemas.iter().cloned()).collect::<Vec<_>>()
        });
        let lists: Vec<Vec<String>> = lists.collect();
        let offsets = OffsetBuffer::from_lengths(lists.iter().map(Vec::len));
        let items = Arc::new(lists.into_iter().flatten().map(Some).collect::<StringArray>());
        let field = Arc::new(Field::new_list_field(DataType::Utf8, true));
        Ok(ColumnarValue::Array(Arc::new(ListArray::try_new(field, offsets, items, asks.nulls().cloned())?)))
    }
}

/// The schemas of a path that are there. `"$user"` is none.
fn there(path: &str) -> Vec<String> {
    let mut found: Vec<String> = vec![];
    for name in names(path) {
        if THERE.contains(&name.as_str()) && !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

/// Names, with commas between them: in small letters unless quoted.
fn names(path: &str) -> Vec<String> {
    let (mut all, mut name, mut is_quoted) = (vec![], String::new(), false);
    let mut chars = path.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            // Two of them inside are one.
            '"' if is_quoted && chars.next_if_eq(&'"').is_some() => name.push('"'),
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => all.push(std::mem::take(&mut name)),
            c if is_quoted => name.push(c),
            c if c.is_whitespace() => {}
            c => name.push(c.to_ascii_lowercase()),
        }
    }
    all.push(name);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What PostgreSQL 15 says.
    #[test]
    fn a_path_is_what_is_there_of_it() {
        assert_eq!(there("\"$user\", public"), ["public"]);
        assert_eq!(there("notme"), [""; 0]);
        assert_eq!(there(""), [""; 0]);
        assert_eq!(names(r#"a, "b""c", """public""""#), ["a", "b\"c", "\"public\""]);
        assert_eq!(there("pg_catalog, \"Public\", PUBLIC, public"), ["pg_catalog", "public"]);
    }
}
