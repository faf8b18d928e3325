//! Is this request being made, was it made before, and what came of it then?
//!
//! A client that does not know whether its write happened makes the request again, by the same name ([`RequestId`]).
//! The name goes into the log with what the request writes, and its outcome is kept with the table that its first
//! statement names ([`tarn_rows::KEPT_ENTRIES`]). Who makes a request
//!
//! 1. begins it: one that is being made by the same name, by a session whose client is gone perhaps, is waited for;
//! 2. asks whether it was made before, once all that is under way in that table is in effect;
//! 3. if not, commits what it writes, with its name.

use std::sync::Arc;

use tarn_rows::first_outcome;
use tarn_types::{Request, RequestId, StatementOutcome};

pub use crate::being_made::RequestTurn;
use crate::catalog::{TableHandle, WayIn};
use crate::error::{Error, ErrorKind, Result};
use crate::tables::TableService;
use crate::threads::blocking;

/// A request and the table whose tablets keep its outcome.
#[derive(Clone)]
pub struct NamedRequest {
    /// The one that its first statement names. None of a session's own.
    pub home: Arc<TableHandle>,
    /// Its name, and what its statements came to.
    pub request: Request,
}

impl TableService {
    /// Returns when nobody makes a request of this name. Dropped, it waits no longer.
    pub async fn begin_request(&self, id: RequestId) -> RequestTurn {
        self.being_made.turn(id).await
    }

    /// What a request came to that was made before; `None`: it was not, or is forgotten. Who asks has begun it
    /// ([`TableService::begin_request`]).
    ///
    /// Cost: one short scan of the row engine; the wait for what is under way in the table.
    /// Errors: `WrongState` for a table of a session's own; as of a commit, if what is under way cannot be finished.
    pub async fn first_outcome(&self, home: &Arc<TableHandle>, id: RequestId) -> Result<Option<Vec<StatementOutcome>>> {
        let WayIn::Logged(replicas) = &home.way_in else {
            let message = format!("table \"{}\" is temporary: it keeps no outcomes of requests", home.schema().name);
            return Err(Error::new(ErrorKind::WrongState, message));
        };
        let (replicas, engine) = (Arc::clone(replicas), Arc::clone(&self.parts.engine));
        blocking(move || {
            // What an earlier attempt left in the log, and could not finish, is finished first.
            replicas.settle()?;
            Ok(first_outcome(&*engine, id)?)
        })
        .await
    }
}
