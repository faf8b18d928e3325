//! How is a panic of a decoder caught that asserts what its input can break? As an error, without a backtrace in the
//! log: whoever sends broken bytes must not fill it. Only for libraries that have no checked way; our own code does not
//! panic on input.

use std::cell::Cell;
use std::panic::{UnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// This thread is inside [`catch`].
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// What `work` answers, or what it said when it panicked.
pub fn catch<T>(work: impl FnOnce() -> T + UnwindSafe) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            if !IS_CAUGHT.get() {
                before(panic);
            }
        }));
    });
    IS_CAUGHT.set(true);
    let done = catch_unwind(work);
    IS_CAUGHT.set(false);
    done.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error() {
        assert_eq!(catch(|| 1), Ok(1));
        assert_eq!(catch(|| panic!("index {} out of bounds", 7)), Err::<(), _>("index 7 out of bounds".to_owned()));
    }
}
