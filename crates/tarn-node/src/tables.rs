//! What may be done with the rows of this node's tables, and by whom? The one door to them.
//!
//! Every call says who asks ([`Principal`]), and [`authorize()`] is asked here before anything is looked at. What needs
//! the lake does so behind this door: a row that was evicted is read from its file, and a change of cells of such a row
//! is written whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use tarn_metastore::{TableVersion, VersionSelector};
use tarn_rows::Lookup;
use tarn_types::{Address, Column, FileId, SeqNo, TableId, TableSchema, Value, Version, decode_row};

use crate::auth::access::Privilege;
use crate::auth::{AuthAction, Principal, authorize};
use crate::being_made::BeingMade;
use crate::catalog::{TableHandle, altered};
use crate::error::{Error, ErrorKind, Result};
use crate::parts::NodeParts;

/// How often a row that moves while it is read or written is looked up again.
pub(crate) const MAX_TRIES: usize = 32;

/// A row of a table and the change that wrote it.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// In the order of the table's columns.
    pub values: Vec<Value>,
    /// Position of the change: the guard of a write that builds on this row.
    pub seqno: SeqNo,
}

/// The rows of all tables of a node. Shared.
pub struct TableService {
    pub(crate) parts: Arc<NodeParts>,
    pub(crate) being_made: BeingMade,
}

impl TableService {
    pub(crate) fn new(parts: Arc<NodeParts>) -> TableService {
        TableService { parts, being_made: BeingMade::default() }
    }

    /// The row of an engine key, now, wherever it lies.
    ///
    /// Cost: one read of the row engine; for a row that was evicted another, and one page of one lake file.
    /// Errors: `Denied`; `Conflict` for a row that moved whenever it was looked for.
    pub async fn get(&self, who: &Principal, table: &TableHandle, key: &[u8]) -> Result<Option<Row>> {
        self.may(who, table.schema(), Privilege::Select)?;
        self.parts.row(table, key).await
    }

    /// The rows of engine keys, in the order of `keys`, each as of some moment of the call.
    ///
    /// Cost: one read of the row engine for all; of rows that were evicted, the footer of each file that has some, and
    /// their pages. Errors: as [`TableService::get`].
    pub async fn multi_get(&self, who: &Principal, table: &TableHandle, keys: &[&[u8]]) -> Result<Vec<Option<Row>>> {
        self.may(who, table.schema(), Privilege::Select)?;
        self.parts.rows(table, keys).await
    }

    /// `Denied` unless `who` was granted it, or owns the table. Entries of an index cannot be named: whoever comes to
    /// them was allowed to read or write the table.
    pub(crate) fn may(&self, who: &Principal, table: &TableSchema, privilege: Privilege) -> Result<()> {
        if table.options.is_index {
            return Ok(());
        }
        authorize(&self.parts.users.users(), who, &AuthAction::Rows { of: table, privilege })
    }

    /// `Denied` unless the owner of the view was granted it, or owns the table.
    pub(crate) fn may_through(&self, who: &Principal, view: TableId, table: &TableSchema) -> Result<()> {
        authorize(&self.parts.users.users(), who, &AuthAction::Through { view, of: table })
    }
}

/// Whether rows that were just read have all columns of the handle: those that were stored since a column was dropped
/// lack it.
///
/// Errors: `Conflict` for a column that was dropped since the handle was taken.
fn check_columns(table: &TableHandle) -> Result<()> {
    // What a transaction adds itself is in no stored row.
    let (planned, now) = (table.altered_from.as_ref().unwrap_or(table.schema()), table.table.table_schema());
    let has = |column: &Column| now.column_by_id(column.id).is_some();
    match Arc::ptr_eq(&now, planned) || planned.columns.iter().all(has) {
        true => Ok(()),
        false => Err(altered(&planned.name)),
    }
}

impl NodeParts {
    pub(crate) async fn row(&self, table: &TableHandle, key: &[u8]) -> Result<Option<Row>> {
        let row = match table.table.get(key)? {
            Lookup::Row { cells, seqno } => Some(Row { values: decode_row(table.schema(), key, &cells)?, seqno }),
            Lookup::Absent => None,
            Lookup::InLake(_) => Box::pin(self.rows_of(table, &[key])).await?.pop().flatten(),
        };
        check_columns(table)?;
        Ok(row)
    }

