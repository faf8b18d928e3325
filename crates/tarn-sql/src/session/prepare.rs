//! What kind of statement is this, what does it take, what does it give?
//!
//! A [`PreparedStatement`] is planned once and run many times. It remembers what it was made of: when a table
//! was made or dropped since, or an archive's columns changed, it is planned anew, and still answers the columns that
//! it was described with.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use datafusion::common::{Column, ParamValues, ScalarValue, SchemaError, TableReference};
use datafusion::error::DataFusionError;
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::{LogicalPlan, Statement as PlanStatement};
use datafusion::sql::parser::Statement as ParsedStatement;
use datafusion::sql::sqlparser::ast::{self, Expr, Ident, Insert, ObjectName, Query, SetExpr, Statement};
use futures::FutureExt;
use futures::future::BoxFuture;
use tarn_node::attach::AttachRequest;
use tarn_node::auth::Access;
use tarn_node::jobs::Work;
use tarn_query::dml::Dml;
use tarn_query::keyed::{KeyedPlan, table_name};
use tarn_query::merge::Merge;
use tarn_query::parser::row_locks;
use tarn_query::{KeyedPlanner, OnKey, each_expr, each_relation};
use tarn_types::{DataType, Opaque, Style, TableSchema, Value, arrow_field, data_type_of};

use super::Session;
use super::caches::{dropped_schema, warmed_schema};
use super::defaults::written_out;
use super::explain::{self, ExplainStatement};
use super::locking::{LockPlan, answered};
use super::moves;
use super::named::Path;
use super::placeholders::{
    DeclaredType, ParameterTypes, array_type, cast_declared, described, is_assigned_to_text, is_number, item_type,
    meant, parameter_fields, sql_type, typed_by_casts, with_arrays, with_casts,
};
use super::returning::Returning;
use crate::activity::StatementPath;
use crate::alter_sql::Alter;
use crate::cache_sql::{CacheTable, DropCache};
use crate::comment_sql::Comment;
use crate::compat::CatalogUse;
use crate::constraints_sql::SetConstraints;
use crate::cursor_sql::{DeclareCursor, Fetch};
use crate::error::{Result, SqlError, state};
use crate::function_mentions::calls;
use crate::function_sql::FunctionSql;
use crate::like_sql::CreateLike;
use crate::lock_sql::LockRows;
use crate::postgres::assignments::{AssignmentMark, check_parameters, check_query, check_rows, checked, marked};
use crate::schema_sql::SchemaSql;
use crate::sequence_sql::SequenceSql;
use crate::session_functions::FunctionContext;
use crate::shown::{shown, shown_name};
use crate::signals::Signals;
use crate::statement::ParsedSql;
use crate::system_activity::PgTables;
use crate::temporary::{OwnSchema, own_schema};
use crate::type_sql::TypeSql;
use crate::unknown;
use crate::vacuum_sql::Vacuum;
use crate::view_sql::CreateView;

/// Rows of an INSERT that are read where the statement arrived.
const MAX_ROWS_HERE: usize = 1_000;

/// A statement ready to run.
#[derive(Debug)]
pub struct PreparedStatement {
    /// Type of each parameter; `None` where nothing tells it (it is taken as sent).
    pub parameters: Vec<Option<FieldRef>>,
    /// The columns it answers; `None` when it answers no rows.
    pub columns: Option<SchemaRef>,
    pub(super) kind: Opaque<StatementKind>,
    /// The text that it came in, as it may be shown.
    pub(super) text: Arc<str>,
    pub(super) parsed: Opaque<ParsedSql>,
    pub(super) declared: Vec<Option<DeclaredType>>,
    /// The catalog it was planned in ([`Session::generation`]).
    pub(super) generation: (u64, u64),
    /// How values were shown when it was planned: constants of it are computed.
    pub(super) style: Style,
    /// Where names without a schema were looked for.
    pub(super) path: Option<Path>,
}

#[derive(Debug)]
pub(super) enum StatementKind {
    Keyed {
        plan: KeyedPlan,
        table: Arc<TableSchema>,
        /// Parameters that are of another type than the column of the key with which they are compared, and that type.
        exact: Vec<(usize, DataType)>,
    },
    Query {
        plan: Box<LogicalPlan>,
        command: &'static str,
    },
    Dml {
        dml: Box<Dml>,
        command: &'static str,
        returning: Option<Box<Returning>>,
    },
    Merge(Box<Merge>),
    With(Box<WithChanges>),
    /// An UPDATE of keys: the rows that go, and what they are to be.
    Move {
        dml: Box<Dml>,
        rows: Box<LogicalPlan>,
        returning: Option<Box<Returning>>,
    },
    Utility(Box<Statement>),
    /// A COPY that says what becomes of rows whose key is there.
    Copy {
        statement: Box<Statement>,
        on_key: OnKey,
    },
    Admin {
        work: Work,
        table: String,
    },
    Attach(AttachRequest),
    Detach {
        table: String,
        if_exists: bool,
    },
    CacheTable(Box<CacheTable>),
    DropCache(DropCache),
    Access(Box<Access>),
    CreateView(Box<CreateView>),
    Comment(Box<Comment>),
    Sequence(Box<SequenceSql>),
    Type(Box<TypeSql>),
    Function(Box<FunctionSql>),
    Schema(Box<SchemaSql>),
    CreateLike(Box<CreateLike>),
    Alter(Box<Alter>),
    Declare {
        declared: Box<DeclareCursor>,
        /// The table whose rows it locks.
        locked: Option<Arc<TableSchema>>,
        plan: Box<LogicalPlan>,
    },
    Fetch(Fetch),
    Lock(Box<LockPlan>),
    Vacuum(Box<Vacuum>),
    Constraints(Box<SetConstraints>),
    Explain(Box<ExplainStatement>),
}

