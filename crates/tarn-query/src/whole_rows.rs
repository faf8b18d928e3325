//! What is `row_to_json(t)`, `count(t.*)` or `SELECT t FROM trips t`? The row of `t` as one value, whose fields are its
//! columns.
//!
//! ```text
//! SELECT row_to_json(t) FROM trips t       SELECT row_to_json(tarn_whole_row(t.id, t.city, 'id', 'city')) FROM trips t
//! ```
//!
//! A name is a column first, wherever one of that name is, and a row only then: so rows are looked for when the planner
//! knew no such column. Which columns a row has, the FROM is asked that it stands in: it is planned alone, with the
//! WITHs around it. Selects are looked at from the inside out.
//!
//! A row on the side of an outer join that may have none is NULL where it has none, which is told by a column of it
//! that is never NULL otherwise.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::{ArrayRef, StructArray};
use arrow::datatypes::{DataType as ArrowType, Field, FieldRef, Fields};
use datafusion::common::exec_err;
use datafusion::error::Result as PlanResult;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{
    ColumnarValue, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, Cte, DataType as SqlType, Expr, Ident, JoinConstraint, JoinOperator, ObjectName, Query,
    Select, SelectItem, SetExpr, Statement, TableAlias, TableFactor, TableWithJoins, Value as SqlValue, Visitor,
    VisitorMut, With,
};

use crate::meaning::ViewTexts;
use crate::parser::{call, fold, statements};
use crate::walk::{each_expr, walk, walk_mut};
use crate::{Error, Result, named_casts};

/// The name of the function that makes a row of values.
pub(crate) const WHOLE_ROW: &str = "tarn_whole_row";

/// Stands for all columns, behind the name of a table: no column is called so that has not this name itself.
pub const ALL: &str = "*";

/// What the number of a row is called that a front end adds to a query to keep its order: it is no column of the row.
pub const PLACE: &str = "?place?";

/// Selects of a statement that are looked at.
const MAX_SELECTS: usize = 200;

/// The plan of a statement, in which names of tables may stand for their rows.
pub(crate) async fn planned(state: &SessionState, texts: ViewTexts, statement: Statement) -> Result<LogicalPlan> {
    if !names_tables(&statement) {
        return plan(state, statement).await;
    }
    match plan(state, statement.clone()).await {
        Ok(planned) => Ok(planned),
        // What is wrong about it may be another thing: it is told as it was, then.
        Err(error) => match written_out(state, texts, statement).await? {
            Some(statement) => plan(state, statement).await,
            None => Err(error),
        },
    }
}

async fn plan(state: &SessionState, statement: Statement) -> Result<LogicalPlan> {
    Ok(named_casts::planned(state, statement).await?)
}

/// Whether something in it has a name that a table has, too.
fn names_tables(statement: &Statement) -> bool {
    let mut found = Found::default();
    let _ = walk(statement, &mut found);
    found.is_whole || !found.names.is_disjoint(&found.tables)
}

/// The names of tables, and those that stand alone for a value.
#[derive(Default)]
struct Found {
    tables: HashSet<String>,
    names: HashSet<String>,
    /// `t.*` as a value.
    is_whole: bool,
}

impl Visitor for Found {
    type Break = ();

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        select.from.iter().for_each(|from| each_table(from, &mut |name, _, _| _ = self.tables.insert(name)));
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(name) => _ = self.names.insert(fold(name)),
            expr => self.is_whole |= whole(expr).is_some(),
        }
        ControlFlow::Continue(())
    }
}

/// The table of a `t.*` that is a value.
fn whole(expr: &Expr) -> Option<&Ident> {
    match expr {
        Expr::CompoundIdentifier(parts) => match &parts[..] {
            [.., table, all] if all.value == ALL && all.quote_style.is_some() => Some(table),
            _ => None,
        },
        _ => None,
    }
}

