//! Of which conditions do a file's bounds say that they are true of all its rows?
//!
//! A condition is true of all rows of a block when no row can make it false or unknown: when the metastore's pruning
//! would leave the block out for the opposite condition, and no value is NULL. So one piece of code decides on both.
//!
//! Proves nothing: bounds of floats (NaN has none), of texts that SQL orders otherwise than the metastore (UUID, JSON,
//! JSONB), of a column that the file does not have or had as another type, and everything that is more than one column
//! beside literals.

use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, Literal, NotExpr,
};
use tarn_metastore::Block;
use tarn_metastore::prune::{Operator as Op, Predicate, may_match};
use tarn_types::{ColumnId, DataType, TableSchema, Value};

use super::canonical::Term;
use crate::values::from_scalar;

/// What bounds can prove of a condition.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ColumnClaim {
    column: ColumnId,
    says: ClaimPredicate,
}

#[derive(Debug, Clone, PartialEq)]
enum ClaimPredicate {
    IsNull,
    IsNotNull,
    /// A value is there, and for none of these is it possible that it stands in the operator's relation to a value of
    /// the column.
    Never(Vec<(Op, Value)>),
    /// Every value is equal to one of these.
    OneOf(Vec<Value>),
}

impl ColumnClaim {
    /// Of a condition over a row whose columns are `columns`; `None`: nothing can be proven of it.
    pub(crate) fn of(condition: &dyn PhysicalExpr, columns: &[Term], table: &TableSchema) -> Option<ColumnClaim> {
        let column = |expr: &dyn PhysicalExpr| {
            let position = columns.get(expr.downcast_ref::<Column>()?.index())?.column?;
            let column = table.columns.get(position)?;
            let ordered = !matches!(
                column.data_type,
                DataType::Float32
                    | DataType::Float64
                    | DataType::Interval
                    | DataType::Inet
                    | DataType::Uuid
                    | DataType::Json
                    | DataType::Jsonb
                    | DataType::Array(_)
            );
            Some((column.id, column.data_type, ordered))
        };
        if let Some(is_null) = condition.downcast_ref::<IsNullExpr>() {
            return Some(ColumnClaim { column: column(is_null.arg().as_ref())?.0, says: ClaimPredicate::IsNull });
        }
        if let Some(is_not_null) = condition.downcast_ref::<IsNotNullExpr>() {
            return Some(ColumnClaim {
                column: column(is_not_null.arg().as_ref())?.0,
                says: ClaimPredicate::IsNotNull,
            });
        }
        if let Some(list) = condition.downcast_ref::<InListExpr>() {
            let (id, data_type, true) = column(list.expr().as_ref())? else { return None };
            let items = list.list().iter().map(|item| value(item.as_ref(), &data_type)).collect::<Option<Vec<_>>>()?;
            let says = match list.negated() {
                true => ClaimPredicate::Never(items.into_iter().map(|item| (Op::Eq, item)).collect()),
                false => ClaimPredicate::OneOf(items),
            };
            return Some(ColumnClaim { column: id, says });
        }
        let negated = condition.downcast_ref::<NotExpr>();
        let bare = negated.map_or(condition, |not| not.arg().as_ref());
        if let Some((id, DataType::Bool, _)) = column(bare) {
            return Some(ColumnClaim {
                column: id,
                says: ClaimPredicate::Never(vec![(Op::Eq, Value::Bool(negated.is_some()))]),
            });
        }
        let binary = condition.downcast_ref::<BinaryExpr>()?;
        let (left, right) = (binary.left().as_ref(), binary.right().as_ref());
        let ((id, data_type, true), literal, op) = (match column(left) {
            Some(of) => (of, right, *binary.op()),
            None => (column(right)?, left, binary.op().swap()?),
        }) else {
            return None;
        };
        let value = value(literal, &data_type)?;
        let never = |ops: &[Op]| ClaimPredicate::Never(ops.iter().map(|op| (*op, value.clone())).collect());
        let says = match op {
            Operator::Lt => never(&[Op::Ge]),
            Operator::LtEq => never(&[Op::Gt]),
            Operator::Gt => never(&[Op::Le]),
            Operator::GtEq => never(&[Op::Lt]),
            Operator::NotEq => never(&[Op::Eq]),
            Operator::Eq => ClaimPredicate::OneOf(vec![value]),
            _ => return None,
        };
        Some(ColumnClaim { column: id, says })
    }