/// A statement behind a WITH that changes rows, planned (`with_changes.rs`).
#[derive(Debug)]
pub(super) struct WithChanges {
    /// In the order in which they run.
    pub(super) steps: Vec<PreparedPart>,
}

/// One part of it.
#[derive(Debug)]
pub(super) struct PreparedPart {
    /// What others call its rows, and their columns. `None`: nobody reads them.
    pub(super) relation: Option<(String, SchemaRef)>,
    /// Whether it answers.
    pub(super) is_last: bool,
    /// A query, or a change of rows.
    pub(super) kind: StatementKind,
}

/// What a statement is, the types of its parameters, and the columns that it answers.
pub(super) type StatementPlan = (StatementKind, Vec<Option<FieldRef>>, Option<SchemaRef>);

/// Where the types of parameters are from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Types {
    /// What they stand beside.
    Inferred,
    /// What they are cast to.
    Cast,
}

/// One bound parameter.
#[derive(Debug, Clone)]
pub enum Parameter {
    /// A value of a type that columns can have.
    Value(Value, DataType),
    /// A type that tables cannot hold, such as an array.
    Scalar(ScalarValue),
}

impl PreparedStatement {
    /// How it is answered.
    pub(super) fn way(&self) -> StatementPath {
        match &*self.kind {
            StatementKind::Keyed { .. } => StatementPath::Keyed,
            StatementKind::Query { .. } => StatementPath::Query,
            StatementKind::Dml { .. }
            | StatementKind::Merge(_)
            | StatementKind::Move { .. }
            | StatementKind::With(_) => StatementPath::Write,
            StatementKind::Utility(statement) if matches!(**statement, Statement::Copy { .. }) => StatementPath::Copy,
            StatementKind::Copy { .. } => StatementPath::Copy,
            StatementKind::Utility(_)
            | StatementKind::Admin { .. }
            | StatementKind::Attach(_)
            | StatementKind::Detach { .. }
            | StatementKind::CacheTable(_)
            | StatementKind::DropCache(_)
            | StatementKind::Access(_)
            | StatementKind::CreateView(_)
            | StatementKind::Comment(_)
            | StatementKind::Sequence(_)
            | StatementKind::Type(_)
            | StatementKind::Function(_)
            | StatementKind::Schema(_)
            | StatementKind::CreateLike(_)
            | StatementKind::Alter(_)
            | StatementKind::Declare { .. }
            | StatementKind::Fetch(_)
            | StatementKind::Constraints(_)
            | StatementKind::Vacuum(_) => StatementPath::Other,
            StatementKind::Lock(_) | StatementKind::Explain(_) => StatementPath::Query,
        }
    }

    /// What it was made of.
    pub fn parsed(&self) -> &ParsedSql {
        &self.parsed
    }

    /// Whether a client that was told the columns of this one can read the rows of the other.
    pub(super) fn answers_as(&self, other: &PreparedStatement) -> bool {
        match (&self.columns, &other.columns) {
            (Some(told), Some(now)) => {
                told.fields().len() == now.fields().len()
                    && told.fields().iter().zip(now.fields()).all(|(told, now)| is_same_column(told, now))
            }
            (told, now) => told.is_none() && now.is_none(),
        }
    }
}

/// By name and type; a number tells its digits itself.
fn is_same_column(told: &Field, now: &Field) -> bool {
    let is_same_type = match (data_type_of(told), data_type_of(now)) {
        (Ok(DataType::Decimal { .. }), Ok(DataType::Decimal { .. })) => true,
        (Ok(told), Ok(now)) => told == now,
        _ => told.data_type() == now.data_type(),
    };
    is_same_type && told.name() == now.name()
}

impl Parameter {
    /// The value as one of a column that it is compared with; NULL, which is nobody's, if none is equal to it.
    pub(super) fn into_exactly(self, column: &DataType) -> Result<Value> {
        let from = match &self {
            Parameter::Value(_, from) => *from,
            Parameter::Scalar(_) => *column,
        };
        let value = self.into_value()?;
        let exactly = match from {
            DataType::Decimal { scale, .. } => value.rescale(scale, column),
            _ => value.coerce(column),
        };
        Ok(exactly.unwrap_or(Value::Null))
    }

