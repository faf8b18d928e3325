//! Do changes reach the lake exactly once, whatever fails on the way? Deliveries, compactions and clean-ups against a
//! model, with a store, a metastore and a hot side that fail on command.

#![allow(clippy::unwrap_used)]

#[path = "../../src/test_data.rs"]
mod test_data;

mod faults;
mod hot;
mod world;

mod archive;
mod attach;
mod attach_odd;
mod cleaning;
mod exactly_once;
mod files;
mod indexed;
mod lives;
mod rot;
