//! Signatures of webhooks, by the symmetric scheme of Standard Webhooks 1.0.
//!
//! # Invariants
//!
//! * **Nothing leaks.** No error holds a secret or a part of one.

use base64::Engine;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// What a secret begins with, so that people and scanners know it for one.
const PREFIX: &str = "whsec_";

/// Shorter keys are refused: the specification asks for 24 to 64 bytes.
const SHORTEST_KEY: usize = 24;

/// Standard base64; some tools leave the padding away.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Why a text is no webhook secret. Does not say what stood there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// It does not begin as secrets do.
    #[error("a webhook secret begins with {PREFIX}")]
    Prefix,
    /// What follows is not base64.
    #[error("a webhook secret is {PREFIX} and base64, and what follows {PREFIX} is not base64")]
    Base64,
    /// It could be guessed.
    #[error("a webhook secret holds at least {SHORTEST_KEY} bytes, and this one holds {length}")]
    TooShort {
        /// Of the key, in bytes.
        length: usize,
    },
}

/// The key bytes of a `whsec_…` secret. White space around it is ignored: files end in a line break.
///
/// # Errors
/// [`SecretError`], where it is no such secret.
pub fn signing_key(secret: &str) -> Result<Vec<u8>, SecretError> {
    let encoded = secret.trim().strip_prefix(PREFIX).ok_or(SecretError::Prefix)?;
    let key = LENIENT.decode(encoded).map_err(|_| SecretError::Base64)?;
    if key.len() < SHORTEST_KEY {
        return Err(SecretError::TooShort { length: key.len() });
    }
    Ok(key)
}

/// The value of `webhook-signature`: over the id, the timestamp and the body, joined by full stops.
pub(super) fn sign(key: &[u8], id: &str, timestamp: u64, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(format!("{id}.{timestamp}.").as_bytes());
    mac.update(body);
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_that_of_the_specification() {
        // The example that the specification's reference libraries are tested with.
        let key = signing_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
        let signature = sign(&key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn what_is_no_secret_is_refused_and_not_repeated() {
        let short = format!("whsec_{}", STANDARD.encode([7; 23]));
        for (secret, expected) in [
            ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", SecretError::Prefix),
            ("", SecretError::Prefix),
            ("whsec_not base64 at all, is it?", SecretError::Base64),
            ("whsec_", SecretError::TooShort { length: 0 }),
            (&short, SecretError::TooShort { length: 23 }),
        ] {
            let error = signing_key(secret).unwrap_err();
            assert_eq!(error, expected);
            assert!(secret.len() < 7 || !error.to_string().contains(&secret[6..]), "{error}");
        }
    }

    #[test]
    fn padding_may_be_left_away() {
        let encoded = STANDARD.encode([7; 25]);
        let bare = encoded.trim_end_matches('=');
        assert_ne!(bare, encoded);
        for text in [&encoded, bare] {
            assert_eq!(signing_key(&format!("whsec_{text}")), Ok(vec![7; 25]));
        }
    }
}