    pub(super) fn into_value(self) -> Result<Value> {
        match self {
            Parameter::Value(value, _) => Ok(value),
            Parameter::Scalar(scalar) => {
                let field = Field::new("", scalar.data_type(), true);
                let data_type = data_type_of(&field).map_err(|_| {
                    let of = scalar.data_type();
                    let message = format!("a parameter of type {of} cannot be compared with or stored in a column");
                    SqlError::new(state::DATATYPE_MISMATCH, message)
                })?;
                Ok(Value::from_arrow(&scalar.to_array()?, 0, &data_type)?)
            }
        }
    }

    fn into_scalar(self, want: Option<&FieldRef>) -> Result<ScalarValue> {
        let scalar = match self {
            Parameter::Value(value, data_type) => ScalarValue::try_from_array(&value.to_array(&data_type, 1)?, 0)?,
            Parameter::Scalar(scalar) => scalar,
        };
        match want {
            Some(field) if *field.data_type() != scalar.data_type() => Ok(scalar.cast_to(field.data_type())?),
            _ => Ok(scalar),
        }
    }
}

/// Parameters for the planner, cast to the types it inferred.
pub(super) fn bind(wanted: &[Option<FieldRef>], given: Vec<Parameter>) -> Result<Option<ParamValues>> {
    if given.len() < wanted.len() {
        return Err(missing_parameters(wanted.len(), given.len()));
    }
    if given.is_empty() {
        return Ok(None);
    }
    let scalars = given.into_iter().enumerate().map(|(idx, p)| p.into_scalar(wanted.get(idx).and_then(Option::as_ref)));
    Ok(Some(ParamValues::from(scalars.collect::<Result<Vec<_>>>()?)))
}

fn missing_parameters(want: usize, got: usize) -> SqlError {
    SqlError::new(state::UNDEFINED_PARAMETER, format!("the statement takes {want} parameters, {got} were given"))
        .with_hint("bind a value to each $n")
}

