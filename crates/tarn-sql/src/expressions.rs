//! Which expressions may stand in the definition of a table, and how are they kept?
//!
//! As text: what is written, with names folded, and `nextval('s'::regclass)` as PostgreSQL shows it. It is read again
//! by the same parser, which has to find the same in it. What an expression may not contain is told here, with
//! PostgreSQL's messages; of which type it is, and whether its functions are there, is asked of the planner.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Query, SelectItem, SetExpr, Statement,
    Visitor, VisitorMut,
};
use tarn_query::parser::statements;
use tarn_query::{walk, walk_mut};

use crate::error::{Result, SqlError, state};
use crate::names::{fold, quote, relation_named, text};

/// A longer text is refused: definitions are read whole, by every server.
const MAX_BYTES: usize = 16 << 10;

/// What the numbers of sequences are given by.
const NEXTVAL: &str = "nextval";

/// Where an expression stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpressionContext {
    /// `DEFAULT`: what a row has where nothing is said; it sees no columns.
    Default,
    /// `CHECK`: what must not be false of a row.
    Check,
    /// `USING`: what a row has in a column of another type.
    Transform,
    /// `GENERATED ALWAYS AS`: what a row has, computed of its other columns.
    Generated,
}

impl ExpressionContext {
    /// As it is called in "cannot use … in".
    pub fn name(self) -> &'static str {
        match self {
            ExpressionContext::Default => "DEFAULT expression",
            ExpressionContext::Check => "check constraint",
            ExpressionContext::Transform => "transform expression",
            ExpressionContext::Generated => "column generation expression",
        }
    }

    fn plural(self) -> &'static str {
        match self {
            ExpressionContext::Default => "DEFAULT expressions",
            ExpressionContext::Check => "check constraints",
            ExpressionContext::Transform => "transform expressions",
            ExpressionContext::Generated => "column generation expressions",
        }
    }
}

/// The text that is kept of an expression.
///
/// Errors: what an expression in this place may not contain; `54000` for one that is too long.
pub fn kept(expr: &Expr, place: ExpressionContext) -> Result<String> {
    check(expr, place)?;
    let mut expr = expr.clone();
    let _ = walk_mut(&mut expr, &mut CaseFolder);
    // So it is shown.
    if place == ExpressionContext::Default && matches!(expr, Expr::BinaryOp { .. }) {
        expr = Expr::Nested(Box::new(expr));
    }
    let text = match sequence_of(&expr) {
        Some(name) => next_of(&name),
        None => expr.to_string(),
    };
    if text.len() > MAX_BYTES {
        let message = format!("a {} of {} bytes, {MAX_BYTES} is the most", place.name(), text.len());
        return Err(SqlError::new(state::PROGRAM_LIMIT, message).with_hint("compute it in the client"));
    }
    let mut again = read(&text)?;
    let _ = walk_mut(&mut again, &mut CaseFolder);
    let is_same = match sequence_of(&expr) {
        Some(name) => sequence_of(&again) == Some(name),
        None => again == expr,
    };
    if !is_same {
        return Err(SqlError::unsupported(
            format!("{text} in a {}", place.name()),
            "write it in another way: it is not read as it is written",
        ));
    }
    Ok(text)
}

/// The default that takes the numbers of a sequence.
pub fn next_of(sequence: &str) -> String {
    format!("{NEXTVAL}({}::regclass)", text(&quote(sequence)))
}

/// The expression of a text that is kept.
pub fn read(text: &str) -> Result<Expr> {
    let kept = || SqlError::new(state::SYNTAX_ERROR, format!("\"{text}\" is no expression"));
    let Some(Statement::Query(query)) = statements(&format!("SELECT {text}"))?.pop() else { return Err(kept()) };
    let SetExpr::Select(select) = *query.body else { return Err(kept()) };
    match <[SelectItem; 1]>::try_from(select.projection) {
        Ok([SelectItem::UnnamedExpr(expr)]) => Ok(expr),
        _ => Err(kept()),
    }
}

