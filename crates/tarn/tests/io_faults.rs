//! Does a server whose disk fails live, lose nothing, refuse cleanly, and serve again by itself?
//!
//! A round: the shipped binary runs below `tests/hostile/faultio.c`; a writer inserts rows and remembers what became of
//! each; for a while, calls of one kind on one folder fail; then they work again. Whatever failed: the process lives
//! and answers reads; `/readyz` says what does not work while it does not, and is well afterwards, without a restart;
//! rows that were acknowledged are there, rows that were refused are not, now and after kill -9.
//!
//! `TARN_FAULT_ROUNDS=all` takes every combination, `TARN_SOAK_SECONDS` repeats them with changing odds.

mod child;

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, version};

use crate::child::ChildServer;

const EIO: i32 = 5;
const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;

const PLACES: [&str; 3] = ["/rows/", "/log/", "/meta/"];
const OPERATIONS: [&str; 4] = ["write", "sync", "open", "rename"];

/// Servers at once.
const AT_ONCE: usize = 3;
/// How long faults last at most if nothing comes of them.
const FAULT: Duration = Duration::from_secs(4);
const ENOUGH_FIRED: u64 = 4;
/// A server that is not well after so long is not healed.
const PATIENCE: Duration = Duration::from_secs(90);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy)]
struct IoFault {
    place: &'static str,
    operation: &'static str,
    error: i32,
    one_in: u32,
    /// Is it certain that it strikes, and shows in `/readyz`?
    shows: bool,
}

const fn fault(place: &'static str, operation: &'static str, error: i32) -> IoFault {
    IoFault { place, operation, error, one_in: 1, shows: true }
}

/// What is known to have broken a server.
const KNOWN: [IoFault; 7] = [
    fault("/rows/", "sync", EIO),
    fault("/rows/", "open", EMFILE),
    fault("/rows/", "write", ENOSPC),
    fault("/rows/db/MANIFEST", "sync", EIO),
    fault("/meta/", "sync", EIO),
    fault("/meta/", "write", ENOSPC),
    fault("/log/", "write", EIO),
];

#[test]
fn a_server_whose_disk_fails_for_a_while_loses_nothing_and_serves_again_by_itself() -> Result<()> {
    let all = std::env::var("TARN_FAULT_ROUNDS").is_ok_and(|rounds| rounds == "all");
    let soak: Option<u64> = std::env::var("TARN_SOAK_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let started = Instant::now();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut odds = 1;
    loop {
        let faults: Vec<IoFault> = if all || soak.is_some() { every_fault(odds) } else { KNOWN.to_vec() };
        runtime.block_on(run_all(faults))?;
        odds = odds % 7 + 1;
        if soak.is_none_or(|seconds| started.elapsed() >= Duration::from_secs(seconds)) {
            return Ok(());
        }
    }
}

/// A failed flush of the log leaves what was written in doubt; a folder that cannot be synced leaves memtables that
/// RocksDB flushes no more. Both are ended by opening the data folder anew, inside of the process.
#[test]
fn a_data_folder_is_opened_anew_after_a_fault_that_nothing_else_ends() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run_all(vec![fault("/log/", "sync", EIO), fault("/rows/db$", "sync", EIO)]))
}

