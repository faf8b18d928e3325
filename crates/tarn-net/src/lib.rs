//! How do the bytes of a connection get here? Accepted, counted and, where it was asked for, encrypted; what they mean
//! is not known here.
//!
//! - [`places`]: who may come in, and who makes room. [`descriptors`]: how many files may be open, and for whom.
//! - [`tls`]: how a connection is encrypted. [`stream`]: in clear or encrypted, one type.

#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod descriptors;
pub mod places;
pub mod stream;
pub mod tls;

use std::net::{IpAddr, SocketAddr};

/// Who is at the other end.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// As the operating system says; a proxy's, when there is one.
    pub address: SocketAddr,
    /// By TLS, up to this process.
    pub is_encrypted: bool,
}

/// Whether only this machine can be at the other end.
pub fn is_near(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}
