//! How are types made, changed and dropped?
//!
//! A type that is made in a transaction is there at once, for everybody, as a table is; what undoes the transaction
//! drops it. It is dropped at COMMIT, behind the tables that the transaction drops. Changed it is at once, and outside
//! of transactions alone.

use std::sync::Arc;

use datafusion::arrow::datatypes::Field;
use tarn_node::auth::Principal;
use tarn_node::error::{Error, ErrorKind};
use tarn_node::node::Node;
use tarn_node::types::{TypeKind, UserType};
use tarn_types::{Enumerated, TableSchema, TypeId};

use super::create_as::written;
use super::execute::to_its_end;
use super::{Answer, Session};
use crate::catalog_types::type_oid;
use crate::ddl::Ddl;
use crate::error::{Result, SqlError, state};
use crate::names::quote;
use crate::row_fields::column_of;
use crate::transaction::{CreatedId, CreatedObject};
use crate::type_sql::{LabelPosition, TypeChange, TypeSql, check_count};
use crate::user_types::{columns_of, mentions, undefined_type};

impl Session {
    /// Runs a statement about types.
    pub(super) async fn user_type(&self, statement: &TypeSql) -> Result<Answer> {
        match statement {
            TypeSql::Create { name, kind } => self.create_type(name, kind).await?,
            TypeSql::Alter { name, change } => self.alter_type(name, change).await?,
            TypeSql::Drop { names, if_exists, cascade } => self.drop_types(names, *if_exists, *cascade).await?,
        }
        Ok(Answer::done(statement.tag()))
    }

    async fn create_type(&self, name: &str, kind: &TypeKind) -> Result<()> {
        let in_transaction = self.must_hold()?;
        if type_oid(name).is_some() {
            let message = format!("type \"{name}\" already exists");
            return Err(SqlError::new(state::DUPLICATE_OBJECT, message)
                .with_hint("it is one of PostgreSQL's own: choose another name"));
        }
        if let TypeKind::Row { columns } = kind {
            for column in columns {
                // Whether there is such a type is told by who reads it.
                self.plan(&written(&format!("SELECT NULL::{}", column.data_type))?, &[]).await?;
                column_of(&column.data_type, self.node.types())?;
            }
        }
        let (node, who, named, kind) = (Arc::clone(&self.node), self.principal(), name.to_owned(), kind.clone());
        let made = to_its_end(async move { node.create_type(&who, &named, kind).await });
        let id = self.interrupt.submit(made, |_| 0).await?;
        if in_transaction {
            self.transaction.lock().made(CreatedObject { name: name.to_owned(), what: CreatedId::Type(id) });
        }
        Ok(())
    }

    async fn alter_type(&self, name: &str, change: &TypeChange) -> Result<()> {
        self.outside_transaction("ALTER TYPE")?;
        let of = self.node.types().get(name).ok_or_else(|| undefined_type(name))?;
        let who = self.principal();
        self.node.may_change_type(&who, &of)?;
        self.check_change(&of, change)?;
        let (node, name, change) = (Arc::clone(&self.node), name.to_owned(), change.clone());
        let altered = to_its_end(async move {
            let apply = |of: &mut UserType| applied(of, &change);
            Box::pin(node.alter_type(&who, &name, &apply)).await
        });
        self.interrupt.submit(altered, |()| 0).await
    }

    /// What is wrong with a change beside what is wrong with the labels.
    fn check_change(&self, of: &UserType, change: &TypeChange) -> Result<()> {
        match change {
            TypeChange::AddValue { label, .. } => {
                let TypeKind::Enum { labels } = &of.kind else { return Ok(()) };
                check_count(labels.len() + usize::from(!labels.contains(label)))
            }
            TypeChange::RenameValue { .. } => match self.node.types().columns_of(of.id).first() {
                None => Ok(()),
                Some((table, column)) => Err(SqlError::unsupported(
                    "ALTER TYPE … RENAME VALUE of a type that columns are of, whose rows keep the label as a text",
                    "ADD VALUE the other label, and UPDATE the rows; the old one stays",
                )
                .with_detail(format!(
                    "column {column} of {} {} is of the type",
                    table.kind(),
                    table.name
                ))),
            },
            TypeChange::RenameTo(to) => {
                if self.node.catalog().contains(to) || type_oid(to).is_some() {
                    return Err(SqlError::new(state::DUPLICATE_OBJECT, format!("type \"{to}\" already exists")));
                }
                self.check_unnamed(&of.name, "rename", &[])
            }
            TypeChange::OwnerTo(to) => match self.node.users().users().get(to) {
                Some(_) => Ok(()),
                None => Err(SqlError::new(state::UNDEFINED_OBJECT, format!("role \"{to}\" does not exist"))),
            },
        }
    }

