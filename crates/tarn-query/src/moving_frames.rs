//! What is an aggregate over a frame that moves? DataFusion takes off it what leaves the frame, and refuses those off
//! which nothing can be taken: `bool_and(x) OVER (ORDER BY y ROWS 1 PRECEDING)`, `string_agg`, `bit_or`.
//!
//! Those are computed anew for each row, of the rows of its frame, as PostgreSQL does where nothing can be taken off.
//! It takes as long for each row as the frame is.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::concat;
use arrow::datatypes::{FieldRef, Schema};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use datafusion::scalar::ScalarValue;

/// It gives 0, and not NULL, when all that it had was taken off.
const BIT_XOR: &str = "bit_xor";

/// What an aggregate over a frame that moves is computed with.
pub(crate) fn moving(function: &Arc<dyn AggregateUDFImpl>, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
    let sliding = function.create_sliding_accumulator(args.clone())?;
    if sliding.supports_retract_batch() && function.name() != BIT_XOR {
        return Ok(sliding);
    }
    let made_of = MadeOf {
        return_field: args.return_field,
        schema: args.schema.clone(),
        ignore_nulls: args.ignore_nulls,
        order_bys: args.order_bys.to_vec(),
        is_reversed: args.is_reversed,
        name: args.name.to_owned(),
        is_distinct: args.is_distinct,
        exprs: args.exprs.to_vec(),
        expr_fields: args.expr_fields.to_vec(),
    };
    Ok(Box::new(Anew { function: Arc::clone(function), made_of, pieces: VecDeque::new() }))
}

/// [`AccumulatorArgs`] that are kept.
#[derive(Debug)]
struct MadeOf {
    return_field: FieldRef,
    schema: Schema,
    ignore_nulls: bool,
    order_bys: Vec<PhysicalSortExpr>,
    is_reversed: bool,
    name: String,
    is_distinct: bool,
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    expr_fields: Vec<FieldRef>,
}

impl MadeOf {
    fn args(&self) -> AccumulatorArgs<'_> {
        AccumulatorArgs {
            return_field: Arc::clone(&self.return_field),
            schema: &self.schema,
            ignore_nulls: self.ignore_nulls,
            order_bys: &self.order_bys,
            is_reversed: self.is_reversed,
            name: &self.name,
            is_distinct: self.is_distinct,
            exprs: &self.exprs,
            expr_fields: &self.expr_fields,
        }
    }
}

/// An aggregate that is computed anew of the rows of each frame.
struct Anew {
    function: Arc<dyn AggregateUDFImpl>,
    made_of: MadeOf,
    /// The arguments of the rows of the frame, in order. Each piece has a column for each argument, and rows.
    pieces: VecDeque<Vec<ArrayRef>>,
}

impl fmt::Debug for Anew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Anew")
            .field("function", &self.function.name())
            .field("n_pieces", &self.pieces.len())
            .finish_non_exhaustive()
    }
}

impl Accumulator for Anew {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        if values.first().is_some_and(|column| !column.is_empty()) {
            self.pieces.push_back(values.to_vec());
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut accumulator = self.function.accumulator(self.made_of.args())?;
        if let Some(first) = self.pieces.front() {
            let mut columns = Vec::with_capacity(first.len());
            for idx in 0..first.len() {
                let parts: Vec<&dyn Array> = self.pieces.iter().map(|piece| piece[idx].as_ref()).collect();
                columns.push(concat(&parts)?);
            }
            accumulator.update_batch(&columns)?;
        }
        accumulator.evaluate()
    }

    fn size(&self) -> usize {
        let pieces = self.pieces.iter().flatten().map(|column| column.get_array_memory_size());
        size_of_val(self) + pieces.sum::<usize>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        exec_err!("a frame is in one place")
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        exec_err!("a frame is in one place")
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let mut n_rows = values.first().map_or(0, |column| column.len());
        while n_rows > 0 {
            let Some(piece) = self.pieces.front_mut() else { break };
            let len = piece[0].len();
            if len > n_rows {
                piece.iter_mut().for_each(|column| *column = column.slice(n_rows, len - n_rows));
                break;
            }
            n_rows -= len;
            self.pieces.pop_front();
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int32Array;
    use arrow::datatypes::{DataType, Field};
    use datafusion::functions_aggregate::bit_and_or_xor::{bit_and_udaf, bit_xor_udaf};
    use datafusion::logical_expr::AggregateUDF;

    use super::*;

    fn of(function: &AggregateUDF) -> Box<dyn Accumulator> {
        let field: FieldRef = Arc::new(Field::new("x", DataType::Int32, true));
        let schema = Schema::empty();
        let args = AccumulatorArgs {
            return_field: Arc::clone(&field),
            schema: &schema,
            ignore_nulls: false,
            order_bys: &[],
            is_reversed: false,
            name: "x",
            is_distinct: false,
            exprs: &[],
            expr_fields: &[field],
        };
        moving(function.inner(), args).unwrap()
    }

    fn integers(values: &[Option<i32>]) -> Vec<ArrayRef> {
        vec![Arc::new(Int32Array::from(values.to_vec()))]
    }

    /// What PostgreSQL 15 says.
    #[test]
    fn what_left_a_frame_leaves_nothing_behind() {
        let mut all = of(&bit_and_udaf());
        assert_eq!(all.evaluate().unwrap(), ScalarValue::Int32(None));
        all.update_batch(&integers(&[Some(1), Some(7)])).unwrap();
        all.update_batch(&integers(&[Some(6), None])).unwrap();
        assert_eq!(all.evaluate().unwrap(), ScalarValue::Int32(Some(0)));
        all.retract_batch(&integers(&[Some(1)])).unwrap();
        assert_eq!(all.evaluate().unwrap(), ScalarValue::Int32(Some(6)));
        all.retract_batch(&integers(&[Some(7), Some(6)])).unwrap();
        assert_eq!(all.evaluate().unwrap(), ScalarValue::Int32(None));
        let mut odd = of(&bit_xor_udaf());
        odd.update_batch(&integers(&[Some(5), None])).unwrap();
        odd.retract_batch(&integers(&[Some(5)])).unwrap();
        assert_eq!(odd.evaluate().unwrap(), ScalarValue::Int32(None));
    }
}
