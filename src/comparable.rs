//! Equality of things whose types are hidden behind a trait.

use std::any::Any;

/// What can be compared with something of a type that is not known, and is equal to nothing of another type.
pub trait Comparable {
    /// Whether both are the same.
    fn equals(&self, other: &dyn Any) -> bool;
}

impl<T: Any + PartialEq> Comparable for T {
    fn equals(&self, other: &dyn Any) -> bool {
        other.downcast_ref() == Some(self)
    }
}
