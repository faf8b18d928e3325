//! Does the door ask? Every call that takes a [`Principal`] is made by who may nothing, by nobody, and by a superuser;
//! and every public call of the door takes one, or is listed here with the reason why not.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use futures::FutureExt;
use futures::future::BoxFuture;
use tarn_metastore::MetastoreExt;
use tarn_types::{
    Archive, BatchBuilder, Column, ColumnId, Cursor, DataType, ForeignKey, KeyPart, Op, Request, RequestId, TableId,
    TableOptions, TableSchema, TabletId, Unique, Value, View, encode_key, full_name,
};

use crate::alter_at_commit::AlteredTable;
use crate::attach::AttachRequest;
use crate::auth::access::{Attributes, Grant, Objects};
use crate::auth::{Access, Principal, Privilege};
use crate::catalog::TableHandle;
use crate::error::{Error, ErrorKind, Result};
use crate::external_table::ExternalTable;
use crate::functions::{Body, FunctionId, FunctionSource as Function, Parallel, Volatility};
use crate::jobs::Work;
use crate::node::Node;
use crate::own::OwnWrites;
use crate::renames::Rename;
use crate::requests::NamedRequest;
use crate::scan::ScanRequest;
use crate::sequences::{Owner, Reset, Sequence};
use crate::settings::NodeSettings;
use crate::split::SplitAt;
use crate::tables::Row;
use crate::transaction::TableWrites;
use crate::types::TypeKind;
use crate::view_readers::Rewrites;
use crate::write::Waiter;

/// A call of the door; of those that belong together the later ones find what the earlier ones did.
type Call = for<'a> fn(&'a Arc<Node>, &'a Principal) -> BoxFuture<'a, Result<()>>;

const CONSTRAINTS: &str = "what a table's definition has to know, whether or not who writes may read it";

/// Public calls that take no [`Principal`].
const ASKED_ELSEWHERE: &[(&str, &str)] = &[
    ("TableAlteration::deliver", "who alters the table was asked by begin_alter"),
    (
        "TableAlteration::finish",
        "who alters the table was asked by begin_alter, and its new parents are asked for here",
    ),
    ("TableAlteration::make_beside", "who alters the table was asked by begin_alter"),
    ("TableAlteration::make_index", "who alters the table was asked by begin_alter"),
    (
        "TableAlteration::take_place",
        "who alters the table was asked by begin_alter, and its new parents are asked for here",
    ),
    ("Directory::all", "the sequences that there are, and how far they are, are in catalogs that all may read"),
    ("Directory::check_password", "how somebody becomes a principal"),
    ("Directory::admit", "how somebody becomes a principal"),
    ("Directory::get", "as of all sequences"),
    ("Directory::make_superuser", "for the operator, who has the server's settings and files"),
    ("Directory::open", "how a node opens"),
    ("Directory::refresh", "changes nothing, but what is known of it"),
    ("Node::check_free", "which names there are is in catalogs that all may read"),
    ("Node::close", "the binary's"),
    ("Node::close_within", "the binary's"),
    ("Node::commits", "what system tables say: tarn-sql asks who reads one of them"),
    ("Node::contents_of", "which names there are is in catalogs that all may read"),
    ("Node::lake_of", "what system tables say: tarn-sql asks who reads one of them"),
    ("Node::lakes", "what system tables say: tarn-sql asks who reads one of them"),
    ("Node::metastore_stats", "what system tables say: tarn-sql asks who reads one of them"),
    ("Node::open", "the binary's"),
    ("Node::open_with", "the binary's"),
    ("Node::reopen_asked", "the binary's"),
    ("Node::sweep_dropped", "upkeep that the node does by itself, too"),
    ("Node::temporary_table", "in memory, of whoever holds its handle, and found by nobody else"),
    ("Node::temporary_view", "in memory, of whoever holds its handle, and found by nobody else"),
    ("TableService::begin_request", "a turn of the caller's own"),
    ("TableService::entries_there", CONSTRAINTS),
    ("TableService::first_outcome", "of a request, by a name that who made it chose"),
    ("TableService::indexes", "a part of a table's definition, which is in catalogs that all may read"),
    ("TableService::moment", "whether somebody may read a table of it is asked when they do"),
    ("TableService::orphans", CONSTRAINTS),
    ("TableService::rows_to_follow", CONSTRAINTS),
    ("TableService::violation", CONSTRAINTS),
];

