//! What does a statement owe to foreign keys, and when is it asked for?
//!
//! A statement that writes a table with foreign keys, or one that others refer to, is a transaction, its own or the one
//! that it stands in: what it writes is held.
//!
//! ```text
//! statement ─> rows are held ─> children of parents that went: gone, changed ─> what is not put off is checked ─> answer
//! COMMIT    ─> all of it is checked, while nobody else takes these keys away ─> one write of the log          (tarn_node::foreign)
//! ```
//!
//! So rows of one statement may refer to one another, and a constraint that is put off is one that the statement does
//! not look at. A statement that commits by itself runs again where others were first (`alone.rs`).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::sql::sqlparser::ast::{CopySource, Statement};
use futures::FutureExt;
use futures::TryStreamExt;
use futures::future::BoxFuture;
use tarn_node::auth::Privilege;
use tarn_node::edges::{Edge, Edges};
use tarn_node::error::Error;
use tarn_node::foreign::{Orphans, UncommittedWrites};
use tarn_node::own::OWN_SEQNO;
use tarn_query::keyed::KeyedPlan;
use tarn_types::{
    BatchBuilder, Column, ColumnId, ForeignKey, OnParent, TableId, TableSchema, Value, converted, decode_row,
    encode_cells, encode_key, full_name, row_of_entry,
};

use super::create_as::written;
use super::prepare::StatementKind;
use super::{Answer, Parameter, PendingChanges, PreparedStatement, Session};
use crate::constraints_sql::SetConstraints;
use crate::ddl::TableDefinition;
use crate::duplicate::violated;
use crate::error::{Result, SqlError, state};
use crate::foreign_rules;
use crate::names::{quote, table_name};
use crate::transaction::{HeldEffect, Transaction};

/// Rows that one foreign key may change, or delete, because their parents go: they are held in memory.
const MAX_ORPHANS: usize = 100_000;

/// Keys of parents that one write took away, or gave other values.
struct RemovedParents {
    /// How many batches the transaction had written before.
    from: usize,
    /// By the table of [`tarn_types::ReferencedKey::keys`].
    keys: HashMap<TableId, BTreeSet<Vec<u8>>>,
    /// Those whose rows were deleted.
    deleted: HashSet<(TableId, Vec<u8>)>,
}

impl Session {
    /// All foreign keys, as the session sees tables.
    pub(super) fn edges(&self) -> Arc<Edges> {
        let now = self.temporary.now();
        let altered: Vec<Arc<TableSchema>> =
            now.altered.iter().map(|altered| Arc::clone(altered.handle.schema())).collect();
        self.node.tables().edges(&altered)
    }

    /// Whether a statement is a transaction: it writes a table with foreign keys, or one that others refer to, or it
    /// has several parts that write.
    pub(super) fn is_transaction(&self, prepared: &PreparedStatement) -> bool {
        if matches!(*prepared.kind, StatementKind::With(_)) {
            return true;
        }
        let edges = self.edges();
        let has = |name: &str| self.table(name).is_ok_and(|table| edges.has(table.schema().id));
        !edges.is_empty() && written_table(prepared).is_some_and(|name| has(&name))
    }

    /// Runs a statement of a transaction that goes on, and what foreign keys ask for behind it.
    pub(super) async fn run_in_transaction(
        &self,
        prepared: &PreparedStatement,
        parameters: Vec<Parameter>,
    ) -> Result<Answer> {
        let answer = self.run_by_kind(prepared, parameters).await?;
        if !matches!(answer, Answer::CopyFrom(_)) {
            self.end_of_statement().await?;
        }
        Ok(answer)
    }

