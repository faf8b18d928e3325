//! How is a connection to the server encrypted?
//!
//! With rustls and ring, by the certificate chain and key of the settings `tls_cert` and `tls_key` (PEM). The files are
//! read at start, and again when they were changed: the next connection gets the new certificate. Files that cannot be
//! read then are told in the log, and the old certificate stays in use.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use serde::Serialize;
use tarn_types::settings::{ParseResult, optional_path};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, version};

/// A certificate that cannot be used. The message names the files; the remedy is to set `tls_cert` and `tls_key` to PEM
/// files of a certificate chain and its key, or `tls = off`.
#[derive(Debug, thiserror::Error)]
#[error("TLS: {0}")]
pub struct Error(String);

type Result<T, E = Error> = std::result::Result<T, E>;

/// Which connections are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TlsMode {
    /// None.
    Off,
    /// Those of clients that ask for it, when there is a certificate.
    On,
    /// All: others are refused.
    Required,
}

fn mode(value: &str) -> ParseResult<TlsMode> {
    match value {
        "off" | "false" => Ok(TlsMode::Off),
        "on" | "true" => Ok(TlsMode::On),
        "required" => Ok(TlsMode::Required),
        _ => Err("off, on or required"),
    }
}

tarn_types::settings! {
    /// How connections are encrypted.
    pub struct TlsSettings {
        tls: TlsMode = "on", mode, "encrypted connections: off = none; on = whoever asks, once tls_cert and tls_key are set; required = plain ones are refused";
        tls_cert: Option<PathBuf> = "", optional_path, "PEM file of the certificate chain, the server's first; read again when it changes";
        tls_key: Option<PathBuf> = "", optional_path, "PEM file of its private key";
    }
}

/// What a client of each port says it speaks, if it says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// ALPN `postgresql`.
    Postgres,
    /// ALPN `http/1.1`.
    Http,
}

/// The certificate in use. Shared by all connections of a server.
pub struct Tls {
    cert: PathBuf,
    key: PathBuf,
    is_required: bool,
    loaded: Mutex<TlsAcceptors>,
}

struct TlsAcceptors {
    postgres: TlsAcceptor,
    http: TlsAcceptor,
    /// When the files were changed last, certificate and key.
    changed: [Option<SystemTime>; 2],
}

impl Tls {
    /// As the settings say. None: plain connections only.
    ///
    /// Errors: one file without the other; a file that cannot be read, or does not go with the other.
    pub fn open(settings: &TlsSettings) -> Result<Option<Arc<Tls>>> {
        let is_required = settings.tls == TlsMode::Required;
        let (cert, key) = match (&settings.tls_cert, &settings.tls_key, settings.tls) {
            (_, _, TlsMode::Off) | (None, None, TlsMode::On) => return Ok(None),
            (Some(cert), Some(key), _) => (cert.clone(), key.clone()),
            (None, None, TlsMode::Required) => return Err(misconfigured("tls = required needs a certificate")),
            _ => return Err(misconfigured("tls_cert and tls_key go together: one is missing")),
        };
        let loaded = Mutex::new(load(&cert, &key)?);
        Ok(Some(Arc::new(Tls { cert, key, is_required, loaded })))
    }

    /// Whether plain connections are refused.
    pub fn is_required(&self) -> bool {
        self.is_required
    }

    /// For the next connection, by the files as they are now. Costs two looks at the file system.
    pub fn acceptor(&self, protocol: Protocol) -> TlsAcceptor {
        let mut loaded = self.loaded.lock();
        if changed(&self.cert, &self.key) != loaded.changed {
            match load(&self.cert, &self.key) {
                Ok(new) => {
                    tracing::info!(cert = %self.cert.display(), "the certificate was read again");
                    *loaded = new;
                }
                Err(error) => {
                    tracing::warn!(%error, "the old certificate stays in use");
                    // Told once for each change.
                    loaded.changed = changed(&self.cert, &self.key);
                }
            }
        }
        match protocol {
            Protocol::Postgres => loaded.postgres.clone(),
            Protocol::Http => loaded.http.clone(),
        }
    }
}

fn changed(cert: &Path, key: &Path) -> [Option<SystemTime>; 2] {
    [cert, key].map(|path| std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok())
}

fn load(cert: &Path, key: &Path) -> Result<TlsAcceptors> {
    // First: a change while they are read is seen the next time.
    let changed = changed(cert, key);
    let unreadable = |path: &Path, what: &str, error: &dyn std::fmt::Display| {
        misconfigured(&format!("read {what} from {}: {error}", path.display()))
    };
    let chain = CertificateDer::pem_file_iter(cert).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| unreadable(cert, "the certificates", &error))?;
    if chain.is_empty() {
        return Err(unreadable(cert, "the certificates", &"there is no CERTIFICATE in it"));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, "the private key", &error))?;
    let config = |protocol: &[u8]| -> Result<TlsAcceptor> {
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])
            .map_err(|error| misconfigured(&error.to_string()))?;
        let mut config =
            builder.with_no_client_auth().with_single_cert(chain.clone(), private.clone_key()).map_err(|error| {
                misconfigured(&format!("{} does not go with {}: {error}", key.display(), cert.display()))
            })?;
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    };
    Ok(TlsAcceptors { postgres: config(b"postgresql")?, http: config(b"http/1.1")?, changed })
}

fn misconfigured(what: &str) -> Error {
    Error(what.to_owned())
}
