//! Which columns tell the rows of a plan apart? DataFusion keeps for each node which do (functional dependencies), and
//! leaves out what they make superfluous: other columns of a GROUP BY or an ORDER BY, a DISTINCT, a join. What it says
//! is not true of two nodes:
//!
//! - `SELECT d.k, o.s FROM (SELECT DISTINCT k …) d JOIN o … GROUP BY d.k, o.s` has several rows of a `k`, and it says that
//!   `k` tells them apart, as it does in `d`: `GROUP BY k, s` above it had one row of each `k`.
//! - `SELECT DISTINCT d.k, x FROM (SELECT DISTINCT k …) d, unnest(ARRAY[3, 1, 2]) x ORDER BY 1, 2`: items are rows, and
//!   what told the rows of the input apart does not tell theirs. It was sorted by `k` alone.
//!
//! Each rule that makes a node says it anew, so that nothing is told of keys right before each rule that asks.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, FunctionalDependencies};
use datafusion::error::Result;
use datafusion::logical_expr::{Distinct, LogicalPlan};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// Rules of DataFusion that leave something out for what is a key.
const ASK_FOR_KEYS: [&str; 4] =
    ["eliminate_duplicated_expr", "eliminate_join", "optimize_projections", "replace_distinct_aggregate"];

type LogicalRule = Arc<dyn OptimizerRule + Send + Sync>;

/// The rules, of which those that ask for keys are told of none.
///
/// # Panics
///
/// One of them is not there: a release of DataFusion has given it another name.
pub(crate) fn without_claims(rules: Vec<LogicalRule>) -> Vec<LogicalRule> {
    for name in ASK_FOR_KEYS {
        assert!(rules.iter().any(|rule| rule.name() == name), "a rule is called {name}");
    }
    let told_nothing = |rule: LogicalRule| match ASK_FOR_KEYS.contains(&rule.name()) {
        true => vec![Arc::new(NoKeyClaims) as LogicalRule, rule],
        false => vec![rule],
    };
    rules.into_iter().flat_map(told_nothing).collect()
}

/// The rule: no node says what its keys are.
#[derive(Debug)]
struct NoKeyClaims;

impl OptimizerRule for NoKeyClaims {
    fn name(&self) -> &str {
        "no_key_claims"
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let mut claims = false;
        plan.apply_with_subqueries(|node| {
            claims |= !node.schema().functional_dependencies().is_empty();
            Ok(if claims { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        match claims {
            true => plan.transform_down_with_subqueries(forgotten),
            false => Ok(Transformed::no(plan)),
        }
    }
}

fn forgotten(mut node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
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
    Ok(Transformed::new(node, is_changed, TreeNodeRecursion::Continue))
}

fn forget(schema: &mut DFSchemaRef) -> Result<bool> {
    if schema.functional_dependencies().is_empty() {
        return Ok(false);
    }
    let told = schema.as_ref().clone().with_functional_dependencies(FunctionalDependencies::empty())?;
    *schema = Arc::new(told);
    Ok(true)
}
