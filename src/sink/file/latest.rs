//! A symbolic link to the file closed last: what takes closed files away need not look for it. (The active file needs
//! none, its path stays.)
//!
//! # Invariants
//!
//! * **Replaced in one step.** A new link is made beside it and renamed onto it: it always leads to a whole file. It
//!   leads to the compressed file before the plain one is removed.
//! * **Only a link is replaced.** A file that stands there is left alone, and complained about.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::closed::file_name;
use super::name::UNFINISHED;

/// Lets `link` lead to a file.
pub(super) fn point(link: &Path, to: &Path) -> io::Result<()> {
    let directory = match link.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let target = if fs::canonicalize(directory).ok().as_deref() == to.parent() {
        PathBuf::from(file_name(to))
    } else {
        to.to_owned()
    };
    match fs::read_link(link) {
        Ok(now) if now == target => return Ok(()),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) if error.kind() == ErrorKind::InvalidInput => {
            return Err(io::Error::new(ErrorKind::AlreadyExists, "it is no symbolic link: remove it, or name another"));
        }
        Err(error) => return Err(error),
    }
    let beside = directory.join(format!(".{}{UNFINISHED}", file_name(link)));
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    symlink(target, &beside)?;
    fs::rename(beside, link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_replaced_and_nothing_else_is() {
        let directory = tempfile::tempdir().unwrap();
        let real = fs::canonicalize(directory.path()).unwrap();
        let other = tempfile::tempdir().unwrap();
        for (link, expected) in
            [(directory.path().join("latest"), PathBuf::from("two")), (other.path().join("latest"), real.join("two"))]
        {
            point(&link, &real.join("one")).unwrap();
            point(&link, &real.join("two")).unwrap();
            point(&link, &real.join("two")).unwrap();
            assert_eq!(fs::read_link(link).unwrap(), expected);
        }
        let file = directory.path().join("file");
        fs::write(&file, "mine").unwrap();
        let error = point(&file, &real.join("one")).unwrap_err();
        assert!(error.to_string().contains("no symbolic link"), "{error}");
        assert_eq!(fs::read_to_string(file).unwrap(), "mine");
    }
}
