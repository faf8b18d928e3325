//! Can a block hold this key?
//!
//! A split-block bloom filter, bit for bit Parquet's: 32-byte chunks of eight little-endian words; the upper half of a
//! key's xxHash64 names the chunk, the lower half one bit in each of its words. So a filter made here is read by any
//! Parquet reader and the other way round, and a test of one key looks at 32 bytes, wherever they are kept.
//!
//! Invariant: `resized` never loses a key. The chunk of a hash among `n / 2` is its chunk among `n`, halved, so chunks
//! are united going down and repeated going up.
//!
//! Sources: Parquet's BloomFilter.md; Apple, "Split block Bloom filters" (arXiv 2101.01719).

use std::fmt;

use bytes::Bytes;
use xxhash_rust::xxh64::xxh64;

/// Bytes of one chunk.
pub const CHUNK_BYTES: usize = 32;

/// Chunks of a filter when nobody chose: 262,144 bytes, 124,000 keys at one false positive in a thousand.
pub const DEFAULT_CHUNKS: u32 = 8192;

/// The largest filter there is: 32 MiB.
pub const MAX_CHUNKS: u32 = 1 << 20;

/// What [`chunks_for`] chooses between.
const CHOICE: [u32; 2] = [64, 32_768];

/// From Parquet's specification: odd numbers, so that each spreads the lower half another way.
const SALT: [u32; 8] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];

/// xxHash64 of a key. Its upper half names the chunk, its lower half the eight bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub u64);

impl Hash {
    /// Of the key's bytes: what a key is made of, [`crate::token_hash`] and [`crate::value_hash`] say.
    pub fn of(key: &[u8]) -> Self {
        Self(xxh64(key, 0))
    }

    /// The chunk of a filter of `n_chunks`.
    pub fn chunk(self, n_chunks: u32) -> u32 {
        (((self.0 >> 32) * u64::from(n_chunks)) >> 32) as u32
    }

    /// One bit in each of the chunk's eight words.
    pub fn mask(self) -> [u32; 8] {
        SALT.map(|salt| 1 << ((self.0 as u32).wrapping_mul(salt) >> 27))
    }
}

/// A split-block bloom filter: a power of two of chunks, 1 to 2^20. Cloning shares the bits.
#[derive(Clone, PartialEq, Eq)]
pub struct Bloom {
    bits: Bytes,
}

/// Size and content, in little.
impl fmt::Debug for Bloom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bloom({} chunks, crc {:08x})", self.n_chunks(), crc32c::crc32c(&self.bits))
    }
}

impl Bloom {
    /// `None` unless these are the bytes of a power of two of chunks.
    pub fn from_bits(bits: Bytes) -> Option<Self> {
        let n_chunks = bits.len() / CHUNK_BYTES;
        let is_whole = bits.len().is_multiple_of(CHUNK_BYTES);
        let is_good = is_whole && n_chunks.is_power_of_two() && n_chunks <= MAX_CHUNKS as usize;
        is_good.then_some(Self { bits })
    }

    /// All chunks, one behind the other.
    pub fn bits(&self) -> &Bytes {
        &self.bits
    }

    /// A power of two, 1 to [`MAX_CHUNKS`].
    pub fn n_chunks(&self) -> u32 {
        (self.bits.len() / CHUNK_BYTES) as u32
    }

    /// One chunk: [`CHUNK_BYTES`] bytes.
    ///
    /// # Panics
    /// When there are not so many chunks.
    pub fn chunk(&self, chunk: u32) -> &[u8] {
        &self.bits[chunk as usize * CHUNK_BYTES..][..CHUNK_BYTES]
    }

    /// False: the key was never inserted.
    pub fn may_contain(&self, hash: Hash) -> bool {
        has_bits(self.chunk(hash.chunk(self.n_chunks())), &hash.mask())
    }

