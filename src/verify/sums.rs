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
use k256::{AffinePoint, FieldBytes, Secp256k1};

#[cfg(test)]
mod tests;

type Number = <Secp256k1 as FieldArithmetic>::FieldElement;

/// A point of the curve that is not the identity. The magnitude of both coordinates is 1, in k256's terms.
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
    pub(super) fn negative(&self) -> Self {
        Self { x: self.x, y: self.y.negate(1).normalize_weak() }
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
        let slope = (other.y + self.y.negate(1)).mul(inverse);
        let x = (slope.square() + (self.x + other.x).negate(2)).normalize_weak();
        let y = (slope.mul(&(self.x + x.negate(1))) + self.y.negate(1)).normalize_weak();
        Self { x, y }
    }
}

/// Lists of points, each to be summed.
#[derive(Default)]
pub(super) struct Lists {
    /// Of all lists, one after the other.
    points: Vec<Point>,
    lengths: Vec<usize>,
}

impl Lists {
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
        while self.lengths.iter().any(|length| *length > 1) {
            if !self.add_pairs() {
                return vec![None; self.lengths.len()];
            }
        }
        let mut sums = self.points.into_iter();
        self.lengths.iter().map(|length| if *length == 0 { None } else { sums.next() }).collect()
    }

    /// Replaces every two points of a list by their sum; a last one alone stays. `false` where two have no sum.
    fn add_pairs(&mut self) -> bool {
        let mut first = 0;
        let mut pairs = Vec::with_capacity(self.points.len() / 2);
        for length in &self.lengths {
            pairs.extend((first..first + length - length % 2).step_by(2));
            first += length;
        }
        // The product of the differences before each pair; then the inverse of it all, freed of one difference after the
        // other from the end.
        let apart = |points: &[Point], pair: usize| points[pair + 1].x + points[pair].x.negate(1);
        let (mut product, mut products) = (Number::ONE, Vec::with_capacity(pairs.len()));
        for pair in &pairs {
            products.push(product);
            product = product.mul(&apart(&self.points, *pair));
        }
        let Some(mut inverse) = Option::<Number>::from(product.normalize().invert_vartime()) else { return false };
        for (pair, before) in pairs.into_iter().zip(&products).rev() {
            let of_pair = inverse.mul(before);
            inverse = inverse.mul(&apart(&self.points, pair));
            self.points[pair] = self.points[pair].plus(&self.points[pair + 1], &of_pair);
        }
        let (mut first, mut kept) = (0, 0);
        for length in &mut self.lengths {
            for at in (first..first + *length).step_by(2) {
                self.points[kept] = self.points[at];
                kept += 1;
            }
            first += *length;
            *length = length.div_ceil(2);
        }
        self.points.truncate(kept);
        true
    }
}
