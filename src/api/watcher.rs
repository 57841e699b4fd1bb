//! A watcher's state, as far as anything here depends on it.

use bytes::Bytes;
use serde::Deserialize;

use super::BadAnswer;
use super::page::parse;

/// A watcher as the service shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watcher {
    /// `pending`, `active`, `failed`, `archiving`, `archived`, `archive_failed`, or a word that is new.
    pub status: String,
    /// Why, where the service says so. It may be empty.
    pub status_reason: Option<String>,
    /// The service's JSON, byte for byte.
    pub json: Bytes,
}

impl Watcher {
    pub(super) fn read(body: Bytes) -> Result<Self, BadAnswer> {
        #[derive(Deserialize)]
        struct Wire {
            status: String,
            status_reason: Option<String>,
        }
        let text = std::str::from_utf8(&body).map_err(|_| BadAnswer::NotJson)?;
        let Wire { status, status_reason } = parse(text)?;
        Ok(Self { status, status_reason, json: body })
    }
}
