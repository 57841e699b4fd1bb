//! `state.json` records which states the owner of a state directory has used. A state that has disappeared is therefore
//! not mistaken for a new one.
//!
//! # Invariants
//!
//! * **Never torn.** The file is written under another name, synced, and renamed.
//! * **Optional.** If the file is missing, the state that is found is used.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::directory::{USED, USED_NEXT, replace};
use crate::StateError;

/// The states that were used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Used {
    /// Whether this directory has contained a state of its own.
    #[serde(default)]
    pub(super) sled: bool,
    /// The state in a database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) database: Option<UsedDatabase>,
}

/// A state in a database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UsedDatabase {
    /// The id of the state, which the database contains too.
    pub(super) id: Uuid,
    /// The schema, for display.
    pub(super) schema: String,
    /// The database, for display.
    pub(super) database: String,
}

impl Used {
    /// The path of the file in a state directory.
    pub(super) fn file(directory: &Path) -> PathBuf {
        directory.join(USED)
    }

    /// Reads the file. If it does not exist, no state was used.
    pub(super) fn read(directory: &Path) -> Result<Self, StateError> {
        let path = Self::file(directory);
        match fs::read(&path) {
            Ok(json) => serde_json::from_slice(&json).map_err(|_| {
                let path = path.display();
                StateError::Unusable(format!("{path} cannot be read: if this is the right state, remove that file"))
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(StateError::io(format!("reading {}", path.display()), error)),
        }
    }

    /// Changes the file, and returns when the change is on disk. Only the owner of the locked directory may call this.
    pub(super) fn change(directory: &Path, change: impl FnOnce(&mut Self)) -> Result<(), StateError> {
        let before = Self::read(directory)?;
        let mut used = before.clone();
        change(&mut used);
        if used == before {
            return Ok(());
        }
        replace(directory, USED, USED_NEXT, &used)
    }
}
