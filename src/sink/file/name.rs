//! The names of closed files.
//!
//! # Invariants
//!
//! * **Names sort as files were closed, and none comes twice.** A [`Stamp`] is the time of closing to the microsecond, and
//!   later than that of every file closed before, also where the clock was set back. It has a fixed width, and stands
//!   before the offsets.
//! * **A name is read as it was written.** What the template would not have written is no closed file of ours: it is not
//!   compressed, not deleted, not looked into.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Unit};
use serde::{Deserialize, Serialize};

use super::compression::Compression;
use crate::event::Offset;

const TIME: &str = "%Y%m%dT%H%M%S.%6fZ";

/// Of a time in a name.
const TIME_LENGTH: usize = "20240514T120015.123456Z".len();

/// Room for what is added to a name: a dot in front, the endings of compressed, unfinished and marked files.
const NAME_LIMIT: usize = 200;

/// The widest offset.
const OFFSET_LIMIT: usize = 19;

/// What this sink itself puts at the end of names.
pub(super) const KEEP: &str = ".keep";
pub(super) const UNFINISHED: &str = ".tmp";

/// When a file was closed, in whole microseconds. No two files of a sink share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Stamp(Timestamp);

impl Stamp {
    /// Of a file that is closed at `now`, and after another.
    pub(super) fn after(last: Option<Self>, now: Timestamp) -> Self {
        let now = now.round(Unit::Microsecond).unwrap_or(now);
        let next = last.and_then(|Self(last)| last.checked_add(1.microsecond()).ok());
        Self(next.map_or(now, |next| next.max(now)))
    }

    pub(super) fn time(self) -> Timestamp {
        self.0
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.strftime(TIME).fmt(f)
    }
}

impl FromStr for Stamp {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(DateTime::strptime(TIME, text)?.to_zoned(TimeZone::UTC)?.timestamp()))
    }
}

/// How closed files are named: a text with `{time}` in it, and perhaps `{first}` and `{last}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedName(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    /// When it was closed.
    Time,
    /// The offset of its first event.
    First,
    /// The offset of its last event.
    Last,
}

impl ClosedName {
    /// The name where none is chosen: that of the file itself, with the time before its extension.
    #[must_use]
    pub fn beside(path: &Path) -> Self {
        let text = |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned());
        let stem = text(path.file_stem()).unwrap_or_default();
        let extension = text(path.extension()).map(|extension| format!(".{extension}"));
        let parts = [Some(Part::Text(format!("{stem}-"))), Some(Part::Time), extension.map(Part::Text)];
        Self(parts.into_iter().flatten().collect())
    }

    /// Reads a template.
    ///
    /// # Errors
    /// What it must be, for an operator, if its names could collide, not be sorted or not be told from others.
    pub fn parse(template: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = template;
        while !rest.is_empty() {
            let known = [("{time}", Part::Time), ("{first}", Part::First), ("{last}", Part::Last)];
            if let Some((word, part)) = known.into_iter().find(|(word, _)| rest.starts_with(word)) {
                if parts.contains(&part) {
                    return Err(format!("must have {word} only once"));
                }
                parts.push(part);
                rest = &rest[word.len()..];
                continue;
            }
            if rest.starts_with(['{', '}']) {
                return Err("must have no braces but those of {time}, {first} and {last}".to_owned());
            }
            let end = rest.find(['{', '}']).unwrap_or(rest.len());
            parts.push(Part::Text(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        Self(parts).checked()
    }

    fn checked(self) -> Result<Self, String> {
        if !self.0.iter().find(|part| !matches!(part, Part::Text(_))).is_some_and(|part| *part == Part::Time) {
            return Err("must have {time}, and before {first} and {last}, so that names sort".to_owned());
        }
        let text = |part: &Part| if let Part::Text(text) = part { Some(text.clone()) } else { None };
        let texts: Vec<String> = self.0.iter().filter_map(text).collect();
        if texts.iter().any(|text| text.contains(['/', '\0']) || text.chars().any(char::is_control)) {
            return Err("must be a name and no path: closed files stay in the directory of the file".to_owned());
        }
        if matches!(self.0.first(), Some(Part::Text(text)) if text.starts_with('.')) {
            return Err("must not begin with a dot".to_owned());
        }
        let endings = [Compression::Gzip.ending(), Compression::Zstd.ending(), KEEP, UNFINISHED];
        if let Some(Part::Text(last)) = self.0.last()
            && endings.iter().any(|ending| last.ends_with(ending))
        {
            return Err(format!("must not end with {}, which channeld adds itself", endings.join(", ")));
        }
        let runs_on = |pair: &[Part]| match pair {
            [Part::First | Part::Last, Part::Text(text)] => text.starts_with(|c: char| c.is_ascii_digit()),
            [Part::First | Part::Last, _] => true,
            _ => false,
        };
        if self.0.windows(2).any(runs_on) {
            return Err("must have something other than digits between {first} or {last} and what follows".to_owned());
        }
        let offsets = self.0.iter().filter(|part| matches!(part, Part::First | Part::Last)).count();
        if texts.iter().map(String::len).sum::<usize>() + TIME_LENGTH + offsets * OFFSET_LIMIT > NAME_LIMIT {
            return Err("must be shorter".to_owned());
        }
        Ok(self)
    }

    /// Whether it has `{first}` or `{last}`.
    #[must_use]
    pub fn has_offsets(&self) -> bool {
        self.0.contains(&Part::First) || self.0.contains(&Part::Last)
    }

    /// Whether a file of one of them could be taken for one of the other.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let (stamp, none) = (Stamp(Timestamp::UNIX_EPOCH), Ends::default());
        self.read(&other.write(stamp, none)).is_some() || other.read(&self.write(stamp, none)).is_some()
    }

    /// Whether a file of this name would be taken for a closed one, or for something of one.
    #[must_use]
    pub fn claims(&self, name: &str) -> bool {
        let name = name.strip_prefix('.').unwrap_or(name);
        let name = [KEEP, UNFINISHED].into_iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name);
        self.read(Compression::split(name).0).is_some()
    }

    /// The name of a file with these ends that is closed then.
    pub(super) fn write(&self, stamp: Stamp, ends: Ends) -> String {
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Time => stamp.to_string(),
            Part::First => ends.first.unwrap_or(Offset::ZERO).to_string(),
            Part::Last => ends.last.unwrap_or(Offset::ZERO).to_string(),
        };
        self.0.iter().map(part).collect()
    }

    /// When the file of this name was closed; `None` where this is no name of a closed file.
    pub(super) fn read(&self, name: &str) -> Option<Stamp> {
        let (mut stamp, mut rest) = (None, name);
        for part in &self.0 {
            rest = match part {
                Part::Text(text) => rest.strip_prefix(text.as_str())?,
                Part::Time => {
                    let (time, rest) = rest.split_at_checked(TIME_LENGTH)?;
                    stamp = Some(time.parse::<Stamp>().ok().filter(|stamp| stamp.to_string() == time)?);
                    rest
                }
                Part::First | Part::Last => {
                    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
                    rest[..digits].parse::<i64>().ok()?;
                    &rest[digits..]
                }
            };
        }
        stamp.filter(|_| rest.is_empty())
    }
}

