//! The closed files of a sink: what stands in the directory.
//!
//! # Invariants
//!
//! * **Only ours.** Regular files whose names the template writes, and what this sink makes of them: compressed
//!   (`NAME.gz`, `NAME.zst`) or unfinished (`.NAME.gz.tmp`). Nothing else is listed, and so nothing else is touched.
//! * **A file that is marked stays as it is.** A `NAME.keep` beside `NAME`, whatever is in it, keeps `NAME` from being deleted
//!   and from being compressed; `NAME.gz.keep` does so too. An operator makes and removes it.
//! * **The directory is all there is to know.** Nothing is remembered of closed files that an operator could not change
//!   by moving files.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::compression::{Compression, reader};
use super::finding::{Goes, Search};
use super::name::{ClosedName, KEEP, Stamp, UNFINISHED};

/// Where a sink's closed files stand, and what they are called.
#[derive(Clone, Debug)]
pub(super) struct Shelf {
    directory: PathBuf,
    /// The active file's own name.
    active: String,
    name: ClosedName,
}

/// A closed file, in one form or, for a while, in two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Closed {
    pub(super) stamp: Stamp,
    /// Its plain name.
    pub(super) name: String,
    /// How many bytes the plain file has, where there is one.
    pub(super) plain: Option<u64>,
    /// And the compressed ones.
    pub(super) packed: BTreeMap<Compression, u64>,
    /// Whether an operator wants it to stay.
    pub(super) marked: bool,
}

/// What stands in the directory.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// The oldest first.
    pub(super) closed: Vec<Closed>,
    /// What a crash has left half-made, or what is being made.
    pub(super) unfinished: Vec<PathBuf>,
}

impl Shelf {
    /// `real` is the active file itself, whatever links lead to it.
    pub(super) fn beside(real: &Path, name: ClosedName) -> io::Result<Self> {
        let parts = real.parent().zip(real.file_name());
        let (directory, active) =
            parts.ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "it has no directory"))?;
        Ok(Self { directory: directory.to_owned(), active: active.to_string_lossy().into_owned(), name })
    }

    pub(super) fn name(&self) -> &ClosedName {
        &self.name
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Where a compressed file is made.
    pub(super) fn unfinished(&self, name: &str, compression: Compression) -> PathBuf {
        self.path(&format!(".{name}{}{UNFINISHED}", compression.ending()))
    }

    /// Where it is noted which of the files hold what.
    pub(super) fn index(&self) -> PathBuf {
        self.path(&format!(".{}.index", self.active))
    }

    /// Looks at what stands there now.
    pub(super) fn look(&self) -> io::Result<Standing> {
        let (mut found, mut marks, mut unfinished) = (BTreeMap::new(), Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let file_name = entry.file_name();
            let Some(file_name) = file_name.to_str() else { continue };
            if let Some(marked) = file_name.strip_suffix(KEEP) {
                marks.push(Compression::split(marked).0.to_owned());
                continue;
            }
            if let Some(name) = file_name.strip_prefix('.').and_then(|name| name.strip_suffix(UNFINISHED)) {
                let (name, compression) = Compression::split(name);
                if compression.is_some() && self.name.read(name).is_some() {
                    unfinished.push(entry.path());
                }
                continue;
            }
            let (name, compression) = Compression::split(file_name);
            let Some(stamp) = self.name.read(name) else { continue };
            let metadata = match entry.metadata() {
                Ok(metadata) if metadata.is_file() => metadata,
                Ok(_) => continue,
                // Removed since the directory was read.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let closed = found.entry((stamp, name.to_owned())).or_insert_with(|| Closed {
                stamp,
                name: name.to_owned(),
                plain: None,
                packed: BTreeMap::new(),
                marked: false,
            });
            match compression {
                None => closed.plain = Some(metadata.len()),
                Some(compression) => drop(closed.packed.insert(compression, metadata.len())),
            }
        }
        let mut closed: Vec<_> = found.into_values().collect();
        for closed in &mut closed {
            closed.marked = marks.contains(&closed.name);
        }
        Ok(Standing { closed, unfinished })
    }

    /// Opens a closed file, in whichever form it stands there by now. `None` where it was removed.
    pub(super) fn reader(&self, name: &str) -> io::Result<Option<Box<dyn io::BufRead>>> {
        // Once more from the start: between two looks it may have been compressed.
        for compression in [None, Some(Compression::Gzip), Some(Compression::Zstd), None] {
            match reader(&self.form(name, compression), compression) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                opened => return opened.map(Some),
            }
        }
        Ok(None)
    }

    /// Goes on with a search in a closed file. One that was removed meanwhile holds nothing.
    pub(super) fn search(&self, name: &str, search: &mut Search<'_>) -> io::Result<Goes> {
        match fs::File::open(self.path(name)) {
            Ok(plain) => search.backwards(&plain, plain.metadata()?.len()),
            Err(error) if error.kind() == ErrorKind::NotFound => match self.reader(name)? {
                Some(reader) => search.forwards(reader),
                None => Ok(Goes::On),
            },
            Err(error) => Err(error),
        }
    }

    /// The path of a form of a closed file.
    pub(super) fn form(&self, name: &str, compression: Option<Compression>) -> PathBuf {
        self.path(&format!("{name}{}", compression.map_or("", Compression::ending)))
    }
}

impl Closed {
    /// The bytes of all its forms.
    pub(super) fn size(&self) -> u64 {
        self.forms().map(|(_, size)| size).sum()
    }

    /// The forms that stand there, the plain one first.
    pub(super) fn forms(&self) -> impl Iterator<Item = (Option<Compression>, u64)> {
        let packed = self.packed.iter().map(|(compression, size)| (Some(*compression), *size));
        self.plain.map(|size| (None, size)).into_iter().chain(packed)
    }

    /// The form to show to others: once there is a compressed one, the plain one is about to go.
    pub(super) fn lasting(&self) -> Option<Compression> {
        self.packed.keys().next().copied()
    }
}

/// A name that a path ends with.
pub(super) fn file_name(path: &Path) -> String {
    path.file_name().map(OsStr::to_string_lossy).unwrap_or_default().into_owned()
}
