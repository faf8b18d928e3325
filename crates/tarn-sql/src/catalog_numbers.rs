//! What do the numbers mean that crate `datafusion-pg-catalog` gives to its relations and to schemas, each session its
//! own, and which functions have which? Whoever has such a number read it in a catalog: what was listed there is kept,
//! so that `oid::regclass` and `pg_table_is_visible` know it.

use std::collections::HashMap;

use parking_lot::Mutex;

/// The schema whose number is the same everywhere.
const CATALOG: (i32, &str) = (11, "pg_catalog");

/// What one session was told.
#[derive(Debug, Default)]
pub(crate) struct Listed(Mutex<Lists>);

#[derive(Debug, Default)]
struct Lists {
    relations: HashMap<i32, String>,
    schemas: HashMap<i32, String>,
    functions: HashMap<i32, NamedFunction>,
}

/// A function of `pg_proc`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedFunction {
    /// In full.
    pub name: String,
    /// No other is called so, in whichever schema.
    pub is_only: bool,
}

impl Listed {
    /// The relations and schemas that are there now, the relations by their full names.
    pub fn list(&self, relations: HashMap<i32, String>, schemas: HashMap<i32, String>) {
        let mut lists = self.0.lock();
        (lists.relations, lists.schemas) = (relations, schemas);
    }

    /// The schemas that are there now.
    pub fn list_schemas(&self, schemas: HashMap<i32, String>) {
        self.0.lock().schemas = schemas;
    }

    /// The functions that are there now.
    pub fn list_functions(&self, functions: HashMap<i32, NamedFunction>) {
        self.0.lock().functions = functions;
    }

    /// The full name of a relation of the catalogs.
    pub fn relation(&self, number: i32) -> Option<String> {
        self.0.lock().relations.get(&number).cloned()
    }

    /// The name of a schema.
    pub fn schema(&self, number: i32) -> Option<String> {
        let (catalog, name) = CATALOG;
        let found = self.0.lock().schemas.get(&number).cloned();
        found.or_else(|| (number == catalog).then(|| name.to_owned()))
    }

    /// A function, if `pg_proc` was read.
    pub fn function(&self, number: i32) -> Option<NamedFunction> {
        self.0.lock().functions.get(&number).cloned()
    }
}
