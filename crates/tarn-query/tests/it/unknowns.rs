//! Three-valued logic: a row passes a condition that is true of it, and not one that is unknown, whatever the planner
//! makes of it.

use proptest::prelude::*;
use tarn_cache::{FragmentCache, FragmentOptions};
use tarn_query::Options;
use tarn_types::{DataType, KeyPart, Partitioning, TableId, TableOptions, TableSchema, TabletId, Value};

use crate::fixture::{Fixture, column};

const COLUMNS: [&str; 3] = ["id", "n", "m"];

fn schema() -> TableSchema {
    let mut columns: Vec<_> = COLUMNS.iter().zip(1..).map(|(name, id)| column(id, name, DataType::Int64)).collect();
    columns[0].nullable = false;
    TableSchema {
        id: TableId(1),
        name: "t".to_owned(),
        columns,
        key: vec![KeyPart { column_idx: 0, descending: false }],
        n_partition_key: 1,
        first_tablet: TabletId(1),
        options: TableOptions { tablets: 2, partitioning: Partitioning::Hash, ..TableOptions::default() },
    }
}

type NullableRow = [Option<i64>; 3];

/// Every pair of NULL, 1, 2, 3.
fn rows() -> Vec<NullableRow> {
    let values = [None, Some(1), Some(2), Some(3)];
    let pairs = values.iter().flat_map(|n| values.iter().map(move |m| (*n, *m)));
    pairs.zip(0..).map(|((n, m), id)| [Some(id), n, m]).collect()
}

async fn filled() -> Fixture {
    let fragments = FragmentCache::open(FragmentOptions::default()).unwrap();
    let fixture = Fixture::with_options(schema(), Options { fragments: Some(fragments), ..Options::default() }).await;
    for (idx, row) in rows().into_iter().enumerate() {
        fixture.table.put(row.iter().map(|value| value.map_or(Value::Null, Value::Int64)).collect());
        if idx == 6 || idx == 12 {
            fixture.table.deliver().await;
        }
    }
    fixture
}

#[derive(Debug, Clone)]
enum Operand {
    Literal(Option<i64>),
    Column(usize),
}

#[derive(Debug, Clone)]
enum Tree {
    In { column: usize, list: Vec<Operand>, negated: bool },
    Equal { column: usize, to: i64, negated: bool },
    Logic { left: Box<Tree>, and: bool, right: Box<Tree> },
    Not(Box<Tree>),
    Is { tree: Box<Tree>, what: Option<bool>, negated: bool },
    Case { when: Box<Tree>, then: Box<Tree>, otherwise: Box<Tree> },
}

impl Tree {
    fn sql(&self) -> String {
        let not = |negated: &bool| if *negated { "NOT " } else { "" };
        match self {
            Tree::In { column, list, negated } => {
                let items: Vec<String> = list.iter().map(Operand::sql).collect();
                format!("{} {}IN ({})", COLUMNS[*column], not(negated), items.join(", "))
            }
            Tree::Equal { column, to, negated } => {
                format!("{} {} {to}", COLUMNS[*column], if *negated { "<>" } else { "=" })
            }
            Tree::Logic { left, and, right } => {
                format!("({} {} {})", left.sql(), if *and { "AND" } else { "OR" }, right.sql())
            }
            Tree::Not(inner) => format!("NOT ({})", inner.sql()),
            Tree::Is { tree, what, negated } => {
                let what = what.map_or("UNKNOWN", |what| if what { "TRUE" } else { "FALSE" });
                format!("(({}) IS {}{what})", tree.sql(), not(negated))
            }
            Tree::Case { when, then, otherwise } => {
                format!("(CASE WHEN {} THEN {} ELSE {} END)", when.sql(), then.sql(), otherwise.sql())
            }
        }
    }

    /// As SQL has it: `None` is unknown.
    fn of(&self, row: &NullableRow) -> Option<bool> {
        match self {
            Tree::In { column, list, negated } => {
                let equal = list.iter().map(|item| Some(row[*column]? == item.of(row)?));
                let is_in = equal.reduce(or).expect("a list has items");
                is_in.map(|is_in| is_in != *negated)
            }
            Tree::Equal { column, to, negated } => row[*column].map(|value| (value == *to) != *negated),
            Tree::Logic { left, and: false, right } => or(left.of(row), right.of(row)),
            Tree::Logic { left, and: true, right } => {
                or(left.of(row).map(|x| !x), right.of(row).map(|x| !x)).map(|x| !x)
            }
            Tree::Not(inner) => inner.of(row).map(|value| !value),
            Tree::Is { tree, what, negated } => Some((tree.of(row) == *what) != *negated),
            Tree::Case { when, then, otherwise } => match when.of(row) {
                Some(true) => then.of(row),
                _ => otherwise.of(row),
            },
        }
    }
}