impl Session {
    /// Prepares one statement. `declared` are the types the client says its parameters have.
    pub fn prepare<'a>(
        &'a self,
        parsed: Opaque<ParsedSql>,
        declared: &'a [Option<DeclaredType>],
    ) -> BoxFuture<'a, Result<Arc<PreparedStatement>>> {
        self.prepare_parsed(parsed, declared, self.path()).boxed()
    }

    /// As [`Session::prepare`], of a statement that stands for a part of another: what it names has a schema before its
    /// name, or is in `public`.
    pub(super) fn prepare_meant(&self, parsed: Opaque<ParsedSql>) -> BoxFuture<'_, Result<Arc<PreparedStatement>>> {
        self.prepare_parsed(parsed, &[], None).boxed()
    }

    async fn prepare_parsed(
        &self,
        parsed: Opaque<ParsedSql>,
        declared: &[Option<DeclaredType>],
        path: Option<Path>,
    ) -> Result<Arc<PreparedStatement>> {
        if !ends_transaction(&parsed) {
            self.transaction.lock().check_usable()?;
        }
        let generation = self.generation();
        self.show_so()?;
        let style = self.style();
        let named = self.in_schemas(&parsed, path.as_ref()).await?;
        let meant = named.as_ref().unwrap_or(&parsed);
        let (kind, parameters, columns) = match meant {
            ParsedSql::Admin { work, table } => {
                (StatementKind::Admin { work: *work, table: table.clone() }, vec![], None)
            }
            ParsedSql::Attach(request) => (StatementKind::Attach((**request).clone()), vec![], None),
            ParsedSql::Detach { table, if_exists } => {
                (StatementKind::Detach { table: table.clone(), if_exists: *if_exists }, vec![], None)
            }
            ParsedSql::CacheTable(asked) => (StatementKind::CacheTable(asked.clone()), vec![], Some(warmed_schema())),
            ParsedSql::DropCache(asked) => (StatementKind::DropCache(asked.clone()), vec![], Some(dropped_schema())),
            ParsedSql::Access(access) => (StatementKind::Access(access.clone()), vec![], None),
            ParsedSql::Copy { statement, on_key } => {
                let own = self.with_own_names(statement)?.map(Box::new);
                let statement = own.unwrap_or_else(|| statement.clone());
                self.check_copy(&statement)?;
                (StatementKind::Copy { statement, on_key: *on_key }, vec![], None)
            }
            ParsedSql::CreateView(view) => (StatementKind::CreateView(view.clone()), vec![], None),
            ParsedSql::Comment(comment) => (StatementKind::Comment(comment.clone()), vec![], None),
            ParsedSql::Sequence(sequence) => (StatementKind::Sequence(sequence.clone()), vec![], None),
            ParsedSql::Type(statement) => (StatementKind::Type(statement.clone()), vec![], None),
            ParsedSql::Function(statement) => (StatementKind::Function(statement.clone()), vec![], None),
            ParsedSql::Schema(statement) => (StatementKind::Schema(statement.clone()), vec![], None),
            ParsedSql::CreateLike(like) => (StatementKind::CreateLike(like.clone()), vec![], None),
            ParsedSql::Alter(alter) => (StatementKind::Alter(alter.clone()), vec![], None),
            ParsedSql::Declare(cursor) => {
                let locked = cursor.lock.as_deref().map(|lock| self.locked_of_cursor(lock)).transpose()?.flatten();
                let (query, locked) = locked.map_or((None, None), |(query, table)| (Some(query), Some(table)));
                let query = query.as_ref().unwrap_or(&cursor.query);
                let plan = self.plan_meant(query, declared).boxed().await?;
                let parameters = described(parameter_fields(&plan)?, query, &plan)?;
                (StatementKind::Declare { declared: cursor.clone(), locked, plan: Box::new(plan) }, parameters, None)
            }
            ParsedSql::Lock(asked) => Box::pin(self.prepare_lock(asked, declared)).await?,
            ParsedSql::Constraints(said) => (StatementKind::Constraints(said.clone()), vec![], None),
            ParsedSql::With(asked) => self.prepare_with(asked, declared).await?,
            ParsedSql::Vacuum(vacuum) => (StatementKind::Vacuum(vacuum.clone()), vec![], None),
            ParsedSql::Fetch(fetch) => {
                let columns = self.cursors.facts(&fetch.cursor)?.schema;
                (StatementKind::Fetch(fetch.clone()), vec![], (!fetch.is_move).then_some(columns))
            }
            ParsedSql::Sql(statement) => self.prepare_sql(statement, declared).await?,
        };
        let (kind, text, declared) = (Opaque::new(kind), self.backend.text(), declared.to_vec());
        Ok(Arc::new(PreparedStatement { parameters, columns, kind, text, parsed, declared, generation, style, path }))
    }

    async fn prepare_lock(&self, asked: &LockRows, declared: &[Option<DeclaredType>]) -> Result<StatementPlan> {
        let Some((statement, table)) = self.locked(asked)? else {
            return self.prepare_sql(&Statement::Query(asked.query.clone()), declared).await;
        };
        let plan = self.plan_meant(&statement, declared).await?;
        let parameters = described(parameter_fields(&plan)?, &statement, &plan)?;
        let columns = answered(&plan, &table);
        let lock = LockPlan { table, plan, columns: SchemaRef::clone(&columns) };
        Ok((StatementKind::Lock(Box::new(lock)), parameters, Some(columns)))
    }

    async fn prepare_sql(&self, statement: &Statement, declared: &[Option<DeclaredType>]) -> Result<StatementPlan> {
        let at_cursor = self.at_cursor(statement)?;
        let statement = at_cursor.as_ref().unwrap_or(statement);
        if let Some(own) = self.with_own_names(statement)? {
            return Box::pin(self.prepare_named_sql(&own, declared)).await;
        }
        self.prepare_named_sql(statement, declared).await
    }

    /// As [`Session::prepare_sql`], of a statement that names what it writes without a schema.
    async fn prepare_named_sql(
        &self,
        statement: &Statement,
        declared: &[Option<DeclaredType>],
    ) -> Result<StatementPlan> {
        let name = table_name(statement).filter(|name| !self.names_hidden(statement, name));
        if let Some(table) = name.and_then(|name| self.written_here(&name)) {
            let table = table.schema();
            check_parameters(statement, table, |name| is_told(name, declared))?;
            if let Some(plan) = self.keyed_plan(statement, table).await? {
                let places = plan.parameter_columns(table);
                let mut parameters: Vec<_> = places.iter().map(|at| at.map(|at| field_of(table, at))).collect();
                let compared = plan.key_parameters();
                let (mut exact, mut is_keyed) = (vec![], true);
                for (place, of) in meant(statement, &parameters, declared).into_iter().enumerate() {
                    let column = places.get(place).copied().flatten();
                    match (of, compared.get(&place), column) {
                        // Assigned to a text, which the planner knows.
                        (Some(DeclaredType::Value(of)), _, Some(column))
                            if is_assigned_to_text(table.columns[column].data_type, of) =>
                        {
                            is_keyed = false;
                        }
                        // It is compared as what it is: a key that it is not exactly there is not.
                        (Some(DeclaredType::Value(of)), Some(true), Some(column)) if is_number(of) => {
                            parameters[place] = Some(Arc::new(arrow_field("", &of, true)));
                            exact.push((place, table.columns[column].data_type));
                        }
                        (Some(_), Some(_), _) => is_keyed = false,
                        _ => {}
                    }
                }
                if is_keyed {
                    let columns = keyed_columns(&plan, table);
                    return Ok((StatementKind::Keyed { plan, table: Arc::clone(table), exact }, parameters, columns));
                }
            }
        }
        Box::pin(self.prepare_planned(statement, declared)).await
    }

    /// As [`Session::prepare_sql`], of a part of a statement: a query or a change of rows, whichever rows it is about.
    pub(super) async fn prepare_part(
        &self,
        statement: &Statement,
        declared: &[Option<DeclaredType>],
    ) -> Result<StatementPlan> {
        let own = self.with_own_names(statement)?;
        Box::pin(self.prepare_planned(own.as_ref().unwrap_or(statement), declared)).await
    }

    /// What is not about keys.
    async fn prepare_planned(&self, statement: &Statement, declared: &[Option<DeclaredType>]) -> Result<StatementPlan> {
        let planned = self.prepare_written(statement, statement, declared, Types::Inferred).await;
        let meant = match &planned {
            Ok((_, parameters, _)) => meant(statement, parameters, declared),
            // What the planner does not find out the client may have said.
            Err(_) => declared.to_vec(),
        };
        let Some(typed) = with_casts(statement, &meant) else { return planned };
        let typed = Box::pin(self.prepare_written(&typed, statement, declared, Types::Cast)).await;
        if typed.is_ok() { typed } else { planned }
    }

    /// `asked` is the statement without the casts of its parameters.
    async fn prepare_written(
        &self,
        statement: &Statement,
        asked: &Statement,
        declared: &[Option<DeclaredType>],
        types: Types,
    ) -> Result<StatementPlan> {
        let with_columns = self.with_row_types(statement)?;
        let statement = with_columns.as_ref().unwrap_or(statement);
        let with_fields = self.with_row_stars(statement, declared).await?;
        let statement = with_fields.as_ref().unwrap_or(statement);
        match statement {
            Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_) => {
                let name = write_target(statement)?;
                self.check_no_view(statement, &name)?;
                let table = self.table(&name).map_err(|error| error.with_place(unknown::table(statement, &name)))?;
                self.check_volatile(statement, table.schema())?;
                check_parameters(statement, table.schema(), |name| is_told(name, declared))?;
                let written = written_out(statement, table.schema())?;
                let marked = marked(&written, table.schema(), AssignmentMark::Typed);
                let returning = match super::returning::asked(statement, &name)? {
                    Some(asked) => Some(Box::new(self.returned(&asked).await?)),
                    None => None,
                };
                let columns = returning.as_ref().map(|returning| returning.schema());
                if let Statement::Update(update) = marked.as_ref().unwrap_or(&written)
                    && let Some(asked) = moves::asked(update, table.schema())?
                {
                    let moves = self.prepare_move(&asked, statement, table.schema(), declared).boxed();
                    let (dml, rows) = moves.await?;
                    let parameters = of_both(parameter_fields(&dml.source)?, parameter_fields(&rows)?);
                    let parameters = described(parameters, statement, &dml.source)?;
                    let (dml, rows) = (Box::new(dml), Box::new(rows));
                    return Ok((StatementKind::Move { dml, rows, returning }, parameters, columns));
                }
                self.enable_for_views(statement)?;
                let planned = self.query.dml(marked.as_ref().unwrap_or(&written), table.schema()).await;
                let mut dml = match planned {
                    Ok(dml) => dml,
                    Err(error) => {
                        let misfit = self.not_taken(&written, table.schema()).await;
                        let misfit = misfit.or_else(|| super::literals::misfit(statement, table.schema()));
                        return Err(misfit.unwrap_or_else(|| self.explain_error(statement, error)));
                    }
                };
                dml.source = with_arrays(dml.source)?;
                if types == Types::Cast {
                    dml.source = typed_by_casts(dml.source)?;
                    dml.change = dml.change.map(typed_by_casts).transpose()?;
                }
                if marked.is_some() {
                    dml = without_marks(dml)?;
                }
                if inserted_query(statement).is_some() {
                    check_rows(&dml.source, table.schema())?;
                }
                let mut dml = self.with_defaults(dml, statement).await?.of_one_row(asked, &self.style());
                dml.locks = row_locks(asked);
                let command = match statement {
                    Statement::Insert(_) => "INSERT",
                    Statement::Update(_) => "UPDATE",
                    _ => "DELETE",
                };
                let mut parameters = parameter_fields(&dml.source)?;
                if let Some(change) = &dml.change {
                    parameters = of_both(parameters, parameter_fields(change)?);
                }
                let parameters = described(parameters, statement, &dml.source)?;
                Ok((StatementKind::Dml { dml: Box::new(dml), command, returning }, parameters, columns))
            }
            Statement::Merge(merge) => self.prepare_merge(statement, merge, declared).await,
            Statement::Explain { format: Some(_), statement: query, analyze, verbose, options, .. } => {
                let plan = self.plan_typed(query, declared, types).await?;
                let parameters = described(parameter_fields(&plan)?, query, &plan)?;
                let shown = explain::shown(options.as_deref().unwrap_or_default(), *verbose);
                let explained = ExplainStatement { plan, analyze: *analyze, shown };
                Ok((StatementKind::Explain(Box::new(explained)), parameters, Some(explain::columns())))
            }
            Statement::Query(_) | Statement::Explain { .. } => {
                let plan = self.plan_typed(statement, declared, types).await?;
                let command = if matches!(statement, Statement::Query(_)) { "SELECT" } else { "EXPLAIN" };
                let columns = shown(&Arc::new(plan.schema().as_arrow().clone()));
                let parameters = described(parameter_fields(&plan)?, statement, &plan)?;
                Ok((StatementKind::Query { plan: Box::new(plan), command }, parameters, Some(columns)))
            }
            other => {
                self.check_copy(other)?;
                let columns = self.utility_columns(other)?;
                Ok((StatementKind::Utility(Box::new(other.clone())), vec![], columns))
            }
        }
    }

    /// Why a change of rows could not be planned, if it is for a value that its column does not take.
    async fn not_taken(&self, written: &Statement, table: &Arc<TableSchema>) -> Option<SqlError> {
        if let Some((insert, query)) = inserted_query(written) {
            let query = self.query.plan(&Statement::Query(Box::new(query.clone()))).await.ok()?;
            return check_query(&query, insert, table).err();
        }
        let marked = marked(written, table, AssignmentMark::Untyped)?;
        without_marks(self.query.dml(&marked, table).await.ok()?).err()
    }

    /// The plan of a statement about keys. Rows by the thousands are read on the threads of queries.
    async fn keyed_plan(&self, statement: &Statement, table: &Arc<TableSchema>) -> Result<Option<KeyedPlan>> {
        let n_rows = match statement {
            Statement::Insert(insert) => match insert.source.as_ref().map(|source| source.body.as_ref()) {
                Some(SetExpr::Values(values)) => values.rows.len(),
                _ => 0,
            },
            _ => 0,
        };
        if n_rows <= MAX_ROWS_HERE {
            return Ok(KeyedPlanner::analyse_in(statement, table, &self.style()));
        }
        let (statement, table, style) = (statement.clone(), Arc::clone(table), self.style());
        let analysing = self.query.compute(async move { Ok(KeyedPlanner::analyse_in(&statement, &table, &style)) });
        Ok(Box::pin(analysing).await?)
    }

    /// As [`Session::plan`], with parameters of the types that they have in PostgreSQL ([`meant`]).
    async fn plan_meant(&self, statement: &Statement, declared: &[Option<DeclaredType>]) -> Result<LogicalPlan> {
        let planned = self.plan(statement, declared).await;
        let meant = match &planned {
            Ok(plan) => meant(statement, &parameter_fields(plan)?, declared),
            Err(_) => declared.to_vec(),
        };
        let Some(typed) = with_casts(statement, &meant) else { return planned };
        let typed = self.plan_typed(&typed, declared, Types::Cast).await;
        if typed.is_ok() { typed } else { planned }
    }

    /// The logical plan of a query. Parameters that the statement does not type take the declared type.
    pub(super) async fn plan(&self, statement: &Statement, declared: &[Option<DeclaredType>]) -> Result<LogicalPlan> {
        self.plan_typed(statement, declared, Types::Inferred).await
    }

    async fn plan_typed(
        &self,
        statement: &Statement,
        declared: &[Option<DeclaredType>],
        types: Types,
    ) -> Result<LogicalPlan> {
        self.enable_pg_catalog(statement)?;
        self.enable_for_views(statement)?;
        self.enable_for_functions(statement)?;
        let plan = self.query.plan(statement).await.map_err(|error| self.explain_error(statement, error))?;
        let mut parameters = parameter_fields(&plan)?;
        if parameters.iter().all(Option::is_some) {
            return Ok(plan);
        }
        let mut plan = with_arrays(plan)?;
        if types == Types::Cast {
            plan = typed_by_casts(plan)?;
        }
        parameters = parameter_fields(&plan)?;
        if parameters.iter().all(Option::is_some) {
            return Ok(plan);
        }
        let told = ParameterTypes::of(statement).beside(&plan)?;
        let data_types = parameters.iter().enumerate().map(|(idx, field)| {
            let inferred = field.as_ref().and_then(|f| data_type_of(f).ok());
            let array = told.array_items.get(&idx).copied().or_else(|| field.as_ref().and_then(|f| item_type(f)));
            match (inferred, array, declared.get(idx).copied().flatten()) {
                (Some(inferred), ..) => sql_type(Some(inferred)),
                (None, Some(item), _) | (None, None, Some(DeclaredType::Array(item))) => array_type(item),
                (None, None, Some(DeclaredType::Value(declared))) => sql_type(Some(declared)),
                (None, None, None) => sql_type(told.types.get(&idx).copied()),
            }
        });
        let data_types = data_types.collect();
        let mut statement = statement.clone();
        // Those that nothing else says the type of.
        cast_declared(&mut statement, |idx| {
            let is_told = told.types.contains_key(&idx) || parameters.get(idx).is_none_or(Option::is_some);
            match declared.get(idx).copied().flatten() {
                Some(DeclaredType::Value(declared)) if !is_told => Some(declared),
                _ => None,
            }
        });
        let typed = Statement::Prepare { name: Ident::new("typed"), data_types, statement: Box::new(statement) };
        match self.query.plan_unchecked(typed).await? {
            LogicalPlan::Statement(PlanStatement::Prepare(prepare)) => Ok(Arc::unwrap_or_clone(prepare.input)),
            other => Ok(other),
        }
    }

    /// The Postgres catalog is big: it is registered when a session first asks for it.
    pub(super) fn enable_pg_catalog(&self, statement: &Statement) -> Result<()> {
        match CatalogUse::of(statement).is_named {
            true => self.register_pg_catalog(),
            false => Ok(()),
        }
    }

    /// What a view says is seen when it is planned: that is too late.
    ///
    /// Errors: as of [`Transaction::check_there`](crate::transaction::Transaction::check_there).
    pub(super) fn enable_for_views(&self, statement: &Statement) -> Result<()> {
        let view = |name: &ObjectName| self.view_of(&crate::names::table_name(name).ok()?);
        let mut views = vec![];
        let _ = each_relation(statement, |name| {
            views.extend(view(name));
            ControlFlow::<()>::Continue(())
        });
        if views.is_empty() {
            return Ok(());
        }
        let transaction = self.transaction.lock();
        views.iter().try_for_each(|view| transaction.check_there(&view.name))?;
        drop(transaction);
        self.register_pg_catalog()
    }

    /// Functions that users wrote may read the catalog.
    pub(super) fn enable_for_functions(&self, statement: &Statement) -> Result<()> {
        if *self.has_pg_catalog.lock() {
            return Ok(());
        }
        let functions = self.node.functions().all();
        match functions.iter().any(|function| calls(statement, &function.name)) {
            true => self.register_pg_catalog(),
            false => Ok(()),
        }
    }

    pub(super) fn register_pg_catalog(&self) -> Result<()> {
        let mut has_catalog = self.has_pg_catalog.lock();
        if *has_catalog {
            return Ok(());
        }
        let context = self.query.context();
        let signals = Signals {
            node: Arc::clone(&self.node),
            activity: Arc::clone(self.sql.activity()),
            who: Arc::clone(&self.principal),
        };
        let Signals { node, activity, who } = signals.clone();
        let ours = PgTables {
            node,
            activity,
            who,
            cursors: self.cursors.clone(),
            vars: Arc::clone(&self.vars),
            temporary: Arc::clone(&self.temporary),
        };
        let own = OwnSchema { name: own_schema(self.backend.pid()), temporary: Arc::clone(&self.temporary) };
        crate::pg_catalog::register(context, &self.var("session_authorization")?, self.node.users(), ours, &own)?;
        crate::privileges::functions(&self.node, &self.principal()).for_each(|function| context.register_udf(function));
        signals.functions(self.backend.pid()).into_iter().for_each(|function| context.register_udf(function));
        let (locks, mail) = (Arc::clone(&self.locks), Arc::clone(&self.mail));
        let own = FunctionContext { settable: self.settable.clone(), locks, mail, node: Arc::clone(&self.node) };
        own.functions().into_iter().for_each(|function| context.register_udf(function));
        *has_catalog = true;
        Ok(())
    }

    /// Errors: `55000` for a view, which is not written to.
    fn check_no_view(&self, statement: &Statement, name: &str) -> Result<()> {
        let Some(view) = self.view_of(name) else { return Ok(()) };
        let what = match statement {
            Statement::Insert(_) => "insert into",
            Statement::Update(_) => "update",
            _ => "delete from",
        };
        let message = format!("cannot {what} view \"{}\"", view.name);
        Err(SqlError::new(state::NOT_IN_PREREQUISITE_STATE, message)
            .with_detail("views are not updatable")
            .with_hint("write to the table that it reads"))
    }

    /// Gives a planner's error the SQLSTATE of what is missing, a table or a function, and the place of that, or of a
    /// column.
    pub(super) fn explain_error(&self, statement: &Statement, error: tarn_query::Error) -> SqlError {
        let column = missing_column(&error)
            .and_then(|column| unknown::column(statement, column.relation.as_ref().map(|of| of.table()), &column.name));
        let error = SqlError::from(error);
        if error.state() != state::SYNTAX_OR_ACCESS {
            return error.with_place(column);
        }
        if let Some(missing) = self.missing_table(statement) {
            return SqlError::undefined_table(&missing.to_string())
                .with_place(unknown::table(statement, missing.table()));
        }
        match self.missing_function(statement) {
            Some(name) => SqlError::new(state::UNDEFINED_FUNCTION, error.message())
                .with_detail(format!("function {name} is not known"))
                .with_place(unknown::function(statement, &name)),
            None => error,
        }
    }

    fn missing_table(&self, statement: &Statement) -> Option<TableReference> {
        let context = self.query.context();
        let parsed = ParsedStatement::Statement(Box::new(statement.clone()));
        let references = context.state().resolve_table_references(&parsed).ok()?;
        let functions = context.state();
        let is_missing = |reference: &TableReference| {
            !functions.table_functions().contains_key(reference.table()) && !table_exists(context, reference)
        };
        references.into_iter().find(is_missing)
    }

    fn missing_function(&self, statement: &Statement) -> Option<String> {
        let state = self.query.context().state();
        let known = |name: &str| {
            state.udf(name).is_ok()
                || state.udaf(name).is_ok()
                || state.udwf(name).is_ok()
                || state.table_functions().contains_key(name)
        };
        let found = each_expr(statement, |expr| match expr {
            Expr::Function(function) => {
                let name =
                    function.name.0.last().and_then(|part| part.as_ident()).map(|ident| ident.value.to_lowercase());
                match name {
                    Some(name) if !known(&name) => ControlFlow::Break(name),
                    _ => ControlFlow::Continue(()),
                }
            }
            _ => ControlFlow::Continue(()),
        });
        match found {
            ControlFlow::Break(name) => Some(name),
            ControlFlow::Continue(()) => None,
        }
    }
}

