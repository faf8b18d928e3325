//! What is the sine of an angle in degrees? Exact where it can be: `sind(30)` is 0.5 and `tand(45)` is 1, which those
//! of radians miss by their last digits.
//!
//! As in PostgreSQL, so that all digits are the same: an angle is brought into the first quarter, where it is the sine
//! of at most 30 degrees or the cosine of at most 60, and each of these is scaled by what the same processor computes
//! for its last angle.

use std::f64::consts::FRAC_PI_4;

use crate::error::{SqlError, state};

const RADIANS: f64 = 0.017_453_292_519_943_295;

/// A function of an angle, or one that has an angle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum AngleFunction {
    Sin,
    Cos,
    Tan,
    Cot,
    ArcSin,
    ArcCos,
    ArcTan,
    /// Of two values.
    ArcTan2,
}

impl AngleFunction {
    /// The functions.
    pub(super) const ALL: [AngleFunction; 8] = [
        AngleFunction::Sin,
        AngleFunction::Cos,
        AngleFunction::Tan,
        AngleFunction::Cot,
        AngleFunction::ArcSin,
        AngleFunction::ArcCos,
        AngleFunction::ArcTan,
        AngleFunction::ArcTan2,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            AngleFunction::Sin => "sind",
            AngleFunction::Cos => "cosd",
            AngleFunction::Tan => "tand",
            AngleFunction::Cot => "cotd",
            AngleFunction::ArcSin => "asind",
            AngleFunction::ArcCos => "acosd",
            AngleFunction::ArcTan => "atand",
            AngleFunction::ArcTan2 => "atan2d",
        }
    }

    /// Of one value.
    ///
    /// Errors: `22003` for an infinite angle, and for what is no sine.
    pub(super) fn of(self, value: f64) -> Result<f64, SqlError> {
        let out = match self {
            AngleFunction::Sin | AngleFunction::Cos | AngleFunction::Tan | AngleFunction::Cot => value.is_infinite(),
            AngleFunction::ArcSin | AngleFunction::ArcCos => value.abs() > 1.0,
            AngleFunction::ArcTan | AngleFunction::ArcTan2 => false,
        };
        if out {
            return Err(SqlError::new(state::NUMERIC_OUT_OF_RANGE, "input is out of range"));
        }
        if value.is_nan() {
            return Ok(value);
        }
        Ok(match self {
            AngleFunction::Sin => {
                let (angle, sign) = first_half(value);
                sign * sin(if angle > 90.0 { 180.0 - angle } else { angle })
            }
            AngleFunction::Cos => {
                let (angle, _) = first_half(value);
                if angle > 90.0 { -cos(180.0 - angle) } else { cos(angle) }
            }
            AngleFunction::Tan | AngleFunction::Cot => {
                let (angle, sign) = first_half(value);
                let (angle, sign) = if angle > 90.0 { (180.0 - angle, -sign) } else { (angle, sign) };
                let ratio =
                    |angle| if self == AngleFunction::Tan { sin(angle) / cos(angle) } else { cos(angle) / sin(angle) };
                // There is one zero.
                sign * (ratio(angle) / ratio(45.0)) + 0.0
            }
            AngleFunction::ArcSin => arc_sin(value.abs()) * 1.0_f64.copysign(value),
            AngleFunction::ArcCos if value >= 0.0 => arc_cos(value),
            AngleFunction::ArcCos => 90.0 + arc_sin(-value),
            AngleFunction::ArcTan | AngleFunction::ArcTan2 => of_radians(value.atan()),
        })
    }

    /// Of the sides of a triangle.
    pub(super) fn of_sides(opposite: f64, adjacent: f64) -> f64 {
        of_radians(opposite.atan2(adjacent))
    }
}

/// The angle within half a turn that has the same cosine, and the sign of its sine. -0 keeps its sign.
fn first_half(angle: f64) -> (f64, f64) {
    let angle = angle % 360.0;
    let (angle, sign) = if angle < 0.0 { (-angle, -1.0) } else { (angle, 1.0) };
    if angle > 180.0 { (360.0 - angle, -sign) } else { (angle, sign) }
}

