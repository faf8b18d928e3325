//! Who may do what, and how do they prove who they are?
//!
//! Reading order: `password` (what is kept of one), `scram` (how one is proved), `sql` (what statements say), `users`
//! (who is there, and what was granted), `directory` (the users of this server), `authorize` (the one place that
//! decides), `listen` (where a server may be reached), `roots` (what may be attached), `tls`, `audit`. How to switch it
//! on: `docs/security.md`.

pub mod audit;
pub mod authorize;
pub mod directory;
pub mod listen;
pub mod password;
pub mod roots;
pub mod scram;
pub mod sql;
pub mod tls;
pub mod users;

pub use authorize::{Action, Principal, authorize};
pub use directory::{Directory, wrong_password};
pub use sql::Access;
pub use users::Privilege;
