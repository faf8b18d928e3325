//! May they? The one place where it is decided.
//!
//! The door says what is about to be done ([`AuthAction`]) and for whom ([`Principal`]); [`authorize`] says yes, or why
//! not. While there are no users everybody may do everything, which is why a server without users listens on loopback
//! alone. With users, what is not granted is denied: superusers may do everything; an owner everything with the table;
//! others what they were granted.

use tarn_types::{TableId, TableSchema};

use super::access::Privilege;
use super::users::Users;
use crate::error::{Error, ErrorKind, Result};

/// Who asks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "what is said of each names its fields")]
pub enum Principal {
    /// Nobody has proved who they are.
    #[default]
    Nobody,
    /// Who proved to be this user. The id tells a user from a later one of the same name.
    User { name: String, id: u32 },
    /// The node itself, who may everything: what it does by its own rules, and for no user. Whoever acts for somebody
    /// never says so, but where a rule of SQL gives what its user may not ask for: objects that go with one that is
    /// dropped, whosever they are, and those that a transaction made, when it is undone.
    Node,
}

impl Principal {
    /// `None` while there are no users.
    pub fn name(&self) -> Option<&str> {
        match self {
            Principal::Nobody | Principal::Node => None,
            Principal::User { name, .. } => Some(name),
        }
    }
}

