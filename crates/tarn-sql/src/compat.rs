//! Does a statement ask Postgres' catalog, and how is it made one that can be planned?
//!
//! The rewrites of crate `datafusion-pg-catalog` make psql's, JDBC's and psycopg's metadata queries plannable. Some of
//! them take text that looks like an array for one: these are for statements that read nothing but the catalog. The one
//! that makes NULL of each subquery in a select list is left out: they are planned. Whatever is asked of a statement is
//! asked of its syntax tree: a column that is called `jpg_url` is no catalog.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr,
    Ident, ObjectName, ObjectNamePart, OrderBy, OrderByKind, Query, Select, SelectItem, SetExpr, Statement,
    TableFactor, Value, Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use datafusion_pg_catalog::pg_catalog::PG_CATALOG_TABLES;
use datafusion_pg_catalog::sql::PostgresCompatibilityParser;
use datafusion_pg_catalog::sql::rules::{
    AliasDuplicatedProjectionRewrite, CurrentUserVariableToSessionUserFunctionCall, FixArrayLiteral,
    FixVersionColumnName, PrependUnqualifiedPgTableName, ResolveUnqualifiedIdentifier, RewriteArrayAnyAllOperation,
    RewritePgCatalogOperator, RewriteRegCastToSubquery, SqlStatementRewriteRule, StripCallableQualifier, StripCollate,
};
use tarn_query::{each_expr, walk, walk_mut};

use crate::catalog_names::{PG_TABLES, is_catalog, is_catalog_relation, is_variable, parts};
use crate::names::{OF_SYSTEM, column_of, fold, parts_named};
use crate::postgres::{call, query_of_array};
use crate::privileges::name_objects;
use crate::visible::{
    FUNCTION_NAME, RELATION_NAME, RELATION_NUMBER, RELATION_PARTS, SCHEMA_NAME, TYPE_NAME, TYPE_NUMBER,
};

/// Queries of clients that are replaced as a whole are shorter, and nested less deeply: the parser of those is not
/// ours.
const MAX_REPLACED_BYTES: usize = 16 << 10;
const MAX_REPLACED_NESTING: usize = 10;

/// What a statement names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CatalogUse {
    /// Something of Postgres' catalog: a relation, a function, a type, a variable.
    pub is_named: bool,
    /// A relation of the catalog.
    relations: bool,
    /// Another relation, or a function in FROM that is none of the catalog's.
    others: bool,
}

impl CatalogUse {
    /// Walks the whole statement once.
    pub fn of(statement: &Statement) -> CatalogUse {
        let mut names = CatalogNames::default();
        let _ = walk(statement, &mut names);
        let is_defined = |name: &String| names.with.contains(name);
        CatalogUse { others: names.others.iter().any(|name| !is_defined(name)), ..names.found }
    }

    /// Whether it reads the catalog, and nothing else.
    fn is_all(self) -> bool {
        self.relations && !self.others
    }
}

/// Statements that read, as the planner takes them. `sql` is the text that they were parsed from.
pub fn compatible(sql: &str, mut statements: Vec<Statement>) -> Vec<Statement> {
    statements.iter_mut().for_each(|statement| {
        name_objects(statement);
        without_absent(statement);
        names_in_answer(statement);
        qualify(statement);
    });
    static WHOLE: LazyLock<PostgresCompatibilityParser> = LazyLock::new(PostgresCompatibilityParser::new);
    let uses: Vec<CatalogUse> = statements.iter().map(CatalogUse::of).collect();
    for (statement, found) in statements.iter_mut().zip(&uses) {
        if found.is_all() {
            without_functions(statement);
        }
    }
    if uses.iter().all(|found| found.is_all())
        && let Some(replaced) = replaced(&WHOLE, sql)
    {
        return replaced;
    }
    let statements = statements.into_iter().zip(uses).map(|(statement, found)| match found {
        found if found.is_all() => rewritten(statement, |_| true),
        CatalogUse { is_named: true, .. } => rewritten(statement, |of| of == RewriteScope::Named),
        _ => statement,
    });
    statements.map(in_path).collect()
}

