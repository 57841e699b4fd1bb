//! A point's multiples, made beforehand, so that multiplying it by a scalar is nothing but a few additions.
//!
//! The scalar is read as digits of a few bits each, from minus to plus half of what the bits could say. The table holds
//! d·2^(w·i) times the point for every place i and every digit d above zero, and a negative costs nothing. So a product is
//! one addition a place.
//!
//! # Invariants
//!
//! * **k256's own arithmetic.** Points are added, doubled, negated and normalised by k256 alone, with its complete formulas:
//!   no point and no scalar is a special case.
//! * **Not for secrets.** The time that a product takes depends on the scalar. Those of a signature are public.

use std::iter;
use std::ops::RangeInclusive;

use arrayvec::ArrayVec;
use k256::elliptic_curve::BatchNormalize;
use k256::{AffinePoint, ProjectivePoint, Scalar};

#[cfg(test)]
mod tests;

/// The bits of a scalar.
const BITS: usize = 256;

/// How many bits of a scalar a digit stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window(usize);

impl Window {
    /// For a point that everything shares. One bit more would double the table and save a tenth of the additions.
    pub(super) const WIDEST: Self = Self(10);

    /// For points of which there are several. With still narrower digits little is left of what a table gains.
    const OTHERS: RangeInclusive<usize> = 5..=9;

    /// The widest with which the tables of so many points take at most so many bytes; `None` where even the narrowest
    /// take more.
    pub(super) fn fitting(points: usize, bytes: usize) -> Option<Self> {
        Self::OTHERS.rev().map(Self).find(|window| points.saturating_mul(window.bytes()) <= bytes)
    }

    /// The memory of one point's table.
    pub(super) const fn bytes(self) -> usize {
        ((self.places() - 1) * self.largest() + self.largest_at_the_end()) * size_of::<AffinePoint>()
    }

    /// The digits of a scalar. The last place has room for what the others carry over to it.
    pub(super) const fn places(self) -> usize {
        BITS / self.0 + 1
    }

    /// The largest digit of every place but the last.
    const fn largest(self) -> usize {
        1 << (self.0 - 1)
    }

    /// All the bits that are left for the last place, and one carried over.
    const fn largest_at_the_end(self) -> usize {
        1 << (BITS % self.0)
    }
}

/// The digits of a scalar by the narrowest window.
const MOST_PLACES: usize = Window(*Window::OTHERS.start()).places();

/// The multiples of one point.
pub(super) struct Multiples {
    window: Window,
    /// The first multiple of the first place, the second, and so on; then those of the next place.
    points: Vec<AffinePoint>,
}

impl Multiples {
    /// Of a point that is not the identity. Takes some milliseconds.
    pub(super) fn of(point: &AffinePoint, window: Window) -> Self {
        let mut points = Vec::with_capacity(window.bytes() / size_of::<AffinePoint>());
        let mut first = *point;
        for _ in 1..window.places() {
            let place = place(&first, window.largest());
            points.extend_from_slice(&place);
            first = ProjectivePoint::from(place[place.len() - 1]).double().to_affine();
        }
        points.extend(place(&first, window.largest_at_the_end()));
        Self { window, points }
    }

    /// `sum` and the point times `scalar`.
    pub(super) fn add_to(&self, sum: ProjectivePoint, scalar: &Scalar) -> ProjectivePoint {
        let place_of = |(place, digit): (usize, i32)| {
            let multiple = digit.unsigned_abs().checked_sub(1)? as usize;
            Some((place * self.window.largest() + multiple, digit < 0))
        };
        let terms: ArrayVec<_, MOST_PLACES> = digits(scalar, self.window).enumerate().filter_map(place_of).collect();
        // The table is larger than the nearest caches: all that is needed of it is fetched at once, and added then.
        let points: ArrayVec<_, MOST_PLACES> = terms.iter().map(|(place, _)| self.points[*place]).collect();
        let terms = terms.iter().zip(&points);
        terms.fold(sum, |sum, ((_, below_zero), point)| if *below_zero { sum - point } else { sum + point })
    }

    /// The memory that it takes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.points.capacity() * size_of::<AffinePoint>()
    }
}

/// A point times one, times two, and so on.
fn place(point: &AffinePoint, count: usize) -> Vec<AffinePoint> {
    let multiples = iter::successors(Some(ProjectivePoint::from(*point)), |multiple| Some(*multiple + point));
    let multiples: Vec<_> = multiples.take(count).collect();
    ProjectivePoint::batch_normalize_vartime(multiples.as_slice())
}

/// The digits of a scalar, the lowest first.
fn digits(scalar: &Scalar, Window(width): Window) -> impl Iterator<Item = i32> {
    // The lowest byte first, and zeros above the highest.
    let mut bytes = [0; BITS / 8 + size_of::<u32>()];
    bytes[..BITS / 8].copy_from_slice(&scalar.to_bytes());
    bytes[..BITS / 8].reverse();
    let (mask, largest, mut carried) = ((1 << width) - 1, 1 << (width - 1), 0);
    (0..=BITS / width).map(move |place| {
        let (byte, bit) = (place * width / 8, place * width % 8);
        let here = [bytes[byte], bytes[byte + 1], bytes[byte + 2], bytes[byte + 3]];
        let digit = (u32::from_le_bytes(here) >> bit & mask).cast_signed() + carried;
        carried = i32::from(digit > largest);
        digit - (carried << width)
    })
}
