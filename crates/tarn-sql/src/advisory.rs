//! What are advisory locks? Numbers that sessions of a node lock, and that mean nothing to it: migration tools and
//! schedulers agree by them on who goes first. As in PostgreSQL they are a session's or a transaction's, shared or not,
//! and a session may take one more than once.
//!
//! They are in memory, of this node alone, and end with their session. Who would wait for itself by way of others is
//! told so (40P01).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::error::{Result, SqlError, state};

/// Locks of all sessions; a client may forget to release them.
const MAX_HOLDS: usize = 100_000;

/// What is locked: one number, or two, which are never the same lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum LockKey {
    One(i64),
    Two(i32, i32),
}

/// How it is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mode {
    /// Beside others who have it shared.
    pub is_shared: bool,
    /// Until the transaction ends, or the statement that is none's.
    pub of_transaction: bool,
}

/// The locks of a node.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    state: Mutex<LockState>,
    released: Notify,
}

#[derive(Debug, Default)]
struct LockState {
    held: HashMap<LockKey, Vec<Hold>>,
    n_holds: usize,
    /// What each session waits for.
    waiting: HashMap<i32, (LockKey, Mode)>,
}

#[derive(Debug)]
struct Hold {
    session: i32,
    mode: Mode,
    n_times: usize,
}

/// The locks as one session takes them.
#[derive(Debug)]
pub(crate) struct OwnLocks {
    all: Arc<Locks>,
    session: i32,
    /// Whether it ever took one: most sessions do not, and end their statements by the thousands.
    has_any: AtomicBool,
}

impl LockState {
    fn conflicts(&self, session: i32, key: LockKey, mode: Mode) -> impl Iterator<Item = i32> {
        let holds = self.held.get(&key).into_iter().flatten();
        let others = holds.filter(move |hold| hold.session != session && !(hold.mode.is_shared && mode.is_shared));
        others.map(|hold| hold.session)
    }

    fn take(&mut self, session: i32, key: LockKey, mode: Mode) -> Result<bool> {
        if self.conflicts(session, key, mode).next().is_some() {
            return Ok(false);
        }
        let holds = self.held.entry(key).or_default();
        match holds.iter_mut().find(|hold| hold.session == session && hold.mode == mode) {
            Some(hold) => hold.n_times += 1,
            None if self.n_holds >= MAX_HOLDS => {
                if holds.is_empty() {
                    self.held.remove(&key);
                }
                let message = format!("{MAX_HOLDS} advisory locks are held already");
                return Err(SqlError::new(state::OUT_OF_MEMORY, message).with_hint("release those that are not needed"));
            }
            None => {
                holds.push(Hold { session, mode, n_times: 1 });
                self.n_holds += 1;
            }
        }
        Ok(true)
    }

    /// Whether those for whom a session would wait wait for it.
    fn is_deadlock(&self, session: i32, key: LockKey, mode: Mode) -> bool {
        let mut to_ask: Vec<i32> = self.conflicts(session, key, mode).collect();
        let mut asked = vec![];
        while let Some(other) = to_ask.pop() {
            if other == session {
                return true;
            }
            if !asked.contains(&other) {
                asked.push(other);
                let waits = self.waiting.get(&other);
                to_ask.extend(waits.into_iter().flat_map(|(key, mode)| self.conflicts(other, *key, *mode)));
            }
        }
        false
    }

    /// Whether it was locked.
    fn release(&mut self, session: i32, key: LockKey, mode: Mode) -> bool {
        let Some(holds) = self.held.get_mut(&key) else { return false };
        let Some(place) = holds.iter().position(|hold| hold.session == session && hold.mode == mode) else {
            return false;
        };
        holds[place].n_times -= 1;
        if holds[place].n_times == 0 {
            holds.swap_remove(place);
            self.n_holds -= 1;
        }
        if holds.is_empty() {
            self.held.remove(&key);
        }
        true
    }

    fn release_where(&mut self, goes: impl Fn(&Hold) -> bool) {
        self.held.retain(|_, holds| {
            holds.retain(|hold| !goes(hold));
            !holds.is_empty()
        });
        self.n_holds = self.held.values().map(Vec::len).sum();
    }
}

impl OwnLocks {
    /// Of one session, which has none yet.
    pub fn new(all: &Arc<Locks>, session: i32) -> OwnLocks {
        OwnLocks { all: Arc::clone(all), session, has_any: AtomicBool::new(false) }
    }

    /// Takes it unless another session has it.
    pub fn try_lock(&self, key: LockKey, mode: Mode) -> Result<bool> {
        self.has_any.store(true, Ordering::Relaxed);
        self.all.state.lock().take(self.session, key, mode)
    }

