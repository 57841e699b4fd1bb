//! The parts of a watcher's state that channeld uses.

use bytes::Bytes;
use serde::Deserialize;

use super::BadAnswer;
use super::page::{NOT_JSON, parse};

/// A watcher as the service returns it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Watcher {
    /// `pending`, `active`, `failed`, `archiving`, `archived`, `archive_failed`, or a new word.
    pub status: String,
    /// The reason, if the service gives one. It may be empty.
    pub status_reason: Option<String>,
    /// The service's JSON, byte for byte.
    #[serde(skip)]
    pub json: Bytes,
}

impl Watcher {
    pub(super) fn read(body: &Bytes) -> Result<Self, BadAnswer> {
        let text = std::str::from_utf8(body).map_err(|_| BadAnswer(NOT_JSON.into()))?;
        Ok(Self { json: body.clone(), ..parse(text)? })
    }
}
