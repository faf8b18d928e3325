//! What does a table look like: its columns, its key, its tablets?
//!
//! A schema is immutable data; a change makes another one. The key is the first thing everything else hangs on: rows
//! with the same leading [`TableSchema::n_partition_key`] parts are a partition, which no split of a tablet cuts; the
//! rest cluster.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, new_null_array};
use arrow::datatypes::{DataType as ArrowType, Field, Schema, SchemaRef};
use serde::{Deserialize, Serialize};

use crate::data_type::{DataType, ItemType, MAX_PRECISION, arrow_field, arrow_type, file_field};
use crate::enumerated::Enumerated;
use crate::error::{Error, Result};
use crate::full_name;
use crate::ids::{ColumnId, TableId, TabletId};
use crate::options::{Archive, BLOOM_CHUNKS, MAX_TABLETS, Partitioning, TableOptions, TokenColumns, View, is_fpp};
use crate::rules::{ColumnRules, DroppedColumn, ForeignKey, GeneratedColumn, Length};
use crate::value::Value;

/// The hidden last column of lake files and recent rows: the commit position of each row, Int64, never null.
pub const SEQNO_COLUMN: &str = "__seqno";

/// The id under which the metastore keeps where [`SEQNO_COLUMN`] lies in a file; no column of a table has it.
pub const SEQNO_ID: ColumnId = ColumnId(i32::MAX as u32);

/// The hidden last column of a table that was made without a primary key: its key, which every row gets when it is
/// inserted. Bytes; those of later rows sort behind.
pub const ROW_COLUMN: &str = "__row";

/// Behind the name of a table: its primary key's.
const KEY_SUFFIX: &str = "_pkey";

/// One column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// What its cells are stored under; never reused.
    pub id: ColumnId,
    /// Its name, unique in the table.
    pub name: String,
    /// Its type.
    pub data_type: DataType,
    /// May it be NULL? Key columns may not.
    pub nullable: bool,
    /// What a row has that is inserted and does not say. `None` is NULL.
    pub default: Option<Value>,
}

/// One part of the primary key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyPart {
    /// The place of the column in [`TableSchema::columns`].
    pub column_idx: usize,
    /// Sorted from high to low.
    pub descending: bool,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableSchema {
    /// Its id.
    pub id: TableId,
    /// Its name.
    pub name: String,
    /// Its columns in the order of `SELECT *`, which does not show a last [`ROW_COLUMN`].
    pub columns: Vec<Column>,
    /// Its primary key, most significant part first. Empty for archives and views, and only there.
    pub key: Vec<KeyPart>,
    /// How many leading key parts make the partition key: at least one, in archives and views none.
    pub n_partition_key: usize,
    /// The first of the [`MAX_TABLETS`] tablet ids that are its own: the table begins with `options.tablets` of them,
    /// splits use the next. Archives and views have none.
    pub first_tablet: TabletId,
    /// The rest.
    pub options: TableOptions,
}

impl TableSchema {
    /// Holds the definition against all rules: names and ids are unique, the key exists, is not nullable, not JSON and
    /// no array, decimals have 1–38 digits, defaults fit their column, options are in range. An archive has no key and
    /// no tablets.
    ///
    /// # Errors
    /// [`Error::Schema`] names the table and the first thing that is wrong.
    pub fn validate(&self) -> Result<()> {
        self.check().map_err(|reason| Error::Schema { table: self.name.clone(), reason })
    }

    fn check(&self) -> Result<(), String> {
        if self.name.is_empty() {
            return Err("a table needs a name".to_owned());
        }
        let mut names = HashSet::new();
        let mut ids = HashSet::new();
        for column in &self.columns {
            check_column(column)?;
            let is_ours = match self.has_rows() {
                true => column.name.starts_with("__"),
                false => column.name == SEQNO_COLUMN,
            };
            if is_ours && !(self.is_keyless() && column.name == ROW_COLUMN) {
                return Err(format!("column {}: names that begin with __ are ours", column.name));
            }
            if !names.insert(column.name.as_str()) {
                return Err(format!("column {} is there twice", column.name));
            }
            if !ids.insert(column.id) {
                return Err(format!("column id {} is there twice", column.id));
            }
        }
        self.check_indexing()?;
        self.check_rules()?;
        self.check_stored()?;
        if let Some(view) = &self.options.view {
            return self.check_view(view);
        }
        if let Some(archive) = &self.options.archive {
            return self.check_archive(archive);
        }
        self.check_key()?;
        if !(1..=MAX_TABLETS).contains(&self.options.tablets) {
            return Err(format!("{} tablets, want 1 to {MAX_TABLETS}", self.options.tablets));
        }
        if self.options.tablets > 1 && self.options.partitioning == Partitioning::Range {
            let tablets = self.options.tablets;
            return Err(format!(
                "{tablets} tablets: a table that is partitioned by range begins with one, and is split as it grows; set partitioning = \
                 'hash' as well, or leave out tablets"
            ));
        }
        if self.first_tablet.0.checked_add(MAX_TABLETS).is_none() {
            return Err(format!("no ids are left for its tablets: {MAX_TABLETS} from {}", self.first_tablet));
        }
        self.check_partition_by()
    }

