//! Which settings hold when a transaction ends? `SET` holds from then on, unless ROLLBACK, or ROLLBACK TO a savepoint
//! before it, sets back what was; `SET LOCAL` holds until the transaction ends. Outside of one it changes nothing, of
//! which PostgreSQL warns.
//!
//! What the settings were is kept at the first change behind each savepoint. The settings of the query engine, `tarn.*`
//! and `datafusion.*`, are the session's alone: they are not set back.

use std::sync::Arc;

use parking_lot::Mutex;

use super::vars::Vars;
use crate::error::{Result, SqlError, state};
use crate::transaction::Transaction;

/// Savepoints of one transaction behind which settings are changed: for each the settings before are kept.
const MAX_KEPT: usize = 100;

/// How long a setting holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Session,
    /// `LOCAL`.
    Transaction,
}

/// The settings of a session, and what they were before its transaction changed them.
#[derive(Clone)]
pub(crate) struct Settable {
    /// The settings, shared with whoever reads them.
    pub vars: Arc<Mutex<Vars>>,
    /// By whose end they are set back.
    pub transaction: Arc<Mutex<Transaction>>,
    before: Arc<Mutex<SavepointVars>>,
}

#[derive(Default)]
struct SavepointVars {
    /// The oldest first, each with how many savepoints there were.
    kept: Vec<(usize, SavedVars)>,
    /// What holds behind COMMIT, where `LOCAL` changed something.
    lasting: Option<Vars>,
}

#[derive(Clone)]
struct SavedVars {
    vars: Vars,
    lasting: Option<Vars>,
}

impl Settable {
    /// Nothing is to be set back.
    pub fn new(vars: &Arc<Mutex<Vars>>, transaction: &Arc<Mutex<Transaction>>) -> Settable {
        Settable { vars: Arc::clone(vars), transaction: Arc::clone(transaction), before: Arc::default() }
    }

    /// Changes settings.
    ///
    /// Errors: as of `change`, and `53400` behind too many savepoints; nothing is changed then.
    pub fn change(&self, scope: Scope, change: impl Fn(&mut Vars) -> Result<()>) -> Result<()> {
        let depth = {
            let transaction = self.transaction.lock();
            transaction.is_open().then(|| transaction.depth())
        };
        let mut vars = self.vars.lock();
        let mut changed = vars.clone();
        change(&mut changed)?;
        if let Some(depth) = depth {
            let mut before = self.before.lock();
            before.keep(depth, &vars)?;
            match scope {
                Scope::Transaction => {
                    before.lasting.get_or_insert_with(|| vars.clone());
                }
                Scope::Session => before.lasting.as_mut().map_or(Ok(()), &change)?,
            }
        } else if scope == Scope::Transaction {
            return Ok(());
        }
        *vars = changed;
        Ok(())
    }

    /// One setting is as if it had never been set, whatever becomes of the transaction. Of a session's own alone.
    pub fn forget(&self, name: &str) {
        let mut vars = self.vars.lock();
        let mut before = self.before.lock();
        let SavepointVars { kept, lasting } = &mut *before;
        let kept = kept.iter_mut().flat_map(|(_, kept)| std::iter::once(&mut kept.vars).chain(&mut kept.lasting));
        kept.chain(lasting).chain(std::iter::once(&mut *vars)).for_each(|vars| vars.forget(name));
    }

    /// Whether there is anything to set back.
    pub fn is_changed(&self) -> bool {
        !self.before.lock().kept.is_empty()
    }

    /// The transaction is committed: what `LOCAL` changed is as it was.
    pub fn commit(&self) {
        let SavepointVars { lasting, .. } = std::mem::take(&mut *self.before.lock());
        if let Some(lasting) = lasting {
            *self.vars.lock() = lasting;
        }
    }

    /// The transaction is undone.
    pub fn roll_back(&self) {
        self.roll_back_to(0);
        self.before.lock().lasting = None;
    }

    /// What was changed since there were so many savepoints is as it was.
    pub fn roll_back_to(&self, n_left: usize) {
        // Both are never locked at once but by `change` and `forget`, in one order.
        let was = {
            let mut before = self.before.lock();
            let Some(first) = before.kept.iter().position(|(depth, _)| *depth >= n_left) else { return };
            let Some((_, SavedVars { vars, lasting })) = before.kept.split_off(first).into_iter().next() else {
                return;
            };
            before.lasting = lasting;
            vars
        };
        *self.vars.lock() = was;
    }

