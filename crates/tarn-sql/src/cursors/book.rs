//! Which cursors has a session, and how long does each live?
//!
//! As long as its transaction, or the savepoint behind which it was opened. One that is WITH HOLD lives on when its
//! transaction commits: it has read all of its rows by then.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use parking_lot::Mutex;
use tarn_types::TableSchema;

use super::cursor::{Cursor, Scroll};
use crate::error::{Result, SqlError, state};

/// Open cursors of one connection.
const MAX_CURSORS: usize = 1_000;

/// What is known of a cursor without its rows.
#[derive(Debug, Clone)]
pub struct Facts {
    /// By which FETCH means it.
    pub name: String,
    /// The text of its DECLARE.
    pub statement: String,
    /// Of the rows that it answers.
    pub schema: SchemaRef,
    /// The table whose rows it locks; its rows have those behind what is answered.
    pub locked: Option<Arc<TableSchema>>,
    /// How often the transaction had changed rows of that table when it was declared.
    pub n_changes: u64,
    /// A `VOLATILE` function that reads tables, and how often the transaction had changed rows of any table then: it
    /// would see what is changed later.
    pub volatile: Option<(String, u64)>,
    /// Whether it goes back.
    pub scroll: Scroll,
    /// Its rows are told in binary forms.
    pub is_binary: bool,
    /// It outlives its transaction.
    pub is_holdable: bool,
    /// Unix time.
    pub declared_ms: i64,
}

/// All cursors of a session; shared with the rows that a FETCH is still giving out.
#[derive(Clone, Default)]
pub struct Book {
    /// Held for moments only.
    open: Arc<Mutex<HashMap<String, CursorEntry>>>,
    next_id: Arc<AtomicU64>,
}

struct CursorEntry {
    /// Another may be called the same later.
    id: u64,
    facts: Facts,
    /// How many savepoints there were when it was opened, and still are. `None`: its transaction has committed.
    depth: Option<usize>,
    /// `None` while a FETCH gives out its rows.
    cursor: Option<Cursor>,
    /// Of one that locks, the row of its table on which it stands.
    current: Option<RecordBatch>,
}

/// A cursor that is taken out of the book. It is gone from there if this is dropped without [`TakenCursor::put_back`].
pub struct TakenCursor {
    book: Book,
    id: u64,
    name: String,
    cursor: Option<Cursor>,
}

impl Book {
    /// Before one is opened.
    ///
    /// Errors: `42P03`, `53400`.
    pub fn check_free(&self, name: &str) -> Result<()> {
        let open = self.open.lock();
        if open.contains_key(name) {
            return Err(SqlError::new(state::DUPLICATE_CURSOR, format!("cursor \"{name}\" already exists")));
        }
        if open.len() >= MAX_CURSORS {
            let message = format!("this connection has {MAX_CURSORS} open cursors already");
            return Err(SqlError::new(state::CONFIGURATION_LIMIT, message).with_hint("CLOSE those that are not needed"));
        }
        Ok(())
    }

    /// `depth`: how many savepoints its transaction has; `None` where it is held already.
    pub fn open(&self, facts: Facts, cursor: Cursor, depth: Option<usize>) {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let entry = CursorEntry { id, depth, cursor: Some(cursor), facts, current: None };
        self.open.lock().insert(entry.facts.name.clone(), entry);
    }

    /// Errors: `34000` for none of that name; `55006` while its rows are given out.
    pub fn take(&self, name: &str) -> Result<TakenCursor> {
        let mut open = self.open.lock();
        let entry = open.get_mut(name).ok_or_else(|| unknown(name))?;
        let cursor = entry.cursor.take().ok_or_else(|| {
            SqlError::new(state::OBJECT_IN_USE, format!("cursor \"{name}\" is giving out rows"))
                .with_hint("read or close the portal of the FETCH that came before")
        })?;
        Ok(TakenCursor { book: self.clone(), id: entry.id, name: name.to_owned(), cursor: Some(cursor) })
    }

