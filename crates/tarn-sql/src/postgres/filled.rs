//! What is equal to a `char(5)`? A text without regard to blanks at its end, on both sides. It is kept without them
//! (`tarn_types::Length`), so they are taken from what it is compared with: from what is of no type yet, a text that is
//! written out or a parameter. What is a `text` keeps them, as in PostgreSQL.
//!
//! What takes a value of any type as it is shown, and patterns, see the blanks: `concat(c, '.')` is `ab   .`, and no
//! `char(5)` is `LIKE 'ab'`.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::functions::expr_fn::{rpad, rtrim};
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator, lit};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::{datafusion, each_expression};
use tarn_types::Length;

use crate::rows::is_bpchar;

/// Functions whose arguments are taken as they are shown.
const SHOWN: [&str; 4] = ["concat", "concat_ws", "octet_length", "format"];

/// The rule; it runs before types are made one.
#[derive(Debug)]
pub(super) struct ShownWithBlanks;

impl AnalyzerRule for ShownWithBlanks {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, with_blanks)
    }

    fn name(&self) -> &str {
        "shown_with_blanks"
    }
}

fn with_blanks(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    use Operator::{RegexIMatch, RegexMatch, RegexNotIMatch, RegexNotMatch};
    let is_changed = match &mut expr {
        Expr::Like(like) | Expr::SimilarTo(like) => fill(&mut like.expr, schema),
        Expr::BinaryExpr(of) if matches!(of.op, RegexMatch | RegexIMatch | RegexNotMatch | RegexNotIMatch) => {
            fill(&mut of.left, schema)
        }
        Expr::ScalarFunction(call) if SHOWN.contains(&call.func.name()) => {
            call.args.iter_mut().fold(false, |is_changed, arg| fill(arg, schema) | is_changed)
        }
        _ => false,
    };
    Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
}

/// Whether it is a `char(n)`, which has n characters then.
fn fill(of: &mut Expr, schema: &DFSchema) -> bool {
    let Ok((_, field)) = of.to_field(schema) else { return false };
    let Some(Length::Fixed(n)) = Length::of(&field).filter(|_| field.data_type().is_string()) else { return false };
    let text = std::mem::replace(of, Expr::Literal(ScalarValue::Null, None));
    *of = rpad(vec![text, lit(i64::from(n))]);
    true
}

/// Whether it is a `char(n)`, which is shown with blanks, and is a text without them; or a `bpchar`, which has none.
pub(super) fn is_filled(field: &Field) -> bool {
    matches!(Length::of(field), Some(Length::Fixed(_))) || is_bpchar(field)
}

/// What is compared with `other`, which may be a `char(n)`.
pub(super) fn beside(other: &Expr, value: Expr, schema: &DFSchema) -> Expr {
    match other.to_field(schema).is_ok_and(|(_, field)| is_filled(&field)) {
        true => without_blanks(value),
        false => value,
    }
}

/// What is compared with a `char(n)`.
pub(super) fn without_blanks(value: Expr) -> Expr {
    match value {
        Expr::Literal(text, None) => Expr::Literal(
            match text.try_as_str().flatten() {
                Some(of) => ScalarValue::from(of.trim_end_matches(' ')),
                None => text,
            },
            None,
        ),
        Expr::Placeholder(Placeholder { id, field: None }) => {
            let field = Some(Arc::new(Field::new(&id, DataType::Utf8, true)));
            rtrim(vec![Expr::Placeholder(Placeholder { id, field })])
        }
        value => value,
    }
}
