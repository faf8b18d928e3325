//! What do `CREATE VIEW`, `DROP VIEW`, `DROP TABLE … CASCADE` and `COMMENT ON` do?
//!
//! A view is made of its query's plan, which says its columns and what it reads. A new one is there at once; inside a
//! transaction it is remembered, to be dropped when that is undone. What changes or drops something is held until
//! COMMIT. A temporary one, as one that reads what the session has to itself, is among the tables of the session
//! (`temporary.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::arrow::datatypes::FieldRef;
use tarn_node::auth::Principal;
use tarn_node::node::Node;
use tarn_node::parents::check_unreferenced;
use tarn_node::views::{check_unread, no_view, outermost_first, readers, replaced};
use tarn_query::{MAX_VIEW_DEPTH, RelationRead, reads};
use tarn_types::{
    Column, ColumnId, DataType, Rules, TableId, TableOptions, TableSchema, TabletId, View, data_type_of, full_name,
};

use super::placeholders::parameter_fields;
use super::sequences::taken;
use super::{Answer, Session};
use crate::altered::NameLookup;
use crate::comment_sql::{Comment, CommentTarget};
use crate::ddl::Ddl;
use crate::error::{Result, SqlError, state};
use crate::names::{check_name, quote};
use crate::row_type::named;
use crate::rows::is_between_times;
use crate::seen_schemas::REWRITES;
use crate::shown::shown;
use crate::temporary::{OnCommit, OwnTable, read_as};
use crate::transaction::{CreatedId, CreatedObject};
use crate::user_types::undefined_type;
use crate::view_sql::{CreateView, ViewStatement};
use crate::views;

impl Session {
    /// Makes a view, or gives one another query.
    ///
    /// Errors: those of its query; `42P07`, `42809` and `42P16` of its name and of what it was before.
    pub(super) async fn create_view(&self, asked: &CreateView) -> Result<Answer> {
        let in_transaction = self.must_hold()?;
        let schema = Box::new(self.view(asked).await?);
        let reads_own = schema.options.view.iter().flat_map(|view| view.reads.values()).any(|id| id.is_temporary());
        if asked.temporary || reads_own {
            self.make_own_view(*schema, asked.or_replace)?;
            return Ok(Answer::done("CREATE VIEW"));
        }
        let (name, or_replace) = (schema.name.clone(), asked.or_replace);
        let replaces = or_replace && self.node.catalog().contains(&name);
        let ddl = Ddl::Views(ViewStatement::Create { schema, or_replace });
        if in_transaction && replaces {
            self.transaction.lock().drop_later(ddl)?;
        } else if self.run_ddl(ddl).await? && in_transaction {
            let id = self.node.catalog().schema(&name)?.id;
            self.transaction.lock().made(CreatedObject { name, what: CreatedId::Relation(id) });
        }
        Ok(Answer::done("CREATE VIEW"))
    }

    /// Makes a view that the session has to itself.
    ///
    /// Errors: `42P07`, `42809` and `42P16` of its name and of what it was before, `42P17` for one that would read
    /// itself; `54000`.
    fn make_own_view(&self, mut schema: TableSchema, or_replace: bool) -> Result<()> {
        schema.name = full_name::bare(&schema.name).to_owned();
        if let Some(there) = self.temporary.table(&schema.name) {
            let (there, name) = (there.schema(), &schema.name);
            if !or_replace {
                let message = format!("relation \"{name}\" already exists");
                return Err(SqlError::new(state::DUPLICATE_TABLE, message)
                    .with_hint("use CREATE OR REPLACE TEMPORARY VIEW, or DROP it first"));
            }
            if !there.is_view() {
                return Err(no_view(name).into());
            }
            let reads_it =
                |of: &TableSchema| of.options.view.as_ref().is_some_and(|view| view.reads.contains_key(&read_as(name)));
            let readers = self.temporary.readers(&[], std::slice::from_ref(name));
            let reads_reader = readers.iter().any(|reader| {
                schema.options.view.as_ref().is_some_and(|view| view.reads.contains_key(&read_as(&reader.name)))
            });
            if reads_it(&schema) || reads_reader {
                return Err(circle_of(name));
            }
            schema = replaced(there, schema)?;
        }
        let handle = self.node.temporary_view(schema)?;
        self.temporary.insert(OwnTable { handle, on_commit: OnCommit::Keep }, vec![])
    }

