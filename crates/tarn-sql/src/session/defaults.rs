//! What has a row for the columns that a statement says nothing of, or says `DEFAULT` of?
//!
//! Constants are kept with the table and filled in where rows are made. Expressions are planned with the statement and
//! computed for each of its rows: `now()` is the statement's time in all of them, `nextval('s')` another number in
//! each.

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::arrow::datatypes::Field;
use datafusion::logical_expr::Expr as Planned;
use datafusion::sql::sqlparser::ast::{
    self, Assignment, AssignmentTarget, DoUpdate, Expr, Ident, Insert, ObjectName, OnConflict, OnConflictAction,
    OnInsert, Parens, SetExpr, Statement, Update, Values,
};
use tarn_query::check_count;
use tarn_query::defaults::{only_expression, type_of};
use tarn_query::dml::{Dml, DmlKind};
use tarn_query::keyed::is_default;
use tarn_query::parser::Overriding;
use tarn_types::{Column, Identity, TableSchema, Value, arrow_field};

use super::Session;
use super::compiled_rules::DefaultFiller;
use crate::error::{Result, SqlError, state};
use crate::expressions::{ExpressionContext, no_expression, read, sequence_of};
use crate::names::fold;
use crate::postgres::assignments::is_assigned;
use crate::rows::{long_name, pg_type};
use crate::statement::{ParsedSql, parse};

impl Session {
    /// The plan of an INSERT, with what is computed for the columns that it leaves out.
    ///
    /// Errors: `428C9` for a value of a column that nobody else gives values.
    pub(super) async fn with_defaults(&self, dml: Dml, statement: &Statement) -> Result<Dml> {
        let table = Arc::clone(&dml.table);
        if table.options.rules.is_empty() || !matches!(dml.kind, DmlKind::Insert { .. }) {
            return Ok(dml);
        }
        let left_out = dml.left_out();
        let is_given =
            matches!(statement, Statement::Insert(insert) if Overriding::of(insert) == Some(Overriding::System));
        let given = (0..table.shown().len()).filter(|place| !left_out.contains(place));
        // A row of nothing but defaults has one of them written out: a list of no columns there is not.
        given
            .filter(|_| !is_given && !says_only_default(statement))
            .try_for_each(|place| check_given(&table, place))?;
        let mut defaults = vec![];
        for place in left_out {
            if let Some(text) = table.computed_default(place) {
                defaults.push((place, self.planned_default(text).await?));
            }
        }
        Ok(dml.with_defaults(defaults)?)
    }

    /// The defaults of columns that may be missing in the rows of a COPY.
    pub(super) async fn fills(&self, table: &TableSchema, given: &[usize]) -> Result<DefaultFiller> {
        let mut columns = vec![];
        for (place, column) in table.shown().iter().enumerate().filter(|(place, _)| !given.contains(place)) {
            let Some(text) = table.computed_default(place) else { continue };
            self.check_order(text)?;
            let plan = self.plan(&selecting(text)?, &[]).await?;
            columns.push((column.name.clone(), self.query.compile(plan).await?));
        }
        Ok(DefaultFiller::new(columns))
    }

    /// Whether the defaults of a table that is to be made can be computed, and are of the right types.
    pub(super) async fn check_defaults(&self, table: &TableSchema) -> Result<()> {
        for (place, column) in table.shown().iter().enumerate() {
            let own = table.rules_of(place).is_some_and(|rules| rules.identity.is_some());
            let Some(text) = table.computed_default(place).filter(|_| !own) else { continue };
            check_type(column, &*type_of(&self.planned_default(text).await?)?)?;
        }
        Ok(())
    }

    /// Whether the sequences that defaults name are there. Those that are made with the table are not asked for.
    pub(super) async fn check_sequences(
        &self,
        table: &TableSchema,
        made: &[usize],
        is_own: impl Fn(&str) -> bool,
    ) -> Result<()> {
        for place in (0..table.shown().len()).filter(|place| !made.contains(place)) {
            let named = table.computed_default(place).map(read).transpose()?.and_then(|expr| sequence_of(&expr));
            if let Some(name) = named.filter(|name| !is_own(name)) {
                self.node.sequences().get(&name).await?;
            }
        }
        Ok(())
    }

    /// An expression that is a default, as it is planned.
    pub(super) async fn planned_default(&self, text: &str) -> Result<Planned> {
        self.check_order(text)?;
        let plan = self.plan(&selecting(text)?, &[]).await?;
        let refused = no_expression(&plan, ExpressionContext::Default);
        only_expression(plan).ok_or(refused)
    }
}

/// Read as a client's: functions are called as they are called there.
fn selecting(text: &str) -> Result<Statement> {
    match parse(&format!("SELECT {text}"))?.pop() {
        Some(ParsedSql::Sql(statement)) => Ok(*statement),
        _ => Err(SqlError::new(state::INTERNAL, format!("{text} is no expression"))),
    }
}

