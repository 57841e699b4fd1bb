//! Adds one list after another with k256's numbers, for processors without AVX2.

use super::{Point, levels, pairs};
use crate::verify::fast::field::{Number, number_of, words_from};

/// A point in k256's numbers. Both coordinates have magnitude 1 in k256's terms.
#[derive(Clone, Copy, Debug)]
struct Affine {
    x: Number,
    y: Number,
}

impl From<Point> for Affine {
    fn from(point: Point) -> Self {
        Self { x: number_of(&point.x), y: number_of(&point.y) }
    }
}

impl From<&Affine> for Point {
    fn from(point: &Affine) -> Self {
        let words = |number: &Number| words_from(&number.normalize().to_bytes());
        Self { x: words(&point.x), y: words(&point.y) }
    }
}

impl Affine {
    /// The difference of the first coordinates.
    fn apart(&self, other: &Self) -> Number {
        other.x + self.x.negate(1)
    }

    /// The sum of two points. `inverse` is 1 divided by the difference of their first coordinates, see
    /// [`apart`](Self::apart).
    fn plus(&self, other: &Self, inverse: &Number) -> Self {
        let slope = (other.y + self.y.negate(1)).mul(inverse);
        let x = (slope.square() + (self.x + other.x).negate(2)).normalize_weak();
        let y = (slope.mul(&(self.x + x.negate(1))) + self.y.negate(1)).normalize_weak();
        Self { x, y }
    }
}

#[derive(Default)]
pub(crate) struct Lists {
    length: usize,
    /// The list that is being added.
    latest: Vec<Point>,
    points: Vec<Affine>,
    /// For each pair of points that `add_pairs` adds, the product of the differences (see [`Affine::apart`]) of the
    /// earlier pairs.
    products: Vec<Number>,
}

impl Lists {
    pub(super) fn push(&mut self, append: impl FnOnce(&mut Vec<Point>)) {
        let before = self.points.len();
        append(&mut self.latest);
        self.points.extend(self.latest.drain(..).map(Affine::from));
        if before == 0 {
            self.length = self.points.len();
        }
        assert_eq!(self.points.len() - before, self.length, "all lists have the same length");
    }

    pub(super) fn take_sums(&mut self) -> Vec<Option<Point>> {
        if self.points.is_empty() {
            return Vec::new();
        }
        let have_sums = levels(self.length).all(|distance| self.add_pairs(distance));
        let firsts = self.points.iter().step_by(self.length);
        let sums = firsts.map(|first| have_sums.then(|| first.into())).collect();
        self.points.clear();
        sums
    }

    /// Adds pairs of points in each list, and stores each sum in the first point of the pair. Only points at multiples of
    /// `distance` count. Returns `false` if two points have no sum.
    fn add_pairs(&mut self, distance: usize) -> bool {
        self.products.clear();
        // First compute the product of all differences. Then invert the product, and remove one difference after
        // another from the end.
        let mut product = Number::ONE;
        for list in self.points.chunks_exact(self.length) {
            for (one, other) in pairs(self.length, distance) {
                self.products.push(product);
                product = product.mul(&list[one].apart(&list[other]));
            }
        }
        let Some(mut inverse) = Option::<Number>::from(product.normalize().invert_vartime()) else { return false };
        for list in self.points.chunks_exact_mut(self.length).rev() {
            for (one, other) in pairs(self.length, distance).rev() {
                let before = self.products.pop().expect("each pair has a product");
                let sum = list[one].plus(&list[other], &inverse.mul(&before));
                inverse = inverse.mul(&list[one].apart(&list[other]));
                list[one] = sum;
            }
        }
        true
    }
}
