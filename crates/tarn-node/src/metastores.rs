//! Where is the metastore, and how is it reached?
//!
//! The setting `metastore` is `embedded`, or the URL of a database; the command line also takes folders. Here a place
//! becomes a store; each backend is one arm of [`open`].
//!
//! A data folder and its metastore belong together (`together.rs`). The folder remembers where its metastore is, so
//! that a start with another one can say what it was before. A start without the folder `meta` (not mounted, forgotten
//! when the rest was restored) is refused, too: an empty one is made only in a new data folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use tarn_metastore::{Embedded, Metastore, Remote};
use tarn_metastore_cql::Cql;
use tarn_metastore_postgres::Postgres;
use tarn_types::Clock;
use tokio::runtime::Handle;

use crate::error::{Error, ErrorKind, Result};
use crate::folder::io_error;
use crate::settings::NodeSettings;
use crate::small_file::replace;

/// The value of the setting that stands for the folder `meta` of the data folder.
pub const EMBEDDED: &str = "embedded";

/// Where the data folder keeps the place of its metastore.
const MARK: &str = "METASTORE";

/// What is said of every place that cannot be understood.
const WANT: &str = "want `embedded`, postgres://user@host/database, or cql://host/keyspace";

/// Where a metastore is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetastoreLocation {
    /// A folder of this machine.
    Folder(PathBuf),
    /// A server.
    Server(Remote),
}

impl MetastoreLocation {
    /// As the setting has it.
    ///
    /// Errors: neither `embedded` nor a URL.
    pub fn of(settings: &NodeSettings) -> Result<MetastoreLocation, tarn_metastore::Error> {
        match settings.metastore.as_str() {
            EMBEDDED => Ok(MetastoreLocation::Folder(settings.data_dir.join("meta"))),
            url if url.contains("://") => Ok(MetastoreLocation::server(url, settings)),
            other => Err(tarn_metastore::Error::Address { reason: format!("`{other}`: {WANT}") }),
        }
    }

    /// As one types it: a URL, or else a folder.
    pub fn typed(text: &str, settings: &NodeSettings) -> MetastoreLocation {
        match text.contains("://") {
            true => MetastoreLocation::server(text, settings),
            false => MetastoreLocation::Folder(PathBuf::from(text)),
        }
    }

    fn server(url: &str, settings: &NodeSettings) -> MetastoreLocation {
        MetastoreLocation::Server(Remote {
            url: url.to_owned(),
            timeout_ms: settings.metastore_timeout_ms,
            concurrency: settings.metastore_concurrency,
            hedge_ms: settings.metastore_hedge_ms,
        })
    }

    /// As it may be shown: without a password.
    pub fn shown(&self) -> String {
        match self {
            MetastoreLocation::Folder(dir) => dir.display().to_string(),
            MetastoreLocation::Server(remote) => remote.shown(),
        }
    }
}

/// The value of the setting `metastore` as it may be shown.
pub fn shown(value: &str) -> String {
    if value.contains("://") { Remote::new(value).shown() } else { value.to_owned() }
}

/// Opens or makes the metastore there. `runtime` drives connections for as long as the store lives.
///
/// Errors: the folder is damaged or held by another process; the server is away, or its layout is another one; no
/// backend has such URLs.
pub fn open<'a>(
    location: &'a MetastoreLocation,
    clock: Arc<dyn Clock>,
    runtime: &'a Handle,
) -> BoxFuture<'a, Result<Arc<dyn Metastore>, tarn_metastore::Error>> {
    connect(location, clock, runtime).boxed()
}

async fn connect(
    location: &MetastoreLocation,
    clock: Arc<dyn Clock>,
    runtime: &Handle,
) -> Result<Arc<dyn Metastore>, tarn_metastore::Error> {
    match location {
        MetastoreLocation::Folder(dir) => {
            let (metastore, recovery) = Embedded::open(dir, clock)?;
            tracing::info!(?recovery, "metastore opened");
            Ok(Arc::new(metastore))
        }
        MetastoreLocation::Server(remote) if is_postgres(remote) => {
            Ok(Arc::new(Postgres::connect(remote, clock, runtime).await?))
        }
        MetastoreLocation::Server(remote) if is_cql(remote) => {
            Ok(Arc::new(Cql::connect(remote, clock, runtime).await?))
        }
        MetastoreLocation::Server(remote) => Err(no_backend(remote)),
    }
}

