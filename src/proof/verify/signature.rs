//! Parses one signature and recovers its key with k256's own operations.

#[cfg(feature = "fast")]
use k256::Scalar;
use k256::ecdsa::{RecoveryId, Signature, VerifyingKey};

use super::hash::{Address, Hash, digits_of, exact, keccak256};

const LENGTH: usize = 65;

/// A signature in the valid range: r and s are neither zero nor as large as the group's order.
#[derive(Clone, Copy)]
pub(super) struct RecoverableSignature {
    pub(super) signature: Signature,
    pub(super) recovery: RecoveryId,
}

impl RecoverableSignature {
    /// Parses `0x r || s || v` with v in {0, 1, 27, 28}. Returns `None` if the text is not a signature.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; LENGTH] = exact(digits_of(text)?)?;
        let recovery = match bytes[LENGTH - 1] {
            v @ (0 | 1) => v,
            v @ (27 | 28) => v - 27,
            _ => return None,
        };
        let signature = Signature::from_slice(&bytes[..LENGTH - 1]).ok()?;
        Some(Self { signature, recovery: RecoveryId::from_byte(recovery)? })
    }

    #[cfg(feature = "fast")]
    pub(super) fn r(&self) -> Scalar {
        *self.signature.split_scalars().0
    }

    #[cfg(feature = "fast")]
    pub(super) fn s(&self) -> Scalar {
        *self.signature.split_scalars().1
    }

    /// Returns the key that signed `digest`. Returns `None` if no key can be recovered.
    ///
    /// A high `s` is accepted like a low one, as in the reference. Unlike k256's verification, recovery only requires that
    /// `s` is in its range.
    pub(super) fn recover(&self, digest: &Hash) -> Option<VerifyingKey> {
        VerifyingKey::recover_from_prehash(&digest.0, &self.signature, self.recovery).ok()
    }
}

/// The address of a public key: the last 20 bytes of the hash of its two coordinates.
pub(super) fn address_of(key: &VerifyingKey) -> Address {
    let point = key.to_sec1_point(false);
    let Hash(hash) = keccak256([&point.as_bytes()[1..]]);
    Address(*hash.last_chunk().expect("a hash is longer than an address"))
}
