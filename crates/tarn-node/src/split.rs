//! How does a table get another tablet?

use std::sync::Arc;

use tarn_types::{TabletId, Token, Value, encode_partition_prefix, token_prefix};

use crate::auth::Principal;
use crate::catalog::TableHandle;
use crate::error::{Error, ErrorKind, Result};
use crate::grown;
use crate::node::Node;
use crate::threads::blocking;

/// Where a tablet is to end and the next to begin.
#[derive(Debug, Clone, PartialEq)]
pub enum SplitAt {
    /// Of a table by range: the values of its whole partition key, which is the first of the new tablet.
    Key(Vec<Value>),
    /// Of a hashed table.
    Token(Token),
}

impl Node {
    /// Splits the tablet that has `at` there; answers the new one. Writers of that tablet wait for one look at its
    /// recent rows, readers for nothing. Durable when it returns.
    ///
    /// Errors: `Denied`; `Definition` for a place that no tablet of the table can be split at; `Conflict` while what a
    /// tablet had before it was split off is not delivered.
    pub async fn split(&self, who: &Principal, table: &Arc<TableHandle>, at: SplitAt) -> Result<TabletId> {
        self.may_own(who, table.schema())?;
        table.check_whole()?;
        self.parts().check_writable()?;
        let schema = table.schema();
        let at = match (at, schema.is_hashed()) {
            (SplitAt::Key(parts), false) if parts.len() == schema.n_partition_key => {
                encode_partition_prefix(schema, &parts)?
            }
            (SplitAt::Token(token), true) => token_prefix(schema.id, token).to_vec(),
            (_, is_hashed) => {
                let want = if is_hashed { "a token".to_owned() } else { partition_key(table) };
                let message = format!("table \"{}\" is split at {want}", schema.name);
                return Err(Error::new(ErrorKind::Definition, message));
            }
        };
        let table = Arc::clone(table);
        let new = blocking(move || grown::split_at(&table, &at));
        let new = new.await.map_err(|error| match error.kind() {
            ErrorKind::Conflict => error.with_hint(
                "CALL tarn.deliver first: a new tablet is split again when what it came with is in the lake",
            ),
            _ => error,
        })?;
        tracing::info!(tablet = %new, "a tablet was split");
        Ok(new)
    }
}

fn partition_key(table: &TableHandle) -> String {
    let schema = table.schema();
    let names: Vec<&str> =
        schema.key_columns().take(schema.n_partition_key).map(|column| column.name.as_str()).collect();
    format!("values of its partition key ({})", names.join(", "))
}
