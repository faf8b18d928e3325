//! Where does a pattern match, how often, and what is between the matches? `regexp_match`, `regexp_replace` and the
//! others of their kind, with PostgreSQL's arguments: from which letter on, which match, which flags, which group.
//! DataFusion has some, with patterns and flags of its own.
//!
//! A pattern that is constant is compiled once for all rows.

use std::cell::Cell;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, Int32Array, ListBuilder, StringArray, StringBuilder};
use arrow::datatypes::{DataType, Field, Int64Type};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use tarn_query::datafusion;

use super::averages::undefined;
use super::longest::GroupSpan;
use super::pattern_flags::Flags;
use super::patterns::{self, Pattern};
use super::rowwise::ArgumentRows;
use crate::error::{SqlError, state};

/// What `substring(x from 'pattern')` is written as.
pub(super) const SUBSTRING: &str = "tarn_substring";
/// What `regexp_matches` gives the rows of.
pub(super) const MATCHES: &str = "tarn_regexp_matches";
/// What `regexp_split_to_table` gives the rows of.
pub(super) const SPLIT: &str = "regexp_split_to_array";

/// The functions, to be registered over DataFusion's.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    use RegexFunction::{Count, Instr, Like, Match, Matches, Replace, Split, Substr, Substring};
    let all = [Count, Instr, Like, Match, Matches, Replace, Split, Substr, Substring];
    all.into_iter().map(of).collect()
}

/// `regexp_like`, which stands for `~`.
pub(super) fn like() -> Arc<ScalarUDF> {
    of(RegexFunction::Like)
}

/// `substring` by a pattern.
pub(super) fn by_pattern() -> Arc<ScalarUDF> {
    of(RegexFunction::Substring)
}

fn of(what: RegexFunction) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(OfPatterns { what, signature: Signature::user_defined(Volatility::Immutable) }))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum RegexFunction {
    Count,
    Instr,
    Like,
    Match,
    Matches,
    Replace,
    Split,
    Substr,
    Substring,
}

/// What an argument is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    Text,
    Flags,
    /// From which letter on, from 1.
    Start,
    /// Which match, from 1.
    Nth,
    /// As `Nth`, or 0 for all.
    NthOrAll,
    /// Where a match begins, or what is behind it.
    EndOption,
    /// Which group; 0 is the whole match.
    Group,
}

impl Takes {
    fn is_text(self) -> bool {
        matches!(self, Takes::Text | Takes::Flags)
    }
}

impl RegexFunction {
    fn name(self) -> &'static str {
        match self {
            RegexFunction::Count => "regexp_count",
            RegexFunction::Instr => "regexp_instr",
            RegexFunction::Like => "regexp_like",
            RegexFunction::Match => "regexp_match",
            RegexFunction::Matches => MATCHES,
            RegexFunction::Replace => "regexp_replace",
            RegexFunction::Split => SPLIT,
            RegexFunction::Substr => "regexp_substr",
            RegexFunction::Substring => SUBSTRING,
        }
    }

    /// As it is called in statements.
    fn called(self) -> &'static str {
        if self == RegexFunction::Matches { "regexp_matches" } else { self.name() }
    }

    /// Those of a call, if there is such a function.
    fn taken(self, types: &[DataType]) -> Option<&'static [Takes]> {
        use Takes::{Flags, NthOrAll, Start, Text};
        const REPLACE_FROM: &[Takes] = &[Text, Text, Text, Start, NthOrAll, Flags];
        let is_from = self == RegexFunction::Replace && types.get(3).is_some_and(DataType::is_integer);
        let (all, n_optional): (&[Takes], usize) = match (self, is_from) {
            (_, true) => (REPLACE_FROM, 2),
            (RegexFunction::Replace, _) => (&[Text, Text, Text, Flags], 1),
            (RegexFunction::Count, _) => (&[Text, Text, Start, Flags], 2),
            (RegexFunction::Instr, _) => (&[Text, Text, Start, Takes::Nth, Takes::EndOption, Flags, Takes::Group], 5),
            (RegexFunction::Substr, _) => (&[Text, Text, Start, Takes::Nth, Flags, Takes::Group], 4),
            (RegexFunction::Substring, _) => (&[Text, Text], 0),
            _ => (&[Text, Text, Flags], 1),
        };
        let n_wanted = all.len() - n_optional..=all.len();
        let fits = |(takes, of): (&Takes, &DataType)| match takes.is_text() {
            true => of.is_string() || of.is_null(),
            false => of.is_integer() || of.is_null(),
        };
        (n_wanted.contains(&types.len()) && all.iter().zip(types).all(fits)).then(|| &all[..types.len()])
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfPatterns {
    what: RegexFunction,
    signature: Signature,
}

