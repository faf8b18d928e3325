//! What does `CREATE TABLE` say of columns beside their types? `DEFAULT`, `serial`, `GENERATED`, `CHECK`, `varchar(n)`.
//!
//! Pure: what it comes to is part of the table's schema ([`tarn_types::Rules`]), and sequences that are still to be
//! made. What the planner knows better, types and functions, is asked of it before the table is made
//! (`session/defaults.rs`).

use std::collections::BTreeSet;

use datafusion::sql::sqlparser::ast::{
    self, ArrayElemTypeDef, BinaryOperator, CharacterLength, CheckConstraint, ColumnDef, ColumnOption, Expr,
    GeneratedAs, GeneratedExpressionMode, Ident, SequenceOptions, UnaryOperator,
};
use tarn_node::sequences::{Owner, Sequence, Width};
use tarn_types::{
    CheckRule, Column, ColumnId, ColumnRules, DataType, GeneratedColumn, Identity, Length, Style, TableSchema, Value,
    full_name,
};

use crate::error::{Result, SqlError, state};
use crate::expressions::{ExpressionContext, columns_of, kept, next_of};
use crate::names::{check_name, fold};
use crate::sequence_sql::{Clauses, clauses_of, width_of};
use crate::spelled::literal;

/// Longer columns are `text`.
const MAX_LENGTH: u64 = 10_485_760;

/// Bytes of a name that is made up.
const MAX_NAME_BYTES: usize = 63;

/// A sequence that a column needs.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnSequence {
    /// Among the table's columns.
    pub column_idx: usize,
    /// As it is to be made.
    pub sequence: Sequence,
}

/// What is said of one column.
#[derive(Debug, Default)]
pub struct ColumnClauses {
    /// What is kept with the table's definition.
    pub rules: ColumnRules,
    /// That it needs, of its own.
    pub sequence: Option<Sequence>,
    /// In the order in which they were said.
    pub checks: Vec<SaidCheck>,
    /// What it is generated from: columns that may be defined behind it.
    pub generated: Option<Expr>,
}

/// A `CHECK`, whose columns may be defined behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct SaidCheck {
    name: Option<Ident>,
    expr: Expr,
}

impl SaidCheck {
    /// For whoever resolves names in it.
    pub fn expr_mut(&mut self) -> &mut Expr {
        &mut self.expr
    }
}

/// The type of a column that counts by itself.
pub fn serial(data_type: &ast::DataType) -> Option<DataType> {
    let ast::DataType::Custom(name, modifiers) = data_type else { return None };
    let name = name.0.last().and_then(|part| part.as_ident()).map(fold).filter(|_| modifiers.is_empty())?;
    match name.as_str() {
        "smallserial" | "serial2" => Some(DataType::Int16),
        "serial" | "serial4" => Some(DataType::Int32),
        "bigserial" | "serial8" => Some(DataType::Int64),
        _ => None,
    }
}

/// The length of a text type, or of the items of an array of such.
///
/// Errors: `22023` for one that PostgreSQL does not take; `0A000` for `char(n)[]`, and for `bpchar` without a length.
pub fn length(data_type: &ast::DataType) -> Result<Option<Length>> {
    use ast::DataType as Sql;
    let (is_fixed, length) = match data_type {
        Sql::Varchar(length) | Sql::CharacterVarying(length) | Sql::CharVarying(length) => (false, *length),
        // Without a length it is of one character.
        Sql::Char(length) | Sql::Character(length) => {
            (true, Some(length.unwrap_or(CharacterLength::IntegerLength { length: 1, unit: None })))
        }
        Sql::Array(ArrayElemTypeDef::SquareBracket(item, _)) => {
            return match length(item)? {
                Some(Length::Fixed(n)) => Err(SqlError::unsupported(
                    format!("an array of type char({n})[]"),
                    format!("varchar({n})[], or text[]"),
                )),
                length => Ok(length),
            };
        }
        Sql::Custom(name, modifiers) if is_bpchar(name) => match modifiers.as_slice() {
            [n] if n.parse::<u64>().is_ok() => {
                let length = n.parse().unwrap_or_default();
                (true, Some(CharacterLength::IntegerLength { length, unit: None }))
            }
            _ => {
                let message = "a column of type bpchar without a length";
                return Err(SqlError::unsupported(message, "char(n), or text"));
            }
        },
        _ => return Ok(None),
    };
    let name = if is_fixed { "char" } else { "varchar" };
    let n = match length {
        None => return Ok(None),
        Some(CharacterLength::IntegerLength { length, unit: None }) => length,
        Some(other) => {
            return Err(SqlError::unsupported(format!("{name}({other})"), "a length is a number of characters"));
        }
    };
    if n == 0 {
        let message = format!("length for type {name} must be at least 1");
        return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
    }
    if n > MAX_LENGTH {
        let message = format!("length for type {name} cannot exceed {MAX_LENGTH}");
        return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message).with_hint("text has no length"));
    }
    let n = n as u32;
    Ok(Some(if is_fixed { Length::Fixed(n) } else { Length::Varying(n) }))
}

