//! Header values that are secret: not shown by `Debug`, and not kept in HTTP/2's tables.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::HeaderValue;

/// A value that is not shown; `None` where it is no legal one.
pub fn sensitive(value: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Basic authentication (RFC 7617).
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
        // The example of RFC 7617.
        assert_eq!(value.as_bytes(), b"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert_eq!(format!("{value:?}"), "Sensitive");
        assert_eq!(sensitive("two\nlines"), None);
    }
}
