//! Which work has threads of its own? A group of them ends when it is dropped, without waiting for what still runs on
//! it.

use tokio::runtime::{Builder, Handle, Runtime};

use crate::error::{Error, ErrorKind, Result};

/// A named group of threads that runs tasks.
pub struct Threads {
    /// Taken when dropped.
    runtime: Option<Runtime>,
    handle: Handle,
}

impl Threads {
    /// Starts `n_threads` threads, at least one, with `stack_bytes` of stack each.
    ///
    /// Errors: the system gives none.
    pub fn start(name: &str, n_threads: usize, stack_bytes: usize) -> Result<Threads> {
        let mut builder = Builder::new_multi_thread();
        builder.thread_stack_size(stack_bytes);
        let runtime =
            builder.worker_threads(n_threads.max(1)).thread_name(name).enable_all().build().map_err(|error| {
                Error::new(ErrorKind::Unavailable, format!("start {n_threads} threads {name}: {error}"))
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

/// Runs blocking work (a flush to disk, encoding) off the executor. A caller that goes away leaves it to finish.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(Error::new(ErrorKind::Internal, format!("a blocking task died: {error}"))),
    }
}