/// While a data folder was opened anew, HTTP was answered in clear where encryption is required, without places and
/// time limits, and Postgres clients before they could encrypt.
#[test]
fn a_server_that_is_opening_its_data_folder_keeps_to_encryption_places_and_time_limits() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let folder = tempfile::tempdir()?;
    let control = folder.path().join("faults");
    std::fs::write(&control, "")?;
    let variables = variables(&control)?;
    let (cert, key) = (certificate("server.pem"), certificate("server.key"));
    let mut arguments = ARGUMENTS.to_vec();
    arguments.extend(["--tls", "required", "--tls-cert", &cert, "--tls-key", &key]);
    arguments.extend(["--http-timeout-ms", "1s", "--authentication-timeout-ms", "1s", "--http-max-connections", "4"]);
    let server = runtime.block_on(ChildServer::start(folder.path(), &arguments, &borrowed(&variables)))?;
    let http = server.http.context("HTTP is on")?;
    let postgres = SocketAddr::from(([127, 0, 0, 1], server.port));
    let sql = |text: &str| https(http, "POST /v1/sql", "localhost", &format!("{{\"sql\": \"{text}\"}}"));
    let (status, said) = sql("CREATE TABLE t (id bigint PRIMARY KEY, v text)")?;
    ensure!(status == 200, "{said}");

    // The log fails once, which nothing but a new opening ends; and that fails for as long as the row engine's folder
    // does.
    std::fs::write(&control, format!("/log/ sync {EIO} 1 1\n/rows/db$ sync {EIO} 1 0\n"))?;
    let (status, said) = sql("INSERT INTO t VALUES (1, 'x')")?;
    ensure!(status != 200, "{said}");
    let began = Instant::now();
    // A connection that comes while the folder is being closed may be cut.
    let why = || https(http, "GET /readyz", "localhost", "").map_or_else(|error| error.to_string(), |(_, body)| body);
    while !why().contains("opening the data folder: open the row engine") {
        ensure!(began.elapsed() < PATIENCE, "the data folder is not opened anew: {}", why());
        std::thread::sleep(PAUSE);
    }

    let (status, said) = https(http, "GET /readyz", "localhost", "")?;
    ensure!(status == 503 && said.starts_with("not ready: "), "{status} {said}");
    ensure!(https(http, "GET /livez", "localhost", "")?.0 == 200, "the process lives");
    let (status, said) = sql("SELECT 1")?;
    ensure!(status == 503 && said.contains("57P03"), "{status} {said}");
    let (status, said) = https(http, "POST /v1/sql", "elsewhere.example", "{}")?;
    ensure!(status == 403, "another host: {status} {said}");
    let (status, _) = exchange(&mut connected(http)?, "GET /readyz", "localhost", "")?;
    ensure!(status == 426, "in clear: {status}");

    // More than there are places for: who waits longest is closed; of the rest, who says nothing is.
    let mut silent: Vec<TcpStream> = (0..20).map(|_| connected(http)).collect::<Result<_>>()?;
    ensure!(https(http, "GET /readyz", "localhost", "")?.0 == 503, "silent clients keep nobody out");
    for stream in &mut silent {
        // Or a reset.
        let rest = stream.read_to_end(&mut Vec::new());
        ensure!(!matches!(&rest, Err(error) if is_timeout(error)), "a silent client is kept");
    }

    let startup = b"\0\0\0\x1b\0\x03\0\0user\0me\0database\0\0\0";
    let mut clear = connected(postgres)?;
    clear.write_all(startup)?;
    let said = all(&mut clear);
    ensure!(said.contains("C28000"), "in clear: {said:?}");
    let mut encrypted = connected(postgres)?;
    encrypted.write_all(b"\0\0\0\x08\x04\xd2\x16\x2f")?;
    let mut answer = [0];
    encrypted.read_exact(&mut answer)?;
    ensure!(answer == *b"S", "it encrypts: {answer:?}");
    let mut encrypted = encryption(encrypted, b"postgresql")?;
    encrypted.write_all(startup)?;
    let said = all(&mut encrypted);
    ensure!(said.contains("C57P03"), "encrypted: {said:?}");
    let mut silent: Vec<TcpStream> = (0..200).map(|_| connected(postgres)).collect::<Result<_>>()?;
    for stream in &mut silent {
        let rest = stream.read_to_end(&mut Vec::new());
        ensure!(!matches!(&rest, Err(error) if is_timeout(error)), "a silent client is kept");
    }

    std::fs::write(&control, "")?;
    let over = Instant::now();
    while !matches!(https(http, "GET /readyz", "localhost", ""), Ok((200, _))) {
        ensure!(over.elapsed() < PATIENCE, "not well again");
        std::thread::sleep(PAUSE);
    }
    let (status, said) = sql("SELECT count(*) FROM t")?;
    ensure!(status == 200, "{said}");
    server.stop()
}

fn certificate(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/certificates").join(name).display().to_string()
}

