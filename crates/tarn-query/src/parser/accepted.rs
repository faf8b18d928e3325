//! Which clauses are understood?
//!
//! sqlparser reads the SQL of twenty systems. What is not understood here is refused when it is read, never dropped:
//! `DELETE … LIMIT 1` without its LIMIT deletes everything. So every struct of a statement that Tarn runs is taken
//! apart by all of its fields, here or where it becomes a plan: a field of a newer parser does not compile until
//! somebody has decided what it means.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use crate::sqlparser::ast::{
    AnalyzeFormat, AnalyzeFormatKind, Assignment, AssignmentTarget, BinaryOperator, ContextModifier, Cte, Delete,
    Distinct, Expr, Fetch, FromTable, Function, FunctionArgumentClause, FunctionArguments, GroupByExpr, Insert, Join,
    LimitClause, Merge, MergeAction, MergeClause, MergeClauseKind, MergeInsertExpr, MergeUpdateExpr,
    NamedWindowDefinition, NamedWindowExpr, ObjectName, OnConflict, OnConflictAction, OnInsert, OrderBy, OrderByExpr,
    OrderByKind, Query, Select, SelectFlavor, SelectItem, Set, SetExpr, SetOperator, ShowStatementOptions, Statement,
    TableAlias, TableFactor, TableFunctionArgs, TableObject, TableWithJoins, UnaryOperator, Update, Value, Values,
    Visitor, VisitorMut, WindowSpec, WindowType, With,
};
use crate::sqlparser::parser::{Parser, ParserError};
use crate::walk::{walk, walk_mut};

use super::{
    Limit, MAX_CHAIN, MAX_COMPUTED, MAX_GROUPINGS, MAX_KEYS, MAX_LOOKS, MAX_QUERIES, MAX_SELECTED, MAX_TABLES,
    ParseError, fold,
};
use crate::parser::calls::call;
use crate::parser::copy::copy_alone;
use crate::parser::explain;
use crate::parser::null_asks::NullAsks;
use crate::parser::select_into::as_create_table;
use crate::parser::with_change::as_change;

/// A statement, and what was seen in it.
#[derive(Debug)]
pub struct ParsedStatement {
    /// As it was parsed: nothing in it is left out.
    pub statement: Statement,
    /// Whether there is a SELECT in it, at any depth.
    pub has_select: bool,
    /// Whether there is a call, a cast or a number with an exponent in it, at any depth.
    pub has_calls: bool,
}

/// The next statement, if all of it is understood.
///
/// Errors: it is no SQL; [`ParseError::Refused`] names the clause that is not understood.
pub fn statement(parser: &mut Parser<'_>) -> Result<Statement, ParseError> {
    Ok(read(parser)?.statement)
}

/// As [`statement`], and says what was seen on the way.
pub fn read(parser: &mut Parser<'_>) -> Result<ParsedStatement, ParseError> {
    understood(as_change(as_create_table(next(parser)?)?)?)
}

pub(super) fn next(parser: &mut Parser<'_>) -> Result<Statement, ParseError> {
    match copy_alone(parser)? {
        Some(copy) => Ok(copy),
        None => Ok(parser.parse_statement()?),
    }
}

/// A statement that was read, if all of it is understood.
pub(super) fn understood(mut statement: Statement) -> Result<ParsedStatement, ParseError> {
    let seen = checked(&statement)?;
    // Most statements are about one row: each way through their tree is a part of what they cost.
    if (seen.has_with || seen.n_relations > MAX_TABLES)
        && let ControlFlow::Break(limit) = walk(&statement, &mut WithMentions::default())
    {
        return Err(ParseError::TooLarge(limit));
    }
    if seen.has_two_ways
        && let ControlFlow::Break(error) = walk_mut(&mut statement, &mut StatementNormalizer)
    {
        return Err(error);
    }
    Ok(ParsedStatement { statement, has_select: seen.has_select, has_calls: seen.has_calls })
}

/// Refuses what is not understood, wherever in the statement it is: for those that were not read by [`statement`].
///
/// Errors: [`ParseError::Refused`]; [`ParseError::TooLarge`] for too many queries or tables.
pub fn check(statement: &Statement) -> Result<(), ParseError> {
    checked(statement).map(|_| ())
}

fn checked(statement: &Statement) -> Result<ClauseChecker, ParseError> {
    if let Some(rows) = written_rows(statement) {
        check_statement(statement)?;
        check_query(rows)?;
        return Ok(ClauseChecker { n_relations: 1, ..ClauseChecker::default() });
    }
    if let Some((query, select, table)) = lookup(statement) {
        check_query(query)?;
        check_select(select)?;
        check_table_factor(table)?;
        return Ok(ClauseChecker { has_select: true, n_relations: 1, ..ClauseChecker::default() });
    }
    visited(statement)
}

fn visited(statement: &Statement) -> Result<ClauseChecker, ParseError> {
    let mut check = ClauseChecker::default();
    match walk(statement, &mut check) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(check),
    }
}

/// The rows of an INSERT of constants alone. There is nothing in them to be checked, and each of a visitor's steps
/// looks how much stack is left.
fn written_rows(statement: &Statement) -> Option<&Query> {
    let Statement::Insert(Insert {
        source: Some(rows),
        table: TableObject::TableName(_),
        on: None,
        returning: None,
        ..
    }) = statement
    else {
        return None;
    };
    let Query { with: None, body, order_by: None, limit_clause: None, fetch: None, .. } = rows.as_ref() else {
        return None;
    };
    let SetExpr::Values(values) = body.as_ref() else { return None };
    let is_constant = |expr: &Expr| match expr {
        Expr::Value(_) => true,
        Expr::UnaryOp { op: _, expr } => matches!(expr.as_ref(), Expr::Value(_)),
        _ => false,
    };
    values.rows.iter().all(|row| row.content.iter().all(is_constant)).then_some(rows)
}

