//! Which statement makes a table that is there? What `tarn.tables` and SHOW CREATE TABLE say.

use std::fmt::Write;

use tarn_types::{Archive, Column, ColumnId, Indexing, TableSchema, TokenColumns};

use crate::names::{quote, text};
use crate::views;

/// The statement that makes this table or view again.
pub fn create_statement(schema: &TableSchema) -> String {
    if let Some(view) = &schema.options.view {
        return views::create_statement(schema, view);
    }
    if let Some(archive) = &schema.options.archive {
        return attach_statement(schema, archive);
    }
    let mut sql = format!("CREATE TABLE {} (\n", quote(&schema.name));
    for (idx, column) in schema.shown().iter().enumerate() {
        if idx > 0 {
            sql.push_str(",\n");
        }
        let _ = write!(sql, "  {} {}", quote(&column.name), column.data_type);
        if !column.nullable {
            sql.push_str(" NOT NULL");
        }
        if let Some(default) = default_text(column) {
            let _ = write!(sql, " DEFAULT {default}");
        }
    }
    if !schema.is_keyless() {
        let _ = write!(sql, ",\n  PRIMARY KEY ({})", key_text(schema));
    }
    let _ = write!(sql, "\n) WITH ({})", options_text(schema));
    sql
}

/// The literal that is a column's default.
pub fn default_text(column: &Column) -> Option<String> {
    column.default.as_ref().map(|value| text(&value.to_display(&column.data_type)))
}

/// Whether there is a primary key that rows are held to: those of append-only tables are not.
pub fn has_primary_key(schema: &TableSchema) -> bool {
    !schema.key.is_empty() && !schema.is_keyless() && !schema.options.append_only
}

/// `a, b DESC`; nothing where nobody named a key.
pub fn key_text(schema: &TableSchema) -> String {
    if schema.is_keyless() {
        return String::new();
    }
    let parts: Vec<String> = schema
        .key
        .iter()
        .map(|part| {
            format!("{}{}", quote(&schema.columns[part.column_idx].name), if part.descending { " DESC" } else { "" })
        })
        .collect();
    parts.join(", ")
}

fn options_text(schema: &TableSchema) -> String {
    let options = &schema.options;
    let partition: Vec<&str> =
        schema.key[..schema.n_partition_key].iter().map(|p| schema.columns[p.column_idx].name.as_str()).collect();
    let mut parts = vec![];
    if !schema.is_keyless() {
        parts.push(format!("partition_key = '{}'", partition.join(", ")));
    }
    parts.extend([
        format!("partitioning = '{}'", options.partitioning),
        format!("tablets = {}", options.tablets),
        format!("delivery = '{}ms'", options.delivery_interval_ms),
        format!("delivery_bytes = {}", options.delivery_bytes),
        format!("append_only = {}", options.append_only),
        format!("feed_retention = '{}ms'", options.feed_retention_ms),
    ]);
    if let Some(ms) = options.hot_retention_ms {
        parts.push(format!("hot_retention = '{ms}ms'"));
    }
    if let Some(ms) = options.ttl_ms {
        parts.push(format!("ttl = '{ms}ms'"));
    }
    if let Some(expr) = &options.partition_by {
        parts.push(format!("partition_by = '{}'", expr.replace('\'', "''")));
    }
    parts.extend(indexing_options(schema));
    parts.join(", ")
}

/// `tokens = 'a, b'` and its kin, as far as they are not the default.
pub(crate) fn indexing_options(schema: &TableSchema) -> Vec<String> {
    let Indexing { tokens, bloom, bloom_chunks, bloom_fpp } = &schema.options.indexing;
    let names = |ids: &[ColumnId]| {
        let columns = ids.iter().filter_map(|id| schema.column_by_id(*id));
        text(&columns.map(|column| quote(&column.name)).collect::<Vec<_>>().join(", "))
    };
    let mut options = Vec::new();
    match tokens {
        TokenColumns::None => {}
        TokenColumns::All => options.push("tokens = 'all'".to_owned()),
        TokenColumns::Some(ids) => options.push(format!("tokens = {}", names(ids))),
    }
    if !bloom.is_empty() {
        options.push(format!("bloom = {}", names(bloom)));
    }
    let default = Indexing::default();
    if *bloom_chunks != default.bloom_chunks {
        options.push(format!("bloom_chunks = {bloom_chunks}"));
    }
    if *bloom_fpp != default.bloom_fpp {
        options.push(format!("bloom_fpp = {bloom_fpp}"));
    }
    options
}

/// The statement that attaches this archive again.
fn attach_statement(schema: &TableSchema, archive: &Archive) -> String {
    let mut options: Vec<String> = Vec::new();
    if let Some(pattern) = &archive.hour_from {
        options.push(format!("hour_from = {}", text(pattern)));
    }
    if let Some(column) = archive.time_column.and_then(|id| schema.column_by_id(id)) {
        options.push(format!("time_column = {}", text(&column.name)));
    }
    options.extend(indexing_options(schema));
    if let Some(ms) = archive.follow_ms {
        options.push(format!("follow = '{ms}ms'"));
    }
    if let Some(n) = archive.concurrency {
        options.push(format!("concurrency = {n}"));
    }
    if archive.checksums {
        options.push("checksums = true".to_owned());
    }
    let with = if options.is_empty() { String::new() } else { format!(" WITH ({})", options.join(", ")) };
    format!("ATTACH {} AS {}{with}", text(&archive.url), quote(&schema.name))
}
