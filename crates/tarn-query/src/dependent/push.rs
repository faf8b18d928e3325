//! How is a subquery computed for many rows around it together? The values that it asks for, each combination once, are
//! joined to what it reads where it first asks for them, and every step above keeps them apart: grouped, ordered and
//! numbered by them too.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, NullEquality};
use datafusion::error::Result;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::expr::{AggregateFunction, WindowFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Distinct, DistinctOn, Expr, ExprFunctionExt, ExprSchemable, Filter, Join, JoinType, Limit,
    LogicalPlan, LogicalPlanBuilder, Operator, Projection, Sort, SortExpr, Subquery, SubqueryAlias, Union, Unnest,
    Values, Window, lit, when,
};
use datafusion::scalar::ScalarValue;

use super::free::{FreeColumn, each_subquery, free};

/// Names of this rule begin so.
const PREFIX: &str = "__dependent";

/// The combinations of values that a subquery asks for.
pub(super) struct Domain {
    /// One column a key, by its name.
    plan: LogicalPlan,
    pub(super) keys: Vec<OuterKey>,
    number: usize,
}

/// A column of the rows around a subquery, and what it is called in the subquery.
pub(super) struct OuterKey {
    pub(super) outer: Column,
    name: String,
}

impl Domain {
    /// Of the rows around. `None` if it asks for a value that nothing can be grouped by.
    pub(super) fn of(rows: &LogicalPlan, free: Vec<FreeColumn>, number: usize) -> Result<Option<Domain>> {
        if free
            .iter()
            .any(|free| matches!(free.field.data_type(), DataType::Null | DataType::Map(..) | DataType::Union(..)))
        {
            return Ok(None);
        }
        let mut keys = vec![];
        for (idx, free) in free.into_iter().enumerate() {
            keys.push(OuterKey { outer: free.column, name: format!("{PREFIX}_{number}_key{idx}") });
        }
        let columns: Vec<Expr> = keys.iter().map(|key| Expr::Column(key.outer.clone()).alias(&key.name)).collect();
        let plan = LogicalPlanBuilder::from(rows.clone()).project(columns)?.distinct()?.build()?;
        Ok(Some(Domain { plan, keys, number }))
    }

    /// Of which domain is such a name?
    pub(super) fn number_of(name: &str) -> Option<usize> {
        name.strip_prefix(PREFIX)?.strip_prefix('_')?.split('_').next()?.parse().ok()
    }

    /// A name that nothing else has.
    pub(super) fn name(&self, what: &str, idx: usize) -> String {
        format!("{PREFIX}_{}_{what}{idx}", self.number)
    }

    pub(super) fn has(&self, column: &Column) -> bool {
        self.keys.iter().any(|key| key.outer == *column)
    }

