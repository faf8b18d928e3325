//! How do schemas come and go, and what is in them? What is known of them is in `schemas`.
//!
//! ```text
//! CREATE SCHEMA            document
//! ALTER SCHEMA … RENAME    document: both ─> tables and views, at one moment ─> document: one
//! DROP SCHEMA … CASCADE    views ─> tables, with their sequences ─> sequences ─> functions ─> types ─> document
//! ```
//!
//! Whoever makes something in a schema holds the catalog, as who drops the schema does: nothing comes into one that
//! goes. A crash while one is dropped leaves it with what is still in it, and DROP SCHEMA goes on. One that cuts a
//! renaming off leaves both schemas, one of them with all of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use tarn_types::{TableId, TableSchema, full_name};

use crate::auth::{AuthAction, Principal};
use crate::error::{Error, ErrorKind, Result};
use crate::functions::{FunctionId, UserFunction};
use crate::node::Node;
use crate::renames::{Rename, Rewrite};
use crate::schemas::{Schema, SchemaId, missing};
use crate::sequences::Sequence;
use crate::types::UserType;
use crate::view_readers::Rewrites;
use crate::views::{outermost_first, readers};

/// What is in a schema.
#[derive(Debug, Clone, Default)]
pub struct Contents {
    /// Tables, archives and views, by name.
    pub relations: Vec<Arc<TableSchema>>,
    /// Sequences that go with no table of the schema, by their full names.
    pub sequences: Vec<String>,
    /// Types that somebody made.
    pub types: Vec<UserType>,
    /// Functions that somebody wrote.
    pub functions: Vec<Arc<UserFunction>>,
}

impl Contents {
    /// Then the schema may go without `CASCADE`.
    pub fn is_empty(&self) -> bool {
        let has_others = !self.sequences.is_empty() || !self.types.is_empty() || !self.functions.is_empty();
        self.relations.is_empty() && !has_others
    }
}

impl Node {
    /// Makes a schema. Durable when it returns.
    ///
    /// Errors: `Denied`; `SchemaExists`; `ReservedName`.
    pub async fn create_schema(&self, who: &Principal, name: &str, owner: Option<String>) -> Result<SchemaId> {
        let _one = self.lock_catalog().await;
        self.check_open()?;
        self.may_make_schemas(who)?;
        let made = self.schemas().create(name, owner).await;
        fail::fail_point!("schemas::made");
        made
    }

    /// Changes who owns a schema, or what is said of it. Durable when it returns.
    ///
    /// Errors: `NoSchema`; `Denied`.
    pub async fn alter_schema(&self, who: &Principal, name: &str, change: &(dyn Fn(&mut Schema) + Sync)) -> Result<()> {
        let _one = self.lock_catalog().await;
        self.check_open()?;
        self.may_change_schema(who, &self.schema_of(name)?)?;
        self.schemas().alter(name, change).await
    }

    /// Calls a schema otherwise, with the tables and views that are in it. Durable when it returns.
    ///
    /// Errors: `NoSchema`; `Denied`; `SchemaExists`, `ReservedName`; `WrongState` for one with sequences, types or
    /// functions, whose names are in definitions; those of [`Node::rename`].
    pub async fn rename_schema(&self, who: &Principal, name: &str, to: &str, rewrite: Rewrite) -> Result<()> {
        let _one = self.lock_catalog().await;
        self.check_open()?;
        self.may_change_schema(who, &self.schema_of(name)?)?;
        let contents = self.contents_of(name).await?;
        if to == name {
            return Err(Error::new(ErrorKind::SchemaExists, format!("schema \"{to}\" already exists")));
        }
        let is_in = |sequence: &str| full_name::schema_of(sequence) == name;
        let has_sequences = self.sequences().all().await?.iter().any(|(sequence, _)| is_in(sequence));
        if has_sequences || !contents.types.is_empty() || !contents.functions.is_empty() {
            let message = format!("schema \"{name}\" has sequences, types or functions");
            return Err(Error::new(ErrorKind::WrongState, message)
                .with_hint("their names are in definitions: make another schema, and what is in it there"));
        }
        if contents.relations.is_empty() {
            return self.schemas().alter(name, &|of: &mut Schema| to.clone_into(&mut of.name)).await;
        }
        let Some(Schema { owner, comment, .. }) = self.schemas().get(name) else { return Err(missing(name)) };
        self.schemas().create(to, owner).await?;
        self.schemas().alter(to, &|of: &mut Schema| of.comment.clone_from(&comment)).await?;
        fail::fail_point!("schemas::made_anew");
        let rename = |from: &Arc<TableSchema>| {
            let from = from.name.clone();
            Rename { to: full_name::join(to, full_name::bare(&from)), from }
        };
        let renames: Vec<Rename> = contents.relations.iter().map(rename).collect();
        let renamed = self.rename_alone(&renames, rewrite).await;
        fail::fail_point!("schemas::renamed");
        match renamed {
            Ok(()) => self.schemas().take_place(name, to).await,
            // It may have happened: then both are there, and what is in them says which it is.
            Err(error) if error.kind() == ErrorKind::Indeterminate => Err(error),
            Err(error) => {
                if let Some(made) = self.schemas().get(to) {
                    self.schemas().remove(made.id).await?;
                }
                Err(error)
            }
        }
    }

