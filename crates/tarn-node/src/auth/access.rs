//! What is changed about users and rights?

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::password::Verifier;

/// The grantee that stands for everybody.
pub const PUBLIC: &str = "public";

/// What may be done with a table's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Privilege {
    Select,
    Insert,
    Update,
    Delete,
}

impl Privilege {
    pub const ALL: [Privilege; 4] = [Privilege::Select, Privilege::Insert, Privilege::Update, Privilege::Delete];
}

/// One change of users or rights, as somebody asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    CreateUser { name: String, attributes: Attributes },
    AlterUser { name: String, attributes: Attributes },
    DropUser { names: Vec<String>, if_exists: bool },
    Grant(Grant),
    Revoke(Grant),
    Owner { table: String, to: String },
}

/// What is said of a user; None: nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes {
    pub login: Option<bool>,
    pub superuser: Option<bool>,
    /// `Some(None)`: PASSWORD NULL.
    pub password: Option<Option<Verifier>>,
}

/// Who gets, or loses, what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Of tables. Of a schema there is one, CREATE.
    pub privileges: BTreeSet<Privilege>,
    pub on: Objects,
    pub users: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Objects {
    Tables(Vec<String>),
    /// Those that there are in this schema when it runs.
    AllTables(String),
    /// Schema `public`.
    Schema,
}

impl Access {
    /// What it is about, for the audit: names, and no secret.
    pub fn objects(&self) -> String {
        match self {
            Access::CreateUser { name, .. } | Access::AlterUser { name, .. } => name.clone(),
            Access::DropUser { names, .. } => names.join(", "),
            Access::Owner { table, to } => format!("{table} to {to}"),
            Access::Grant(grant) | Access::Revoke(grant) => {
                let on = match &grant.on {
                    Objects::Tables(names) => names.join(", "),
                    Objects::AllTables(schema) => format!("all tables of schema {schema}"),
                    Objects::Schema => "schema public".to_owned(),
                };
                format!("{:?} on {on}: {}", grant.privileges, grant.users.join(", "))
            }
        }
    }
}
