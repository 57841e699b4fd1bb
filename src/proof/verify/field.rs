//! Numbers of the curve's field, modulo p = 2^256 - 2^32 - 977, as they are kept in tables.

use k256::elliptic_curve::hazmat::FieldArithmetic;
use k256::{FieldBytes, Secp256k1};

#[cfg(test)]
mod tests;

/// k256's number.
pub(super) type Number = <Secp256k1 as FieldArithmetic>::FieldElement;

/// A number of 256 bits in words of 64, the lowest first.
pub(super) type Words = [u64; 4];

/// 2^256 modulo p.
pub(super) const BEYOND_WORDS: u64 = (1 << 32) + 977;

/// The negative, modulo p, of a number below p that is not zero.
pub(super) fn negative(words: &Words) -> Words {
    // p less the number is 2^256 - 1 less the number, less what p is below 2^256 - 1.
    let (mut borrowed, mut less) = (false, BEYOND_WORDS - 1);
    words.map(|word| {
        let negative;
        (negative, borrowed) = (!word).overflowing_sub(less);
        less = u64::from(borrowed);
        negative
    })
}

/// k256's number of words that are below p.
pub(super) fn number_of(words: &Words) -> Number {
    Number::from_bytes(&bytes_of(words)).expect("it is less than the prime")
}

/// As coordinates are written: the highest byte first.
pub(super) fn bytes_of(words: &Words) -> FieldBytes {
    let mut bytes = FieldBytes::default();
    for (bytes, word) in bytes.rchunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    bytes
}

/// The words of a coordinate.
pub(super) fn words_from(bytes: &FieldBytes) -> Words {
    let mut words = Words::default();
    for (bytes, word) in bytes.rchunks_exact(8).zip(&mut words) {
        *word = u64::from_be_bytes(bytes.try_into().expect("there are eight"));
    }
    words
}
