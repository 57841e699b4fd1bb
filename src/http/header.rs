//! Header values that nobody is to see.
//!
//! # Invariants
//!
//! * **Silent.** A value that is marked as sensitive says nothing in `Debug`, and HTTP/2 does not keep it in its tables.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::HeaderValue;

/// A value that is not shown; `None` where it is no legal one.
#[must_use]
pub fn sensitive(value: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Basic authentication (RFC 7617).
#[must_use]
pub fn basic(username: &str, password: &str) -> HeaderValue {
    let encoded = STANDARD.encode(format!("{username}:{password}"));
    base64_of("Basic", &encoded)
}

fn base64_of(scheme: &str, encoded: &str) -> HeaderValue {
    sensitive(&format!("{scheme} {encoded}")).expect("a word and base64 are legal in a header")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_sent_and_not_shown() {
        let value = basic("Aladdin", "open sesame");
        // The example of RFC 7617.
        assert_eq!(value.as_bytes(), b"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert_eq!(format!("{value:?}"), "Sensitive");
        assert_eq!(sensitive("two\nlines"), None);
    }
}
