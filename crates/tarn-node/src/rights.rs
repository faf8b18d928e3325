//! Who may define what? What each change of a definition needs, in one place.
//!
//! The door asks here before it changes anything. Whoever has to know earlier, for an error that comes before others,
//! asks the same function: the rule stands once. A name that nothing has is no secret, and no right is asked for it but
//! to be somebody; whether it is there is told by what looks for it.

use std::collections::BTreeMap;

use tarn_types::{ForeignKey, TableSchema, full_name};

use crate::auth::access::{Access, Objects, Privilege};
use crate::auth::authorize::is_superuser;
use crate::auth::{AuthAction, Object, Principal, authorize, roots};
use crate::error::Result;
use crate::functions::UserFunction;
use crate::node::Node;
use crate::renames::Rename;
use crate::schemas::Schema;
use crate::sequences::{Owner, Sequence};
use crate::types::UserType;

impl Node {
    pub(crate) fn may(&self, who: &Principal, action: &AuthAction<'_>) -> Result<()> {
        authorize(&self.users().users(), who, action)
    }

    /// Whether somebody may make something of this full name: in `public` who was granted that, elsewhere who owns the
    /// schema.
    ///
    /// Errors: as all of this file, those of [`authorize()`].
    pub fn may_make(&self, who: &Principal, full: &str) -> Result<()> {
        match full_name::schema_of(full) {
            full_name::PUBLIC => self.may(who, &AuthAction::Create),
            schema => match self.schemas().get(schema) {
                Some(of) => self.may_change_schema(who, &of),
                None => self.may(who, &AuthAction::Session),
            },
        }
    }

    /// Whether somebody may change a table or view, or ask for its background work: its owner.
    pub fn may_own(&self, who: &Principal, of: &TableSchema) -> Result<()> {
        self.may(who, &AuthAction::Own { of })
    }

    /// The same, of what is called so now. Of a name that no open table has, superusers alone may know more: it may be
    /// a table that is too damaged to be served.
    ///
    /// Errors: `NoTable`, too.
    pub fn may_own_named(&self, who: &Principal, name: &str) -> Result<()> {
        match self.catalog().schema(name) {
            Ok(of) => self.may_own(who, &of),
            Err(_) if is_superuser(&self.users().users(), who) => Ok(()),
            Err(absent) => self.may(who, &AuthAction::Session).and(Err(absent)),
        }
    }

    /// Whether somebody may call tables and views otherwise, one after the other: they are his, and so is a schema that
    /// they come into.
    ///
    /// Errors: `NoTable`, too.
    pub fn may_rename(&self, who: &Principal, renames: &[Rename]) -> Result<()> {
        let mut now: BTreeMap<&str, &str> = BTreeMap::new();
        for Rename { from, to } in renames {
            let name = now.remove(from.as_str()).unwrap_or(from);
            self.may_own_named(who, name)?;
            self.may_move(who, from, to)?;
            now.insert(to, name);
        }
        Ok(())
    }

    /// Whether something may be called so, as to the schema that it comes into with that.
    pub(crate) fn may_move(&self, who: &Principal, from: &str, to: &str) -> Result<()> {
        match full_name::schema_of(from) == full_name::schema_of(to) {
            true => Ok(()),
            false => self.may_make(who, to),
        }
    }

    /// Whether a table may have the foreign keys that it has not yet: who lets a table refer to another keeps rows of
    /// that one from being deleted, and must own it.
    pub(crate) fn may_refer(&self, who: &Principal, before: Option<&TableSchema>, table: &TableSchema) -> Result<()> {
        let refers = |key: &ForeignKey| (key.parent, key.columns.clone(), key.parent_columns.clone());
        let had = before.iter().flat_map(|before| &before.options.rules.foreign_keys);
        let had: Vec<_> = had.map(refers).collect();
        let comes = table.options.rules.foreign_keys.iter().filter(|key| !had.contains(&refers(key)));
        for key in comes.filter(|key| key.parent != ForeignKey::ITSELF) {
            // Of one that is gone is told by who keeps it.
            if let Some(parent) = self.catalog().by_id(key.parent, "") {
                self.may_own(who, parent.schema())?;
            }
        }
        Ok(())
    }

