//! When are two expressions the same one? When they have the same bytes here.
//!
//! ```text
//! term   := tag, parts…            every part has its length in front or a fixed one: terms can be put together without a separator
//! column := id, type, name, default of the table's column: positions, aliases and other columns are not in it
//! ```
//!
//! Operands that may change places are sorted, comparisons point one way, lists of `IN` have no order. Literals have
//! their type, casts stay. A function is its name, if it is immutable, with the session's time zone, which functions of
//! times may look at.
//!
//! Invariant: two expressions with equal bytes give equal values for equal rows. Whoever is not listed here has no
//! bytes: there is then no fragment. [`FORMAT`] changes with every change of this file that gives bytes another
//! meaning.

use std::sync::Arc;

use arrow::datatypes::{DataType as ArrowType, Field, IntervalUnit, Schema, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::format::DEFAULT_FORMAT_OPTIONS;
use datafusion::logical_expr::{Operator, Volatility};
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal, NegativeExpr,
    NotExpr, TryCastExpr,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::scalar::ScalarValue;
use tarn_types::{ColumnId, DataType, SEQNO_ID, TableSchema};

use crate::values::to_scalar;

/// What the bytes mean, and what a kept value is.
pub(crate) const FORMAT: u8 = 1;

/// Why there is no fragment, for `EXPLAIN`.
pub(crate) type Reason = String;

/// Longer ones are cut.
const MAX_REASON: usize = 120;

pub(crate) fn unknown(what: &dyn std::fmt::Display) -> Reason {
    let text = what.to_string();
    text.chars().take(MAX_REASON).collect()
}

/// An expression over the rows of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Term {
    /// Equal for equal expressions, whatever the plan that they stand in.
    pub bytes: Arc<[u8]>,
    /// Whether its evaluation can fail: then it matters of which rows it is evaluated.
    pub fallible: bool,
    /// When it is a column of the table as it is: which one, by position.
    pub column: Option<usize>,
}

/// Parts of a term, put together.
#[derive(Debug, Default, Clone)]
pub(crate) struct Encoder {
    bytes: Vec<u8>,
    fallible: bool,
}

impl Encoder {
    pub(crate) fn new(tag: &[u8]) -> Self {
        let mut encoder = Encoder::default();
        encoder.put(tag);
        encoder
    }

    /// Bytes with their length.
    pub(crate) fn put(&mut self, part: &[u8]) -> &mut Self {
        self.number(part.len() as u64);
        self.bytes.extend_from_slice(part);
        self
    }

    pub(crate) fn number(&mut self, number: u64) -> &mut Self {
        self.bytes.extend_from_slice(&number.to_le_bytes());
        self
    }

    pub(crate) fn flag(&mut self, flag: bool) -> &mut Self {
        self.bytes.push(u8::from(flag));
        self
    }

    pub(crate) fn term(&mut self, term: &Term) -> &mut Self {
        self.fallible |= term.fallible;
        self.put(&term.bytes)
    }

    pub(crate) fn can_fail(&mut self) -> &mut Self {
        self.fallible = true;
        self
    }

