//! Adds four lists side by side, in the registers of a processor with AVX2.
//!
//! The processor is detected at run time. `fearless_simd` makes this safe: its token proves that the processor has AVX2,
//! and the instructions can only be called with the token.

#![expect(clippy::inline_always, reason = "a function that is not inlined may be compiled without AVX2")]

use std::{array, iter};

use fearless_simd::{Avx2, prelude::*};

use super::{Point, levels, pairs};

mod elements;
mod products;

use elements::{Elements, Rows};
pub(in crate::verify::fast) use products::{BETA, ODD_MULTIPLES, Products};

/// The number of lists that are added side by side.
const SIDE_BY_SIDE: usize = 4;

/// The number of products that are computed side by side. In a single chain, each product would wait for the previous one.
const CHAINS: usize = 4;

#[derive(Clone, Copy, Debug, Default)]
struct Points {
    x: Rows,
    y: Rows,
}

pub(crate) struct Lists {
    avx2: Avx2,
    length: usize,
    number: usize,
    /// The latest lists, at most four.
    latest: Vec<Point>,
    /// The points of all groups, one group after another, and unused memory.
    points: Vec<Points>,
    /// For each pair of points that `add_pairs` adds, the product of the differences (see [`apart`]) of the earlier
    /// pairs in the same chain, and unused memory.
    products: Vec<Rows>,
}

impl Lists {
    pub(super) fn new(avx2: Avx2) -> Self {
        let (length, number) = (0, 0);
        Self { avx2, length, number, latest: Vec::new(), points: Vec::new(), products: Vec::new() }
    }

    pub(super) fn products(&self) -> Products {
        Products(self.avx2)
    }

    /// The number of points in all groups of four lists, including the group that `latest` completes.
    #[inline(always)]
    fn used(&self) -> usize {
        self.number.div_ceil(SIDE_BY_SIDE) * self.length
    }

    pub(super) fn push(&mut self, append: impl FnOnce(&mut Vec<Point>)) {
        let before = self.latest.len();
        append(&mut self.latest);
        if self.number == 0 {
            self.length = self.latest.len();
        }
        assert_eq!(self.latest.len() - before, self.length, "all lists have the same length");
        self.number += 1;
        self.align_full();
    }

    pub(super) fn take_sums(&mut self) -> Vec<Option<Point>> {
        if self.number == 0 {
            return Vec::new();
        }
        // The last list is repeated until the last group has four lists.
        while !self.latest.is_empty() {
            let last = self.latest.len() - self.length;
            self.latest.extend_from_within(last..);
            self.align_full();
        }
        let have_sums = levels(self.length).all(|distance| {
            self.avx2.vectorize(
                #[inline(always)]
                || self.add_pairs(distance),
            )
        });
        let firsts = self.points[..self.used()].iter().step_by(self.length);
        let sums = firsts.flat_map(|Points { x, y }| iter::zip(x.words(), y.words())).take(self.number);
        let sums = sums.map(|(x, y)| have_sums.then_some(Point { x, y })).collect();
        self.number = 0;
        sums
    }

    /// Puts the latest lists side by side, as soon as four are complete.
    fn align_full(&mut self) {
        if self.latest.len() == SIDE_BY_SIDE * self.length {
            self.avx2.vectorize(
                #[inline(always)]
                || self.align(),
            );
        }
    }

    #[inline(always)]
    fn align(&mut self) {
        let used = self.used();
        let Self { avx2, length, latest, points, .. } = self;
        let lists: [&[Point]; SIDE_BY_SIDE] = array::from_fn(|list| &latest[list * *length..][..*length]);
        for (at, points) in with_room(points, used)[used - *length..].iter_mut().enumerate() {
            let (x, y) = coordinates(*avx2, lists.map(|list| &list[at]));
            x.store(&mut points.x);
            y.store(&mut points.y);
        }
        latest.clear();
    }