    /// Whether no view, default, check or row type names the type in its text, but those that go with it.
    fn check_unnamed(&self, name: &str, verb: &str, going: &[TypeId]) -> Result<()> {
        let mut tables = self.node.catalog().schemas();
        let transaction = self.transaction.lock();
        tables.retain(|table| transaction.check_there(&table.name).is_ok());
        drop(transaction);
        let mut found = mentions(&tables, name);
        let mut types = self.node.types().all();
        types.retain(|of| !going.contains(&of.id) && !self.transaction.lock().drops_type(of.id));
        found.extend(columns_of(&types, name));
        if found.is_empty() {
            return Ok(());
        }
        let message = format!("cannot {verb} type {} because other objects depend on it", quote(name));
        Err(SqlError::new(state::DEPENDENT_OBJECTS, message).with_detail(found.join("\n")))
    }

    async fn drop_types(&self, names: &[String], if_exists: bool, cascade: bool) -> Result<()> {
        let in_transaction = self.must_hold()?;
        let mut going = vec![];
        for name in names {
            let found = self.node.types().get(name).filter(|of| !self.transaction.lock().drops_type(of.id));
            match found {
                Some(of) => going.push(of),
                None if if_exists => {}
                None => return Err(undefined_type(name)),
            }
        }
        let ids: Vec<TypeId> = going.iter().map(|of| of.id).collect();
        for of in &going {
            self.node.may_change_type(&self.principal(), of)?;
            self.check_unused(of, &ids).map_err(|error| match cascade {
                false => error.with_hint("drop these first"),
                true => {
                    let detail = error.detail().unwrap_or_default().to_owned();
                    SqlError::unsupported("DROP TYPE … CASCADE of what depends on it", "drop these first")
                        .with_detail(detail)
                }
            })?;
        }
        if ids.is_empty() {
            return Ok(());
        }
        match in_transaction {
            true => self.transaction.lock().drop_later(Ddl::DropTypes(ids)),
            false => self.run_ddl(Ddl::DropTypes(ids)).await.map(drop),
        }
    }

    /// Whether no column is of the type, but those of tables that the transaction drops, and nothing names it.
    fn check_unused(&self, of: &UserType, going: &[TypeId]) -> Result<()> {
        let mut columns = self.node.types().columns_of(of.id);
        {
            let transaction = self.transaction.lock();
            columns.retain(|(table, _)| transaction.check_there(&table.name).is_ok());
        }
        if !columns.is_empty() {
            let name = quote(&of.name);
            let detail = columns.iter().map(|(table, column)| {
                format!("column {column} of {} {} depends on type {name}", table.kind(), table.name)
            });
            let message = format!("cannot drop type {name} because other objects depend on it");
            return Err(
                SqlError::new(state::DEPENDENT_OBJECTS, message).with_detail(detail.collect::<Vec<_>>().join("\n"))
            );
        }
        self.check_unnamed(&of.name, "drop", going)
    }

    /// Who may run it: whoever may make tables makes types, and changes his own.
    pub(super) fn allow_types(&self, statement: &TypeSql) -> Result<()> {
        match statement {
            TypeSql::Create { name, .. } => Ok(self.node.may_make(&self.principal(), name)?),
            // Asked for when it is known whose they are.
            TypeSql::Alter { .. } | TypeSql::Drop { .. } => Ok(()),
        }
    }

