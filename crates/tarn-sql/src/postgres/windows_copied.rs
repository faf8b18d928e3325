//! What is `OVER (w ROWS …)`? The window `w` with another frame: its partitions, and its order. DataFusion takes the
//! frame alone, and all rows are one partition without an order.
//!
//! So what is copied is written out, before a statement is planned, in lists of columns and in `WINDOW` itself.

use tarn_query::parser::EXCLUDING;
use tarn_query::sqlparser::ast::{
    Expr, Function, Ident, NamedWindowDefinition, NamedWindowExpr, OrderBy, Select, WindowSpec, WindowType,
};

use super::calls::{each_outside_queries, is_call};
use crate::error::{Result, SqlError, state};
use crate::names::fold;

/// Writes out the windows of one SELECT that are copies.
///
/// Errors: `42P20` for what a copy cannot say; `42704` for one of a name that is not there.
pub(super) fn write_out(select: &mut Select, order_by: Option<&mut OrderBy>) -> Result<()> {
    // Each may copy those before it.
    for at in 0..select.named_window.len() {
        let (before, rest) = select.named_window.split_at_mut(at);
        if let NamedWindowExpr::WindowSpec(spec) = &mut rest[0].1 {
            copy(spec, before)?;
        }
    }
    let (windows, mut copied) = (&select.named_window, Ok(()));
    let mut write = |expr: &mut Expr| {
        if let Expr::Function(Function { over: Some(WindowType::WindowSpec(spec)), .. }) = expr
            && copied.is_ok()
        {
            copied = copy(spec, windows);
        }
    };
    each_outside_queries(&mut select.projection, &mut write);
    if let Some(order_by) = order_by {
        each_outside_queries(order_by, &mut write);
    }
    copied
}

fn copy(spec: &mut WindowSpec, windows: &[NamedWindowDefinition]) -> Result<()> {
    let Some(name) = spec.window_name.take() else { return Ok(()) };
    let of = named(&name, windows)?;
    let refused = |what: &str, why: &str| {
        let message = format!("cannot {what} window \"{}\"{why}", name.value);
        Err(SqlError::new(state::WINDOWING, message).with_hint("write the window out"))
    };
    // What a frame leaves out stands among the keys.
    if !spec.partition_by.iter().all(|key| is_call(key, EXCLUDING)) {
        return refused("override PARTITION BY clause of", "");
    }
    if !of.order_by.is_empty() && !spec.order_by.is_empty() {
        return refused("override ORDER BY clause of", "");
    }
    if of.window_frame.is_some() {
        return refused("copy", " because it has a frame clause");
    }
    spec.partition_by.extend(of.partition_by.iter().cloned());
    if spec.order_by.is_empty() {
        spec.order_by = of.order_by.clone();
    }
    Ok(())
}

fn named<'a>(name: &Ident, windows: &'a [NamedWindowDefinition]) -> Result<&'a WindowSpec> {
    let found = windows.iter().position(|window| fold(&window.0) == fold(name));
    match found.map(|at| (at, &windows[at].1)) {
        Some((_, NamedWindowExpr::WindowSpec(spec))) => Ok(spec),
        // It is another name of one before it.
        Some((at, NamedWindowExpr::NamedWindow(other))) => named(other, &windows[..at]),
        None => Err(SqlError::new(state::UNDEFINED_OBJECT, format!("window \"{}\" does not exist", name.value))),
    }
}
