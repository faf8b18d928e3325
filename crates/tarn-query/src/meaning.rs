//! What does a front end say that DataFusion does not?
//!
//! The engine plans and computes; what an operator, a cast or a function means to the clients is the front end's. It
//! gives rules and functions, and each session of the engine has them.

use std::fmt;
use std::sync::Arc;

use datafusion::logical_expr::planner::{ExprPlanner, RelationPlanner, TypePlanner};
use datafusion::logical_expr::{AggregateUDF, ScalarUDF, WindowUDF};
use datafusion::optimizer::AnalyzerRule;
use datafusion::sql::sqlparser::ast::Statement;

use crate::user_functions::UserFunctions;
use crate::{Error, Result, parser};

/// A rule of the analyzer: it changes what a statement means, and never how it is computed.
pub type Rule = Arc<dyn AnalyzerRule + Send + Sync>;

/// How the text of a view is read.
#[derive(Debug, Clone, Copy)]
pub struct ViewTexts {
    /// The one query that a text is.
    pub query: fn(&str) -> Result<Statement>,
    /// What clients call a column that the planner calls so.
    pub shown_name: fn(&str) -> &str,
}

impl Default for ViewTexts {
    /// As it is written.
    fn default() -> Self {
        ViewTexts { query: one, shown_name: same }
    }
}

fn same(name: &str) -> &str {
    name
}

/// The one statement of a text.
fn one(sql: &str) -> Result<Statement> {
    let mut statements = parser::statements(sql)?;
    match (statements.pop(), statements.is_empty()) {
        (Some(statement), true) => Ok(statement),
        _ => Err(Error::Unsupported { what: "a text of no or several statements".to_owned(), remedy: "send one" }),
    }
}

/// Rules and functions that every session has beside DataFusion's.
#[derive(Clone, Default)]
pub struct SqlDialect {
    /// Once, when a statement is planned: what literals are. Parameters that are bound later are not touched.
    pub planned: Vec<Rule>,
    /// Before types are made one: of what was written.
    pub written: Vec<Rule>,
    /// Behind: both sides of an operator have one type, and what was added for it is there.
    pub coerced: Vec<Rule>,
    /// Of what stands in FROM, when it is planned.
    pub relations: Vec<Arc<dyn RelationPlanner>>,
    /// Of operators, when they are planned; before DataFusion's own.
    pub operators: Vec<Arc<dyn ExprPlanner>>,
    /// In the place of DataFusion's of the same name.
    pub functions: Vec<Arc<ScalarUDF>>,
    /// In the place of DataFusion's of the same name.
    pub aggregates: Vec<Arc<AggregateUDF>>,
    /// In the place of DataFusion's of the same name.
    pub windows: Vec<Arc<WindowUDF>>,
    /// Types that a statement names beside the engine's, as they are when it is planned.
    pub types: Option<Arc<dyn TypePlanner>>,
    /// Of views.
    pub views: ViewTexts,
    /// That users wrote.
    pub user_functions: Option<Arc<dyn UserFunctions>>,
}

impl fmt::Debug for SqlDialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |rules: &[Rule]| rules.iter().map(|rule| rule.name().to_owned()).collect::<Vec<_>>();
        f.debug_struct("Meaning")
            .field("planned", &names(&self.planned))
            .field("written", &names(&self.written))
            .field("coerced", &names(&self.coerced))
            .finish_non_exhaustive()
    }
}