    /// A statement of a transaction has written all that it writes itself.
    ///
    /// Errors: `23503`.
    pub(super) fn end_of_statement(&self) -> BoxFuture<'_, Result<()>> {
        async move {
            match &*self.transaction.lock() {
                Transaction::Open(open) if !open.keys_wait => {}
                _ => return Ok(()),
            }
            let edges = self.edges();
            if edges.is_empty() {
                return Ok(());
            }
            let before = self.transaction.lock().n_followed();
            self.follow_parents(&edges).await?;
            let (wrote, defers) = {
                let transaction = self.transaction.lock();
                (transaction.wrote_since(before, &edges), transaction.deferral())
            };
            if wrote.keys.as_ref().is_none_or(HashMap::is_empty) {
                return Ok(());
            }
            let is_late = |edge: &Edge| defers.defers(&edge.child.name, &edge.key);
            self.check(&edges, wrote, |edge| !is_late(edge), |edge| !is_late(edge)).await
        }
        .boxed()
    }

    /// Before COMMIT: what was put off until now.
    ///
    /// Errors: `23503`.
    pub(super) fn check_deferred(&self) -> BoxFuture<'_, Result<()>> {
        async move {
            let (wrote, defers) = {
                let transaction = self.transaction.lock();
                match &*transaction {
                    Transaction::Open(open) if !open.is_alone() => {}
                    _ => return Ok(()),
                }
                (UncommittedWrites { own: transaction.own_writes(), keys: None }, transaction.deferral())
            };
            let edges = if wrote.own.is_empty() { Arc::default() } else { self.edges() };
            let is_late = |edge: &Edge| defers.defers(&edge.child.name, &edge.key);
            match edges.all.iter().any(is_late) {
                true => self.check(&edges, wrote, is_late, is_late).await,
                false => Ok(()),
            }
        }
        .boxed()
    }

    async fn check(
        &self,
        edges: &Arc<Edges>,
        wrote: UncommittedWrites,
        there: impl Fn(&Edge) -> bool,
        gone: impl Fn(&Edge) -> bool,
    ) -> Result<()> {
        let which = edges.all.iter().map(|edge| (there(edge), gone(edge))).collect();
        match self.node.tables().violation(Arc::clone(edges), which, wrote).await? {
            None => Ok(()),
            Some(violation) => Err(violated(&violation, &self.zone())),
        }
    }

    /// Children of parents that went since the last time go with them, or are changed; and theirs. Foreign keys act one
    /// after the other, in the order of their tables' creation and of their definition, each with all that follows from
    /// it: RESTRICT refuses rows that are still there by then, and lets those be that went by one before it.
    ///
    /// Errors: `23503` by RESTRICT, which is not put off.
    async fn follow_parents(&self, edges: &Arc<Edges>) -> Result<()> {
        let from = self.transaction.lock().n_followed();
        let mut waiting = self.to_follow(edges, from);
        while let Some((at, went)) = waiting.pop() {
            let n_before = self.transaction.lock().n_writes();
            self.follow(edges, at, &went).await?;
            // What follows from it comes before the other foreign keys.
            waiting.extend(self.to_follow(edges, n_before));
        }
        self.transaction.lock().followed();
        Ok(())
    }

    /// Places of the foreign keys whose parents went behind the first `from` batches; what acts first is the last.
    fn to_follow(&self, edges: &Edges, from: usize) -> Vec<(usize, Arc<RemovedParents>)> {
        let (wrote, deleted) = {
            let transaction = self.transaction.lock();
            (transaction.wrote_since(from, edges), transaction.deleted_since(from))
        };
        let referenced: HashSet<TableId> = edges.all.iter().map(|edge| edge.referenced.keys).collect();
        let mut by_table = wrote.keys.unwrap_or_default();
        by_table.retain(|table, keys| match wrote.own.get(table) {
            Some(own) if referenced.contains(table) => {
                keys.retain(|key| own.get(key) == Some(None));
                !keys.is_empty()
            }
            _ => false,
        });
        let is_asked = |edge: &Edge| by_table.contains_key(&edge.referenced.keys);
        let mut asked: Vec<usize> = (0..edges.all.len()).filter(|at| is_asked(&edges.all[*at])).collect();
        asked.sort_by_key(|at| (edges.all[*at].child.id, *at));
        let went = Arc::new(RemovedParents { from, keys: by_table, deleted });
        asked.into_iter().rev().map(|at| (at, Arc::clone(&went))).collect()
    }

    /// What one foreign key says of children whose parents went.
    ///
    /// Errors: `23503` by RESTRICT.
    async fn follow(&self, edges: &Arc<Edges>, at: usize, went: &RemovedParents) -> Result<()> {
        let edge = &edges.all[at];
        let table = edge.referenced.keys;
        let is_deleted = |key: &Vec<u8>| went.deleted.contains(&(table, key.clone()));
        let on = |is_deleted: bool| if is_deleted { edge.key.on_delete } else { edge.key.on_update };
        let (mut restricted, mut acting) = (BTreeSet::new(), BTreeSet::new());
        for key in went.keys.get(&table).into_iter().flatten() {
            match on(is_deleted(key)) {
                OnParent::NoAction => {}
                OnParent::Restrict => _ = restricted.insert(key.clone()),
                OnParent::Cascade | OnParent::SetNull | OnParent::SetDefault => _ = acting.insert(key.clone()),
            }
        }
        let own = self.transaction.lock().own_writes();
        let wrote = |keys| UncommittedWrites { own: own.clone(), keys: Some(HashMap::from([(table, keys)])) };
        if !restricted.is_empty() {
            self.check(edges, wrote(restricted), |_| false, |other| std::ptr::eq(other, edge)).await?;
        }
        if acting.is_empty() {
            return Ok(());
        }
        for orphans in self.node.tables().orphans(Arc::clone(edges), at, wrote(acting), MAX_ORPHANS).await? {
            let is_deleted = is_deleted(&orphans.parent);
            let values = match on(is_deleted) {
                OnParent::NoAction | OnParent::Restrict => continue,
                OnParent::Cascade if is_deleted => None,
                OnParent::Cascade => Some(self.new_values(&orphans, &own, went.from).await?),
                OnParent::SetNull => Some(vec![Value::Null; edge.key.columns.len()]),
                OnParent::SetDefault => Some(defaults(edge)),
            };
            self.change_orphans(&orphans, values).await?;
        }
        Ok(())
    }

    /// Deletes children, or gives their columns these values.
    async fn change_orphans(&self, orphans: &Orphans, values: Option<Vec<Value>>) -> Result<()> {
        let Orphans { edge, rows: keys, .. } = orphans;
        let table = match self.temporary.now().altered.get(edge.child.id) {
            Some(altered) => Arc::clone(&altered.handle),
            None => {
                self.node.tables().handle(edge.child.id).ok_or_else(|| SqlError::undefined_table(&edge.child.name))?
            }
        };
        let schema = table.schema();
        let seen = self.transaction.lock().sees(&self.node)?;
        let own = seen.own.get(&schema.id);
        let asked: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let committed = self.node.tables().rows_to_follow(&table, &asked).await?;
        let rules = self.row_rules(schema).await?;
        let (mut changed, mut moved) = (BatchBuilder::new(schema), BatchBuilder::new(schema));
        let mut moves = vec![];
        for (key, row) in asked.iter().zip(committed) {
            let (before, guard) = match own.and_then(|own| own.get(key)) {
                Some(Some(cells)) => (decode_row(schema, key, cells)?, OWN_SEQNO),
                Some(None) => continue,
                None => match row {
                    Some(row) => (row.values, row.seqno),
                    None => continue,
                },
            };
            let Some(values) = &values else {
                changed.delete(key, Some(guard));
                continue;
            };
            let mut after = before;
            for (id, value) in edge.key.columns.iter().zip(values) {
                let at = schema.columns.iter().position(|column| column.id == *id);
                let at = at.ok_or_else(|| SqlError::new(state::INTERNAL, "a foreign key has columns"))?;
                after[at] = value.clone();
            }
            check_not_null(schema, &after)?;
            let after = by_rules(&rules, schema, after)?;
            let cells = encode_cells(schema, &after)?;
            let parts: Vec<Value> = schema.key.iter().map(|part| after[part.column_idx].clone()).collect();
            let to = encode_key(schema, &parts)?;
            match to == *key {
                true => changed.put(key, &cells, Some(guard)),
                false => {
                    changed.delete(key, Some(guard));
                    moved.create(&to, &cells);
                    moves.push((key.to_vec(), to));
                }
            }
        }
        let privilege = if values.is_none() { Privilege::Delete } else { Privilege::Update };
        for batch in [changed.finish(), moved.finish()] {
            if !batch.is_empty() {
                let changes = PendingChanges { table: Arc::clone(&table), privilege, batches: vec![batch] };
                self.hold_as(changes, HeldEffect::Follows).await?;
            }
        }
        self.transaction.lock().moved(schema.id, moves);
        Ok(())
    }

    /// The values that a parent has now whose key is gone, in the order of the foreign key's columns and as those keep
    /// them.
    ///
    /// Errors: `22003` for one that they cannot keep.
    async fn new_values(
        &self,
        orphans: &Orphans,
        own: &HashMap<TableId, Arc<tarn_node::own::OwnWrites>>,
        from: usize,
    ) -> Result<Vec<Value>> {
        let Orphans { edge, parent: gone, .. } = orphans;
        let gone_key = match &edge.referenced.unique {
            None => Some(gone.clone()),
            Some(unique) => self.row_of_gone(&edge.parent, unique, gone, from).await?,
        };
        let lost = || SqlError::new(state::INTERNAL, "a parent that has other values is not there");
        let gone_key = gone_key.ok_or_else(lost)?;
        let key = self.transaction.lock().moved_to(edge.parent.id, &gone_key).unwrap_or(gone_key);
        let cells = own.get(&edge.parent.id).and_then(|own| own.get(&key)).flatten().ok_or_else(lost)?;
        let row = decode_row(&edge.parent, &key, cells)?;
        let values = edge.key.columns.iter().zip(&edge.key.parent_columns).map(|(child, parent)| {
            let at = edge.parent.columns.iter().position(|column| column.id == *parent).ok_or_else(lost)?;
            let child = edge.child.column_by_id(*child).ok_or_else(lost)?;
            converted(&row[at], edge.parent.columns[at].data_type, child.data_type).map_or_else(
                || match row[at] {
                    Value::Null => Ok(Value::Null),
                    _ => Err(SqlError::new(state::NUMERIC_OUT_OF_RANGE, "value of the parent is out of range")
                        .with_detail(format!("column \"{}\" of \"{}\" cannot keep it", child.name, edge.child.name))),
                },
                Ok,
            )
        });
        values.collect()
    }

    /// The engine key of the row that an entry was of which is gone: a committed one, or one that the transaction wrote
    /// before.
    async fn row_of_gone(
        &self,
        parent: &TableSchema,
        unique: &tarn_types::Unique,
        entry: &[u8],
        from: usize,
    ) -> Result<Option<Vec<u8>>> {
        let indexes = self.node.tables().indexes(parent)?;
        let Some(index) = indexes.into_iter().find(|index| index.unique.index == unique.index) else { return Ok(None) };
        let schema = index.entries.schema();
        let before = self.transaction.lock().held_before(from, unique.index, entry);
        let values = match before {
            Some(cells) => Some(decode_row(schema, entry, &cells)?),
            None => {
                let found = self.node.tables().rows_to_follow(&index.entries, &[entry]).await?;
                found.into_iter().flatten().next().map(|row| row.values)
            }
        };
        Ok(values.and_then(|values| row_of_entry(&values).map(<[u8]>::to_vec)))
    }

    /// `SET CONSTRAINTS`: what is not put off any more is checked at once.
    ///
    /// Errors: `42704`, `42809` for constraints that cannot be put off; `23503`.
    pub(super) async fn set_constraints(&self, said: &SetConstraints) -> Result<Answer> {
        let edges = self.edges();
        for name in said.names.iter().flatten() {
            let is_it = |edge: &&Edge| full_name::beside(&edge.child.name, &edge.key.name) == *name;
            let mut named = edges.all.iter().filter(is_it).peekable();
            // One that is no foreign key is none, either.
            if named.peek().is_none() || named.any(|edge| !edge.key.deferrable) {
                let message = format!("constraint \"{name}\" is not deferrable");
                return Err(SqlError::new(state::WRONG_OBJECT_TYPE, message));
            }
        }
        let done = Answer::done("SET CONSTRAINTS");
        let (wrote, before, now) = {
            let mut transaction = self.transaction.lock();
            let before = transaction.deferral();
            // Outside of a transaction there is nothing to put off.
            if !transaction.defer(said) {
                return Ok(done);
            }
            (UncommittedWrites { own: transaction.own_writes(), keys: None }, before, transaction.deferral())
        };
        let comes = |edge: &Edge| {
            let (child, key) = (&edge.child.name, &edge.key);
            before.defers(child, key) && !now.defers(child, key)
        };
        self.check(&edges, wrote, comes, comes).boxed().await?;
        Ok(done)
    }

    /// The table that a foreign key names, if the user may refer to it.
    ///
    /// Errors: `42P01`; `42501`; `0A000` for what this transaction changes of it.
    pub(super) fn parent(&self, name: &str) -> Result<Arc<TableSchema>> {
        self.node.schemas().check_there(name)?;
        self.transaction.lock().check_there(name)?;
        let parent = self.definition(name)?;
        if !parent.id.is_temporary() {
            self.node.may_own(&self.principal(), &parent)?;
        }
        Ok(parent)
    }

    /// Gives a table that is to be made its foreign keys.
    ///
    /// Errors: as of [`foreign_rules::add`]; `0A000` for a parent's key that the transaction made itself.
    pub(super) fn with_foreign_keys(&self, defined: &mut TableDefinition) -> Result<()> {
        let said = std::mem::take(&mut defined.foreign_keys);
        if said.is_empty() {
            return Ok(());
        }
        foreign_rules::add(&mut defined.schema, said, |name| self.parent(name))?;
        let now = self.temporary.now();
        for key in &defined.schema.options.rules.foreign_keys {
            let Some(altered) = now.altered.get(key.parent) else { continue };
            if tarn_types::referenced(&altered.from, &key.parent_columns).is_none() {
                return Err(SqlError::unsupported(
                    format!("FOREIGN KEY \"{}\" to a key that this transaction made", key.name),
                    "COMMIT first, or ALTER TABLE … ADD FOREIGN KEY",
                ));
            }
        }
        let n_before = defined.schema.options.rules.uniques.len();
        foreign_rules::serve(&mut defined.schema, |_| false);
        defined.unnamed.extend(n_before..defined.schema.options.rules.uniques.len());
        let schema = &defined.schema;
        schema.validate().map_err(|error| {
            SqlError::new(state::INVALID_TABLE_DEFINITION, format!("table \"{}\": {error}", schema.name))
        })
    }

    /// Whether every row of a FROM has its parent.
    ///
    /// Errors: `23503`.
    pub(super) fn look_for_parents<'a>(
        &'a self,
        to: &'a TableSchema,
        key: &'a ForeignKey,
        rows: &'a str,
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            let is_itself = key.parent_of(to.id) == to.id;
            let parent = match is_itself {
                true => Arc::new(to.clone()),
                false => {
                    let now = self.temporary.now();
                    let altered = now.altered.get(key.parent).map(|altered| Arc::clone(altered.handle.schema()));
                    let found = altered.or_else(|| Some(Arc::clone(self.node.tables().handle(key.parent)?.schema())));
                    found.ok_or_else(|| SqlError::undefined_table(&key.name))?
                }
            };
            let name = |table: &TableSchema, id| table.column_by_id(id).map_or(String::new(), |of| quote(&of.name));
            let pairs = key.columns.iter().zip(&key.parent_columns);
            let same = pairs.map(|(child, of)| format!("__c.{} = __p.{}", name(to, *child), name(&parent, *of)));
            let same = same.collect::<Vec<_>>().join(" AND ");
            let columns: Vec<String> = key.columns.iter().map(|id| name(to, *id)).collect();
            let all = columns.iter().map(|of| format!("__c.{of} IS NOT NULL")).collect::<Vec<_>>().join(" AND ");
            let some = columns.iter().map(|of| format!("__c.{of} IS NOT NULL")).collect::<Vec<_>>().join(" OR ");
            let shown = columns.iter().map(|of| format!("__c.{of}")).collect::<Vec<_>>().join(", ");
            // A FROM may have a name of its own.
            let rows = format!("(SELECT * FROM {rows})");
            let parents = if is_itself { rows.clone() } else { quote(&parent.name) };
            let orphan = format!("{all} AND NOT EXISTS (SELECT 1 FROM {parents} AS __p WHERE {same})");
            let mixed = format!("({some}) AND NOT ({all})");
            let condition = if key.match_full { format!("({orphan}) OR ({mixed})") } else { orphan };
            let text = format!("SELECT {shown} FROM {rows} AS __c WHERE {condition} LIMIT 1");
            let plan = self.permitted(self.plan(&written(&text)?, &[]).await?)?;
            let mut batches = self.query.stream(plan, None).await?;
            while let Some(batch) = batches.try_next().await? {
                if batch.num_rows() == 0 {
                    continue;
                }
                let values = key.columns.iter().enumerate().map(|(at, id)| {
                    let data_type = to.column_by_id(*id).map(|column| column.data_type);
                    let data_type = data_type.ok_or_else(|| SqlError::new(state::INTERNAL, "a key has columns"))?;
                    Ok(Value::from_arrow(batch.column(at).as_ref(), 0, &data_type)?)
                });
                let values = values.collect::<Result<Vec<Value>>>()?;
                let what = match values.contains(&Value::Null) {
                    true => tarn_node::error::ForeignKeyFault::Mixed,
                    false => tarn_node::error::ForeignKeyFault::Missing,
                };
                let (child, key) = (Arc::new(to.clone()), key.clone());
                return Err(self.told(Error::foreign_key(tarn_node::error::Violation {
                    child,
                    parent,
                    key,
                    values,
                    what,
                })));
            }
            Ok(())
        }
        .boxed()
    }

    /// Whether what others refer to stays, when a table is altered. `is_anew`: all rows are written into another table.
    ///
    /// Errors: `2BP01`; `0A000` for another table in the place of one that others refer to.
    pub(super) fn check_references(&self, before: &TableSchema, to: &TableSchema, is_anew: bool) -> Result<()> {
        let edges = self.edges();
        let goes = |columns: &[ColumnId]| columns.iter().any(|id| to.column_by_id(*id).is_none());
        for edge in edges.to(before.id) {
            let (key, child) = (&edge.key.name, &edge.child.name);
            let is_itself = edge.child.id == before.id;
            // One of its own went, by its name or with its columns.
            let went = is_itself && !to.options.rules.foreign_keys.contains(&edge.key);
            if went && (goes(&edge.key.columns) || !goes(&edge.key.parent_columns)) {
                continue;
            }
            let now = tarn_types::referenced(to, &edge.key.parent_columns);
            let is_kept = now.is_some_and(|now| now.keys == edge.referenced.keys || (is_itself && is_anew));
            if !is_kept {
                let unique = edge.referenced.unique.as_ref();
                let unique = unique.map_or("its key".to_owned(), |of| full_name::beside(&before.name, &of.name));
                let gone = edge.key.parent_columns.iter().find(|id| to.column_by_id(**id).is_none());
                let gone = gone.and_then(|id| before.column_by_id(*id));
                let message = match (gone, edge.referenced.unique.as_ref().is_some_and(|unique| unique.by_index)) {
                    (Some(column), _) => format!("cannot drop column {} of table {}", column.name, before.name),
                    (None, true) => format!("cannot drop index {unique}"),
                    (None, false) => {
                        format!("cannot drop constraint {} on table {}", full_name::bare(&unique), before.name)
                    }
                };
                let message = format!("{message} because other objects depend on it");
                let on = match gone {
                    Some(column) => format!("column {} of table {}", column.name, before.name),
                    None => format!("index {unique}"),
                };
                return Err(SqlError::new(state::DEPENDENT_OBJECTS, message)
                    .with_detail(format!("constraint {key} on table {child} depends on {on}"))
                    .with_hint(format!("ALTER TABLE {} DROP CONSTRAINT {} first", quote(child), quote(key))));
            }
            if is_anew && !is_itself {
                return Err(SqlError::unsupported(
                    format!(
                        "ALTER TABLE {}, for which all rows are written anew, while foreign key \"{key}\" of table \"{child}\" refers to it",
                        quote(&before.name)
                    ),
                    format!("ALTER TABLE {} DROP CONSTRAINT {} first, and ADD it behind", quote(child), quote(key)),
                ));
            }
        }
        Ok(())
    }

    /// Tables to empty with these, or an error of one that may not be emptied alone: children before their parents.
    ///
    /// Errors: `0A000` for a table that another one refers to.
    pub(super) fn emptied_with(&self, names: Vec<String>, cascade: bool) -> Result<Vec<String>> {
        let edges = self.edges();
        if edges.is_empty() {
            return Ok(names);
        }
        let mut tables: BTreeMap<TableId, String> = BTreeMap::new();
        let mut order: Vec<(TableId, String)> = vec![];
        for name in names {
            let id = self.table(&name)?.schema().id;
            if tables.insert(id, name.clone()).is_none() {
                order.push((id, name));
            }
        }
        let mut at = 0;
        while let Some((id, name)) = order.get(at).cloned() {
            for edge in edges.to(id).filter(|edge| edge.child.id != id) {
                let child = &edge.child.name;
                if tables.contains_key(&edge.child.id) {
                    continue;
                }
                if !cascade {
                    let message = "cannot truncate a table referenced in a foreign key constraint";
                    let (child, name) = (full_name::bare(child), full_name::bare(&name));
                    return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message)
                        .with_detail(format!("Table \"{child}\" references \"{name}\"."))
                        .with_hint(format!(
                            "Truncate table \"{child}\" at the same time, or use TRUNCATE ... CASCADE."
                        )));
                }
                tables.insert(edge.child.id, child.clone());
                order.push((edge.child.id, child.clone()));
            }
            at += 1;
        }
        Ok(order.into_iter().map(|(_, name)| name).collect())
    }

    /// Empties tables as one: what is owed is looked at when all of them are empty.
    pub(super) fn as_one<'a>(&'a self, emptying: BoxFuture<'a, Result<()>>) -> BoxFuture<'a, Result<()>> {
        async move {
            if self.edges().is_empty() {
                return emptying.await;
            }
            let is_own = !self.transaction.lock().is_open();
            if is_own {
                self.must_hold()?;
                self.begin_alone()?;
            }
            self.transaction.lock().keys_wait(true);
            let emptied = emptying.await;
            self.transaction.lock().keys_wait(false);
            let emptied = match emptied {
                Ok(()) => self.end_of_statement().await,
                failed => failed,
            };
            match (is_own, emptied) {
                (false, emptied) => emptied,
                (true, Ok(())) => self.commit().await.map(drop),
                (true, failed) => self.rollback().await.and(failed),
            }
        }
        .boxed()
    }
}

