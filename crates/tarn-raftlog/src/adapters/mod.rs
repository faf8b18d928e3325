//! How does a Raft library use this log? Thin translations, each behind a cargo feature that is off by default.
//!
//! - [`raft_rs`] (feature `raft-rs`): [`raft_rs::GroupStorage`], a `raft::Storage`.
//! - [`openraft`] (feature `openraft`): [`openraft::GroupLog`], a `RaftLogStorage` and its `RaftLogReader`.
//!
//! The log itself knows neither library. `make test-raftlog-adapters` builds and tests them.

#[cfg(feature = "openraft")]
pub mod openraft;
#[cfg(feature = "raft-rs")]
pub mod raft_rs;
