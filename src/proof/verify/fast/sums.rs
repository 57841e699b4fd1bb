//! Sums of points, many at once.
//!
//! An addition of two affine points takes one inversion and three products. Many inversions can be replaced by one
//! common inversion plus three products for each, so an addition costs six products. k256's own addition needs no
//! inversion and has no exceptions, but it takes twelve products. Each list is summed as a tree, and all lists advance
//! level by level. This needs few inversions even for few lists: five for a list of 32.
//!
//! On a processor with AVX2, [`four`] adds four lists side by side, in a third of the time, and multiplies four points side
//! by side. On other processors, [`single`] adds one list after another, with k256's field arithmetic. NEON, on ARM, would not
//! help: with its vectors of two numbers, a product of four elements takes 1,348 instructions, and four of k256's products 908.
//!
//! The sum of two points overwrites the first of them, and all batches reuse the same memory. With separate memory for
//! each level, the daemon took 14 to 27 % more processor time (measured with [`single`]).
//!
//! # Invariants
//!
//! * **Exceptional additions have no sum.** The formula for affine points cannot add a point to itself or to its
//!   negative. If members are tested, only the owner of a key can cause such an addition, with signatures by that key. If
//!   keys are computed, any signature can. Then no list of the batch has a sum, and k256 recovers the keys.

use std::iter;

#[cfg(target_arch = "x86_64")]
use fearless_simd::Level;
use k256::elliptic_curve::point::AffineCoordinates;
use k256::{AffinePoint, FieldBytes};

use super::field::{Words, bytes_of, negative, words_from};

#[cfg(target_arch = "x86_64")]
mod four;
mod single;
#[cfg(test)]
mod tests;

#[cfg(target_arch = "x86_64")]
pub(super) use four::{BETA, ODD_MULTIPLES, Products};

/// A point of the curve. It is not the identity. Each point of a table is one line of the processor's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
pub(super) struct Point {
    pub(super) x: Words,
    pub(super) y: Words,
}

impl From<&AffinePoint> for Point {
    /// Converts a point, which must not be the identity.
    fn from(point: &AffinePoint) -> Self {
        Self { x: words_from(&point.x()), y: words_from(&point.y()) }
    }
}

impl Point {
    /// Returns the point or its negative. Half of the points are negative, in no predictable order. The processor would
    /// often predict a branch wrongly, so the code has no branch.
    pub(super) fn signed(&self, is_negative: bool) -> Self {
        let negative = negative(&self.y);
        Self { x: self.x, y: std::array::from_fn(|at| if is_negative { negative[at] } else { self.y[at] }) }
    }

    pub(super) fn x(&self) -> FieldBytes {
        bytes_of(&self.x)
    }

    pub(super) fn y_is_odd(&self) -> bool {
        self.y[0] & 1 == 1
    }
}

/// Lists of points to sum. All lists have the same length.
pub(super) enum Lists {
    #[cfg(target_arch = "x86_64")]
    Four(four::Lists),
    Single(single::Lists),
}

impl Default for Lists {
    /// Selects the implementation for this processor.
    fn default() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = Level::new().as_avx2() {
            return Self::Four(four::Lists::new(avx2));
        }
        Self::Single(single::Lists::default())
    }
}

impl Lists {
    /// The number of additions that take as long as one recovery (measured).
    pub(super) fn additions_of_a_recovery(&self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Four(_) => 260,
            Self::Single(_) => 430,
        }
    }

    /// Returns the functions for points that have no precomputed multiples, if the processor has AVX2.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn products(&self) -> Option<Products> {
        match self {
            Self::Four(lists) => Some(lists.products()),
            Self::Single(_) => None,
        }
    }

    /// Adds the list of the points that `append` appends. It must have at least one point and the same length as the other
    /// lists.
    pub(super) fn push(&mut self, append: impl FnOnce(&mut Vec<Point>)) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Four(lists) => lists.push(append),
            Self::Single(lists) => lists.push(append),
        }
    }

    /// Returns the sum of each list and removes all lists. Each sum is `None` if any list has no sum.
    pub(super) fn take_sums(&mut self) -> Vec<Option<Point>> {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Four(lists) => lists.take_sums(),
            Self::Single(lists) => lists.take_sums(),
        }
    }
}

/// For each level of a list of this length: the distance between the two points of a pair.
fn levels(length: usize) -> impl Iterator<Item = usize> {
    iter::successors(Some(1), |distance| Some(2 * distance)).take_while(move |distance| *distance < length)
}

/// The indexes of the two points of each pair. The points at multiples of `distance` form the pairs, in order.
fn pairs(length: usize, distance: usize) -> impl DoubleEndedIterator<Item = (usize, usize)> + ExactSizeIterator {
    let number = length.div_ceil(distance) / 2;
    (0..number).map(move |pair| (2 * pair * distance, (2 * pair + 1) * distance))
}