fn check_given(table: &TableSchema, place: usize) -> Result<()> {
    let Some(detail) = own_values(table, place) else { return Ok(()) };
    let message = format!("cannot insert a non-DEFAULT value into column \"{}\"", table.columns[place].name);
    let hint = match table.generated(place) {
        Some(_) => "leave it out, or write DEFAULT",
        None => "Use OVERRIDING SYSTEM VALUE to override.",
    };
    Err(SqlError::new(state::GENERATED_ALWAYS, message).with_detail(detail).with_hint(hint))
}

/// Why nobody else gives the column at this place its values, if that is so.
fn own_values(table: &TableSchema, place: usize) -> Option<String> {
    let (rules, name) = (table.rules_of(place)?, &table.columns[place].name);
    match (&rules.generated, rules.identity) {
        (Some(_), _) => Some(format!("Column \"{name}\" is a generated column.")),
        (None, Some(Identity::Always)) => {
            Some(format!("Column \"{name}\" is an identity column defined as GENERATED ALWAYS."))
        }
        (None, _) => None,
    }
}

pub(super) fn check_type(column: &Column, of: &Field) -> Result<()> {
    if is_assigned(of, column.data_type) {
        return Ok(());
    }
    let called = |field: &Field| pg_type(field).map_or_else(|_| field.data_type().to_string(), |of| long_name(&of));
    let (want, found) = (called(&arrow_field("", &column.data_type, true)), called(of));
    let message = format!("column \"{}\" is of type {want} but default expression is of type {found}", column.name);
    Err(SqlError::new(state::DATATYPE_MISMATCH, message).with_hint("You will need to rewrite or cast the expression."))
}

/// A statement whose words `DEFAULT` are written out, and whose `DEFAULT VALUES` are the row that they stand for.
///
/// A column that is DEFAULT in all rows is left out; one that is so in some has its expression there.
pub(super) fn written_out<'a>(statement: &'a Statement, table: &TableSchema) -> Result<Cow<'a, Statement>> {
    match statement {
        Statement::Insert(insert) => {
            let own = numbered(insert, table)?;
            let insert = own.as_ref().unwrap_or(insert);
            let mut written = match () {
                () if insert.source.is_none() && insert.assignments.is_empty() => {
                    Some(rows_written_out(default_row(insert, table)?, table)?)
                }
                () if has_words(insert) => Some(rows_written_out(insert.clone(), table)?),
                () => None,
            };
            if let Some(OnInsert::OnConflict(OnConflict { action: OnConflictAction::DoUpdate(change), .. })) =
                &insert.on
                && let Some(assignments) = assigned(&change.assignments, table)?
            {
                let change = OnConflictAction::DoUpdate(DoUpdate { assignments, ..change.clone() });
                let insert = written.get_or_insert_with(|| insert.clone());
                if let Some(OnInsert::OnConflict(on)) = &mut insert.on {
                    on.action = change;
                }
            }
            Ok(match written.or(own) {
                Some(insert) => Cow::Owned(Statement::Insert(insert)),
                None => Cow::Borrowed(statement),
            })
        }
        Statement::Update(update) => Ok(match assigned(&update.assignments, table)? {
            Some(assignments) => Cow::Owned(Statement::Update(Update { assignments, ..update.clone() })),
            None => Cow::Borrowed(statement),
        }),
        _ => Ok(Cow::Borrowed(statement)),
    }
}

/// An INSERT that says `OVERRIDING`, without it: of `USER VALUE`, DEFAULT is what identity columns are given. `None`:
/// it says nothing of it.
///
/// Errors: `0A000` for `USER VALUE` with rows of a query.
fn numbered(insert: &Insert, table: &TableSchema) -> Result<Option<Insert>> {
    let Some(says) = Overriding::of(insert) else { return Ok(None) };
    let mut insert = Insert { ignore: false, overwrite: false, ..insert.clone() };
    if says == Overriding::System || insert.source.is_none() {
        return Ok(Some(insert));
    }
    let n_given = values_of(&insert).and_then(|values| values.rows.first()).map_or(0, |row| row.content.len());
    if insert.columns.is_empty() {
        insert.columns = table.shown().iter().take(n_given).map(quoted).collect();
    }
    let Some(SetExpr::Values(values)) = insert.source.as_mut().map(|source| &mut *source.body) else {
        return Err(SqlError::unsupported(
            "OVERRIDING USER VALUE with rows of a query",
            "leave the identity column out of the columns that are inserted",
        ));
    };
    for (at, name) in insert.columns.iter().enumerate() {
        let ident = name.0.last().and_then(|part| part.as_ident()).map(fold).unwrap_or_default();
        let rules = table.column(&ident).and_then(|(place, _)| table.rules_of(place));
        if rules.is_some_and(|rules| rules.identity.is_some()) {
            let cells = values.rows.iter_mut().filter_map(|row| row.content.get_mut(at));
            cells.for_each(|cell| *cell = word());
        }
    }
    Ok(Some(insert))
}

/// `DEFAULT VALUES`, as a row of one column.
fn default_row(insert: &Insert, table: &TableSchema) -> Result<Insert> {
    let mut insert = insert.clone();
    let rows = Values { explicit_row: false, value_keyword: false, rows: vec![parens(vec![word()])] };
    if let Statement::Query(mut query) = super::create_as::written("VALUES (NULL)")? {
        *query.body = SetExpr::Values(rows);
        insert.source = Some(query);
    }
    insert.columns = vec![quoted(&table.shown()[0])];
    Ok(insert)
}

