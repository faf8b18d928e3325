//! Where is a small text kept that belongs to the whole store, such as who may use it?
//!
//! A [`Document`] has a name and a version; [`put_document`] replaces it if nobody else did. It is kept as the
//! definition of a table that nobody can read: an archive without files at `tarn-document://NAME/VERSION`, the text
//! being the default of its only column. So every backend keeps it, copies it and backs it up as it does tables, and a
//! build that knows no documents refuses to open such an archive: it does not serve what it cannot guard.
//!
//! Version n + 1 is made before version n is forgotten, and the highest is the one that counts. A name is taken once:
//! that is the compare-and-set. Names of versions that were forgotten are free again, but then there is a higher one,
//! which is looked for last.

use tarn_types::{Archive, Column, ColumnId, DataType, TableId, TableOptions, TableSchema, TabletId, Value};

use crate::define::DOCUMENT_SCHEME as SCHEME;
use crate::{Definition, Error, Metastore, Result};

/// Longer texts are refused: a document is read whole, and written whole with every change.
pub const MAX_DOCUMENT_BYTES: usize = 4 << 20;

/// A text of the whole store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// From 1; one more with every change.
    pub version: u64,
    /// At most [`MAX_DOCUMENT_BYTES`]; what is in it is its reader's business.
    pub text: String,
}

/// Whether this is no table, but what a document is kept in: no rows, no tablets, no files.
pub fn is_document(schema: &TableSchema) -> bool {
    schema.options.archive.as_ref().is_some_and(|archive| archive.url.starts_with(SCHEME))
}

/// The latest version of a document. Cost: one list of the tables, two if there is none.
pub async fn document(metastore: &dyn Metastore, name: &str) -> Result<Option<Document>> {
    match versions(metastore, name).await?.pop() {
        Some(latest) => Ok(Some(latest)),
        // A backend may make a list of two questions. If the next version took the place of this one in between,
        // neither is in it.
        None => Ok(versions(metastore, name).await?.pop()),
    }
}

/// Makes the next version of a document, if `expected` is the latest (0: there is none). Answers the new version; it is
/// durable then.
///
/// Errors: [`Error::DocumentChanged`] if another is the latest: read it, decide anew. `Indeterminate`: read whether it
/// is there.
pub async fn put_document(metastore: &dyn Metastore, name: &str, expected: u64, text: &str) -> Result<u64> {
    let changed = || Error::DocumentChanged { name: name.to_owned() };
    if text.len() > MAX_DOCUMENT_BYTES {
        return Err(Error::DocumentTooLong { name: name.to_owned(), bytes: text.len(), limit: MAX_DOCUMENT_BYTES });
    }
    let latest = |versions: &[Document]| versions.last().map_or(0, |document| document.version);
    if latest(&versions(metastore, name).await?) != expected {
        return Err(changed());
    }
    let version = expected + 1;
    let made = metastore.define(Definition::Create(Box::new(schema(name, version, text)))).await;
    match made {
        Err(Error::TableExists { .. }) => return Err(changed()),
        made => made?,
    };
    let after = versions(metastore, name).await?;
    if latest(&after) != version {
        forget(metastore, name, version).await;
        return Err(changed());
    }
    for old in after.iter().filter(|old| old.version < version) {
        forget(metastore, name, old.version).await;
    }
    Ok(version)
}

/// What stays because of an error is forgotten by the next change: nothing depends on it.
async fn forget(metastore: &dyn Metastore, name: &str, version: u64) {
    let _ = metastore.define(Definition::Drop { name: table_name(name, version) }).await;
}

/// All versions that are there, the latest last.
async fn versions(metastore: &dyn Metastore, name: &str) -> Result<Vec<Document>> {
    let prefix = format!("{SCHEME}{name}/");
    let mut found = Vec::new();
    for schema in metastore.tables().await? {
        let url = schema.options.archive.as_ref().map_or("", |archive| archive.url.as_str());
        let Some(version) = url.strip_prefix(&prefix) else { continue };
        let text = schema.columns.first().and_then(|column| column.default.as_ref());
        match (version.parse(), text) {
            (Ok(version), Some(Value::Text(text))) => found.push(Document { version, text: text.clone() }),
            _ => {
                let reason = format!("it keeps no version of the document \"{name}\"");
                return Err(Error::Inconsistent { name: schema.name.clone(), reason });
            }
        }
    }
    found.sort_by_key(|document| document.version);
    Ok(found)
}

fn table_name(name: &str, version: u64) -> String {
    format!("{SCHEME}{name}/{version}")
}

fn schema(name: &str, version: u64, text: &str) -> TableSchema {
    let column = Column {
        id: ColumnId(1),
        name: "text".to_owned(),
        data_type: DataType::Text,
        nullable: true,
        default: Some(Value::Text(text.to_owned())),
    };
    let archive = Archive { url: table_name(name, version), ..Archive::default() };
    TableSchema {
        id: TableId(0),
        name: table_name(name, version),
        columns: vec![column],
        key: vec![],
        n_partition_key: 0,
        first_tablet: TabletId(0),
        options: TableOptions { tablets: 0, archive: Some(archive), ..TableOptions::default() },
    }
}
