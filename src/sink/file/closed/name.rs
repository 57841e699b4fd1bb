//! The names of closed files, plain, compressed and unfinished.
//!
//! # Invariants
//!
//! * **Names sort in the order in which files were closed.** The closing time comes before the offsets. It has microsecond
//!   precision and a fixed width. It is later than the time of every earlier file, even if the clock was set back.
//! * **Only names that match the template are recognized.** A file with another name is not compressed, deleted or
//!   searched.

use std::fmt;
use std::path::{Path, PathBuf};

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Unit};
use strum::{EnumString, IntoStaticStr};

use proof::event::Offset;

const TIME: &str = "%Y%m%dT%H%M%S.%6fZ";
const TIME_LENGTH: usize = "20240514T120015.123456Z".len();

/// The maximum length of a name, in bytes. With a leading dot and the longest extensions of compressed, unfinished and
/// marked files, a name still fits into the limit of file systems.
const NAME_LIMIT: usize = 200;

/// The extension of a mark. An operator creates `NAME.keep` to keep the closed file `NAME`.
pub(crate) const KEEP: &str = ".keep";
pub(crate) const UNFINISHED: &str = ".tmp";

/// How closed files are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, EnumString, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Compression {
    /// The format of `gzip`.
    Gzip,
    /// The format of `zstd`, with a checksum.
    Zstd,
}

impl Compression {
    /// The file extension of a compressed file.
    pub fn ending(self) -> &'static str {
        match self {
            Self::Gzip => ".gz",
            Self::Zstd => ".zst",
        }
    }

    /// Splits a name into the plain name and the compression that its extension names, if any.
    pub(crate) fn split(name: &str) -> (&str, Option<Self>) {
        let packed = [Self::Gzip, Self::Zstd].map(|form| Some((name.strip_suffix(form.ending())?, Some(form))));
        packed.into_iter().flatten().next().unwrap_or((name, None))
    }
}

/// The template for names of closed files. It contains `{time}`, and optionally `{first}` and `{last}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedName {
    before: String,
    /// The text after the time. `{first}` and `{last}` are replaced with the offsets of the file's first and last event.
    after: String,
}

impl ClosedName {
    /// The default template: the name of the file itself, with the time before its extension.
    pub fn beside(path: &Path) -> Self {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let extension = path.extension().map(|extension| format!(".{}", extension.to_string_lossy()));
        Self { before: format!("{stem}-"), after: extension.unwrap_or_default() }
    }

    /// Reads a template.
    ///
    /// # Errors
    /// The rule that the template breaks, for an operator.
    pub fn parse(template: &str) -> Result<Self, String> {
        let mut texts = template.to_owned();
        for word in ["{time}", "{first}", "{last}"] {
            texts = texts.replacen(word, "\n", 1);
            if texts.contains(word) {
                return Err(format!("must have {word} only once"));
            }
        }
        if texts.contains(['{', '}']) {
            return Err("must have no braces except in {time}, {first} and {last}".to_owned());
        }
        let parts = template.split_once("{time}").filter(|(before, _)| !before.contains('{'));
        let (before, after) = parts.ok_or("must have {time} before {first} and {last}, so that names sort by time")?;
        if template.contains('/') || template.chars().any(char::is_control) {
            return Err("must be a name without a path: closed files stay in the directory of the file".to_owned());
        }
        if template.starts_with('.') {
            return Err("must not begin with a dot".to_owned());
        }
        let endings = [Compression::Gzip.ending(), Compression::Zstd.ending(), KEEP, UNFINISHED];
        if endings.iter().any(|ending| template.ends_with(ending)) {
            return Err(format!("must not end with {}, which channeld adds itself", endings.join(", ")));
        }
        let runs_on = |next: &str| next.starts_with(|next: char| next == '{' || next.is_ascii_digit());
        if ["{first}", "{last}"].iter().filter_map(|word| after.split_once(word)).any(|(_, next)| runs_on(next)) {
            return Err("must have a character other than a digit after {first} and {last}".to_owned());
        }
        let name = Self { before: before.to_owned(), after: after.to_owned() };
        let widest = Offset::new(i64::MAX);
        if name.write(Timestamp::UNIX_EPOCH, widest, widest).len() > NAME_LIMIT {
            return Err("must be shorter".to_owned());
        }
        Ok(name)
    }

    /// Whether a name from one of the two templates could be mistaken for a name from the other template.
    pub fn overlaps(&self, other: &Self) -> bool {
        let reads =
            |reader: &Self, writer: &Self| reader.read(&writer.write(Timestamp::UNIX_EPOCH, None, None)).is_some();
        reads(self, other) || reads(other, self)
    }

    /// Whether a file with this name would be mistaken for a closed file, its compressed or unfinished form, or its mark.
    pub fn claims(&self, name: &str) -> bool {
        let name = name.strip_prefix('.').unwrap_or(name);
        let name = [KEEP, UNFINISHED].into_iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name);
        self.read(Compression::split(name).0).is_some()
    }

    /// The name of a file that was closed at `time` and whose first and last events have these offsets.
    pub(crate) fn write(&self, time: Timestamp, first: Option<Offset>, last: Option<Offset>) -> String {
        let number = |offset: Option<Offset>| offset.unwrap_or(Offset::ZERO).to_string();
        let after = self.after.replace("{first}", &number(first)).replace("{last}", &number(last));
        format!("{}{}{after}", self.before, time.strftime(TIME))
    }

    /// The time when the file with this name was closed. `None` if this is not the name of a closed file.
    pub(crate) fn read(&self, name: &str) -> Option<Timestamp> {
        let (text, after) = name.strip_prefix(&*self.before)?.split_at_checked(TIME_LENGTH)?;
        let time = DateTime::strptime(TIME, text).ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp();
        (time.strftime(TIME).to_string() == text && fits(&self.after, after)).then_some(time)
    }
}

/// Whether a text matches the template, with numbers for `{first}` and `{last}`.
fn fits(template: &str, text: &str) -> bool {
    let placeholders = ["{first}", "{last}"].iter().filter_map(|word| template.split_once(word));
    let Some((before, template)) = placeholders.min_by_key(|(before, _)| before.len()) else { return text == template };
    let Some(text) = text.strip_prefix(before) else { return false };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    text[..digits].parse::<i64>().is_ok() && fits(template, &text[digits..])
}

impl fmt::Display for ClosedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{{time}}{}", self.before, self.after)
    }
}

/// The time in the name of a file that is closed at `now`. It is rounded to microseconds, and is later than `last`.
pub(crate) fn closing_time(last: Option<Timestamp>, now: Timestamp) -> Timestamp {
    let now = now.round(Unit::Microsecond).unwrap_or(now);
    let next = last.and_then(|last| last.checked_add(1.microsecond()).ok());
    next.map_or(now, |next| next.max(now))
}

/// The temporary path of a file that is later renamed to `path`.
pub(crate) fn unfinished(path: &Path) -> PathBuf {
    path.with_file_name(format!(".{}{UNFINISHED}", file_name(path)))
}

pub(crate) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
