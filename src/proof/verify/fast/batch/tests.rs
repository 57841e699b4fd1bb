//! Testing members gives the same result as recovery.

use k256::ecdsa::{SigningKey, VerifyingKey};
use k256::elliptic_curve::ff::PrimeField;
use k256::elliptic_curve::point::{AffineCoordinates, DecompressPoint};
use k256::{AffinePoint, ProjectivePoint};

use super::*;

fn signature(r: &FieldBytes, s: &Scalar, v: u8) -> Option<RecoverableSignature> {
    RecoverableSignature::parse(&format!("0x{}{}{v:02x}", hex::encode(r), hex::encode(s.to_bytes())))
}

/// Whether the key is found with its multiples. The multiples use the narrowest window, because the table for this
/// window is the fastest to compute. A zero digest, or points without a sum, are left to recovery.
fn asked(digest: &Hash, signature: &RecoverableSignature, key: &AffinePoint) -> bool {
    let recovers = || signature.recover(digest).is_some_and(|recovered| recovered.as_affine() == key);
    if as_scalar(digest) == Scalar::ZERO {
        return recovers();
    }
    let multiples = Multiples::of(key, Window::fitting(1, 150_000).unwrap());
    let inverse = inverses(std::iter::once(signature.s()))[0];
    let mut lists = Lists::default();
    lists.push(|list| {
        GENERATOR.append_terms(&(as_scalar(digest) * inverse), list);
        multiples.append_terms(&(signature.r() * inverse), list);
    });
    lists.take_sums()[0].map_or_else(recovers, |sum| names(signature, &sum))
}

/// The key that is computed together with the keys of other signatures, if this processor can do that.
#[cfg(target_arch = "x86_64")]
fn computed(digest: &Hash, signature: &RecoverableSignature) -> Option<Point> {
    let inverse = inverses(std::iter::once(signature.r()))[0];
    let mut lists = Lists::default();
    let products = lists.products().filter(|_| as_scalar(digest) != Scalar::ZERO)?;
    keys(&[KeyEquation { signature: *signature, z: as_scalar(digest), inverse }], products, &mut lists)[0]
}

/// Scalars near the edges. The tests also use them as digests.
fn edges() -> Vec<Scalar> {
    let half = Scalar::TWO_INV;
    // The field's prime minus the order. Rare signatures with two possible points have an r below it.
    let between = Scalar::from(0x4551_2319_50b7_5fc4_402d_a172_2fc9_baee_u128) + Scalar::from(u128::MAX) + Scalar::ONE;
    let edges = [Scalar::ONE, Scalar::from(2_u32), Scalar::from(3_u32), half, between];
    edges.into_iter().flat_map(|edge| [edge, edge - Scalar::ONE, -edge]).filter(|edge| *edge != Scalar::ZERO).collect()
}

#[test]
fn the_recovered_key_is_found_in_every_edge_case() {
    let mut recovered = 0;
    for z in edges().into_iter().chain([Scalar::ZERO]) {
        let digest = Hash(z.to_bytes().into());
        for (r, s) in edges().into_iter().zip(edges().into_iter().rev()).chain(edges().into_iter().zip(edges())) {
            for v in [0, 1, 27, 28] {
                let signature = signature(&r.to_bytes(), &s, v).unwrap();
                let Some(key) = signature.recover(&digest) else { continue };
                assert!(asked(&digest, &signature, key.as_affine()), "z {z:?} r {r:?} s {s:?} v {v}");
                assert!(!asked(&digest, &signature, &-*key.as_affine()), "z {z:?} r {r:?} s {s:?} v {v}");
                let flipped = self::signature(&r.to_bytes(), &s, if v % 27 == 0 { v + 1 } else { v - 1 }).unwrap();
                assert!(!asked(&digest, &flipped, key.as_affine()), "z {z:?} r {r:?} s {s:?} v {v}, flipped");
                recovered += 1;
            }
        }
    }
    assert!(recovered > 100, "{recovered}");
}

