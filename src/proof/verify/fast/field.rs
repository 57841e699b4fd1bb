//! Numbers of the curve's field, modulo p = 2^256 - 2^32 - 977, in the form in which the
//! precomputed tables store them.

use std::iter;

use k256::elliptic_curve::hazmat::FieldArithmetic;
use k256::{FieldBytes, Secp256k1};

/// A field element in k256's own representation.
pub(super) type Number = <Secp256k1 as FieldArithmetic>::FieldElement;

/// A 256-bit number in 64-bit words, lowest word first.
pub(super) type Words = [u64; 4];

/// 2^256 modulo p.
pub(super) const BEYOND_WORDS: u64 = (1 << 32) + 977;

/// Returns the negative modulo p of a number below p that is not zero.
pub(super) fn negative(words: &Words) -> Words {
    // p − n is (2^256 − 1 − n) − (2^256 − 1 − p), and the second part is BEYOND_WORDS − 1.
    let (mut borrowed, mut less) = (false, BEYOND_WORDS - 1);
    words.map(|word| {
        let negative;
        (negative, borrowed) = (!word).overflowing_sub(less);
        less = u64::from(borrowed);
        negative
    })
}

/// Converts words below p to a k256 field element.
pub(super) fn number_of(words: &Words) -> Number {
    Number::from_bytes(&bytes_of(words)).expect("the number is below the prime")
}

/// Converts words to the byte format of coordinates: highest byte first.
pub(super) fn bytes_of(words: &Words) -> FieldBytes {
    let mut bytes = FieldBytes::default();
    for (bytes, word) in bytes.rchunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    bytes
}

/// Converts a coordinate to words.
pub(super) fn words_from(bytes: &FieldBytes) -> Words {
    let mut words = Words::default();
    for (bytes, word) in bytes.rchunks_exact(8).zip(&mut words) {
        *word = u64::from_be_bytes(bytes.try_into().expect("each chunk has eight bytes"));
    }
    words
}

/// Returns the inverses of numbers, for the cost of one inversion and a few products. Returns `None` if `invert` returns
/// `None` for the product of all numbers.
pub(super) fn inverses<T: Copy>(
    numbers: &[T],
    one: T,
    times: impl Fn(&T, &T) -> T,
    invert: impl FnOnce(&T) -> Option<T>,
) -> Option<Vec<T>> {
    // First compute the product of all numbers before each one. Then invert the total product, and remove one number after
    // another from the end.
    let mut product = one;
    let mut inverses = Vec::with_capacity(numbers.len());
    for number in numbers {
        inverses.push(product);
        product = times(&product, number);
    }
    let mut inverse = invert(&product)?;
    for (before, number) in iter::zip(&mut inverses, numbers).rev() {
        *before = times(before, &inverse);
        inverse = times(&inverse, number);
    }
    Some(inverses)
}

#[cfg(test)]
mod tests {
    //! Words agree with k256's numbers.

    use super::*;

    /// p, lowest word first.
    const P: Words = [u64::MAX - (1 << 32) - 976, u64::MAX, u64::MAX, u64::MAX];

    #[test]
    fn a_negative_is_below_the_prime() {
        for words in [[1, 0, 0, 0], [P[0] - 1, P[1], P[2], P[3]], [0, 0, 0, 1 << 63], [u64::MAX, 0, 7, 1]] {
            let expected = number_of(&words).negate(1).normalize();
            assert_eq!(negative(&words), words_from(&expected.to_bytes()));
        }
    }

    #[test]
    fn bytes_match_k256() {
        let number = Number::from_u64(7).invert_vartime().unwrap().normalize();
        assert_eq!(bytes_of(&words_from(&number.to_bytes())), number.to_bytes());
    }
}
