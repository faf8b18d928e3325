//! How are functions made, changed and dropped?
//!
//! A function that is made in a transaction is there at once, for everybody, as a table is; what undoes the transaction
//! drops it. It is dropped at COMMIT: until then it is called. Changed and replaced it is at once, and outside of
//! transactions alone.

use std::sync::Arc;

use datafusion::arrow::datatypes::Field;
use datafusion::sql::sqlparser::ast::Statement;
use tarn_node::auth::Principal;
use tarn_node::functions::{
    Body, FunctionId, FunctionSource, GivenColumn, Mode, Parallel, Parameter, UserFunction, Volatility,
};
use tarn_node::node::Node;
use tarn_query::ResolvedFunction;
use tarn_types::full_name;

use super::create_as::written;
use super::execute::to_its_end;
use super::{Answer, Session};
use crate::ddl::Ddl;
use crate::error::{Result, SqlError, state};
use crate::function_mentions::{calls as calls_itself, mentions};
use crate::function_sql::{
    CreateFunction, FunctionChange, FunctionOptions, FunctionReference, FunctionSql, Returns, SaidParameter, invalid,
};
use crate::function_types::{is_polymorphic, is_pseudo, is_stored_as, named, row_type, undefined};
use crate::rows::{long_name, pg_type};
use crate::statement::{ParsedSql, parse};
use crate::transaction::{CreatedId, CreatedObject};
use crate::user_functions::{engine_function, query_of};

impl Session {
    /// Runs a statement about functions.
    pub(super) async fn user_function(&self, statement: &FunctionSql) -> Result<Answer> {
        match statement {
            FunctionSql::Create(create) => self.create_function(create).await?,
            FunctionSql::Alter { of, change } => self.alter_function(of, change).await?,
            FunctionSql::Drop { functions, if_exists, cascade } => {
                self.drop_functions(functions, *if_exists, *cascade).await?;
            }
            FunctionSql::Comment { of, text } => self.comment_function(of, text.as_deref()).await?,
        }
        Ok(Answer::done(statement.tag()))
    }

    /// Who may run it: whoever may make tables makes functions, and changes his own.
    pub(super) fn allow_functions(&self, statement: &FunctionSql) -> Result<()> {
        match statement {
            FunctionSql::Create(create) => Ok(self.node.may_make(&self.principal(), &create.name)?),
            // Asked for when it is known whose they are.
            FunctionSql::Alter { .. } | FunctionSql::Drop { .. } | FunctionSql::Comment { .. } => Ok(()),
        }
    }

    async fn create_function(&self, create: &CreateFunction) -> Result<()> {
        let in_transaction = self.must_hold()?;
        let name = &create.name;
        if self.query.has_function(full_name::bare(name)) {
            return Err(SqlError::unsupported(
                format!("a function that is called as one of the server's own, {name}"),
                "call it otherwise",
            ));
        }
        let written = self.written_function(create)?;
        let before = self.node.functions().named(name);
        let before = before.into_iter().find(|function| function.written.signature() == written.signature());
        if let Some(before) = &before {
            if self.transaction.lock().drops_function(before.id) {
                return Err(SqlError::unsupported(
                    format!("making function {}, which this transaction drops, anew", before.shown()),
                    "CREATE OR REPLACE FUNCTION instead of DROP and CREATE; or COMMIT first",
                ));
            }
            if !create.or_replace {
                let message = format!("function \"{name}\" already exists with same argument types");
                return Err(SqlError::new(state::DUPLICATE_FUNCTION, message));
            }
            if in_transaction && !self.is_implicit() {
                return Err(SqlError::unsupported(
                    format!("CREATE OR REPLACE FUNCTION {name}, which is there, in a transaction"),
                    "replace it outside of BEGIN … COMMIT",
                ));
            }
            self.allow_function(before)?;
            check_replaced(before, &written)?;
        }
        self.check_body(name, &written).await?;
        let replaces = before.map(|before| before.id);
        let (node, who, named) = (Arc::clone(&self.node), self.principal(), name.clone());
        let made = to_its_end(async move { node.create_function(&who, &named, written, replaces).await });
        let id = self.interrupt.submit(made, |_| 0).await?;
        if in_transaction && replaces.is_none() {
            self.transaction.lock().made(CreatedObject { name: name.clone(), what: CreatedId::Function(id) });
        }
        Ok(())
    }

