//! Operations on four elements agree with k256. On a processor without AVX2 these tests check nothing.

use proptest::prelude::*;

use super::*;
use fearless_simd::Level;

/// p, lowest word first.
const P: Words = [u64::MAX - (1 << 32) - 976, u64::MAX, u64::MAX, u64::MAX];

/// Runs `check` if the processor has AVX2.
fn with_avx2(check: impl FnOnce(Avx2)) {
    if let Some(avx2) = Level::new().as_avx2() {
        check(avx2);
    }
}

fn rows(elements: &Elements) -> Rows {
    let mut rows = Rows::default();
    elements.store(&mut rows);
    rows
}

/// Converts limbs of any size with k256.
fn number(limbs: &[u64; LIMBS]) -> Number {
    let base = Number::from_u64(1 << WIDTH);
    limbs.iter().rev().fold(Number::ZERO, |sum, limb| (sum.mul(&base) + Number::from_u64(*limb)).normalize())
}

type Limbs = [[u64; 4]; LIMBS];

fn lane(rows: &Limbs, at: usize) -> [u64; LIMBS] {
    rows.map(|row| row[at])
}

/// Checks every operation on two reduced elements and a difference.
fn check(one: &Limbs, other: &Limbs, difference: &Limbs) {
    with_avx2(|avx2| {
        let load = |limbs: &Limbs| Elements::load(avx2, &Rows(*limbs));
        let (unit, a, b, d) = (Elements::small(avx2, 1), load(one), load(other), load(difference));
        let results = [
            a.times(avx2, &b),
            a.times(avx2, &d),
            a.times_and(avx2, &b, &d),
            a.times_and(avx2, &d, &d),
            a.square_and(avx2, &d),
            a.less(avx2, b).times(avx2, &unit),
            Elements::minus_both(avx2, a, b).times(avx2, &unit),
            a.minus(avx2).times(avx2, &unit),
            a.square(avx2),
            d.carried(avx2),
            a.plus(b).plus(b).carried(avx2),
            a.shifted(2).times(avx2, &b),
            a.square_and(avx2, &d.plus(d)),
        ];
        let results = results.each_ref().map(rows);
        assert!(results.iter().flat_map(|rows| rows.0.as_flattened()).all(|limb| *limb <= 1 << WIDTH), "{results:?}");
        for at in 0..4 {
            let [a, b, d] = [one, other, difference].map(|limbs| number(&lane(limbs, at)));
            let expected = [
                a.mul(&b),
                a.mul(&d),
                a.mul(&b) + d,
                a.mul(&d) + d,
                a.square() + d,
                a + b.negate(1),
                (a + b).negate(2),
                a.negate(1),
                a.square(),
                d,
                a + b + b,
                a.mul(&b).mul_single(4),
                a.square() + d + d,
            ];
            let expected = expected.map(|number| words_from(&number.normalize().to_bytes()));
            assert_eq!(results.map(|rows| rows.words()[at]), expected, "{a:?} {b:?} {d:?}");
        }
    });
}

/// The largest limbs, for which a sum or product would overflow first, and the smallest limbs.
#[test]
fn the_largest_limbs_do_not_overflow() {
    let largest_difference = MULTIPLE_OF_P.map(|limb| [limb + (1 << WIDTH); 4]);
    assert!(largest_difference.iter().flatten().all(|limb| u32::try_from(*limb).is_ok()));
    assert!(MULTIPLE_OF_P.iter().all(|limb| *limb >= 2 << WIDTH), "no difference of two reduced ones is negative");
    assert_eq!(number(&MULTIPLE_OF_P), Number::ZERO);
    for one in [0, 1 << WIDTH] {
        for other in [0, 1 << WIDTH] {
            for difference in [largest_difference, [[0; 4]; LIMBS]] {
                check(&[[one; 4]; LIMBS], &[[other; 4]; LIMBS], &difference);
            }
        }
    }
}

proptest! {
    #[test]
    fn each_operation_matches_k256(
        one: Limbs,
        other: Limbs,
        difference: Limbs,
    ) {
        let below = |rows: Limbs, end: u64| rows.map(|row| row.map(|limb| limb % end));
        let end = (1 << WIDTH) + 1;
        check(&below(one, end), &below(other, end), &below(difference, 1 << 31));
    }
}

#[test]
fn results_are_below_the_prime() {
    let [less, same, more] = [P[0] - 1, P[0], P[0] + 1].map(|lowest| [lowest, P[1], P[2], P[3]]);
    let distinct = [1, 2, 3, 4].map(|lane| [lane, 5 * lane, 6 * lane, lane << 60]);
    with_avx2(|avx2| {
        let to_limbs_and_back = |words: [Words; 4]| rows(&Elements::of_words(avx2, words.each_ref())).words();
        let largest = [BEYOND_WORDS - 1, 0, 0, 0];
        assert_eq!(to_limbs_and_back([less, same, more, [u64::MAX; 4]]), [less, [0; 4], [1, 0, 0, 0], largest]);
        assert_eq!(to_limbs_and_back(distinct), distinct);
    });
}

/// A reduced element can be a multiple of the prime, up to 32 times the prime. It then represents zero.
#[test]
fn a_multiple_of_the_prime_is_zero() {
    for times in 0..=32_u64 {
        // times·2^256 − times·(2^32 + 977), with borrows from limb to limb.
        let mut limbs = [0, 0, 0, 0, 0, 0, 0, 0, (times << 24).cast_signed()];
        limbs[0] -= (times * (BEYOND_WORDS & LIMB)).cast_signed();
        limbs[1] -= (times * (BEYOND_WORDS >> WIDTH)).cast_signed();
        for at in 0..LIMBS - 1 {
            limbs[at + 1] += limbs[at] >> WIDTH;
            limbs[at] &= LIMB.cast_signed();
        }
        assert_eq!(words_of(limbs.map(i64::cast_unsigned)), [0; 4], "{times}");
    }
}

#[test]
fn inverses_match_k256_and_a_zero_has_none() {
    let numbers = [[2, 0, 0, 0], [3, 4, 5, 6], [P[0] - 1, P[1], P[2], P[3]], [9, 9, 9, 9]];
    let expected = numbers.map(|words| {
        let inverse = number_of(&words).invert_vartime().unwrap();
        words_from(&inverse.normalize().to_bytes())
    });
    with_avx2(|avx2| {
        let inverses = |words: [Words; 4]| Elements::of_words(avx2, words.each_ref()).inverses(avx2);
        assert_eq!(inverses(numbers).map(|inverses| rows(&inverses).words()), Some(expected));
        for zero in [[0; 4], P] {
            for at in 0..4 {
                let mut numbers = numbers;
                numbers[at] = zero;
                assert!(inverses(numbers).is_none());
            }
        }
    });
}
