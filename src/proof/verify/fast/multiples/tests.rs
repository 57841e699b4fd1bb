//! A product that is computed with additions alone is correct.

use k256::U256;
use k256::elliptic_curve::group::GroupEncoding;
use k256::elliptic_curve::ops::Reduce;

use super::*;

impl Multiples {
    pub(in crate::verify::fast) fn bytes(&self) -> usize {
        self.points.capacity() * size_of::<Point>()
    }
}

fn scalar(bytes: [u8; 32]) -> Scalar {
    Scalar::reduce(&U256::from_be_slice(&bytes))
}

/// Scalars with the largest and smallest digits, and from both ends of the order.
fn edges() -> Vec<Scalar> {
    let powers = iter::successors(Some(Scalar::ONE), |power| Some(power + power)).take(256);
    let patterns = [0x00, 0x0f, 0x55, 0x7f, 0x80, 0xaa, 0xff].map(|byte| scalar([byte; 32]));
    let edges = powers.chain(patterns).flat_map(|scalar| [scalar, scalar - Scalar::ONE, -scalar]);
    edges.filter(|edge| *edge != Scalar::ZERO).collect()
}

fn product(multiples: &Multiples, scalar: &Scalar) -> ProjectivePoint {
    let affine = |point: Point| {
        let sign = [2 + u8::from(point.y_is_odd())];
        AffinePoint::from_bytes(&<_>::try_from(&[&sign[..], &point.x()].concat()[..]).unwrap()).unwrap()
    };
    let mut terms = Vec::new();
    multiples.append_terms(scalar, &mut terms);
    terms.into_iter().fold(ProjectivePoint::IDENTITY, |sum, term| sum + affine(term))
}

#[test]
fn every_window_multiplies_as_the_curve_does() {
    let point = (ProjectivePoint::GENERATOR * scalar([7; 32])).to_affine();
    for width in (*Window::KEYS.start()..=*Window::KEYS.end()).chain([Window::GENERATOR.0]) {
        let multiples = Multiples::of(&point, Window(width));
        for scalar in edges() {
            assert_eq!(product(&multiples, &scalar), point * scalar, "{width} bits, {scalar:?}");
        }
    }
}

#[test]
fn a_table_has_its_documented_size() {
    for width in *Window::KEYS.start()..=*Window::KEYS.end() {
        assert_eq!(Multiples::of(&AffinePoint::GENERATOR, Window(width)).bytes(), Window(width).bytes());
    }
}