/// A SELECT of columns of one table, of rows that are named by `column = constant AND …`: as [`written_rows`], checked
/// without a visitor.
fn lookup(statement: &Statement) -> Option<(&Query, &Select, &TableFactor)> {
    let Statement::Query(query) = statement else { return None };
    let Query { with: None, body, order_by: None, limit_clause: None, fetch: None, .. } = query.as_ref() else {
        return None;
    };
    let SetExpr::Select(select) = body.as_ref() else { return None };
    let Select {
        distinct: None,
        projection,
        from,
        selection: Some(selection),
        group_by: GroupByExpr::Expressions(groups, _),
        having: None,
        named_window,
        qualify: None,
        ..
    } = select.as_ref()
    else {
        return None;
    };
    let [TableWithJoins { relation: table @ TableFactor::Table { args: None, .. }, joins }] = from.as_slice() else {
        return None;
    };
    let is_plain = groups.is_empty() && named_window.is_empty() && joins.is_empty();
    let are_columns = projection.iter().all(|item| match item {
        SelectItem::UnnamedExpr(expr) => matches!(expr, Expr::Identifier(_)),
        SelectItem::Wildcard(options) => options.opt_replace.is_none(),
        _ => false,
    });
    (is_plain && are_columns && names_rows(selection)).then_some((query, select, table))
}

/// Whether a condition is `column = constant AND …`.
fn names_rows(mut condition: &Expr) -> bool {
    let is_leaf = |expr: &Expr| matches!(expr, Expr::Identifier(_) | Expr::Value(_));
    let is_equality = |expr: &Expr| matches!(expr, Expr::BinaryOp { left, op: BinaryOperator::Eq, right } if is_leaf(left) && is_leaf(right));
    // AND groups to the left; long chains of it, which were balanced, are left to the visitor.
    while let Expr::BinaryOp { left, op: BinaryOperator::And, right } = condition {
        if !is_equality(right) {
            return false;
        }
        condition = left;
    }
    is_equality(condition)
}

/// What `FETCH FIRST n ROWS WITH TIES` is read as: a limit of `tarn_with_ties(n)`, which whoever plans it must know.
pub const WITH_TIES: &str = "tarn_with_ties";

type ClauseResult = Result<(), ParseError>;

