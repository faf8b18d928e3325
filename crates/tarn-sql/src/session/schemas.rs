//! How are schemas made, changed and dropped?
//!
//! A schema that is made in a transaction is there at once, for everybody, as a table is; what undoes the transaction
//! drops it, behind what the transaction made in it. It is dropped at COMMIT, with what is in it then. Changed it is at
//! once, and outside of transactions alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use tarn_node::auth::Principal;
use tarn_node::functions::Body;
use tarn_node::node::Node;
use tarn_node::schema_changes::{Contents, check_empty};
use tarn_node::schemas::{BUILT_IN, Schema, SchemaId};
use tarn_types::{TypeId, full_name};

use super::execute::to_its_end;
use super::sequences::check_unused;
use super::types::check_unused_beside;
use super::{Answer, Session};
use crate::ddl::Ddl;
use crate::error::{Result, SqlError, state};
use crate::function_mentions::mentions;
use crate::schema_sql::{Role, SchemaChange, SchemaSql};
use crate::seen_schemas::REWRITES;
use crate::transaction::{CreatedId, CreatedObject};
use crate::view_rename::rewrite;

impl Session {
    /// Runs a statement about schemas.
    pub(super) async fn schema(&self, statement: &SchemaSql) -> Result<Answer> {
        match statement {
            SchemaSql::Create { name, owner, if_not_exists } => {
                self.create_schema(name.as_deref(), owner.as_ref(), *if_not_exists).await?;
            }
            SchemaSql::Alter { name, change } => self.alter_schema(name, change).await?,
            SchemaSql::Drop { names, if_exists, cascade } => self.drop_schemas(names, *if_exists, *cascade).await?,
        }
        Ok(Answer::done(statement.tag()))
    }

    async fn create_schema(&self, name: Option<&str>, owner: Option<&Role>, if_not_exists: bool) -> Result<()> {
        let in_transaction = self.must_hold()?;
        let owner = owner.map(|role| self.role(role)).transpose()?;
        let name = match (name, &owner) {
            (Some(name), _) => name.to_owned(),
            (None, Some(owner)) => owner.clone(),
            (None, None) => return Err(SqlError::new(state::SYNTAX_ERROR, "a schema needs a name")),
        };
        if let Some(there) = self.node.schemas().get(&name)
            && self.transaction.lock().drops_schema(there.id)
        {
            return Err(SqlError::unsupported(
                format!("making schema \"{name}\" anew in the transaction that drops it"),
                "COMMIT between the two",
            ));
        }
        if if_not_exists && (BUILT_IN.contains(&name.as_str()) || self.node.schemas().get(&name).is_some()) {
            return Ok(());
        }
        let owner = owner.or_else(|| self.principal().name().map(str::to_owned));
        // Without users everybody is superuser, and a name would mean nobody.
        let owner = owner.filter(|_| !self.node.users().users().is_empty());
        let (node, who, named) = (Arc::clone(&self.node), self.principal(), name.clone());
        let made = to_its_end(async move { node.create_schema(&who, &named, owner).await });
        let id = self.interrupt.submit(made, |_| 0).await?;
        if in_transaction {
            self.transaction.lock().made(CreatedObject { name, what: CreatedId::Schema(id) });
        }
        Ok(())
    }

    /// The name of a role.
    ///
    /// Errors: `42704` for one that is not there.
    fn role(&self, role: &Role) -> Result<String> {
        let asking = self.var("session_authorization")?;
        match role {
            Role::Asking => Ok(asking),
            Role::Named(name) if *name == asking || self.node.users().users().get(name).is_some() => Ok(name.clone()),
            Role::Named(name) => Err(SqlError::new(state::UNDEFINED_OBJECT, format!("role \"{name}\" does not exist"))),
        }
    }

    async fn alter_schema(&self, name: &str, change: &SchemaChange) -> Result<()> {
        let what = if matches!(change, SchemaChange::Comment(_)) { "COMMENT ON SCHEMA" } else { "ALTER SCHEMA" };
        self.outside_transaction(what)?;
        let of = self.schema_of(name, what)?;
        let who = self.principal();
        self.node.may_change_schema(&who, &of)?;
        let owner = match change {
            SchemaChange::OwnerTo(role) => Some(self.role(role)?),
            _ => None,
        };
        let (node, name, change) = (Arc::clone(&self.node), name.to_owned(), change.clone());
        let altered = to_its_end(async move {
            match change {
                SchemaChange::RenameTo(to) => node.rename_schema(&who, &name, &to, rewrite).await,
                SchemaChange::OwnerTo(_) => {
                    node.alter_schema(&who, &name, &|of: &mut Schema| of.owner.clone_from(&owner)).await
                }
                SchemaChange::Comment(text) => {
                    node.alter_schema(&who, &name, &|of: &mut Schema| of.comment.clone_from(&text)).await
                }
            }
        });
        self.interrupt.submit(altered, |()| 0).await
    }

    /// A schema that somebody made.
    ///
    /// Errors: `3F000`; `0A000` for one that is there always.
    fn schema_of(&self, name: &str, what: &str) -> Result<Schema> {
        let found = self.node.schemas().get(name).filter(|of| !self.transaction.lock().drops_schema(of.id));
        found.ok_or_else(|| match BUILT_IN.contains(&name) {
            true => SqlError::unsupported(format!("{what} of {name}"), "it is there always, and as it is"),
            false => SqlError::new(state::UNDEFINED_SCHEMA, format!("schema \"{name}\" does not exist")),
        })
    }

