//! `FM999,990.00`: what does a template say of numbers, and what is a number written by one?
//!
//! Source: PostgreSQL 16, table "Template Patterns for Numeric Formatting", and what its server answers where that is
//! silent: the same steps in the same order, digit by digit.

use bytes::BytesMut;

use crate::error::{SqlError, state};
use crate::text;

/// Digits that a float of 64 bits surely has.
const FLOAT_DIGITS: usize = 15;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NumberTemplatePart {
    Letter(char),
    Nine,
    Zero,
    Point,
    Comma,
    /// In the place of the currency's sign: the locale has none.
    Currency,
    Minus,
    Plus,
    Sign,
    /// In small letters or in large ones.
    Ordinal(bool),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Anchor {
    /// Before the first digit.
    Front,
    Back,
}

/// A template that was read.
#[derive(Debug, Default)]
pub(super) struct NumberTemplate {
    parts: Vec<NumberTemplatePart>,
    /// Digits before the point, and behind.
    n_whole: usize,
    n_behind: usize,
    has_point: bool,
    is_short: bool,
    /// `S`.
    anchor: Option<Anchor>,
    is_bracketed: bool,
    has_minus: bool,
    has_plus: bool,
    /// The first digit that is shown as a zero when there is none, and how many digits there are to the last such.
    zero_start: Option<usize>,
    zero_end: usize,
}

impl NumberTemplate {
    /// Errors: `42601` for what contradicts itself, `0A000` for `V`, `EEEE` and `RN`.
    pub(super) fn parse(template: &str) -> Result<NumberTemplate, SqlError> {
        let wrong = |what: &str| Err(SqlError::new(state::SYNTAX_ERROR, what));
        let (mut read, mut rest, mut front_digits) = (NumberTemplate::default(), template, 0);
        while !rest.is_empty() {
            if let Some(quoted) = rest.strip_prefix('"') {
                let mut letters = quoted.chars();
                while let Some(letter) = letters.next() {
                    match letter {
                        '"' => break,
                        '\\' => read.parts.extend(letters.next().map(NumberTemplatePart::Letter)),
                        letter => read.parts.push(NumberTemplatePart::Letter(letter)),
                    }
                }
                rest = letters.as_str();
                continue;
            }
            let word = |length: usize| rest.get(..length).map(str::to_ascii_uppercase).unwrap_or_default();
            if ["EEEE", "RN"].iter().any(|pattern| word(pattern.len()) == *pattern) || word(1) == "V" {
                return Err(SqlError::unsupported(
                    "EEEE, RN and V in a template of to_char are not supported",
                    "multiply by a power of ten, or cast the number to text",
                ));
            }
            let length = match word(2).as_str() {
                "FM" => {
                    read.is_short = true;
                    2
                }
                "MI" | "PL" | "SG" if read.anchor.is_some() => {
                    return wrong("cannot use \"S\" and \"MI\", \"PL\" or \"SG\" together");
                }
                "MI" => {
                    read.has_minus = true;
                    read.parts.push(NumberTemplatePart::Minus);
                    2
                }
                "PL" => {
                    read.has_plus = true;
                    read.parts.push(NumberTemplatePart::Plus);
                    2
                }
                "SG" => {
                    (read.has_minus, read.has_plus) = (true, true);
                    read.parts.push(NumberTemplatePart::Sign);
                    2
                }
                "PR" if read.anchor.is_some() || read.has_minus || read.has_plus => {
                    return wrong("cannot use \"PR\" and \"S\", \"MI\", \"PL\" or \"SG\" together");
                }
                "PR" => {
                    read.is_bracketed = true;
                    2
                }
                "TH" => {
                    read.parts.push(NumberTemplatePart::Ordinal(rest.starts_with("th")));
                    2
                }
                // They say nothing here.
                "SP" => 2,
                _ if word(1) == "C" => 1,
                _ => 0,
            };
            if length > 0 {
                rest = &rest[length..];
                continue;
            }
            let mut letters = rest.chars();
            let Some(letter) = letters.next() else { break };
            match letter {
                '9' | '0' if read.is_bracketed => return wrong("\"9\" must be ahead of \"PR\""),
                '9' => {
                    read.parts.push(NumberTemplatePart::Nine);
                    read.count_digit();
                }
                '0' => {
                    if read.zero_start.is_none() && !read.has_point {
                        read.zero_start = Some(read.n_whole);
                    }
                    read.parts.push(NumberTemplatePart::Zero);
                    read.count_digit();
                    read.zero_end = read.n_whole + read.n_behind;
                }
                '.' | 'D' | 'd' if read.has_point => return wrong("multiple decimal points"),
                '.' | 'D' | 'd' => {
                    read.has_point = true;
                    read.parts.push(NumberTemplatePart::Point);
                }
                ',' | 'G' | 'g' => read.parts.push(NumberTemplatePart::Comma),
                'L' | 'l' => read.parts.push(NumberTemplatePart::Currency),
                'S' | 's' if read.anchor.is_some() => return wrong("cannot use \"S\" twice"),
                'S' | 's' if read.has_minus || read.has_plus || read.is_bracketed => {
                    return wrong("cannot use \"S\" and \"PL\"/\"MI\"/\"SG\"/\"PR\" together");
                }
                'S' | 's' => {
                    front_digits = read.n_whole;
                    read.anchor = Some(if read.has_point { Anchor::Back } else { Anchor::Front });
                }
                'B' | 'b' => {}
                '\\' if letters.as_str().starts_with('"') => {
                    letters.next();
                    read.parts.push(NumberTemplatePart::Letter('"'));
                }
                letter => read.parts.push(NumberTemplatePart::Letter(letter)),
            }
            rest = letters.as_str();
        }
        // Behind all digits it is behind the number.
        if read.anchor == Some(Anchor::Front) && front_digits == read.n_whole {
            read.anchor = Some(Anchor::Back);
        }
        Ok(read)
    }

    fn count_digit(&mut self) {
        match self.has_point {
            true => self.n_behind += 1,
            false => self.n_whole += 1,
        }
    }

    /// Digits behind the point that a number by this template has at most.
    pub(super) fn n_behind(&self) -> usize {
        self.n_behind
    }

    /// The number that a text is by this template, with its digits behind the point: each place takes the next digit or
    /// point of the text, what is no part of a number is passed over.
    ///
    /// Errors: `22P02`, there is no digit; `22003`, more than 38.
    pub(super) fn read(&self, text: &str) -> Result<(i128, usize), SqlError> {
        let mut input =
            NumberInput { rest: text.trim_start(), is_negative: None, digits: String::new(), n_behind: None };
        for part in &self.parts {
            match part {
                NumberTemplatePart::Nine | NumberTemplatePart::Zero | NumberTemplatePart::Point => input.place(self),
                NumberTemplatePart::Comma => input.rest = input.rest.strip_prefix(',').unwrap_or(input.rest),
                NumberTemplatePart::Minus | NumberTemplatePart::Plus | NumberTemplatePart::Sign => input.sign(),
                NumberTemplatePart::Ordinal(_) => (0..2).for_each(|_| input.pass_over()),
                NumberTemplatePart::Currency | NumberTemplatePart::Letter(_) => input.pass_over(),
            }
        }
        if self.anchor == Some(Anchor::Back) || self.is_bracketed {
            input.sign();
        }
        if !input.digits.contains(|letter: char| letter.is_ascii_digit()) {
            return Err(SqlError::new(state::INVALID_TEXT, "invalid input syntax for type numeric: \" \"")
                .with_hint("the text has no digit where the template has one"));
        }
        let value: i128 = input.digits.parse().map_err(|_| super::division::too_long())?;
        let value = if input.is_negative == Some(true) { -value } else { value };
        Ok((value, input.n_behind.unwrap_or(0)))
    }

    /// Appends `unscaled` × 10^-`scale`.
    pub(super) fn write_decimal(&self, unscaled: i128, scale: i8, out: &mut String) {
        let scale = usize::try_from(scale).unwrap_or_default();
        let mut digits = unscaled.unsigned_abs();
        let mut kept = scale;
        if self.n_behind < scale {
            let unit = 10_u128.pow((scale - self.n_behind) as u32);
            digits = digits / unit + u128::from(digits % unit * 2 >= unit);
            kept = self.n_behind;
        }
        let mut written = BytesMut::new();
        text::decimal(&mut written, digits as i128, kept as i8);
        let mut number = String::from_utf8_lossy(&written).into_owned();
        if self.n_behind > kept {
            if kept == 0 {
                number.push('.');
            }
            number.extend(std::iter::repeat_n('0', self.n_behind - kept));
        }
        self.write(unscaled < 0 && digits != 0, &number, out);
    }

    pub(super) fn write_float(&self, value: f64, out: &mut String) {
        if !value.is_finite() {
            // There are no digits for it.
            return self.write(value < 0.0, &"#".repeat(self.n_whole + 1), out);
        }
        let whole = format!("{:.0}", value.abs()).len();
        let n_behind = if whole >= FLOAT_DIGITS { 0 } else { self.n_behind.min(FLOAT_DIGITS - whole) };
        self.write(value.is_sign_negative(), &format!("{:.n_behind$}", value.abs()), out);
    }

    /// `number`: digits, and behind a point as many as the template has.
    fn write(&self, is_negative: bool, number: &str, out: &mut String) {
        let whole = number.find('.').unwrap_or(number.len());
        let too_long;
        let (number, n_spaces) = match whole > self.n_whole {
            true => {
                let n_behind = number.len().saturating_sub(whole + 1);
                too_long = format!("{}.{}", "#".repeat(self.n_whole), "#".repeat(n_behind));
                (too_long.as_bytes(), 0)
            }
            false => (number.as_bytes(), self.n_whole - whole),
        };
        let mut writer = NumberFormatter::new(self, is_negative, number, n_spaces);
        for part in &self.parts {
            writer.part(*part, out);
        }
    }
}

/// One number on its way through a template.
struct NumberFormatter<'a> {
    template: &'a NumberTemplate,
    is_negative: bool,
    is_bracketed: bool,
    number: &'a [u8],
    /// The next digit of the number.
    at: usize,
    /// Places of the template before the first digit.
    n_spaces: usize,
    /// Places that were seen.
    n_places: usize,
    /// The place behind which the number ends.
    end: usize,
    is_sign_written: bool,
    /// Whether the last place was a digit.
    is_in: bool,
    /// The last digit that `FM` leaves.
    last: Option<usize>,
}