    /// What is kept of a function, before its body is looked at.
    ///
    /// Errors: as of PostgreSQL, `42704` and `42P13`.
    fn written_function(&self, create: &CreateFunction) -> Result<FunctionSource> {
        let types = self.node.types();
        let mut parameters = vec![];
        for SaidParameter { mode, name, data_type, default } in &create.parameters {
            let data_type = named(data_type, types)?;
            self.check_type(&data_type, "cannot have arguments of type")?;
            if is_row(self, &data_type) {
                return Err(SqlError::unsupported(
                    format!("a parameter of the row type {data_type}"),
                    "its columns as parameters, or jsonb",
                ));
            }
            let (name, default) = (name.clone(), default.clone());
            parameters.push(Parameter { mode: *mode, name, data_type, default });
        }
        let is_any = parameters.iter().any(|of| of.mode.is_taken() && is_polymorphic(&of.data_type));
        if is_any && !matches!(create.body, Body::Text(_)) {
            return Err(invalid("SQL function with unquoted function body cannot have polymorphic arguments"));
        }
        let given: Vec<&Parameter> = parameters.iter().filter(|of| of.mode != Mode::In).collect();
        let (returns, is_set, columns) = match &create.returns {
            Returns::Table => (of_columns(&given), true, columns_of(&given)),
            Returns::Nothing if given.is_empty() => return Err(invalid("function result type must be specified")),
            Returns::Nothing => (of_columns(&given), false, columns_of(&given)),
            Returns::Type { data_type, is_set } => {
                let returns = named(data_type, types)?;
                if !given.is_empty() {
                    let wanted = of_columns(&given);
                    if wanted != returns {
                        let message = format!("function result type must be {wanted} because of OUT parameters");
                        return Err(invalid(&message));
                    }
                }
                let columns = match () {
                    () if !given.is_empty() => columns_of(&given),
                    () => self.columns_of_row(&returns)?.unwrap_or_default(),
                };
                if given.is_empty() && columns.is_empty() {
                    self.check_returned(&returns)?;
                }
                (returns, *is_set, columns)
            }
        };
        let gives_any = is_polymorphic(&returns) || columns.iter().any(|of| is_polymorphic(&of.data_type));
        if gives_any && !is_any {
            let detail = "A result of type anyelement requires at least one input of type anyelement, anyarray, \
                 anynonarray, anyenum, anyrange, or anymultirange.";
            return Err(invalid("cannot determine result data type").with_detail(detail));
        }
        for column in &columns {
            self.check_type(&column.data_type, "cannot return type")?;
        }
        let FunctionOptions { volatility, is_strict, is_leakproof, parallel, cost, rows } = create.options.clone();
        if rows.is_some() && !is_set {
            let message = "ROWS is not applicable when function does not return a set";
            return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
        }
        Ok(FunctionSource {
            parameters,
            returns,
            is_set,
            columns,
            body: create.body.clone(),
            volatility: volatility.unwrap_or(Volatility::Volatile),
            is_strict: is_strict.unwrap_or(false),
            is_leakproof: is_leakproof.unwrap_or(false),
            parallel: parallel.unwrap_or(Parallel::Unsafe),
            cost,
            rows,
        })
    }

    /// Whether values may be of a type.
    fn check_type(&self, data_type: &str, what: &str) -> Result<()> {
        if is_polymorphic(data_type) {
            return Ok(());
        }
        if is_pseudo(data_type) {
            return Err(invalid(&format!("SQL functions {what} {data_type}")));
        }
        if data_type.trim_end_matches("[]") == "character" {
            return Err(SqlError::unsupported("a parameter or result of type character", "text, or varchar"));
        }
        if self.query.type_of(data_type).is_ok() || is_row(self, data_type) {
            return Ok(());
        }
        Err(undefined(data_type))
    }

