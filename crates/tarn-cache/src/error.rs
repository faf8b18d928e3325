//! What can go wrong when something is fetched through a cache.

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
            Error::Footer { .. } => Kind::Corrupt,
            Error::Folder { .. } => Kind::Unavailable,
        }
    }
}
