//! A sum equals the result of k256's complete formulas, or is missing.

use k256::elliptic_curve::ops::Reduce;
use k256::elliptic_curve::point::AffineCoordinates;
use k256::{AffinePoint, FieldBytes, ProjectivePoint, Scalar, U256};
use proptest::prelude::*;

use super::*;

fn multiple(of: u64) -> AffinePoint {
    (ProjectivePoint::GENERATOR * Scalar::from(of)).to_affine()
}

/// The implementation for this processor, and the implementation for every processor.
fn both_ways() -> [Lists; 2] {
    [Lists::default(), Lists::Single(single::Lists::default())]
}

fn sums_of(lists: &[Vec<AffinePoint>]) -> Vec<Option<(FieldBytes, bool)>> {
    let [sums, others] = both_ways().map(|mut all| {
        for list in lists {
            all.push(|points| points.extend(list.iter().map(Point::from)));
        }
        all.take_sums().into_iter().map(|sum| sum.map(|sum| (sum.x(), sum.y_is_odd()))).collect::<Vec<_>>()
    });
    assert_eq!(sums, others);
    sums
}

fn expected(list: &[AffinePoint]) -> (FieldBytes, bool) {
    let sum = list.iter().fold(ProjectivePoint::IDENTITY, |sum, point| sum + point).to_affine();
    (sum.x(), sum.y_is_odd().into())
}

proptest! {
    #[test]
    fn lists_of_any_length_are_summed(
        lists in (1..40_usize).prop_flat_map(|length| {
            prop::collection::vec(prop::collection::vec(any::<[u8; 32]>(), length), 0..11)
        }),
    ) {
        let point = |bytes: &[u8; 32]| {
            let scalar: Scalar = Reduce::reduce(&U256::from_be_slice(bytes));
            (ProjectivePoint::GENERATOR * scalar).to_affine()
        };
        let lists: Vec<Vec<_>> = lists.iter().map(|list| list.iter().map(point).collect()).collect();
        let expected: Vec<_> = lists.iter().map(|list| Some(expected(list))).collect();
        prop_assert_eq!(sums_of(&lists), expected);
    }
}

#[test]
fn a_negated_point_is_added() {
    let (three, five) = (multiple(3), multiple(5));
    for mut lists in both_ways() {
        lists.push(|list| list.extend([Point::from(&five), Point::from(&three).signed(true)]));
        let sum = lists.take_sums()[0].unwrap();
        assert_eq!((sum.x(), sum.y_is_odd()), expected(&[multiple(2)]));
    }
}

/// The exception occurs at the first level, at a later level, and beside lists that have sums.
#[test]
fn a_point_and_its_double_or_negative_are_not_summed() {
    for list in [vec![7, 7], vec![1, 2, 3], vec![1, 4, 2, 3]] {
        let list: Vec<_> = list.into_iter().map(multiple).collect();
        let has_a_sum: Vec<_> = (0..list.len()).map(|at| multiple(10 << at)).collect();
        let negative: Vec<_> = list[..1].iter().copied().chain([-list[0]]).collect();
        assert_eq!(sums_of(&[list, has_a_sum]), [None, None]);
        assert_eq!(sums_of(&[negative]), [None]);
    }
}

#[test]
fn a_list_of_one_point_is_its_own_sum() {
    assert_eq!(sums_of(&[vec![multiple(9)], vec![multiple(4)]]), [9, 4].map(|of| Some(expected(&[multiple(of)]))));
    assert_eq!(sums_of(&[]), []);
}

#[test]
fn batches_are_independent() {
    for mut lists in both_ways() {
        let mut sums_of = |list: &[u64]| {
            lists.push(|points| points.extend(list.iter().map(|of| Point::from(&multiple(*of)))));
            lists.take_sums().into_iter().map(|sum| sum.map(|sum| sum.x())).collect::<Vec<_>>()
        };
        assert_eq!(sums_of(&[1, 2, 4, 8, 16]), [Some(multiple(31).x())]);
        assert_eq!(sums_of(&[5, 5]), [None]);
        assert_eq!(sums_of(&[3, 7]), [Some(multiple(10).x())]);
    }
}
