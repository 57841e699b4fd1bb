//! Header values: secrets, and `Retry-After`.
//!
//! `Debug` does not show a secret value, and HTTP/2 does not keep it in its tables.

use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{HeaderMap, HeaderValue, RETRY_AFTER};

/// The longest wait that a response can request. A longer wait is shortened to this, because the server may recover earlier.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(60 * 60);

/// Returns a header value that `Debug` output does not show, or `None` if `value` is not legal in a header.
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

/// The wait that a response requests, counted from now and at most [`MAX_RETRY_AFTER`]. `None` without a readable header.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    read(headers.get(RETRY_AFTER)?.to_str().ok()?, SystemTime::now())
}

fn read(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that does not fit also means a very long wait.
        let seconds = text.parse().map_or(MAX_RETRY_AFTER, Duration::from_secs);
        return Some(seconds.min(MAX_RETRY_AFTER));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    // A date in the past means no wait.
    Some(date.duration_since(now).unwrap_or_default().min(MAX_RETRY_AFTER))
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

    #[test]
    fn retry_after_accepts_bounded_seconds_and_dates_only() {
        let now = httpdate::parse_http_date("Tue, 14 May 2024 12:00:00 GMT").expect("a date");
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (text, expected) in [
            ("0", seconds(0)),
            (" 7 ", seconds(7)),
            ("3601", seconds(3600)),
            ("99999999999999999999999", seconds(3600)),
            ("Tue, 14 May 2024 12:00:30 GMT", seconds(30)),
            ("Tue, 14 May 2024 11:59:59 GMT", seconds(0)),
            ("Wed, 15 May 2024 12:00:00 GMT", seconds(3600)),
            ("Tuesday, 14-May-24 12:00:05 GMT", seconds(5)),
            ("", None),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
        ] {
            assert_eq!(read(text, now), expected, "{text:?}");
        }
    }
}
