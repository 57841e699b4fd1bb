//! Signs webhooks with both schemes of Standard Webhooks 1.0: `v1` (HMAC-SHA256) and `v1a` (ed25519).
//!
//! The prefix of a secret selects the scheme: `whsec_` is followed by the base64 of 24 to 64 bytes, `whsk_` by the base64
//! of "a standard ed25519 key pair": 64 bytes, the seed and the public key. The 32 bytes of the seed alone, which RFC 8032
//! calls the private key, are equivalent and also accepted.
//!
//! # Invariants
//!
//! * **Every secret signs.** During a rotation each delivery has one signature per secret. A consumer can therefore verify
//!   the delivery with the old secret or the new one.
//! * **Nothing leaks.** No error and no `Debug` contains a secret or a part of a secret.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use ring::signature::Ed25519KeyPair;
use sha2::Sha256;

// The prefixes of secrets. They let people and secret scanners recognize a secret.
const SYMMETRIC: &str = "whsec_";
const ASYMMETRIC: &str = "whsk_";

/// The length of a symmetric secret, in bytes.
const LENGTH: std::ops::RangeInclusive<usize> = 24..=64;

/// The length of an ed25519 seed, in bytes. A seed with its public key is twice as long.
const SEED: usize = 32;

/// The maximum number of secrets: more than a rotation needs, and few enough for one header.
const MAX_SECRETS: usize = 8;

const FORM: &str = "must be whsec_ or whsk_ followed by base64; make one with: echo whsec_$(openssl rand -base64 32)";
const WRONG_LENGTH: &str = "must contain 24 to 64 bytes; make one with: echo whsec_$(openssl rand -base64 32)";
const PRIVATE_KEY: &str = "must contain an ed25519 private key: the 32 bytes of its seed, or these bytes followed by the 32 bytes of its public key";

/// The keys that sign deliveries. The list can be empty, and has several keys while secrets are rotated.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SigningKeys(Vec<SigningKey>);

#[derive(Clone, PartialEq, Eq)]
enum SigningKey {
    Symmetric(Vec<u8>),
    /// The seed of an ed25519 key pair.
    Asymmetric([u8; SEED]),
}

impl SigningKeys {
    /// Parses secrets that are separated by white space or line breaks. Signatures have the same order as the secrets.
    ///
    /// # Errors
    /// A message for an operator, without the secrets.
    pub fn parse(text: &str) -> Result<Self, String> {
        let secrets: Vec<_> = text.split_whitespace().collect();
        let mut keys = Vec::with_capacity(secrets.len());
        let count = secrets.len();
        if count == 0 {
            return Err(FORM.to_owned());
        }
        if count > MAX_SECRETS {
            return Err(format!("must contain at most {MAX_SECRETS} secrets, but contains {count}"));
        }
        for (number, secret) in (1..).zip(secrets) {
            let key = SigningKey::parse(secret);
            let key = key.and_then(|key| if keys.contains(&key) { Err("occurs twice") } else { Ok(key) });
            let place = if count == 1 { String::new() } else { format!("secret {number} of {count} ") };
            keys.push(key.map_err(|wrong| place + wrong)?);
        }
        Ok(Self(keys))
    }

    /// The number of keys for `v1`, and the number of keys for `v1a`.
    pub fn counts(&self) -> (usize, usize) {
        let symmetric = self.0.iter().filter(|key| matches!(key, SigningKey::Symmetric(_))).count();
        (symmetric, self.0.len() - symmetric)
    }

    /// The value of the header `webhook-signature`. Returns `None` if the list of keys is empty.
    pub(super) fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let content = [format!("{id}.{timestamp}.").as_bytes(), body].concat();
        let signatures: Vec<_> = self.0.iter().map(|key| key.sign(&content)).collect();
        Some(signatures.join(" "))
    }
}

impl fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (symmetric, asymmetric) = self.counts();
        write!(f, "SigningKeys(v1: {symmetric}, v1a: {asymmetric})")
    }
}

impl SigningKey {
    fn parse(secret: &str) -> Result<Self, &'static str> {
        // Some tools omit the padding.
        let decode = |encoded| STANDARD.decode(encoded).or_else(|_| STANDARD_NO_PAD.decode(encoded)).map_err(|_| FORM);
        if let Some(encoded) = secret.strip_prefix(SYMMETRIC) {
            let key = decode(encoded)?;
            return if LENGTH.contains(&key.len()) { Ok(Self::Symmetric(key)) } else { Err(WRONG_LENGTH) };
        }
        let key = decode(secret.strip_prefix(ASYMMETRIC).ok_or(FORM)?)?;
        let (seed, public_key) = key.split_first_chunk().ok_or(PRIVATE_KEY)?;
        if !public_key.is_empty() {
            Ed25519KeyPair::from_seed_and_public_key(seed, public_key).map_err(|_| PRIVATE_KEY)?;
        }
        Ok(Self::Asymmetric(*seed))
    }

    fn sign(&self, content: &[u8]) -> String {
        match self {
            Self::Symmetric(key) => {
                let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
                mac.update(content);
                format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
            }
            Self::Asymmetric(seed) => {
                let pair = Ed25519KeyPair::from_seed_unchecked(seed).expect("any 32 bytes are a seed");
                format!("v1a,{}", STANDARD.encode(pair.sign(content)))
            }
        }
    }
}

#[cfg(test)]
mod tests;
