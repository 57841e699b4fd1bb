//! Sums of points, many at once.
//!
//! An addition of two affine points takes one inversion and three products. Inversions of many numbers at once take one
//! inversion together and three products each, so that an addition comes to six products; k256's own addition, which needs
//! no inversion and knows no exception, takes twelve. Each list is summed as a tree, all lists level by level, so that few
//! inversions are taken also where there are few lists: five for a list of 32.
//!
//! On a processor with AVX2 [`four`] lists are added side by side, in a third of the time. On any other it is a [`single`] one
//! after the other, by k256's numbers.
//!
//! A sum takes the place of its first point, and the same memory serves one batch of lists after the other. Where each level
//! had memory of its own, the daemon took 14 to 27 % more processor time (measured, with single lists).
//!
//! # Invariants
//!
//! * **An exception has no sum.** A point and itself, or its negative, cannot be added like this. Only the owner of a
//!   key can bring that about, for signatures by that key. Then no list of the batch has a sum, and the caller
//!   does without.

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

/// A point of the curve that is not the identity.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    x: Words,
    y: Words,
}

impl From<&AffinePoint> for Point {
    /// Of a point that is not the identity.
    fn from(point: &AffinePoint) -> Self {
        Self { x: words_from(&point.x()), y: words_from(&point.y()) }
    }
}

impl Point {
    /// The point, or its negative. Without a branch: half of the points are negative, in no order.
    pub(super) fn signed(&self, is_negative: bool) -> Self {
        let negative = negative(&self.y);
        Self { x: self.x, y: std::array::from_fn(|at| if is_negative { negative[at] } else { self.y[at] }) }
    }

    /// The first coordinate.
    pub(super) fn x(&self) -> FieldBytes {
        bytes_of(&self.x)
    }

    /// Whether the second coordinate is odd.
    pub(super) fn y_is_odd(&self) -> bool {
        self.y[0] & 1 == 1
    }
}

/// Lists of points, all of one length, each to be summed.
pub(super) enum Lists {
    #[cfg(target_arch = "x86_64")]
    Four(four::Lists),
    Single(single::Lists),
}

impl Default for Lists {
    /// For this processor.
    fn default() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = Level::new().as_avx2() {
            return Self::Four(four::Lists::new(avx2));
        }
        Self::Single(single::Lists::default())
    }
}

impl Lists {
    /// A recovery takes as long as so many additions (measured).
    pub(super) fn additions_of_a_recovery(&self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Four(_) => 1_000,
            Self::Single(_) => 430,
        }
    }

    /// Adds a list, which is as long as the others and has a point.
    pub(super) fn push(&mut self, list: impl IntoIterator<Item = Point>) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Four(lists) => lists.push(list),
            Self::Single(lists) => lists.push(list),
        }
    }

    /// The sum of each list; `None` where any list has no sum. No list is left.
    pub(super) fn take_sums(&mut self) -> Vec<Option<Point>> {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Four(lists) => lists.take_sums(),
            Self::Single(lists) => lists.take_sums(),
        }
    }
}

/// How far apart the points are that are added at each level of lists of this length.
fn levels(length: usize) -> impl Iterator<Item = usize> {
    iter::successors(Some(1), |distance| Some(2 * distance)).take_while(move |distance| *distance < length)
}

/// The places of points that are added: of those at a multiple of `distance`, every two.
fn pairs(length: usize, distance: usize) -> impl DoubleEndedIterator<Item = (usize, usize)> + ExactSizeIterator {
    let number = length.div_ceil(distance) / 2;
    (0..number).map(move |pair| (2 * pair * distance, (2 * pair + 1) * distance))
}
