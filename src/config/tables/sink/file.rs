//! Reads and describes the settings of a file sink, and checks which files conflict with each other.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use nix::unistd::{Group, User};
use serde_json::json;

use super::settings::{Sink, SinkSettings};
use crate::config::key::Key;
use crate::config::reading::values::{path, positive_duration, size};
use crate::config::reading::{Reading, Reported, Section, all};
use crate::config::settings_list::SettingsList;
use ::sink::{Access, ClosedName, Compression, FileLocation, FileSettings, Keep, Rotation, SqliteSettings};

/// The default of `compress`.
pub(super) const NOT_COMPRESSED: &str = "none";

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The permissions that `mode` can contain: read and write.
const PERMISSIONS: u32 = 0o666;

/// The permissions that the daemon needs for its own files.
const OWN_PERMISSIONS: u32 = 0o600;

pub(super) fn read(sink: &Section<'_>) -> Result<FileSettings, Reported> {
    let settings = all!(FileSettings {
        path: sink.required("path", path),
        access: read_access(sink),
        // Without a valid path, the keys are still read and checked.
        rotation: read_rotation(sink, path.as_deref().unwrap_or(Path::new(""))),
    })?;
    if let Some(link) = settings.latest_link() {
        if settings.takes(&FileLocation::of_link(link)) {
            sink.wrong("latest_link", "must differ from the path of the file and of every closed file");
        } else if link.file_name().is_none() {
            sink.wrong("latest_link", "must end with a name");
        }
    }
    Ok(settings)
}

fn read_access(sink: &Section<'_>) -> Result<Access, Reported> {
    let user = |name: &str| Ok(User::from_name(name)?.map(|user| user.uid.as_raw()));
    let group = |name: &str| Ok(Group::from_name(name)?.map(|group| group.gid.as_raw()));
    all!(Access {
        // A number without quotes would be read as a decimal number.
        mode: sink.quoted("mode", mode),
        owner: sink.optional("owner", |name| number(name, "user", user)),
        group: sink.optional("group", |name| number(name, "group", group)),
    })
}

/// Returns `None` if neither a size nor a time is set.
fn read_rotation(sink: &Section<'_>, file: &Path) -> Reading<Rotation> {
    let rotation = all!(Rotation {
        keep: all!(Keep {
            files: sink.optional("keep_files", files),
            time: sink.optional("keep_for", positive_duration),
            size: sink.optional("keep_size", size),
        }),
        size: sink.optional("rotate_size", size),
        every: sink.optional("rotate_every", part_of_a_day),
        name: sink
            .optional("rotated_name", ClosedName::parse)
            .map(|name| name.unwrap_or_else(|| ClosedName::beside(file))),
        compression: sink.or("compress", compression, NOT_COMPRESSED),
        latest_link: sink.optional("latest_link", path),
    })?;
    let (size_key, every_key) = (sink.key.at("rotate_size"), sink.key.at("rotate_every"));
    if rotation.size.is_none() && rotation.every.is_none() {
        let message = format!("has no effect on a file that is never closed: set {size_key} or {every_key} too");
        let keys = ["rotated_name", "compress", "keep_files", "keep_for", "keep_size", "latest_link"];
        let is_set = |key: &&str| sink.is_set(key) && (*key != "compress" || rotation.compression.is_some());
        for key in keys.into_iter().filter(is_set) {
            sink.wrong(key, &*message);
        }
        return Ok(None);
    }
    if rotation.keep.size.zip(rotation.size).is_some_and(|(keep, rotate)| keep < rotate) {
        sink.wrong("keep_size", format!("must not be smaller than {size_key}, the size of one file"));
    }
    if file.file_name().is_some_and(|own| rotation.name.claims(&own.to_string_lossy())) {
        sink.wrong("rotated_name", "must make names that differ from the name of the file itself");
    }
    Ok(Some(rotation))
}

pub(super) fn shown(settings: &FileSettings) -> SettingsList {
    let FileSettings { path, access, rotation } = settings;
    let rotation = rotation.as_ref().map(|rotation| {
        json!({
            "size": rotation.size,
            "every_seconds": rotation.every.map(|every| every.as_secs()),
            "name": rotation.name.to_string(),
            "compress": rotation.compression.map(<&str>::from),
            "keep_files": rotation.keep.files,
            "keep_seconds": rotation.keep.time.map(|time| time.as_secs()),
            "keep_size": rotation.keep.size,
            "latest_link": rotation.latest_link,
        })
    });
    vec![
        ("path", json!(path)),
        ("mode", json!(access.mode.map(|mode| format!("{mode:04o}")))),
        ("owner", json!(access.owner)),
        ("group", json!(access.group)),
        ("rotation", json!(rotation)),
    ]
}

