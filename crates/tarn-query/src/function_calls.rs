//! Where does a statement call functions that users wrote? Before it is planned, their calls become those of functions
//! that the planner knows ([`FunctionCall`]), which hold their places until the query of each stands there
//! (`inlined.rs`):
//!
//! ```text
//! SELECT f(a, n => 1)       SELECT f(a, 1)
//! FROM g(a) AS t            FROM LATERAL (SELECT "$1" AS x FROM (SELECT CAST(NULL AS int) AS "$1") AS "$g" WHERE "tarn_rows_of g"(a)) AS t
//! SELECT g(a) FROM u        SELECT t.x FROM u CROSS JOIN g(a) AS t
//! ```
//!
//! Of the second the condition tells what is called with what, and what it stands on which columns that gives.

use std::collections::BTreeSet;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{DataType as ArrowType, Field, FieldRef};
use datafusion::common::{DFSchema, exec_err};
use datafusion::error::Result as PlanResult;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    TypeSignature, Volatility,
};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    self, Function, FunctionArg, FunctionArgExpr, FunctionArgOperator, FunctionArguments, GroupByExpr, Ident,
    ObjectName, Select, SelectItem, SetExpr, Statement, TableAlias, TableAliasColumnDef, TableFactor, TableWithJoins,
    VisitorMut,
};
use tarn_types::full_name;

use crate::meaning::ViewTexts;
use crate::parser::fold;
use crate::user_functions::{Argument, ResultShape, UserFunction, UserFunctions};
use crate::walk::{each_expr, walk, walk_mut};
use crate::{Error, Result};

/// Before the name of a function that gives rows.
const ROWS_OF: &str = "tarn_rows_of ";

/// The place of a call in a plan.
#[derive(Debug)]
pub(crate) struct FunctionCall {
    /// The name of the function.
    pub function: String,
    /// Whether it is a condition that stands for rows.
    pub gives_rows: bool,
    /// What the planner calls it.
    called: String,
    functions: Arc<dyn UserFunctions>,
    /// What each function of the name gives.
    fields: HashMap<u32, FieldRef>,
    signature: Signature,
}

impl PartialEq for FunctionCall {
    fn eq(&self, other: &Self) -> bool {
        self.called == other.called
    }
}

impl Eq for FunctionCall {}

impl Hash for FunctionCall {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.called.hash(state);
    }
}

impl FunctionCall {
    /// What an expression calls, if it is such a call.
    pub fn of(expr: &Expr) -> Option<(&FunctionCall, &[Expr])> {
        let Expr::ScalarFunction(call) = expr else { return None };
        Some((call.func.inner().downcast_ref::<FunctionCall>()?, &call.args))
    }
}

impl ScalarUDFImpl for FunctionCall {
    fn name(&self) -> &str {
        &self.called
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[ArrowType]) -> PlanResult<ArrowType> {
        exec_err!("what {} gives depends on its arguments", self.function)
    }

    /// What is known of the arguments here may not be all: literals get their types later. So a wrong guess is no error
    /// here.
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> PlanResult<FieldRef> {
        if self.gives_rows {
            return Ok(Arc::new(Field::new(&self.called, ArrowType::Boolean, true)));
        }
        let scalars = args.scalar_arguments.iter();
        let arguments = args.arg_fields.iter().zip(scalars).map(|(field, scalar)| argument(field, *scalar));
        let arguments: Vec<Argument> = arguments.collect();
        let field = match self.functions.choose(&self.function, &arguments) {
            Ok(chosen) => self.fields.get(&chosen.function.id).cloned().or_else(|| {
                // Of the type of one of its arguments.
                let of = chosen.column_types.first()?;
                let typed = chosen.parameter_types.iter().position(|data_type| data_type == of)?;
                arguments.get(typed).map(|argument| Arc::clone(&argument.field))
            }),
            Err(error) => {
                let functions = self.functions.named(&self.function);
                let first = functions.iter().find(|function| function.takes(arguments.len())).ok_or(error)?;
                self.fields.get(&first.id).cloned()
            }
        };
        let field = field.unwrap_or_else(|| Arc::new(Field::new("", ArrowType::Utf8, true)));
        Ok(Arc::new(field.as_ref().clone().with_name(&self.called).with_nullable(true)))
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        exec_err!("the function {} was not put in its place", self.function)
    }
}