    pub(crate) fn finish(&mut self) -> Term {
        let Encoder { bytes, fallible } = std::mem::take(self);
        Term { bytes: bytes.into(), fallible, column: None }
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// The column at `position` of the table's SQL schema, whose last may be the change of a row.
pub(crate) fn table_column(table: &TableSchema, position: usize) -> Result<Term, Reason> {
    let mut encoder = Encoder::new(b"column");
    match table.columns.get(position) {
        Some(column) => {
            encoder.number(u64::from(column.id.0)).put(column.data_type.to_string().as_bytes());
            encoder.put(column.name.as_bytes());
            match &column.default {
                None => encoder.flag(false),
                Some(default) => {
                    let default = to_scalar(default, &column.data_type)
                        .ok_or_else(|| format!("the default of column {}", column.name))?;
                    encoder.flag(true).term(&literal(&default)?)
                }
            };
            // What is kept of columns that have always been there has the keys that it had.
            if let Some(missing) = table.missing(column.id) {
                let missing = to_scalar(missing, &column.data_type)
                    .ok_or_else(|| format!("the older rows of column {}", column.name))?;
                encoder.put(b"missing").term(&literal(&missing)?);
            }
        }
        None => {
            let ColumnId(id) = SEQNO_ID;
            encoder.number(u64::from(id)).put(DataType::Int64.to_string().as_bytes()).put(b"").flag(false);
        }
    }
    Ok(Term { column: Some(position), ..encoder.finish() })
}

/// Expressions over a row whose columns are terms.
pub(crate) struct Canonical<'a> {
    /// One per field of `schema`.
    pub columns: &'a [Term],
    /// The row's fields.
    pub schema: &'a Schema,
}

impl Canonical<'_> {
    pub(crate) fn term(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<Term, Reason> {
        if let Some(column) = expr.downcast_ref::<Column>() {
            let term = self.columns.get(column.index()).ok_or_else(|| unknown(expr))?;
            Ok(term.clone())
        } else if let Some(found) = expr.downcast_ref::<Literal>() {
            literal(found.value())
        } else if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
            self.binary(expr, binary)
        } else if let Some(cast) = expr.downcast_ref::<CastExpr>() {
            let mut encoder = Encoder::new(b"cast");
            let options = cast.cast_options();
            if cast.has_explicit_metadata() || options.format_options != DEFAULT_FORMAT_OPTIONS {
                return Err(unknown(expr));
            }
            encoder.flag(options.safe).put(&data_type(cast.cast_type())?).term(&self.term(cast.expr())?);
            Ok(encoder.can_fail().finish())
        } else if let Some(cast) = expr.downcast_ref::<TryCastExpr>() {
            let mut encoder = Encoder::new(b"try cast");
            if cast.target_metadata().is_some() {
                return Err(unknown(expr));
            }
            encoder.put(&data_type(cast.cast_type())?).term(&self.term(cast.expr())?);
            Ok(encoder.finish())
        } else if let Some(not) = expr.downcast_ref::<NotExpr>() {
            self.unary(b"not", not.arg())
        } else if let Some(is_null) = expr.downcast_ref::<IsNullExpr>() {
            self.unary(b"is null", is_null.arg())
        } else if let Some(is_not_null) = expr.downcast_ref::<IsNotNullExpr>() {
            self.unary(b"is not null", is_not_null.arg())
        } else if let Some(negative) = expr.downcast_ref::<NegativeExpr>() {
            let mut encoder = Encoder::new(b"negative");
            Ok(encoder.can_fail().term(&self.term(negative.arg())?).finish())
        } else if let Some(list) = expr.downcast_ref::<InListExpr>() {
            self.in_list(list)
        } else if let Some(like) = expr.downcast_ref::<LikeExpr>() {
            let mut encoder = Encoder::new(b"like");
            encoder.flag(like.negated()).flag(like.case_insensitive());
            Ok(encoder.term(&self.term(like.expr())?).term(&self.term(like.pattern())?).finish())
        } else if let Some(case) = expr.downcast_ref::<CaseExpr>() {
            self.case(case)
        } else if let Some(call) = expr.downcast_ref::<ScalarFunctionExpr>() {
            self.call(expr, call)
        } else {
            Err(unknown(expr))
        }
    }

    fn unary(&self, tag: &[u8], of: &Arc<dyn PhysicalExpr>) -> Result<Term, Reason> {
        Ok(Encoder::new(tag).term(&self.term(of)?).finish())
    }

