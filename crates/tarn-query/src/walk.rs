//! How is a statement walked? As the parser's own visitors do it, but compiled once.
//!
//! The parser's walk is generic over its visitor: each one has a walk of its own, some seven hundred functions over all
//! parts of the grammar. With fifty visitors these were half of the machine code of `tarn-sql`, and of the time of its
//! build. Here the walk is one, over a visitor that is known by its methods alone; `clippy.toml` refuses the other.

use std::ops::ControlFlow;

use crate::sqlparser::ast::{
    Distinct, Expr, NamedWindowDefinition, ObjectName, OrderBy, OrderByExpr, Query, Select, SelectItem, SetExpr,
    Statement, TableFactor, TableWithJoins, ValueWithSpan, Visit, VisitMut, Visitor, VisitorMut,
};

/// A part of a statement that can be walked.
pub trait Walkable {
    /// Shows all parts to `to`, in the order of the text, until it breaks. [`walk`] is what callers want.
    fn show(&self, to: &mut dyn Visitor<Break = ()>);

    /// The same of parts that may be changed; [`walk_mut`].
    fn show_mut(&mut self, to: &mut dyn VisitorMut<Break = ()>);
}

/// Shows all parts of `part` to `visitor`, in the order of the text, until it breaks.
pub fn walk<V: Visitor>(part: &(impl Walkable + ?Sized), visitor: &mut V) -> ControlFlow<V::Break> {
    let mut kept = BreakHolder { visitor, broke: None };
    part.show(&mut kept);
    kept.broke.map_or(ControlFlow::Continue(()), ControlFlow::Break)
}

/// Shows all parts of `part` to `visitor`, which may change them, until it breaks.
pub fn walk_mut<V: VisitorMut>(part: &mut (impl Walkable + ?Sized), visitor: &mut V) -> ControlFlow<V::Break> {
    let mut kept = BreakHolder { visitor, broke: None };
    part.show_mut(&mut kept);
    kept.broke.map_or(ControlFlow::Continue(()), ControlFlow::Break)
}

/// Calls `see` with each expression, the outer one behind what is in it, until it breaks.
pub fn each_expr<B>(part: &(impl Walkable + ?Sized), see: impl FnMut(&Expr) -> ControlFlow<B>) -> ControlFlow<B> {
    struct Exprs<F>(F);

    impl<B, F: FnMut(&Expr) -> ControlFlow<B>> Visitor for Exprs<F> {
        type Break = B;

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<B> {
            (self.0)(expr)
        }
    }

    walk(part, &mut Exprs(see))
}

/// Whether there is a query in it, of whatever kind: `(SELECT …)`, `EXISTS`, `IN`, `ARRAY (SELECT …)`.
pub fn has_query(part: &(impl Walkable + ?Sized)) -> bool {
    struct Queries;

    impl Visitor for Queries {
        type Break = ();

        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
    }

    walk(part, &mut Queries).is_break()
}

/// Calls `see` with the name of each relation, until it breaks.
pub fn each_relation<B>(
    part: &(impl Walkable + ?Sized),
    see: impl FnMut(&ObjectName) -> ControlFlow<B>,
) -> ControlFlow<B> {
    struct RelationVisitor<F>(F);

    impl<B, F: FnMut(&ObjectName) -> ControlFlow<B>> Visitor for RelationVisitor<F> {
        type Break = B;

        fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<B> {
            (self.0)(relation)
        }
    }

    walk(part, &mut RelationVisitor(see))
}

/// A visitor, and what it broke with: the walk knows only that it did.
struct BreakHolder<'a, V, B> {
    visitor: &'a mut V,
    broke: Option<B>,
}

impl<V, B> BreakHolder<'_, V, B> {
    fn keep(&mut self, flow: ControlFlow<B>) -> ControlFlow<()> {
        match flow {
            ControlFlow::Continue(()) => ControlFlow::Continue(()),
            ControlFlow::Break(broke) => {
                self.broke = Some(broke);
                ControlFlow::Break(())
            }
        }
    }
}

/// The one visitor that the parser's walk is compiled for.
struct DynVisitor<'a>(&'a mut dyn Visitor<Break = ()>);

struct ShownMut<'a>(&'a mut dyn VisitorMut<Break = ()>);

macro_rules! hand_on {
    ($($method:ident: $of:ty),+ $(,)?) => {
        impl<V: Visitor> Visitor for BreakHolder<'_, V, V::Break> {
            type Break = ();

            $(fn $method(&mut self, part: &$of) -> ControlFlow<()> {
                let flow = self.visitor.$method(part);
                self.keep(flow)
            })+
        }

        impl<V: VisitorMut> VisitorMut for BreakHolder<'_, V, V::Break> {
            type Break = ();

            $(fn $method(&mut self, part: &mut $of) -> ControlFlow<()> {
                let flow = self.visitor.$method(part);
                self.keep(flow)
            })+
        }

        impl Visitor for DynVisitor<'_> {
            type Break = ();

            $(fn $method(&mut self, part: &$of) -> ControlFlow<()> {
                self.0.$method(part)
            })+
        }

        impl VisitorMut for ShownMut<'_> {
            type Break = ();

            $(fn $method(&mut self, part: &mut $of) -> ControlFlow<()> {
                self.0.$method(part)
            })+
        }
    };
}

hand_on! {
    pre_visit_query: Query,
    post_visit_query: Query,
    pre_visit_select: Select,
    post_visit_select: Select,
    pre_visit_relation: ObjectName,
    post_visit_relation: ObjectName,
    pre_visit_table_factor: TableFactor,
    post_visit_table_factor: TableFactor,
    pre_visit_expr: Expr,
    post_visit_expr: Expr,
    pre_visit_statement: Statement,
    post_visit_statement: Statement,
    pre_visit_value: ValueWithSpan,
    post_visit_value: ValueWithSpan,
}

macro_rules! walked {
    ($($of:ty),+ $(,)?) => {
        $(impl Walkable for $of {
            #[expect(clippy::disallowed_methods)] // the one place
            fn show(&self, to: &mut dyn Visitor<Break = ()>) {
                let _ = Visit::visit(self, &mut DynVisitor(to));
            }

            #[expect(clippy::disallowed_methods)]
            fn show_mut(&mut self, to: &mut dyn VisitorMut<Break = ()>) {
                let _ = VisitMut::visit(self, &mut ShownMut(to));
            }
        })+
    };
}

walked! {
    Statement,
    Query,
    SetExpr,
    Select,
    SelectItem,
    Vec<SelectItem>,
    Option<Distinct>,
    Vec<NamedWindowDefinition>,
    OrderBy,
    Vec<OrderByExpr>,
    Vec<Expr>,
    Option<Expr>,
    Expr,
    TableFactor,
    TableWithJoins,
    Option<Box<Query>>,
}
