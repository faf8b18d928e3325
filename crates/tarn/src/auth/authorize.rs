//! May they? The one place where it is decided.
//!
//! A session says what a statement is about to do ([`Action`]) and for whom ([`Principal`]); [`authorize`] says yes, or why not.
//! While there are no users everybody may do everything, which is why a server without users listens on loopback alone. With users,
//! what is not granted is denied: superusers may do everything; an owner everything with the table; others what they were granted.

use tarn_types::TableId;

use super::users::{Privilege, Users};
use crate::error::{Result, SqlError, state};

/// Who asks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Principal {
    /// Nobody has proved who they are.
    #[default]
    Nobody,
    /// Who proved to be this user. The id tells a user from a later one of the same name.
    User { name: String, id: u32 },
}

impl Principal {
    pub fn name(&self) -> Option<&str> {
        match self {
            Principal::Nobody => None,
            Principal::User { name, .. } => Some(name),
        }
    }
}

/// What is about to be done.
#[derive(Debug, Clone, Copy)]
pub enum Action<'a> {
    /// What concerns the session alone, or is in every catalog: transactions, settings of the session, names of tables.
    Session,
    /// Reading or writing rows.
    Rows { table: TableId, name: &'a str, privilege: Privilege },
    /// What only the owner of a table may do: drop it, grant it, ask for its background work.
    Own { table: TableId, name: &'a str },
    /// Making a table.
    Create,
    /// Changing the password of a user, and nothing else.
    Password { of: &'a str },
    /// What concerns the server: its files, buckets, caches and users. `what` completes "must be superuser to".
    Server { what: &'a str },
}

/// Whether it may be done now.
///
/// Errors: `28000` for who is not, or no longer, a user; `42501` naming what was denied.
pub fn authorize(users: &Users, who: &Principal, action: &Action<'_>) -> Result<()> {
    if users.is_empty() {
        return Ok(());
    }
    let Principal::User { name: user, id } = who else {
        return Err(SqlError::new(state::INVALID_AUTHORIZATION, "this connection was made before there were users")
            .with_hint("connect again, with a user and a password"));
    };
    let Some(known) = users.get(user).filter(|known| known.id == *id && known.login) else {
        return Err(SqlError::new(state::INVALID_AUTHORIZATION, format!("role \"{user}\" may no longer log in")));
    };
    if known.superuser {
        return Ok(());
    }
    match *action {
        Action::Session => Ok(()),
        Action::Rows { table, name, privilege } => {
            let may = users.owns(table, user) || users.is_granted(table, user, privilege);
            if may { Ok(()) } else { Err(denied(format!("permission denied for table {name}"))) }
        }
        Action::Own { table, name } => {
            if users.owns(table, user) {
                Ok(())
            } else {
                Err(denied(format!("must be owner of table {name}")))
            }
        }
        Action::Create if users.may_create(user) => Ok(()),
        Action::Create => Err(denied("permission denied for schema public")
            .with_hint(format!("a superuser may GRANT CREATE ON SCHEMA public TO {user}"))),
        Action::Password { of } if of == user => Ok(()),
        Action::Password { .. } => Err(denied("must be superuser to change another role's password")),
        Action::Server { what } => Err(denied(format!("must be superuser to {what}"))),
    }
}

/// Whether `who` may do everything.
pub fn is_superuser(users: &Users, who: &Principal) -> bool {
    authorize(users, who, &Action::Server { what: "ask" }).is_ok()
}

/// Whether anything was granted, or it is one's own: system tables show those.
pub fn may_see(users: &Users, who: &Principal, table: TableId, name: &str) -> bool {
    Privilege::ALL.iter().any(|&privilege| authorize(users, who, &Action::Rows { table, name, privilege }).is_ok())
}

fn denied(message: impl Into<String>) -> SqlError {
    SqlError::new(state::INSUFFICIENT_PRIVILEGE, message)
}
