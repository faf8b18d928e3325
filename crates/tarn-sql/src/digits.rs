//! With how many digits behind the point is a `numeric` shown, where its column has room for more?
//!
//! PostgreSQL's numbers have each their own: a quotient has at least sixteen digits that count, so `5 / 2.0` has
//! sixteen behind the point and `1 / 3.0` twenty. A column here has one number of them for all rows. Quotients are
//! rounded to PostgreSQL's digits and filled up with zeros; this mark beside the column's type says that the zeros are
//! not shown. Columns of `numeric` without a precision have one, too, and none of their values shows zeros at its end.
//!
//! What is computed of such a column has the column's digits: the number is the same, with zeros behind it. Which marks
//! outlive it is said in `postgres/shown_digits.rs`.

use arrow::datatypes::{DataType, Field};
use tarn_types::{BARE_NUMERIC, DIGITS_METADATA};

/// PostgreSQL's fewest digits that count.
pub(crate) const MIN_DIGITS: i8 = 16;

/// Digits of a group, in which PostgreSQL keeps numbers.
pub(crate) const GROUP: i32 = 4;

/// What the digits of a value hang on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Groups of four digits of what was divided.
    Quotient,
    /// The same, where nothing is shown as 0.
    Variance,
    /// The same, of the square: a root of such a quotient.
    Deviation,
    /// Groups of the number that it is the root of.
    Root,
    /// Its own digits, one by one: exponentials, and logarithms.
    Single,
    /// Always as many: powers.
    Fixed,
    /// Those that are no zeros at its end.
    Natural,
}

const RULES: [(&str, Rule); 7] = [
    ("quotient", Rule::Quotient),
    ("variance", Rule::Variance),
    ("deviation", Rule::Deviation),
    ("root", Rule::Root),
    ("single", Rule::Single),
    ("fixed", Rule::Fixed),
    ("natural", Rule::Natural),
];

/// Digits behind the point of a column of numerics, or of arrays of such.
pub(crate) fn scale_of(of: &DataType) -> Option<i8> {
    match of {
        DataType::Decimal128(_, scale) => Some(*scale),
        DataType::List(item) => scale_of(item.data_type()),
        _ => None,
    }
}

/// A column whose values have digits of their own; or the items of its arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Digits {
    rule: Rule,
    /// Digits behind the point that each value has at least.
    least: i8,
    /// Digits behind the point of the column.
    scale: i8,
}

impl Digits {
    pub(crate) fn new(rule: Rule, least: i8, scale: i8) -> Digits {
        Digits { rule, least, scale }
    }

    /// The column of numerics, or of arrays of such, marked with its fewest digits behind the point.
    pub(crate) fn mark(field: Field, rule: Rule, least: i8) -> Field {
        let Some(scale) = scale_of(field.data_type()) else { return field };
        Digits { rule, least, scale }.told(field)
    }

    /// The column, marked so.
    pub(crate) fn told(self, field: Field) -> Field {
        let mut metadata = field.metadata().clone();
        metadata.insert(DIGITS_METADATA.to_owned(), self.tag());
        field.with_metadata(metadata)
    }

    /// What stands beside the type of a column.
    pub(crate) fn tag(self) -> String {
        let rule = RULES.iter().find(|(_, of)| *of == self.rule).map_or("", |(rule, _)| rule);
        format!("{rule} {} {}", self.least, self.scale)
    }

    /// What a column is marked with. `None`: with nothing, or what was cast since.
    pub(crate) fn of(field: &Field) -> Option<Digits> {
        let mut words = field.metadata().get(DIGITS_METADATA)?.split(' ');
        let word = words.next()?;
        let rule = RULES.iter().find(|(of, _)| *of == word).map(|(_, rule)| *rule)?;
        let (least, scale) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        (scale_of(field.data_type()) == Some(scale) && scale >= 0).then_some(Digits { rule, least, scale })
    }

    /// Digits behind the point of the column.
    pub(crate) fn scale(self) -> i8 {
        self.scale
    }

    /// The same, of a column that has so many digits behind the point.
    pub(crate) fn with_scale(self, scale: i8) -> Digits {
        Digits { scale, ..self }
    }

    /// By which rule its values are shown.
    pub(crate) fn rule(self) -> Rule {
        self.rule
    }

    /// Whether a `numeric` without a precision keeps what the column has, and shows it so.
    pub(crate) fn is_bare(field: &Field) -> bool {
        let tarn_types::DataType::Decimal { scale: most, .. } = BARE_NUMERIC else { return false };
        Digits::of(field).is_some_and(|of| of.rule == Rule::Natural && of.scale <= most)
    }

    /// The items of an array of this column's, as a column.
    pub(crate) fn told_of_items(field: &Field, item: &Field) -> Field {
        match Digits::of(field) {
            Some(digits) => digits.told(item.clone()),
            None => item.clone(),
        }
    }

    /// Digits behind the point that each value has at least.
    pub(crate) fn least(self) -> i8 {
        self.least
    }

