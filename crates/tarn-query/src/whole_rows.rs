//! What is `row_to_json(t)`, `count(t.*)` or `SELECT t FROM trips t`? The row of `t` as one value, whose fields are its
//! columns.
//!
//! ```text
//! SELECT row_to_json(t) FROM trips t       SELECT row_to_json(tarn_whole_row(t.id, t.city, 'id', 'city')) FROM trips t
//! ```
//!
//! A name is a column first, wherever one of that name is, and a row only then: so rows are looked for when the planner
//! knew no such column. Which columns a row has, the FROM is asked that it stands in: it is planned alone, with the
//! WITHs around it, or, if it asks for columns of the queries around it, with their tables before it. Selects are
//! looked at from the inside out.
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

use crate::from_tables::{each_table, name_in_from};
use crate::meaning::ViewTexts;
use crate::outer_names;
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
    let apart = outer_names::told_apart(&statement);
    let as_written = named_casts::planned(state, statement).await;
    match (as_written, apart) {
        // What is wrong about it may be another thing: it is told as it was, then.
        (Err(error), Some(apart)) => match named_casts::planned(state, apart).await {
            Ok(planned) => Ok(planned),
            Err(_) => Err(error.into()),
        },
        (as_written, _) => Ok(as_written?),
    }
}

/// Whether something in it has a name that a table has, too.
fn names_tables(statement: &Statement) -> bool {
    let mut found = WholeRowFinder::default();
    let _ = walk(statement, &mut found);
    found.is_whole || !found.names.is_disjoint(&found.tables)
}

/// The names of tables, and those that stand alone for a value.
#[derive(Default)]
struct WholeRowFinder {
    tables: HashSet<String>,
    names: HashSet<String>,
    /// `t.*` as a value.
    is_whole: bool,
}

