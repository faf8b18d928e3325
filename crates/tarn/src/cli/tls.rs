//! How does the command line reach a server that encrypts? As libpq does: `sslmode` and `sslrootcert`, with rustls
//! underneath.
//!
//! | sslmode | encrypted | the server's certificate |
//! |---|---|---|
//! | `disable` | no | – |
//! | `prefer` | if the server can | not looked at, unless `sslrootcert` is given |
//! | `require` | yes | not looked at, unless `sslrootcert` is given: then as `verify-ca` |
//! | `verify-ca` | yes | must come from `sslrootcert` |
//! | `verify-full` | yes | and must be that of the host |

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::SslMode as Wanted;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::client::TlsStream as Encrypted;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme, version,
};
use tokio_rustls::{Connect, TlsConnector};

/// As libpq spells them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "kebab-case")]
pub enum SslMode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

impl SslMode {
    /// What is asked of the server before the handshake.
    pub fn wanted(self) -> Wanted {
        match self {
            SslMode::Disable => Wanted::Disable,
            SslMode::Prefer => Wanted::Prefer,
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => Wanted::Require,
        }
    }
}

/// Makes connections encrypted.
#[derive(Clone)]
pub struct Connector {
    tls: TlsConnector,
    /// Whether a server took it: with `prefer` it need not
    is_used: Arc<AtomicBool>,
}

impl Connector {
    /// Errors: the file of root certificates cannot be read, or is missing.
    pub fn new(mode: SslMode, root_cert: Option<&Path>) -> Result<Connector> {
        let provider = Arc::new(default_provider());
        let roots = root_cert.map(|path| roots(path, &provider)).transpose()?;
        let needs_roots = matches!(mode, SslMode::VerifyCa | SslMode::VerifyFull);
        ensure!(roots.is_some() || !needs_roots, "this sslmode needs --sslrootcert FILE, the certificates to trust");
        let checks = Checks { roots, is_host_checked: mode == SslMode::VerifyFull, provider: Arc::clone(&provider) };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])
            .context("TLS")?;
        let mut config = builder.dangerous().with_custom_certificate_verifier(Arc::new(checks)).with_no_client_auth();
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        Ok(Connector { tls: TlsConnector::from(Arc::new(config)), is_used: Arc::default() })
    }

    /// Whether a connection was encrypted.
    pub fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }
}

fn roots(path: &Path, provider: &Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>> {
    let read = || format!("read the root certificates from {}", path.display());
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).with_context(read)? {
        store.add(certificate.with_context(read)?).with_context(read)?;
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider)).build().with_context(read)
}

/// What is asked of a server's certificate.
#[derive(Debug)]
struct Checks {
    /// None: nothing.
    roots: Option<Arc<WebPkiServerVerifier>>,
    is_host_checked: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Checks {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(roots) = &self.roots else { return Ok(ServerCertVerified::assertion()) };
        match roots.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The name is looked at last: the rest was right.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.is_host_checked => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Connector {
    type Stream = Stream<S>;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, domain: &str) -> io::Result<Handshake> {
        let name = ServerName::try_from(domain.to_owned()).map_err(io::Error::other)?;
        Ok(Handshake { connector: self.clone(), name })
    }
}

/// One connection that is to be encrypted.
pub struct Handshake {
    connector: Connector,
    name: ServerName<'static>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Handshake {
    type Stream = Stream<S>;
    type Error = io::Error;
    type Future = TlsHandshake<S>;

    fn connect(self, stream: S) -> TlsHandshake<S> {
        self.connector.is_used.store(true, Ordering::Relaxed);
        TlsHandshake(self.connector.tls.connect(self.name, stream))
    }
}

/// A handshake that is being made.
pub struct TlsHandshake<S>(Connect<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> Future for TlsHandshake<S> {
    type Output = io::Result<Stream<S>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map_ok(|stream| Stream(Box::new(stream)))
    }
}

/// An encrypted connection.
pub struct Stream<S>(Box<Encrypted<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Stream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
