//! How is background work of a table asked for, before its worker does it by itself?

use crate::auth::Principal;
use crate::catalog::TableHandle;
use crate::error::Result;
use crate::jobs::{JobReport, Work};
use crate::node::Node;
use crate::worker::ask;

impl Node {
    /// Background work of a table, now; what it did. Waits for what its worker does before.
    ///
    /// Errors: `Denied`; `Corrupt` for a table that lost rows; `WrongState` when its worker has ended; those of the
    /// work.
    pub async fn work(&self, who: &Principal, handle: &TableHandle, work: Work) -> Result<JobReport> {
        self.may_own(who, handle.schema())?;
        ask(handle, work).await
    }
}
