//! How do types that users made change, and the tables with them? What is known of them is in `types`.

use std::sync::Arc;

use tarn_metastore::Alteration;
use tarn_types::TypeId;

use crate::auth::{AuthAction, Principal};
use crate::error::{Error, ErrorKind, Result};
use crate::node::Node;
use crate::types::{TypeKind, UserType, missing, taken};
use crate::view_readers::Rewrites;

/// No name changes with the labels of a column: what views say stays.
const AS_THEY_ARE: Rewrites = Rewrites {
    names: |view, _| Ok(view.options.view.as_ref().map_or_else(String::new, |of| of.query.clone())),
    columns: |_, _, _| Ok(None),
};

impl Node {
    /// Makes a type, which is of who asks. Durable when it returns.
    ///
    /// Errors: `Denied`; `ObjectExists` for a name that a type, table or view has.
    pub async fn create_type(&self, who: &Principal, name: &str, kind: TypeKind) -> Result<TypeId> {
        let _one = self.lock_catalog().await;
        self.check_open()?;
        self.may_make(who, name)?;
        self.schemas().check_there(name)?;
        if self.catalog().contains(name) {
            return Err(taken(name).with_hint("a table or view has the name: its rows are of a type that is called so"));
        }
        self.types().create(name, who.name().map(str::to_owned), kind).await
    }

    /// Changes a type, and the columns that are of it. Durable when it returns.
    ///
    /// Errors: `NoObject`; `Denied`; `ObjectExists` for another name that is taken; those of `change`, which may be
    /// called several times.
    pub async fn alter_type(
        self: &Arc<Self>,
        who: &Principal,
        name: &str,
        change: &(dyn Fn(&mut UserType) -> Result<()> + Sync),
    ) -> Result<()> {
        {
            let _one = self.lock_catalog().await;
            self.check_open()?;
            self.may_change_type(who, &self.types().get(name).ok_or_else(|| missing(name))?)?;
            let change = |of: &mut UserType| {
                change(of)?;
                self.may_move(who, name, &of.name)
            };
            self.types().alter(name, &change).await?;
        }
        fail::fail_point!("types::altered");
        self.tell_tables().await
    }

    /// Drops a type that no column is of. False: it was not there.
    ///
    /// Errors: `Denied`; `Depended`, naming the columns.
    pub async fn drop_type(&self, who: &Principal, id: TypeId) -> Result<bool> {
        let _one = self.lock_catalog().await;
        self.check_open()?;
        match self.types().by_id(id) {
            Some(of) => self.may_change_type(who, &of)?,
            None => return self.may(who, &AuthAction::Session).map(|()| false),
        }
        let columns = self.types().columns_of(id);
        if !columns.is_empty() {
            let name = self.types().by_id(id).map_or_else(|| id.to_string(), |of| of.name.clone());
            let detail = columns.iter().map(|(table, column)| {
                format!("column {column} of {} {} depends on type {name}", table.kind(), table.name)
            });
            return Err(Error::new(
                ErrorKind::Depended,
                format!("cannot drop type {name} because other objects depend on it"),
            )
            .with_detail(detail.collect::<Vec<_>>().join("\n")));
        }
        self.types().remove(id).await
    }

    /// Tables and views have the labels of their columns as the types say them now.
    pub(crate) async fn tell_tables(self: &Arc<Self>) -> Result<()> {
        {
            let _one = self.lock_catalog().await;
            let views = self.catalog().views().into_iter();
            let changes = views.filter_map(|from| Some(Alteration { to: Box::new(self.types().told(&from)?), from }));
            let changes: Vec<Alteration> = changes.collect();
            if !changes.is_empty() {
                self.define_all(changes.clone()).await?;
                for change in changes {
                    self.catalog().insert_view(Arc::new(*change.to));
                }
            }
        }
        for handle in self.catalog().all() {
            if self.types().told(handle.schema()).is_none() {
                continue;
            }
            let altering = self.begin_alter(&Principal::Node, &handle.schema().name).await?;
            // It may be another by now.
            if let Some(to) = self.types().told(altering.schema()) {
                // Fields say the name of the type.
                if !to.stores_as(altering.schema()) {
                    altering.deliver().await?;
                }
                altering.finish(to, AS_THEY_ARE).await?;
            }
        }
        Ok(())
    }
}
