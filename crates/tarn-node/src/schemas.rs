//! Which schemas did users make? Kept as a document of the metastore (`docs/formats/schemas.md`), and in memory for
//! whoever plans.
//!
//! What is in a schema has the schema in its name ([`full_name`]): the document says only which there are, and whose.
//! It is read once, when the node opens: a schema is of one node, as its tables are. How schemas come and go is in
//! `schema_changes`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tarn_metastore::Metastore;
use tarn_types::full_name;

use crate::catalog::Catalog;
use crate::error::{Error, ErrorKind, Result};
use crate::kept::{DocumentFormat, DocumentStore};

/// Of the document.
const FORMAT: u8 = 1;

/// Schemas that are there without anybody having made them, and whose names nobody else's can have.
pub const BUILT_IN: [&str; 4] = [full_name::PUBLIC, "information_schema", "pg_catalog", "tarn"];

/// What names begin with that nobody may give.
const RESERVED: &str = "pg_";

/// A schema, whatever it is called. Never another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SchemaId(pub u32);

/// A schema that somebody made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schema {
    /// Never given to another.
    pub id: SchemaId,
    /// As it stands before the dot.
    pub name: String,
    /// Who may make tables in it, and change and drop it; superusers may, too. `None`: they alone.
    pub owner: Option<String>,
    /// By `COMMENT ON SCHEMA`.
    pub comment: Option<String>,
}

/// The document, and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SchemaDocument {
    format: u8,
    /// The next number.
    next: u32,
    /// By name.
    schemas: BTreeMap<String, Schema>,
}

impl Default for SchemaDocument {
    fn default() -> Self {
        SchemaDocument { format: FORMAT, next: 1, schemas: BTreeMap::new() }
    }
}

impl DocumentFormat for SchemaDocument {
    const NAME: &'static str = "schemas";
    const FORMAT: u8 = FORMAT;
    const SHORTER: &'static str = "DROP SCHEMA those that are not needed";

    fn format(&self) -> u8 {
        self.format
    }
}

/// The schemas of a node. Shared.
pub struct Schemas {
    catalog: Arc<Catalog>,
    kept: DocumentStore<SchemaDocument>,
}

impl fmt::Debug for Schemas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.kept.known().schemas.keys()).finish()
    }
}

impl Schemas {
    /// Reads them. What is planned is planned anew when they change, by the catalog's count of changes.
    ///
    /// Errors: the metastore's; `Corrupt` when the document cannot be understood.
    pub(crate) async fn open(metastore: Arc<dyn Metastore>, catalog: Arc<Catalog>) -> Result<Schemas> {
        Ok(Schemas { catalog, kept: DocumentStore::open(metastore, |known| known).await? })
    }

    /// All that somebody made, by name.
    pub fn all(&self) -> Vec<Schema> {
        self.kept.known().schemas.values().cloned().collect()
    }

    /// Whether nobody made one.
    pub fn is_empty(&self) -> bool {
        self.kept.known().schemas.is_empty()
    }

    /// The schema of this name, if somebody made it.
    pub fn get(&self, name: &str) -> Option<Schema> {
        self.kept.known().schemas.get(name).cloned()
    }

    /// The schema of this number.
    pub fn by_id(&self, id: SchemaId) -> Option<Schema> {
        self.kept.known().schemas.values().find(|of| of.id == id).cloned()
    }

    /// Whether there is one of this name that tables can be in.
    pub fn has_tables(&self, name: &str) -> bool {
        name == full_name::PUBLIC || self.kept.known().schemas.contains_key(name)
    }

    /// Whether something of this full name may be made.
    ///
    /// Errors: `NoSchema`.
    pub fn check_there(&self, full: &str) -> Result<()> {
        let schema = full_name::schema_of(full);
        if self.has_tables(schema) { Ok(()) } else { Err(missing(schema)) }
    }

    /// Makes one. Its number.
    pub(crate) async fn create(&self, name: &str, owner: Option<String>) -> Result<SchemaId> {
        let create = |known: &mut SchemaDocument| {
            check_free(known, name)?;
            let id = SchemaId(known.next);
            known.next += 1;
            let made = Schema { id, name: name.to_owned(), owner: owner.clone(), comment: None };
            known.schemas.insert(name.to_owned(), made);
            Ok(id)
        };
        self.change(create).await
    }

    /// Changes the schema of this name.
    pub(crate) async fn alter(&self, name: &str, change: &(dyn Fn(&mut Schema) + Sync)) -> Result<()> {
        let alter = |known: &mut SchemaDocument| {
            let mut of = known.schemas.get(name).cloned().ok_or_else(|| missing(name))?;
            change(&mut of);
            if of.name != name {
                check_free(known, &of.name)?;
            }
            known.schemas.remove(name);
            known.schemas.insert(of.name.clone(), of);
            Ok(())
        };
        self.change(alter).await
    }