    /// Adds pairs of points in each list, and stores each sum in the first point of the pair. Only points at multiples of
    /// `distance` count. Returns `false` if two points have no sum.
    #[inline(always)]
    fn add_pairs(&mut self, distance: usize) -> bool {
        let used = self.used();
        let Self { avx2, length, points, products, .. } = self;
        let (avx2, length, points) = (*avx2, *length, &mut points[..used]);
        let products = with_room(products, points.len() / length * pairs(length, distance).len());
        // First compute the product of all differences in each chain. Then invert the products, and remove one
        // difference after another from the end.
        let mut product = [Elements::small(avx2, 1); CHAINS];
        let mut befores = products.iter_mut().enumerate();
        for list in points.chunks_exact(length) {
            for ((one, other), (at, before)) in pairs(length, distance).zip(&mut befores) {
                let product = &mut product[at % CHAINS];
                product.store(before);
                *product = product.times(avx2, &apart(avx2, &list[one], &list[other]));
            }
        }
        let Some(mut inverse) = inverses(avx2, &product) else { return false };
        let mut befores = products.iter().enumerate().rev();
        for list in points.chunks_exact_mut(length).rev() {
            for ((one, other), (at, before)) in pairs(length, distance).rev().zip(&mut befores) {
                let inverse = &mut inverse[at % CHAINS];
                let of_pair = inverse.times(avx2, &Elements::load(avx2, before));
                *inverse = inverse.times(avx2, &apart(avx2, &list[one], &list[other]));
                let (ones, others) = list[one..=other].split_at_mut(1);
                let last = others.len() - 1;
                add(avx2, &mut ones[0], &others[last], &of_pair);
            }
        }
        true
    }
}

/// Puts four points side by side.
#[inline(always)]
fn coordinates(avx2: Avx2, [a, b, c, d]: [&Point; SIDE_BY_SIDE]) -> (Elements, Elements) {
    (Elements::of_words(avx2, [&a.x, &b.x, &c.x, &d.x]), Elements::of_words(avx2, [&a.y, &b.y, &c.y, &d.y]))
}

/// The first `length` items of the memory, which grows if it is shorter.
#[inline(always)]
fn with_room<T: Clone + Default>(memory: &mut Vec<T>, length: usize) -> &mut [T] {
    if memory.len() < length {
        memory.resize(length, T::default());
    }
    &mut memory[..length]
}

/// Returns the inverse of each chain's product, with one inversion. Returns `None` if any product is zero.
#[inline(always)]
fn inverses(avx2: Avx2, [a, b, c, d]: &[Elements; CHAINS]) -> Option<[Elements; CHAINS]> {
    let (ab, cd) = (a.times(avx2, b), c.times(avx2, d));
    let inverse = ab.times(avx2, &cd).inverses(avx2)?;
    let (of_ab, of_cd) = (inverse.times(avx2, &cd), inverse.times(avx2, &ab));
    Some([of_ab.times(avx2, b), of_ab.times(avx2, a), of_cd.times(avx2, d), of_cd.times(avx2, c)])
}

/// The difference of the first coordinates.
#[inline(always)]
fn apart(avx2: Avx2, one: &Points, other: &Points) -> Elements {
    Elements::load(avx2, &other.x).less(avx2, Elements::load(avx2, &one.x))
}

/// Adds the points `others` to the points `ones`. `inverse` is 1 divided by the difference of their first coordinates, see
/// [`apart`].
#[inline(always)]
fn add(avx2: Avx2, ones: &mut Points, others: &Points, inverse: &Elements) {
    let (x, y) = (Elements::load(avx2, &ones.x), Elements::load(avx2, &ones.y));
    let slope = Elements::load(avx2, &others.y).less(avx2, y).times(avx2, inverse);
    let sum = slope.square_and(avx2, &Elements::minus_both(avx2, x, Elements::load(avx2, &others.x)));
    sum.store(&mut ones.x);
    slope.times_and(avx2, &x.less(avx2, sum), &y.minus(avx2)).store(&mut ones.y);
}