/// Shows each table of a FROM: what it is called, itself, and whether it is on a side that may have no row.
pub(crate) fn each_table<'a>(from: &'a TableWithJoins, see: &mut impl FnMut(String, &'a TableFactor, bool)) {
    within(from, false, see);
}

fn within<'a>(from: &'a TableWithJoins, is_open: bool, see: &mut impl FnMut(String, &'a TableFactor, bool)) {
    // A join further on may leave out rows of all that are before it.
    let opens_left = |join: &JoinOperator| {
        matches!(join, JoinOperator::Right(_) | JoinOperator::RightOuter(_) | JoinOperator::FullOuter(_))
    };
    let opens_right = |join: &JoinOperator| {
        matches!(join, JoinOperator::Left(_) | JoinOperator::LeftOuter(_) | JoinOperator::FullOuter(_))
    };
    let behind = |at: usize| from.joins[at..].iter().any(|join| opens_left(&join.join_operator));
    one(&from.relation, is_open || behind(0), see);
    for (at, join) in from.joins.iter().enumerate() {
        one(&join.relation, is_open || opens_right(&join.join_operator) || behind(at + 1), see);
    }
}

fn one<'a>(factor: &'a TableFactor, is_open: bool, see: &mut impl FnMut(String, &'a TableFactor, bool)) {
    if let TableFactor::NestedJoin { table_with_joins, alias: None } = factor {
        return within(table_with_joins, is_open, see);
    }
    if let Some(name) = name_in_from(factor) {
        see(name, factor, is_open);
    }
}

/// What something in FROM is called in its query: the alias, or the name of the table without its schema.
pub fn name_in_from(factor: &TableFactor) -> Option<String> {
    let (alias, own) = match factor {
        TableFactor::Table { name, alias, .. } => (alias, name.0.last().and_then(|part| part.as_ident())),
        TableFactor::Derived { alias, .. }
        | TableFactor::Function { alias, .. }
        | TableFactor::UNNEST { alias, .. }
        | TableFactor::NestedJoin { alias, .. } => (alias, None),
        _ => return None,
    };
    alias.as_ref().map(|alias| &alias.name).or(own).map(fold)
}

/// The statement with rows in the places of their tables' names. `None`: there are none.
///
/// Errors: a row that may be NULL and has no column that tells; one beside what is shown otherwise than it is kept.
async fn written_out(state: &SessionState, texts: ViewTexts, mut statement: Statement) -> Result<Option<Statement>> {
    let (mut looked_at, mut has_rows) = (0, false);
    // Each select once, and those inside before it: what is around one is planned with all that is in it.
    while looked_at < MAX_SELECTS {
        let mut next = Next { wanted: looked_at, n_seen: 0, withs: vec![], found: None };
        let _ = walk(&statement, &mut next);
        let Some(From { asked, tables }) = next.found else { break };
        if let Some(asked) = asked
            && let Some(rows) = rows_of(state, texts, &asked, tables).await?
        {
            let mut written = Written { wanted: looked_at, n_seen: 0, rows, has_written: false };
            if let ControlFlow::Break(error) = walk_mut(&mut statement, &mut written) {
                return Err(error);
            }
            has_rows |= written.has_written;
        }
        looked_at += 1;
    }
    if has_rows && names_catalog(&statement) {
        let what = "a row as a value beside names of the catalog".to_owned();
        return Err(Error::Unsupported { what, remedy: "name its columns in json_build_object" });
    }
    Ok(has_rows.then_some(statement))
}

/// Types whose values are numbers of what the catalog lists, and shown as its names. `regclass` has a place of its own
/// in the tree.
const SHOWN_BY_NAME: [&str; 10] = [
    "regcollation",
    "regconfig",
    "regdictionary",
    "regnamespace",
    "regoper",
    "regoperator",
    "regproc",
    "regprocedure",
    "regrole",
    "regtype",
];

