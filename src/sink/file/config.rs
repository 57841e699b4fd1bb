//! The keys of a file, and how they are read.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::unistd::{Group, User};

use crate::config::keys::{Key, Keys, Reading, Reported};
use crate::config::values::{choice, path, positive_duration, size};
use crate::sink::Kind;

use super::{Access, ClosedName, Compression, FileSettings, Keep, Rotation};

pub(in crate::sink) const KIND: Kind = Kind { word: "file", read: |keys, sink| Ok(Arc::new(read(keys, sink)?)) };

const COMPRESSIONS: [(&str, Option<Compression>); 3] =
    [("none", None), ("gzip", Some(Compression::Gzip)), ("zstd", Some(Compression::Zstd))];

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What files can be allowed: to be read and written.
const PERMISSIONS: u32 = 0o666;

/// What the daemon needs of its own files.
const OWN_PERMISSIONS: u32 = 0o600;

fn read(keys: &mut Keys, sink: &Key) -> Result<FileSettings, Reported> {
    let path = keys.required(&sink.at("path"), path);
    let access = read_access(keys, sink);
    let rotation = read_rotation(keys, sink, path.as_deref().ok());
    let settings = FileSettings { path: path?, access: access?, rotation: rotation? };
    check_link(keys, sink, &settings)?;
    Ok(settings)
}

fn read_access(keys: &mut Keys, sink: &Key) -> Result<Access, Reported> {
    let mode_key = sink.at("mode");
    // A number without quotes would be read as a decimal one.
    let mode = keys.quoted(&mode_key).and_then(|text| {
        let mode = text.map(|text| mode(&text)).transpose();
        mode.map_err(|message| keys.wrong(&mode_key, message))
    });
    let owner = keys.optional(&sink.at("owner"), |name| {
        number(name, "user", |name| Ok(User::from_name(name)?.map(|user| user.uid.as_raw())))
    });
    let group = keys.optional(&sink.at("group"), |name| {
        number(name, "group", |name| Ok(Group::from_name(name)?.map(|group| group.gid.as_raw())))
    });
    Ok(Access { mode: mode?, owner: owner?, group: group? })
}

/// `None` where neither a size nor a time is set.
fn read_rotation(keys: &mut Keys, sink: &Key, path: Option<&Path>) -> Reading<Rotation> {
    let (size_key, every_key) = (sink.at("rotate_size"), sink.at("rotate_every"));
    let rotate_size = keys.optional(&size_key, size);
    let every = keys.optional(&every_key, part_of_a_day);
    let name = keys.optional(&sink.at("rotated_name"), ClosedName::parse);
    let compression = keys.optional(&sink.at("compress"), choice(&COMPRESSIONS));
    let files = keys.optional(&sink.at("keep_files"), files);
    let time = keys.optional(&sink.at("keep_for"), positive_duration);
    let keep_size = keys.optional(&sink.at("keep_size"), size);
    let link = keys.optional(&sink.at("latest_link"), crate::config::values::path);

    let (rotate_size, every, name, compression) = (rotate_size?, every?, name?, compression?.flatten());
    let (keep, latest_link) = (Keep { files: files?, time: time?, size: keep_size? }, link?);
    if rotate_size.is_none() && every.is_none() {
        let set = [
            ("rotated_name", name.is_some()),
            ("compress", compression.is_some()),
            ("keep_files", keep.files.is_some()),
            ("keep_for", keep.time.is_some()),
            ("keep_size", keep.size.is_some()),
            ("latest_link", latest_link.is_some()),
        ];
        let message = format!("has no effect on a file that is never closed: set {size_key} or {every_key} too");
        let wrong = set.into_iter().filter(|(_, set)| *set).map(|(key, _)| keys.wrong(&sink.at(key), &*message));
        return wrong.last().map_or(Ok(None), Err);
    }
    if let Some((keep, rotate)) = keep.size.zip(rotate_size)
        && keep < rotate
    {
        return Err(
            keys.wrong(&sink.at("keep_size"), format!("must not be smaller than {size_key}, the size of one file"))
        );
    }
    let Some(path) = path else { return Ok(None) };
    let chosen = name.is_some();
    let name = name.unwrap_or_else(|| ClosedName::beside(path));
    let own = path.file_name().is_some_and(|own| name.claims(&own.to_string_lossy()));
    if own && chosen {
        return Err(keys.wrong(&sink.at("rotated_name"), "must give other names than that of the file itself"));
    }
    Ok(Some(Rotation { size: rotate_size, every, name, compression, keep, latest_link }))
}

/// A link that would replace something of the sink's own.
fn check_link(keys: &mut Keys, sink: &Key, settings: &FileSettings) -> Result<(), Reported> {
    let Some(link) = settings.latest_link() else { return Ok(()) };
    if settings.takes(link) {
        let message = "must be another path than that of the file, and of no closed file";
        return Err(keys.wrong(&sink.at("latest_link"), message));
    }
    match link.file_name() {
        Some(_) => Ok(()),
        None => Err(keys.wrong(&sink.at("latest_link"), "must end with a name")),
    }
}

fn mode(text: &str) -> Result<u32, String> {
    let octal = (3..=4).contains(&text.len()) && text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    match u32::from_str_radix(text, 8) {
        Ok(mode) if octal && mode & !PERMISSIONS == 0 && mode & OWN_PERMISSIONS == OWN_PERMISSIONS => Ok(mode),
        _ => Err("must be octal permissions such as \"0640\" that let the owner read and write, and nobody execute"
            .to_owned()),
    }
}

/// The number of a user or a group.
fn number(name: &str, what: &str, known: impl FnOnce(&str) -> nix::Result<Option<u32>>) -> Result<u32, String> {
    let none = || format!("must be the name or the number of a {what} of this machine");
    match name.trim().parse() {
        // The last number means "unchanged" to the system.
        Ok(u32::MAX) => Err(none()),
        Ok(number) => Ok(number),
        Err(_) => known(name.trim()).ok().flatten().ok_or_else(none),
    }
}

fn part_of_a_day(text: &str) -> Result<Duration, String> {
    let every = positive_duration(text)?;
    if every.subsec_nanos() != 0 || every > DAY || !DAY.as_secs().is_multiple_of(every.as_secs()) {
        return Err("must be a day or divide it evenly, such as \"15m\", \"1h\" or \"24h\"".to_owned());
    }
    Ok(every)
}

fn files(text: &str) -> Result<NonZeroUsize, String> {
    text.trim().parse().map_err(|_| "must be a number, at least 1: a crash may need the file closed last".to_owned())
}
