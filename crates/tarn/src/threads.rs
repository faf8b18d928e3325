//! Which work has threads of its own? A group of them ends when it is dropped, without waiting for what still runs on it.

use tarn_query::parser::STACK_BYTES;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::error::{Result, SqlError, state};

/// A named group of threads that runs tasks.
pub struct Threads {
    /// Taken when dropped.
    runtime: Option<Runtime>,
    handle: Handle,
}

impl Threads {
    /// Starts `n_threads` threads, at least one.
    ///
    /// Errors: the system gives none.
    pub fn start(name: &str, n_threads: usize) -> Result<Threads> {
        let mut builder = Builder::new_multi_thread();
        builder.thread_stack_size(STACK_BYTES);
        let runtime =
            builder.worker_threads(n_threads.max(1)).thread_name(name).enable_all().build().map_err(|error| {
                SqlError::new(state::IO_ERROR, format!("start {n_threads} threads {name}: {error}"))
                    .with_hint("raise the limit of threads of this user (ulimit -u)")
            })?;
        let handle = runtime.handle().clone();
        Ok(Threads { runtime: Some(runtime), handle })
    }

    /// To spawn on them.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // The last owner may be a task, which must not block.
            runtime.shutdown_background();
        }
    }
}
