//! How does a plan look to tools that read PostgreSQL's `EXPLAIN (FORMAT JSON)`?
//!
//! ```text
//! [{"Plan": {"Node Type": "Sort", "Details": "SortExec: …", "Plans": [{"Node Type": "Seq Scan", "Relation Name": "t", …}]}, "Planning Time": 0.9}]
//! ```
//!
//! Nodes are called as PostgreSQL calls what does the same; what each is here stands in `Details`. With ANALYZE a node
//! says how many rows it gave, and `Actual Total Time`: milliseconds of computing, its own and what is below it, of all
//! threads together. There are no costs.

use std::fmt::{self, Write};
use std::sync::Arc;

use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::{ExecutionPlan, displayable};

use crate::scan::spec_of;
use tarn_types::full_name;

/// What is said of one node, at most.
const DETAILS_BYTES: usize = 8 << 10;

/// A query that was planned and, with ANALYZE, run to its end.
pub struct ExplainedPlan {
    pub(crate) plan: Arc<dyn ExecutionPlan>,
    pub(crate) planning_us: u64,
    /// `None`: it was not run.
    pub(crate) execution_us: Option<u64>,
}

/// What is asked for beside the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExplainOptions {
    /// The columns of each node.
    pub verbose: bool,
    /// How long each node took.
    pub timing: bool,
    /// How long planning and running took.
    pub summary: bool,
}

/// The plan as a text of JSON.
pub fn json(measured: &ExplainedPlan, shown: ExplainOptions) -> String {
    let mut root = vec![("Plan", node(measured.plan.as_ref(), None, measured.execution_us.is_some(), shown).json)];
    if shown.summary {
        root.push(("Planning Time", milliseconds(measured.planning_us as f64)));
        root.extend(measured.execution_us.map(|us| ("Execution Time", milliseconds(us as f64))));
    }
    let mut out = String::new();
    Json::List(vec![Json::Object(root)]).write(0, &mut out);
    out
}

