//! What hangs on what? `pg_rewrite` has the rule of each view, `pg_depend` what such a rule reads, and which column a
//! sequence goes with.
//!
//! dbt asks it, to know which views go with a table that it drops by `CASCADE`, and tools that say what a sequence
//! belongs to.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::ScalarValue;
use tarn_node::sequences::Sequence;
use tarn_types::{TableId, TableSchema};

use crate::catalog_sequences;

/// By how much the number of a view's rule is smaller than the view's. Below all tables there is room for as many.
const RULES_BELOW: i32 = 200_000_000;

/// A table or view and its number in `pg_class`.
type NumberedTable = (i32, Arc<TableSchema>);

/// A row, by names of columns.
type DependencyRow = Vec<(&'static str, ScalarValue)>;

/// The rules by which views are read.
pub(crate) fn rules(tables: &[NumberedTable]) -> Vec<DependencyRow> {
    let views = tables.iter().filter(|(_, table)| table.is_view());
    let rule = |(oid, _): &NumberedTable| {
        vec![
            ("oid", ScalarValue::from(rule_of(*oid))),
            ("rulename", ScalarValue::from("_RETURN")),
            ("ev_class", ScalarValue::from(*oid)),
            ("ev_type", ScalarValue::from("1")),
            ("ev_enabled", ScalarValue::from("O")),
            ("is_instead", ScalarValue::from(true)),
        ]
    };
    views.map(rule).collect()
}

/// What is dropped with what, or keeps it from being dropped. `relations` and `rules` are the numbers of `pg_class` and
/// `pg_rewrite`.
pub(crate) fn dependencies(
    tables: &[NumberedTable],
    sequences: &[(String, Sequence)],
    relations: i32,
    rules: i32,
) -> Vec<DependencyRow> {
    let numbers: HashMap<TableId, i32> = tables.iter().map(|(oid, table)| (table.id, *oid)).collect();
    let mut rows = vec![];
    for (oid, view) in tables {
        let Some(definition) = &view.options.view else { continue };
        let rule = (rules, rule_of(*oid));
        rows.push(dependency(rule, (relations, *oid, 0), "i"));
        let read = definition.reads.values().filter_map(|id| numbers.get(id));
        rows.extend(read.map(|oid| dependency(rule, (relations, *oid, 0), "n")));
    }
    let named: HashMap<&str, &NumberedTable> = tables.iter().map(|of| (of.1.name.as_str(), of)).collect();
    for (name, sequence) in sequences {
        let Some(owner) = &sequence.owner else { continue };
        let Some((oid, table)) = named.get(owner.table.as_str()) else { continue };
        let Some((at, _)) = table.column(&owner.column) else { continue };
        let column = (relations, *oid, i32::try_from(at + 1).unwrap_or(i32::MAX));
        let kind = if owner.is_identity { "i" } else { "a" };
        rows.push(dependency((relations, catalog_sequences::number(name)), column, kind));
    }
    rows
}

fn rule_of(view: i32) -> i32 {
    view.saturating_sub(RULES_BELOW)
}

/// That one thing hangs on another, or on a column of it. `kind` is PostgreSQL's: `n`ormal, `a`utomatic or `i`nternal.
fn dependency(
    (class, number): (i32, i32),
    (of_class, of, column): (i32, i32, i32),
    kind: &'static str,
) -> DependencyRow {
    vec![
        ("classid", ScalarValue::from(class)),
        ("objid", ScalarValue::from(number)),
        ("objsubid", ScalarValue::from(0_i32)),
        ("refclassid", ScalarValue::from(of_class)),
        ("refobjid", ScalarValue::from(of)),
        ("refobjsubid", ScalarValue::from(column)),
        ("deptype", ScalarValue::from(kind)),
    ]
}
