//! Which requests are being made? One of a name at a time.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tarn_types::RequestId;
use tokio::sync::OwnedMutexGuard;

/// The requests that are being made.
#[derive(Default)]
pub(crate) struct BeingMade {
    by_name: Mutex<HashMap<RequestId, Arc<tokio::sync::Mutex<()>>>>,
}

/// While it is there nobody else makes a request of the same name.
pub struct RequestTurn(#[expect(dead_code, reason = "it is held, not read")] OwnedMutexGuard<()>);

impl BeingMade {
    /// Waits for whoever makes a request of this name, and for those who wait already.
    pub(crate) async fn turn(&self, id: RequestId) -> RequestTurn {
        let of_name = {
            let mut by_name = self.by_name.lock();
            // Each is held by who makes it or waits; of those that are over nothing is left.
            by_name.retain(|_, of_name| Arc::strong_count(of_name) > 1);
            Arc::clone(by_name.entry(id).or_default())
        };
        RequestTurn(of_name.lock_owned().await)
    }
}