/// Whether something is cast to a type that is shown otherwise than it is kept.
fn names_catalog(statement: &Statement) -> bool {
    let is_shown = |name: &ObjectName| {
        let last = name.0.last().and_then(|part| part.as_ident()).map(fold);
        last.is_some_and(|name| SHOWN_BY_NAME.contains(&name.as_str()))
    };
    let is_of_catalog = |expr: &Expr| match expr {
        Expr::Cast { data_type: SqlType::Regclass, .. } => ControlFlow::Break(()),
        Expr::Cast { data_type: SqlType::Custom(name, _), .. } if is_shown(name) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    each_expr(statement, is_of_catalog).is_break()
}

/// A FROM that may have rows which are named.
struct From {
    /// A query of all its columns. `None`: none of its tables' names stands in its select.
    asked: Option<Asked>,
    tables: Vec<Table>,
}

struct Asked {
    all: Statement,
    /// A query of all columns of one table, for those that may be NULL.
    each: Vec<Option<Statement>>,
    /// A query of all columns of one table by their own names, for those whose alias names columns: its row has the
    /// fields of the table.
    own: Vec<Option<Statement>>,
}

struct Table {
    name: String,
    is_open: bool,
    is_unnamed: bool,
}

/// Finds the select of a number, which are counted as they end.
struct Next {
    wanted: usize,
    n_seen: usize,
    /// Those around, the outermost first.
    withs: Vec<Option<With>>,
    found: Option<From>,
}

impl Visitor for Next {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.withs.push(query.with.clone());
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.withs.pop();
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        self.n_seen += 1;
        if self.n_seen <= self.wanted {
            return ControlFlow::Continue(());
        }
        let mut found = Found::default();
        let _ = walk(select, &mut found);
        let (mut tables, mut each, mut own) = (vec![], vec![], vec![]);
        for from in &select.from {
            each_table(from, &mut |name, factor, is_open| {
                let relation = TableWithJoins { relation: factor.clone(), joins: vec![] };
                each.push(is_open.then(|| self.asking(vec![relation])).flatten());
                own.push(self.by_own_names(factor));
                let is_unnamed = self.is_unnamed(factor);
                tables.push(Table { name, is_open, is_unnamed });
            });
        }
        let is_named = found.is_whole || tables.iter().any(|table| found.names.contains(&table.name));
        let all = is_named.then(|| self.asking(select.from.clone())).flatten();
        self.found = Some(From { asked: all.map(|all| Asked { all, each, own }), tables });
        ControlFlow::Break(())
    }
}

impl Next {
    /// As [`has_unnamed`], of a subquery or what a WITH names.
    fn is_unnamed(&self, factor: &TableFactor) -> bool {
        match factor {
            TableFactor::Derived { subquery, alias, .. } => has_unnamed(subquery, alias.as_ref()),
            TableFactor::Table { name, alias, .. } => {
                let is_renamed = alias.as_ref().is_some_and(|alias| !alias.columns.is_empty());
                !is_renamed && self.with(name).is_some_and(|cte| has_unnamed(&cte.query, Some(&cte.alias)))
            }
            _ => false,
        }
    }

    /// The query of a WITH that a name in FROM means, the nearest of those around.
    fn with(&self, name: &ObjectName) -> Option<&Cte> {
        let [name] = name.0.as_slice() else { return None };
        let name = fold(name.as_ident()?);
        let mut ctes = self.withs.iter().rev().flatten().flat_map(|with| &with.cte_tables);
        ctes.find(|cte| fold(&cte.alias.name) == name)
    }

    /// `SELECT *` from a table or view without the names that its alias gives to columns. `None`: it gives none, or
    /// this is no table, whose row has those names.
    fn by_own_names(&self, factor: &TableFactor) -> Option<Statement> {
        let mut relation = factor.clone();
        let TableFactor::Table { name, alias: Some(alias), args: None, .. } = &mut relation else { return None };
        if alias.columns.is_empty() || self.with(name).is_some() {
            return None;
        }
        alias.columns.clear();
        self.asking(vec![TableWithJoins { relation, joins: vec![] }])
    }

