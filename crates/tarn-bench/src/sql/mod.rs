//! `tarn-bench sql`: how far is the SQL PostgreSQL's, and what does that cost?
//!
//! | file | answers |
//! |---|---|
//! | `options` | What can be asked for? |
//! | `suites` | What do the suites beside PostgreSQL, and the clients, say? |
//! | `copy` | How much faster are rows taken as binary data than as text? |
//! | `cost` | How much slower are queries and keyed statements than another build's? |
//! | `run` | In which order is it done? |

mod copy;
mod cost;
mod options;
mod run;
mod suites;

pub use options::SqlOptions;
pub use run::run;