/// The calls, by their names, in an order in which a superuser can make them.
const CALLS: &[(&str, Call)] = &[
    ("get", |node, who| async move { node.tables().get(who, &t(node), &key(node)).await.map(drop) }.boxed()),
    ("multi_get", |node, who| async move { node.tables().multi_get(who, &t(node), &[]).await.map(drop) }.boxed()),
    ("get_in", |node, who| async move { get_in(node, who).await.map(drop) }.boxed()),
    ("are_there", |node, who| async move { node.tables().are_there(who, &t(node), vec![]).await.map(drop) }.boxed()),
    ("scan", |node, who| {
        async move {
            let request = ScanRequest::all(t(node).schema(), 1);
            node.tables().scan(who, &t(node), &request).await.map(drop)
        }
        .boxed()
    }),
    ("snapshot", |node, who| {
        async move {
            let opened = node.tables().open("t").unwrap();
            node.tables().snapshot(who, &[(opened, None)]).map(drop)
        }
        .boxed()
    }),
    ("changes", |node, who| {
        async move { node.tables().changes(who, &t(node), &Cursor::default(), 1).await.map(drop) }.boxed()
    }),
    ("write", |node, who| {
        async move { node.tables().write(who, &t(node), Privilege::Insert, vec![], &BlockingWaiter).await.map(drop) }
            .boxed()
    }),
    ("write_rows", |node, who| {
        async move {
            let rows = RecordBatch::new_empty(t(node).schema().arrow());
            node.tables().write_rows(who, &t(node), rows, Op::Put, &BlockingWaiter).await.map(drop)
        }
        .boxed()
    }),
    ("write_whole", |node, who| {
        async move {
            let batch = BatchBuilder::new(t(node).schema()).finish();
            node.tables().write_whole(who, &t(node), Privilege::Delete, batch, &BlockingWaiter).await.map(drop)
        }
        .boxed()
    }),
    ("commit_together", |node, who| {
        async move { node.tables().commit_together(who, writes(node), &BlockingWaiter).await.map(drop) }.boxed()
    }),
    ("commit_request", |node, who| {
        async move {
            let request = Request { id: RequestId { origin: 1, sequence: 1 }, statements: vec![] };
            let named = NamedRequest { home: t(node), request };
            node.tables().commit_request(who, writes(node), named, &BlockingWaiter).await.map(drop)
        }
        .boxed()
    }),
    ("commit_altering", |node, who| {
        async move {
            let from = Arc::clone(t(node).schema());
            let mut to = (*from).clone();
            to.columns[1].default = Some(Value::Int32(7));
            let altered = AlteredTable { from, to: Arc::new(to), looked_at: None };
            node.commit_altering(who, vec![altered], vec![], AS_THEY_ARE).await.map(drop)
        }
        .boxed()
    }),
    ("work", |node, who| async move { node.work(who, &t(node), Work::Flush).await.map(drop) }.boxed()),
    ("split", |node, who| async move { node.split(who, &t(node), SplitAt::Key(vec![])).await.map(drop) }.boxed()),
    ("say", |node, who| async move { node.say(who, t(node).schema(), None, Some("x".into())).await }.boxed()),
    ("begin_alter", |node, who| async move { node.begin_alter(who, "t").await.map(drop) }.boxed()),
    ("make_index_beside", |node, who| {
        async move {
            let mut to = (**t(node).schema()).clone();
            let (name, columns) = ("t_v_key".into(), vec![ColumnId(2)]);
            to.options.rules.uniques.push(Unique { name, columns, ..Unique::default() });
            node.make_index_beside(who, &to, 0).await.map(drop)
        }
        .boxed()
    }),
    ("drop_unnamed_index", |node, who| async move { node.drop_unnamed_index(who, TableId(999)).await }.boxed()),
    ("rename", |node, who| {
        async move {
            let rename = Rename { from: "w".into(), to: "x".into() };
            node.rename(who, &[rename], |_, _| Ok(String::new())).await
        }
        .boxed()
    }),
    ("create_table", |node, who| async move { node.create_table(who, table("new"), false).await.map(drop) }.boxed()),
    ("check_droppable", |node, who| async move { node.check_droppable(who, "new").await }.boxed()),
    ("end_references", |node, who| {
        async move { node.end_references(who, &[t(node).schema().id].into(), AS_THEY_ARE).await }.boxed()
    }),
    ("drop_table", |node, who| async move { node.drop_table(who, "new", false).await.map(drop) }.boxed()),
    ("create_view", |node, who| async move { node.create_view(who, view(node, "v"), false).await.map(drop) }.boxed()),
    ("create_schema", |node, who| async move { node.create_schema(who, "r", None).await.map(drop) }.boxed()),
    ("alter_schema", |node, who| {
        async move { node.alter_schema(who, "r", &|of| of.comment = Some("x".into())).await }.boxed()
    }),
    ("rename_schema", |node, who| {
        async move { node.rename_schema(who, "r", "s", |_, _| Ok(String::new())).await }.boxed()
    }),
    ("create_type", |node, who| async move { node.create_type(who, "s_mood", labels()).await.map(drop) }.boxed()),
    ("alter_type", |node, who| {
        async move {
            let change = |of: &mut crate::types::UserType| {
                of.comment = Some("x".into());
                Ok(())
            };
            node.alter_type(who, "s_mood", &change).await
        }
        .boxed()
    }),
    ("drop_type", |node, who| {
        async move {
            let id = node.types().get("s_mood").unwrap().id;
            node.drop_type(who, id).await.map(drop)
        }
        .boxed()
    }),
    ("create_function", |node, who| {
        async move { node.create_function(who, "f", function(), None).await.map(drop) }.boxed()
    }),
    ("alter_function", |node, who| {
        async move {
            let change = |of: &mut crate::functions::UserFunction| {
                of.comment = Some("x".into());
                Ok(())
            };
            node.alter_function(who, f(node), &change).await
        }
        .boxed()
    }),
    ("drop_functions", |node, who| async move { node.drop_functions(who, &[f(node)]).await }.boxed()),
    ("create_sequence", |node, who| {
        async move { node.create_sequence(who, "q", Sequence::default(), false).await.map(drop) }.boxed()
    }),
    ("may_use_now", |node, who| async move { node.may_use_now(who, "q", Privilege::Insert).await }.boxed()),
    ("take_numbers", |node, who| async move { node.take_numbers(who, "q", 1).await.map(drop) }.boxed()),
    // Whose it is, is in memory since numbers were taken.
    ("take_numbers_now", |node, who| async move { node.take_numbers_now(who, "q", 1).map(drop) }.boxed()),
    ("set_sequence", |node, who| {
        async move { node.set_sequence(who, "q", Reset { last: 7, is_called: true }).await }.boxed()
    }),
    ("alter_sequence", |node, who| {
        async move {
            let change = |of: &mut Sequence| {
                of.cache = 2;
                Ok(())
            };
            node.alter_sequence(who, "q", change).await
        }
        .boxed()
    }),
    ("restart_sequences_of", |node, who| async move { node.restart_sequences_of(who, "t").await }.boxed()),
    ("rename_sequence", |node, who| async move { node.rename_sequence(who, "q", "p").await }.boxed()),
    ("drop_sequence", |node, who| async move { node.drop_sequence(who, "p").await.map(drop) }.boxed()),
    ("drop_schema", |node, who| {
        async move {
            let id = node.schemas().get("s").unwrap().id;
            node.drop_schema(who, id, true, AS_THEY_ARE).await.map(drop)
        }
        .boxed()
    }),
    ("change_access", |node, who| {
        async move {
            let attributes = Attributes { login: Some(true), ..Attributes::default() };
            node.change_access(who, &Access::CreateUser { name: "eve".into(), attributes }).await
        }
        .boxed()
    }),
    ("drop_caches", |node, who| async move { node.drop_caches(who, None, None).await.map(drop) }.boxed()),
    ("attach", |node, who| {
        async move {
            let url = node.settings().attach_roots.clone();
            node.attach(who, &AttachRequest { url, name: "logs".into(), ..AttachRequest::default() }).await.map(drop)
        }
        .boxed()
    }),
    ("pass", |node, who| async move { node.pass(who, &archive(node)).await.map(drop) }.boxed()),
    ("detach", |node, who| async move { node.detach(who, "archive", false).await.map(drop) }.boxed()),
];