    async fn drop_schemas(&self, names: &[String], if_exists: bool, cascade: bool) -> Result<()> {
        let in_transaction = self.must_hold()?;
        let mut going: Vec<Schema> = vec![];
        for name in names {
            match self.schema_of(name, "DROP SCHEMA") {
                Ok(of) if going.iter().all(|other| other.id != of.id) => going.push(of),
                Ok(_) => {}
                Err(absent) if if_exists && absent.state() == state::UNDEFINED_SCHEMA => {}
                Err(refused) => return Err(refused),
            }
        }
        let mut contents = vec![];
        for of in &going {
            self.node.may_change_schema(&self.principal(), of)?;
            let mut there = self.node.contents_of(&of.name).await?;
            let transaction = self.transaction.lock();
            there.relations.retain(|table| transaction.check_there(&table.name).is_ok());
            there.types.retain(|of| !transaction.drops_type(of.id));
            there.functions.retain(|of| !transaction.drops_function(of.id));
            contents.push((of.name.as_str(), there));
        }
        if !cascade {
            let shown: Vec<(&str, &Contents)> = contents.iter().map(|(name, there)| (*name, there)).collect();
            check_empty(&shown)?;
        }
        let ids: Vec<SchemaId> = going.iter().map(|of| of.id).collect();
        check_free_of_others(&self.node, &going, cascade, &|id| self.transaction.lock().drops_type(id)).await?;
        if ids.is_empty() {
            return Ok(());
        }
        let ddl = Ddl::DropSchemas { names: going.into_iter().map(|of| of.name).collect(), ids, cascade };
        match in_transaction {
            true => self.transaction.lock().drop_later(ddl),
            false => self.run_ddl(ddl).await.map(drop),
        }
    }

    /// Before a role is dropped.
    ///
    /// Errors: `2BP01`.
    pub(super) fn check_owns_no_schema(&self, role: &str) -> Result<()> {
        let mut owned = self.node.schemas().all();
        owned.retain(|of| of.owner.as_deref() == Some(role));
        if owned.is_empty() {
            return Ok(());
        }
        let message = format!("role \"{role}\" cannot be dropped because some objects depend on it");
        let detail: Vec<String> = owned.iter().map(|of| format!("owner of schema {}", of.name)).collect();
        Err(SqlError::new(state::DEPENDENT_OBJECTS, message)
            .with_detail(detail.join("\n"))
            .with_hint("ALTER SCHEMA … OWNER TO another, or DROP SCHEMA it"))
    }

    /// Who may run it: superusers make schemas, and give them to others.
    pub(super) fn allow_schemas(&self, statement: &SchemaSql) -> Result<()> {
        match statement {
            SchemaSql::Create { .. } => Ok(self.node.may_make_schemas(&self.principal())?),
            // Asked for when it is known whose they are.
            SchemaSql::Alter { .. } | SchemaSql::Drop { .. } => Ok(()),
        }
    }
}

/// Whether what is outside of schemas can do without what is in them: their sequences, types and functions.
///
/// Errors: `2BP01`; `0A000` with CASCADE, which would have to change definitions of others.
async fn check_free_of_others(
    node: &Node,
    going: &[Schema],
    cascade: bool,
    is_gone: &(dyn Fn(TypeId) -> bool + Sync),
) -> Result<()> {
    let names: BTreeSet<&str> = going.iter().map(|of| of.name.as_str()).collect();
    let is_in = |name: &str| names.contains(full_name::schema_of(name));
    let refused = |error: SqlError| match (cascade, error.detail()) {
        (true, Some(detail)) => {
            let detail = detail.to_owned();
            SqlError::unsupported(
                "DROP SCHEMA … CASCADE of what defaults, columns or texts of others name",
                "drop these first",
            )
            .with_detail(detail)
        }
        _ => error,
    };
    for (name, sequence) in node.sequences().all().await? {
        if is_in(&name) {
            check_unused(node, "drop", &name, &sequence, &is_in).map_err(refused)?;
        }
    }
    for of in node.types().all() {
        if !is_in(&of.name) || is_gone(of.id) {
            continue;
        }
        check_unused_beside(node, &of, &is_in).map_err(refused)?;
    }
    let functions = node.functions().all();
    let mut tables = node.catalog().schemas();
    tables.retain(|table| !is_in(&table.name));
    for of in functions.iter().filter(|of| is_in(&of.name)) {
        // PostgreSQL looks into no body that is a text.
        let others =
            functions.iter().filter(|other| !is_in(&other.name) && !matches!(other.written.body, Body::Text(_)));
        let found = mentions(&tables, others.map(Arc::as_ref), of);
        if !found.is_empty() {
            let message = format!("cannot drop function {} because other objects depend on it", of.shown());
            return Err(refused(SqlError::new(state::DEPENDENT_OBJECTS, message).with_detail(found.join("\n"))));
        }
    }
    Ok(())
}

/// Drops schemas at COMMIT, or at once.
pub(super) async fn drop_schemas(node: &Arc<Node>, who: &Principal, ids: &[SchemaId], cascade: bool) -> Result<()> {
    // COMMIT may be long after the statement.
    let going: Vec<Schema> = ids.iter().filter_map(|id| node.schemas().by_id(*id)).collect();
    going.iter().try_for_each(|of| node.may_change_schema(who, of))?;
    check_free_of_others(node, &going, cascade, &|_| false).await?;
    for of in &going {
        node.drop_schema(who, of.id, cascade, REWRITES).await?;
    }
    Ok(())
}
