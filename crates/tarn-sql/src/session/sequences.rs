//! How are sequences made, changed and dropped, by themselves and with the tables whose columns they count?
//!
//! ```text
//! CREATE TABLE   sequences ─> table          a failure: sequences go again; a crash between: they are in nobody's way
//! DROP TABLE     table ─> sequences          (the node's)
//! ```

use std::sync::Arc;

use tarn_node::auth::Principal;
use tarn_node::node::Node;
use tarn_node::sequences::Sequence;
use tarn_types::TableSchema;

use super::execute::to_its_end;
use super::{Answer, Session};
use crate::column_rules::{ColumnSequence, made_up};
use crate::ddl::TableDefinition;
use crate::error::{Result, SqlError, state};
use crate::expressions::{next_of, read, sequence_of};
use crate::sequence_sql::{Clauses, SequenceSql, width_of};
use crate::unique_rules::{name_anew, name_key};

/// How often a name is looked for that nobody else takes meanwhile.
const TRIES: usize = 16;

/// Makes a table with the sequences of its columns. False: it was there already, and `if_not_exists` was said.
pub(super) async fn create_defined(
    node: &Node,
    who: &Principal,
    defined: TableDefinition,
    if_not_exists: bool,
) -> Result<bool> {
    let TableDefinition { mut schema, sequences, unnamed, foreign_keys: _ } = defined;
    let name = schema.name.clone();
    if node.types().get(&name).is_some() {
        let message = format!("type \"{name}\" already exists");
        return Err(SqlError::new(state::DUPLICATE_OBJECT, message)
            .with_hint("the rows of a table are of a type that is called as it is: choose another name"));
    }
    if !node.catalog().contains(&name) && node.sequences().get(&name).await.is_ok() {
        return Err(taken(&name));
    }
    if !unnamed.is_empty() {
        let sequences = node.sequences().all().await?;
        let is_taken = |name: &str| node.catalog().contains(name) || sequences.iter().any(|(other, _)| other == name);
        unnamed.into_iter().for_each(|at| name_anew(&mut schema, at, is_taken));
    }
    if !node.catalog().contains(&name) {
        name_key(&mut schema, &node.catalog().schemas())?;
    }
    let made = match node.catalog().contains(&name) {
        // What is said of that comes from below.
        true => vec![],
        false => make(node, who, &mut schema, sequences).await?,
    };
    let created = node.create_table(who, schema, if_not_exists).await;
    if !matches!(created, Ok(true)) {
        for sequence in made {
            // Another may have made a table of this name meanwhile, which this sequence now seems to go with.
            if let Err(error) = node.drop_sequence(&Principal::Node, &sequence).await {
                tracing::warn!(%sequence, %error, "the sequence of a table that was not made is left: DROP SEQUENCE it");
            }
        }
    }
    Ok(created?)
}

/// Makes the sequences of a table's columns, under names that are free, and lets defaults name them.
async fn make(
    node: &Node,
    who: &Principal,
    schema: &mut TableSchema,
    sequences: Vec<ColumnSequence>,
) -> Result<Vec<String>> {
    let mut made = vec![];
    for ColumnSequence { column_idx, sequence } in sequences {
        let (id, column) = (schema.columns[column_idx].id, schema.columns[column_idx].name.clone());
        let name = free_name(node, who, &[&schema.name, &column], sequence).await?;
        schema.options.rules.entry(id).default = Some(next_of(&name));
        made.push(name);
    }
    Ok(made)
}

async fn free_name(node: &Node, who: &Principal, parts: &[&str], sequence: Sequence) -> Result<String> {
    for _ in 0..TRIES {
        let there = node.sequences().all().await?;
        let is_taken = |name: &str| node.catalog().contains(name) || there.iter().any(|(other, _)| other == name);
        let name = made_up(parts, "seq", is_taken);
        if node.create_sequence(who, &name, sequence.clone(), true).await? {
            return Ok(name);
        }
    }
    Err(SqlError::new(state::SERIALIZATION_FAILURE, "others make sequences of this name again and again")
        .with_hint("try again"))
}

