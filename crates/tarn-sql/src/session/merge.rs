//! How is a `MERGE` run? As PostgreSQL 15 has it: of each row of the source the first clause that fits acts, and all
//! that comes of it is one write, or none of it happens.
//!
//! 1. All pairs of rows are read, at one moment. They are held in memory, counted against what statements may hold.
//! 2. Each clause makes rows of those that fell to it, which are held to all that INSERT and UPDATE hold rows to. A row
//!    of the table that two rows of the source would change or delete is 21000.
//! 3. Deletions, changes and new rows are one batch: changes and deletions are guarded by the change that their rows
//!    were read at, new rows by their key's not being there. Inside BEGIN it is held. Else it is written, and where
//!    somebody changed such a row meanwhile, all is read and computed anew, a bounded number of times. A key that
//!    somebody else inserted first is 23505, as in PostgreSQL.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::ParamValues;
use datafusion::sql::sqlparser::ast::{
    self, Insert, MergeAction, MergeClause, MergeClauseKind, MergeInsertExpr, MergeInsertKind, SetExpr, Statement,
    TableFactor,
};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt};
use tarn_node::auth::Privilege;
use tarn_node::catalog::TableHandle;
use tarn_node::error::Error;
use tarn_node::write::{WriteOutcome, all_written, conflict, merge as one_batch};
use tarn_query::check_count;
use tarn_query::dml::DmlKind;
use tarn_query::merge::{Clause, ClauseAction, Merge, MergeStatement, WhenClause};
use tarn_types::{BatchBuilder, Mutation, MutationBatch, Op, TableSchema, encode_cells_columnar, encode_keys};

use super::create_as::written;
use super::defaults::{assigned, written_out};
use super::in_parts::{MAX_CHANGE_BYTES, MAX_ROUNDS, change_numbers};
use super::on_key::op_of;
use super::placeholders::{DeclaredType, described, parameter_fields};
use super::prepare::{StatementKind, StatementPlan, of_both};
use super::{Answer, PendingChanges, Session};
use crate::budget::Reservation;
use crate::encoding;
use crate::error::{Result, SqlError, state};
use crate::names::{quote, table_name};
use crate::postgres::assignments::{check_rows, checked, marked_assignments};
use crate::transaction::no_room;
use crate::unknown;

/// What one round writes, in this order.
struct MergeRound {
    deleted: BatchBuilder,
    changed: BatchBuilder,
    new: BatchBuilder,
    /// Of the pairs, for as long as they are held.
    _reservation: Reservation,
}

impl MergeRound {
    /// What is written by whose right.
    fn parts(self) -> [(Privilege, MutationBatch); 3] {
        [
            (Privilege::Delete, self.deleted.finish()),
            (Privilege::Update, self.changed.finish()),
            (Privilege::Insert, self.new.finish()),
        ]
    }
}