const AS_THEY_ARE: Rewrites = Rewrites { names: |_, _| Ok(String::new()), columns: |_, _, _| Ok(None) };

struct BlockingWaiter;

impl Waiter for BlockingWaiter {
    fn submits(&self) -> bool {
        true
    }

    fn decided(&self, _: u64) {}
}

fn t(node: &Node) -> Arc<TableHandle> {
    node.catalog().require("t").unwrap()
}

fn key(node: &Node) -> Vec<u8> {
    encode_key(t(node).schema(), &[Value::Int32(1)]).unwrap()
}

fn f(node: &Node) -> FunctionId {
    node.functions().named("f")[0].id
}

fn archive(node: &Node) -> Arc<ExternalTable> {
    node.catalog().external_table("archive").unwrap()
}

fn writes(node: &Node) -> Vec<TableWrites> {
    let (table, own) = (t(node), Arc::new(OwnWrites::new(Arc::clone(t(node).schema()))));
    vec![TableWrites { table, privileges: [Privilege::Insert].into(), own }]
}

async fn get_in(node: &Node, who: &Principal) -> Result<Option<Row>> {
    let snapshot = node.tables().moment()?.of(&node.tables().open("t").unwrap()).unwrap();
    node.tables().get_in(who, t(node).schema(), &snapshot, &key(node)).await
}

