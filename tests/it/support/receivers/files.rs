//! Reads the output of a file sink: the active file and all closed files.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The files of a sink: the active file, and the closed files with the default name.
pub(crate) struct Files {
    pub(crate) active: PathBuf,
}

impl Files {
    pub(crate) fn of(active: impl Into<PathBuf>) -> Self {
        Self { active: active.into() }
    }

    /// The closed files in order. If a file exists both plain and compressed, the plain file.
    pub(crate) fn closed(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.active.parent().unwrap()).unwrap();
        let ours = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.starts_with("events-") && name.contains(".jsonl")
        };
        let mut closed: Vec<_> = entries.map(|entry| entry.unwrap().path()).filter(ours).collect();
        closed.sort();
        closed.dedup_by(|later, earlier| plain(later) == plain(earlier));
        closed
    }

    /// The text of all files. The last line may be incomplete while the daemon runs.
    pub(crate) fn text(&self) -> String {
        let mut bytes = Vec::new();
        for path in self.closed().iter().chain([&self.active]) {
            // A file that was compressed meanwhile is found under its new name at the next attempt.
            let Ok(file) = std::fs::File::open(path) else { continue };
            let mut reader: Box<dyn Read> = match path.extension().and_then(|extension| extension.to_str()) {
                Some("gz") => Box::new(flate2::read::MultiGzDecoder::new(file)),
                Some("zst") => Box::new(zstd::Decoder::new(file).unwrap()),
                _ => Box::new(file),
            };
            reader.read_to_end(&mut bytes).unwrap();
        }
        String::from_utf8(bytes).unwrap()
    }

    pub(crate) fn lines(&self) -> usize {
        self.text().bytes().filter(|byte| *byte == b'\n').count()
    }

    /// The offsets of all lines, in order. Asserts that no line is incomplete.
    pub(crate) fn offsets(&self) -> Vec<i64> {
        let text = self.text();
        assert!(text.is_empty() || text.ends_with('\n'), "the last line is incomplete");
        text.lines().map(|line| place(line).1).collect()
    }

    /// The offsets of a channel's lines, in order.
    pub(crate) fn offsets_of(&self, channel: &str) -> Vec<i64> {
        let places = self.text().lines().map(place).collect::<Vec<_>>();
        places.into_iter().filter(|(of, _)| of.as_deref() == Some(channel)).map(|(_, offset)| offset).collect()
    }
}

fn plain(path: &Path) -> PathBuf {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("gz" | "zst") => path.with_extension(""),
        _ => path.to_owned(),
    }
}

/// The channel's name and the offset in a line of any format.
pub(crate) fn place(line: &str) -> (Option<String>, i64) {
    let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let record = if line["specversion"].is_string() { &line["data"] } else { &line };
    let offset = record["offset"].as_i64().or_else(|| line["headers"]["offset"].as_i64());
    (record["channel"].as_str().map(str::to_owned), offset.unwrap())
}