impl<'a> NumberFormatter<'a> {
    fn new(template: &'a NumberTemplate, is_negative: bool, number: &'a [u8], n_spaces: usize) -> NumberFormatter<'a> {
        let is_sign_written = match template.has_minus || template.has_plus {
            true => !template.has_plus || template.has_minus,
            false => !is_negative && template.is_short && template.anchor.is_none(),
        };
        let last =
            if template.is_short && template.has_point { last_relevant(template, number, n_spaces) } else { None };
        let count = template.n_whole + template.n_behind - usize::from(template.n_whole + template.n_behind > 0);
        let count = count + usize::from(!is_sign_written && n_spaces == 0);
        NumberFormatter {
            template,
            is_negative,
            is_bracketed: template.is_bracketed && (is_negative || !template.is_short),
            number,
            at: 0,
            n_spaces,
            n_places: 0,
            end: count + usize::from(n_spaces > 0) + usize::from(template.has_point),
            is_sign_written,
            is_in: false,
            last,
        }
    }

    fn part(&mut self, part: NumberTemplatePart, out: &mut String) {
        let is_short = self.template.is_short;
        match part {
            NumberTemplatePart::Nine | NumberTemplatePart::Zero | NumberTemplatePart::Point => self.place(part, out),
            NumberTemplatePart::Comma if self.is_in => out.push(','),
            NumberTemplatePart::Comma | NumberTemplatePart::Currency if !is_short => out.push(' '),
            NumberTemplatePart::Comma => {}
            NumberTemplatePart::Currency => out.push(' '),
            NumberTemplatePart::Minus if self.is_negative => out.push('-'),
            NumberTemplatePart::Plus if !self.is_negative => out.push('+'),
            NumberTemplatePart::Minus | NumberTemplatePart::Plus if is_short => {}
            NumberTemplatePart::Minus | NumberTemplatePart::Plus => out.push(' '),
            NumberTemplatePart::Sign => out.push(self.sign()),
            NumberTemplatePart::Ordinal(is_small) => {
                if self.is_negative || self.template.has_point || self.number.first() == Some(&b'#') {
                    return;
                }
                let teens = self.number.len() >= 2 && self.number[self.number.len() - 2] == b'1';
                let suffix = match self.number.last() {
                    Some(b'1') if !teens => "st",
                    Some(b'2') if !teens => "nd",
                    Some(b'3') if !teens => "rd",
                    _ => "th",
                };
                out.push_str(&if is_small { suffix.to_owned() } else { suffix.to_uppercase() });
            }
            NumberTemplatePart::Letter(letter) => out.push(letter),
        }
    }

    fn sign(&self) -> char {
        if self.is_negative { '-' } else { '+' }
    }

    /// The zero before the point is not shown where no `0` asks for it.
    fn is_hidden_zero(&self) -> bool {
        self.template.zero_start.is_none()
            && self.at == 0
            && self.number.first() == Some(&b'0')
            && self.template.n_behind != 0
    }

    fn ends_at_point(&self) -> bool {
        self.last.is_some_and(|last| self.number.get(last) == Some(&b'.'))
    }

    fn place(&mut self, part: NumberTemplatePart, out: &mut String) {
        self.is_in = false;
        let is_short = self.template.is_short;
        let fills = self.template.zero_start.is_some_and(|start| start <= self.n_places);
        let begins = self.n_places >= self.n_spaces || self.template.zero_start == Some(self.n_places);
        if !self.is_sign_written && begins && (!self.is_hidden_zero() || self.ends_at_point()) {
            self.is_sign_written = true;
            match self.template.anchor {
                Some(Anchor::Front) => out.push(self.sign()),
                Some(Anchor::Back) => self.is_sign_written = false,
                None if self.is_bracketed => out.push(if self.is_negative { '<' } else { ' ' }),
                None if self.is_negative => out.push('-'),
                None if is_short => {}
                None => out.push(' '),
            }
        }
        if self.n_places < self.n_spaces {
            match fills {
                true => {
                    out.push('0');
                    self.is_in = true;
                }
                false if is_short => {}
                false => out.push(' '),
            }
        } else {
            self.digit(part, out);
            if self.at < self.number.len() {
                self.at += 1;
            }
        }
        let end = if self.last == Some(self.at) && self.last.is_some() { self.n_places } else { self.end };
        if self.n_places + 1 == end {
            if self.is_sign_written && self.is_bracketed {
                out.push(if self.is_negative { '>' } else { ' ' });
            } else if self.template.anchor == Some(Anchor::Back) {
                out.push(self.sign());
            }
        }
        self.n_places += 1;
    }

    fn digit(&mut self, part: NumberTemplatePart, out: &mut String) {
        let is_short = self.template.is_short;
        match self.number.get(self.at) {
            Some(b'.') if !self.ends_at_point() || is_short => out.push('.'),
            Some(b'.') | None => {}
            Some(_) if self.last.is_some_and(|last| self.at > last) && part != NumberTemplatePart::Zero => {}
            Some(_) if self.is_hidden_zero() => {
                if !is_short {
                    out.push(' ');
                } else if self.ends_at_point() {
                    out.push('0');
                }
            }
            Some(digit) => {
                out.push(char::from(*digit));
                self.is_in = true;
            }
        }
    }
}

