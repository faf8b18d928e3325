//! How do functions that users wrote change? What is known of them is in `functions`.

use crate::auth::{AuthAction, Principal};
use crate::error::Result;
use crate::functions::{FunctionDocument, FunctionId, FunctionSource, UserFunction, taken};
use crate::node::Node;

impl Node {
    /// Keeps a function, which is of who asks. Durable when it returns; its number. With `replaces` that one becomes
    /// it, and keeps its number and maker.
    ///
    /// Errors: `Denied`; `ObjectExists` for one that takes the same types; `NoObject` when what it replaces is gone;
    /// `NoSchema`.
    pub async fn create_function(
        &self,
        who: &Principal,
        name: &str,
        written: FunctionSource,
        replaces: Option<FunctionId>,
    ) -> Result<FunctionId> {
        let _one = self.lock_catalog().await;
        self.check_open()?;
        self.may_make(who, name)?;
        if let Some(before) = replaces.and_then(|id| self.functions().by_id(id)) {
            self.may_change_function(who, &before)?;
        }
        self.schemas().check_there(name)?;
        let create = |known: &mut FunctionDocument| {
            if let Some(id) = replaces {
                known.by_id(id)?.written = written.clone();
                return Ok(id);
            }
            if known.functions.iter().any(|function| function.is(name, &written.signature())) {
                return Err(taken(name));
            }
            let id = FunctionId(known.next);
            known.next += 1;
            let (name, maker) = (name.to_owned(), who.name().map(str::to_owned));
            known.functions.push(UserFunction { id, name, maker, comment: None, written: written.clone() });
            Ok(id)
        };
        self.functions().change(create).await
    }

    /// Changes what is said around a function: its name, whose it is, its comment. Durable when it returns.
    ///
    /// Errors: `NoObject`; `Denied`; `ObjectExists` for a name under which another takes the same types; `NoSchema`;
    /// those of `change`, which may be called several times.
    pub async fn alter_function(
        &self,
        who: &Principal,
        id: FunctionId,
        change: &(dyn Fn(&mut UserFunction) -> Result<()> + Sync),
    ) -> Result<()> {
        let _one = self.lock_catalog().await;
        self.check_open()?;
        let alter = |known: &mut FunctionDocument| {
            let before = known.by_id(id)?.clone();
            self.may_change_function(who, &before)?;
            change(known.by_id(id)?)?;
            let of = known.by_id(id)?.clone();
            self.may_move(who, &before.name, &of.name)?;
            self.schemas().check_there(&of.name)?;
            let is_taken = |other: &UserFunction| other.id != id && other.is(&of.name, &of.written.signature());
            if known.functions.iter().any(is_taken) { Err(taken(&of.name)) } else { Ok(()) }
        };
        self.functions().change(alter).await
    }

    /// Forgets functions, all or none. Those that are not there are no error.
    ///
    /// Errors: `Denied`.
    pub async fn drop_functions(&self, who: &Principal, ids: &[FunctionId]) -> Result<()> {
        self.check_open()?;
        self.may(who, &AuthAction::Session)?;
        let mut there = ids.iter().filter_map(|id| self.functions().by_id(*id));
        there.try_for_each(|of| self.may_change_function(who, &of))?;
        self.forget_functions(ids).await
    }

    pub(crate) async fn forget_functions(&self, ids: &[FunctionId]) -> Result<()> {
        let forget = |known: &mut FunctionDocument| {
            known.functions.retain(|function| !ids.contains(&function.id));
            Ok(())
        };
        self.functions().change(forget).await
    }
}
