//! Sums of points, many at once.
//!
//! An addition of two affine points takes one inversion and three products. Inversions of many numbers at once take one
//! inversion together and three products each, so that an addition comes to six products; k256's own addition, which needs
//! no inversion and knows no exception, takes twelve. Each list is summed as a tree, all lists level by level, so that few
//! inversions are taken also where there are few lists: five for a list of 32. Four lists are added side by side
//! ([`field`](super::field)).
//!
//! A sum takes the place of its first point, and the same memory serves one batch of lists after the other. Where each level
//! had memory of its own, the daemon took 14 to 27 % more processor time (measured, before there were four side by side).
//!
//! # Invariants
//!
//! * **An exception has no sum.** A point and itself, or its negative, cannot be added like this. Only the owner of a
//!   key can bring that about, for signatures by that key. Then no list of the batch has a sum, and the caller
//!   does without.

#![expect(clippy::inline_always, reason = "what a task calls has to be made for the processor's vectors")]

use std::iter;

use k256::elliptic_curve::point::AffineCoordinates;
use k256::{AffinePoint, FieldBytes};

use super::field::{Elements, Rows, Task, Vector, Words, bytes_of, negative, vectorized, words_from};

#[cfg(test)]
mod tests;

/// Lists that are added side by side.
const SIDE_BY_SIDE: usize = 4;

/// Products that are taken side by side: one factor after the other, each product would wait for the one before.
const CHAINS: usize = 4;

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

/// A point of each of four lists.
#[derive(Clone, Copy, Debug, Default)]
struct Points {
    x: Rows,
    y: Rows,
}

/// Lists of points, all of one length, each to be summed.
#[derive(Default)]
pub(super) struct Lists {
    length: usize,
    number: usize,
    /// Lists of which there are not four yet.
    latest: Vec<Point>,
    /// Of all four lists side by side, one four after the other.
    points: Vec<Points>,
    /// For the pairs of a level: the products of the differences before each.
    products: Vec<Rows>,
}

impl Lists {
    /// Adds a list, which is as long as the others and has a point.
    pub(super) fn push(&mut self, list: impl IntoIterator<Item = Point>) {
        let before = self.latest.len();
        self.latest.extend(list);
        if self.number == 0 {
            self.length = self.latest.len();
        }
        assert_eq!(self.latest.len() - before, self.length, "lists are of one length");
        self.number += 1;
        if self.number.is_multiple_of(SIDE_BY_SIDE) {
            vectorized(Align(self));
        }
    }

    /// The sum of each list; `None` where any list has no sum. No list is left.
    pub(super) fn take_sums(&mut self) -> Vec<Option<Point>> {
        if self.number == 0 {
            return Vec::new();
        }
        while !self.latest.is_empty() {
            let padding = self.latest.len() - self.length;
            self.latest.extend_from_within(padding..);
            if self.latest.len() == SIDE_BY_SIDE * self.length {
                vectorized(Align(self));
            }
        }
        let length = self.length;
        let mut levels =
            iter::successors(Some(1), |distance| Some(2 * distance)).take_while(|distance| *distance < length);
        let have_sums = levels.all(|distance| vectorized(AddPairs(self, distance)));
        let firsts = self.points.iter().step_by(length);
        let sums = firsts.flat_map(|Points { x, y }| iter::zip(x.words(), y.words())).take(self.number);
        let sums = sums.map(|(x, y)| have_sums.then_some(Point { x, y })).collect();
        self.points.clear();
        self.number = 0;
        sums
    }
}

/// Puts the latest four lists side by side.
struct Align<'a>(&'a mut Lists);