fn table(name: &str) -> TableSchema {
    let column = |id, name: &str, nullable| Column {
        id: ColumnId(id),
        name: name.into(),
        data_type: DataType::Int32,
        nullable,
        default: None,
    };
    TableSchema {
        id: TableId(0),
        name: name.into(),
        columns: vec![column(1, "k", false), column(2, "v", true)],
        key: vec![KeyPart { column_idx: 0, descending: false }],
        n_partition_key: 1,
        first_tablet: TabletId(0),
        options: TableOptions::default(),
    }
}

/// Of `t`.
fn view(node: &Node, name: &str) -> TableSchema {
    let reads = BTreeMap::from([("t".to_owned(), t(node).schema().id)]);
    let view = View { query: "SELECT k FROM t".into(), columns: vec!["k".into()], reads };
    let mut schema = TableSchema { key: vec![], n_partition_key: 0, ..table(name) };
    schema.columns.truncate(1);
    schema.columns[0].nullable = true;
    schema.options = TableOptions { tablets: 0, view: Some(view), ..TableOptions::default() };
    schema
}

/// A table whose `v` refers to the key of another.
fn child(name: &str, parent: TableId) -> TableSchema {
    let mut schema = table(name);
    let (columns, parent_columns) = (vec![ColumnId(2)], vec![ColumnId(1)]);
    schema.options.rules.uniques.push(Unique {
        name: format!("{}_fk", full_name::bare(name)),
        columns: columns.clone(),
        by_index: true,
        repeats: true,
        of_foreign_key: true,
        ..Unique::default()
    });
    let key = ForeignKey { name: "fk".into(), columns, parent, parent_columns, ..ForeignKey::default() };
    schema.options.rules.foreign_keys.push(key);
    schema
}

fn labels() -> TypeKind {
    TypeKind::Enum { labels: vec!["a".into()] }
}

fn function() -> Function {
    Function {
        parameters: vec![],
        returns: "integer".into(),
        is_set: false,
        columns: vec![],
        body: Body::Text("SELECT 1".into()),
        volatility: Volatility::Volatile,
        is_strict: false,
        is_leakproof: false,
        parallel: Parallel::Unsafe,
        cost: None,
        rows: None,
    }
}