/// `'t'::regclass` looks for a name without a schema in all schemas of the path, and not in the first alone.
fn in_path(mut statement: Statement) -> Statement {
    struct ParseIdentRewriter;
    impl VisitorMut for ParseIdentRewriter {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if let Expr::Function(function) = expr
                && parts(&function.name) == ["parse_ident"]
            {
                function.name = ObjectName::from(vec![Ident::new(RELATION_PARTS)]);
            }
            ControlFlow::Continue(())
        }
    }
    struct Casts;
    impl VisitorMut for Casts {
        type Break = ();
        fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
            if query.body.as_select().is_some_and(looks_in_first_schema) {
                let _ = walk_mut(query, &mut ParseIdentRewriter);
            }
            ControlFlow::Continue(())
        }
    }
    let _ = walk_mut(&mut statement, &mut Casts);
    statement
}

/// Whether it is what the crate makes of `'t'::regclass`: a name that is taken into `parts`, and `n.nspname =
/// current_schema()`.
fn looks_in_first_schema(select: &Select) -> bool {
    let makes_parts = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { expr: Expr::Function(function), alias } => {
            fold(alias) == "parts" && parts(&function.name) == ["parse_ident"]
        }
        _ => false,
    };
    let is_parts = |factor: &TableFactor| match factor {
        TableFactor::Derived { subquery, .. } => {
            subquery.body.as_select().is_some_and(|select| select.projection.iter().any(makes_parts))
        }
        _ => false,
    };
    let is_first = |expr: &Expr| match expr {
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
            is_column(left, ["n", "nspname"])
                && matches!(right.as_ref(), Expr::Function(function) if parts(&function.name) == ["current_schema"])
        }
        _ => false,
    };
    let mut joined = select.from.iter().flat_map(|from| &from.joins);
    joined.any(|join| is_parts(&join.relation))
        && select.selection.as_ref().is_some_and(|selection| {
            let found = each_expr(selection, |expr| match is_first(expr) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            });
            found.is_break()
        })
}

/// Whether an expression is this column of this table.
fn is_column(expr: &Expr, [table, column]: [&str; 2]) -> bool {
    matches!(expr, Expr::CompoundIdentifier(name) if matches!(&name[..], [of, name] if fold(of) == table && fold(name) == column))
}

/// Whether a query unfolds a table's column that is a list: `SELECT … FROM pg_catalog.unnest(table.column)`.
fn unfolds(query: &Query, column: [&str; 2]) -> bool {
    let is_it =
        |arg: &FunctionArg| matches!(arg, FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) if is_column(expr, column));
    let is_unnest = |factor: &TableFactor| match factor {
        TableFactor::Table { name, args: Some(args), .. } => {
            parts(name).last().is_some_and(|name| name == "unnest") && args.args.iter().any(is_it)
        }
        TableFactor::UNNEST { array_exprs, .. } => array_exprs.iter().any(|expr| is_column(expr, column)),
        _ => false,
    };
    query.body.as_select().is_some_and(|select| select.from.iter().any(|from| is_unnest(&from.relation)))
}

/// What queries ask of things that there are none of. psql's `\du` gathers the roles of which each is a member into an
/// array, its `\d+` the options of a table's TOAST; SQLAlchemy asks which sequence fills a column.
fn without_absent(statement: &mut Statement) {
    struct MembershipRewriter;
    impl VisitorMut for MembershipRewriter {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if let Some(query) = query_of_array(expr)
                && reads(query, "pg_auth_members")
            {
                *expr = Expr::Value(Value::SingleQuotedString("{}".to_owned()).with_empty_span());
            }
            if let Expr::BinaryOp { left, op: BinaryOperator::StringConcat, right } = expr
                && let Some(query) = query_of_array(right)
                && unfolds(query, ["tc", "reloptions"])
            {
                *expr = (**left).clone();
            }
            if let Expr::Subquery(query) = expr
                && reads(query, "pg_sequence")
            {
                *expr = Expr::Value(Value::Null.with_empty_span());
            }
            ControlFlow::Continue(())
        }
    }
    let _ = walk_mut(statement, &mut MembershipRewriter);
}

