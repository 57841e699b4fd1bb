//! Secret header values: `Debug` does not show them, and HTTP/2 does not keep them in its tables.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::HeaderValue;

/// Returns a header value that is not shown, or `None` if `value` is not legal in a header.
pub fn sensitive(value: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Returns the value for basic authentication (RFC 7617).
pub fn basic(username: &str, password: &str) -> HeaderValue {
    let encoded = STANDARD.encode(format!("{username}:{password}"));
    sensitive(&format!("Basic {encoded}")).unwrap_or_else(|| unreachable!("a word and base64 are legal in a header"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_sent_and_not_shown() {
        let value = basic("Aladdin", "open sesame");
        // The example from RFC 7617.
        assert_eq!(value.as_bytes(), b"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert_eq!(format!("{value:?}"), "Sensitive");
        assert_eq!(sensitive("two\nlines"), None);
    }
}
