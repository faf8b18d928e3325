//! What becomes of an archive when its server dies, is interrupted, or finds it in S3? The shipped binary as a child
//! process.

#![allow(clippy::unwrap_used)]

#[path = "../child/mod.rs"]
mod child;
mod cli;
mod crash;
mod files;
#[path = "s3.rs"]
mod in_s3;
#[path = "../s3/mod.rs"]
mod s3;
