//! Computes the keys that made signatures. This is recovery, for many signatures at once.
//!
//! The key is (s/r)·R − (z/r)·G. R is the point that the signature names, z is the digest, and G is the group's generator.
//!
//! # Invariants
//!
//! * **A key or nothing.** If a step is exceptional, no key is returned, and the caller recovers it with k256.

use std::iter;

use k256::{AffinePoint, Scalar};

use super::field::{Number, number_of, words_from};
use super::multiples::GENERATOR;
use super::sums::{BETA, Lists, ODD_MULTIPLES, Point, Products};
use crate::verify::signature::RecoverableSignature;

/// The parts of the equation whose solution is the key of a signature.
pub(super) struct KeyEquation {
    pub(super) signature: RecoverableSignature,
    /// Not zero.
    pub(super) z: Scalar,
    /// 1/r.
    pub(super) inverse: Scalar,
}

/// Returns the solution of each equation, or `None` if it was not computed.
pub(super) fn keys(equations: &[KeyEquation], products: Products, lists: &mut Lists) -> Vec<Option<Point>> {
    let x = equations.iter().map(|KeyEquation { signature, .. }| words_from(&signature.r().to_bytes()));
    let named = products.points(&x.collect::<Vec<_>>());
    // If R does not exist, another point takes its place, and the result is discarded.
    let points = iter::zip(&named, equations).map(|(point, equation)| {
        let point = point.unwrap_or_else(|| Point::from(&AffinePoint::GENERATOR));
        point.signed(point.y_is_odd() != equation.signature.recovery.is_y_odd())
    });
    let multiples = odd_multiples(points.collect(), lists);
    let factors: Vec<_> = equations.iter().map(|equation| equation.signature.s() * equation.inverse).collect();
    let made = multiples.and_then(|multiples| products.products(&factors, |of, multiple| multiples[multiple][of]));
    let Some(made) = made else { return vec![None; equations.len()] };
    for (product, equation) in iter::zip(made, equations) {
        lists.push(|list| {
            list.push(product);
            GENERATOR.append_terms(&-(equation.z * equation.inverse), list);
        });
    }
    iter::zip(named, lists.take_sums()).map(|(point, sum)| point.and(sum)).collect()
}

/// Returns the points times 1, the points times 3, and so on. Returns `None` if an addition is exceptional.
fn odd_multiples(points: Vec<Point>, lists: &mut Lists) -> Option<Vec<Vec<Point>>> {
    for point in &points {
        lists.push(|list| list.extend(terms_of_double(point)));
    }
    let twice: Vec<_> = lists.take_sums().into_iter().collect::<Option<_>>()?;
    let mut multiples = vec![points];
    for at in 1..ODD_MULTIPLES {
        for (last, twice) in iter::zip(&multiples[at - 1], &twice) {
            lists.push(|list| list.extend([*last, *twice]));
        }
        multiples.push(lists.take_sums().into_iter().collect::<Option<_>>()?);
    }
    Some(multiples)
}

/// Returns points whose sum is twice the point, because a point cannot be added to itself. The points (x, y), (β·x, y) and
/// (β²·x, y) lie on a line, so their sum is zero. The first of them minus the two others is therefore twice the first.
fn terms_of_double(point: &Point) -> [Point; 3] {
    let x = number_of(&point.x);
    let other = x.mul(&number_of(&BETA));
    let last = (x + other).negate(2);
    let negative = |x: Number| Point { x: words_from(&x.normalize().to_bytes()), y: point.y }.signed(true);
    [*point, negative(other), negative(last)]
}
