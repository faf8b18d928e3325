//! What does `MERGE` do with each row of its source? Two steps, of which the caller makes mutations:
//!
//! 1. The *pairs*: each row of the source beside the row of the table that it belongs to, or beside none, in one query,
//!    so at one moment. Their first column is the clause that acts, by its place, or -1.
//! 2. Each clause that writes has a plan like that of an `UPDATE` or `INSERT`, which reads the pairs that fell to it
//!    instead of its two tables ([`Session::merged`]).
//!
//! What a clause of `NOT MATCHED` says is planned beside the source alone, so names mean its columns there, as in
//! PostgreSQL.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch};
use arrow::compute::{cast, filter_record_batch};
use arrow::datatypes::{DataType as ArrowType, FieldRef, Int64Type};
use datafusion::common::{Column as PlannedColumn, DFSchema, DFSchemaRef, ParamValues, ScalarValue, TableReference};
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::{Expr as Planned, ExprSchemable, LogicalPlan, LogicalPlanBuilder, lit, when};
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    Assignment, CaseWhen, Expr, Ident, Insert, Join, JoinConstraint, JoinOperator, Parens, SelectItem, SetExpr,
    Statement, TableAlias, TableFactor, TableWithJoins, UnaryOperator, Update, Value as Literal, Values,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use tarn_types::{SEQNO_COLUMN, TableSchema, full_name};

use crate::conflict::{Arbiter, on_key};
use crate::dml::{
    Dml, DmlKind, assignments, beside, beside_it, deleted, inserted_rows, key_schema, plain_update, refuse_append_only,
    rows_of, stored_rows, unsupported, with_seqno,
};
use crate::engine::Session;
use crate::inserted_query::{places_of, with_types};
use crate::keyed::relation;
use crate::parser::query_of;
use crate::values::{sql_schema, to_scalar};
use crate::{Error, Result};

/// The column that says which clause acts.
const CLAUSE: &str = "__clause";

/// A relation of one row, so that the source of an `INSERT` is one side of a join.
const ONE: &str = "__one";

/// A `MERGE` as it was written, without the words `DEFAULT`.
#[derive(Debug, Clone)]
pub struct MergeStatement {
    /// The table that is written to, and what it is called.
    pub table: TableFactor,
    /// What is merged into it.
    pub source: TableFactor,
    /// Which rows of both belong together.
    pub on: Expr,
    /// In order: the first that fits acts.
    pub clauses: Vec<WhenClause>,
}

/// `WHEN [NOT] MATCHED [AND condition] THEN action`.
#[derive(Debug, Clone)]
pub struct WhenClause {
    /// Whether it is about rows of the source that belong to a row of the table.
    pub is_matched: bool,
    /// Of which of them.
    pub condition: Option<Expr>,
    /// What becomes of them.
    pub action: ClauseAction,
}

/// What a clause does.
#[derive(Debug, Clone)]
pub enum ClauseAction {
    /// `DO NOTHING`.
    Nothing,
    /// `UPDATE SET …`.
    Update(Vec<Assignment>),
    /// `DELETE`.
    Delete,
    /// `INSERT …`, with one row of `VALUES`.
    Insert(Box<Insert>),
}

/// A planned `MERGE`. May be bound and run many times.
#[derive(Debug)]
pub struct Merge {
    /// The table written to.
    pub table: Arc<TableSchema>,
    /// The pairs, behind the place of the clause that acts.
    pub pairs: LogicalPlan,
    /// What each clause does.
    pub clauses: Vec<Clause>,
    /// Of the pairs.
    schema: DFSchemaRef,
    called: String,
}

/// What a planned clause does.
#[derive(Debug)]
pub enum Clause {
    /// Nothing.
    Nothing,
    /// Puts each row, guarded by its `__seqno`.
    Update(Box<LogicalPlan>),
    /// Deletes each row of the table, guarded by its `__seqno`.
    Delete,
    /// Inserts each row; what is asked about its key is the plan's.
    Insert(Box<Dml>),
}

