//! What a signer set may take, and what of it is shared.

use k256::ecdsa::SigningKey;

use super::*;

fn key(byte: u8) -> VerifyingKey {
    *SigningKey::from_slice(&[byte; 32]).unwrap().verifying_key()
}

fn addresses(bytes: std::ops::Range<u8>) -> Vec<Address> {
    bytes.map(|byte| address_of(&key(byte))).collect()
}

#[test]
fn no_signer_set_takes_more_memory_than_is_said() {
    for members in 1..=1000 {
        let known = Known::nothing(vec![Address([0; 20]); members]);
        let multiples = known.window.map_or(0, |window| members * window.bytes() + Window::GENERATOR.bytes());
        assert!(multiples <= MEMORY, "{members} members take {multiples} bytes");
        assert!(known.window.is_some() || members > 50, "{members} members have no multiples");
    }
}

#[test]
fn a_set_of_ten_that_is_prepared_takes_no_more_either() {
    let known = Known::nothing(addresses(1..11));
    (1..11).for_each(|byte| (0..WORTH_MULTIPLES).for_each(|_| assert!(known.recovered(&key(byte)).is_some())));
    known.prepare();
    let taken: usize = (0..10).map(|member| known.multiples(member).unwrap().bytes()).sum();
    assert!(taken + GENERATOR.bytes() <= MEMORY, "{taken} bytes");
}

#[test]
fn a_key_is_prepared_once_it_was_recovered_often_enough_and_not_before() {
    let known = Known::nothing(addresses(1..3));
    for _ in 1..WORTH_MULTIPLES {
        assert_eq!(known.recovered(&key(2)), Some(1));
    }
    known.prepare();
    assert!(!known.wants_preparing());
    assert!(known.multiples(1).is_none());

    assert_eq!(known.recovered(&key(2)), Some(1));
    assert!(known.wants_preparing());
    known.prepare();
    assert!(!known.wants_preparing());
    assert!(known.multiples(1).is_some());
    assert!(known.multiples(0).is_none());
}

#[test]
fn a_strangers_key_is_never_kept() {
    let known = Known::nothing(addresses(1..3));
    for _ in 0..2 * WORTH_MULTIPLES {
        assert_eq!(known.recovered(&key(9)), None);
    }
    assert!(!known.wants_preparing());
}

#[test]
fn equal_sets_share_what_is_known_as_long_as_one_of_them_is_there() {
    let known = Known::of(addresses(100..104));
    assert!(Arc::ptr_eq(&known, &Known::of(addresses(100..104))));
    assert!(!Arc::ptr_eq(&known, &Known::of(addresses(100..103))));
    let before = Arc::downgrade(&known);
    drop(known);
    assert!(before.upgrade().is_none());
}
