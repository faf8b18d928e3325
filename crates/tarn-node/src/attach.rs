//! What is asked for when an archive is to become a table?

use tarn_types::{Archive, TableSchema};

use crate::error::{Error, ErrorKind, Result};

/// A table that is to be attached.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AttachRequest {
    /// Of a folder or bucket, as it was written.
    pub url: String,
    /// Of the table.
    pub name: String,
    /// Parts of a path that say the hour: `dt=…/hr=…`.
    pub hour_from: Option<String>,
    /// The column by whose values hours are told; `None`: chosen, when files have been seen.
    pub time_column: Option<String>,
    /// Between two passes; `None`: it is looked at once.
    pub follow_ms: Option<u64>,
    /// Files read at once; `None`: as many as is usual.
    pub concurrency: Option<u32>,
    /// Whether to read every file whole, so that later reads can be checked.
    pub checksums: bool,
    /// `tokens`, `bloom` and how large blooms are, as text: columns are known only when files have been seen.
    pub indexing: Vec<(String, String)>,
}

impl AttachRequest {
    /// What is known before a file was seen; `url` is where it is, however it was written.
    pub fn archive(&self, url: String) -> Archive {
        Archive {
            url,
            hour_from: self.hour_from.clone(),
            time_column: None,
            follow_ms: self.follow_ms,
            concurrency: self.concurrency,
            checksums: self.checksums,
            attached: false,
        }
    }

    /// The table, once its columns are known.
    ///
    /// Errors: `NoColumn` for a column that no file looked at has, `Definition` for one that cannot be used so.
    pub fn table(&self, mut surveyed: TableSchema) -> Result<TableSchema> {
        if let Some(name) = &self.time_column {
            let found = surveyed.column(name).map(|(_, column)| column.id);
            let id = found.ok_or_else(|| Error::no_column(&self.name, name).with_hint(columns(&surveyed)))?;
            if let Some(archive) = &mut surveyed.options.archive {
                archive.time_column = Some(id);
            }
        }
        for (name, value) in &self.indexing {
            surveyed.set_option(name, value).map_err(|error| match &error {
                tarn_types::Error::UnknownColumn { column, .. } => {
                    Error::no_column(&self.name, column).with_hint(columns(&surveyed))
                }
                _ => Error::from(error),
            })?;
        }
        surveyed.validate().map_err(|error| Error::new(ErrorKind::Definition, error.to_string()))?;
        Ok(surveyed)
    }
}

/// The first of them, for whoever named another.
fn columns(surveyed: &TableSchema) -> String {
    let names: Vec<&str> = surveyed.columns.iter().take(20).map(|column| column.name.as_str()).collect();
    let more = if surveyed.columns.len() > names.len() { ", …" } else { "" };
    format!("columns of the files looked at: {}{more}", names.join(", "))
}