/// Brings the tables of a server to the layout of this build, step by step while others use them; `report` hears of
/// each step.
///
/// Errors: as for [`open`]. What is done stays done: it goes on when it is called again.
pub fn migrate<'a>(
    location: &'a MetastoreLocation,
    runtime: &'a Handle,
    report: &'a (dyn Fn(&str) + Sync),
) -> BoxFuture<'a, Result<(), tarn_metastore::Error>> {
    bring_up_to_date(location, runtime, report).boxed()
}

async fn bring_up_to_date(
    location: &MetastoreLocation,
    runtime: &Handle,
    report: &(dyn Fn(&str) + Sync),
) -> Result<(), tarn_metastore::Error> {
    match location {
        MetastoreLocation::Folder(dir) => {
            report(&format!(
                "{}: a folder is brought up to date when a server opens it; nothing was done",
                dir.display()
            ));
            Ok(())
        }
        MetastoreLocation::Server(remote) if is_postgres(remote) => {
            Postgres::migrate(remote, runtime, report).await.map(drop)
        }
        MetastoreLocation::Server(remote) if is_cql(remote) => Cql::migrate(remote, runtime, report).await.map(drop),
        MetastoreLocation::Server(remote) => Err(no_backend(remote)),
    }
}

fn is_postgres(remote: &Remote) -> bool {
    remote.url.starts_with("postgres://") || remote.url.starts_with("postgresql://")
}

fn is_cql(remote: &Remote) -> bool {
    remote.url.starts_with("cql://")
}

fn no_backend(remote: &Remote) -> tarn_metastore::Error {
    tarn_metastore::Error::Address { reason: format!("`{}`: no backend has such URLs; {WANT}", remote.shown()) }
}

/// Whether an embedded metastore would be made now that is not there. To be asked before anything is made in the data
/// folder.
///
/// Errors: `WrongState` when the folder was served with one, and has a log or rows.
pub fn begins(settings: &NodeSettings) -> Result<bool> {
    let dir = &settings.data_dir;
    if settings.metastore != EMBEDDED || holds_metastore(&dir.join("meta"))? {
        return Ok(false);
    }
    match marked(dir)?.as_deref() {
        // Whether that is a move is told by the tablets.
        Some(before) if before != EMBEDDED => Ok(false),
        Some(_) if holds_any(&dir.join("log"))? || holds_any(&dir.join("rows"))? => Err(refuse_loss(settings)),
        _ => Ok(true),
    }
}

/// What a start without the metastore that the data folder's rows belong to is told.
pub fn refuse_loss(settings: &NodeSettings) -> Error {
    let dir = &settings.data_dir;
    let message = format!(
        "the data folder {} has a log and rows, and there is no metastore in {}: without it they belong to no table",
        dir.display(),
        dir.join("meta").display()
    );
    Error::new(ErrorKind::WrongState, message).with_hint(format!(
        "put `meta` back (is it mounted? was it restored?); nothing was changed. To begin anew, move `log` and `rows` away, and the lake \
         {}",
        settings.lake_location()
    ))
}

fn holds_metastore(meta: &Path) -> Result<bool> {
    Ok(names(meta)?.iter().any(|name| name.ends_with(".tarn")))
}

fn holds_any(dir: &Path) -> Result<bool> {
    Ok(!names(dir)?.is_empty())
}

/// None when there is no such folder.
fn names(dir: &Path) -> Result<Vec<String>> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.and_then(Iterator::collect::<std::io::Result<Vec<_>>>),
    };
    let entries = entries.map_err(|error| io_error("list", dir, &error))?;
    Ok(entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
}