impl fmt::Display for ClosedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| match part {
            Part::Text(text) => f.write_str(text),
            Part::Time => f.write_str("{time}"),
            Part::First => f.write_str("{first}"),
            Part::Last => f.write_str("{last}"),
        })
    }
}

/// The offsets of a file's first and last event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) first: Option<Offset>,
    pub(super) last: Option<Offset>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::sample::offset;

    fn stamp(text: &str) -> Stamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_name_is_read_back_as_it_was_written() {
        let ends = Ends { first: Some(offset(7)), last: Some(offset(15_520)) };
        let at = stamp("20240514T120015.000123Z");
        for (template, name) in [
            ("events-{time}.jsonl", "events-20240514T120015.000123Z.jsonl"),
            ("{time}", "20240514T120015.000123Z"),
            ("{time}{first}-{last}", "20240514T120015.000123Z7-15520"),
            ("a-{time}-{last}-{first}.log", "a-20240514T120015.000123Z-15520-7.log"),
        ] {
            let template = ClosedName::parse(template).unwrap();
            assert_eq!(template.write(at, ends), name);
            assert_eq!(template.read(name), Some(at));
            for other in ["", "events.jsonl", &name[1..], &name[..name.len() - 1], &format!("{name}.gz")] {
                assert!(template.read(other).is_none_or(|read| read != at || other.len() < name.len()), "{other}");
            }
            assert!(template.claims(&format!(".{name}.gz.tmp")) && template.claims(&format!("{name}.keep")));
        }
        let template = ClosedName::beside(Path::new("/var/lib/events.jsonl"));
        assert_eq!(template.to_string(), "events-{time}.jsonl");
        for other in ["events-20241414T120015.000123Z.jsonl", "events-20240514T120015.000123.jsonl", "events-x.jsonl"] {
            assert_eq!(template.read(other), None, "{other}");
        }
    }

    #[test]
    fn names_sort_as_files_were_closed_also_where_the_clock_was_set_back() {
        let template = ClosedName::parse("{time}-{first}").unwrap();
        let mut last: Option<Stamp> = None;
        let mut before = String::new();
        for (second, first) in [(1_700_000_000, 99), (1_700_000_000, 5), (1_600_000_000, 1000), (1_700_000_001, 0)] {
            let stamp = Stamp::after(last, Timestamp::from_second(second).unwrap());
            let name = template.write(stamp, Ends { first: Some(offset(first)), last: None });
            assert!(name > before && last.is_none_or(|last| last < stamp), "{name}");
            (last, before) = (Some(stamp), name);
        }
    }

    #[test]
    fn templates_whose_names_could_not_be_told_apart_are_refused() {
        for template in [
            "events.jsonl",
            "",
            "{first}-{time}",
            "{time}{time}",
            "{time}-{first}{last}",
            "{time}-{first}0.jsonl",
            "{time}-{number}",
            "{time}}",
            "closed/{time}",
            ".{time}",
            "{time}.gz",
            "{time}.zst",
            "{time}.keep",
            "{time}.tmp",
            &format!("{{time}}{}", "x".repeat(200)),
        ] {
            assert!(ClosedName::parse(template).is_err(), "{template}");
        }
        let name = |template| ClosedName::parse(template).unwrap();
        assert!(name("a-{time}-{first}").overlaps(&name("a-{time}-{last}")));
        assert!(!name("a-{time}.jsonl").overlaps(&name("a-b-{time}.jsonl")));
    }
}