impl Visitor for WholeRowFinder {
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

/// The statement with rows in the places of their tables' names. `None`: there are none.
///
/// Errors: a row that may be NULL and has no column that tells; one beside what is shown otherwise than it is kept.
async fn written_out(state: &SessionState, texts: ViewTexts, mut statement: Statement) -> Result<Option<Statement>> {
    let (mut looked_at, mut has_rows) = (0, false);
    // Each select once, and those inside before it: what is around one is planned with all that is in it.
    while looked_at < MAX_SELECTS {
        let mut next = SelectFinder { wanted: looked_at, ..SelectFinder::default() };
        let _ = walk(&statement, &mut next);
        let Some(FromClause { asked, tables }) = next.found else { break };
        if let Some(asked) = asked
            && let Some(rows) = rows_of(state, texts, &asked, tables).await?
        {
            let mut written = SelectRewriter { wanted: looked_at, n_seen: 0, rows, has_written: false };
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
struct FromClause {
    /// A query of all its columns. `None`: none of its tables' names stands in its select.
    asked: Option<ColumnQueries>,
    tables: Vec<FromItem>,
}

struct ColumnQueries {
    all: Alone,
    /// A query of all columns of one table, for those that may be NULL.
    each: Vec<Option<Alone>>,
    /// A query of all columns of one table by their own names, for those whose alias names columns: its row has the
    /// fields of the table.
    own: Vec<Option<Statement>>,
}

/// A query of all columns.
struct Alone {
    alone: Statement,
    /// The same with tables before that it may ask for columns. `None`: there are none.
    behind: Option<Statement>,
}

impl Alone {
    async fn planned(&self, state: &SessionState) -> Option<LogicalPlan> {
        match (plan(state, self.alone.clone()).await, &self.behind) {
            (Ok(planned), _) => Some(planned),
            (Err(_), Some(behind)) => plan(state, behind.clone()).await.ok(),
            (Err(_), None) => None,
        }
    }
}

struct FromItem {
    name: String,
    is_open: bool,
    is_unnamed: bool,
}

/// Finds the select of a number, which are counted as they end.
#[derive(Default)]
struct SelectFinder {
    wanted: usize,
    n_seen: usize,
    /// The queries around, the outermost first.
    queries: Vec<Around>,
    /// The selects around, the outermost first.
    selects: Vec<Tables>,
    found: Option<FromClause>,
}

/// A query that has not ended.
struct Around {
    with: Option<With>,
    /// Queries right in it that have begun: first those of its WITH, each of which knows the ones before it.
    n_begun: usize,
}

/// The tables of a select that has not ended.
#[derive(Default)]
struct Tables {
    all: Vec<TableFactor>,
    passed: Vec<TableFactor>,
    /// Of its FROM, those in which the walk is.
    n_open: usize,
}

impl Tables {
    /// Those whose columns may be asked for where the walk is.
    fn seen(&self) -> &[TableFactor] {
        if self.n_open > 0 { &self.passed } else { &self.all }
    }
}

impl Visitor for SelectFinder {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        if let Some(around) = self.queries.last_mut() {
            around.n_begun += 1;
        }
        self.queries.push(Around { with: query.with.clone(), n_begun: 0 });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.queries.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, _: &TableFactor) -> ControlFlow<()> {
        if let Some(tables) = self.selects.last_mut() {
            tables.n_open += 1;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        if let Some(tables) = self.selects.last_mut() {
            tables.n_open = tables.n_open.saturating_sub(1);
            tables.passed.push(factor.clone());
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        let mut tables = Tables::default();
        for from in &select.from {
            each_table(from, &mut |_, factor, _| tables.all.push(factor.clone()));
        }
        self.selects.push(tables);
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        let own = self.selects.pop().unwrap_or_default().all;
        self.n_seen += 1;
        if self.n_seen <= self.wanted {
            return ControlFlow::Continue(());
        }
        let mut found = WholeRowFinder::default();
        let _ = walk(select, &mut found);
        let (mut tables, mut each, mut by_own_names) = (vec![], vec![], vec![]);
        for from in &select.from {
            each_table(from, &mut |name, factor, is_open| {
                let relation = TableWithJoins { relation: factor.clone(), joins: vec![] };
                // A LATERAL one asks those before it.
                let before = &own[..tables.len().min(own.len())];
                each.push(is_open.then(|| self.asking(vec![relation], before)).flatten());
                by_own_names.push(self.by_own_names(factor));
                let is_unnamed = self.is_unnamed(factor);
                tables.push(FromItem { name, is_open, is_unnamed });
            });
        }
        let is_named = found.is_whole || tables.iter().any(|table| found.names.contains(&table.name));
        let all = is_named.then(|| self.asking(select.from.clone(), &[])).flatten();
        self.found = Some(FromClause { asked: all.map(|all| ColumnQueries { all, each, own: by_own_names }), tables });
        ControlFlow::Break(())
    }
}

impl SelectFinder {
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

    /// Each WITH around, the outermost first, and what of it may be named here.
    fn withs(&self) -> impl DoubleEndedIterator<Item = (&With, &[Cte])> {
        self.queries.iter().enumerate().filter_map(move |(at, around)| {
            let with = around.with.as_ref()?;
            let is_body = at + 1 == self.queries.len();
            let n_known = if is_body || with.recursive { usize::MAX } else { around.n_begun.saturating_sub(1) };
            Some((with, &with.cte_tables[..n_known.min(with.cte_tables.len())]))
        })
    }

    /// The query of a WITH that a name in FROM means, the nearest of those around.
    fn with(&self, name: &ObjectName) -> Option<&Cte> {
        let [name] = name.0.as_slice() else { return None };
        let name = fold(name.as_ident()?);
        self.withs().rev().flat_map(|(_, ctes)| ctes).find(|cte| fold(&cte.alias.name) == name)
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
        self.all_of(vec![TableWithJoins { relation, joins: vec![] }])
    }

    /// `SELECT *` from something, alone, and behind these tables and those of the queries around.
    fn asking(&self, from: Vec<TableWithJoins>, before: &[TableFactor]) -> Option<Alone> {
        let mut names = HashSet::new();
        from.iter().for_each(|from| each_table(from, &mut |name, _, _| _ = names.insert(name)));
        let mut behind = vec![];
        // What is nearer hides what is called like it.
        for tables in std::iter::once(before).chain(self.selects.iter().rev().map(Tables::seen)) {
            let seen = tables.iter().filter(|factor| name_in_from(factor).is_some_and(|name| names.insert(name)));
            let mut seen: Vec<TableFactor> = seen.cloned().collect();
            seen.append(&mut behind);
            behind = seen;
        }
        let behind = match behind.is_empty() {
            true => None,
            false => {
                let behind = behind.into_iter().map(|relation| TableWithJoins { relation, joins: vec![] });
                let mut all: Vec<TableWithJoins> = behind.chain(from.iter().cloned()).collect();
                all.iter_mut().skip(1).for_each(as_lateral);
                self.all_of(all)
            }
        };
        Some(Alone { alone: self.all_of(from)?, behind })
    }

    /// `SELECT *` from something, with the WITHs around.
    fn all_of(&self, from: Vec<TableWithJoins>) -> Option<Statement> {
        let Statement::Query(mut query) = statements("SELECT *").ok()?.pop()? else { return None };
        let SetExpr::Select(select) = query.body.as_mut() else { return None };
        select.from = from;
        // Conditions change no column, and may name rows themselves.
        select.from.iter_mut().for_each(without_conditions);
        for (with, ctes) in self.withs() {
            let known = query.with.get_or_insert_with(|| With { cte_tables: vec![], ..with.clone() });
            known.recursive |= with.recursive;
            // What is nearer hides what is called like it.
            known.cte_tables.retain(|cte| ctes.iter().all(|near| fold(&near.alias.name) != fold(&cte.alias.name)));
            known.cte_tables.extend(ctes.iter().cloned());
        }
        if query.with.as_ref().is_some_and(|with| with.cte_tables.is_empty()) {
            query.with = None;
        }
        Some(Statement::Query(query))
    }
}

/// Subqueries in FROM that may ask for what is before them.
fn as_lateral(from: &mut TableWithJoins) {
    for relation in std::iter::once(&mut from.relation).chain(from.joins.iter_mut().map(|join| &mut join.relation)) {
        match relation {
            TableFactor::Derived { lateral, .. } => *lateral = true,
            TableFactor::NestedJoin { table_with_joins, .. } => as_lateral(table_with_joins),
            _ => {}
        }
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
struct RowReference {
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

/// The rows of a FROM that no column has the name of. `None`: it cannot be planned, and what is wrong about it is told.
async fn rows_of(
    state: &SessionState,
    texts: ViewTexts,
    asked: &ColumnQueries,
    tables: Vec<FromItem>,
) -> Result<Option<Vec<RowReference>>> {
    let Some(LogicalPlan::Projection(all)) = asked.all.planned(state).await else { return Ok(None) };
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
            && let Some(LogicalPlan::Projection(of_one)) = of_one.planned(state).await
        {
            let schema = of_one.input.schema().iter();
            let mut own =
                schema.filter(|(of, field)| of.is_some_and(|of| of.table() == table.name) && *field.name() != PLACE);
            let never_null = own.position(|(_, field)| !field.is_nullable());
            tells = never_null.and_then(|at| columns.get(at).map(|column| column.name.clone()));
        }
        let is_column = schema.fields().iter().any(|field| *field.name() == table.name);
        let name = if is_column { String::new() } else { table.name.clone() };
        let FromItem { name: table, is_open, is_unnamed } = table;
        rows.push(RowReference { table, name, columns, is_open, is_unnamed, tells });
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
struct SelectRewriter {
    wanted: usize,
    n_seen: usize,
    rows: Vec<RowReference>,
    has_written: bool,
}

impl VisitorMut for SelectRewriter {
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
    rows: &'a [RowReference],
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
                let Some(written) = self.row(of).map(RowReference::written) else { return ControlFlow::Continue(()) };
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
                let Some(value) = self.row(of).map(RowReference::value) else { return ControlFlow::Continue(()) };
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
    fn row(&self, expr: &Expr) -> Option<&RowReference> {
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

impl RowReference {
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

/// The function of `ROW(a, b)`. The planner's forgets what fields say beside their types.
pub(crate) fn written_row() -> ScalarUDF {
    let signature = Signature::variadic_any(Volatility::Immutable);
    ScalarUDF::from(WrittenRow { signature, aliases: vec!["row".to_owned()] })
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
        of_fields(&args, values(&args.args))
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct WrittenRow {
    signature: Signature,
    aliases: Vec<String>,
}

impl ScalarUDFImpl for WrittenRow {
    fn name(&self) -> &str {
        "struct"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[ArrowType]) -> PlanResult<ArrowType> {
        exec_err!("the type of a row is that of its fields")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> PlanResult<FieldRef> {
        let fields = args.arg_fields.iter().enumerate().map(|(at, field)| {
            let field = field.as_ref().clone().with_name(format!("c{at}"));
            Arc::new(field.with_nullable(true))
        });
        Ok(Arc::new(Field::new(self.name(), ArrowType::Struct(fields.collect()), true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        of_fields(&args, &args.args)
    }
}

/// The rows of these values.
fn of_fields(args: &ScalarFunctionArgs, values: &[ColumnarValue]) -> PlanResult<ColumnarValue> {
    let ArrowType::Struct(fields) = args.return_field.data_type() else {
        return exec_err!("a row has fields");
    };
    let columns = values.iter().map(|value| value.to_array(args.number_rows));
    let columns = columns.collect::<PlanResult<Vec<ArrayRef>>>()?;
    let rows = StructArray::try_new_with_length(fields.clone(), columns, None, args.number_rows)?;
    Ok(ColumnarValue::Array(Arc::new(rows)))
}