    /// Forgets one, whose number another has from now on: it is the same schema, which is called otherwise.
    pub(crate) async fn take_place(&self, from: &str, to: &str) -> Result<()> {
        self.change(|known| {
            let before = known.schemas.remove(from).ok_or_else(|| missing(from))?;
            known.schemas.get_mut(to).ok_or_else(|| missing(to))?.id = before.id;
            Ok(())
        })
        .await
    }

    /// Forgets it. False: it is not there.
    pub(crate) async fn remove(&self, id: SchemaId) -> Result<bool> {
        self.change(|known| {
            let before = known.schemas.len();
            known.schemas.retain(|_, of| of.id != id);
            Ok(known.schemas.len() < before)
        })
        .await
    }

    async fn change<T>(&self, change: impl Fn(&mut SchemaDocument) -> Result<T>) -> Result<T> {
        let done = self.kept.change(change).await?;
        self.catalog.changed();
        Ok(done)
    }
}

/// Errors: `SchemaExists`, `ReservedName`.
fn check_free(known: &SchemaDocument, name: &str) -> Result<()> {
    if BUILT_IN.contains(&name) || known.schemas.contains_key(name) {
        return Err(Error::new(ErrorKind::SchemaExists, format!("schema \"{name}\" already exists")));
    }
    if name.starts_with(RESERVED) || full_name::is_reserved(name) {
        return Err(Error::new(ErrorKind::ReservedName, format!("unacceptable schema name \"{name}\""))
            .with_detail(format!("The prefix \"{RESERVED}\" is reserved for system schemas.")));
    }
    Ok(())
}

pub(crate) fn missing(name: &str) -> Error {
    Error::new(ErrorKind::NoSchema, format!("schema \"{name}\" does not exist"))
}

#[cfg(test)]
mod tests {
    use tarn_metastore::Memory;
    use tarn_types::ManualClock;

    use super::*;
    use crate::kept::of_text;

    #[tokio::test]
    async fn schemas_are_there_again_and_their_numbers_are_never_anothers() {
        let metastore: Arc<dyn Metastore> = Arc::new(Memory::new(Arc::new(ManualClock::new(0))));
        let catalog = Arc::<Catalog>::default();
        let schemas = Schemas::open(Arc::clone(&metastore), Arc::clone(&catalog)).await.unwrap();
        let planned = catalog.generation();
        let s = schemas.create("s", Some("bob".into())).await.unwrap();
        assert_ne!(catalog.generation(), planned, "what was planned is planned anew");
        for (name, kind) in [
            ("s", ErrorKind::SchemaExists),
            ("public", ErrorKind::SchemaExists),
            ("tarn", ErrorKind::SchemaExists),
            ("pg_x", ErrorKind::ReservedName),
        ] {
            assert_eq!(schemas.create(name, None).await.unwrap_err().kind(), kind, "{name}");
        }
        assert!(schemas.check_there(&full_name::join("s", "t")).is_ok() && schemas.check_there("t").is_ok());
        assert_eq!(schemas.check_there(&full_name::join("r", "t")).unwrap_err().kind(), ErrorKind::NoSchema);
        schemas.alter("s", &|of| of.name = "r".to_owned()).await.unwrap();
        let again = Schemas::open(Arc::clone(&metastore), Arc::clone(&catalog)).await.unwrap();
        assert_eq!(again.all(), schemas.all());
        assert_eq!(again.get("r").map(|of| (of.id, of.owner)), Some((s, Some("bob".to_owned()))));
        schemas.create("later", None).await.unwrap();
        schemas.take_place("r", "later").await.unwrap();
        assert_eq!((schemas.get("later").map(|of| of.id), schemas.get("r")), (Some(s), None));
        assert!(schemas.remove(s).await.unwrap());
        assert!(!schemas.remove(s).await.unwrap());
        assert!(schemas.create("s", None).await.unwrap() > s);
    }

    #[test]
    fn a_document_that_is_not_understood_is_not_written_over() {
        for text in ["", "{}", "{\"format\":2,\"next\":1,\"schemas\":{}}", "{\"format\":1,\"next\":1,\"x\":1}"] {
            assert_eq!(of_text::<SchemaDocument>(text).unwrap_err().kind(), ErrorKind::Corrupt, "{text}");
        }
        assert_eq!(
            of_text::<SchemaDocument>("{\"format\":1,\"next\":1,\"schemas\":{}}").unwrap(),
            SchemaDocument::default()
        );
    }
}