    /// Whether tables and views go that views of the session's own read; these go first with `cascade`.
    ///
    /// Errors: `2BP01`.
    fn drop_own_readers(&self, own: &[String], names: &[String], cascade: bool) -> Result<()> {
        let catalog = self.node.catalog();
        let ids: Vec<TableId> = names.iter().filter_map(|name| Some(catalog.schema(name).ok()?.id)).collect();
        let readers = self.temporary.readers(&ids, own);
        if readers.is_empty() {
            return Ok(());
        }
        if cascade {
            readers.iter().for_each(|view| self.temporary.drop_table(&view.name));
            return Ok(());
        }
        let name = own.first().or(names.first()).map_or("", String::as_str);
        let what = if self.view_of(name).is_some() { "view" } else { "table" };
        let message = format!("cannot drop {what} {} because other objects depend on it", full_name::dotted(name));
        let views =
            readers.iter().map(|view| format!("view {} depends on {what} {}", view.name, full_name::dotted(name)));
        Err(SqlError::new(state::DEPENDENT_OBJECTS, message)
            .with_detail(views.collect::<Vec<_>>().join("; "))
            .with_hint("Use DROP ... CASCADE to drop the dependent objects too."))
    }

    /// Drops views, or tables with the views that read them; or holds that until COMMIT.
    pub(super) async fn drop_relations(
        &self,
        names: Vec<String>,
        are_views: bool,
        if_exists: bool,
        cascade: bool,
    ) -> Result<Answer> {
        let (own, names): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| self.temporary.table(name).is_some());
        if !own.is_empty() {
            self.must_hold()?;
        }
        for name in &own {
            match self.view_of(name).is_some() {
                false if are_views => return Err(no_view(name).into()),
                true if !are_views => {
                    return Err(SqlError::new(state::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a table"))
                        .with_hint("use DROP VIEW to remove a view"));
                }
                _ => {}
            }
        }
        self.drop_own_readers(&own, &names, cascade)?;
        if !own.is_empty() && names.is_empty() {
            own.iter().for_each(|name| self.temporary.drop_table(name));
            return Ok(Answer::done(if are_views { "DROP VIEW" } else { "DROP TABLE" }));
        }
        let is_gone = |name: &String| matches!(self.temporary.called(name), NameLookup::Nothing);
        let (gone, names): (Vec<String>, Vec<String>) = names.into_iter().partition(is_gone);
        if !if_exists {
            gone.first().map_or(Ok(()), |name| Err(SqlError::undefined_table(name)))?;
            names.iter().try_for_each(|name| self.node.schemas().check_there(name))?;
            names.iter().try_for_each(|name| self.transaction.lock().check_named(name))?;
        }
        let unmade = if let [name] = &names[..] { self.transaction.lock().unmake(name) } else { None };
        unmade.into_iter().for_each(|id| self.temporary.forget_altered(id));
        let held = self.must_hold()? && unmade.is_none();
        if held && !if_exists {
            // What would fail at COMMIT fails when it is asked for.
            for name in &names {
                self.transaction.lock().check_there(name)?;
                if !are_views && matches!(self.temporary.called(name), NameLookup::Altered(_)) {
                    continue;
                }
                let Err(absent) = found(&self.node, name, are_views) else { continue };
                // A table that is half made is in no catalog, and goes all the same.
                let is_known = are_views || self.node.catalog().contains(name);
                if is_known || self.node.check_droppable(&self.principal(), name).await.is_err() {
                    return Err(absent);
                }
            }
            if !cascade && !are_views {
                let tables: Vec<_> = names.iter().filter_map(|name| self.definition(name).ok()).collect();
                let edges = self.edges();
                let gone =
                    edges.all.iter().filter(|edge| self.transaction.lock().check_there(&edge.child.name).is_err());
                let going = gone.map(|edge| edge.child.id).chain(tables.iter().map(|table| table.id)).collect();
                tables.iter().try_for_each(|table| check_unreferenced(&edges, &going, table))?;
            }
        }
        let ddl = Ddl::Views(ViewStatement::Drop { names, are_views, if_exists, cascade });
        match held {
            true => self.transaction.lock().drop_later(ddl)?,
            false => drop(self.run_ddl(ddl).await?),
        }
        // Behind the others, which may not be there.
        own.iter().for_each(|name| self.temporary.drop_table(name));
        Ok(Answer::done(if are_views { "DROP VIEW" } else { "DROP TABLE" }))
    }

