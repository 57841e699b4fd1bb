//! The files that the configuration names: secrets, certificates and keys.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The largest secret file, in bytes.
const SECRET_LIMIT: usize = 64 * 1024;

/// The files with secrets, certificates and keys that the configuration names, as they were just before they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files(BTreeMap<PathBuf, Option<Stamp>>);

/// Device, inode, size, and the times of the last change to the content and to the inode, in seconds and nanoseconds. They
/// distinguish two contents without reading them. For a link they describe its target, because replacing a mounted secret
/// changes the target.
type Stamp = (u64, u64, u64, (i64, i64), (i64, i64));

impl Files {
    /// Records a file that is about to be read.
    pub(crate) fn note(&mut self, path: &Path) {
        self.0.entry(path.to_owned()).or_insert_with(|| stamp(path));
    }

    /// Whether one of the files has changed.
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
pub(crate) fn is_open_to_all(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.mode() & 0o004 != 0)
}

/// Reads a file of at most `bound` bytes, a multiple of 1024, as text. The error continues the sentence "the file …".
pub(crate) fn read_up_to(path: &Path, bound: usize) -> Result<String, String> {
    let file = File::open(path).map_err(|error| format!("cannot be opened: {error}"))?;
    let mut bytes = Vec::new();
    file.take(bound as u64 + 1).read_to_end(&mut bytes).map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() > bound {
        return Err(format!("is larger than {} KiB", bound / 1024));
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8 text".to_owned())
}

/// Reads the secret in a file, without the line break at its end.
pub(crate) fn read_secret(path: &str) -> Result<String, String> {
    // A secret may be set by mistake instead of the path, and must not reach a log. Only a text that is clearly a path is
    // shown.
    let shown = if path.starts_with(['/', '.']) { format!("the file {path:?}") } else { "the file".to_owned() };
    let text = read_up_to(Path::new(path), SECRET_LIMIT);
    let text = text.map_err(|error| format!("{shown} {error}; create it, or correct the path"))?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(format!("{shown} is empty; put the secret into it")),
        text => Ok(text.to_owned()),
    }
}