    /// A value as it is shown, with its digits behind the point.
    pub(crate) fn shown(self, value: i128) -> (i128, i8) {
        let mut wanted = self.wanted(value);
        // Rounded to more digits than that: the first group of the dividend was the smaller one.
        if matches!(self.rule, Rule::Quotient | Rule::Variance)
            && wanted < self.scale
            && !is_multiple(value, self.scale - wanted)
        {
            wanted += GROUP as i8;
        }
        let (mut value, mut scale) = (value, self.scale);
        while scale > wanted && value % 10 == 0 {
            (value, scale) = (value / 10, scale - 1);
        }
        // One that the column had no room for.
        while scale < wanted && is_multiple(value, self.scale) {
            let Some(longer) = value.checked_mul(10).filter(|longer| longer.unsigned_abs() < 10_u128.pow(38)) else {
                break;
            };
            (value, scale) = (longer, scale + 1);
        }
        (value, scale)
    }

    fn wanted(self, value: i128) -> i8 {
        let decimals = |value: i128| (value.unsigned_abs() as f64).log10() - f64::from(self.scale);
        let weight_of_square = || (2.0 * decimals(value) / f64::from(GROUP)).floor() as i32;
        let digits = match self.rule {
            Rule::Variance | Rule::Deviation if value == 0 => return 0,
            Rule::Quotient | Rule::Variance => return self.of_quotient(value),
            Rule::Natural => return self.least,
            Rule::Root if value == 0 => i32::from(MIN_DIGITS) - 1,
            _ if value == 0 => MIN_DIGITS.into(),
            Rule::Deviation => i32::from(MIN_DIGITS) - weight_of_square() * GROUP,
            Rule::Root => i32::from(MIN_DIGITS) + 1 - (weight_of_square() + 1) * GROUP / 2,
            Rule::Fixed => MIN_DIGITS.into(),
            Rule::Single => i32::from(MIN_DIGITS) - decimals(value) as i32,
        };
        digits.clamp(self.fewest(), 38) as i8
    }

    fn of_quotient(self, value: i128) -> i8 {
        let (weight, is_power) = match value.unsigned_abs() {
            0 => (-1, false),
            value => {
                let digits = value.ilog10();
                let weight = (digits as i32 - i32::from(self.scale)).div_euclid(GROUP);
                let power = u32::try_from(weight * GROUP + i32::from(self.scale)).ok();
                (weight, power.and_then(|power| 10_u128.checked_pow(power)) == Some(value))
            }
        };
        // What gives exactly 1, or 10000, was a division of equal first groups.
        let weight = if is_power { weight - 1 } else { weight };
        (i32::from(MIN_DIGITS) - weight * GROUP).clamp(self.fewest(), 38) as i8
    }

    /// Of a square of a long number they are more than any number has.
    fn fewest(self) -> i32 {
        i32::from(self.least).min(38)
    }
}

/// Are its last digits zeros?
fn is_multiple(value: i128, n_digits: i8) -> bool {
    u32::try_from(n_digits).ok().and_then(|digits| 10_i128.checked_pow(digits)).is_none_or(|unit| value % unit == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_shown_with_their_digits() {
        let unit = 10_i128.pow(20);
        let digits = Digits { rule: Rule::Quotient, least: 0, scale: 20 };
        let shown = |value: i128| digits.shown(value).1;
        assert_eq!(digits.shown(5 * unit / 2), (25_000_000_000_000_000, 16));
        assert_eq!(
            [shown(unit), shown(unit / 10 * 3), shown(0), shown(-unit * 20_000), shown(3 * unit)],
            [20, 20, 20, 12, 16]
        );
        // Fifty thousand and one fifty thousandths: their first groups are equal.
        assert_eq!(digits.shown(unit + 12_345), (unit + 12_345, 20));
        assert_eq!(Digits { rule: Rule::Quotient, least: 18, scale: 20 }.shown(2 * unit).1, 18);
        // What the column has no room for is filled up if nothing was cut off.
        assert_eq!(Digits { rule: Rule::Quotient, least: 0, scale: 19 }.shown(0), (0, 20));
        assert_eq!(
            Digits { rule: Rule::Quotient, least: 0, scale: 19 }.shown(3_333_333_333_333_333_333),
            (3_333_333_333_333_333_333, 19)
        );
    }

    #[test]
    fn roots_and_powers_have_their_own_rules() {
        let shown = |rule: Rule, value: i128| Digits { rule, least: 0, scale: 20 }.shown(value * 10_i128.pow(18)).1;
        assert_eq!([shown(Rule::Root, 150), shown(Rule::Root, 20_000), shown(Rule::Deviation, 150)], [15, 13, 16]);
        assert_eq!([shown(Rule::Single, 150), shown(Rule::Single, 10_000), shown(Rule::Single, 1)], [16, 14, 18]);
    }

    #[test]
    fn natural_numbers_show_no_zeros_at_their_ends() {
        let shown = |least, value| Digits { rule: Rule::Natural, least, scale: 12 }.shown(value);
        assert_eq!(shown(0, 7_500_000_000_000), (75, 1));
        assert_eq!(shown(2, 7_500_000_000_000), (750, 2));
        assert_eq!([shown(0, 0), shown(0, -100_000_000_000_000), shown(0, 1)], [(0, 0), (-100, 0), (1, 12)]);
    }

    #[test]
    fn a_cast_column_is_not_marked() {
        let field = Digits::mark(Field::new("a", DataType::Decimal128(30, 20), true), Rule::Quotient, 4);
        assert_eq!(Digits::of(&field), Some(Digits { rule: Rule::Quotient, least: 4, scale: 20 }));
        assert_eq!(Digits::of(&field.with_data_type(DataType::Decimal128(10, 2))), None);
    }
}