/// As `pg_type` calls `char`.
fn is_bpchar(name: &ast::ObjectName) -> bool {
    name.0.last().and_then(|part| part.as_ident()).is_some_and(|name| fold(name) == "bpchar")
}

impl ColumnClauses {
    /// Of a column whose type is known. Options that say something else are looked at by the caller.
    pub fn of(def: &ColumnDef, column: &mut Column, table: &str, style: &Style) -> Result<ColumnClauses> {
        let mut said = ColumnClauses {
            rules: ColumnRules { id: column.id, ..ColumnRules::default() },
            ..ColumnClauses::default()
        };
        said.rules.length = length(&def.data_type)?;
        if serial(&def.data_type).is_some() {
            said.counts(column, table, &Clauses::default(), false)?;
        }
        for option in &def.options {
            match &option.option {
                ColumnOption::Default(expr) => said.says_default(expr, column, table, style)?,
                ColumnOption::Generated {
                    generated_as,
                    sequence_options,
                    generation_expr: None,
                    generation_expr_mode: None,
                    ..
                } => said.identity(generated_as, sequence_options.as_deref(), column, table)?,
                ColumnOption::Generated { generation_expr: Some(expr), generation_expr_mode, .. } => {
                    said.says_generated(expr, *generation_expr_mode, column, table)?;
                }
                ColumnOption::Check(check) => {
                    said.checks.push(SaidCheck::of(check, option.name.as_ref())?);
                }
                _ => {}
            }
        }
        let says_null = def.options.iter().any(|option| matches!(option.option, ColumnOption::Null));
        said.check_generated(column, table)?;
        if said.sequence.is_some() && says_null {
            let name = &column.name;
            let message = format!("conflicting NULL/NOT NULL declarations for column \"{name}\" of table \"{table}\"");
            return Err(SqlError::new(state::SYNTAX_ERROR, message));
        }
        Ok(said)
    }

    fn says_default(&mut self, expr: &Expr, column: &mut Column, table: &str, style: &Style) -> Result<()> {
        if !stands_alone(expr) {
            let message = format!("syntax error in the default of column \"{}\": {expr}", column.name);
            return Err(SqlError::new(state::SYNTAX_ERROR, message).with_hint("write it in parentheses"));
        }
        if self.sequence.is_some() || self.rules.default.is_some() || column.default.is_some() {
            let message =
                format!("multiple default values specified for column \"{}\" of table \"{table}\"", column.name);
            return Err(SqlError::new(state::SYNTAX_ERROR, message));
        }
        let Some(text) = constant(expr) else {
            self.rules.default = Some(kept(expr, ExpressionContext::Default)?);
            return Ok(());
        };
        let Some(text) = text else { return Ok(()) };
        let value = Value::parse_in(&column.data_type, &text, style)
            .map_err(|e| SqlError::new(state::INVALID_TEXT, format!("default of column \"{}\": {e}", column.name)))?;
        column.default = Some(match self.rules.length {
            Some(length) => length.fit_value(value)?,
            None => value,
        });
        Ok(())
    }

    fn says_generated(
        &mut self,
        expr: &Expr,
        mode: Option<GeneratedExpressionMode>,
        column: &Column,
        table: &str,
    ) -> Result<()> {
        if mode != Some(GeneratedExpressionMode::Stored) {
            return Err(SqlError::unsupported(
                format!("GENERATED ALWAYS AS (…) of column \"{}\" that is not STORED", column.name),
                "write STORED behind it, or make a view",
            ));
        }
        if self.generated.is_some() {
            let message =
                format!("multiple generation clauses specified for column \"{}\" of table \"{table}\"", column.name);
            return Err(SqlError::new(state::SYNTAX_ERROR, message));
        }
        self.generated = Some(expr.clone());
        Ok(())
    }

    /// A generated column has nothing else that gives it values.
    fn check_generated(&self, column: &Column, table: &str) -> Result<()> {
        let other = match () {
            () if self.generated.is_none() => return Ok(()),
            () if self.rules.identity.is_some() => "identity",
            () if self.rules.default.is_some() || column.default.is_some() => "default",
            () => return Ok(()),
        };
        let message = format!(
            "both {other} and generation expression specified for column \"{}\" of table \"{table}\"",
            column.name
        );
        Err(SqlError::new(state::SYNTAX_ERROR, message))
    }