    /// The enumerated type that a field tells, as it is now.
    pub(super) fn enumerated(&self, field: &Field) -> Option<Enumerated> {
        self.node.types().by_id(Enumerated::of(field)?.0)?.enumerated()
    }

    /// Says something of a type. It holds for all sessions at once.
    pub(super) async fn comment_type(&self, name: &str, text: Option<&str>) -> Result<()> {
        self.outside_transaction("COMMENT ON TYPE")?;
        let of = self.node.types().get(name).ok_or_else(|| undefined_type(name))?;
        let who = self.principal();
        self.node.may_change_type(&who, &of)?;
        let (node, name, text) = (Arc::clone(&self.node), name.to_owned(), text.map(str::to_owned));
        let said = to_its_end(async move {
            let say = |of: &mut UserType| {
                of.comment.clone_from(&text);
                Ok(())
            };
            Box::pin(node.alter_type(&who, &name, &say)).await
        });
        self.interrupt.submit(said, |()| 0).await
    }
}

/// Whether nothing is of a type, and nothing names it, beside what is called as `is_going` says.
///
/// Errors: `2BP01`, naming what is.
pub(super) fn check_unused_beside(node: &Node, of: &UserType, is_going: &dyn Fn(&str) -> bool) -> Result<()> {
    let name = quote(&of.name);
    let columns = node.types().columns_of(of.id).into_iter().filter(|(table, _)| !is_going(&table.name));
    let depends = |(table, column): (Arc<TableSchema>, String)| {
        format!("column {column} of {} {} depends on type {name}", table.kind(), table.name)
    };
    let mut found: Vec<String> = columns.map(depends).collect();
    let mut tables = node.catalog().schemas();
    tables.retain(|table| !is_going(&table.name));
    found.extend(mentions(&tables, &of.name));
    let mut types = node.types().all();
    types.retain(|other| !is_going(&other.name));
    found.extend(columns_of(&types, &of.name));
    if found.is_empty() {
        return Ok(());
    }
    let message = format!("cannot drop type {name} because other objects depend on it");
    Err(SqlError::new(state::DEPENDENT_OBJECTS, message).with_detail(found.join("\n")))
}

/// The type as it is to be.
fn applied(of: &mut UserType, change: &TypeChange) -> Result<(), Error> {
    let mut none = vec![];
    let labels = match (&mut of.kind, change) {
        (TypeKind::Enum { labels }, _) => labels,
        (TypeKind::Row { .. }, TypeChange::AddValue { .. } | TypeChange::RenameValue { .. }) => {
            return Err(Error::new(ErrorKind::WrongObject, format!("{} is not an enum", quote(&of.name))));
        }
        (TypeKind::Row { .. }, _) => &mut none,
    };
    let exists = |label: &str| Error::new(ErrorKind::ObjectExists, format!("enum label \"{label}\" already exists"));
    let place = |labels: &[String], label: &str| {
        let missing = || Error::new(ErrorKind::Invalid, format!("\"{label}\" is not an existing enum label"));
        labels.iter().position(|other| other == label).ok_or_else(missing)
    };
    match change {
        TypeChange::AddValue { label, if_not_exists, beside } => {
            if labels.contains(label) {
                return if *if_not_exists { Ok(()) } else { Err(exists(label)) };
            }
            let at = match beside {
                None => labels.len(),
                Some(LabelPosition::Before(other)) => place(labels, other)?,
                Some(LabelPosition::After(other)) => place(labels, other)? + 1,
            };
            labels.insert(at, label.clone());
        }
        TypeChange::RenameValue { from, to } => {
            let at = place(labels, from)?;
            if labels.contains(to) {
                return Err(exists(to));
            }
            labels[at].clone_from(to);
        }
        TypeChange::RenameTo(to) => of.name.clone_from(to),
        TypeChange::OwnerTo(to) => of.maker = Some(to.clone()),
    }
    Ok(())
}

/// Drops types at COMMIT, or at once.
pub(super) async fn drop_types(node: &Node, who: &Principal, ids: &[TypeId]) -> Result<()> {
    for id in ids {
        node.drop_type(who, *id).await?;
    }
    Ok(())
}
