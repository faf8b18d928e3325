//! Which types did users make? Enumerations and rows, kept as a document of the metastore (`docs/formats/types.md`),
//! and in memory for whoever plans.
//!
//! Tables have the labels of their enumerated columns in their own definitions, by which rows are checked. Labels that
//! come are in the document first and in the tables then:
//!
//! ```text
//! document ─> each table that has a column of the type
//! ```
//!
//! A crash between leaves tables that refuse the new label. They are told of it when the node opens, and by the next
//! change of the type.
//!
//! The document is read once, when the node opens: a type is of one node, as its tables are.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tarn_metastore::Metastore;
use tarn_types::{Enumerated, TableSchema, TypeId};

use crate::catalog::Catalog;
use crate::error::{Error, ErrorKind, Result};
use crate::kept::{DocumentFormat, DocumentStore};

/// Of the document.
const FORMAT: u8 = 1;

/// The first number of a type that somebody makes. Smaller ones are PostgreSQL's own.
const FIRST: u32 = 16_384;

/// A type that somebody made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserType {
    /// The number behind is that of its arrays.
    pub id: TypeId,
    /// Its full name.
    pub name: String,
    /// Who made it, and may change it; superusers may, too.
    pub maker: Option<String>,
    /// By `COMMENT ON TYPE`.
    pub comment: Option<String>,
    /// Labels, or columns.
    pub kind: TypeKind,
}

/// What it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[expect(missing_docs, reason = "what is said of each names its fields")]
pub enum TypeKind {
    /// These labels, in their order.
    Enum { labels: Vec<String> },
    /// Rows of these columns, in their order.
    Row { columns: Vec<Attribute> },
}

/// A column of a row type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attribute {
    /// Of the column.
    pub name: String,
    /// As it is written in SQL.
    pub data_type: String,
}

/// The document, and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TypeDocument {
    format: u8,
    /// The next number.
    next: u32,
    /// By name.
    types: BTreeMap<String, UserType>,
}

impl Default for TypeDocument {
    fn default() -> Self {
        TypeDocument { format: FORMAT, next: FIRST, types: BTreeMap::new() }
    }
}

impl DocumentFormat for TypeDocument {
    const NAME: &'static str = "types";
    const FORMAT: u8 = FORMAT;
    const SHORTER: &'static str = "DROP TYPE those that are not needed";

    fn format(&self) -> u8 {
        self.format
    }
}

impl UserType {
    /// Its labels, as a column has them; of an enumeration alone.
    pub fn enumerated(&self) -> Option<Enumerated> {
        match &self.kind {
            TypeKind::Enum { labels } => {
                Some(Enumerated { id: self.id, name: self.name.clone(), labels: labels.clone() })
            }
            TypeKind::Row { .. } => None,
        }
    }
}

/// The types of a node. Shared.
pub struct Types {
    catalog: Arc<Catalog>,
    kept: DocumentStore<TypeDocument>,
}

impl std::fmt::Debug for Types {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.kept.known().types.keys()).finish()
    }
}

impl Types {
    /// Reads them. What is planned with one is planned anew by the catalog's count of changes.
    ///
    /// Errors: the metastore's; `Corrupt` when the document cannot be understood.
    pub(crate) async fn open(metastore: Arc<dyn Metastore>, catalog: Arc<Catalog>) -> Result<Types> {
        Ok(Types { catalog, kept: DocumentStore::open(metastore, |known| known).await? })
    }

    /// All there are, by name.
    pub fn all(&self) -> Vec<UserType> {
        self.kept.known().types.values().cloned().collect()
    }

    /// Whether nobody made one.
    pub fn is_empty(&self) -> bool {
        self.kept.known().types.is_empty()
    }

    /// The type of this name.
    pub fn get(&self, name: &str) -> Option<UserType> {
        self.kept.known().types.get(name).cloned()
    }

    /// The type of this number.
    pub fn by_id(&self, id: TypeId) -> Option<UserType> {
        self.kept.known().types.values().find(|of| of.id == id).cloned()
    }

    /// The table or view of this name, whose rows are of a type that is called so, too.
    pub fn table(&self, name: &str) -> Option<Arc<TableSchema>> {
        self.catalog.schema(name).ok()
    }

    /// Makes one. Its number.
    pub(crate) async fn create(&self, name: &str, maker: Option<String>, kind: TypeKind) -> Result<TypeId> {
        let create = |known: &mut TypeDocument| {
            if known.types.contains_key(name) {
                return Err(taken(name));
            }
            let id = TypeId(known.next);
            // The one behind is of its arrays.
            known.next += 2;
            let made = UserType { id, name: name.to_owned(), maker: maker.clone(), comment: None, kind: kind.clone() };
            known.types.insert(name.to_owned(), made);
            Ok(id)
        };
        self.change(create).await
    }

