//! Values as operators write them, checked. Errors say what a value must be and never quote it.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use jiff::fmt::friendly::SpanParser;
use url::Url;

use super::keys::{Key, Keys, Reported};

/// Longer than anyone waits on purpose, and short enough for every clock.
const DURATION_LIMIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The longest name of a channel or sink.
const NAME_LIMIT: usize = 64;

pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let duration = SpanParser::new()
        .parse_unsigned_duration(text.trim())
        .map_err(|_| "must be a duration with its unit, such as \"500ms\", \"30s\", \"5m\" or \"24h\"".to_owned())?;
    if duration > DURATION_LIMIT {
        return Err("must not be longer than \"8760h\", a year".to_owned());
    }
    Ok(duration)
}

pub(crate) fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("must be longer than zero, such as \"5s\"".to_owned()),
        duration => Ok(duration),
    }
}

/// A number of bytes, not zero.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let has_unit = text.ends_with(|c: char| c.is_ascii_alphabetic());
    match text.parse::<ByteSize>() {
        Ok(ByteSize(bytes @ 1..)) if has_unit => Ok(bytes),
        _ => {
            Err("must be a size with its unit, more than nothing, such as \"512KiB\", \"100MiB\" or \"5GiB\""
                .to_owned())
        }
    }
}

/// An address of the web, without anything that would be a secret in the open.
pub(crate) fn http_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text.trim()).map_err(|error| format!("is not a URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("must begin with https:// or http://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not carry a user or password; remove everything up to the @".to_owned());
    }
    if url.fragment().is_some() {
        return Err("must not have a fragment; remove the # and what follows".to_owned());
    }
    Ok(url)
}

/// A whole number in a range.
pub(crate) fn whole_number(range: RangeInclusive<usize>) -> impl Fn(&str) -> Result<usize, String> {
    move |text| {
        let number = text.trim().parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("must be a whole number from {} to {}", range.start(), range.end()))
    }
}

/// A number of bytes in a range.
pub(crate) fn size_in(range: RangeInclusive<ByteSize>) -> impl Fn(&str) -> Result<ByteSize, String> {
    move |text| {
        let size = Some(ByteSize(size(text)?)).filter(|size| range.contains(size));
        let (least, most) = (range.start().display().iec(), range.end().display().iec());
        size.ok_or_else(|| format!("must be a size from \"{least}\" to \"{most}\", such as \"512 KiB\" or \"1MiB\""))
    }
}

pub(crate) fn path(text: &str) -> Result<PathBuf, String> {
    match text {
        "" => Err("is empty; give a path".to_owned()),
        path => Ok(path.into()),
    }
}

/// One of a few words.
pub(crate) fn choice<T: Copy>(words: &[(&'static str, T)]) -> impl Fn(&str) -> Result<T, String> {
    move |text| {
        let found = words.iter().find(|(word, _)| *word == text.trim());
        found.map(|(_, value)| *value).ok_or_else(|| {
            let words: Vec<_> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
            format!("must be {}", words.join(" or "))
        })
    }
}

/// `retry_wait` and `retry_wait_max` of a section, each with its default where the compiled-in file cannot hold one.
pub(crate) fn retry_waits(
    keys: &mut Keys,
    section: &Key,
    default: Option<(Duration, Duration)>,
) -> Result<(Duration, Duration), Reported> {
    let (wait_key, max_key) = (section.at("retry_wait"), section.at("retry_wait_max"));
    let wait = or_default(keys, &wait_key, default.map(|(wait, _)| wait));
    let max = or_default(keys, &max_key, default.map(|(_, max)| max));
    let (wait, max) = (wait?, max?);
    if wait > max {
        return Err(keys.wrong(&wait_key, format!("must not be longer than {max_key}")));
    }
    Ok((wait, max))
}

fn or_default(keys: &mut Keys, key: &Key, default: Option<Duration>) -> Result<Duration, Reported> {
    let given = keys.optional(key, positive_duration)?;
    given.or(default).ok_or_else(|| keys.missing(key))
}

/// Notes the name of a channel's or sink's table that could not be one everywhere a name is used.
pub(crate) fn check_name(keys: &mut Keys, table: &Key) {
    let name = table.names().last().map_or("", String::as_str);
    let legal = name.len() <= NAME_LIMIT && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    let framed = !name.is_empty() && !name.starts_with(['-', '_']) && !name.ends_with(['-', '_']);
    if !legal || !framed || name.contains("__") {
        let message = format!(
            "must be named with letters, digits, - and _ ({NAME_LIMIT} at most, a letter or digit at both ends, no __), \
             because the name becomes a metric label, a part of environment variables and of paths"
        );
        keys.wrong(table, message);
    }
}
