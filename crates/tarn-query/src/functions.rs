//! What are the words of a text, and are these among them? The SQL functions `tarn_tokens(text)` and `matches(column,
//! 'words')`.
//!
//! Both take words as the metastore's blooms do ([`tarn_metastore::tokens`]): runs of letters, digits and `_`, in lower
//! case. So `matches` is what the blooms can answer for a block, and the rows that are left are tested by the same
//! definition.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanBuilder, ListBuilder, StringViewArray, StringViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType as ArrowType, Field};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use datafusion::scalar::ScalarValue;
use tarn_metastore::tokens;

/// The name of [`Matches`], by which `clauses.rs` knows it.
pub(crate) const MATCHES: &str = "matches";

/// What every session has beside DataFusion's own functions.
pub(crate) fn all() -> [ScalarUDF; 2] {
    [ScalarUDF::from(TarnTokens::new()), ScalarUDF::from(Matches::new())]
}

/// The words of a text, each once, in the order in which they first come.
pub(crate) fn distinct_tokens(text: &str) -> Vec<String> {
    let mut scratch = String::new();
    let mut words = tokens(text, &mut scratch);
    let mut distinct: Vec<String> = vec![];
    while let Some(word) = words.next_token() {
        if !distinct.iter().any(|known| known == word) {
            distinct.push(word.to_owned());
        }
    }
    distinct
}

/// `tarn_tokens(text)`: its distinct words. NULL of NULL, an empty list of a text without words.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TarnTokens {
    signature: Signature,
}

impl TarnTokens {
    fn new() -> Self {
        Self { signature: Signature::new(TypeSignature::String(1), Volatility::Immutable) }
    }
}

fn word() -> Field {
    Field::new_list_field(ArrowType::Utf8View, true)
}

impl ScalarUDFImpl for TarnTokens {
    fn name(&self) -> &str {
        "tarn_tokens"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[ArrowType]) -> Result<ArrowType> {
        Ok(ArrowType::List(Arc::new(word())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [text] = args.args.as_slice() else { return exec_err!("tarn_tokens takes one text") };
        let texts = texts(text)?;
        let mut lists = ListBuilder::new(StringViewBuilder::new()).with_field(word());
        for text in &texts {
            if let Some(text) = text {
                distinct_tokens(text).iter().for_each(|word| lists.values().append_value(word));
            }
            lists.append(text.is_some());
        }
        answer(Arc::new(lists.finish()), std::slice::from_ref(text))
    }
}

/// `matches(text, words)`: is every word of `words` a word of `text`? NULL when one of them is; true of any text when
/// there is no word.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Matches {
    signature: Signature,
}

impl Matches {
    fn new() -> Self {
        Self { signature: Signature::new(TypeSignature::String(2), Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Matches {
    fn name(&self) -> &str {
        MATCHES
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[ArrowType]) -> Result<ArrowType> {
        Ok(ArrowType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [text, words] = args.args.as_slice() else { return exec_err!("matches takes a text and words") };
        let rows = args.args.iter().find_map(|arg| match arg {
            ColumnarValue::Array(array) => Some(array.len()),
            ColumnarValue::Scalar(_) => None,
        });
        let (texts, asked) = (texts(text)?, texts(words)?);
        // A scalar is one value for all rows.
        let at = |array: &StringViewArray, row: usize| if array.len() == 1 { 0 } else { row };
        let mut found = BooleanBuilder::with_capacity(rows.unwrap_or(1));
        let mut wanted = WordMatcher::default();
        let mut set_to = None;
        for row in 0..rows.unwrap_or(1) {
            let (text_at, words_at) = (at(&texts, row), at(&asked, row));
            if texts.is_null(text_at) || asked.is_null(words_at) {
                found.append_null();
                continue;
            }
            if set_to != Some(words_at) {
                wanted.set(asked.value(words_at));
                set_to = Some(words_at);
            }
            found.append_value(wanted.all_in(texts.value(text_at)));
        }
        answer(Arc::new(found.finish()), &args.args)
    }
}

/// The words that are looked for, and which of them were seen in the text at hand.
#[derive(Default)]
struct WordMatcher {
    words: Vec<String>,
    seen: Vec<bool>,
    scratch: String,
}

impl WordMatcher {
    fn set(&mut self, words: &str) {
        self.words = distinct_tokens(words);
        self.seen = vec![false; self.words.len()];
    }

    fn all_in(&mut self, text: &str) -> bool {
        let mut missing = self.words.len();
        if missing == 0 {
            return true;
        }
        self.seen.fill(false);
        let mut tokens = tokens(text, &mut self.scratch);
        while let Some(token) = tokens.next_token() {
            let Some(at) = self.words.iter().position(|word| word == token) else { continue };
            missing -= usize::from(!self.seen[at]);
            self.seen[at] = true;
            if missing == 0 {
                return true;
            }
        }
        false
    }
}

fn texts(arg: &ColumnarValue) -> Result<StringViewArray> {
    let array = match arg {
        ColumnarValue::Array(array) => Arc::clone(array),
        ColumnarValue::Scalar(scalar) => scalar.to_array()?,
    };
    Ok(cast(&array, &ArrowType::Utf8View)?.as_string_view().clone())
}

/// A scalar for scalars.
fn answer(array: ArrayRef, args: &[ColumnarValue]) -> Result<ColumnarValue> {
    match args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_))) {
        true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)),
        false => Ok(ColumnarValue::Array(array)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(text: &str, words: &str) -> bool {
        let mut wanted = WordMatcher::default();
        wanted.set(words);
        wanted.all_in(text)
    }

    #[test]
    fn every_word_must_be_there() {
        assert!(matches("Connection refused by 10.0.0.1", "refused CONNECTION"));
        assert!(matches("Connection refused by 10.0.0.1", "10 10"));
        assert!(!matches("Connection refused", "connection refused twice"));
        assert!(!matches("Connections", "connection"));
        assert!(matches("anything", "–!"));
        assert!(!matches("", "a"));
    }

    #[test]
    fn words_are_given_once_in_their_order() {
        assert_eq!(distinct_tokens("b A b c_1 a"), ["b", "a", "c_1"]);
        assert!(distinct_tokens(" .,").is_empty());
    }
}