pub(super) fn taken(name: &str) -> SqlError {
    SqlError::new(state::DUPLICATE_TABLE, format!("relation \"{name}\" already exists"))
        .with_hint("tables, views and sequences share their names")
}

impl Session {
    /// Runs a statement about sequences. It holds for all sessions at once, and is not undone.
    pub(super) async fn sequence(&self, statement: &SequenceSql) -> Result<Answer> {
        let tag = statement.tag();
        let (node, who, statement) = (Arc::clone(&self.node), self.principal(), statement.clone());
        let changed = to_its_end(async move { change(&node, &who, statement).await });
        self.interrupt.submit(changed, |()| 0).await?;
        Ok(Answer::done(tag))
    }

    /// Calls a sequence otherwise. It holds for all sessions at once.
    ///
    /// Errors: `42P07` for a name that is taken; `2BP01` while a default takes numbers of it.
    pub(super) async fn rename_sequence(&self, name: &str, to: &str) -> Result<()> {
        let (node, who, name, to) = (Arc::clone(&self.node), self.principal(), name.to_owned(), to.to_owned());
        let renamed = to_its_end(async move {
            let sequence = node.sequences().get(&name).await?;
            node.may_change_sequence(&who, &name, &sequence)?;
            check_unused(&node, "rename", &name, &sequence, &|_| false)?;
            if node.catalog().contains(&to) {
                return Err(taken(&to));
            }
            Ok::<_, SqlError>(node.rename_sequence(&who, &name, &to).await?)
        });
        self.interrupt.submit(renamed, |()| 0).await
    }

    /// Who may run it: whoever may make tables makes sequences, and changes his own.
    pub(super) fn allow_sequence(&self, statement: &SequenceSql) -> Result<()> {
        match statement {
            SequenceSql::Create { name, .. } => Ok(self.node.may_make(&self.principal(), name)?),
            // Asked for when it is known whose they are.
            SequenceSql::Alter { .. } | SequenceSql::Drop { .. } => Ok(()),
        }
    }
}

async fn change(node: &Node, who: &Principal, statement: SequenceSql) -> Result<()> {
    match statement {
        SequenceSql::Create { name, if_not_exists, clauses } => {
            if node.catalog().contains(&name) {
                return Err(taken(&name));
            }
            let sequence = clauses.made()?;
            check_owner(node, who, &clauses)?;
            node.create_sequence(who, &name, sequence, if_not_exists).await?;
            Ok(())
        }
        SequenceSql::Alter { name, if_exists, clauses } => {
            let Some(sequence) = found(node, &name, if_exists).await? else { return Ok(()) };
            node.may_change_sequence(who, &name, &sequence)?;
            check_owner(node, who, &clauses)?;
            if sequence.owner.as_ref().is_some_and(|owner| owner.is_identity) && clauses.owner.is_some() {
                let message = "cannot change ownership of identity sequence";
                return Err(SqlError::unsupported(message, format!("sequence \"{name}\" goes with its column")));
            }
            // What is wrong with it is told before anything is written.
            clauses.alter(&mut sequence.clone())?;
            let altered = node.alter_sequence(who, &name, |sequence| {
                clauses.alter(sequence).map_err(|error| {
                    tarn_node::error::Error::new(tarn_node::error::ErrorKind::Invalid, error.message())
                })
            });
            Ok(altered.await?)
        }
        SequenceSql::Drop { names, if_exists } => {
            let mut there = vec![];
            for name in names {
                let Some(sequence) = found(node, &name, if_exists).await? else { continue };
                node.may_change_sequence(who, &name, &sequence)?;
                check_unused(node, "drop", &name, &sequence, &|_| false)?;
                there.push(name);
            }
            for name in there {
                node.drop_sequence(who, &name).await?;
            }
            Ok(())
        }
    }
}

