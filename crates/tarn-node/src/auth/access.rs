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
    /// To read them.
    Select,
    /// To add rows whose keys are not there.
    Insert,
    /// To change them.
    Update,
    /// To remove them.
    Delete,
}

impl Privilege {
    /// In the order in which `GRANT ALL` and catalogs list them.
    pub const ALL: [Privilege; 4] = [Privilege::Select, Privilege::Insert, Privilege::Update, Privilege::Delete];
}

/// One change of users or rights, as somebody asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "what is said of each names its fields")]
pub enum Access {
    /// A user who was not there.
    CreateUser { name: String, attributes: Attributes },
    /// What is said of a user changes, and nothing else of them.
    AlterUser { name: String, attributes: Attributes },
    /// Users go, with what was granted to them.
    DropUser { names: Vec<String>, if_exists: bool },
    /// Users may from now on.
    Grant(Grant),
    /// Users may no longer.
    Revoke(Grant),
    /// A table or view changes hands.
    Owner { table: String, to: String },
}

/// What is said of a user; None: nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Whether they may connect.
    pub login: Option<bool>,
    /// Whether they may do everything.
    pub superuser: Option<bool>,
    /// `Some(None)`: PASSWORD NULL.
    pub password: Option<Option<Verifier>>,
}

/// Who gets, or loses, what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Of tables. Of a schema there is one, CREATE.
    pub privileges: BTreeSet<Privilege>,
    /// What the privileges are of.
    pub on: Objects,
    /// Who gets or loses them; [`PUBLIC`] among them is everybody.
    pub users: Vec<String>,
}

/// What a right is given on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Objects {
    /// By their names; views among them.
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