    /// `SELECT *` from something, with the WITHs around.
    fn asking(&self, from: Vec<TableWithJoins>) -> Option<Statement> {
        let Statement::Query(mut query) = statements("SELECT *").ok()?.pop()? else { return None };
        let SetExpr::Select(select) = query.body.as_mut() else { return None };
        select.from = from;
        // Conditions change no column, and may name rows themselves.
        select.from.iter_mut().for_each(without_conditions);
        for with in self.withs.iter().flatten() {
            let known = query.with.get_or_insert_with(|| With { cte_tables: vec![], ..with.clone() });
            known.recursive |= with.recursive;
            // What is nearer hides what is called like it.
            known
                .cte_tables
                .retain(|cte| with.cte_tables.iter().all(|near| fold(&near.alias.name) != fold(&cte.alias.name)));
            known.cte_tables.extend(with.cte_tables.iter().cloned());
        }
        Some(Statement::Query(query))
    }
}

fn without_conditions(from: &mut TableWithJoins) {
    let relations = std::iter::once(&mut from.relation).chain(from.joins.iter_mut().map(|join| {
        use JoinOperator::{FullOuter, Inner, Join, Left, LeftOuter, Right, RightOuter};
        if let Join(on) | Inner(on) | Left(on) | LeftOuter(on) | Right(on) | RightOuter(on) | FullOuter(on) =
            &mut join.join_operator
            && let JoinConstraint::On(condition) = on
        {
            *condition = Expr::value(SqlValue::Boolean(true));
        }
        &mut join.relation
    }));
    for relation in relations {
        if let TableFactor::NestedJoin { table_with_joins, .. } = relation {
            without_conditions(table_with_joins);
        }
    }
}

/// A row that may be named, and how it is written out.
struct Row {
    table: String,
    /// What is the row where it stands alone: nothing, if a column is called so.
    name: String,
    columns: Vec<RowColumn>,
    is_open: bool,
    /// Whether one of the columns is an expression that nobody named.
    is_unnamed: bool,
    /// A column that is NULL only where there is no row.
    tells: Option<String>,
}

struct RowColumn {
    name: String,
    /// As whoever is answered knows it.
    shown: String,
}

/// The rows of a FROM that no column has the name of. `None`: it cannot be planned alone, as it asks what is around it.
async fn rows_of(
    state: &SessionState,
    texts: ViewTexts,
    asked: &Asked,
    tables: Vec<Table>,
) -> Result<Option<Vec<Row>>> {
    let Ok(of_all) = plan(state, asked.all.clone()).await else { return Ok(None) };
    let LogicalPlan::Projection(all) = of_all else { return Ok(None) };
    let schema = all.input.schema();
    let mut rows = vec![];
    for (table, (of_one, by_own_names)) in tables.into_iter().zip(asked.each.iter().zip(&asked.own)) {
        let own = schema.iter().filter(|(of, _)| of.is_some_and(|of| of.table() == table.name));
        let own: Vec<&String> = own.map(|(_, field)| field.name()).filter(|name| *name != PLACE).collect();
        let columns = own.iter().map(|name| {
            // The planner has another name for the second of two that are called alike.
            let alike =
                name.rsplit_once(':').map(|(alike, _)| alike).filter(|alike| own.iter().any(|own| own == alike));
            let shown = (texts.shown_name)(alike.unwrap_or(name)).to_owned();
            RowColumn { name: (*name).clone(), shown }
        });
        let mut columns: Vec<RowColumn> = columns.collect();
        if let Some(by_own_names) = by_own_names
            && let Ok(of_table) = plan(state, by_own_names.clone()).await
        {
            let fields = of_table.schema().fields().iter().filter(|field| *field.name() != PLACE);
            for (column, field) in columns.iter_mut().zip(fields) {
                column.shown = (texts.shown_name)(field.name()).to_owned();
            }
        }
        let mut tells = None;
        if let Some(of_one) = of_one
            && let Ok(of_one) = plan(state, of_one.clone()).await
        {
            let never_null = of_one.schema().fields().iter().position(|field| !field.is_nullable());
            tells = never_null.and_then(|at| columns.get(at).map(|column| column.name.clone()));
        }
        let is_column = schema.fields().iter().any(|field| *field.name() == table.name);
        let name = if is_column { String::new() } else { table.name.clone() };
        let Table { name: table, is_open, is_unnamed } = table;
        rows.push(Row { table, name, columns, is_open, is_unnamed, tells });
    }
    Ok(Some(rows))
}

