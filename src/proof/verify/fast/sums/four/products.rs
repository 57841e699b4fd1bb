//! Multiplies four points with scalars side by side, without precomputed tables of these points.
//!
//! For every point of the curve, λ·(x, y) is (β·x, y), where λ is a certain scalar and β a certain field element. Each scalar
//! is therefore split into two short halves, and the point is multiplied with both halves together: a product takes 125
//! doublings instead of 255. A doubling or addition needs no inversion, because the coordinates of a [`Jacobian`] point are
//! fractions.
//!
//! # Invariants
//!
//! * **An exceptional addition has no product.** The formula cannot add a point to itself or to its negative. The sum then
//!   has a z of zero, which remains zero in every later doubling and addition. Zero has no inverse, so no product is returned.
//! * **Not for secrets.** The time that a product takes depends on the scalar.

#![expect(clippy::inline_always, reason = "a function that is not inlined may be compiled without AVX2")]

use std::{array, iter};

use fearless_simd::{Avx2, prelude::*};
use k256::elliptic_curve::ff::PrimeField;
use k256::elliptic_curve::ops::Reduce;
use k256::elliptic_curve::scalar::IsHigh;
use k256::{Scalar, U256};

use super::elements::{Elements, Rows};
use super::{SIDE_BY_SIDE, coordinates};
use crate::verify::fast::digits::digits;
use crate::verify::fast::field::{Words, inverses};
use crate::verify::fast::sums::Point;

#[cfg(test)]
mod tests;

/// The number of bits of a half that one digit represents.
const WIDTH: usize = 5;

/// The number of digits of a half. A half has up to 129 bits.
const PLACES: usize = 26;

/// The number of odd multiples of a point that a product needs: the point times 1, 3, 5 and so on.
pub(in crate::verify::fast) const ODD_MULTIPLES: usize = 1 << (WIDTH - 1);

/// The cube root of one modulo p that belongs to [`LAMBDA`].
pub(in crate::verify::fast) const BETA: Words =
    [0xc139_6c28_7195_01ee, 0x9cf0_4975_12f5_8995, 0x6e64_479e_ac34_34e9, 0x7ae9_6a2b_657c_0710];

/// A cube root of one modulo n, the group's order.
const LAMBDA: U256 = U256::from_be_hex("5363ad4cc05c30e0a5261c028812645a122e22ea20816678df02967c1b23bd72");

/// Short numbers for which `SHORT[0]` − λ·`SHORT[1]` and (`SHORT[0]` + `SHORT[1]`) + λ·`SHORT[0]` are multiples of n.
const SHORT: [U256; 2] = [
    U256::from_be_hex("000000000000000000000000000000003086d221a7d46bcde86c90e49284eb15"),
    U256::from_be_hex("00000000000000000000000000000000e4437ed6010e88286f547fa90abfe4c3"),
];

/// 2^384 divided by n, times each of the short numbers, rounded.
const SHORT_BY_ORDER: [U256; 2] = [
    U256::from_be_hex("3086d221a7d46bcde86c90e49284eb153daa8a1471e8ca7fe893209a45dbb031"),
    U256::from_be_hex("e4437ed6010e88286f547fa90abfe4c4221208ac9df506c61571b4ae8ac47f71"),
];

/// Computes with points that are not known in advance, four side by side.
#[derive(Clone, Copy)]
pub(in crate::verify::fast) struct Products(pub(super) Avx2);

impl Products {
    /// Returns a point for each coordinate x, which must be below p. Returns `None` for a coordinate that no point has.
    pub(in crate::verify::fast) fn points(self, x: &[Words]) -> Vec<Option<Point>> {
        let groups = x.chunks(SIDE_BY_SIDE).map(|x| (x, array::from_fn(|lane| x.get(lane).unwrap_or(&x[0]))));
        let points = groups.map(|(x, four)| iter::zip(x, self.ordinates(four)));
        points.flatten().map(|(x, y)| Some(Point { x: *x, y: y? })).collect()
    }

    /// Returns a y for each x, so that y² is x³ + 7.
    fn ordinates(self, x: [&Words; SIDE_BY_SIDE]) -> [Option<Words>; SIDE_BY_SIDE] {
        let Self(avx2) = self;
        avx2.vectorize(
            #[inline(always)]
            || {
                let x = Elements::of_words(avx2, x);
                let square = x.square(avx2).times_and(avx2, &x, &Elements::small(avx2, 7));
                let y = square.root(avx2);
                let (y, found, expected) = (words(&y), words(&y.square(avx2)), words(&square));
                array::from_fn(|lane| (found[lane] == expected[lane]).then_some(y[lane]))
            },
        )
    }

    /// Multiplies points with scalars, which must not be zero. `multiple(point, at)` is the point number `point` times
    /// 2·`at` + 1. Returns `None` if any of the products is exceptional.
    pub(in crate::verify::fast) fn products(
        self,
        scalars: &[Scalar],
        multiple: impl Fn(usize, usize) -> Point,
    ) -> Option<Vec<Point>> {
        let Self(avx2) = self;
        let last = scalars.len().checked_sub(1)?;
        // The last product is repeated until the last group has four products.
        let groups = (0..=last).step_by(SIDE_BY_SIDE).map(|first| array::from_fn(|lane| (first + lane).min(last)));
        let products: Vec<Jacobian> =
            groups.map(|of| self.product(of.map(|of| (of, &scalars[of])), &multiple)).collect();
        let z: Vec<_> = products.iter().map(|product| product.z).collect();
        let inverses =
            inverses(&z, Elements::small(avx2, 1), |one, other| one.product(avx2, other), |z| z.inverses(avx2))?;
        let points = iter::zip(products, inverses).flat_map(|(point, inverse)| point.affine(avx2, &inverse));
        Some(points.take(scalars.len()).collect())
    }

