//! Parses and checks values as operators write them. Errors describe the valid values and never quote the value.

use std::fmt::Display;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use bytesize::ByteSize;
use jiff::fmt::friendly::{SpanParser, SpanPrinter};
use strum::VariantNames;
use url::{Host, Url};

/// The longest duration: a year, which every clock can represent.
const DURATION_LIMIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

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

pub(crate) fn duration_in(range: RangeInclusive<Duration>) -> impl Fn(&str) -> Result<Duration, String> {
    move |text| {
        let duration = Some(duration(text)?).filter(|duration| range.contains(duration));
        let [least, most] = [range.start(), range.end()].map(|end| SpanPrinter::new().unsigned_duration_to_string(end));
        duration.ok_or_else(|| format!("must be from \"{least}\" to \"{most}\""))
    }
}

/// A number of bytes, not zero.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let has_unit = text.trim().ends_with(|c: char| c.is_ascii_alphabetic());
    match text.trim().parse() {
        Ok(ByteSize(bytes @ 1..)) if has_unit => Ok(bytes),
        _ => Err("must be a size with its unit, greater than zero, such as \"512KiB\", \"100MiB\" or \"5GiB\"".into()),
    }
}

/// Parses an HTTP address. An address with a user, a password or a fragment is refused.
pub(crate) fn http_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text.trim()).map_err(|_| "must be a URL, such as \"https://host.example/path\"")?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("must begin with https:// or http://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not carry a user or password; remove everything up to the @".to_owned());
    }
    if url.fragment().is_some() {
        return Err("must not have a fragment; remove everything from the # on".to_owned());
    }
    Ok(url)
}

pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        // If the library does not know the scheme, it parses an IP address as a name.
        Some(Host::Domain(name)) => {
            name == "localhost"
                || name.ends_with(".localhost")
                || name.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
        }
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.to_canonical().is_loopback(),
        None => false,
    }
}

pub(crate) fn whole_number<T: FromStr + PartialOrd + Display>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> {
    move |text| {
        let number = text.trim().parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("must be a whole number from {} to {}", range.start(), range.end()))
    }
}

pub(crate) fn size_in(range: RangeInclusive<ByteSize>) -> impl Fn(&str) -> Result<u64, String> {
    move |text| {
        let size = Some(size(text)?).filter(|size| range.contains(&ByteSize(*size)));
        let (least, most) = (range.start().display().iec(), range.end().display().iec());
        size.ok_or_else(|| format!("must be a size from \"{least}\" to \"{most}\", such as \"{least}\""))
    }
}

pub(crate) fn path(text: &str) -> Result<PathBuf, String> {
    text_if(!text.is_empty(), text, "is empty; give a path").map(PathBuf::from)
}

/// Parses a text. An empty text gives `None`, with which an operator turns something off.
pub(crate) fn unless_empty<T>(parse: impl Fn(&str) -> Result<T, String>) -> impl Fn(&str) -> Result<Option<T>, String> {
    move |text| match text.trim() {
        "" => Ok(None),
        text => parse(text).map(Some),
    }
}

/// A text that can be shown on one line.
pub(crate) fn visible(text: &str) -> Result<String, String> {
    let legal = !text.is_empty() && !text.contains(char::is_control);
    text_if(legal, text, "must be a string without control characters")
}

/// Returns the text if it is `legal`. Otherwise the error is the requirement.
pub(crate) fn text_if(legal: bool, text: &str, requirement: &str) -> Result<String, String> {
    if legal { Ok(text.to_owned()) } else { Err(requirement.to_owned()) }
}

/// Parses the name of a variant.
pub(crate) fn word<T: FromStr + VariantNames>(text: &str) -> Result<T, String> {
    text.trim().parse().map_err(|_| {
        let words: Vec<_> = T::VARIANTS.iter().map(|word| format!("{word:?}")).collect();
        format!("must be {}", words.join(" or "))
    })
}
