//! Lists the closed files in a sink's directory, compresses them, and reads them.
//!
//! # Invariants
//!
//! * **Only the sink's own files.** The list contains regular files whose names match the template, and their compressed
//!   (`NAME.gz`, `NAME.zst`) and unfinished (`.NAME.gz.tmp`) forms. No other file is listed, so no other file is touched.
//! * **A marked file stays as it is.** An operator creates and removes the mark, `NAME.keep` or `NAME.gz.keep`. While the
//!   mark exists, `NAME` is neither deleted nor compressed.
//! * **The directory is the only source of truth.** An operator may move closed files away at any time.
//! * **The plain file is removed last.** The compressed file is written under a temporary name, synced and then renamed.
//!   The plain file is removed only after the two were compared.
//! * **No other file is replaced.** If another file already has the name of the compressed file, that file stays.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use flate2::bufread::{GzEncoder, MultiGzDecoder};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::lines::{EventLine, events};
use crate::SinkError;
use crate::system::{IoContext, if_there, lock, rename_new, sync_directory};

pub(super) mod index;
pub(super) mod name;

use name::{ClosedName, Compression, KEEP, UNFINISHED, file_name, unfinished};

/// The size of the chunks in which files are read and written.
const CHUNK: usize = 128 * 1024;

/// The directory and the naming scheme of a sink's closed files.
#[derive(Clone, Debug)]
pub(super) struct ClosedFiles {
    /// The path of the active file, with symbolic links resolved.
    pub(super) active: PathBuf,
    pub(super) name: ClosedName,
}

/// A closed file: plain, compressed or, temporarily, both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClosedFile {
    /// The time when the file was closed. No two files of a sink have the same time.
    pub(super) time: Timestamp,
    /// The name of the plain form.
    pub(super) name: String,
    /// The length of each form that exists. `None` is the plain form, and comes first.
    pub(super) forms: BTreeMap<Option<Compression>, u64>,
    pub(super) marked: bool,
}

impl ClosedFile {
    /// The compression of the compressed form, if that form exists.
    pub(super) fn packed(&self) -> Option<Compression> {
        self.forms.keys().find_map(|form| *form)
    }
}

impl ClosedFiles {
    /// The closed files that exist now, the oldest first.
    pub(super) fn list(&self) -> Result<Vec<ClosedFile>, SinkError> {
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
            let closed = found.entry((time, name)).or_insert_with(|| ClosedFile {
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

    /// The events in a closed file. A file that was removed in the meantime has none.
    pub(super) fn events(&self, closed: &ClosedFile) -> impl Iterator<Item = Result<EventLine, SinkError>> + use<> {
        let path = self.path(&closed.name, None);
        let (reader, error) = match self.reader(&closed.name) {
            Ok(reader) => (reader, None),
            Err(error) => (None, Some(Err(error))),
        };
        error.into_iter().chain(reader.into_iter().flat_map(events)).map(move |event| event.doing("reading", &path))
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

    pub(super) fn path(&self, name: &str, form: Option<Compression>) -> PathBuf {
        self.directory().join(format!("{name}{}", form.map_or("", Compression::ending)))
    }

    pub(super) fn index_path(&self) -> PathBuf {
        self.directory().join(format!(".{}.index", file_name(&self.active)))
    }
}

/// Compresses a closed file, and keeps the plain file. The error is `AlreadyExists` if a file named `packed` exists, and
/// `TimedOut` if `stop` has fired between two chunks. After an error, the unfinished file is removed.
pub(super) fn pack(plain: &Path, packed: &Path, compression: Compression, stop: &CancellationToken) -> io::Result<()> {
    let unfinished = unfinished(packed);
    if let Err(error) = write(compression, plain, &unfinished, stop).and_then(|()| rename_new(&unfinished, packed)) {
        // If this fails, the next run of the upkeep removes the file.
        let _ = fs::remove_file(unfinished);
        return Err(error);
    }
    sync_directory(packed)
}

fn write(compression: Compression, plain: &Path, unfinished: &Path, stop: &CancellationToken) -> io::Result<()> {
    let plain = File::open(plain)?;
    let mut packed = OpenOptions::new().write(true).create_new(true).mode(0o600).open(unfinished)?;
    lock(&packed)?;
    let read = BufReader::with_capacity(CHUNK, &plain);
    let mut packing: Box<dyn Read + '_> = match compression {
        Compression::Gzip => Box::new(GzEncoder::new(read, flate2::Compression::default())),
        Compression::Zstd => {
            let mut packing = zstd::stream::read::Encoder::with_buffer(read, zstd::DEFAULT_COMPRESSION_LEVEL)?;
            packing.include_checksum(true)?;
            Box::new(packing)
        }
    };
    while io::copy(&mut packing.by_ref().take(CHUNK as u64), &mut packed)? > 0 {
        require_running(stop)?;
    }
    // The compressed file gets the permissions and the owner of the plain file.
    let (from, to) = (plain.metadata()?, packed.metadata()?);
    if (from.uid(), from.gid()) != (to.uid(), to.gid()) {
        fchown(&packed, Some(from.uid()), Some(from.gid()))?;
    }
    packed.set_permissions(from.permissions())?;
    packed.sync_all()
}

/// Opens a file, and decompresses it while reading if `form` is not plain.
pub(super) fn reader(path: &Path, form: Option<Compression>) -> io::Result<Box<dyn BufRead>> {
    let file = BufReader::with_capacity(CHUNK, File::open(path)?);
    Ok(match form {
        None => Box::new(file),
        Some(Compression::Gzip) => Box::new(BufReader::with_capacity(CHUNK, MultiGzDecoder::new(file))),
        Some(Compression::Zstd) => Box::new(BufReader::with_capacity(CHUNK, zstd::Decoder::with_buffer(file)?)),
    })
}

/// Whether a compressed file has the same content as the plain file. The error is `TimedOut` if `stop` has fired.
pub(super) fn is_same(
    plain: &Path,
    packed: &Path,
    compression: Compression,
    stop: &CancellationToken,
) -> io::Result<bool> {
    let (mut plain, mut packed) = (reader(plain, None)?, reader(packed, Some(compression))?);
    loop {
        require_running(stop)?;
        let (left, right) = (plain.fill_buf()?, packed.fill_buf()?);
        let length = left.len().min(right.len());
        if left[..length] != right[..length] {
            return Ok(false);
        }
        if length == 0 {
            return Ok(left.is_empty() && right.is_empty());
        }
        plain.consume(length);
        packed.consume(length);
    }
}

fn require_running(stop: &CancellationToken) -> io::Result<()> {
    if stop.is_cancelled() { Err(io::Error::new(ErrorKind::TimedOut, "stopped")) } else { Ok(()) }
}