/// A node with tables `t` and `w` and an archive, all of superuser root, and bob, who may nothing.
async fn node(dir: &Path) -> (Arc<Node>, Principal, Principal) {
    let (data_dir, logs) = (dir.join("data"), dir.join("logs"));
    std::fs::create_dir(&logs).unwrap();
    let attach_roots = logs.display().to_string();
    let settings =
        NodeSettings { data_dir, attach_roots, background: false, reserve_bytes: 0, ..NodeSettings::default() };
    let node = Node::open(settings).await.unwrap();
    node.users().make_superuser("root", "r").await.unwrap();
    let root = node.users().admit("root").unwrap();
    for name in ["t", "w"] {
        node.create_table(&root, table(name), false).await.unwrap();
    }
    let mut schema = table("archive");
    (schema.key, schema.n_partition_key) = (vec![], 0);
    let archive = Archive { url: logs.display().to_string(), attached: true, ..Archive::default() };
    (schema.options.archive, schema.options.tablets) = (Some(archive), 0);
    let schema = node.metastore().create_table(schema).await.unwrap();
    let external = node.open_external_table(schema).await.unwrap();
    node.catalog().insert_external(external);
    let attributes = Attributes { login: Some(true), ..Attributes::default() };
    node.change_access(&root, &Access::CreateUser { name: "bob".into(), attributes }).await.unwrap();
    let bob = node.users().admit("bob").unwrap();
    (node, root, bob)
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_is_refused_by_every_call() {
    let dir = tempfile::tempdir().unwrap();
    let (node, root, bob) = node(dir.path()).await;
    for (name, call) in CALLS {
        for (who, refused) in [(&bob, ErrorKind::Denied), (&Principal::Nobody, ErrorKind::NotAllowedIn)] {
            let told: Option<Error> = call(&node, who).await.err();
            assert_eq!(told.as_ref().map(Error::kind), Some(refused), "{name} by {who:?}: {told:?}");
        }
        // It may fail for another reason: an empty folder is no archive.
        let told: Option<Error> = call(&node, &root).await.err();
        let is_refused = |kind| [ErrorKind::Denied, ErrorKind::NotAllowedIn].contains(&kind);
        assert!(!told.as_ref().map(Error::kind).is_some_and(is_refused), "{name} by a superuser: {told:?}");
    }
    node.close().await.unwrap();
}

/// What a definition names beside itself, and where it comes to, are asked for, too.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_definition_touches_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let (node, root, bob) = node(dir.path()).await;
    let grant = |privileges: &[Privilege], on| {
        let (privileges, users) = (privileges.iter().copied().collect(), vec!["bob".to_owned()]);
        Access::Grant(Grant { privileges, on, users })
    };
    node.change_access(&root, &grant(&[], Objects::Schema)).await.unwrap();
    let of_root = t(&node).schema().id;
    let denied = Some(ErrorKind::Denied);

    assert_eq!(kind(node.create_table(&bob, child("c", of_root), false).await), denied, "another's table as a parent");
    node.create_table(&bob, table("own"), false).await.unwrap();
    let own = node.catalog().require("own").unwrap().schema().id;
    assert!(node.users().users().owns(own, "bob"), "a table is its maker's");
    let altering = node.begin_alter(&bob, "own").await.unwrap();
    let mut to = (**altering.schema()).clone();
    to.options.rules.foreign_keys = child("own", of_root).options.rules.foreign_keys;
    assert_eq!(kind(altering.finish(to, AS_THEY_ARE).await), denied);
    node.create_table(&bob, child("c", own), false).await.unwrap();

    assert_eq!(kind(node.create_view(&bob, view(&node, "v"), false).await), denied, "what a view reads");
    node.change_access(&root, &grant(&[Privilege::Select], Objects::Tables(vec!["t".into()]))).await.unwrap();
    assert_eq!(kind(node.create_view(&bob, view(&node, "v"), false).await), None);
    assert_eq!(kind(node.drop_table(&root, "t", false).await), Some(ErrorKind::Depended));

    node.create_schema(&root, "s", None).await.unwrap();
    let there = |name: &str| full_name::join("s", name);
    let rename = Rename { from: "c".into(), to: there("c") };
    assert_eq!(kind(node.rename(&bob, &[rename], |_, _| Ok(String::new())).await), denied, "another's schema");
    node.create_type(&bob, "mood", labels()).await.unwrap();
    let moves = |of: &mut crate::types::UserType| {
        of.name = there("mood");
        Ok(())
    };
    assert_eq!(kind(node.alter_type(&bob, "mood", &moves).await), denied);
    assert!(node.types().get("mood").is_some_and(|of| of.maker.as_deref() == Some("bob")));
    node.create_function(&bob, "f", function(), None).await.unwrap();
    let moves = |of: &mut crate::functions::UserFunction| {
        of.name = there("f");
        Ok(())
    };
    assert_eq!(kind(node.alter_function(&bob, f(&node), &moves).await), denied);
    assert_eq!(kind(node.create_function(&root, "f", function(), Some(f(&node))).await), None);
    assert_eq!(node.functions().named("f")[0].maker.as_deref(), Some("bob"), "what is replaced keeps its maker");

    let of_column =
        Owner { table: "t".into(), column: "k".into(), table_id: None, column_id: None, is_identity: false };
    let sequence = Sequence { owner: Some(of_column.clone()), ..Sequence::default() };
    assert_eq!(kind(node.create_sequence(&bob, "q", sequence, false).await), denied, "a sequence of another's table");
    node.create_sequence(&bob, "q", Sequence::default(), false).await.unwrap();
    let goes_with = |of: &mut Sequence| {
        of.owner = Some(of_column.clone());
        Ok(())
    };
    assert_eq!(kind(node.alter_sequence(&bob, "q", goes_with).await), denied);
    assert_eq!(kind(node.rename_sequence(&bob, "q", &there("q")).await), denied);

    node.alter_schema(&root, "s", &|of| of.owner = Some("bob".into())).await.unwrap();
    node.create_table(&root, child(&there("of_root"), own), false).await.unwrap();
    let id = node.schemas().get("s").unwrap().id;
    assert_eq!(kind(node.drop_table(&bob, &there("of_root"), false).await), denied);
    assert!(node.drop_schema(&bob, id, true, AS_THEY_ARE).await.unwrap(), "with what others made in it");
    assert!(!node.catalog().contains(&there("of_root")));
    node.end_references(&bob, &[own].into(), AS_THEY_ARE).await.unwrap();
    node.drop_table(&bob, "own", false).await.unwrap();
    node.drop_table(&Principal::Node, "w", false).await.unwrap();
    node.close().await.unwrap();
}