    fn check_returned(&self, returns: &str) -> Result<()> {
        match returns {
            "record" => Err(SqlError::unsupported(
                "a function that gives a record without saying its columns",
                "RETURNS TABLE (a int, b text), or OUT parameters",
            )),
            "void" => Err(SqlError::unsupported(
                "a function that gives nothing, RETURNS void",
                "RETURNS a type; what writes is sent by the client",
            )),
            returns => self.check_type(returns, "cannot return type"),
        }
    }

    /// The columns of a table or row type.
    fn columns_of_row(&self, name: &str) -> Result<Option<Vec<GivenColumn>>> {
        let own = crate::names::relation_named(name).unwrap_or_else(|_| name.to_owned());
        if let Ok(table) = self.node.catalog().schema(&own) {
            let columns = table.shown().iter().map(|column| {
                let at = table.columns.iter().position(|other| other.id == column.id).unwrap_or_default();
                let data_type = type_of(&table.field(at))?;
                Ok(GivenColumn { name: column.name.clone(), data_type })
            });
            return columns.collect::<Result<Vec<_>>>().map(Some);
        }
        let Some(columns) = row_type(name, self.node.types()) else { return Ok(None) };
        let columns = columns.into_iter().map(|(name, data_type)| {
            let field = self.query.type_of(&data_type)?;
            Ok(GivenColumn { name, data_type: type_of(&field)? })
        });
        columns.collect::<Result<Vec<_>>>().map(Some)
    }

    /// Whether a body gives what the function is said to give.
    ///
    /// Errors: those of its query; `42P13`; `0A000` for what is no query.
    async fn check_body(&self, name: &str, of: &FunctionSource) -> Result<()> {
        let text = query_of(&of.body);
        self.check_order(&text)?;
        let mismatch = || invalid(&format!("return type mismatch in function declared to return {}", of.returns));
        let statements = parse(&text).map_err(|error| in_function(error, name))?;
        let [ParsedSql::Sql(statement)] = &statements[..] else {
            return Err(match &statements[..] {
                [] => mismatch()
                    .with_detail("Function's final statement must be SELECT or INSERT/UPDATE/DELETE RETURNING."),
                [_] => no_query(name),
                _ => SqlError::unsupported(
                    format!("a function of several statements, {name}"),
                    "one query: with WITH, or functions that it calls",
                ),
            });
        };
        let statement = statement.as_ref();
        if !matches!(statement, Statement::Query(_)) {
            return Err(no_query(name));
        }
        for default in
            of.parameters.iter().filter_map(|parameter| parameter.default.as_ref().map(|text| (parameter, text)))
        {
            let (parameter, text) = default;
            if is_polymorphic(&parameter.data_type) {
                continue;
            }
            // Whether it can be that is told by who plans it.
            let cast = written(&format!("SELECT CAST(({text}) AS {})", parameter.data_type))?;
            self.plan(&cast, &[]).await.map_err(|error| match error.state() {
                state::UNDEFINED_COLUMN => SqlError::new(
                    state::INVALID_COLUMN_REFERENCE,
                    "cannot use table references in parameter default value",
                ),
                _ => error,
            })?;
        }
        let function = Arc::new(engine_function(0, name, of));
        // Of which types these are is known where it is called.
        if function.parameters.iter().any(|parameter| is_polymorphic(&parameter.data_type)) {
            return Ok(());
        }
        let parameter_types = function.parameters.iter().map(|parameter| parameter.data_type.clone()).collect();
        let column_types: Vec<String> = function.columns.iter().map(|(_, data_type)| data_type.clone()).collect();
        let chosen = ResolvedFunction { function, parameter_types, column_types: column_types.clone() };
        self.enable_pg_catalog(statement)?;
        self.enable_for_views(statement)?;
        let given = self.query.function_columns(chosen).await.map_err(|error| {
            let error = self.explain_error(statement, error).with_place(None);
            match error.state() == state::UNDEFINED_FUNCTION && calls_itself(statement, name) {
                true => SqlError::unsupported(
                    format!("the function {name}, which calls itself"),
                    "WITH RECURSIVE is for what repeats",
                ),
                false => in_function(error, name),
            }
        })?;
        let is_row = !of.columns.is_empty() && (of.is_set || column_types.len() > 1 || of.returns != column_types[0]);
        match (given.fields().len(), column_types.len()) {
            (given, wanted) if given == wanted => {}
            _ if !is_row => {
                return Err(mismatch().with_detail("Final statement must return exactly one column."));
            }
            (given, wanted) if given < wanted => {
                return Err(mismatch().with_detail("Final statement returns too few columns."));
            }
            _ => return Err(mismatch().with_detail("Final statement returns too many columns.")),
        }
        for (at, (field, wanted)) in given.fields().iter().zip(&column_types).enumerate() {
            if field.data_type().is_null() {
                continue;
            }
            let actual = type_of(field)?;
            if !is_stored_as(&actual, wanted) {
                let at = at + 1;
                return Err(mismatch().with_detail(match is_row {
                    true => format!("Final statement returns {actual} instead of {wanted} at column {at}."),
                    false => format!("Actual return type is {actual}."),
                }));
            }
        }
        Ok(())
    }

