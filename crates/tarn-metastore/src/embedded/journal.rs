//! How do the embedded backend's records and its checkpoint look as bytes? (docs/formats/metastore.md)

use std::collections::BTreeMap;
use std::sync::Arc;

use tarn_types::{FileId, TableId, TableSchema, TabletId};

use super::places::{BlockMetadataIndex, Hour, LooseMetadata, PackChange, PackFile};
use crate::codec::{put_commit, put_schema, put_version_in_parts};
use crate::commits::Commits;
use crate::log::LogFile;
use crate::record::{decode_record, encode_record};
use crate::state::{State, StateRecord, Table};
use crate::wire::{DecodeResult, Malformed, RecordReader, put_i64, put_len, put_u64};
use crate::{BlockRef, TableVersion};

/// Beside the kinds of `record.rs`.
const PACKED: u8 = 9;

/// What a record says.
#[derive(Debug)]
pub(super) enum JournalChange {
    /// Of tables and versions.
    Record(StateRecord),
    /// Of where block metadata is.
    Packed(PackChange),
}

pub(super) fn encode_change(change: &JournalChange) -> Vec<u8> {
    match change {
        JournalChange::Record(record) => encode_record(record),
        JournalChange::Packed(packed) => encode_packed(packed),
    }
}

fn encode_packed(packed: &PackChange) -> Vec<u8> {
    let mut out = vec![PACKED];
    put_u64(&mut out, packed.table.0.into());
    put_i64(&mut out, packed.hour);
    put_len(&mut out, packed.add.len());
    packed.add.iter().for_each(|pack| put_pack(&mut out, pack));
    put_len(&mut out, packed.remove.len());
    packed.remove.iter().for_each(|number| put_u64(&mut out, *number));
    put_len(&mut out, packed.loose.len());
    packed.loose.iter().for_each(|block| put_block(&mut out, *block));
    put_len(&mut out, packed.gone.len());
    packed.gone.iter().for_each(|file| put_u64(&mut out, file.0));
    out
}

pub(super) fn decode_change(bytes: &[u8], format: u8) -> DecodeResult<JournalChange> {
    if format < 2 || bytes.first() != Some(&PACKED) {
        return decode_record(bytes, format).map(JournalChange::Record);
    }
    let mut reader = RecordReader { bytes: &bytes[1..], format };
    let packed = reader.packed()?;
    reader.end().map(|()| JournalChange::Packed(packed))
}

/// What a checkpoint keeps. Making one copies pointers: one for 256 commits, and one an hour.
pub(super) struct Image {
    next_table: TableId,
    next_tablet: TabletId,
    next_file: FileId,
    tables: Vec<TableImage>,
    places: BlockMetadataIndex,
}

struct TableImage {
    schema: Arc<TableSchema>,
    oldest: Arc<TableVersion>,
    commits: Commits,
    restoring: bool,
}

impl Image {
    /// Copies pointers, so that the caller holds the locks for a moment only.
    pub fn of(state: &State, places: &BlockMetadataIndex) -> Self {
        let of_table = |table: &Table| TableImage {
            schema: table.schema.clone(),
            oldest: table.oldest.clone(),
            commits: table.commits.clone(),
            restoring: table.restoring,
        };
        let State { next_table, next_tablet, next_file, tables } = state;
        let (next_table, next_tablet, next_file) = (*next_table, *next_tablet, *next_file);
        Self {
            next_table,
            next_tablet,
            next_file,
            tables: tables.values().map(of_table).collect(),
            places: places.clone(),
        }
    }

    /// `pause` sees, and may take, what there is so far: behind every file, commit and hour. What it leaves is
    /// answered.
    pub fn encode<E>(&self, mut pause: impl FnMut(&mut Vec<u8>) -> Result<(), E>) -> Result<Vec<u8>, E> {
        let mut out = Vec::new();
        put_u64(&mut out, self.next_table.0.into());
        put_u64(&mut out, self.next_tablet.0.into());
        put_u64(&mut out, self.next_file.0);
        put_len(&mut out, self.tables.len());
        for table in &self.tables {
            put_schema(&mut out, &table.schema);
            put_version_in_parts(&mut out, &table.oldest, &mut pause)?;
            put_len(&mut out, table.commits.len());
            for commit in table.commits.iter() {
                put_commit(&mut out, commit);
                pause(&mut out)?;
            }
            out.push(u8::from(table.restoring));
            let hours = self.places.hours_of(table.schema.id);
            put_len(&mut out, hours.map_or(0, BTreeMap::len));
            for (hour, of_hour) in hours.into_iter().flatten() {
                put_hour(&mut out, *hour, of_hour);
                pause(&mut out)?;
            }
        }
        Ok(out)
    }
}

