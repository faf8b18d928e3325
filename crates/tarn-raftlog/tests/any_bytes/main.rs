//! Does the log bear any bytes? The fuzz target `raftlog` in short form, so that every run of the tests has it.

#![allow(clippy::unwrap_used)]

mod check;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn random_bytes(at in prop_oneof![0u16..200, any::<u16>()], quarantine: bool, bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        check::check(at, quarantine, &bytes);
    }

    /// Pieces of a real segment, at places where they do not belong, with a bit flipped in them.
    #[test]
    fn misplaced_bytes(to_block in 0u16..14, to in 0u16..200, from in 0usize..12400, len in 1usize..5000, flip in 0usize..40_000, quarantine: bool) {
        let (_, segment) = check::base();
        let mut bytes = segment[from..(from + len).min(segment.len())].to_vec();
        let n_bits = bytes.len() * 8;
        bytes[flip % n_bits / 8] ^= 1 << (flip % 8);
        check::check(to_block * 4096 + to % 2 * to, quarantine, &bytes);
    }
}