    /// Says something of a table, a view or a column; or holds that until COMMIT.
    pub(super) async fn comment(&self, comment: &Comment) -> Result<Answer> {
        if comment.on == CommentTarget::Type {
            self.comment_type(&comment.table, comment.text.as_deref()).await?;
            return Ok(Answer::done("COMMENT"));
        }
        self.refuse_own("COMMENT", &comment.table)?;
        let ddl = Ddl::Views(ViewStatement::Comment(comment.clone()));
        match self.must_hold()? {
            true => {
                self.check_commented(comment)?;
                self.transaction.lock().drop_later(ddl)?;
            }
            false => drop(self.run_ddl(ddl).await?),
        }
        Ok(Answer::done("COMMENT"))
    }

    /// Whether there is what is said something of, as the transaction sees it.
    fn check_commented(&self, comment: &Comment) -> Result<()> {
        let (NameLookup::Altered(altered), CommentTarget::Table | CommentTarget::Column(_)) =
            (self.temporary.called(&comment.table), &comment.on)
        else {
            return column_of(&self.node, comment).map(drop);
        };
        let CommentTarget::Column(name) = &comment.on else { return Ok(()) };
        let table = altered.handle.schema();
        match table.shown().iter().any(|column| column.name == *name) {
            true => Ok(()),
            false => Err(SqlError::undefined_column(&table.name, name)),
        }
    }