fn put_hour(out: &mut Vec<u8>, hour: i64, of_hour: &Hour) {
    put_i64(out, hour);
    put_len(out, of_hour.packs.len());
    of_hour.packs.iter().for_each(|pack| put_pack(out, pack));
    put_len(out, of_hour.loose.len());
    for (block, loose) in &of_hour.loose {
        put_block(out, *block);
        put_u64(out, loose.log.first_seq);
        put_u64(out, loose.offset);
        for n in [loose.payload_bytes, loose.n_chunks, loose.bloom_at, loose.columns_at, loose.column_bytes] {
            put_u64(out, n.into());
        }
    }
    put_len(out, of_hour.gone.len());
    for (file, n_blocks) in &of_hour.gone {
        put_u64(out, file.0);
        put_u64(out, (*n_blocks).into());
    }
}

/// Without table and hour, which stand in front of it.
fn put_pack(out: &mut Vec<u8>, pack: &PackFile) {
    put_u64(out, pack.number);
    put_u64(out, pack.n_slots.into());
    put_u64(out, pack.n_chunks.into());
    put_u64(out, pack.size_bytes);
    put_u64(out, pack.column_bytes);
}

fn put_block(out: &mut Vec<u8>, block: BlockRef) {
    put_u64(out, block.file.0);
    put_u64(out, block.row_group.into());
}

impl RecordReader<'_> {
    fn pack(&mut self, table: TableId, hour: i64) -> DecodeResult<PackFile> {
        Ok(PackFile {
            table,
            hour,
            number: self.u64()?,
            n_slots: self.u32()?,
            n_chunks: self.u32()?,
            size_bytes: self.u64()?,
            column_bytes: self.u64()?,
        })
    }

    fn block_ref(&mut self) -> DecodeResult<BlockRef> {
        Ok(BlockRef { file: FileId(self.u64()?), row_group: self.u32()? })
    }

    fn packed(&mut self) -> DecodeResult<PackChange> {
        let (table, hour) = (TableId(self.u32()?), self.i64()?);
        Ok(PackChange {
            table,
            hour,
            add: (0..self.count()?).map(|_| self.pack(table, hour)).collect::<DecodeResult<_>>()?,
            remove: (0..self.count()?).map(|_| self.u64()).collect::<DecodeResult<_>>()?,
            loose: (0..self.count()?).map(|_| self.block_ref()).collect::<DecodeResult<_>>()?,
            gone: (0..self.count()?).map(|_| self.u64().map(FileId)).collect::<DecodeResult<_>>()?,
        })
    }

    fn of_hour(&mut self, table: TableId, hour: i64, log: &mut dyn FnMut(u64) -> Arc<LogFile>) -> DecodeResult<Hour> {
        let packs = (0..self.count()?).map(|_| self.pack(table, hour).map(Arc::new)).collect::<DecodeResult<_>>()?;
        let mut loose = BTreeMap::new();
        for _ in 0..self.count()? {
            let block = self.block_ref()?;
            let place = LooseMetadata {
                log: log(self.u64()?),
                offset: self.u64()?,
                payload_bytes: self.u32()?,
                n_chunks: self.u32()?,
                bloom_at: self.u32()?,
                columns_at: self.u32()?,
                column_bytes: self.u32()?,
                is_checked: false.into(),
            };
            loose.insert(block, Arc::new(place));
        }
        let gone = (0..self.count()?).map(|_| Ok((FileId(self.u64()?), self.u32()?))).collect::<DecodeResult<_>>()?;
        Ok(Hour { packs, loose, gone })
    }
}