    fn check_key(&self) -> Result<(), String> {
        if self.key.is_empty() {
            return Err("a table needs a primary key".to_owned());
        }
        if self.n_partition_key == 0 || self.n_partition_key > self.key.len() {
            return Err(format!("{} of {} key columns partition it", self.n_partition_key, self.key.len()));
        }
        if self.is_keyless() && self.key.iter().any(|part| part.column_idx + 1 != self.columns.len()) {
            return Err(format!("{ROW_COLUMN} is there, which is the whole key"));
        }
        let mut seen = HashSet::new();
        for part in &self.key {
            let Some(column) = self.columns.get(part.column_idx) else {
                return Err(format!("the key names column {} of {}", part.column_idx, self.columns.len()));
            };
            if !seen.insert(part.column_idx) {
                return Err(format!("the key names column {} twice", column.name));
            }
            if column.nullable {
                return Err(format!("key column {} must be NOT NULL", column.name));
            }
            if !column.data_type.is_ordered() {
                return Err(format!("key column {} is {}, of which there are no keys", column.name, column.data_type));
            }
        }
        Ok(())
    }

    fn check_indexing(&self) -> Result<(), String> {
        let indexing = &self.options.indexing;
        if let TokenColumns::Some(columns) = &indexing.tokens {
            for id in columns {
                let column = self.column_by_id(*id).ok_or_else(|| format!("tokens: no column with id {id}"))?;
                if column.data_type != DataType::Text {
                    return Err(format!("tokens: column {} is {}, want TEXT", column.name, column.data_type));
                }
            }
        }
        for id in &indexing.bloom {
            let column = self.column_by_id(*id).ok_or_else(|| format!("bloom: no column with id {id}"))?;
            if matches!(column.data_type, DataType::Float32 | DataType::Float64) {
                return Err(format!(
                    "bloom: column {} is {}, and equal floats may differ",
                    column.name, column.data_type
                ));
            }
            if matches!(column.data_type, DataType::Array(_)) {
                return Err(format!(
                    "bloom: column {} is {}, of which no filter is kept",
                    column.name, column.data_type
                ));
            }
        }
        let chunks = indexing.bloom_chunks;
        if chunks != 0 && !(BLOOM_CHUNKS.contains(&chunks) && chunks.is_power_of_two()) {
            return Err(format!("{chunks} bloom chunks, want a power of two from 64 to 32768"));
        }
        if !is_fpp(&indexing.bloom_fpp) {
            return Err(format!("bloom_fpp {}, want a share above 0 and up to 0.5", indexing.bloom_fpp));
        }
        Ok(())
    }

    fn check_rules(&self) -> Result<(), String> {
        let rules = &self.options.rules;
        for of in &rules.columns {
            let column = self.column_by_id(of.id).ok_or_else(|| format!("rules: no column with id {}", of.id))?;
            if of.default.is_some() && column.default.is_some() {
                return Err(format!("column {} has two defaults", column.name));
            }
            if let Some(generated) = &of.generated {
                if of.default.is_some() || column.default.is_some() || of.identity.is_some() {
                    return Err(format!("column {} is generated, and has a default", column.name));
                }
                if self.key_columns().any(|key| key.id == of.id) {
                    return Err(format!("key column {} is generated", column.name));
                }
                if let Some(id) = generated.columns.iter().find(|id| self.column_by_id(**id).is_none()) {
                    return Err(format!(
                        "column {} is generated from a column with id {id}, which is not there",
                        column.name
                    ));
                }
            }
            let is_text = match of.length {
                None => true,
                // What is shown with blanks is shown so by itself alone.
                Some(Length::Fixed(_)) => column.data_type == DataType::Text,
                Some(Length::Varying(_)) => {
                    matches!(column.data_type, DataType::Text | DataType::Array(ItemType::Text))
                }
            };
            if !is_text {
                return Err(format!("column {} is {}, and has a length", column.name, column.data_type));
            }
            if of.enumerated.is_some() && (column.data_type != DataType::Text || of.length.is_some()) {
                return Err(format!("column {} is of an enumerated type, and is no plain TEXT", column.name));
            }
            if let Some(missing) = &of.missing
                && (missing.is_null() || !is_of(missing, &column.data_type))
            {
                return Err(format!("column {}: {missing:?} in older rows is no {}", column.name, column.data_type));
            }
        }
        for of in &rules.dropped {
            if self.column_by_id(of.id).is_some() || rules.dropped.iter().filter(|other| other.id == of.id).count() > 1
            {
                return Err(format!("column id {} was dropped, and is there", of.id));
            }
        }
        let mut names = HashSet::new();
        for unique in &rules.uniques {
            if !names.insert(unique.name.as_str()) {
                return Err(format!("unique {} is there twice", unique.name));
            }
            if unique.columns.is_empty() || self.options.append_only || !self.has_rows() {
                return Err(format!("unique {}: rows are not held to it", unique.name));
            }
            let ids: HashSet<ColumnId> = unique.columns.iter().copied().collect();
            if ids.len() < unique.columns.len() {
                return Err(format!("unique {} names a column twice", unique.name));
            }
            if !unique.orders.is_empty() && unique.orders.len() != unique.columns.len() {
                let (orders, columns) = (unique.orders.len(), unique.columns.len());
                return Err(format!("unique {}: orders of {orders} columns of {columns}", unique.name));
            }
            if unique.repeats && !unique.by_index {
                return Err(format!("unique {} is a constraint, and values may repeat", unique.name));
            }
            if let Some(id) = ids.iter().find(|id| self.column_by_id(**id).is_none()) {
                return Err(format!("unique {}: no column with id {id}", unique.name));
            }
        }
        // Indexes share the names of tables, constraints have theirs within the table.
        let mut names: HashSet<&str> =
            rules.uniques.iter().filter(|unique| !unique.by_index).map(|unique| unique.name.as_str()).collect();
        for key in &rules.foreign_keys {
            if !names.insert(key.name.as_str()) {
                return Err(format!("foreign key {} is there twice", key.name));
            }
            if key.columns.is_empty() || key.columns.len() != key.parent_columns.len() || self.options.append_only {
                return Err(format!("foreign key {}: rows are not held to it", key.name));
            }
            if let Some(id) = key.columns.iter().find(|id| self.column_by_id(**id).is_none()) {
                return Err(format!("foreign key {}: no column with id {id}", key.name));
            }
            if rules.serving(key).is_none() {
                return Err(format!("foreign key {}: no index of its columns", key.name));
            }
        }
        for check in &rules.checks {
            if !names.insert(check.name.as_str()) {
                return Err(format!("check {} is there twice", check.name));
            }
            if let Some(id) = check.columns.iter().find(|id| self.column_by_id(**id).is_none()) {
                return Err(format!("check {}: no column with id {id}", check.name));
            }
        }
        Ok(())
    }

