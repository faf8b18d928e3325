//! What is a subquery's value if it depends on the row around it by more than equality? `SELECT (SELECT count(*) FROM b
//! WHERE b.x < a.x) FROM a`: the planner makes joins of subqueries whose conditions are `inner = outer`, and knows no
//! others.
//!
//! The others become joins here. What the subquery asks of the row around it, its *keys*, are taken once each (the
//! domain), the subquery is computed for all of them together ([`push`]), and its values are joined to the rows:
//!
//! ```text
//! FROM a                       FROM a LEFT JOIN (SELECT d.k, count(*) AS v FROM (SELECT DISTINCT x AS k FROM a) d, b WHERE b.x < d.k GROUP BY d.k) s
//!                                ON s.k IS NOT DISTINCT FROM a.x
//! ```
//!
//! (T. Neumann, A. Kemper, *Unnesting arbitrary queries*, BTW 2015.) What an aggregate gives where there are no rows is
//! put in beside it. A subquery that cannot be computed so stays, and is refused as it was: with grouping sets, or
//! below a value that changes from row to row.
//!
//! What stands in FROM and depends on what is beside it is computed in the same way ([`lateral`]).

mod free;
mod lateral;
mod push;

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, NullEquality};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{InSubquery, SetComparison};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Aggregate, Distinct, EmptyRelation, Expr, JoinType, LogicalPlan, LogicalPlanBuilder, Projection, Subquery, when,
};
use datafusion::optimizer::AnalyzerRule;

use self::free::{FreeColumn, free, is_of_equality};
use self::push::{Domain, at_most_one_row, default_of};

pub(crate) use self::free::{asked_again, each_subquery, is_asked_through, subquery_of};
pub(crate) use self::lateral::Laterals;

/// Select lists over one another that are written out as one: what one computes may stand in the next several times.
const MAX_LISTS: usize = 4;

/// The rule, at two places; both when types are known, and before what the planner cannot do is refused.
#[derive(Debug)]
pub(crate) enum Dependent {
    /// What stands before `IN`, `ANY` or `ALL` of a subquery: it would come to stand in that.
    Compared,
    /// All that the planner makes no joins of.
    Values,
}

impl AnalyzerRule for Dependent {
    fn analyze(&self, mut plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        // Most statements have none.
        if !has_values(&plan)? {
            return Ok(plan);
        }
        // Names that no other analysis of a part of this statement, a view for one, has given already.
        let mut n_given = last_given(&plan)?;
        // A subquery in one that became a join asks for a column that is beside it then, and may become one, too.
        loop {
            let round = plan.transform_up_with_subqueries(|node| {
                let Some((asked, input)) = self.asked(&node)? else { return Ok(Transformed::no(node)) };
                let mut joined = JoinedSubqueries { input: input.clone(), values: vec![] };
                for subquery in asked {
                    n_given += 1;
                    let Some(with) = joined.with(subquery, n_given)? else { return Ok(Transformed::no(node)) };
                    joined = with;
                }
                joined.node(node).map(Transformed::yes)
            })?;
            plan = round.data;
            if !round.transformed {
                return Ok(plan);
            }
        }
    }

    fn name(&self) -> &str {
        match self {
            Dependent::Compared => "dependent_operands",
            Dependent::Values => "dependent_subqueries",
        }
    }
}

