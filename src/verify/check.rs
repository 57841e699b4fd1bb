//! Whether a signature is by a key that is known already: the same question that recovery answers, asked the other way
//! round.
//!
//! Recovery looks for the key Q with r·Q = s·R − z·G, where R is the point that the signature names, z the digest and G the
//! group's generator. There is one such Q, as the group's order is a prime. So where Q is at hand, it is the answer exactly
//! if (z/s)·G + (r/s)·Q is R, and that takes nothing but multiples made beforehand. What the signature says of R, its first
//! coordinate and whether the second is odd, is held against the sum's: R itself need not be found.

use std::sync::LazyLock;

use k256::elliptic_curve::BatchNormalize;
use k256::elliptic_curve::ops::Reduce;
use k256::{AffinePoint, FieldBytes, ProjectivePoint, Scalar};

use super::hash::Hash;
use super::multiples::{Multiples, Window};
use super::signature::Recoverable;

#[cfg(test)]
mod tests;

/// The generator's multiples, for the whole process.
pub(super) static GENERATOR: LazyLock<Multiples> =
    LazyLock::new(|| Multiples::of(&AffinePoint::GENERATOR, Window::WIDEST));

/// A signature over a digest, ready to be held against keys.
pub(super) struct Check<'a> {
    signature: &'a Recoverable,
    /// (z/s)·G.
    from_digest: ProjectivePoint,
    /// r/s.
    factor: Scalar,
}

impl<'a> Check<'a> {
    /// With `inverse` being 1/s.
    pub(super) fn new(digest: &Hash, signature: &'a Recoverable, inverse: &Scalar) -> Self {
        let z = <Scalar as Reduce<FieldBytes>>::reduce(&digest.0.into());
        let from_digest = GENERATOR.add_to(ProjectivePoint::IDENTITY, &(z * inverse));
        Self { signature, from_digest, factor: signature.r() * inverse }
    }

    /// Whether recovery would find the key with these multiples.
    pub(super) fn is_by(&self, key: &Multiples) -> bool {
        let [point] = ProjectivePoint::batch_normalize_vartime(&[self.point(key)]);
        self.signature.names(&point)
    }

    /// What is R where the signature is by the key with these multiples, and another point or the identity where not.
    fn point(&self, key: &Multiples) -> ProjectivePoint {
        key.add_to(self.from_digest, &self.factor)
    }
}

/// Whether recovery would find each signature to be by the key beside it. Cheaper than one by one: they share an inversion.
pub(super) fn are_by(asked: &[(&Check<'_>, &Multiples)]) -> Vec<bool> {
    let points: Vec<_> = asked.iter().map(|(check, key)| check.point(key)).collect();
    let points = ProjectivePoint::batch_normalize_vartime(points.as_slice());
    asked.iter().zip(&points).map(|((check, _), point)| check.signature.names(point)).collect()
}

/// 1/s of every signature, at the price of one inversion and a few products.
pub(super) fn inverses(signatures: &[Recoverable]) -> Vec<Scalar> {
    let scalars: Vec<_> = signatures.iter().map(Recoverable::s).collect();
    // What stands before each, multiplied; then the inverse of it all, freed of one after the other from the end.
    let products = |product: &mut Scalar, scalar: &Scalar| Some(std::mem::replace(product, *product * scalar));
    let mut inverses: Vec<_> = scalars.iter().scan(Scalar::ONE, products).collect();
    let all: Scalar = scalars.iter().product();
    let mut inverse = all.invert_vartime().expect("s is never zero, and the order of the group is a prime");
    for (before, scalar) in inverses.iter_mut().zip(&scalars).rev() {
        *before *= inverse;
        inverse *= scalar;
    }
    inverses
}