impl Clause {
    /// The plan that it has.
    pub fn plan(&self) -> Option<&LogicalPlan> {
        match self {
            Clause::Nothing | Clause::Delete => None,
            Clause::Update(plan) => Some(plan),
            Clause::Insert(dml) => Some(&dml.source),
        }
    }
}

impl MergeStatement {
    /// The queries that [`Session::merge`] takes the plans of: the rows that belong together, and those of the source
    /// alone, each with the clause that acts on it.
    ///
    /// Errors: `Unsupported` for what is no table, and for an append-only one.
    pub fn queries(&self, table: &TableSchema) -> Result<[Statement; 2]> {
        refuse_append_only("MERGE", table)?;
        let target = with_seqno(&relation_of(&self.table), table)?;
        let joined = Join {
            relation: target.relation,
            global: false,
            join_operator: JoinOperator::LeftOuter(JoinConstraint::On(self.on.clone())),
        };
        let pairs = TableWithJoins { relation: self.source.clone(), joins: vec![joined] };
        let item = |is_matched| vec![SelectItem::UnnamedExpr(self.first_that_fits(is_matched))];
        Ok([rows_of(item(true), pairs, None), rows_of(item(false), relation_of(&self.source), None)])
    }

    /// The place of the clause that acts.
    fn first_that_fits(&self, is_matched: bool) -> Expr {
        let literal = |value: Literal| Expr::Value(value.with_empty_span());
        let number = |place: usize| literal(Literal::Number(place.to_string(), false));
        let none = Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(number(1)) };
        let those = self.clauses.iter().enumerate().filter(|(_, clause)| clause.is_matched == is_matched);
        let conditions = those.map(|(place, clause)| CaseWhen {
            condition: clause.condition.clone().unwrap_or_else(|| literal(Literal::Boolean(true))),
            result: number(place),
        });
        let conditions: Vec<CaseWhen> = conditions.collect();
        match conditions.is_empty() {
            true => none,
            false => Expr::Case {
                case_token: AttachedToken::empty(),
                end_token: AttachedToken::empty(),
                operand: None,
                conditions,
                else_result: Some(Box::new(none)),
            },
        }
    }
}

