//! A file as it is configured: what is shown of it, and what it cannot stand beside.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use jiff::fmt::friendly::SpanPrinter;
use serde_json::{Map, Value, json};

use super::{ClosedName, Compression, File, FileSettings, Rotation};
use crate::sink::{Sink, SinkError, Target};

impl Target for FileSettings {
    fn shown(&self) -> String {
        let path = self.path.display();
        self.rotation.as_ref().map_or_else(|| path.to_string(), |rotation| format!("{path}, {}", shown(rotation)))
    }

    fn json(&self) -> Map<String, Value> {
        let rotation = self.rotation.as_ref().map(|rotation| {
            json!({
                "size": rotation.size,
                "every_seconds": rotation.every.map(|every| every.as_secs()),
                "name": rotation.name.to_string(),
                "compress": rotation.compression.map(word),
                "keep_files": rotation.keep.files,
                "keep_seconds": rotation.keep.time.map(|time| time.as_secs()),
                "keep_size": rotation.keep.size,
                "latest_link": rotation.latest_link,
            })
        });
        let decided = [
            ("path", json!(self.path.display().to_string())),
            ("mode", json!(self.access.mode.map(|mode| format!("{mode:04o}")))),
            ("owner", json!(self.access.owner)),
            ("group", json!(self.access.group)),
            ("rotation", json!(rotation)),
        ];
        decided.map(|(key, value)| (key.to_owned(), value)).into_iter().collect()
    }

    fn build(&self) -> Result<Arc<dyn Sink>, SinkError> {
        Ok(Arc::new(File::new(self.clone())))
    }

    fn reads_back(&self) -> bool {
        true
    }

    /// Two sinks of which one would take the other's files for its own.
    fn conflict(&self, other: &dyn Target, at: &str) -> Option<(&'static str, String)> {
        let other = other.downcast::<Self>()?;
        if self.path == other.path {
            return Some(("path", format!("is the file of {at} too; give each sink a file of its own")));
        }
        let directories = (self.path.parent(), other.path.parent());
        let overlap = directories.0 == directories.1 && self.closed_name().overlaps(&other.closed_name());
        let (link, other_link) = (self.latest_link(), other.latest_link());
        if overlap || self.takes(&other.path) || other.takes(&self.path) {
            // What is not set by the operator cannot be what is wrong.
            let key = if self.closed_name() == ClosedName::beside(&self.path) { "path" } else { "rotated_name" };
            Some((key, format!("would be mixed up with files of {at}; give closed files another rotated_name")))
        } else if link.is_some_and(|link| other_link == Some(link) || other.takes(link)) {
            Some(("latest_link", format!("is in the way of {at}; name another path")))
        } else if other_link.is_some_and(|link| self.takes(link)) {
            Some(("path", format!("is in the way of {at}.latest_link")))
        } else {
            None
        }
    }
}

fn shown(rotation: &Rotation) -> String {
    let size = rotation.size.map(|size| format!("at {}", shown_size(size)));
    let every = rotation.every.map(|every| format!("every {}", shown_duration(every)));
    let when: Vec<_> = [size, every].into_iter().flatten().collect();
    let mut shown = format!("closed {} as {}", when.join(" and "), rotation.name);
    if let Some(compression) = rotation.compression {
        let _ = write!(shown, ", compressed with {}", word(compression));
    }
    let keep = rotation.keep;
    let files = keep.files.map(|files| format!("{files} files"));
    let time = keep.time.map(|time| format!("for {}", shown_duration(time)));
    let size = keep.size.map(|size| format!("up to {}", shown_size(size)));
    let kept: Vec<_> = [files, time, size].into_iter().flatten().collect();
    if !kept.is_empty() {
        let _ = write!(shown, ", kept: {}", kept.join(", "));
    }
    shown
}

fn shown_size(bytes: u64) -> String {
    bytesize::ByteSize(bytes).display().iec().to_string()
}

fn shown_duration(duration: Duration) -> String {
    SpanPrinter::new().unsigned_duration_to_string(&duration)
}

fn word(compression: Compression) -> &'static str {
    match compression {
        Compression::Gzip => "gzip",
        Compression::Zstd => "zstd",
    }
}
