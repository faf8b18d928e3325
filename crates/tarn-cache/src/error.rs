//! What can go wrong when something is fetched through a cache.

use tarn_metastore::Damage;
use tarn_types::Kind;

/// Result of a fetch through a cache.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A fetch through a cache that gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bytes are not a Parquet footer, or reading them failed.
    #[error("read footer of {path}: {source}")]
    Footer {
        /// Object key of the file.
        path: String,
        /// What the Parquet reader said.
        source: parquet::errors::ParquetError,
    },
    /// A file of an archive is no longer the one that was attached.
    #[error("{path} changed since it was attached; CALL tarn.attach('{table}')")]
    Changed {
        /// Table name.
        table: String,
        /// Object key in the archive.
        path: String,
    },
    /// A file of an archive that was attached is no longer there.
    #[error("{path} is gone; CALL tarn.attach('{table}')")]
    Gone {
        /// Table name.
        table: String,
        /// Object key in the archive.
        path: String,
    },
    /// Bytes of a file are not those that were written. Other blocks of it can be read.
    #[error("{path} is damaged: {damage} ({place})")]
    Damaged {
        /// Object key.
        path: String,
        /// Blocks and columns.
        place: String,
        /// Which bytes.
        damage: Damage,
    },
    /// A file of the lake is longer or shorter than it was.
    #[error("lake file {path} has not the {committed_bytes} bytes that were committed")]
    Length {
        /// Object key.
        path: String,
        /// What the metastore says.
        committed_bytes: u64,
    },
    /// The folder for pages cannot be used: no rights, no disk, or another process has it.
    #[error("use {} for pages: {source}", folder.display())]
    Folder {
        /// The folder.
        folder: std::path::PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Error {
    /// What the caller can do.
    pub fn kind(&self) -> Kind {
        use parquet::errors::ParquetError;
        match self {
            Error::Footer { source: ParquetError::External(cause), .. } => {
                match cause.downcast_ref::<object_store::Error>() {
                    Some(object_store::Error::NotFound { .. }) => Kind::NotFound,
                    _ => Kind::Unavailable,
                }
            }
            Error::Footer { .. } | Error::Damaged { .. } | Error::Length { .. } => Kind::Corrupt,
            Error::Changed { .. } | Error::Gone { .. } => Kind::Conflict,
            Error::Folder { .. } => Kind::Unavailable,
        }
    }
}
