//! A time as an operator writes it, in every command: RFC 3339, a day or a minute in UTC, Unix seconds, or how long ago.

use jiff::civil::{Date, DateTime};
use jiff::fmt::friendly::SpanParser;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

const NEEDED: &str =
    "must be a time, such as 2026-05-14T12:00:00Z, 2026-05-14, 1778760000 (Unix seconds) or 1h (that long ago)";

/// The time that a text says.
///
/// # Errors
/// What it must be.
pub fn parse(text: &str) -> Result<Timestamp, &'static str> {
    at(text, Timestamp::now()).ok_or(NEEDED)
}

/// The time that a text says, in Unix seconds; not before 1970.
///
/// # Errors
/// What it must be.
pub fn seconds(text: &str) -> Result<i64, &'static str> {
    let time = parse(text)?.as_second();
    if time < 0 { Err(NEEDED) } else { Ok(time) }
}

/// The time that a text says, where it is `now`.
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
    let ago = SpanParser::new().parse_unsigned_duration(text).ok()?;
    now.checked_sub(SignedDuration::try_from(ago).ok()?).ok()
}

#[cfg(test)]
mod tests;