impl ScalarUDFImpl for OfPatterns {
    fn name(&self) -> &str {
        self.what.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let taken = self.what.taken(types).ok_or_else(|| undefined(self.what.called(), types))?;
        Ok(taken.iter().map(|takes| if takes.is_text() { DataType::Utf8 } else { DataType::Int64 }).collect())
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        let texts = DataType::new_list(DataType::Utf8, true);
        Ok(match self.what {
            RegexFunction::Count | RegexFunction::Instr => DataType::Int32,
            RegexFunction::Like => DataType::Boolean,
            RegexFunction::Match | RegexFunction::Split => texts,
            RegexFunction::Matches => DataType::List(Arc::new(Field::new_list_field(texts, true))),
            RegexFunction::Replace | RegexFunction::Substr | RegexFunction::Substring => DataType::Utf8,
        })
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = ArgumentRows::of(&args)?;
        let types: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let taken = self.what.taken(&types).ok_or_else(|| undefined(self.what.called(), &types))?;
        let mut patterns = Patterns::default();
        let mut asked = |row: usize| RegexCall::of(self.what, taken, &rows.columns, row, &mut patterns);
        let answer: ArrayRef = match self.what {
            RegexFunction::Count | RegexFunction::Instr => {
                let values = rows.there().map(|row| row.map(|row| asked(row)?.number(self.what)).transpose());
                Arc::new(values.collect::<Result<Int32Array, SqlError>>()?)
            }
            RegexFunction::Like => {
                let values =
                    rows.there().map(|row| row.map(|row| Ok::<_, SqlError>(asked(row)?.is_there())).transpose());
                Arc::new(values.collect::<Result<BooleanArray, SqlError>>()?)
            }
            RegexFunction::Replace | RegexFunction::Substr | RegexFunction::Substring => {
                let values = rows.there().map(|row| match row {
                    Some(row) => asked(row)?.text(self.what),
                    None => Ok(None),
                });
                Arc::new(values.collect::<Result<StringArray, SqlError>>()?)
            }
            RegexFunction::Match | RegexFunction::Split => {
                let mut lists = ListBuilder::new(StringBuilder::new());
                for row in rows.there() {
                    let list = row.map(|row| asked(row)?.list(self.what)).transpose()?.flatten();
                    lists.append_option(list);
                }
                Arc::new(lists.finish())
            }
            RegexFunction::Matches => {
                let mut lists = ListBuilder::new(ListBuilder::new(StringBuilder::new()));
                for row in rows.there() {
                    if let Some(row) = row {
                        asked(row)?.all()?.into_iter().for_each(|groups| lists.values().append_value(groups));
                    }
                    lists.append(row.is_some());
                }
                Arc::new(lists.finish())
            }
        };
        rows.answer(answer)
    }
}

/// The last pattern that was asked for.
#[derive(Default)]
struct Patterns(Option<(String, String, Pattern, Flags)>);

impl Patterns {
    fn of(&mut self, what: RegexFunction, pattern: &str, letters: &str) -> Result<(Pattern, Flags), SqlError> {
        if let Some((of, with, regex, flags)) = &self.0
            && of == pattern
            && with == letters
        {
            return Ok((regex.clone(), *flags));
        }
        let flags = Flags::of(letters)?;
        if flags.is_global && !matches!(what, RegexFunction::Matches | RegexFunction::Replace) {
            let message = format!("{}() does not support the \"global\" option", what.called());
            return Err(
                SqlError::new(state::INVALID_PARAMETER_VALUE, message).with_hint("regexp_matches gives all matches")
            );
        }
        let regex = patterns::of_postgres(pattern, flags)?;
        self.0 = Some((pattern.to_owned(), letters.to_owned(), regex.clone(), flags));
        Ok((regex, flags))
    }
}

