//! A point's multiples, made beforehand: a product with a scalar is then the sum of a few of them.
//!
//! The scalar is read as digits of a few bits each, from minus to plus half of what the bits could say. The table holds
//! d·2^(w·i) times the point for every place i and every digit d above zero; a negative costs nothing. So a product is the
//! sum of one point a place. A scalar above half of the group's order is taken for its negative, which is a bit shorter.
//!
//! # Invariants
//!
//! * **Not for secrets.** The time that a product takes depends on the scalar. Those of a signature are public.

use std::iter;
use std::ops::RangeInclusive;

use k256::elliptic_curve::BatchNormalize;
use k256::elliptic_curve::scalar::IsHigh;
use k256::{AffinePoint, ProjectivePoint, Scalar};

use super::sums::Point;

#[cfg(test)]
mod tests;

/// The bits of a scalar that is at most half of the group's order.
const BITS: usize = 255;

/// The bytes of a scalar.
const BYTES: usize = 32;

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
        ((self.places() - 1) * self.largest() + self.largest_at_the_end()) * size_of::<Point>()
    }

    /// The digits of a scalar. The last one has room for what is carried over to it, and nothing is carried beyond.
    pub(super) const fn places(self) -> usize {
        BITS.div_ceil(self.0)
    }

    /// The largest digit of every place but the last.
    const fn largest(self) -> usize {
        1 << (self.0 - 1)
    }

    /// All the bits that are left for the last place, and one carried over.
    const fn largest_at_the_end(self) -> usize {
        1 << (BITS - (self.places() - 1) * self.0)
    }
}

/// The multiples of one point.
pub(super) struct Multiples {
    window: Window,
    /// The first multiple of the first place, the second, and so on; then those of the next place.
    points: Vec<Point>,
}

impl Multiples {
    /// Of a point that is not the identity. Takes some milliseconds.
    pub(super) fn of(point: &AffinePoint, window: Window) -> Self {
        let mut points = Vec::with_capacity(window.bytes() / size_of::<Point>());
        let mut first = *point;
        for place in 0..window.places() {
            let is_last = place + 1 == window.places();
            let count = if is_last { window.largest_at_the_end() } else { window.largest() };
            let multiples = multiples(&first, count);
            first = ProjectivePoint::from(multiples[count - 1]).double().to_affine();
            points.extend(multiples.iter().map(Point::from));
        }
        Self { window, points }
    }

    /// The points whose sum is the point times `scalar`.
    pub(super) fn terms(&self, scalar: &Scalar) -> impl Iterator<Item = Point> {
        let is_negative: bool = scalar.is_high().into();
        let scalar = if is_negative { -scalar } else { *scalar };
        let digits = digits(scalar, self.window).enumerate().filter(|(_, digit)| *digit != 0);
        digits.map(move |(place, digit)| {
            let multiple = place * self.window.largest() + digit.unsigned_abs() as usize;
            self.points[multiple - 1].signed((digit < 0) != is_negative)
        })
    }

    /// The memory that it takes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.points.capacity() * size_of::<Point>()
    }
}

/// A point times one, times two, and so on.
fn multiples(point: &AffinePoint, count: usize) -> Vec<AffinePoint> {
    let multiples = iter::successors(Some(ProjectivePoint::from(*point)), |multiple| Some(*multiple + point));
    let multiples: Vec<_> = multiples.take(count).collect();
    ProjectivePoint::batch_normalize_vartime(multiples.as_slice())
}

/// The digits of a scalar that is at most half of the group's order, the lowest first.
fn digits(scalar: Scalar, window: Window) -> impl Iterator<Item = i32> {
    // The lowest byte first, and zeros above the highest.
    let mut bytes = [0; BYTES + size_of::<u32>()];
    bytes[..BYTES].copy_from_slice(&scalar.to_bytes());
    bytes[..BYTES].reverse();
    let (Window(width), places) = (window, window.places());
    let (mask, largest, mut carried) = ((1 << width) - 1, 1 << (width - 1), 0);
    (0..places).map(move |place| {
        let (byte, bit) = (place * width / 8, place * width % 8);
        let here = [bytes[byte], bytes[byte + 1], bytes[byte + 2], bytes[byte + 3]];
        let digit = (u32::from_le_bytes(here) >> bit & mask).cast_signed() + carried;
        carried = i32::from(digit > largest && place + 1 < places);
        digit - (carried << width)
    })
}
