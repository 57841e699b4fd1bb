//! The operator's file as it was read, and the files that it names.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::problem::ConfigError;
use net::http::PemError;

/// The largest configuration file, in bytes. A thousand channels with filters of their own need less.
const TEXT_LIMIT: usize = 1024 * 1024;

/// The largest file of certificates, in bytes. A system's whole list of authorities is about a fifth of this.
const CERTIFICATES_LIMIT: usize = 1024 * 1024;

/// The largest file of a secret, in bytes.
const SECRET_LIMIT: usize = 64 * 1024;

/// The text of a configuration file, and its path; `None` where there is no file. It may hold secrets: it is not shown.
#[derive(Clone, Default)]
pub struct Text(pub(super) Option<(PathBuf, String)>);

impl Text {
    /// The text that `file` is about to have.
    pub fn written(file: &Path, text: String) -> Self {
        Self(Some((file.to_owned(), text)))
    }

    /// Reads `file`, where there is one.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(file: Option<&Path>) -> Result<Self, ConfigError> {
        let Some(path) = file else { return Ok(Self(None)) };
        let text = read_up_to(path, TEXT_LIMIT)
            .map_err(|error| ConfigError::of_file(path, format!("the file {error}; correct the path or the file")))?;
        Ok(Self(Some((path.to_owned(), text))))
    }
}

/// The secrets, certificates and keys beside the configuration file, as they were just before they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files(BTreeMap<PathBuf, Option<Stamp>>);

/// Device, inode, size, and the times of the last change to the content and to the inode, in seconds and nanoseconds:
/// they tell one content from another without reading it. Of a link they are those of its target, which is what changes
/// where a mounted secret is replaced.
type Stamp = (u64, u64, u64, (i64, i64), (i64, i64));

impl Files {
    /// Notes a file that is about to be read.
    pub(super) fn note(&mut self, path: &Path) {
        self.0.entry(path.to_owned()).or_insert_with(|| stamp(path));
    }

    /// Whether one of them has changed.
    pub fn have_changed(&self) -> bool {
        self.0.iter().any(|(path, before)| stamp(path) != *before)
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let stamp = |file: Metadata| {
        (file.dev(), file.ino(), file.size(), (file.mtime(), file.mtime_nsec()), (file.ctime(), file.ctime_nsec()))
    };
    std::fs::metadata(path).ok().map(stamp)
}

/// Whether every user of this machine may read a file.
pub(super) fn is_open_to_all(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.mode() & 0o004 != 0)
}

/// Reads a file of at most `bound` bytes, a multiple of 1024, as text. The error continues the sentence "the file …".
pub(super) fn read_up_to(path: &Path, bound: usize) -> Result<String, String> {
    let file = File::open(path).map_err(|error| format!("cannot be opened: {error}"))?;
    let mut bytes = Vec::new();
    file.take(bound as u64 + 1).read_to_end(&mut bytes).map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() > bound {
        return Err(format!("is larger than {} KiB", bound / 1024));
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8 text".to_owned())
}

/// The secret in a file, without the line break at its end.
pub(super) fn read_secret(path: &str) -> Result<String, String> {
    // A secret may stand where the path belongs, and must not reach a log: only what is clearly a path is shown.
    let shown = if path.starts_with(['/', '.']) { format!("the file {path:?}") } else { "the file".to_owned() };
    let text = read_up_to(Path::new(path), SECRET_LIMIT);
    let text = text.map_err(|error| format!("{shown} {error}; create it, or correct the path"))?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(format!("{shown} is empty; put the secret into it")),
        text => Ok(text.to_owned()),
    }
}

/// What a file of certificates holds.
pub(super) fn read_pem<T>(path: &str, parse: impl FnOnce(&str) -> Result<T, PemError>) -> Result<T, String> {
    let text = read_up_to(Path::new(path), CERTIFICATES_LIMIT);
    let text = text.map_err(|error| format!("the file {path:?} {error}; create it, or correct the path"))?;
    explain_pem(parse(&text))
}

pub(super) fn explain_pem<T>(parsed: Result<T, PemError>) -> Result<T, String> {
    parsed.map_err(|error| format!("the file {error}"))
}
