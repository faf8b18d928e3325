//! Who is there, and what was granted to whom? One document of the metastore, changed as a whole
//! (`docs/formats/users.md`).
//!
//! Pure: a statement about users ([`Access`]) changes a copy of [`Users`], or says why not. Whether the one who asks
//! may ask is not decided here ([`super::authorize()`]), but what would leave nobody who can decide anything is
//! refused.
//!
//! Rights on tables hang on the table's id: a table that is dropped takes them along, and the next of its name begins
//! without any.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tarn_types::{TableId, full_name};

use super::access::{Access, Attributes, Grant, Objects, PUBLIC, Privilege};
use super::password::{encode, random};
use crate::error::{Error, ErrorKind, Result};

/// Of the document.
const FORMAT: u8 = 1;

/// As PostgreSQL: 63 bytes of a name count.
const MAX_NAME_BYTES: usize = 63;

/// The document is read and written whole.
const MAX_USERS: usize = 10_000;

/// One user. Roles are users that cannot log in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// Never given to another.
    pub id: u32,
    /// Whether they may connect.
    pub login: bool,
    /// Whether they may do everything.
    pub superuser: bool,
    /// In PostgreSQL's text form. None: no password fits.
    pub verifier: Option<String>,
}

impl User {
    fn can_rule(&self) -> bool {
        self.login && self.superuser && self.verifier.is_some()
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rights {
    owner: Option<String>,
    grants: BTreeMap<String, BTreeSet<Privilege>>,
}

/// All users and their rights. Empty: everybody is superuser.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Users {
    format: u8,
    next_id: u32,
    users: BTreeMap<String, User>,
    /// By the id of the table.
    tables: BTreeMap<u32, Rights>,
    /// Who may make tables.
    creators: BTreeSet<String>,
    /// What the salts of users that are not there are made of.
    mock_secret: String,
}

/// The tables that there are, for statements that name them.
pub type TablesByName = BTreeMap<String, TableId>;

impl Default for Users {
    fn default() -> Self {
        Users {
            format: FORMAT,
            next_id: 1,
            users: BTreeMap::new(),
            tables: BTreeMap::new(),
            creators: BTreeSet::new(),
            mock_secret: String::new(),
        }
    }
}

impl Users {
    /// The document's text.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("users have a JSON form")
    }

    /// Errors: `Corrupt` when it is damaged, or of a newer build.
    pub fn of_text(text: &str) -> Result<Users> {
        let corrupt = |why: String| {
            Error::new(ErrorKind::Corrupt, format!("the metastore's document of users: {why}"))
                .with_hint("nothing is served: everybody would be let in. Restore the metastore, or use a newer build")
        };
        // Its place without its content: that has verifiers.
        let read: Result<Users, serde_json::Error> = serde_json::from_str(text);
        let users = read.map_err(|e| corrupt(format!("not understood at line {}, column {}", e.line(), e.column())))?;
        if users.format != FORMAT {
            return Err(corrupt(format!("it has format {}, this build reads {FORMAT}", users.format)));
        }
        Ok(users)
    }

    /// While it is so, nobody is asked who they are.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// By name, exactly.
    pub fn get(&self, name: &str) -> Option<&User> {
        self.users.get(name)
    }

    /// By name.
    pub fn all(&self) -> impl Iterator<Item = (&str, &User)> {
        self.users.iter().map(|(name, user)| (name.as_str(), user))
    }

    /// For the salts of users who are not there: an answer does not tell whether a name is known.
    pub fn mock_secret(&self) -> &[u8] {
        self.mock_secret.as_bytes()
    }

    /// Whether the user owns the table or view.
    pub fn owns(&self, table: TableId, user: &str) -> bool {
        self.tables.get(&table.0).is_some_and(|rights| rights.owner.as_deref() == Some(user))
    }

    /// Who owns a table or view. None: it is the superusers'.
    pub fn owner(&self, table: TableId) -> Option<&str> {
        self.tables.get(&table.0)?.owner.as_deref()
    }

    /// Whether the user, or everybody, was granted it.
    pub fn is_granted(&self, table: TableId, user: &str, privilege: Privilege) -> bool {
        let Some(rights) = self.tables.get(&table.0) else { return false };
        [user, PUBLIC].iter().any(|name| rights.grants.get(*name).is_some_and(|given| given.contains(&privilege)))
    }

    /// Whether the user, or everybody, may make tables in `public`.
    pub fn may_create(&self, user: &str) -> bool {
        self.creators.contains(user) || self.creators.contains(PUBLIC)
    }

    /// Makes a user the owner of a table that was just made.
    pub fn own(&mut self, table: TableId, owner: &str) {
        self.tables.entry(table.0).or_default().owner = Some(owner.to_owned());
    }

    /// Owner and grants of a table are those of another, too.
    pub fn copy_rights(&mut self, from: TableId, to: TableId) {
        if let Some(rights) = self.tables.get(&from.0).cloned() {
            self.tables.insert(to.0, rights);
        }
    }

    /// Forgets the rights on tables that are gone.
    pub fn keep_only(&mut self, tables: &TablesByName) {
        let there: BTreeSet<u32> = tables.values().map(|id| id.0).collect();
        self.tables.retain(|id, _| there.contains(id));
    }