    fn binary(&self, expr: &Arc<dyn PhysicalExpr>, binary: &BinaryExpr) -> Result<Term, Reason> {
        use Operator::*;
        let (mut left, mut right) = (self.term(binary.left())?, self.term(binary.right())?);
        let (name, swaps): (&[u8], bool) = match binary.op() {
            Eq => (b"=", true),
            NotEq => (b"<>", true),
            IsDistinctFrom => (b"is distinct", true),
            IsNotDistinctFrom => (b"is not distinct", true),
            BitwiseAnd => (b"&", true),
            BitwiseOr => (b"|", true),
            BitwiseXor => (b"#", true),
            // What is left of a failure is not evaluated.
            And => (b"and", !left.fallible && !right.fallible),
            Or => (b"or", !left.fallible && !right.fallible),
            // Of two NaN, the first one's bits are the result.
            Plus => (b"+", self.is_exact(expr)?),
            Multiply => (b"*", self.is_exact(expr)?),
            Lt | Gt => (b"<", false),
            LtEq | GtEq => (b"<=", false),
            Minus => (b"-", false),
            Divide => (b"/", false),
            Modulo => (b"%", false),
            RegexMatch => (b"~", false),
            RegexIMatch => (b"~*", false),
            RegexNotMatch => (b"!~", false),
            RegexNotIMatch => (b"!~*", false),
            StringConcat => (b"||", false),
            _ => return Err(unknown(expr)),
        };
        if matches!(binary.op(), Gt | GtEq) || swaps && right.bytes < left.bytes {
            std::mem::swap(&mut left, &mut right);
        }
        let mut encoder = Encoder::new(name);
        if !matches!(
            binary.op(),
            Eq | NotEq | Lt | Gt | LtEq | GtEq | And | Or | IsDistinctFrom | IsNotDistinctFrom | StringConcat
        ) {
            encoder.can_fail();
        }
        Ok(encoder.term(&left).term(&right).finish())
    }

