//! Precomputed multiples of a point. A product with a scalar is then the sum of a few of them.
//!
//! An odd scalar is written with odd digits of w bits each, positive or negative. Each bit counts as one or minus one, so
//! exactly one such notation exists. The table contains d·2^(w·i) times the point for every position i and every
//! positive odd digit d. The negative of a point costs nothing. A product is therefore the sum of exactly one point per
//! position. An even scalar is replaced with its negative, which is odd because the group's order is odd.
//!
//! # Invariants
//!
//! * **Not for secrets.** The time that a product takes depends on the scalar. The scalars of a signature are public.

use std::iter;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

use k256::elliptic_curve::BatchNormalize;
use k256::elliptic_curve::ff::PrimeField;
use k256::{AffinePoint, ProjectivePoint, Scalar};

use super::digits::digits;
use super::sums::Point;

#[cfg(test)]
mod tests;

const BITS: usize = 256;

/// The number of positions with the narrowest window.
const MOST_PLACES: usize = Window(*Window::KEYS.start()).places();

/// The generator's multiples, shared by the whole process.
pub(super) static GENERATOR: LazyLock<Multiples> =
    LazyLock::new(|| Multiples::of(&AffinePoint::GENERATOR, Window::GENERATOR));

/// The number of bits of a scalar that one digit represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window(usize);

impl Window {
    /// The window for the generator, whose table is shared by all sets.
    pub(super) const GENERATOR: Self = Self(8);

    /// The windows for keys. With narrower digits a table would save little.
    const KEYS: RangeInclusive<usize> = 5..=10;

    /// The widest window with which the tables of `points` points take at most `bytes` bytes. Returns `None` if even the
    /// narrowest takes more.
    pub(super) fn fitting(points: usize, bytes: usize) -> Option<Self> {
        Self::KEYS.rev().map(Self).find(|window| points.saturating_mul(window.bytes()) <= bytes)
    }

    /// The size of one point's table, in bytes.
    pub(super) const fn bytes(self) -> usize {
        self.places() * self.digits() * size_of::<Point>()
    }

    pub(super) const fn places(self) -> usize {
        BITS.div_ceil(self.0)
    }

    /// The number of positive digits for one position.
    const fn digits(self) -> usize {
        1 << (self.0 - 1)
    }
}

pub(super) struct Multiples {
    window: Window,
    /// The first position's multiples by 1, 3, 5 and so on, followed by the multiples for the next positions.
    points: Vec<Point>,
}

impl Multiples {
    /// Computes the multiples of a point, which must not be the identity. It takes some milliseconds.
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

    /// The point itself.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn point(&self) -> &Point {
        &self.points[0]
    }

    /// Appends the points whose sum is the point times `scalar`, one point per position. `scalar` must not be zero.
    pub(super) fn append_terms(&self, scalar: &Scalar, terms: &mut Vec<Point>) {
        debug_assert_ne!(*scalar, Scalar::ZERO, "the identity is no sum");
        let is_negative: bool = scalar.is_even().into();
        let mut digits_and_signs = [(0, false); MOST_PLACES];
        let digits = digits(scalar, is_negative, self.window.0, self.window.places());
        digits_and_signs.iter_mut().zip(digits).for_each(|(place, digit)| *place = digit);
        // Only copy in this pass. Most entries of the tables are not in the processor's cache, and the processor can fetch many
        // at the same time.
        let tables = self.points.chunks_exact(self.window.digits());
        let begin = terms.len();
        terms.extend(tables.zip(&digits_and_signs).map(|(table, (half, _))| table[*half]));
        for (term, (_, is_negative)) in terms[begin..].iter_mut().zip(digits_and_signs) {
            *term = term.signed(is_negative);
        }
    }
}

/// Returns the point times 1, 3, 5 and so on, `number` values in total, and the point times 2·`number`.
fn odd_multiples(point: &AffinePoint, number: usize) -> (Vec<AffinePoint>, AffinePoint) {
    let twice = ProjectivePoint::from(*point).double();
    let multiples = iter::successors(Some(ProjectivePoint::from(*point)), |multiple| Some(*multiple + twice));
    let mut multiples: Vec<_> = multiples.take(number + 1).collect();
    // The last multiple is 2·`number` + 1, so subtract the point once.
    multiples[number] -= point;
    let mut multiples = ProjectivePoint::batch_normalize_vartime(multiples.as_slice());
    let next = multiples.pop().expect("the list is not empty");
    (multiples, next)
}