/// An argument; a whole number that is written out is an `integer` if it fits one.
pub(crate) fn argument(field: &FieldRef, scalar: Option<&ScalarValue>) -> Argument {
    let field = match scalar {
        Some(ScalarValue::Int64(Some(number))) if i32::try_from(*number).is_ok() => {
            Arc::new(Field::new(field.name(), ArrowType::Int32, true))
        }
        _ => Arc::clone(field),
    };
    let is_text = matches!(
        scalar,
        Some(ScalarValue::Utf8(_) | ScalarValue::LargeUtf8(_) | ScalarValue::Utf8View(_) | ScalarValue::Null)
    );
    // What is a `uuid` or another type that is kept as a text says so beside itself.
    let is_unknown = (is_text && field.metadata().is_empty()) || field.data_type().is_null();
    Argument { field, is_unknown }
}

/// What knows the functions that a statement calls. `None`: it calls none that users wrote.
///
/// Errors: `Unsupported` for calls that have no place in a plan; `NoFunction`.
pub(crate) fn prepare(
    statement: &mut Statement,
    state: &SessionState,
    functions: &Arc<dyn UserFunctions>,
    texts: ViewTexts,
) -> Result<Option<SessionState>> {
    if functions.is_empty() {
        return Ok(None);
    }
    let mut calls = CallRewriter { state, functions, texts, found: BTreeSet::new() };
    if let ControlFlow::Break(error) = walk_mut(statement, &mut calls) {
        return Err(error);
    }
    let found = calls.found;
    if found.is_empty() {
        return Ok(None);
    }
    let mut with_calls = state.clone();
    for (name, gives_rows) in &found {
        let mut fields = HashMap::new();
        for function in functions.named(name) {
            let [(_, data_type), ..] = &function.columns[..] else { continue };
            // Others are of the types of their arguments.
            if let Ok(field) = type_field(state, texts, data_type) {
                fields.insert(function.id, field);
            }
        }
        let called = if *gives_rows { format!("{ROWS_OF}{name}") } else { name.clone() };
        let (name, gives_rows, functions) = (name.clone(), *gives_rows, Arc::clone(functions));
        let kinds = vec![TypeSignature::Nullary, TypeSignature::VariadicAny];
        let signature = Signature::one_of(kinds, Volatility::Stable);
        let place = FunctionCall { function: name, gives_rows, called, functions, fields, signature };
        with_calls.register_udf(Arc::new(ScalarUDF::from(place)))?;
    }
    Ok(Some(with_calls))
}

/// The field of a type, as a statement that is planned has it.
///
/// Errors: there is no such type.
pub(crate) fn type_field(state: &SessionState, texts: ViewTexts, data_type: &str) -> Result<FieldRef> {
    let schema = DFSchema::empty();
    let null = expression(state, texts, &format!("CAST(NULL AS {data_type})"), &schema)?;
    Ok(null.to_field(&schema)?.1)
}

/// The expression that a text is, over these columns.
pub(crate) fn expression(state: &SessionState, texts: ViewTexts, text: &str, schema: &DFSchema) -> Result<Expr> {
    let Statement::Query(query) = (texts.query)(&format!("SELECT {text}"))? else { return Err(no_expression(text)) };
    let SetExpr::Select(select) = *query.body else { return Err(no_expression(text)) };
    let item = select.projection.into_iter().next();
    let Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else {
        return Err(no_expression(text));
    };
    let expr = ast::ExprWithAlias { expr, alias: None };
    Ok(state.create_logical_expr_from_sql_expr(expr, schema)?)
}

fn no_expression(text: &str) -> Error {
    Error::Unsupported { what: format!("the expression {text}"), remedy: "write another" }
}

struct CallRewriter<'a> {
    state: &'a SessionState,
    functions: &'a Arc<dyn UserFunctions>,
    texts: ViewTexts,
    /// Names of functions, and whether they are called for rows.
    found: BTreeSet<(String, bool)>,
}

impl VisitorMut for CallRewriter<'_> {
    type Break = Error;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        let done = self.rows_in_list(select).and_then(|()| {
            // Nothing is beside the first.
            let Some(first) = select.from.first_mut() else { return Ok(()) };
            self.in_from(&mut first.relation, false)
        });
        done.map_or_else(ControlFlow::Break, ControlFlow::Continue)
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        self.in_from(factor, true).map_or_else(ControlFlow::Break, ControlFlow::Continue)
    }

    fn pre_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<Error> {
        let ast::Expr::Function(call) = expr else { return ControlFlow::Continue(()) };
        self.value(call).map_or_else(ControlFlow::Break, ControlFlow::Continue)
    }
}

