//! The memory of a signer set, and which knowledge about it is shared.

use k256::ecdsa::SigningKey;

use super::*;
use crate::verify::hash::Address;
use crate::verify::members::Members;
use crate::verify::signature::address_of;

impl Prepared {
    pub(in crate::verify) fn learn<'a>(&self, proofs: impl IntoIterator<Item = &'a [usize]>) {
        self.order.learn(proofs);
    }
}

fn key(byte: u8) -> VerifyingKey {
    *SigningKey::from_slice(&[byte; 32]).unwrap().verifying_key()
}

fn addresses(bytes: std::ops::Range<u8>) -> Vec<Address> {
    bytes.map(|byte| address_of(&key(byte))).collect()
}

#[test]
fn a_signer_set_stays_within_its_documented_memory() {
    for members in 1..=1000 {
        let known = Prepared::nothing(members);
        let multiples = known.window.map_or(0, |window| members * window.bytes() + Window::GENERATOR.bytes());
        assert!(multiples <= MEMORY, "{members} members take {multiples} bytes");
        assert!(known.window.is_some() || members > 50, "{members} members have no multiples");
    }
}

#[test]
fn a_prepared_set_of_ten_stays_within_its_documented_memory() {
    let known = Members::nothing(addresses(1..11));
    (1..11).for_each(|byte| (0..WORTH_MULTIPLES).for_each(|_| assert!(known.recovered(&key(byte)).is_some())));
    known.prepared.prepare();
    let taken: usize = (0..10).map(|member| known.prepared.multiples(member).unwrap().bytes()).sum();
    assert!(taken + GENERATOR.bytes() <= MEMORY, "{taken} bytes");
}

#[test]
fn a_key_is_prepared_after_enough_recoveries() {
    let known = Members::nothing(addresses(1..3));
    for _ in 1..WORTH_MULTIPLES {
        assert_eq!(known.recovered(&key(2)), Some(1));
    }
    known.prepared.prepare();
    assert!(!known.prepared.wants_preparing());
    assert!(known.prepared.multiples(1).is_none());

    assert_eq!(known.recovered(&key(2)), Some(1));
    assert!(known.prepared.wants_preparing());
    known.prepared.prepare();
    assert!(!known.prepared.wants_preparing());
    assert!(known.prepared.multiples(1).is_some());
    assert!(known.prepared.multiples(0).is_none());
}

#[test]
fn an_unknown_key_is_never_kept() {
    let known = Members::nothing(addresses(1..3));
    for _ in 0..2 * WORTH_MULTIPLES {
        assert_eq!(known.recovered(&key(9)), None);
    }
    assert!(!known.prepared.wants_preparing());
}
