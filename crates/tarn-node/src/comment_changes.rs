//! How is something said of tables, views and columns? What was said is in `comments`.

use tarn_types::{ColumnId, TableSchema};

use crate::auth::Principal;
use crate::error::Result;
use crate::node::Node;

impl Node {
    /// Says something of a table or view, or of one of its columns; None takes it back. Durable when it returns.
    ///
    /// Errors: `Denied`; `ProgramLimit` when all comments together are longer than a document may be.
    pub async fn say(
        &self,
        who: &Principal,
        of: &TableSchema,
        column: Option<ColumnId>,
        text: Option<String>,
    ) -> Result<()> {
        self.may_own(who, of)?;
        self.comments().say(of, column, text).await
    }
}