    fn identity(
        &mut self,
        generated_as: &GeneratedAs,
        options: Option<&[SequenceOptions]>,
        column: &mut Column,
        table: &str,
    ) -> Result<()> {
        let identity = match generated_as {
            GeneratedAs::Always => Identity::Always,
            GeneratedAs::ByDefault => Identity::ByDefault,
            GeneratedAs::ExpStored => {
                return Err(SqlError::new(state::SYNTAX_ERROR, "GENERATED … AS IDENTITY has no expression"));
            }
        };
        if self.rules.identity.is_some() {
            let message =
                format!("multiple identity specifications for column \"{}\" of table \"{table}\"", column.name);
            return Err(SqlError::new(state::SYNTAX_ERROR, message));
        }
        if self.rules.default.is_some() || column.default.is_some() {
            let message =
                format!("both default and identity specified for column \"{}\" of table \"{table}\"", column.name);
            return Err(SqlError::new(state::SYNTAX_ERROR, message));
        }
        width_of(&column.data_type).map_err(|_| {
            let message = "identity column type must be smallint, integer, or bigint";
            SqlError::new(state::INVALID_PARAMETER_VALUE, message)
        })?;
        self.counts(column, table, &clauses_of(options.unwrap_or_default())?, true)?;
        self.rules.identity = Some(identity);
        Ok(())
    }

    /// Its default is the next number of a sequence of its own.
    fn counts(&mut self, column: &mut Column, table: &str, clauses: &Clauses, is_identity: bool) -> Result<()> {
        if self.sequence.is_some() {
            let message =
                format!("multiple default values specified for column \"{}\" of table \"{table}\"", column.name);
            return Err(SqlError::new(state::SYNTAX_ERROR, message));
        }
        let width: Width = width_of(&column.data_type)?;
        let mut sequence = Clauses { width: Some(width), ..clauses.clone() }.made()?;
        sequence.owner = Some(Owner {
            table: table.to_owned(),
            table_id: None,
            column: column.name.clone(),
            column_id: None,
            is_identity,
        });
        column.nullable = false;
        self.rules.default = Some(next_of(&made_up(&[table, &column.name], "seq", |_| false)));
        self.sequence = Some(sequence);
        Ok(())
    }
}

impl SaidCheck {
    /// `name` is what stands before it.
    pub fn of(check: &CheckConstraint, name: Option<&Ident>) -> Result<SaidCheck> {
        let CheckConstraint { name: own, expr, enforced } = check;
        if enforced.is_some() {
            return Err(SqlError::unsupported("CHECK … [NOT] ENFORCED", "leave it out: checks are enforced"));
        }
        Ok(SaidCheck { name: own.as_ref().or(name).cloned(), expr: expr.as_ref().clone() })
    }
}

/// What `SET DEFAULT` says of a column that has none: a constant, or an expression.
///
/// Errors: `22P02` for a constant that is none of its type; those of expressions.
pub fn default_of(
    to: &Expr,
    column: &Column,
    length: Option<Length>,
    table: &str,
    style: &Style,
) -> Result<(Option<Value>, Option<String>)> {
    let mut column = Column { default: None, ..column.clone() };
    let mut said = ColumnClauses {
        rules: ColumnRules { id: column.id, length, ..ColumnRules::default() },
        ..ColumnClauses::default()
    };
    said.says_default(to, &mut column, table, style)?;
    Ok((column.default, said.rules.default))
}