/// An INSERT whose rows a query gives, and the query.
fn inserted_query(statement: &Statement) -> Option<(&Insert, &Query)> {
    let Statement::Insert(insert) = statement else { return None };
    let query = insert.source.as_deref()?;
    (!matches!(query.body.as_ref(), SetExpr::Values(_))).then_some((insert, query))
}

/// Errors: `42804` for a value that its column does not take.
fn without_marks(mut dml: Dml) -> Result<Dml> {
    dml.source = checked(dml.source, &dml.table)?;
    dml.change = dml.change.map(|change| checked(change, &dml.table)).transpose()?;
    Ok(dml)
}

/// Whether the client said of which type a parameter is.
fn is_told(parameter: &str, declared: &[Option<DeclaredType>]) -> bool {
    let number = parameter.strip_prefix('$').and_then(|number| number.parse::<usize>().ok());
    number.and_then(|number| declared.get(number.checked_sub(1)?)).is_some_and(Option::is_some)
}

/// The parameters of two plans of one statement: each of the type that the first which has it tells.
pub(super) fn of_both(mut first: Vec<Option<FieldRef>>, second: Vec<Option<FieldRef>>) -> Vec<Option<FieldRef>> {
    first.resize(first.len().max(second.len()), None);
    for (of_both, of_second) in first.iter_mut().zip(second) {
        *of_both = of_both.take().or(of_second);
    }
    first
}

