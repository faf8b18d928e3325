//! What is the answer? One SQL statement over hot rows and lake files at one exact position.
//!
//! ```text
//! SQL ──> keyed?  ──yes──> (the caller answers from the row engine; no plan)
//!   └──no──> Session ──> DataFusion ──> TarnTable::scan ──paths──> ScanSpec ──when it runs──> Opener
//!                                          │  point, keys  row engine, key by key; rows of files by their addresses
//!                                          │  index        entries of an index (while it is planned), then as keys
//!                                          │  range        row engine, runs of keys
//!                                          │  rows         row engine, everything (forced)
//!                                          └─ lake         blocks that pruning leaves (pruning.rs), dead rows skipped  ∪  recent rows
//! ```
//!
//! - [`Engine`] is shared by all connections: memory bound, footers, the store, the tables. [`Session`] is one
//!   connection.
//! - The hot side comes through [`HotCatalog`], [`HotSource`], [`HotReader`] and [`HotView`]; [`SystemTables`] fills
//!   the schema `tarn`.
//! - [`parser`] reads SQL text, within bounds. [`keyed`] recognises statements that need no plan; [`dml`] turns the
//!   other `UPDATE`, `DELETE` and `INSERT`s into rows to write, [`merge`] `MERGE`. Of one row they are expressions that
//!   are computed of it ([`RowColumns`]), without a plan.
//!
//! Invariants: a statement takes one [`HotView`] per table and reads exactly the lake version that the view names. A
//! statistic is called exact only if it is arithmetic on live rows. This crate writes nothing and never knows how files
//! arrived.
#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod always_a_row;
mod array_text;
mod bytea;
mod called;
mod equated;
mod error;
mod functions;
mod hot;
mod meaning;
mod rewrite;
mod row_in_queries;
mod row_values;
mod rule_order;
mod settings;
mod user_functions;
mod values;
mod walk;

mod truth;

mod balance;
mod batch_rows;
mod bounded;
mod carried;
mod collected;
mod compact;
mod concatenation;
mod constants;
mod correlated;
mod cross_joins;
mod dependent;
mod distinct_sums;
mod expanded;
mod extrema;
mod filtered_windows;
mod from_tables;
mod in_windows;
mod join_keys;
mod limited_groups;
mod lists;
mod long_constants;
mod moving_frames;
mod named_casts;
mod nans;
mod null_keys;
mod operator_function;
mod outer_names;
mod own_calls;
mod owned;
mod pause;
mod plan_size;
mod quantified;
mod running;
mod seal;
mod stars;
mod stop;
mod style;
mod while_waited;
mod whole_rows;
mod written_types;
mod zeros;

mod clauses;
mod late_materialization;
mod missing;
mod predicate;

mod page_index;
mod projected;
mod shown_names;

mod column_chunks;
mod error_context;
mod failing;
mod foreign;
mod reader;
mod rebatch;

mod addresses;
mod column_bounds;
mod files;
mod hot_exec;
mod indexed;
mod key_ranges;
mod keys_exec;
mod lake;
mod lake_source;
mod opening;
mod paths;
mod pruning;
mod reading;
mod rows_exec;
mod scan;
mod spec;
mod spec_bytes;
mod totals;

mod backwards;
mod forgets;
mod fragments;
mod key_claims;

mod literal_coercion;
mod snapshot;
mod table;
mod zones;

mod catalog;
mod function_calls;
mod group_keys;
mod inlined;
mod inserted_query;
mod own_tables;
mod threads;
mod view_table;
mod views;

mod engine;
mod reads;
mod warm;

mod compiled;
mod conflict;
pub mod defaults;
pub mod dml;
pub mod explain_json;
pub mod keyed;
pub mod locking;
pub mod merge;
mod one_row;
pub mod parser;
mod row_change;
mod row_columns;

pub use array_text::items as array_items;
pub use catalog::{SystemSchema, SystemTables};
pub use compiled::CompiledExprs;
pub use conflict::{Arbiter, OnKey};
pub use engine::{Engine, Options, Session};
pub use error::{Error, Result};
pub use from_tables::name_in_from;
pub use hot::{
    FileStore, HotCatalog, HotLookup, HotReader, HotRows, HotSource, HotView, IndexLookup, KeyRange, RangeScan,
    RowBatches,
};
pub use inserted_query::check_count;
pub use keyed::KeyedPlanner;
pub use meaning::{Rule, SqlDialect, ViewTexts};
pub use named_casts::NAMED_CAST;
pub use one_row::RowKey;
pub use operator_function::{BinaryKernel, operator_function};
pub use reads::{RelationRead, reads};
pub use rewrite::{each_expression, each_node, visible};
pub use row_columns::RowColumns;
pub use row_values::value_of_query;
pub use running::{now_of, statement_of};
pub use settings::{AccessPath, AsOf, CacheSettings, QuerySettings};
pub use spec::ScanSpec;
pub use style::of_config as style_of;
pub use user_functions::{Argument, FunctionParameter, ResolvedFunction, ResultShape, UserFunction, UserFunctions};
pub use values::sql_schema;
pub use views::MAX_DEPTH as MAX_VIEW_DEPTH;
pub use walk::{Walkable, each_expr, each_relation, has_query, walk, walk_mut};
pub use warm::{Warm, WarmedPart};
pub use whole_rows::{ALL as ALL_COLUMNS, PLACE};
pub use written_types::{inet, is_inet};
pub use zones::of_config as zone_of;

/// The SQL engine, for callers that work with plans and its errors.
pub use datafusion;
/// The SQL parser, so that callers parse with the version that [`keyed`] and [`dml`] read.
pub use datafusion::sql::sqlparser;
