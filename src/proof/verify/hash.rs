//! Hashes, addresses, and hex as the service writes it.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use sha3::{Digest, Keccak256};

/// A keccak-256 hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hash(pub [u8; 32]);

/// A 20-byte account address of a signer or a workflow owner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub [u8; 20]);

/// The error that a text is not the hex of an address or a hash, or has the wrong length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not {what}: 0x and {digits} hexadecimal digits")]
pub struct NotHex {
    what: &'static str,
    digits: usize,
}

/// The keccak-256 hash of the concatenated parts.
pub fn keccak256<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Hash {
    let mut hasher = Keccak256::new();
    for part in parts {
        hasher.update(part);
    }
    Hash(hasher.finalize().into())
}

/// Decodes hex with the required prefix `0x` or `0X`.
///
/// This is stricter than the reference, which uses a text without the prefix as raw bytes.
pub(super) fn bytes_of(text: &str) -> Option<Vec<u8>> {
    base16ct::mixed::decode_vec(digits_of(text)?).ok()
}

/// The text after the prefix `0x` or `0X`. `None` if the text has no prefix.
pub(super) fn digits_of(text: &str) -> Option<&str> {
    text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))
}

/// Decodes exactly `LENGTH` bytes. The length is checked because shorter input would leave the rest of the array at zero.
pub(super) fn exact<const LENGTH: usize>(digits: &str) -> Option<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    let decoded = base16ct::mixed::decode(digits, &mut bytes).is_ok_and(|decoded| decoded.len() == LENGTH);
    decoded.then_some(bytes)
}

/// Reads hex in upper or lower case, with or without `0x`, as the reference does. An address needs no valid checksum.
/// Writes `0x` and lower-case hex.
macro_rules! written_as_hex {
    ($($type:ident: $length:literal, $what:literal;)+) => {$(
        impl FromStr for $type {
            type Err = NotHex;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let bytes = exact(digits_of(text).unwrap_or(text)).map(Self);
                bytes.ok_or(NotHex { what: $what, digits: 2 * $length })
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut digits = [0; 2 * $length];
                f.write_str("0x")?;
                f.write_str(base16ct::lower::encode_str(&self.0, &mut digits).expect("the buffer has room for each digit"))
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

written_as_hex! {
    Hash: 32, "a hash";
    Address: 20, "an address";
}