    /// Drops a schema; with `cascade` with all that is in it, whoever made that, the views that read that, and the
    /// foreign keys that refer to it. False: it was not there.
    ///
    /// That nothing elsewhere is of its types, and takes numbers of its sequences, whoever asks knows.
    ///
    /// Errors: `Denied`; `Depended` without `cascade`, naming what is in it; as of ALTER TABLE.
    pub async fn drop_schema(
        self: &Arc<Self>,
        who: &Principal,
        id: SchemaId,
        cascade: bool,
        rewrites: Rewrites,
    ) -> Result<bool> {
        if cascade && let Some(of) = self.schemas().by_id(id) {
            self.may_change_schema(who, &of)?;
            let there = self.contents_of(&of.name).await?.relations;
            self.end_references_to(&there.iter().map(|table| table.id).collect(), rewrites).await?;
        }
        let _one = self.lock_catalog().await;
        self.check_open()?;
        let Some(of) = self.schemas().by_id(id) else { return self.may(who, &AuthAction::Session).map(|()| false) };
        self.may_change_schema(who, &of)?;
        let Schema { name, .. } = of;
        let contents = self.contents_of(&name).await?;
        if !cascade {
            check_empty(&[(name.as_str(), &contents)])?;
        }
        let mut going = contents.relations;
        let ids: BTreeSet<TableId> = going.iter().map(|schema| schema.id).collect();
        going.extend(readers(&ids, &self.catalog().views()));
        for schema in outermost_first(going) {
            self.drop_alone(&schema.name, true).await?;
            fail::fail_point!("schemas::dropping");
        }
        for sequence in contents.sequences {
            self.sequences().remove(&sequence).await?;
        }
        let functions: Vec<FunctionId> = contents.functions.iter().map(|of| of.id).collect();
        if !functions.is_empty() {
            self.forget_functions(&functions).await?;
        }
        for of in contents.types {
            self.types().remove(of.id).await?;
        }
        fail::fail_point!("schemas::empty");
        self.schemas().remove(id).await
    }

    /// What is in a schema.
    ///
    /// Errors: `NoSchema`; the metastore's.
    pub async fn contents_of(&self, schema: &str) -> Result<Contents> {
        if !self.schemas().has_tables(schema) {
            return Err(missing(schema));
        }
        let is_in = |name: &str| full_name::schema_of(name) == schema;
        let mut relations = self.catalog().schemas();
        relations.retain(|table| is_in(&table.name));
        let goes_along = |of: &Sequence| {
            of.owner.as_ref().is_some_and(|owner| relations.iter().any(|table| table.name == owner.table))
        };
        let sequences = self.sequences().all().await?.into_iter();
        let sequences = sequences.filter(|(name, of)| is_in(name) && !goes_along(of)).map(|(name, _)| name).collect();
        let mut types = self.types().all();
        types.retain(|of| is_in(&of.name));
        let functions = self.functions().all().iter().filter(|of| is_in(&of.name)).cloned().collect();
        Ok(Contents { relations, sequences, types, functions })
    }

    fn schema_of(&self, name: &str) -> Result<Schema> {
        self.schemas().get(name).ok_or_else(|| missing(name))
    }
}

/// Whether nothing is in these schemas.
///
/// Errors: `Depended`, naming what is.
pub fn check_empty(schemas: &[(&str, &Contents)]) -> Result<()> {
    if schemas.iter().all(|(_, contents)| contents.is_empty()) {
        return Ok(());
    }
    let mut detail = vec![];
    for (schema, contents) in schemas {
        let depends = |kind: &str, name: &str| {
            let bare = full_name::bare(name);
            format!("{kind} {schema}.{bare} depends on schema {schema}")
        };
        detail.extend(contents.relations.iter().map(|table| depends(table.kind(), &table.name)));
        detail.extend(contents.sequences.iter().map(|name| depends("sequence", name)));
        detail.extend(contents.types.iter().map(|of| depends("type", &of.name)));
        let functions = contents.functions.iter();
        detail.extend(functions.map(|of| format!("function {} depends on schema {schema}", of.shown())));
    }
    let (what, whom) = match schemas {
        [(schema, _)] => (format!("schema {schema}"), "it"),
        _ => ("desired object(s)".to_owned(), "them"),
    };
    Err(Error::new(ErrorKind::Depended, format!("cannot drop {what} because other objects depend on {whom}"))
        .with_detail(detail.join("\n"))
        .with_hint("Use DROP ... CASCADE to drop the dependent objects too."))
}
