//! Are these the bytes that were written? A checksum for every byte of a file, kept with the file's record.
//!
//! ```text
//! 0        64 KiB     128 KiB    end of block 0    192 KiB            end of the last block    end of the file
//! ├────────┼──────────┼──────────┼─────────────────┼────── … ─────────┼──── footer ────────────┤
//! ```
//!
//! A file is cut into pieces at every multiple of [`PIECE_BYTES`] and where a block ends, and each piece has its
//! CRC32C. So an aligned read of 64 KiB, or of a multiple, is a run of whole pieces; a damaged block does not make its
//! neighbours unreadable; and a read of any other range is widened by less than a piece at either end.
//!
//! Who reads plans first what must be read ([`Checksums::plan`]), reads that, and gets what was wanted out of it
//! ([`Plan::take`]), or the first piece that is not what was written. Pure: whoever keeps the bytes is asked by others.

use std::error::Error as StdError;
use std::ops::Range;

use bytes::Bytes;
use crc32c::crc32c_append;

/// A piece is never longer. 64 bytes of checksums for each MiB of files, and a read of one Parquet page by its address
/// becomes one of a piece or two.
pub const PIECE_BYTES: u64 = 64 << 10;

/// Ranges whose pieces overlap are read as one, unless that becomes longer: so much memory stays as long as any of them
/// is in use.
const MAX_JOINED_BYTES: u64 = 1 << 20;

/// Columns of a block that an error names.
const NAMED_COLUMNS: usize = 8;

/// The checksums of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checksums {
    size_bytes: u64,
    /// Where pieces end besides multiples of [`PIECE_BYTES`]: ascending, within the file, each once.
    cuts: Vec<u64>,
    /// CRC32C, one for each piece.
    crcs: Vec<u32>,
}

/// Bytes that are not those that were written, or are not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("bytes {}..{} are not those that were written", range.start, range.end)]
pub struct Damage {
    /// Of the file: a piece, or what is missing.
    pub range: Range<u64>,
}

impl Damage {
    /// The damage that an error is about, however deep it lies.
    pub fn of<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Damage> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(damage) = error.downcast_ref() {
                return Some(damage);
            }
            next = error.source();
        }
        None
    }

    /// Where in a file it lies, as an error says it: the blocks and columns that it touches. `blocks` has the columns
    /// of each block in the order of the file, each with its name and its bytes; what no column has is the footer's.
    pub fn place<C>(&self, blocks: impl IntoIterator<Item = C>) -> String
    where
        C: IntoIterator<Item = (String, Range<u64>)>,
    {
        let mut touched = vec![];
        for (block, columns) in blocks.into_iter().enumerate() {
            let overlaps = |bytes: &Range<u64>| bytes.start < self.range.end && self.range.start < bytes.end;
            let names: Vec<String> =
                columns.into_iter().filter(|(_, bytes)| overlaps(bytes)).map(|(name, _)| name).collect();
            if names.is_empty() {
                continue;
            }
            let more = match names.len().saturating_sub(NAMED_COLUMNS) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let named = names[..names.len().min(NAMED_COLUMNS)].join(", ");
            touched.push(format!("block {block}, columns {named}{more}"));
        }
        if touched.is_empty() { "its footer".to_owned() } else { touched.join("; ") }
    }
}

impl Checksums {
    /// `None`: these are no checksums of a file of this size.
    pub fn new(size_bytes: u64, cuts: Vec<u64>, crcs: Vec<u32>) -> Option<Self> {
        let are_within =
            cuts.first().is_none_or(|first| *first > 0) && cuts.last().is_none_or(|last| *last < size_bytes);
        let is_lawful =
            are_within && cuts.is_sorted_by(|a, b| a < b) && n_pieces(size_bytes, &cuts) == crcs.len() as u64;
        is_lawful.then_some(Self { size_bytes, cuts, crcs })
    }

    /// Of the whole file.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Where pieces end besides multiples of [`PIECE_BYTES`], ascending: the ends of blocks.
    pub fn cuts(&self) -> &[u64] {
        &self.cuts
    }

    /// CRC32C of each piece, in the order of the file.
    pub fn crcs(&self) -> &[u32] {
        &self.crcs
    }

    /// Where the last block ends and the footer, with what belongs to it, begins; 0, if that is not known.
    pub fn tail_start(&self) -> u64 {
        self.cuts.last().copied().unwrap_or(0)
    }

