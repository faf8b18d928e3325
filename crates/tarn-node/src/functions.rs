//! Which functions did users write? Their texts, kept as a document of the metastore (`docs/formats/functions.md`), and
//! in memory for whoever plans.
//!
//! Nothing is computed here: a function is what it is called, what it takes and gives, and the text that says how. Each
//! change is one write of the document: whoever dies, a function is what it was or what it is to be.
//!
//! The document is read once, when the node opens: a function is of one node, as its tables are.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tarn_metastore::Metastore;
use tarn_types::full_name;

use crate::catalog::Catalog;
use crate::error::{Error, ErrorKind, Result};
use crate::kept::{DocumentFormat, DocumentStore};

/// Of the document.
const FORMAT: u8 = 1;

/// The first number of a function that somebody writes. Smaller ones are PostgreSQL's own.
const FIRST: u32 = 16_384;

/// The number of a function. It is never another one's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FunctionId(pub u32);

/// A function that somebody wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserFunction {
    /// Never given to another.
    pub id: FunctionId,
    /// With its schema, as tables have theirs in their names. Several may be called alike: they take other types.
    pub name: String,
    /// Who wrote it, and may change it; superusers may, too.
    pub maker: Option<String>,
    /// By `COMMENT ON FUNCTION`.
    pub comment: Option<String>,
    /// What `CREATE FUNCTION` said.
    pub written: FunctionSource,
}

/// What a `CREATE FUNCTION` says of it beside its name. Types are as SQL writes them, without what is said of lengths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionSource {
    /// In their order, those that it gives included.
    pub parameters: Vec<Parameter>,
    /// The type of what it gives: `record` for rows of several columns that have no type of their own.
    pub returns: String,
    /// Whether it gives any number of them.
    pub is_set: bool,
    /// The columns of rows that it gives; of one value none.
    pub columns: Vec<GivenColumn>,
    /// Its query, in the form in which it was written.
    pub body: Body,
    /// As it was written. A call is part of the statement's plan, whatever it says.
    pub volatility: Volatility,
    /// Whether it gives NULL when one of its arguments is.
    pub is_strict: bool,
    /// As it was written; nothing is planned by it.
    pub is_leakproof: bool,
    /// As it was written; nothing is planned by it.
    pub parallel: Parallel,
    /// As it was written; nothing is planned by it.
    pub cost: Option<String>,
    /// As it was written; nothing is planned by it.
    pub rows: Option<String>,
}

/// What a function takes or gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// Whether a call gives it, or gets it, or both.
    pub mode: Mode,
    /// By which calls and the body may mean it; `None`: by position alone.
    pub name: Option<String>,
    /// As it is written in SQL.
    pub data_type: String,
    /// What it is where a call says nothing, as it is written.
    pub default: Option<String>,
}

/// Which way a parameter goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A call gives it.
    In,
    /// A column of the answer.
    Out,
    /// A call gives it, and it is a column of the answer.
    InOut,
    /// A column of `RETURNS TABLE`.
    Table,
}

impl Mode {
    /// Whether a call says it.
    pub fn is_taken(self) -> bool {
        matches!(self, Mode::In | Mode::InOut)
    }
}

/// A column of the rows that a function gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GivenColumn {
    /// Of the column.
    pub name: String,
    /// As it is written in SQL.
    pub data_type: String,
}

/// How it is computed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Body {
    /// `AS '…'`: the text, whose last statement is a query.
    Text(String),
    /// `RETURN …`: the expression, as it is written.
    Return(String),
    /// `BEGIN ATOMIC …; END`: what is between.
    Atomic(String),
}

/// What its writer says of how often its value changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Volatility {
    /// Never, for the same arguments.
    Immutable,
    /// Not within a statement.
    Stable,
    /// At any call.
    Volatile,
}

/// What its writer says of running it beside itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parallel {
    /// It may be.
    Safe,
    /// By the leader alone.
    Restricted,
    /// It may not.
    Unsafe,
}

impl FunctionSource {
    /// What a call says, in order.
    pub fn taken(&self) -> impl Iterator<Item = &Parameter> {
        self.parameters.iter().filter(|parameter| parameter.mode.is_taken())
    }

    /// The types that tell it from others of its name.
    pub fn signature(&self) -> Vec<&str> {
        self.taken().map(|parameter| parameter.data_type.as_str()).collect()
    }
}

impl UserFunction {
    /// `f(integer,text)`, `s.f(integer)`, as PostgreSQL names a function in its messages.
    pub fn shown(&self) -> String {
        format!("{}({})", full_name::dotted(&self.name), self.written.signature().join(","))
    }

    /// Whether it is called so and takes these types.
    pub(crate) fn is(&self, name: &str, signature: &[&str]) -> bool {
        self.name == name && self.written.signature() == signature
    }
}