    /// Whether somebody may make a schema: superusers.
    pub fn may_make_schemas(&self, who: &Principal) -> Result<()> {
        self.may(who, &AuthAction::Server { what: "create schemas" })
    }

    /// Whether somebody may change a schema, and make something in it: its owner.
    pub fn may_change_schema(&self, who: &Principal, of: &Schema) -> Result<()> {
        self.may(who, &AuthAction::Change { of: Object::Schema(&of.name), maker: of.owner.as_deref() })
    }

    /// Whether somebody may change a type: its maker.
    pub fn may_change_type(&self, who: &Principal, of: &UserType) -> Result<()> {
        self.may(who, &AuthAction::Change { of: Object::Type(&of.name), maker: of.maker.as_deref() })
    }

    /// Whether somebody may change a function: its maker.
    pub fn may_change_function(&self, who: &Principal, of: &UserFunction) -> Result<()> {
        self.may(who, &AuthAction::Change { of: Object::Function(&of.name), maker: of.maker.as_deref() })
    }

    /// Whether somebody may change a sequence: the owner of its table, or who made it.
    pub fn may_change_sequence(&self, who: &Principal, name: &str, sequence: &Sequence) -> Result<()> {
        let table = sequence.owner.as_ref().and_then(|owner| self.catalog().schema(&owner.table).ok());
        match table {
            Some(table) => self.may_own(who, &table),
            None => self.may_use_unowned(who, name, sequence.maker.as_deref()),
        }
    }

    /// Whether somebody may take numbers of a sequence (INSERT) or set it (UPDATE): who may do that with the table
    /// whose column it goes with; of others, who made it.
    pub(crate) fn may_use_sequence(
        &self,
        who: &Principal,
        name: &str,
        owner: Option<&Owner>,
        maker: Option<&str>,
        privilege: Privilege,
    ) -> Result<()> {
        match owner.and_then(|owner| self.catalog().schema(&owner.table).ok()) {
            Some(table) => self.may(who, &AuthAction::Rows { of: &table, privilege }),
            None => self.may_use_unowned(who, name, maker),
        }
    }

    fn may_use_unowned(&self, who: &Principal, name: &str, maker: Option<&str>) -> Result<()> {
        self.may(who, &AuthAction::Change { of: Object::Sequence(name), maker })
    }

    /// Whether somebody may change users or rights so.
    ///
    /// Errors: `NoTable`, too.
    pub fn may_change_access(&self, who: &Principal, access: &Access) -> Result<()> {
        match access {
            Access::AlterUser { name, attributes } if attributes.login.is_none() && attributes.superuser.is_none() => {
                self.may(who, &AuthAction::Password { of: name })
            }
            Access::CreateUser { .. } | Access::AlterUser { .. } | Access::DropUser { .. } => {
                self.may(who, &AuthAction::Server { what: "create, alter or drop roles" })
            }
            Access::Owner { .. } => self.may(who, &AuthAction::Server { what: "give tables to others" }),
            Access::Grant(grant) | Access::Revoke(grant) => match &grant.on {
                Objects::Tables(names) => names.iter().try_for_each(|name| self.may_own_named(who, name)),
                Objects::AllTables(_) | Objects::Schema => {
                    self.may(who, &AuthAction::Server { what: "grant or revoke on all tables or schema public" })
                }
            },
        }
    }

    /// Whether somebody may make tables of archives: superusers.
    pub fn may_attach(&self, who: &Principal) -> Result<()> {
        self.may(who, &AuthAction::Server { what: "ATTACH" })
    }

    /// The same, and whether this place may be attached (`auth/roots.rs`). Looks at the file system.
    pub fn may_attach_place(&self, who: &Principal, url: &str) -> Result<()> {
        self.may_attach(who)?;
        roots::check(self.settings(), !self.users().users().is_empty(), url)
    }

    /// Whether somebody may let the server forget archives: superusers.
    pub fn may_detach(&self, who: &Principal) -> Result<()> {
        self.may(who, &AuthAction::Server { what: "DETACH" })
    }

    /// Whether somebody may empty caches: superusers.
    pub fn may_drop_caches(&self, who: &Principal) -> Result<()> {
        self.may(who, &AuthAction::Server { what: "drop caches" })
    }
}