impl Session {
    pub(super) fn prepare_merge<'a>(
        &'a self,
        statement: &'a Statement,
        merge: &'a ast::Merge,
        declared: &'a [Option<DeclaredType>],
    ) -> BoxFuture<'a, Result<StatementPlan>> {
        self.planned_merge(statement, merge, declared).boxed()
    }

    async fn planned_merge(
        &self,
        statement: &Statement,
        merge: &ast::Merge,
        declared: &[Option<DeclaredType>],
    ) -> Result<StatementPlan> {
        let name = match &merge.table {
            TableFactor::Table { name, .. } => table_name(name)?,
            other => return Err(SqlError::new(state::SYNTAX_ERROR, format!("MERGE INTO {other}: it is no table"))),
        };
        if let Some(view) = self.view_of(&name) {
            let message = format!("cannot execute MERGE on relation \"{}\"", view.name);
            return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message)
                .with_detail("This operation is not supported for views.")
                .with_hint("merge into the table that it reads"));
        }
        let table = self.table(&name).map_err(|error| error.with_place(unknown::table(statement, &name)))?;
        let table = table.schema();
        self.check_volatile(statement, table)?;
        let (asked, inserts) = asked(merge, table)?;
        let [pairs, source] = asked.queries(table)?;
        let queries = [self.plan(&pairs, declared).await?, self.plan(&source, declared).await?];
        let planned = self.query.merge(&asked, table, queries).await;
        let mut planned = planned.map_err(|error| self.explain_error(statement, error))?;
        let mut parameters = parameter_fields(&planned.pairs)?;
        for (clause, insert) in planned.clauses.iter_mut().zip(&inserts) {
            match (&mut *clause, insert) {
                (Clause::Insert(dml), Some(insert)) => {
                    check_rows(&dml.source, table)?;
                    **dml = self.with_defaults(dml.as_ref().clone(), insert).await?;
                }
                (Clause::Update(plan), _) => **plan = checked(std::mem::take(plan.as_mut()), table)?,
                _ => {}
            }
            if let Some(plan) = clause.plan() {
                parameters = of_both(parameters, parameter_fields(plan)?);
            }
        }
        let parameters = described(parameters, statement, &planned.pairs)?;
        Ok((StatementKind::Merge(Box::new(planned)), parameters, None))
    }

    /// Runs one that is planned.
    ///
    /// Errors: 21000 for a row that would be written twice; 23505; 40001 where others were first too often; what INSERT
    /// and UPDATE say of rows.
    pub(super) async fn merge(
        &self,
        merge: &Merge,
        handle: &Arc<TableHandle>,
        parameters: Option<ParamValues>,
    ) -> Result<Answer> {
        let hold = self.must_hold_for(handle.schema())?;
        if hold {
            let mut n_rows = 0;
            for (privilege, batch) in self.merge_round(merge, handle, parameters).await?.parts() {
                let batches = vec![batch];
                n_rows += self.hold(PendingChanges { table: Arc::clone(handle), privilege, batches }).await?;
            }
            return Ok(Answer::counted("MERGE", n_rows));
        }
        for _ in 0..MAX_ROUNDS {
            let parts = self.merge_round(merge, handle, parameters.clone()).await?.parts();
            let Some((privilege, _)) = parts.iter().find(|(_, batch)| !batch.is_empty()) else {
                return Ok(Answer::counted("MERGE", 0));
            };
            // The rights of all that it may do were asked for before it ran.
            let (privilege, who) = (*privilege, self.principal());
            let batch = one_batch(handle, &parts.map(|(_, batch)| batch));
            let n_rows = batch.len() as u64;
            match self.node.tables().write_whole(&who, handle, privilege, batch, &*self.interrupt).await? {
                WriteOutcome::Conflict => {}
                written => {
                    all_written(handle, &[written]).map_err(|error| self.told(error))?;
                    return Ok(Answer::counted("MERGE", n_rows));
                }
            }
        }
        Err(conflict(&handle.schema().name).into())
    }

    /// What becomes of the rows of the source now.
    async fn merge_round(
        &self,
        merge: &Merge,
        handle: &Arc<TableHandle>,
        parameters: Option<ParamValues>,
    ) -> Result<MergeRound> {
        let schema = handle.schema();
        let (pairs, reservation) = self.merge_pairs(merge, parameters.clone()).await?;
        let new_batch = || BatchBuilder::new(schema);
        let mut round =
            MergeRound { deleted: new_batch(), changed: new_batch(), new: new_batch(), _reservation: reservation };
        let Some(pairs) = pairs else { return Ok(round) };
        let rules = self.row_rules(schema).await?;
        let (mut written, mut inserted) = (HashSet::new(), HashSet::new());
        for (place, clause) in merge.clauses.iter().enumerate() {
            if matches!(clause, Clause::Nothing) {
                continue;
            }
            let its = merge.of_clause(&pairs, place)?;
            if its.num_rows() == 0 {
                continue;
            }
            if matches!(clause, Clause::Delete) {
                let rows = merge.keys(&its)?;
                let (keys, read_at) = (encode_keys(schema, &rows)?, change_numbers(&rows)?);
                for (row, key) in keys.iter().enumerate() {
                    once(&mut written, key)?;
                    round.deleted.delete(key, Some(read_at.of(row)));
                }
                continue;
            }
            let mut rows = self.query.merged(merge, clause, &its, parameters.clone()).await?;
            while let Some(batch) = rows.next().await.transpose()? {
                encoding::check_columns(&batch)?;
                let batch = rules.applied(batch)?;
                let (keys, cells) = (encode_keys(schema, &batch)?, encode_cells_columnar(schema, &batch)?);
                let op = match clause {
                    Clause::Insert(dml) => op_of(match dml.kind {
                        DmlKind::Insert { on_key } => on_key,
                        DmlKind::Update | DmlKind::Delete => tarn_query::OnKey::Refuse,
                    }),
                    _ => Op::Put,
                };
                let read_at = matches!(clause, Clause::Update(_)).then(|| change_numbers(&batch)).transpose()?;
                for (row, key) in keys.iter().enumerate() {
                    match &read_at {
                        Some(read_at) => {
                            once(&mut written, key)?;
                            round.changed.put(key, cells.get(row), Some(read_at.of(row)));
                        }
                        None => {
                            if op == Op::Create && !inserted.insert(key.to_vec()) {
                                return Err(self.told(Error::key_exists(schema, key.to_vec())));
                            }
                            round.new.push(&Mutation { op, key, guard: None, cells: cells.get(row) });
                        }
                    }
                }
            }
        }
        Ok(round)
    }

    /// All pairs. `None`: the source has no rows.
    ///
    /// Errors: `54000`, `53200` for more than a statement, or all of them together, may hold.
    async fn merge_pairs(
        &self,
        merge: &Merge,
        parameters: Option<ParamValues>,
    ) -> Result<(Option<RecordBatch>, Reservation)> {
        let budget = self.sql.held();
        let (mut reservation, mut batches, mut n_bytes) = (budget.reservation(), vec![], 0);
        let mut pairs = self.query.stream(merge.pairs.clone(), parameters).await?;
        while let Some(batch) = pairs.try_next().await? {
            n_bytes += batch.get_array_memory_size();
            if n_bytes > MAX_CHANGE_BYTES {
                let message = format!("the statement merges more than {MAX_CHANGE_BYTES} bytes of rows");
                return Err(SqlError::new(state::PROGRAM_LIMIT, message).with_hint("merge in parts"));
            }
            // They are there as pairs, and as what is written of them.
            if !reservation.resize(2 * n_bytes as u64) {
                return Err(no_room(budget));
            }
            if batch.num_rows() > 0 {
                batches.push(batch);
            }
        }
        let pairs = batches.first().map(|first| concat_batches(&first.schema(), &batches)).transpose()?;
        Ok((pairs, reservation))
    }
}