    /// The piece with the byte at `offset`, which is within the file.
    fn piece(&self, offset: u64) -> Range<u64> {
        let behind = self.cuts.partition_point(|cut| *cut <= offset);
        let nth = offset / PIECE_BYTES;
        let start = behind.checked_sub(1).map_or(0, |before| self.cuts[before]).max(nth * PIECE_BYTES);
        let end = self.cuts.get(behind).copied().unwrap_or(self.size_bytes).min((nth + 1) * PIECE_BYTES);
        start..end.min(self.size_bytes)
    }

    /// Its place among the checksums.
    fn idx(&self, offset: u64) -> usize {
        let before = self.cuts.iter().take_while(|cut| **cut <= offset);
        (offset / PIECE_BYTES) as usize + before.filter(|cut| is_odd(**cut)).count()
    }

    /// The pieces that `range` touches, as one range; empty where the file has no such bytes.
    pub fn around(&self, range: &Range<u64>) -> Range<u64> {
        let end = range.end.min(self.size_bytes);
        if range.start >= end {
            return range.start..range.start;
        }
        self.piece(range.start).start..self.piece(end - 1).end
    }

    /// What has to be read of the file for `ranges` to be checked.
    pub fn plan(&self, ranges: &[Range<u64>]) -> Plan<'_> {
        let mut order: Vec<usize> = (0..ranges.len()).collect();
        order.sort_unstable_by_key(|idx| ranges[*idx].start);
        let (mut runs, mut places) = (Vec::<Range<u64>>::new(), vec![None; ranges.len()]);
        for idx in order {
            let around = self.around(&ranges[idx]);
            if around.is_empty() {
                continue;
            }
            match runs.last_mut() {
                Some(run) if around.start >= run.start && around.end <= run.end => {}
                Some(run) if around.start < run.end && around.end - run.start <= MAX_JOINED_BYTES => {
                    run.end = around.end
                }
                _ => runs.push(around),
            }
            places[idx] = Some(runs.len() - 1);
        }
        Plan { sums: self, wanted: ranges.to_vec(), runs, places }
    }

    /// Whether these bytes, which are whole pieces from `start` on, are what was written.
    pub fn check(&self, start: u64, bytes: &[u8]) -> Result<(), Damage> {
        let mut check = self.checking(start);
        check.feed(bytes)?;
        check.finish()
    }

    /// The same for bytes that come bit by bit, from the begin of a piece on.
    pub fn checking(&self, start: u64) -> ChecksumVerifier<'_> {
        let piece = if start < self.size_bytes { self.piece(start) } else { start..start };
        assert_eq!(piece.start, start, "a piece begins where bytes are checked from");
        ChecksumVerifier { sums: self, idx: self.idx(start), piece, at: start, crc: 0 }
    }
}

fn is_odd(cut: u64) -> bool {
    !cut.is_multiple_of(PIECE_BYTES)
}

/// How many pieces a file has.
pub(crate) fn n_pieces(size_bytes: u64, cuts: &[u64]) -> u64 {
    size_bytes.div_ceil(PIECE_BYTES) + cuts.iter().filter(|cut| is_odd(**cut)).count() as u64
}

/// What has to be read, so that what is wanted can be checked.
#[derive(Debug)]
pub struct Plan<'a> {
    sums: &'a Checksums,
    wanted: Vec<Range<u64>>,
    runs: Vec<Range<u64>>,
    /// The run of each wanted range; none where nothing is to be read.
    places: Vec<Option<usize>>,
}

impl Plan<'_> {
    /// Whole pieces, ascending; two of them may share one.
    pub fn runs(&self) -> &[Range<u64>] {
        &self.runs
    }

    /// What was wanted, from what was read of each run. Without a copy.
    pub fn take(&self, read: &[Bytes]) -> Result<Vec<Bytes>, Damage> {
        for (idx, run) in self.runs.iter().enumerate() {
            let bytes = read.get(idx).map_or(&[][..], |bytes| bytes);
            if bytes.len() as u64 != run.end - run.start {
                return Err(Damage { range: run.clone() });
            }
            self.sums.check(run.start, bytes)?;
        }
        let of_range = |(wanted, place): (&Range<u64>, &Option<usize>)| {
            let Some(idx) = place else {
                return if wanted.is_empty() { Ok(Bytes::new()) } else { Err(Damage { range: wanted.clone() }) };
            };
            let run = &self.runs[*idx];
            match wanted.end <= run.end {
                true => Ok(read[*idx].slice((wanted.start - run.start) as usize..(wanted.end - run.start) as usize)),
                false => Err(Damage { range: run.end..wanted.end }),
            }
        };
        self.wanted.iter().zip(&self.places).map(of_range).collect()
    }
}