impl Dependent {
    /// The subqueries of a node that become joins here, and the input whose rows they depend on.
    fn asked<'a>(&self, node: &'a LogicalPlan) -> Result<Option<(Vec<Subquery>, &'a LogicalPlan)>> {
        // The planner makes joins of subqueries of the first two alone.
        let (input, by_planner) = match node {
            LogicalPlan::Projection(node) => (&node.input, true),
            LogicalPlan::Filter(node) => (&node.input, true),
            LogicalPlan::Aggregate(node) => (&node.input, false),
            LogicalPlan::Window(node) => (&node.input, false),
            LogicalPlan::Sort(node) => (&node.input, false),
            _ => return Ok(None),
        };
        let mut asked: Vec<Subquery> = vec![];
        let mut ask = |expr: &Expr, is_left: bool| {
            expr.apply(|expr| {
                if let Expr::ScalarSubquery(subquery) = expr
                    && !asked.contains(subquery)
                    && !(is_left && is_of_equality(&subquery.subquery)?)
                    && free(&subquery.subquery)?.iter().any(|free| input.schema().has_column(&free.column))
                {
                    asked.push(subquery.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        };
        node.apply_expressions(|expr| match self {
            Dependent::Values => ask(expr, by_planner),
            Dependent::Compared => expr.apply(|expr| match expr {
                Expr::InSubquery(InSubquery { expr, .. }) | Expr::SetComparison(SetComparison { expr, .. }) => {
                    ask(expr, false)
                }
                _ => Ok(TreeNodeRecursion::Continue),
            }),
        })?;
        Ok((!asked.is_empty() && !changes_from_row_to_row(input)?).then_some((asked, input)))
    }
}

/// Whether there is a subquery that stands for a value.
fn has_values(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found |= expr.exists(|expr| Ok(matches!(expr, Expr::ScalarSubquery(_))))?;
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(found)
}

/// The rows are computed twice, and have to be the same.
fn changes_from_row_to_row(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| Ok(node.expressions().iter().any(Expr::is_volatile)))
}

/// A node's input with the values of its subqueries.
struct JoinedSubqueries {
    input: LogicalPlan,
    /// Each subquery, and what stands for it.
    values: Vec<(Subquery, Expr)>,
}

impl JoinedSubqueries {
    /// With one more. `None` if it cannot be computed for many rows together.
    fn with(mut self, subquery: Subquery, number: usize) -> Result<Option<JoinedSubqueries>> {
        if let Some(value) = of_the_row(&subquery.subquery, &self.input)? {
            self.values.push((subquery, value));
            return Ok(Some(self));
        }
        let keys = free(&subquery.subquery)?;
        let keys: Vec<FreeColumn> =
            keys.into_iter().filter(|free| self.input.schema().has_column(&free.column)).collect();
        let Some(domain) = Domain::of(&self.input, keys, number)? else { return Ok(None) };
        let Some((of_keys, value)) = computed(&subquery.subquery, &domain)? else { return Ok(None) };
        let of_rows: Vec<Column> = domain.keys.iter().map(|key| key.outer.clone()).collect();
        let by = (of_rows, domain.again());
        let input = LogicalPlanBuilder::from(self.input)
            .join_detailed(of_keys, JoinType::Left, by, None, NullEquality::NullEqualsNull)?
            .build()?;
        let mut values = self.values;
        values.push((subquery, value));
        Ok(Some(JoinedSubqueries { input, values }))
    }

    /// The node over this input; its columns are what they were.
    fn node(self, node: LogicalPlan) -> Result<LogicalPlan> {
        let names = NamePreserver::new(&node);
        let columns = node.schema().columns();
        let keeps_its_input = matches!(node, LogicalPlan::Filter(_) | LogicalPlan::Window(_) | LogicalPlan::Sort(_));
        let mut expressions = vec![];
        for expr in node.expressions() {
            let name = names.save(&expr);
            let with_values = expr.transform_down(|expr| {
                let Expr::ScalarSubquery(subquery) = &expr else { return Ok(Transformed::no(expr)) };
                let value = self.values.iter().find(|(of, _)| of == subquery).map(|(_, value)| value.clone());
                Ok(value.map_or_else(|| Transformed::no(expr), Transformed::yes))
            })?;
            expressions.push(name.restore(with_values.data));
        }
        let over = node.with_new_exprs(expressions, vec![self.input])?.recompute_schema()?;
        if !keeps_its_input {
            return Ok(over);
        }
        let own = columns.into_iter().map(Expr::Column).collect();
        Ok(LogicalPlan::Projection(Projection::try_new(own, Arc::new(over))?))
    }
}

/// A subquery's values by the keys of the domain, under the names of [`Domain::again`], and what its value is beside a
/// row that they are joined to.
fn computed(subquery: &LogicalPlan, domain: &Domain) -> Result<Option<(LogicalPlan, Expr)>> {
    // What is computed of an aggregate's only row is computed beside the row around it, which also knows what it is of
    // no rows.
    let (value, below, _) = below_lists(subquery)?;
    if let LogicalPlan::Aggregate(aggregate) = below
        && aggregate.group_expr.is_empty()
    {
        return aggregated(aggregate, value, domain);
    }
    if !at_most_one_row(subquery) {
        return Ok(None);
    }
    let Some(pushed) = domain.push(subquery)? else { return Ok(None) };
    let name = domain.name("value", 0);
    let of_subquery = Column::from(subquery.schema().qualified_field(0));
    let mut columns = domain.keys_again();
    columns.push(Expr::Column(of_subquery).alias(&name));
    let plan = LogicalPlan::Projection(Projection::try_new(columns, Arc::new(pushed))?);
    Ok(Some((plan, Expr::Column(Column::new_unqualified(name)))))
}

/// A subquery's value in terms of what is below its select lists, that, and how many there are.
fn below_lists(subquery: &LogicalPlan) -> Result<(Expr, &LogicalPlan, usize)> {
    let mut value = Expr::Column(Column::from(subquery.schema().qualified_field(0)));
    let (mut plan, mut n_lists) = (subquery, 0);
    loop {
        match plan {
            LogicalPlan::Projection(projection) => {
                value = in_terms_of(value, projection)?;
                plan = &projection.input;
                n_lists += 1;
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let (outside, inside) = (alias.schema.columns(), alias.input.schema().columns());
                value = replaced(value, |column| {
                    let place = outside.iter().position(|outside| outside == column)?;
                    Some(Expr::Column(inside[place].clone()))
                })?;
                plan = &alias.input;
            }
            _ => return Ok((value, plan, n_lists)),
        }
    }
}

/// What a subquery that reads nothing, `(SELECT a.x + 1)`, is beside a row around it. `None`: it reads something, or
/// would be written out too often.
fn of_the_row(subquery: &LogicalPlan, input: &LogicalPlan) -> Result<Option<Expr>> {
    let (value, below, n_lists) = below_lists(subquery)?;
    let LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: true, .. }) = below else { return Ok(None) };
    if n_lists > MAX_LISTS || value.is_volatile() {
        return Ok(None);
    }
    let value = value.transform_down(|expr| match expr {
        Expr::OuterReferenceColumn(_, column) if input.schema().has_column(&column) => {
            Ok(Transformed::yes(Expr::Column(column)))
        }
        expr => Ok(Transformed::no(expr)),
    })?;
    Ok(Some(value.data))
}

