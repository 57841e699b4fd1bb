//! Known signers change nothing: signatures are counted as with recovery alone, for any knowledge about a set and its
//! order.

use std::sync::LazyLock;

use k256::ecdsa::{RecoveryId, Signature, SigningKey, VerifyingKey};
use proptest::prelude::*;

use super::super::hash::{Hash, bytes_of, keccak256};
use super::super::signature::address_of;
use super::*;

/// The group's order.
const ORDER: [u8; 32] = *b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xba\xae\xdc\xe6\xaf\x48\xa0\x3b\xbf\xd2\x5e\x8c\xd0\x36\x41\x41";

/// The prime of the field.
const PRIME: [u8; 32] = *b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xfc\x2f";

/// The field's prime minus the group's order.
const BETWEEN: [u8; 32] =
    *b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x45\x51\x23\x19\x50\xb7\x5f\xc4\x40\x2d\xa1\x72\x2f\xc9\xba\xee";

/// Six members, then three strangers. The members include the keys one, two and minus one, for which sums contain equal
/// points.
static KEYS: LazyLock<Vec<SigningKey>> = LazyLock::new(|| {
    let small = |byte| std::array::from_fn(|at| if at == 31 { byte } else { 0 });
    let keys: [[u8; 32]; 9] =
        [small(1), plus(ORDER, -1), small(2), [3; 32], [4; 32], [5; 32], [6; 32], [7; 32], [8; 32]];
    keys.iter().map(|key| SigningKey::from_slice(key).unwrap()).collect()
});

const MEMBERS: usize = 6;

/// Sets that differ in how many of their members have precomputed multiples.
static SETS: LazyLock<Vec<Arc<Members>>> = LazyLock::new(|| {
    let addresses: Vec<_> = KEYS[..MEMBERS].iter().map(|key| address_of(key.verifying_key())).collect();
    let prepared = |members: &[usize]| {
        let known = Members::nothing(addresses.clone());
        for member in members {
            make_known(&known, KEYS[*member].verifying_key());
        }
        Arc::new(known)
    };
    vec![prepared(&[]), prepared(&[1, 4]), prepared(&[0, 1, 2, 3, 4, 5])]
});

#[cfg(not(feature = "fast"))]
impl crate::verify::members::Prepared {
    #[allow(clippy::unused_self, reason = "the same function as in `fast`")]
    fn learn<'a>(&self, _: impl IntoIterator<Item = &'a [usize]>) {}
}

fn make_known(known: &Members, key: &VerifyingKey) {
    while cfg!(feature = "fast") && !known.prepared.wants_preparing() {
        assert!(known.recovered(key).is_some());
    }
    known.prepared.prepare();
}

fn plus(number: [u8; 32], more: i16) -> [u8; 32] {
    let (mut sum, mut carried) = (number, more);
    for byte in sum.iter_mut().rev() {
        carried += i16::from(*byte);
        *byte = u8::try_from(carried.rem_euclid(256)).unwrap();
        carried = carried.div_euclid(256);
    }
    sum
}

/// The specification: keys are recovered one after another, and nothing is remembered or learned.
fn by_recovery(
    members: &[Address],
    required: usize,
    digest: &Hash,
    signatures: &[Option<Box<str>>],
) -> Result<SignatureCount, Reason> {
    let (mut found, mut strangers) = (Vec::new(), 0);
    for (index, signature) in signatures.iter().enumerate() {
        let signer = signature.as_deref().and_then(|signature| recovered(digest, signature));
        let signer = signer.ok_or(Reason::MalformedSignature { index })?;
        if !members.contains(&signer) {
            strangers += 1;
        } else if !found.contains(&signer) {
            found.push(signer);
        }
        if found.len() == required {
            let place = |signer| members.iter().position(|member| *member == signer).unwrap();
            return Ok(SignatureCount { members: found.into_iter().map(place).collect(), strangers });
        }
    }
    Err(Reason::TooFewSignatures { found: found.len(), required, strangers })
}

fn recovered(digest: &Hash, text: &str) -> Option<Address> {
    let bytes: [u8; 65] = bytes_of(text)?.try_into().ok()?;
    let recovery = match bytes[64] {
        v @ (0 | 1) => v,
        v @ (27 | 28) => v - 27,
        _ => return None,
    };
    let signature = Signature::from_slice(&bytes[..64]).ok()?;
    let key = VerifyingKey::recover_from_prehash(&digest.0, &signature, RecoveryId::from_byte(recovery)?).ok()?;
    Some(address_of(&key))
}

