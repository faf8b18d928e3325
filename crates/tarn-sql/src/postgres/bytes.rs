//! What is done with bytes? `encode` and `decode` in PostgreSQL's three forms, `convert_from` and `convert_to` of
//! UTF-8, and single bytes and bits: `get_byte`, `set_byte`, `get_bit`, `set_bit`, `bit_count`. Bits are counted from
//! the lowest of the first byte on.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BinaryArray, Int32Array, Int64Array, StringArray};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use tarn_query::datafusion;

use super::averages::undefined;
use super::rowwise::ArgumentRows;
use crate::error::{SqlError, state};

/// The functions, to be registered over DataFusion's.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    use BytesFunction::{BitCount, ConvertFrom, ConvertTo, Decode, Encode, GetBit, GetByte, SetBit, SetByte};
    let all = [BitCount, ConvertFrom, ConvertTo, Decode, Encode, GetBit, GetByte, SetBit, SetByte];
    let of =
        |what| Arc::new(ScalarUDF::from(OfBytes { what, signature: Signature::user_defined(Volatility::Immutable) }));
    all.into_iter().map(of).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum BytesFunction {
    BitCount,
    ConvertFrom,
    ConvertTo,
    Decode,
    Encode,
    GetBit,
    GetByte,
    SetBit,
    SetByte,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfBytes {
    what: BytesFunction,
    signature: Signature,
}

impl BytesFunction {
    /// The types of its arguments, and of what it gives.
    fn types(self) -> (&'static [DataType], DataType) {
        const BYTES: DataType = DataType::Binary;
        const TEXT: DataType = DataType::Utf8;
        const NUMBER: DataType = DataType::Int64;
        match self {
            BytesFunction::BitCount => (&[BYTES], NUMBER),
            BytesFunction::ConvertFrom | BytesFunction::Encode => (&[BYTES, TEXT], TEXT),
            BytesFunction::ConvertTo | BytesFunction::Decode => (&[TEXT, TEXT], BYTES),
            BytesFunction::GetBit | BytesFunction::GetByte => (&[BYTES, NUMBER], DataType::Int32),
            BytesFunction::SetBit | BytesFunction::SetByte => (&[BYTES, NUMBER, NUMBER], BYTES),
        }
    }
}

impl ScalarUDFImpl for OfBytes {
    fn name(&self) -> &str {
        match self.what {
            BytesFunction::BitCount => "bit_count",
            BytesFunction::ConvertFrom => "convert_from",
            BytesFunction::ConvertTo => "convert_to",
            BytesFunction::Decode => "decode",
            BytesFunction::Encode => "encode",
            BytesFunction::GetBit => "get_bit",
            BytesFunction::GetByte => "get_byte",
            BytesFunction::SetBit => "set_bit",
            BytesFunction::SetByte => "set_byte",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let (wanted, _) = self.what.types();
        let fits = |(of, wanted): (&DataType, &DataType)| match wanted {
            DataType::Binary => of.is_binary() || of.is_string(),
            DataType::Utf8 => of.is_string(),
            _ => of.is_integer(),
        };
        let are_taken = types.len() == wanted.len()
            && types.iter().zip(wanted).all(|(of, wanted)| of.is_null() || fits((of, wanted)));
        if are_taken { Ok(wanted.to_vec()) } else { Err(undefined(self.name(), types).into()) }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.what.types().1)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = ArgumentRows::of(&args)?;
        let columns = &rows.columns;
        let bytes = |row: usize| columns[0].as_binary::<i32>().value(row);
        let text = |idx: usize, row: usize| columns[idx].as_string::<i32>().value(row);
        let number = |idx: usize, row: usize| columns[idx].as_primitive::<Int64Type>().value(row);
        let there = || rows.there();
        let answer: ArrayRef = match self.what {
            BytesFunction::BitCount => {
                let count = |row: usize| bytes(row).iter().map(|byte| i64::from(byte.count_ones())).sum();
                Arc::new(there().map(|row| row.map(count)).collect::<Int64Array>())
            }
            BytesFunction::ConvertFrom => {
                let of = |row: usize| text_of(bytes(row), text(1, row)).map(str::to_owned);
                Arc::new(there().map(|row| row.map(of).transpose()).collect::<Result<StringArray, SqlError>>()?)
            }
            BytesFunction::Encode => {
                let of = |row: usize| encoded(bytes(row), text(1, row));
                Arc::new(there().map(|row| row.map(of).transpose()).collect::<Result<StringArray, SqlError>>()?)
            }
            BytesFunction::ConvertTo => {
                let of = |row: usize| is_utf8(text(1, row)).map(|()| text(0, row).as_bytes().to_vec());
                Arc::new(there().map(|row| row.map(of).transpose()).collect::<Result<BinaryArray, SqlError>>()?)
            }
            BytesFunction::Decode => {
                let of = |row: usize| decoded(text(0, row), text(1, row));
                Arc::new(there().map(|row| row.map(of).transpose()).collect::<Result<BinaryArray, SqlError>>()?)
            }
            BytesFunction::GetBit | BytesFunction::GetByte => {
                let of = |row: usize| match self.what {
                    BytesFunction::GetBit => {
                        let (at, bit) = place_of_bit(bytes(row), number(1, row))?;
                        Ok(i32::from(bytes(row)[at] >> bit & 1))
                    }
                    _ => Ok(i32::from(bytes(row)[place(number(1, row), bytes(row).len())?])),
                };
                Arc::new(there().map(|row| row.map(of).transpose()).collect::<Result<Int32Array, SqlError>>()?)
            }
            BytesFunction::SetBit | BytesFunction::SetByte => {
                let of = |row: usize| {
                    let (mut changed, value) = (bytes(row).to_vec(), number(2, row));
                    if self.what == BytesFunction::SetByte {
                        let at = place(number(1, row), changed.len())?;
                        // Its lowest eight bits, as PostgreSQL does.
                        changed[at] = value as u8;
                        return Ok(changed);
                    }
                    let (at, bit) = place_of_bit(&changed, number(1, row))?;
                    match value {
                        0 => changed[at] &= !(1 << bit),
                        1 => changed[at] |= 1 << bit,
                        _ => return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, "new bit must be 0 or 1")),
                    }
                    Ok(changed)
                };
                Arc::new(there().map(|row| row.map(of).transpose()).collect::<Result<BinaryArray, SqlError>>()?)
            }
        };
        rows.answer(answer)
    }
}

