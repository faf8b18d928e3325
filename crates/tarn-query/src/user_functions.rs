//! What does a front end say of functions that users wrote in SQL? What each is, and which of those of a name a call
//! means.
//!
//! The engine calls none of them: in a plan, the query of a function stands in the place of its call (`inlined.rs`).

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{Field, FieldRef};
use datafusion::error::Result;

/// A function: a query with parameters. Types are as SQL writes them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UserFunction {
    /// It is never another one's.
    pub id: u32,
    /// With its schema, as tables have theirs in their names.
    pub name: String,
    /// In their order.
    pub parameters: Vec<FunctionParameter>,
    /// One value, or rows.
    pub gives: ResultShape,
    /// One at least. Of one value that has no name: `None`.
    pub columns: Vec<(Option<String>, String)>,
    /// Whether it gives nothing when an argument is NULL.
    pub is_strict: bool,
    /// One query. It names parameters by their names, or by their places: `$1`.
    pub query: String,
}

/// A parameter.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FunctionParameter {
    /// By which a call may give it; `None`: by position alone.
    pub name: Option<String>,
    /// As SQL writes it.
    pub data_type: String,
    /// An expression; parameters behind one that has a default have one, too.
    pub default: Option<String>,
}

/// How much a function gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResultShape {
    /// The first column of the first row; NULL without rows.
    Value,
    /// The first row; NULLs without rows.
    Row,
    /// All rows.
    Rows,
}

impl UserFunction {
    /// Whether it may be called with so many arguments.
    pub fn takes(&self, n_arguments: usize) -> bool {
        let n_needed = self.parameters.iter().take_while(|parameter| parameter.default.is_none()).count();
        (n_needed..=self.parameters.len()).contains(&n_arguments)
    }
}

/// What a call says at one place.
#[derive(Debug, Clone)]
pub struct Argument {
    /// Its type, and whether it may be NULL.
    pub field: FieldRef,
    /// A text or NULL that is written out: it becomes what is wanted.
    pub is_unknown: bool,
}

/// Which function a call means, and which types it has there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ResolvedFunction {
    /// The one of several of its name.
    pub function: Arc<UserFunction>,
    /// Of its parameters, all of them.
    pub parameter_types: Vec<String>,
    /// Of what it gives.
    pub column_types: Vec<String>,
}

/// The functions there are now.
pub trait UserFunctions: fmt::Debug + Send + Sync {
    /// Whether there is none at all.
    fn is_empty(&self) -> bool;

    /// Those that are called so.
    fn named(&self, name: &str) -> Vec<Arc<UserFunction>>;

    /// The one that a call with these arguments means.
    ///
    /// Errors: none takes them, or several do alike.
    fn choose(&self, name: &str, arguments: &[Argument]) -> Result<ResolvedFunction>;

    /// What SQL calls the type of a field, without what is said of lengths. `None`: it has no name.
    fn type_name(&self, field: &Field) -> Option<String>;
}
