//! Identifies the state that an instance uses, so that the instance does not continue with an empty, different or
//! incomplete state.
//!
//! The id is stored in the database. The instance remembers it in its runtime directory and in memory. If it has no
//! directory, or the file was lost, it accepts the first state that it finds. This is normal for a container without a
//! volume.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use uuid::Uuid;

use crate::StateError;
use crate::store::used::{Used, UsedDatabase};
use net::tasks::lock;

/// The state that this instance uses.
#[derive(Debug, Default)]
pub(super) struct Identity {
    known: Mutex<Option<Uuid>>,
    /// The directory that remembers the state, and a description of the database.
    remembered: Option<(PathBuf, String)>,
    /// A copy opens an incomplete state. Nothing else does.
    is_copying: bool,
}

impl Identity {
    /// Reads the identity from the runtime directory. `database` describes the database.
    ///
    /// # Errors
    /// If the remembered identity cannot be read.
    pub(super) fn remembered(directory: PathBuf, database: String) -> Result<Self, StateError> {
        let known = Used::read(&directory)?.database.map(|database| database.id);
        Ok(Self { known: Mutex::new(known), remembered: Some((directory, database)), is_copying: false })
    }

    /// The identity for a copy from or to a state. `known` is the required state, if it is known.
    pub(super) fn of_copy(known: Option<Uuid>) -> Self {
        Self { known: Mutex::new(known), remembered: None, is_copying: true }
    }

    /// The id of the state. Known after the first connection, or from the runtime directory.
    pub(super) fn known(&self) -> Option<Uuid> {
        *lock(&self.known)
    }

    /// Checks whether a missing schema may be created.
    pub(super) fn check_may_create(&self, schema: &str) -> Result<(), StateError> {
        match self.known() {
            None => Ok(()),
            Some(_) => Err(unusable(gone(schema, &self.remedy()))),
        }
    }

    /// Checks that the state with this id may be used.
    pub(super) async fn check(&self, schema: &str, id: Uuid, is_incomplete: bool) -> Result<(), StateError> {
        if self.known().is_some_and(|known| known != id) {
            return Err(unusable(replaced(schema, &self.remedy())));
        }
        if is_incomplete && !self.is_copying {
            return Err(unusable(incomplete(schema)));
        }
        if let (None, Some((directory, place))) = (self.known(), &self.remembered) {
            let database = UsedDatabase { id, schema: schema.to_owned(), database: place.clone() };
            let directory = directory.clone();
            let written = tokio::task::spawn_blocking(move || database.remember_in(&directory)).await;
            written.unwrap_or_else(|panic| Err(StateError::Damaged(panic.to_string())))?;
        }
        // Several connections can find the state at the same time. If the state is replaced at that moment, the first
        // one decides.
        let known = *lock(&self.known).get_or_insert(id);
        if known == id { Ok(()) } else { Err(unusable(replaced(schema, &self.remedy()))) }
    }

    fn remedy(&self) -> String {
        remedy(self.remembered.as_ref().map(|(directory, _)| directory))
    }
}

/// The error text if the state of a schema has disappeared.
pub(super) fn gone(schema: &str, remedy: &str) -> String {
    format!("the state in schema {schema} is gone, and is not created automatically: {remedy}")
}

/// The error text if a schema contains a different state than before.
pub(super) fn replaced(schema: &str, remedy: &str) -> String {
    format!("the state in schema {schema} is a different one than this instance has used: {remedy}")
}

/// The error text for an incomplete copy.
pub(super) fn incomplete(schema: &str) -> String {
    format!(
        "the state in schema {schema} is an incomplete copy: run `channeld state copy --to postgres` again, which starts over, or use the other backend"
    )
}

/// How to continue. If a directory is given, the file in it remembers the state.
pub(super) fn remedy(directory: Option<&PathBuf>) -> String {
    let anew = directory.map_or_else(
        || "start this instance again".to_owned(),
        |directory| format!("stop every instance and remove {}", Used::file(directory).display()),
    );
    format!(
        "restore the database; or, to use the present database, in which channels without state begin at `start`, {anew}"
    )
}

/// Makes it an error of the database, which is waited for like an unavailable database: an operator may restore the
/// state in the meantime.
fn unusable(why: String) -> StateError {
    StateError::Database(Arc::new(StateError::Unusable(why)))
}

impl UsedDatabase {
    /// Records this database in a state directory.
    pub(super) fn remember_in(self, directory: &Path) -> Result<(), StateError> {
        Used::change(directory, |used| used.database = Some(self))
    }
}
