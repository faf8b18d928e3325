//! What must be done also when nobody waits any more: a write that was given up may have happened.

/// Calls its closure when it goes, which a cancelled future's locals do too.
pub(crate) struct DropGuard<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for DropGuard<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