    /// Changes the type of this name.
    pub(crate) async fn alter(&self, name: &str, change: &(dyn Fn(&mut UserType) -> Result<()> + Sync)) -> Result<()> {
        let alter = |known: &mut TypeDocument| {
            let mut of = known.types.get(name).cloned().ok_or_else(|| missing(name))?;
            change(&mut of)?;
            if of.name != name && known.types.contains_key(&of.name) {
                return Err(taken(&of.name));
            }
            known.types.remove(name);
            known.types.insert(of.name.clone(), of);
            Ok(())
        };
        self.change(alter).await
    }

    /// Forgets it. False: it is not there.
    pub(crate) async fn remove(&self, id: TypeId) -> Result<bool> {
        self.change(|known| {
            let before = known.types.len();
            known.types.retain(|_, of| of.id != id);
            Ok(known.types.len() < before)
        })
        .await
    }

    async fn change<T>(&self, change: impl Fn(&mut TypeDocument) -> Result<T>) -> Result<T> {
        let done = self.kept.change(change).await?;
        self.catalog.changed();
        Ok(done)
    }

    /// The columns of tables that are of a type.
    pub fn columns_of(&self, id: TypeId) -> Vec<(Arc<TableSchema>, String)> {
        let mut found = vec![];
        for table in self.catalog.schemas() {
            for (at, column) in table.columns.iter().enumerate() {
                if table.enumerated(at).is_some_and(|of| of.id == id) {
                    found.push((Arc::clone(&table), column.name.clone()));
                }
            }
        }
        found
    }

    /// The table with the labels that its columns are to have now. `None`: it has them.
    pub(crate) fn told(&self, table: &TableSchema) -> Option<TableSchema> {
        let mut to = None;
        for rules in &table.options.rules.columns {
            let Some(has) = &rules.enumerated else { continue };
            // Of a type that is not there nobody knows better.
            let Some(now) = self.by_id(has.id).and_then(|of| of.enumerated()).filter(|now| now != has) else {
                continue;
            };
            let to = to.get_or_insert_with(|| table.clone());
            to.options.rules.entry(rules.id).enumerated = Some(now);
        }
        to
    }
}

pub(crate) fn taken(name: &str) -> Error {
    Error::new(ErrorKind::ObjectExists, format!("type \"{name}\" already exists"))
}

pub(crate) fn missing(name: &str) -> Error {
    Error::new(ErrorKind::NoObject, format!("type \"{name}\" does not exist"))
}

#[cfg(test)]
mod tests {
    use tarn_metastore::Memory;
    use tarn_types::ManualClock;

    use super::*;
    use crate::kept::of_text;

    #[tokio::test]
    async fn types_are_there_again_and_their_numbers_are_never_anothers() {
        let metastore: Arc<dyn Metastore> = Arc::new(Memory::new(Arc::new(ManualClock::new(0))));
        let catalog = Arc::<Catalog>::default();
        let types = Types::open(Arc::clone(&metastore), Arc::clone(&catalog)).await.unwrap();
        let kind = || TypeKind::Enum { labels: vec!["a".into(), "b".into()] };
        let planned = catalog.generation();
        let mood = types.create("mood", Some("bob".into()), kind()).await.unwrap();
        assert_ne!(catalog.generation(), planned, "what was planned is planned anew");
        assert_eq!(types.create("mood", None, kind()).await.unwrap_err().kind(), ErrorKind::ObjectExists);
        let renamed = |of: &mut UserType| {
            of.name = "humour".to_owned();
            Ok(())
        };
        types.alter("mood", &renamed).await.unwrap();
        assert_eq!(types.alter("mood", &renamed).await.unwrap_err().kind(), ErrorKind::NoObject);
        let again = Types::open(Arc::clone(&metastore), Arc::clone(&catalog)).await.unwrap();
        assert_eq!(again.all(), types.all());
        assert_eq!(again.get("humour").map(|of| (of.id, of.maker.clone())), Some((mood, Some("bob".to_owned()))));
        assert!(types.remove(mood).await.unwrap());
        assert!(!types.remove(mood).await.unwrap());
        assert!(types.create("mood", None, kind()).await.unwrap() > mood);
    }

    #[test]
    fn a_document_that_is_not_understood_is_not_written_over() {
        for text in
            ["", "{}", "{\"format\":2,\"next\":1,\"types\":{}}", "{\"format\":1,\"next\":1,\"types\":{},\"x\":1}"]
        {
            assert_eq!(of_text::<TypeDocument>(text).unwrap_err().kind(), ErrorKind::Corrupt, "{text}");
        }
        assert_eq!(
            of_text::<TypeDocument>("{\"format\":1,\"next\":16384,\"types\":{}}").unwrap(),
            TypeDocument::default()
        );
    }
}
