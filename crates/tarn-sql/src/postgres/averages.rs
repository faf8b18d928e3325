//! Of which type is an average? Of integers it is a `numeric` in PostgreSQL, with at least sixteen digits that count:
//! `avg(x)` of 2 and 3 is 2.5000000000000000. DataFusion's is a float, and that of numerics has four digits more than
//! they have, the rest is cut.
//!
//! Here integers and numerics are added up exactly (`moments`), and the sum is divided as PostgreSQL divides it
//! (`division`). Floats and intervals are DataFusion's; what leaves the range of floats is an error, and `avg(real)` a
//! `double precision`, as there.

use std::sync::Arc;

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Field, FieldRef};
use datafusion::error::Result;
use datafusion::functions_aggregate::average::Avg;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF, Signature, Volatility,
};
use tarn_query::datafusion;

use super::division::{quotient, scale_of};
use super::frames::{OfFrame, mean_of};
use super::interval_aggregates::INTERVAL;
use super::moments::{MomentsAccumulator, MomentsResult, OfDistinct, OfGroups, Sum, state_fields};
use crate::digits::{Digits, Rule};
use crate::error::{SqlError, state};

/// `avg`, to be registered over DataFusion's.
pub(super) fn avg() -> AggregateUDF {
    AggregateUDF::from(Average { inner: Avg::new().into(), signature: Signature::user_defined(Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Average {
    inner: AggregateUDF,
    signature: Signature,
}

/// Digits before and behind the point of exact numbers.
pub(super) fn digits_of(of: &DataType) -> Option<(i8, i8)> {
    Some(match of {
        DataType::Int16 => (5, 0),
        DataType::Int32 => (10, 0),
        DataType::Int64 => (19, 0),
        DataType::Decimal128(precision, scale) => ((*precision as i8 - scale).max(0), *scale),
        _ => return None,
    })
}

/// The type that a value is averaged as. `None`: there is no average of it.
pub(super) fn averaged_as(of: &DataType) -> Option<DataType> {
    Some(match of {
        DataType::Int8 | DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt32 => DataType::Int64,
        DataType::UInt64 => DataType::Decimal128(20, 0),
        DataType::Float16 | DataType::Float32 | DataType::Null => DataType::Float64,
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            DataType::Decimal128(*precision, *scale)
        }
        DataType::Decimal128(precision, scale) if *scale < 0 => DataType::Decimal128(*precision, 0),
        DataType::Dictionary(_, value) => averaged_as(value)?,
        of if of.is_numeric() => of.clone(),
        _ => return None,
    })
}

/// The type of the average of exact numbers.
fn average_type(of: &DataType) -> Option<DataType> {
    let (whole, scale) = digits_of(of)?;
    let scale = scale_of(whole, scale);
    Some(DataType::Decimal128((whole + scale).clamp(1, DECIMAL128_MAX_PRECISION as i8) as u8, scale))
}

impl Average {
    /// Of exact numbers, what a group comes to.
    fn finish(args: &AccumulatorArgs<'_>) -> Option<(MomentsResult<Sum>, DataType)> {
        let (_, of) = digits_of(args.expr_fields.first()?.data_type())?;
        let DataType::Decimal128(_, scale) = *args.return_field.data_type() else { return None };
        let finish = move |kept: &Sum| match kept.n {
            0 => Ok(None),
            n => quotient((kept.sum, of), (n.into(), 0), scale).map(Some),
        };
        Some((Arc::new(finish), args.return_field.data_type().clone()))
    }
}

impl AggregateUDFImpl for Average {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let coerced = match types {
            [DataType::Duration(_) | DataType::Interval(_) | DataType::Time64(_)] => Some(types.to_vec()),
            [of] => averaged_as(of).map(|of| vec![of]),
            _ => None,
        };
        // What there is no average of is refused when its type is asked for.
        Ok(coerced.unwrap_or_else(|| types.to_vec()))
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            // A rule puts another function into its place.
            [DataType::Duration(_) | DataType::Interval(_) | DataType::Time64(_)] => Ok(INTERVAL),
            [of] if averaged_as(of).is_some() => average_type(of).map_or_else(|| self.inner.return_type(types), Ok),
            _ => Err(undefined(self.name(), types).into()),
        }
    }

    fn return_field(&self, fields: &[FieldRef]) -> Result<FieldRef> {
        let of = fields[0].data_type();
        let average = Field::new(self.name(), self.return_type(std::slice::from_ref(of))?, true);
        let least = Digits::of(&fields[0]).map(Digits::least).or_else(|| digits_of(of).map(|(_, scale)| scale));
        Ok(Arc::new(Digits::mark(average, Rule::Quotient, least.unwrap_or(0))))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        match digits_of(args.input_fields[0].data_type()) {
            Some(_) => Ok(state_fields::<Sum>(args.name, args.is_distinct)),
            None => self.inner.state_fields(args),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match Average::finish(&args) {
            Some((finish, to)) if args.is_distinct => Ok(Box::new(OfDistinct::new(finish, to))),
            Some((finish, to)) => Ok(Box::new(MomentsAccumulator::new(finish, to))),
            None => self.inner.accumulator(args),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match Average::finish(&args) {
            Some(_) => self.accumulator(args),
            None if args.expr_fields[0].data_type().is_floating() && !args.is_distinct => {
                Ok(Box::new(OfFrame::new(args.return_field.data_type().clone(), mean_of)))
            }
            None => self.inner.create_sliding_accumulator(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        match Average::finish(&args) {
            Some(_) => !args.is_distinct,
            None => self.inner.groups_accumulator_supported(args),
        }
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        match Average::finish(&args) {
            Some((finish, to)) => Ok(Box::new(OfGroups::new(finish, to))),
            None => self.inner.create_groups_accumulator(args),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

/// `function avg(text) does not exist`.
pub(super) fn undefined(name: &str, types: &[DataType]) -> SqlError {
    let name_of = |of: &DataType| {
        let field = Field::new("", of.clone(), true);
        crate::rows::pg_type(&field).map_or_else(|_| of.to_string(), |of| crate::rows::long_name(&of))
    };
    let types = types.iter().map(name_of).collect::<Vec<_>>().join(", ");
    SqlError::new(state::UNDEFINED_FUNCTION, format!("function {name}({types}) does not exist"))
        .with_hint("cast the argument to a number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_have_room_for_their_digits() {
        let of = |of: DataType| average_type(&of);
        assert_eq!(of(DataType::Int32), Some(DataType::Decimal128(30, 20)));
        assert_eq!(of(DataType::Int64), Some(DataType::Decimal128(38, 19)));
        assert_eq!(of(DataType::Decimal128(15, 2)), Some(DataType::Decimal128(33, 20)));
        assert_eq!(of(DataType::Decimal128(38, 12)), Some(DataType::Decimal128(38, 16)));
        assert_eq!(of(DataType::Decimal128(38, 38)), Some(DataType::Decimal128(38, 38)));
        assert_eq!(of(DataType::Float64), None);
    }
}
