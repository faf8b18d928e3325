//! What do `host(x)`, `masklen(x)`, `x << y` and their kin give? Functions of addresses, row by row; operators are some
//! of them, by their own names.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, Int32Array, Int64Array, LargeBinaryArray, StringArray};
use arrow::datatypes::{DataType, Int32Type, Int64Type};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use tarn_query::datafusion;
use tarn_types::Inet;

use super::INET;
use crate::error::{SqlError, state};
use crate::postgres::averages::undefined;
use crate::postgres::rowwise::ArgumentRows;

/// The functions that statements name, and two that are refused.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    NAMED.map(|what| Arc::new(what.function())).to_vec()
}

const NAMED: [InetFunction; 11] = [
    InetFunction::Abbrev,
    InetFunction::Broadcast,
    InetFunction::Family,
    InetFunction::Host,
    InetFunction::HostMask,
    InetFunction::MaskBits,
    InetFunction::Merge,
    InetFunction::NetMask,
    InetFunction::Network,
    InetFunction::SameFamily,
    InetFunction::SetMask,
];

/// Which of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum InetFunction {
    Abbrev,
    Broadcast,
    Family,
    Host,
    HostMask,
    MaskBits,
    Merge,
    NetMask,
    Network,
    SameFamily,
    SetMask,
    /// `<<`
    Within,
    /// `<<=`
    WithinOrSame,
    /// `>>`
    Contains,
    /// `>>=`
    ContainsOrSame,
    /// `&&`
    Overlaps,
    /// `~`
    Not,
    /// `&`
    And,
    /// `|`
    Or,
    /// `+`
    Plus,
    /// `-` of a number.
    Minus,
    /// `-` of two addresses.
    Between,
}

impl InetFunction {
    fn function(self) -> ScalarUDF {
        ScalarUDF::from(OfInets { what: self, signature: Signature::user_defined(Volatility::Immutable) })
    }

    pub(super) fn call(self, args: Vec<Expr>) -> Expr {
        Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(self.function()), args))
    }

    /// Of that name, among those that statements name.
    pub(super) fn is_named(name: &str) -> bool {
        NAMED.iter().any(|what| what.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            InetFunction::Abbrev => "abbrev",
            InetFunction::Broadcast => "broadcast",
            InetFunction::Family => "family",
            InetFunction::Host => "host",
            InetFunction::HostMask => "hostmask",
            InetFunction::MaskBits => "masklen",
            InetFunction::Merge => "inet_merge",
            InetFunction::NetMask => "netmask",
            InetFunction::Network => "network",
            InetFunction::SameFamily => "inet_same_family",
            InetFunction::SetMask => "set_masklen",
            InetFunction::Within => "<<",
            InetFunction::WithinOrSame => "<<=",
            InetFunction::Contains => ">>",
            InetFunction::ContainsOrSame => ">>=",
            InetFunction::Overlaps => "&&",
            InetFunction::Not => "~",
            InetFunction::And => "&",
            InetFunction::Or => "|",
            InetFunction::Plus => "+",
            InetFunction::Minus | InetFunction::Between => "-",
        }
    }

    fn takes(self) -> Vec<DataType> {
        match self {
            InetFunction::Abbrev
            | InetFunction::Broadcast
            | InetFunction::Family
            | InetFunction::Host
            | InetFunction::HostMask
            | InetFunction::MaskBits
            | InetFunction::NetMask
            | InetFunction::Network
            | InetFunction::Not => vec![INET],
            InetFunction::SetMask => vec![INET, DataType::Int32],
            InetFunction::Plus | InetFunction::Minus => vec![INET, DataType::Int64],
            _ => vec![INET, INET],
        }
    }

    fn gives(self) -> DataType {
        match self {
            InetFunction::Abbrev | InetFunction::Host => DataType::Utf8,
            InetFunction::Family | InetFunction::MaskBits => DataType::Int32,
            InetFunction::Between => DataType::Int64,
            InetFunction::SameFamily
            | InetFunction::Within
            | InetFunction::WithinOrSame
            | InetFunction::Contains
            | InetFunction::ContainsOrSame
            | InetFunction::Overlaps => DataType::Boolean,
            _ => INET,
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfInets {
    what: InetFunction,
    signature: Signature,
}

impl ScalarUDFImpl for OfInets {
    fn name(&self) -> &str {
        self.what.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// A text may be one that is written out, which is cast; others are refused before (`checked`).
    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let takes = self.what.takes();
        let is_taken = |(own, want): (&DataType, &DataType)| {
            own.is_null() || own == want || *want == INET && own.is_string() || *want != INET && own.is_integer()
        };
        let is_right = types.len() == takes.len() && types.iter().zip(&takes).all(is_taken);
        if is_right { Ok(takes) } else { Err(undefined(self.name(), types).into()) }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.what.gives())
    }

    /// An operator stands between its sides.
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let is_operator = !self.name().starts_with(|first: char| first.is_ascii_alphabetic());
        Ok(match args {
            [of] if is_operator => format!("{}{}", self.name(), of.schema_name()),
            [left, right] if is_operator => format!("{} {} {}", left.schema_name(), self.name(), right.schema_name()),
            args => {
                let args: Vec<String> = args.iter().map(|arg| arg.schema_name().to_string()).collect();
                format!("{}({})", self.name(), args.join(","))
            }
        })
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = ArgumentRows::of(&args)?;
        let answer = self.answer(&rows)?;
        rows.answer(answer)
    }
}