/// What somebody made that is no table, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are what they are called")]
pub enum Object<'a> {
    Schema(&'a str),
    Type(&'a str),
    Function(&'a str),
    Sequence(&'a str),
}

/// What is about to be done.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "what is said of each names its fields")]
pub enum AuthAction<'a> {
    /// What concerns the session alone, or is in every catalog: transactions, settings of the session, names of tables.
    Session,
    /// Reading or writing rows of a table, or reading a view.
    Rows { of: &'a TableSchema, privilege: Privilege },
    /// Reading a table or view because a view does, which somebody else may have made: its owner must be allowed to.
    Through { view: TableId, of: &'a TableSchema },
    /// What only the owner of a table or view may do: drop it, grant it, ask for its background work.
    Own { of: &'a TableSchema },
    /// What only who made something may do, and superusers: change it, drop it; of a schema also make something in it.
    Change { of: Object<'a>, maker: Option<&'a str> },
    /// Making a table, or anything else that has a name in schema `public`.
    Create,
    /// Changing the password of a user, and nothing else.
    Password { of: &'a str },
    /// Stopping a session, or what it runs.
    Signal { of: &'a Principal },
    /// What concerns the server: its files, buckets, caches and users. `what` completes "must be superuser to".
    Server { what: &'a str },
}

/// Whether it may be done now.
///
/// Errors: `NotAllowedIn` for who is not, or no longer, a user; `Denied` naming what was denied.
pub fn authorize(users: &Users, who: &Principal, action: &AuthAction<'_>) -> Result<()> {
    if users.is_empty() || *who == Principal::Node {
        return Ok(());
    }
    let Principal::User { name: user, id } = who else {
        return Err(Error::new(ErrorKind::NotAllowedIn, "this connection was made before there were users")
            .with_hint("connect again, with a user and a password"));
    };
    let Some(known) = users.get(user).filter(|known| known.id == *id && known.login) else {
        return Err(Error::new(ErrorKind::NotAllowedIn, format!("role \"{user}\" may no longer log in")));
    };
    if let AuthAction::Through { view, of } = *action {
        return match may_read_through(users, view, of.id) {
            true => Ok(()),
            false => Err(denied(format!("permission denied for {} {}", of.kind(), of.name))
                .with_hint("a view reads with the rights of its owner: GRANT SELECT to that role")),
        };
    }
    if known.superuser {
        return Ok(());
    }
    // Nobody finds a temporary table but the session that made it.
    if let AuthAction::Rows { of, .. } | AuthAction::Own { of } = *action
        && of.id.is_temporary()
    {
        return Ok(());
    }
    match *action {
        AuthAction::Session => Ok(()),
        AuthAction::Rows { of, privilege } => {
            let may = users.owns(of.id, user) || users.is_granted(of.id, user, privilege);
            if may { Ok(()) } else { Err(denied(format!("permission denied for {} {}", of.kind(), of.name))) }
        }
        AuthAction::Own { of } => {
            if users.owns(of.id, user) {
                Ok(())
            } else {
                Err(denied(format!("must be owner of {} {}", of.kind(), of.name)))
            }
        }
        AuthAction::Through { .. } => Err(denied("the owner of a view is asked for before")),
        AuthAction::Change { maker, .. } if maker == Some(user.as_str()) => Ok(()),
        AuthAction::Change { of, .. } => Err(denied(match of {
            Object::Schema(name) => {
                format!("must be superuser to change schema {name}, or what is in it, which another role owns")
            }
            Object::Type(name) => format!("must be superuser to change type {name}, which another role made"),
            Object::Function(name) => format!("must be superuser to change function {name}, which another role made"),
            Object::Sequence(name) => format!("must be superuser to use sequence {name}, which another role made"),
        })),
        AuthAction::Create if users.may_create(user) => Ok(()),
        AuthAction::Create => Err(denied("permission denied for schema public")
            .with_hint(format!("a superuser may GRANT CREATE ON SCHEMA public TO {user}"))),
        AuthAction::Password { of } if of == user => Ok(()),
        AuthAction::Password { .. } => Err(denied("must be superuser to change another role's password")),
        AuthAction::Signal { of } if of == who => Ok(()),
        AuthAction::Signal { .. } => Err(denied("permission denied to stop what another role runs")
            .with_hint("superusers may, and whoever is logged in as that role")),
        AuthAction::Server { what } => Err(denied(format!("must be superuser to {what}"))),
    }
}

/// Whether the owner of a view may read what it reads. One without an owner is of superusers, as its tables are.
fn may_read_through(users: &Users, view: TableId, table: TableId) -> bool {
    let Some(owner) = users.owner(view) else { return true };
    users.get(owner).is_some_and(|owner| owner.superuser)
        || users.owns(table, owner)
        || users.is_granted(table, owner, Privilege::Select)
}

/// Whether `who` may do everything.
pub fn is_superuser(users: &Users, who: &Principal) -> bool {
    authorize(users, who, &AuthAction::Server { what: "ask" }).is_ok()
}

/// Whether anything was granted, or it is one's own: system tables show those.
pub fn may_see(users: &Users, who: &Principal, of: &TableSchema) -> bool {
    Privilege::ALL.iter().any(|&privilege| authorize(users, who, &AuthAction::Rows { of, privilege }).is_ok())
}

fn denied(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Denied, message)
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use tarn_types::{TableOptions, TabletId};

    use super::*;
    use crate::auth::access::{Access, Attributes, Grant, Objects, PUBLIC};
    use crate::auth::password::Verifier;
    use crate::auth::users::TablesByName;

    /// One's own, one that is shared for reading, and one that is neither.
    static TABLES: LazyLock<[TableSchema; 3]> =
        LazyLock::new(|| [table(1, "own"), table(2, "shared"), table(3, "other")]);

    fn table(id: u32, name: &str) -> TableSchema {
        let (columns, key, options) = (vec![], vec![], TableOptions::default());
        let (id, name, first_tablet) = (TableId(id), name.to_owned(), TabletId(0));
        TableSchema { id, name, columns, key, n_partition_key: 0, first_tablet, options }
    }

    fn user(name: &str, login: bool, superuser: bool) -> Access {
        let password = Some(Some(Verifier::of_password("x")));
        let attributes = Attributes { login: Some(login), superuser: Some(superuser), password };
        Access::CreateUser { name: name.to_owned(), attributes }
    }

    fn grant(privileges: &[Privilege], on: Objects, to: &str) -> Access {
        Access::Grant(Grant { privileges: privileges.iter().copied().collect(), on, users: vec![to.to_owned()] })
    }

    fn users(changes: &[Access]) -> Users {
        let tables = TABLES.iter().map(|table| (table.name.clone(), table.id));
        let tables: TablesByName = tables.chain([("of bob".to_owned(), TableId(4))]).collect();
        let mut users = Users::default();
        for change in changes {
            users.apply(change, &tables).unwrap_or_else(|error| panic!("{change:?}: {error}"));
        }
        assert_eq!(Users::of_text(&users.to_text()).unwrap(), users, "it is read as it was written");
        users
    }

    fn is(users: &Users, name: &str) -> Principal {
        Principal::User { name: name.to_owned(), id: users.get(name).map_or(0, |user| user.id) }
    }

    /// Every kind of action, on a table of one's own, one that is shared for reading, and one that is neither.
    fn actions() -> Vec<(&'static str, AuthAction<'static>)> {
        let [own, shared, other] = &*TABLES;
        let rows = |of, privilege| AuthAction::Rows { of, privilege };
        let mut all = vec![
            ("session", AuthAction::Session),
            ("create", AuthAction::Create),
            ("change own", AuthAction::Change { of: Object::Type("mood"), maker: Some("bob") }),
            ("change other", AuthAction::Change { of: Object::Sequence("s"), maker: Some("eve") }),
            ("change nobody's", AuthAction::Change { of: Object::Schema("s"), maker: None }),
            ("password of bob", AuthAction::Password { of: "bob" }),
            ("password of root", AuthAction::Password { of: "root" }),
            ("server", AuthAction::Server { what: "stop it" }),
        ];
        for privilege in Privilege::ALL {
            all.push(("rows own", rows(own, privilege)));
            let name = if privilege == Privilege::Select { "read shared" } else { "write shared" };
            all.push((name, rows(shared, privilege)));
            all.push(("rows other", rows(other, privilege)));
        }
        for (name, of) in [("own", own), ("own shared", shared), ("own other", other)] {
            all.push((name, AuthAction::Own { of }));
        }
        all
    }

    #[test]
    fn who_may_what() {
        let setup = [
            user("root", true, true),
            user("bob", true, false),
            user("eve", true, false),
            user("out", false, false),
            Access::Owner { table: "own".to_owned(), to: "bob".to_owned() },
            grant(&[Privilege::Select], Objects::Tables(vec!["shared".to_owned()]), PUBLIC),
            grant(&Privilege::ALL, Objects::Tables(vec!["other".to_owned()]), "out"),
            grant(&[], Objects::Schema, "bob"),
        ];
        let users = users(&setup);
        let later = Principal::User { name: "bob".to_owned(), id: 99 };
        let gone = Principal::User { name: "gone".to_owned(), id: 1 };
        let all: Vec<&str> = actions().into_iter().map(|(name, _)| name).collect();
        let may: [(Principal, &[&str]); 8] = [
            (Principal::Node, &all),
            (
                is(&users, "root"),
                &[
                    "session",
                    "create",
                    "change own",
                    "change other",
                    "change nobody's",
                    "password of bob",
                    "password of root",
                    "server",
                    "rows own",
                    "read shared",
                    "write shared",
                    "rows other",
                    "own",
                    "own shared",
                    "own other",
                ],
            ),
            (
                is(&users, "bob"),
                &["session", "create", "change own", "password of bob", "rows own", "read shared", "own"],
            ),
            (is(&users, "eve"), &["session", "change other", "read shared"]),
            (is(&users, "out"), &[]),
            (later, &[]),
            (gone, &[]),
            (Principal::Nobody, &[]),
        ];
        for (who, allowed) in may {
            for (name, action) in actions() {
                let decided = authorize(&users, &who, &action);
                assert_eq!(decided.is_ok(), allowed.contains(&name), "{who:?}: {action:?}: {decided:?}");
                if let Err(error) = decided {
                    assert!([ErrorKind::Denied, ErrorKind::NotAllowedIn].contains(&error.kind()), "{error}");
                }
            }
        }
        for (_, action) in actions() {
            assert!(authorize(&Users::default(), &Principal::Nobody, &action).is_ok(), "without users: {action:?}");
        }
    }

    #[test]
    fn a_view_reads_with_the_rights_of_its_owner() {
        let setup = [
            user("root", true, true),
            user("bob", false, false),
            user("eve", true, false),
            Access::Owner { table: "own".to_owned(), to: "bob".to_owned() },
            Access::Owner { table: "of bob".to_owned(), to: "bob".to_owned() },
            grant(&[Privilege::Select], Objects::Tables(vec!["shared".to_owned()]), PUBLIC),
        ];
        let users = users(&setup);
        let of_bob = TableId(4);
        for who in ["root", "eve"] {
            let may = |view, of| authorize(&users, &is(&users, who), &AuthAction::Through { view, of });
            let [own, shared, other] = &*TABLES;
            assert!(may(of_bob, own).is_ok() && may(of_bob, shared).is_ok(), "{who}: bob cannot log in, and owns it");
            let denied = may(of_bob, other).unwrap_err();
            assert_eq!((denied.kind(), denied.message()), (ErrorKind::Denied, "permission denied for table other"));
            assert!(may(TableId(5), other).is_ok(), "{who}: a view of the superusers'");
        }
        let gone = AuthAction::Through { view: of_bob, of: &TABLES[0] };
        assert_eq!(authorize(&users, &Principal::Nobody, &gone).unwrap_err().kind(), ErrorKind::NotAllowedIn);
    }

    #[test]
    fn a_document_that_is_not_understood_lets_nobody_in() {
        for text in [
            "",
            "{}",
            "[]",
            "{\"format\":2,\"next_id\":1,\"users\":{},\"tables\":{},\"creators\":[],\"mock_secret\":\"\"}",
        ] {
            assert_eq!(Users::of_text(text).unwrap_err().kind(), ErrorKind::Corrupt, "{text}");
        }
    }
}