/// Where the metastore was when the folder was last served.
fn marked(dir: &Path) -> Result<Option<String>> {
    let path = dir.join(MARK);
    match std::fs::read_to_string(&path) {
        Ok(before) => Ok(Some(before.trim_end().to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error("read", &path, &error)),
    }
}

/// Whether the data folder was last served with its metastore elsewhere, and where that was.
///
/// Errors: the folder cannot be read.
pub fn moved_from(settings: &NodeSettings) -> Result<Option<String>> {
    let dir = &settings.data_dir;
    // Folders of older builds had no other.
    let before = marked(dir)?.or_else(|| dir.join("meta").is_dir().then(|| EMBEDDED.to_owned()));
    Ok(before.filter(|before| *before != shown(&settings.metastore)))
}

/// Remembers where the metastore is: all that is in the data folder is known there.
///
/// Errors: the folder cannot be written.
pub fn remember(settings: &NodeSettings) -> Result<()> {
    let path = settings.data_dir.join(MARK);
    let text = format!("{}\n", shown(&settings.metastore));
    if std::fs::read_to_string(&path).is_ok_and(|before| before == text) {
        return Ok(());
    }
    replace(&path, text.as_bytes()).map_err(|error| io_error("write", &path, &error))
}

/// What a start with another metastore, that does not know `n_tablets` of the folder's tablets, is told.
pub fn refuse_move(before: &str, settings: &NodeSettings, n_tablets: usize) -> Error {
    let from = match before {
        EMBEDDED => settings.data_dir.join("meta").display().to_string(),
        url => url.to_owned(),
    };
    let message = format!(
        "the data folder {} has rows of {n_tablets} tablets that the metastore `{}` does not know; it was last served with `{before}`",
        settings.data_dir.display(),
        shown(&settings.metastore)
    );
    Error::new(ErrorKind::WrongState, message).with_hint(format!(
        "copy it first (`tarn metastore copy --from {from} --to …`), or set `metastore` to what it was"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_folder_or_a_server_and_hides_its_password() {
        let mut settings = NodeSettings { data_dir: "/data".into(), ..NodeSettings::default() };
        assert_eq!(MetastoreLocation::of(&settings).unwrap(), MetastoreLocation::Folder("/data/meta".into()));
        settings.metastore = "postgres://me:secret@h/db".into();
        settings.metastore_timeout_ms = 7;
        let location = MetastoreLocation::of(&settings).unwrap();
        assert!(
            matches!(&location, MetastoreLocation::Server(remote) if remote.timeout_ms == 7 && remote.concurrency == 64)
        );
        assert_eq!(
            (location.shown().as_str(), shown(&settings.metastore).as_str()),
            ("postgres://me@h/db", "postgres://me@h/db")
        );
        assert!(!format!("{location:?}").contains("secret"));
        settings.metastore = "sqlite".into();
        assert_eq!(
            MetastoreLocation::of(&settings).unwrap_err().to_string(),
            "setting `metastore`: `sqlite`: want `embedded`, postgres://user@host/database, or cql://host/keyspace"
        );
        assert_eq!(MetastoreLocation::typed("./meta", &settings), MetastoreLocation::Folder("./meta".into()));
    }

    #[test]
    fn a_folder_remembers_its_metastore() {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = NodeSettings { data_dir: dir.path().into(), ..NodeSettings::default() };
        assert_eq!(moved_from(&settings).unwrap(), None, "a new folder");
        std::fs::create_dir(dir.path().join("meta")).unwrap();
        assert_eq!(moved_from(&settings).unwrap(), None);
        settings.metastore = "postgres://me:secret@h/db".into();
        assert_eq!(moved_from(&settings).unwrap().as_deref(), Some("embedded"), "of an older build");
        remember(&settings).unwrap();
        assert_eq!(moved_from(&settings).unwrap(), None);
        settings.metastore = "postgres://me:other@h/db".into();
        assert_eq!(moved_from(&settings).unwrap(), None, "a new password is no move");
        assert!(!std::fs::read_to_string(dir.path().join(MARK)).unwrap().contains("secret"));
        settings.metastore = EMBEDDED.into();
        let before = moved_from(&settings).unwrap().unwrap();
        let refused = refuse_move(&before, &settings, 3);
        assert!(
            refused.message().contains("3 tablets") && refused.message().contains("postgres://me@h/db"),
            "{refused}"
        );
    }
}
