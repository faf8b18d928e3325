//! Which schema is something in that is named without one?
//!
//! | what | where |
//! |---|---|
//! | a table, view, sequence, index or type that is to be there | in the first schema of the path that has it; a table of the session's own comes before |
//! | a function | in the first schema of the path that has one of the name; what the engine has comes before |
//! | one that is made | in the first schema of the path |
//!
//! Names are looked for when a statement is prepared: what comes behind it finds those of other schemas than `public`
//! with the schema before them. While the path is `public` alone, as nearly always, there is nothing to do. Where a
//! definition is kept as a text, as that of a view or function, the schema is written into it.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{
    self, ArrayElemTypeDef, CopySource, Expr, FromTable, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    Ident, ObjectName, ObjectNamePart, ObjectType, Query, Statement, TableFactor, TableObject, TableWithJoins,
    VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::Location;
use tarn_node::auth::Access;
use tarn_node::auth::access::Objects;
use tarn_node::functions::{Body, UserFunction};
use tarn_query::{Walkable, walk_mut};
use tarn_types::full_name::{self, PUBLIC};

use super::Session;
use crate::alter_sql::{Alter, AlterAction, AlterStatement, RelationKind};
use crate::comment_sql::CommentTarget;
use crate::error::{Result, SqlError, state};
use crate::foreign_rules::has_constraint;
use crate::function_sql::{FunctionReference as FunctionNamed, FunctionSql, Returns};
use crate::function_types::named;
use crate::names::{OF_SYSTEM, OWN_SCHEMA, fold, parts_named, quote, table_name};
use crate::schema_path;
use crate::sequence_sql::{Clauses, SequenceSql};
use crate::statement::ParsedSql;
use crate::type_sql::{TypeChange, TypeSql};
use crate::view_sql::{CreateView, place};
use crate::views;

/// The schemas that names are looked for in, in order.
pub(super) type Path = Arc<[String]>;

/// Functions whose first argument names a sequence.
const OF_SEQUENCES: [&str; 3] = ["nextval", "currval", "setval"];

/// What is looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ObjectKind {
    /// A table or view.
    Relation,
    /// Or a sequence.
    Any,
    Sequence,
    Type,
    Index,
}

/// Where something is.
enum ObjectLocation {
    /// Where names without a schema are.
    Here,
    In(String),
    Nowhere,
}

impl Session {
    /// The schemas that names are looked for in. `None`: `public` alone.
    pub(super) fn path(&self) -> Option<Path> {
        schema_path::path(&self.vars, &self.node)
    }