/// A check that is under way.
#[derive(Debug)]
pub struct ChecksumVerifier<'a> {
    sums: &'a Checksums,
    idx: usize,
    /// The one that `at` is in.
    piece: Range<u64>,
    at: u64,
    /// Of the piece up to `at`.
    crc: u32,
}

impl ChecksumVerifier<'_> {
    /// The next bytes.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), Damage> {
        while !bytes.is_empty() {
            if self.at >= self.sums.size_bytes {
                return Err(Damage { range: self.at..self.at + bytes.len() as u64 });
            }
            let fits = ((self.piece.end - self.at) as usize).min(bytes.len());
            let (part, rest) = bytes.split_at(fits);
            (self.crc, self.at, bytes) = (crc32c_append(self.crc, part), self.at + fits as u64, rest);
            if self.at == self.piece.end {
                if self.sums.crcs[self.idx] != self.crc {
                    return Err(Damage { range: self.piece.clone() });
                }
                (self.idx, self.crc) = (self.idx + 1, 0);
                self.piece = if self.at < self.sums.size_bytes { self.sums.piece(self.at) } else { self.at..self.at };
            }
        }
        Ok(())
    }

    /// Nothing more comes.
    pub fn finish(self) -> Result<(), Damage> {
        match self.at == self.piece.start {
            true => Ok(()),
            false => Err(Damage { range: self.piece }),
        }
    }
}

/// Makes the checksums of a file as it is written.
#[derive(Debug, Default)]
pub struct Summing {
    at: u64,
    piece_start: u64,
    crc: u32,
    /// Ascending; those before `at` are ends of pieces already.
    cuts: Vec<u64>,
    crcs: Vec<u32>,
}

