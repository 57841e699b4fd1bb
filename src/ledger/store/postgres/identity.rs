//! Which state an instance uses, so that it does not take an empty, another or an incomplete one for it.
//!
//! The id is in the database. The instance remembers it in its runtime directory, and while it runs. Without a directory, or
//! after the file was lost, the first state that it finds is its own: this is normal for a container without a volume.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use uuid::Uuid;

use crate::StateError;
use crate::store::used::{Used, UsedDatabase};
use net::tasks::lock;

/// The state that this instance uses.
#[derive(Debug, Default)]
pub(super) struct Identity {
    known: Mutex<Option<Uuid>>,
    /// Where it is remembered, and the database in words.
    remembered: Option<(PathBuf, String)>,
    /// A copy opens a state that is incomplete. Nothing else does.
    is_copying: bool,
}

impl Identity {
    /// As the runtime directory remembers it. `database` says in words which database it is.
    ///
    /// # Errors
    /// If what is remembered cannot be read.
    pub(super) fn remembered(directory: PathBuf, database: String) -> Result<Self, StateError> {
        let known = Used::read(&directory)?.database.map(|database| database.id);
        Ok(Self { known: Mutex::new(known), remembered: Some((directory, database)), is_copying: false })
    }

    /// The state that a copy begins or reads. `known` is the state that it has to be, if that is known.
    pub(super) fn of_copy(known: Option<Uuid>) -> Self {
        Self { known: Mutex::new(known), remembered: None, is_copying: true }
    }

    /// The id of the state, once there was a connection.
    pub(super) fn known(&self) -> Option<Uuid> {
        *lock(&self.known)
    }

    /// The schema is not there.
    pub(super) fn check_may_create(&self, schema: &str) -> Result<(), StateError> {
        match self.known() {
            None => Ok(()),
            Some(_) => Err(unusable(gone(schema, &self.remedy()))),
        }
    }

    /// The state has this id.
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
        // Several connections find it at the same time. If the state is replaced just then, the first one decides.
        let known = *lock(&self.known).get_or_insert(id);
        if known == id { Ok(()) } else { Err(unusable(replaced(schema, &self.remedy()))) }
    }

    fn remedy(&self) -> String {
        remedy(self.remembered.as_ref().map(|(directory, _)| directory))
    }
}

/// What to do if the state of a schema has gone.
pub(super) fn gone(schema: &str, remedy: &str) -> String {
    format!("the state in schema {schema} has gone, and is not created anew: {remedy}")
}

/// What to do if a schema has another state than before.
pub(super) fn replaced(schema: &str, remedy: &str) -> String {
    format!("the state in schema {schema} is not the one that this instance has used: {remedy}")
}

/// What to do about an incomplete copy.
pub(super) fn incomplete(schema: &str) -> String {
    format!(
        "the state in schema {schema} is an incomplete copy: run `channeld state copy --to postgres` again, which begins anew, or \
         use the other backend"
    )
}

/// How to go on. With a directory, the file in it is what remembers the state.
pub(super) fn remedy(directory: Option<&PathBuf>) -> String {
    let anew = directory.map_or_else(
        || "start this instance again".to_owned(),
        |directory| format!("stop every instance and remove {}", Used::file(directory).display()),
    );
    format!(
        "restore the database; or, to begin with what is there now, where channels without state start at `start`, {anew}"
    )
}

/// Such a database is waited for, as one that is away: an operator may restore it meanwhile.
fn unusable(why: String) -> StateError {
    StateError::Database(Arc::new(StateError::Unusable(why)))
}
