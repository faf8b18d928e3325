//! Which functions give the numbers of sequences? `nextval`, `currval`, `lastval`, `setval`, and
//! `pg_get_serial_sequence`.
//!
//! They are called for each row, never when a statement is planned and never again for the same row. Most numbers are
//! in memory; where a block is used up, the thread of the query waits for the metastore, once for hundreds of rows.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, mpsc};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringArray};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use datafusion::scalar::ScalarValue;
use parking_lot::Mutex;
use tarn_node::auth::{Principal, Privilege};
use tarn_node::node::Node;
use tarn_node::sequences::{Reset, Sequence, give};
use tarn_types::full_name;
use tokio::runtime::Handle;

use crate::error::{Result, SqlError, state};
use crate::names::{parts_named, quote, relation_named};
use crate::schema_path;
use crate::session::vars::Vars;
use crate::temporary::Temporary;
use crate::transaction::Transaction;

/// What a session was given last.
#[derive(Debug, Default)]
pub(crate) struct SessionValues {
    by_sequence: HashMap<String, i64>,
    /// The sequence that gave the last number.
    last: Option<String>,
}

impl SessionValues {
    /// `DISCARD SEQUENCES`.
    pub fn clear(&mut self) {
        *self = SessionValues::default();
    }
}

/// What the functions are about.
#[derive(Clone)]
pub(crate) struct Numbering {
    /// Gives the numbers of everybody's sequences.
    pub node: Arc<Node>,
    /// Who asks.
    pub who: Arc<Mutex<Principal>>,
    /// The numbers that this session was given last, for `currval` and `lastval`.
    pub given: Arc<Mutex<SessionValues>>,
    /// The sequences that the session has to itself: theirs are the names that others have, too.
    pub own: Arc<Temporary>,
    /// The session's: one that only reads draws no numbers.
    pub transaction: Arc<Mutex<Transaction>>,
    /// By whose `search_path` names are found.
    pub vars: Arc<Mutex<Vars>>,
    /// Where the metastore is asked: not on the threads of queries.
    pub runtime: Handle,
}