/// The crate's rules do this for the relations that it knows.
fn qualify(statement: &mut Statement) {
    struct CatalogTableRewriter;
    impl VisitorMut for CatalogTableRewriter {
        type Break = ();
        fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
            if let TableFactor::Table { name, args: None, .. } = factor
                && matches!(parts(name).as_slice(), [only] if PG_TABLES.contains(&only.as_str()))
            {
                name.0.insert(0, ObjectNamePart::Identifier(Ident::new("pg_catalog")));
            }
            ControlFlow::Continue(())
        }
        fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
            // They are called as they are written.
            for item in &mut select.projection {
                if let SelectItem::UnnamedExpr(expr) = item
                    && let Some(name) = variable(expr)
                {
                    *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', name) };
                }
            }
            ControlFlow::Continue(())
        }
        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            to_regclass(expr);
            names_of_numbers(expr);
            regclass(expr);
            name_schema(expr);
            by_name(expr);
            temporary_schema(expr);
            let function = match variable(expr).as_deref() {
                Some("user" | "current_role" | "current_user" | "session_user") => "session_user",
                Some("current_catalog") => "current_database",
                _ => return ControlFlow::Continue(()),
            };
            *expr = call(function, vec![]);
            ControlFlow::Continue(())
        }
    }
    let _ = walk_mut(statement, &mut CatalogTableRewriter);
}

/// The function that writes a number of this type: `regclass` and its kin are numbers to the planner.
fn written_by(data_type: &DataType) -> Option<&'static str> {
    let name = match data_type {
        DataType::Regclass => return Some(RELATION_NAME),
        DataType::Custom(name, modifiers) if modifiers.is_empty() => parts(name),
        _ => return None,
    };
    let name = match &name[..] {
        [name] => name,
        [schema, name] if schema == "pg_catalog" => name,
        _ => return None,
    };
    match name.as_str() {
        "regclass" => Some(RELATION_NAME),
        "regnamespace" => Some(SCHEMA_NAME),
        "regproc" => Some(FUNCTION_NAME),
        "regtype" => Some(TYPE_NAME),
        _ => None,
    }
}

/// The function that writes what an expression is, if that is a number which is shown as a name.
fn shown_by(expr: &Expr) -> Option<&'static str> {
    match expr {
        Expr::Nested(inner) => shown_by(inner),
        Expr::Cast { data_type, .. } => written_by(data_type),
        Expr::Function(function) => match parts(&function.name).last().map(String::as_str) {
            Some("to_regclass") => Some(RELATION_NAME),
            Some("to_regtype") => Some(TYPE_NAME),
            _ => None,
        },
        _ => None,
    }
}

/// Writes the name in the place of the number.
fn write_name(expr: &mut Expr) {
    if let Some(function) = shown_by(expr) {
        let number = std::mem::replace(expr, Expr::value(Value::Null));
        *expr = call(function, vec![number]);
    }
}

/// Where a client is shown `oid::regclass`, in all queries of a UNION or none, that is a name. What orders the rows is
/// the number still.
fn names_in_answer(statement: &mut Statement) {
    fn selects<'a>(body: &'a mut SetExpr, found: &mut Vec<&'a mut Select>) -> bool {
        match body {
            SetExpr::Select(select) => {
                found.push(select);
                true
            }
            SetExpr::SetOperation { left, right, .. } => selects(left, found) && selects(right, found),
            _ => false,
        }
    }
    fn shown(item: &mut SelectItem) -> Option<&mut Expr> {
        match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                shown_by(expr).is_some().then_some(expr)
            }
            _ => None,
        }
    }
    let Statement::Query(query) = statement else { return };
    let mut found = vec![];
    if !selects(&mut query.body, &mut found) {
        return;
    }
    let n_items = found.iter().map(|select| select.projection.len()).min().unwrap_or_default();
    let mut numbers = vec![];
    for place in 0..n_items {
        if !found.iter_mut().all(|select| shown(&mut select.projection[place]).is_some()) {
            continue;
        }
        for select in &mut found {
            let item = &mut select.projection[place];
            let alias = if let SelectItem::ExprWithAlias { alias, .. } = item { Some(alias.clone()) } else { None };
            if let Some(expr) = shown(item) {
                numbers.push((place, alias, expr.clone()));
                write_name(expr);
            }
        }
    }
    // Rows that are made distinct, groups, and those of a UNION, are ordered by what is answered.
    let [select] = &found[..] else { return };
    let is_plain = matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty());
    if select.distinct.is_some() || !is_plain {
        return;
    }
    let Some(OrderBy { kind: OrderByKind::Expressions(keys), .. }) = &mut query.order_by else { return };
    for key in keys {
        let is_it = |(place, alias, _): &&(usize, Option<Ident>, Expr)| match &key.expr {
            Expr::Identifier(ident) => alias.as_ref().is_some_and(|alias| fold(alias) == fold(ident)),
            Expr::Value(value) => {
                matches!(&value.value, Value::Number(number, _) if *number == (place + 1).to_string())
            }
            _ => false,
        };
        if let Some((_, _, number)) = numbers.iter().find(is_it) {
            key.expr = number.clone();
        }
    }
}

