//! Which way are rows given?

use std::cmp::Ordering;

/// Along the order of keys, or against it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The least key first.
    #[default]
    Ascending,
    /// The greatest key first.
    Descending,
}

impl Direction {
    /// Which of two keys comes first, when `order` is how they compare.
    #[must_use]
    pub fn of(self, order: Ordering) -> Ordering {
        match self {
            Direction::Ascending => order,
            Direction::Descending => order.reverse(),
        }
    }

    /// The other way.
    #[must_use]
    pub fn reversed(self) -> Direction {
        match self {
            Direction::Ascending => Direction::Descending,
            Direction::Descending => Direction::Ascending,
        }
    }
}
