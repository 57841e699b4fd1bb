//! The files that the sinks of this process have open.
//!
//! Symbolic links may change after the configuration was read. Therefore the files are compared again when a file is
//! opened.

use std::io;
use std::sync::{Arc, Mutex};

use super::closed::ClosedFiles;
use super::place::Place;
use net::tasks::lock;

/// The files that are open. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct OpenFiles(Arc<Mutex<Vec<Arc<ClosedFiles>>>>);

/// A file that counts as open until this is dropped.
#[derive(Debug)]
pub(super) struct Claim {
    files: Arc<ClosedFiles>,
    open: OpenFiles,
}

impl OpenFiles {
    /// Registers a file as open. Refuses it if its path or its closed files could be confused with the path or the closed
    /// files of another open file.
    pub(super) fn claim(&self, files: &ClosedFiles) -> io::Result<Claim> {
        let mut open = lock(&self.0);
        if let Some(other) = open.iter().find(|other| mixes(files, other)) {
            let other = other.active.display();
            let message = format!("its closed files would be mixed up with those of the sink that writes to {other}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let files = Arc::new(files.clone());
        open.push(files.clone());
        Ok(Claim { files, open: self.clone() })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        lock(&self.open.0).retain(|other| !Arc::ptr_eq(other, &self.files));
    }
}

fn mixes(one: &ClosedFiles, other: &ClosedFiles) -> bool {
    let claims =
        |one: &ClosedFiles, other: &Place| other.name().is_some_and(|name| one.name.claims(&name.to_string_lossy()));
    let (place, other_place) = (Place::of(&one.active), Place::of(&other.active));
    let overlap = one.name.overlaps(&other.name) || claims(one, &other_place) || claims(other, &place);
    place.is(&other_place) || (place.is_beside(&other_place) && overlap)
}
