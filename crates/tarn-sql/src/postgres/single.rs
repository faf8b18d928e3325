//! What is a subquery that stands for a value? Its only row; more than one are an error (21000). The planner knows no
//! such correlated subquery that does not aggregate, so it becomes one that does: of the only value.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::error::Result;
use datafusion::functions_aggregate::all_default_aggregate_functions;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};
use datafusion::scalar::ScalarValue;
use tarn_query::sqlparser::ast::helpers::attached_token::AttachedToken;
use tarn_query::sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, GroupByExpr, Query, Select, SelectItem, SetExpr, Visitor,
};
use tarn_query::{datafusion, walk};

use super::calls::{all_of, call, take};
use crate::error::{SqlError, state};
use crate::names::{fold, qualifiers};

const SINGLE: &str = "tarn_single";

/// A subquery that stands for a value.
pub(super) fn subquery(expr: &mut Expr) {
    let Expr::Subquery(query) = expr else { return };
    let Query { with: None, body, order_by: None, limit_clause: None, fetch: None, .. } = query.as_mut() else {
        return;
    };
    let SetExpr::Select(select) = body.as_mut() else { return };
    let Select { distinct: None, having: None, qualify: None, selection: Some(_), group_by, projection, from, .. } =
        select.as_mut()
    else {
        return;
    };
    let is_grouped = !matches!(group_by, GroupByExpr::Expressions(by, _) if by.is_empty());
    let [SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. }] = &mut projection[..] else {
        return;
    };
    if !is_grouped && !from.is_empty() && !aggregates(value) {
        *value = call(SINGLE, vec![take(value)]);
        if let Some(outside) = outside(select) {
            let when = CaseWhen { condition: outside, result: take(expr) };
            *expr = Expr::Case {
                case_token: AttachedToken::empty(),
                end_token: AttachedToken::empty(),
                operand: None,
                conditions: vec![when],
                else_result: None,
            };
        }
    }
}

/// Takes the conditions that are of the query around it alone: the planner has no place for them in a subquery.
fn outside(select: &mut Select) -> Option<Expr> {
    let tables: HashSet<String> = select.from.iter().flat_map(qualifiers).collect();
    let is_outside = |condition: &Expr| {
        struct OuterColumnFinder<'a>(&'a HashSet<String>, usize);
        impl Visitor for OuterColumnFinder<'_> {
            type Break = ();
            fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
                match expr {
                    Expr::CompoundIdentifier(parts) if parts.len() > 1 => {
                        self.1 += 1;
                        match self.0.contains(&fold(&parts[parts.len() - 2])) {
                            true => ControlFlow::Break(()),
                            false => ControlFlow::Continue(()),
                        }
                    }
                    Expr::Identifier(_) | Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => {
                        ControlFlow::Break(())
                    }
                    _ => ControlFlow::Continue(()),
                }
            }
        }
        let mut columns = OuterColumnFinder(&tables, 0);
        walk(condition, &mut columns).is_continue() && columns.1 > 0
    };
    let mut conditions = vec![];
    split(select.selection.take()?, &mut conditions);
    let (outside, inside): (Vec<Expr>, Vec<Expr>) = conditions.into_iter().partition(is_outside);
    select.selection = all_of(inside);
    all_of(outside)
}

fn split(condition: Expr, into: &mut Vec<Expr>) {
    match condition {
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            split(*left, into);
            split(*right, into);
        }
        condition => into.push(condition),
    }
}

/// Aggregates and sets that are read as others.
const OTHERS: [&str; 15] = [
    "every",
    "unnest",
    "generate_series",
    "generate_subscripts",
    SINGLE,
    "json_agg",
    "json_object_agg",
    "jsonb_agg",
    "jsonb_object_agg",
    "json_array_elements",
    "json_array_elements_text",
    "json_object_keys",
    "jsonb_array_elements",
    "jsonb_array_elements_text",
    "jsonb_object_keys",
];

/// Whether there is an aggregate, a window or a set in it, and not in a query that stands in it.
pub(super) fn aggregates(expr: &Expr) -> bool {
    static NAMES: LazyLock<HashSet<String>> = LazyLock::new(|| {
        let all = all_default_aggregate_functions();
        let names =
            all.iter().flat_map(|function| function.aliases().iter().cloned().chain([function.name().to_owned()]));
        names.chain(OTHERS.map(str::to_owned)).collect()
    });
    #[derive(Default)]
    struct AggregateFinder {
        n_queries: usize,
    }
    impl Visitor for AggregateFinder {
        type Break = ();
        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.n_queries += 1;
            ControlFlow::Continue(())
        }
        fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.n_queries -= 1;
            ControlFlow::Continue(())
        }
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            let Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
            if self.n_queries > 0 {
                return ControlFlow::Continue(());
            }
            let name = function.name.0.last().and_then(|part| part.as_ident()).map(fold);
            match function.over.is_some() || name.is_some_and(|name| NAMES.contains(&name)) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
    }
    walk(expr, &mut AggregateFinder::default()).is_break()
}

/// The aggregate.
pub(super) fn single() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(Single { signature: Signature::any(1, Volatility::Immutable) }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Single {
    signature: Signature,
}

impl AggregateUDFImpl for Single {
    fn name(&self) -> &str {
        SINGLE
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn return_field(&self, fields: &[FieldRef]) -> Result<FieldRef> {
        Ok(Arc::new(fields[0].as_ref().clone().with_name(SINGLE).with_nullable(true)))
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(SingleAccumulator { value: ScalarValue::try_new_null(args.return_field.data_type())?, n_rows: 0 }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let rows = Field::new(format!("{}[rows]", args.name), DataType::Int64, false);
        let value = Field::new(format!("{}[value]", args.name), args.return_field.data_type().clone(), true);
        Ok(vec![Arc::new(rows), Arc::new(value)])
    }
}

/// The only value of some rows.
#[derive(Debug)]
struct SingleAccumulator {
    value: ScalarValue,
    n_rows: i64,
}

impl SingleAccumulator {
    fn add(&mut self, n_rows: i64, value: impl FnOnce() -> Result<ScalarValue>) -> Result<()> {
        self.n_rows += n_rows;
        match (self.n_rows, n_rows) {
            (_, 0) => Ok(()),
            (1, _) => {
                self.value = value()?;
                Ok(())
            }
            _ => {
                let message = "more than one row returned by a subquery used as an expression";
                Err(SqlError::new(state::CARDINALITY, message)
                    .with_hint("aggregate its rows, or take one of them")
                    .into())
            }
        }
    }
}

impl Accumulator for SingleAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(values[0].len() as i64, || ScalarValue::try_from_array(&values[0], 0))
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let rows = states[0].as_primitive::<Int64Type>();
        (0..rows.len()).try_for_each(|at| self.add(rows.value(at), || ScalarValue::try_from_array(&states[1], at)))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::from(self.n_rows), self.value.clone()])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(self.value.clone())
    }

    fn size(&self) -> usize {
        size_of_val(self) - size_of_val(&self.value) + self.value.size()
    }
}
