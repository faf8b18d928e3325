//! Which columns of a file that somebody else wrote can be a table's, and why not the others?
//!
//! Law: whoever looks at such a file, to attach it or to read it, asks here. A column that is left out is NULL in the
//! file's rows, whatever the question.

use std::collections::HashMap;
use std::fmt;

use arrow::datatypes::{DataType as ArrowType, Field};

use crate::data_type::{DataType, data_type_of};
use crate::schema::SEQNO_COLUMN;

/// Why a column of a file is none of its table's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// A list, a struct, a map.
    Nested,
    /// Its name is empty.
    NoName,
    /// [`SEQNO_COLUMN`].
    Ours,
    /// Another column of the file has the same name: nobody can say which is meant.
    Twice,
    /// A type that no table has; `None`: nobody knows it.
    Type(Option<ArrowType>),
}

/// As a note says it.
impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nested => f.write_str("nested"),
            Self::NoName => f.write_str("it has no name"),
            Self::Ours => f.write_str("the name is ours"),
            Self::Twice => f.write_str("the name comes twice"),
            Self::Type(None) => f.write_str("a type that is not known"),
            Self::Type(Some(arrow)) => arrow.fmt(f),
        }
    }
}

/// The names at a file's top level.
#[derive(Debug)]
pub struct ForeignNames<'a>(HashMap<&'a str, usize>);

impl<'a> FromIterator<&'a str> for ForeignNames<'a> {
    fn from_iter<T: IntoIterator<Item = &'a str>>(names: T) -> Self {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for name in names {
            *seen.entry(name).or_default() += 1;
        }
        Self(seen)
    }
}

impl ForeignNames<'_> {
    /// The type that keeps the values of the file's column `name`. `is_flat`: it has neither fields nor elements.
    /// `arrow`: what a reader sees by its stored type alone, without hints elsewhere in the file; `None`: nothing.
    ///
    /// # Errors
    /// The column is left out.
    pub fn column_type(&self, name: &str, is_flat: bool, arrow: Option<&ArrowType>) -> Result<DataType, LeftOut> {
        match arrow {
            _ if !is_flat => Err(LeftOut::Nested),
            _ if name.is_empty() => Err(LeftOut::NoName),
            _ if name == SEQNO_COLUMN => Err(LeftOut::Ours),
            _ if self.0.get(name).is_some_and(|n| *n > 1) => Err(LeftOut::Twice),
            None => Err(LeftOut::Type(None)),
            // UUID, JSON and JSONB are marked in metadata that only our own readers know; without, they are texts and
            // bytes. Large bytes are bytes, and no addresses.
            Some(ArrowType::LargeBinary) => Ok(DataType::Bytes),
            Some(arrow) => {
                data_type_of(&Field::new(name, arrow.clone(), true)).map_err(|_| LeftOut::Type(Some(arrow.clone())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::IntervalUnit;

    use super::*;

    #[test]
    fn what_cannot_be_a_column_is_left_out() {
        let names: ForeignNames<'_> = ["a", "b", "a", "", SEQNO_COLUMN, "A"].into_iter().collect();
        let int = ArrowType::Int32;
        let interval = ArrowType::Interval(IntervalUnit::DayTime);
        for (name, is_flat, arrow, want) in [
            ("b", true, Some(&int), Ok(DataType::Int32)),
            ("A", true, Some(&int), Ok(DataType::Int32)),
            ("a", true, Some(&int), Err(LeftOut::Twice)),
            ("b", true, Some(&ArrowType::LargeBinary), Ok(DataType::Bytes)),
            ("b", false, None, Err(LeftOut::Nested)),
            ("a", false, None, Err(LeftOut::Nested)),
            ("", true, Some(&int), Err(LeftOut::NoName)),
            (SEQNO_COLUMN, true, Some(&int), Err(LeftOut::Ours)),
            ("b", true, None, Err(LeftOut::Type(None))),
            ("b", true, Some(&interval), Err(LeftOut::Type(Some(interval.clone())))),
        ] {
            assert_eq!(names.column_type(name, is_flat, arrow), want, "{name:?} {arrow:?}");
        }
    }
}
