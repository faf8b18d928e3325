//! Which rows of files are read by their addresses? Those that the row engine has no more.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::datasource::physical_plan::FileGroup;
use datafusion::datasource::source::DataSourceExec;
use roaring::RoaringBitmap;
use tarn_metastore::VersionSelector;
use tarn_types::{Address, FileId};

use crate::files::rows_at;
use crate::lake_source::{files_config, opened};
use crate::opening::Opener;
use crate::spec::ScanSpec;
use crate::{Error, Result};

/// Rows of files, by file.
#[derive(Debug, Default)]
pub(crate) struct Addresses(BTreeMap<FileId, RoaringBitmap>);

impl Addresses {
    pub(crate) fn add(&mut self, address: Address) {
        self.0.entry(address.file).or_default().insert(address.row);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many rows.
    pub(crate) fn len(&self) -> usize {
        self.0.values().map(|rows| rows.len() as usize).sum()
    }

    /// The place of a row among those that a reader gives.
    pub(crate) fn place(&self, address: Address) -> usize {
        let before = self.0.range(..address.file).map(|(_, rows)| rows.len()).sum::<u64>();
        (before + self.0.get(&address.file).map_or(0, |rows| rows.rank(address.row)) - 1) as usize
    }

    /// What gives these rows of the version of a scan, in one partition: by file, and within it from its beginning.
    /// `full` is the SQL schema of all columns of the scan.
    ///
    /// Errors: `Corrupt` for a row that the version does not have.
    pub(crate) async fn reader(
        &self,
        opener: &Opener,
        spec: &Arc<ScanSpec>,
        full: &SchemaRef,
    ) -> Result<DataSourceExec> {
        let table = &spec.table;
        let lake = opener.version(table, VersionSelector::Version(spec.version)).await?;
        let corrupt =
            |what: String| Error::Corrupt { what: format!("address of a row of {} names {what}", table.name) };
        let mut pieces = vec![];
        for (id, rows) in &self.0 {
            let gone = || corrupt(format!("file {id}, which version {} does not have", lake.version));
            let file = lake.file(*id).ok_or_else(gone)?;
            let beyond = || corrupt(format!("row {:?} of {}, which has {}", rows.max(), file.path, file.n_rows));
            pieces.push(rows_at(file, rows)?.ok_or_else(beyond)?);
        }
        let config = files_config(spec, full, vec![FileGroup::new(pieces)], None, false)?;
        let config = opened(&config, opener.open(spec)?.as_ref())?;
        Ok(DataSourceExec::new(Arc::new(config)))
    }
}