    /// Errors: `34000`.
    pub fn facts(&self, name: &str) -> Result<Facts> {
        let open = self.open.lock();
        open.get(name).map(|entry| entry.facts.clone()).ok_or_else(|| unknown(name))
    }

    /// The row of the table on which one that locks stands.
    ///
    /// Errors: `34000`.
    pub fn current(&self, name: &str) -> Result<Option<RecordBatch>> {
        let open = self.open.lock();
        open.get(name).map(|entry| entry.current.clone()).ok_or_else(|| unknown(name))
    }

    /// By name.
    pub fn all(&self) -> Vec<Facts> {
        let mut all: Vec<Facts> = self.open.lock().values().map(|entry| entry.facts.clone()).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// The session has no open cursor.
    pub fn is_empty(&self) -> bool {
        self.open.lock().is_empty()
    }

    /// Errors: `34000`.
    pub fn close(&self, name: &str) -> Result<()> {
        // Dropped behind the lock: what it reads ends with it.
        let closed = self.open.lock().remove(name);
        closed.map(drop).ok_or_else(|| unknown(name))
    }

    /// What they hold of tables is let go.
    pub fn close_all(&self) {
        let closed = std::mem::take(&mut *self.open.lock());
        drop(closed);
    }

    /// Those that are WITH HOLD and whose transaction commits now.
    pub fn to_hold(&self) -> Vec<String> {
        let open = self.open.lock();
        let held = open.values().filter(|entry| entry.facts.is_holdable && entry.depth.is_some());
        held.map(|entry| entry.facts.name.clone()).collect()
    }

    /// Its transaction may end.
    pub fn hold(&self, taken: TakenCursor) {
        if let Some(entry) = self.open.lock().get_mut(&taken.name).filter(|entry| entry.id == taken.id) {
            entry.depth = None;
        }
        taken.put_back();
    }

    /// When a transaction ends, or goes back to a savepoint: closes those that were opened behind so many savepoints,
    /// or more.
    pub fn end(&self, depth: usize) {
        let mut closed = vec![];
        let mut open = self.open.lock();
        let names: Vec<String> = open
            .iter()
            .filter(|(_, entry)| entry.depth.is_some_and(|opened| opened >= depth))
            .map(|(name, _)| name.clone())
            .collect();
        names.iter().for_each(|name| closed.extend(open.remove(name)));
        drop(open);
        drop(closed);
    }

    /// Savepoints were released: so many are left.
    pub fn release(&self, n_left: usize) {
        for entry in self.open.lock().values_mut() {
            entry.depth = entry.depth.map(|depth| depth.min(n_left));
        }
    }
}

impl TakenCursor {
    /// To move it; an error when it was given back already.
    pub fn cursor(&mut self) -> Result<&mut Cursor> {
        self.cursor.as_mut().ok_or_else(|| SqlError::new(state::INTERNAL, "a cursor was given back already"))
    }

    /// Which row of its table it stands on now.
    pub fn stands_on(&self, row: Option<RecordBatch>) {
        if let Some(entry) = self.book.open.lock().get_mut(&self.name).filter(|entry| entry.id == self.id) {
            entry.current = row;
        }
    }

    /// It may be fetched from again.
    pub fn put_back(mut self) {
        if let Some(entry) = self.book.open.lock().get_mut(&self.name).filter(|entry| entry.id == self.id) {
            if let Some(cursor) = &self.cursor {
                entry.facts.scroll = cursor.scroll();
            }
            entry.cursor = self.cursor.take();
        }
    }
}

impl Drop for TakenCursor {
    fn drop(&mut self) {
        if self.cursor.is_none() {
            return;
        }
        let mut open = self.book.open.lock();
        if open.get(&self.name).is_some_and(|entry| entry.id == self.id) {
            open.remove(&self.name);
        }
    }
}

fn unknown(name: &str) -> SqlError {
    SqlError::new(state::INVALID_CURSOR, format!("cursor \"{name}\" does not exist"))
}
