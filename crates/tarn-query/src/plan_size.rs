//! How large is a plan? Each of its steps knows its columns, so a thousand joins of three columns hold a million and a
//! half of them, and the planner keeps several copies at once: 1.1 GB were seen. Ten thousand windows took 2.9 GB.
//!
//! So columns are counted before there is a plan, by the tables of each FROM and the windows of each SELECT
//! ([`reserve_columns`]), and a statement takes of the memory of queries what its plan does, for as long as it is
//! planned and run ([`PlanMemory`]).

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, TableReference};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::sql::sqlparser::ast::{
    self, ObjectName, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, Statement as Ast,
    TableFactor, Visitor,
};

use crate::keyed::object_name;
use crate::walk::walk;
use crate::{Error, Result};

/// A name of WITH is a copy of its query's steps wherever it is mentioned. The planner takes some milliseconds for a
/// thousand.
const MAX_STEPS: usize = 20_000;

/// What the planner takes for each column of each step: measured with chains of 100 to 1,000 joins.
const COLUMN_BYTES: usize = 1 << 10;

/// And for each part of an expression but literals, of which a text of 16 MiB has few enough: half a kilobyte to three.
const PART_BYTES: usize = 512;

/// Names of columns are counted by the column up to here.
const LONG_NAME_BYTES: usize = 1 << 10;

/// How often the planner has the name of a column at once: measured with constants of 5 MB, which are in the names of
/// what is computed of them.
const NAME_COPIES: usize = 32;

/// And EXPLAIN, which keeps the plan after each rule as a text.
const EXPLAINED_COPIES: usize = 256;

/// Of that, what is left when the planner is done is one part of so many: the steps that run know few columns.
const PLANNED_SHARE: usize = 8;

/// About as many has a table of the system.
const SYSTEM_COLUMNS: usize = 32;

/// Bytes of each plan that are not reserved, so that usual statements are never refused because others fill the memory.
const FREE_BYTES: usize = 8 << 20;

/// What a plan has, all steps together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PlanSize {
    n_steps: usize,
    n_columns: usize,
    /// Of expressions.
    n_parts: usize,
    /// Of the names of columns that are longer than a usual one: a column is called as its expression is written,
    /// constants included.
    name_bytes: usize,
    is_explained: bool,
}

impl PlanSize {
    /// Errors: it has too many steps.
    pub(crate) fn of(plan: &LogicalPlan) -> Result<PlanSize> {
        let mut size = PlanSize::default();
        size.add(plan)?;
        Ok(size)
    }

    fn add(&mut self, plan: &LogicalPlan) -> Result<()> {
        self.is_explained |= matches!(plan, LogicalPlan::Explain(_) | LogicalPlan::Analyze(_));
        let mut waiting = vec![plan];
        while let Some(plan) = waiting.pop() {
            self.n_steps += 1;
            if self.n_steps > MAX_STEPS {
                return Err(Error::TooLarge {
                    limit: format!("the plan has more than {MAX_STEPS} steps"),
                    remedy: "put parts of it that are used several times into a table",
                });
            }
            // A filter or a sort has the very columns of what is below it.
            let has_own =
                |schema: &Arc<DFSchema>| !plan.inputs().iter().any(|input| Arc::ptr_eq(input.schema(), schema));
            if has_own(plan.schema()) {
                self.n_columns += plan.schema().fields().len();
                let lengths = plan.schema().fields().iter().map(|field| field.name().len());
                self.name_bytes += lengths.filter(|length| *length > LONG_NAME_BYTES).sum::<usize>();
            }
            let mut subqueries = Vec::new();
            plan.apply_expressions(|expr| {
                expr.apply(|expr| {
                    self.n_parts += usize::from(!matches!(expr, Expr::Literal(..)));
                    match expr {
                        Expr::ScalarSubquery(subquery) => subqueries.push(Arc::clone(&subquery.subquery)),
                        Expr::InSubquery(within) => subqueries.push(Arc::clone(&within.subquery.subquery)),
                        Expr::Exists(exists) => subqueries.push(Arc::clone(&exists.subquery.subquery)),
                        Expr::SetComparison(compared) => subqueries.push(Arc::clone(&compared.subquery.subquery)),
                        _ => {}
                    }
                    Ok(TreeNodeRecursion::Continue)
                })
            })?;
            for subquery in subqueries {
                self.add(&subquery)?;
            }
            waiting.extend(plan.inputs());
        }
        Ok(())
    }

