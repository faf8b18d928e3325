//! The caches of this room over stores that fail, are overwritten and are slow, and over folders that are damaged.

// Reads take lists of ranges, of one range too.
#![allow(clippy::unwrap_used, clippy::single_range_in_vec_init)]

mod damage;
mod differential;
mod flights;
mod fragments;
mod listing;
mod pages;
mod stores;
