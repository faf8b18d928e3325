//! What does this statement mean? Syntax, sessions, transactions, the system's tables, and what COPY's formats and
//! SQLSTATEs say.
//!
//! It knows no socket: faces hand it text and parameters, and write what it answers. Below it are the node, which has
//! the tables, and the query engine, which computes.
//!
//! - [`service`]: what all sessions share. [`session`]: what one connection does with a statement. [`statement`]: what
//!   text says.
//! - `ddl`, `spelled`, `column_rules`, `unique_rules`, `index_sql`, `operator_classes`, `expressions`, `sequence_sql`,
//!   `like_sql`, `alter_sql`, `type_sql`, `schema_sql`, `user_types`, `view_sql`, `comment_sql`, `cursor_sql`,
//!   `lock_sql`, `with_sql`, `vacuum_sql`, `attach_sql`, `cache_sql`, `access_sql`: statements of our own. `views`:
//!   their texts. `compat`, `pg_catalog`, `privileges`, `signals`, `channels`, `session_functions`, `schema_path`,
//!   `visible`, `sequence_functions`, `advisory`: what Postgres clients ask.
//! - [`activity`]: which clients are there, and what they run. `system`: the tables of schema `tarn`. `hot`: the node's
//!   rows as queries see them, `transaction`: what one wrote that nobody else sees, `temporary`: the tables that a
//!   session has to itself, `altered`: those that its transaction sees otherwise, `seen_schemas`: what names mean then,
//!   `cursors`: results that stay open.
//! - `postgres`: what operators, casts and functions mean where the engine says something else. `duplicate`: how 23505
//!   is said. `turns`: who changes a row next. [`rows`], `text`, [`binary`], [`copy_format`], [`copy_binary`]: values
//!   as Postgres writes them. [`error`]: SQLSTATEs.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod access_sql;
pub mod activity;
mod advisory;
mod alter_sql;
mod altered;
pub mod arrays;
mod attach_sql;
pub mod binary;
pub mod budget;
mod cache_sql;
mod catalog_dependencies;
mod catalog_functions;
mod catalog_names;
mod catalog_numbers;
mod catalog_routines;
mod catalog_rows;
mod catalog_sequences;
mod catalog_settings;
mod catalog_types;
pub mod cells;
pub mod channels;
mod column_rules;
mod comment_sql;
mod compat;
mod constraints_sql;
pub mod copy_binary;
pub mod copy_format;
mod copy_options;
mod cursor_sql;
mod cursors;
mod ddl;
mod definition;
mod described;
mod digits;
mod duplicate;
pub mod encoding;
pub mod error;
mod error_from;
mod expressions;
mod foreign_rules;
mod function_mentions;
mod function_sql;
mod function_types;
mod hot;
mod index_sql;
mod information_schema;
mod like_sql;
mod lock_sql;
pub mod names;
mod nested;
mod operator_classes;
mod pg_catalog;
mod planner_messages;
mod postgres;
mod privileges;
pub mod quiet;
mod relations;
pub mod requests;
mod row_fields;
mod row_type;
pub mod rows;
mod schema_path;
mod schema_sql;
mod seen_schemas;
mod sequence_functions;
mod sequence_sql;
pub mod service;
pub mod session;
mod session_functions;
pub mod settings;
mod shown;
mod signals;
mod spelled;
pub mod statement;
mod system;
mod system_activity;
mod system_attach;
mod system_caches;
mod temporary;
mod text;
mod transaction;
mod turns;
mod type_sql;
mod type_tree;
mod unique_rules;
mod unknown;
mod user_functions;
mod user_types;
mod vacuum_sql;
mod view_columns;
mod view_rename;
mod view_sql;
mod view_text;
mod views;
mod visible;
mod with_sql;
