//! `tarn-bench tpcds`: the 99 queries of TPC-DS on Parquet files that DuckDB made, attached, within little memory;
//! beside DuckDB on the same files, which also judges the answers.
//!
//! | file | answers |
//! |---|---|
//! | `options` | What can be asked for? |
//! | `data` | Which files are read, and what is asked? |
//! | `order` | By which columns is an answer ordered, and what is the query without its limit? |
//! | `verdict` | Is the answer right? |
//! | `summary` | Which are right, and how long did they take? |
//! | `run` | In which order is it done? |

mod data;
mod options;
mod order;
mod run;
mod summary;
mod verdict;

pub use options::TpcdsOptions;
pub use run::run;
