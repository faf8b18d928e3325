//! Which users does this server know now?
//!
//! The document of users in memory, and its changes. A change is made to what the metastore has at that moment and put
//! back if nobody else was quicker; it holds for all sessions from then on, the one that was connected longest
//! included. What other servers of the same metastore change is read every [`REFRESH`].

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tarn_metastore::{Metastore, document, is_document, put_document};
use tarn_types::TableId;
use tokio::sync::Semaphore;

use super::access::{Access, Attributes};
use super::authorize::Principal;
use super::password::Verifier;
use super::users::{TablesByName, Users};
use crate::error::{Error, ErrorKind, Result};
use crate::threads::blocking;

/// The name of the document.
const DOCUMENT: &str = "users";

/// How often a change is tried that others get in the way of.
const TRIES: usize = 5;

/// Passwords that are looked at side by side: the other threads are for statements.
const MAX_CHECKS: usize = 2;

/// How long who was not let in waits to hear it, on its own connection. Guessing is slow, and nobody else waits.
pub const FAILURE_DELAY: Duration = Duration::from_millis(500);

/// Between two looks at what other servers changed.
pub const REFRESH: Duration = Duration::from_secs(2);

/// All users of a server. Shared by its sessions.
pub struct Directory {
    metastore: Arc<dyn Metastore>,
    /// Held for moments only.
    known: RwLock<VersionedUsers>,
    /// One change at a time.
    changing: tokio::sync::Mutex<()>,
    /// Places of those whose password is being looked at.
    checking: Semaphore,
}

struct VersionedUsers {
    /// Of the document. It only grows: what is read may be older than what was written here meanwhile.
    version: u64,
    users: Arc<Users>,
}

impl Directory {
    /// Reads the users.
    ///
    /// Errors: the metastore's; `Corrupt` when the document cannot be understood: nobody is let in then.
    pub async fn open(metastore: Arc<dyn Metastore>) -> Result<Directory> {
        let (users, version) = read(&*metastore).await?;
        Ok(Directory {
            metastore,
            known: RwLock::new(VersionedUsers { version, users: Arc::new(users) }),
            changing: tokio::sync::Mutex::default(),
            checking: Semaphore::new(MAX_CHECKS),
        })
    }

    /// As they are now.
    pub fn users(&self) -> Arc<Users> {
        Arc::clone(&self.known.read().users)
    }

    /// Reads what other servers changed. Cost: one list of the tables.
    ///
    /// Errors: as [`Directory::open`]; the users that were known stay.
    pub async fn refresh(&self) -> Result<()> {
        let Some(document) = document(&*self.metastore, DOCUMENT).await? else {
            // Users do not go away all together, and without any everybody would be let in.
            return match self.known.read().version {
                0 => Ok(()),
                _ => Err(Error::new(ErrorKind::Corrupt, "the metastore has lost its document of users")
                    .with_hint("the users that were known are still asked for; restore the metastore")),
            };
        };
        if document.version > self.known.read().version {
            self.learn(Users::of_text(&document.text)?, document.version);
            tracing::info!(target: "tarn::audit", version = document.version, "another server changed users or rights");
        }
        Ok(())
    }

    fn learn(&self, users: Users, version: u64) {
        let mut known = self.known.write();
        if version > known.version {
            *known = VersionedUsers { version, users: Arc::new(users) };
        }
    }

    /// Does what a statement says. Durable, and in force, when it returns. Whether it may be said was asked before.
    pub(crate) async fn apply(&self, access: &Access) -> Result<()> {
        self.change(|users, tables| users.apply(access, tables)).await
    }

    /// Makes a user the owner of a table that was just made.
    pub(crate) async fn own(&self, table: &str, owner: &str) -> Result<()> {
        let own = |users: &mut Users, tables: &TablesByName| {
            let id: Option<&TableId> = tables.get(table);
            users.own(*id.ok_or_else(|| Error::no_table(table))?, owner);
            Ok(())
        };
        self.change(own).await
    }

    /// What may be done with a table may be done with another, too, that is to take its place.
    pub(crate) async fn copy_rights(&self, from: TableId, to: TableId) -> Result<()> {
        if self.users().is_empty() {
            return Ok(());
        }
        let copy = |users: &mut Users, _: &TablesByName| {
            users.copy_rights(from, to);
            Ok(())
        };
        self.change(copy).await
    }

    /// Makes a superuser, or makes a user that is there one that can log in with this password. For the operator, who
    /// has the server's settings and files: nobody is asked.
    pub async fn make_superuser(&self, name: &str, password: &str) -> Result<()> {
        let attributes = Attributes {
            login: Some(true),
            superuser: Some(true),
            password: Some(Some(Verifier::of_password(password))),
        };
        let change = |users: &mut Users, tables: &TablesByName| {
            let (name, attributes) = (name.to_owned(), attributes.clone());
            users.apply(
                &match users.get(&name) {
                    Some(_) => Access::AlterUser { name, attributes },
                    None => Access::CreateUser { name, attributes },
                },
                tables,
            )
        };
        self.change(change).await
    }