    /// Takes it, and waits for others to release it. Dropped, it waits no longer.
    ///
    /// Errors: `40P01`.
    pub async fn lock(&self, key: LockKey, mode: Mode) -> Result<()> {
        struct LockWait<'a>(&'a OwnLocks);
        impl Drop for LockWait<'_> {
            fn drop(&mut self) {
                self.0.all.state.lock().waiting.remove(&self.0.session);
            }
        }
        self.has_any.store(true, Ordering::Relaxed);
        let _waiting = LockWait(self);
        loop {
            // Whoever releases it from here on is heard.
            let released = self.all.released.notified();
            {
                let mut all = self.all.state.lock();
                if all.take(self.session, key, mode)? {
                    return Ok(());
                }
                if all.is_deadlock(self.session, key, mode) {
                    let message = "deadlock detected: sessions wait for each other's advisory locks";
                    return Err(SqlError::new(state::DEADLOCK, message)
                        .with_hint("take locks in one order everywhere, or pg_try_advisory_lock"));
                }
                all.waiting.insert(self.session, (key, mode));
            }
            released.await;
        }
    }

    /// Whether the session had it. Locks of a transaction stay.
    pub fn unlock(&self, key: LockKey, is_shared: bool) -> bool {
        let mode = Mode { is_shared, of_transaction: false };
        let had = self.all.state.lock().release(self.session, key, mode);
        self.all.released.notify_waiters();
        had
    }

    /// Releases all that are the session's.
    pub fn unlock_all(&self) {
        self.release_where(|hold| !hold.mode.of_transaction);
    }

    /// A transaction has ended.
    pub fn end_transaction(&self) {
        self.release_where(|hold| hold.mode.of_transaction);
    }

    /// The session has ended; its functions may still be there.
    pub fn leave(&self) {
        self.release_where(|_| true);
    }

    fn release_where(&self, goes: impl Fn(&Hold) -> bool) {
        if self.has_any.load(Ordering::Relaxed) {
            self.all.state.lock().release_where(|hold| hold.session == self.session && goes(hold));
            self.all.released.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXCLUSIVE: Mode = Mode { is_shared: false, of_transaction: false };
    const SHARED: Mode = Mode { is_shared: true, of_transaction: false };
    const OF_TRANSACTION: Mode = Mode { is_shared: false, of_transaction: true };

    #[test]
    fn a_lock_is_one_sessions_as_often_as_it_took_it() {
        let all = Arc::default();
        let (one, two) = (OwnLocks::new(&all, 1), OwnLocks::new(&all, 2));
        let key = LockKey::One(7);
        assert!(one.try_lock(key, EXCLUSIVE).unwrap() && one.try_lock(key, EXCLUSIVE).unwrap());
        assert!(one.try_lock(key, SHARED).unwrap() && one.unlock(key, true));
        assert!(!two.try_lock(key, EXCLUSIVE).unwrap() && !two.try_lock(key, SHARED).unwrap());
        assert!(two.try_lock(LockKey::Two(0, 7), EXCLUSIVE).unwrap(), "two numbers are another lock");
        assert!(one.unlock(key, false) && !two.try_lock(key, EXCLUSIVE).unwrap());
        assert!(one.unlock(key, false) && !one.unlock(key, false));
        assert!(two.try_lock(key, SHARED).unwrap() && one.try_lock(key, SHARED).unwrap());
        assert!(!one.try_lock(key, EXCLUSIVE).unwrap());
        two.leave();
        assert!(one.try_lock(key, OF_TRANSACTION).unwrap());
        one.unlock_all();
        let three = OwnLocks::new(&all, 3);
        assert!(!three.try_lock(key, SHARED).unwrap());
        one.end_transaction();
        assert!(three.try_lock(key, EXCLUSIVE).unwrap());
        [one, three].iter().for_each(OwnLocks::leave);
        assert!(all.state.lock().held.is_empty() && all.state.lock().n_holds == 0);
    }

    #[tokio::test]
    async fn waiting_ends_with_a_release_or_a_deadlock() {
        let all = Arc::default();
        let (one, two) = (OwnLocks::new(&all, 1), Arc::new(OwnLocks::new(&all, 2)));
        let (first, second) = (LockKey::One(1), LockKey::One(2));
        one.lock(first, EXCLUSIVE).await.unwrap();
        two.lock(second, EXCLUSIVE).await.unwrap();
        let waits = tokio::spawn({
            let two = Arc::clone(&two);
            async move { two.lock(first, EXCLUSIVE).await }
        });
        while all.state.lock().waiting.is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(one.lock(second, EXCLUSIVE).await.unwrap_err().state(), state::DEADLOCK);
        assert!(one.unlock(first, false));
        waits.await.unwrap().unwrap();
        assert!(all.state.lock().waiting.is_empty());
        // Who waits no longer is not waited for.
        let given_up = tokio::time::timeout(std::time::Duration::from_millis(1), one.lock(second, EXCLUSIVE)).await;
        assert!(given_up.is_err() && all.state.lock().waiting.is_empty());
    }
}