/// Of the first quarter.
fn sin(angle: f64) -> f64 {
    if angle <= 30.0 { small_sin(angle) } else { small_cos(90.0 - angle) }
}

/// Of the first quarter.
fn cos(angle: f64) -> f64 {
    if angle <= 60.0 { small_cos(angle) } else { small_sin(90.0 - angle) }
}

/// Of 0 to 30 degrees, where it is 0.5.
fn small_sin(angle: f64) -> f64 {
    ((angle * RADIANS).sin() / (30.0 * RADIANS).sin()) / 2.0
}

/// Of 0 to 60 degrees, where it is 0.5.
fn small_cos(angle: f64) -> f64 {
    let below_one = |angle: f64| 1.0 - (angle * RADIANS).cos();
    1.0 - (below_one(angle) / below_one(60.0)) / 2.0
}

/// Of 0 to 1.
fn arc_sin(value: f64) -> f64 {
    if value <= 0.5 { (value.asin() / 0.5_f64.asin()) * 30.0 } else { 90.0 - (value.acos() / 0.5_f64.acos()) * 60.0 }
}

/// Of 0 to 1.
fn arc_cos(value: f64) -> f64 {
    if value <= 0.5 { 90.0 - (value.asin() / 0.5_f64.asin()) * 30.0 } else { (value.acos() / 0.5_f64.acos()) * 60.0 }
}

/// Exact for multiples of 45.
fn of_radians(radians: f64) -> f64 {
    radians / FRAC_PI_4 * 45.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_exact_where_they_can_be() {
        let of = |angle: AngleFunction, value| angle.of(value).unwrap();
        assert_eq!(
            [
                of(AngleFunction::Sin, 30.0),
                of(AngleFunction::Sin, 180.0),
                of(AngleFunction::Cos, 60.0),
                of(AngleFunction::Cos, 90.0)
            ],
            [0.5, 0.0, 0.5, 0.0]
        );
        let zeros = [
            of(AngleFunction::Sin, -0.0),
            of(AngleFunction::Sin, -180.0),
            of(AngleFunction::Sin, 180.0),
            of(AngleFunction::Cos, 270.0),
        ];
        assert_eq!(zeros.map(f64::is_sign_negative), [true, true, false, false]);
        assert_eq!([of(AngleFunction::Tan, 270.0), of(AngleFunction::Tan, 180.0).signum()], [f64::NEG_INFINITY, 1.0]);
        assert_eq!(
            [of(AngleFunction::Tan, 45.0), of(AngleFunction::Cot, 45.0), of(AngleFunction::Tan, 135.0)],
            [1.0, 1.0, -1.0]
        );
        assert_eq!(
            [of(AngleFunction::ArcSin, 0.5), of(AngleFunction::ArcCos, -0.5), of(AngleFunction::ArcTan, 1.0)],
            [30.0, 120.0, 45.0]
        );
        assert!(AngleFunction::ArcSin.of(1.5).is_err() && AngleFunction::Sin.of(f64::INFINITY).is_err());
    }

    /// What PostgreSQL 15 says.
    #[test]
    fn all_digits_are_the_same() {
        let of = |angle: AngleFunction, value| angle.of(value).unwrap();
        assert_eq!(
            [of(AngleFunction::Cot, 30.0), of(AngleFunction::Cot, 1e-5)],
            [1.732_050_807_568_877_4, 5_729_577.951_308_172]
        );
        assert_eq!(
            [of(AngleFunction::Tan, 1.0), of(AngleFunction::Tan, 200.0)],
            [0.017_455_064_928_217_59, 0.363_970_234_266_202_4]
        );
        assert_eq!(
            [of(AngleFunction::Sin, 7.0), of(AngleFunction::Cos, 89.999)],
            [0.121_869_343_405_147_49, 1.745_329_251_914_054e-5]
        );
    }
}