/// Functions and operators that write what they are given.
const WRITING: [&str; 14] = [
    "array_agg",
    "concat",
    "concat_ws",
    "format",
    "json_agg",
    "json_build_array",
    "json_build_object",
    "jsonb_agg",
    "jsonb_build_array",
    "jsonb_build_object",
    "quote_ident",
    "quote_literal",
    "to_json",
    "to_jsonb",
];

/// `oid::regclass::text` and `'a' || oid::regclass` are names, `'int'::regtype` is a number.
fn names_of_numbers(expr: &mut Expr) {
    match expr {
        Expr::Cast { expr: of, data_type, .. } if is_text(data_type) && shown_by(of).is_some() => {
            let mut name = std::mem::replace(of.as_mut(), Expr::value(Value::Null));
            write_name(&mut name);
            *expr = name;
        }
        Expr::Cast { expr: of, data_type, .. } if written_by(data_type) == Some(TYPE_NAME) => {
            let is_text = matches!(of.as_ref(), Expr::Value(value)
                if matches!(value.value, Value::SingleQuotedString(_) | Value::Placeholder(_)));
            if is_text || gives_text(of) {
                *expr = call(TYPE_NUMBER, vec![std::mem::replace(of.as_mut(), Expr::value(Value::Null))]);
            }
        }
        Expr::Cast { expr: of, data_type: DataType::Custom(name, _), .. }
            if parts(name).last().is_some_and(|name| name == "oid") && is_type_of(of) =>
        {
            *expr = call(TYPE_NUMBER, vec![std::mem::replace(of.as_mut(), Expr::value(Value::Null))]);
        }
        Expr::BinaryOp { left, op: BinaryOperator::StringConcat, right } => {
            write_name(left);
            write_name(right);
        }
        Expr::Function(function)
            if parts(&function.name).last().is_some_and(|name| WRITING.contains(&name.as_str())) =>
        {
            if let FunctionArguments::List(list) = &mut function.args {
                for arg in &mut list.args {
                    if let FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) = arg {
                        write_name(arg);
                    }
                }
            }
        }
        _ => {}
    }
}

/// Whether it is `pg_typeof(…)`.
fn is_type_of(expr: &Expr) -> bool {
    matches!(expr, Expr::Function(function) if parts(&function.name).last().is_some_and(|name| name == "pg_typeof"))
}

/// Whether it is a text without asking for types.
fn gives_text(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => gives_text(inner),
        Expr::Cast { data_type, .. } => is_text(data_type),
        Expr::BinaryOp { op: BinaryOperator::StringConcat, .. } => true,
        expr => is_type_of(expr),
    }
}

/// `'t'::regclass` is asked of a function that knows the path.
fn regclass(expr: &mut Expr) {
    let Expr::Cast { expr: of, data_type, .. } = expr else { return };
    let is_of_users = literal(of).is_some_and(may_be_of_users) || gives_text(of);
    if written_by(data_type) == Some(RELATION_NAME) && is_of_users {
        *expr = call(RELATION_NUMBER, vec![of.as_ref().clone()]);
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Text | DataType::Varchar(None))
}

fn literal(expr: &Expr) -> Option<&str> {
    let Expr::Value(value) = expr else { return None };
    match &value.value {
        Value::SingleQuotedString(text) => Some(text),
        _ => None,
    }
}

