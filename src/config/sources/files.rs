//! The operator's files, and the files that they name: secrets, certificates and keys.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use toml_edit::ImDocument;

use super::fragments;
use crate::config::key::Key;
use crate::config::problem::ConfigError;

/// The largest configuration file, in bytes. A thousand channels with their own filters need less.
const TEXT_LIMIT: usize = 1024 * 1024;
/// The largest secret file, in bytes.
pub(super) const SECRET_LIMIT: usize = 64 * 1024;

/// The texts of the configuration files with their paths: the main file, and then the files in `conf.d` beside it, in the order of
/// their names. Empty without a file. The texts can contain secrets and are never shown.
#[derive(Clone, Default)]
pub struct ConfigText(pub(crate) Vec<(PathBuf, String)>);

impl ConfigText {
    /// The text that `file` will have, without the files in `conf.d`.
    pub fn written(file: &Path, text: String) -> Self {
        Self(vec![(file.to_owned(), text)])
    }

    /// Reads `file`, if one is given, and the files in `conf.d` beside it.
    ///
    /// # Errors
    /// If one of them cannot be read.
    pub fn read(file: Option<&Path>) -> Result<Self, ConfigError> {
        let Some(main) = file else { return Ok(Self::default()) };
        let read = |path: PathBuf| match read_up_to(&path, TEXT_LIMIT) {
            Ok(text) => Ok((path, text)),
            Err(error) => Err(ConfigError::of_file(&path, format!("the file {error}; correct the path or the file"))),
        };
        let mut texts = vec![read(main.to_owned())?];
        for path in fragments::paths(main)? {
            texts.push(read(path)?);
        }
        Ok(Self(texts))
    }
}

/// Finds the lines of keys in one of the operator's files.
pub(crate) struct Lines {
    document: ImDocument<String>,
    /// The positions of the line ends, in ascending order.
    ends: Vec<usize>,
}

impl Lines {
    /// Returns `None` if the text is not TOML.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let ends = text.match_indices('\n').map(|(at, _)| at).collect();
        Some(Self { document: ImDocument::parse(text.to_owned()).ok()?, ends })
    }

    /// The line of a key, from 1. If the key is not in the file, the line of the nearest table above it in the file.
    pub(crate) fn line(&self, key: &Key) -> Option<usize> {
        let (mut table, mut at) = (self.document.as_item(), None);
        for name in &key.0 {
            let Some((key, value)) = table.as_table_like().and_then(|table| table.get_key_value(name)) else { break };
            at = key.span().or(at);
            table = value;
        }
        let at = at?.start;
        Some(1 + self.ends.partition_point(|end| *end < at))
    }
}

/// The files with secrets, certificates and keys that the configuration names, as they were just before they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files(BTreeMap<PathBuf, Option<Stamp>>);

/// Device, inode, size, and the times of the last change to the content and to the inode, in seconds and nanoseconds. A
/// change of the content changes one of these values, so the content does not have to be read. For a link, they are the
/// values of the target, because replacing a mounted secret changes the target.
type Stamp = (u64, u64, u64, (i64, i64), (i64, i64));

impl Files {
    /// Records a file that is about to be read.
    pub(crate) fn note(&mut self, path: &Path) {
        self.0.entry(path.to_owned()).or_insert_with(|| stamp(path));
    }

    /// The same files as they are now. They differ if one of the files has changed.
    #[must_use]
    pub fn again(&self) -> Self {
        Self(self.0.keys().map(|path| (path.clone(), stamp(path))).collect())
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let file = std::fs::metadata(path).ok()?;
    Some((file.dev(), file.ino(), file.size(), (file.mtime(), file.mtime_nsec()), (file.ctime(), file.ctime_nsec())))
}

/// Whether every user of this machine may read a file.
pub(crate) fn is_open_to_all(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.mode() & 0o004 != 0)
}

/// Reads a regular file of at most `bound` bytes, a multiple of 1024, as text. The error continues the sentence "the file …".
/// Opening or reading a named pipe or a device could block for ever, so they are refused.
pub(crate) fn read_up_to(path: &Path, bound: usize) -> Result<String, String> {
    // With this flag, opening a named pipe does not wait for its writer.
    let mut open = OpenOptions::new();
    open.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let file = open.open(path).map_err(|error| format!("cannot be opened: {error}"))?;
    if !file.metadata().map_err(|error| format!("cannot be read: {error}"))?.is_file() {
        return Err("is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(bound as u64 + 1).read_to_end(&mut bytes).map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() > bound {
        return Err(format!("is larger than {} KiB", bound / 1024));
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8 text".to_owned())
}

/// Reads a file of at most `bound` bytes. The path must not be a secret, because the error contains it.
pub(crate) fn read_named(path: &str, bound: usize) -> Result<String, String> {
    read_shown(path, bound, &format!("the file {path:?}"))
}

fn read_shown(path: &str, bound: usize, shown: &str) -> Result<String, String> {
    read_up_to(Path::new(path), bound).map_err(|error| format!("{shown} {error}; correct the path or the file"))
}

/// Reads the secret in a file, without the line break at its end.
pub(crate) fn read_secret(path: &str) -> Result<String, String> {
    // An operator may have set the secret itself instead of its path, and a secret must not reach a log. The text is
    // therefore shown only if it is clearly a path.
    let shown = if path.starts_with(['/', '.']) { format!("the file {path:?}") } else { "the file".to_owned() };
    match read_shown(path, SECRET_LIMIT, &shown)?.trim_end_matches(['\r', '\n']) {
        text if text.starts_with('\u{feff}') => {
            Err(format!("{shown} begins with a byte order mark; save it as UTF-8 without one"))
        }
        "" => Err(format!("{shown} is empty; put the secret into it")),
        text => Ok(text.to_owned()),
    }
}
