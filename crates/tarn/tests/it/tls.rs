//! Encrypted connections: who gets one, who is refused, and what is wrong with certificates.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tarn::server::start;
use tarn::settings::{TlsMode, TlsSettings};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, version};

use crate::harness::{Server, settings_with};

fn certificate(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/certificates").join(name)
}

async fn server(mode: TlsMode, name: &str) -> Server {
    let (cert, key) = (certificate(&format!("{name}.pem")), certificate(&format!("{name}.key")));
    Server::start_with(|settings| {
        settings.tls = TlsSettings { tls: mode, tls_cert: Some(cert), tls_key: Some(key) };
    })
    .await
}

/// `tarn sql` with these flags: whether it worked, and all that it said.
async fn sql(server: &Server, flags: &[&str], password: &str) -> (bool, String) {
    let port = server.running.pg.port().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tarn"));
    command.args(["sql", "--port", &port, "-c", "SELECT 'it ' || 'works'"]).args(flags).env("TARN_PASSWORD", password);
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let said = [done.stdout, done.stderr].concat();
    (done.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// The whole answer to `GET /livez` over TLS, by who trusts the tests' certificates.
async fn https(server: &Server) -> String {
    let address = server.running.http.unwrap();
    tokio::task::spawn_blocking(move || {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(certificate("ca.pem")).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connection = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
        let mut stream = StreamOwned::new(connection, TcpStream::connect(address).unwrap());
        stream.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    })
    .await
    .unwrap()
}

async fn plain_http(server: &Server) -> String {
    let address = server.running.http.unwrap();
    tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_is_encrypted_and_told_who_the_server_is() {
    let server = server(TlsMode::On, "server").await;
    server.client().await.batch_execute("CREATE USER tarn SUPERUSER PASSWORD 'p'").await.unwrap();
    let ca = certificate("ca.pem").display().to_string();
    let stranger = certificate("other.pem").display().to_string();
    for good in [
        vec!["--sslmode", "disable"],
        vec!["--sslmode", "prefer"],
        vec!["--sslmode", "require"],
        vec!["--sslmode", "verify-ca", "--sslrootcert", &ca],
        vec!["--sslmode", "verify-full", "--sslrootcert", &ca],
        vec!["--sslmode", "verify-full", "--sslrootcert", &ca, "--host", "localhost"],
    ] {
        let (works, said) = sql(&server, &good, "p").await;
        assert!(works && said.contains("it works"), "{good:?}: {said}");
    }
    for bad in [
        vec!["--sslmode", "verify-full"],
        vec!["--sslmode", "verify-full", "--sslrootcert", &stranger],
        vec!["--sslmode", "require", "--sslrootcert", &stranger],
        vec!["--sslmode", "verify-ca", "--sslrootcert", "/nowhere.pem"],
    ] {
        let (works, said) = sql(&server, &bad, "p").await;
        assert!(!works && !said.contains("it works"), "{bad:?}: {said}");
    }
    let (works, said) = sql(&server, &["--sslmode", "require"], "wrong").await;
    assert!(!works && said.contains("28P01"), "{said}");
    assert!(https(&server).await.ends_with("ok\n"));
    assert!(plain_http(&server).await.ends_with("ok\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_another_name_is_known_by_its_authority_alone() {
    let server = server(TlsMode::On, "other").await;
    let ca = certificate("ca.pem").display().to_string();
    for (mode, good) in [("require", true), ("verify-ca", true), ("verify-full", false)] {
        let (works, said) = sql(&server, &["--sslmode", mode, "--sslrootcert", &ca], "").await;
        assert_eq!(works, good, "{mode}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_connections_are_refused_where_encryption_is_required() {
    let server = server(TlsMode::Required, "server").await;
    let (works, said) = sql(&server, &["--sslmode", "disable"], "").await;
    assert!(!works && said.contains("28000") && said.contains("sslmode=require"), "{said}");
    let (works, said) = sql(&server, &["--sslmode", "require"], "").await;
    assert!(works, "{said}");
    let refused = plain_http(&server).await;
    assert!(refused.starts_with("HTTP/1.1 426 ") && !refused.contains("\r\n\r\nok"), "{refused}");
    assert!(https(&server).await.ends_with("ok\n"));
}

/// As CVE-2021-23214: bytes in clear behind the request for encryption would be taken for the client's, who never sent
/// them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_came_in_clear_is_not_taken_for_encrypted() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let server = server(TlsMode::On, "server").await;
    let mut socket = tokio::net::TcpStream::connect(server.running.pg).await.unwrap();
    let mut sent = vec![0, 0, 0, 8];
    sent.extend(80_877_103_u32.to_be_bytes());
    let startup = b"\0\x03\0\0user\0tarn\0\0";
    sent.extend((startup.len() as u32 + 4).to_be_bytes());
    sent.extend(startup);
    socket.write_all(&sent).await.unwrap();
    let mut first = [0; 1];
    if socket.read(&mut first).await.is_ok_and(|n| n == 0) {
        // The connection is closed before anything is encrypted.
        return;
    }
    assert_eq!(&first, b"S");
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate("ca.pem")).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let mut answer = Vec::new();
    if let Ok(mut encrypted) = connector.connect("localhost".try_into().unwrap(), socket).await {
        let _ = encrypted.read_to_end(&mut answer).await;
    }
    assert!(answer.is_empty(), "the message in clear was answered: {answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_certificate_is_read_again_and_a_broken_one_is_not_used() {
    let files = tempfile::tempdir().unwrap();
    let (cert, key) = (files.path().join("c.pem"), files.path().join("c.key"));
    let put = |name: &str| {
        fs::copy(certificate(&format!("{name}.key")), &key).unwrap();
        fs::copy(certificate(&format!("{name}.pem")), &cert).unwrap();
    };
    put("other");
    let server = Server::start_with(|settings| {
        (settings.tls.tls_cert, settings.tls.tls_key) = (Some(cert.clone()), Some(key.clone()));
    })
    .await;
    let ca = certificate("ca.pem").display().to_string();
    let full = ["--sslmode", "verify-full", "--sslrootcert", &ca];
    assert!(!sql(&server, &full, "").await.0);
    put("server");
    assert!(sql(&server, &full, "").await.0);
    fs::write(&cert, "nothing").unwrap();
    assert!(sql(&server, &full, "").await.0, "the old one stays in use");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_cannot_be_used_is_told_at_start() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty.pem");
    fs::write(&empty, "").unwrap();
    let (good, key) = (Some(certificate("server.pem")), Some(certificate("server.key")));
    for (mode, cert, key, want) in [
        (TlsMode::On, good.clone(), None, "one is missing"),
        (TlsMode::On, None, key.clone(), "one is missing"),
        (TlsMode::Required, None, None, "needs a certificate"),
        (TlsMode::On, Some("/nowhere.pem".into()), key.clone(), "/nowhere.pem"),
        (TlsMode::On, good.clone(), Some("/nowhere.key".into()), "/nowhere.key"),
        (TlsMode::On, Some(empty), key, "CERTIFICATE"),
        (TlsMode::On, good, Some(certificate("other.key")), "does not go with"),
    ] {
        let tls = TlsSettings { tls: mode, tls_cert: cert, tls_key: key };
        let settings = settings_with(dir.path(), |settings| settings.tls = tls);
        let error = start(settings).await.err().unwrap();
        assert!(error.message().contains(want), "{want}: {error}");
        assert!(error.hint().unwrap().contains("tls_cert"), "{error}");
    }
}
