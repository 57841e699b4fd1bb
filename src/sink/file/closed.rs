//! Lists the closed files in a sink's directory.
//!
//! # Invariants
//!
//! * **Only the sink's own files.** The list contains regular files whose names match the template, and their compressed
//!   (`NAME.gz`, `NAME.zst`) and unfinished (`.NAME.gz.tmp`) forms. No other file is listed, so no other file is touched.
//! * **A marked file stays as it is.** An operator creates and removes the mark, `NAME.keep` or `NAME.gz.keep`. While the
//!   mark exists, `NAME` is neither deleted nor compressed.
//! * **The directory is the only source of truth.** An operator may move closed files away at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::system::{Doing, if_there};
use crate::SinkError;

pub(super) mod compression;
pub(super) mod index;
pub(super) mod name;

use compression::reader;
use name::{ClosedName, Compression, KEEP, UNFINISHED, file_name};

/// The directory and the naming scheme of a sink's closed files.
#[derive(Clone, Debug)]
pub(super) struct ClosedFiles {
    /// The path of the active file, with symbolic links resolved.
    pub(super) active: PathBuf,
    pub(super) name: ClosedName,
}

/// A closed file: plain, compressed or, temporarily, both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Closed {
    /// The time when it was closed. No two files of a sink have the same time.
    pub(super) time: Timestamp,
    /// Its plain name.
    pub(super) name: String,
    /// The length of each form that exists. `None` is the plain form, and comes first.
    pub(super) forms: BTreeMap<Option<Compression>, u64>,
    /// Whether an operator has marked it to be kept.
    pub(super) marked: bool,
}

impl Closed {
    /// The compressed form, if it exists.
    pub(super) fn packed(&self) -> Option<Compression> {
        self.forms.keys().find_map(|form| *form)
    }
}

impl ClosedFiles {
    /// The closed files that exist now, the oldest first.
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

    /// Compressed files that a crash left unfinished, or that another task is writing now.
    pub(super) fn unfinished(&self) -> Result<Vec<PathBuf>, SinkError> {
        let is_unfinished = |entry: &String| {
            let packed = entry.strip_prefix('.').and_then(|entry| entry.strip_suffix(UNFINISHED));
            packed.map(Compression::split).is_some_and(|(name, form)| form.is_some() && self.name.read(name).is_some())
        };
        Ok(self.entries()?.into_iter().filter(is_unfinished).map(|entry| self.directory().join(entry)).collect())
    }

    /// The names in the directory. Names that are not UTF-8 are left out: the sink does not create such names.
    fn entries(&self) -> Result<Vec<String>, SinkError> {
        let entries = fs::read_dir(self.directory()).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let entries = entries.doing("reading", self.directory())?;
        Ok(entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok()).collect())
    }

    /// Opens a closed file in the form that exists now. Returns `None` if the file was removed.
    pub(super) fn reader(&self, name: &str) -> io::Result<Option<Box<dyn BufRead>>> {
        // The plain form is tried twice: the file may be decompressed between two attempts.
        for form in [None, Some(Compression::Gzip), Some(Compression::Zstd), None] {
            if let Some(reader) = if_there(reader(&self.path(name, form), form))? {
                return Ok(Some(reader));
            }
        }
        Ok(None)
    }

    pub(super) fn directory(&self) -> &Path {
        self.active.parent().expect("an open file has a parent directory")
    }

    /// The path of a form of a closed file.
    pub(super) fn path(&self, name: &str, form: Option<Compression>) -> PathBuf {
        self.directory().join(format!("{name}{}", form.map_or("", Compression::ending)))
    }

    /// The path of the [index](index::Index).
    pub(super) fn index_path(&self) -> PathBuf {
        self.directory().join(format!(".{}.index", file_name(&self.active)))
    }
}
