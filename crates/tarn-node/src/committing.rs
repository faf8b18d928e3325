//! Which rows belong to a definition that is about to change? The file `COMMITTING`, while a transaction that altered
//! tables commits.
//!
//! The metastore's change is the moment at which such a transaction is committed; its rows are written into the log
//! behind that. A process that dies between the two finds them here when it starts again: if the metastore has the
//! definition, they are written if they are not there yet, else they never were. Whether they are there is told by what
//! each of them expects ([`check`]): nobody has written the tables since, as the file is gone before others may.
//!
//! Its bytes are described in `docs/formats/committing.md`.
//!
//! ```text
//! version u8 = 1 | crc32c u32 LE of the rest | table u32 LE | length u32 LE, definition as JSON | n u32 LE | n × (length u32 LE, entry of the log)
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use tarn_replica::commit_together;
use tarn_rows::{Lookup, Table};
use tarn_types::{MutationBatch, Op, TableId, TableSchema};

use crate::catalog::TableHandle;
use crate::error::{Error, ErrorKind, Result};
use crate::folder::io_error;
use crate::node::Node;
use crate::small_file::{replace, sealed, sync_folder_of, unsealed};
use crate::threads::blocking;
use crate::write::conflict;

/// Its name in the data folder.
const NAME: &str = "COMMITTING";

const FORMAT: u8 = 1;

/// What the file says.
#[derive(Debug, PartialEq)]
pub(crate) struct CommitIntent {
    /// One of the tables that change; all of them do at one moment.
    table: TableId,
    /// Its definition once they have.
    definition: Vec<u8>,
    /// What is written then, a batch a table.
    batches: Vec<MutationBatch>,
}

/// A file that is there.
pub(crate) struct IntentFile(PathBuf);

impl CommitIntent {
    /// What the table is to be, and the rows that are written once it is.
    pub fn new(to: &TableSchema, batches: Vec<MutationBatch>) -> CommitIntent {
        CommitIntent { table: to.id, definition: definition(to), batches }
    }

    /// Durable when it returns.
    pub fn note(&self, folder: &Path) -> Result<IntentFile> {
        let path = folder.join(NAME);
        match replace(&path, &self.encode()) {
            Ok(()) => Ok(IntentFile(path)),
            Err(error) => Err(io_error("write", &path, &error)),
        }
    }

    fn encode(&self) -> Vec<u8> {
        // A definition and a batch are far below 4 GiB: `transaction_bytes` and the log bound what a transaction holds.
        let size = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes();
        sealed(FORMAT, |bytes| {
            let mut put = |part: &[u8]| bytes.extend_from_slice(part);
            put(&self.table.0.to_le_bytes());
            put(&size(self.definition.len()));
            put(&self.definition);
            put(&size(self.batches.len()));
            for batch in &self.batches {
                put(&size(batch.size_bytes()));
                put(batch.as_bytes());
            }
        })
    }

    fn decode(bytes: &[u8]) -> std::result::Result<CommitIntent, String> {
        let mut rest = Bytes::copy_from_slice(unsealed(FORMAT, bytes)?);
        let table = TableId(number(&mut rest)?);
        let definition = part(&mut rest)?.to_vec();
        let n_batches = number(&mut rest)?;
        let mut batches = vec![];
        for _ in 0..n_batches {
            let entry = part(&mut rest)?;
            batches.push(MutationBatch::from_bytes(entry).map_err(|error| error.to_string())?);
        }
        match rest.is_empty() {
            true => Ok(CommitIntent { table, definition, batches }),
            false => Err(format!("{} bytes too many", rest.len())),
        }
    }

    /// `None`: nothing was committing.
    fn read(folder: &Path) -> Result<Option<(CommitIntent, IntentFile)>> {
        let path = folder.join(NAME);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error("read", &path, &error)),
        };
        let committing = CommitIntent::decode(&bytes).map_err(|reason| {
            Error::new(ErrorKind::Corrupt, format!("{}: {reason}", path.display())).with_hint(
                "it has the rows of the last transaction that altered a table, which may not be in the tables yet: put it back from a backup \
                 of the data folder. Removed, that transaction's rows may be missing where its tables are altered",
            )
        })?;
        Ok(Some((committing, IntentFile(path))))
    }
}

impl IntentFile {
    /// Durable when it returns.
    pub fn forget(self) -> Result<()> {
        let forgotten = fs::remove_file(&self.0).and_then(|()| sync_folder_of(&self.0));
        forgotten.map_err(|error| io_error("remove", &self.0, &error))
    }
}

/// What the metastore keeps of it, but for where its rows are, which a start may note.
fn definition(table: &TableSchema) -> Vec<u8> {
    let mut table = table.clone();
    table.options.home = None;
    serde_json::to_vec(&table).expect("a table definition has a JSON form")
}

fn number(rest: &mut Bytes) -> std::result::Result<u32, String> {
    let bytes = rest.first_chunk().copied().ok_or("it was cut short")?;
    let _read = rest.split_to(size_of::<u32>());
    Ok(u32::from_le_bytes(bytes))
}

