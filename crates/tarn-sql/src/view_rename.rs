//! What does the query of a view say when a table that it reads is called otherwise? The same, by the other name.
//!
//! The text stays as it was written but for the names of what is read: `FROM t` becomes `FROM u AS t`, so that whatever
//! else names `t` in the query means the same table still, as PostgreSQL shows it too.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use datafusion::sql::sqlparser::ast::{Expr, Query, Spanned, Statement, TableFactor, Visitor};
use tarn_node::error::{Error, ErrorKind};
use tarn_query::walk;
use tarn_types::{TableSchema, full_name};

use crate::error::Result;
use crate::names::{fold, quote, table_name};
use crate::view_sql::place;
use crate::views;

/// The query of a view by the new names of what it reads.
///
/// Errors: `Depended` for a text of which that cannot be made.
pub fn rewrite(view: &TableSchema, names: &BTreeMap<String, String>) -> tarn_node::error::Result<String> {
    let text = view.options.view.as_ref().map(|view| view.query.as_str()).unwrap_or_default();
    let instead = names.iter().map(|(old, new)| (old.clone(), quote(new))).collect();
    rewritten(text, &instead, names).ok().flatten().ok_or_else(|| {
        let of: Vec<&str> = names.keys().map(String::as_str).collect();
        let message = format!("cannot rename {} because view {} depends on it", of.join(", "), view.name);
        Error::new(ErrorKind::Depended, message).with_hint(
            "DROP VIEW it first, and make it anew afterwards: its text is not one in which the name can be replaced",
        )
    })
}

/// The text with something else in the place of what is read, under the name that it had. `names`: what each is called
/// then, where that is another name. `None`: the names are not where they are expected.
pub(crate) fn rewritten(
    text: &str,
    instead: &BTreeMap<String, String>,
    names: &BTreeMap<String, String>,
) -> Result<Option<String>> {
    let statement = views::query(text)?;
    let mut found = MentionRewriter { text, instead, places: vec![], is_shadowed: false };
    let _ = walk(&statement, &mut found);
    let MentionRewriter { mut places, is_shadowed, .. } = found;
    if is_shadowed {
        return Ok(None);
    }
    places.sort_by_key(|(at, _)| at.start);
    places.dedup();
    let (mut new, mut from) = (String::with_capacity(text.len()), 0);
    for (at, name) in &places {
        let Some(before) = text.get(from..at.start) else { return Ok(None) };
        new.push_str(before);
        new.push_str(name);
        from = at.end;
    }
    new.push_str(&text[from..]);
    // What it reads now is what it read before, by the other names.
    let (read, reads) = (relations(&statement), relations(&views::query(&new)?));
    let wanted: Vec<String> = read.iter().map(|name| names.get(name).unwrap_or(name).clone()).collect();
    Ok((reads == wanted).then_some(new))
}

/// Every relation that is named, in order, names of WITH included.
fn relations(statement: &Statement) -> Vec<String> {
    struct RelationCollector(Vec<String>);
    impl Visitor for RelationCollector {
        type Break = ();
        fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
            if let TableFactor::Table { name, .. } = factor {
                self.0.extend(table_name(name));
            }
            ControlFlow::Continue(())
        }
    }
    let mut named = RelationCollector(vec![]);
    let _ = walk(statement, &mut named);
    named.0
}

struct MentionRewriter<'a> {
    text: &'a str,
    instead: &'a BTreeMap<String, String>,
    /// Where a name stands, and what is to stand there.
    places: Vec<(Range<usize>, String)>,
    /// Whether something in the query is called like what is read otherwise.
    is_shadowed: bool,
}

impl Visitor for MentionRewriter<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let mut ctes = query.with.iter().flat_map(|with| &with.cte_tables);
        self.is_shadowed |= ctes.any(|cte| self.instead.contains_key(&fold(&cte.alias.name)));
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        // With a schema before it, a column is one of a table that has no other name.
        if let Expr::CompoundIdentifier(parts) = expr
            && let [.., schema, table, _] = &parts[..]
        {
            self.is_shadowed |= self.instead.contains_key(&full_name::join(&fold(schema), &fold(table)));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, alias, .. } = factor
            && let Ok(old) = table_name(name)
            && let Some(new) = self.instead.get(&old)
        {
            let span = name.span();
            let at = place(self.text, span.start)..place(self.text, span.end);
            let alias = if alias.is_none() { format!(" AS {}", quote(full_name::bare(&old))) } else { String::new() };
            self.places.push((at, format!("{new}{alias}")));
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<String> {
        let names = BTreeMap::from([("t".to_owned(), "U".to_owned()), ("r".to_owned(), "t".to_owned())]);
        let instead = names.iter().map(|(old, new)| (old.clone(), quote(new))).collect();
        rewritten(text, &instead, &names).unwrap()
    }

    #[test]
    fn names_are_replaced_where_they_stand() {
        assert_eq!(of("SELECT t.a -- t\n  FROM public.T").as_deref(), Some("SELECT t.a -- t\n  FROM \"U\" AS t"));
        assert_eq!(
            of("SELECT a FROM t x JOIN r ON x.a = r.a WHERE EXISTS (SELECT 't' FROM \"t\")").as_deref(),
            Some("SELECT a FROM \"U\" x JOIN t AS r ON x.a = r.a WHERE EXISTS (SELECT 't' FROM \"U\" AS t)")
        );
        assert_eq!(of("SELECT é FROM t AS é").as_deref(), Some("SELECT é FROM \"U\" AS é"));
        assert_eq!(of("SELECT a FROM o").as_deref(), Some("SELECT a FROM o"));
        let names = BTreeMap::from([(full_name::join("s", "t"), full_name::join("s", "u"))]);
        let instead = names.iter().map(|(old, new)| (old.clone(), quote(new))).collect();
        let of = |text: &str| rewritten(text, &instead, &names).unwrap();
        let renamed = "SELECT t.a FROM s.u AS t, t AS x";
        assert_eq!(of("SELECT t.a FROM s.t, t AS x").as_deref(), Some(renamed));
        assert_eq!(of("SELECT s.t.a FROM s.t"), None);
    }

    #[test]
    fn what_cannot_be_told_apart_stays() {
        assert_eq!(of("WITH t AS (SELECT 1 AS a) SELECT a FROM t"), None);
    }
}
