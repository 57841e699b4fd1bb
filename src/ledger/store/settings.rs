//! The location of the state, and how it is opened.

use std::path::PathBuf;
use std::sync::Arc;

use super::directory::Directory;
use super::{Postgres, PostgresSettings, Sled, Store};
use crate::StateError;

/// The location of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateSettings {
    /// `state.path`: the directory of the sled database and the control socket.
    pub path: PathBuf,
    /// The database that the instances share. `None` selects sled.
    pub database: Option<PostgresSettings>,
}

impl StateSettings {
    /// Opens the store. Blocks.
    ///
    /// # Errors
    /// If the directory is in use, or the state cannot be used in its present form.
    pub fn open(self) -> Result<Arc<dyn Store>, StateError> {
        Ok(match self.database {
            None => Arc::new(Sled::open(&self.path)?),
            Some(database) => Arc::new(Postgres::open(Some(&self.path), database)?),
        })
    }

    /// Describes what [`open`](Self::open) would find or create. Does not create or open anything.
    ///
    /// # Errors
    /// If the state cannot be used. The error names the problem.
    pub fn examine(&self) -> Result<String, StateError> {
        match &self.database {
            None => Sled::examine(&self.path),
            Some(_) => Directory::examine(&self.path),
        }
    }
}
