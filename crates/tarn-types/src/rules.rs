//! What does a table's definition say of its columns beside their types?
//!
//! Defaults that are computed for each row, how long texts may be, which column counts by itself, and what every row
//! has to fulfil. All of it is kept as it was written: expressions are texts of SQL, which this crate does not read.
//!
//! And what tells rows and files that were stored before the columns changed: what a column has in them that came
//! later, and which of their columns are no more.

use std::borrow::Cow;

use arrow::datatypes::Field;
use serde::{Deserialize, Serialize};

use crate::enumerated::Enumerated;
use crate::error::{Error, Result};
use crate::ids::{ColumnId, TableId};
use crate::value::Value;

/// The key of the field metadata that tells the length of a text: `varying 3`, `fixed 3`.
const LENGTH_METADATA: &str = "tarn.length";

/// What is said of a table. By default nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rules {
    /// Of columns, in no order; a column of which nothing is said is not in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<ColumnRules>,
    /// What every row has to fulfil, in the order in which it was said.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckRule>,
    /// Of which columns no two rows have the same values, and by which rows are found, in the order in which it was
    /// said.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uniques: Vec<Unique>,
    /// Whose rows its rows refer to, in the order in which it was said.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub foreign_keys: Vec<ForeignKey>,
    /// Columns that the table had, in the order in which they went.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<DroppedColumn>,
    /// What the constraint of the primary key is called, where that is not made of the table's name
    /// ([`crate::TableSchema::key_name`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_name: Option<String>,
}

/// A column that a table had. Rows and files that are there may still have values of it, which nobody reads: neither
/// its id nor its name in files is ever another column's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedColumn {
    /// The id that it had.
    pub id: ColumnId,
    /// What lake files call it.
    pub stored: String,
}

/// What is said of one column.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ColumnRules {
    /// Which.
    pub id: ColumnId,
    /// An expression of SQL: the value of a row that is inserted without one. Constants are [`crate::Column::default`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// `GENERATED … AS IDENTITY`; its default is the next number of its sequence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// `GENERATED ALWAYS AS (…) STORED`; it has no default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generated: Option<GeneratedColumn>,
    /// `varchar(n)` and `char(n)`; of an array `varchar(n)[]`: each of its items.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<Length>,
    /// Its type is an enumerated one: it keeps labels of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enumerated: Option<Enumerated>,
    /// What lake files call it, where that is not its name: it was renamed since, or its name was another column's in
    /// files that are there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored: Option<String>,
    /// The column's value in rows and files that were stored before it was there: the default that it was added with,
    /// whatever that is by now. It never changes. Without it they have NULL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<Value>,
}

/// May somebody else say what an identity column has?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    /// Nobody, unless he says `OVERRIDING SYSTEM VALUE`.
    Always,
    /// Whoever inserts the row.
    ByDefault,
}

/// What a column is computed from, whenever its row is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GeneratedColumn {
    /// An expression of SQL over other columns of the table, none of which is generated.
    pub expr: String,
    /// The columns that it names.
    pub columns: Vec<ColumnId>,
}

/// How long the texts of a column may be, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Length {
    /// `varchar(n)`: at most so long.
    Varying(u32),
    /// `char(n)`: at most so long, kept without the blanks at its end, and shown with as many as make it so long.
    Fixed(u32),
}

/// `CHECK (…)`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckRule {
    /// Unique in the table.
    pub name: String,
    /// An expression of SQL over the table's columns: a row of which it is false is refused.
    pub expr: String,
    /// The columns that it names.
    pub columns: Vec<ColumnId>,
}

/// `UNIQUE (…)`: no two rows have the same values in these columns. Rows that have NULL in one of them are not
/// compared. Or an index by which rows are found, and no more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unique {
    /// What the constraint and its index are called. It shares the names of tables.
    pub name: String,
    /// The columns, in the order in which they were said.
    pub columns: Vec<ColumnId>,
    /// The table that has its entries ([`crate::index_table`]).
    pub index: TableId,
    /// `CREATE INDEX` or `CREATE UNIQUE INDEX` made it: who asks for constraints is not told of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_index: bool,
    /// `CREATE INDEX`: rows may have the same values, and those with NULL have entries, too. Such an index holds rows
    /// to nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeats: bool,
    /// What was said of each column, in the order of `columns`; empty: of none of them anything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub orders: Vec<IndexedColumn>,
    /// It is there for a foreign key alone, by which rows are found that refer to one that goes: nobody is told of it,
    /// and it goes with the key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_foreign_key: bool,
}

/// `FOREIGN KEY (…) REFERENCES …`: a row whose columns are all not NULL needs a row of the parent that has these values
/// (`references.rs`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignKey {
    /// Unique in the table.
    pub name: String,
    /// The columns, in the order in which they were said.
    pub columns: Vec<ColumnId>,
    /// The table that they refer to; 0: the table that has the constraint.
    pub parent: TableId,
    /// Its columns, in the order of `columns`: those of its primary key, or of a unique constraint or index.
    pub parent_columns: Vec<ColumnId>,
    /// `MATCH FULL`: either all of the columns are NULL or none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub match_full: bool,
    /// What becomes of rows whose parent goes.
    #[serde(default)]
    pub on_delete: OnParent,
    /// What becomes of rows whose parent gets other values.
    #[serde(default)]
    pub on_update: OnParent,
    /// A transaction may put off that it is checked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deferrable: bool,
    /// It is checked at COMMIT, unless the transaction says otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub initially_deferred: bool,
}