    fn is_exact(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<bool, Reason> {
        let given = expr.data_type(self.schema).map_err(|_| unknown(expr))?;
        Ok(!given.is_floating())
    }

    fn in_list(&self, list: &InListExpr) -> Result<Term, Reason> {
        let mut items = list.list().iter().map(|item| self.term(item)).collect::<Result<Vec<_>, _>>()?;
        items.sort_by(|a, b| a.bytes.cmp(&b.bytes));
        items.dedup();
        let mut encoder = Encoder::new(b"in");
        encoder.flag(list.negated()).term(&self.term(list.expr())?).number(items.len() as u64);
        for item in &items {
            encoder.term(item);
        }
        Ok(encoder.finish())
    }

    fn case(&self, case: &CaseExpr) -> Result<Term, Reason> {
        let mut encoder = Encoder::new(b"case");
        let optional = |encoder: &mut Encoder, of: Option<&Arc<dyn PhysicalExpr>>| -> Result<(), Reason> {
            encoder.flag(of.is_some());
            if let Some(of) = of {
                encoder.term(&self.term(of)?);
            }
            Ok(())
        };
        optional(&mut encoder, case.expr())?;
        optional(&mut encoder, case.else_expr())?;
        encoder.number(case.when_then_expr().len() as u64);
        for (when, then) in case.when_then_expr() {
            encoder.term(&self.term(when)?).term(&self.term(then)?);
        }
        Ok(encoder.finish())
    }

    fn call(&self, expr: &Arc<dyn PhysicalExpr>, call: &ScalarFunctionExpr) -> Result<Term, Reason> {
        if call.fun().signature().volatility != Volatility::Immutable {
            return Err(unknown(expr));
        }
        let mut encoder = Encoder::new(b"call");
        encoder.can_fail().put(call.name().as_bytes()).put(&data_type(call.return_type())?);
        session(&mut encoder, call.config_options());
        encoder.number(call.args().len() as u64);
        for arg in call.args() {
            // A literal may be what makes the function another one: its type is part of it.
            encoder.term(&self.term(arg)?);
        }
        Ok(encoder.finish())
    }
}

/// What functions may look at besides their arguments.
fn session(encoder: &mut Encoder, config: &ConfigOptions) {
    encoder.put(config.execution.time_zone.as_deref().unwrap_or("").as_bytes());
    encoder.flag(config.execution.enable_ansi_mode);
}

/// A type without its fields' names; nested ones have none.
pub(crate) fn data_type(of: &ArrowType) -> Result<Vec<u8>, Reason> {
    use ArrowType::*;
    let unit = |unit: &TimeUnit| match unit {
        TimeUnit::Second => 0_u8,
        TimeUnit::Millisecond => 1,
        TimeUnit::Microsecond => 2,
        TimeUnit::Nanosecond => 3,
    };
    Ok(match of {
        Null => vec![0],
        Boolean => vec![1],
        Int8 => vec![2],
        Int16 => vec![3],
        Int32 => vec![4],
        Int64 => vec![5],
        UInt8 => vec![6],
        UInt16 => vec![7],
        UInt32 => vec![8],
        UInt64 => vec![9],
        Float32 => vec![10],
        Float64 => vec![11],
        Utf8 => vec![12],
        LargeUtf8 => vec![13],
        Utf8View => vec![14],
        Binary => vec![15],
        LargeBinary => vec![16],
        BinaryView => vec![17],
        Date32 => vec![18],
        Date64 => vec![19],
        Time32(of) => vec![20, unit(of)],
        Time64(of) => vec![21, unit(of)],
        Duration(of) => vec![22, unit(of)],
        Interval(of) => vec![
            23,
            match of {
                IntervalUnit::YearMonth => 0,
                IntervalUnit::DayTime => 1,
                IntervalUnit::MonthDayNano => 2,
            },
        ],
        Decimal128(precision, scale) => vec![24, *precision, scale.cast_unsigned()],
        Decimal256(precision, scale) => vec![25, *precision, scale.cast_unsigned()],
        Timestamp(of, None) => vec![26, unit(of)],
        Timestamp(of, Some(zone)) => [&[27, unit(of)], zone.as_bytes()].concat(),
        other => return Err(unknown(&format!("type {other}"))),
    })
}

/// Types and whether they may be NULL, in order, without names.
pub(crate) fn fields<'a>(
    encoder: &mut Encoder,
    fields: impl ExactSizeIterator<Item = &'a Arc<Field>>,
) -> Result<(), Reason> {
    encoder.number(fields.len() as u64);
    for field in fields {
        encoder.put(&data_type(field.data_type())?).flag(field.is_nullable());
    }
    Ok(())
}

