//! Parses a time that an operator writes in a command or in the configuration: RFC 3339, a day or a minute in UTC, Unix
//! seconds, or a duration before now.
//!
//! If an offset is also possible, a plain number is the offset. `@1778760000` is a time everywhere.

use std::fmt;
use std::str::FromStr;

use jiff::civil::{Date, DateTime};
use jiff::fmt::friendly::SpanParser;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, SpanRelativeTo, Timestamp};

const NEEDED: &str =
    "must be a time, such as 2026-05-14T12:00:00Z, 2026-05-14, @1778760000 (Unix seconds), 1h or 7d (that long ago)";

/// A time as an operator writes it. A duration before now has no fixed time before [`Time::at`] is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// This time.
    At(Timestamp),
    /// This long before now.
    Ago(SignedDuration),
}

impl Time {
    /// Returns the time, with `now` as the current time. Returns `None` if the time is too long ago.
    pub fn at(self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::At(time) => Some(time),
            Self::Ago(ago) => now.checked_sub(ago).ok(),
        }
    }
}

impl FromStr for Time {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        read(text).ok_or(NEEDED)
    }
}

/// Writes the time in a form that can be parsed again.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(time) => time.fmt(f),
            Self::Ago(ago) => write!(f, "{ago:#}"),
        }
    }
}

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
    read(text)?.at(now)
}

fn read(text: &str) -> Option<Time> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(Time::At(time));
    }
    let civil = text.parse::<DateTime>().or_else(|_| text.parse::<Date>().map(Into::into));
    if let Ok(civil) = civil
        && text.contains('-')
    {
        return civil.to_zoned(TimeZone::UTC).ok().map(|zoned| Time::At(zoned.timestamp()));
    }
    if let Ok(seconds) = text.strip_prefix('@').unwrap_or(text).parse::<i64>() {
        return Timestamp::from_second(seconds).ok().map(Time::At);
    }
    let ago = SpanParser::new().parse_span(text).ok().filter(|ago| !ago.is_negative())?;
    ago.to_duration(SpanRelativeTo::days_are_24_hours()).ok().map(Time::Ago)
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
            ("@1778756400", "2026-05-14T11:00:00Z"),
            ("1h", "2026-05-14T11:00:00Z"),
            ("90m", "2026-05-14T10:30:00Z"),
            ("7d", "2026-05-07T12:00:00Z"),
            ("1w 2h", "2026-05-07T10:00:00Z"),
        ] {
            assert_eq!(at(text, now), Some(time.parse().unwrap()), "{text}");
        }
        for text in ["", "yesterday", "5 parsec", "2026-13-01", "-1h", "1 month", "@", "@1h", "@@5"] {
            assert_eq!(at(text, now), None, "{text}");
        }
        assert_eq!(seconds("1100"), Ok(1100));
        assert!(seconds("-1").is_err() && seconds("1960-01-01").is_err());
    }

    #[test]
    fn a_time_is_written_in_a_form_that_can_be_parsed_again() {
        for text in ["2026-05-14T11:00:00Z", "@1778756400", "2026-05-14", "7d", "90m", "1w 2h"] {
            let time: Time = text.parse().unwrap();
            assert_eq!(time.to_string().parse(), Ok(time), "{text} is written as {time}");
        }
    }
}