    fn check_archive(&self, archive: &Archive) -> Result<(), String> {
        if archive.url.is_empty() {
            return Err("an archive needs a URL".to_owned());
        }
        if !self.key.is_empty() || self.n_partition_key != 0 {
            return Err("an archive has no primary key".to_owned());
        }
        if self.options.tablets != 0 {
            return Err(format!("{} tablets, an archive has none", self.options.tablets));
        }
        if self.options.partition_by.is_some() {
            return Err("partition_by: the files of an archive lie as they lie".to_owned());
        }
        let Some(id) = archive.time_column else { return Ok(()) };
        match self.column_by_id(id).map(|column| (&column.name, column.data_type)) {
            Some((_, DataType::Timestamp | DataType::TimestampTz | DataType::Date)) => Ok(()),
            Some((name, other)) => Err(format!("time column {name} is {other}, want a timestamp or date")),
            None => Err(format!("time column: no column with id {id}")),
        }
    }

    fn check_view(&self, view: &View) -> Result<(), String> {
        if view.query.is_empty() || self.columns.is_empty() {
            return Err("a view needs a query and columns".to_owned());
        }
        if view.columns.len() != self.columns.len() {
            return Err(format!("its query names {} of {} columns", view.columns.len(), self.columns.len()));
        }
        if !self.key.is_empty() || self.n_partition_key != 0 || self.options.tablets != 0 {
            return Err("a view has no primary key and no tablets".to_owned());
        }
        if self.options.archive.is_some() || self.options.home.is_some() || self.options.partition_by.is_some() {
            return Err("a view has no rows of its own".to_owned());
        }
        Ok(())
    }

    fn check_partition_by(&self) -> Result<(), String> {
        let Some(text) = &self.options.partition_by else { return Ok(()) };
        let column =
            self.options.partition_column().ok_or_else(|| format!("partition_by {text}: want hour(column)"))?;
        match self.column(column).map(|(_, column)| column.data_type) {
            Some(DataType::Timestamp | DataType::TimestampTz | DataType::Date) => Ok(()),
            Some(other) => Err(format!("partition_by {text}: column {column} is {other}, want a timestamp or date")),
            None => Err(format!("partition_by {text}: no column {column}")),
        }
    }

    fn check_stored(&self) -> Result<(), String> {
        let mut names = HashSet::new();
        for (idx, stored) in self.stored_names().into_iter().enumerate() {
            if stored == SEQNO_COLUMN || stored.is_empty() || !names.insert(stored) {
                return Err(format!(
                    "column {} is called \"{stored}\" in files, as another one",
                    self.columns[idx].name
                ));
            }
        }
        match self.options.rules.dropped.iter().find(|of| !names.insert(&of.stored)) {
            Some(of) => Err(format!("files have two columns that are called \"{}\"", of.stored)),
            None => Ok(()),
        }
    }

    /// All columns in order, in their storage types ([`arrow_field`]). Builds a schema each time: keep it.
    #[must_use]
    pub fn arrow(&self) -> SchemaRef {
        Arc::new(Schema::new(self.fields().collect::<Vec<_>>()))
    }

    /// [`TableSchema::arrow`] with [`SEQNO_COLUMN`] behind.
    #[must_use]
    pub fn arrow_with_seqno(&self) -> SchemaRef {
        Arc::new(Schema::new(self.fields().chain([seqno_field()]).collect::<Vec<_>>()))
    }

    /// [`TableSchema::arrow_with_seqno`] by the names and in the types that lake files have
    /// ([`TableSchema::stored_names`], [`file_field`]).
    #[must_use]
    pub fn arrow_in_files(&self) -> SchemaRef {
        let stored = self.fields().zip(self.stored_names()).map(|(field, name)| file_field(field).with_name(name));
        Arc::new(Schema::new(stored.chain([seqno_field()]).collect::<Vec<_>>()))
    }