/// Clauses that are there: the first is refused.
fn none(of: &str, clauses: &[(bool, &str, &'static str)]) -> ClauseResult {
    match clauses.iter().find(|(is_there, ..)| *is_there) {
        Some((_, clause, remedy)) => {
            Err(ParseError::Refused { what: format!("{of} … {clause}").replace("… …", "…"), remedy })
        }
        None => Ok(()),
    }
}

const LEAVE_OUT: &str = "leave it out: PostgreSQL has no such clause";
const ONE_BY_KEY: &str = "name the rows by their key: WHERE key IN (SELECT key FROM … ORDER BY … LIMIT …)";

/// What was seen on the way.
#[derive(Debug, Default, PartialEq, Eq)]
struct ClauseChecker {
    has_with: bool,
    has_select: bool,
    has_calls: bool,
    n_relations: usize,
    /// Something that [`StatementNormalizer`] says in one way.
    has_two_ways: bool,
    /// Subqueries of expressions around.
    n_subqueries: usize,
    /// Queries with a WITH around.
    n_withs: usize,
    n_looks: usize,
    null_asks: NullAsks,
}

impl ClauseChecker {
    /// Counts one part of the statement as often as the planner looks at it: 2^levels - 1 for the levels around it,
    /// never for none.
    fn look(&mut self) -> ClauseResult {
        self.n_looks = self.n_looks.saturating_add(self.n_repeated());
        at_most(self.n_looks, MAX_LOOKS, Limit::Looks)
    }

    fn n_repeated(&self) -> usize {
        let times = |levels: usize| 1_usize.checked_shl(levels as u32).unwrap_or(usize::MAX) - 1;
        times(self.n_subqueries).saturating_add(times(self.n_withs.saturating_sub(1)))
    }

    /// Counts what the conditions of a CASE need.
    fn look_at_conditions(&mut self, expr: &Expr) -> ClauseResult {
        let looks = self.null_asks.end(expr).saturating_mul(self.n_repeated().saturating_add(1));
        self.n_looks = self.n_looks.saturating_add(looks);
        at_most(self.n_looks, MAX_LOOKS, Limit::Cases)
    }
}

impl Visitor for ClauseChecker {
    type Break = ParseError;

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<ParseError> {
        self.has_two_ways |= matches!(statement, Statement::Explain { .. });
        told(check_statement(statement))
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<ParseError> {
        self.has_with |= query.with.is_some();
        self.has_two_ways |= query.fetch.is_some() || matches!(query.body.as_ref(), SetExpr::SetOperation { .. });
        self.n_withs += usize::from(query.with.is_some());
        told(self.look().and_then(|()| check_query(query)))
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<ParseError> {
        self.n_withs -= usize::from(query.with.is_some());
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, _: &ObjectName) -> ControlFlow<ParseError> {
        self.n_relations += 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<ParseError> {
        self.has_select = true;
        told(check_select(select))
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<ParseError> {
        self.has_calls |= matches!(
            factor,
            TableFactor::Table { args: Some(_), .. } | TableFactor::Function { .. } | TableFactor::UNNEST { .. }
        );
        told(check_table_factor(factor))
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<ParseError> {
        self.n_subqueries += usize::from(is_subquery(expr));
        self.has_calls |= matches!(
            expr,
            Expr::Function(_)
                | Expr::Cast { .. }
                | Expr::TypedString(_)
                | Expr::Interval(_)
                | Expr::SimilarTo { .. }
                | Expr::Collate { .. }
                | Expr::UnaryOp {
                    op: UnaryOperator::PGAbs
                        | UnaryOperator::BitwiseNot
                        | UnaryOperator::PGSquareRoot
                        | UnaryOperator::PGCubeRoot,
                    ..
                }
                | Expr::AnyOp { .. }
                | Expr::AllOp { .. }
        ) || has_exponent(expr);
        self.null_asks.begin();
        told(self.look().and_then(|()| match expr {
            Expr::Function(function) => check_function(function),
            _ => Ok(()),
        }))
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<ParseError> {
        self.n_subqueries -= usize::from(is_subquery(expr));
        told(self.look_at_conditions(expr))
    }
}

/// How many tables a plan reads. A name of WITH is planned at each mention: each that mentions the last one twice
/// doubles the plan.
#[derive(Default)]
struct WithMentions {
    /// Of each name that is defined now.
    tables_of: HashMap<String, usize>,
    /// The queries around, outermost first.
    queries: Vec<WithScope>,
}

#[derive(Default)]
struct WithScope {
    /// Names that its WITH defines, and how many of them were read.
    names: Vec<String>,
    n_read: usize,
    /// What they were outside of it.
    hidden: Vec<(String, Option<usize>)>,
    n_tables: usize,
}

impl WithMentions {
    fn add(&mut self, n_tables: usize) -> ControlFlow<Limit> {
        let Some(query) = self.queries.last_mut() else { return ControlFlow::Continue(()) };
        query.n_tables = query.n_tables.saturating_add(n_tables);
        match query.n_tables > MAX_TABLES {
            true => ControlFlow::Break(Limit::Tables),
            false => ControlFlow::Continue(()),
        }
    }
}

impl Visitor for WithMentions {
    type Break = Limit;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Limit> {
        let tables = query.with.iter().flat_map(|with| &with.cte_tables);
        let names = tables.map(|cte| cte.alias.name.value.to_lowercase()).collect();
        self.queries.push(WithScope { names, ..WithScope::default() });
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<Limit> {
        let name = match relation.0.as_slice() {
            [part] => part.as_ident().map(|ident| ident.value.to_lowercase()),
            _ => None,
        };
        let n_tables = name.and_then(|name| self.tables_of.get(&name).copied()).unwrap_or(1);
        self.add(n_tables)
    }

    /// The queries of a WITH come first, in order, and each defines the next name.
    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<Limit> {
        let Some(done) = self.queries.pop() else { return ControlFlow::Continue(()) };
        for (name, outside) in done.hidden.into_iter().rev() {
            match outside {
                Some(n_tables) => self.tables_of.insert(name, n_tables),
                None => self.tables_of.remove(&name),
            };
        }
        let defines = self.queries.last_mut().and_then(|around| {
            around.n_read += 1;
            Some((around.names.get(around.n_read - 1)?.clone(), around))
        });
        let Some((name, around)) = defines else { return self.add(done.n_tables) };
        let outside = self.tables_of.insert(name.clone(), done.n_tables.max(1));
        around.hidden.push((name, outside));
        self.add(1)
    }
}

fn is_subquery(expr: &Expr) -> bool {
    matches!(expr, Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. })
}

/// Whether it is a number with an exponent, which may be one of which the planner makes no `numeric`.
fn has_exponent(expr: &Expr) -> bool {
    match expr {
        Expr::Value(value) => matches!(&value.value, Value::Number(digits, _) if digits.contains(['e', 'E'])),
        _ => false,
    }
}

fn told(checked: ClauseResult) -> ControlFlow<ParseError> {
    match checked {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    }
}

fn check_statement(statement: &Statement) -> ClauseResult {
    match statement {
        Statement::Insert(insert) => check_insert(insert),
        Statement::Update(update) => check_update(update),
        Statement::Delete(delete) => check_delete(delete),
        Statement::Merge(merge) => check_merge(merge),
        Statement::Explain {
            describe_alias: _,
            analyze: _,
            verbose: _,
            query_plan,
            estimate,
            statement: _,
            format,
            options: _,
        } => none(
            "EXPLAIN",
            &[
                (*query_plan, "QUERY PLAN", LEAVE_OUT),
                (*estimate, "ESTIMATE", LEAVE_OUT),
                (format.is_some(), "FORMAT without parentheses", "EXPLAIN (FORMAT JSON) statement"),
            ],
        ),
        Statement::Drop {
            object_type: _,
            if_exists: _,
            names: _,
            cascade: _,
            // So it is without.
            restrict: _,
            purge,
            temporary,
            table,
        } => none(
            "DROP",
            &[
                (*purge, "PURGE", LEAVE_OUT),
                (*temporary, "TEMPORARY", "there are no temporary tables"),
                (table.is_some(), "ON table", LEAVE_OUT),
            ],
        ),
        Statement::Copy { source: _, to: _, target: _, options: _, legacy_options: _, values } => none(
            "COPY FROM STDIN",
            &[(
                values.iter().flatten().any(|value| !value.trim().is_empty()),
                "in one text with what follows it",
                "send COPY by itself, and the rows after it",
            )],
        ),
        Statement::StartTransaction {
            modes: _,
            begin: _,
            transaction: _,
            modifier,
            statements,
            exception,
            has_end_keyword,
        } => none(
            "BEGIN",
            &[
                (modifier.is_some(), "with a modifier", "PostgreSQL's BEGIN has none"),
                (
                    !statements.is_empty() || exception.is_some() || *has_end_keyword,
                    "END",
                    "there are no blocks: send statements",
                ),
            ],
        ),
        Statement::Commit { chain: _, end: _, modifier } => {
            none("COMMIT", &[(modifier.is_some(), "with a modifier", "PostgreSQL's COMMIT has none")])
        }
        Statement::Rollback { chain, savepoint } => {
            none("ROLLBACK TO", &[(*chain && savepoint.is_some(), "AND CHAIN", "a savepoint ends no transaction")])
        }
        Statement::Prepare { name: _, data_types: _, statement: _ } => Ok(()),
        Statement::Execute { name, parameters: _, has_parentheses: _, immediate, into, using, output, default } => {
            none(
                "EXECUTE",
                &[
                    (name.is_none() || *immediate, "IMMEDIATE", "PREPARE it by a name"),
                    (!into.is_empty(), "INTO", LEAVE_OUT),
                    (!using.is_empty(), "USING", "EXECUTE name (value, …)"),
                    (*output || *default, "OUTPUT or DEFAULT", LEAVE_OUT),
                ],
            )
        }
        Statement::Fetch { name: _, direction: _, position: _, into } => {
            none("FETCH", &[(into.is_some(), "INTO", "FETCH answers the rows")])
        }
        Statement::ShowTables { terse, history, extended, full, external, show_options } => {
            let other = *terse || *history || *extended || *full || *external || show_options.show_in.is_some();
            none("SHOW TABLES", &[(other, "of another system", "SHOW TABLES, or SELECT * FROM tarn.tables")])?;
            check_show("SHOW TABLES", show_options)
        }
        Statement::ShowColumns { extended, full, show_options } => {
            none("SHOW COLUMNS", &[(*extended || *full, "EXTENDED or FULL", LEAVE_OUT)])?;
            check_show("SHOW COLUMNS", show_options)
        }
        Statement::ExplainTable { describe_alias: _, hive_format, has_table_keyword: _, table_name: _ } => {
            none("DESCRIBE", &[(hive_format.is_some(), "EXTENDED or FORMATTED", LEAVE_OUT)])
        }
        Statement::Set(set) => check_set(set),
        Statement::Call(Function {
            name: _,
            uses_odbc_syntax: _,
            parameters,
            args: _,
            filter,
            null_treatment,
            over,
            within_group,
        }) => none(
            "CALL",
            &[
                (!matches!(parameters, FunctionArguments::None), "two lists", LEAVE_OUT),
                (filter.is_some() || null_treatment.is_some(), "FILTER", LEAVE_OUT),
                (over.is_some() || !within_group.is_empty(), "OVER", LEAVE_OUT),
            ],
        ),
        // Taken apart where they run (CREATE TABLE, DECLARE, DISCARD), without other clauses, or refused as a whole.
        _ => Ok(()),
    }
}

fn check_show(of: &str, options: &ShowStatementOptions) -> ClauseResult {
    let ShowStatementOptions { show_in: _, starts_with, limit, limit_from, filter_position } = options;
    let is_filtered = starts_with.is_some() || limit.is_some() || limit_from.is_some() || filter_position.is_some();
    none(of, &[(is_filtered, "LIKE or LIMIT", "SELECT from tarn.tables or information_schema.columns with WHERE")])
}

fn check_set(set: &Set) -> ClauseResult {
    match set {
        Set::SingleAssignment { scope, hivevar, variable: _, values: _ } => none(
            "SET",
            &[
                (*hivevar, "HIVEVAR", LEAVE_OUT),
                (*scope == Some(ContextModifier::Global), "GLOBAL", "settings of the server are flags of `tarn serve`"),
            ],
        ),
        Set::SetNames { charset_name: _, collation_name } => {
            none("SET NAMES", &[(collation_name.is_some(), "COLLATE", LEAVE_OUT)])
        }
        Set::SetTransaction { modes: _, snapshot, session: _ } => none(
            "SET TRANSACTION",
            &[(snapshot.is_some(), "SNAPSHOT", "SET tarn.as_of_version reads an older version of all tables")],
        ),
        Set::SetTimeZone { local: _, value: _ }
        | Set::SetNamesDefault {}
        | Set::SetSessionAuthorization(_)
        | Set::SetSessionParam(_)
        | Set::SetRole { context_modifier: _, role_name: _ }
        | Set::ParenthesizedAssignments { variables: _, values: _ }
        | Set::MultipleAssignments { assignments: _ } => Ok(()),
    }
}

fn check_insert(insert: &Insert) -> ClauseResult {
    let Insert {
        insert_token: _,
        // Comments, as everywhere.
        optimizer_hints: _,
        or,
        ignore,
        into: _,
        table: _,
        // Taken apart where it becomes a plan.
        table_alias: _,
        columns: _,
        overwrite,
        source: _,
        assignments,
        partitioned,
        after_columns,
        has_table_keyword: _,
        on,
        returning: _,
        output,
        replace_into,
        priority,
        insert_alias,
        settings,
        format_clause,
        multi_table_insert_type,
        multi_table_into_clauses,
        multi_table_when_clauses,
        multi_table_else_clause,
    } = insert;
    let is_multi = multi_table_insert_type.is_some()
        || !multi_table_into_clauses.is_empty()
        || !multi_table_when_clauses.is_empty()
        || multi_table_else_clause.is_some();
    none(
        "INSERT",
        &[
            (or.is_some() || *ignore, "OR … or IGNORE", "ON CONFLICT DO NOTHING"),
            (*overwrite, "OVERWRITE", "DELETE the rows first"),
            // An UPSERT, in this AST.
            (*replace_into && on.is_some(), "UPSERT with ON CONFLICT", "UPSERT replaces: leave ON CONFLICT out"),
            (!assignments.is_empty(), "SET", "INSERT INTO t (a, b) VALUES (1, 2)"),
            (partitioned.is_some() || !after_columns.is_empty(), "PARTITION", LEAVE_OUT),
            (output.is_some(), "OUTPUT", "read the rows with SELECT"),
            (priority.is_some(), "with a priority", LEAVE_OUT),
            (insert_alias.is_some(), "with an alias of the rows", LEAVE_OUT),
            (settings.is_some() || format_clause.is_some(), "SETTINGS or FORMAT", "load files with COPY"),
            (is_multi, "into several tables", "insert into one at a time"),
        ],
    )?;
    match on {
        Some(OnInsert::OnConflict(OnConflict { action: OnConflictAction::DoUpdate(update), .. })) => {
            check_assignments(&update.assignments)
        }
        _ => Ok(()),
    }
}

fn check_update(update: &Update) -> ClauseResult {
    let Update {
        update_token: _,
        optimizer_hints: _,
        table: _,
        assignments,
        from: _,
        selection: _,
        returning: _,
        output,
        or,
        order_by,
        limit,
    } = update;
    none(
        "UPDATE",
        &[
            (limit.is_some(), "LIMIT", ONE_BY_KEY),
            (!order_by.is_empty(), "ORDER BY", ONE_BY_KEY),
            (output.is_some(), "OUTPUT", "read the rows with SELECT"),
            (or.is_some(), "OR …", LEAVE_OUT),
        ],
    )?;
    check_assignments(assignments)
}

/// Each column is given one value.
fn check_assignments(assignments: &[Assignment]) -> ClauseResult {
    if assignments.len() < 2 {
        return Ok(());
    }
    let mut seen = HashSet::with_capacity(assignments.len());
    for Assignment { target, value: _ } in assignments {
        let columns = match target {
            AssignmentTarget::ColumnName(column) => std::slice::from_ref(column),
            AssignmentTarget::Tuple(columns) => columns,
        };
        for column in columns {
            let Some(ident) = column.0.last().and_then(|part| part.as_ident()) else { continue };
            if let Some(twice) = seen.replace(fold(ident)) {
                let message = format!("multiple assignments to same column \"{twice}\"");
                return Err(ParseError::Syntax(ParserError::ParserError(message)));
            }
        }
    }
    Ok(())
}

fn check_delete(delete: &Delete) -> ClauseResult {
    let Delete {
        delete_token: _,
        optimizer_hints: _,
        tables,
        from,
        using: _,
        selection: _,
        returning: _,
        output,
        order_by,
        limit,
    } = delete;
    none(
        "DELETE",
        &[
            (limit.is_some(), "LIMIT", ONE_BY_KEY),
            (!order_by.is_empty(), "ORDER BY", ONE_BY_KEY),
            (!tables.is_empty(), "with tables before FROM", "DELETE FROM t WHERE …"),
            (matches!(from, FromTable::WithoutKeyword(_)), "without FROM", "DELETE FROM t WHERE …"),
            (output.is_some(), "OUTPUT", "read the rows with SELECT"),
        ],
    )
}

fn check_merge(merge: &Merge) -> ClauseResult {
    let Merge { merge_token: _, optimizer_hints: _, into: _, table: _, source: _, on: _, clauses, output } = merge;
    none("MERGE", &[(output.is_some(), "OUTPUT or RETURNING", "read the rows with SELECT")])?;
    for MergeClause { when_token: _, clause_kind, predicate: _, action } in clauses {
        let is_by = matches!(clause_kind, MergeClauseKind::NotMatchedBySource | MergeClauseKind::NotMatchedByTarget);
        let has_where = match action {
            MergeAction::Update(MergeUpdateExpr {
                update_token: _,
                assignments,
                update_predicate,
                delete_predicate,
            }) => {
                check_assignments(assignments)?;
                update_predicate.is_some() || delete_predicate.is_some()
            }
            MergeAction::Insert(MergeInsertExpr {
                insert_token: _,
                columns: _,
                kind_token: _,
                kind: _,
                insert_predicate,
            }) => insert_predicate.is_some(),
            MergeAction::Delete { delete_token: _ } => false,
        };
        none(
            "MERGE",
            &[
                (is_by, "WHEN NOT MATCHED BY", "a DELETE of its own, WHERE NOT EXISTS"),
                (has_where, "WHERE behind an action", "WHEN MATCHED AND condition THEN"),
            ],
        )?;
    }
    Ok(())
}

fn check_query(query: &Query) -> ClauseResult {
    let Query { with, body, order_by, limit_clause, fetch, locks, for_clause, settings, format_clause, pipe_operators } =
        query;
    none(
        "SELECT",
        &[
            (!locks.is_empty(), "FOR UPDATE or FOR SHARE", "lock rows by a SELECT of its own"),
            (for_clause.is_some(), "FOR XML or JSON", LEAVE_OUT),
            (settings.is_some(), "SETTINGS", "SET name = value"),
            (format_clause.is_some(), "FORMAT", LEAVE_OUT),
            (!pipe_operators.is_empty(), "|>", LEAVE_OUT),
        ],
    )?;
    if let Some(With { with_token: _, recursive: _, cte_tables }) = with {
        if cte_tables.len() > MAX_QUERIES {
            return Err(ParseError::TooLarge(Limit::Queries));
        }
        for Cte { alias, query: _, from, materialized: _, closing_paren_token: _ } in cte_tables {
            none("WITH", &[(from.is_some(), "FROM", LEAVE_OUT)])?;
            check_alias(Some(alias))?;
        }
    }
    check_set_expr(body)?;
    if let Some(OrderBy { kind, interpolate }) = order_by {
        none("ORDER BY", &[(interpolate.is_some(), "INTERPOLATE", LEAVE_OUT)])?;
        match kind {
            OrderByKind::All(_) => {}
            OrderByKind::Expressions(by) => check_order(by)?,
        }
    }
    match limit_clause {
        Some(LimitClause::LimitOffset { limit, offset: _, limit_by }) => none(
            "LIMIT",
            &[
                (!limit_by.is_empty(), "BY", "use row_number() OVER (PARTITION BY …)"),
                (limit.is_some() && fetch.is_some(), "with FETCH", "use one of them"),
            ],
        )?,
        Some(LimitClause::OffsetCommaLimit { offset: _, limit: _ }) => {
            none("LIMIT", &[(true, "offset, count", "LIMIT count OFFSET offset")])?
        }
        None => {}
    }
    match fetch {
        Some(Fetch { with_ties: true, .. }) if order_by.is_none() => {
            Err(wrong("WITH TIES cannot be specified without ORDER BY clause"))
        }
        Some(Fetch { with_ties: _, percent, quantity: _ }) => {
            none("FETCH FIRST", &[(*percent, "PERCENT", "count the rows first")])
        }
        None => Ok(()),
    }
}

pub(super) fn wrong(message: &str) -> ParseError {
    ParseError::Syntax(ParserError::ParserError(message.to_owned()))
}

/// Checks a chain of UNION and its kin without going down it.
fn check_set_expr(body: &SetExpr) -> ClauseResult {
    let (mut waiting, mut n_queries, mut n_others) = (vec![body], 0, 0);
    while let Some(body) = waiting.pop() {
        n_queries += 1;
        n_others += usize::from(matches!(body, SetExpr::SetOperation { op, .. } if *op != SetOperator::Union));
        // Chains of UNION are balanced afterwards, the others are as deep as they are long.
        at_most(n_queries, MAX_QUERIES, Limit::Queries)?;
        at_most(n_others, MAX_CHAIN, Limit::Chain)?;
        match body {
            SetExpr::SetOperation { left, op: _, set_quantifier: _, right } => {
                waiting.extend([&**left, &**right]);
            }
            // Visited by themselves.
            SetExpr::Select(_) | SetExpr::Query(_) | SetExpr::Table(_) => {}
            SetExpr::Values(Values { explicit_row, value_keyword, rows: _ }) => {
                none("VALUES", &[(*explicit_row || *value_keyword, "ROW", "VALUES (1, 2), (3, 4)")])?
            }
            SetExpr::Merge(_) => none("WITH", &[(true, "MERGE", "put the query behind USING")])?,
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) => none(
                "WITH",
                &[(true, "that changes rows and is not at the top level", "put it before the statement that is sent")],
            )?,
        }
    }
    Ok(())
}

fn check_select(select: &Select) -> ClauseResult {
    let Select {
        select_token: _,
        optimizer_hints: _,
        distinct,
        select_modifiers,
        top,
        top_before_distinct: _,
        // Its wildcards' options are the planner's.
        projection,
        exclude,
        into,
        from,
        lateral_views,
        prewhere,
        selection: _,
        connect_by,
        group_by,
        cluster_by,
        distribute_by,
        sort_by,
        having: _,
        named_window,
        qualify: _,
        window_before_qualify: _,
        value_table_mode,
        flavor,
    } = select;
    let grouping = match group_by {
        GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers) => !modifiers.is_empty(),
    };
    none(
        "SELECT",
        &[
            (into.is_some(), "INTO within a statement", "INTO is of the first SELECT, or CREATE TABLE … AS"),
            (select_modifiers.is_some(), "with modifiers of MySQL", LEAVE_OUT),
            (top.is_some(), "TOP", "LIMIT n"),
            (exclude.is_some(), "EXCLUDE", "name the columns"),
            (!lateral_views.is_empty(), "LATERAL VIEW", "CROSS JOIN LATERAL"),
            (prewhere.is_some(), "PREWHERE", "WHERE"),
            (!connect_by.is_empty(), "CONNECT BY", "WITH RECURSIVE"),
            (grouping, "GROUP BY … WITH", "GROUP BY ROLLUP (…), CUBE (…) or GROUPING SETS (…)"),
            (!cluster_by.is_empty() || !distribute_by.is_empty() || !sort_by.is_empty(), "CLUSTER BY", "ORDER BY"),
            (value_table_mode.is_some(), "AS STRUCT or VALUE", LEAVE_OUT),
            (!matches!(flavor, SelectFlavor::Standard), "after FROM", "SELECT … FROM …"),
        ],
    )?;
    at_most(projection.len(), MAX_SELECTED, Limit::Selected)?;
    let n_computed = projection.iter().filter(|item| is_computed(item)).count();
    at_most(n_computed, MAX_COMPUTED, Limit::Computed)?;
    if let Some(Distinct::On(keys)) = distinct {
        at_most(keys.len(), MAX_KEYS, Limit::Keys)?;
    }
    if let GroupByExpr::Expressions(groups, _) = group_by {
        at_most(groups.iter().map(written_keys).sum(), MAX_KEYS, Limit::Keys)?;
        let n_groupings = groups.iter().fold(1, |n: usize, group| n.saturating_mul(groupings(group)));
        at_most(n_groupings, MAX_GROUPINGS, Limit::Groupings)?;
    }
    for NamedWindowDefinition(_, window) in named_window {
        if let NamedWindowExpr::WindowSpec(spec) = window {
            check_window(spec)?;
        }
    }
    let n_tables = from.iter().map(|from| 1 + from.joins.len()).sum::<usize>();
    at_most(n_tables, MAX_QUERIES, Limit::Queries)?;
    from.iter().try_for_each(check_joins)
}

/// How many groupings one entry of GROUP BY stands for.
fn groupings(group: &Expr) -> usize {
    match group {
        Expr::Cube(columns) => 1_usize.checked_shl(columns.len() as u32).filter(|n| *n > 0).unwrap_or(usize::MAX),
        Expr::Rollup(columns) => columns.len() + 1,
        Expr::GroupingSets(sets) => sets.len().max(1),
        _ => 1,
    }
}

/// How many keys are written in one entry of GROUP BY.
fn written_keys(group: &Expr) -> usize {
    match group {
        Expr::Cube(keys) | Expr::Rollup(keys) | Expr::GroupingSets(keys) => keys.iter().map(Vec::len).sum(),
        _ => 1,
    }
}

fn check_joins(from: &TableWithJoins) -> ClauseResult {
    let TableWithJoins { relation: _, joins } = from;
    for Join { relation: _, global, join_operator: _ } in joins {
        none("JOIN", &[(*global, "GLOBAL", LEAVE_OUT)])?;
    }
    Ok(())
}

fn check_table_factor(factor: &TableFactor) -> ClauseResult {
    const SAMPLE: &str = "use WHERE random() < 0.01";
    const ORDINALITY: &str = "use row_number() OVER ()";
    match factor {
        TableFactor::Table {
            name: _,
            alias,
            args,
            with_hints,
            version,
            with_ordinality,
            partitions,
            json_path,
            sample,
            index_hints,
        } => {
            let settings = args.as_ref().is_some_and(|TableFunctionArgs { args: _, settings }| settings.is_some());
            none(
                "FROM",
                &[
                    (sample.is_some(), "TABLESAMPLE", SAMPLE),
                    (*with_ordinality && args.is_none(), "WITH ORDINALITY of a table", ORDINALITY),
                    (version.is_some(), "FOR … AS OF", "SET tarn.as_of_version or tarn.as_of_time"),
                    (!with_hints.is_empty() || !index_hints.is_empty(), "with hints", LEAVE_OUT),
                    (!partitions.is_empty(), "PARTITION", "WHERE"),
                    (json_path.is_some() || settings, "with a path or SETTINGS", LEAVE_OUT),
                ],
            )?;
            if args.is_some() { check_function_alias(alias.as_ref()) } else { check_alias(alias.as_ref()) }
        }
        TableFactor::Derived { lateral: _, subquery: _, alias, sample } => {
            none("FROM", &[(sample.is_some(), "TABLESAMPLE", SAMPLE)])?;
            check_alias(alias.as_ref())
        }
        TableFactor::TableFunction { expr: _, alias } => check_alias(alias.as_ref()),
        // Whether its rows have numbers is for whoever knows it.
        TableFactor::Function { lateral: _, name: _, args: _, with_ordinality: _, alias } => {
            check_function_alias(alias.as_ref())
        }
        TableFactor::UNNEST { alias, array_exprs: _, with_offset, with_offset_alias, with_ordinality: _ } => {
            let offset = *with_offset || with_offset_alias.is_some();
            none("FROM unnest", &[(offset, "WITH OFFSET", "WITH ORDINALITY, which counts from 1")])?;
            check_alias(alias.as_ref())
        }
        TableFactor::NestedJoin { table_with_joins, alias } => {
            if table_with_joins.joins.len() > MAX_QUERIES {
                return Err(ParseError::TooLarge(Limit::Queries));
            }
            check_joins(table_with_joins)?;
            check_alias(alias.as_ref())
        }
        TableFactor::JsonTable { .. }
        | TableFactor::OpenJsonTable { .. }
        | TableFactor::Pivot { .. }
        | TableFactor::Unpivot { .. }
        | TableFactor::MatchRecognize { .. }
        | TableFactor::XmlTable { .. }
        | TableFactor::SemanticView { .. } => {
            none("FROM", &[(true, "a table made of JSON, XML, a pivot or a pattern", "use joins, CASE and aggregates")])
        }
    }
}

fn check_alias(alias: Option<&TableAlias>) -> ClauseResult {
    let Some(TableAlias { explicit: _, name: _, columns, at }) = alias else { return Ok(()) };
    none(
        "an alias",
        &[
            (at.is_some(), "AT", LEAVE_OUT),
            (columns.iter().any(|column| column.data_type.is_some()), "with types of columns", "cast the columns"),
        ],
    )
}

/// Types of columns are for whoever knows the function.
fn check_function_alias(alias: Option<&TableAlias>) -> ClauseResult {
    none("an alias", &[(alias.is_some_and(|alias| alias.at.is_some()), "AT", LEAVE_OUT)])
}

/// Whether a column is more than a name.
fn is_computed(item: &SelectItem) -> bool {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
            !matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
        }
        SelectItem::ExprWithAliases { .. } => true,
        SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => false,
    }
}

fn at_most(n: usize, most: usize, limit: Limit) -> ClauseResult {
    if n > most { Err(ParseError::TooLarge(limit)) } else { Ok(()) }
}

/// The lists of a call; what is in its arguments is visited by itself.
fn check_function(function: &Function) -> ClauseResult {
    if let Some(WindowType::WindowSpec(spec)) = &function.over {
        check_window(spec)?;
    }
    check_order(&function.within_group)?;
    let FunctionArguments::List(list) = &function.args else { return Ok(()) };
    list.clauses.iter().try_for_each(|clause| match clause {
        FunctionArgumentClause::OrderBy(by) => check_order(by),
        _ => Ok(()),
    })
}

fn check_window(spec: &WindowSpec) -> ClauseResult {
    let WindowSpec { window_name: _, partition_by, order_by, window_frame: _ } = spec;
    at_most(partition_by.len(), MAX_KEYS, Limit::Keys)?;
    check_order(order_by)
}

fn check_order(by: &[OrderByExpr]) -> ClauseResult {
    at_most(by.len(), MAX_KEYS, Limit::Keys)?;
    by.iter().try_for_each(|OrderByExpr { expr: _, options: _, with_fill }| {
        none("ORDER BY", &[(with_fill.is_some(), "WITH FILL", LEAVE_OUT)])
    })
}

/// Says in one way what may be said in two, so that nobody behind overlooks one.
struct StatementNormalizer;

impl VisitorMut for StatementNormalizer {
    type Break = ParseError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<ParseError> {
        // FETCH FIRST n ROWS ONLY is LIMIT n; without n it is one row.
        if let Some(Fetch { with_ties, percent: _, quantity }) = query.fetch.take() {
            let one = || Expr::Value(Value::Number("1".to_owned(), false).with_empty_span());
            let count = quantity.unwrap_or_else(one);
            let count = Some(if with_ties { call(WITH_TIES, vec![count]) } else { count });
            match &mut query.limit_clause {
                Some(LimitClause::LimitOffset { limit, .. }) => *limit = count,
                other => *other = Some(LimitClause::LimitOffset { limit: count, offset: None, limit_by: vec![] }),
            }
        }
        balance(&mut query.body);
        ControlFlow::Continue(())
    }

    fn pre_visit_statement(&mut self, statement: &mut Statement) -> ControlFlow<ParseError> {
        if let Statement::Explain { analyze, verbose, options, format, .. } = statement
            && let Some(given) = options.take()
        {
            match explain::read(given, analyze, verbose) {
                Ok(None) => {}
                Ok(Some(shown)) => {
                    *format = Some(AnalyzeFormatKind::Assignment(AnalyzeFormat::JSON));
                    *options = Some(shown);
                }
                Err(error) => return ControlFlow::Break(error),
            }
        }
        ControlFlow::Continue(())
    }
}

/// A chain of UNION, or of UNION ALL, as a balanced tree: both are associative, and the first query names the columns.
fn balance(body: &mut SetExpr) {
    let SetExpr::SetOperation { op: SetOperator::Union, set_quantifier: quantifier, .. } = &*body else { return };
    let quantifier = *quantifier;
    let empty = || SetExpr::Values(Values { explicit_row: false, value_keyword: false, rows: vec![] });
    let mut rest = std::mem::replace(body, empty());
    let mut queries = Vec::new();
    loop {
        match rest {
            SetExpr::SetOperation { left, op: SetOperator::Union, set_quantifier, right }
                if set_quantifier == quantifier =>
            {
                queries.push(*right);
                rest = *left;
            }
            first => {
                queries.push(first);
                break;
            }
        }
    }
    queries.reverse();
    while queries.len() > 1 {
        let mut waiting = queries.into_iter();
        let mut joined = Vec::with_capacity(waiting.len().div_ceil(2));
        while let Some(left) = waiting.next() {
            joined.push(match waiting.next() {
                None => left,
                Some(right) => SetExpr::SetOperation {
                    left: Box::new(left),
                    op: SetOperator::Union,
                    set_quantifier: quantifier,
                    right: Box::new(right),
                },
            });
        }
        queries = joined;
    }
    if let Some(only) = queries.pop() {
        *body = only;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::parse_with;

    #[test]
    fn what_is_checked_without_a_visitor_is_checked_alike() {
        let is_direct = |sql: &str| {
            // As it is parsed, before anything of it is checked.
            let parsed = parse_with(sql, |parser| Ok::<_, ParseError>(parser.parse_statement()?)).unwrap();
            let shown = |checked: Result<ClauseChecker, ParseError>| format!("{checked:?}");
            assert_eq!(shown(checked(&parsed)), shown(visited(&parsed)), "{sql}");
            written_rows(&parsed).is_some() || lookup(&parsed).is_some()
        };
        for sql in [
            "INSERT INTO t VALUES (1, 'a', NULL, -1.5, true), (2, 'b', $1, +3, false)",
            "INSERT INTO s.t (a, b) VALUES (1, 2)",
            "SELECT a FROM t WHERE k = 1",
            "SELECT a, \"B\", * FROM s.t AS x WHERE k = $1 AND 'b' = j AND i = i",
            "SELECT * FROM t WHERE k = 1 FOR UPDATE",
            "SELECT a FROM t TABLESAMPLE BERNOULLI (10) WHERE k = 1",
            "SELECT TOP 1 a FROM t WHERE k = 1",
            "SELECT a INTO u FROM t WHERE k = 1",
        ] {
            assert!(is_direct(sql), "{sql}");
        }
        for sql in [
            "INSERT INTO t VALUES (1, (SELECT 2))",
            "INSERT INTO t VALUES (1, lower('A'))",
            "INSERT INTO t VALUES (1) RETURNING *",
            "INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING",
            "INSERT INTO t SELECT 1",
            "SELECT a FROM t",
            "SELECT a FROM t WHERE k > 1",
            "SELECT a FROM t WHERE k = 1 OR j = 2",
            "SELECT a FROM t WHERE k = (SELECT 1)",
            "SELECT a FROM t WHERE t.k = 1",
            "SELECT a + 1 FROM t WHERE k = 1",
            "SELECT a AS b FROM t WHERE k = 1",
            "SELECT t.* FROM t WHERE k = 1",
            "SELECT DISTINCT a FROM t WHERE k = 1",
            "SELECT a FROM t WHERE k = 1 GROUP BY a",
            "SELECT a FROM t WHERE k = 1 HAVING (SELECT true)",
            "SELECT a FROM t WHERE k = 1 ORDER BY a",
            "SELECT a FROM t WHERE k = 1 LIMIT (SELECT 1)",
            "SELECT a FROM t WHERE k = 1 WINDOW w AS (ORDER BY a)",
            "SELECT a FROM f(1) WHERE k = 1",
            "SELECT a FROM t, u WHERE k = 1",
            "SELECT a FROM t JOIN u USING (k) WHERE k = 1",
            "SELECT a FROM (SELECT 1 AS a, 1 AS k) t WHERE k = 1",
            "WITH t AS (SELECT 1 AS k) SELECT k FROM t WHERE k = 1",
        ] {
            assert!(!is_direct(sql), "{sql}");
        }
    }
}