impl Task for Align<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self, token: V::Token) {
        let Lists { length, latest, points, .. } = self.0;
        let lists: [&[Point]; SIDE_BY_SIDE] = std::array::from_fn(|list| &latest[list * *length..][..*length]);
        let before = points.len();
        points.resize(before + *length, Points::default());
        for (at, points) in points[before..].iter_mut().enumerate() {
            let [a, b, c, d] = lists.map(|list| &list[at]);
            Elements::<V>::of_words(token, [&a.x, &b.x, &c.x, &d.x]).store(&mut points.x);
            Elements::<V>::of_words(token, [&a.y, &b.y, &c.y, &d.y]).store(&mut points.y);
        }
        latest.clear();
    }
}

/// Adds to every other point of each list the one after it, where only those at a multiple of the distance count. `false`
/// where two points have no sum.
struct AddPairs<'a>(&'a mut Lists, usize);

impl Task for AddPairs<'_> {
    type Output = bool;

    #[inline(always)]
    fn run<V: Vector>(self, token: V::Token) -> bool {
        let Self(Lists { length, points, products, .. }, distance) = self;
        products.resize(points.len() / *length * pairs(*length, distance).len(), Rows::default());
        // The products of all differences; then their inverses, freed of one difference after the other from the end.
        let mut product = [Elements::<V>::one(token); CHAINS];
        let mut befores = products.iter_mut().enumerate();
        for list in points.chunks_exact(*length) {
            for ((one, other), (at, before)) in pairs(*length, distance).zip(&mut befores) {
                let product = &mut product[at % CHAINS];
                product.store(before);
                *product = product.times(token, &apart(token, &list[one], &list[other]));
            }
        }
        let Some(mut inverse) = inverses(token, &product) else { return false };
        let mut befores = products.iter().enumerate().rev();
        for list in points.chunks_exact_mut(*length).rev() {
            for ((one, other), (at, before)) in pairs(*length, distance).rev().zip(&mut befores) {
                let inverse = &mut inverse[at % CHAINS];
                let of_pair = inverse.times(token, &Elements::load(token, before));
                *inverse = inverse.times(token, &apart(token, &list[one], &list[other]));
                let (ones, others) = list[one..=other].split_at_mut(1);
                let last = others.len() - 1;
                add::<V>(token, &mut ones[0], &others[last], &of_pair);
            }
        }
        true
    }
}

/// The inverse of each chain's product, by one inversion; `None` where one of them is zero.
#[inline(always)]
fn inverses<V: Vector>(token: V::Token, [a, b, c, d]: &[Elements<V>; CHAINS]) -> Option<[Elements<V>; CHAINS]> {
    let (ab, cd) = (a.times(token, b), c.times(token, d));
    let inverse = ab.times(token, &cd).inverses(token)?;
    let (of_ab, of_cd) = (inverse.times(token, &cd), inverse.times(token, &ab));
    Some([of_ab.times(token, b), of_ab.times(token, a), of_cd.times(token, d), of_cd.times(token, c)])
}

/// How far the first coordinates are apart.
#[inline(always)]
fn apart<V: Vector>(token: V::Token, one: &Points, other: &Points) -> Elements<V> {
    Elements::load(token, &other.x).less(token, Elements::load(token, &one.x))
}

/// Adds the others to the ones, where `inverse` is 1 through how far they are [`apart`].
#[inline(always)]
fn add<V: Vector>(token: V::Token, ones: &mut Points, others: &Points, inverse: &Elements<V>) {
    let (x, y) = (Elements::<V>::load(token, &ones.x), Elements::<V>::load(token, &ones.y));
    let slope = Elements::load(token, &others.y).less(token, y).times(token, inverse);
    let sum = slope.square_and(token, &Elements::minus_both(token, x, Elements::load(token, &others.x)));
    sum.store(&mut ones.x);
    slope.times_and(token, &x.less(token, sum), &y.minus(token)).store(&mut ones.y);
}

/// The places of points that are added: of those at a multiple of `distance`, every two.
fn pairs(length: usize, distance: usize) -> impl DoubleEndedIterator<Item = (usize, usize)> + ExactSizeIterator {
    let number = length.div_ceil(distance) / 2;
    (0..number).map(move |pair| (2 * pair * distance, (2 * pair + 1) * distance))
}