    /// The definition of a view that is asked for.
    async fn view(&self, asked: &CreateView) -> Result<TableSchema> {
        check_name("view", &asked.name)?;
        self.check_order(&asked.query)?;
        let plan = self.plan(&views::query(&asked.query)?, &[]).await?;
        if !parameter_fields(&plan)?.is_empty() {
            return Err(SqlError::new(state::UNDEFINED_PARAMETER, "there is no parameter $1")
                .with_hint("a view is read without parameters: ask for them with WHERE when it is read"));
        }
        let mut below: BTreeMap<String, TableId> = BTreeMap::new();
        for read in reads(&plan)? {
            if let RelationRead::View { depth, .. } = read
                && depth + 2 > MAX_VIEW_DEPTH
            {
                let message = format!("view \"{}\" would be more than {MAX_VIEW_DEPTH} views deep", asked.name);
                return Err(SqlError::new(state::PROGRAM_LIMIT, message)
                    .with_hint("make a table of what one of them gives, or say what it says in the query"));
            }
            if let RelationRead::Table { table: of, through: None }
            | RelationRead::View { view: of, through: None, .. } = read
            {
                if of.id.is_temporary() {
                    below.insert(read_as(&of.name), of.id);
                    continue;
                }
                self.transaction.lock().check_there(&of.name)?;
                // It would be there for everybody at once, who see the table otherwise.
                if self.temporary.now().altered.get(of.id).is_some() {
                    return Err(SqlError::unsupported(
                        format!("view \"{}\" of \"{}\", which this transaction altered", asked.name, of.name),
                        "COMMIT first",
                    ));
                }
                below.insert(of.name.clone(), of.id);
            }
        }
        if !asked.temporary {
            self.check_no_circle(&asked.name, &below)?;
        }
        let plan = self.permitted(plan)?;
        let fields = shown(&Arc::new(plan.schema().as_arrow().clone()));
        let given: Vec<String> = fields.fields().iter().map(|field| field.name().clone()).collect();
        if asked.columns.len() > given.len() {
            return Err(SqlError::new(state::SYNTAX_ERROR, "CREATE VIEW specifies more column names than columns"));
        }
        let mut columns: Vec<Column> = Vec::with_capacity(given.len());
        let mut rules = Rules::default();
        for (at, field) in fields.fields().iter().enumerate() {
            let name = asked.columns.get(at).unwrap_or(field.name()).clone();
            check_name("column", &name)?;
            if columns.iter().any(|column| column.name == name) {
                let message = format!("column \"{name}\" specified more than once");
                return Err(
                    SqlError::new(state::DUPLICATE_COLUMN, message).with_hint("name it in the query: … AS name")
                );
            }
            let (id, data_type) = (ColumnId(at as u32 + 1), column_type(&name, field)?);
            if let Some(of) = self.enumerated(field) {
                rules.entry(id).enumerated = Some(of);
            }
            columns.push(Column { id, name, data_type, nullable: true, default: None });
        }
        let view = View { query: asked.query.clone(), columns: given, reads: below };
        let schema = TableSchema {
            id: TableId(0),
            name: asked.name.clone(),
            columns,
            key: vec![],
            n_partition_key: 0,
            first_tablet: TabletId(0),
            options: TableOptions { tablets: 0, view: Some(view), rules, ..TableOptions::default() },
        };
        schema.validate().map_err(|error| {
            SqlError::new(state::INVALID_TABLE_DEFINITION, format!("view \"{}\": {error}", schema.name))
        })?;
        Ok(schema)
    }

    /// Errors: `42P17` for a view that would read itself.
    fn check_no_circle(&self, name: &str, below: &BTreeMap<String, TableId>) -> Result<()> {
        let Some(before) = self.node.catalog().view(name) else { return Ok(()) };
        let mut circle = readers(&[before.id].into(), &self.node.catalog().views());
        circle.push(before);
        match circle.iter().any(|view| below.values().any(|id| *id == view.id)) {
            false => Ok(()),
            true => Err(circle_of(name)),
        }
    }
}

fn circle_of(name: &str) -> SqlError {
    let message = format!("infinite recursion detected in rules for relation \"{name}\"");
    SqlError::new(state::INVALID_OBJECT_DEFINITION, message).with_hint("a view reads what was there before it")
}

/// Whether something new was made.
pub(super) async fn run(node: &Arc<Node>, principal: &Principal, change: ViewStatement) -> Result<bool> {
    match change {
        ViewStatement::Create { schema, or_replace } => {
            let name = schema.name.clone();
            let replaces = or_replace && node.catalog().view(&name).is_some();
            if !replaces && node.sequences().get(&name).await.is_ok() {
                return Err(taken(&name));
            }
            Ok(node.create_view(principal, *schema, or_replace).await?)
        }
        ViewStatement::Drop { names, are_views, if_exists, cascade } => {
            drop_all(node, principal, &names, are_views, if_exists, cascade).await.map(|()| false)
        }
        ViewStatement::Comment(comment) => {
            let (of, column) = column_of(node, &comment)?;
            node.say(principal, &of, column, comment.text).await?;
            Ok(false)
        }
    }
}

