//! How do users and rights change? What is known of them is in `auth`.

use crate::auth::{Access, Principal};
use crate::error::Result;
use crate::node::Node;

impl Node {
    /// Does what somebody says of users and rights. Durable, and in force, when it returns.
    ///
    /// Errors: `Denied`; `NoTable`, `NoObject`, `ObjectExists`, `Depended` and `ReservedName` as to what is named;
    /// `InUse` when nobody could rule any more.
    pub async fn change_access(&self, who: &Principal, access: &Access) -> Result<()> {
        self.may_change_access(who, access)?;
        self.users().apply(access).await
    }
}