/// `log` knows the log file that begins with a number.
pub(super) fn decode_state(
    bytes: &[u8],
    format: u8,
    log: &mut dyn FnMut(u64) -> Arc<LogFile>,
) -> DecodeResult<(State, BlockMetadataIndex)> {
    let mut reader = RecordReader { bytes, format };
    let mut places = BlockMetadataIndex::default();
    let mut state = State {
        next_table: TableId(reader.u32()?),
        next_tablet: TabletId(reader.u32()?),
        next_file: FileId(reader.u64()?),
        tables: BTreeMap::new(),
    };
    for _ in 0..reader.count()? {
        let schema = Arc::new(reader.schema()?);
        let id = schema.id;
        let mut table = Table::new(schema, reader.version()?);
        for _ in 0..reader.count()? {
            let commit = reader.commit()?;
            table.push(Arc::new(commit), None).map_err(Malformed)?;
        }
        if format >= 2 {
            table.restoring = reader.bool()?;
            for _ in 0..reader.count()? {
                let hour = reader.i64()?;
                let of_hour = reader.of_hour(id, hour, log)?;
                places.insert(id, hour, of_hour);
            }
        }
        table.settle();
        state.tables.insert(id, table);
    }
    reader.end()?;
    Ok((state, places))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use tarn_types::Value;

    use super::*;
    use crate::codec::{FORMAT, decode_block_metadata};
    use crate::contract::sample_schema;

    fn no_log(first_seq: u64) -> Arc<LogFile> {
        Arc::new(LogFile::new("log".into(), first_seq))
    }

    fn any_block() -> impl Strategy<Value = BlockRef> {
        (any::<u64>(), any::<u32>()).prop_map(|(file, row_group)| BlockRef { file: FileId(file), row_group })
    }

    fn any_pack(table: TableId, hour: i64) -> impl Strategy<Value = PackFile> {
        let pack = move |(number, [n_slots, n_chunks], [size_bytes, column_bytes]): (u64, [u32; 2], [u64; 2])| {
            PackFile { table, hour, number: number / 2, n_slots, n_chunks, size_bytes, column_bytes }
        };
        (any::<u64>(), any::<[u32; 2]>(), any::<[u64; 2]>()).prop_map(pack)
    }

    proptest! {
        #[test]
        fn where_block_metadata_are_comes_back(
            hour: i64,
            add in vec(any_pack(TableId(7), -3), 0..4),
            remove in vec(any::<u64>(), 0..4),
            loose in vec(any_block(), 0..4),
            gone in vec(any::<u64>().prop_map(FileId), 0..4),
        ) {
            let add: Vec<_> = add.into_iter().map(|pack| PackFile { hour, ..pack }).collect();
            let packs = add.iter().cloned().map(Arc::new).collect();
            let packed = PackChange { table: TableId(7), hour, add, remove, loose, gone };
            let bytes = encode_change(&JournalChange::Packed(packed.clone()));
            let JournalChange::Packed(back) = decode_change(&bytes, FORMAT).unwrap() else { panic!("another kind") };
            prop_assert_eq!(&back, &packed);

            let mut state = State::default();
            let schema = Arc::new(TableSchema { id: TableId(7), ..sample_schema("t") });
            state.tables.insert(schema.id, Table::new(schema, Default::default()));
            let place = |n: u32| LooseMetadata {
                log: no_log(n.into()),
                offset: 1 << 40,
                payload_bytes: n,
                n_chunks: 4,
                bloom_at: 9,
                columns_at: 137,
                column_bytes: n / 2,
                is_checked: false.into(),
            };
            let loose = (0..).zip(packed.loose).map(|(n, block)| (block, Arc::new(place(n)))).collect();
            let gone = packed.gone.iter().map(|file| (*file, 3)).collect();
            let mut places = BlockMetadataIndex::default();
            places.insert(TableId(7), hour, Hour { packs, loose, gone });
            let bytes = Image::of(&state, &places).encode(|_| Ok::<_, ()>(())).unwrap();
            let (_, back) = decode_state(&bytes, FORMAT, &mut no_log).unwrap();
            prop_assert_eq!(format!("{back:?}"), format!("{places:?}"));
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in vec(any::<u8>(), 0..300)) {
            for format in 1..=FORMAT {
                let _ = decode_change(&bytes, format);
                let _ = decode_state(&bytes, format, &mut no_log);
                let _ = decode_block_metadata(&bytes, format);
            }
        }
    }

    #[test]
    fn a_definition_keeps_defaults_that_json_has_no_word_for() {
        let mut schema = sample_schema("t");
        schema.columns[1].default = Some(Value::Float64(f64::NEG_INFINITY));
        let record = StateRecord::Create { schema: Arc::new(schema.clone()), at_ms: -1 };
        let bytes = encode_change(&JournalChange::Record(record));
        let JournalChange::Record(StateRecord::Create { schema: back, at_ms }) = decode_change(&bytes, FORMAT).unwrap()
        else {
            panic!("another kind")
        };
        assert_eq!((back.columns[1].default.clone(), at_ms), (schema.columns[1].default.clone(), -1));
        assert_eq!(back.name, "t");
    }
}