/// Errors: 21000 for a row that was met before.
fn once(written: &mut HashSet<Vec<u8>>, key: &[u8]) -> Result<()> {
    match written.insert(key.to_vec()) {
        true => Ok(()),
        false => Err(SqlError::new(state::CARDINALITY, "MERGE command cannot affect row a second time")
            .with_hint("Ensure that not more than one source row matches any one target row.")),
    }
}

/// What a statement asks for, with defaults written out, and of each clause the INSERT that it is, if it is one.
fn asked(merge: &ast::Merge, table: &TableSchema) -> Result<(MergeStatement, Vec<Option<Statement>>)> {
    let (mut clauses, mut inserts) = (vec![], vec![]);
    let mut are_all_met = [false; 2];
    for MergeClause { clause_kind, predicate, action, .. } in &merge.clauses {
        let is_matched = matches!(clause_kind, MergeClauseKind::Matched);
        if std::mem::replace(&mut are_all_met[usize::from(is_matched)], predicate.is_none()) {
            let message = "unreachable WHEN clause specified after unconditional WHEN clause";
            return Err(SqlError::new(state::SYNTAX_ERROR, message));
        }
        let mut insert = None;
        let action = match action {
            MergeAction::Delete { .. } => ClauseAction::Delete,
            MergeAction::Update(update) if update.assignments.is_empty() => ClauseAction::Nothing,
            MergeAction::Update(update) => {
                let written = assigned(&update.assignments, table)?;
                let mut assignments = written.unwrap_or_else(|| update.assignments.clone());
                marked_assignments(&mut assignments, table);
                ClauseAction::Update(assignments)
            }
            MergeAction::Insert(given) => {
                let (statement, written) = inserted(given, table)?;
                insert = Some(statement);
                ClauseAction::Insert(Box::new(written))
            }
        };
        inserts.push(insert);
        clauses.push(WhenClause { is_matched, condition: predicate.clone(), action });
    }
    let (target, source, on) = (merge.table.clone(), merge.source.clone(), merge.on.as_ref().clone());
    Ok((MergeStatement { table: target, source, on, clauses }, inserts))
}

/// The INSERT that a clause is, as it was said and with defaults written out.
fn inserted(given: &MergeInsertExpr, table: &TableSchema) -> Result<(Statement, Insert)> {
    let mut statement = written(&format!("INSERT INTO {} DEFAULT VALUES", quote(&table.name)))?;
    if let (Statement::Insert(insert), MergeInsertKind::Values(values)) = (&mut statement, &given.kind)
        && let Statement::Query(mut query) = written("VALUES (NULL)")?
    {
        let n_given = values.rows.first().map_or(0, |row| row.content.len());
        let n_wanted = if given.columns.is_empty() { table.shown().len() } else { given.columns.len() };
        // Without names, columns behind those that are given have their defaults.
        if n_given > n_wanted || !given.columns.is_empty() {
            check_count(n_given, n_wanted)?;
        }
        *query.body = SetExpr::Values(values.clone());
        insert.source = Some(query);
        insert.columns = given.columns.clone();
    }
    match written_out(&statement, table)?.into_owned() {
        Statement::Insert(insert) => Ok((statement, insert)),
        _ => Err(SqlError::new(state::INTERNAL, "an INSERT of MERGE is none")),
    }
}
