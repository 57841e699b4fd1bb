//! `discovered.json` in the state directory: the channels that the daemon has found in the service's list.
//!
//! # Invariants
//!
//! * **Only the process that has locked the state directory writes the file.** Commands read it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::directory::{DISCOVERED, DISCOVERED_NEXT, replace};
use crate::StateError;
use proof::event::ChannelId;

/// A channel that was found in the service's list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscoveredChannel {
    /// The id.
    pub channel_id: ChannelId,
    /// The name that the channel had when it was found. `None` if it had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// The path of the file in a state directory.
pub fn file(directory: &Path) -> PathBuf {
    directory.join(DISCOVERED)
}

/// Returns the channels in the order in which they were found. Blocks. If the file does not exist, no channel was found.
///
/// # Errors
/// If the file cannot be read, or if its content is not the content that [`write()`] wrote.
pub fn read(directory: &Path) -> io::Result<Vec<DiscoveredChannel>> {
    match fs::read(file(directory)) {
        Ok(json) => Ok(serde_json::from_slice(&json)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Replaces the file, and returns when the new file is on disk. Blocks.
///
/// # Errors
/// If the file cannot be written. It is then unchanged.
pub fn write(directory: &Path, channels: &[DiscoveredChannel]) -> Result<(), StateError> {
    replace(directory, DISCOVERED, DISCOVERED_NEXT, &channels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_channels_are_read_as_they_were_written() {
        let directory = tempfile::tempdir().unwrap();
        assert!(read(directory.path()).unwrap().is_empty());
        let channel = |number: u128, name: Option<&str>| DiscoveredChannel {
            channel_id: ChannelId(uuid::Uuid::from_u128(number)),
            name: name.map(str::to_owned),
        };
        let channels = [channel(2, Some("b \"é\"")), channel(1, None)];
        write(directory.path(), &channels).unwrap();
        assert_eq!(read(directory.path()).unwrap(), channels);
        fs::write(file(directory.path()), "[{").unwrap();
        assert_eq!(read(directory.path()).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