    /// So many savepoints are left, and what was changed behind the others goes with what is before them.
    pub fn release(&self, n_left: usize) {
        let kept = &mut self.before.lock().kept;
        kept.iter_mut().for_each(|(depth, _)| *depth = n_left.min(*depth));
        kept.dedup_by_key(|(depth, _)| *depth);
    }
}

impl SavepointVars {
    fn keep(&mut self, depth: usize, vars: &Vars) -> Result<()> {
        if self.kept.last().is_some_and(|(kept, _)| *kept >= depth) {
            return Ok(());
        }
        if self.kept.len() >= MAX_KEPT {
            let message = format!("settings were changed behind {MAX_KEPT} savepoints already");
            return Err(
                SqlError::new(state::CONFIGURATION_LIMIT, message).with_hint("RELEASE SAVEPOINT those that are done")
            );
        }
        self.kept.push((depth, SavedVars { vars: vars.clone(), lasting: self.lasting.clone() }));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temporary::Temporary;
    use crate::transaction::{Isolation, OpenTransaction};

    struct Test {
        of: Settable,
        own: Temporary,
    }

    impl Test {
        fn set(&self, scope: Scope, value: &str) {
            self.of.change(scope, |vars| vars.set("work_mem", Some(value))).unwrap();
        }

        fn is(&self) -> String {
            self.of.vars.lock().get("work_mem").unwrap()
        }

        fn savepoint(&self, name: &str) {
            self.of.transaction.lock().savepoint(name.to_owned(), self.own.now()).unwrap();
        }

        fn release(&self, name: &str) {
            let n_left = self.of.transaction.lock().release(name).unwrap();
            self.of.release(n_left);
        }

        fn roll_back_to(&self, name: &str) {
            let n_left = self.of.transaction.lock().roll_back_to(name).unwrap().n_left;
            self.of.roll_back_to(n_left);
        }
    }

    fn begun() -> Test {
        let test = Test { of: Settable::new(&Arc::default(), &Arc::default()), own: Temporary::default() };
        test.set(Scope::Session, "1MB");
        *test.of.transaction.lock() =
            Transaction::Open(OpenTransaction::new(false, Isolation::default(), test.own.now()));
        test
    }

    /// What PostgreSQL 15 says of `guc.sql`.
    #[test]
    fn rollback_sets_back() {
        let test = begun();
        test.set(Scope::Session, "2MB");
        test.savepoint("first");
        test.set(Scope::Session, "3MB");
        test.set(Scope::Session, "4MB");
        test.roll_back_to("first");
        assert_eq!(test.is(), "2MB");
        test.savepoint("second");
        test.set(Scope::Session, "5MB");
        test.savepoint("third");
        test.set(Scope::Session, "6MB");
        test.roll_back_to("third");
        assert_eq!(test.is(), "5MB");
        test.roll_back_to("second");
        assert_eq!(test.is(), "2MB");
        test.of.roll_back();
        assert_eq!(test.is(), "1MB");
    }

    #[test]
    fn local_ends_with_the_transaction() {
        let test = begun();
        test.set(Scope::Transaction, "2MB");
        assert_eq!(test.is(), "2MB");
        test.savepoint("sp");
        test.set(Scope::Transaction, "3MB");
        test.release("sp");
        assert_eq!(test.is(), "3MB");
        test.of.commit();
        assert_eq!(test.is(), "1MB");
    }

    #[test]
    fn what_is_set_before_local_lasts() {
        let test = begun();
        test.set(Scope::Session, "2MB");
        test.savepoint("sp");
        test.set(Scope::Transaction, "3MB");
        test.set(Scope::Session, "4MB");
        test.set(Scope::Transaction, "5MB");
        test.of.commit();
        assert_eq!(test.is(), "4MB");
    }

    #[test]
    fn local_outside_of_a_transaction_changes_nothing() {
        let test = Test { of: Settable::new(&Arc::default(), &Arc::default()), own: Temporary::default() };
        test.set(Scope::Transaction, "2MB");
        assert_eq!(test.is(), "4MB");
        assert!(test.of.change(Scope::Transaction, |vars| vars.set("nothing", Some("1"))).is_err());
    }
}
