//! Bytes with a meaning: hashes, addresses, and hex as the service writes it.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use sha3::{Digest, Keccak256};

/// A keccak-256 hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hash(pub [u8; 32]);

/// A 20-byte account address: of a signer or of a workflow owner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub [u8; 20]);

/// The text is not 20 bytes of hex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an address: 0x and 40 hexadecimal digits")]
pub struct NotAnAddress;

/// Keccak-256 over the parts, as if they were one text.
#[must_use]
pub fn keccak256<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Hash {
    let mut hasher = Keccak256::new();
    for part in parts {
        hasher.update(part);
    }
    Hash(hasher.finalize().into())
}

/// The bytes of a hex text with its required `0x` or `0X`.
///
/// Stricter than the reference, which takes a text without the prefix for the bytes themselves.
pub(super) fn bytes_of(text: &str) -> Option<Vec<u8>> {
    hex::decode(digits_of(text)?).ok()
}

/// As [`bytes_of`], where it must be just so many.
pub(super) fn exact_bytes_of<const LENGTH: usize>(text: &str) -> Option<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    hex::decode_to_slice(digits_of(text)?, &mut bytes).ok()?;
    Some(bytes)
}

fn digits_of(text: &str) -> Option<&str> {
    text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))
}

impl FromStr for Address {
    type Err = NotAnAddress;

    /// Takes any case, whatever a checksum would say, and the digits with or without `0x`, as the reference does.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = digits_of(text).unwrap_or(text);
        let mut bytes = [0; 20];
        hex::decode_to_slice(digits, &mut bytes).map_err(|_| NotAnAddress)?;
        Ok(Self(bytes))
    }
}

/// `0x` and lower-case hex for a type that is an array of bytes.
macro_rules! written_as_hex {
    ($($type:ty),+) => {$(
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "0x{}", hex::encode(self.0))
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )+};
}

written_as_hex!(Hash, Address);