    /// The function that a statement means.
    ///
    /// Errors: `42883`; `42725` for several.
    fn meant(&self, of: &FunctionReference) -> Result<Arc<UserFunction>> {
        let mut found = self.node.functions().named(&of.name);
        found.retain(|function| !self.transaction.lock().drops_function(function.id));
        let Some(types) = &of.types else {
            return match found.len() {
                0 => Err(missing(&of.name, None)),
                1 => Ok(found.remove(0)),
                _ => {
                    let message = format!("function name \"{}\" is not unique", of.name);
                    Err(SqlError::new(state::AMBIGUOUS_FUNCTION, message)
                        .with_hint("Specify the argument list to select the function unambiguously."))
                }
            };
        };
        let types = types.iter().map(|data_type| named(data_type, self.node.types())).collect::<Result<Vec<_>>>()?;
        let found = found.into_iter().find(|function| function.written.signature() == types);
        found.ok_or_else(|| missing(&of.name, Some(&types)))
    }

    async fn alter_function(&self, of: &FunctionReference, change: &FunctionChange) -> Result<()> {
        self.outside_transaction("ALTER FUNCTION")?;
        let function = self.meant(of)?;
        self.allow_function(&function)?;
        match change {
            FunctionChange::RenameTo(to) => {
                if self.query.has_function(to) {
                    let what = format!("a function that is called as one of the server's own, {to}");
                    return Err(SqlError::unsupported(what, "call it otherwise"));
                }
                self.check_renamable(&function, &full_name::beside(&function.name, to))?;
            }
            FunctionChange::SetSchema(schema) => {
                if !self.node.schemas().has_tables(schema) {
                    let message = format!("schema \"{schema}\" does not exist");
                    return Err(SqlError::new(state::UNDEFINED_SCHEMA, message));
                }
                let full = full_name::join(schema, full_name::bare(&function.name));
                if full == function.name {
                    return Ok(());
                }
                self.node.may_make(&self.principal(), &full)?;
                self.check_renamable(&function, &full)?;
            }
            FunctionChange::OwnerTo(to) if self.node.users().users().get(to).is_none() => {
                return Err(SqlError::new(state::UNDEFINED_OBJECT, format!("role \"{to}\" does not exist")));
            }
            FunctionChange::Options(options) if options.rows.is_some() && !function.written.is_set => {
                let message = "ROWS is not applicable when function does not return a set";
                return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
            }
            FunctionChange::OwnerTo(_) | FunctionChange::Options(_) => {}
        }
        let change = change.clone();
        self.change_function(function.id, move |of| match &change {
            FunctionChange::RenameTo(to) => of.name = full_name::beside(&of.name, to),
            FunctionChange::SetSchema(schema) => of.name = full_name::join(schema, full_name::bare(&of.name)),
            FunctionChange::OwnerTo(to) => of.maker = Some(to.clone()),
            FunctionChange::Options(options) => said(&mut of.written, options),
        })
        .await
    }