/// Whether a subquery has a column that is an expression which nobody gave a name.
fn has_unnamed(query: &Query, alias: Option<&TableAlias>) -> bool {
    let mut body = query.body.as_ref();
    // The first of several that are united names them.
    while let SetExpr::SetOperation { left, .. } = body {
        body = left;
    }
    let select = match body {
        SetExpr::Select(select) => select,
        SetExpr::Query(query) => return has_unnamed(query, alias),
        _ => return false,
    };
    let n_named = alias.map_or(0, |alias| alias.columns.len());
    select.projection.iter().skip(n_named).any(|item| match item {
        SelectItem::UnnamedExpr(expr) => !matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_)),
        _ => false,
    })
}

/// Finds the select of a number, and writes out its rows.
struct Written {
    wanted: usize,
    n_seen: usize,
    rows: Vec<Row>,
    has_written: bool,
}

impl VisitorMut for Written {
    type Break = Error;

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        self.n_seen += 1;
        if self.n_seen <= self.wanted {
            return ControlFlow::Continue(());
        }
        // The planner would call the column as the function is called.
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr @ Expr::Identifier(_)) = item
                && let Expr::Identifier(name) = &*expr
                && self.rows.iter().any(|row| row.name == fold(name))
            {
                *item = SelectItem::ExprWithAlias { alias: name.clone(), expr: expr.clone() };
            }
        }
        // Nothing else is looked for.
        self.wanted = usize::MAX;
        let mut rows = InSelect { rows: &self.rows, hidden: vec![], has_written: false };
        let walked = walk_mut(select, &mut rows);
        self.has_written = rows.has_written;
        walked
    }
}

/// Writes out rows in a select and in the queries that stand in it, but for those that have tables of their names.
struct InSelect<'a> {
    rows: &'a [Row],
    /// The tables of each select that has not ended, of this one none.
    hidden: Vec<HashSet<String>>,
    has_written: bool,
}

impl VisitorMut for InSelect<'_> {
    type Break = Error;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        let mut own = HashSet::new();
        if !self.hidden.is_empty() {
            select.from.iter().for_each(|from| each_table(from, &mut |name, _, _| _ = own.insert(name)));
        }
        self.hidden.push(own);
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, _: &mut Select) -> ControlFlow<Error> {
        self.hidden.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        match expr {
            // Of the columns of a row, of which there are none but NULLs where there is no row.
            Expr::IsNull(of) | Expr::IsNotNull(of) => {
                let Some(written) = self.row(of).map(Row::written) else { return ControlFlow::Continue(()) };
                match written {
                    Ok(written) => **of = written,
                    Err(error) => return ControlFlow::Break(error),
                }
                self.has_written = true;
            }
            Expr::BinaryOp { left, op, right } if compares(op) => {
                for side in [&*left, &*right] {
                    if let Some(row) = self.row(side).filter(|row| row.is_open) {
                        let what = format!("comparing the row of \"{}\", of which there may be none", row.name);
                        return ControlFlow::Break(Error::Unsupported { what, remedy: "compare its columns" });
                    }
                }
            }
            of => {
                let Some(value) = self.row(of).map(Row::value) else { return ControlFlow::Continue(()) };
                match value {
                    Ok(value) => *of = value,
                    Err(error) => return ControlFlow::Break(error),
                }
                self.has_written = true;
            }
        }
        ControlFlow::Continue(())
    }
}

fn compares(op: &BinaryOperator) -> bool {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq)
}

