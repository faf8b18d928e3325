//! Whose buckets are known, and who are we to them?
//!
//! All is said by the server's environment, in the variables that other tools of these clouds take; crate
//! `object_store` lists the rest:
//!
//! | | who we are | where it is |
//! |---|---|---|
//! | `s3://` | `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`; `AWS_SKIP_SIGNATURE` (a public bucket) | `AWS_REGION`, `AWS_ENDPOINT_URL` (any server that speaks S3) |
//! | `gs://` | `GOOGLE_SERVICE_ACCOUNT` or `GOOGLE_APPLICATION_CREDENTIALS` (files); `GOOGLE_SKIP_SIGNATURE` | `GOOGLE_BASE_URL` |
//! | `az://` | `AZURE_STORAGE_ACCOUNT_NAME` with `AZURE_STORAGE_ACCOUNT_KEY` or `AZURE_STORAGE_SAS_TOKEN`, or `AZURE_CLIENT_ID` with its secret and tenant; `AZURE_SKIP_SIGNATURE` | `AZURE_STORAGE_ENDPOINT`, `AZURE_STORAGE_USE_EMULATOR` |

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::{ClientConfigKey, ObjectStore, RetryConfig};

use super::etags::QuotedEtags;

/// Who gives credentials to machines in a cloud: one address in all of them.
const METADATA_SERVICE: &str = "169.254.169.254:80";
const METADATA_PATIENCE: Duration = Duration::from_secs(1);

/// A request is tried so often before the store counts as away.
const MAX_RETRIES: usize = 3;
const RETRY_PATIENCE: Duration = Duration::from_secs(30);

/// Google's tools leave these below the home folder when somebody logs in.
const GOOGLE_LOGIN: &str = ".config/gcloud/application_default_credentials.json";

/// Whose protocol a bucket speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cloud {
    /// Amazon's, which many others speak.
    S3,
    /// Google Cloud Storage.
    Google,
    /// Azure Blob Storage.
    Azure,
}

impl fmt::Display for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cloud::S3 => "S3",
            Cloud::Google => "Google Cloud Storage",
            Cloud::Azure => "Azure Blob Storage",
        })
    }
}

impl Cloud {
    /// By the scheme of a URL.
    pub fn of(scheme: &str) -> Option<Cloud> {
        match scheme {
            "s3" | "s3a" => Some(Cloud::S3),
            "gs" => Some(Cloud::Google),
            "az" | "azure" => Some(Cloud::Azure),
            _ => None,
        }
    }

