//! Parses a time that an operator writes in a command: RFC 3339, a day or a minute in UTC, Unix seconds, or a duration
//! before now.

use jiff::civil::{Date, DateTime};
use jiff::fmt::friendly::SpanParser;
use jiff::tz::TimeZone;
use jiff::{SpanRelativeTo, Timestamp};

const NEEDED: &str =
    "must be a time, such as 2026-05-14T12:00:00Z, 2026-05-14, 1778760000 (Unix seconds), 1h or 7d (that long ago)";

/// Parses a time.
///
/// # Errors
/// A description of the accepted formats.
pub fn parse(text: &str) -> Result<Timestamp, &'static str> {
    at(text, Timestamp::now()).ok_or(NEEDED)
}

/// Parses a time and returns it in Unix seconds. Times before 1970 are rejected.
///
/// # Errors
/// A description of the accepted formats.
pub fn seconds(text: &str) -> Result<i64, &'static str> {
    let time = parse(text)?.as_second();
    if time < 0 { Err(NEEDED) } else { Ok(time) }
}

/// Parses a time, with `now` as the current time.
pub fn at(text: &str, now: Timestamp) -> Option<Timestamp> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time);
    }
    let civil = text.parse::<DateTime>().or_else(|_| text.parse::<Date>().map(Into::into));
    if let Ok(civil) = civil
        && text.contains('-')
    {
        return civil.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp());
    }
    if let Ok(seconds) = text.parse::<i64>() {
        return Timestamp::from_second(seconds).ok();
    }
    let ago = SpanParser::new().parse_span(text).ok().filter(|ago| !ago.is_negative())?;
    now.checked_sub(ago.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_parsed_in_each_notation() {
        let now: Timestamp = "2026-05-14T12:00:00Z".parse().unwrap();
        for (text, time) in [
            ("2026-05-14T11:00:00Z", "2026-05-14T11:00:00Z"),
            ("2026-05-14T13:00:00+02:00", "2026-05-14T11:00:00Z"),
            ("2026-05-14T11:00", "2026-05-14T11:00:00Z"),
            ("2026-05-14", "2026-05-14T00:00:00Z"),
            ("1778756400", "2026-05-14T11:00:00Z"),
            ("1h", "2026-05-14T11:00:00Z"),
            ("90m", "2026-05-14T10:30:00Z"),
            ("7d", "2026-05-07T12:00:00Z"),
            ("1w 2h", "2026-05-07T10:00:00Z"),
        ] {
            assert_eq!(at(text, now), Some(time.parse().unwrap()), "{text}");
        }
        for text in ["", "yesterday", "5 parsec", "2026-13-01", "-1h", "1 month"] {
            assert_eq!(at(text, now), None, "{text}");
        }
        assert_eq!(seconds("1100"), Ok(1100));
        assert!(seconds("-1").is_err() && seconds("1960-01-01").is_err());
    }
}
