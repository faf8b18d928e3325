//! The caches of this room over stores that fail, are overwritten and are slow, and over folders that are damaged.

mod damage;
mod differential;
mod flights;
mod listing;
mod pages;
mod stores;