    /// Whether it is true of all rows of these blocks, dead ones too.
    pub(crate) fn is_proven<'a>(&self, mut blocks: impl Iterator<Item = &'a Block>) -> bool {
        blocks.all(|block| self.is_true_of(block))
    }

    fn is_true_of(&self, block: &Block) -> bool {
        let Some(stats) = block.column(self.column) else { return false };
        let impossible = |op: Op, value: &Value| {
            !may_match(block, &Predicate { column: self.column, op, values: vec![value.clone()] })
        };
        match &self.says {
            ClaimPredicate::IsNull => stats.null_count == block.n_rows,
            ClaimPredicate::IsNotNull => stats.null_count == 0,
            ClaimPredicate::Never(of) => stats.null_count == 0 && of.iter().all(|(op, value)| impossible(*op, value)),
            ClaimPredicate::OneOf(values) => {
                stats.null_count == 0
                    && values.iter().any(|value| impossible(Op::Lt, value) && impossible(Op::Gt, value))
            }
        }
    }
}

fn value(literal: &dyn PhysicalExpr, data_type: &DataType) -> Option<Value> {
    from_scalar(literal.downcast_ref::<Literal>()?.value(), data_type)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{DataType as ArrowType, Field, Schema};
    use datafusion::physical_expr::expressions::{binary, col, in_list, is_not_null, is_null, lit, not};
    use proptest::prelude::*;
    use tarn_metastore::ColumnStats;
    use tarn_types::{KeyPart, TableId, TableOptions, TabletId};

    use super::*;
    use crate::fragments::canonical::table_column;

    /// `n` BIGINT, `x` DOUBLE PRECISION, `flag` BOOLEAN.
    fn table() -> TableSchema {
        let types = [("n", DataType::Int64), ("x", DataType::Float64), ("flag", DataType::Bool)];
        let column = |(id, (name, data_type)): (u32, (&str, DataType))| tarn_types::Column {
            id: ColumnId(id),
            name: name.to_owned(),
            data_type,
            nullable: true,
            default: None,
        };
        TableSchema {
            id: TableId(1),
            name: "t".to_owned(),
            columns: (1..).zip(types).map(column).collect(),
            key: vec![KeyPart { column_idx: 0, descending: false }],
            n_partition_key: 1,
            first_tablet: TabletId(1),
            options: TableOptions::default(),
        }
    }

    fn schema() -> Schema {
        Schema::new(vec![
            Field::new("n", ArrowType::Int64, true),
            Field::new("x", ArrowType::Float64, true),
            Field::new("flag", ArrowType::Boolean, true),
        ])
    }

    fn claim(condition: &Arc<dyn PhysicalExpr>) -> Option<ColumnClaim> {
        let table = table();
        let columns: Vec<Term> = (0..3).map(|at| table_column(&table, at).unwrap()).collect();
        ColumnClaim::of(condition.as_ref(), &columns, &table)
    }

    fn stats(id: u32, min: Option<Value>, max: Option<Value>, null_count: u64) -> ColumnStats {
        ColumnStats { column: ColumnId(id), min, max, exact: false, null_count, bytes: 0 }
    }

    fn block(n_rows: u64, columns: Vec<ColumnStats>) -> Block {
        Block { row_group: 0, first_row: 0, n_rows, bytes: 0, columns }
    }

    type Condition = (String, Arc<dyn PhysicalExpr>, Box<dyn Fn(Option<i64>) -> bool>);

    fn condition(kind: usize, v: i64, w: i64) -> Condition {
        let schema = schema();
        let n = || col("n", &schema).unwrap();
        let compare = |op| binary(n(), op, lit(v), &schema).unwrap();
        let items = || vec![lit(v), lit(w)];
        let is = move |test: fn(i64, i64) -> bool| -> Box<dyn Fn(Option<i64>) -> bool> {
            Box::new(move |n| n.is_some_and(|n| test(n, v)))
        };
        match kind {
            0 => ("<".into(), compare(Operator::Lt), is(|n, v| n < v)),
            1 => ("<=".into(), compare(Operator::LtEq), is(|n, v| n <= v)),
            2 => (">".into(), compare(Operator::Gt), is(|n, v| n > v)),
            3 => (">=".into(), compare(Operator::GtEq), is(|n, v| n >= v)),
            4 => ("=".into(), compare(Operator::Eq), is(|n, v| n == v)),
            5 => ("<>".into(), compare(Operator::NotEq), is(|n, v| n != v)),
            6 => ("swapped <".into(), binary(lit(v), Operator::Lt, n(), &schema).unwrap(), is(|n, v| v < n)),
            7 => (
                "in".into(),
                in_list(n(), items(), &false, &schema).unwrap(),
                Box::new(move |n| n.is_some_and(|n| n == v || n == w)),
            ),
            8 => (
                "not in".into(),
                in_list(n(), items(), &true, &schema).unwrap(),
                Box::new(move |n| n.is_some_and(|n| n != v && n != w)),
            ),
            9 => ("is null".into(), is_null(n()).unwrap(), Box::new(|n| n.is_none())),
            _ => ("is not null".into(), is_not_null(n()).unwrap(), Box::new(|n| n.is_some())),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn what_is_proven_is_true_of_every_row(
            rows in proptest::collection::vec(proptest::option::weighted(0.9, -3..4i64), 1..4),
            kind in 0..11usize, v in -4..5i64, w in -4..5i64, wider in 0..2i64, lose_min: bool,
        ) {
            let (name, expr, truth) = condition(kind, v, w);
            let values: Vec<i64> = rows.iter().flatten().copied().collect();
            let min = values.iter().min().filter(|_| !lose_min).map(|min| Value::Int64(min - wider));
            let max = values.iter().max().map(|max| Value::Int64(max + wider));
            let nulls = rows.iter().filter(|row| row.is_none()).count() as u64;
            let block = block(rows.len() as u64, vec![stats(1, min, max, nulls)]);
            let proven = claim(&expr).unwrap().is_proven([&block].into_iter());
            if proven {
                prop_assert!(rows.iter().all(|row| truth(*row)), "{name} {v} {w} of {rows:?}");
            }
            // Exact bounds prove all that bounds can: of one value everything.
            if wider == 0 && !lose_min && rows.len() == 1 {
                prop_assert_eq!(proven, truth(rows[0]), "{} {} {} of {:?}", name, v, w, rows);
            }
        }
    }

    #[test]
    fn floats_other_types_and_unknown_columns_prove_nothing() {
        let schema = schema();
        let x = binary(col("x", &schema).unwrap(), Operator::Gt, lit(0.0_f64), &schema).unwrap();
        assert_eq!(claim(&x), None);
        let sum = binary(col("n", &schema).unwrap(), Operator::Plus, lit(1_i64), &schema).unwrap();
        let sum = binary(sum, Operator::Gt, lit(0_i64), &schema).unwrap();
        assert_eq!(claim(&sum), None);
        let (_, above, _) = condition(2, 0, 0);
        let above = claim(&above).unwrap();
        let int = |v| Some(Value::Int64(v));
        assert!(above.is_proven([&block(2, vec![stats(1, int(1), int(2), 0)])].into_iter()));
        assert!(!above.is_proven([&block(2, vec![stats(1, int(1), int(2), 1)])].into_iter()), "a NULL");
        assert!(!above.is_proven([&block(2, vec![stats(7, int(1), int(2), 0)])].into_iter()), "another column");
        let narrow = stats(1, Some(Value::Text("1".into())), Some(Value::Text("2".into())), 0);
        assert!(!above.is_proven([&block(2, vec![narrow])].into_iter()), "another type");
        let of = |v| block(1, vec![stats(1, int(v), int(v), 0)]);
        assert!(!above.is_proven([&of(1), &of(0)].into_iter()), "one of two blocks");
    }

    #[test]
    fn booleans_stand_for_themselves() {
        let schema = schema();
        let flag = || col("flag", &schema).unwrap();
        let of = |v| block(1, vec![stats(3, Some(Value::Bool(v)), Some(Value::Bool(v)), 0)]);
        let both = block(2, vec![stats(3, Some(Value::Bool(false)), Some(Value::Bool(true)), 0)]);
        for (expr, wanted) in [(flag(), true), (not(flag()).unwrap(), false)] {
            let claim = claim(&expr).unwrap();
            assert!(claim.is_proven([&of(wanted)].into_iter()));
            assert!(!claim.is_proven([&of(!wanted)].into_iter()));
            assert!(!claim.is_proven([&both].into_iter()));
        }
    }
}