    /// As URLs begin.
    pub fn scheme(self) -> &'static str {
        match self {
            Cloud::S3 => "s3",
            Cloud::Google => "gs",
            Cloud::Azure => "az",
        }
    }

    /// Which variables the server must be started with.
    pub fn credentials(self) -> &'static str {
        match self {
            Cloud::S3 => {
                "start the server with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (AWS_REGION, AWS_ENDPOINT_URL), or with \
                 AWS_SKIP_SIGNATURE=true if the bucket is public"
            }
            Cloud::Google => {
                "start the server with GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT (a JSON file), or with \
                 GOOGLE_SKIP_SIGNATURE=true if the bucket is public"
            }
            Cloud::Azure => {
                "start the server with AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY (AZURE_STORAGE_ENDPOINT), or with \
                 AZURE_SKIP_SIGNATURE=true if the container is public"
            }
        }
    }

    /// What to look at when it does not answer.
    pub fn remedy(self) -> &'static str {
        if !self.knows_us() {
            return self.credentials();
        }
        match self {
            Cloud::S3 => {
                "see that it can be reached, and that the server was started with the right AWS_ENDPOINT_URL, AWS_REGION, \
                 AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            }
            Cloud::Google => {
                "see that it can be reached, and that the server was started with the right GOOGLE_APPLICATION_CREDENTIALS \
                 (GOOGLE_BASE_URL)"
            }
            Cloud::Azure => {
                "see that it can be reached, and that the server was started with the right AZURE_STORAGE_ACCOUNT_NAME, \
                 AZURE_STORAGE_ACCOUNT_KEY and AZURE_STORAGE_ENDPOINT"
            }
        }
    }

    /// Whether the environment says who we are, or the machine itself can. Waits up to a second for that.
    pub async fn has_credentials(self) -> bool {
        if self.knows_us() {
            return true;
        }
        let asked = tokio::net::TcpStream::connect(METADATA_SERVICE);
        matches!(tokio::time::timeout(METADATA_PATIENCE, asked).await, Ok(Ok(_)))
    }

    /// Whether the environment says who we are, or where to ask for it.
    fn knows_us(self) -> bool {
        let variables: &[&str] = match self {
            Cloud::S3 => &[
                "AWS_ACCESS_KEY_ID",
                "AWS_SKIP_SIGNATURE",
                "AWS_WEB_IDENTITY_TOKEN_FILE",
                "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                "AWS_METADATA_ENDPOINT",
            ],
            Cloud::Google => &[
                "GOOGLE_SERVICE_ACCOUNT",
                "GOOGLE_SERVICE_ACCOUNT_PATH",
                "GOOGLE_SERVICE_ACCOUNT_KEY",
                "SERVICE_ACCOUNT",
                "GOOGLE_APPLICATION_CREDENTIALS",
                "GOOGLE_SKIP_SIGNATURE",
                "GCE_METADATA_HOST",
                "GCE_METADATA_ROOT",
                "GCE_METADATA_IP",
            ],
            Cloud::Azure => &[
                "AZURE_STORAGE_ACCOUNT_KEY",
                "AZURE_STORAGE_ACCESS_KEY",
                "AZURE_STORAGE_MASTER_KEY",
                "AZURE_STORAGE_SAS_KEY",
                "AZURE_STORAGE_SAS_TOKEN",
                "AZURE_STORAGE_TOKEN",
                "AZURE_CLIENT_ID",
                "AZURE_STORAGE_CLIENT_ID",
                "AZURE_FEDERATED_TOKEN_FILE",
                "AZURE_SKIP_SIGNATURE",
                "AZURE_STORAGE_USE_EMULATOR",
                "AZURE_USE_AZURE_CLI",
                "IDENTITY_ENDPOINT",
                "AZURE_IDENTITY_ENDPOINT",
                "AZURE_MSI_ENDPOINT",
            ],
        };
        let has_login = || std::env::var_os("HOME").is_some_and(|home| Path::new(&home).join(GOOGLE_LOGIN).is_file());
        variables.iter().any(|variable| std::env::var_os(variable).is_some()) || (self == Cloud::Google && has_login())
    }

    /// A client of a whole bucket. Nothing is asked of it.
    pub fn open(self, bucket: &str) -> object_store::Result<Arc<dyn ObjectStore>> {
        let retry = RetryConfig { max_retries: MAX_RETRIES, retry_timeout: RETRY_PATIENCE, ..RetryConfig::default() };
        let allow_http = ClientConfigKey::AllowHttp;
        let is_plain = |endpoint: Option<String>| endpoint.is_some_and(|endpoint| endpoint.starts_with("http:"));
        Ok(match self {
            Cloud::S3 => {
                let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retry);
                if is_plain(builder.get_config_value(&AmazonS3ConfigKey::Endpoint)) {
                    builder = builder.with_config(AmazonS3ConfigKey::Client(allow_http), "true");
                }
                Arc::new(QuotedEtags(builder.build()?))
            }
            Cloud::Google => {
                let builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket).with_retry(retry);
                Arc::new(QuotedEtags(builder.build()?))
            }
            Cloud::Azure => {
                let mut builder = MicrosoftAzureBuilder::from_env().with_container_name(bucket).with_retry(retry);
                if is_plain(builder.get_config_value(&AzureConfigKey::Endpoint)) {
                    builder = builder.with_config(AzureConfigKey::Client(allow_http), "true");
                }
                Arc::new(QuotedEtags(builder.build()?))
            }
        })
    }
}