/// All are asked for before the first is gone.
async fn drop_all(
    node: &Arc<Node>,
    principal: &Principal,
    names: &[String],
    are_views: bool,
    if_exists: bool,
    cascade: bool,
) -> Result<()> {
    let mut going: Vec<Arc<TableSchema>> = vec![];
    let mut unserved: BTreeSet<&str> = BTreeSet::new();
    for name in names {
        match found(node, name, are_views) {
            Ok(schema) => {
                node.may_own_named(principal, name)?;
                if going.iter().all(|known| known.id != schema.id) {
                    going.push(schema);
                }
            }
            // It may be a table that is too damaged to be served: superusers may drop it.
            Err(absent) if absent.state() == state::UNDEFINED_TABLE && !are_views => {
                match node.check_droppable(principal, name).await.map_err(SqlError::from) {
                    Ok(()) => drop(unserved.insert(name)),
                    Err(_) if if_exists => {}
                    Err(absent) => return Err(absent),
                }
            }
            Err(absent) if if_exists && absent.state() == state::UNDEFINED_TABLE => {}
            Err(refused) => return Err(refused),
        }
    }
    let going_ids: BTreeSet<TableId> = going.iter().map(|schema| schema.id).collect();
    let edges = node.tables().edges(&[]);
    if !cascade {
        going.iter().try_for_each(|table| check_unreferenced(&edges, &going_ids, table))?;
    }
    let views = node.catalog().views();
    match cascade {
        true => going.extend(readers(&going.iter().map(|schema| schema.id).collect(), &views)),
        false => check_unread(&going, &views)?,
    }
    node.end_references(principal, &going_ids, REWRITES).await?;
    for schema in outermost_first(going) {
        // CASCADE takes views along, whosever they are.
        let who = if going_ids.contains(&schema.id) { principal } else { &Principal::Node };
        node.drop_table(who, &schema.name, true).await?;
    }
    for name in unserved {
        node.drop_table(principal, name, true).await?;
    }
    Ok(())
}

/// The view, or table, that is called so.
fn found(node: &Node, name: &str, is_view: bool) -> Result<Arc<TableSchema>> {
    match (node.catalog().schema(name), is_view) {
        (Ok(schema), true) if !schema.is_view() => Err(no_view(name).into()),
        (Ok(schema), false) if schema.is_view() => {
            Err(SqlError::new(state::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a table"))
                .with_hint("use DROP VIEW to remove a view"))
        }
        (Err(_), true) => Err(SqlError::new(state::UNDEFINED_TABLE, format!("view \"{name}\" does not exist"))),
        (found, _) => Ok(found?),
    }
}

/// What a comment is about.
fn column_of(node: &Node, comment: &Comment) -> Result<(Arc<TableSchema>, Option<ColumnId>)> {
    let schema = match &comment.on {
        CommentTarget::Table => found(node, &comment.table, false)?,
        CommentTarget::View => found(node, &comment.table, true)?,
        CommentTarget::Column(_) => node.catalog().schema(&comment.table)?,
        // It is said elsewhere (`session/types.rs`).
        CommentTarget::Type => return Err(undefined_type(&comment.table)),
    };
    let CommentTarget::Column(name) = &comment.on else { return Ok((schema, None)) };
    let column = schema.shown().iter().find(|column| column.name == *name);
    let id = column.ok_or_else(|| SqlError::undefined_column(&schema.name, name))?.id;
    Ok((schema, Some(id)))
}

/// The type of a view's column.
fn column_type(name: &str, field: &FieldRef) -> Result<DataType> {
    // A NULL without a type is a text, as in PostgreSQL.
    if field.data_type().is_null() {
        return Ok(DataType::Text);
    }
    if is_between_times(field) {
        return Ok(DataType::Interval);
    }
    data_type_of(field).map_err(|_| {
        let of = match named(field.data_type()) {
            Some((_, row)) => quote(row),
            None => field.data_type().to_string(),
        };
        SqlError::unsupported(
            format!("column \"{name}\" of type {of} in a view"),
            "cast it in the query, as to text; of a row, name its fields",
        )
    })
}
