//! `[sinks.NAME]` of type `file`.

use std::path::PathBuf;

use crate::config::keys::{Key, Keys, Reported};
use crate::config::values::path;

/// A file that events are appended to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Where it is. No other sink has the same path.
    pub path: PathBuf,
}

impl File {
    pub(super) fn read(keys: &mut Keys, sink: &Key) -> Result<Self, Reported> {
        Ok(Self { path: keys.required(&sink.at("path"), path)? })
    }
}