fn place(index: i64, n: usize) -> Result<usize, SqlError> {
    usize::try_from(index).ok().filter(|at| *at < n).ok_or_else(|| {
        let message = format!("index {index} out of valid range, 0..{}", n as i64 - 1);
        SqlError::new(state::ARRAY_SUBSCRIPT, message)
    })
}

fn place_of_bit(bytes: &[u8], index: i64) -> Result<(usize, u32), SqlError> {
    let at = place(index, bytes.len() * 8)?;
    Ok((at / 8, (at % 8) as u32))
}

/// Is it a name of UTF-8? There is no other encoding here.
fn is_utf8(name: &str) -> Result<(), SqlError> {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    match plain.eq_ignore_ascii_case("utf8") || plain.eq_ignore_ascii_case("unicode") {
        true => Ok(()),
        false => Err(SqlError::unsupported(format!("the encoding \"{name}\" is not supported"), "texts are UTF8")),
    }
}

fn text_of<'a>(bytes: &'a [u8], encoding: &str) -> Result<&'a str, SqlError> {
    is_utf8(encoding)?;
    let invalid = |bytes: &[u8]| {
        let bytes = bytes.iter().map(|byte| format!("0x{byte:02x}")).collect::<Vec<_>>().join(" ");
        let message = format!("invalid byte sequence for encoding \"UTF8\": {bytes}");
        SqlError::new(state::CHARACTER_NOT_IN_REPERTOIRE, message).with_hint("keep bytes that are no text as bytea")
    };
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let from = error.valid_up_to();
        let length = error.error_len().unwrap_or(bytes.len() - from);
        invalid(&bytes[from..from + length])
    })?;
    if text.contains('\0') { Err(invalid(&[0])) } else { Ok(text) }
}

fn unrecognized(form: &str) -> SqlError {
    SqlError::new(state::INVALID_PARAMETER_VALUE, format!("unrecognized encoding: \"{form}\""))
        .with_hint("base64, hex or escape")
}

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Letters of base 64 in a line, as RFC 2045 has it.
const LINE: usize = 76;

