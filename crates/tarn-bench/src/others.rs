//! The other side that is a library: DataFusion in this process, on the same files, as it comes.

use anyhow::{Context, Result};
use datafusion::execution::context::{SessionConfig, SessionContext};
use datafusion::prelude::ParquetReadOptions;
use object_store::aws::AmazonS3Builder;
use std::sync::Arc;
use std::time::Instant;

use crate::far_store::{CREDENTIALS, REGION};
use crate::logs::BUCKET;
use crate::report::ms_since;

/// An engine with its defaults, but for what the bench says.
pub struct DataFusion {
    session: SessionContext,
}

impl DataFusion {
    /// A table `logs` over a folder, or over what a store has under `s3://BUCKET/`. Filters are evaluated while files
    /// are read, filters' blooms and page indexes used: the defaults, and what makes it quicker.
    pub async fn start(url: &str, endpoint: Option<&str>) -> Result<Self> {
        let mut config = SessionConfig::new();
        let parquet = &mut config.options_mut().execution.parquet;
        parquet.pushdown_filters = true;
        parquet.bloom_filter_on_read = true;
        let session = SessionContext::new_with_config(config);
        if let Some(endpoint) = endpoint {
            let store = AmazonS3Builder::new()
                .with_endpoint(endpoint)
                .with_allow_http(true)
                .with_region(REGION)
                .with_bucket_name(BUCKET)
                .with_access_key_id(CREDENTIALS.0)
                .with_secret_access_key(CREDENTIALS.1)
                .build()?;
            let base = format!("s3://{BUCKET}").parse().context("the bucket's URL")?;
            session.register_object_store(&base, Arc::new(store));
        }
        session.register_parquet("logs", url, ParquetReadOptions::default()).await?;
        Ok(Self { session })
    }

    /// Milliseconds until all rows are here, and how many they are.
    pub async fn time(&self, sql: &str) -> Result<(f64, usize)> {
        let started = Instant::now();
        let rows = self.session.sql(sql).await?.collect().await?;
        Ok((ms_since(started), rows.iter().map(|batch| batch.num_rows()).sum()))
    }
}