/// Gives up after [`PATIENCE`].
fn connected(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// What comes until the end, however that is.
fn all(stream: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn encryption(stream: TcpStream, protocol: &[u8]) -> Result<StreamOwned<ClientConnection, TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate("ca.pem"))?)?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(StreamOwned::new(ClientConnection::new(Arc::new(config), "localhost".try_into()?)?, stream))
}

/// Status and body of one request over TLS.
fn https(address: SocketAddr, request: &str, host: &str, body: &str) -> Result<(u16, String)> {
    exchange(&mut encryption(connected(address)?, b"http/1.1")?, request, host, body)
}

fn exchange(stream: &mut (impl Read + Write), request: &str, host: &str, body: &str) -> Result<(u16, String)> {
    let n_bytes = body.len();
    let head = format!(
        "{request} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {n_bytes}\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes())?;
    stream.flush()?;
    let text = all(stream);
    let (head, body) = text.split_once("\r\n\r\n").with_context(|| format!("no answer to {request}: {text:?}"))?;
    Ok((head.split_whitespace().nth(1).context("a status")?.parse()?, body.to_owned()))
}

/// SIGTERM with a delivery of a table of 100,000 columns was not done after a minute.
#[test]
fn a_stop_does_not_wait_for_a_delivery_that_hangs() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let folder = tempfile::tempdir()?;
        let control = folder.path().join("faults");
        std::fs::write(&control, "/lake/ write -1 1 0\n")?;
        let variables = variables(&control)?;
        let server = ChildServer::start(folder.path(), &ARGUMENTS, &borrowed(&variables)).await?;
        let client = server.connect().await?;
        client.batch_execute("CREATE TABLE t (id bigint PRIMARY KEY) WITH (delivery = '50 ms')").await?;
        client.batch_execute("INSERT INTO t VALUES (1), (2)").await?;
        let began = Instant::now();
        while n_fired(&control) == 0 {
            ensure!(began.elapsed() < PATIENCE, "no delivery began");
            tokio::time::sleep(PAUSE).await;
        }
        server.ask_to_stop();
        let asked = Instant::now();
        while !server.has_ended() {
            ensure!(asked.elapsed() < PATIENCE, "the server waits for the delivery");
            tokio::time::sleep(PAUSE).await;
        }
        server.stop().context("as an operator wants it")?;
        std::fs::write(&control, "")?;
        let server = ChildServer::start(folder.path(), &ARGUMENTS, &borrowed(&variables)).await?;
        ensure!(count(&server).await? == 2, "rows of the delivery that was left");
        Ok(())
    })
}

fn every_fault(one_in: u32) -> Vec<IoFault> {
    let mut faults = Vec::new();
    for place in PLACES {
        for operation in OPERATIONS {
            for error in [EIO, ENOSPC, EMFILE] {
                faults.push(IoFault { place, operation, error, one_in, shows: false });
            }
        }
        faults.push(IoFault { place, operation: "read", error: EIO, one_in: 50, shows: false });
    }
    faults
}

async fn run_all(faults: Vec<IoFault>) -> Result<()> {
    futures::stream::iter(faults)
        .map(|fault| async move { round(fault).await.with_context(|| format!("{fault:?}")) })
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<()>>()
        .await
        .map(drop)
}

/// The compiled library.
fn faultio() -> Result<&'static Path> {
    static PATH: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let build = || {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/hostile/faultio.c");
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("faultio-{}.so", std::process::id()));
        let status = std::process::Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&path, &source])
            .arg("-ldl")
            .status()
            .map_err(|error| format!("cc: {error}"))?;
        if status.success() { Ok(path) } else { Err(format!("cc {}: {status}", source.display())) }
    };
    PATH.get_or_init(build).as_deref().map_err(|error| anyhow::anyhow!("{error}"))
}

