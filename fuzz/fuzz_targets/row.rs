//! Any bytes as a stored row, as its cells, and as a patch of other cells: errors, never a panic, and a patch of sound
//! cells is sound.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tarn_types::{StoredRow, check_cells, patch_cells};

fuzz_target!(|input: (&[u8], &[u8])| {
    let (bytes, patch) = input;
    let Ok(row) = StoredRow::parse(bytes) else { return };
    let _ = row.is_live(0);
    let patched = patch_cells(row.cells, patch);
    if check_cells(row.cells).is_ok() && check_cells(patch).is_ok() {
        check_cells(&patched.expect("sound cells can be patched")).expect("the result is sound");
    }
});