/// The sequence whose next number an expression is, if it is nothing else.
pub fn sequence_of(expr: &Expr) -> Option<String> {
    let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = expr else { return None };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(of))] = &list.args[..] else { return None };
    let is_nextval = matches!(&name.0[..], [part] if part.as_ident().is_some_and(|ident| fold(ident) == NEXTVAL));
    let of = match of {
        Expr::Cast { expr, data_type: ast::DataType::Regclass, .. } => expr,
        other => other,
    };
    let named = crate::spelled::literal(of).flatten().filter(|_| is_nextval && matches!(of, Expr::Value(_)))?;
    relation_named(&named).ok()
}

/// The columns that an expression names.
pub fn columns_of(expr: &Expr) -> BTreeSet<String> {
    struct ColumnCollector(BTreeSet<String>);
    impl Visitor for ColumnCollector {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Identifier(ident) => drop(self.0.insert(fold(ident))),
                Expr::CompoundIdentifier(parts) => self.0.extend(parts.last().map(fold)),
                _ => {}
            }
            ControlFlow::Continue(())
        }
    }
    let mut columns = ColumnCollector(BTreeSet::new());
    let _ = walk(expr, &mut columns);
    columns.0
}

/// The text of a check, or of what a column is generated from, when a column that it names is called otherwise.
///
/// Errors: as of [`kept`], which do not come of a text that was kept.
pub fn with_column_renamed(text: &str, place: ExpressionContext, from: &str, to: &str) -> Result<String> {
    struct ColumnRenamer<'a>(&'a str, ast::Ident);
    impl VisitorMut for ColumnRenamer<'_> {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            let named = match expr {
                Expr::Identifier(ident) => Some(ident),
                Expr::CompoundIdentifier(parts) => parts.last_mut(),
                _ => None,
            };
            if let Some(ident) = named.filter(|ident| fold(ident) == self.0) {
                ident.clone_from(&self.1);
            }
            ControlFlow::Continue(())
        }
    }
    let to = if quote(to) == to { ast::Ident::new(to) } else { ast::Ident::with_quote('"', to) };
    let mut expr = read(text)?;
    let _ = walk_mut(&mut expr, &mut ColumnRenamer(from, to));
    kept(&expr, place)
}

/// A default is the same for whoever reads it: words of the language are written large, names of functions small.
struct CaseFolder;

impl VisitorMut for CaseFolder {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Expr::Function(Function { name, args, .. }) = expr else { return ControlFlow::Continue(()) };
        let is_word = matches!(args, FunctionArguments::None);
        for part in &mut name.0 {
            if let ast::ObjectNamePart::Identifier(ident) = part
                && ident.quote_style.is_none()
            {
                ident.value = if is_word { ident.value.to_uppercase() } else { ident.value.to_lowercase() };
            }
        }
        ControlFlow::Continue(())
    }
}