/// What becomes of rows that refer to one that goes, or gets other values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnParent {
    /// There may be none when the statement, or the transaction, is done.
    #[default]
    NoAction,
    /// There may be none when the foreign keys act on the rows that the statement wrote: those that a foreign key
    /// before this one took along are no hindrance.
    Restrict,
    /// They go with it, or get the same values.
    Cascade,
    /// Their columns are NULL from then on.
    SetNull,
    /// Their columns have their defaults from then on.
    SetDefault,
}

impl OnParent {
    /// Whether rows are changed, or go.
    #[must_use]
    pub fn acts(self) -> bool {
        matches!(self, OnParent::Cascade | OnParent::SetNull | OnParent::SetDefault)
    }
}

/// As it is written behind `ON DELETE`.
impl std::fmt::Display for OnParent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            OnParent::NoAction => "NO ACTION",
            OnParent::Restrict => "RESTRICT",
            OnParent::Cascade => "CASCADE",
            OnParent::SetNull => "SET NULL",
            OnParent::SetDefault => "SET DEFAULT",
        })
    }
}

impl ForeignKey {
    /// In [`ForeignKey::parent`]: the table that has the constraint.
    pub const ITSELF: TableId = TableId(0);

    /// The table that rows of `child` refer to by it.
    #[must_use]
    pub fn parent_of(&self, child: TableId) -> TableId {
        if self.parent == Self::ITSELF { child } else { self.parent }
    }
}

/// How the values of a column lie in an index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IndexedColumn {
    /// `DESC`: the greatest value is the first.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub descending: bool,
    /// NULL is before all values, else behind them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub nulls_first: bool,
    /// The operator class that was named; whoever defined the index saw to it that its order is that of keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operators: Option<String>,
}

impl Unique {
    /// What was said of the column at this place of `columns`.
    #[must_use]
    pub fn order(&self, place: usize) -> IndexedColumn {
        self.orders.get(place).cloned().unwrap_or_default()
    }
}

impl Rules {
    /// Is nothing said?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
            && self.checks.is_empty()
            && self.uniques.is_empty()
            && self.foreign_keys.is_empty()
            && self.dropped.is_empty()
            && self.key_name.is_none()
    }

    /// The place, among [`Rules::uniques`], of an index by which the rows of a foreign key are found: one whose first
    /// columns are the key's and that has an entry for each row, or a constraint of just these columns.
    #[must_use]
    pub fn serving(&self, key: &ForeignKey) -> Option<usize> {
        let serves = |unique: &Unique| match unique.repeats {
            true => unique.columns.starts_with(&key.columns),
            // Where some of several columns are NULL there is no entry, and `MATCH FULL` asks for that.
            false => unique.columns == key.columns && !(key.match_full && key.columns.len() > 1),
        };
        self.uniques.iter().position(serves)
    }

    /// Indexes that are there for foreign keys alone, and that none needs, are not in it any more.
    pub fn forget_unneeded(&mut self) {
        // What others serve, too, is served by them.
        let (hidden, others): (Vec<Unique>, Vec<Unique>) =
            std::mem::take(&mut self.uniques).into_iter().partition(|unique| unique.of_foreign_key);
        self.uniques = others;
        for unique in hidden {
            let needs = |key: &ForeignKey| key.columns == unique.columns && self.serving(key).is_none();
            if self.foreign_keys.iter().any(needs) {
                self.uniques.push(unique);
            }
        }
    }

    /// What is said of a column.
    #[must_use]
    pub fn of(&self, id: ColumnId) -> Option<&ColumnRules> {
        self.columns.iter().find(|rules| rules.id == id)
    }

    /// The same, to be changed; it is there afterwards.
    pub fn entry(&mut self, id: ColumnId) -> &mut ColumnRules {
        let at = self.columns.iter().position(|rules| rules.id == id).unwrap_or_else(|| {
            self.columns.push(ColumnRules { id, ..ColumnRules::default() });
            self.columns.len() - 1
        });
        &mut self.columns[at]
    }

    /// A column of which nothing is said any more is not in it.
    pub fn forget_empty(&mut self) {
        self.columns.retain(|rules| *rules != ColumnRules { id: rules.id, ..ColumnRules::default() });
    }

    /// Whether rows are looked at before they are written: something of them is computed of the rest, or checked.
    #[must_use]
    pub fn look_at_rows(&self) -> bool {
        !self.checks.is_empty() || self.columns.iter().any(|column| column.generated.is_some())
    }

    /// Every id of a column that is named.
    pub fn ids_mut(&mut self) -> impl Iterator<Item = &mut ColumnId> {
        let of_checks = self.checks.iter_mut().flat_map(|check| &mut check.columns);
        let of_uniques = self.uniques.iter_mut().flat_map(|unique| &mut unique.columns);
        let of_columns = self.columns.iter_mut().flat_map(|rules| {
            [&mut rules.id].into_iter().chain(rules.generated.iter_mut().flat_map(|generated| &mut generated.columns))
        });
        let of_keys = self.foreign_keys.iter_mut().flat_map(|key| {
            let is_own = key.parent == ForeignKey::ITSELF;
            key.columns.iter_mut().chain(key.parent_columns.iter_mut().filter(move |_| is_own))
        });
        of_columns.chain(of_checks).chain(of_uniques).chain(of_keys)
    }
}