    /// A statement with the schemas of what it names. `None`: it is right as it is.
    ///
    /// Errors: `42P01` and its kin for a name that no schema of the path has; `3F000` where there is none to make
    /// something in.
    pub(super) async fn in_schemas(&self, parsed: &ParsedSql, path: Option<&Path>) -> Result<Option<ParsedSql>> {
        let of_parser = matches!(
            parsed,
            ParsedSql::Sql(_)
                | ParsedSql::Copy { .. }
                | ParsedSql::Declare(_)
                | ParsedSql::Lock(_)
                | ParsedSql::With(_)
                | ParsedSql::Vacuum(_)
        );
        if path.is_none() && of_parser {
            return Ok(None);
        }
        let public: Path = [PUBLIC.to_owned()].into();
        let path = path.unwrap_or(&public);
        let sequences = match parsed {
            ParsedSql::Sql(statement) if !matches!(**statement, Statement::CreateTable(_)) => vec![],
            ParsedSql::Alter(_) | ParsedSql::Sequence(_) | ParsedSql::Sql(_) | ParsedSql::CreateView(_) => {
                self.node.sequences().all().await?.into_iter().map(|(name, _)| name).collect()
            }
            _ => vec![],
        };
        let puts_own = matches!(parsed, ParsedSql::CreateView(_));
        let names = NameResolver { session: self, path, sequences: &sequences, puts_own };
        let mut parsed = parsed.clone();
        match &mut parsed {
            ParsedSql::Sql(statement) | ParsedSql::Copy { statement, .. } => names.in_statement(statement)?,
            ParsedSql::Declare(cursor) => {
                names.walk(&mut *cursor.query)?;
                if let Some(lock) = &mut cursor.lock {
                    names.walk(&mut *lock.query)?;
                }
            }
            ParsedSql::Lock(lock) => names.walk(&mut *lock.query)?,
            ParsedSql::With(asked) => {
                let defined = asked.names();
                for (statement, n_visible) in asked.statements_mut() {
                    names.in_part(statement, &defined[..n_visible])?;
                }
            }
            ParsedSql::Vacuum(vacuum) => {
                vacuum.tables.iter_mut().try_for_each(|table| names.qualify(&mut table.name, ObjectKind::Relation))?;
            }
            ParsedSql::Admin { table, .. } => names.find(table, ObjectKind::Relation)?,
            ParsedSql::Attach(request) => names.make(&mut request.name)?,
            ParsedSql::Detach { table, if_exists } => names.find_if(table, ObjectKind::Relation, *if_exists)?,
            ParsedSql::CacheTable(asked) => {
                names.find(&mut asked.table, ObjectKind::Relation)?;
                names.walk(&mut asked.query)?;
            }
            ParsedSql::DropCache(asked) => {
                asked.table.iter_mut().try_for_each(|table| names.find(table, ObjectKind::Relation))?;
            }
            ParsedSql::Access(access) => match access.as_mut() {
                Access::Owner { table, .. } => names.find(table, ObjectKind::Relation)?,
                Access::Grant(grant) | Access::Revoke(grant) => match &mut grant.on {
                    Objects::Tables(tables) => {
                        tables.iter_mut().try_for_each(|table| names.find(table, ObjectKind::Relation))?;
                    }
                    Objects::AllTables(schema) if !self.node.schemas().has_tables(schema) => {
                        return Err(undefined_schema(schema));
                    }
                    Objects::AllTables(_) | Objects::Schema => {}
                },
                Access::CreateUser { .. } | Access::AlterUser { .. } | Access::DropUser { .. } => {}
            },
            ParsedSql::CreateView(view) => names.in_view(view)?,
            ParsedSql::Comment(comment) => match comment.on {
                CommentTarget::Type => names.find(&mut comment.table, ObjectKind::Type)?,
                CommentTarget::Table | CommentTarget::View | CommentTarget::Column(_) => {
                    names.find(&mut comment.table, ObjectKind::Relation)?;
                }
            },
            ParsedSql::Sequence(statement) => names.in_sequence(statement)?,
            ParsedSql::Type(statement) => match statement.as_mut() {
                TypeSql::Create { name, .. } => names.make(name)?,
                TypeSql::Alter { name, change } => {
                    names.find(name, ObjectKind::Type)?;
                    if let TypeChange::RenameTo(to) = change {
                        *to = full_name::beside(name, to);
                    }
                }
                TypeSql::Drop { names: types, if_exists, .. } => {
                    types.iter_mut().try_for_each(|name| names.find_if(name, ObjectKind::Type, *if_exists))?;
                }
            },
            ParsedSql::CreateLike(like) => {
                names.make_table(&mut like.create)?;
                names.qualify(&mut like.of, ObjectKind::Relation)?;
            }
            ParsedSql::Alter(alter) => names.in_alter(alter)?,
            ParsedSql::Constraints(said) => {
                said.names.iter_mut().flatten().try_for_each(|name| names.find_constraint(name))?
            }
            ParsedSql::Function(statement) => names.in_function(statement)?,
            ParsedSql::Schema(_) | ParsedSql::Fetch(_) => {}
        }
        Ok(Some(parsed))
    }
}

/// How the names of one statement are looked for.
struct NameResolver<'a> {
    session: &'a Session,
    path: &'a Path,
    /// All there are, by their full names, for statements that may name some.
    sequences: &'a [String],
    /// Whether the schema of the session's own tables is put before their names.
    puts_own: bool,
}

