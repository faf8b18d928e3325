//! How do functions that users wrote change? What is known of them is in `functions`.

use crate::error::Result;
use crate::functions::{FunctionId, Known, UserFunction, Written, taken};
use crate::node::Node;

impl Node {
    /// Keeps a function. Durable when it returns; its number. With `replaces` that one becomes it, and keeps its number
    /// and maker.
    ///
    /// Errors: `ObjectExists` for one that takes the same types; `NoObject` when what it replaces is gone; `NoSchema`.
    pub async fn create_function(
        &self,
        name: &str,
        maker: Option<String>,
        written: Written,
        replaces: Option<FunctionId>,
    ) -> Result<FunctionId> {
        let _one = self.lock_catalog().await;
        self.check_open()?;
        self.schemas().check_there(name)?;
        let create = |known: &mut Known| {
            if let Some(id) = replaces {
                known.by_id(id)?.written = written.clone();
                return Ok(id);
            }
            if known.functions.iter().any(|function| function.is(name, &written.signature())) {
                return Err(taken(name));
            }
            let id = FunctionId(known.next);
            known.next += 1;
            let (name, maker) = (name.to_owned(), maker.clone());
            known.functions.push(UserFunction { id, name, maker, comment: None, written: written.clone() });
            Ok(id)
        };
        self.functions().change(create).await
    }

    /// Changes what is said around a function: its name, whose it is, its comment. Durable when it returns.
    ///
    /// Errors: `NoObject`; `ObjectExists` for a name under which another takes the same types; `NoSchema`; those of
    /// `change`, which may be called several times.
    pub async fn alter_function(
        &self,
        id: FunctionId,
        change: &(dyn Fn(&mut UserFunction) -> Result<()> + Sync),
    ) -> Result<()> {
        let _one = self.lock_catalog().await;
        self.check_open()?;
        let alter = |known: &mut Known| {
            change(known.by_id(id)?)?;
            let of = known.by_id(id)?.clone();
            self.schemas().check_there(&of.name)?;
            let is_taken = |other: &UserFunction| other.id != id && other.is(&of.name, &of.written.signature());
            if known.functions.iter().any(is_taken) { Err(taken(&of.name)) } else { Ok(()) }
        };
        self.functions().change(alter).await
    }

    /// Forgets functions. Those that are not there are no error.
    pub async fn drop_functions(&self, ids: &[FunctionId]) -> Result<()> {
        self.check_open()?;
        self.forget_functions(ids).await
    }

    pub(crate) async fn forget_functions(&self, ids: &[FunctionId]) -> Result<()> {
        let forget = |known: &mut Known| {
            known.functions.retain(|function| !ids.contains(&function.id));
            Ok(())
        };
        self.functions().change(forget).await
    }
}
