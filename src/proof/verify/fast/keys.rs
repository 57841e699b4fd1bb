//! Computes the keys that made signatures. This is recovery, for many signatures at once.
//!
//! The key is (s/r)·R − (z/r)·G. R is the point that the signature names, z is the digest, and G is the group's generator.
//!
//! # Invariants
//!
//! * **A key or nothing.** If a step is exceptional, no key is returned, and the caller recovers it with k256.

use std::iter;

use k256::{AffinePoint, Scalar};

use super::field::{Number, Words, number_of, words_from};
use super::multiples::GENERATOR;
use super::sums::{BETA, Lists, ODD_MULTIPLES, Point, Products};
use crate::verify::signature::RecoverableSignature;

/// A signature whose key is to be computed.
pub(super) struct Signed {
    /// The first coordinate of R.
    x: Words,
    y_is_odd: bool,
    /// s/r. Not zero.
    of_point: Scalar,
    /// −z/r. Not zero.
    of_generator: Scalar,
}

impl Signed {
    /// Prepares a signature over the digest z, which must not be zero. `inverse` is 1/r.
    pub(super) fn new(signature: &RecoverableSignature, z: &Scalar, inverse: &Scalar) -> Self {
        Self {
            x: words_from(&signature.r().to_bytes()),
            y_is_odd: signature.recovery.is_y_odd(),
            of_point: signature.s() * inverse,
            of_generator: -(z * inverse),
        }
    }
}

/// Returns the key of each signature, or `None` where it was not computed.
pub(super) fn keys(signatures: &[Signed], products: Products, lists: &mut Lists) -> Vec<Option<Point>> {
    let named = products.points(&signatures.iter().map(|signed| signed.x).collect::<Vec<_>>());
    // Another point takes the place of a point that does not exist.
    let points = iter::zip(&named, signatures).map(|(point, signed)| {
        let point = point.unwrap_or_else(|| Point::from(&AffinePoint::GENERATOR));
        point.signed(point.y_is_odd() != signed.y_is_odd)
    });
    let multiples = odd_multiples(points.collect(), lists);
    let factors: Vec<_> = signatures.iter().map(|signed| signed.of_point).collect();
    let made = multiples.and_then(|multiples| products.products(&factors, |of, multiple| multiples[multiple][of]));
    let Some(made) = made else { return vec![None; signatures.len()] };
    for (product, signed) in iter::zip(made, signatures) {
        lists.push(|list| {
            list.push(product);
            GENERATOR.append_terms(&signed.of_generator, list);
        });
    }
    iter::zip(named, lists.take_sums()).map(|(point, sum)| point.and(sum)).collect()
}

/// Returns the points times 1, the points times 3, and so on. Returns `None` if that is not possible.
fn odd_multiples(points: Vec<Point>, lists: &mut Lists) -> Option<Vec<Vec<Point>>> {
    for point in &points {
        lists.push(|list| list.extend(halves_of_double(point)));
    }
    let twice: Vec<_> = lists.take_sums().into_iter().collect::<Option<_>>()?;
    let next = |last: &Vec<Point>| {
        for (last, twice) in iter::zip(last, &twice) {
            lists.push(|list| list.extend([*last, *twice]));
        }
        lists.take_sums().into_iter().collect::<Option<Vec<_>>>()
    };
    let multiples: Vec<_> = iter::successors(Some(points), next).take(ODD_MULTIPLES).collect();
    (multiples.len() == ODD_MULTIPLES).then_some(multiples)
}

/// Returns points whose sum is twice the point, because a list cannot contain a point twice. The points (x, y), (β·x, y) and
/// (β²·x, y) lie on a line, so their sum is zero. The first of them minus the two others is therefore twice the first.
fn halves_of_double(point: &Point) -> [Point; 3] {
    let x = number_of(&point.x);
    let other = x.mul(&number_of(&BETA));
    let last = (x + other).negate(2);
    let negative = |x: Number| Point { x: words_from(&x.normalize().to_bytes()), y: point.y }.signed(true);
    [*point, negative(other), negative(last)]
}