fn variables(control: &Path) -> Result<[(&'static str, String); 2]> {
    Ok([("LD_PRELOAD", faultio()?.display().to_string()), ("FAULTIO", control.display().to_string())])
}

fn borrowed<'a>(variables: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    variables.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

/// How often a call was made to fail, rounded down to a power of two.
fn n_fired(control: &Path) -> u64 {
    let told = std::fs::read_to_string(control.with_extension("fired")).unwrap_or_default();
    told.trim().strip_prefix("fired ").and_then(|n| n.parse().ok()).unwrap_or_default()
}

/// What became of rows, by id.
#[derive(Default)]
struct Outcomes {
    acknowledged: Mutex<BTreeSet<i64>>,
    refused: Mutex<BTreeSet<i64>>,
    /// Errors, with how often each state came.
    states: Mutex<std::collections::BTreeMap<String, u64>>,
    n_acknowledged: AtomicUsize,
    stop: AtomicBool,
}

const ARGUMENTS: [&str; 16] = [
    "--http-listen",
    "127.0.0.1:0",
    "--log-segment-bytes",
    "1MiB",
    "--log-flush-bytes",
    "16KiB",
    "--rows-memory-bytes",
    "8MiB",
    "--background-interval-ms",
    "100ms",
    "--shutdown-ms",
    "3s",
    "--reserve-bytes",
    "1MiB",
    "--log",
    "info",
];

async fn round(fault: IoFault) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let done = round_in(folder.path(), fault).await;
    done.with_context(|| {
        let log = std::fs::read_to_string(folder.path().join("server.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    })
}

async fn round_in(folder: &Path, fault: IoFault) -> Result<()> {
    let control = folder.join("faults");
    std::fs::write(&control, "")?;
    let variables = [("LD_PRELOAD", faultio()?.display().to_string()), ("FAULTIO", control.display().to_string())];
    let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let server = Arc::new(ChildServer::start(folder, &ARGUMENTS, &variables).await?);
    let http = server.http.context("HTTP is on")?;
    let client = server.connect().await?;
    client.batch_execute("CREATE TABLE t (id bigint PRIMARY KEY, v text) WITH (delivery = '200 ms')").await?;
    drop(client);

    let outcomes = Arc::new(Outcomes::default());
    let writer = tokio::spawn(write(server.clone(), outcomes.clone()));
    acknowledge_more(&outcomes, 30).await?;

    std::fs::write(&control, format!("{} {} {} {} 0\n", fault.place, fault.operation, fault.error, fault.one_in))?;
    let began = Instant::now();
    let mut not_ready = None;
    // Until it shows, and has struck again: the server has tried in vain.
    while !server.has_ended() && began.elapsed() < FAULT && (not_ready.is_none() || n_fired(&control) < ENOUGH_FIRED) {
        tokio::time::sleep(PAUSE).await;
        let answer = get(http, "/readyz").await.ok().filter(|(status, _)| *status == 503).map(|(_, body)| body);
        not_ready = answer.or(not_ready);
        ensure!(get(http, "/livez").await.is_ok() || not_ready.is_some() || !fault.shows, "the server does not answer");
    }
    let fired = n_fired(&control);
    if fault.shows {
        ensure!(fired > 0, "the fault never struck");
        let why = not_ready.as_deref().context("/readyz is well during the fault")?;
        ensure!(why.starts_with("not ready: ") && why.len() > 20, "no reason: {why:?}");
    }
    // Reads go on, but where files can be written and the folder cannot be opened all the same.
    if fault.shows && !fault.place.ends_with('$') {
        count(&server).await.context("reads go on")?;
    }

    std::fs::write(&control, "")?;
    let over = Instant::now();
    let well = || async { matches!(get(http, "/readyz").await, Ok((200, _))) };
    while !well().await {
        ensure!(!server.has_ended(), "the server has ended");
        if over.elapsed() > PATIENCE {
            let why = get(http, "/readyz").await;
            anyhow::bail!("not well again: {why:?}");
        }
        tokio::time::sleep(PAUSE).await;
    }
    let healed_in = over.elapsed();
    acknowledge_more(&outcomes, 30).await.context("writes go on")?;
    outcomes.stop.store(true, Ordering::SeqCst);
    writer.await??;
    let client = server.connect().await?;
    // What nobody noticed yet is healed at the next turn.
    for statement in ["CREATE TABLE IF NOT EXISTS later (id bigint PRIMARY KEY)", "CALL tarn.deliver('t')"] {
        while let Err(error) = client.batch_execute(statement).await {
            ensure!(over.elapsed() < PATIENCE, "{statement}: {error:?}");
            tokio::time::sleep(PAUSE).await;
        }
    }
    check(&server, &outcomes).await.context("healed")?;
    eprintln!(
        "{fault:?}: fired {fired} times or more, healed in {healed_in:?}, {} acknowledged, {} refused, {:?}; {}",
        outcomes.acknowledged.lock().len(),
        outcomes.refused.lock().len(),
        outcomes.states.lock(),
        not_ready.unwrap_or_default().trim(),
    );

    server.kill();
    server.wait();
    let server = ChildServer::start(folder, &ARGUMENTS, &variables).await.context("the next start")?;
    check(&server, &outcomes).await.context("after kill -9")
}

/// Inserts one row after the other, each once.
async fn write(server: Arc<ChildServer>, outcomes: Arc<Outcomes>) -> Result<()> {
    let text = "x".repeat(400);
    let mut client = None;
    let mut id = 0;
    while !outcomes.stop.load(Ordering::SeqCst) {
        if client.is_none() {
            ensure!(!server.has_ended(), "the server has ended");
            client = server.connect().await.ok();
        }
        let Some(connected) = &client else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        id += 1;
        match connected.batch_execute(&format!("INSERT INTO t VALUES ({id}, '{text}')")).await {
            Ok(()) => {
                outcomes.acknowledged.lock().insert(id);
                outcomes.n_acknowledged.fetch_add(1, Ordering::SeqCst);
            }
            Err(error) => {
                let state = error.code().map(|state| state.code().to_owned());
                // Nobody knows of a row whose connection broke, or of which the server says so.
                let is_unknown = state.as_deref().is_none_or(|state| ["40003", "57P01"].contains(&state));
                if !is_unknown {
                    outcomes.refused.lock().insert(id);
                }
                *outcomes.states.lock().entry(state.unwrap_or_else(|| "connection".to_owned())).or_default() += 1;
                if connected.is_closed() {
                    client = None;
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    Ok(())
}

async fn acknowledge_more(outcomes: &Outcomes, n: usize) -> Result<()> {
    let wanted = outcomes.n_acknowledged.load(Ordering::SeqCst) + n;
    let began = Instant::now();
    while outcomes.n_acknowledged.load(Ordering::SeqCst) < wanted {
        ensure!(began.elapsed() < PATIENCE, "no writes are acknowledged: {:?}", outcomes.states.lock());
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

async fn count(server: &ChildServer) -> Result<i64> {
    let client = server.connect().await?;
    Ok(client.query_one("SELECT count(*) FROM t", &[]).await?.get(0))
}

async fn check(server: &ChildServer, outcomes: &Outcomes) -> Result<()> {
    let client = server.connect().await?;
    for path in ["auto", "rows", "lake"] {
        client.batch_execute(&format!("SET tarn.access_path = '{path}'")).await?;
        let rows = client.query("SELECT id FROM t", &[]).await?;
        let n_rows = rows.len();
        let found: BTreeSet<i64> = rows.iter().map(|row| row.get(0)).collect();
        ensure!(found.len() == n_rows, "{path}: rows are there twice");
        let lost: Vec<i64> = outcomes.acknowledged.lock().difference(&found).copied().collect();
        ensure!(lost.is_empty(), "{path}: acknowledged rows are lost: {lost:?}");
        let refused: Vec<i64> = outcomes.refused.lock().intersection(&found).copied().collect();
        ensure!(refused.is_empty(), "{path}: refused rows are there: {refused:?}");
    }
    Ok(())
}

/// Status and body.
async fn get(address: SocketAddr, path: &'static str) -> Result<(u16, String)> {
    tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let (head, body) = text.split_once("\r\n\r\n").context("an HTTP answer")?;
        let status = head.split_whitespace().nth(1).context("a status")?.parse()?;
        Ok((status, body.to_owned()))
    })
    .await?
}