    /// The same keys in a smaller or larger filter: chunks are united, or repeated. Shares the bits when the size is
    /// the same.
    ///
    /// # Panics
    /// When `n_chunks` is no power of two up to [`MAX_CHUNKS`].
    pub fn resized(&self, n_chunks: u32) -> Self {
        assert!(n_chunks.is_power_of_two() && n_chunks <= MAX_CHUNKS, "a filter of {n_chunks} chunks");
        let before = self.n_chunks();
        if n_chunks == before {
            return self.clone();
        }
        let mut bits = Vec::with_capacity(n_chunks as usize * CHUNK_BYTES);
        if n_chunks > before {
            for chunk in self.bits.chunks_exact(CHUNK_BYTES) {
                for _ in 0..n_chunks / before {
                    bits.extend_from_slice(chunk);
                }
            }
        } else {
            for united in self.bits.chunks_exact((before / n_chunks) as usize * CHUNK_BYTES) {
                let mut chunk = [0; CHUNK_BYTES];
                for part in united.chunks_exact(CHUNK_BYTES) {
                    chunk.iter_mut().zip(part).for_each(|(to, from)| *to |= from);
                }
                bits.extend_from_slice(&chunk);
            }
        }
        Self { bits: bits.into() }
    }

    /// How many keys were inserted, about: from the share of bits that are set. A full filter says its largest number.
    pub fn estimated_keys(&self) -> u64 {
        let set: u64 = self.bits.iter().map(|byte| u64::from(byte.count_ones())).sum();
        let cells = f64::from(self.n_chunks()) * 32.0;
        // Each key sets one of the `cells` bits that stand at one word's place; there are eight such places.
        let share = (set as f64 / 8.0 / cells).min(1.0 - 0.5 / cells);
        ((1.0 - share).ln() / (-1.0 / cells).ln_1p()).round() as u64
    }
}

/// Whether a chunk has all bits of a mask.
pub fn has_bits(chunk: &[u8], mask: &[u32; 8]) -> bool {
    let words = chunk.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")));
    words.zip(mask).fold(0, |missing, (word, bit)| missing | (!word & bit)) == 0
}

/// Collects the keys of one block. Memory: 32 bytes a chunk.
#[derive(Debug, Clone)]
pub struct BloomBuilder {
    words: Vec<[u32; 8]>,
}

impl BloomBuilder {
    /// # Panics
    /// When `n_chunks` is no power of two up to [`MAX_CHUNKS`].
    pub fn new(n_chunks: u32) -> Self {
        assert!(n_chunks.is_power_of_two() && n_chunks <= MAX_CHUNKS, "a filter of {n_chunks} chunks");
        Self { words: vec![[0; 8]; n_chunks as usize] }
    }

    /// Adds a key. To add it again changes nothing.
    pub fn insert(&mut self, hash: Hash) {
        let chunk = hash.chunk(self.words.len() as u32);
        self.words[chunk as usize].iter_mut().zip(hash.mask()).for_each(|(word, bit)| *word |= bit);
    }

    /// The filter with all keys that were inserted; copies the bits once.
    pub fn finish(self) -> Bloom {
        let bits: Vec<u8> = self.words.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
        Bloom { bits: bits.into() }
    }
}

/// Chunks for so many distinct keys at this rate of false positives: a power of two, 64 to 32,768, the largest when
/// none is enough.
pub fn chunks_for(distinct: u64, false_positives: f64) -> u32 {
    let [mut n_chunks, largest] = CHOICE;
    while n_chunks < largest && false_positive_rate(n_chunks, distinct) > false_positives {
        n_chunks *= 2;
    }
    n_chunks
}

/// The share of keys that are not in a filter of so many chunks and distinct keys, and pass all the same.
///
/// Keys fall on chunks by Poisson's law, and a chunk with `i` keys passes a stranger with probability `(1 -
/// (31/32)^i)^8`. The closed formula that Parquet's writers use leaves the first part out, and promises half of what is
/// true.
pub fn false_positive_rate(n_chunks: u32, distinct: u64) -> f64 {
    let mean = distinct as f64 / f64::from(n_chunks);
    if mean > 700.0 {
        return 1.0; // Every bit is set, and e^-mean is beyond a float.
    }
    let mut weight = (-mean).exp();
    let mut rate = 0.0;
    for keys in 1..=(mean + 12.0 * mean.sqrt() + 20.0) as u32 {
        weight *= mean / f64::from(keys);
        rate += weight * (1.0 - (31.0_f64 / 32.0).powi(keys as i32)).powi(8);
    }
    rate
}