    /// What is counted of it.
    fn bytes(self) -> usize {
        let of_columns = self.n_columns.saturating_mul(COLUMN_BYTES);
        let copies = if self.is_explained { EXPLAINED_COPIES } else { NAME_COPIES };
        let of_names = self.name_bytes.saturating_mul(copies);
        let all = of_columns.saturating_add(of_names).saturating_add(self.n_parts.saturating_mul(PART_BYTES));
        all.saturating_sub(FREE_BYTES)
    }
}

/// Memory of a statement's plan; it is given back with the last copy of the statement's configuration.
#[derive(Debug, Clone, Default)]
pub(crate) struct PlanMemory(Option<Arc<MemoryReservation>>);

impl PlanMemory {
    /// Errors: the plan is too large in itself, or for the memory of queries as it is now.
    pub(crate) fn of(plan: &LogicalPlan, pool: &Arc<dyn MemoryPool>) -> Result<PlanMemory> {
        let reservation = reserve("the plan", PlanSize::of(plan)?, pool)?;
        Ok(PlanMemory(reservation.map(Arc::new)))
    }

    /// The statement is planned.
    pub(crate) fn end(&self) {
        if let Some(held) = &self.0 {
            held.shrink(held.size() - held.size() / PLANNED_SHARE);
        }
    }
}

/// Reserves what the columns of joins and windows take, before there is a plan of them.
///
/// Errors: all memory of queries does not hold them, or what is left of it; a table that cannot be looked up.
pub(crate) async fn reserve_columns(state: &SessionState, statement: &Ast) -> Result<Option<MemoryReservation>> {
    let mut steps = Steps::default();
    if steps.visit(statement) == 0 {
        return Ok(None);
    }
    for (name, relation) in std::mem::take(&mut steps.relations) {
        if let Some(n_columns) = columns_of(state, &relation).await? {
            steps.widths.insert(name, n_columns);
        }
    }
    let size = PlanSize { n_columns: steps.visit(statement), ..PlanSize::default() };
    reserve("joins and windows", size, &state.runtime_env().memory_pool)
}

fn reserve(of: &str, size: PlanSize, pool: &Arc<dyn MemoryPool>) -> Result<Option<MemoryReservation>> {
    let bytes = size.bytes();
    if bytes == 0 {
        return Ok(None);
    }
    if let MemoryLimit::Finite(limit) = pool.memory_limit()
        && bytes > limit
    {
        let limit = format!(
            "the plan would take {bytes} bytes, the memory of all queries is {limit}: there are too many joins, windows or \
             expressions, the tables have too many columns for them, or constants are too long"
        );
        return Err(Error::TooLarge {
            limit,
            remedy: "name the columns that are needed in subqueries of FROM; bind long constants as parameters",
        });
    }
    let reservation = MemoryConsumer::new(of).register(pool);
    reservation.try_grow(bytes)?;
    Ok(Some(reservation))
}

/// None: it is no table, but perhaps a name of WITH.
async fn columns_of(state: &SessionState, relation: &ObjectName) -> Result<Option<usize>> {
    // Tables of the system are made with all of their rows when they are looked up.
    let Some(table) = object_name(relation) else { return Ok(Some(SYSTEM_COLUMNS)) };
    let Ok(tables) = state.schema_for_ref(TableReference::bare(table.as_str())) else { return Ok(None) };
    Ok(tables.table(&table).await?.map(|table| table.schema().fields().len()))
}

/// How many columns do the steps of all joins and windows of a text have? What is below a subquery's projection counts
/// once for each table beside it.
#[derive(Default)]
struct Steps {
    /// Columns of what has a name, in small letters: tables, and queries of WITH that are around or beside.
    widths: HashMap<String, usize>,
    /// What is named in a FROM.
    relations: HashMap<String, ObjectName>,
    selects: Vec<FromClause>,
    queries: Vec<QueryAround>,
    /// The next query is a table of a FROM, or the next relation is one, called so.
    next: Option<PendingFactor>,
    n_columns: usize,
}

/// A table factor whose columns are not known yet.
#[derive(Default)]
struct PendingFactor {
    is_query: bool,
    alias: Option<String>,
}

/// One query around.
#[derive(Default)]
struct QueryAround {
    /// If it is a table of a FROM: what it is called there.
    derived: Option<PendingFactor>,
    /// The SELECTs around it.
    n_selects: usize,
    n_columns: usize,
    /// Names that its WITH defines and that were not read yet, the next one last.
    names: Vec<String>,
    /// What those that were read meant outside of it.
    hidden: Vec<(String, Option<usize>)>,
}

