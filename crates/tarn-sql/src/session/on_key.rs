//! What is asked of the row store for an INSERT's rows, by what becomes of keys that are there?

use tarn_query::OnKey;
use tarn_types::Op;

/// For each row. What `Change` comes to, who reads the rows that are there decides (`conflicts.rs`).
pub(super) fn op_of(on_key: OnKey) -> Op {
    match on_key {
        OnKey::Refuse => Op::Create,
        OnKey::Keep => Op::Insert,
        OnKey::Replace | OnKey::ReplaceOnce | OnKey::Change => Op::Put,
    }
}