impl NameResolver<'_> {
    /// Where something of this name is.
    fn found(&self, name: &str, wanted: ObjectKind) -> ObjectLocation {
        let Session { temporary, node, .. } = self.session;
        if wanted != ObjectKind::Type && (temporary.table(name).is_some() || temporary.sequence(name).is_some()) {
            let puts = self.puts_own && wanted == ObjectKind::Relation;
            return if puts { ObjectLocation::In(OWN_SCHEMA.to_owned()) } else { ObjectLocation::Here };
        }
        let is_relation = |full: &str| temporary.entry(node.catalog(), full).is_some();
        let is_sequence = |full: &String| self.sequences.contains(full);
        for schema in self.path.iter() {
            if OF_SYSTEM.contains(&schema.as_str()) {
                if matches!(wanted, ObjectKind::Relation | ObjectKind::Any) && self.is_of_system(schema, name) {
                    return ObjectLocation::In(schema.clone());
                }
                continue;
            }
            let full = full_name::join(schema, name);
            let is_it = match wanted {
                ObjectKind::Relation => is_relation(&full),
                ObjectKind::Any => is_relation(&full) || is_sequence(&full),
                ObjectKind::Sequence => is_sequence(&full),
                // The rows of a table are of a type that is called so.
                ObjectKind::Type => node.types().get(&full).is_some() || is_relation(&full),
                ObjectKind::Index => temporary.has_index(node.catalog(), &full),
            };
            if is_it {
                return if schema == PUBLIC { ObjectLocation::Here } else { ObjectLocation::In(schema.clone()) };
            }
        }
        // What nobody has is told as it always was. The catalog is looked into without being named.
        match self.path.iter().any(|schema| schema == PUBLIC) || name.starts_with("pg_") {
            true => ObjectLocation::Here,
            false => ObjectLocation::Nowhere,
        }
    }

    fn is_schema(&self, name: &str) -> bool {
        OF_SYSTEM.contains(&name) || self.session.node.schemas().has_tables(name)
    }

    fn is_type_of_public(&self, name: &str) -> bool {
        let Session { temporary, node, .. } = self.session;
        node.types().get(name).is_some() || temporary.entry(node.catalog(), name).is_some()
    }

    fn is_of_system(&self, schema: &str, name: &str) -> bool {
        // What cannot be listed has nothing of this name.
        if self.session.register_pg_catalog().is_err() {
            return false;
        }
        let context = self.session.query.context();
        let catalog = context.catalog(crate::names::DATABASE);
        catalog.and_then(|catalog| catalog.schema(schema)).is_some_and(|of| of.table_exist(name))
    }

    /// The schema that something is made in that is named without one.
    fn first(&self) -> Result<&str> {
        let first = self.path.first().map(String::as_str);
        first.ok_or_else(|| SqlError::new(state::UNDEFINED_SCHEMA, "no schema has been selected to create in"))
    }

    /// The full name of what is made.
    fn make(&self, name: &mut String) -> Result<()> {
        *name = match is_said(name) {
            Some((schema, bare)) => full_name::join(schema, bare),
            None => full_name::join(self.first_of_users()?, name),
        };
        Ok(())
    }

    /// As [`NameResolver::first`], if users make something there.
    fn first_of_users(&self) -> Result<&str> {
        let first = self.first()?;
        match OF_SYSTEM.contains(&first) {
            false => Ok(first),
            true => Err(SqlError::new(state::INSUFFICIENT_PRIVILEGE, format!("permission denied for schema {first}"))
                .with_hint("its tables are made by the server: SET search_path to another schema first")),
        }
    }

    /// The full name of what is there.
    fn find(&self, name: &mut String, wanted: ObjectKind) -> Result<()> {
        *name = match is_said(name) {
            Some((schema, _)) if !self.is_schema(schema) => return Err(undefined_schema(schema)),
            Some((schema, bare)) => full_name::join(schema, bare),
            None => match self.found(name, wanted) {
                ObjectLocation::Here => return Ok(()),
                ObjectLocation::In(schema) => full_name::join(&schema, name),
                ObjectLocation::Nowhere => return Err(missing(name, wanted)),
            },
        };
        Ok(())
    }

    /// The same, of what need not be there: it gets a name that nothing has.
    fn find_if(&self, name: &mut String, wanted: ObjectKind, if_exists: bool) -> Result<()> {
        let is_nowhere = match is_said(name) {
            Some((schema, _)) => !self.is_schema(schema),
            None => matches!(self.found(name, wanted), ObjectLocation::Nowhere),
        };
        match if_exists && is_nowhere {
            true => *name = full_name::said("", full_name::bare(name)),
            false => self.find(name, wanted)?,
        }
        Ok(())
    }

    /// Puts the schema before a name that has none, where it is not `public`.
    fn qualify(&self, name: &mut ObjectName, wanted: ObjectKind) -> Result<()> {
        let Some(bare) = alone(name) else { return Ok(()) };
        match self.found(&bare, wanted) {
            ObjectLocation::Here => Ok(()),
            ObjectLocation::In(schema) => {
                put_schema(name, &schema);
                Ok(())
            }
            ObjectLocation::Nowhere => Err(missing(&bare, wanted)),
        }
    }

    fn make_table(&self, create: &mut ast::CreateTable) -> Result<()> {
        if !create.temporary && alone(&create.name).is_some() {
            let schema = self.first_of_users()?;
            if schema != PUBLIC {
                put_schema(&mut create.name, schema);
            }
        }
        let of_columns = create.columns.iter_mut().flat_map(|def| &mut def.options);
        let of_columns = of_columns.filter_map(|option| match &mut option.option {
            ast::ColumnOption::ForeignKey(key) => Some(&mut key.foreign_table),
            _ => None,
        });
        let of_table = create.constraints.iter_mut().filter_map(|constraint| match constraint {
            ast::TableConstraint::ForeignKey(key) => Some(&mut key.foreign_table),
            _ => None,
        });
        // One of the session's own has none.
        let made = if create.temporary { String::new() } else { table_name(&create.name)? };
        of_columns.chain(of_table).try_for_each(|parent| self.in_reference(parent, &made))
    }

    /// The parent of a table that is made, which may be that itself: it is there by then.
    fn in_reference(&self, parent: &mut ObjectName, made: &str) -> Result<()> {
        let Some(bare) = alone(parent) else { return Ok(()) };
        let is_itself = |schema: &String| full_name::join(schema, &bare) == made;
        let found = self.found(&bare, ObjectKind::Relation);
        let is_before = |schema: &&String| match &found {
            ObjectLocation::Here => *schema != PUBLIC,
            ObjectLocation::In(other) => *schema != other,
            ObjectLocation::Nowhere => true,
        };
        // A table of the session's own comes before all of them.
        let is_own = self.session.temporary.table(&bare).is_some();
        let before = self.path.iter().take_while(is_before).find(|schema| is_itself(schema));
        match before.filter(|_| !is_own) {
            Some(schema) if schema == PUBLIC => Ok(()),
            Some(schema) => {
                put_schema(parent, schema);
                Ok(())
            }
            None => self.qualify(parent, ObjectKind::Relation),
        }
    }

    /// The full name of a constraint, which is in the schema of its table.
    fn find_constraint(&self, name: &mut String) -> Result<()> {
        let tables = self.session.temporary.public(self.session.node.catalog());
        let has = |schema: &str, name: &str| {
            let mut there = tables.iter().filter(|table| full_name::schema_of(&table.name) == schema);
            there.any(|table| has_constraint(table, name))
        };
        let schema = match is_said(name) {
            Some((schema, _)) if !self.is_schema(schema) => return Err(undefined_schema(schema)),
            Some((schema, bare)) => Some(schema.to_owned()).filter(|schema| has(schema, bare)),
            None => self.path.iter().find(|schema| has(schema, name)).cloned(),
        };
        let bare = full_name::bare(name);
        match schema {
            Some(schema) => *name = full_name::join(&schema, bare),
            None => {
                return Err(SqlError::new(state::UNDEFINED_OBJECT, format!("constraint \"{bare}\" does not exist")));
            }
        }
        Ok(())
    }

    fn in_statement(&self, statement: &mut Statement) -> Result<()> {
        // Its names are looked for when the statement that it keeps is prepared, and again where the path is another by
        // then.
        if matches!(statement, Statement::Prepare { .. }) {
            return Ok(());
        }
        self.in_targets(statement)?;
        self.walk(statement)
    }

    /// As [`NameResolver::in_statement`], behind a WITH of these names.
    fn in_part(&self, statement: &mut Statement, defined: &[String]) -> Result<()> {
        self.in_targets(statement)?;
        let relation = |name: &mut ObjectName| self.qualify(name, ObjectKind::Relation);
        // What is changed is a table, whatever WITH names.
        match statement {
            Statement::Update(update) => target_of(std::slice::from_mut(&mut update.table)).map_or(Ok(()), relation)?,
            Statement::Delete(delete) => match &mut delete.from {
                FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from) => {
                    target_of(from).map_or(Ok(()), relation)?;
                }
            },
            _ => {}
        }
        let around = WithNames { names: defined.to_vec(), n_visible: defined.len(), queries: vec![] };
        let mut within = NameScope { names: self, around: vec![around], put: vec![] };
        match walk_mut(statement, &mut within) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(error),
        }
    }

    /// What a statement names outside of a FROM.
    fn in_targets(&self, statement: &mut Statement) -> Result<()> {
        let relation = |name: &mut ObjectName| self.qualify(name, ObjectKind::Relation);
        match statement {
            Statement::CreateTable(create) => self.make_table(create),
            Statement::Insert(insert) => match &mut insert.table {
                TableObject::TableName(name) => relation(name),
                _ => Ok(()),
            },
            Statement::Copy { source: CopySource::Table { table_name, .. }, .. } => relation(table_name),
            Statement::Truncate(truncate) => {
                truncate.table_names.iter_mut().try_for_each(|target| relation(&mut target.name))
            }
            Statement::Drop { object_type, if_exists, names, .. } => {
                let wanted = match object_type {
                    ObjectType::Table | ObjectType::View => ObjectKind::Relation,
                    ObjectType::Index => ObjectKind::Index,
                    _ => return Ok(()),
                };
                let is_nowhere = |name: &ObjectName| {
                    alone(name).is_some_and(|bare| matches!(self.found(&bare, wanted), ObjectLocation::Nowhere))
                };
                for name in names {
                    match *if_exists && is_nowhere(name) {
                        true => drop(put_schema(name, "")),
                        false => self.qualify(name, wanted)?,
                    }
                }
                Ok(())
            }
            Statement::ShowCreate { obj_name: name, .. } | Statement::ExplainTable { table_name: name, .. } => {
                relation(name)
            }
            Statement::ShowColumns { show_options, .. } => {
                let shown = show_options.show_in.as_mut().and_then(|shown| shown.parent_name.as_mut());
                shown.map_or(Ok(()), relation)
            }
            Statement::CreateIndex(create) => relation(&mut create.table_name),
            Statement::AlterIndex { name, .. } => {
                self.qualify(name, ObjectKind::Index).map_err(|_| SqlError::undefined_table(&name.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// All that is named in a FROM, and types.
    fn walk(&self, part: &mut impl Walkable) -> Result<()> {
        self.walked(part).map(drop)
    }

    /// The same, and where a schema was put before what.
    fn walked(&self, part: &mut impl Walkable) -> Result<Vec<(Location, String)>> {
        let mut within = NameScope { names: self, around: vec![], put: vec![] };
        match walk_mut(part, &mut within) {
            ControlFlow::Continue(()) => Ok(within.put),
            ControlFlow::Break(error) => Err(error),
        }
    }

    fn in_view(&self, view: &mut CreateView) -> Result<()> {
        if !view.temporary {
            self.make(&mut view.name)?;
        }
        if self.path[..] == [PUBLIC.to_owned()] && !self.session.temporary.has_tables() {
            return Ok(());
        }
        let mut put = self.walked(&mut views::query(&view.query)?)?;
        put.sort_by_key(|(at, _)| (at.line, at.column));
        put.dedup();
        if put.first().is_some_and(|(at, _)| at.line == 0) {
            return Err(SqlError::unsupported(
                "CREATE VIEW of what the path finds, where the name does not stand in the text",
                "write the schema before each name",
            ));
        }
        for (at, schema) in put.into_iter().rev() {
            view.query.insert_str(place(&view.query, at), &format!("{}.", quote(&schema)));
        }
        Ok(())
    }

    /// What is in a function means the same whoever calls it.
    fn in_function(&self, statement: &mut FunctionSql) -> Result<()> {
        match statement {
            FunctionSql::Create(create) => {
                if let Some((schema, _)) = is_said(&create.name)
                    && !self.is_schema(schema)
                {
                    return Err(undefined_schema(schema));
                }
                self.make(&mut create.name)?;
                for parameter in &mut create.parameters {
                    self.in_type(&mut parameter.data_type, &mut vec![])?;
                    if let Some(default) = &mut parameter.default {
                        self.bind(default, "SELECT ")?;
                    }
                }
                if let Returns::Type { data_type, .. } = &mut create.returns {
                    self.in_type(data_type, &mut vec![])?;
                }
                match &mut create.body {
                    Body::Text(text) | Body::Atomic(text) => self.bind(text, ""),
                    Body::Return(expr) => self.bind(expr, "SELECT "),
                }
            }
            FunctionSql::Drop { functions, if_exists, .. } => {
                functions.iter_mut().try_for_each(|of| self.in_signature(of, *if_exists))
            }
            FunctionSql::Alter { of, .. } | FunctionSql::Comment { of, .. } => self.in_signature(of, false),
        }
    }

    /// Writes the schema before each name that the path finds in a text of a function, which is a query behind what is
    /// `before` it.
    fn bind(&self, text: &mut String, before: &str) -> Result<()> {
        if self.path[..] == [PUBLIC.to_owned()] {
            return Ok(());
        }
        // What is none is told by who makes the function.
        let Ok(mut query) = views::query(&format!("{before}{text}")) else { return Ok(()) };
        let mut put = self.walked(&mut query)?;
        put.sort_by_key(|(at, _)| (at.line, at.column));
        put.dedup();
        if put.first().is_some_and(|(at, _)| at.line == 0) {
            return Err(SqlError::unsupported(
                "CREATE FUNCTION of what the path finds, where the name does not stand in the text",
                "write the schema before each name: a function means the same whoever calls it",
            ));
        }
        let n_before = before.chars().count() as u64;
        for (mut at, schema) in put.into_iter().rev() {
            if at.line == 1 {
                at.column = at.column.saturating_sub(n_before);
            }
            text.insert_str(place(text, at), &format!("{}.", quote(&schema)));
        }
        Ok(())
    }

    fn in_signature(&self, of: &mut FunctionNamed, if_exists: bool) -> Result<()> {
        of.types.iter_mut().flatten().try_for_each(|data_type| self.in_type(data_type, &mut vec![]))?;
        match is_said(&of.name) {
            Some((schema, _)) if !self.is_schema(schema) && !if_exists => return Err(undefined_schema(schema)),
            Some((schema, bare)) => of.name = full_name::join(schema, bare),
            None => match self.schemas_of_function(&of.name, of.types.as_deref()).first() {
                Some(schema) => of.name = full_name::join(schema, &of.name),
                None if !self.has_public() => of.name = full_name::said("", &of.name),
                None => {}
            },
        }
        Ok(())
    }

    /// The schemas of the path that have functions of a name; of these types, if any is.
    fn schemas_of_function(&self, name: &str, types: Option<&[ast::DataType]>) -> Vec<&String> {
        let Session { node, .. } = self.session;
        let types = types.map(|types| {
            let types = types.iter().map(|data_type| named(data_type, node.types()));
            types.collect::<Result<Vec<String>>>().unwrap_or_default()
        });
        let found: Vec<&String> = self
            .path
            .iter()
            .filter(|schema| !node.functions().named(&full_name::join(schema, name)).is_empty())
            .collect();
        let has_types = |schema: &&String| {
            let functions = node.functions().named(&full_name::join(schema, name));
            types.as_ref().is_none_or(|types| functions.iter().any(|of| of.written.signature() == *types))
        };
        let of_types: Vec<&String> = found.iter().copied().filter(has_types).collect();
        if of_types.is_empty() { found } else { of_types }
    }

    fn has_public(&self) -> bool {
        self.path.iter().any(|schema| schema == PUBLIC)
    }

    /// Puts the schema before the name of a function that somebody wrote, where it is not `public`.
    ///
    /// Errors: `42883` for one in `public`, where the path does not lead there; `0A000` where schemas of the path have
    /// different ones.
    fn in_call(&self, name: &mut ObjectName, put: &mut Vec<(Location, String)>) -> Result<()> {
        let functions = self.session.node.functions();
        let Some(called) = alone(name).filter(|_| !functions.all().is_empty()) else { return Ok(()) };
        let there = self.schemas_of_function(&called, None);
        let Some(first) = there.first() else {
            return match self.has_public() || functions.named(&called).is_empty() {
                true => Ok(()),
                false => Err(SqlError::new(state::UNDEFINED_FUNCTION, format!("function {called} does not exist"))
                    .with_hint("one is in schema public, which search_path does not name: write the schema before it")),
            };
        };
        // What the engine has comes first.
        if self.session.query.has_function(&called) {
            return Ok(());
        }
        let named = |schema: &str| functions.named(&full_name::join(schema, &called));
        let (of_first, others) = (named(first), there[1..].iter().flat_map(|schema| named(schema)));
        let is_hidden =
            |other: &UserFunction| of_first.iter().any(|of| of.written.signature() == other.written.signature());
        if let Some(other) = others.into_iter().find(|other| !is_hidden(other)) {
            let what = format!("calling {called}, which is {} and another function in schema {first},", other.shown());
            return Err(SqlError::unsupported(what, "write the schema before it"));
        }
        if *first != PUBLIC {
            put.extend(put_schema(name, first));
        }
        Ok(())
    }

    fn in_sequence(&self, statement: &mut SequenceSql) -> Result<()> {
        let owner = |clauses: &mut Clauses| match &mut clauses.owner {
            Some(Some((table, _))) => self.find(table, ObjectKind::Relation),
            _ => Ok(()),
        };
        match statement {
            SequenceSql::Create { name, clauses, .. } => {
                self.make(name)?;
                owner(clauses)
            }
            SequenceSql::Alter { name, if_exists, clauses } => {
                self.find_if(name, ObjectKind::Any, *if_exists)?;
                owner(clauses)
            }
            SequenceSql::Drop { names, if_exists } => {
                names.iter_mut().try_for_each(|name| self.find_if(name, ObjectKind::Any, *if_exists))
            }
        }
    }

    fn in_alter(&self, alter: &mut Alter) -> Result<()> {
        let wanted = if alter.kind == RelationKind::Sequence { ObjectKind::Sequence } else { ObjectKind::Any };
        self.find_if(&mut alter.name, wanted, alter.if_exists)?;
        let actions = match &mut alter.change {
            AlterStatement::Rename(to) => {
                *to = full_name::beside(&alter.name, to);
                return Ok(());
            }
            AlterStatement::SetSchema(_) | AlterStatement::Counts { .. } => return Ok(()),
            AlterStatement::Actions(actions) => actions,
        };
        for action in actions {
            match action {
                AlterAction::SetDefault { to, .. } => self.walk(to)?,
                AlterAction::AddCheck(check) => self.walk(check.expr_mut())?,
                AlterAction::AddForeignKey(said) => self.find(&mut said.parent, ObjectKind::Relation)?,
                AlterAction::AddColumn { def, .. } => self.in_column(def)?,
                AlterAction::SetType { to, using, .. } => {
                    self.in_type(to, &mut vec![])?;
                    using.iter_mut().try_for_each(|using| self.walk(using))?;
                }
                AlterAction::DropDefault { .. }
                | AlterAction::SetNotNull { .. }
                | AlterAction::DropNotNull { .. }
                | AlterAction::DropExpression { .. }
                | AlterAction::AddUnique(_)
                | AlterAction::DropIndex { .. }
                | AlterAction::RenameIndex { .. }
                | AlterAction::RenameConstraint { .. }
                | AlterAction::DropConstraint { .. }
                | AlterAction::AddPrimaryKey { .. }
                | AlterAction::DropColumn(_)
                | AlterAction::RenameColumn { .. } => {}
            }
        }
        Ok(())
    }

    fn in_column(&self, def: &mut ast::ColumnDef) -> Result<()> {
        self.in_type(&mut def.data_type, &mut vec![])?;
        for option in &mut def.options {
            match &mut option.option {
                ast::ColumnOption::Default(expr) => self.walk(expr)?,
                ast::ColumnOption::Check(check) => self.walk(check.expr.as_mut())?,
                ast::ColumnOption::ForeignKey(key) => self.qualify(&mut key.foreign_table, ObjectKind::Relation)?,
                ast::ColumnOption::Generated { generation_expr: Some(expr), .. } => self.walk(expr)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// The type that a column, or a cast, is said to be of.
    fn in_type(&self, of: &mut ast::DataType, put: &mut Vec<(Location, String)>) -> Result<()> {
        match of {
            ast::DataType::Array(ArrayElemTypeDef::SquareBracket(item, _)) => self.in_type(item, put),
            ast::DataType::Custom(name, modifiers) if modifiers.is_empty() => {
                let Some(bare) = alone(name) else { return Ok(()) };
                match self.found(&bare, ObjectKind::Type) {
                    ObjectLocation::In(schema) => {
                        put.extend(put_schema(name, &schema));
                        Ok(())
                    }
                    ObjectLocation::Here => Ok(()),
                    // It may be one of PostgreSQL's own.
                    ObjectLocation::Nowhere if !self.is_type_of_public(&bare) => Ok(()),
                    ObjectLocation::Nowhere => Err(missing(&bare, ObjectKind::Type)),
                }
            }
            _ => Ok(()),
        }
    }

    /// A sequence that a default takes numbers of: it is this one also where the path is another.
    fn in_sequence_call(&self, function: &mut Function, put: &mut Vec<(Location, String)>) {
        let named = alone(&function.name);
        let FunctionArguments::List(list) = &mut function.args else { return };
        let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(of))) = list.args.first_mut() else { return };
        if !named.is_some_and(|name| OF_SEQUENCES.contains(&name.as_str())) {
            return;
        }
        let of = if let Expr::Cast { expr, data_type: ast::DataType::Regclass, .. } = of { expr.as_mut() } else { of };
        if let Expr::Value(value) = of
            && let ast::Value::SingleQuotedString(text) = &mut value.value
            && let Ok([bare]) = parts_named(text).as_deref()
            && let ObjectLocation::In(schema) = self.found(bare, ObjectKind::Sequence)
        {
            *text = quote(&full_name::join(&schema, bare));
            // Behind the quote.
            let at = value.span.start;
            put.push((Location { column: at.column + 1, ..at }, schema));
        }
    }
}

/// The names that mean something in a part of a statement.
struct NameScope<'a> {
    names: &'a NameResolver<'a>,
    /// What WITH defines around, the outermost first.
    around: Vec<WithNames>,
    put: Vec<(Location, String)>,
}

/// What one WITH defines.
#[derive(Default)]
struct WithNames {
    names: Vec<String>,
    /// How many of the names can be used where the walk is: in the query of one those before it.
    n_visible: usize,
    /// Where the query of each is in memory. It does not move while it is walked.
    queries: Vec<usize>,
}

fn place_of(query: &Query) -> usize {
    std::ptr::from_ref(query) as usize
}

impl NameScope<'_> {
    fn is_defined(&self, name: &str) -> bool {
        self.around.iter().any(|defined| defined.names[..defined.n_visible].iter().any(|other| other == name))
    }
}

impl VisitorMut for NameScope<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        let mut defined = WithNames::default();
        if let Some(with) = &query.with {
            for cte in &with.cte_tables {
                defined.names.push(fold(&cte.alias.name));
                defined.queries.push(place_of(&cte.query));
            }
            // One that is recursive may name itself.
            defined.n_visible = if with.recursive { defined.names.len() } else { 0 };
        }
        self.around.push(defined);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        self.around.pop();
        let at = place_of(query);
        if let Some(around) = self.around.last_mut()
            && let Some(done) = around.queries.iter().position(|place| *place == at)
        {
            around.n_visible = around.n_visible.max(done + 1);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_statement(&mut self, statement: &mut Statement) -> ControlFlow<SqlError> {
        let named = match statement {
            Statement::CreateTable(create) => {
                create.columns.iter_mut().try_for_each(|def| self.names.in_type(&mut def.data_type, &mut self.put))
            }
            // One in another.
            Statement::Insert(_) => self.names.in_targets(statement),
            _ => Ok(()),
        };
        named.map_or_else(ControlFlow::Break, ControlFlow::Continue)
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<SqlError> {
        let name = match factor {
            TableFactor::Table { name, args: None, .. } => name,
            TableFactor::Table { name, .. } | TableFactor::Function { name, .. } => {
                return self.names.in_call(name, &mut self.put).map_or_else(ControlFlow::Break, ControlFlow::Continue);
            }
            _ => return ControlFlow::Continue(()),
        };
        let Some(bare) = alone(name).filter(|bare| !self.is_defined(bare)) else { return ControlFlow::Continue(()) };
        match self.names.found(&bare, ObjectKind::Relation) {
            ObjectLocation::Here => {}
            ObjectLocation::In(schema) => self.put.extend(put_schema(name, &schema)),
            ObjectLocation::Nowhere => return ControlFlow::Break(missing(&bare, ObjectKind::Relation)),
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        let named = match expr {
            Expr::Cast { data_type, .. } => self.names.in_type(data_type, &mut self.put),
            Expr::TypedString(typed) => self.names.in_type(&mut typed.data_type, &mut self.put),
            Expr::Function(function) => {
                if !self.names.sequences.is_empty() {
                    self.names.in_sequence_call(function, &mut self.put);
                }
                self.names.in_call(&mut function.name, &mut self.put)
            }
            _ => Ok(()),
        };
        named.map_or_else(ControlFlow::Break, ControlFlow::Continue)
    }
}

/// Schema and name, where the statement said the schema ([`crate::names::written_name`]).
fn is_said(name: &str) -> Option<(&str, &str)> {
    full_name::is_reserved(name).then(|| full_name::split(name))
}

/// The table that is changed.
fn target_of(from: &mut [TableWithJoins]) -> Option<&mut ObjectName> {
    match &mut from.first_mut()?.relation {
        TableFactor::Table { name, .. } => Some(name),
        _ => None,
    }
}

/// A name without a schema.
fn alone(name: &ObjectName) -> Option<String> {
    match &name.0[..] {
        [part] => part.as_ident().map(fold),
        _ => None,
    }
}

/// Puts a schema before a name; where the name stands.
fn put_schema(name: &mut ObjectName, schema: &str) -> Option<(Location, String)> {
    let at = name.0.first()?.as_ident()?.span.start;
    name.0.insert(0, ObjectNamePart::Identifier(Ident::with_quote('"', schema)));
    Some((at, schema.to_owned()))
}

fn undefined_schema(name: &str) -> SqlError {
    SqlError::new(state::UNDEFINED_SCHEMA, format!("schema \"{name}\" does not exist"))
}

fn missing(name: &str, wanted: ObjectKind) -> SqlError {
    match wanted {
        ObjectKind::Relation | ObjectKind::Any => SqlError::undefined_table(name),
        ObjectKind::Sequence => SqlError::new(state::UNDEFINED_TABLE, format!("sequence \"{name}\" does not exist"))
            .with_hint("information_schema.sequences lists them"),
        ObjectKind::Type => SqlError::new(state::UNDEFINED_OBJECT, format!("type \"{name}\" does not exist")),
        ObjectKind::Index => SqlError::new(state::UNDEFINED_OBJECT, format!("index \"{name}\" does not exist")),
    }
}
