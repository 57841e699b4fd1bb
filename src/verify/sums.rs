//! Sums of points, many at once.
//!
//! An addition of two affine points takes one inversion and three products. Inversions of many numbers at once take one
//! inversion together and three products each, so that an addition comes to six products; k256's own addition, which needs
//! no inversion and knows no exception, takes twelve. Each list is summed as a tree, all lists level by level, so that few
//! inversions are taken also where there are few lists: five for a list of 32.
//!
//! # Invariants
//!
//! * **k256's own field.** Numbers are added, multiplied and inverted by k256 alone.
//! * **An exception has no sum.** A point and itself, or its negative, cannot be added like this. Only the owner of a
//!   key can bring that about, for signatures by that key. Then no list of the batch has a sum, and the caller
//!   does without.

use k256::elliptic_curve::hazmat::FieldArithmetic;
use k256::elliptic_curve::point::AffineCoordinates;
use k256::elliptic_curve::subtle::ConditionallySelectable;
use k256::{AffinePoint, FieldBytes, Secp256k1};

#[cfg(test)]
mod tests;

type Number = <Secp256k1 as FieldArithmetic>::FieldElement;

/// A point of the curve that is not the identity. The magnitude of x is 1, that of y at most 2, in k256's terms.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    x: Number,
    y: Number,
}

impl From<&AffinePoint> for Point {
    /// Of a point that is not the identity.
    fn from(point: &AffinePoint) -> Self {
        let number = |bytes| Number::from_bytes(&bytes).expect("a coordinate is less than the prime");
        Self { x: number(point.x()), y: number(point.y()) }
    }
}

impl Point {
    /// The point, or its negative. Without a branch: half of the points are negative, in no order.
    pub(super) fn signed(&self, is_negative: bool) -> Self {
        let y = Number::conditional_select(&self.y, &self.y.negate(1), u8::from(is_negative).into());
        Self { x: self.x, y }
    }

    /// The first coordinate.
    pub(super) fn x(&self) -> FieldBytes {
        self.x.normalize().to_bytes()
    }

    /// Whether the second coordinate is odd.
    pub(super) fn y_is_odd(&self) -> bool {
        self.y.normalize().is_odd().into()
    }

    /// The sum of two points, where `inverse` is 1 through the difference of their first coordinates.
    fn plus(&self, other: &Self, inverse: &Number) -> Self {
        let slope = (other.y + self.y.negate(2)).mul(inverse);
        let x = (slope.square() + (self.x + other.x).negate(2)).normalize_weak();
        let y = (slope.mul(&(self.x + x.negate(1))) + self.y.negate(2)).normalize_weak();
        Self { x, y }
    }
}

/// Lists of points, each to be summed.
pub(super) struct Lists {
    /// Of all lists, one after the other.
    points: Vec<Point>,
    lengths: Vec<usize>,
}

impl Lists {
    /// No list, and room for so many with so many points each.
    pub(super) fn with_room(lists: usize, points: usize) -> Self {
        Self { points: Vec::with_capacity(lists * points), lengths: Vec::with_capacity(lists) }
    }

    pub(super) fn push(&mut self, list: impl IntoIterator<Item = Point>) {
        let before = self.points.len();
        self.points.extend(list);
        self.lengths.push(self.points.len() - before);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// The sum of each list; `None` where the list is empty, or where any list has no sum.
    pub(super) fn sums(mut self) -> Vec<Option<Point>> {
        let mut is_reversed = false;
        while self.lengths.iter().any(|length| *length > 1) {
            let Some(points) = self.pairs() else { return vec![None; self.lengths.len()] };
            self.points = points;
            self.lengths.iter_mut().for_each(|length| *length = length.div_ceil(2));
            self.lengths.reverse();
            is_reversed = !is_reversed;
        }
        let mut sums = self.points.into_iter();
        let sums = self.lengths.iter().map(|length| if *length == 0 { None } else { sums.next() });
        let mut sums: Vec<_> = sums.collect();
        if is_reversed {
            sums.reverse();
        }
        sums
    }

    /// The sums of every two points of each list, and a last point that is alone, all in reverse order. `None` where two
    /// points have no sum.
    fn pairs(&self) -> Option<Vec<Point>> {
        // The difference of each pair, and the product of the differences before it; then the inverse of them all, freed of
        // one difference after the other from the end.
        let (mut product, mut steps) = (Number::ONE, Vec::with_capacity(self.points.len() / 2));
        let mut rest = &self.points[..];
        for length in &self.lengths {
            let (list, after) = rest.split_at(*length);
            rest = after;
            for pair in list.chunks_exact(2) {
                let apart = pair[1].x + pair[0].x.negate(1);
                steps.push((apart, product));
                product = product.mul(&apart);
            }
        }
        let mut inverse = Option::<Number>::from(product.normalize().invert_vartime())?;
        let mut sums = Vec::with_capacity(steps.len() + self.lengths.len());
        let mut rest = &self.points[..];
        for length in self.lengths.iter().rev() {
            let (before, list) = rest.split_at(rest.len() - length);
            rest = before;
            let pairs = list.chunks_exact(2);
            sums.extend(pairs.remainder());
            for pair in pairs.rev() {
                let (apart, before) = steps.pop().expect("there is a step for each pair");
                sums.push(pair[0].plus(&pair[1], &inverse.mul(&before)));
                inverse = inverse.mul(&apart);
            }
        }
        Some(sums)
    }
}
