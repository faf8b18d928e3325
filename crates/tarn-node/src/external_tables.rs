//! How does an archive become a table of this node, and when does it stop to be one?
//!
//! `ATTACH` surveys the archive, makes the table and runs the first pass (`pass.rs`); `CALL tarn.attach('t')` and the
//! table's worker (`follow`) run others. A server that starts goes on with a first pass.

use std::sync::Arc;

use tarn_lake::attach::Progress;
use tarn_metastore::MetastoreExt;
use tarn_types::{Kind, TableSchema};

use crate::attach::AttachRequest;
use crate::auth::Principal;
use crate::beside::check_name;
use crate::drops::half_made;
use crate::error::{Error, ErrorKind, Result};
use crate::external_table::ExternalTable;
use crate::node::Node;
use crate::pass::{explain, reader};
use crate::stores::StoreLocation;

impl Node {
    /// Makes a table of an archive and runs the first pass. Cancelled or failed during the pass, the table is there
    /// with what was committed.
    ///
    /// Errors: `Denied`, also for a place that may not be attached; `TableExists`; what is wrong with the archive.
    pub async fn attach(self: &Arc<Self>, who: &Principal, request: &AttachRequest) -> Result<Progress> {
        self.check_open()?;
        self.may_attach_place(who, &request.url)?;
        self.check_free(&request.name)?;
        let location = StoreLocation::parse(&request.url)?;
        location.check().await?;
        let (store, archive) = (location.open()?, request.archive(location.to_string()));
        let attach = reader(store, self.parts(), &archive);
        let name = request.name.clone();
        let surveying = async move {
            let surveyed = attach.survey(&name, &archive).await;
            surveyed.map_err(|error| explain(&error, &location))
        };
        let surveyed = self.in_background(surveying).await?;
        let schema = request.table(surveyed.schema)?;

        let node = Arc::clone(self);
        // To its end, also when the client goes away: half a table is none.
        let making = tokio::spawn(async move { node.create_external_table(schema).await });
        let external = making
            .await
            .map_err(|e| Error::new(ErrorKind::Internal, format!("a change of the catalog died: {e}")))??;
        self.pass_alone(&external).await.map_err(|error| {
            if error.kind() == ErrorKind::Canceled {
                return error;
            }
            let name = external.name();
            let hint = error.hint().map(|hint| format!("{hint}; then ")).unwrap_or_default();
            error.with_hint(format!(
                "{hint}CALL tarn.attach('{name}') to go on: what was read until now is in the table"
            ))
        })
    }

    async fn create_external_table(&self, schema: TableSchema) -> Result<Arc<ExternalTable>> {
        let _one = self.lock_catalog().await;
        self.check_open()?;
        self.check_free(&schema.name)?;
        check_name(&schema.name)?;
        self.schemas().check_there(&schema.name)?;
        let schema = self.parts().metastore.create_table(schema).await.map_err(|e| half_made(e.into()))?;
        let external = match self.open_external_table(Arc::clone(&schema)).await {
            Ok(external) => external,
            Err(error) => return Err(self.undo_create(&schema, error).await),
        };
        self.parts().catalog.insert_external(Arc::clone(&external));
        self.parts().metrics.tables.inc();
        // The statement runs the first pass, and whoever cancels that means it.
        self.start_following(&external, false);
        Ok(external)
    }

    /// Whether a table may be called so.
    ///
    /// Errors: `TableExists`.
    pub fn check_free(&self, name: &str) -> Result<()> {
        let message = format!("table \"{name}\" already exists");
        let error = Error::new(ErrorKind::TableExists, message);
        match (self.catalog().external_table(name), self.catalog().contains(name)) {
            (Some(_), _) => Err(error.with_hint(format!(
                "CALL tarn.attach('{name}') takes in what is new there; DETACH TABLE {name} forgets it"
            ))),
            (None, true) => Err(error.with_hint("choose another name, or DROP TABLE it first")),
            (None, false) => Ok(()),
        }
    }

    /// One pass over an archive, as it is there now, on the threads of background work. Cancelled when it is dropped.
    ///
    /// Errors: `Denied`; what is wrong with the archive.
    pub async fn pass(&self, who: &Principal, external: &Arc<ExternalTable>) -> Result<Progress> {
        self.may_own(who, &external.schema())?;
        // Who asks for it means what is there now.
        external.near()?.forget_listings();
        self.pass_alone(external).await
    }

    async fn pass_alone(&self, external: &Arc<ExternalTable>) -> Result<Progress> {
        let (external, parts) = (Arc::clone(external), Arc::clone(self.parts()));
        self.in_background(async move { external.pass(&parts).await }).await
    }

    /// Forgets an archive; its files stay where they are. False: there was none and `if_exists` was said.
    ///
    /// Errors: `Denied`; `NoTable`, `Depended` while a view reads it, and `WrongObject` for a table that is no archive.
    pub async fn detach(&self, who: &Principal, name: &str, if_exists: bool) -> Result<bool> {
        let _one = self.lock_catalog().await;
        self.check_open()?;
        self.may_detach(who)?;
        match self.catalog().external_table(name) {
            Some(external) => {
                self.check_unread(&external.schema())?;
                self.forget_external_table(&external).await
            }
            None if self.catalog().contains(name) => {
                Err(Error::new(ErrorKind::WrongObject, format!("table \"{name}\" is not an archive"))
                    .with_hint("DROP TABLE removes a table with its rows"))
            }
            None if if_exists => Ok(false),
            None => Err(Error::no_table(name)),
        }
    }

    /// The caller holds the catalog.
    pub(crate) async fn forget_external_table(&self, external: &ExternalTable) -> Result<bool> {
        // First: an archive that could not be detached is followed as before.
        match self.parts().metastore.drop_table(external.name()).await {
            // By an earlier DETACH whose answer was lost, or by another server.
            Err(error) if error.kind() == Kind::NotFound => {}
            dropped => drop(dropped?),
        }
        self.parts().catalog.remove(external.name());
        external.end().await;
        self.parts().metrics.tables.dec();
        Ok(true)
    }
}
