//! What can be done with the tables of this node? The one door to them: rows in and out by key, the work behind, and
//! who may.
//!
//! It knows no statement and no protocol; its errors are kinds ([`error`]). From below:
//!
//! - where things are: [`settings`], `folder`, [`stores`], [`metastores`], `lake_store`, [`caches`], `reserve`,
//!   `ledger`, `small_file`;
//! - what there is: [`catalog`] (the tables), [`external_table`] (tables whose files others write), [`jobs`], [`auth`]
//!   (users, and who may do what), [`sequences`] (numbers that are given once);
//! - what all of it shares, and in which order it is opened: `parts`; `together` holds it against each other before
//!   anything is deleted, `replay` brings a table back from its log;
//! - what goes on behind: `worker` (of a table), `pass` (of an archive), `maintenance`, [`heal`], `scrub`, `sweep`;
//! - what is asked for: [`node`] opens and closes, [`tables`] is the door to rows ([`mod@write`] takes them in when
//!   there is `room`, [`scan`] gives them by ranges of keys, [`snapshot`] shows them at one moment, [`transaction`] is
//!   what several statements write together and see ([`own`]), [`requests`] are known when they are made again
//!   (`being_made` says which are), `follow` tells what happened, [`entries`] are what constraints are kept by,
//!   [`foreign`] looks after foreign keys, which are [`edges`], with `latches`), `drops` makes and drops tables,
//!   [`parents`] says what of them others refer to, `unique` the tables of these entries, `temporary` those of one
//!   session, which are `unlogged` and have a `temporary_room`, [`renames`] calls them otherwise, [`alter`] defines
//!   tables otherwise, [`alter_at_commit`] does with what a transaction writes (`committing` is what a crash finds of
//!   that, [`view_readers`] what views say then), [`rekey`] gives them a key (`beside` names what is made for that),
//!   [`standing`] tells where things stand, [`split`] parts tablets, `external_tables` attaches archives, [`views`]
//!   makes and drops views, [`comments`] keeps what people say of tables, [`types`] what types they made, [`functions`]
//!   which functions they wrote (documents, `kept` whole), [`schemas`] what schemas they made, with [`schema_changes`];
//!   the other `…_changes` are how these change;
//! - who asks: every call that changes something, or reads rows, takes a [`Principal`](auth::Principal) and asks
//!   whether he may ([`rights`]).

#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod access_changes;
pub mod alter;
pub mod alter_at_commit;
pub mod attach;
pub mod auth;
mod being_made;
mod beside;
mod cache_metrics;
pub mod caches;
pub mod catalog;
pub mod clock;
mod comment_changes;
pub mod comments;
mod committing;
#[cfg(test)]
mod door_tests;
mod dropped;
mod drops;
pub mod edges;
pub mod entries;
pub mod error;
pub mod external_table;
mod external_tables;
mod folder;
mod follow;
pub mod foreign;
mod function_changes;
pub mod functions;
mod grown;
pub mod heal;
mod health;
pub mod jobs;
mod kept;
mod lake_store;
mod latches;
mod ledger;
mod log_metrics;
mod maintenance;
pub mod metastores;
pub mod metrics;
pub mod node;
pub mod own;
mod own_view;
pub mod parents;
mod parts;
mod pass;
pub mod rekey;
pub mod renames;
mod replay;
pub mod requests;
mod reserve;
pub mod rights;
mod room;
pub mod scan;
pub mod schema_changes;
pub mod schemas;
mod scrub;
mod sequence_changes;
pub mod sequences;
pub mod settings;
mod small_file;
pub mod snapshot;
pub mod split;
pub mod standing;
pub mod stores;
mod sweep;
mod table_metrics;
mod table_work;
pub mod tables;
mod temporary;
mod temporary_room;
pub mod threads;
mod together;
pub mod transaction;
mod type_changes;
pub mod types;
mod unique;
mod unlogged;
pub mod view_readers;
pub mod views;
mod worker;
pub mod write;
