//! The parts of a signature as terms of an equation.

use k256::Scalar;

use super::sums::Point;
use crate::verify::signature::Recoverable;

/// r, as a scalar.
pub(super) fn r(signature: &Recoverable) -> Scalar {
    *signature.signature.split_scalars().0
}

/// s.
pub(super) fn s(signature: &Recoverable) -> Scalar {
    *signature.signature.split_scalars().1
}

/// Whether the signature names this point. The point's first coordinate must be r, and its second must be odd or even as
/// the recovery byte says. r is the coordinate itself, because with the accepted recovery bytes the order was not
/// subtracted from it.
pub(super) fn names(signature: &Recoverable, point: &Point) -> bool {
    let (x, _) = signature.signature.split_bytes();
    point.x() == x && point.y_is_odd() == signature.recovery.is_y_odd()
}

/// Returns 1/s of every signature, for the cost of one inversion and a few products.
pub(super) fn inverses<'a>(signatures: impl Iterator<Item = &'a Recoverable>) -> Vec<Scalar> {
    let scalars: Vec<_> = signatures.map(s).collect();
    // First compute the product of all scalars before each one. Then invert the total product, and remove one scalar after
    // another from the end.
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
