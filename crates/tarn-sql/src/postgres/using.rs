//! Which value has the column of `a FULL JOIN b USING (n)`? That of `b` where `a` has no row. DataFusion's column is
//! that of `a`, also of a `RIGHT JOIN`.
//!
//! Where such a join is in FROM, its USINGs become conditions (`ON a.n = b.n`), and what is named without a table, in
//! the select list, in conditions, groups and orders, becomes `coalesce(a.n, b.n)`. `*` is written out: these columns
//! first, then those of the tables. So it is of other joins by USING, where DataFusion leaves a column in the place
//! that it has in its table.

use tarn_query::Walkable;
use tarn_query::sqlparser::ast::{
    BinaryOperator, ExceptSelectItem, Expr, GroupByExpr, Ident, Join, JoinConstraint, JoinOperator, ObjectName,
    OrderBy, OrderByKind, Select, SelectItem, SelectItemQualifiedWildcardKind, TableFactor, TableWithJoins,
    WildcardAdditionalOptions,
};

use super::calls::{all_of, binary, call, each_outside_queries};
use crate::error::{Result, SqlError};
use crate::names::fold;

/// Writes out the joins of one SELECT.
///
/// Errors: `0A000` for what hangs on columns that are not written.
pub(super) fn write_out(select: &mut Select, order_by: Option<&mut OrderBy>) -> Result<()> {
    if !select.from.iter().any(needs_it) {
        put_first(select);
        return Ok(());
    }
    let [from] = &mut select.from[..] else { return Err(refused("beside other tables of FROM")) };
    let joined = JoinedColumns::of(from)?;
    expand_wildcards(&mut select.projection, &joined)?;
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(Expr::Identifier(name)) = item
            && let Some(value) = joined.value(name)
        {
            *item = SelectItem::ExprWithAlias { expr: value.clone(), alias: name.clone() };
        }
    }
    let is_shown = |name: &Ident| {
        let alias =
            |item: &SelectItem| matches!(item, SelectItem::ExprWithAlias { alias, .. } if fold(alias) == fold(name));
        select.projection.iter().any(alias)
    };
    if let Some(OrderBy { kind: OrderByKind::Expressions(all), .. }) = order_by {
        for order in all.iter_mut().filter(|order| !matches!(&order.expr, Expr::Identifier(name) if is_shown(name))) {
            joined.write_out(&mut order.expr);
        }
    }
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            joined.write_out(expr);
        }
    }
    let conditions = [&mut select.selection, &mut select.having, &mut select.qualify];
    for condition in conditions.into_iter().flatten() {
        joined.write_out(condition);
    }
    if let GroupByExpr::Expressions(all, _) = &mut select.group_by {
        joined.write_out(all);
    }
    joined.write_out(&mut select.distinct);
    joined.write_out(&mut select.named_window);
    Ok(())
}

/// Writes out the `*` of inner and left joins, if it can be: what stands to the left is the value of their columns.
fn put_first(select: &mut Select) {
    let [from] = &select.from[..] else { return };
    let by_names = |join: &Join| {
        matches!(
            &join.join_operator,
            JoinOperator::Join(JoinConstraint::Using(_))
                | JoinOperator::Inner(JoinConstraint::Using(_))
                | JoinOperator::Left(JoinConstraint::Using(_))
                | JoinOperator::LeftOuter(JoinConstraint::Using(_))
        )
    };
    if !from.joins.iter().any(by_names) {
        return;
    }
    let mut written = select.projection.clone();
    if let Ok(joined) = JoinedColumns::of(&mut from.clone())
        && expand_wildcards(&mut written, &joined).is_ok()
    {
        select.projection = written;
    }
}

fn needs_it(from: &TableWithJoins) -> bool {
    from.joins.iter().any(|join| match &join.join_operator {
        JoinOperator::FullOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint) => {
            matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural)
        }
        _ => false,
    })
}

fn refused(what: &str) -> SqlError {
    SqlError::unsupported(
        format!("FULL or RIGHT JOIN … USING {what} is not supported"),
        "write ON, and coalesce(a.x, b.x) for the column of both",
    )
}

/// The tables of FROM, and the columns that several of them have together.
struct JoinedColumns {
    /// With the columns that are not of the table alone.
    tables: Vec<(Ident, Vec<Ident>)>,
    /// As `*` shows them.
    columns: Vec<(Ident, Expr)>,
}

