//! Which schemas does a session look into? Those of its `search_path` that are there, in its order, as PostgreSQL reads
//! it: names without a schema are looked for in them (`session/named.rs`), and `current_schema` and `current_schemas`
//! tell them. Tables that the session has to itself come before all.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{AsArray, ListArray, StringArray};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion::scalar::ScalarValue;
use parking_lot::Mutex;
use tarn_node::node::Node;
use tarn_node::schemas::BUILT_IN;
use tarn_types::full_name::PUBLIC;

use crate::session::vars::Vars;

/// It is looked into first where a path does not name it.
pub(crate) const CATALOG: &str = "pg_catalog";

/// What a new session has.
const USUAL: &str = "\"$user\", public";

/// The schema that is called as who asks.
const OWN: &str = "$user";

/// The schemas that a session looks into, in order. `None`: `public` alone, as nearly always.
pub(crate) fn path(vars: &Mutex<Vars>, node: &Node) -> Option<Arc<[String]>> {
    let (path, user) = {
        let vars = vars.lock();
        let path = vars.changed("search_path");
        if node.schemas().is_empty() && path.is_none_or(|path| path == USUAL || path == PUBLIC) {
            return None;
        }
        (path.unwrap_or(USUAL).to_owned(), vars.get("session_authorization").unwrap_or_default())
    };
    let found = there(&path, &user, |name| node.schemas().has_tables(name));
    (found != [PUBLIC]).then(|| found.into())
}

/// The same, `public` said.
pub(crate) fn whole_path(vars: &Mutex<Vars>, node: &Node) -> Arc<[String]> {
    path(vars, node).unwrap_or_else(|| [PUBLIC.to_owned()].into())
}

/// The functions.
pub(crate) fn functions(vars: &Arc<Mutex<Vars>>, node: &Arc<Node>) -> [ScalarUDF; 2] {
    [false, true].map(|gives_all| {
        let types = if gives_all { vec![DataType::Boolean] } else { vec![] };
        let signature = Signature::exact(types, Volatility::Stable);
        OfPath { gives_all, vars: Arc::clone(vars), node: Arc::clone(node), signature }.into()
    })
}

struct OfPath {
    gives_all: bool,
    vars: Arc<Mutex<Vars>>,
    node: Arc<Node>,
    signature: Signature,
}

impl fmt::Debug for OfPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
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
        let schemas = whole_path(&self.vars, &self.node);
        if !self.gives_all {
            return Ok(ColumnarValue::Scalar(ScalarValue::Utf8(schemas.first().cloned())));
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

/// The schemas of a path that are there, as `user` has it; `is_there` tells of those that are not the system's.
fn there(path: &str, user: &str, is_there: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found: Vec<String> = vec![];
    for name in names(path) {
        // A user who is called as a schema of the system does not look into it for that.
        let (name, is_system) = match name == OWN {
            true => (user.to_owned(), false),
            false => (name.clone(), BUILT_IN.contains(&name.as_str())),
        };
        if (is_system || is_there(&name)) && !found.contains(&name) {
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
        let path_of = |user: &str, path: &str| there(path, user, |name| ["s", "bob", "public"].contains(&name));
        let there = |path: &str| path_of("bob", path);
        assert_eq!(there("\"$user\", public"), ["bob", "public"]);
        assert_eq!(path_of("tarn", "\"$user\", public, tarn"), ["public", "tarn"]);
        assert_eq!(there("notme, S, public, s"), ["s", "public"]);
        assert_eq!(there("notme"), [""; 0]);
        assert_eq!(there(""), [""; 0]);
        assert_eq!(names(r#"a, "b""c", """public""""#), ["a", "b\"c", "\"public\""]);
        assert_eq!(there("pg_catalog, \"Public\", PUBLIC, public"), ["pg_catalog", "public"]);
    }
}
