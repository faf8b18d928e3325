//! How do the embedded backend's records and its checkpoint look as bytes? (docs/formats/metastore.md)

use std::collections::BTreeMap;
use std::sync::Arc;

use tarn_types::{FileId, TableId, TabletId, Version};

use crate::codec::{put_commit, put_details, put_schema, put_version};
use crate::state::{FileDetails, Record, State, Table};
use crate::wire::{Decoded, Malformed, Reader, malformed, put_cursor, put_i64, put_len, put_u64};

const CREATE: u8 = 1;
const DROP: u8 = 2;
const RESERVE: u8 = 3;
const COMMIT: u8 = 4;
const EXPIRE: u8 = 5;
const ALTER: u8 = 6;
const RESTORE: u8 = 7;
const RESTORED: u8 = 8;

/// Without the details of a commit: they are records of their own.
pub(crate) fn encode_record(record: &Record) -> Vec<u8> {
    let mut out = Vec::new();
    match record {
        Record::Create { schema, at_ms } => {
            out.push(CREATE);
            put_schema(&mut out, schema);
            put_i64(&mut out, *at_ms);
        }
        Record::Drop { table } => {
            out.push(DROP);
            put_u64(&mut out, table.0.into());
        }
        Record::Reserve { next_file } => {
            out.push(RESERVE);
            put_u64(&mut out, next_file.0);
        }
        Record::Commit { table, commit, .. } => {
            out.push(COMMIT);
            put_u64(&mut out, table.0.into());
            put_commit(&mut out, commit);
        }
        Record::Expire { table, keep } => {
            out.push(EXPIRE);
            put_u64(&mut out, table.0.into());
            put_u64(&mut out, keep.0);
        }
        Record::Alter { schema } => {
            out.push(ALTER);
            put_schema(&mut out, schema);
        }
        Record::Restore { schema, version, cursor, at_ms } => {
            out.push(RESTORE);
            put_schema(&mut out, schema);
            put_u64(&mut out, version.0);
            put_cursor(&mut out, cursor);
            put_i64(&mut out, *at_ms);
        }
        Record::Restored { table } => {
            out.push(RESTORED);
            put_u64(&mut out, table.0.into());
        }
    }
    out
}

/// A commit comes back without its details.
pub(crate) fn decode_record(bytes: &[u8], format: u8) -> Decoded<Record> {
    let mut reader = Reader { bytes, format };
    let record = match reader.byte()? {
        CREATE => Record::Create { schema: Arc::new(reader.schema()?), at_ms: reader.i64()? },
        DROP => Record::Drop { table: TableId(reader.u32()?) },
        RESERVE => Record::Reserve { next_file: FileId(reader.u64()?) },
        COMMIT => {
            let (table, commit) = (TableId(reader.u32()?), Arc::new(reader.commit()?));
            Record::Commit { table, commit, details: BTreeMap::new(), next: None }
        }
        EXPIRE => Record::Expire { table: TableId(reader.u32()?), keep: Version(reader.u64()?) },
        ALTER => Record::Alter { schema: Arc::new(reader.schema()?) },
        RESTORE => Record::Restore {
            schema: Arc::new(reader.schema()?),
            version: Version(reader.u64()?),
            cursor: reader.cursor()?,
            at_ms: reader.i64()?,
        },
        RESTORED => Record::Restored { table: TableId(reader.u32()?) },
        kind => return malformed(format!("record kind {kind} is not known")),
    };
    reader.end()?;
    Ok(record)
}

pub(crate) fn encode_state(state: &State) -> Vec<u8> {
    let mut out = Vec::new();
    put_u64(&mut out, state.next_table.0.into());
    put_u64(&mut out, state.next_tablet.0.into());
    put_u64(&mut out, state.next_file.0);
    put_len(&mut out, state.tables.len());
    for table in state.tables.values() {
        put_schema(&mut out, &table.schema);
        put_version(&mut out, &table.oldest);
        put_len(&mut out, table.commits.len());
        for commit in &table.commits {
            put_commit(&mut out, commit);
        }
        out.push(u8::from(table.restoring));
        put_len(&mut out, table.details.len());
        for (file, of_file) in &table.details {
            put_u64(&mut out, file.0);
            put_i64(&mut out, of_file.hour);
            put_len(&mut out, of_file.blocks.len());
            for block in &of_file.blocks {
                put_details(&mut out, block);
            }
        }
    }
    out
}

pub(crate) fn decode_state(bytes: &[u8], format: u8) -> Decoded<State> {
    let mut reader = Reader { bytes, format };
    let mut state = State {
        next_table: TableId(reader.u32()?),
        next_tablet: TabletId(reader.u32()?),
        next_file: FileId(reader.u64()?),
        tables: BTreeMap::new(),
    };
    for _ in 0..reader.len()? {
        let schema = Arc::new(reader.schema()?);
        let id = schema.id;
        let mut table = Table::new(schema, reader.version()?);
        for _ in 0..reader.len()? {
            let commit = reader.commit()?;
            table.push(Arc::new(commit), None).map_err(Malformed)?;
        }
        if format >= 2 {
            table.restoring = reader.bool()?;
            for _ in 0..reader.len()? {
                let (file, hour) = (FileId(reader.u64()?), reader.i64()?);
                let blocks = (0..reader.len()?).map(|_| reader.details()).collect::<Decoded<_>>()?;
                table.details.insert(file, FileDetails::new(hour, blocks));
            }
        }
        state.tables.insert(id, table);
    }
    reader.end()?;
    Ok(state)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use tarn_types::Value;

    use super::*;
    use crate::codec::{FORMAT, decode_details};
    use crate::contract::sample_schema;

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            for format in 1..=FORMAT {
                let _ = decode_record(&bytes, format);
                let _ = decode_state(&bytes, format);
                let _ = decode_details(&bytes, format);
            }
        }
    }

    #[test]
    fn a_definition_keeps_defaults_that_json_has_no_word_for() {
        let mut schema = sample_schema("t");
        schema.columns[1].default = Some(Value::Float64(f64::NEG_INFINITY));
        let bytes = encode_record(&Record::Create { schema: Arc::new(schema.clone()), at_ms: -1 });
        let Record::Create { schema: back, at_ms } = decode_record(&bytes, FORMAT).unwrap() else {
            panic!("another kind")
        };
        assert_eq!((back.columns[1].default.clone(), at_ms), (schema.columns[1].default.clone(), -1));
        assert_eq!(back.name, "t");
    }
}
