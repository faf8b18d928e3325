//! What are the columns of a document? `FROM jsonb_to_record(doc) AS x(a int, b text)` has those that its alias names,
//! of these types; `jsonb_to_recordset` has a row for each object of an array. Each column is what `->>` gives, cast:
//!
//! ```sql
//! FROM LATERAL (SELECT (e ->> 'a')::int AS a, e ->> 'b' AS b) AS x, where e is unnest of the objects
//! ```

use tarn_query::is_inet;
use tarn_query::sqlparser::ast::helpers::attached_token::AttachedToken;
use tarn_query::sqlparser::ast::{
    ArrayElemTypeDef, BinaryOperator, CaseWhen, CastKind, DataType, Expr, FunctionArg, FunctionArgExpr, Ident,
    SelectItem, TableAlias, TableFactor, TableFunctionArgs, Value,
};

use super::list::{RECORD, RECORDS};
use super::marked::AS_JSON;
use super::written::{document, named};
use crate::error::{Result, SqlError, state};
use crate::names::fold;
use crate::postgres::calls::{binary, call, number, take};
use crate::postgres::fitted::{OverlongText, fitted};
use crate::postgres::in_from::query_of;
use crate::postgres::kept_as_text::{JSON, JSONB};

/// A piece of JSON as a value of the type of the second argument, which is NULL; the third says where it is from, the
/// fourth of how many dimensions its type is written.
pub(in crate::postgres) const JSON_AS: &str = "tarn_json_as";

/// A call in FROM becomes a query of the columns that its alias names.
///
/// Errors: `42601` without types of columns; `0A000` for the alias of anything else that has types.
pub(in crate::postgres) fn in_from(factor: &mut TableFactor) -> Result<()> {
    let (name, alias, args) = match factor {
        TableFactor::Table {
            name, alias, args: Some(TableFunctionArgs { args, .. }), with_ordinality: false, ..
        }
        | TableFactor::Function { name, alias, args, with_ordinality: false, .. } => (name, alias, args),
        _ => return Ok(()),
    };
    let typed = alias.as_ref().map_or(&[][..], |alias| &alias.columns);
    let (of, is_set) = match named(name) {
        Some((of, rest)) if rest == "_to_record" => (of, false),
        Some((of, rest)) if rest == "_to_recordset" => (of, true),
        _ if typed.iter().any(|column| column.data_type.is_some()) => {
            return Err(SqlError::unsupported(
                format!("types of columns of {name} are not supported"),
                "cast the columns; json_to_record and json_to_recordset take them",
            ));
        }
        _ => return Ok(()),
    };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(doc))] = &mut args[..] else { return Ok(()) };
    document(doc, of);
    let objects = match is_set {
        true => call(RECORDS[of], vec![take(doc)]),
        // Of NULL there is a row, too.
        false => {
            let empty = Expr::Value(Value::SingleQuotedString("{}".to_owned()).with_empty_span());
            call(RECORD[of], vec![call("coalesce", vec![take(doc), call([JSON, JSONB][of], vec![empty])])])
        }
    };
    let object = call(AS_JSON[of], vec![call("unnest", vec![objects])]);
    let items = typed.iter().map(|column| match &column.data_type {
        Some(of) => {
            Ok(SelectItem::ExprWithAlias { expr: member(&object, &column.name, of)?, alias: column.name.clone() })
        }
        None => Err(no_types()),
    });
    let items = items.collect::<Result<Vec<_>>>()?;
    let Some(TableAlias { explicit, name, at, .. }) = alias.take().filter(|_| !items.is_empty()) else {
        return Err(no_types());
    };
    let Some(subquery) = query_of(items) else { return Ok(()) };
    let alias = TableAlias { explicit, name, columns: vec![], at };
    *factor = TableFactor::Derived { lateral: true, subquery, alias: Some(alias), sample: None };
    Ok(())
}

fn no_types() -> SqlError {
    SqlError::new(state::SYNTAX_ERROR, "a column definition list is required for functions returning \"record\"")
        .with_hint("FROM json_to_record(…) AS x(a int, b text)")
}

fn dimensions(of: &DataType) -> u64 {
    match of {
        DataType::Array(ArrayElemTypeDef::SquareBracket(item, _)) => 1 + dimensions(item),
        _ => 0,
    }
}

/// A member of an object as a value of this type.
fn member(object: &Expr, name: &Ident, of: &DataType) -> Result<Expr> {
    let key = || Expr::Value(Value::SingleQuotedString(fold(name)).with_empty_span());
    let get = |op| Expr::Nested(Box::new(binary(object.clone(), op, key())));
    let cast = |of: Expr, data_type: DataType| Expr::Cast {
        kind: CastKind::DoubleColon,
        expr: Box::new(of),
        data_type,
        array: false,
        format: None,
    };
    let text = get(BinaryOperator::LongArrow);
    match of {
        // Of types that somebody made it is not known here what they are.
        of if matches!(of, DataType::Array(_) | DataType::Custom(..)) && !is_inet(of) => {
            let null = cast(Expr::Value(Value::Null.with_empty_span()), of.clone());
            let read = call(JSON_AS, vec![get(BinaryOperator::Arrow), null, key(), number(dimensions(of))]);
            Ok(fitted(&read, of, OverlongText::Refused)?.unwrap_or(read))
        }
        DataType::Text | DataType::Varchar(None) => Ok(text),
        // A `null` of JSON is NULL here.
        DataType::JSON | DataType::JSONB => {
            let null = Expr::Value(Value::Null.with_empty_span());
            Ok(Expr::Case {
                case_token: AttachedToken::empty(),
                end_token: AttachedToken::empty(),
                operand: None,
                conditions: vec![CaseWhen { condition: Expr::IsNull(Box::new(text)), result: cast(null, of.clone()) }],
                else_result: Some(Box::new(cast(get(BinaryOperator::Arrow), of.clone()))),
            })
        }
        of => Ok(match fitted(&text, of, OverlongText::Refused)? {
            Some(fitted) => fitted,
            None => cast(text, of.clone()),
        }),
    }
}