impl CallRewriter<'_> {
    /// The name of a function that a user wrote. What the engine has comes first.
    fn user_name(&self, name: &ObjectName) -> Option<String> {
        let parts: Option<Vec<String>> = name.0.iter().map(|part| part.as_ident().map(fold)).collect();
        let parts = parts?;
        let called = match &parts[..] {
            [name] if !is_of_engine(self.state, name) => name,
            [schema, name] => &full_name::join(schema, name),
            _ => return None,
        };
        (!self.functions.named(called).is_empty()).then(|| called.clone())
    }

    /// A call where a value stands.
    fn value(&mut self, call: &mut Function) -> Result<()> {
        let Some(name) = self.user_name(&call.name) else { return Ok(()) };
        let FunctionArguments::List(list) = &mut call.args else { return Ok(()) };
        let is_plain = list.duplicate_treatment.is_none()
            && list.clauses.is_empty()
            && call.filter.is_none()
            && call.over.is_none()
            && call.null_treatment.is_none()
            && call.within_group.is_empty();
        if !is_plain {
            return Err(Error::Unsupported {
                what: format!("calling {name}, which is no aggregate, with DISTINCT, ORDER BY, FILTER or OVER"),
                remedy: "leave them out",
            });
        }
        list.args = self.by_places(&name, std::mem::take(&mut list.args))?;
        call.name = ObjectName::from(vec![Ident::with_quote('"', &name)]);
        self.found.insert((name, false));
        Ok(())
    }

    /// Arguments by their places, which were named.
    fn by_places(&self, name: &str, args: Vec<FunctionArg>) -> Result<Vec<FunctionArg>> {
        let name_of = |arg: &FunctionArg| match arg {
            FunctionArg::Named {
                name,
                operator: FunctionArgOperator::RightArrow | FunctionArgOperator::Assignment,
                ..
            } => Some(fold(name)),
            FunctionArg::ExprNamed {
                name: ast::Expr::Identifier(name),
                operator: FunctionArgOperator::RightArrow | FunctionArgOperator::Assignment,
                ..
            } => Some(fold(name)),
            _ => None,
        };
        let n_placed = args.iter().take_while(|arg| name_of(arg).is_none()).count();
        if n_placed == args.len() {
            return Ok(args);
        }
        let names: Vec<Option<String>> = args[n_placed..].iter().map(name_of).collect();
        if names.iter().any(Option::is_none) {
            return Err(Error::Unsupported {
                what: format!("calling {name} with an argument by its place behind one by its name"),
                remedy: "write those by place first",
            });
        }
        let names: Vec<String> = names.into_iter().flatten().collect();
        let place_of = |function: &UserFunction, name: &str| {
            function.parameters.iter().position(|parameter| parameter.name.as_deref() == Some(name))
        };
        let fits = |function: &&Arc<UserFunction>| {
            let given = |at: usize| at < n_placed || names.iter().any(|name| place_of(function, name) == Some(at));
            args.len() <= function.parameters.len()
                && names.iter().all(|name| place_of(function, name).is_some_and(|at| at >= n_placed))
                && names.iter().enumerate().all(|(at, name)| !names[..at].contains(name))
                && (0..function.parameters.len()).all(|at| given(at) || function.parameters[at].default.is_some())
        };
        let functions = self.functions.named(name);
        let fitting: Vec<_> = functions.iter().filter(fits).collect();
        let [function] = &fitting[..] else {
            return Err(match fitting.is_empty() {
                true => Error::NoFunction { function: format!("{name} with arguments of these names") },
                false => Error::Unsupported {
                    what: format!("calling one of several functions {name} by names that all of them have"),
                    remedy: "write the arguments by their places",
                },
            });
        };
        let mut placed = Vec::with_capacity(function.parameters.len());
        let last = names.iter().filter_map(|name| place_of(function, name)).max().unwrap_or(0);
        for (at, parameter) in function.parameters.iter().enumerate().take(last + 1) {
            let said = match at < n_placed {
                true => args.get(at).cloned(),
                false => {
                    let named = names.iter().position(|name| place_of(function, name) == Some(at));
                    named.and_then(|named| args.get(n_placed + named)).map(unnamed)
                }
            };
            placed.push(match (said, &parameter.default) {
                (Some(said), _) => said,
                (None, Some(default)) => FunctionArg::Unnamed(FunctionArgExpr::Expr(self.written(default)?)),
                (None, None) => return Err(Error::NoFunction { function: format!("{name} without all arguments") }),
            });
        }
        Ok(placed)
    }

    fn written(&self, text: &str) -> Result<ast::Expr> {
        let Statement::Query(query) = (self.texts.query)(&format!("SELECT {text}"))? else {
            return Err(no_expression(text));
        };
        match *query.body {
            SetExpr::Select(select) => match select.projection.into_iter().next() {
                Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) => Ok(expr),
                _ => Err(no_expression(text)),
            },
            _ => Err(no_expression(text)),
        }
    }

    /// `SELECT g(a), b FROM u` of a function that gives rows: it is called in FROM.
    fn rows_in_list(&mut self, select: &mut Select) -> Result<()> {
        let called = |calls: &CallRewriter<'_>, expr: &ast::Expr| {
            let ast::Expr::Function(call) = expr else { return None };
            let name = calls.user_name(&call.name)?;
            let functions = calls.functions.named(&name);
            functions.iter().any(|function| function.gives == ResultShape::Rows).then_some(name)
        };
        let of_item = |item: &SelectItem| match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => called(self, expr),
            _ => None,
        };
        let names: Vec<Option<String>> = select.projection.iter().map(of_item).collect();
        let Some(at) = names.iter().position(Option::is_some) else { return Ok(()) };
        let name = names[at].clone().unwrap_or_default();
        let groups = !matches!(&select.group_by, GroupByExpr::Expressions(by, _) if by.is_empty());
        let has_aggregate = each_expr(&select.projection, |expr| match expr {
            ast::Expr::Function(call) if is_aggregate(self.state, call) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        let has_star = select
            .projection
            .iter()
            .any(|item| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)));
        let is_one = names.iter().flatten().count() == 1;
        if !is_one || groups || has_aggregate.is_break() || has_star || select.distinct.is_some() {
            return Err(Error::Unsupported {
                what: format!("calling {name}, which gives rows, in this select list"),
                remedy: "call it in FROM: FROM t, f(t.x) AS r",
            });
        }
        let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = &mut select.projection[at]
        else {
            return Ok(());
        };
        let ast::Expr::Function(call) = expr else { return Ok(()) };
        let functions = self.functions.named(&name);
        if functions.iter().any(|function| function.gives != ResultShape::Rows || function.columns.len() != 1) {
            return Err(Error::Unsupported {
                what: format!("calling {name}, which gives rows of several columns, in a select list"),
                remedy: "call it in FROM: FROM t, f(t.x) AS r",
            });
        }
        let FunctionArguments::List(list) = &call.args else { return Ok(()) };
        let column = Ident::with_quote('"', full_name::bare(&name));
        let alias = Ident::with_quote('"', format!("$rows of {name}"));
        let from = TableFactor::Function {
            lateral: true,
            name: ObjectName::from(vec![Ident::with_quote('"', &name)]),
            args: list.args.clone(),
            with_ordinality: false,
            alias: Some(TableAlias {
                explicit: true,
                name: alias.clone(),
                columns: vec![TableAliasColumnDef { name: column.clone(), data_type: None }],
                at: None,
            }),
        };
        *expr = ast::Expr::CompoundIdentifier(vec![alias, column]);
        select.from.push(TableWithJoins { relation: from, joins: vec![] });
        Ok(())
    }

    /// A call where a table stands.
    fn in_from(&mut self, factor: &mut TableFactor, is_beside: bool) -> Result<()> {
        let (name, args, alias, ordinality) = match factor {
            TableFactor::Table { name, args: Some(args), alias, with_ordinality, .. } => {
                (name.clone(), args.args.clone(), alias.clone(), *with_ordinality)
            }
            TableFactor::Function { name, args, alias, with_ordinality, .. } => {
                (name.clone(), args.clone(), alias.clone(), *with_ordinality)
            }
            _ => return Ok(()),
        };
        let Some(name) = self.user_name(&name) else { return Ok(()) };
        let refused = |what: String, remedy| Err(Error::Unsupported { what, remedy });
        if ordinality {
            return refused(format!("{name} WITH ORDINALITY"), "number its rows: row_number() OVER ()");
        }
        if alias.as_ref().is_some_and(|alias| alias.columns.iter().any(|column| column.data_type.is_some())) {
            let what = format!("the types of columns of {name}, which says them itself, where it is called");
            return refused(what, "name the columns alone");
        }
        let args = self.by_places(&name, args)?;
        let functions = self.functions.named(&name);
        let fitting: Vec<_> = functions.iter().filter(|function| function.takes(args.len())).collect();
        let Some(function) = fitting.first().or(functions.first().as_ref()).copied() else { return Ok(()) };
        if fitting.iter().any(|other| other.gives != function.gives || other.columns != function.columns) {
            let what = format!("calling one of several functions {name} in FROM, which give other columns");
            return refused(what, "call one of them otherwise: ALTER FUNCTION … RENAME TO");
        }
        let is_lateral = is_beside && args.iter().any(names_column);
        let alias = alias.unwrap_or_else(|| TableAlias {
            explicit: true,
            name: Ident::with_quote('"', full_name::bare(&name)),
            columns: vec![],
            at: None,
        });
        let column = |column: &Option<String>| quoted(column.as_deref().unwrap_or(&fold(&alias.name)));
        let text = match function.gives {
            ResultShape::Value => {
                let [(called, _)] = &function.columns[..] else { return Ok(()) };
                format!("SELECT tarn_place() AS {}", column(called))
            }
            ResultShape::Row | ResultShape::Rows => {
                let nulls = function.columns.iter().enumerate();
                let nulls = nulls.map(|(at, (_, data_type))| {
                    let known = type_field(self.state, self.texts, data_type).is_ok();
                    format!("CAST(NULL AS {}) AS \"${at}\"", if known { data_type } else { "text" })
                });
                let nulls = nulls.collect::<Vec<_>>().join(", ");
                let columns = function.columns.iter().enumerate();
                let columns = columns.map(|(at, (called, _))| format!("\"${at}\" AS {}", column(called)));
                let columns = columns.collect::<Vec<_>>().join(", ");
                let below = quoted(&format!("$rows of {name}"));
                format!("SELECT {columns} FROM (SELECT {nulls}) AS {below} WHERE tarn_place()")
            }
        };
        let Statement::Query(mut subquery) = (self.texts.query)(&text)? else { return Ok(()) };
        let gives_rows = function.gives != ResultShape::Value;
        let called = if gives_rows { format!("{ROWS_OF}{name}") } else { name.clone() };
        let _ = walk_mut(&mut *subquery, &mut CallPlacer { called: &called, args: &args });
        self.found.insert((name, gives_rows));
        *factor = TableFactor::Derived { lateral: is_lateral, subquery, alias: Some(alias), sample: None };
        Ok(())
    }
}