fn word() -> Expr {
    Expr::Identifier(Ident::new("DEFAULT"))
}

fn parens(row: Vec<Expr>) -> Parens<Vec<Expr>> {
    Parens::with_empty_span(row)
}

fn quoted(column: &Column) -> ObjectName {
    ObjectName::from(vec![Ident::with_quote('"', &column.name)])
}

fn values_of(insert: &Insert) -> Option<&Values> {
    match insert.source.as_ref()?.body.as_ref() {
        SetExpr::Values(values) => Some(values),
        _ => None,
    }
}

fn has_words(insert: &Insert) -> bool {
    values_of(insert).is_some_and(|values| values.rows.iter().any(|row| row.content.iter().any(is_default)))
}

/// Whether an INSERT gives no value of its own.
fn says_only_default(statement: &Statement) -> bool {
    let Statement::Insert(insert) = statement else { return false };
    insert.source.is_none()
        || values_of(insert).is_some_and(|values| values.rows.iter().all(|row| row.content.iter().all(is_default)))
}

fn rows_written_out(mut insert: Insert, table: &TableSchema) -> Result<Insert> {
    let n_given = values_of(&insert).and_then(|values| values.rows.first()).map_or(0, |row| row.content.len());
    if insert.columns.is_empty() {
        insert.columns = table.shown().iter().take(n_given).map(quoted).collect();
    }
    let Some(SetExpr::Values(values)) = insert.source.as_mut().map(|source| &mut *source.body) else {
        return Ok(insert);
    };
    // What does not fit is told where the rows are planned.
    values.rows.iter().try_for_each(|row| check_count(row.content.len(), insert.columns.len()))?;
    let mut columns = vec![];
    for (at, name) in std::mem::take(&mut insert.columns).into_iter().enumerate() {
        let ident = name.0.last().and_then(|part| part.as_ident()).map(fold).unwrap_or_default();
        if !table.shown().iter().any(|column| column.name == ident) {
            return Err(SqlError::undefined_column(&table.name, &ident));
        }
        let is_left_out = values.rows.iter().all(|row| is_default(&row.content[at]));
        columns.push((name, is_left_out));
    }
    if columns.iter().all(|(_, is_left_out)| *is_left_out) {
        columns[0].1 = false;
    }
    for row in &mut values.rows {
        let cells = std::mem::take(&mut row.content).into_iter().zip(&columns);
        let kept = cells.filter(|(_, (_, is_left_out))| !is_left_out);
        row.content = kept
            .map(|(expr, (name, _))| if is_default(&expr) { default_of(table, name) } else { Ok(expr) })
            .collect::<Result<_>>()?;
    }
    insert.columns = columns.into_iter().filter(|(_, is_left_out)| !is_left_out).map(|(name, _)| name).collect();
    Ok(insert)
}

/// Assignments without the word; `None`: it is in none of them.
pub(super) fn assigned(assignments: &[Assignment], table: &TableSchema) -> Result<Option<Vec<Assignment>>> {
    let mut written: Option<Vec<Assignment>> = None;
    for (at, assignment) in assignments.iter().enumerate() {
        let AssignmentTarget::ColumnName(name) = &assignment.target else { continue };
        let column = name.0.last().and_then(|part| part.as_ident()).and_then(|ident| table.column(&fold(ident)));
        if is_default(&assignment.value) {
            let to = default_of(table, name)?;
            written.get_or_insert_with(|| assignments.to_vec())[at].value = to;
        } else if let Some((place, column)) = column
            && let Some(detail) = own_values(table, place)
        {
            let message = format!("column \"{}\" can only be updated to DEFAULT", column.name);
            return Err(SqlError::new(state::GENERATED_ALWAYS, message).with_detail(detail));
        }
    }
    Ok(written)
}

/// The default of a column, as an expression.
fn default_of(table: &TableSchema, name: &ObjectName) -> Result<Expr> {
    let ident = name.0.last().and_then(|part| part.as_ident()).map(fold).unwrap_or_default();
    let (place, column) = table.column(&ident).ok_or_else(|| SqlError::undefined_column(&table.name, &ident))?;
    if let Some(text) = table.computed_default(place) {
        // Read as it is read where the column is left out.
        let Statement::Query(query) = selecting(text)? else { return read(text) };
        let SetExpr::Select(select) = *query.body else { return read(text) };
        return match select.projection.into_iter().next() {
            Some(ast::SelectItem::UnnamedExpr(expr) | ast::SelectItem::ExprWithAlias { expr, .. }) => Ok(expr),
            _ => read(text),
        };
    }
    Ok(match &column.default {
        None | Some(Value::Null) => Expr::Value(ast::Value::Null.with_empty_span()),
        Some(value) => {
            let text = value.to_display(&column.data_type);
            Expr::Value(ast::Value::SingleQuotedString(text).with_empty_span())
        }
    })
}