    /// The keys, as columns of what was pushed.
    fn columns(&self) -> impl Iterator<Item = Expr> + '_ {
        self.keys.iter().map(|key| Expr::Column(Column::new_unqualified(&key.name)))
    }

    /// What the keys are called where the rows around, or the domain, are beside them.
    pub(super) fn again(&self) -> Vec<Column> {
        (0..self.keys.len()).map(|idx| Column::new_unqualified(self.name("again", idx))).collect()
    }

    /// The keys under these names.
    pub(super) fn keys_again(&self) -> Vec<Expr> {
        self.columns().zip(self.again()).map(|(key, again)| key.alias(again.name())).collect()
    }

    /// The plan for each combination of keys, which are columns of it, in any place. `None` if a step cannot keep them
    /// apart.
    pub(super) fn push(&self, plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
        if !self.is_asked_by(plan)? {
            let beside = LogicalPlanBuilder::from(self.plan.clone()).cross_join(plan.clone())?;
            return beside.build().map(Some);
        }
        match plan {
            LogicalPlan::Projection(node) => self.projection(node),
            LogicalPlan::Filter(node) => self.filter(node),
            LogicalPlan::SubqueryAlias(node) => self.alias(node),
            LogicalPlan::Aggregate(node) if node.group_expr.is_empty() => self.only_row(node),
            LogicalPlan::Aggregate(node) => self.grouped(node),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let Some(input) = self.push(input)? else { return Ok(None) };
                Ok(Some(LogicalPlan::Distinct(Distinct::All(Arc::new(input)))))
            }
            LogicalPlan::Distinct(Distinct::On(node)) => self.first_of_each(node),
            // An order is asked for by a limit, which looks for it; rows without one have any.
            LogicalPlan::Sort(Sort { input, fetch: None, .. }) => self.push(input),
            LogicalPlan::Sort(sort) => self.limited(plan, 0, sort.fetch),
            LogicalPlan::Limit(limit) => self.limit(limit),
            LogicalPlan::Window(node) => self.window(node),
            LogicalPlan::Union(node) => self.union(node),
            LogicalPlan::Join(node) => self.join(node),
            LogicalPlan::Values(node) => self.values(node),
            LogicalPlan::Unnest(node) => self.unnest(node),
            LogicalPlan::Subquery(node) => self.push(&node.subquery),
            _ => Ok(None),
        }
    }

    fn is_asked_by(&self, plan: &LogicalPlan) -> Result<bool> {
        Ok(free(plan)?.iter().any(|free| self.has(&free.column)))
    }

    /// The expression, of columns. A subquery in it that asks for a key asks for the column of that.
    fn expr(&self, expr: Expr) -> Result<Option<Expr>> {
        let of_columns = expr.transform_up(|expr| match expr {
            Expr::OuterReferenceColumn(field, column) => Ok(match self.key(&column) {
                Some(key) => Transformed::yes(Expr::Column(key)),
                None => Transformed::no(Expr::OuterReferenceColumn(field, column)),
            }),
            expr => each_subquery(expr, |subquery| self.inside(subquery, &[])),
        })?;
        Ok(Some(of_columns.data))
    }

    /// What a column of the rows around is called where the keys are.
    fn key(&self, column: &Column) -> Option<Column> {
        let key = self.keys.iter().find(|key| key.outer == *column)?;
        Some(Column::new_unqualified(&key.name))
    }

    /// A subquery inside that asks for the columns of the keys. What is `nearer` to it, and has a column of a key's
    /// name, is what it means.
    fn inside(&self, subquery: Subquery, nearer: &[&DFSchema]) -> Result<Subquery> {
        let plan = Arc::unwrap_or_clone(subquery.subquery).transform_up(|node| {
            let own = merge_schema(&node.inputs());
            let names = NamePreserver::new(&node);
            let renamed = node.map_expressions(|expr| {
                let name = names.save(&expr);
                let renamed = expr.transform_up(|expr| match expr {
                    Expr::OuterReferenceColumn(field, column) => {
                        let is_nearer = nearer.iter().any(|schema| schema.has_column(&column));
                        Ok(match self.key(&column).filter(|_| !is_nearer) {
                            Some(key) => Transformed::yes(Expr::OuterReferenceColumn(field, key)),
                            None => Transformed::no(Expr::OuterReferenceColumn(field, column)),
                        })
                    }
                    expr => {
                        let nearer: Vec<&DFSchema> = nearer.iter().copied().chain([&own]).collect();
                        each_subquery(expr, |subquery| self.inside(subquery, &nearer))
                    }
                })?;
                Ok(renamed.update_data(|expr| name.restore(expr)))
            })?;
            renamed.map_data(LogicalPlan::recompute_schema)
        })?;
        let outer_ref_columns = plan.data.all_out_ref_exprs();
        Ok(Subquery { subquery: Arc::new(plan.data), outer_ref_columns, ..subquery })
    }

    /// Expressions under the names that they had.
    fn exprs(&self, exprs: &[Expr]) -> Result<Option<Vec<Expr>>> {
        let names = NamePreserver::new_for_projection();
        exprs
            .iter()
            .map(|expr| Ok(self.expr(expr.clone())?.map(|of_columns| names.save(expr).restore(of_columns))))
            .collect()
    }

    fn projection(&self, node: &Projection) -> Result<Option<LogicalPlan>> {
        let (Some(input), Some(mut exprs)) = (self.push(&node.input)?, self.exprs(&node.expr)?) else {
            return Ok(None);
        };
        exprs.extend(self.columns());
        Ok(Some(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input))?)))
    }

    fn filter(&self, node: &Filter) -> Result<Option<LogicalPlan>> {
        let (Some(input), Some(predicate)) = (self.push(&node.input)?, self.expr(node.predicate.clone())?) else {
            return Ok(None);
        };
        Ok(Some(LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input))?)))
    }

    /// The keys keep their names.
    fn alias(&self, node: &SubqueryAlias) -> Result<Option<LogicalPlan>> {
        let Some(input) = self.push(&node.input)? else { return Ok(None) };
        let own = node.input.schema().columns().into_iter().zip(node.schema.columns());
        let mut columns: Vec<Expr> =
            own.map(|(inside, outside)| Expr::Column(inside).alias_qualified(outside.relation, outside.name)).collect();
        columns.extend(self.columns());
        Ok(Some(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(input))?)))
    }

    /// The items of each list, beside the keys of its row.
    fn unnest(&self, node: &Unnest) -> Result<Option<LogicalPlan>> {
        let Some(input) = self.push(&node.input)? else { return Ok(None) };
        let builder = LogicalPlanBuilder::from(input);
        builder.unnest_columns_with_options(node.exec_columns.clone(), node.options.clone())?.build().map(Some)
    }

    /// Groups of each combination of keys; of none that has no rows.
    pub(super) fn grouped(&self, node: &Aggregate) -> Result<Option<LogicalPlan>> {
        if node.group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_))) {
            return Ok(None);
        }
        let Some(input) = self.push(&node.input)? else { return Ok(None) };
        let (Some(mut by), Some(aggregates)) = (self.exprs(&node.group_expr)?, self.exprs(&node.aggr_expr)?) else {
            return Ok(None);
        };
        by.extend(self.columns());
        Ok(Some(LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(input), by, aggregates)?)))
    }

    /// An aggregate without groups has a row of every combination, of those without rows, too.
    fn only_row(&self, node: &Aggregate) -> Result<Option<LogicalPlan>> {
        let Some(grouped) = self.grouped(node)? else { return Ok(None) };
        let columns = node.schema.columns();
        let mut there = self.keys_again();
        there.extend(
            columns.iter().enumerate().map(|(idx, column)| Expr::Column(column.clone()).alias(self.name("of", idx))),
        );
        let there = LogicalPlan::Projection(Projection::try_new(there, Arc::new(grouped))?);
        let by = (self.keys.iter().map(|key| Column::new_unqualified(&key.name)).collect(), self.again());
        let joined = LogicalPlanBuilder::from(self.plan.clone())
            .join_detailed(there, JoinType::Left, by, None, NullEquality::NullEqualsNull)?
            .build()?;
        let mut exprs = vec![];
        for (idx, column) in columns.into_iter().enumerate() {
            let own = Expr::Column(Column::new_unqualified(self.name("of", idx)));
            let value = match default_of(node, idx)? {
                Some(default) => when(own.clone().is_null(), default).otherwise(own)?,
                None => own,
            };
            exprs.push(value.alias_qualified(column.relation, column.name));
        }
        exprs.extend(self.columns());
        Ok(Some(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(joined))?)))
    }

    fn limit(&self, node: &Limit) -> Result<Option<LogicalPlan>> {
        let number = |expr: &Option<Box<Expr>>| match expr.as_deref() {
            None => Some(None),
            Some(Expr::Literal(ScalarValue::Int64(count), _)) => {
                Some(count.and_then(|count| usize::try_from(count).ok()))
            }
            Some(_) => None,
        };
        match (number(&node.skip), number(&node.fetch)) {
            (Some(skip), Some(fetch)) => self.limited(&node.input, skip.unwrap_or(0), fetch),
            _ => Ok(None),
        }
    }

    /// Rows are numbered for each combination, in the order of a sort below.
    fn limited(&self, input: &LogicalPlan, skip: usize, fetch: Option<usize>) -> Result<Option<LogicalPlan>> {
        let (order, below) = match input {
            LogicalPlan::Sort(sort) => (sort.expr.clone(), sort.input.as_ref()),
            // The columns that only the order asked for are left out above it.
            LogicalPlan::Projection(projection) if is_sorted(&projection.input) => {
                let Some(limited) = self.limited(&projection.input, skip, fetch)? else { return Ok(None) };
                let Some(mut exprs) = self.exprs(&projection.expr)? else { return Ok(None) };
                exprs.extend(self.columns());
                return Ok(Some(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(limited))?)));
            }
            _ => (vec![], input),
        };
        let Some(pushed) = self.push(below)? else { return Ok(None) };
        let mut sorted = vec![];
        for by in order {
            let Some(expr) = self.expr(by.expr.clone())? else { return Ok(None) };
            sorted.push(SortExpr { expr, ..by });
        }
        let mut numbers = row_number().partition_by(self.columns().collect());
        if !sorted.is_empty() {
            numbers = numbers.order_by(sorted);
        }
        let name = self.name("row", 0);
        let number = || Expr::Column(Column::new_unqualified(&name));
        let mut own: Vec<Expr> = below.schema().columns().into_iter().map(Expr::Column).collect();
        own.extend(self.columns());
        let after = lit(skip as u64);
        let mut is_in = number().gt(after);
        if let Some(fetch) = fetch {
            is_in = is_in.and(number().lt_eq(lit(skip.saturating_add(fetch) as u64)));
        }
        let plan = LogicalPlanBuilder::from(pushed)
            .window([numbers.build()?.alias(&name)])?
            .filter(is_in)?
            .project(own)?
            .build()?;
        Ok(Some(plan))
    }

    fn window(&self, node: &Window) -> Result<Option<LogicalPlan>> {
        let (Some(input), Some(exprs)) = (self.push(&node.input)?, self.exprs(&node.window_expr)?) else {
            return Ok(None);
        };
        let mut apart = vec![];
        for (expr, before) in exprs.into_iter().zip(&node.window_expr) {
            let names = NamePreserver::new_for_projection();
            let partitioned = expr.transform_up(|expr| {
                let Expr::WindowFunction(mut function) = expr else { return Ok(Transformed::no(expr)) };
                let WindowFunction { params, .. } = function.as_mut();
                params.partition_by.extend(self.columns());
                Ok(Transformed::yes(Expr::WindowFunction(function)))
            })?;
            apart.push(names.save(before).restore(partitioned.data));
        }
        Ok(Some(LogicalPlanBuilder::from(input).window(apart)?.build()?))
    }

    /// Inputs are put together by the places of their columns.
    fn union(&self, node: &Union) -> Result<Option<LogicalPlan>> {
        let mut inputs = vec![];
        for input in &node.inputs {
            let Some(pushed) = self.push(input)? else { return Ok(None) };
            let mut columns: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
            columns.extend(self.columns());
            inputs.push(Arc::new(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(pushed))?)));
        }
        Ok(Some(LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?)))
    }

    /// The first of those that are alike, for each combination of keys.
    fn first_of_each(&self, node: &DistinctOn) -> Result<Option<LogicalPlan>> {
        let (Some(input), Some(on), Some(mut columns)) =
            (self.push(&node.input)?, self.exprs(&node.on_expr)?, self.exprs(&node.select_expr)?)
        else {
            return Ok(None);
        };
        columns.extend(self.columns());
        let mut order = vec![];
        for by in node.sort_expr.iter().flatten() {
            let Some(expr) = self.expr(by.expr.clone())? else { return Ok(None) };
            order.push(SortExpr { expr, ..by.clone() });
        }
        let of_keys = self.columns().map(|key| key.sort(true, true));
        let order = node.sort_expr.is_some().then(|| of_keys.chain(order).collect());
        let on = self.columns().chain(on).collect();
        let distinct = DistinctOn::try_new(on, columns, order, Arc::new(input))?;
        Ok(Some(LogicalPlan::Distinct(Distinct::On(distinct))))
    }

    /// Each row is computed of the keys.
    fn values(&self, node: &Values) -> Result<Option<LogicalPlan>> {
        let mut rows = vec![];
        for row in &node.values {
            let mut columns = vec![];
            for (value, (qualifier, field)) in row.iter().zip(node.schema.iter()) {
                let Some(value) = self.expr(value.clone())? else { return Ok(None) };
                let value = value.cast_to(field.data_type(), self.plan.schema())?;
                columns.push(value.alias_qualified(qualifier.cloned(), field.name()));
            }
            columns.extend(self.columns());
            rows.push(Arc::new(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(self.plan.clone()))?)));
        }
        if let [_] = &rows[..] {
            return Ok(rows.pop().map(Arc::unwrap_or_clone));
        }
        Ok(Some(LogicalPlan::Union(Union::try_new_with_loose_types(rows)?)))
    }

    fn join(&self, node: &Join) -> Result<Option<LogicalPlan>> {
        let (left, right) = (self.is_asked_by(&node.left)?, self.is_asked_by(&node.right)?);
        // The side whose every row is there has the keys; what the other side asks for is held against them.
        let (left, right) = match node.join_type {
            JoinType::Inner => (left || !right, right),
            JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => (true, right),
            JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => (left, true),
            JoinType::Full => return Ok(None),
        };
        let on: Option<Vec<_>> = node
            .on
            .iter()
            .map(|(one, other)| Ok(self.expr(one.clone())?.zip(self.expr(other.clone())?)))
            .collect::<Result<_>>()?;
        let Some(on) = on else { return Ok(None) };
        let filter = match &node.filter {
            Some(filter) => match self.expr(filter.clone())? {
                Some(filter) => Some(filter),
                None => return Ok(None),
            },
            None => None,
        };
        let side = |plan: &Arc<LogicalPlan>, has_keys: bool| {
            if has_keys { self.push(plan) } else { Ok(Some(plan.as_ref().clone())) }
        };
        let (Some(mut left_plan), Some(mut right_plan)) = (side(&node.left, left)?, side(&node.right, right)?) else {
            return Ok(None);
        };
        let is_by_both = left && right;
        if is_by_both {
            // NULLs of keys are equal, those of the join's own columns are not: two kinds of equality are no hash
            // join's.
            let is_left_kept = !matches!(
                node.join_type,
                JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark
            );
            let renamed = if is_left_kept { &mut right_plan } else { &mut left_plan };
            let mut columns: Vec<Expr> = if is_left_kept { &node.right } else { &node.left }
                .schema()
                .columns()
                .into_iter()
                .map(Expr::Column)
                .collect();
            columns.extend(self.columns().enumerate().map(|(idx, key)| key.alias(self.name("beside", idx))));
            *renamed = LogicalPlan::Projection(Projection::try_new(columns, Arc::new(renamed.clone()))?);
        }
        let beside = |idx| Expr::Column(Column::new_unqualified(self.name("beside", idx)));
        let same_keys = self.columns().enumerate().map(|(idx, key)| {
            Expr::BinaryExpr(BinaryExpr {
                left: Box::new(key),
                op: Operator::IsNotDistinctFrom,
                right: Box::new(beside(idx)),
            })
        });
        let same_keys = if is_by_both { same_keys.reduce(Expr::and) } else { None };
        let filter = [filter, same_keys].into_iter().flatten().reduce(Expr::and);
        let joined = LogicalPlan::Join(Join::try_new(
            Arc::new(left_plan),
            Arc::new(right_plan),
            on,
            filter,
            node.join_type,
            node.join_constraint,
            node.null_equality,
            node.null_aware,
        )?);
        // Without the keys that are there twice.
        let mut columns: Vec<Expr> = node.schema.columns().into_iter().map(Expr::Column).collect();
        columns.extend(self.columns());
        Ok(Some(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(joined))?)))
    }
}