    /// Changes users and rights as a statement says, all of it or nothing.
    pub fn apply(&mut self, access: &Access, tables: &TablesByName) -> Result<()> {
        let mut changed = self.clone();
        match access {
            Access::CreateUser { name, attributes } => changed.create(name, attributes)?,
            Access::AlterUser { name, attributes } => changed.alter(name, attributes)?,
            Access::DropUser { names, if_exists } => changed.drop_users(names, *if_exists, tables)?,
            Access::Grant(grant) => changed.grant(grant, tables, true)?,
            Access::Revoke(grant) => changed.grant(grant, tables, false)?,
            Access::Owner { table, to } => {
                let id = table_id(tables, table)?;
                changed.known(to)?;
                changed.own(id, to);
            }
        }
        if changed == *self {
            return Ok(());
        }
        if !changed.users.values().any(User::can_rule) {
            return Err(Error::new(
                ErrorKind::InUse,
                "there would be no superuser left who can log in, and nobody who could make one",
            )
            .with_hint("the first user is made with SUPERUSER, LOGIN and a PASSWORD, and the last such one stays"));
        }
        *self = changed;
        Ok(())
    }

    fn create(&mut self, name: &str, attributes: &Attributes) -> Result<()> {
        check_name(name)?;
        if self.users.contains_key(name) {
            return Err(Error::new(ErrorKind::ObjectExists, format!("role \"{name}\" already exists")));
        }
        if self.users.len() >= MAX_USERS {
            return Err(Error::new(ErrorKind::ProgramLimit, format!("there are {MAX_USERS} roles, no more fit")));
        }
        if self.mock_secret.is_empty() {
            self.mock_secret = encode(&random::<32>());
        }
        let user = User { id: self.next_id, login: false, superuser: false, verifier: None };
        self.next_id += 1;
        self.users.insert(name.to_owned(), user);
        self.alter(name, attributes)
    }

    fn alter(&mut self, name: &str, attributes: &Attributes) -> Result<()> {
        let user = self.users.get_mut(name).ok_or_else(|| unknown(name))?;
        user.login = attributes.login.unwrap_or(user.login);
        user.superuser = attributes.superuser.unwrap_or(user.superuser);
        if let Some(password) = &attributes.password {
            user.verifier = password.as_ref().map(ToString::to_string);
        }
        Ok(())
    }

    fn drop_users(&mut self, names: &[String], if_exists: bool, tables: &TablesByName) -> Result<()> {
        for name in names {
            if self.users.remove(name).is_none() {
                if if_exists {
                    continue;
                }
                return Err(unknown(name));
            }
            let holds = |rights: &Rights| rights.owner.as_ref() == Some(name) || rights.grants.contains_key(name);
            let held: Vec<&str> = tables
                .iter()
                .filter(|(_, id)| self.tables.get(&id.0).is_some_and(holds))
                .map(|(table, _)| table.as_str())
                .collect();
            if !held.is_empty() || self.creators.contains(name) {
                let what = if held.is_empty() { "schema public".to_owned() } else { held.join(", ") };
                return Err(Error::new(
                    ErrorKind::Depended,
                    format!("role \"{name}\" cannot be dropped because it owns, or has privileges on, {what}"),
                )
                .with_hint(
                    "ALTER TABLE … OWNER TO another, REVOKE ALL ON ALL TABLES IN SCHEMA public FROM it, \
                     REVOKE CREATE ON SCHEMA public FROM it",
                ));
            }
        }
        Ok(())
    }

    fn grant(&mut self, grant: &Grant, tables: &TablesByName, give: bool) -> Result<()> {
        for user in &grant.users {
            if user != PUBLIC {
                self.known(user)?;
            }
        }
        let ids: Vec<TableId> = match &grant.on {
            Objects::Schema => {
                for user in &grant.users {
                    match give {
                        true => self.creators.insert(user.clone()),
                        false => self.creators.remove(user),
                    };
                }
                return Ok(());
            }
            Objects::Tables(names) => names.iter().map(|name| table_id(tables, name)).collect::<Result<_>>()?,
            Objects::AllTables(schema) => {
                let is_in = |(name, _): &(&String, &TableId)| full_name::schema_of(name) == schema;
                tables.iter().filter(is_in).map(|(_, id)| *id).collect()
            }
        };
        for id in ids {
            let rights = self.tables.entry(id.0).or_default();
            for user in &grant.users {
                let given = rights.grants.entry(user.clone()).or_default();
                match give {
                    true => given.extend(&grant.privileges),
                    false => given.retain(|privilege| !grant.privileges.contains(privilege)),
                }
            }
            rights.grants.retain(|_, given| !given.is_empty());
        }
        self.tables.retain(|_, rights| *rights != Rights::default());
        Ok(())
    }

    fn known(&self, name: &str) -> Result<()> {
        self.users.contains_key(name).then_some(()).ok_or_else(|| unknown(name))
    }
}

fn table_id(tables: &TablesByName, name: &str) -> Result<TableId> {
    tables.get(name).copied().ok_or_else(|| Error::no_table(name))
}

fn unknown(name: &str) -> Error {
    Error::new(ErrorKind::NoObject, format!("role \"{name}\" does not exist"))
}

/// Names that mean something else cannot be given.
fn check_name(name: &str) -> Result<()> {
    const RESERVED: [&str; 5] = [PUBLIC, "none", "current_user", "session_user", "current_role"];
    let is_reserved = RESERVED.contains(&name) || name.starts_with("pg_");
    if name.is_empty() || is_reserved || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
        let message = format!("role name \"{}\" is reserved, empty or longer than 63 bytes", name.escape_debug());
        return Err(Error::new(ErrorKind::ReservedName, message));
    }
    // HTTP's Basic splits name and password there.
    if name.contains(':') {
        return Err(Error::new(ErrorKind::Invalid, format!("role name \"{name}\": no colon, please")));
    }
    Ok(())
}