/// If the key is -z/r, the sum is the identity.
#[test]
fn a_sum_that_is_not_a_point_matches_no_signer() {
    let signed = SigningKey::from_slice(&[7; 32]).unwrap().sign_prehash_recoverable(&[9; 32]).0;
    let (r, z) = (*signed.split_scalars().0, Scalar::from(12_u32));
    let key = (ProjectivePoint::GENERATOR * -(z * r.invert().unwrap())).to_affine();
    let digest = Hash(z.to_bytes().into());
    for v in [0, 1] {
        let signature = signature(&r.to_bytes(), &Scalar::from(5_u32), v).unwrap();
        assert_ne!(signature.recover(&digest).map(|key| *key.as_affine()), Some(key));
        assert!(!asked(&digest, &signature, &key));
    }
}

/// The point's coordinate is compared directly, without subtracting the order as plain ECDSA would.
#[test]
fn a_coordinate_above_the_order_is_not_reduced() {
    let between = |more: u32| -Scalar::ONE + Scalar::from(more);
    let mut tried = 0;
    for left in 1..40_u32 {
        // The order plus `left`, as a coordinate. It is not a scalar, so it is added on bytes.
        let mut x = (-Scalar::ONE).to_bytes();
        let low = u64::from_be_bytes(x[24..].try_into().unwrap()) + 1 + u64::from(left);
        x[24..].copy_from_slice(&low.to_be_bytes());
        let Some(point) = AffinePoint::decompress(&x, 0.into()).into_option() else { continue };
        assert_eq!(point.x(), x);
        assert_eq!(between(left + 1), Scalar::from(left));
        // The key for which s·R = z·G + r·Q, with this point as R and `left` as r.
        let (r, s, z) = (Scalar::from(left), Scalar::from(77_u32), Scalar::from(5_u32));
        let key = (point * s - ProjectivePoint::GENERATOR * z) * r.invert().unwrap();
        let (key, digest) = (key.to_affine(), Hash(z.to_bytes().into()));
        for v in [0, 1] {
            let signature = signature(&r.to_bytes(), &s, v).unwrap();
            assert_ne!(signature.recover(&digest), VerifyingKey::from_affine(key).ok());
            assert!(!asked(&digest, &signature, &key));
        }
        tried += 1;
    }
    assert!(tried > 5, "{tried}");
}

/// A key that is computed is the recovered key. It is also computed in most of the edge cases.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_computed_key_is_the_recovered_key() {
    let (mut tried, mut found) = (0, 0);
    for z in edges().into_iter().chain([Scalar::ZERO]) {
        let digest = Hash(z.to_bytes().into());
        for (r, s) in edges().into_iter().zip(edges().into_iter().rev()).chain(edges().into_iter().zip(edges())) {
            for v in [0, 1] {
                let signature = signature(&r.to_bytes(), &s, v).unwrap();
                let expected = signature.recover(&digest).map(|key| Point::from(key.as_affine()));
                let computed = computed(&digest, &signature);
                assert!(computed.is_none() || computed == expected, "z {z:?} r {r:?} s {s:?} v {v}");
                (tried, found) = (tried + usize::from(expected.is_some()), found + usize::from(computed.is_some()));
            }
        }
    }
    assert!(tried > 50 && (Lists::default().products().is_none() || found > tried / 2), "{found} of {tried}");
}

#[test]
fn batched_inverses_match_single_ones() {
    let signatures: Vec<_> = edges().iter().filter_map(|s| signature(&Scalar::ONE.to_bytes(), s, 0)).collect();
    let expected: Vec<_> = signatures.iter().map(|signature| signature.s().invert().unwrap()).collect();
    assert_eq!(inverses(signatures.iter().map(RecoverableSignature::s)), expected);
    assert!(inverses([].into_iter()).is_empty());
}
