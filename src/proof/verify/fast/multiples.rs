//! A point's multiples, made beforehand: a product with a scalar is then the sum of a few of them.
//!
//! An odd scalar is read as odd digits of a few bits each, below zero or above: with bits of one or minus one, there is
//! exactly one way. The table holds d·2^(w·i) times the point for every place i and every odd digit d above zero; a negative
//! costs nothing. So a product is the sum of exactly one point a place. An even scalar is taken for its negative, which is odd
//! as the group's order is.
//!
//! # Invariants
//!
//! * **Not for secrets.** The time that a product takes depends on the scalar. Those of a signature are public.

use std::iter;
use std::ops::RangeInclusive;

use arrayvec::ArrayVec;
use k256::elliptic_curve::BatchNormalize;
use k256::elliptic_curve::ff::PrimeField;
use k256::{AffinePoint, ProjectivePoint, Scalar};

use super::field::{Words, words_from};
use super::sums::Point;

#[cfg(test)]
mod tests;

/// The bits of a scalar.
const BITS: usize = 256;

/// The bytes of a scalar.
const BYTES: usize = BITS / 8;

/// Those of the narrowest window.
const MOST_PLACES: usize = Window(*Window::KEYS.start()).places();

/// How many bits of a scalar a digit stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window(usize);

impl Window {
    /// For the generator, which everything shares.
    pub(super) const GENERATOR: Self = Self(8);

    /// For keys. With still narrower digits little is left of what a table gains.
    const KEYS: RangeInclusive<usize> = 5..=10;

    /// The widest with which the tables of so many points take at most so many bytes; `None` where even the narrowest
    /// take more.
    pub(super) fn fitting(points: usize, bytes: usize) -> Option<Self> {
        Self::KEYS.rev().map(Self).find(|window| points.saturating_mul(window.bytes()) <= bytes)
    }

    /// The memory of one point's table.
    pub(super) const fn bytes(self) -> usize {
        self.places() * self.digits() * size_of::<Point>()
    }

    /// The digits of a scalar.
    pub(super) const fn places(self) -> usize {
        BITS.div_ceil(self.0)
    }

    /// The digits above zero that a place may have.
    const fn digits(self) -> usize {
        1 << (self.0 - 1)
    }
}

/// The multiples of one point.
pub(super) struct Multiples {
    window: Window,
    /// The first place's by 1, 3, 5 and so on; then those of the next place.
    points: Vec<Point>,
}

impl Multiples {
    /// Of a point that is not the identity. Takes some milliseconds.
    pub(super) fn of(point: &AffinePoint, window: Window) -> Self {
        let mut points = Vec::with_capacity(window.bytes() / size_of::<Point>());
        let mut first = *point;
        for _ in 0..window.places() {
            let (odd, next) = odd_multiples(&first, window.digits());
            points.extend(odd.iter().map(Point::from));
            first = next;
        }
        Self { window, points }
    }

    /// The points whose sum is the point times `scalar`, which is not zero: one a place.
    pub(super) fn terms(&self, scalar: &Scalar) -> impl Iterator<Item = Point> {
        debug_assert_ne!(*scalar, Scalar::ZERO, "the identity is no sum");
        let is_negative: bool = scalar.is_even().into();
        let odd = if is_negative { -scalar } else { *scalar };
        let digits = digits(words_from(&odd.to_bytes()), self.window);
        // First as they stand in the table, one right after the other: most are far from the processor, and it fetches many at
        // the same time.
        let terms: ArrayVec<(Point, bool), MOST_PLACES> = digits
            .enumerate()
            .map(|(place, (half, is_below_zero))| (self.points[place * self.window.digits() + half], is_below_zero))
            .collect();
        terms.into_iter().map(move |(point, is_below_zero)| point.signed(is_below_zero != is_negative))
    }

    /// The memory that it takes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.points.capacity() * size_of::<Point>()
    }
}

/// A point times 1, 3, 5 and so on, and times the double of their number.
fn odd_multiples(point: &AffinePoint, number: usize) -> (Vec<AffinePoint>, AffinePoint) {
    let twice = ProjectivePoint::from(*point).double();
    let multiples = iter::successors(Some(ProjectivePoint::from(*point)), |multiple| Some(*multiple + twice));
    let mut multiples: Vec<_> = multiples.take(number + 1).collect();
    // The last of all is by one more than the double of their number.
    multiples[number] -= point;
    let mut multiples = ProjectivePoint::batch_normalize_vartime(multiples.as_slice());
    let next = multiples.pop().expect("there is one");
    (multiples, next)
}

/// The digits of an odd scalar, the lowest first: half of each, rounded down, without its sign, and whether it is below zero.
///
/// With bits of one or minus one a scalar is twice the bits that are one less all that there are. So its half with a bit above
/// all others has those bits, and a digit is twice a few of them less all that these could be.
fn digits(odd: Words, Window(width): Window) -> impl Iterator<Item = (usize, bool)> {
    let places = Window(width).places();
    // The half, the lowest byte first, and zeros above the highest.
    let mut bytes = [0; BYTES + size_of::<u32>()];
    for (at, bytes) in bytes[..BYTES].chunks_exact_mut(size_of::<u64>()).enumerate() {
        let above = odd.get(at + 1).copied().unwrap_or_default();
        bytes.copy_from_slice(&(odd[at] >> 1 | above << 63).to_le_bytes());
    }
    let largest = Window(width).digits() - 1;
    (0..places).map(move |place| {
        let (byte, bit) = (place * width / 8, place * width % 8);
        let here = [bytes[byte], bytes[byte + 1], bytes[byte + 2], bytes[byte + 3]];
        let bits = (u32::from_le_bytes(here) >> bit) as usize & (2 * largest + 1);
        let is_last = place + 1 == places;
        if is_last || bits > largest { (bits & largest, false) } else { (largest - bits, true) }
    })
}
