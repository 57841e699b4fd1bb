//! Points of the curve, and which points of a list are added at each level.

use std::iter;

use k256::elliptic_curve::point::AffineCoordinates;
use k256::{AffinePoint, FieldBytes};

use crate::verify::fast::field::{Words, bytes_of, negative, words_from};

/// A point of the curve. It is not the identity. Each point of a table is one line of the processor's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
pub(in crate::verify::fast) struct Point {
    pub(in crate::verify::fast) x: Words,
    pub(in crate::verify::fast) y: Words,
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
    pub(in crate::verify::fast) fn signed(&self, is_negative: bool) -> Self {
        let negative = negative(&self.y);
        Self { x: self.x, y: std::array::from_fn(|at| if is_negative { negative[at] } else { self.y[at] }) }
    }

    pub(in crate::verify::fast) fn x(&self) -> FieldBytes {
        bytes_of(&self.x)
    }

    pub(in crate::verify::fast) fn y_is_odd(&self) -> bool {
        self.y[0] & 1 == 1
    }
}

/// For each level of a list of this length: the distance between the two points of a pair.
pub(super) fn levels(length: usize) -> impl Iterator<Item = usize> {
    iter::successors(Some(1), |distance| Some(2 * distance)).take_while(move |distance| *distance < length)
}

/// The indexes of the two points of each pair. The points at multiples of `distance` form the pairs, in order.
pub(super) fn pairs(
    length: usize,
    distance: usize,
) -> impl DoubleEndedIterator<Item = (usize, usize)> + ExactSizeIterator {
    let number = length.div_ceil(distance) / 2;
    (0..number).map(move |pair| (2 * pair * distance, (2 * pair + 1) * distance))
}
