//! The closed files of a sink, as they stand in its directory.
//!
//! # Invariants
//!
//! * **Only the sink's own.** Regular files whose names the template writes, and what is made of them: compressed
//!   (`NAME.gz`, `NAME.zst`) or unfinished (`.NAME.gz.tmp`). No other file is listed, and so none is touched.
//! * **A marked file stays as it is.** `NAME.keep` or `NAME.gz.keep`, which an operator makes and removes, keeps `NAME` from
//!   being deleted and from being compressed.
//! * **The directory is all there is to know.** An operator may move closed files away at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::compression::{Compression, reader};
use super::index::Index;
use super::name::{ClosedName, KEEP, UNFINISHED, closing_time};
use super::opening::{Doing, if_there};
use crate::SinkError;
use proof::event::Offset;

/// Where a sink's closed files stand, and what they are called.
#[derive(Clone, Debug)]
pub(super) struct ClosedFiles {
    /// The active file itself, whatever links lead to it.
    pub(super) active: PathBuf,
    pub(super) name: ClosedName,
}

/// A closed file: plain, compressed or, for a while, both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Closed {
    /// When it was closed. No two files of a sink have the same time.
    pub(super) time: Timestamp,
    /// Its plain name.
    pub(super) name: String,
    /// The length of each form that stands there. `None` is the plain one, and comes first.
    pub(super) forms: BTreeMap<Option<Compression>, u64>,
    /// Whether an operator wants it to stay.
    pub(super) marked: bool,
}

impl Closed {
    /// The compressed form, where there is one.
    pub(super) fn packed(&self) -> Option<Compression> {
        self.forms.keys().find_map(|form| *form)
    }
}

impl ClosedFiles {
    /// The files that stand there now, the oldest first.
    pub(super) fn list(&self) -> Result<Vec<Closed>, SinkError> {
        let entries = self.entries()?;
        let marks = entries.iter().filter_map(|entry| entry.strip_suffix(KEEP));
        let marks: BTreeSet<&str> = marks.map(|marked| Compression::split(marked).0).collect();
        let mut found = BTreeMap::new();
        for entry in &entries {
            let (name, form) = Compression::split(entry);
            let Some(time) = self.name.read(name) else { continue };
            let path = self.directory().join(entry);
            let metadata = if_there(fs::symlink_metadata(&path)).doing("reading", &path)?;
            let Some(metadata) = metadata.filter(fs::Metadata::is_file) else { continue };
            let closed = found.entry((time, name)).or_insert_with(|| Closed {
                time,
                name: name.to_owned(),
                forms: BTreeMap::new(),
                marked: marks.contains(name),
            });
            closed.forms.insert(form, metadata.len());
        }
        Ok(found.into_values().collect())
    }

    /// What a crash has left half-made, or what is being made.
    pub(super) fn unfinished(&self) -> Result<Vec<PathBuf>, SinkError> {
        let is_unfinished = |entry: &String| {
            let packed = entry.strip_prefix('.').and_then(|entry| entry.strip_suffix(UNFINISHED));
            packed.map(Compression::split).is_some_and(|(name, form)| form.is_some() && self.name.read(name).is_some())
        };
        Ok(self.entries()?.into_iter().filter(is_unfinished).map(|entry| self.directory().join(entry)).collect())
    }

    /// The names in the directory. One that is not UTF-8 is none of the sink's.
    fn entries(&self) -> Result<Vec<String>, SinkError> {
        let entries = fs::read_dir(self.directory()).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let entries = entries.doing("reading", self.directory())?;
        Ok(entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok()).collect())
    }

    /// The path for a file that is closed now.
    pub(super) fn next(&self, first: Option<Offset>, last: Option<Offset>) -> Result<PathBuf, SinkError> {
        let newest = self.list()?.last().map(|closed| closed.time);
        let time = closing_time(newest.max(Index::load(self)?.seen), Timestamp::now());
        Ok(self.directory().join(self.name.write(time, first, last)))
    }

    /// Opens a closed file, in whichever form it stands there by now. `None` where it was removed.
    pub(super) fn reader(&self, name: &str) -> io::Result<Option<Box<dyn BufRead>>> {
        // The plain form once more: the file may be decompressed between two attempts.
        for form in [None, Some(Compression::Gzip), Some(Compression::Zstd), None] {
            if let Some(reader) = if_there(reader(&self.path(name, form), form))? {
                return Ok(Some(reader));
            }
        }
        Ok(None)
    }

    pub(super) fn directory(&self) -> &Path {
        self.active.parent().expect("a file that was opened stands in a directory")
    }

    /// The path of a form of a closed file.
    pub(super) fn path(&self, name: &str, form: Option<Compression>) -> PathBuf {
        self.directory().join(format!("{name}{}", form.map_or("", Compression::ending)))
    }

    /// Where the [`Index`] stands.
    pub(super) fn index_path(&self) -> PathBuf {
        self.directory().join(format!(".{}.index", file_name(&self.active)))
    }
}

/// Where a file is made before it is renamed to `path`.
pub(super) fn unfinished(path: &Path) -> PathBuf {
    path.with_file_name(format!(".{}{UNFINISHED}", file_name(path)))
}

/// The name that a path ends with.
pub(super) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
