//! Which columns tell the rows of a plan apart? DataFusion keeps for each node which do (functional dependencies), and
//! leaves out what they make superfluous: other columns of a GROUP BY or an ORDER BY, a DISTINCT, a join. What it says
//! is not true of two nodes:
//!
//! - `SELECT d.k, o.s FROM (SELECT DISTINCT k …) d JOIN o … GROUP BY d.k, o.s` has several rows of a `k`, and it says
//!   that
//!   `k` tells them apart, as it does in `d`: `GROUP BY k, s` above it had one row of each `k`.
//! - `SELECT DISTINCT d.k, x FROM (SELECT DISTINCT k …) d, unnest(ARRAY[3, 1, 2]) x ORDER BY 1, 2`: items are rows, and
//!   what told the rows of the input apart does not tell theirs. It was sorted by `k` alone.
//!
//! Each rule that makes a node says it anew, so those that leave something out are told of no keys whenever they ask.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, FunctionalDependencies};
use datafusion::error::Result;
use datafusion::logical_expr::{Distinct, LogicalPlan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use crate::rule_order::wrapped;

/// Rules of DataFusion that leave something out for what is a key.
const ASK_FOR_KEYS: [&str; 4] =
    ["eliminate_duplicated_expr", "eliminate_join", "optimize_projections", "replace_distinct_aggregate"];

type LogicalRule = Arc<dyn OptimizerRule + Send + Sync>;

/// The rules, of which those that ask for keys are told of none.
pub(crate) fn without_claims(rules: Vec<LogicalRule>) -> Vec<LogicalRule> {
    ASK_FOR_KEYS.into_iter().fold(rules, |rules, name| wrapped(rules, name, |inner| Arc::new(WithoutClaims { inner })))
}

#[derive(Debug)]
struct WithoutClaims {
    inner: LogicalRule,
}

impl OptimizerRule for WithoutClaims {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.inner.apply_order()
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let plan = match self.inner.apply_order() {
            // It is asked for each node, and asks what the node's inputs are.
            Some(_) if plan.inputs().into_iter().any(claims) => {
                plan.map_children(|input| input.transform_down(|node| forgotten(node, TreeNodeRecursion::Jump)))?.data
            }
            Some(_) => plan,
            None => plan.transform_down_with_subqueries(|node| forgotten(node, TreeNodeRecursion::Continue))?.data,
        };
        self.inner.rewrite(plan, config)
    }
}

fn claims(plan: &LogicalPlan) -> bool {
    !plan.schema().functional_dependencies().is_empty()
}

/// The node without what it says of keys; `then` is where to go on behind one that says it of itself.
fn forgotten(mut node: LogicalPlan, then: TreeNodeRecursion) -> Result<Transformed<LogicalPlan>> {
    let schema = match &mut node {
        LogicalPlan::Projection(node) => &mut node.schema,
        LogicalPlan::Window(node) => &mut node.schema,
        LogicalPlan::Aggregate(node) => &mut node.schema,
        LogicalPlan::Join(node) => &mut node.schema,
        LogicalPlan::SubqueryAlias(node) => &mut node.schema,
        LogicalPlan::Unnest(node) => &mut node.schema,
        LogicalPlan::Union(node) => &mut node.schema,
        LogicalPlan::TableScan(node) => &mut node.projected_schema,
        LogicalPlan::Distinct(Distinct::On(node)) => &mut node.schema,
        // The others have their input's, or none that says anything.
        _ => return Ok(Transformed::no(node)),
    };
    let is_changed = forget(schema)?;
    Ok(Transformed::new(node, is_changed, then))
}

fn forget(schema: &mut DFSchemaRef) -> Result<bool> {
    if schema.functional_dependencies().is_empty() {
        return Ok(false);
    }
    let told = schema.as_ref().clone().with_functional_dependencies(FunctionalDependencies::empty())?;
    *schema = Arc::new(told);
    Ok(true)
}