impl OfInets {
    fn answer(&self, rows: &ArgumentRows) -> Result<ArrayRef> {
        type Done<T> = std::result::Result<T, SqlError>;
        let inet = |idx: usize, row: usize| -> Done<Inet> {
            Ok(Inet::of_row(rows.columns[idx].as_binary::<i64>().value(row))?)
        };
        let int = |row: usize| rows.columns[1].as_primitive::<Int32Type>().value(row);
        let long = |row: usize| rows.columns[1].as_primitive::<Int64Type>().value(row);
        let texts = |of: &dyn Fn(Inet) -> String| -> Result<ArrayRef> {
            let all = rows.there().map(|row| row.map(|row| Ok(of(inet(0, row)?))).transpose());
            Ok(Arc::new(all.collect::<Done<StringArray>>()?))
        };
        let ints = |of: &dyn Fn(Inet) -> i32| -> Result<ArrayRef> {
            let all = rows.there().map(|row| row.map(|row| Ok(of(inet(0, row)?))).transpose());
            Ok(Arc::new(all.collect::<Done<Int32Array>>()?))
        };
        let truths = |of: &dyn Fn(Inet, Inet) -> bool| -> Result<ArrayRef> {
            let all = rows.there().map(|row| row.map(|row| Ok(of(inet(0, row)?, inet(1, row)?))).transpose());
            Ok(Arc::new(all.collect::<Done<BooleanArray>>()?))
        };
        let inets = |of: &dyn Fn(usize) -> Done<Inet>| -> Result<ArrayRef> {
            let all = rows.there().map(|row| row.map(|row| Ok(of(row)?.to_bytes())).transpose());
            Ok(Arc::new(all.collect::<Done<LargeBinaryArray>>()?))
        };
        match self.what {
            InetFunction::Abbrev => texts(&|of| of.to_string()),
            InetFunction::Host => texts(&|of| of.host_text()),
            InetFunction::Family => ints(&|of| if of.is_v4() { 4 } else { 6 }),
            InetFunction::MaskBits => ints(&|of| of.mask_bits().into()),
            InetFunction::Broadcast => inets(&|row| {
                let of = inet(0, row)?;
                with(of, of.number() | of.host_mask(), of.mask_bits())
            }),
            InetFunction::HostMask => inets(&|row| {
                let of = inet(0, row)?;
                with(of, of.host_mask(), of.width())
            }),
            InetFunction::NetMask => inets(&|row| {
                let of = inet(0, row)?;
                with(of, all_bits(of) & !of.host_mask(), of.width())
            }),
            InetFunction::SetMask => inets(&|row| {
                let of = inet(0, row)?;
                let bits = match int(row) {
                    -1 => Some(of.width()),
                    bits => u8::try_from(bits).ok().filter(|bits| *bits <= of.width()),
                };
                let message = || format!("invalid mask length: {}", int(row));
                let bits = bits.ok_or_else(|| SqlError::new(state::INVALID_PARAMETER_VALUE, message()))?;
                with(of, of.number(), bits)
            }),
            InetFunction::Not => inets(&|row| {
                let of = inet(0, row)?;
                with(of, all_bits(of) & !of.number(), of.mask_bits())
            }),
            InetFunction::And => inets(&|row| {
                let (left, right) = same_family(inet(0, row)?, inet(1, row)?, "AND")?;
                with(left, left.number() & right.number(), left.mask_bits().max(right.mask_bits()))
            }),
            InetFunction::Or => inets(&|row| {
                let (left, right) = same_family(inet(0, row)?, inet(1, row)?, "OR")?;
                with(left, left.number() | right.number(), left.mask_bits().max(right.mask_bits()))
            }),
            InetFunction::Plus => inets(&|row| moved(inet(0, row)?, long(row).into())),
            InetFunction::Minus => inets(&|row| moved(inet(0, row)?, long(row).wrapping_neg().into())),
            InetFunction::Between => {
                let of = |row: usize| {
                    let (left, right) = same_family(inet(0, row)?, inet(1, row)?, "subtract")?;
                    // Around the end of all addresses, as PostgreSQL counts.
                    let way = left.number().wrapping_sub(right.number()).cast_signed();
                    i64::try_from(way).map_err(|_| beyond())
                };
                let all = rows.there().map(|row| row.map(of).transpose());
                Ok(Arc::new(all.collect::<Done<Int64Array>>()?))
            }
            InetFunction::SameFamily => truths(&|left, right| left.is_v4() == right.is_v4()),
            InetFunction::Within => {
                truths(&|left, right| right.contains(&left) && left.mask_bits() > right.mask_bits())
            }
            InetFunction::WithinOrSame => truths(&|left, right| right.contains(&left)),
            InetFunction::Contains => {
                truths(&|left, right| left.contains(&right) && left.mask_bits() < right.mask_bits())
            }
            InetFunction::ContainsOrSame => truths(&|left, right| left.contains(&right)),
            InetFunction::Overlaps => truths(&|left, right| left.contains(&right) || right.contains(&left)),
            InetFunction::Network | InetFunction::Merge => exec_err!("{} is refused when it is planned", self.name()),
        }
    }
}

/// Another address of the family of this one, under that mask.
fn with(of: Inet, number: u128, mask_bits: u8) -> Result<Inet, SqlError> {
    let other = of.with_number(number).and_then(|other| Inet::new(other.address(), mask_bits));
    other.ok_or_else(beyond)
}

fn all_bits(of: Inet) -> u128 {
    if of.is_v4() { u32::MAX.into() } else { u128::MAX }
}

/// So many addresses farther.
fn moved(of: Inet, by: i128) -> Result<Inet, SqlError> {
    let number = of.number().checked_add_signed(by).ok_or_else(beyond)?;
    with(of, number, of.mask_bits())
}

fn same_family(left: Inet, right: Inet, what: &str) -> Result<(Inet, Inet), SqlError> {
    if left.is_v4() == right.is_v4() {
        return Ok((left, right));
    }
    let message = format!("cannot {what} inet values of different sizes");
    Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message)
        .with_hint("inet_same_family(a, b) says which are of one"))
}

fn beyond() -> SqlError {
    SqlError::new(state::NUMERIC_OUT_OF_RANGE, "result is out of range")
}
