//! Which function is `doc -> 'a'`? DataFusion has the operators of JSON in its grammar and none of their meanings. They
//! are functions of ours as soon as they are planned, when the types of both sides are known.
//!
//! Where no side is JSON, and both are what another operator takes, nothing changes.

use std::sync::Arc;

use arrow::datatypes::{DataType as ArrowType, Field};
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr, RawFieldAccessExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, GetFieldAccess, ScalarUDF};
use tarn_query::datafusion;
use tarn_query::sqlparser::ast::BinaryOperator;
use tarn_types::{DataType as Stored, arrow_field};

use super::function::type_name;
use super::marked::{is_untyped, json_type, marked};
use super::{change, contain, get, path};
use crate::error::{SqlError, state};
use crate::postgres::kept_as_text::cast_function;

/// The planner of operators.
#[derive(Debug)]
pub(super) struct JsonOperators;

impl ExprPlanner for JsonOperators {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let Some(operator) = Operator::of(&expr.op) else { return Ok(PlannerResult::Original(expr)) };
        let RawBinaryExpr { op, left, right } = expr;
        let types = (json_type(&left, schema), json_type(&right, schema));
        let planned = match types {
            // `'{}' ? 'a'`, `$1 -> 'a'`: of what is not told.
            (None, None) if operator.is_of_json_alone() => None,
            (None, None) => return Ok(PlannerResult::Original(RawBinaryExpr { op, left, right })),
            // Of a text and anything else it is a text.
            types if operator == Operator::Concat && is_of_texts(types, &left, &right) => {
                return Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }));
            }
            types => operator.function(types, is_untyped(&left), is_untyped(&right)),
        };
        let Some((function, is_turned)) = planned else {
            return Err(undefined(&op, &left, &right, schema).into());
        };
        let document = |side: Expr, of: Option<Stored>| match of {
            Some(of) => as_document(side, of, schema),
            None => side,
        };
        let of = types.0.or(types.1);
        let sides = match operator.takes_two_documents() {
            true => [document(left, of), document(right, of)],
            false if operator.takes_names() => [document(left, types.0), as_names(right)],
            false => [document(left, types.0), right],
        };
        let [left, right] = sides;
        let args = if is_turned { vec![right, left] } else { vec![left, right] };
        // Now, so that what does not fit is an error about the operator.
        let call = function.call(args);
        match call.to_field(schema) {
            Ok(_) => Ok(PlannerResult::Planned(call)),
            Err(_) => {
                let Expr::ScalarFunction(call) = call else { return Err(undefined(&op, &call, &call, schema).into()) };
                let (one, other) = if is_turned { (1, 0) } else { (0, 1) };
                Err(undefined(&op, &call.args[one], &call.args[other], schema).into())
            }
        }
    }

    /// `doc['a'][0]`, of a `jsonb` alone.
    fn plan_field_access(
        &self,
        expr: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawFieldAccessExpr>> {
        let step = match &expr.field_access {
            GetFieldAccess::ListIndex { key } => key.as_ref().clone(),
            GetFieldAccess::NamedStructField { name } => Expr::Literal(name.clone(), None),
            GetFieldAccess::ListRange { .. } => return Ok(PlannerResult::Original(expr)),
        };
        match json_type(&expr.expr, schema) {
            None => Ok(PlannerResult::Original(expr)),
            Some(of @ Stored::Jsonb) => {
                let document = as_document(expr.expr, of, schema);
                let Some(function) = named(get::JSONB_SUBSCRIPT) else {
                    let field_access = expr.field_access;
                    return Ok(PlannerResult::Original(RawFieldAccessExpr { expr: document, field_access }));
                };
                let call = function.call(vec![document, step]);
                call.to_field(schema)?;
                Ok(PlannerResult::Planned(call))
            }
            Some(_) => Err(SqlError::new(
                state::DATATYPE_MISMATCH,
                "cannot subscript type json because it does not support subscripting",
            )
            .with_hint("doc -> 'a', or cast it to jsonb")
            .into()),
        }
    }
}

/// A parameter of which nobody said the type, where names are taken.
fn as_names(side: Expr) -> Expr {
    match side {
        Expr::Placeholder(Placeholder { id, field: None }) => {
            let field = Arc::new(Field::new("", ArrowType::new_list(ArrowType::Utf8, true), true));
            Expr::Placeholder(Placeholder { id, field: Some(field) })
        }
        side => side,
    }
}

/// Whether `||` joins texts: where one side is a text that is known to be one, or takes the `json` for one.
fn is_of_texts(types: (Option<Stored>, Option<Stored>), left: &Expr, right: &Expr) -> bool {
    match types {
        (Some(_), Some(_)) => false,
        (Some(Stored::Json), None) | (None, Some(Stored::Json)) => true,
        (Some(_), None) => !is_untyped(right),
        (None, _) => !is_untyped(left),
    }
}

/// As its type says it, where DataFusion does not know; what is written out becomes a document.
fn as_document(side: Expr, of: Stored, schema: &DFSchema) -> Expr {
    match side {
        Expr::Placeholder(Placeholder { id, .. }) => {
            let field = Arc::new(arrow_field("", &of, true));
            cast_function(of).call(vec![Expr::Placeholder(Placeholder { id, field: Some(field) })])
        }
        side if is_untyped(&side) => cast_function(of).call(vec![side]),
        side => match json_type(&side, schema) {
            Some(known) if !is_told(&side, schema) => marked(side, known),
            _ => side,
        },
    }
}