impl Length {
    /// Characters, at most.
    #[must_use]
    pub fn n_chars(self) -> u32 {
        match self {
            Self::Varying(n) | Self::Fixed(n) => n,
        }
    }

    /// Whether whatever a column of this length keeps is kept alike by one of the other.
    #[must_use]
    pub fn widens_to(self, other: Self) -> bool {
        match (self, other) {
            (Self::Varying(_), Self::Fixed(_)) => false,
            _ => self.n_chars() <= other.n_chars(),
        }
    }

    /// The text as the column keeps it. Blanks beyond the length are cut off.
    ///
    /// # Errors
    /// [`Error::TooLong`] if there is more than blanks beyond it.
    pub fn fit(self, text: &str) -> Result<Cow<'_, str>> {
        let n = self.n_chars() as usize;
        // A text has no more characters than bytes.
        let kept = match text.char_indices().nth(n).filter(|_| text.len() > n) {
            None => text,
            Some((end, _)) if text[end..].bytes().all(|byte| byte == b' ') => &text[..end],
            Some(_) => return Err(Error::TooLong { data_type: self.to_string() }),
        };
        Ok(Cow::Borrowed(match self {
            Self::Varying(_) => kept,
            Self::Fixed(_) => kept.trim_end_matches(' '),
        }))
    }

    /// The value as a column of this length keeps it: a text, or an array of such.
    ///
    /// # Errors
    /// As [`Length::fit`].
    pub fn fit_value(self, value: Value) -> Result<Value> {
        Ok(match value {
            Value::Text(text) => Value::Text(self.fit(&text)?.into_owned()),
            Value::Array(items) => {
                Value::Array(items.into_iter().map(|item| self.fit_value(item)).collect::<Result<_>>()?)
            }
            other => other,
        })
    }

    /// The field of a column of this length. Like the type of a `uuid`, it goes with the column through whatever reads
    /// it.
    #[must_use]
    pub fn told(self, field: Field) -> Field {
        let text = match self {
            Self::Varying(n) => format!("varying {n}"),
            Self::Fixed(n) => format!("fixed {n}"),
        };
        let mut metadata = field.metadata().clone();
        metadata.insert(LENGTH_METADATA.to_owned(), text);
        field.with_metadata(metadata)
    }

    /// The length that a field tells.
    #[must_use]
    pub fn of(field: &Field) -> Option<Self> {
        let (kind, n) = field.metadata().get(LENGTH_METADATA)?.split_once(' ')?;
        let n = n.parse().ok()?;
        match kind {
            "varying" => Some(Self::Varying(n)),
            "fixed" => Some(Self::Fixed(n)),
            _ => None,
        }
    }

    /// Does the column keep the text as it is?
    #[must_use]
    pub fn holds(self, text: &str) -> bool {
        self.fit(text).is_ok_and(|kept| kept.len() == text.len())
    }
}

/// As PostgreSQL writes the type.
impl std::fmt::Display for Length {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Varying(n) => write!(f, "character varying({n})"),
            Self::Fixed(n) => write!(f, "character({n})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_beyond_the_length_are_cut_off_and_nothing_else() {
        let varying = Length::Varying(3);
        assert_eq!(varying.fit("abc").unwrap(), "abc");
        assert_eq!(varying.fit("ab ").unwrap(), "ab ");
        assert_eq!(varying.fit("abc  ").unwrap(), "abc");
        assert_eq!(varying.fit("äöü").unwrap(), "äöü");
        assert_eq!(varying.fit("abcd").unwrap_err().to_string(), "value too long for type character varying(3)");
        assert!(varying.holds("ab ") && !varying.holds("abc "));
        let fixed = Length::Fixed(3);
        assert_eq!(fixed.fit("a  ").unwrap(), "a");
        assert_eq!(fixed.fit("äbc   ").unwrap(), "äbc");
        assert_eq!(fixed.fit("abcd").unwrap_err().to_string(), "value too long for type character(3)");
    }

    #[test]
    fn a_field_tells_the_length_of_its_column() {
        let field = Field::new("c", arrow::datatypes::DataType::Utf8, true);
        assert_eq!(Length::of(&field), None);
        for length in [Length::Varying(3), Length::Fixed(10_000_000)] {
            assert_eq!(Length::of(&length.told(field.clone())), Some(length));
        }
    }

    #[test]
    fn a_table_of_which_nothing_is_said_is_written_as_before_there_were_rules() {
        let options = crate::TableOptions::default();
        assert!(!serde_json::to_string(&options).unwrap().contains("rules"));
    }
}
