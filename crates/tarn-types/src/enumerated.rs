//! Which texts does a column of an enumerated type keep? One of its labels, as a text that anybody reads in a file of
//! the lake.
//!
//! The definition of a table has the labels of its columns, so that whatever writes rows checks them without asking
//! anybody; what is said of the type itself is kept once, by whoever defines it, who changes both together. The field
//! of such a column tells the number and the name of the type alone: it stays as it is when labels come, and the order
//! of the labels is looked up by whoever plans.

use std::collections::HashSet;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::Field;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, shorten};
use crate::ids::TypeId;

/// The key of the field metadata that tells the number of an enumerated type, and its name: `16384 mood`.
const ENUMERATED_METADATA: &str = "tarn.enum";

/// So few labels are looked through one by one.
const FEW_LABELS: usize = 16;

/// An enumerated type, as a column has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Enumerated {
    /// Which; a type that is called otherwise is the same.
    pub id: TypeId,
    /// What it is called.
    pub name: String,
    /// In their order, each once.
    pub labels: Vec<String>,
}

impl Enumerated {
    /// The place of a label in the order, from 0.
    ///
    /// # Errors
    /// [`Error::NoLabel`] if it is none.
    pub fn place(&self, text: &str) -> Result<usize> {
        self.labels.iter().position(|label| label == text).ok_or_else(|| self.refused(text))
    }

    /// Whether all texts of a column (`Utf8`) are labels, or NULL.
    ///
    /// # Errors
    /// [`Error::NoLabel`] for the first that is none.
    pub fn check(&self, texts: &ArrayRef) -> Result<()> {
        let texts = texts.as_string::<i32>();
        if self.labels.len() <= FEW_LABELS {
            return texts.iter().flatten().try_for_each(|text| self.place(text).map(drop));
        }
        let labels: HashSet<&str> = self.labels.iter().map(String::as_str).collect();
        match texts.iter().flatten().find(|text| !labels.contains(text)) {
            None => Ok(()),
            Some(text) => Err(self.refused(text)),
        }
    }

    fn refused(&self, text: &str) -> Error {
        Error::NoLabel { data_type: self.name.clone(), value: shorten(text) }
    }

    /// What a field says of this type: `16384 mood`.
    #[must_use]
    pub fn tag(&self) -> String {
        format!("{} {}", self.id, self.name)
    }

    /// The field of a column of this type. Like a length, it goes with the column through whatever reads it.
    #[must_use]
    pub fn told(&self, field: Field) -> Field {
        Self::tagged(field, &self.tag())
    }

    /// As [`Enumerated::told`], of the type that has this [`Enumerated::tag`].
    #[must_use]
    pub fn tagged(field: Field, tag: &str) -> Field {
        let mut metadata = field.metadata().clone();
        metadata.insert(ENUMERATED_METADATA.to_owned(), tag.to_owned());
        field.with_metadata(metadata)
    }

    /// The enumerated type that a field tells: its number and its name.
    #[must_use]
    pub fn of(field: &Field) -> Option<(TypeId, &str)> {
        let (id, name) = field.metadata().get(ENUMERATED_METADATA)?.split_once(' ')?;
        Some((TypeId(id.parse().ok()?), name))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::StringArray;
    use arrow::datatypes::DataType;

    use super::*;

    fn of(labels: Vec<String>) -> Enumerated {
        Enumerated { id: TypeId(7), name: "mood".into(), labels }
    }

    #[test]
    fn labels_are_found_whether_there_are_few_or_many() {
        for n in [3, 100] {
            let many = of((0..n).map(|n| format!("l{n}")).collect());
            assert_eq!(many.place("l2").unwrap(), 2);
            let texts = |texts: Vec<Option<&str>>| Arc::new(StringArray::from(texts)) as ArrayRef;
            many.check(&texts(vec![Some("l0"), None, Some("l1")])).unwrap();
            let refused = many.check(&texts(vec![Some("l0"), Some("L0")])).unwrap_err();
            assert_eq!(refused.to_string(), "invalid input value for enum mood: \"L0\"");
        }
    }

    #[test]
    fn a_field_tells_its_type() {
        let field = Field::new("m", DataType::Utf8, true);
        assert_eq!(Enumerated::of(&field), None);
        assert_eq!(Enumerated::of(&of(vec![]).told(field)), Some((TypeId(7), "mood")));
    }
}
