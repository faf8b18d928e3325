//! How do we know that what comes back is what was written?
//!
//! Every byte string in the tables ends with the CRC32C of the bytes before it; a filter that is not in a pack yet has
//! one behind each of its chunks, because chunks are read one by one (docs/formats/metastore.md, docs/formats/pack.md
//! for what they hold).

use bytes::Bytes;

use tarn_metastore::backend::{DecodeResult, FORMAT, Malformed, RecordReader};
use tarn_metastore::{BlockRef, Bloom, CHUNK_BYTES};
use tarn_types::FileId;

use crate::pool::RequestFailure;

/// A chunk of a filter with its checksum.
pub(crate) const PIECE_BYTES: usize = CHUNK_BYTES + 4;

const SLOT_BYTES: usize = 12;

pub(crate) fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

/// What was sealed. `place` names it when it is damaged.
pub(crate) fn unseal(sealed: &[u8], place: impl Fn() -> String) -> Result<&[u8], RequestFailure> {
    match sealed.split_last_chunk::<4>() {
        Some((bytes, crc)) if crc32c::crc32c(bytes).to_le_bytes() == *crc => Ok(bytes),
        Some(_) => Err(damaged(place(), "the bytes do not match their checksum")),
        None => Err(damaged(place(), "the checksum is missing")),
    }
}

pub(crate) fn damaged(place: String, reason: impl Into<String>) -> RequestFailure {
    RequestFailure::Damaged { place, reason: reason.into() }
}

/// Reads sealed bytes to their end.
pub(crate) fn decode<T>(
    sealed: &[u8],
    place: impl Fn() -> String,
    read: impl FnOnce(&mut RecordReader<'_>) -> DecodeResult<T>,
) -> Result<T, RequestFailure> {
    let mut reader = RecordReader { bytes: unseal(sealed, &place)?, format: FORMAT };
    let decoded = read(&mut reader).and_then(|decoded| reader.end().map(|()| decoded));
    decoded.map_err(|Malformed(reason)| damaged(place(), reason))
}

/// A filter, chunk by chunk.
pub(crate) fn encode_bloom(bloom: &Bloom) -> Vec<u8> {
    let mut out = Vec::with_capacity(bloom.n_chunks() as usize * PIECE_BYTES);
    for chunk in bloom.bits().chunks_exact(CHUNK_BYTES) {
        out.extend_from_slice(chunk);
        out.extend_from_slice(&crc32c::crc32c(chunk).to_le_bytes());
    }
    out
}

/// The bits of a filter of `encode_bloom`.
pub(crate) fn decode_bloom(bytes: &[u8], n_chunks: u32, place: impl Fn() -> String) -> Result<Bytes, RequestFailure> {
    if bytes.len() != n_chunks as usize * PIECE_BYTES {
        return Err(damaged(place(), format!("{} bytes for a filter of {n_chunks} chunks", bytes.len())));
    }
    let mut bits = Vec::with_capacity(n_chunks as usize * CHUNK_BYTES);
    for piece in bytes.chunks_exact(PIECE_BYTES) {
        bits.extend_from_slice(unseal(piece, &place)?);
    }
    Ok(Bytes::from(bits))
}

pub(crate) fn bloom_of(bits: Bytes, place: impl Fn() -> String) -> Result<Bloom, RequestFailure> {
    Bloom::from_bits(bits).ok_or_else(|| damaged(place(), "this is no filter"))
}

/// The blocks of a pack, as the pages of a pack on disk have them.
pub(crate) fn encode_slots(slots: &[BlockRef]) -> Vec<u8> {
    let mut out = Vec::with_capacity(slots.len() * SLOT_BYTES + 4);
    for block in slots {
        out.extend_from_slice(&block.file.0.to_le_bytes());
        out.extend_from_slice(&block.row_group.to_le_bytes());
    }
    seal(out)
}

pub(crate) fn decode_slots(sealed: &[u8], place: impl Fn() -> String) -> Result<Vec<BlockRef>, RequestFailure> {
    let bytes = unseal(sealed, &place)?;
    let (slots, rest) = bytes.as_chunks::<SLOT_BYTES>();
    let slots: Vec<BlockRef> = slots
        .iter()
        .map(|[f0, f1, f2, f3, f4, f5, f6, f7, r0, r1, r2, r3]| BlockRef {
            file: FileId(u64::from_le_bytes([*f0, *f1, *f2, *f3, *f4, *f5, *f6, *f7])),
            row_group: u32::from_le_bytes([*r0, *r1, *r2, *r3]),
        })
        .collect();
    if !rest.is_empty() || !slots.is_sorted_by(|a, b| a < b) {
        return Err(damaged(place(), "blocks are out of order"));
    }
    Ok(slots)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tarn_metastore::{BloomBuilder, Hash};

    use super::*;

    fn place() -> String {
        "here".to_owned()
    }

    proptest! {
        #[test]
        fn every_flipped_bit_of_what_is_stored_is_seen(keys: Vec<u64>, at: proptest::sample::Index, bit in 0..8u32) {
            let mut builder = BloomBuilder::new(4);
            keys.iter().for_each(|key| builder.insert(Hash(*key)));
            let bloom = builder.finish();
            let bytes = encode_bloom(&bloom);
            prop_assert_eq!(&decode_bloom(&bytes, 4, place).unwrap(), bloom.bits());
            let mut flipped = bytes.clone();
            flipped[at.index(bytes.len())] ^= 1 << bit;
            prop_assert!(decode_bloom(&flipped, 4, place).is_err());
            prop_assert!(decode_bloom(&bytes[..bytes.len() - 1], 4, place).is_err());

            let slots: Vec<_> = (0..keys.len() as u64).map(|n| BlockRef { file: FileId(n / 2), row_group: n as u32 }).collect();
            let sealed = encode_slots(&slots);
            prop_assert_eq!(decode_slots(&sealed, place).unwrap(), slots);
            let mut flipped = sealed.clone();
            flipped[at.index(sealed.len())] ^= 1 << bit;
            prop_assert!(decode_slots(&flipped, place).is_err());
        }
    }
}
