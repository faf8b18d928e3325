//! Which leaves of a plan become fragments? The last of the physical rules: it takes plans as they will run.
//!
//! It walks down with what stands above ([`AncestorState`]): below a limit, and below aggregates to which the order of
//! rows matters, there is none. Every leaf that is not used says why at its scan.
//!
//! A filter that changes while the query runs (of a join) spares reading what a fragment would have to read. So its
//! rows are fragments only when the same leaf was asked for before: the first time, the scan is left as it is.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, replace_children_if_necessary};

use super::Fragments;
use super::aggregate::order_matters;
use super::canonical::Reason;
use super::exec::{Fragment, FragmentExec, FragmentScan};
use super::kept::Layout;
use super::keys::FragmentKeys;
use super::leaf::{Chain, FragmentLeaf, last, partial};
use super::units::LakeSide;
use crate::settings::QuerySettings;

/// The rule of one engine.
#[derive(Debug)]
pub(crate) struct UseFragments(pub Arc<Fragments>);

impl PhysicalOptimizerRule for UseFragments {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let settings = config.extensions.get::<QuerySettings>().cloned().unwrap_or_default();
        let off = match () {
            () if !self.0.cache.is_on() => Some("the cache of fragments is off"),
            () if !settings.caches.fragments => Some("tarn.cache.fragments is off"),
            () if !settings.pruning => Some("tarn.pruning is off"),
            () => None,
        };
        let above = AncestorState { reason: off.map(str::to_owned), ..AncestorState::default() };
        self.0.rewrite(plan, &above)
    }

    fn name(&self) -> &str {
        "tarn_fragments"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// What stands above a node.
#[derive(Debug, Clone, Default)]
struct AncestorState {
    /// Why nothing below is a fragment.
    reason: Option<Reason>,
    /// Perhaps not all rows are asked for.
    is_limited: bool,
}

impl AncestorState {
    fn below(&self, node: &Arc<dyn ExecutionPlan>, child: usize) -> AncestorState {
        let mut above = self.clone();
        above.is_limited |= node.fetch().is_some() || node.is::<GlobalLimitExec>() || node.is::<LocalLimitExec>();
        if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
            above.is_limited = aggregate.limit_options().is_some();
            above.reason = above.reason.or_else(|| order_matters(aggregate));
        }
        if node.is::<WindowAggExec>() || node.is::<BoundedWindowAggExec>() {
            above.reason = above.reason.or_else(|| Some("the order of rows matters to a window".to_owned()));
        }
        // The side that is collected is read whole.
        let collects = node.is::<HashJoinExec>() || node.is::<CrossJoinExec>() || node.is::<NestedLoopJoinExec>();
        if collects && child == 0 {
            above.is_limited = false;
        }
        above
    }
}

impl Fragments {
    fn rewrite(&self, plan: Arc<dyn ExecutionPlan>, above: &AncestorState) -> Result<Arc<dyn ExecutionPlan>> {
        if let Some(chain) = Chain::of(&plan) {
            let Some(lake) = LakeSide::of(&chain.access.spec) else { return Ok(plan) };
            return match self.leaf(&plan, &chain, &lake, above)? {
                Ok(used) => Ok(used),
                Err(reason) => {
                    // A plan is made anew for every statement: nobody said anything before.
                    drop(chain.access.no_fragments.set(reason));
                    Ok(plan)
                }
            };
        }
        let children = plan.children().into_iter().cloned().enumerate();
        let children = children.map(|(at, child)| self.rewrite(child, &above.below(&plan, at)));
        let children = children.collect::<Result<Vec<_>>>()?;
        replace_children_if_necessary(plan, children)
    }

    fn leaf(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        chain: &Chain,
        lake: &LakeSide,
        above: &AncestorState,
    ) -> Result<Result<Arc<dyn ExecutionPlan>, Reason>> {
        // What of the chain stands above the leaf stands above it, too.
        let mut reason = above.reason.clone();
        for step in &chain.steps {
            reason = reason.or_else(|| step.node.downcast_ref::<AggregateExec>().and_then(order_matters));
        }
        if let Some(reason) = reason {
            return Ok(Err(reason));
        }
        let leaf = match FragmentLeaf::of(chain, lake.table()) {
            Ok(leaf) => leaf,
            Err(reason) => return Ok(Err(reason)),
        };
        let n_above = chain.steps.len() - leaf.chain.steps.len();
        let nearest = chain.steps[..n_above].iter().fold(above.clone(), |above, step| above.below(&step.node, 0));
        if nearest.is_limited && !leaf.has_aggregate {
            return Ok(Err("a limit".to_owned()));
        }
        let (fragments, pieces, left_out) = self.divide(&leaf, lake)?;
        if fragments.is_empty() {
            return Ok(Err(if left_out.is_empty() { "no files".to_owned() } else { left_out }));
        }
        let single = leaf.is_single.then(|| Arc::clone(leaf.chain.root()));
        let rest = match single.as_ref().and_then(|single| single.downcast_ref::<AggregateExec>()) {
            None => leaf.chain.with_pieces(pieces)?,
            Some(single) => partial(single, &leaf.chain.below(1).with_pieces(pieces)?)?,
        };
        if single.is_some() && rest.output_partitioning().partition_count() != 1 {
            return Ok(Err("an aggregate of several partitions at once".to_owned()));
        }
        let FragmentLeaf { chain: leaf_chain, schema, order, template, .. } = leaf;
        let properties = template.properties(&leaf_chain);
        let layout = Layout::new(schema, order);
        let shared =
            FragmentScan { cache: self.cache.clone(), lake: lake.clone(), template, layout, fragments, left_out };
        let mut used: Arc<dyn ExecutionPlan> = Arc::new(FragmentExec::new(Arc::new(shared), rest, properties));
        if let Some(single) = single.as_ref().and_then(|single| single.downcast_ref::<AggregateExec>()) {
            used = last(single, used)?;
        }
        for step in chain.steps[..n_above].iter().rev() {
            used = step.with(used)?;
        }
        match used.schema() == plan.schema() {
            true => Ok(Ok(used)),
            false => Ok(Err("a plan that would have another schema".to_owned())),
        }
    }
}

type FragmentSplit = (Vec<Fragment>, Vec<datafusion::datasource::listing::PartitionedFile>, String);

impl Fragments {
    /// What becomes a fragment, what is read as before, and why so.
    fn divide(&self, leaf: &FragmentLeaf, lake: &LakeSide) -> Result<FragmentSplit> {
        let mut keys = FragmentKeys::new(leaf, lake);
        let (mut fragments, mut pieces) = (vec![], vec![]);
        let (mut touched, mut refused, mut first) = (0, 0, 0);
        let mut rest = vec![];
        for unit in lake.units() {
            if lake.is_touched(&unit) {
                touched += 1;
                rest.push(unit);
                continue;
            }
            let key = keys.of(&unit);
            if self.cache.is_refused(&key) {
                refused += 1;
                rest.push(unit);
            } else if leaf.is_dynamic && !leaf.has_aggregate && !self.was_seen(&key) {
                first += 1;
                rest.push(unit);
            } else {
                fragments.push(Fragment { unit, key });
            }
        }
        // Otherwise the plan stays as it is.
        if !fragments.is_empty() {
            for unit in &rest {
                pieces.extend(lake.piece(unit)?);
            }
        }
        let said =
            [(touched, "recent changes"), (refused, "too large"), (first, "first seen under a filter of a join")];
        let said = said.iter().filter(|(n, _)| *n > 0).map(|(n, why)| format!("{n} {why}"));
        Ok((fragments, pieces, said.collect::<Vec<_>>().join(", ")))
    }
}