/// The table whose rows a statement writes.
fn written_table(prepared: &PreparedStatement) -> Option<String> {
    match &*prepared.kind {
        StatementKind::Keyed { plan: KeyedPlan::Select { .. }, .. } => None,
        StatementKind::Keyed { table, .. } => Some(table.name.clone()),
        StatementKind::Dml { dml, .. } | StatementKind::Move { dml, .. } => Some(dml.table.name.clone()),
        StatementKind::Merge(merge) => Some(merge.table.name.clone()),
        StatementKind::Copy { statement, .. } => copied_table(statement),
        StatementKind::Utility(statement) => copied_table(statement),
        _ => None,
    }
}

fn copied_table(statement: &Statement) -> Option<String> {
    match statement {
        Statement::Copy { source: CopySource::Table { table_name: name, .. }, to: false, .. } => table_name(name).ok(),
        _ => None,
    }
}

/// What a row has without being asked.
fn defaults(edge: &Edge) -> Vec<Value> {
    let default = |id| edge.child.column_by_id(id).and_then(|column| column.default.clone()).unwrap_or(Value::Null);
    edge.key.columns.iter().map(|id| default(*id)).collect()
}

/// Errors: `23502`.
fn check_not_null(schema: &TableSchema, row: &[Value]) -> Result<()> {
    let is_null = |(column, value): &(&Column, &Value)| !column.nullable && **value == Value::Null;
    let Some((column, _)) = schema.shown().iter().zip(row).find(is_null) else { return Ok(()) };
    let (column, table) = (&column.name, &schema.name);
    let message = format!("null value in column \"{column}\" of relation \"{table}\" violates not-null constraint");
    let shown = schema.shown().iter().zip(row).map(|(column, value)| match value {
        Value::Null => "null".to_owned(),
        value => value.to_display(&column.data_type),
    });
    let shown = shown.collect::<Vec<_>>().join(", ");
    Err(SqlError::new(state::NOT_NULL_VIOLATION, message).with_detail(format!("Failing row contains ({shown}).")))
}

/// A row as its table's rules make it.
///
/// Errors: as of [`super::compiled_rules::RowRules::applied`].
fn by_rules(rules: &super::compiled_rules::RowRules, schema: &TableSchema, row: Vec<Value>) -> Result<Vec<Value>> {
    if !schema.options.rules.look_at_rows() {
        return Ok(row);
    }
    let columns = schema.columns.iter().zip(&row).map(|(column, value)| value.to_array(&column.data_type, 1));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let fields =
        schema.arrow().fields().iter().map(|field| field.as_ref().clone().with_nullable(true)).collect::<Vec<_>>();
    let applied = rules.applied(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)?;
    let values = schema.columns.iter().zip(applied.columns());
    let values = values.map(|(column, array)| Ok(Value::from_arrow(array.as_ref(), 0, &column.data_type)?));
    values.collect()
}
