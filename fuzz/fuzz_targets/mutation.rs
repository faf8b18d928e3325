//! Any bytes as a mutation batch: an error, or a batch that can be walked and says the same about itself as its rows
//! do.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use tarn_types::MutationBatch;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(batch) = MutationBatch::from_bytes(Bytes::copy_from_slice(bytes)) {
        assert_eq!(batch.iter().count(), batch.len());
        assert_eq!(batch.as_bytes().as_ref(), bytes);
    }
});