    /// Whether a function may be called so, by its full name.
    ///
    /// Errors: `42723`; `0A000` for one that texts name.
    fn check_renamable(&self, function: &UserFunction, to: &str) -> Result<()> {
        let signature = function.written.signature();
        if self.node.functions().named(to).iter().any(|other| other.written.signature() == signature) {
            let (schema, name) = full_name::split(to);
            let message = format!("function {name}({}) already exists in schema \"{schema}\"", signature.join(", "));
            return Err(SqlError::new(state::DUPLICATE_FUNCTION, message));
        }
        let found = self.mentioned(function, &[]);
        if found.is_empty() {
            return Ok(());
        }
        let what = format!("renaming function {}, which others name in their texts,", function.shown());
        Err(SqlError::unsupported(what, "DROP those first, and make them anew").with_detail(found.join("\n")))
    }

    async fn comment_function(&self, of: &FunctionReference, text: Option<&str>) -> Result<()> {
        self.outside_transaction("COMMENT ON FUNCTION")?;
        let function = self.meant(of)?;
        self.allow_function(&function)?;
        let text = text.map(str::to_owned);
        self.change_function(function.id, move |of| of.comment.clone_from(&text)).await
    }

    async fn change_function(
        &self,
        id: FunctionId,
        change: impl Fn(&mut UserFunction) + Send + Sync + 'static,
    ) -> Result<()> {
        let (node, who) = (Arc::clone(&self.node), self.principal());
        let changed = to_its_end(async move {
            let apply = |of: &mut UserFunction| {
                change(of);
                Ok(())
            };
            node.alter_function(&who, id, &apply).await
        });
        self.interrupt.submit(changed, |()| 0).await
    }

    async fn drop_functions(&self, functions: &[FunctionReference], if_exists: bool, cascade: bool) -> Result<()> {
        let in_transaction = self.must_hold()?;
        let mut going: Vec<Arc<UserFunction>> = vec![];
        for of in functions {
            match self.meant(of) {
                Ok(function) => going.push(function),
                Err(absent) if if_exists && absent.state() == state::UNDEFINED_FUNCTION => {}
                Err(error) => return Err(error),
            }
        }
        let ids: Vec<FunctionId> = going.iter().map(|function| function.id).collect();
        for function in &going {
            self.allow_function(function)?;
            let found = self.mentioned(function, &ids);
            if found.is_empty() {
                continue;
            }
            return Err(match cascade {
                true => SqlError::unsupported("DROP FUNCTION … CASCADE of what depends on it", "drop these first"),
                false => SqlError::new(
                    state::DEPENDENT_OBJECTS,
                    format!("cannot drop function {} because other objects depend on it", function.shown()),
                )
                .with_hint("drop these first"),
            }
            .with_detail(found.join("\n")));
        }
        if ids.is_empty() {
            return Ok(());
        }
        match in_transaction {
            true => self.transaction.lock().drop_later(Ddl::DropFunctions(ids)),
            false => self.run_ddl(Ddl::DropFunctions(ids)).await.map(drop),
        }
    }

    /// What names a function in a text that is kept, as PostgreSQL says it, but those that go with it.
    fn mentioned(&self, function: &UserFunction, going: &[FunctionId]) -> Vec<String> {
        let mut tables = self.node.catalog().schemas();
        {
            let transaction = self.transaction.lock();
            tables.retain(|table| transaction.check_there(&table.name).is_ok());
        }
        let functions = self.node.functions().all();
        let others = functions.iter().filter(|other| other.id != function.id && !going.contains(&other.id));
        // PostgreSQL looks into no body that is a text.
        let others = others.filter(|other| !matches!(other.written.body, Body::Text(_)));
        mentions(&tables, others.map(Arc::as_ref), function)
    }