impl Numbering {
    /// The functions.
    pub fn functions(&self) -> impl Iterator<Item = ScalarUDF> + '_ {
        let all = [
            ("nextval", SequenceFunction::Next),
            ("currval", SequenceFunction::Current),
            ("lastval", SequenceFunction::Last),
            ("setval", SequenceFunction::Set),
            ("pg_get_serial_sequence", SequenceFunction::NameOf),
        ];
        all.into_iter().map(|(name, does)| {
            let signature = does.signature();
            OfSequences { name, does, signature, numbering: self.clone() }.into()
        })
    }

    /// The sequence or table that a text names.
    ///
    /// Errors: as of [`relation_named`]; `42P01` for one of schema `pg_temp` that is not there.
    fn named(&self, text: &str) -> Result<String> {
        let Some(own) = text.trim().strip_prefix("pg_temp.") else { return self.in_path(text) };
        let name = relation_named(own)?;
        match self.own.sequence(&name).is_some() || self.own.table(&name).is_some() {
            true => Ok(name),
            false => Err(SqlError::undefined_table(text)),
        }
    }

    /// As [`relation_named`], of a name without a schema the first of the session's path that has it.
    fn in_path(&self, text: &str) -> Result<String> {
        let Some(path) = schema_path::path(&self.vars, &self.node) else { return relation_named(text) };
        let parts = parts_named(text)?;
        let [name] = &parts[..] else { return relation_named(text) };
        if self.own.sequence(name).is_some() || self.own.table(name).is_some() {
            return Ok(name.clone());
        }
        let sequences = Arc::clone(self.node.sequences());
        let all = self.wait(async move { sequences.all().await })?;
        let mut fulls = path.iter().map(|schema| full_name::join(schema, name));
        let is_there = |full: &String| {
            all.iter().any(|(other, _)| other == full) || self.own.entry(self.node.catalog(), full).is_some()
        };
        match fulls.find(is_there) {
            Some(full) => Ok(full),
            None => Err(SqlError::new(state::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))),
        }
    }

    /// `n` numbers.
    fn next(&self, name: &str, n: usize) -> Result<Vec<i64>> {
        if n == 0 {
            return Ok(vec![]);
        }
        let n = n as u64;
        let numbers = match self.own.sequence(name) {
            Some(own) => give(&mut own.lock(), name, n)?,
            None => {
                self.check_writable("nextval")?;
                let (node, who) = (Arc::clone(&self.node), self.who.lock().clone());
                match node.take_numbers_now(&who, name, n)? {
                    Some(numbers) => numbers,
                    None => {
                        let of = name.to_owned();
                        self.wait(async move { node.take_numbers(&who, &of, n).await })?
                    }
                }
            }
        };
        if let Some(last) = numbers.last() {
            let mut given = self.given.lock();
            given.by_sequence.insert(name.to_owned(), *last);
            given.last = Some(name.to_owned());
        }
        Ok(numbers)
    }

    fn current(&self, name: &str) -> Result<i64> {
        if let Some(number) = self.given.lock().by_sequence.get(name) {
            return Ok(*number);
        }
        self.get(name)?;
        let message = format!("currval of sequence \"{name}\" is not yet defined in this session");
        Err(SqlError::new(state::NOT_IN_PREREQUISITE_STATE, message))
    }

    fn last(&self) -> Result<i64> {
        let last = {
            let given = self.given.lock();
            given.last.as_ref().and_then(|name| Some((name.clone(), *given.by_sequence.get(name)?)))
        };
        // One that was dropped gave nothing.
        last.filter(|(name, _)| self.get(name).is_ok()).map(|(_, number)| number).ok_or_else(|| {
            SqlError::new(state::NOT_IN_PREREQUISITE_STATE, "lastval is not yet defined in this session")
        })
    }

    fn set(&self, name: &str, last: i64, is_called: bool) -> Result<i64> {
        let own = self.own.sequence(name);
        if own.is_none() {
            self.check_writable("setval")?;
            // Before it is told which numbers it may have.
            let (node, who, of) = (Arc::clone(&self.node), self.who.lock().clone(), name.to_owned());
            self.wait(async move { node.may_use_now(&who, &of, Privilege::Update).await })?;
        }
        let Sequence { min, max, .. } = self.get(name)?;
        if !(min..=max).contains(&last) {
            let message = format!("setval: value {last} is out of bounds for sequence \"{name}\" ({min}..{max})");
            return Err(SqlError::new(state::NUMERIC_OUT_OF_RANGE, message));
        }
        match own {
            Some(own) => {
                let mut sequence = own.lock();
                (sequence.last, sequence.is_called) = (last, is_called);
            }
            None => {
                let (node, who, of) = (Arc::clone(&self.node), self.who.lock().clone(), name.to_owned());
                self.wait(async move { node.set_sequence(&who, &of, Reset { last, is_called }).await })?;
            }
        }
        if is_called {
            self.given.lock().by_sequence.insert(name.to_owned(), last);
        }
        Ok(last)
    }

    /// The sequence of a column.
    fn name_of(&self, table: &str, column: &str) -> Result<Option<String>> {
        let own = self.own.table(table);
        let schema = match &own {
            Some(own) => Arc::clone(own.schema()),
            None => self.own.schema(self.node.catalog(), table)?,
        };
        if schema.column(column).is_none() {
            let message = format!("column \"{column}\" of relation \"{table}\" does not exist");
            return Err(SqlError::new(state::UNDEFINED_COLUMN, message));
        }
        if own.is_some() {
            let now = self.own.now();
            let mut found = now.sequences().filter(|(_, of)| is_of(&of.lock(), table, column));
            return Ok(found.next().map(|(name, _)| format!("pg_temp.{}", quote(name))));
        }
        let sequences = Arc::clone(self.node.sequences());
        let all = self.wait(async move { sequences.all().await })?;
        let (table, column) = self.own.committed_names(table, column);
        Ok(all.into_iter().find(|(_, of)| is_of(of, &table, &column)).map(|(name, _)| {
            match full_name::schema_of(&name) {
                full_name::PUBLIC => format!("public.{}", quote(&name)),
                _ => quote(&name),
            }
        }))
    }

    /// Errors: `25006` in a transaction that only reads.
    fn check_writable(&self, function: &str) -> Result<()> {
        let of_transaction = match &*self.transaction.lock() {
            Transaction::Open(open) => Some(open.is_read_only()),
            _ => None,
        };
        match of_transaction.unwrap_or_else(|| self.vars.lock().is_on("default_transaction_read_only")) {
            true => {
                let message = format!("cannot execute {function}() in a read-only transaction");
                Err(SqlError::new(state::READ_ONLY_TRANSACTION, message))
            }
            false => Ok(()),
        }
    }

    fn get(&self, name: &str) -> Result<Sequence> {
        if let Some(own) = self.own.sequence(name) {
            return Ok(own.lock().clone());
        }
        let (sequences, of) = (Arc::clone(self.node.sequences()), name.to_owned());
        self.wait(async move { sequences.get(&of).await })
    }

    /// What the metastore says, for a thread that has to wait for it.
    fn wait<T, E>(&self, work: impl Future<Output = Result<T, E>> + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        E: Send + 'static,
        SqlError: From<E>,
    {
        let (said, hears) = mpsc::sync_channel(1);
        self.runtime.spawn(async move {
            // Whoever asked may have gone away.
            let _ = said.send(work.await);
        });
        Ok(hears.recv().map_err(|_| SqlError::stopping())??)
    }
}

