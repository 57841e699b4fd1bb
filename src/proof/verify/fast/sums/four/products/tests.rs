//! Products agree with k256, or are missing. On a processor without AVX2 these tests check nothing.

use fearless_simd::Level;
use k256::elliptic_curve::point::{AffineCoordinates, DecompressPoint};
use k256::{AffinePoint, ProjectivePoint};
use proptest::prelude::*;

use super::*;
use crate::verify::fast::field::bytes_of;

/// Runs `check` if the processor has AVX2.
fn with_avx2(check: impl FnOnce(Products)) {
    if let Some(avx2) = Level::new().as_avx2() {
        check(Products(avx2));
    }
}

fn scalar(bytes: [u8; 32]) -> Scalar {
    Scalar::reduce(&U256::from_be_slice(&bytes))
}

/// The bytes of a scalar near both ends of the order, with few or many bits, or of a random one.
fn bytes() -> impl Strategy<Value = [u8; 32]> {
    let edges = [
        Scalar::ONE,
        Scalar::from(2_u32),
        Scalar::reduce(&LAMBDA),
        Scalar::reduce(&SHORT[0]),
        Scalar::reduce(&SHORT[1]),
    ];
    let edge = (prop::sample::select(edges.to_vec()), 0..5_u32, any::<bool>()).prop_map(|(edge, more, negative)| {
        let edge = edge + Scalar::from(more);
        if negative { -edge } else { edge }.to_bytes().into()
    });
    prop_oneof![2 => edge, 3 => any::<[u8; 32]>()]
}

fn coordinates_of(point: &AffinePoint) -> (k256::FieldBytes, bool) {
    (point.x(), point.y_is_odd().into())
}

fn product(products: Products, points: &[AffinePoint], scalars: &[Scalar]) -> Option<Vec<(k256::FieldBytes, bool)>> {
    let multiple = |point: usize, at: usize| {
        let multiple = points[point] * Scalar::from(2 * at as u64 + 1);
        Point::from(&multiple.to_affine())
    };
    let products = products.products(scalars, multiple)?;
    Some(products.into_iter().map(|product| (product.x(), product.y_is_odd())).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn products_match_k256(numbers in prop::collection::vec(any::<[[u8; 32]; 2]>(), 1..10)) {
        let (points, scalars): (Vec<_>, Vec<_>) = numbers.into_iter().map(|[point, scalar]| {
            ((ProjectivePoint::GENERATOR * self::scalar(point)).to_affine(), self::scalar(scalar))
        }).unzip();
        let expected = iter::zip(&points, &scalars).map(|(point, scalar)| coordinates_of(&(*point * scalar).to_affine()));
        let expected: Vec<_> = expected.collect();
        with_avx2(|products| assert_eq!(product(products, &points, &scalars), Some(expected)));
    }

    #[test]
    fn the_product_with_an_unusual_scalar_is_never_wrong(bytes in bytes()) {
        let scalar = scalar(bytes);
        let expected = coordinates_of(&(ProjectivePoint::GENERATOR * scalar).to_affine());
        with_avx2(|products| {
            let found = product(products, &[AffinePoint::GENERATOR], &[scalar]);
            assert!(found.is_none_or(|found| found == [expected]), "{scalar:?}");
        });
    }

    #[test]
    fn halves_are_short_and_odd(bytes in bytes()) {
        let scalar = scalar(bytes);
        let [a, b] = halves(&scalar);
        assert_eq!(a + b * Scalar::reduce(&LAMBDA), scalar);
        for half in [a, b] {
            let positive = if half.is_high().into() { -half } else { half };
            assert!(bool::from(positive.is_odd()) && U256::from(positive) >> 129 == U256::ZERO, "{scalar:?}");
        }
    }

    #[test]
    fn points_have_their_coordinate(numbers: [u64; 4]) {
        // Half of all coordinates have no point.
        let x = numbers.map(|number| [number, 0, 0, 0]);
        with_avx2(|products| {
            for (x, point) in iter::zip(x, products.points(&x)) {
                let bytes = bytes_of(&x);
                let expected = AffinePoint::decompress(&bytes, 0.into()).into_option();
                assert_eq!(point.map(|point| point.x()), expected.map(|point| point.x()));
                let is_on_curve = |point: Point| [0, 1].into_iter().any(|odd| {
                    let expected = AffinePoint::decompress(&bytes, odd.into()).unwrap();
                    Point::from(&expected).y == point.y
                });
                assert!(point.is_none_or(is_on_curve));
            }
        });
    }
}

/// The two halves of zero cancel each other in the last addition.
#[test]
fn an_exceptional_product_is_missing() {
    with_avx2(|products| {
        assert_eq!(product(products, &[AffinePoint::GENERATOR], &[Scalar::ZERO]), None);
        assert_eq!(product(products, &[AffinePoint::GENERATOR; 6], &[Scalar::ONE; 6]).map(|all| all.len()), Some(6));
    });
}