    /// Multiplies four points, given by their numbers, with their scalars.
    fn product(self, four: [(usize, &Scalar); SIDE_BY_SIDE], multiple: &impl Fn(usize, usize) -> Point) -> Jacobian {
        let Self(avx2) = self;
        let digits = four.map(|(_, scalar)| halves(scalar).map(|half| digits_of_half(&half)));
        let terms = |place: usize, half: usize| -> [Point; SIDE_BY_SIDE] {
            array::from_fn(|lane| {
                let (at, is_negative) = digits[lane][half][place];
                multiple(four[lane].0, at).signed(is_negative)
            })
        };
        avx2.vectorize(
            #[inline(always)]
            || {
                let beta = Elements::of_words(avx2, [&BETA; SIDE_BY_SIDE]);
                let (x, y) = coordinates(avx2, terms(PLACES - 1, 0).each_ref());
                let mut sum = Jacobian { x, y, z: Elements::small(avx2, 1) };
                // The sum begins with the first term of the highest place.
                for term in 1..2 * PLACES {
                    let (place, half) = (PLACES - 1 - term / 2, term % 2);
                    if half == 0 {
                        for _ in 0..WIDTH {
                            sum = sum.doubled(avx2);
                        }
                    }
                    let (x, y) = coordinates(avx2, terms(place, half).each_ref());
                    let x = if half == 0 { x } else { x.product(avx2, &beta) };
                    sum = sum.plus(avx2, &x, &y);
                }
                sum
            },
        )
    }
}

/// Returns odd numbers a and b below 2^129, positive or negative, with a + λ·b = scalar.
///
/// The pairs of numbers that represent zero form a lattice, which the two short pairs of [`SHORT`] generate. From the pair
/// (scalar, 0), a nearby pair of the lattice is subtracted: the exact multiples of the short pairs would be fractions, and
/// each is replaced by the next whole number for which the difference is odd.
fn halves(scalar: &Scalar) -> [Scalar; 2] {
    let is_odd = scalar.is_odd();
    let [one, other] = SHORT_BY_ORDER.map(|short| {
        let (_, high) = U256::from(*scalar).widening_mul(&short);
        Scalar::reduce(&(high >> 128))
    });
    let one = if (one.is_odd() ^ is_odd).into() { one } else { one + Scalar::ONE };
    let other = if (other.is_odd() ^ is_odd).into() { other + Scalar::ONE } else { other };
    let [short, longer] = SHORT.map(|short| Scalar::reduce(&short));
    let b = one * longer - other * short;
    [*scalar - b * Scalar::reduce(&LAMBDA), b]
}

fn digits_of_half(half: &Scalar) -> [(usize, bool); PLACES] {
    let mut all = [(0, false); PLACES];
    let digits = digits(half, half.is_high().into(), WIDTH, PLACES);
    all.iter_mut().zip(digits).for_each(|(place, digit)| *place = digit);
    all
}

#[inline(always)]
fn words(elements: &Elements) -> [Words; SIDE_BY_SIDE] {
    let mut rows = Rows::default();
    elements.store(&mut rows);
    rows.words()
}

/// Four points. The coordinates of each are x/z² and y/z³. All elements are reduced.
#[derive(Clone, Copy)]
struct Jacobian {
    x: Elements,
    y: Elements,
    z: Elements,
}

impl Jacobian {
    #[inline(always)]
    fn doubled(&self, avx2: Avx2) -> Self {
        let square = self.x.squared(avx2);
        let slope = square.plus(square).plus(square).carried(avx2);
        let y_square = self.y.squared(avx2);
        let four_y_square = y_square.shifted(2);
        let middle = self.x.product(avx2, &four_y_square);
        let x = slope.square_and(avx2, &Elements::minus_both(avx2, middle, middle));
        let four_y_fourth = y_square.product(avx2, &four_y_square);
        let minus = Elements::minus_both(avx2, four_y_fourth, four_y_fourth);
        let y = slope.times_and(avx2, &middle.less(avx2, x), &minus);
        Self { x, y, z: self.z.product(avx2, &self.y.shifted(1)) }
    }

    /// Adds points with the coordinates x and y.
    #[inline(always)]
    fn plus(&self, avx2: Avx2, x: &Elements, y: &Elements) -> Self {
        let z_square = self.z.squared(avx2);
        let apart = x.product(avx2, &z_square).less(avx2, self.x).carried(avx2);
        let slope = y.product(avx2, &z_square.product(avx2, &self.z)).less(avx2, self.y).carried(avx2);
        let square = apart.squared(avx2);
        let cube = square.product(avx2, &apart);
        let middle = self.x.product(avx2, &square);
        let minus = Elements::minus_both(avx2, cube, middle).plus(middle.minus(avx2));
        let x = slope.square_and(avx2, &minus);
        let y = slope.times_and(avx2, &middle.less(avx2, x), &self.y.product(avx2, &cube).minus(avx2));
        Self { x, y, z: self.z.product(avx2, &apart) }
    }

    /// The points as plain coordinates. `inverse` is 1/z.
    fn affine(&self, avx2: Avx2, inverse: &Elements) -> [Point; SIDE_BY_SIDE] {
        let square = inverse.squared(avx2);
        let x = words(&self.x.product(avx2, &square));
        let y = words(&self.y.product(avx2, &square.product(avx2, inverse)));
        array::from_fn(|at| Point { x: x[at], y: y[at] })
    }
}
