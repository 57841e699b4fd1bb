//! Odd scalars, written with odd digits.

use k256::Scalar;

use super::field::{Words, words_from};

const BYTES: usize = size_of::<Words>();

/// Writes an odd scalar below 2^(`places`·`width`) with `places` digits of `width` bits, lowest digit first. Each digit is
/// returned as half of its absolute value, rounded down, and whether it is negative. If `is_negative` is set, the negative of
/// the scalar is written in this way, and the sign of each digit is inverted.
///
/// Written with bits of one and minus one, a scalar of k bits is 2·U − (2^k − 1), where U has the bits that are one. U is
/// therefore half the scalar, rounded down, with bit k − 1 set. A digit of w bits is 2·u − (2^w − 1), where u is the
/// digit's w bits of U.
pub(super) fn digits(
    scalar: &Scalar,
    is_negative: bool,
    width: usize,
    places: usize,
) -> impl Iterator<Item = (usize, bool)> {
    let odd = words_from(&if is_negative { -scalar } else { *scalar }.to_bytes());
    // Half of the scalar, lowest byte first, padded with zeros.
    let mut bytes = [0; BYTES + size_of::<u32>()];
    for (at, bytes) in bytes[..BYTES].chunks_exact_mut(size_of::<u64>()).enumerate() {
        let above = odd.get(at + 1).copied().unwrap_or_default();
        bytes.copy_from_slice(&(odd[at] >> 1 | above << 63).to_le_bytes());
    }
    let largest = (1 << (width - 1)) - 1;
    (0..places).map(move |place| {
        let (byte, bit) = (place * width / 8, place * width % 8);
        let here = bytes[byte..].first_chunk().expect("the bytes are padded");
        let bits = (u32::from_le_bytes(*here) >> bit) as usize & (2 * largest + 1);
        let is_last = place + 1 == places;
        if is_last || bits > largest { (bits & largest, is_negative) } else { (largest - bits, !is_negative) }
    })
}

#[cfg(test)]
mod tests {
    use k256::U256;
    use k256::elliptic_curve::ff::PrimeField;
    use k256::elliptic_curve::ops::Reduce;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn digits_represent_their_scalar(bytes: [u8; 32], width in 5_usize..=12, bits in 100..=256_usize) {
            let scalar = Scalar::reduce(&(U256::from_be_slice(&bytes) >> u32::try_from(256 - bits).unwrap()));
            let odd = if scalar.is_odd().into() { scalar } else { scalar + Scalar::ONE };
            let digits: Vec<_> = digits(&odd, false, width, bits.div_ceil(width)).collect();
            prop_assert!(digits.iter().all(|(half, _)| *half < 1 << (width - 1)));
            let sum = digits.into_iter().rev().fold(Scalar::ZERO, |sum, (half, is_below_zero)| {
                let digit = Scalar::from(2 * half as u64 + 1);
                let shifted = (0..width).fold(sum, |sum, _| sum + sum);
                if is_below_zero { shifted - digit } else { shifted + digit }
            });
            prop_assert_eq!(sum, odd);
        }
    }
}