fn literal(value: &ScalarValue) -> Result<Term, Reason> {
    use ScalarValue::*;
    let mut encoder = Encoder::new(b"literal");
    encoder.put(&data_type(&value.data_type())?).flag(value.is_null());
    if value.is_null() {
        return Ok(encoder.finish());
    }
    match value {
        Boolean(Some(v)) => encoder.flag(*v),
        Float32(Some(v)) => encoder.put(&v.to_bits().to_le_bytes()),
        Float64(Some(v)) => encoder.put(&v.to_bits().to_le_bytes()),
        Decimal128(Some(v), ..) => encoder.put(&v.to_le_bytes()),
        Decimal256(Some(v), ..) => encoder.put(&v.to_le_bytes()),
        Int8(Some(v)) => encoder.put(&v.to_le_bytes()),
        Int16(Some(v)) => encoder.put(&v.to_le_bytes()),
        Int32(Some(v)) | Date32(Some(v)) | Time32Second(Some(v)) | Time32Millisecond(Some(v)) => {
            encoder.put(&v.to_le_bytes())
        }
        IntervalYearMonth(Some(v)) => encoder.put(&v.to_le_bytes()),
        Int64(Some(v)) | Date64(Some(v)) | Time64Microsecond(Some(v)) | Time64Nanosecond(Some(v)) => {
            encoder.put(&v.to_le_bytes())
        }
        TimestampSecond(Some(v), _)
        | TimestampMillisecond(Some(v), _)
        | TimestampMicrosecond(Some(v), _)
        | TimestampNanosecond(Some(v), _) => encoder.put(&v.to_le_bytes()),
        DurationSecond(Some(v))
        | DurationMillisecond(Some(v))
        | DurationMicrosecond(Some(v))
        | DurationNanosecond(Some(v)) => encoder.put(&v.to_le_bytes()),
        UInt8(Some(v)) => encoder.put(&v.to_le_bytes()),
        UInt16(Some(v)) => encoder.put(&v.to_le_bytes()),
        UInt32(Some(v)) => encoder.put(&v.to_le_bytes()),
        UInt64(Some(v)) => encoder.put(&v.to_le_bytes()),
        Utf8(Some(v)) | Utf8View(Some(v)) | LargeUtf8(Some(v)) => encoder.put(v.as_bytes()),
        Binary(Some(v)) | BinaryView(Some(v)) | LargeBinary(Some(v)) => encoder.put(v),
        IntervalDayTime(Some(v)) => encoder.put(&v.days.to_le_bytes()).put(&v.milliseconds.to_le_bytes()),
        IntervalMonthDayNano(Some(v)) => {
            encoder.put(&v.months.to_le_bytes()).put(&v.days.to_le_bytes()).put(&v.nanoseconds.to_le_bytes())
        }
        other => return Err(unknown(&format!("literal {other}"))),
    };
    Ok(encoder.finish())
}

#[cfg(test)]
mod tests {
    use datafusion::physical_expr::expressions::{binary, cast, col, in_list, is_null, like, lit, not};

    use super::*;

    fn schema(names: &[&str]) -> Schema {
        Schema::new(names.iter().map(|name| Field::new(*name, ArrowType::Int64, true)).collect::<Vec<_>>())
    }

    /// Of a table with the columns `a`, `b`, `c`, when these of it are there.
    fn columns(names: &[&str]) -> Vec<Term> {
        names.iter().map(|name| Encoder::new(b"column").put(name.as_bytes()).finish()).collect()
    }

    fn term(names: &[&str], make: impl Fn(&Schema) -> Arc<dyn PhysicalExpr>) -> Result<Term, Reason> {
        let schema = schema(names);
        Canonical { columns: &columns(names), schema: &schema }.term(&make(&schema))
    }

    fn compare(schema: &Schema, left: &str, op: Operator, right: &str) -> Arc<dyn PhysicalExpr> {
        binary(col(left, schema).unwrap(), op, col(right, schema).unwrap(), schema).unwrap()
    }

    #[test]
    fn positions_and_the_order_of_operands_do_not_matter() {
        use Operator::*;
        let same = |op, other| {
            let one = term(&["a", "b"], |schema| compare(schema, "a", op, "b")).unwrap();
            let two = term(&["c", "b", "a"], |schema| compare(schema, "b", other, "a")).unwrap();
            assert_eq!(one, two, "{op} {other}");
        };
        [(Eq, Eq), (NotEq, NotEq), (Plus, Plus), (Multiply, Multiply), (Lt, Gt), (GtEq, LtEq)]
            .into_iter()
            .for_each(|(op, other)| same(op, other));
        for op in [Minus, Divide, Modulo, Lt] {
            let one = term(&["a", "b"], |schema| compare(schema, "a", op, "b")).unwrap();
            assert_ne!(one, term(&["a", "b"], |schema| compare(schema, "b", op, "a")).unwrap(), "{op}");
        }
    }

