//! Which columns has an archive? What its first, its last and some files between have in common, by their footers.
//!
//! Later files may bring more columns and wider types: the pass takes them in then.

use std::collections::BTreeSet;

use futures::{StreamExt, TryStreamExt};

use tarn_types::{Archive, Column, DataType, TableId, TableOptions, TableSchema, TabletId};

use super::columns::ForeignFile;
use super::hour::HourFrom;
use super::list::Object;
use super::merge::MergedColumns;
use super::pass::Attach;
use super::read::{ListedObject, columns};
use crate::{Error, Result};

/// Files looked at.
const LOOKED_AT: usize = 32;

/// What an archive looks like.
#[derive(Debug, Clone, PartialEq)]
pub struct ArchiveSurvey {
    /// A table for it, to be created in the metastore: no key, no tablets, every column may be NULL. Ids are numbers of
    /// the moment.
    pub schema: TableSchema,
    /// Parquet files there are.
    pub listed: u64,
    /// Of which so many were looked at.
    pub looked_at: u64,
    /// Files looked at that will not be in the table, and why.
    pub skipped: Vec<(String, String)>,
    /// What of the others will not be, each said once.
    pub notes: Vec<String>,
}

impl Attach {
    /// The table that the first, the last and some files between have in common. Reads their footers only: about as
    /// many requests as files, up to 32.
    ///
    /// The time column is the archive's, else the first timestamp.
    ///
    /// # Errors
    /// `Invalid` when `hour_from` says nothing, of any file, `NotFound` when there is no file that can be read.
    pub async fn survey(&self, name: &str, archive: &Archive) -> Result<ArchiveSurvey> {
        let hour_from = match &archive.hour_from {
            Some(text) => Some((text, HourFrom::parse(text).ok_or_else(|| Error::HourFrom { text: text.clone() })?)),
            None => None,
        };
        let objects = self.list().await?;
        let listed = objects.len() as u64;
        if let (Some((text, hour_from)), Some(first)) = (hour_from, objects.first())
            && objects.iter().all(|object| hour_from.hour(object.path.as_ref()).is_none())
        {
            return Err(Error::NoHour { text: text.clone(), listed, path: first.path.to_string() });
        }
        let chosen = spread(objects, LOOKED_AT);
        let looked_at = chosen.len() as u64;
        let looks = futures::stream::iter(chosen).map(|object| {
            let (path, source) = (object.path.to_string(), ListedObject::new(self.store.clone(), object));
            async move { columns(&source).await.map(|looked| (path, looked)) }
        });
        let looks: Vec<(String, Result<ForeignFile, String>)> =
            looks.buffered(self.concurrency.max(1)).try_collect().await?;

        let (mut merged, mut skipped, mut notes) = (MergedColumns::none(), Vec::new(), Vec::new());
        for (path, looked) in looks {
            let taken = looked.and_then(|file| merged.take(&file.columns).map(|()| file.note));
            match taken {
                Ok(note) if note.is_empty() || notes.contains(&note) => {}
                Ok(note) => notes.push(note),
                Err(reason) => skipped.push((path, reason)),
            }
        }
        let columns = merged.into_columns();
        if columns.is_empty() {
            let reason = match skipped.first() {
                Some((path, reason)) => format!("of {listed} files, {path}: {reason}"),
                None if listed == 0 => "no file there ends in .parquet".to_owned(),
                None => format!("{listed} files without a column that a table can hold"),
            };
            return Err(Error::NothingToAttach { url: archive.url.clone(), reason });
        }
        Ok(ArchiveSurvey { schema: table(name, archive, columns), listed, looked_at, skipped, notes })
    }
}

fn table(name: &str, archive: &Archive, columns: Vec<Column>) -> TableSchema {
    let is_time = |column: &&Column| matches!(column.data_type, DataType::Timestamp | DataType::TimestampTz);
    let first_time = columns.iter().find(is_time).map(|column| column.id);
    let archive = Archive { time_column: archive.time_column.or(first_time), ..archive.clone() };
    TableSchema {
        id: TableId(0),
        name: name.to_owned(),
        columns,
        key: Vec::new(),
        n_partition_key: 0,
        first_tablet: TabletId(0),
        options: TableOptions { tablets: 0, archive: Some(archive), ..TableOptions::default() },
    }
}

/// The first, the last, and others at even distances.
fn spread(objects: Vec<Object>, n: usize) -> Vec<Object> {
    let last = objects.len().saturating_sub(1);
    let wanted: BTreeSet<usize> = (0..n).map(|nth| nth * last / (n - 1).max(1)).collect();
    objects.into_iter().enumerate().filter(|(idx, _)| wanted.contains(idx)).map(|(_, object)| object).collect()
}
