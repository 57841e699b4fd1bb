//! The settings of a file, for people and for machines.

use std::time::Duration;

use jiff::fmt::friendly::SpanPrinter;
use serde_json::{Value, json};

use ::sink::{FileSettings, Rotation};

pub(in crate::config::sink) fn line(settings: &FileSettings) -> String {
    let path = settings.path.display();
    settings.rotation.as_ref().map_or_else(|| path.to_string(), |rotation| format!("{path}, {}", closed(rotation)))
}

pub(in crate::config::sink) fn json(settings: &FileSettings) -> Value {
    let rotation = settings.rotation.as_ref().map(|rotation| {
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
    json!({
        "path": settings.path.display().to_string(),
        "mode": settings.access.mode.map(|mode| format!("{mode:04o}")),
        "owner": settings.access.owner,
        "group": settings.access.group,
        "rotation": rotation,
    })
}

fn closed(rotation: &Rotation) -> String {
    let when = [
        rotation.size.map(|size| format!("at {}", size_text(size))),
        rotation.every.map(|every| format!("every {}", duration_text(every))),
    ];
    let mut shown = format!("closed {} as {}", join(when, " and "), rotation.name);
    if let Some(compression) = rotation.compression {
        shown += ", compressed with ";
        shown += compression.into();
    }
    let keep = rotation.keep;
    let kept = [
        keep.files.map(|files| format!("{files} files")),
        keep.time.map(|time| format!("for {}", duration_text(time))),
        keep.size.map(|size| format!("up to {}", size_text(size))),
    ];
    let kept = join(kept, ", ");
    if kept.is_empty() { shown } else { format!("{shown}, kept: {kept}") }
}

fn join<const N: usize>(parts: [Option<String>; N], between: &str) -> String {
    parts.into_iter().flatten().collect::<Vec<_>>().join(between)
}

pub(in crate::config::sink) fn size_text(bytes: u64) -> String {
    bytesize::ByteSize(bytes).display().iec().to_string()
}

pub(in crate::config::sink) fn duration_text(duration: Duration) -> String {
    SpanPrinter::new().unsigned_duration_to_string(&duration)
}