/// Whether a text names a relation that is none of the catalogs: the numbers of those are the crate's.
fn may_be_of_users(text: &str) -> bool {
    match parts_named(text).as_deref() {
        Ok([name]) => !name.starts_with("pg_") && name.parse::<i64>().is_err(),
        Ok([schema, _] | [_, schema, _]) => !OF_SYSTEM.contains(&schema.as_str()),
        _ => true,
    }
}

/// `to_regclass('pg_class')`: as the cast.
fn to_regclass(expr: &mut Expr) {
    let Expr::Function(function) = expr else { return };
    if parts(&function.name).last().is_none_or(|name| name != "to_regclass") {
        return;
    }
    let FunctionArguments::List(list) = &mut function.args else { return };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(of))] = &mut list.args[..] else { return };
    // A literal that is said to be a text.
    while let Expr::Cast { expr: inner, data_type: DataType::Text, .. } = of {
        *of = std::mem::replace(inner.as_mut(), Expr::value(Value::Null));
    }
    if literal(of).is_some_and(|text| !may_be_of_users(text)) {
        let expr_of = Box::new(std::mem::replace(of, Expr::value(Value::Null)));
        let (kind, data_type) = (CastKind::DoubleColon, DataType::Regclass);
        *expr = Expr::Cast { kind, expr: expr_of, data_type, array: false, format: None };
    }
}

/// `'pg_class'::regclass`: what is called so is in no other schema.
fn name_schema(expr: &mut Expr) {
    if let Expr::Cast { expr: named, data_type: DataType::Regclass, .. } = expr
        && let Expr::Value(value) = named.as_mut()
        && let Value::SingleQuotedString(name) = &mut value.value
        && PG_CATALOG_TABLES.contains(&name.as_str())
    {
        name.insert_str(0, "pg_catalog.");
    }
}

/// `pg_my_temp_schema()`: a session sees no other's, so it is the one that is there.
fn temporary_schema(expr: &mut Expr) {
    static ITS_NUMBER: LazyLock<Option<Expr>> = LazyLock::new(|| {
        const QUERY: &str =
            "SELECT coalesce((SELECT max(oid) FROM pg_catalog.pg_namespace WHERE nspname LIKE 'pg\\_temp\\_%'), 0)";
        let Some(Statement::Query(query)) = tarn_query::parser::statements(QUERY).ok()?.pop() else { return None };
        match query.body.as_select()?.projection.first()? {
            SelectItem::UnnamedExpr(number) => Some(number.clone()),
            _ => None,
        }
    });
    if let Expr::Function(function) = &*expr
        && parts(&function.name).last().is_some_and(|name| name == "pg_my_temp_schema")
        && let Some(number) = &*ITS_NUMBER
    {
        *expr = number.clone();
    }
}

/// The catalog here names functions by their names, not by numbers: `typinput = 'pg_catalog.array_in'::regproc`
/// compares texts.
fn by_name(expr: &mut Expr) {
    let Expr::Cast { expr: of, data_type, .. } = expr else { return };
    let DataType::Custom(name, _) = &*data_type else { return };
    if parts(name).last().is_none_or(|name| name != "regproc") {
        return;
    }
    *data_type = DataType::Text;
    if let Expr::Value(value) = of.as_mut()
        && let Value::SingleQuotedString(text) = &mut value.value
        && let Some(plain) = text.strip_prefix("pg_catalog.")
    {
        *text = plain.to_owned();
    }
}

/// `typreceive <> 0`, as ADBC asks: that there is no function is `-` where functions have names.
fn without_functions(statement: &mut Statement) {
    struct FunctionNumberRewriter;
    impl VisitorMut for FunctionNumberRewriter {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if let Expr::BinaryOp { left, op: BinaryOperator::Eq | BinaryOperator::NotEq, right } = expr
                && column_of(left).map(fold).is_some_and(|name| OF_FUNCTIONS.contains(&name.as_str()))
                && let Expr::Value(value) = right.as_mut()
                && matches!(&value.value, Value::Number(number, _) if number == "0")
            {
                value.value = Value::SingleQuotedString("-".to_owned());
            }
            ControlFlow::Continue(())
        }
    }
    let _ = walk_mut(statement, &mut FunctionNumberRewriter);
}