impl Operand {
    fn sql(&self) -> String {
        match self {
            Operand::Literal(value) => value.map_or("NULL".to_owned(), |value| value.to_string()),
            Operand::Column(column) => COLUMNS[*column].to_owned(),
        }
    }

    fn of(&self, row: &NullableRow) -> Option<i64> {
        match self {
            Operand::Literal(value) => *value,
            Operand::Column(column) => row[*column],
        }
    }
}

fn or(left: Option<bool>, right: Option<bool>) -> Option<bool> {
    match (left, right) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        _ => None,
    }
}

fn operand() -> impl Strategy<Value = Operand> {
    prop_oneof![
        8 => (1..4i64).prop_map(|value| Operand::Literal(Some(value))),
        2 => Just(Operand::Literal(None)),
        1 => (0..3usize).prop_map(Operand::Column),
    ]
}

fn tree() -> impl Strategy<Value = Tree> {
    // One column more often than not: lists of one value are what the planner merges.
    let column = || prop_oneof![4 => Just(1usize), 1 => Just(0usize), 1 => Just(2usize)];
    let leaf = prop_oneof![
        5 => (column(), prop::collection::vec(operand(), 1..5), any::<bool>())
            .prop_map(|(column, list, negated)| Tree::In { column, list, negated }),
        2 => (column(), 1..4i64, any::<bool>()).prop_map(|(column, to, negated)| Tree::Equal { column, to, negated }),
    ];
    leaf.prop_recursive(4, 12, 2, |inner| {
        let boxed = || inner.clone().prop_map(Box::new);
        let what = prop_oneof![Just(None), Just(Some(true)), Just(Some(false))];
        prop_oneof![
            6 => (boxed(), any::<bool>(), boxed()).prop_map(|(left, and, right)| Tree::Logic { left, and, right }),
            3 => boxed().prop_map(Tree::Not),
            1 => (boxed(), what, any::<bool>()).prop_map(|(tree, what, negated)| Tree::Is { tree, what, negated }),
            1 => (boxed(), boxed(), boxed())
                .prop_map(|(when, then, otherwise)| Tree::Case { when, then, otherwise }),
        ]
    })
}

async fn check(trees: Vec<Tree>) {
    let fixture = filled().await;
    for tree in trees {
        let condition = tree.sql();
        let passing: Vec<String> = rows()
            .iter()
            .filter(|row| tree.of(row) == Some(true))
            .filter_map(|row| Some(row[0]?.to_string()))
            .collect();
        let shown: Vec<String> = rows()
            .iter()
            .filter_map(|row| {
                Some(format!("{}|{}", row[0]?, tree.of(row).map_or("NULL".to_owned(), |v| v.to_string())))
            })
            .collect();
        for (path, pruning) in [("lake", "on"), ("lake", "on"), ("lake", "off"), ("rows", "on"), ("auto", "on")] {
            fixture.set("tarn.access_path", path).await;
            fixture.set("tarn.pruning", pruning).await;
            let found = fixture.rows(&format!("SELECT id FROM t WHERE {condition} ORDER BY id")).await;
            assert_eq!(found, passing, "{path}: {condition}");
            let values = fixture.rows(&format!("SELECT id, {condition} FROM t ORDER BY id")).await;
            assert_eq!(values, shown, "{path}: {condition}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn conditions_over_lists_are_three_valued(trees in prop::collection::vec(tree(), 12)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(check(trees));
    }
}

#[tokio::test]
async fn null_in_a_list_and_null_rows_pass_nothing() {
    let fixture = filled().await;
    for (condition, expected) in [
        ("n NOT IN (NULL, 2) AND n IN (1, 2, 3)", ""),
        ("n NOT IN (1) OR n NOT IN (2)", "1 2 3"),
        ("NOT (n IN (1, 2) AND n IN (3))", "1 2 3"),
        ("n NOT IN (1, 2) OR n NOT IN (3)", "1 2 3"),
        ("n IN (1, 2) AND n NOT IN (m, 2)", "1"),
        ("n IN (1, 2) AND n IN (m, 3)", "1 2"),
    ] {
        let sql = format!("SELECT DISTINCT n FROM t WHERE {condition} ORDER BY n");
        assert_eq!(fixture.rows(&sql).await.join(" "), expected, "{condition}");
    }
}
