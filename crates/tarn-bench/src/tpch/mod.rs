//! `tarn-bench tpch`: the 22 queries on TPC-H's eight tables, on a lake that is far away and on the local disk, with
//! each cache and without; beside DuckDB and ClickHouse on the same files; and whether all answers are right.
//!
//! | file | answers |
//! |---|---|
//! | `options` | What can be asked for? |
//! | `tables` | What are the tables, and where do their rows come from? |
//! | `queries` | What is asked? |
//! | `place` | Where do the tables lie, and which server reads them? |
//! | `check` | Are the answers right? |
//! | `way` | In which ways is a query run? |
//! | `measure` | How long does each query take, where and with which caches? |
//! | `rivals` | How long do DuckDB and ClickHouse take? |
//! | `summary` | What does that say? Figures and a table |
//! | `progress` | How far is it? |
//! | `run` | In which order is it done? |

mod check;
mod measure;
mod options;
mod progress;
mod queries;
mod rivals;
mod run;
mod summary;
mod tables;
mod way;
mod workspace;

pub use options::TpchOptions;
pub use run::run;