    /// Whether the user may change a function: its maker, and superusers.
    fn allow_function(&self, of: &UserFunction) -> Result<()> {
        Ok(self.node.may_change_function(&self.principal(), of)?)
    }
}

/// Drops functions at COMMIT, or at once.
pub(super) async fn drop_functions(node: &Node, who: &Principal, ids: &[FunctionId]) -> Result<()> {
    Ok(node.drop_functions(who, ids).await?)
}

/// What stays as it is when a function is replaced: `42P13`, as in PostgreSQL.
fn check_replaced(before: &UserFunction, now: &FunctionSource) -> Result<()> {
    let first = || format!("Use DROP FUNCTION {} first.", before.shown());
    let gives = |of: &FunctionSource| (of.returns.clone(), of.is_set, of.columns.clone());
    let (returned, of) = (gives(&before.written), &before.written);
    if (&returned.0, returned.1) != (&now.returns, now.is_set) {
        return Err(invalid("cannot change return type of existing function").with_hint(first()));
    }
    if returned != gives(now) {
        return Err(invalid("cannot change return type of existing function")
            .with_detail("Row type defined by OUT parameters is different.")
            .with_hint(first()));
    }
    for (before, now) in of.taken().zip(now.taken()) {
        if let Some(name) = &before.name
            && now.name.as_ref() != Some(name)
        {
            return Err(invalid(&format!("cannot change name of input parameter \"{name}\"")).with_hint(first()));
        }
        if before.default.is_some() && now.default.is_none() {
            return Err(invalid("cannot remove parameter defaults from existing function").with_hint(first()));
        }
    }
    Ok(())
}

fn said(of: &mut FunctionSource, options: &FunctionOptions) {
    let FunctionOptions { volatility, is_strict, is_leakproof, parallel, cost, rows } = options.clone();
    of.volatility = volatility.unwrap_or(of.volatility);
    of.is_strict = is_strict.unwrap_or(of.is_strict);
    of.is_leakproof = is_leakproof.unwrap_or(of.is_leakproof);
    of.parallel = parallel.unwrap_or(of.parallel);
    of.cost = cost.or_else(|| of.cost.take());
    of.rows = rows.or_else(|| of.rows.take());
}

/// The type of several columns is a record, that of one its own.
fn of_columns(given: &[&Parameter]) -> String {
    match given {
        [one] => one.data_type.clone(),
        _ => "record".to_owned(),
    }
}

fn columns_of(given: &[&Parameter]) -> Vec<GivenColumn> {
    let named = given.iter().enumerate().map(|(at, of)| GivenColumn {
        name: of.name.clone().unwrap_or_else(|| format!("column{}", at + 1)),
        data_type: of.data_type.clone(),
    });
    named.collect()
}

fn is_row(session: &Session, data_type: &str) -> bool {
    let own = crate::names::relation_named(data_type).unwrap_or_else(|_| data_type.to_owned());
    row_type(data_type, session.node.types()).is_some() || session.node.catalog().contains(&own)
}

fn type_of(field: &Field) -> Result<String> {
    Ok(long_name(&pg_type(field)?))
}

/// An error about a body, said so.
fn in_function(error: SqlError, name: &str) -> SqlError {
    error.with_context(format!("SQL function \"{name}\""))
}

fn no_query(name: &str) -> SqlError {
    SqlError::unsupported(
        format!("a function that is no query, {name}"),
        "one SELECT; what writes is sent by the client, in a transaction",
    )
}

fn missing(name: &str, types: Option<&[String]>) -> SqlError {
    let message = match types {
        Some(types) => format!("function {name}({}) does not exist", types.join(", ")),
        None => format!("could not find a function named \"{name}\""),
    };
    SqlError::new(state::UNDEFINED_FUNCTION, message)
}
