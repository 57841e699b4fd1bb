//! Which address made a signature: recovery of the public key, on k256's own operations.

use k256::ecdsa::{RecoveryId, Signature, VerifyingKey};

use super::hash::{Address, Hash, bytes_of, keccak256};

const LENGTH: usize = 65;

/// The address that signed `digest`, by a signature `0x r || s || v` with v in {0, 1, 27, 28}.
///
/// `None` where the text is no signature or recovers no key. A high `s` is as good as a low one, as in the reference:
/// recovery, unlike k256's verification, asks nothing of `s` but its range.
pub(super) fn signer_of(digest: &Hash, signature: &str) -> Option<Address> {
    let bytes: [u8; LENGTH] = bytes_of(signature)?.try_into().ok()?;
    let recovery = match bytes[LENGTH - 1] {
        v @ (0 | 1) => v,
        v @ (27 | 28) => v - 27,
        _ => return None,
    };
    let recovery = RecoveryId::from_byte(recovery)?;
    let signature = Signature::from_slice(&bytes[..LENGTH - 1]).ok()?;
    let key = VerifyingKey::recover_from_prehash(&digest.0, &signature, recovery).ok()?;
    Some(address_of(&key))
}

/// The address of a public key: the last 20 bytes of the hash of its two coordinates.
pub(super) fn address_of(key: &VerifyingKey) -> Address {
    let point = key.to_sec1_point(false);
    let hash = keccak256([&point.as_bytes()[1..]]);
    let mut address = [0; 20];
    address.copy_from_slice(&hash.0[12..]);
    Address(address)
}