/// The document, and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FunctionDocument {
    format: u8,
    /// The next number.
    pub next: u32,
    /// By their numbers.
    pub functions: Vec<UserFunction>,
}

impl Default for FunctionDocument {
    fn default() -> Self {
        FunctionDocument { format: FORMAT, next: FIRST, functions: vec![] }
    }
}

impl DocumentFormat for FunctionDocument {
    const NAME: &'static str = "functions";
    const FORMAT: u8 = FORMAT;
    const SHORTER: &'static str = "DROP FUNCTION those that are not needed";

    fn format(&self) -> u8 {
        self.format
    }
}

impl FunctionDocument {
    /// `NoObject` when somebody dropped it meanwhile.
    pub fn by_id(&mut self, id: FunctionId) -> Result<&mut UserFunction> {
        let found = self.functions.iter_mut().find(|function| function.id == id);
        found.ok_or_else(|| Error::new(ErrorKind::NoObject, "the function was dropped meanwhile"))
    }
}

/// The functions of a node. Shared.
pub struct Functions {
    catalog: Arc<Catalog>,
    kept: DocumentStore<FunctionDocument, Vec<Arc<UserFunction>>>,
}

impl std::fmt::Debug for Functions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.kept.known().iter().map(|function| function.shown())).finish()
    }
}

impl Functions {
    /// Reads them. What is planned with one is planned anew by the catalog's count of changes.
    ///
    /// Errors: the metastore's; `Corrupt` when the document cannot be understood.
    pub(crate) async fn open(metastore: Arc<dyn Metastore>, catalog: Arc<Catalog>) -> Result<Functions> {
        Ok(Functions { catalog, kept: DocumentStore::open(metastore, shared).await? })
    }

    /// All there are, by their numbers.
    pub fn all(&self) -> Arc<Vec<Arc<UserFunction>>> {
        self.kept.known()
    }

    /// Those of this full name, by their numbers.
    pub fn named(&self, name: &str) -> Vec<Arc<UserFunction>> {
        self.all().iter().filter(|function| function.name == name).cloned().collect()
    }

    /// The function of this number.
    pub fn by_id(&self, id: FunctionId) -> Option<Arc<UserFunction>> {
        self.all().iter().find(|function| function.id == id).cloned()
    }

    pub(crate) async fn change<T>(&self, change: impl Fn(&mut FunctionDocument) -> Result<T>) -> Result<T> {
        let done = self.kept.change(change).await?;
        fail::fail_point!("functions::written");
        self.catalog.changed();
        Ok(done)
    }
}

fn shared(known: FunctionDocument) -> Vec<Arc<UserFunction>> {
    known.functions.into_iter().map(Arc::new).collect()
}

pub(crate) fn taken(name: &str) -> Error {
    Error::new(ErrorKind::ObjectExists, format!("function \"{name}\" already exists with same argument types"))
}

#[cfg(test)]
mod tests {
    use tarn_metastore::Memory;
    use tarn_types::ManualClock;

    use super::*;
    use crate::kept::of_text;

    #[tokio::test]
    async fn functions_are_there_again_and_a_text_that_is_not_understood_is_not_written_over() {
        let metastore: Arc<dyn Metastore> = Arc::new(Memory::new(Arc::new(ManualClock::new(0))));
        let catalog = Arc::<Catalog>::default();
        let functions = Functions::open(Arc::clone(&metastore), Arc::clone(&catalog)).await.unwrap();
        let written = FunctionSource {
            parameters: vec![Parameter { mode: Mode::In, name: None, data_type: "integer".into(), default: None }],
            returns: "integer".into(),
            is_set: false,
            columns: vec![],
            body: Body::Text("SELECT $1 + 1".into()),
            volatility: Volatility::Volatile,
            is_strict: false,
            is_leakproof: false,
            parallel: Parallel::Unsafe,
            cost: None,
            rows: None,
        };
        let planned = catalog.generation();
        let made = UserFunction {
            id: FunctionId(FIRST),
            name: "f".into(),
            maker: Some("bob".into()),
            comment: None,
            written: written.clone(),
        };
        let add = |known: &mut FunctionDocument| {
            known.next += 1;
            known.functions.push(made.clone());
            Ok(())
        };
        functions.change(add).await.unwrap();
        assert_ne!(catalog.generation(), planned, "what was planned is planned anew");
        let again = Functions::open(Arc::clone(&metastore), catalog).await.unwrap();
        assert_eq!(again.named("f").first().map(|function| function.shown()), Some("f(integer)".to_owned()));
        assert_eq!(again.all(), functions.all());
        for text in ["", "{}", "{\"format\":2,\"next\":1,\"functions\":[]}"] {
            assert_eq!(of_text::<FunctionDocument>(text).unwrap_err().kind(), ErrorKind::Corrupt, "{text}");
        }
    }
}