#[cfg(test)]
mod tests {
    use parquet::bloom_filter::Sbbf;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn filter(n_chunks: u32, keys: &[Vec<u8>]) -> Bloom {
        let mut builder = BloomBuilder::new(n_chunks);
        keys.iter().for_each(|key| builder.insert(Hash::of(key)));
        builder.finish()
    }

    proptest! {
        #[test]
        fn it_is_the_filter_of_parquet(
            keys in vec(vec(any::<u8>(), 0..12), 0..200),
            others in vec(vec(any::<u8>(), 0..12), 0..200),
            log_chunks in 0u32..8,
        ) {
            let ours = filter(1 << log_chunks, &keys);
            let mut theirs = Sbbf::new(&vec![0; ours.bits().len()]);
            keys.iter().for_each(|key| theirs.insert(&key[..]));
            let mut bits = vec![];
            theirs.write_bitset(&mut bits).unwrap();
            prop_assert_eq!(ours.bits(), &Bytes::from(bits), "one filter from both writers");
            let read_by_them = Sbbf::new(ours.bits());
            for key in keys.iter().chain(&others) {
                prop_assert_eq!(ours.may_contain(Hash::of(key)), read_by_them.check(&key[..]));
            }
            prop_assert!(keys.iter().all(|key| ours.may_contain(Hash::of(key))));
        }

        #[test]
        fn no_key_is_lost_in_another_size(
            keys in vec(vec(any::<u8>(), 0..12), 0..200),
            from in 0u32..8,
            to in 0u32..8,
        ) {
            let resized = filter(1 << from, &keys).resized(1 << to);
            prop_assert_eq!(resized.n_chunks(), 1 << to);
            prop_assert!(keys.iter().all(|key| resized.may_contain(Hash::of(key))));
            if to < from {
                prop_assert_eq!(&resized, &filter(1 << to, &keys), "as if it had been made so");
            } else {
                prop_assert_eq!(resized.resized(1 << from), filter(1 << from, &keys), "and back again");
            }
        }
    }

    #[test]
    fn only_whole_powers_of_two_are_filters() {
        for (bytes, good) in [(0, false), (32, true), (31, false), (64, true), (96, false), (262_144, true)] {
            assert_eq!(Bloom::from_bits(vec![0; bytes].into()).is_some(), good, "{bytes} bytes");
        }
    }

    #[test]
    fn false_positives_are_as_many_as_foretold() {
        for (distinct, percent) in [(100_000, 0.033), (124_000, 0.10), (143_000, 0.20), (200_000, 1.0), (262_000, 3.3)]
        {
            let rate = 100.0 * false_positive_rate(DEFAULT_CHUNKS, distinct);
            assert!((rate / percent - 1.0).abs() < 0.1, "{distinct}: {rate} % instead of {percent} %");
        }
        let key = |n: u64| Hash::of(&n.to_le_bytes());
        let (n_chunks, distinct, strangers) = (64, 1_500, 200_000);
        let mut builder = BloomBuilder::new(n_chunks);
        (0..distinct).for_each(|n| builder.insert(key(n)));
        let bloom = builder.finish();
        let passed = (distinct..distinct + strangers).filter(|n| bloom.may_contain(key(*n))).count();
        let (measured, foretold) = (passed as f64 / strangers as f64, false_positive_rate(n_chunks, distinct));
        assert!((measured / foretold - 1.0).abs() < 0.3, "{measured} instead of {foretold}");
        let estimated = bloom.estimated_keys();
        assert!(estimated.abs_diff(distinct) < 50, "{estimated} keys instead of {distinct}");
    }

    #[test]
    fn sizes_follow_keys_and_rate() {
        assert_eq!(chunks_for(0, 0.001), 64);
        assert_eq!(chunks_for(120_000, 0.001), 8192);
        assert_eq!(chunks_for(130_000, 0.001), 16_384);
        assert_eq!(chunks_for(190_000, 0.01), 8192);
        assert_eq!(chunks_for(u64::MAX, 0.001), 32_768);
    }
}