fn encoded(bytes: &[u8], form: &str) -> Result<String, SqlError> {
    let mut out = String::with_capacity(bytes.len() * 2);
    match form.to_ascii_lowercase().as_str() {
        "hex" => bytes.iter().for_each(|byte| out.push_str(&format!("{byte:02x}"))),
        "escape" => {
            for byte in bytes {
                match byte {
                    b'\\' => out.push_str("\\\\"),
                    0 | 0x80.. => out.push_str(&format!("\\{byte:03o}")),
                    byte => out.push(char::from(*byte)),
                }
            }
        }
        "base64" => {
            let mut n_letters = 0;
            for three in bytes.chunks(3) {
                if n_letters == LINE {
                    out.push('\n');
                    n_letters = 0;
                }
                let group =
                    three.iter().fold(0_u32, |group, byte| group << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
                for nth in 0..4 {
                    let letter = LETTERS[(group >> (18 - 6 * nth) & 63) as usize];
                    out.push(if nth <= three.len() { char::from(letter) } else { '=' });
                }
                n_letters += 4;
            }
        }
        _ => return Err(unrecognized(form)),
    }
    Ok(out)
}

fn decoded(text: &str, form: &str) -> Result<Vec<u8>, SqlError> {
    let invalid = |message: String| SqlError::new(state::INVALID_PARAMETER_VALUE, message);
    let is_blank = |letter: &char| matches!(letter, ' ' | '\n' | '\t' | '\r');
    match form.to_ascii_lowercase().as_str() {
        "hex" => {
            let digit = |letter: char| {
                let message = || invalid(format!("invalid hexadecimal digit: \"{letter}\""));
                letter.to_digit(16).ok_or_else(message)
            };
            let digits = text.chars().filter(|letter| !is_blank(letter)).map(digit).collect::<Result<Vec<_>, _>>()?;
            if digits.len() % 2 == 1 {
                return Err(invalid("invalid hexadecimal data: odd number of digits".to_owned()));
            }
            Ok(digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
        }
        "escape" => escaped(text),
        "base64" => {
            let (mut out, mut group, mut n_letters, mut n_ends) = (vec![], 0_u32, 0, 0);
            let ended = || {
                invalid("invalid base64 end sequence".to_owned())
                    .with_hint("Input data is missing padding, is truncated, or is otherwise corrupted.")
            };
            for letter in text.chars().filter(|letter| !is_blank(letter)) {
                let value = match LETTERS.iter().position(|of| char::from(*of) == letter) {
                    Some(value) if n_ends == 0 => value as u32,
                    None if letter == '=' && n_letters >= 2 => {
                        n_ends += 1;
                        0
                    }
                    None if letter != '=' => {
                        return Err(invalid(format!(
                            "invalid symbol \"{letter}\" found while decoding base64 sequence"
                        )));
                    }
                    _ => return Err(invalid("unexpected \"=\" while decoding base64 sequence".to_owned())),
                };
                (group, n_letters) = (group << 6 | value, n_letters + 1);
                if n_letters == 4 {
                    out.extend(&group.to_be_bytes()[1..4 - n_ends]);
                    (group, n_letters) = (0, 0);
                }
            }
            if n_letters == 0 { Ok(out) } else { Err(ended()) }
        }
        _ => Err(unrecognized(form)),
    }
}

/// `\\` is a backslash, `\101` a byte.
fn escaped(text: &str) -> Result<Vec<u8>, SqlError> {
    let (mut out, mut rest) = (vec![], text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let octal = |of: &[u8]| {
            let digits =
                of.get(..3).filter(|of| of.iter().all(|digit| (b'0'..=b'7').contains(digit)) && of[0] < b'4')?;
            Some(digits.iter().fold(0, |byte, digit| byte << 3 | (digit - b'0')))
        };
        rest = match (first, after.first()) {
            (b'\\', Some(b'\\')) => {
                out.push(b'\\');
                &after[1..]
            }
            (b'\\', _) => {
                let byte = octal(after).ok_or_else(|| {
                    SqlError::new(state::INVALID_TEXT, "invalid input syntax for type bytea")
                        .with_hint("\\\\ is a backslash, \\101 a byte")
                })?;
                out.push(byte);
                &after[3..]
            }
            (byte, _) => {
                out.push(*byte);
                after
            }
        };
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bytes_have_three_forms() {
        assert_eq!(encoded(b"a\x00\\\xff", "escape").unwrap(), "a\\000\\\\\\377");
        assert_eq!(encoded(b"abcd", "base64").unwrap(), "YWJjZA==");
        assert_eq!(encoded(&[b'a'; 60], "base64").unwrap().split_once('\n').unwrap().0.len(), LINE);
        for (text, form) in [("xyz", "hex"), ("123", "hex"), ("YWJ", "base64"), ("Y=Jj", "base64"), ("a", "rot13")] {
            assert_eq!(decoded(text, form).unwrap_err().state(), state::INVALID_PARAMETER_VALUE, "{text}");
        }
        assert_eq!(decoded("a\\9", "escape").unwrap_err().state(), state::INVALID_TEXT);
        assert_eq!(
            text_of(b"a\xff", "UTF8").unwrap_err().message(),
            "invalid byte sequence for encoding \"UTF8\": 0xff"
        );
        assert_eq!(text_of(b"a", "LATIN1").unwrap_err().state(), state::FEATURE_NOT_SUPPORTED);
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for form in ["hex", "escape", "base64"] {
                prop_assert_eq!(&decoded(&encoded(&bytes, form).unwrap(), form).unwrap(), &bytes);
            }
        }
    }
}
