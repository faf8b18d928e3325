//! How does a change of the catalog or a table look as bytes? (docs/formats/metastore.md)
//!
//! The same bytes in every backend's log, so that a record means one thing wherever it is kept.

use std::sync::Arc;

use tarn_types::{FileId, TableId, Version};

use crate::CommitInfo;
use crate::codec::{put_commit, put_schema};
use crate::state::StateRecord;
use crate::wire::{DecodeResult, RecordReader, malformed, put_cursor, put_i64, put_u64};

const CREATE: u8 = 1;
const DROP: u8 = 2;
const RESERVE: u8 = 3;
const COMMIT: u8 = 4;
const EXPIRE: u8 = 5;
const ALTER: u8 = 6;
const RESTORE: u8 = 7;
const RESTORED: u8 = 8;
/// 9 is what the embedded store says of packs.
const ALTER_ALL: u8 = 10;

/// As `encode_record` of a commit, without making a record of it.
pub fn encode_commit(table: TableId, commit: &CommitInfo) -> Vec<u8> {
    let mut out = vec![COMMIT];
    put_u64(&mut out, table.0.into());
    put_commit(&mut out, commit);
    out
}

/// The bytes of one change: a byte that says which, then its parts.
pub fn encode_record(record: &StateRecord) -> Vec<u8> {
    let mut out = Vec::new();
    match record {
        StateRecord::Create { schema, at_ms } => {
            out.push(CREATE);
            put_schema(&mut out, schema);
            put_i64(&mut out, *at_ms);
        }
        StateRecord::Drop { table } => {
            out.push(DROP);
            put_u64(&mut out, table.0.into());
        }
        StateRecord::Reserve { next_file } => {
            out.push(RESERVE);
            put_u64(&mut out, next_file.0);
        }
        StateRecord::Commit { table, commit, .. } => out = encode_commit(*table, commit),
        StateRecord::Expire { table, keep } => {
            out.push(EXPIRE);
            put_u64(&mut out, table.0.into());
            put_u64(&mut out, keep.0);
        }
        StateRecord::Alter { schema } => {
            out.push(ALTER);
            put_schema(&mut out, schema);
        }
        StateRecord::AlterAll { schemas } => {
            out.push(ALTER_ALL);
            put_u64(&mut out, schemas.len() as u64);
            schemas.iter().for_each(|schema| put_schema(&mut out, schema));
        }
        StateRecord::Restore { schema, version, cursor, at_ms } => {
            out.push(RESTORE);
            put_schema(&mut out, schema);
            put_u64(&mut out, version.0);
            put_cursor(&mut out, cursor);
            put_i64(&mut out, *at_ms);
        }
        StateRecord::Restored { table } => {
            out.push(RESTORED);
            put_u64(&mut out, table.0.into());
        }
    }
    out
}

/// `format` is that of the log or table that the bytes are from: [`crate::codec::FORMAT`] or an older one.
pub fn decode_record(bytes: &[u8], format: u8) -> DecodeResult<StateRecord> {
    let mut reader = RecordReader { bytes, format };
    let record = match reader.byte()? {
        CREATE => StateRecord::Create { schema: Arc::new(reader.schema()?), at_ms: reader.i64()? },
        DROP => StateRecord::Drop { table: TableId(reader.u32()?) },
        RESERVE => StateRecord::Reserve { next_file: FileId(reader.u64()?) },
        COMMIT => {
            let (table, commit) = (TableId(reader.u32()?), Arc::new(reader.commit()?));
            StateRecord::Commit { table, commit, next: None }
        }
        EXPIRE => StateRecord::Expire { table: TableId(reader.u32()?), keep: Version(reader.u64()?) },
        ALTER => StateRecord::Alter { schema: Arc::new(reader.schema()?) },
        ALTER_ALL => {
            let n_schemas = reader.u64()?;
            let schemas = (0..n_schemas).map(|_| reader.schema().map(Arc::new)).collect::<DecodeResult<_>>()?;
            StateRecord::AlterAll { schemas }
        }
        RESTORE => StateRecord::Restore {
            schema: Arc::new(reader.schema()?),
            version: Version(reader.u64()?),
            cursor: reader.cursor()?,
            at_ms: reader.i64()?,
        },
        RESTORED => StateRecord::Restored { table: TableId(reader.u32()?) },
        kind => return malformed(format!("record kind {kind} is not known")),
    };
    reader.end()?;
    Ok(record)
}