/// The last digit behind the point that is no zero, or stands where the template has a `0`; the point, if there is
/// none.
fn last_relevant(template: &NumberTemplate, number: &[u8], n_spaces: usize) -> Option<usize> {
    let point = number.iter().position(|byte| *byte == b'.')?;
    let last = number.iter().rposition(|byte| *byte != b'0').map_or(point, |last| last.max(point));
    if template.zero_end > n_spaces {
        let asked = (number.len() - 1).min(template.zero_end - n_spaces);
        return Some(last.max(asked));
    }
    Some(last)
}

/// A text that is read by a template.
struct NumberInput<'a> {
    rest: &'a str,
    is_negative: Option<bool>,
    digits: String,
    /// Digits since the point. `None`: it did not come yet.
    n_behind: Option<usize>,
}

impl NumberInput<'_> {
    fn next_is(&self, of: impl Fn(char) -> bool) -> bool {
        self.rest.starts_with(of)
    }

    /// The next digit, the point, or a sign before them.
    fn place(&mut self, template: &NumberTemplate) {
        self.rest = self.rest.trim_start();
        if self.is_negative.is_none() && self.next_is(|letter| matches!(letter, '-' | '+' | '<')) {
            self.sign();
        }
        let Some(letter) = self.rest.chars().next() else { return };
        match (letter, self.n_behind) {
            ('0'..='9', Some(n_behind)) if n_behind == template.n_behind => return,
            ('0'..='9', n_behind) => {
                self.digits.push(letter);
                self.n_behind = n_behind.map(|n_behind| n_behind + 1);
            }
            ('.', None) if template.has_point => self.n_behind = Some(0),
            _ => return,
        }
        self.rest = &self.rest[1..];
    }

    fn sign(&mut self) {
        let rest = self.rest.trim_start();
        if let Some(letter) = rest.chars().next().filter(|letter| matches!(letter, '-' | '+' | '<')) {
            self.is_negative.get_or_insert(letter != '+');
            self.rest = &rest[1..];
        }
    }

    /// One letter that is no part of a number.
    fn pass_over(&mut self) {
        if let Some(letter) = self.rest.chars().next()
            && !letter.is_ascii_digit()
            && !matches!(letter, '.' | ',' | '+' | '-')
        {
            self.rest = &self.rest[letter.len_utf8()..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(template: &str, unscaled: i128, scale: i8) -> String {
        let mut out = String::new();
        NumberTemplate::parse(template).unwrap().write_decimal(unscaled, scale, &mut out);
        out
    }

    /// The examples of PostgreSQL's manual.
    #[test]
    fn numbers_as_postgres_writes_them() {
        for (template, unscaled, scale, want) in [
            ("99.99", -1, 1, "  -.10"),
            ("FM9.99", -1, 1, "-.1"),
            ("FM90.99", -1, 1, "-0.1"),
            ("0.9", 1, 1, " 0.1"),
            ("9990999.9", 12, 0, "    0012.0"),
            ("FM9990999.9", 12, 0, "0012."),
            ("999", 485, 0, " 485"),
            ("999", -485, 0, "-485"),
            ("9 9 9", 485, 0, " 4 8 5"),
            ("9,999", 1485, 0, " 1,485"),
            ("9G999", 1485, 0, " 1,485"),
            ("999.999", 1485, 1, " 148.500"),
            ("FM999.999", 1485, 1, "148.5"),
            ("FM999.990", 1485, 1, "148.500"),
            ("999D999", 1485, 1, " 148.500"),
            ("9G999D999", 31485, 1, " 3,148.500"),
            ("999S", -485, 0, "485-"),
            ("999MI", -485, 0, "485-"),
            ("999MI", 485, 0, "485 "),
            ("FM999MI", 485, 0, "485"),
            ("PL999", 485, 0, "+ 485"),
            ("SG999", 485, 0, "+485"),
            ("SG999", -485, 0, "-485"),
            ("9SG99", -485, 0, "4-85"),
            ("999PR", -485, 0, "<485>"),
            ("999th", 482, 0, " 482nd"),
            ("\"Good number:\"999", 485, 0, "Good number: 485"),
            ("\"Pre:\"999\" Post:\" .999", 4858, 1, "Pre: 485 Post: .800"),
            ("99", 100, 0, " ##"),
            ("S999", 5, 0, "  +5"),
            ("FM000", 7, 0, "007"),
            ("a_c", 12, 0, "a_"),
            ("9sp9", 12, 0, " 12"),
            ("FM999,999,990.00", 123456789, 2, "1,234,567.89"),
        ] {
            assert_eq!(shown(template, unscaled, scale), want, "{template} of {unscaled}e-{scale}");
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for template in ["9.9.9", "S9S", "SMI9", "9PR9", "MI9S", "S9PR"] {
            assert_eq!(NumberTemplate::parse(template).unwrap_err().state(), state::SYNTAX_ERROR, "{template}");
        }
        for template in ["9.9EEEE", "RN", "99V9"] {
            assert_eq!(
                NumberTemplate::parse(template).unwrap_err().state(),
                state::FEATURE_NOT_SUPPORTED,
                "{template}"
            );
        }
    }

    /// What PostgreSQL 15 says.
    #[test]
    fn numbers_are_read_by_templates() {
        for (text, template, number) in [
            ("12,454.8-", "99G999D9S", (-124_548, 1)),
            ("-34,338,492.654,878", "99G999G999D999G999", (-34_338_492_654_878, 6)),
            ("<564646.654564>", "999999D999999PR", (-564_646_654_564, 6)),
            ("5.01-", "FM9.999999MI", (-501, 2)),
            ("5 4 4 4 4 8 . 7 8", "9 9 9 9 9 9 . 9 9", (54_444_878, 2)),
            (".01", "FM9.99", (1, 2)),
            (".-01", "S99.99", (-1, 2)),
            (" . 0 1-", " 9 9 . 9 9 S", (-1, 2)),
            ("34,50", "999,99", (3450, 0)),
            ("$1,234.56", "L99,999.99", (123_456, 2)),
            ("42nd", "99th", (42, 0)),
            ("12345", "999", (123, 0)),
            ("7-", "9", (7, 0)),
            ("12.345", "99.9", (123, 1)),
            ("x12", "\"x\"99", (12, 0)),
            ("12.", "99.", (12, 0)),
            ("-12.5", "SG99.9", (-125, 1)),
        ] {
            let read = NumberTemplate::parse(template).unwrap().read(text);
            assert_eq!(read.unwrap(), number, "{text} {template}");
        }
        for (text, template) in [("abc", "999"), ("", "9"), ("12", "abc")] {
            let read = NumberTemplate::parse(template).unwrap().read(text);
            assert_eq!(read.unwrap_err().state(), state::INVALID_TEXT, "{text} {template}");
        }
    }
}
