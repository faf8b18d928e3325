//! Where do our rules stand among DataFusion's? Each behind one that it names: should a release of DataFusion rename or
//! double that one, the first session fails, and no plan is made without ours.

use std::sync::Arc;

use datafusion::optimizer::OptimizerRule;
use datafusion::physical_optimizer::PhysicalOptimizerRule;

/// A rule of logical or of physical plans.
pub(crate) trait NamedRule {
    fn called(&self) -> &str;
}

impl NamedRule for dyn OptimizerRule + Send + Sync {
    fn called(&self) -> &str {
        self.name()
    }
}

impl NamedRule for dyn PhysicalOptimizerRule + Send + Sync {
    fn called(&self) -> &str {
        self.name()
    }
}

/// Puts a rule right behind the one of that name.
///
/// # Panics
///
/// Not one rule has the name.
pub(crate) fn insert_behind<R: NamedRule + ?Sized>(rules: &mut Vec<Arc<R>>, name: &str, ours: Arc<R>) {
    rules.insert(place(rules, name) + 1, ours);
}

/// Puts a rule right before the one of that name.
///
/// # Panics
///
/// As [`insert_behind`].
pub(crate) fn insert_before<R: NamedRule + ?Sized>(rules: &mut Vec<Arc<R>>, name: &str, ours: Arc<R>) {
    rules.insert(place(rules, name), ours);
}

/// The rules, of which the one of that name is inside of ours.
///
/// # Panics
///
/// As [`insert_behind`].
pub(crate) fn wrapped<R: NamedRule + ?Sized>(
    mut rules: Vec<Arc<R>>,
    name: &str,
    ours: impl FnOnce(Arc<R>) -> Arc<R>,
) -> Vec<Arc<R>> {
    let place = place(&rules, name);
    let inner = Arc::clone(&rules[place]);
    rules[place] = ours(inner);
    rules
}

fn place<R: NamedRule + ?Sized>(rules: &[Arc<R>], name: &str) -> usize {
    let mut places = rules.iter().enumerate().filter(|(_, rule)| rule.called() == name).map(|(place, _)| place);
    match (places.next(), places.next()) {
        (Some(place), None) => place,
        _ => panic!("one rule is called {name}"),
    }
}

/// The rules, and before each of them another one.
pub(crate) fn before_each<R: ?Sized>(rules: Vec<Arc<R>>, other: &Arc<R>) -> Vec<Arc<R>> {
    rules.into_iter().flat_map(|rule| [Arc::clone(other), rule]).collect()
}