/// Records a problem if the files of the sink `name` and of another sink could be mixed up.
pub(super) fn check_conflicts(sinks: &Section<'_>, name: &str, sink: &Sink, others: &BTreeMap<String, Sink>) {
    for (other_name, other) in others {
        let (wrong, at) = (|key, message| sinks.section(name).wrong(key, message), sinks.key.at(other_name));
        if path_of(sink)
            .zip(path_of(other))
            .is_some_and(|(path, other)| FileLocation::of(path).is(&FileLocation::of(other)))
        {
            wrong("path", format!("is the file of {at} too; give each sink a file of its own"));
        } else if let (SinkSettings::File(file), SinkSettings::File(other)) = (&sink.settings, &other.settings)
            && let Some((key, message)) = conflict(file, other, &at)
        {
            wrong(key, message);
        }
    }
}

/// The file or the database of a sink.
fn path_of(sink: &Sink) -> Option<&Path> {
    match &sink.settings {
        SinkSettings::File(FileSettings { path, .. }) | SinkSettings::Sqlite(SqliteSettings { path, .. }) => Some(path),
        _ => None,
    }
}

/// Returns the key of `file` that conflicts with the sink `other`, and the reason. The table of the sink `other` is
/// `at`. The caller has checked that the two sinks do not write to the same file. Links in the paths are followed for
/// the comparison. A link that changes before the files are opened is not noticed.
fn conflict(file: &FileSettings, other: &FileSettings, at: &Key) -> Option<(&'static str, String)> {
    let (place, other_place) = (FileLocation::of(&file.path), FileLocation::of(&other.path));
    let overlap = place.is_beside(&other_place) && file.closed_name().overlaps(&other.closed_name());
    let (link, other_link) =
        (file.latest_link().map(FileLocation::of_link), other.latest_link().map(FileLocation::of_link));
    let same_link = link.as_ref().zip(other_link.as_ref()).is_some_and(|(link, other)| link.is(other));
    if overlap || file.takes(&other_place) || other.takes(&place) {
        // Name the key that determines the names of the closed files, because the operator must change this key.
        let key = if file.closed_name() == ClosedName::beside(&file.path) { "path" } else { "rotated_name" };
        Some((key, format!("could not be distinguished from files of {at}; choose another rotated_name")))
    } else if same_link || link.is_some_and(|link| other.takes(&link)) {
        Some(("latest_link", format!("conflicts with {at}; choose another path")))
    } else if other_link.is_some_and(|link| file.takes(&link)) {
        Some(("path", format!("conflicts with {at}.latest_link")))
    } else {
        None
    }
}

fn mode(text: &str) -> Result<u32, String> {
    let octal = (3..=4).contains(&text.len()) && text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    match u32::from_str_radix(text, 8) {
        Ok(mode) if octal && mode & !PERMISSIONS == 0 && mode & OWN_PERMISSIONS == OWN_PERMISSIONS => Ok(mode),
        _ => Err("must be octal permissions such as \"0640\": read and write for the owner, no execution".to_owned()),
    }
}

/// The numeric id of a user or a group.
fn number(name: &str, what: &str, known: impl FnOnce(&str) -> nix::Result<Option<u32>>) -> Result<u32, String> {
    let none = || format!("must be the name or the number of a {what} of this machine");
    match name.trim().parse() {
        // The system interprets the highest number as "unchanged".
        Ok(u32::MAX) => Err(none()),
        Ok(number) => Ok(number),
        Err(_) => known(name.trim()).ok().flatten().ok_or_else(none),
    }
}

fn part_of_a_day(text: &str) -> Result<Duration, String> {
    let every = positive_duration(text)?;
    if every.subsec_nanos() != 0 || every > DAY || !DAY.as_secs().is_multiple_of(every.as_secs()) {
        return Err("must be a day or a whole fraction of a day, such as \"15m\", \"1h\" or \"24h\"".to_owned());
    }
    Ok(every)
}

pub(super) fn compression(text: &str) -> Result<Option<Compression>, String> {
    match text.trim() {
        NOT_COMPRESSED => Ok(None),
        text => text.parse().map(Some).map_err(|_| "must be \"none\" or \"gzip\" or \"zstd\"".to_owned()),
    }
}

fn files(text: &str) -> Result<NonZeroUsize, String> {
    text.trim()
        .parse()
        .map_err(|_| "must be at least 1, because recovery from a crash may need the last closed file".to_owned())
}