    pub(crate) async fn rows(&self, table: &TableHandle, keys: &[&[u8]]) -> Result<Vec<Option<Row>>> {
        let rows = self.rows_of(table, keys).await?;
        check_columns(table)?;
        Ok(rows)
    }

    async fn rows_of(&self, table: &TableHandle, keys: &[&[u8]]) -> Result<Vec<Option<Row>>> {
        let schema = table.schema();
        let mut rows: Vec<Option<Row>> = keys.iter().map(|_| None).collect();
        let mut wanted: Vec<usize> = (0..keys.len()).collect();
        for _ in 0..MAX_TRIES {
            let asked: Vec<&[u8]> = wanted.iter().map(|place| keys[*place]).collect();
            let mut evicted = vec![];
            for (place, found) in wanted.into_iter().zip(table.table.multi_get(&asked)?) {
                match found {
                    Lookup::Row { cells, seqno } => {
                        rows[place] = Some(Row { values: decode_row(schema, keys[place], &cells)?, seqno });
                    }
                    Lookup::Absent => {}
                    Lookup::InLake(address) => evicted.push((place, address)),
                }
            }
            if evicted.is_empty() {
                return Ok(rows);
            }
            // After the lookup: an address names a file of this version or an earlier one.
            let (version, _) = table.table.installed();
            let lake = self.lake_version(schema, version).await?;
            let (there, moved): (Vec<_>, Vec<_>) =
                evicted.into_iter().partition(|(_, address)| lake.file(address.file).is_some());
            let addresses: Vec<Address> = there.iter().map(|(_, address)| *address).collect();
            let fetched = Box::pin(self.fetch(schema, &lake, &addresses)).await?;
            for ((place, address), values) in there.into_iter().zip(fetched) {
                rows[place] = Some(Row { values, seqno: address.seqno });
            }
            // A compaction moved these between the two reads.
            wanted = moved.into_iter().map(|(place, _)| place).collect();
            if wanted.is_empty() {
                return Ok(rows);
            }
        }
        let message = format!("a row of table \"{}\" moved {MAX_TRIES} times while it was read", schema.name);
        Err(Error::new(ErrorKind::Conflict, message))
    }

    pub(crate) async fn lake_version(&self, table: &TableSchema, version: Version) -> Result<Arc<TableVersion>> {
        Ok(self.metastore.snapshot(table.id, VersionSelector::Version(version)).await?)
    }

    /// The rows at addresses in files of a version of the lake, in the order of `addresses`.
    pub(crate) async fn fetch(
        &self,
        table: &TableSchema,
        lake: &TableVersion,
        addresses: &[Address],
    ) -> Result<Vec<Vec<Value>>> {
        let mut by_file: BTreeMap<FileId, Vec<usize>> = BTreeMap::new();
        for (place, address) in addresses.iter().enumerate() {
            by_file.entry(address.file).or_default().push(place);
        }
        let mut rows = vec![vec![]; addresses.len()];
        for (file, places) in by_file {
            let of_file: Vec<Address> = places.iter().map(|place| addresses[*place]).collect();
            let found = self.fetch_of(table, lake, file, &of_file).await?;
            for (place, values) in places.into_iter().zip(found) {
                rows[place] = values;
            }
        }
        Ok(rows)
    }

    async fn fetch_of(
        &self,
        table: &TableSchema,
        lake: &TableVersion,
        file: FileId,
        addresses: &[Address],
    ) -> Result<Vec<Vec<Value>>> {
        let unknown = || format!("an address names file {file}, which version {} does not have", lake.version);
        let file = lake.file(file).ok_or_else(|| Error::new(ErrorKind::Corrupt, unknown()))?;
        let path = object_store::path::Path::parse(&file.path)
            .map_err(|error| Error::new(ErrorKind::Corrupt, format!("path {} of a lake file: {error}", file.path)))?;
        let key = tarn_cache::FooterKey {
            store: tarn_cache::LAKE_STORE,
            path,
            size_bytes: file.size_bytes,
            etag: file.etag.clone(),
        };
        let reader = self.lake_files.open(key, file.checksums.clone());
        Ok(tarn_lake::fetch_rows(reader, table, file, addresses).await?)
    }
}