    fn fields(&self) -> impl Iterator<Item = Field> + '_ {
        (0..self.columns.len()).map(|idx| self.field(idx))
    }

    /// The column at this place, in its storage type. Panics for a place beyond the last.
    #[must_use]
    pub fn field(&self, column_idx: usize) -> Field {
        let column = &self.columns[column_idx];
        let field = arrow_field(&column.name, &column.data_type, column.nullable);
        match self.rules_of(column_idx) {
            Some(ColumnRules { length: Some(length), .. }) => length.told(field),
            Some(ColumnRules { enumerated: Some(enumerated), .. }) => enumerated.told(field),
            _ => field,
        }
    }

    /// Whether it was made without a primary key, and its rows have a number of ours, [`ROW_COLUMN`].
    #[must_use]
    pub fn is_keyless(&self) -> bool {
        self.columns.last().is_some_and(|column| column.name == ROW_COLUMN)
    }

    /// Whether it has rows of its own, a key and tablets: it is neither an archive nor a view.
    #[must_use]
    pub fn has_rows(&self) -> bool {
        self.options.archive.is_none() && self.options.view.is_none()
    }

    /// What it is, in one word.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        if self.is_view() { "view" } else { "table" }
    }

    /// The name that it was made with: its folder in the lake is called so for good.
    #[must_use]
    pub fn made_as(&self) -> &str {
        self.options.made_as.as_deref().unwrap_or(&self.name)
    }

    /// The same table by another name.
    #[must_use]
    pub fn renamed(&self, name: &str) -> TableSchema {
        let mut renamed = TableSchema { name: name.to_owned(), ..self.clone() };
        let made_as = self.made_as();
        renamed.options.made_as = (self.has_rows() && made_as != name).then(|| made_as.to_owned());
        let key_name = self.key_name();
        renamed.options.rules.key_name = None;
        if self.has_rows() && !self.is_keyless() && !renamed.is_key_named(&key_name) {
            renamed.options.rules.key_name = Some(key_name);
        }
        renamed
    }

    /// What the constraint of its primary key is called, and its index: in the schema of the table.
    #[must_use]
    pub fn key_name(&self) -> String {
        match &self.options.rules.key_name {
            Some(name) => name.clone(),
            None => format!("{}{KEY_SUFFIX}", full_name::bare(&self.name)),
        }
    }

    /// Whether the constraint of its primary key is called so.
    #[must_use]
    pub fn is_key_named(&self, name: &str) -> bool {
        let is_it = match &self.options.rules.key_name {
            Some(own) => own == name,
            None => name.strip_suffix(KEY_SUFFIX) == Some(full_name::bare(&self.name)),
        };
        is_it && !self.is_keyless()
    }

    /// The same table with another name for the column at this place, whose rows and files stay as they are. Texts that
    /// name the column are the caller's: checks, and the queries of views.
    #[must_use]
    pub fn with_column_renamed(&self, column_idx: usize, name: &str) -> TableSchema {
        let mut renamed = self.clone();
        let stored = self.stored_names()[column_idx];
        let column = &mut renamed.columns[column_idx];
        column.name = name.to_owned();
        renamed.options.rules.entry(column.id).stored = (stored != name).then(|| stored.to_owned());
        renamed.options.rules.forget_empty();
        renamed
    }

    /// The same table with a column more, the last that is shown, of the id [`TableSchema::next_column_id`]; rows and
    /// files stay as they are, and have `rules.missing` in it. What files call it is said here.
    #[must_use]
    pub fn with_column_added(&self, column: Column, rules: ColumnRules) -> TableSchema {
        let mut wider = self.clone();
        let (at, id) = (self.shown().len(), column.id);
        let is_taken = self.stored_names().contains(&column.name.as_str())
            || self.options.rules.dropped.iter().any(|of| of.stored == column.name);
        // Files that are there have another column by its name.
        let stored = is_taken.then(|| format!("__{id}"));
        // The hidden key of a table without one stays the last.
        wider.key.iter_mut().filter(|part| part.column_idx >= at).for_each(|part| part.column_idx += 1);
        wider.columns.insert(at, column);
        wider.options.rules.columns.push(ColumnRules { id, stored, ..rules });
        wider.options.rules.forget_empty();
        wider
    }

    /// The same table without the column at this place, and without the checks, unique constraints, indexes and foreign
    /// keys that name it. Rows and files stay as they are. What else needs the column is the caller's: it is not in the
    /// key, and no view reads it. Panics for a place beyond the last.
    #[must_use]
    pub fn with_column_dropped(&self, column_idx: usize) -> TableSchema {
        let mut narrower = self.clone();
        let stored = self.stored_names()[column_idx].to_owned();
        let id = narrower.columns.remove(column_idx).id;
        narrower.key.retain(|part| part.column_idx != column_idx);
        narrower.key.iter_mut().filter(|part| part.column_idx > column_idx).for_each(|part| part.column_idx -= 1);
        let rules = &mut narrower.options.rules;
        rules.columns.retain(|of| of.id != id);
        rules.checks.retain(|check| !check.columns.contains(&id));
        rules.uniques.retain(|unique| !unique.columns.contains(&id));
        let names_it = |key: &ForeignKey| {
            key.columns.contains(&id) || (key.parent == ForeignKey::ITSELF && key.parent_columns.contains(&id))
        };
        rules.foreign_keys.retain(|key| !names_it(key));
        rules.dropped.push(DroppedColumn { id, stored });
        let indexing = &mut narrower.options.indexing;
        indexing.bloom.retain(|of| *of != id);
        if let TokenColumns::Some(of) = &mut indexing.tokens {
            of.retain(|of| *of != id);
            if of.is_empty() {
                indexing.tokens = TokenColumns::None;
            }
        }
        narrower
    }

    /// An id that no column has, or had.
    #[must_use]
    pub fn next_column_id(&self) -> ColumnId {
        let dropped = self.options.rules.dropped.iter().map(|of| of.id);
        ColumnId(self.columns.iter().map(|column| column.id).chain(dropped).max().map_or(0, |id| id.0) + 1)
    }

    /// What the column of this id has in rows and files that were stored before it was there; `None`: NULL.
    #[must_use]
    pub fn missing(&self, id: ColumnId) -> Option<&Value> {
        // Asked for each column of each statement: most tables have no rules at all.
        if self.options.rules.is_empty() {
            return None;
        }
        self.options.rules.of(id)?.missing.as_ref()
    }

    /// The column at this place in so many rows of a file that does not have it, in its storage type.
    ///
    /// # Errors
    /// [`Error::MissingColumn`] if there must be a value and none is known.
    pub fn missing_column(&self, column_idx: usize, n_rows: usize) -> Result<ArrayRef> {
        let column = &self.columns[column_idx];
        match self.missing(column.id) {
            Some(value) => value.to_array(&column.data_type, n_rows),
            // In no row, nothing is missing.
            None if column.nullable || n_rows == 0 => Ok(new_null_array(&arrow_type(&column.data_type), n_rows)),
            None => Err(Error::MissingColumn { table: self.name.clone(), column: column.name.clone() }),
        }
    }

    /// What lake files call the columns, in order: the same for as long as a column is there, whatever its name is by
    /// then.
    #[must_use]
    pub fn stored_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
        for rules in &self.options.rules.columns {
            if let Some(stored) = &rules.stored
                && let Some(idx) = self.columns.iter().position(|column| column.id == rules.id)
            {
                names[idx] = stored;
            }
        }
        names
    }

    /// The columns that lake files call otherwise than the table does: each by its name in files, and its own.
    pub fn names_in_files(&self) -> impl Iterator<Item = (&str, &str)> {
        let of_rules = self.options.rules.columns.iter();
        of_rules.filter_map(|rules| Some((rules.stored.as_deref()?, self.column_by_id(rules.id)?.name.as_str())))
    }

    /// Whether a batch of stored rows of the other is one of this one: the same columns in the same places, of the same
    /// types.
    #[must_use]
    pub fn stores_as(&self, other: &TableSchema) -> bool {
        let ids = |of: &TableSchema| of.columns.iter().map(|column| column.id).collect::<Vec<_>>();
        ids(self) == ids(other) && self.arrow() == other.arrow()
    }

    /// Whether rows of the other are rows of this one, column by column: it may have another name, other defaults and
    /// checks.
    #[must_use]
    pub fn has_columns_of(&self, other: &TableSchema) -> bool {
        let is_alike = |(one, two): (&Column, &Column)| {
            (one.id, one.data_type, one.nullable) == (two.id, two.data_type, two.nullable) && one.name == two.name
        };
        self.columns.len() == other.columns.len() && self.columns.iter().zip(&other.columns).all(is_alike)
    }

    /// Whether it is a view: what its query gives.
    #[must_use]
    pub fn is_view(&self) -> bool {
        self.options.view.is_some()
    }

    /// Whether rows have entries in tables of their own: of constraints that they are held to, or of indexes by which
    /// they are found.
    #[must_use]
    pub fn has_indexes(&self) -> bool {
        !self.options.rules.uniques.is_empty()
    }

    /// The columns of `SELECT *`.
    #[must_use]
    pub fn shown(&self) -> &[Column] {
        &self.columns[..self.columns.len() - usize::from(self.is_keyless())]
    }

    /// What is said of the column at this place beside its type; nothing of most.
    #[must_use]
    pub fn rules_of(&self, column_idx: usize) -> Option<&ColumnRules> {
        // Asked for each column of each statement: most tables have no rules at all.
        if self.options.rules.is_empty() {
            return None;
        }
        self.options.rules.of(self.columns.get(column_idx)?.id)
    }

    /// The enumerated type of the column at this place.
    #[must_use]
    pub fn enumerated(&self, column_idx: usize) -> Option<&Enumerated> {
        self.rules_of(column_idx)?.enumerated.as_ref()
    }

    /// Whether the column is a `char(n)`: blanks at the end of a text make no other value of it, and it keeps none.
    #[must_use]
    pub fn is_padded(&self, column_idx: usize) -> bool {
        matches!(self.rules_of(column_idx), Some(ColumnRules { length: Some(Length::Fixed(_)), .. }))
    }

    /// The expression that is the default of the column at this place; constants are [`Column::default`].
    #[must_use]
    pub fn computed_default(&self, column_idx: usize) -> Option<&str> {
        self.rules_of(column_idx)?.default.as_deref()
    }

    /// What the column at this place is computed from.
    #[must_use]
    pub fn generated(&self, column_idx: usize) -> Option<&GeneratedColumn> {
        self.rules_of(column_idx)?.generated.as_ref()
    }

    /// The table as its rows are before their generated columns are computed: these may be NULL.
    ///
    /// Cost: none for a table whose generated columns may be NULL anyway, or that has none.
    #[must_use]
    pub fn before_generated(self: &Arc<Self>) -> Arc<Self> {
        let is_it = |(idx, column): (usize, &Column)| !column.nullable && self.generated(idx).is_some();
        if self.options.rules.is_empty() || !self.columns.iter().enumerate().any(is_it) {
            return Arc::clone(self);
        }
        let mut before = (**self).clone();
        for (idx, column) in before.columns.iter_mut().enumerate() {
            column.nullable |= self.generated(idx).is_some();
        }
        Arc::new(before)
    }

    /// The column of this name and its place. Names compare exactly.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<(usize, &Column)> {
        self.columns.iter().enumerate().find(|(_, column)| column.name == name)
    }

    /// The column of this id.
    #[must_use]
    pub fn column_by_id(&self, id: ColumnId) -> Option<&Column> {
        self.columns.iter().find(|column| column.id == id)
    }

    /// Sets one option from its text in `WITH (name = 'value')`, those that name columns too: `tokens` takes `all`,
    /// `none` or names, `bloom` takes names, with commas between them. The rest is [`TableOptions::set`].
    ///
    /// # Errors
    /// As there; [`Error::UnknownColumn`] for a name that no column has.
    pub fn set_option(&mut self, name: &str, value: &str) -> Result<()> {
        match (name, value.trim()) {
            ("tokens", "all") => self.options.indexing.tokens = TokenColumns::All,
            ("tokens", "none" | "") => self.options.indexing.tokens = TokenColumns::None,
            ("tokens", names) => self.options.indexing.tokens = TokenColumns::Some(self.columns_named(names)?),
            ("bloom", "none" | "") => self.options.indexing.bloom.clear(),
            ("bloom", names) => self.options.indexing.bloom = self.columns_named(names)?,
            _ => self.options.set(name, value)?,
        }
        Ok(())
    }

    /// The ids of `a, "b c"`, each once.
    fn columns_named(&self, names: &str) -> Result<Vec<ColumnId>> {
        let mut ids = Vec::new();
        for name in names.split(',').map(str::trim) {
            let name = name.strip_prefix('"').and_then(|name| name.strip_suffix('"')).unwrap_or(name);
            let unknown = || Error::UnknownColumn { table: self.name.clone(), column: name.to_owned() };
            let (_, column) = self.column(name).ok_or_else(unknown)?;
            if !ids.contains(&column.id) {
                ids.push(column.id);
            }
        }
        Ok(ids)
    }

    /// The columns of the key, most significant first.
    pub fn key_columns(&self) -> impl Iterator<Item = &Column> + '_ {
        self.key.iter().map(|part| &self.columns[part.column_idx])
    }

    /// Are its keys spread by their hash, so that a token stands before them?
    #[must_use]
    pub fn is_hashed(&self) -> bool {
        self.options.partitioning == Partitioning::Hash
    }

    /// The tablets that the table begins with, in the order of their keys.
    pub fn first_tablets(&self) -> impl Iterator<Item = TabletId> + use<> {
        let first = self.first_tablet.0;
        (first..first + self.options.tablets).map(TabletId)
    }

    /// The ids that are the table's, for the tablets it has or will have; none of an archive or a view.
    #[must_use]
    pub fn tablet_ids(&self) -> Range<TabletId> {
        let n = if self.has_rows() { MAX_TABLETS } else { 0 };
        self.first_tablet..TabletId(self.first_tablet.0.saturating_add(n))
    }

    /// Is the column at this place part of the key?
    #[must_use]
    pub fn is_key(&self, column_idx: usize) -> bool {
        self.key.iter().any(|part| part.column_idx == column_idx)
    }

    /// The places of the columns that are not part of the key, in order.
    pub fn value_columns(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.columns.len()).filter(|idx| !self.is_key(*idx))
    }
}