/// What an aggregate gives of no rows, if it is not NULL.
pub(super) fn default_of(aggregate: &Aggregate, idx: usize) -> Result<Option<Expr>> {
    let Expr::AggregateFunction(AggregateFunction { func, .. }) =
        aggregate.aggr_expr[idx].clone().unalias_nested().data
    else {
        return Ok(None);
    };
    let default = func.default_value(aggregate.schema.field(idx).data_type())?;
    Ok((!default.is_null()).then(|| lit(default)))
}

/// Whether its rows are in an order, which select lists over it keep.
fn is_sorted(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Projection(node) => is_sorted(&node.input),
        _ => false,
    }
}

/// Has it one row at most, whatever it reads?
pub(super) fn at_most_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(node) => at_most_one_row(&node.input),
        LogicalPlan::SubqueryAlias(node) => at_most_one_row(&node.input),
        LogicalPlan::Filter(node) => at_most_one_row(&node.input),
        LogicalPlan::Sort(node) => node.fetch.is_some_and(|fetch| fetch <= 1) || at_most_one_row(&node.input),
        LogicalPlan::Aggregate(node) => node.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(_) => true,
        LogicalPlan::Values(node) => node.values.len() <= 1,
        LogicalPlan::Limit(node) => {
            let is_one = matches!(node.fetch.as_deref(), Some(Expr::Literal(ScalarValue::Int64(Some(0..=1)), _)));
            is_one || at_most_one_row(&node.input)
        }
        _ => false,
    }
}