impl Summing {
    /// The next bytes of the file.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let next_cut = self.cuts.get(self.cuts.partition_point(|cut| *cut <= self.at));
            let end = ((self.at / PIECE_BYTES + 1) * PIECE_BYTES).min(next_cut.copied().unwrap_or(u64::MAX));
            let (part, rest) = bytes.split_at(((end - self.at) as usize).min(bytes.len()));
            (self.crc, self.at, bytes) = (crc32c_append(self.crc, part), self.at + part.len() as u64, rest);
            if self.at == end {
                self.end_piece();
            }
        }
    }

    /// A block ends at `offset`: at the bytes that came, or at some that are still to come.
    pub fn cut(&mut self, offset: u64) {
        assert!(offset >= self.at, "a cut at {offset}, and bytes up to {} have come", self.at);
        if self.cuts.last().is_some_and(|last| *last >= offset) {
            return;
        }
        self.cuts.push(offset);
        if offset == self.at {
            self.end_piece();
        }
    }

    fn end_piece(&mut self) {
        if self.at > self.piece_start {
            self.crcs.push(self.crc);
            (self.piece_start, self.crc) = (self.at, 0);
        }
    }

    /// Nothing more comes.
    pub fn finish(mut self) -> Checksums {
        self.end_piece();
        let size_bytes = self.at;
        self.cuts.retain(|cut| (1..size_bytes).contains(cut));
        Checksums::new(size_bytes, self.cuts, self.crcs).expect("a checksum was made for each piece")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sums(file: &[u8], cuts: &[u64], step: usize) -> Checksums {
        let mut summing = Summing::default();
        let mut cuts = cuts.iter().peekable();
        for bytes in file.chunks(step) {
            // Cuts are told as late as may be, or ahead of their bytes.
            while let Some(cut) = cuts.next_if(|cut| **cut <= summing.at + step as u64) {
                summing.cut(*cut);
            }
            summing.feed(bytes);
        }
        summing.finish()
    }

    fn read(file: &[u8], sums: &Checksums, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, Damage> {
        let plan = sums.plan(ranges);
        let part = |run: &Range<u64>| {
            Bytes::copy_from_slice(&file[(run.start as usize).min(file.len())..(run.end as usize).min(file.len())])
        };
        plan.take(&plan.runs().iter().map(part).collect::<Vec<_>>())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_read_is_what_was_written_or_names_the_damage(
            len in prop_oneof![0..300usize, 60_000..400_000usize],
            mut cuts in proptest::collection::btree_set(1..400_000u64, 0..6),
            step in prop_oneof![1000..70_000usize, Just(500_000)],
            wanted in proptest::collection::vec((any::<proptest::sample::Index>(), any::<proptest::sample::Index>()), 0..6),
            at: proptest::sample::Index,
            bit in 0..8u32,
        ) {
            cuts.retain(|cut| *cut < len as u64);
            let cuts: Vec<u64> = cuts.into_iter().collect();
            let mut file: Vec<u8> = (0..len).map(|i| (i / 7 + i / 300) as u8).collect();
            let sums = sums(&file, &cuts, step);
            prop_assert_eq!((sums.size_bytes(), sums.cuts()), (len as u64, &cuts[..]));
            prop_assert_eq!(sums.tail_start(), cuts.last().copied().unwrap_or(0));
            let again = Checksums::new(len as u64, cuts.clone(), sums.crcs().to_vec());
            prop_assert_eq!(again.as_ref(), Some(&sums));
            prop_assert!(Checksums::new(len as u64 + PIECE_BYTES, cuts.clone(), sums.crcs().to_vec()).is_none());

            let ranges: Vec<Range<u64>> = wanted
                .iter()
                .map(|(a, b)| (a.index(len + 1) as u64, b.index(len + 1) as u64))
                .map(|(a, b)| a.min(b)..a.max(b))
                .collect();
            let want: Vec<Bytes> =
                ranges.iter().map(|r| Bytes::copy_from_slice(&file[r.start as usize..r.end as usize])).collect();
            prop_assert_eq!(read(&file, &sums, &ranges), Ok(want.clone()));
            prop_assert!(sums.check(0, &file).is_ok());
            prop_assert!(sums.plan(&ranges).runs().iter().all(|run| sums.around(run) == *run));
            if len == 0 {
                return Ok(());
            }
            let at = at.index(len);
            file[at] ^= 1 << bit;
            let piece = sums.piece(at as u64);
            prop_assert!(piece.end - piece.start <= PIECE_BYTES && piece.contains(&(at as u64)));
            prop_assert!(!cuts.iter().any(|cut| piece.start < *cut && *cut < piece.end), "a block has pieces of its own");
            prop_assert_eq!(sums.check(0, &file), Err(Damage { range: piece.clone() }));
            let touches = ranges.iter().any(|r| !r.is_empty() && r.start < piece.end && piece.start < r.end);
            prop_assert_eq!(read(&file, &sums, &ranges), if touches { Err(Damage { range: piece }) } else { Ok(want) });
            let all = 0..len as u64;
            prop_assert!(read(&file[..len - 1], &sums, &[all]).is_err());
            file[at] ^= 1 << bit;
            file.push(0);
            prop_assert!(sums.check(0, &file).is_err());
        }
    }

    #[test]
    fn what_lies_behind_the_end_is_damage() {
        let file = vec![7; 100];
        let sums = sums(&file, &[], 10);
        for behind in [90..101, 100..101] {
            assert_eq!(read(&file, &sums, &[behind]), Err(Damage { range: 100..101 }));
        }
        assert_eq!(read(&file, &sums, &[100..100, 3..4]).unwrap(), [&b""[..], &[7]]);
        assert_eq!(read(&file[..99], &sums, std::slice::from_ref(&(0..1))), Err(Damage { range: 0..100 }));
    }

    #[test]
    fn a_damage_names_the_blocks_and_columns_that_it_touches() {
        let block =
            |from: u64, n: u64| (0..n).map(move |idx| (format!("c{idx}"), from + 10 * idx..from + 10 * (idx + 1)));
        let place = |range| Damage { range }.place([block(4, 3), block(40, 12)]);
        assert_eq!(place(4..14), "block 0, columns c0");
        assert_eq!(place(13..15), "block 0, columns c0, c1");
        assert_eq!(place(24..41), "block 0, columns c2; block 1, columns c0");
        assert_eq!(place(40..160), "block 1, columns c0, c1, c2, c3, c4, c5, c6, c7 and 4 more");
        assert_eq!(place(0..4), "its footer");
        assert_eq!(place(160..170), "its footer");
    }

    #[test]
    fn a_damage_is_found_in_the_errors_around_it() {
        let damage = Damage { range: 1..2 };
        let external = parquet::errors::ParquetError::External;
        let around = external(Box::new(external(Box::new(damage.clone()))));
        assert_eq!(Damage::of(&around), Some(&damage));
        assert_eq!(Damage::of(&damage), Some(&damage));
        assert_eq!(Damage::of(&std::io::Error::other("x")), None);
    }
}
