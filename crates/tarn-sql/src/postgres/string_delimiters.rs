//! What stands between the texts of `string_agg(x, y)`? In PostgreSQL `y` of the row whose text follows, and of `bytea`
//! they are bytes. DataFusion's delimiter is one text that is written out, and makes a text of bytes.
//!
//! So such a call is a function of the arrays that `array_agg(x)` and `array_agg(y)` collect, in one order.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::{Array, AsArray, BinaryViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use tarn_query::sqlparser::ast::{
    DataType as SqlType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName, SelectItem,
};
use tarn_query::{datafusion, each_expr};

use super::averages::undefined;
use super::calls::{call, is_named};
use super::rowwise::ArgumentRows;
use crate::names::column_of;

const STRING_AGG: &str = "string_agg";

/// The function of arrays.
const JOINED: &str = "tarn_joined";

/// A column that is one is called as the aggregate.
pub(super) fn name(item: &mut SelectItem) {
    if let SelectItem::UnnamedExpr(expr) = item
        && arguments(expr).is_some()
    {
        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::new(STRING_AGG) };
    }
}

/// Writes a call as that of arrays.
pub(super) fn rewrite(expr: &mut Expr) {
    let Some((function, arguments)) = arguments(expr) else { return };
    let array = |of: &FunctionArg| {
        let mut array = function.clone();
        array.name = ObjectName::from(vec![Ident::new("array_agg")]);
        if let FunctionArguments::List(list) = &mut array.args {
            list.args = vec![of.clone()];
        }
        Expr::Function(array)
    };
    *expr = call(JOINED, arguments.iter().map(array).collect());
}

/// A call whose delimiter is another for each row, or bytes, and its arguments. Of distinct pairs the arrays would not
/// be as long as each other.
fn arguments(expr: &Expr) -> Option<(&Function, &[FunctionArg; 2])> {
    let Expr::Function(function) = expr else { return None };
    let FunctionArguments::List(list) = &function.args else { return None };
    if !is_named(&function.name, STRING_AGG) || list.duplicate_treatment.is_some() {
        return None;
    }
    let arguments: &[FunctionArg; 2] = list.args.as_slice().try_into().ok()?;
    let FunctionArg::Unnamed(FunctionArgExpr::Expr(delimiter)) = &arguments[1] else { return None };
    let is_other = |part: &Expr| match part {
        Expr::Cast { data_type: SqlType::Bytea, .. } => ControlFlow::Break(()),
        part if column_of(part).is_some() => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    each_expr(delimiter, is_other).is_break().then_some((function, arguments))
}

/// The function.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![Arc::new(Joined { signature: Signature::any(2, Volatility::Immutable) }.into())]
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Joined {
    signature: Signature,
}

impl ScalarUDFImpl for Joined {
    fn name(&self) -> &str {
        JOINED
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let items: Vec<DataType> = types
            .iter()
            .map(|of| match of {
                DataType::List(item) => item.data_type().clone(),
                of => of.clone(),
            })
            .collect();
        let all_are = |is: fn(&DataType) -> bool| items.iter().all(|of| is(of) || of.is_null());
        if all_are(DataType::is_string) {
            return Ok(DataType::Utf8View);
        }
        match all_are(DataType::is_binary) {
            true => Ok(DataType::Binary),
            false => Err(undefined(STRING_AGG, &items).into()),
        }
    }

    /// NULL of no text.
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        Ok(Arc::new(Field::new(JOINED, self.return_type(&types)?, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = ArgumentRows::of(&args)?;
        let lists = rows.columns.iter().map(|column| column.as_list_opt::<i32>()).collect::<Option<Vec<_>>>();
        let Some([of, between]) = lists.as_deref() else { return exec_err!("{JOINED} is of two arrays") };
        let (values, delimiters) =
            (cast(of.values(), &DataType::BinaryView)?, cast(between.values(), &DataType::BinaryView)?);
        let (values, delimiters) = (values.as_binary_view(), delimiters.as_binary_view());
        let mut all = BinaryViewBuilder::with_capacity(rows.n_rows);
        for row in 0..rows.n_rows {
            let [first, first_between] = [of, between].map(|list| list.value_offsets()[row] as usize);
            let len = if of.is_valid(row) { of.value_length(row) as usize } else { 0 };
            let mut joined: Option<Vec<u8>> = None;
            for idx in (0..len).filter(|idx| values.is_valid(first + idx)) {
                let is_first = joined.is_none();
                let joined = joined.get_or_insert_default();
                if !is_first && delimiters.is_valid(first_between + idx) {
                    joined.extend_from_slice(delimiters.value(first_between + idx));
                }
                joined.extend_from_slice(values.value(first + idx));
            }
            all.append_option(joined);
        }
        rows.answer(cast(&all.finish(), args.return_field.data_type())?)
    }
}
