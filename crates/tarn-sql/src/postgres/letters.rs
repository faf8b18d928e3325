//! What is `upper('straße')`? `STRAßE`: one letter becomes one, and one that has no other such stays. DataFusion makes
//! `STRASSE` of it, and of a Σ at the end of a word another letter than elsewhere.
//!
//! DataFusion's functions are asked what they answer alike, texts of ASCII, and for their types.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::error::Result;
use datafusion::functions::{string, unicode};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let all = [(string::upper(), Case::Upper), (string::lower(), Case::Lower), (unicode::initcap(), Case::Initial)];
    all.into_iter().map(|(inner, case)| Arc::new(ScalarUDF::from(Cased { inner, case }))).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Case {
    Upper,
    Lower,
    /// The first letters of words are upper ones.
    Initial,
}

impl Case {
    fn of(self, text: &str) -> String {
        let mut is_within = false;
        let letters = text.chars().map(|letter| match self {
            Case::Upper => upper(letter),
            Case::Lower => lower(letter),
            Case::Initial => {
                let shown = if is_within { lower(letter) } else { upper(letter) };
                is_within = shown.is_alphanumeric();
                shown
            }
        });
        letters.collect()
    }
}

fn upper(letter: char) -> char {
    let mut upper = letter.to_uppercase();
    if let (Some(one), None) = (upper.next(), upper.next()) {
        return one;
    }
    // Greek ones that become two, but for titles one.
    let title = match letter {
        '\u{1f80}'..='\u{1f87}' | '\u{1f90}'..='\u{1f97}' | '\u{1fa0}'..='\u{1fa7}' => 8,
        '\u{1fb3}' | '\u{1fc3}' | '\u{1ff3}' => 9,
        _ => 0,
    };
    char::from_u32(u32::from(letter) + title).unwrap_or(letter)
}

fn lower(letter: char) -> char {
    letter.to_lowercase().next().unwrap_or(letter)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Cased {
    inner: Arc<ScalarUDF>,
    case: Case,
}

impl ScalarUDFImpl for Cased {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [text] = &args.args[..] else { return self.inner.invoke_with_args(args) };
        let is_scalar = matches!(text, ColumnarValue::Scalar(_));
        let texts = text.to_array(if is_scalar { 1 } else { args.number_rows })?;
        let is_ascii = match texts.data_type() {
            DataType::Utf8 => texts.as_string::<i32>().is_ascii(),
            DataType::Utf8View => texts.as_string_view().is_ascii(),
            _ => false,
        };
        if is_ascii {
            return self.inner.invoke_with_args(args);
        }
        let texts = cast(&texts, &DataType::Utf8)?;
        let texts = texts.as_string::<i32>();
        let cased: StringArray = texts.iter().map(|text| text.map(|text| self.case.of(text))).collect();
        let cased: ArrayRef = cast(&cased, args.return_field.data_type())?;
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&cased, 0)?),
            false => ColumnarValue::Array(cased),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_letter_becomes_one() {
        for (case, text, want) in [
            (Case::Upper, "straße ﬁ ŉ ᾀ ᾳ é", "STRAßE ﬁ ŉ ᾈ ᾼ É"),
            (Case::Lower, "İSTANBUL ẞ ΑΣ É", "istanbul ß ασ é"),
            (Case::Initial, "hello éCOLE ß-ñandú 1ST", "Hello École ß-Ñandú 1st"),
        ] {
            assert_eq!(case.of(text), want);
        }
    }
}