/// A signature in a proof.
#[derive(Clone, Debug)]
enum Item {
    Signed { key: usize, high: bool, flipped: bool, v_offset: u8 },
    OverAnotherDigest(usize),
    Numbers { r: [u8; 32], s: [u8; 32], v: u8 },
    Text(&'static str),
    Nothing,
}

impl Item {
    fn write(&self, digest: &Hash) -> Option<Box<str>> {
        let text = match self {
            Self::Signed { key, high, flipped, v_offset } => {
                let (mut signature, recovery) = KEYS[*key].sign_prehash_recoverable(&digest.0);
                let mut v = recovery.to_byte();
                if *high {
                    signature = Signature::from_scalars(*signature.r(), -*signature.s()).unwrap();
                    v ^= 1;
                }
                written(&signature.to_bytes(), (v ^ u8::from(*flipped)) + v_offset)
            }
            Self::OverAnotherDigest(key) => {
                let (signature, recovery) = KEYS[*key].sign_prehash_recoverable(&keccak256([&digest.0[..]]).0);
                written(&signature.to_bytes(), recovery.to_byte())
            }
            Self::Numbers { r, s, v } => written(&[*r, *s].concat(), *v),
            Self::Text(text) => (*text).to_owned(),
            Self::Nothing => return None,
        };
        Some(text.into_boxed_str())
    }
}

fn written(r_and_s: &[u8], v: u8) -> String {
    format!("0x{}{v:02x}", hex::encode(r_and_s))
}

/// A number near an edge of the field or of the group's order, or a random number.
fn number() -> impl Strategy<Value = [u8; 32]> {
    let edge = prop_oneof![Just([0; 32]), Just(ORDER), Just(PRIME), Just(BETWEEN), Just([0xff; 32]), Just([0x7f; 32])];
    prop_oneof![3 => (edge, -3_i16..=3).prop_map(|(edge, more)| plus(edge, more)), 1 => any::<[u8; 32]>()]
}

fn item() -> impl Strategy<Value = Item> {
    let key = 0..KEYS.len();
    let v = prop_oneof![Just(0), Just(1), Just(2), Just(3), Just(26), Just(27), Just(28), Just(29), Just(255)];
    let signed = (key.clone(), any::<bool>(), prop::bool::weighted(0.1), prop_oneof![Just(0), Just(27)]);
    let text = prop::sample::select(vec!["", "0x", "0x00", "zz", "0X0101", "no signature"]);
    prop_oneof![
        20 => signed.prop_map(|(key, high, flipped, v_offset)| Item::Signed { key, high, flipped, v_offset }),
        1 => key.prop_map(Item::OverAnotherDigest),
        3 => (number(), number(), v).prop_map(|(r, s, v)| Item::Numbers { r, s, v }),
        1 => text.prop_map(Item::Text),
        1 => Just(Item::Nothing),
    ]
}

/// A proof: its digest and its signatures.
fn proof() -> impl Strategy<Value = ([u8; 32], Vec<Item>)> {
    (number(), prop::collection::vec(item(), 0..9))
}

/// The number of cases. A case has twelve signatures on average, so a complete run checks more than a million.
fn cases() -> u32 {
    let everything = std::env::var_os("CHANNELD_TEST_FULL").is_some_and(|value| value != "0");
    if everything { 100_000 } else { 200 }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn signatures_are_counted_as_by_recovery_alone(
        proofs in prop::collection::vec(proof(), 1..6),
        required in 1..=MEMBERS,
        learned in prop::collection::vec(prop::collection::vec(0..MEMBERS, 0..MEMBERS), 0..20),
    ) {
        let written: Vec<_> = proofs.iter().map(|(digest, items)| {
            let digest = Hash(*digest);
            (digest, items.iter().map(|item| item.write(&digest)).collect::<Vec<_>>())
        }).collect();
        let proofs: Vec<_> = written.iter().map(|(digest, texts)| Signatures { digest: *digest, texts }).collect();
        for known in &*SETS {
            known.prepared.learn(learned.iter().map(Vec::as_slice));
            let set = SignerSet { known: known.clone(), required };
            let expected: Vec<_> =
                written.iter().map(|(digest, texts)| by_recovery(set.addresses(), required, digest, texts)).collect();
            prop_assert_eq!(set.count(&proofs), &expected[..]);
            #[cfg(feature = "fast")]
            for way in [fast::Way::Test, fast::Way::Recover] {
                let counted = fast::read(known, required, &proofs, Some(way));
                prop_assert!(counted.is_none_or(|counted| counted == expected), "{way:?}");
            }
        }
    }
}

/// The proofs of a network that signs in changing orders. The order learned from some proofs is used for later ones.
#[test]
fn signer_order_does_not_change_counts() {
    for known in &*SETS {
        let set = SignerSet { known: known.clone(), required: 3 };
        for batch in 0..20_usize {
            let written: Vec<_> = (15 * batch..15 * (batch + 1)).map(proof_of_round).collect();
            let proofs: Vec<_> = written.iter().map(|(digest, texts)| Signatures { digest: *digest, texts }).collect();
            for (counted, (digest, texts)) in set.count(&proofs).into_iter().zip(&written) {
                assert_eq!(counted, by_recovery(set.addresses(), 3, digest, texts), "batch {batch}");
                assert_eq!(counted.unwrap().members.len(), 3);
            }
        }
        // The recovery of all these signatures has several parts.
        #[cfg(feature = "fast")]
        if !Arc::ptr_eq(known, &SETS[0]) {
            let written: Vec<_> = (0..100).map(proof_of_round).collect();
            let proofs: Vec<_> = written.iter().map(|(digest, texts)| Signatures { digest: *digest, texts }).collect();
            let counted = fast::read(known, 3, &proofs, Some(fast::Way::Recover)).unwrap();
            for (counted, (digest, texts)) in counted.into_iter().zip(&written) {
                assert_eq!(counted, by_recovery(set.addresses(), 3, digest, texts));
            }
        }
    }
}

fn proof_of_round(round: usize) -> (Hash, Vec<Option<Box<str>>>) {
    let digest = keccak256([&round.to_be_bytes()[..]]);
    let first = if round < 200 { round / 50 } else { round * round };
    let mut signers: Vec<_> = (first..first + 4).map(|key| key % MEMBERS).collect();
    match round % 10 {
        7 => signers.reverse(),
        8 => signers.insert(1, MEMBERS),
        9 => signers.insert(1, signers[0]),
        _ => {}
    }
    let signed = |key: &usize| Item::Signed { key: *key, high: false, flipped: false, v_offset: 0 };
    (digest, signers.iter().map(|key| signed(key).write(&digest)).collect())
}

#[test]
fn sets_are_equal_whatever_is_known_of_their_signers() {
    let set = |known: &Arc<Members>, required| SignerSet { known: known.clone(), required };
    assert_eq!(set(&SETS[0], 3), set(&SETS[2], 3));
    assert_ne!(set(&SETS[0], 3), set(&SETS[0], 4));
}
