//! Which foreign keys are there, and what does it take to look after each?
//!
//! Of all tables at once: a definition says what its table refers to, and not by whom it is referred to. The answer is
//! kept until the catalog moves.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use tarn_types::{
    ColumnId, DataType, ForeignKey, ReferencedKey, TableId, TableSchema, Unique, Value, decode_key, referenced,
};

use crate::catalog::Catalog;
use crate::error::{ForeignKeyFault, Result, Violation};

/// A foreign key, with all that it takes to look after it.
#[derive(Clone, Debug)]
pub struct Edge {
    /// The table that refers.
    pub child: Arc<TableSchema>,
    /// As the child's definition has it.
    pub key: ForeignKey,
    /// The table that is referred to; it may be the child.
    pub parent: Arc<TableSchema>,
    /// The parent's key that it means.
    pub referenced: ReferencedKey,
    /// The child's index by which rows are found.
    pub serving: Unique,
}

/// All foreign keys of a node, or of what a session sees.
#[derive(Debug, Default)]
pub struct Edges {
    /// By child, in the order of its definition.
    pub all: Vec<Edge>,
    /// Tables that have some, or are referred to.
    tables: HashSet<TableId>,
    /// Those whose other side is not here, by its words.
    pub(crate) broken: HashMap<TableId, String>,
}

impl Edge {
    /// Types of the foreign key's columns.
    pub(crate) fn child_types(&self) -> Vec<DataType> {
        types(&self.child, &self.key.columns)
    }

    /// Types of the columns that they refer to.
    pub(crate) fn parent_types(&self) -> Vec<DataType> {
        types(&self.parent, &self.key.parent_columns)
    }

    /// The values of a parent's key, in the order of the foreign key's columns. `keys` is the table of
    /// [`ReferencedKey::keys`].
    ///
    /// Errors: bytes that are no key.
    pub fn values_of_parent(&self, keys: &TableSchema, key: &[u8]) -> Result<Vec<Value>> {
        let parts = decode_key(keys, key)?;
        let mut values = vec![Value::Null; parts.len()];
        for (place, part) in self.referenced.order.iter().zip(parts) {
            values[*place] = part;
        }
        Ok(values)
    }

    /// It does not hold.
    #[must_use]
    pub fn violated(&self, values: Vec<Value>, what: ForeignKeyFault) -> Violation {
        let (child, parent) = (Arc::clone(&self.child), Arc::clone(&self.parent));
        Violation { child, parent, key: self.key.clone(), values, what }
    }
}

fn types(table: &TableSchema, columns: &[ColumnId]) -> Vec<DataType> {
    columns.iter().filter_map(|id| table.column_by_id(*id)).map(|column| column.data_type).collect()
}

impl Edges {
    /// Of tables as somebody sees them.
    #[must_use]
    pub fn of(tables: &[Arc<TableSchema>]) -> Edges {
        let mut edges = Edges::default();
        for child in tables.iter().filter(|table| !table.options.rules.foreign_keys.is_empty()) {
            for key in &child.options.rules.foreign_keys {
                let parent_id = key.parent_of(child.id);
                edges.tables.extend([child.id, parent_id]);
                let parent = tables.iter().find(|table| table.id == parent_id);
                let serving = child.options.rules.serving(key).map(|at| child.options.rules.uniques[at].clone());
                let referenced = parent.and_then(|parent| referenced(parent, &key.parent_columns));
                match (parent, referenced, serving) {
                    (Some(parent), Some(referenced), Some(serving)) => {
                        let (child, parent) = (Arc::clone(child), Arc::clone(parent));
                        edges.all.push(Edge { child, key: key.clone(), parent, referenced, serving });
                    }
                    _ => {
                        let lost = format!("foreign key \"{}\" of table \"{}\"", key.name, child.name);
                        edges.broken.insert(child.id, lost.clone());
                        edges.broken.insert(parent_id, lost);
                    }
                }
            }
        }
        edges
    }

    /// Then nobody has to look after any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Whether a table has foreign keys, or is referred to.
    #[must_use]
    pub fn has(&self, table: TableId) -> bool {
        self.tables.contains(&table)
    }

    /// Those that refer to a table.
    pub fn to(&self, parent: TableId) -> impl Iterator<Item = &Edge> {
        self.all.iter().filter(move |edge| edge.parent.id == parent)
    }
}

/// Those of everybody, as they were when they were last asked for.
#[derive(Default)]
pub(crate) struct KnownEdges {
    known: RwLock<Option<(u64, Arc<Edges>)>>,
    /// The catalog's generation and one more, if there were none then.
    none_at: AtomicU64,
}

impl KnownEdges {
    /// Whether a table has foreign keys, or is referred to.
    ///
    /// Cost: a comparison where there are none at all.
    pub(crate) fn has(&self, catalog: &Catalog, table: TableId) -> bool {
        self.none_at.load(Ordering::Acquire) != catalog.generation() + 1 && self.now(catalog).has(table)
    }

    /// Cost: a comparison, unless the catalog moved; then a look at all tables.
    pub(crate) fn now(&self, catalog: &Catalog) -> Arc<Edges> {
        // Before the tables: what comes behind it is looked at the next time.
        let generation = catalog.generation();
        if let Some((of, edges)) = &*self.known.read()
            && *of == generation
        {
            return Arc::clone(edges);
        }
        let edges = Arc::new(Edges::of(&catalog.schemas()));
        *self.known.write() = Some((generation, Arc::clone(&edges)));
        self.none_at.store(if edges.is_empty() { generation + 1 } else { 0 }, Ordering::Release);
        edges
    }
}
