//! Engines against their contract, tables against a model.
#![allow(clippy::unwrap_used)]

mod engines;
mod followers;
mod middle;
mod model;
mod scenarios;
mod world;