/// Of one SELECT.
#[derive(Default)]
struct FromClause {
    n_tables: usize,
    n_columns: usize,
    widths: HashMap<String, usize>,
    /// Each is a step of its own, with the columns of those before; by how they are written.
    windows: HashSet<String>,
}

impl Steps {
    /// Columns of all joins of the statement.
    fn visit(&mut self, statement: &Ast) -> usize {
        self.n_columns = 0;
        let _ = walk(statement, self);
        self.n_columns
    }

    fn add(&mut self, alias: Option<String>, n_columns: usize) {
        if let Some(from) = self.selects.last_mut() {
            from.n_tables += 1;
            from.n_columns = from.n_columns.saturating_add(n_columns);
            alias.map(|alias| from.widths.insert(alias, n_columns));
        }
    }

    /// What a name means, from now on; and what it meant before.
    fn define(&mut self, name: String, n_columns: Option<usize>) -> Option<usize> {
        match n_columns {
            Some(n_columns) => self.widths.insert(name, n_columns),
            None => self.widths.remove(&name),
        }
    }
}

impl Visitor for Steps {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let names = query.with.iter().flat_map(|with| with.cte_tables.iter().rev());
        let names = names.map(|cte| cte.alias.name.value.to_lowercase()).collect();
        let n_columns = match query.body.as_ref() {
            SetExpr::Values(values) => values.rows.first().map_or(0, |row| row.content.len()),
            _ => 0,
        };
        let derived = self.next.take().filter(|next| next.is_query);
        let n_selects = self.selects.len();
        self.queries.push(QueryAround { derived, n_selects, n_columns, names, hidden: vec![] });
        ControlFlow::Continue(())
    }

    /// The queries of a WITH come first, in order.
    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        let Some(done) = self.queries.pop() else { return ControlFlow::Continue(()) };
        for (name, outside) in done.hidden.into_iter().rev() {
            self.define(name, outside);
        }
        if let Some(derived) = done.derived {
            self.add(derived.alias, done.n_columns);
            return ControlFlow::Continue(());
        }
        // One of an expression gives no columns.
        let Some(around) = self.queries.last_mut().filter(|around| around.n_selects == done.n_selects) else {
            return ControlFlow::Continue(());
        };
        let Some(name) = around.names.pop() else {
            around.n_columns = done.n_columns.max(around.n_columns);
            return ControlFlow::Continue(());
        };
        let outside = self.define(name.clone(), Some(done.n_columns));
        if let Some(around) = self.queries.last_mut() {
            around.hidden.push((name, outside));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, _: &Select) -> ControlFlow<()> {
        self.selects.push(FromClause::default());
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        let Some(from) = self.selects.pop() else { return ControlFlow::Continue(()) };
        if from.n_tables > 1 {
            self.n_columns = self.n_columns.saturating_add(from.n_tables.saturating_mul(from.n_columns) / 2);
        }
        let n_windows = from.windows.len();
        if n_windows > 1 {
            let of_windows = n_windows.saturating_mul(from.n_columns.saturating_add(n_windows / 2));
            self.n_columns = self.n_columns.saturating_add(of_windows);
        }
        let of_item = |item: &SelectItem| match item {
            SelectItem::Wildcard(_) => from.n_columns,
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(of), _) => {
                last_name(of).and_then(|of| from.widths.get(&of).copied()).unwrap_or(from.n_columns)
            }
            _ => 1,
        };
        let n_columns = select.projection.iter().map(of_item).fold(0, usize::saturating_add);
        if let Some(around) = self.queries.last_mut() {
            around.n_columns = n_columns.max(around.n_columns);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        let called = |alias: &Option<ast::TableAlias>| alias.as_ref().map(|alias| alias.name.value.to_lowercase());
        match factor {
            TableFactor::Derived { alias, .. } => {
                self.next = Some(PendingFactor { is_query: true, alias: called(alias) })
            }
            TableFactor::Table { alias, .. } => {
                self.next = Some(PendingFactor { is_query: false, alias: called(alias) })
            }
            TableFactor::NestedJoin { .. } => {}
            TableFactor::UNNEST { alias, .. } | TableFactor::Function { alias, .. } => self.add(called(alias), 1),
            _ => self.add(None, 1),
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &ast::Expr) -> ControlFlow<()> {
        if let (ast::Expr::Function(ast::Function { over: Some(over), .. }), Some(from)) =
            (expr, self.selects.last_mut())
        {
            from.windows.insert(over.to_string());
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        let name = last_name(relation);
        let alias = self.next.take().and_then(|next| next.alias).or_else(|| name.clone());
        let n_columns = name.as_ref().and_then(|name| self.widths.get(name).copied());
        if let Some(name) = name {
            self.relations.entry(name).or_insert_with(|| relation.clone());
        }
        self.add(alias, n_columns.unwrap_or(1));
        ControlFlow::Continue(())
    }
}

fn last_name(of: &ObjectName) -> Option<String> {
    of.0.last().and_then(|part| part.as_ident()).map(|ident| ident.value.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser;

    fn joined(sql: &str, tables: &[(&str, usize)]) -> usize {
        let statement = parser::statements(sql).unwrap().pop().unwrap();
        let widths = tables.iter().map(|(name, n_columns)| ((*name).to_owned(), *n_columns)).collect();
        Steps { widths, ..Steps::default() }.visit(&statement)
    }

    #[test]
    fn each_step_of_a_chain_of_joins_has_the_columns_of_those_before() {
        let tables = &[("a", 10), ("wide", 1_000)];
        assert_eq!(joined("SELECT * FROM a", tables), 0);
        assert_eq!(joined("SELECT * FROM a JOIN A x USING (id)", tables), 20);
        assert_eq!(joined("SELECT * FROM a, wide, (a b CROSS JOIN a c)", tables), 4 * 1_030 / 2);
        assert_eq!(joined("SELECT * FROM a WHERE id IN (SELECT id FROM a b, a c)", tables), 20);
        // Chains of UNION are no joins.
        assert_eq!(joined("SELECT * FROM wide UNION SELECT * FROM wide UNION SELECT * FROM wide", tables), 0);
    }

    #[test]
    fn a_subquery_has_the_columns_that_it_names() {
        let tables = &[("wide", 1_000)];
        assert_eq!(joined("SELECT * FROM (SELECT x FROM wide) a, (SELECT x, y FROM wide) b", tables), 3);
        assert_eq!(joined("SELECT * FROM (SELECT *, * FROM wide) a, (VALUES (1, 2)) b", tables), 2_002);
        assert_eq!(
            joined("WITH a AS (SELECT * FROM wide), b AS (SELECT x FROM a) SELECT 1 FROM b, b c, a", tables),
            1_503
        );
        // What an expression asks gives no columns, and `a.*` gives those of `a`.
        let exists = "(SELECT x FROM wide w WHERE EXISTS (SELECT * FROM wide))";
        assert_eq!(joined(&format!("SELECT * FROM {exists} a, {exists} b"), tables), 2);
        assert_eq!(
            joined("SELECT 1 FROM (SELECT a.* FROM (VALUES (1, 2)) a, wide) b, (VALUES (1)) c", tables),
            1_002 + 3
        );
        // A name of WITH hides a table while its query is read.
        let hidden = "(WITH wide AS (SELECT x FROM wide) SELECT * FROM wide)";
        assert_eq!(joined(&format!("SELECT 1 FROM {hidden} a, {hidden} b"), tables), 2);
        assert_eq!(joined(&format!("SELECT 1 FROM {hidden} a, wide b"), tables), 1_001);
        assert_eq!(
            joined("SELECT 1 FROM ((SELECT * FROM wide) UNION ALL SELECT * FROM wide) a, unnest(x) b", tables),
            1_001
        );
    }

    #[test]
    fn each_window_has_the_columns_of_those_before() {
        let windows = |n: usize, by: fn(usize) -> usize| {
            let each: Vec<_> = (0..n).map(|idx| format!("sum(a) OVER (ORDER BY a + {})", by(idx))).collect();
            joined(&format!("SELECT {} FROM a", each.join(", ")), &[("a", 10)])
        };
        assert_eq!(windows(100, |idx| idx), 100 * (10 + 50));
        assert_eq!(windows(100, |idx| idx % 2), 2 * 11);
        assert_eq!(windows(100, |_| 0), 0);
    }

    #[test]
    fn a_usual_plan_is_free() {
        let size = PlanSize { n_steps: 1_000, n_columns: 4_096, n_parts: 8_192, ..PlanSize::default() };
        assert_eq!(size.bytes(), 0);
        assert_eq!(PlanSize { n_columns: 4_097, ..size }.bytes(), COLUMN_BYTES);
        assert_eq!(PlanSize { n_parts: 8_193, ..size }.bytes(), PART_BYTES);
        assert_eq!(PlanSize { name_bytes: 10, ..size }.bytes(), 10 * NAME_COPIES);
        assert_eq!(PlanSize { name_bytes: 10, is_explained: true, ..size }.bytes(), 10 * EXPLAINED_COPIES);
    }
}
