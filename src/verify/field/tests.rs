//! Four elements at once are what k256 makes of each, with the processor's vectors and without.

use proptest::prelude::*;

use super::vector::Portable;
use super::*;

/// p, the lowest word first.
const P: Words = [u64::MAX - (1 << 32) - 976, u64::MAX, u64::MAX, u64::MAX];

/// Runs on what this processor has, and as on one that has nothing.
fn both_ways<T: Task<Output: PartialEq + std::fmt::Debug> + Copy>(task: T) -> T::Output {
    let portable = task.run::<Portable>(());
    assert_eq!(vectorized(task), portable);
    portable
}

/// What k256 makes of limbs, however large they are.
fn number(limbs: &[u64; LIMBS]) -> Number {
    let base = Number::from_u64(1 << WIDTH);
    limbs.iter().rev().fold(Number::ZERO, |sum, limb| (sum.mul(&base) + Number::from_u64(*limb)).normalize())
}

type Limbs = [[u64; 4]; LIMBS];

fn lane(rows: &Limbs, at: usize) -> [u64; LIMBS] {
    rows.map(|row| row[at])
}

/// All that can be made of two reduced elements and a difference, in words.
#[derive(Clone, Copy)]
struct Everything {
    one: Limbs,
    other: Limbs,
    difference: Limbs,
}

impl Task for Everything {
    type Output = Vec<[Words; 4]>;

    fn run<V: Vector>(self, token: V::Token) -> Self::Output {
        let load = |rows| Elements::<V>::load(token, &Rows(rows));
        let (one, other, difference) = (load(self.one), load(self.other), load(self.difference));
        let unit = Elements::one(token);
        let results = [
            one.times(token, &other),
            one.times(token, &difference),
            one.times_and(token, &other, &difference),
            one.times_and(token, &difference, &difference),
            one.square_and(token, &difference),
            one.less(token, other).times(token, &unit),
            Elements::minus_both(token, one, other).times(token, &unit),
            one.minus(token).times(token, &unit),
        ];
        results
            .iter()
            .map(|result| {
                let mut rows = Rows::default();
                result.store(&mut rows);
                assert!(rows.0.iter().flatten().all(|limb| *limb <= 1 << WIDTH), "{rows:?} is reduced");
                rows.words()
            })
            .collect()
    }
}

fn check(one: &Limbs, other: &Limbs, difference: &Limbs) {
    let results = both_ways(Everything { one: *one, other: *other, difference: *difference });
    for at in 0..4 {
        let (a, b, d) = (number(&lane(one, at)), number(&lane(other, at)), number(&lane(difference, at)));
        let expected = [
            a.mul(&b),
            a.mul(&d),
            a.mul(&b) + d,
            a.mul(&d) + d,
            a.square() + d,
            a + b.negate(1),
            (a + b).negate(2),
            a.negate(1),
        ];
        let expected = expected.map(|number| words_from(&number.normalize().to_bytes()));
        let found: Vec<_> = results.iter().map(|lanes| lanes[at]).collect();
        assert_eq!(found, expected, "{a:?} {b:?} {d:?}");
    }
}

/// Limbs as large as they may be, where a sum or product would overflow first; and the smallest.
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
    fn each_is_what_k256_says(
        one: Limbs,
        other: Limbs,
        difference: Limbs,
    ) {
        let below = |rows: Limbs, end: u64| rows.map(|row| row.map(|limb| limb % end));
        let end = (1 << WIDTH) + 1;
        check(&below(one, end), &below(other, end), &below(difference, 1 << 31));
    }
}

#[derive(Clone, Copy)]
struct ToLimbsAndBack([Words; 4]);

impl Task for ToLimbsAndBack {
    type Output = [Words; 4];

    fn run<V: Vector>(self, token: V::Token) -> [Words; 4] {
        let mut rows = Rows::default();
        Elements::<V>::of_words(token, self.0.each_ref()).store(&mut rows);
        rows.words()
    }
}

#[test]
fn what_leaves_is_below_the_prime() {
    let [less, same, more] = [P[0] - 1, P[0], P[0] + 1].map(|lowest| [lowest, P[1], P[2], P[3]]);
    assert_eq!(
        both_ways(ToLimbsAndBack([less, same, more, [u64::MAX; 4]])),
        [less, [0; 4], [1, 0, 0, 0], [BEYOND_WORDS - 1, 0, 0, 0]]
    );
    let distinct = [1, 2, 3, 4].map(|lane| [lane, 5 * lane, 6 * lane, lane << 60]);
    assert_eq!(both_ways(ToLimbsAndBack(distinct)), distinct);
}

/// A reduced element may be 32 times the prime, and is zero then.
#[test]
fn a_multiple_of_the_prime_is_zero() {
    for times in 0..=32_u64 {
        // times·2^256 less times·(2^32 + 977), borrowed from limb to limb.
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

#[derive(Clone, Copy)]
struct Inverses([Words; 4]);

impl Task for Inverses {
    type Output = Option<[Words; 4]>;

    fn run<V: Vector>(self, token: V::Token) -> Self::Output {
        let mut rows = Rows::default();
        Elements::<V>::of_words(token, self.0.each_ref()).inverses(token)?.store(&mut rows);
        Some(rows.words())
    }
}

#[test]
fn an_inverse_is_k256s_and_there_is_none_beside_a_zero() {
    let numbers = [[2, 0, 0, 0], [3, 4, 5, 6], [P[0] - 1, P[1], P[2], P[3]], [9, 9, 9, 9]];
    let expected = numbers.map(|words| {
        let inverse = number_of(&words).invert_vartime().unwrap();
        words_from(&inverse.normalize().to_bytes())
    });
    assert_eq!(both_ways(Inverses(numbers)), Some(expected));
    for zero in [[0; 4], P] {
        for at in 0..4 {
            let mut numbers = numbers;
            numbers[at] = zero;
            assert_eq!(both_ways(Inverses(numbers)), None);
        }
    }
}

#[test]
fn a_negative_is_below_the_prime() {
    for words in [[1, 0, 0, 0], [P[0] - 1, P[1], P[2], P[3]], [0, 0, 0, 1 << 63], [u64::MAX, 0, 7, 1]] {
        let expected = number_of(&words).negate(1).normalize();
        assert_eq!(negative(&words), words_from(&expected.to_bytes()));
    }
}

#[test]
fn bytes_are_those_of_k256() {
    let number = Number::from_u64(7).invert_vartime().unwrap().normalize();
    assert_eq!(bytes_of(&words_from(&number.to_bytes())), number.to_bytes());
}