/// The column that a query asks for and that is not there, or is in several tables.
fn missing_column(error: &tarn_query::Error) -> Option<Column> {
    let tarn_query::Error::Sql { source } = error else { return None };
    let DataFusionError::SchemaError(error, _) = source.find_root() else { return None };
    match error.as_ref() {
        SchemaError::FieldNotFound { field, .. } => Some(field.as_ref().clone()),
        SchemaError::AmbiguousReference { field } => Some(field.as_ref().clone()),
        _ => None,
    }
}

fn table_exists(context: &datafusion::prelude::SessionContext, reference: &TableReference) -> bool {
    let state = context.state();
    state.schema_for_ref(reference.clone()).is_ok_and(|schema| schema.table_exist(reference.table()))
}

fn ends_transaction(parsed: &ParsedSql) -> bool {
    let ParsedSql::Sql(statement) = parsed else { return false };
    matches!(statement.as_ref(), Statement::Rollback { .. } | Statement::Commit { .. })
}

/// The table a statement writes, or why it cannot.
pub(super) fn write_target(statement: &Statement) -> Result<String> {
    let named = match statement {
        Statement::Insert(insert) => match &insert.table {
            ast::TableObject::TableName(name) => Some(crate::names::table_name(name)?),
            _ => None,
        },
        _ => table_name(statement),
    };
    named.ok_or_else(|| {
        SqlError::unsupported(
            "this statement does not name one table of schema public to write to",
            "write to one table, by its name",
        )
    })
}

/// That of a parameter for a column.
fn field_of(table: &TableSchema, column_idx: usize) -> FieldRef {
    Arc::new(table.field(column_idx).with_name("").with_nullable(true))
}

fn keyed_columns(plan: &KeyedPlan, table: &TableSchema) -> Option<SchemaRef> {
    let KeyedPlan::Select { columns, .. } = plan else { return None };
    let fields = columns.iter().map(|column| table.field(column.column_idx).with_name(shown_name(&column.name)));
    Some(Arc::new(Schema::new(fields.collect::<Vec<Field>>())))
}