impl JoinedColumns {
    /// Makes conditions of the USINGs.
    fn of(from: &mut TableWithJoins) -> Result<JoinedColumns> {
        let mut joined = JoinedColumns { tables: vec![(table(&from.relation)?, vec![])], columns: vec![] };
        for join in &mut from.joins {
            let right = table(&join.relation)?;
            let mut shared = vec![];
            let (constraint, takes): (_, fn(Expr, Expr) -> Expr) = match &mut join.join_operator {
                JoinOperator::Join(constraint)
                | JoinOperator::Inner(constraint)
                | JoinOperator::Left(constraint)
                | JoinOperator::LeftOuter(constraint) => (constraint, |left, _| left),
                JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => {
                    (constraint, |_, right| right)
                }
                JoinOperator::FullOuter(constraint) => (constraint, |left, right| call("coalesce", vec![left, right])),
                JoinOperator::CrossJoin(constraint) => (constraint, |left, _| left),
                _ => return Err(refused("beside such a join")),
            };
            match constraint {
                JoinConstraint::Natural => return Err(refused("as NATURAL JOIN")),
                JoinConstraint::On(_) | JoinConstraint::None => {}
                JoinConstraint::Using(names) => {
                    let names = std::mem::take(names);
                    let mut conditions = vec![];
                    for name in &names {
                        let [part] = &name.0[..] else { return Err(refused("of a column with a table")) };
                        let Some(name) = part.as_ident() else { return Err(refused("of a function")) };
                        let of_right = Expr::CompoundIdentifier(vec![right.clone(), name.clone()]);
                        let of_left = joined.left(name)?;
                        conditions.push((of_left.clone(), of_right.clone()));
                        shared.push((name.clone(), takes(of_left, of_right)));
                    }
                    let equal = |(left, right)| binary(left, BinaryOperator::Eq, right);
                    let Some(all) = all_of(conditions.into_iter().map(equal)) else {
                        return Err(refused("of no column"));
                    };
                    *constraint = JoinConstraint::On(all);
                }
            }
            let names = shared.iter().map(|(name, _)| name.clone()).collect();
            joined.columns.retain(|(name, _)| !shared.iter().any(|(other, _)| fold(other) == fold(name)));
            shared.append(&mut joined.columns);
            joined.columns = shared;
            joined.tables.push((right, names));
        }
        Ok(joined)
    }

    /// The column of what stands to the left.
    fn left(&mut self, name: &Ident) -> Result<Expr> {
        if let Some(value) = self.value(name) {
            return Ok(value.clone());
        }
        let [(table, own)] = &mut self.tables[..] else { return Err(refused("behind other joins")) };
        own.push(name.clone());
        Ok(Expr::CompoundIdentifier(vec![table.clone(), name.clone()]))
    }

    fn value(&self, name: &Ident) -> Option<&Expr> {
        self.columns.iter().find(|(column, _)| fold(column) == fold(name)).map(|(_, value)| value)
    }

    /// Writes out what names a column of several tables without a table.
    fn write_out(&self, part: &mut impl Walkable) {
        each_outside_queries(part, |expr| {
            if let Expr::Identifier(name) = &*expr
                && let Some(value) = self.value(name)
            {
                *expr = value.clone();
            }
        });
    }
}

/// By which its columns are named.
fn table(factor: &TableFactor) -> Result<Ident> {
    let name = match factor {
        TableFactor::Table { name, alias, .. } => {
            let last = || name.0.last().and_then(|part| part.as_ident()).cloned();
            alias.as_ref().map(|alias| alias.name.clone()).or_else(last)
        }
        TableFactor::Derived { alias, .. }
        | TableFactor::UNNEST { alias, .. }
        | TableFactor::Function { alias, .. } => alias.as_ref().map(|alias| alias.name.clone()),
        _ => None,
    };
    name.ok_or_else(|| refused("of a table without a name"))
}

fn expand_wildcards(projection: &mut Vec<SelectItem>, joined: &JoinedColumns) -> Result<()> {
    let Some(at) = projection.iter().position(|item| matches!(item, SelectItem::Wildcard(_))) else { return Ok(()) };
    let mut items: Vec<SelectItem> = joined
        .columns
        .iter()
        .map(|(name, value)| SelectItem::ExprWithAlias { expr: value.clone(), alias: name.clone() })
        .collect();
    items.extend(joined.tables.iter().map(|(table, shared)| {
        let except = shared.split_first().map(|(first, others)| ExceptSelectItem {
            first_element: first.clone(),
            additional_elements: others.to_vec(),
        });
        SelectItem::QualifiedWildcard(
            SelectItemQualifiedWildcardKind::ObjectName(ObjectName::from(vec![table.clone()])),
            WildcardAdditionalOptions { opt_except: except, ..WildcardAdditionalOptions::default() },
        )
    }));
    projection.splice(at..=at, items);
    match projection.iter().any(|item| matches!(item, SelectItem::Wildcard(_))) {
        true => Err(refused("below two *")),
        false => Ok(()),
    }
}
