//! Sums of points, many at once.
//!
//! An addition of two affine points takes one inversion and three products. Inversions of many numbers at once take one
//! inversion together and three products each, so that an addition comes to six products; k256's own addition, which needs
//! no inversion and knows no exception, takes twelve. Each list is summed as a tree, all lists level by level, so that few
//! inversions are taken also where there are few lists: five for a list of 32.
//!
//! A sum takes the place of its first point, and the same memory serves one batch of lists after the other. Where each level
//! had memory of its own, the daemon took 14 to 27 % more processor time (measured).
//!
//! # Invariants
//!
//! * **k256's own field.** Numbers are added, multiplied and inverted by k256 alone.
//! * **An exception has no sum.** A point and itself, or its negative, cannot be added like this. Only the owner of a
//!   key can bring that about, for signatures by that key. Then no list of the batch has a sum, and the caller
//!   does without.

use std::iter;

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

    /// How far apart the first coordinates are.
    fn apart(&self, other: &Self) -> Number {
        other.x + self.x.negate(1)
    }

    /// The sum of two points, where `inverse` is 1 through how far they are [`apart`](Self::apart).
    fn plus(&self, other: &Self, inverse: &Number) -> Self {
        let slope = (other.y + self.y.negate(2)).mul(inverse);
        let x = (slope.square() + (self.x + other.x).negate(2)).normalize_weak();
        let y = (slope.mul(&(self.x + x.negate(1))) + self.y.negate(2)).normalize_weak();
        Self { x, y }
    }
}

/// Lists of points, each to be summed.
#[derive(Default)]
pub(super) struct Lists {
    /// Of all lists, one after the other.
    points: Vec<Point>,
    lengths: Vec<usize>,
    /// For the pairs of a level: the product of the differences before each.
    products: Vec<Number>,
}

impl Lists {
    pub(super) fn push(&mut self, list: impl IntoIterator<Item = Point>) {
        let before = self.points.len();
        self.points.extend(list);
        self.lengths.push(self.points.len() - before);
    }

    /// The sum of each list; `None` where the list is empty, or where any list has no sum. No list is left.
    pub(super) fn take_sums(&mut self) -> Vec<Option<Point>> {
        let longest = self.lengths.iter().copied().max().unwrap_or_default();
        let mut levels =
            iter::successors(Some(1), |distance| Some(2 * distance)).take_while(|distance| *distance < longest);
        let have_sums = levels.all(|distance| self.add_pairs(distance));
        let sums = lists(&self.points, &self.lengths).map(|list| list.first().filter(|_| have_sums).copied());
        let sums = sums.collect();
        self.points.clear();
        self.lengths.clear();
        sums
    }

    /// Adds to every other point of each list the one after it, where only those at a multiple of `distance` count. `false`
    /// where two points have no sum.
    fn add_pairs(&mut self, distance: usize) -> bool {
        self.products.clear();
        // The product of all differences; then its inverse, freed of one difference after the other from the end.
        let mut product = Number::ONE;
        for list in lists(&self.points, &self.lengths) {
            for (one, other) in pairs(list.len(), distance) {
                self.products.push(product);
                product = product.mul(&list[one].apart(&list[other]));
            }
        }
        let Some(mut inverse) = Option::<Number>::from(product.normalize().invert_vartime()) else { return false };
        let mut rest = &mut self.points[..];
        for length in self.lengths.iter().rev() {
            let (before, list) = rest.split_at_mut(rest.len() - length);
            rest = before;
            for (one, other) in pairs(list.len(), distance).rev() {
                let before = self.products.pop().expect("there is a product for each pair");
                let sum = list[one].plus(&list[other], &inverse.mul(&before));
                inverse = inverse.mul(&list[one].apart(&list[other]));
                list[one] = sum;
            }
        }
        true
    }
}

/// The points of each list.
fn lists<'a>(mut points: &'a [Point], lengths: &'a [usize]) -> impl Iterator<Item = &'a [Point]> {
    lengths.iter().map(move |length| {
        let (list, after) = points.split_at(*length);
        points = after;
        list
    })
}

/// The places of points that are added: of those at a multiple of `distance`, every two.
fn pairs(length: usize, distance: usize) -> impl DoubleEndedIterator<Item = (usize, usize)> {
    let number = length.div_ceil(distance) / 2;
    (0..number).map(move |pair| (2 * pair * distance, (2 * pair + 1) * distance))
}