/// More checks of a table whose columns are all known, each with a name of its own.
///
/// Errors: `42703` for a column that is not there; `42710` for a name that is given twice.
pub fn checks(said: Vec<SaidCheck>, schema: &TableSchema) -> Result<Vec<CheckRule>> {
    // Names that are given come first: those that are made up keep out of their way.
    let mut names: BTreeSet<String> = schema.options.rules.checks.iter().map(|check| check.name.clone()).collect();
    for name in said.iter().filter_map(|check| check.name.as_ref()).map(fold) {
        check_name("constraint", &name)?;
        if !names.insert(name.clone()) {
            let message = format!("check constraint \"{name}\" already exists");
            return Err(SqlError::new(state::DUPLICATE_OBJECT, message));
        }
    }
    let mut checks = Vec::with_capacity(said.len());
    for SaidCheck { name, expr } in said {
        let named = columns_of(&expr);
        let known = |name: &String| match schema.shown().iter().find(|column| column.name == *name) {
            Some(column) => Ok(column.id),
            None => Err(SqlError::new(state::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist"))),
        };
        let columns = named.iter().map(known).collect::<Result<Vec<ColumnId>>>()?;
        let name = match name {
            Some(name) => fold(&name),
            None => {
                let only = named.iter().next().filter(|_| named.len() == 1);
                let of: Vec<&str> =
                    [full_name::bare(&schema.name)].into_iter().chain(only.map(String::as_str)).collect();
                let name = made_up(&of, "check", |name| names.contains(name));
                names.insert(name.clone());
                name
            }
        };
        checks.push(CheckRule { name, expr: kept(&expr, ExpressionContext::Check)?, columns });
    }
    Ok(checks)
}

/// What a column is generated from, in a table whose columns are all known; it and others are generated themselves.
///
/// Errors: `42703` for a column that is not there; `42P17` for one that is generated itself; what an expression may not
/// contain.
pub fn generated(expr: &Expr, is_generated: impl Fn(usize) -> bool, schema: &TableSchema) -> Result<GeneratedColumn> {
    let known = |name: &String| match schema.shown().iter().position(|column| column.name == *name) {
        Some(at) if is_generated(at) => {
            let message = format!("cannot use generated column \"{name}\" in column generation expression");
            Err(SqlError::new(state::INVALID_OBJECT_DEFINITION, message)
                .with_detail("A generated column cannot reference another generated column."))
        }
        Some(at) => Ok(schema.columns[at].id),
        None => Err(SqlError::new(state::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist"))),
    };
    let columns = columns_of(expr).iter().map(known).collect::<Result<_>>()?;
    Ok(GeneratedColumn { expr: kept(expr, ExpressionContext::Generated)?, columns })
}

/// `t_c_seq`, with a number behind while it is taken, in the schema of the table. Long names of tables and columns are
/// cut, the longer first.
pub fn made_up(parts: &[&str], label: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let of = parts.first().copied().unwrap_or_default();
    let parts: Vec<&str> = parts.iter().map(|part| full_name::bare(part)).collect();
    for pass in 0.. {
        let label = if pass == 0 { label.to_owned() } else { format!("{label}{pass}") };
        let mut parts = parts.clone();
        let n_bytes = |parts: &[&str]| parts.iter().map(|part| part.len() + 1).sum::<usize>() + label.len();
        while n_bytes(&parts) > MAX_NAME_BYTES {
            let Some(longest) = parts.iter_mut().max_by_key(|part| part.len()) else { break };
            let Some((end, _)) = longest.char_indices().last() else { break };
            *longest = &longest[..end];
        }
        let name = full_name::beside(of, &format!("{}_{label}", parts.join("_")));
        if !is_taken(&name) {
            return name;
        }
    }
    unreachable!("there are more numbers than names")
}

/// The text of a constant; `Some(None)` is NULL. A number that is cast is computed: the cast may change it.
fn constant(expr: &Expr) -> Option<Option<String>> {
    match expr {
        Expr::Cast { expr: of, .. } => {
            let is_text = matches!(of.as_ref(), Expr::Value(value) if matches!(value.value,
                ast::Value::SingleQuotedString(_) | ast::Value::EscapedStringLiteral(_) | ast::Value::Null));
            literal(expr).filter(|_| is_text)
        }
        Expr::Nested(of) => constant(of),
        other => literal(other),
    }
}

/// Whether PostgreSQL's grammar takes an expression where the clauses of a column follow, one of which may be NOT NULL:
/// what is made of words, such as `a IN (1, 2)`, is in parentheses there.
fn stands_alone(expr: &Expr) -> bool {
    match expr {
        Expr::InList { .. }
        | Expr::InSubquery { .. }
        | Expr::InUnnest { .. }
        | Expr::Between { .. }
        | Expr::Like { .. }
        | Expr::ILike { .. }
        | Expr::SimilarTo { .. }
        | Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::AtTimeZone { .. }
        | Expr::UnaryOp { op: UnaryOperator::Not, .. }
        | Expr::BinaryOp { op: BinaryOperator::And | BinaryOperator::Or, .. } => false,
        Expr::BinaryOp { left, right, .. } => stands_alone(left) && stands_alone(right),
        Expr::UnaryOp { expr, .. } => stands_alone(expr),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_up_as_in_postgres() {
        assert_eq!(made_up(&["t", "id"], "seq", |_| false), "t_id_seq");
        assert_eq!(made_up(&["t"], "check", |name| name == "t_check"), "t_check1");
        assert_eq!(made_up(&[&full_name::join("s", "t"), "id"], "seq", |_| false), full_name::join("s", "t_id_seq"));
        let (long, longer) = ("l".repeat(60), "m".repeat(63));
        let name = made_up(&[&long, &longer], "seq", |_| false);
        assert_eq!((name.len(), name.matches('l').count(), name.matches('m').count()), (63, 29, 29));
        let wide = "ü".repeat(40);
        assert!(made_up(&[&wide, "id"], "seq", |_| false).len() <= MAX_NAME_BYTES);
    }
}