fn check(expr: &Expr, place: ExpressionContext) -> Result<()> {
    match walk(expr, &mut ExpressionChecker(place)) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct ExpressionChecker(ExpressionContext);

impl ExpressionChecker {
    fn refused(&self, what: &str) -> ControlFlow<SqlError> {
        let message = format!("cannot use {what} in {}", self.0.name());
        ControlFlow::Break(SqlError::new(state::FEATURE_NOT_SUPPORTED, message))
    }
}

impl Visitor for ExpressionChecker {
    type Break = SqlError;

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<SqlError> {
        self.refused("subquery")
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlError> {
        match expr {
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) if self.0 == ExpressionContext::Default => {
                self.refused("column reference")
            }
            Expr::Value(value) => match &value.value {
                ast::Value::Placeholder(name) => {
                    let message = format!("there is no parameter {name}");
                    ControlFlow::Break(SqlError::new(state::UNDEFINED_PARAMETER, message))
                }
                _ => ControlFlow::Continue(()),
            },
            Expr::Function(function) if function.over.is_some() => {
                let message = format!("window functions are not allowed in {}", self.0.plural());
                ControlFlow::Break(SqlError::new(state::WINDOWING_ERROR, message))
            }
            // A row may be written again, and is looked at then as before: it has no number of its own.
            Expr::Function(function) if matches!(self.0, ExpressionContext::Check | ExpressionContext::Generated) => {
                let name = function.name.0.last().and_then(|part| part.as_ident()).map(fold).unwrap_or_default();
                match [NEXTVAL, "setval", "currval", "lastval"].contains(&name.as_str()) {
                    true => ControlFlow::Break(SqlError::unsupported(
                        format!("{name} in a {}", self.0.name()),
                        "name the row's own columns",
                    )),
                    false => ControlFlow::Continue(()),
                }
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Why a plan is none of an expression: it makes rows, or is computed over several.
pub fn no_expression(plan: &datafusion::logical_expr::LogicalPlan, place: ExpressionContext) -> SqlError {
    use datafusion::logical_expr::LogicalPlan;
    let mut found = None;
    let _ = plan.apply_with_subqueries(|node| {
        found = match node {
            LogicalPlan::Aggregate(_) => Some(("aggregate functions", state::GROUPING_ERROR)),
            LogicalPlan::Window(_) => Some(("window functions", state::WINDOWING_ERROR)),
            _ => return Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue),
        };
        Ok(datafusion::common::tree_node::TreeNodeRecursion::Stop)
    });
    let (what, state) = found.unwrap_or(("set-returning functions", state::FEATURE_NOT_SUPPORTED));
    SqlError::new(state, format!("{what} are not allowed in {}", place.plural()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, place: ExpressionContext) -> Result<String> {
        kept(&read(text).unwrap(), place)
    }

    #[test]
    fn expressions_are_kept_as_postgres_shows_them() {
        let cases = [
            ("NOW()", "now()"),
            ("current_timestamp", "CURRENT_TIMESTAMP"),
            ("Current_Date", "CURRENT_DATE"),
            ("gen_random_uuid()", "gen_random_uuid()"),
            ("nextval('s')", "nextval('s'::regclass)"),
            ("NEXTVAL('public.s'::regclass)", "nextval('s'::regclass)"),
            ("nextval('\"My s\"')", "nextval('\"My s\"'::regclass)"),
            ("1 + 2 * 3", "(1 + 2 * 3)"),
            ("upper('a' || 'b')", "upper('a' || 'b')"),
        ];
        for (text, want) in cases {
            assert_eq!(of(text, ExpressionContext::Default).unwrap(), want, "{text}");
            assert_eq!(of(want, ExpressionContext::Default).unwrap(), want, "{text}");
        }
        assert_eq!(sequence_of(&read("nextval('public.\"S\"'::regclass)").unwrap()), Some("S".to_owned()));
        assert_eq!(sequence_of(&read("1 + nextval('s')").unwrap()), None);
    }

    #[test]
    fn what_may_not_be_in_them_is_refused_with_postgres_words() {
        let cases = [
            ("(SELECT 1)", "cannot use subquery in DEFAULT expression"),
            ("EXISTS (SELECT 1)", "cannot use subquery in DEFAULT expression"),
            ("a + 1", "cannot use column reference in DEFAULT expression"),
            ("$1", "there is no parameter $1"),
            ("rank() OVER ()", "window functions are not allowed in DEFAULT expressions"),
        ];
        for (text, want) in cases {
            assert_eq!(of(text, ExpressionContext::Default).unwrap_err().message(), want, "{text}");
        }
        assert_eq!(
            of("a IN (SELECT 1)", ExpressionContext::Check).unwrap_err().message(),
            "cannot use subquery in check constraint"
        );
        assert_eq!(of("a > 0 AND t.b < 2", ExpressionContext::Check).unwrap(), "a > 0 AND t.b < 2");
        let columns = columns_of(&read("a > 0 AND t.\"B\" < a").unwrap());
        assert_eq!(columns.into_iter().collect::<Vec<_>>(), ["B", "a"]);
    }
}
