//! By what key does a client know its request again? `SET tarn.idempotency_key = 'order-4711'` names the next write
//! statement, or the transaction that it begins. Made again with the same key, it has its first outcome, and writes
//! nothing.
//!
//! A key is hashed with the name of its user to the name that the log knows (`tarn_types::RequestId`), so keys of
//! different users never meet. Each statement has a digest, of its text, its parameters and the data of a COPY: the
//! same key with other statements is a mistake of the client's, and refused (22023), whatever was written the first
//! time.

use std::fmt::{self, Write};
use std::sync::Arc;

use tarn_node::catalog::TableHandle;
use tarn_node::requests::{NamedRequest, RequestTurn};
use tarn_types::{MAX_REQUEST_STATEMENTS, Request, RequestId, StatementOutcome};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::error::{Result, SqlError, state};

/// The setting by which a client names its request.
pub const KEY_SETTING: &str = "tarn.idempotency_key";

/// What a key of a user is called in the log.
pub fn id_of(user: &str, key: &str) -> RequestId {
    let hash = xxh3_128([user.as_bytes(), &[0], key.as_bytes()].concat().as_slice());
    // Never 0/0, which is no name.
    RequestId { origin: (hash >> 64) as u64, sequence: (hash as u64).max(1) }
}

/// Of a statement, its parameters, and data that come in pieces, however they are cut.
pub struct Digest(Xxh3);

impl Digest {
    /// Of a text.
    pub fn of(text: impl fmt::Display) -> Digest {
        let mut digest = Digest(Xxh3::new());
        // Writing to it cannot fail.
        let _ = write!(digest, "{text}");
        digest
    }

    /// And of these bytes.
    pub fn and(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// All of it.
    pub fn number(&self) -> u64 {
        self.0.digest()
    }
}

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}

/// A request that is being made: of one statement, or of a transaction.
pub struct KeyedRequest {
    key: Arc<str>,
    id: RequestId,
    home: Arc<TableHandle>,
    /// What its statements came to when it was made before; `None`: it was not.
    first: Option<Vec<StatementOutcome>>,
    /// What they come to now.
    now: Vec<StatementOutcome>,
    /// Of one statement, which nobody said BEGIN before.
    is_alone: bool,
    turn: Arc<RequestTurn>,
}

/// What is left to do when a request commits.
pub enum RequestCommit {
    /// It was made before: nothing is written.
    Again,
    /// It is to be written with this name.
    First(NamedRequest),
}

impl KeyedRequest {
    /// One that begins, whose outcome is kept with `home`.
    pub fn new(
        key: Arc<str>,
        id: RequestId,
        home: Arc<TableHandle>,
        first: Option<Vec<StatementOutcome>>,
        turn: RequestTurn,
    ) -> KeyedRequest {
        KeyedRequest { key, id, home, first, now: Vec::new(), is_alone: false, turn: Arc::new(turn) }
    }

    /// The same from its beginning, of which nothing was written.
    pub fn anew(&self) -> KeyedRequest {
        let KeyedRequest { key, id, home, first, now: _, is_alone, turn } = self;
        KeyedRequest {
            key: Arc::clone(key),
            id: *id,
            home: Arc::clone(home),
            first: first.clone(),
            now: Vec::new(),
            is_alone: *is_alone,
            turn: Arc::clone(turn),
        }
    }

    /// The same, of one statement that is a transaction of its own.
    pub fn alone(self) -> KeyedRequest {
        KeyedRequest { is_alone: true, ..self }
    }

    /// Whether it is of one statement that is a transaction of its own.
    pub fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// Whether it was made before, so that its statements are answered and not run.
    pub fn was_made(&self) -> bool {
        self.first.is_some()
    }

    /// The rows of the next statement when it was made before; `None`: it was not.
    ///
    /// Errors: `22023` for another statement than the one of the first time.
    pub fn again(&mut self, digest: u64) -> Result<Option<u64>> {
        let Some(first) = &self.first else { return Ok(None) };
        match first.get(self.now.len()) {
            Some(outcome) if outcome.digest == digest => {
                self.now.push(*outcome);
                Ok(Some(outcome.rows))
            }
            _ => Err(self.another("another statement")),
        }
    }

    /// A statement ran for the first time.
    ///
    /// Errors: `54000` for one too many.
    pub fn ran(&mut self, digest: u64, rows: u64) -> Result<()> {
        if self.now.len() >= MAX_REQUEST_STATEMENTS {
            let message = format!("the transaction of {KEY_SETTING} has more than {MAX_REQUEST_STATEMENTS} writes");
            return Err(SqlError::new(state::PROGRAM_LIMIT, message)
                .with_hint("write many rows by one statement, or give each of several transactions a key"));
        }
        self.now.push(StatementOutcome { digest, rows });
        Ok(())
    }

    /// What keeps others of this name waiting. Whoever commits holds it until that is done: before, nothing says that
    /// the request was made.
    pub fn turn(&self) -> Arc<RequestTurn> {
        Arc::clone(&self.turn)
    }

    /// It commits.
    ///
    /// Errors: `22023` where the first time there were more statements.
    pub fn ends(self) -> Result<RequestCommit> {
        match &self.first {
            Some(first) if first.len() != self.now.len() => Err(self.another("fewer statements")),
            Some(_) => Ok(RequestCommit::Again),
            None => {
                let request = Request { id: self.id, statements: self.now };
                Ok(RequestCommit::First(NamedRequest { home: self.home, request }))
            }
        }
    }

    fn another(&self, what: &str) -> SqlError {
        let message = format!("{KEY_SETTING} '{}' names a request that was made, and this is {what}", self.key);
        SqlError::new(state::INVALID_PARAMETER_VALUE, message)
            .with_detail("Nothing of this request is written.")
            .with_hint("repeat the first one as it was, or give this one a key of its own")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_users_never_meet_and_data_is_the_same_however_it_is_cut() {
        let ids = [id_of("ada", "k"), id_of("bob", "k"), id_of("ada", "l"), id_of("", "ada\0k"), id_of("adak", "")];
        let unique: std::collections::BTreeSet<RequestId> = ids.into_iter().collect();
        assert_eq!(unique.len(), ids.len());
        assert_eq!(id_of("ada", "k"), ids[0]);

        let cut = |pieces: &[&str]| {
            let mut digest = Digest::of("COPY t FROM STDIN");
            pieces.iter().for_each(|piece| digest.and(piece.as_bytes()));
            digest.number()
        };
        assert_eq!(cut(&["1\n2\n", "3\n"]), cut(&["1", "\n2\n3", "\n"]));
        assert_ne!(cut(&["1\n"]), cut(&["2\n"]));
    }
}