/// Public functions of a file, of the types that are the door: whose, name, signature.
fn calls(text: &str) -> Vec<(String, String, String)> {
    const DOOR: [&str; 4] = ["Node", "TableService", "TableAlteration", "Directory"];
    let (mut of, mut found) = (None, vec![]);
    let lines: Vec<&str> = text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        if let Some(named) = line.strip_prefix("impl ") {
            of = DOOR.iter().find(|door| named.trim_end_matches(" {") == **door);
        }
        if line.starts_with("#[cfg(test)]") {
            break;
        }
        let (Some(of), Some(rest)) = (of, line.strip_prefix("    pub ")) else { continue };
        let Some(rest) = rest.strip_prefix("async ").unwrap_or(rest).strip_prefix("fn ") else { continue };
        let name = rest.split(['(', '<']).next().unwrap_or_default().to_owned();
        let to = lines[at..].iter().position(|line| line.ends_with('{')).unwrap_or_default();
        found.push(((*of).to_owned(), name, lines[at..=at + to].join(" ")));
    }
    found
}

#[test]
fn no_call_forgets_to_say_who_asks() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![folder];
    let (mut with, mut without) = (BTreeSet::new(), BTreeSet::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
                continue;
            }
            for (of, name, signature) in calls(&std::fs::read_to_string(&entry).unwrap()) {
                let is_rule = entry.ends_with("rights.rs");
                let does =
                    signature.contains("async fn") || ["Result", "Future"].iter().any(|is| signature.contains(is));
                match signature.contains("who: &Principal") {
                    true if is_rule => {}
                    true => drop(with.insert(name)),
                    false if does => drop(without.insert(format!("{of}::{name}"))),
                    false => {}
                }
            }
        }
    }
    let known: BTreeSet<String> = CALLS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(with, known, "each call that takes a Principal is made above");
    let listed: BTreeSet<String> = ASKED_ELSEWHERE.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(without, listed, "each public call of the door says who asks, or is listed with the reason why not");
}