fn aggregated(aggregate: &Aggregate, value: Expr, domain: &Domain) -> Result<Option<(LogicalPlan, Expr)>> {
    let Some(grouped) = domain.grouped(aggregate)? else { return Ok(None) };
    let mut columns = domain.keys_again();
    let mut names = vec![];
    for (idx, column) in aggregate.schema.columns().into_iter().enumerate() {
        names.push((column.clone(), domain.name("value", idx), default_of(aggregate, idx)?));
        columns.push(Expr::Column(column).alias(&names[idx].1));
    }
    let plan = LogicalPlan::Projection(Projection::try_new(columns, Arc::new(grouped))?);
    let value = value.transform_down(|expr| {
        let known = match &expr {
            // It is a column of the row around the subquery.
            Expr::OuterReferenceColumn(_, column) if domain.has(column) => Some(Expr::Column(column.clone())),
            Expr::Column(column) => match names.iter().find(|(of, ..)| of == column) {
                Some((_, name, default)) => {
                    let there = Expr::Column(Column::new_unqualified(name));
                    Some(match default {
                        // What has a value of no rows has one of any rows.
                        Some(default) => when(there.clone().is_null(), default.clone()).otherwise(there)?,
                        None => there,
                    })
                }
                None => None,
            },
            _ => None,
        };
        Ok(match known {
            Some(known) => Transformed::new(known, true, TreeNodeRecursion::Jump),
            None => Transformed::no(expr),
        })
    })?;
    Ok(Some((plan, value.data)))
}

/// An expression over a projection, in what the projection is computed of.
fn in_terms_of(expr: Expr, projection: &Projection) -> Result<Expr> {
    let columns = projection.schema.columns();
    replaced(expr, |column| {
        let place = columns.iter().position(|own| own == column)?;
        Some(projection.expr[place].clone().unalias())
    })
}

fn replaced(expr: Expr, by: impl Fn(&Column) -> Option<Expr>) -> Result<Expr> {
    let replaced = expr.transform_down(|expr| {
        let other = if let Expr::Column(column) = &expr { by(column) } else { None };
        Ok(match other {
            Some(other) => Transformed::new(other, true, TreeNodeRecursion::Jump),
            None => Transformed::no(expr),
        })
    })?;
    Ok(replaced.data)
}

/// The greatest number in a name of a [`Domain`] that is in the plan.
fn last_given(plan: &LogicalPlan) -> Result<usize> {
    let mut last = 0;
    plan.apply_with_subqueries(|node| {
        // Names begin at a domain, and nothing else is one.
        if let LogicalPlan::Distinct(Distinct::All(input)) = node {
            last = input
                .schema()
                .columns()
                .iter()
                .filter_map(|column| Domain::number_of(column.name()))
                .fold(last, usize::max);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(last)
}
