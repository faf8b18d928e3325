//! What did a leaf of a plan give of this file the last time? A fragment: what scan, filter, projection and partial
//! aggregate make of one file, kept in [`tarn_cache::FragmentCache`] under a key that holds everything it depends on.
//!
//! Reading order: `canonical` (when are two expressions the same?), `aggregate` (which depend on the order of rows?),
//! `prove` (what do bounds say of all rows?), `units` (which part of which file?), `leaf` (what is asked of a file?),
//! `keys` (under which key?), `kept` (bytes), `exec` (kept or computed?), `rule` (where in a plan?).
//!
//! Invariant: a statement gives the same rows with and without fragments, whatever was asked before (law 4).

mod aggregate;
mod canonical;
mod exec;
mod kept;
mod keys;
mod leaf;
mod prove;
mod rule;
mod seen;
mod units;

pub(crate) use rule::UseFragments;
pub(crate) use seen::Fragments;