/// `None`: it is not there, and need not be.
async fn found(node: &Node, name: &str, if_exists: bool) -> Result<Option<Sequence>> {
    if node.catalog().contains(name) {
        return Err(SqlError::new(state::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a sequence")));
    }
    match node.sequences().get(name).await {
        Ok(sequence) => Ok(Some(sequence)),
        Err(absent) if if_exists && absent.kind() == tarn_node::error::ErrorKind::NoTable => Ok(None),
        Err(_) if !if_exists => {
            Err(SqlError::new(state::UNDEFINED_TABLE, format!("sequence \"{name}\" does not exist"))
                .with_hint("information_schema.sequences lists them"))
        }
        Err(error) => Err(error.into()),
    }
}

/// The column that it is to go with.
fn check_owner(node: &Node, who: &Principal, clauses: &Clauses) -> Result<()> {
    let Some(Some((table, column))) = &clauses.owner else { return Ok(()) };
    let schema = node.catalog().schema(table)?;
    let Some((_, of)) = schema.column(column) else {
        let message = format!("column \"{column}\" of relation \"{table}\" does not exist");
        return Err(SqlError::new(state::UNDEFINED_COLUMN, message));
    };
    width_of(&of.data_type).map(drop)?;
    Ok(node.may_own(who, &schema)?)
}

/// What takes numbers of the sequences that go with a column of a table, beside the column itself: a default, as
/// PostgreSQL says it.
pub(super) async fn borrower(node: &Node, table: &TableSchema, column: &str) -> Result<Option<String>> {
    for (name, sequence) in node.sequences().all().await? {
        if sequence.owner.is_none_or(|of| of.table != table.name || of.column != column) {
            continue;
        }
        for handle in node.catalog().all() {
            let other = handle.schema();
            let takes = |place: usize| {
                let named = other.computed_default(place).and_then(|text| sequence_of(&read(text).ok()?));
                named.as_deref() == Some(&name)
            };
            let takers = other.shown().iter().enumerate().filter(|(place, _)| takes(*place));
            if let Some((_, taker)) = takers.into_iter().find(|(_, of)| other.id != table.id || of.name != column) {
                let of = format!("default value for column {} of table {}", taker.name, other.name);
                return Ok(Some(format!("{of} depends on sequence {name}")));
            }
        }
    }
    Ok(None)
}

/// A default that has no sequence any more would fail at every INSERT. `is_going`: tables that go with it.
pub(super) fn check_unused(
    node: &Node,
    verb: &str,
    name: &str,
    sequence: &Sequence,
    is_going: &dyn Fn(&str) -> bool,
) -> Result<()> {
    for handle in node.catalog().all() {
        let table = handle.schema();
        if is_going(&table.name) {
            continue;
        }
        for (place, column) in table.shown().iter().enumerate() {
            let named = table.computed_default(place).and_then(|text| sequence_of(&read(text).ok()?));
            if named.as_deref() != Some(name) {
                continue;
            }
            if sequence.owner.as_ref().is_some_and(|owner| owner.is_identity) {
                let message = format!(
                    "cannot {verb} sequence {name} because column {} of table {} requires it",
                    column.name, table.name
                );
                return Err(SqlError::new(state::DEPENDENT_OBJECTS, message)
                    .with_hint(format!("You can drop column {} of table {} instead.", column.name, table.name)));
            }
            let message = format!("cannot {verb} sequence {name} because other objects depend on it");
            let column = format!("column {} of table {}", column.name, table.name);
            return Err(SqlError::new(state::DEPENDENT_OBJECTS, message)
                .with_detail(format!("default value for {column} depends on sequence {name}"))
                .with_hint(format!("ALTER TABLE … DROP DEFAULT for {column}, and SET DEFAULT anew afterwards")));
        }
    }
    Ok(())
}