/// Whether a sequence goes with a column.
fn is_of(sequence: &Sequence, table: &str, column: &str) -> bool {
    sequence.owner.as_ref().is_some_and(|owner| owner.table == table && owner.column == column)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SequenceFunction {
    Next,
    Current,
    Last,
    Set,
    NameOf,
}

impl SequenceFunction {
    fn signature(self) -> Signature {
        let exact = |types: &[DataType]| TypeSignature::Exact(types.to_vec());
        let text = DataType::Utf8;
        let kinds = match self {
            SequenceFunction::Next | SequenceFunction::Current => vec![exact(&[text])],
            SequenceFunction::Last => vec![TypeSignature::Nullary],
            SequenceFunction::Set => {
                vec![exact(&[text.clone(), DataType::Int64]), exact(&[text, DataType::Int64, DataType::Boolean])]
            }
            SequenceFunction::NameOf => vec![exact(&[text.clone(), text])],
        };
        Signature::one_of(kinds, Volatility::Volatile)
    }
}

struct OfSequences {
    name: &'static str,
    does: SequenceFunction,
    signature: Signature,
    numbering: Numbering,
}

impl fmt::Debug for OfSequences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for OfSequences {
    fn eq(&self, other: &OfSequences) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.numbering.given, &other.numbering.given)
    }
}

impl Eq for OfSequences {}

impl Hash for OfSequences {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for OfSequences {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> datafusion::error::Result<DataType> {
        Ok(if self.does == SequenceFunction::NameOf { DataType::Utf8 } else { DataType::Int64 })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> datafusion::error::Result<ColumnarValue> {
        Ok(ColumnarValue::Array(self.answer(&args)?))
    }
}

impl OfSequences {
    fn answer(&self, args: &ScalarFunctionArgs) -> Result<ArrayRef> {
        let n_rows = args.number_rows;
        // One sequence for all rows, as nearly always: their numbers are taken at once.
        if let (SequenceFunction::Next, [ColumnarValue::Scalar(ScalarValue::Utf8(Some(name)))]) =
            (self.does, &args.args[..])
        {
            let numbers = self.numbering.next(&self.numbering.named(name)?, n_rows)?;
            return Ok(Arc::new(Int64Array::from(numbers)));
        }
        let columns = args.args.iter().map(|arg| arg.to_array(n_rows));
        let columns = columns.collect::<datafusion::error::Result<Vec<_>>>()?;
        let is_null = |row: usize| columns.iter().any(|column| column.is_null(row));
        if self.does == SequenceFunction::NameOf {
            let names = (0..n_rows).map(|row| match is_null(row) {
                true => Ok(None),
                // The column's name is not folded: so it is in PostgreSQL.
                false => self.numbering.name_of(&self.numbering.named(text(&columns[0], row))?, text(&columns[1], row)),
            });
            return Ok(Arc::new(names.collect::<Result<StringArray>>()?));
        }
        let numbers = (0..n_rows).map(|row| if is_null(row) { Ok(None) } else { self.number(&columns, row).map(Some) });
        Ok(Arc::new(numbers.collect::<Result<Int64Array>>()?))
    }

    fn number(&self, columns: &[ArrayRef], row: usize) -> Result<i64> {
        let name = || self.numbering.named(text(&columns[0], row));
        match self.does {
            SequenceFunction::Next => {
                let numbers = self.numbering.next(&name()?, 1)?;
                numbers.first().copied().ok_or_else(|| SqlError::new(state::INTERNAL, "one number was asked for"))
            }
            SequenceFunction::Current => self.numbering.current(&name()?),
            SequenceFunction::Last => self.numbering.last(),
            SequenceFunction::Set => {
                let is_called = columns.get(2).is_none_or(|is| is.as_boolean().value(row));
                self.numbering.set(&name()?, columns[1].as_primitive::<Int64Type>().value(row), is_called)
            }
            SequenceFunction::NameOf => Err(SqlError::new(state::INTERNAL, "a name is no number")),
        }
    }
}

fn text(column: &ArrayRef, row: usize) -> &str {
    column.as_string::<i32>().value(row)
}