    #[test]
    fn different_expressions_have_different_bytes() {
        type Make = Box<dyn Fn(&Schema) -> Arc<dyn PhysicalExpr>>;
        let all: Vec<Make> = vec![
            Box::new(|schema| col("a", schema).unwrap()),
            Box::new(|schema| col("b", schema).unwrap()),
            Box::new(|schema| not(is_null(col("a", schema).unwrap()).unwrap()).unwrap()),
            Box::new(|schema| is_null(col("a", schema).unwrap()).unwrap()),
            Box::new(|schema| cast(col("a", schema).unwrap(), schema, ArrowType::Int32).unwrap()),
            Box::new(|schema| cast(col("a", schema).unwrap(), schema, ArrowType::Int16).unwrap()),
            Box::new(|schema| in_list(col("a", schema).unwrap(), vec![lit(1_i64)], &false, schema).unwrap()),
            Box::new(|schema| in_list(col("a", schema).unwrap(), vec![lit(1_i64)], &true, schema).unwrap()),
            Box::new(|schema| in_list(col("a", schema).unwrap(), vec![lit(1_i64), lit(2_i64)], &true, schema).unwrap()),
            Box::new(|_| lit(1_i64)),
            Box::new(|_| lit(1_i32)),
            Box::new(|_| lit(ScalarValue::Int64(None))),
            Box::new(|_| lit("1")),
            Box::new(|_| lit(ScalarValue::Decimal128(Some(1), 15, 2))),
            Box::new(|_| lit(ScalarValue::Decimal128(Some(1), 15, 3))),
            Box::new(|_| lit(0.0_f64)),
            Box::new(|_| lit(-0.0_f64)),
            Box::new(|schema| compare(schema, "a", Operator::Eq, "b")),
            Box::new(|schema| compare(schema, "a", Operator::NotEq, "b")),
            Box::new(|schema| compare(schema, "a", Operator::IsDistinctFrom, "b")),
        ];
        let terms: Vec<Term> = all.iter().map(|make| term(&["a", "b"], make).unwrap()).collect();
        for (at, one) in terms.iter().enumerate() {
            for other in &terms[at + 1..] {
                assert_ne!(one, other);
            }
        }
    }

    #[test]
    fn lists_have_no_order_and_no_duplicates() {
        let of = |items: &'static [i64]| {
            term(&["a"], move |schema| {
                let items = items.iter().map(|item| lit(*item)).collect();
                in_list(col("a", schema).unwrap(), items, &false, schema).unwrap()
            })
        };
        assert_eq!(of(&[3, 1, 2, 1]).unwrap(), of(&[1, 2, 3]).unwrap());
        assert_ne!(of(&[1, 2]).unwrap(), of(&[1, 2, 3]).unwrap());
    }

    #[test]
    fn what_can_fail_is_not_moved() {
        let divided = |schema: &Schema, first: bool| {
            let quotient = binary(lit(10_i64), Operator::Divide, col("a", schema).unwrap(), schema).unwrap();
            let large = binary(quotient, Operator::Gt, lit(1_i64), schema).unwrap();
            let not_zero = binary(col("a", schema).unwrap(), Operator::NotEq, lit(0_i64), schema).unwrap();
            let (left, right) = if first { (large, not_zero) } else { (not_zero, large) };
            binary(left, Operator::And, right, schema).unwrap()
        };
        let one = term(&["a"], |schema| divided(schema, true)).unwrap();
        assert!(one.fallible);
        assert_ne!(one, term(&["a"], |schema| divided(schema, false)).unwrap());
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let schema = Schema::new(vec![Field::new("a", ArrowType::Utf8, true)]);
        let text = col("a", &schema).unwrap();
        let like = like(false, false, Arc::clone(&text), lit("%a"), &schema).unwrap();
        let columns = columns(&["a"]);
        let canonical = Canonical { columns: &columns, schema: &schema };
        assert!(canonical.term(&like).is_ok());
        let dynamic = datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr::new(vec![text], like);
        let dynamic: Arc<dyn PhysicalExpr> = Arc::new(dynamic);
        assert!(canonical.term(&dynamic).unwrap_err().contains("DynamicFilter"));
    }
}
