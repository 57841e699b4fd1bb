//! The files with secrets, which are written at the end.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::cli::context::CommandError;

/// The secret files that this program has written. They are removed when this value is dropped, unless they are kept.
#[derive(Default)]
pub(super) struct NewSecrets(Vec<PathBuf>);

impl NewSecrets {
    /// Writes a secret to a new file with mode 0600.
    pub(super) fn write(&mut self, path: &Path, secret: &str) -> Result<(), CommandError> {
        let failed = || CommandError::io(format!("the secret could not be written to {}", path.display()));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed())?;
        self.0.push(path.to_owned());
        writeln!(file, "{secret}").and_then(|()| file.sync_all()).map_err(failed())
    }

    pub(super) fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for NewSecrets {
    fn drop(&mut self) {
        for path in &self.0 {
            if let Err(error) = fs::remove_file(path) {
                anstream::eprintln!("channeld: {} could not be removed: {error}", path.display());
            }
        }
    }
}