impl Session {
    /// Plans a `MERGE` into `table`, of the plans of its [queries](MergeStatement::queries).
    ///
    /// Errors: what DataFusion says of its parts; `Unsupported` for a changed key column, and for conditions that are
    /// computed by a plan of their own.
    pub fn merge<'a>(
        &'a self,
        asked: &'a MergeStatement,
        table: &'a Arc<TableSchema>,
        queries: [LogicalPlan; 2],
    ) -> BoxFuture<'a, Result<Merge>> {
        self.planned_merge(asked, table, queries).boxed()
    }

    async fn planned_merge(
        &self,
        asked: &MergeStatement,
        table: &Arc<TableSchema>,
        queries: [LogicalPlan; 2],
    ) -> Result<Merge> {
        let target = relation_of(&asked.table);
        let alone = |name: &str| full_name::bare(name).to_owned();
        let called = relation(&target).map(|(name, alias)| alias.unwrap_or_else(|| alone(&name))).unwrap_or_default();
        let [(matched, joined), (unmatched, _)] = [only_column(&queries[0])?, only_column(&queries[1])?];
        if !unmatched.column_refs().iter().all(|column| joined.schema().has_column(column)) {
            return Err(computed_apart());
        }
        let seqno = PlannedColumn::new(Some(TableReference::bare(called.as_str())), SEQNO_COLUMN);
        let is_pair = Planned::Column(seqno).is_not_null();
        let clause = when(is_pair, matched).otherwise(unmatched)?.alias(CLAUSE);
        let columns = joined.schema().columns().into_iter().map(Planned::Column);
        let columns: Vec<Planned> = std::iter::once(clause).chain(columns).collect();
        let pairs = LogicalPlanBuilder::from(joined).project(columns)?.build()?;
        let mut clauses = Vec::with_capacity(asked.clauses.len());
        for clause in &asked.clauses {
            clauses.push(match &clause.action {
                ClauseAction::Nothing => Clause::Nothing,
                ClauseAction::Delete => Clause::Delete,
                ClauseAction::Update(given) => Clause::Update(Box::new(self.merge_update(asked, given, table).await?)),
                ClauseAction::Insert(insert) => {
                    Clause::Insert(Box::new(self.merge_insert(asked, insert, table).await?))
                }
            });
        }
        let schema = Arc::clone(pairs.schema());
        Ok(Merge { table: Arc::clone(table), pairs, clauses, schema, called })
    }

    async fn merge_update(
        &self,
        asked: &MergeStatement,
        given: &[Assignment],
        table: &TableSchema,
    ) -> Result<LogicalPlan> {
        let mut target = with_seqno(&relation_of(&asked.table), table)?;
        target.joins.push(beside_it(relation_of(&asked.source)));
        let update = Update { table: target, assignments: assignments(given, table, &[])?, ..plain_update() };
        self.dml_input(Statement::Update(update)).await
    }

    /// The rows of a clause that inserts. The planner would read `VALUES` below an `INSERT`, also those of the source,
    /// as rows of the table: so what is given is planned as a query, and put into the table's columns here.
    async fn merge_insert(&self, asked: &MergeStatement, insert: &Insert, table: &Arc<TableSchema>) -> Result<Dml> {
        let kind = DmlKind::Insert { on_key: on_key(insert, table)? };
        let row = match insert.source.as_ref().map(|source| source.body.as_ref()) {
            Some(SetExpr::Values(values)) => values.rows.first().map(|row| row.content.clone()),
            _ => None,
        };
        let row = row.unwrap_or_default();
        let places = places_of(insert, table, row.len())?;
        let named = row.into_iter().enumerate().map(|(place, expr)| SelectItem::ExprWithAlias {
            expr,
            alias: Ident::with_quote('"', format!("c{place}")),
        });
        let mut from = one_row();
        from.joins.push(beside_it(relation_of(&asked.source)));
        let given = self.plan(&rows_of(named.collect(), from, None)).await?;
        let schema = sql_schema(table, false);
        let given = with_types(given, &places.iter().map(|place| schema.fields()[*place].clone()).collect::<Vec<_>>())?;
        let columns = given.schema().columns();
        let mut list = Vec::with_capacity(table.shown().len());
        for (place, column) in table.shown().iter().enumerate() {
            let value = match places.iter().position(|given| *given == place).and_then(|at| columns.get(at)) {
                Some(column) => Planned::Column(column.clone()),
                None => {
                    let default = column.default.as_ref().and_then(|value| to_scalar(value, &column.data_type));
                    lit(default.unwrap_or(ScalarValue::Null))
                }
            };
            list.push(value.cast_to(schema.field(place).data_type(), given.schema())?.alias(&column.name));
        }
        let source = LogicalPlanBuilder::from(given).project(list)?.build()?;
        Ok(Dml {
            table: Arc::clone(table),
            kind,
            source,
            change: None,
            arbiter: Arbiter::Key,
            may_repeat: false,
            locks: None,
            is_whole: false,
            one_row: None,
            of_pairs: None,
        })
    }

    /// What a clause makes of its pairs ([`Merge::of_clause`]): the table's columns, of storage types, and of an
    /// `UPDATE` `__seqno` behind them. In any order.
    ///
    /// Errors: as [`Session::stream`]; of a clause that has no plan there is nothing.
    pub async fn merged(
        &self,
        merge: &Merge,
        clause: &Clause,
        pairs: &RecordBatch,
        parameters: Option<ParamValues>,
    ) -> Result<SendableRecordBatchStream> {
        let Some(plan) = clause.plan() else {
            return Err(DataFusionError::Internal("this clause of MERGE has no rows".to_owned()).into());
        };
        let rows = self.stream(beside(plan.clone(), |wanted| merge.columns(wanted, pairs))?, parameters).await?;
        let table = Arc::clone(&merge.table);
        Ok(match clause {
            Clause::Update(_) => stored_rows(rows, table),
            _ => inserted_rows(rows, table),
        })
    }
}

