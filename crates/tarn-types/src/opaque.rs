//! What is in it is nobody's business.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A value whose type shows nothing of its insides.
///
/// A compiler that is to prove that a task may move between threads looks into everything the task holds, each time
/// anew. A syntax tree or a query engine is some thousand types deep, and the crates above hold one in every task: this
/// is the wall in front of it. It took more than a minute of each `cargo check`. Reading through it costs one call that
/// is not inlined.
pub struct Opaque<T> {
    value: Box<dyn Any + Send + Sync>,
    of: PhantomData<fn(T) -> T>,
}

impl<T: Send + Sync + 'static> Opaque<T> {
    /// Builds the wall.
    pub fn new(value: T) -> Self {
        Self { value: Box::new(value), of: PhantomData }
    }
}

impl<T: 'static> Deref for Opaque<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self.value.downcast_ref() {
            Some(value) => value,
            None => unreachable!("it was made of this type"),
        }
    }
}

impl<T: 'static> DerefMut for Opaque<T> {
    fn deref_mut(&mut self) -> &mut T {
        match self.value.downcast_mut() {
            Some(value) => value,
            None => unreachable!("it was made of this type"),
        }
    }
}

impl<T: fmt::Debug + 'static> fmt::Debug for Opaque<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Default + Send + Sync + 'static> Default for Opaque<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_in_is_there() {
        let mut list = Opaque::new(vec![1, 2]);
        list.push(3);
        assert_eq!((list.len(), format!("{list:?}")), (3, "[1, 2, 3]".to_owned()));
        assert!(Opaque::<Vec<u8>>::default().is_empty());
    }
}
