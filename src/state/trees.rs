//! What the state needs of a database: a few ordered maps that change together. A trait, so that what a commit means can
//! be held against a database in memory.

use std::fmt;

use bytes::Bytes;

use super::StateError;

/// The maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tree {
    /// By lane: how far it has got.
    Cursors,
    /// By event: who is owed it.
    Late,
    /// By event: what is known of it.
    Quarantine,
    /// By event: the bytes of what is late or quarantined.
    Json,
    /// By channel: the event that everything else of it waits for, in strict ordering.
    Blockers,
    /// By event and sink: what that sink gave up on, with its bytes.
    DeadLetters,
}

impl Tree {
    /// All of them, in their order.
    pub(super) const ALL: [Self; 6] =
        [Self::Cursors, Self::Late, Self::Quarantine, Self::Json, Self::Blockers, Self::DeadLetters];

    /// Its name in the database.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Cursors => "cursors",
            Self::Late => "late",
            Self::Quarantine => "quarantine",
            Self::Json => "json",
            Self::Blockers => "blockers",
            Self::DeadLetters => "dead-letters",
        }
    }
}

/// A database that is open.
pub(super) trait Database: Send + Sync + fmt::Debug {
    fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<Bytes>, StateError>;

    /// Shows every entry whose key begins with `prefix`, in the order of the keys.
    fn scan(&self, tree: Tree, prefix: &[u8], see: &mut See<'_>) -> Result<(), StateError>;

    /// Makes every change that `change` asks for, or none of them, and hands them to the operating system. It may be
    /// asked more than once, and what it is told last counts.
    fn transact(&self, change: &Change<'_>) -> Result<(), StateError>;
}

/// Is shown the key and the value of an entry.
pub(super) type See<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), StateError> + 'a;

/// Says what is to change.
pub(super) type Change<'a> = dyn Fn(&dyn Trees) -> Result<(), Aborted> + 'a;

/// The maps inside a transaction: what it has changed so far is there.
pub(super) trait Trees {
    fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<Bytes>, Aborted>;

    fn insert(&self, tree: Tree, key: &[u8], value: &[u8]) -> Result<(), Aborted>;

    /// Whether there was such an entry.
    fn remove(&self, tree: Tree, key: &[u8]) -> Result<bool, Aborted>;
}

/// Why a transaction changes nothing.
#[derive(Debug)]
pub(super) enum Aborted {
    /// It must not, or it cannot.
    Failed(StateError),
    /// Another got in between: the database asks again.
    Conflict,
}

impl From<StateError> for Aborted {
    fn from(error: StateError) -> Self {
        Self::Failed(error)
    }
}