/// Whether DataFusion knows that it is JSON, also when it is computed.
fn is_told(side: &Expr, schema: &DFSchema) -> bool {
    !matches!(side, Expr::ScalarSubquery(_))
        && side.to_field(schema).is_ok_and(|(_, field)| !field.metadata().is_empty())
}

/// An operator that may be one of JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Get,
    GetText,
    Path,
    PathText,
    Contains,
    IsContained,
    Exists,
    ExistsAny,
    ExistsAll,
    Concat,
    Delete,
    DeletePath,
    PathExists,
    PathMatches,
}

impl Operator {
    fn of(op: &BinaryOperator) -> Option<Operator> {
        Some(match op {
            BinaryOperator::Arrow => Operator::Get,
            BinaryOperator::LongArrow => Operator::GetText,
            BinaryOperator::HashArrow => Operator::Path,
            BinaryOperator::HashLongArrow => Operator::PathText,
            BinaryOperator::AtArrow => Operator::Contains,
            BinaryOperator::ArrowAt => Operator::IsContained,
            BinaryOperator::Question => Operator::Exists,
            BinaryOperator::QuestionPipe => Operator::ExistsAny,
            BinaryOperator::QuestionAnd => Operator::ExistsAll,
            BinaryOperator::StringConcat => Operator::Concat,
            BinaryOperator::Minus => Operator::Delete,
            BinaryOperator::HashMinus => Operator::DeletePath,
            BinaryOperator::AtQuestion => Operator::PathExists,
            BinaryOperator::AtAt => Operator::PathMatches,
            _ => return None,
        })
    }

    /// Whether there is none of that name for anything else.
    fn is_of_json_alone(self) -> bool {
        use Operator::{Concat, Contains, Delete, IsContained, PathMatches};
        !matches!(self, Contains | IsContained | Concat | Delete | PathMatches)
    }

    fn takes_names(self) -> bool {
        use Operator::{DeletePath, ExistsAll, ExistsAny, Path, PathText};
        matches!(self, Path | PathText | ExistsAny | ExistsAll | DeletePath)
    }

    fn takes_two_documents(self) -> bool {
        matches!(self, Operator::Contains | Operator::IsContained | Operator::Concat)
    }

    /// The function, and whether it takes the right side first.
    fn function(
        self,
        types: (Option<Stored>, Option<Stored>),
        left_is_untyped: bool,
        right_is_untyped: bool,
    ) -> Option<(Arc<ScalarUDF>, bool)> {
        use Operator::{
            Concat, Contains, Delete, DeletePath, Exists, ExistsAll, ExistsAny, Get, GetText, IsContained, Path,
            PathExists, PathMatches, PathText,
        };
        let is_jsonb = |of: Option<Stored>, is_untyped: bool| of == Some(Stored::Jsonb) || (of.is_none() && is_untyped);
        if self.takes_two_documents() {
            let are_jsonb = is_jsonb(types.0, left_is_untyped) && is_jsonb(types.1, right_is_untyped);
            let name = if self == Concat { change::CONCAT } else { contain::CONTAINS };
            return named(name).filter(|_| are_jsonb).map(|function| (function, self == IsContained));
        }
        let name = match (self, types.0?) {
            (Get, Stored::Jsonb) => get::JSONB_GET,
            (Get, _) => get::JSON_GET,
            (GetText, Stored::Jsonb) => get::JSONB_GET_TEXT,
            (GetText, _) => get::JSON_GET_TEXT,
            (Path, Stored::Jsonb) => get::JSONB_PATH,
            (Path, _) => get::JSON_PATH,
            (PathText, Stored::Jsonb) => get::JSONB_PATH_TEXT,
            (PathText, _) => get::JSON_PATH_TEXT,
            (Exists, Stored::Jsonb) => contain::EXISTS,
            (ExistsAny, Stored::Jsonb) => contain::EXISTS_ANY,
            (ExistsAll, Stored::Jsonb) => contain::EXISTS_ALL,
            (Delete, Stored::Jsonb) => change::DELETE,
            (DeletePath, Stored::Jsonb) => change::DELETE_PATH,
            (PathExists, Stored::Jsonb) => path::EXISTS,
            (PathMatches, Stored::Jsonb) => path::MATCHES,
            (Exists | ExistsAny | ExistsAll | Delete | DeletePath | PathExists | PathMatches, _) => return None,
            (Contains | IsContained | Concat, _) => return None,
        };
        named(name).map(|function| (function, false))
    }
}

fn named(name: &str) -> Option<Arc<ScalarUDF>> {
    [get::operators, contain::operators, change::operators, path::operators]
        .into_iter()
        .flat_map(|operators| operators())
        .find(|function| function.name() == name)
}

fn undefined(op: &BinaryOperator, left: &Expr, right: &Expr, schema: &DFSchema) -> SqlError {
    let name = |side: &Expr| match side.to_field(schema) {
        _ if is_untyped(side) => "unknown".to_owned(),
        Ok((_, field)) => json_type(side, schema).map_or_else(|| type_name(&field), |of| of.to_string().to_lowercase()),
        Err(_) => "unknown".to_owned(),
    };
    let message = format!("operator does not exist: {} {op} {}", name(left), name(right));
    SqlError::new(state::UNDEFINED_FUNCTION, message)
        .with_hint("cast the left side to jsonb, and the right one to text, integer, text[] or jsonb")
}
