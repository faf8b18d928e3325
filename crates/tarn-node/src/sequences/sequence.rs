//! What is a sequence, and which numbers does it have left? Pure.

use serde::{Deserialize, Serialize};
use tarn_types::{ColumnId, TableId};

/// The numbers that a sequence may have at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Width {
    /// 16 bits.
    Smallint,
    /// 32 bits.
    Integer,
    /// 64 bits.
    #[default]
    Bigint,
}

impl Width {
    /// The least number that fits.
    pub fn least(self) -> i64 {
        match self {
            Width::Smallint => i16::MIN.into(),
            Width::Integer => i32::MIN.into(),
            Width::Bigint => i64::MIN,
        }
    }

    /// The greatest number that fits.
    pub fn most(self) -> i64 {
        match self {
            Width::Smallint => i16::MAX.into(),
            Width::Integer => i32::MAX.into(),
            Width::Bigint => i64::MAX,
        }
    }

    /// As SQL has it.
    pub fn name(self) -> &'static str {
        match self {
            Width::Smallint => "smallint",
            Width::Integer => "integer",
            Width::Bigint => "bigint",
        }
    }
}

/// The column that a sequence goes with: it is dropped when its table is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Its full name.
    pub table: String,
    /// Once the table has been called otherwise: then `table` is what it is called by now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table_id: Option<TableId>,
    /// Its name.
    pub column: String,
    /// Once the column has been called otherwise: then `column` is what it is called by now. Only with `table_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column_id: Option<ColumnId>,
    /// Of an identity column, which needs it.
    #[serde(default)]
    pub is_identity: bool,
}

/// A sequence, and how far its numbers are given out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sequence {
    /// Beyond which `min` and `max` cannot go.
    pub width: Width,
    /// The number that it begins with, and that `RESTART` goes back to.
    pub start: i64,
    /// Never 0.
    pub increment: i64,
    /// The least that is given.
    pub min: i64,
    /// The greatest that is given.
    pub max: i64,
    /// Whether it begins anew at its end, instead of failing.
    pub cycle: bool,
    /// How many numbers are taken at once, at least.
    pub cache: i64,
    /// The column whose default it is; `None`: it stands by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// The user who made it; nobody, while there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maker: Option<String>,
    /// The last number that a server took, given or not; before the first, that one.
    pub last: i64,
    /// Was `last` taken?
    pub is_called: bool,
}

impl Default for Sequence {
    fn default() -> Sequence {
        Sequence::ascending(Width::Bigint)
    }
}

/// Numbers that lie in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The number that is given next.
    pub next: i64,
    /// Between two numbers.
    pub step: i64,
    /// Numbers that are left.
    pub n_left: u64,
}

impl Block {
    /// Takes up to `n` of them.
    pub fn take(&mut self, n: u64, into: &mut Vec<i64>) {
        for _ in 0..n.min(self.n_left) {
            into.push(self.next);
            self.n_left -= 1;
            // The last of a block may be the last there is.
            self.next = self.next.wrapping_add(self.step);
        }
    }
}

impl Sequence {
    /// `1, 2, 3 …` as far as the type goes.
    pub fn ascending(width: Width) -> Sequence {
        Sequence {
            width,
            start: 1,
            increment: 1,
            min: 1,
            max: width.most(),
            cycle: false,
            cache: 1,
            owner: None,
            maker: None,
            last: 1,
            is_called: false,
        }
    }

    /// Takes up to `n` numbers that lie in a row. `None`: there is none left.
    pub(super) fn reserve(&mut self, n: u64) -> Option<Block> {
        let (first, end) = if self.increment > 0 { (self.min, self.max) } else { (self.max, self.min) };
        let step = i128::from(self.increment);
        let after = i128::from(self.last) + step;
        let is_within = |number: i128| (i128::from(self.min)..=i128::from(self.max)).contains(&number);
        let next = match () {
            () if !self.is_called => i128::from(self.last),
            () if is_within(after) => after,
            () if self.cycle => i128::from(first),
            () => return None,
        };
        let n_there = (i128::from(end) - next) / step + 1;
        let n_taken = n_there.clamp(1, i128::from(n.max(1)));
        let last = next + (n_taken - 1) * step;
        (self.last, self.is_called) = (narrow(last), true);
        Some(Block { next: narrow(next), step: self.increment, n_left: n_taken as u64 })
    }
}

/// Of a number between two of 64 bits.
fn narrow(number: i128) -> i64 {
    i64::try_from(number).expect("it lies between the least and the most of the sequence")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(sequence: &mut Sequence, n: u64) -> Option<Vec<i64>> {
        let mut block = sequence.reserve(n)?;
        let mut taken = vec![];
        block.take(n, &mut taken);
        assert_eq!(block.n_left, 0);
        Some(taken)
    }

    #[test]
    fn blocks_lie_behind_each_other_and_end_where_the_sequence_does() {
        let mut sequence = Sequence { max: 5, ..Sequence::default() };
        assert_eq!(numbers(&mut sequence, 2), Some(vec![1, 2]));
        assert_eq!(numbers(&mut sequence, 9), Some(vec![3, 4, 5]));
        assert_eq!(numbers(&mut sequence, 1), None);
        sequence.cycle = true;
        assert_eq!(numbers(&mut sequence, 1), Some(vec![1]));
    }

    #[test]
    fn they_go_down_too_and_to_the_ends_of_their_type() {
        let mut down = Sequence { start: -1, last: -1, increment: -2, min: i64::MIN, max: -1, ..Sequence::default() };
        assert_eq!(numbers(&mut down, 3), Some(vec![-1, -3, -5]));
        down.last = i64::MIN + 1;
        assert_eq!(numbers(&mut down, 3), None);
        let mut up = Sequence { last: i64::MAX - 1, ..Sequence::default() };
        assert_eq!(numbers(&mut up, 10), Some(vec![i64::MAX - 1, i64::MAX]));
        assert_eq!(numbers(&mut up, 10), None);
    }
}