/// Columns of `pg_type` that name functions.
const OF_FUNCTIONS: [&str; 7] =
    ["typinput", "typoutput", "typreceive", "typsend", "typmodin", "typmodout", "typanalyze"];

/// The name of what is written without parentheses.
fn variable(expr: &Expr) -> Option<String> {
    let name = match expr {
        Expr::Identifier(ident) if ident.quote_style.is_none() => fold(ident),
        Expr::Function(Function { name, args: FunctionArguments::None, .. }) => parts(name).join("."),
        _ => return None,
    };
    is_variable(&name).then_some(name)
}

fn reads(query: &Query, relation: &str) -> bool {
    struct RelationFinder<'a>(&'a str);
    impl Visitor for RelationFinder<'_> {
        type Break = ();
        fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<()> {
            match parts(name).last().is_some_and(|last| last == self.0) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
    }
    walk(query, &mut RelationFinder(relation)).is_break()
}

/// Which statements a rewrite is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RewriteScope {
    /// That name something of the catalog: it changes nothing but how that is named.
    Named,
    /// That read nothing but the catalog.
    CatalogAlone,
}

type Rule = (RewriteScope, Box<dyn SqlStatementRewriteRule>);

/// The rewrites, in their order.
static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    vec![
        (RewriteScope::CatalogAlone, Box::new(AliasDuplicatedProjectionRewrite) as Box<dyn SqlStatementRewriteRule>),
        (RewriteScope::CatalogAlone, Box::new(ResolveUnqualifiedIdentifier)),
        (RewriteScope::CatalogAlone, Box::new(RewriteArrayAnyAllOperation)),
        (RewriteScope::Named, Box::new(PrependUnqualifiedPgTableName)),
        (RewriteScope::Named, Box::new(StripCallableQualifier)),
        (RewriteScope::CatalogAlone, Box::new(FixArrayLiteral)),
        (RewriteScope::Named, Box::new(CurrentUserVariableToSessionUserFunctionCall)),
        (RewriteScope::CatalogAlone, Box::new(StripCollate)),
        (RewriteScope::Named, Box::new(RewritePgCatalogOperator)),
        (RewriteScope::Named, Box::new(RewriteRegCastToSubquery::new())),
        (RewriteScope::Named, Box::new(FixVersionColumnName)),
    ]
});

/// A statement behind the rewrites that are for it.
fn rewritten(statement: Statement, is_for_it: impl Fn(RewriteScope) -> bool) -> Statement {
    let rules = RULES.iter().filter(|(of, _)| is_for_it(*of));
    rules.fold(statement, |statement, (_, rule)| rule.rewrite(statement))
}