    async fn change(&self, change: impl Fn(&mut Users, &TablesByName) -> Result<()>) -> Result<()> {
        let _one = self.changing.lock().await;
        for _ in 0..TRIES {
            let (mut users, version) = read(&*self.metastore).await?;
            let tables = tables(&*self.metastore).await?;
            let before = users.clone();
            users.keep_only(&tables);
            change(&mut users, &tables)?;
            if users == before {
                self.learn(users, version);
                return Ok(());
            }
            match put_document(&*self.metastore, DOCUMENT, version, &users.to_text()).await {
                Ok(version) => {
                    self.learn(users, version);
                    return Ok(());
                }
                Err(tarn_metastore::Error::DocumentChanged { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::new(ErrorKind::Conflict, "others changed users and rights again and again").with_hint("try again"))
    }

    /// What a password of this user is held against. For who is not there, or has no password, it is one that nothing
    /// fits: nobody learns which users there are.
    pub fn verifier(&self, user: &str) -> Verifier {
        let users = self.users();
        let known = users.get(user).filter(|user| user.login).and_then(|user| user.verifier.as_ref()?.parse().ok());
        known.unwrap_or_else(|| Verifier::mock(users.mock_secret(), user))
    }

    /// Who gives this password in clear. Costs milliseconds of a thread; few are asked for at once, others wait.
    ///
    /// Errors: [`wrong_password`], whatever is wrong with it.
    pub async fn check_password(&self, user: &str, password: String) -> Result<Principal> {
        let _place = self.checking.acquire().await.map_err(|_| Error::stopping())?;
        let verifier = self.verifier(user);
        match blocking(move || Ok(verifier.fits(&password))).await? {
            true => self.admit(user),
            false => Err(wrong_password(user)),
        }
    }

    /// Who has just proved to know the password of `user`.
    ///
    /// Errors: [`wrong_password`], when the user went away in between.
    pub fn admit(&self, user: &str) -> Result<Principal> {
        let users = self.users();
        let known = users.get(user).filter(|user| user.login).ok_or_else(|| wrong_password(user))?;
        Ok(Principal::User { name: user.to_owned(), id: known.id })
    }
}

/// What everybody is told who is not let in, whatever the reason.
pub fn wrong_password(user: &str) -> Error {
    let user = user.escape_debug();
    Error::new(ErrorKind::WrongPassword, format!("password authentication failed for user \"{user}\""))
}

async fn read(metastore: &dyn Metastore) -> Result<(Users, u64)> {
    Ok(match document(metastore, DOCUMENT).await? {
        None => (Users::default(), 0),
        Some(document) => (Users::of_text(&document.text)?, document.version),
    })
}

async fn tables(metastore: &dyn Metastore) -> Result<TablesByName> {
    let tables = metastore.tables().await?;
    Ok(tables.iter().filter(|schema| !is_document(schema)).map(|schema| (schema.name.clone(), schema.id)).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tarn_metastore::{Definition, Embedded};
    use tarn_types::ManualClock;

    use super::*;
    use crate::auth::access::Privilege;
    use crate::auth::access::{Grant, Objects};
    use crate::auth::authorize::{AuthAction, authorize};

    async fn say(directory: &Directory, access: Access) {
        directory.apply(&access).await.unwrap_or_else(|error| panic!("{access:?}: {error}"));
    }

    fn attributes(login: Option<bool>, superuser: Option<bool>, password: Option<&str>) -> Attributes {
        Attributes { login, superuser, password: password.map(|password| Some(Verifier::of_password(password))) }
    }

    fn make(name: &str, superuser: bool) -> Access {
        let attributes = attributes(Some(true), Some(superuser), Some("x"));
        Access::CreateUser { name: name.to_owned(), attributes }
    }

    fn change(attributes: Attributes) -> Access {
        Access::AlterUser { name: "bob".to_owned(), attributes }
    }

    /// To make tables.
    fn right() -> Grant {
        Grant { privileges: BTreeSet::new(), on: Objects::Schema, users: vec!["bob".to_owned()] }
    }

    /// Two servers of one metastore.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_another_server_changed_is_learned() {
        let dir = tempfile::tempdir().unwrap();
        let (metastore, _) = Embedded::open(dir.path(), Arc::new(ManualClock::new(0))).unwrap();
        let metastore: Arc<dyn Metastore> = Arc::new(metastore);
        let here = Directory::open(Arc::clone(&metastore)).await.unwrap();
        let there = Directory::open(Arc::clone(&metastore)).await.unwrap();
        there.refresh().await.unwrap();
        assert!(there.users().is_empty());

        say(&here, make("root", true)).await;
        say(&here, make("bob", false)).await;
        there.refresh().await.unwrap();
        assert_eq!(here.users(), there.users());
        let bob = there.admit("bob").unwrap();
        assert!(there.verifier("bob").fits("x"));
        say(&here, change(attributes(None, None, Some("y")))).await;
        there.refresh().await.unwrap();
        assert!(there.verifier("bob").fits("y"));

        // What a change reads, it learns, too.
        say(&here, Access::Grant(right())).await;
        say(&there, change(attributes(Some(true), None, None))).await;
        assert!(there.users().may_create("bob"));
        say(&here, Access::Revoke(right())).await;
        say(&here, Access::DropUser { names: vec!["bob".to_owned()], if_exists: false }).await;
        say(&here, make("bob", false)).await;
        there.refresh().await.unwrap();
        let may = |action: AuthAction<'_>| authorize(&there.users(), &bob, &action).map_err(|error| error.kind());
        assert_eq!(may(AuthAction::Session), Err(ErrorKind::NotAllowedIn), "who was dropped may do nothing more");
        let documents = metastore.tables().await.unwrap();
        let rows = AuthAction::Rows { of: &documents[0], privilege: Privilege::Select };
        assert_eq!(may(rows), Err(ErrorKind::NotAllowedIn));

        // A document that is gone, or not understood, opens nothing.
        let known = there.users();
        let documents = metastore.tables().await.unwrap();
        for schema in documents.iter().filter(|schema| is_document(schema)) {
            metastore.define(Definition::Drop { name: schema.name.clone() }).await.unwrap();
        }
        assert_eq!(there.refresh().await.unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(there.users(), known);
    }
}