impl InSelect<'_> {
    /// The row that an expression is the name of.
    fn row(&self, expr: &Expr) -> Option<&Row> {
        let name = match expr {
            Expr::Identifier(name) => fold(name),
            expr => fold(whole(expr)?),
        };
        if self.hidden.iter().any(|hidden| hidden.contains(&name)) {
            return None;
        }
        let is_whole = !matches!(expr, Expr::Identifier(_));
        self.rows.iter().find(|row| row.table == name && (is_whole || row.name == name) && !row.columns.is_empty())
    }
}

impl Row {
    fn column(&self, name: &str) -> Expr {
        Expr::CompoundIdentifier([&self.table, name].map(|part| Ident::with_quote('"', part)).to_vec())
    }

    /// The row, as if there were one.
    ///
    /// Errors: a column of it has no name.
    fn written(&self) -> Result<Expr> {
        if self.is_unnamed {
            let what = format!("the row of \"{}\", of whose columns one has no name,", self.table);
            return Err(Error::Unsupported { what, remedy: "name it: SELECT upper(a) AS a" });
        }
        let values = self.columns.iter().map(|column| self.column(&column.name));
        let names = self.columns.iter().map(|column| Expr::value(SqlValue::SingleQuotedString(column.shown.clone())));
        Ok(call(WHOLE_ROW, values.chain(names).collect()))
    }

    /// The row, or NULL where there is none.
    ///
    /// Errors: nothing tells whether there is one.
    fn value(&self) -> Result<Expr> {
        if !self.is_open {
            return self.written();
        }
        let Some(tells) = &self.tells else {
            let what = format!("the row of \"{}\", of which there may be none and no column is NOT NULL,", self.table);
            return Err(Error::Unsupported { what, remedy: "name its columns, or give its table a primary key" });
        };
        let is_there = Expr::IsNotNull(Box::new(self.column(tells)));
        Ok(Expr::Case {
            case_token: AttachedToken::empty(),
            end_token: AttachedToken::empty(),
            operand: None,
            conditions: vec![CaseWhen { condition: is_there, result: self.written()? }],
            else_result: None,
        })
    }
}

/// The function of rows: values, and behind them as many names.
pub(crate) fn function() -> ScalarUDF {
    ScalarUDF::from(WholeRow { signature: Signature::variadic_any(Volatility::Immutable) })
}

/// The values among the arguments of [`function`].
pub(crate) fn values<T>(args: &[T]) -> &[T] {
    &args[..args.len() / 2]
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct WholeRow {
    signature: Signature,
}

impl ScalarUDFImpl for WholeRow {
    fn name(&self) -> &str {
        WHOLE_ROW
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[ArrowType]) -> PlanResult<ArrowType> {
        exec_err!("the type of a row is that of its fields")
    }

    /// Fields keep what they say beside their types: what is JSON in a column is JSON in the row.
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> PlanResult<FieldRef> {
        let names = &args.scalar_arguments[args.scalar_arguments.len() / 2..];
        let fields = values(args.arg_fields).iter().zip(names).map(|(field, name)| {
            let Some(name) = name.and_then(|name| name.try_as_str().flatten()) else {
                return exec_err!("the names of a row's fields are constants");
            };
            Ok(Arc::new(field.as_ref().clone().with_name(name).with_nullable(true)))
        });
        let fields = fields.collect::<PlanResult<Fields>>()?;
        Ok(Arc::new(Field::new(WHOLE_ROW, ArrowType::Struct(fields), false)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let ArrowType::Struct(fields) = args.return_field.data_type() else {
            return exec_err!("a row has fields");
        };
        let columns = values(&args.args).iter().map(|value| value.to_array(args.number_rows));
        let columns = columns.collect::<PlanResult<Vec<ArrayRef>>>()?;
        let rows = StructArray::try_new_with_length(fields.clone(), columns, None, args.number_rows)?;
        Ok(ColumnarValue::Array(Arc::new(rows)))
    }
}