impl Merge {
    /// The pairs that the clause of this place acts on.
    ///
    /// Errors: they are no pairs of this statement.
    pub fn of_clause(&self, pairs: &RecordBatch, place: usize) -> Result<RecordBatch> {
        let of = cast(pairs.column(0), &ArrowType::Int64).map_err(DataFusionError::from)?;
        let of = of.as_primitive::<Int64Type>().iter();
        let is_its: BooleanArray = of.map(|of| Some(of == i64::try_from(place).ok())).collect();
        Ok(filter_record_batch(pairs, &is_its).map_err(DataFusionError::from)?)
    }

    /// The keys of the table's rows in these pairs, and their `__seqno`, as of a `DELETE`.
    ///
    /// Errors: they are no pairs of this statement.
    pub fn keys(&self, pairs: &RecordBatch) -> Result<RecordBatch> {
        let names = self.table.key_columns().map(|column| column.name.as_str()).chain([SEQNO_COLUMN]);
        let of = TableReference::bare(self.called.as_str());
        let places = names.map(|name| self.schema.index_of_column_by_name(Some(&of), name));
        let places = places.collect::<Option<Vec<usize>>>().ok_or_else(computed_apart)?;
        deleted(&pairs.project(&places).map_err(DataFusionError::from)?, &key_schema(&self.table)?)
    }

    /// The columns that a join of source and table has, out of the pairs.
    fn columns(&self, wanted: &DFSchema, pairs: &RecordBatch) -> Result<Vec<ArrayRef>, DataFusionError> {
        let column = |(of, field): (Option<&TableReference>, &FieldRef)| -> Result<ArrayRef> {
            if of.is_some_and(|of| of.table() == ONE) {
                return Ok(Arc::new(Int64Array::from(vec![0; pairs.num_rows()])));
            }
            let place = self.schema.index_of_column_by_name(of, field.name()).ok_or_else(computed_apart)?;
            Ok(Arc::clone(pairs.column(place)))
        };
        wanted.iter().map(|wanted| column(wanted).map_err(DataFusionError::from)).collect()
    }
}

/// The column that a query is planned to answer, and what it reads.
fn only_column(plan: &LogicalPlan) -> Result<(Planned, LogicalPlan)> {
    match plan {
        LogicalPlan::Projection(list) => match &list.expr[..] {
            [only] => Ok((only.clone().unalias(), list.input.as_ref().clone())),
            _ => Err(computed_apart()),
        },
        _ => Err(computed_apart()),
    }
}

fn computed_apart() -> Error {
    unsupported("MERGE with such conditions".to_owned(), "compute what they ask for in the query behind USING")
}

fn relation_of(factor: &TableFactor) -> TableWithJoins {
    TableWithJoins { relation: factor.clone(), joins: vec![] }
}

/// `(VALUES (0)) AS "__one"`.
fn one_row() -> TableWithJoins {
    let zero = Expr::Value(Literal::Number("0".to_owned(), false).with_empty_span());
    let rows = vec![Parens::with_empty_span(vec![zero])];
    let values = SetExpr::Values(Values { explicit_row: false, value_keyword: false, rows });
    let name = Ident::with_quote('"', ONE);
    let relation = TableFactor::Derived {
        lateral: false,
        subquery: Box::new(query_of(values)),
        alias: Some(TableAlias { explicit: true, name, columns: vec![], at: None }),
        sample: None,
    };
    TableWithJoins { relation, joins: vec![] }
}