/// What one row asks for.
struct RegexCall<'a> {
    text: &'a str,
    /// Where to begin, in bytes. `None`: behind the end.
    from: Option<usize>,
    pattern: Pattern,
    flags: Flags,
    replacement: &'a str,
    /// Which match, from 1; `None`: not said.
    nth: Option<i64>,
    is_end: bool,
    group: i64,
    /// Of finding matches that are not the engine's.
    work: Cell<usize>,
}

impl<'a> RegexCall<'a> {
    fn of(
        what: RegexFunction,
        taken: &[Takes],
        columns: &'a [ArrayRef],
        row: usize,
        patterns: &mut Patterns,
    ) -> Result<RegexCall<'a>, SqlError> {
        let text = |idx: usize| columns[idx].as_string::<i32>().value(row);
        let invalid = |name: &str, value: i64| {
            let message = format!("invalid value for parameter \"{name}\": {value}");
            SqlError::new(state::INVALID_PARAMETER_VALUE, message).with_hint("letters and matches are counted from 1")
        };
        let (mut letters, mut start, mut nth, mut is_end, mut group) = ("", 1, None, false, 0);
        for (idx, takes) in taken.iter().enumerate() {
            if *takes == Takes::Flags {
                letters = text(idx);
                // Which function is meant is not told by a text that is written out.
                if what == RegexFunction::Replace && letters.starts_with(|letter: char| letter.is_ascii_digit()) {
                    let message = format!("invalid regular expression option: \"{}\"", &letters[..1]);
                    return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message)
                        .with_hint("If you meant to use regexp_replace() with a start parameter, cast the fourth argument to integer explicitly."));
                }
            }
            if takes.is_text() {
                continue;
            }
            let value = columns[idx].as_primitive::<Int64Type>().value(row);
            match takes {
                Takes::Start if value < 1 => return Err(invalid("start", value)),
                Takes::Start => start = value,
                Takes::Nth if value < 1 => return Err(invalid("n", value)),
                Takes::NthOrAll if value < 0 => return Err(invalid("n", value)),
                Takes::Nth | Takes::NthOrAll => nth = Some(value),
                Takes::EndOption if !(0..=1).contains(&value) => return Err(invalid("endoption", value)),
                Takes::EndOption => is_end = value == 1,
                Takes::Group if value < 0 => return Err(invalid("subexpr", value)),
                _ => group = value,
            }
        }
        let (pattern, flags) = patterns.of(what, text(1), letters)?;
        let replacement = if what == RegexFunction::Replace { text(2) } else { "" };
        let of = text(0);
        let from = match usize::try_from(start - 1).unwrap_or(usize::MAX) {
            0 => Some(0),
            n_letters => of.char_indices().map(|(at, _)| at).chain([of.len()]).nth(n_letters),
        };
        Ok(RegexCall { text: of, from, pattern, flags, replacement, nth, is_end, group, work: Cell::default() })
    }

    /// The matches one behind the other, as the places of their groups. Behind an empty one the next begins a letter
    /// further.
    fn matches(&self) -> impl Iterator<Item = Result<Vec<GroupSpan>, SqlError>> + '_ {
        let mut from = self.from;
        std::iter::from_fn(move || {
            let groups = match self.pattern.groups_at(self.text, from?, &self.work) {
                Ok(groups) => groups?,
                Err(error) => {
                    from = None;
                    return Some(Err(error));
                }
            };
            let (start, end) = whole(&groups);
            from = match start == end {
                true => self.text[end..].chars().next().map(|letter| end + letter.len_utf8()),
                false => Some(end),
            };
            Some(Ok(groups))
        })
    }

    fn is_there(&self) -> bool {
        self.pattern.is_match(self.text)
    }

    fn nth(&self) -> Result<Option<Vec<GroupSpan>>, SqlError> {
        let Ok(nth) = usize::try_from(self.nth.unwrap_or(1) - 1) else { return Ok(None) };
        self.matches().nth(nth).transpose()
    }

    /// A group of the match that is asked for.
    fn group(&self, group: usize) -> Result<GroupSpan, SqlError> {
        Ok(self.nth()?.and_then(|groups| groups.get(group).copied().flatten()))
    }

    fn number(&self, what: RegexFunction) -> Result<i32, SqlError> {
        let number = match what {
            RegexFunction::Count => self.matches().try_fold(0, |n, groups| groups.map(|_| n + 1))?,
            _ => {
                let group = usize::try_from(self.group).unwrap_or(usize::MAX);
                let found = self.group(group)?;
                let at = found.map(|(start, end)| if self.is_end { end } else { start });
                at.map_or(0, |at| self.text[..at].chars().count() + 1)
            }
        };
        i32::try_from(number).map_err(|_| super::integers::out_of_range("integer"))
    }

    fn text(&self, what: RegexFunction) -> Result<Option<String>, SqlError> {
        let part = |group: usize| Ok(self.group(group)?.map(|(start, end)| self.text[start..end].to_owned()));
        match what {
            RegexFunction::Replace => self.replaced().map(Some),
            // The first group, if there is one.
            RegexFunction::Substring => part(usize::from(self.pattern.n_groups() > 1)),
            _ => part(usize::try_from(self.group).unwrap_or(usize::MAX)),
        }
    }

    fn replaced(&self) -> Result<String, SqlError> {
        let (mut out, mut behind) = (String::with_capacity(self.text.len()), 0);
        // The n-th; the first, if neither a number nor `g` is given; all.
        let only = match self.nth {
            Some(0) => None,
            Some(nth) => Some(nth),
            None if self.flags.is_global => None,
            None => Some(1),
        };
        for (groups, nth) in self.matches().zip(1..) {
            let groups = groups?;
            if only.is_some_and(|only| nth < only) {
                continue;
            }
            let (start, end) = whole(&groups);
            out.push_str(&self.text[behind..start]);
            behind = end;
            self.put(&groups, &mut out);
            if out.len() > MAX_REPLACED {
                return Err(SqlError::new(state::PROGRAM_LIMIT, "regexp_replace() makes too long a text")
                    .with_hint(format!("at most {MAX_REPLACED} bytes")));
            }
            if only.is_some() {
                break;
            }
        }
        out.push_str(&self.text[behind..]);
        Ok(out)
    }

    /// The replacement: `\1` is a group, `\&` the match, `\\` a backslash.
    fn put(&self, groups: &[GroupSpan], out: &mut String) {
        let group = |nth: usize| groups.get(nth).copied().flatten().map_or("", |(start, end)| &self.text[start..end]);
        let mut rest = self.replacement;
        while let Some((before, after)) = rest.split_once('\\') {
            out.push_str(before);
            let letter = after.chars().next();
            rest = &after[letter.map_or(0, char::len_utf8)..];
            match letter {
                Some(digit @ '1'..='9') => out.push_str(group(digit as usize - '0' as usize)),
                Some('&') => out.push_str(group(0)),
                Some('\\') | None => out.push('\\'),
                Some(other) => out.extend(['\\', other]),
            }
        }
        out.push_str(rest);
    }

    /// The groups of a match; the whole, if there are none.
    fn groups(&self, groups: &[GroupSpan]) -> Vec<Option<String>> {
        let first = usize::from(self.pattern.n_groups() > 1);
        groups.iter().skip(first).map(|group| group.map(|(start, end)| self.text[start..end].to_owned())).collect()
    }

    fn all(&self) -> Result<Vec<Vec<Option<String>>>, SqlError> {
        let n_wanted = if self.flags.is_global { usize::MAX } else { 1 };
        self.matches().take(n_wanted).map(|groups| Ok(self.groups(&groups?))).collect()
    }

    fn list(&self, what: RegexFunction) -> Result<Option<Vec<Option<String>>>, SqlError> {
        if what == RegexFunction::Match {
            return Ok(self.matches().next().transpose()?.map(|groups| self.groups(&groups)));
        }
        let (mut parts, mut behind) = (vec![], 0);
        for groups in self.matches() {
            let (start, end) = whole(&groups?);
            // An empty match parts letters, and nothing at the end of another one.
            if start < self.text.len() && end > behind {
                parts.push(Some(self.text[behind..start].to_owned()));
                behind = end;
            }
        }
        parts.push(Some(self.text[behind..].to_owned()));
        Ok(Some(parts))
    }
}

/// Where a match is.
fn whole(groups: &[GroupSpan]) -> (usize, usize) {
    groups.first().copied().flatten().unwrap_or_default()
}

/// The longest text that is made of one.
const MAX_REPLACED: usize = 64 << 20;
