//! Who may do what, and how do they prove who they are?
//!
//! Reading order: `password` (what is kept of one), `scram` (how one is proved), `access` (what can be asked for),
//! `users` (who is there, and what was granted), `directory` (the users of this server), `authorize` (the one place
//! that decides), `roots` (what may be attached), `audit`. How to switch it on: `docs/security.md`.

pub mod access;
pub mod audit;
pub mod authorize;
pub mod directory;
pub mod password;
pub mod roots;
pub mod scram;
pub mod users;

pub use access::{Access, PUBLIC, Privilege};
pub use authorize::{AuthAction, Object, Principal, authorize};
pub use directory::{Directory, FAILURE_DELAY, wrong_password};
