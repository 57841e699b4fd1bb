//! Words are what k256 says of them.

use super::*;

/// p, the lowest word first.
const P: Words = [u64::MAX - (1 << 32) - 976, u64::MAX, u64::MAX, u64::MAX];

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