/// A few queries of clients are known as a whole, and replaced by ones that can be planned. `None`: this is none of
/// them.
fn replaced(whole: &PostgresCompatibilityParser, sql: &str) -> Option<Vec<Statement>> {
    let dialect = PostgreSqlDialect {};
    let tokens = (sql.len() <= MAX_REPLACED_BYTES).then(|| Tokenizer::new(&dialect, sql).tokenize().ok())??;
    let (mut nesting, mut deepest) = (0_usize, 0);
    for token in &tokens {
        match token {
            Token::LParen => nesting += 1,
            Token::RParen => nesting = nesting.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(nesting);
    }
    if deepest > MAX_REPLACED_NESTING {
        return None;
    }
    let replaced = whole.parse(sql).ok()?;
    let plain = Parser::new(&dialect).with_tokens(tokens).parse_statements().ok()?;
    let plain: Vec<Statement> = plain.into_iter().map(|statement| whole.rewrite(statement)).collect();
    (replaced != plain).then_some(replaced)
}

#[derive(Default)]
struct CatalogNames {
    found: CatalogUse,
    with: HashSet<String>,
    /// Relations that are none of the catalog's, or defined by WITH.
    others: Vec<String>,
}

impl Visitor for CatalogNames {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.with.extend(query.with.iter().flat_map(|with| &with.cte_tables).map(|cte| fold(&cte.alias.name)));
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        match factor {
            TableFactor::Table { name, args: None, .. } => {
                let parts = parts(name);
                match is_catalog_relation(&parts) {
                    true => (self.found.is_named, self.found.relations) = (true, true),
                    false => self.others.push(parts.join(".")),
                }
            }
            TableFactor::Table { name, args: Some(_), .. } | TableFactor::Function { name, .. } => {
                self.found.is_named |= is_catalog_function(&parts(name));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.found.is_named |= match expr {
            Expr::Function(function) => is_catalog_function(&parts(&function.name)),
            Expr::Identifier(ident) => ident.quote_style.is_none() && is_variable(&fold(ident)),
            Expr::Cast { data_type, .. } => is_catalog_type(data_type),
            Expr::TypedString(typed) => is_catalog_type(&typed.data_type),
            Expr::Collate { collation, .. } => is_catalog(&parts(collation)),
            Expr::BinaryOp { op: BinaryOperator::PGCustomBinaryOperator(name), .. } => is_catalog(name),
            _ => false,
        };
        ControlFlow::Continue(())
    }
}

fn is_catalog_function(parts: &[String]) -> bool {
    let Some(name) = parts.last() else { return false };
    let is_known = || {
        is_variable(name)
            || name.starts_with("pg_")
            || name.starts_with("_pg_")
            || (name.starts_with("has_") && name.ends_with("_privilege"))
            || matches!(name.as_str(), "version" | "format_type" | "quote_ident" | "parse_ident" | "current_schemas")
            || matches!(
                name.as_str(),
                "current_setting"
                    | "set_config"
                    | "to_regclass"
                    | RELATION_NUMBER
                    | RELATION_NAME
                    | SCHEMA_NAME
                    | FUNCTION_NAME
                    | TYPE_NAME
                    | TYPE_NUMBER
                    | "to_regtype"
                    | "obj_description"
                    | "col_description"
                    | "shobj_description"
            )
            || matches!(name.as_str(), "array_lower" | "array_upper" | "current_database")
    };
    is_catalog(parts) || (parts.len() == 1 && is_known())
}

fn is_catalog_type(data_type: &DataType) -> bool {
    match data_type {
        DataType::Regclass => true,
        DataType::Custom(name, _) => {
            let parts = parts(name);
            let is_known = |name: &String| name.starts_with("reg") || name == "oid";
            is_catalog(&parts) || matches!(parts.as_slice(), [name] if is_known(name))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use tarn_query::parser::statements;

    use super::*;

    fn of(sql: &str) -> CatalogUse {
        CatalogUse::of(&statements(sql).unwrap()[0])
    }

    #[test]
    fn names_with_pg_in_them_are_no_catalog() {
        for sql in [
            "SELECT jpg_url, mpg_city, 'pg_' FROM photo",
            "SELECT version, \"current_user\" FROM t WHERE note = 'information_schema.regclass version()'",
            "SELECT * FROM pg_compat_test",
            "SELECT t.user, t.current_schema FROM t",
        ] {
            assert!(!of(sql).is_named, "{sql}");
        }
    }

    #[test]
    fn what_is_the_catalogs_is_found() {
        for sql in [
            "SELECT * FROM pg_class",
            "SELECT * FROM pg_stat_activity",
            "SELECT pg_cancel_backend(1)",
            "SELECT * FROM information_schema.tables",
            "SELECT 1 FROM t WHERE EXISTS (SELECT 1 FROM Pg_Catalog.pg_type)",
            "SELECT version()",
            "SELECT current_schema",
            "SELECT current_user",
            "SELECT 't'::regclass",
            "SELECT CAST(1 AS pg_catalog.int4)",
            "SELECT has_table_privilege('t', 'select')",
            "SELECT a FROM t WHERE a OPERATOR(pg_catalog.~) 'b'",
            "EXPLAIN SELECT * FROM pg_namespace",
        ] {
            assert!(of(sql).is_named, "{sql}");
        }
        assert!(of("WITH n AS (SELECT oid FROM pg_class) SELECT * FROM n JOIN pg_type USING (oid)").is_all());
        assert!(!of("SELECT (SELECT max(v) FROM t WHERE t.id = c.oid) FROM pg_class c").is_all());
        assert!(!of("SELECT version()").is_all());
    }

    #[test]
    fn subqueries_in_select_lists_stay_what_they_are() {
        let rewritten = |sql: &str| compatible(sql, statements(sql).unwrap())[0].to_string();
        let mixed = "SELECT version(), (SELECT max(v.stars) FROM vote AS v WHERE v.photo = p.id) FROM photo AS p";
        assert!(rewritten(mixed).contains("SELECT max(v.stars)"), "{}", rewritten(mixed));
        let catalog = "SELECT c.relname, (SELECT d.x FROM pg_catalog.pg_attrdef d WHERE d.adrelid = c.oid) FROM pg_catalog.pg_class c";
        assert!(rewritten(catalog).contains("SELECT d.x"), "{}", rewritten(catalog));
        // Told by their trees, however they are written.
        let named = rewritten("SELECT 'pg_class'::regclass FROM pg_class");
        assert!(named.contains(RELATION_PARTS) && !named.contains("parse_ident"), "{named}");
        let own = "SELECT parse_ident(relname) FROM pg_class WHERE relname = 'n.nspname = current_schema() AND c.relname = parts[1]'";
        assert!(rewritten(own).contains("parse_ident"), "{}", rewritten(own));
        let read = |sql: &str| match &crate::statement::parse(sql).unwrap()[..] {
            [crate::statement::ParsedSql::Sql(statement)] => statement.to_string(),
            other => panic!("{sql}: {other:?}"),
        };
        for options in
            ["pg_catalog.unnest(tc.reloptions)", "Pg_Catalog.Unnest( TC.Reloptions )", "unnest(tc.reloptions)"]
        {
            let toast = format!("SELECT c.reloptions || array(SELECT 'toast.' || x FROM {options} x) FROM pg_class c");
            assert!(!read(&toast).contains("toast"), "{}", read(&toast));
        }
        let others = "SELECT c.reloptions || array(SELECT x FROM unnest(tc.others) x WHERE x = 'unnest(tc.reloptions)') FROM pg_class c";
        assert!(read(others).contains("others"), "{}", read(others));
        // One of those that are replaced as a whole.
        let known = "select c.oid,pg_catalog.pg_total_relation_size(c.oid) as total_rel_size,\
                     pg_catalog.pg_relation_size(c.oid) as rel_size FROM pg_class c WHERE c.relnamespace='public'";
        assert!(rewritten(known).contains("WHERE false"), "{}", rewritten(known));
    }

    #[test]
    fn numbers_are_written_as_names_where_they_are_shown() {
        let rewritten = |sql: &str| compatible(sql, statements(sql).unwrap())[0].to_string();
        for (sql, want) in [
            ("SELECT 23::regtype", "SELECT tarn_type_name(23::regtype)"),
            ("SELECT x::regtype FROM pg_index WHERE x::regtype = 'int'::regtype", "tarn_type_number('int')"),
            ("SELECT x::regclass::text FROM t", "SELECT tarn_relation_name(x::REGCLASS) FROM t"),
            ("SELECT 'a' || x::regclass FROM t", "SELECT 'a' || tarn_relation_name(x::REGCLASS) FROM t"),
            ("SELECT a FROM t WHERE x::regclass = 5", "WHERE x::REGCLASS = 5"),
            ("SELECT x::regclass AS y FROM t ORDER BY y", "ORDER BY x::REGCLASS"),
            ("SELECT x::regclass AS y FROM t ORDER BY 1 DESC", "ORDER BY x::REGCLASS DESC"),
            ("SELECT DISTINCT x::regclass AS y FROM t ORDER BY y", "ORDER BY y"),
            ("SELECT x::regclass FROM t UNION SELECT 5", "SELECT x::REGCLASS FROM t UNION SELECT 5"),
            ("SELECT x FROM (SELECT y::regclass AS x FROM t) s", "y::REGCLASS AS x"),
            ("SELECT pg_typeof(x)::oid FROM t", "tarn_type_number(pg_typeof(x))"),
            ("SELECT p.oid::pg_catalog.regproc FROM pg_proc p", "tarn_function_name(p.oid::TEXT)"),
        ] {
            assert!(rewritten(sql).contains(want), "{}", rewritten(sql));
        }
        assert!(!rewritten("SELECT x::regclass FROM t UNION SELECT 5").contains("tarn_relation_name"));
    }
}
