//! What can be seen in SQL of clients and what they run? `tarn.queries`, for superusers, and Postgres'
//! `pg_stat_activity`, in which everybody sees what is their own.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use parking_lot::Mutex;
use tarn_node::auth::Principal;
use tarn_node::auth::authorize::is_superuser;
use tarn_node::node::Node;
use tarn_query::{Error, SystemTables};

use crate::activity::{Activity, BackendActivity, Status};
use crate::catalog_names::PG_TABLES;
use crate::cursors::book::Book;
use crate::cursors::table::pg_cursors;
use crate::names::DATABASE;
use crate::session::vars::Vars;
use crate::system::{System, SystemCell, SystemRows, int, text};
use crate::temporary::Temporary;

impl System {
    /// The statements that run, the oldest first. Of a cancelled one that has not ended the state is `stopping`.
    pub(crate) fn queries(&self) -> Result<RecordBatch, Error> {
        let mut rows = SystemRows::new(&[
            "statement",
            "pid",
            "user_name",
            "application_name",
            "client",
            "state",
            "way",
            "started_at",
            "elapsed_ms",
            "rows",
            "query",
        ]);
        let now_ms = self.node.clock().now_ms();
        let mut running: Vec<BackendActivity> = self.activity.all().iter().map(|backend| backend.look()).collect();
        running.retain(|seen| seen.running.is_some());
        running.sort_by_key(|seen| seen.running.as_ref().map(|running| running.statement));
        for seen in running {
            let Some(running) = &seen.running else { continue };
            rows.push(vec![
                int(running.statement),
                SystemCell::Int(seen.pid.into()),
                text(&seen.user),
                text(&seen.application_name),
                seen.peer.map_or(SystemCell::Null, |peer| SystemCell::Text(peer.to_string())),
                text(if running.is_stopping { "stopping" } else { "running" }),
                running.way.map_or(SystemCell::Null, |way| text(way.name())),
                SystemCell::Time(running.began_ms),
                SystemCell::Int(now_ms.saturating_sub(running.began_ms).max(0)),
                int(running.rows),
                text(&seen.text),
            ]);
        }
        rows.finish()
    }
}

/// The tables of [`PG_TABLES`], as one session sees them.
pub(crate) struct PgTables {
    /// Knows who may see whose.
    pub node: Arc<Node>,
    /// Knows the sessions.
    pub activity: Arc<Activity>,
    /// The one who looks.
    pub who: Arc<Mutex<Principal>>,
    /// Of `pg_cursors`.
    pub cursors: Book,
    /// Of `pg_settings`.
    pub vars: Arc<Mutex<Vars>>,
    /// What the session has to itself.
    pub temporary: Arc<Temporary>,
}

impl PgTables {
    /// One row for each client. Of those of others, who is no superuser sees who they are and no more.
    fn stat_activity(&self) -> Result<RecordBatch, Error> {
        let mut rows = SystemRows::new(&[
            "datid",
            "datname",
            "pid",
            "leader_pid",
            "usesysid",
            "usename",
            "application_name",
            "client_addr",
            "client_hostname",
            "client_port",
            "backend_start",
            "xact_start",
            "query_start",
            "state_change",
            "wait_event_type",
            "wait_event",
            "state",
            "backend_xid",
            "backend_xmin",
            "query_id",
            "query",
            "backend_type",
        ]);
        let who = self.who.lock().clone();
        let sees_all = is_superuser(&self.node.users().users(), &who);
        for backend in self.activity.all() {
            let seen = backend.look();
            let is_shown = sees_all || seen.who == who;
            let told = |cell: SystemCell| if is_shown { cell } else { SystemCell::Null };
            let time = |ms: Option<i64>| told(ms.map_or(SystemCell::Null, SystemCell::Time));
            let running_ms = seen.running.as_ref().map(|running| running.began_ms);
            let waits = |what: &str| told(if running_ms.is_some() { SystemCell::Null } else { text(what) });
            rows.push(vec![
                SystemCell::Null,
                text(DATABASE),
                SystemCell::Int(seen.pid.into()),
                SystemCell::Null,
                SystemCell::Null,
                text(&seen.user),
                text(&seen.application_name),
                told(seen.peer.map_or(SystemCell::Null, |peer| SystemCell::Text(peer.ip().to_canonical().to_string()))),
                SystemCell::Null,
                told(seen.peer.map_or(SystemCell::Null, |peer| SystemCell::Int(peer.port().into()))),
                time(Some(seen.began_ms)),
                time(seen.transaction_ms.or(running_ms)),
                time(running_ms.or(seen.ran_ms)),
                time(Some(seen.changed_ms)),
                waits("Client"),
                waits("ClientRead"),
                told(text(state(&seen))),
                SystemCell::Null,
                SystemCell::Null,
                told(seen.running.as_ref().map_or(SystemCell::Null, |running| int(running.statement))),
                text(if is_shown { &seen.text } else { "<insufficient privilege>" }),
                text("client backend"),
            ]);
        }
        rows.finish()
    }
}

#[async_trait]
impl SystemTables for PgTables {
    fn names(&self) -> Vec<String> {
        PG_TABLES.map(str::to_owned).to_vec()
    }

    async fn table(&self, name: &str) -> Result<RecordBatch, Error> {
        match name {
            "pg_cursors" => pg_cursors(&self.cursors),
            "pg_indexes" => self.indexes(),
            "pg_sequences" => self.sequences().await,
            "pg_settings" => self.settings(),
            "pg_stat_activity" => self.stat_activity(),
            other => Err(Error::NoSuchTable { name: format!("pg_catalog.{other}") }),
        }
    }
}

/// As Postgres calls it.
fn state(seen: &BackendActivity) -> &'static str {
    match (&seen.running, seen.status) {
        (Some(_), _) => "active",
        (None, Status::Idle) => "idle",
        (None, Status::InTransaction) => "idle in transaction",
        (None, Status::Failed) => "idle in transaction (aborted)",
    }
}