/// Puts a call in the place of `tarn_place()`.
struct CallPlacer<'a> {
    called: &'a str,
    args: &'a [FunctionArg],
}

impl VisitorMut for CallPlacer<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<()> {
        let ast::Expr::Function(call) = expr else { return ControlFlow::Continue(()) };
        let is_place =
            matches!(&call.name.0[..], [part] if part.as_ident().is_some_and(|name| name.value == "tarn_place"));
        match &mut call.args {
            FunctionArguments::List(list) if is_place => {
                list.args = self.args.to_vec();
                call.name = ObjectName::from(vec![Ident::with_quote('"', self.called)]);
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

fn unnamed(arg: &FunctionArg) -> FunctionArg {
    match arg {
        FunctionArg::Named { arg, .. } | FunctionArg::ExprNamed { arg, .. } | FunctionArg::Unnamed(arg) => {
            FunctionArg::Unnamed(arg.clone())
        }
    }
}

fn names_column(arg: &FunctionArg) -> bool {
    struct ColumnFinder;

    impl ast::Visitor for ColumnFinder {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &ast::Expr) -> ControlFlow<()> {
            match expr {
                ast::Expr::Identifier(_) | ast::Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }

    match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => walk(expr, &mut ColumnFinder).is_break(),
        _ => false,
    }
}

fn is_aggregate(state: &SessionState, call: &Function) -> bool {
    let name = match &call.name.0[..] {
        [part] => part.as_ident().map(fold),
        _ => None,
    };
    call.over.is_some() || name.is_some_and(|name| state.aggregate_functions().contains_key(&name))
}

/// Whether the engine has a function of this name itself.
pub(crate) fn is_of_engine(state: &SessionState, name: &str) -> bool {
    state.scalar_functions().contains_key(name)
        || state.aggregate_functions().contains_key(name)
        || state.window_functions().contains_key(name)
        || state.higher_order_functions().contains_key(name)
        || state.table_functions().contains_key(name)
}

/// A name as it is written, whatever is in it.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