fn part(rest: &mut Bytes) -> std::result::Result<Bytes, String> {
    let size = number(rest)? as usize;
    match size <= rest.len() {
        true => Ok(rest.split_to(size)),
        false => Err("it was cut short".to_owned()),
    }
}

/// Whether what a batch expects is there, while nobody writes the table.
///
/// Errors: `Conflict` for a row that is another, or gone; `KeyExists` for one that is to be created.
pub(crate) fn check(schema: &Arc<TableSchema>, table: &Table, batch: &MutationBatch) -> Result<()> {
    let expecting = |op, guard: Option<_>| op == Op::Create || guard.is_some();
    let keys: Vec<&[u8]> =
        batch.iter().filter(|mutation| expecting(mutation.op, mutation.guard)).map(|mutation| mutation.key).collect();
    if keys.is_empty() {
        return Ok(());
    }
    let mut found = table.multi_get(&keys)?.into_iter();
    for mutation in batch.iter().filter(|mutation| expecting(mutation.op, mutation.guard)) {
        let seqno = match found.next() {
            Some(Lookup::Row { seqno, .. }) => Some(seqno),
            Some(Lookup::InLake(address)) => Some(address.seqno),
            Some(Lookup::Absent) | None => None,
        };
        match mutation.op {
            Op::Create if seqno.is_some() => return Err(Error::key_exists(schema, mutation.key.to_vec())),
            Op::Create => {}
            _ if mutation.guard == seqno => {}
            _ => return Err(conflict(&schema.name)),
        }
    }
    Ok(())
}

impl Node {
    /// When the node starts, before anybody writes: takes up a transaction that died while it committed.
    ///
    /// Errors: `Corrupt` for a file that is damaged, or names tables that are not here.
    pub(crate) async fn finish_committing(&self) -> Result<()> {
        let folder = self.settings().data_dir.clone();
        let Some((committing, noted)) = CommitIntent::read(&folder)? else { return Ok(()) };
        let tables = self.parts().metastore.tables().await?;
        let table = tables.iter().find(|table| table.id == committing.table);
        if table.is_none_or(|table| definition(table) != committing.definition) {
            tracing::info!(
                "a transaction that was to alter tables did not commit before the server died: nothing of it is there"
            );
            return noted.forget();
        }
        let handles: BTreeMap<TableId, Arc<TableHandle>> =
            self.catalog().all().into_iter().map(|handle| (handle.schema().id, handle)).collect();
        blocking(move || {
            let mut writes = vec![];
            for batch in committing.batches {
                let id = batch.table();
                let handle = handles.get(&id).ok_or_else(|| {
                    Error::new(ErrorKind::Corrupt, format!("{NAME} has rows of table {id}, which is not here"))
                })?;
                handle.check_whole()?;
                writes.push((Arc::clone(handle), batch));
            }
            let is_there = writes.iter().any(|(handle, batch)| check(handle.schema(), &handle.table, batch).is_err());
            if !is_there {
                let asked = writes.iter().map(|(handle, batch)| Ok((&**handle.replicas()?, batch.clone())));
                let decided = commit_together(&asked.collect::<Result<Vec<_>>>()?)?;
                assert!(decided.iter().all(|of| !of.is_refused()), "nobody else writes before the node is open");
                tracing::info!(tables = writes.len(), "the rows of a transaction that altered tables are written");
            }
            noted.forget()
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use tarn_types::{
        BatchBuilder, Column, ColumnId, DataType, KeyPart, TableOptions, TabletId, Value, encode_cells, encode_key,
    };

    use super::*;

    fn committing() -> CommitIntent {
        let column = |id, name: &str, nullable| Column {
            id: ColumnId(id),
            name: name.into(),
            data_type: DataType::Int64,
            nullable,
            default: None,
        };
        let schema = TableSchema {
            id: TableId(7),
            name: "t".into(),
            columns: vec![column(1, "id", false), column(2, "v", true)],
            key: vec![KeyPart { column_idx: 0, descending: false }],
            n_partition_key: 1,
            first_tablet: TabletId(1),
            options: TableOptions::default(),
        };
        let mut batch = BatchBuilder::new(&schema);
        let (key, cells) = (Value::Int64(3), [Value::Int64(3), Value::Null]);
        batch.create(&encode_key(&schema, &[key]).unwrap(), &encode_cells(&schema, &cells).unwrap());
        CommitIntent::new(&schema, vec![batch.finish()])
    }

    #[test]
    fn what_is_noted_is_read_until_it_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        assert!(CommitIntent::read(folder.path()).unwrap().is_none());
        committing().note(folder.path()).unwrap();
        let (read, noted) = CommitIntent::read(folder.path()).unwrap().unwrap();
        assert_eq!(read, committing());
        noted.forget().unwrap();
        assert!(CommitIntent::read(folder.path()).unwrap().is_none());
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_noticed() {
        let bytes = committing().encode();
        assert_eq!(CommitIntent::decode(&bytes).unwrap(), committing());
        assert!((0..bytes.len()).all(|len| CommitIntent::decode(&bytes[..len]).is_err()));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(CommitIntent::decode(&damaged).is_err(), "bit {bit}");
        }
    }
}
