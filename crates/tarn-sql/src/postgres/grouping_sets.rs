//! By which keys is `GROUP BY GROUPING SETS (ROLLUP (a, b), GROUPING SETS (c, ()))`? By each set that the inner ones
//! stand for: (a, b), (a), (), (c) and (). The planner knows one level, and no keys in parentheses in `ROLLUP` and
//! `CUBE`. `GROUP BY ()` is of one set without keys.
//!
//! So the inner levels, which the parser writes as calls, are written out as sets.
//!
//! And a number in `CUBE (1, 2)` is the place of a column in the list, as outside of sets.

use tarn_query::parser::{GROUPING_SETS, MAX_GROUPINGS, NO_KEYS};
use tarn_query::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Select, SelectItem, Value,
};

use super::calls::is_named;
use crate::error::{Result, SqlError, state};

/// Writes out the sets of one SELECT.
///
/// Errors: `54000` for too many; `42P10` for a place that the list does not have.
pub(super) fn write_out(select: &mut Select) -> Result<()> {
    let Select { group_by: GroupByExpr::Expressions(groups, _), projection, .. } = select else { return Ok(()) };
    for group in groups {
        if let Expr::GroupingSets(sets) | Expr::Rollup(sets) | Expr::Cube(sets) = group {
            sets.iter_mut().flatten().try_for_each(|key| by_place(key, projection))?;
        }
        // A part that is one key needs no sets.
        let has_tuples = |parts: &[Vec<Expr>]| {
            parts.iter().any(|part| part.len() != 1 || matches!(part[..], [Expr::Tuple(_) | Expr::Nested(_)]))
        };
        let sets = match group {
            Expr::Tuple(keys) if keys.is_empty() => vec![vec![]],
            Expr::GroupingSets(sets) if sets.iter().any(|set| is_nested(set)) => {
                all(sets.iter().map(|set| of_set(set)))?
            }
            Expr::Rollup(parts) if has_tuples(parts) => rollup(parts),
            Expr::Cube(parts) if has_tuples(parts) => cube(parts)?,
            _ => continue,
        };
        *group = Expr::GroupingSets(sets);
    }
    Ok(())
}

/// Writes a key of sets that is a place as what stands there. Which place is behind a `*` is not known here.
fn by_place(key: &mut Expr, list: &[SelectItem]) -> Result<()> {
    let is_set = call_of(key).is_some();
    match key {
        Expr::Tuple(keys) => keys.iter_mut().try_for_each(|key| by_place(key, list)),
        Expr::Nested(key) => by_place(key, list),
        Expr::Function(Function { args: FunctionArguments::List(args), .. }) if is_set => {
            args.args.iter_mut().try_for_each(|arg| match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(key)) => by_place(key, list),
                _ => Ok(()),
            })
        }
        Expr::Value(value) => {
            let Value::Number(number, _) = &value.value else { return Ok(()) };
            let exprs = list.iter().map(|item| match item {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
                _ => None,
            });
            let Some(exprs) = exprs.collect::<Option<Vec<_>>>() else { return Ok(()) };
            let place = number.to_string().parse::<usize>().ok().and_then(|place| place.checked_sub(1));
            let Some(expr) = place.and_then(|place| exprs.get(place)) else {
                let message = format!("GROUP BY position {number} is not in select list");
                return Err(SqlError::new(state::INVALID_COLUMN_REFERENCE, message));
            };
            *key = (*expr).clone();
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Whether a set is more than keys.
fn is_nested(set: &[Expr]) -> bool {
    set.iter().any(|key| match key {
        Expr::Tuple(_) => true,
        Expr::Nested(key) => is_nested(std::slice::from_ref(key)),
        key => call_of(key).is_some(),
    })
}

/// The name and the arguments of a call that stands for sets.
fn call_of(key: &Expr) -> Option<(&'static str, Vec<&Expr>)> {
    let Expr::Function(Function { name, args: FunctionArguments::List(list), over: None, .. }) = key else {
        return None;
    };
    let of = [GROUPING_SETS, NO_KEYS, "rollup", "cube"].into_iter().find(|of| is_named(name, of))?;
    let args = list.args.iter().map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    });
    Some((of, args.collect::<Option<_>>()?))
}

/// The sets that one stands for.
fn of_set(set: &[Expr]) -> Result<Vec<Vec<Expr>>> {
    let [one] = set else { return Ok(vec![keys(set)]) };
    match call_of(one) {
        None => Ok(vec![keys(set)]),
        Some((NO_KEYS, _)) => Ok(vec![vec![]]),
        Some((GROUPING_SETS, args)) => all(args.into_iter().map(|arg| of_set(std::slice::from_ref(arg)))),
        Some((of, args)) => {
            let parts: Vec<Vec<Expr>> = args.into_iter().map(|arg| keys(std::slice::from_ref(arg))).collect();
            if of == "cube" { cube(&parts) } else { Ok(rollup(&parts)) }
        }
    }
}

/// Keys without the parentheses around them.
fn keys(set: &[Expr]) -> Vec<Expr> {
    let mut all = vec![];
    for key in set {
        match key {
            Expr::Tuple(keys) => all.extend(self::keys(keys)),
            Expr::Nested(key) => all.extend(keys(std::slice::from_ref(key))),
            key if all.contains(key) => {}
            key => all.push(key.clone()),
        }
    }
    all
}

/// The first parts, from all of them to none.
fn rollup(parts: &[Vec<Expr>]) -> Vec<Vec<Expr>> {
    (0..=parts.len()).rev().map(|n| keys(&parts[..n].concat())).collect()
}

/// Any of the parts.
fn cube(parts: &[Vec<Expr>]) -> Result<Vec<Vec<Expr>>> {
    let n_sets = 1_usize.checked_shl(parts.len() as u32).filter(|n| (1..=MAX_GROUPINGS).contains(n));
    let n_sets = n_sets.ok_or_else(too_many)?;
    let is_in = |set: usize, nth: usize| set >> (parts.len() - 1 - nth) & 1 == 1;
    let of = |set: usize| -> Vec<Vec<Expr>> {
        parts.iter().enumerate().filter(|(nth, _)| is_in(set, *nth)).map(|(_, part)| part.clone()).collect()
    };
    Ok((0..n_sets).rev().map(|set| keys(&of(set).concat())).collect())
}

fn all(sets: impl Iterator<Item = Result<Vec<Vec<Expr>>>>) -> Result<Vec<Vec<Expr>>> {
    let mut all = vec![];
    for of in sets {
        all.extend(of?);
        if all.len() > MAX_GROUPINGS {
            return Err(too_many());
        }
    }
    Ok(all)
}

fn too_many() -> SqlError {
    let message = format!("GROUP BY stands for more than {MAX_GROUPINGS} groupings");
    SqlError::new(state::PROGRAM_LIMIT, message).with_hint("fewer keys in CUBE, or fewer sets")
}