/// The Arrow field of [`SEQNO_COLUMN`].
#[must_use]
pub fn seqno_field() -> Field {
    Field::new(SEQNO_COLUMN, ArrowType::Int64, false)
}

fn check_column(column: &Column) -> Result<(), String> {
    let name = &column.name;
    if name.is_empty() {
        return Err("a column needs a name".to_owned());
    }
    if let DataType::Decimal { precision, scale } = column.data_type
        && (!(1..=MAX_PRECISION).contains(&precision) || !(0..=precision as i8).contains(&scale))
    {
        return Err(format!("column {name} is {}, want 1 to 38 digits", column.data_type));
    }
    match &column.default {
        Some(Value::Null) if !column.nullable => Err(format!("column {name} is NOT NULL with default NULL")),
        Some(value) if !is_of(value, &column.data_type) => {
            Err(format!("column {name}: its default {value:?} is no {}", column.data_type))
        }
        Some(_) | None => Ok(()),
    }
}

/// Whether a value is one of the type as it is, or NULL.
fn is_of(value: &Value, data_type: &DataType) -> bool {
    value.clone().coerce(data_type).is_ok_and(|same| same.cmp_same_type(value).is_eq())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_data::orders;

    #[test]
    fn a_good_table_passes_and_survives_json() {
        let schema = orders();
        schema.validate().unwrap();
        let json = serde_json::to_string(&schema).unwrap();
        assert_eq!(serde_json::from_str::<TableSchema>(&json).unwrap(), schema);
        assert_eq!(schema.arrow_with_seqno().fields().len(), schema.columns.len() + 1);
        assert_eq!(schema.value_columns().collect::<Vec<_>>(), [2, 3, 4]);
    }

    #[test]
    fn a_table_with_nan_for_a_default_is_equal_to_itself() {
        let mut schema = orders();
        (schema.columns[2].data_type, schema.columns[2].default) = (DataType::Float64, Some(Value::Float64(f64::NAN)));
        schema.validate().unwrap();
        assert_eq!(schema, schema.clone());
    }

    #[test]
    fn each_rule_names_what_is_wrong() {
        type Change = fn(&mut TableSchema);
        let refused = |change: Change| {
            let mut schema = orders();
            change(&mut schema);
            schema.validate().unwrap_err().to_string()
        };
        let cases: [(Change, &str); 14] = [
            (|s| s.key.clear(), "needs a primary key"),
            (|s| s.key[1].column_idx = 0, "twice"),
            (|s| s.key[0].column_idx = 9, "column 9 of 5"),
            (|s| s.columns[0].nullable = true, "must be NOT NULL"),
            (|s| s.columns[1].name = "customer".into(), "there twice"),
            (|s| s.n_partition_key = 3, "3 of 2 key columns"),
            (|s| s.columns[2].default = Some(Value::Text("x".into())), "default"),
            (|s| s.options.partition_by = Some("hour(nope)".into()), "no column nope"),
            (|s| s.columns[3].name = "__seqno".into(), "are ours"),
            (
                |s| s.options.indexing.tokens = TokenColumns::Some(vec![ColumnId(1)]),
                "column customer is BIGINT, want TEXT",
            ),
            (|s| s.options.indexing.bloom = vec![ColumnId(99)], "no column with id 99"),
            (|s| s.options.indexing.bloom_chunks = 100, "power of two"),
            (|s| s.options.indexing.bloom_fpp = f64::NAN, "bloom_fpp NaN"),
            (|s| s.options.archive = Some(Archive { url: "s3://b".into(), ..Archive::default() }), "no primary key"),
        ];
        for (change, want) in cases {
            let error = refused(change);
            assert!(error.starts_with("table orders: ") && error.contains(want), "{error}");
        }
    }

    #[test]
    fn an_archive_has_neither_key_nor_tablets() {
        let mut schema = orders();
        let archive = Archive { url: "s3://logs/app".into(), time_column: Some(ColumnId(5)), ..Archive::default() };
        (schema.options.archive, schema.options.tablets) = (Some(archive), 0);
        (schema.key, schema.n_partition_key) = (vec![], 0);
        schema.columns[2].name = "__index_level_0__".into();
        schema.options.indexing.tokens = TokenColumns::All;
        schema.validate().unwrap();
        assert_eq!((schema.first_tablets().count(), schema.value_columns().count()), (0, 5));
        let json = serde_json::to_string(&schema).unwrap();
        assert_eq!(serde_json::from_str::<TableSchema>(&json).unwrap(), schema);
        type Change = fn(&mut TableSchema);
        let cases: [(Change, &str); 4] = [
            (|s| s.options.tablets = 1, "1 tablets"),
            (|s| s.options.archive = Some(Archive::default()), "needs a URL"),
            (|s| s.options.archive.as_mut().unwrap().time_column = Some(ColumnId(4)), "time column note is TEXT"),
            (|s| s.columns[0].name = SEQNO_COLUMN.into(), "are ours"),
        ];
        for (change, want) in cases {
            let mut wrong = schema.clone();
            change(&mut wrong);
            let error = wrong.validate().unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        }
    }

    #[test]
    fn a_view_has_a_query_and_no_rows() {
        let mut schema = orders();
        let columns = schema.columns.iter().map(|column| column.name.clone()).collect();
        let view = View { query: "SELECT * FROM t".into(), columns, reads: [("t".to_owned(), TableId(7))].into() };
        (schema.options.view, schema.options.tablets) = (Some(view), 0);
        (schema.key, schema.n_partition_key) = (vec![], 0);
        schema.validate().unwrap();
        assert!(schema.is_view() && !schema.has_rows() && schema.tablet_ids().is_empty());
        let json = serde_json::to_string(&schema).unwrap();
        assert_eq!(serde_json::from_str::<TableSchema>(&json).unwrap(), schema);
        assert!(!serde_json::to_string(&orders()).unwrap().contains("view"), "tables are written as before");
        type Change = fn(&mut TableSchema);
        let cases: [(Change, &str); 5] = [
            (|s| s.options.view.as_mut().unwrap().query.clear(), "needs a query"),
            (|s| drop(s.columns.pop()), "names 5 of 4 columns"),
            (|s| s.options.tablets = 1, "no tablets"),
            (|s| s.options.home = Some(uuid::Uuid::nil()), "no rows of its own"),
            (|s| s.options.archive = Some(Archive { url: "s3://b".into(), ..Archive::default() }), "no rows"),
        ];
        for (change, want) in cases {
            let mut wrong = schema.clone();
            change(&mut wrong);
            let error = wrong.validate().unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        }
    }

    #[test]
    fn a_column_keeps_its_name_in_files() {
        let schema = orders();
        let renamed = schema.with_column_renamed(3, "text");
        renamed.validate().unwrap();
        assert_eq!((renamed.columns[3].name.as_str(), renamed.stored_names()[3]), ("text", "note"));
        assert_eq!(renamed.names_in_files().collect::<Vec<_>>(), [("note", "text")]);
        assert_eq!(renamed.arrow_in_files(), schema.arrow_with_seqno());
        assert_eq!(renamed.with_column_renamed(3, "note"), schema, "nothing is left of it when it is called so again");
        let json = serde_json::to_string(&renamed).unwrap();
        assert_eq!(serde_json::from_str::<TableSchema>(&json).unwrap(), renamed);
        let mut taken = renamed.clone();
        taken.columns[2].name = "note".into();
        assert!(taken.validate().unwrap_err().to_string().contains("is called \"note\" in files"));
        taken.options.rules.entry(taken.columns[2].id).stored = Some("__3".into());
        taken.validate().unwrap();
    }

    #[test]
    fn a_column_that_is_dropped_leaves_its_id_and_its_name_in_files() {
        let mut schema = orders();
        schema.options.indexing.tokens = TokenColumns::Some(vec![ColumnId(4)]);
        schema.options.rules.checks.push(crate::CheckRule {
            name: "said".into(),
            expr: "note <> ''".into(),
            columns: vec![ColumnId(4)],
        });
        let narrower = schema.with_column_dropped(3).with_column_dropped(3);
        narrower.validate().unwrap();
        assert_eq!((narrower.columns.len(), narrower.next_column_id()), (3, ColumnId(6)));
        assert_eq!(narrower.options.indexing.tokens, TokenColumns::None);
        assert!(narrower.options.rules.checks.is_empty());
        let json = serde_json::to_string(&narrower).unwrap();
        assert_eq!(serde_json::from_str::<TableSchema>(&json).unwrap(), narrower);
        let note = Column { id: ColumnId(6), name: "note".into(), ..schema.columns[3].clone() };
        let rules = ColumnRules { missing: Some(Value::Text("none".into())), ..ColumnRules::default() };
        let again = narrower.with_column_added(note.clone(), rules);
        again.validate().unwrap();
        assert_eq!(again.stored_names(), ["customer", "id", "total", "__6"]);
        assert_eq!(again.missing(ColumnId(6)), Some(&Value::Text("none".into())));
        let column = again.missing_column(3, 2).unwrap();
        assert_eq!(Value::from_arrow(&column, 1, &DataType::Text).unwrap(), Value::Text("none".into()));
        assert!(!again.stores_as(&schema) && again.stores_as(&again.renamed("other")));
        let mut taken = again.clone();
        taken.options.rules.entry(ColumnId(6)).stored = None;
        assert!(taken.validate().unwrap_err().to_string().contains("two columns that are called \"note\""));
        let mut wrong = again.clone();
        wrong.options.rules.entry(ColumnId(6)).missing = Some(Value::Int32(1));
        assert!(wrong.validate().unwrap_err().to_string().contains("in older rows is no TEXT"));
        let mut back = again;
        back.columns[3].id = ColumnId(4);
        back.options.rules.columns.clear();
        assert!(back.validate().unwrap_err().to_string().contains("column id 4 was dropped"));
    }

    #[test]
    fn the_hidden_key_stays_behind_columns_that_come() {
        let mut schema = orders();
        schema.columns.push(Column {
            id: ColumnId(6),
            name: ROW_COLUMN.into(),
            data_type: DataType::Bytes,
            nullable: false,
            default: None,
        });
        (schema.key, schema.n_partition_key) = (vec![KeyPart { column_idx: 5, descending: false }], 1);
        schema.validate().unwrap();
        let more = Column { id: schema.next_column_id(), name: "more".into(), ..schema.columns[3].clone() };
        let wider = schema.with_column_added(more, ColumnRules::default());
        wider.validate().unwrap();
        assert_eq!((wider.columns[5].id, wider.key[0].column_idx), (ColumnId(7), 6));
        let narrower = wider.with_column_dropped(0);
        narrower.validate().unwrap();
        assert_eq!(narrower.key[0].column_idx, 5);
    }

    #[test]
    fn options_find_columns_by_name() {
        let mut schema = orders();
        schema.columns[3].name = "the note".into();
        schema.set_option("bloom", "id, \"the note\", id").unwrap();
        assert_eq!(schema.options.indexing.bloom, [ColumnId(2), ColumnId(4)]);
        schema.set_option("tokens", "all").unwrap();
        assert_eq!(schema.options.indexing.tokens, TokenColumns::All);
        assert!(schema.options.indexing.any());
        schema.set_option("tokens", "none").unwrap();
        schema.set_option("bloom", "").unwrap();
        assert!(!schema.options.indexing.any());
        let error = schema.set_option("tokens", "nope").unwrap_err().to_string();
        assert_eq!(error, "table orders has no column nope");
    }
}