/// A value of JSON.
enum Json {
    Text(String),
    /// As it is written.
    Bare(String),
    List(Vec<Json>),
    Object(Vec<(&'static str, Json)>),
}

struct ExplainNode {
    json: Json,
    n_rows: Option<usize>,
    /// Of computing, with what is below.
    total_us: f64,
}

fn node(plan: &dyn ExecutionPlan, relationship: Option<&str>, was_run: bool, shown: ExplainOptions) -> ExplainNode {
    let sides = ["Outer", "Inner"];
    let below = plan.children().into_iter().enumerate().map(|(at, child)| {
        let side = if plan.children().len() > 2 { "Member" } else { sides[at.min(1)] };
        node(child.as_ref(), Some(side), was_run, shown)
    });
    let below: Vec<ExplainNode> = below.collect();
    let mut parts = vec![("Node Type", Json::Text(called(plan)))];
    parts.extend(relationship.map(|side| ("Parent Relationship", Json::Text(side.to_owned()))));
    parts.extend(particulars(plan).into_iter().map(|(name, value)| (name, Json::Text(value))));
    parts.push(("Details", Json::Text(details(plan))));
    if shown.verbose {
        let schema = plan.schema();
        let names = schema.fields().iter().map(|field| Json::Text(field.name().clone()));
        parts.push(("Output", Json::List(names.collect())));
    }
    let metrics = plan.metrics();
    // Who measures nothing passes on what it is given.
    let passed_on = || if let [only] = below.as_slice() { only.n_rows } else { None };
    let n_rows = metrics.as_ref().and_then(|metrics| metrics.output_rows()).or_else(passed_on);
    let own_us = metrics.as_ref().and_then(|metrics| metrics.elapsed_compute()).unwrap_or(0) as f64 / 1_000.0;
    let total_us = own_us + below.iter().map(|node| node.total_us).sum::<f64>();
    if was_run {
        if shown.timing {
            parts.push(("Actual Startup Time", milliseconds(0.0)));
            parts.push(("Actual Total Time", milliseconds(total_us)));
        }
        parts.push(("Actual Rows", Json::Bare(n_rows.unwrap_or(0).to_string())));
        parts.push(("Actual Loops", Json::Bare("1".to_owned())));
    }
    if !below.is_empty() {
        parts.push(("Plans", Json::List(below.into_iter().map(|node| node.json).collect())));
    }
    ExplainNode { json: Json::Object(parts), n_rows, total_us }
}

/// What the engine says of a node, cut off where it says too much.
fn details(plan: &dyn ExecutionPlan) -> String {
    let mut text = LimitedWriter(String::new());
    let is_cut = write!(text, "{}", displayable(plan).one_line()).is_err();
    let text = text.0.trim_end();
    if is_cut { format!("{text}…") } else { text.to_owned() }
}

/// Takes [`DETAILS_BYTES`], and fails at what is more.
struct LimitedWriter(String);

impl Write for LimitedWriter {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = DETAILS_BYTES - self.0.len();
        self.0.push_str(&text[..text.floor_char_boundary(room)]);
        if text.len() > room { Err(fmt::Error) } else { Ok(()) }
    }
}

/// As PostgreSQL calls it, or by the words of its own name.
fn called(plan: &dyn ExecutionPlan) -> String {
    if let Some(spec) = spec_of(plan) {
        return if matches!(spec.chosen.path.as_str(), "lake" | "rows") { "Seq Scan" } else { "Index Scan" }.to_owned();
    }
    let name = match plan.name() {
        "HashJoinExec" => "Hash Join",
        "SortMergeJoinExec" => "Merge Join",
        "NestedLoopJoinExec" | "CrossJoinExec" => "Nested Loop",
        "SortExec" => "Sort",
        "SortPreservingMergeExec" => "Gather Merge",
        "CoalescePartitionsExec" => "Gather",
        "AggregateExec" => "Aggregate",
        "WindowAggExec" | "BoundedWindowAggExec" => "WindowAgg",
        "GlobalLimitExec" | "LocalLimitExec" => "Limit",
        "UnionExec" | "InterleaveExec" => "Append",
        "RecursiveQueryExec" => "Recursive Union",
        "ProjectionExec" | "PlaceholderRowExec" | "EmptyExec" => "Result",
        name => return spaced(name.strip_suffix("Exec").unwrap_or(name)),
    };
    name.to_owned()
}

/// `DataSource` → `Data Source`.
fn spaced(name: &str) -> String {
    let mut words = String::new();
    for (at, letter) in name.char_indices() {
        if at > 0 && letter.is_ascii_uppercase() {
            words.push(' ');
        }
        words.push(letter);
    }
    words
}

fn particulars(plan: &dyn ExecutionPlan) -> Vec<(&'static str, String)> {
    if let Some(spec) = spec_of(plan) {
        let (schema, name) = full_name::split(&spec.table.name);
        return [("Relation Name", name), ("Schema", schema), ("Alias", name)]
            .map(|(of, text)| (of, text.to_owned()))
            .to_vec();
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        let strategy = if aggregate.group_expr().is_empty() { "Plain" } else { "Hashed" };
        let part = match aggregate.mode() {
            AggregateMode::Partial => "Partial",
            AggregateMode::Final | AggregateMode::FinalPartitioned => "Finalize",
            _ => "Simple",
        };
        return vec![("Strategy", strategy.to_owned()), ("Partial Mode", part.to_owned())];
    }
    let join = plan
        .downcast_ref::<HashJoinExec>()
        .map(|join| *join.join_type())
        .or_else(|| plan.downcast_ref::<NestedLoopJoinExec>().map(|join| *join.join_type()))
        .or_else(|| plan.downcast_ref::<SortMergeJoinExec>().map(|join| join.join_type()));
    let kind = join.map(|kind| match kind.to_string().as_str() {
        "LeftSemi" | "RightSemi" => "Semi".to_owned(),
        "LeftAnti" | "RightAnti" => "Anti".to_owned(),
        other => other.to_owned(),
    });
    kind.into_iter().map(|kind| ("Join Type", kind)).collect()
}

fn milliseconds(us: f64) -> Json {
    Json::Bare(format!("{:.3}", us / 1_000.0))
}

impl Json {
    /// Laid out as PostgreSQL does it: a line for each member, lists of texts on one.
    fn write(&self, depth: usize, out: &mut String) {
        let indent = |depth: usize| "  ".repeat(depth);
        match self {
            Json::Text(text) => quote(text, out),
            Json::Bare(text) => out.push_str(text),
            Json::List(items) if items.iter().all(|item| matches!(item, Json::Text(_))) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    out.push_str(if at > 0 { ", " } else { "" });
                    item.write(depth, out);
                }
                out.push(']');
            }
            Json::List(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    out.push_str(if at > 0 { ",\n" } else { "\n" });
                    out.push_str(&indent(depth + 1));
                    item.write(depth + 1, out);
                }
                out.push('\n');
                out.push_str(&indent(depth));
                out.push(']');
            }
            Json::Object(members) => {
                out.push('{');
                for (at, (name, value)) in members.iter().enumerate() {
                    out.push_str(if at > 0 { ",\n" } else { "\n" });
                    out.push_str(&indent(depth + 1));
                    quote(name, out);
                    out.push_str(": ");
                    value.write(depth + 1, out);
                }
                out.push('\n');
                out.push_str(&indent(depth));
                out.push('}');
            }
        }
    }
}

fn quote(text: &str, out: &mut String) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            control if control < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_and_names_spaced() {
        let mut out = String::new();
        quote("a \"b\"\\\n\u{1}é", &mut out);
        assert_eq!(out, "\"a \\\"b\\\"\\\\\\n\\u0001é\"");
        assert_eq!(spaced("DataSource"), "Data Source");
    }
}
