//! What do the reader and the writer of lake files agree on, besides docs/formats/lake.md?

/// What is written in the metadata of each file under [`FORMAT_KEY`].
pub(crate) const FORMAT_VERSION: &str = "1";
pub(crate) const FORMAT_KEY: &str = "tarn.format";

/// Rows of one batch: what a reader decodes at once.
pub(crate) const BATCH_ROWS: usize = 8192;
