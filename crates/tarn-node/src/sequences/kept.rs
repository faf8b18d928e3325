//! How are sequences written down? As one document of the metastore: JSON, with the version of this format in it
//! (`docs/formats/sequences.md`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Sequence;
use crate::error::{Error, ErrorKind, Result};

/// Of the text.
const FORMAT: u32 = 1;

/// All sequences by name.
pub(super) type Sequences = BTreeMap<String, Sequence>;

#[derive(Serialize, Deserialize)]
struct SequenceDocument {
    format: u32,
    sequences: Sequences,
}

/// The text of a document.
pub(super) fn to_text(sequences: &Sequences) -> String {
    let written = SequenceDocument { format: FORMAT, sequences: sequences.clone() };
    serde_json::to_string(&written).expect("texts and numbers have a JSON form")
}

/// What a document says.
///
/// Errors: `Corrupt` for what no build of this format wrote: numbers that cannot be read may have been given.
pub(super) fn of_text(text: &str) -> Result<Sequences> {
    let corrupt = |why: String| Error::new(ErrorKind::Corrupt, format!("the metastore's document of sequences: {why}"));
    let written: SequenceDocument = serde_json::from_str(text).map_err(|error| corrupt(error.to_string()))?;
    match written.format {
        FORMAT => {}
        other => return Err(corrupt(format!("it has format {other}, this build reads {FORMAT}"))),
    }
    let is_sound =
        |of: &Sequence| of.increment != 0 && of.min <= of.max && (of.min..=of.max).contains(&of.last) && of.cache > 0;
    match written.sequences.iter().find(|(_, of)| !is_sound(of)) {
        Some((name, of)) => Err(corrupt(format!("sequence \"{name}\" makes no sense: {of:?}"))),
        None => Ok(written.sequences),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequences::Owner;

    #[test]
    fn they_are_read_as_they_were_written_and_nothing_else_is() {
        let owner =
            Some(Owner { table: "t".into(), table_id: None, column: "id".into(), column_id: None, is_identity: true });
        let sequences: Sequences =
            [("a".to_owned(), Sequence::default()), ("t_id_seq".to_owned(), Sequence { owner, ..Sequence::default() })]
                .into();
        let text = to_text(&sequences);
        assert_eq!(of_text(&text).unwrap(), sequences);
        for wrong in [
            text.replace("\"format\":1", "\"format\":2"),
            text.replace("\"increment\":1", "\"increment\":0"),
            "{".into(),
        ] {
            assert_eq!(of_text(&wrong).unwrap_err().kind(), ErrorKind::Corrupt, "{wrong}");
        }
    }
}
