//! `cursors.json`: every channel's cursors and the number of what is kept of it, readable, replaced as a whole after every
//! commit. What should be in the database is known by it apart from the database.
//!
//! # Invariants
//!
//! * **Never torn.** Written beside, synced, renamed over, and the directory synced: the name always holds one whole
//!   mirror.
//! * **Never ahead.** It is written after the database has been synced, so going on from it repeats events and skips none.
//! * **Small.** Its size is that of the lanes, however many events are late.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::directory::NO_FOLLOW;
use crate::event::{ChannelId, Offset};
use crate::ledger::{Cursor, Lost, StateError, Summary};

pub(super) const NAME: &str = "cursors.json";
/// The next mirror, until it is whole and on disk. What a kill leaves of it, the next one replaces.
pub(super) const NEXT: &str = "cursors.json.new";
const FORMAT: u32 = 2;

/// Where the mirror stands.
#[derive(Clone, Debug)]
pub(super) struct Mirror {
    directory: PathBuf,
}

/// What the mirror says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) channels: BTreeMap<ChannelId, Summary>,
    /// What was lost to damage and no operator has acknowledged.
    pub(super) lost: Option<Lost>,
}

#[derive(Serialize, Deserialize)]
struct Document {
    format: u32,
    channels: BTreeMap<ChannelId, Channel>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lost: Option<Lost>,
}

#[derive(Serialize, Deserialize)]
struct Channel {
    /// By sink: the highest processed offset, or null before the first.
    cursors: BTreeMap<String, Option<Offset>>,
    #[serde(default)]
    version: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    late_from: Option<Offset>,
    #[serde(default)]
    late_events: u64,
    #[serde(default)]
    quarantined: u64,
    #[serde(default)]
    dead_letters: u64,
    /// Format 1 has every late event here, by its offset.
    #[serde(default, skip_serializing)]
    late: BTreeMap<i64, Box<RawValue>>,
}

impl Mirror {
    pub(super) fn in_directory(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// Replaces the mirror, and answers once that is on disk.
    pub(super) fn write(&self, contents: &Contents) -> Result<(), StateError> {
        let json = serde_json::to_vec_pretty(&Document::of(contents)).expect("the mirror has text keys only");
        let path = self.path();
        self.replace(&path, &json).map_err(|error| StateError::io(format!("writing {}", path.display()), error))
    }

    fn replace(&self, path: &Path, json: &[u8]) -> io::Result<()> {
        let next = self.directory.join(NEXT);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600).custom_flags(NO_FOLLOW);
        let mut file = options.open(&next)?;
        file.write_all(json)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        std::fs::rename(&next, path)?;
        File::open(&self.directory)?.sync_all()
    }

    /// Reads the mirror; `None` where there is none.
    pub(super) fn read(&self) -> Result<Option<Contents>, StateError> {
        let path = self.path();
        let json = match std::fs::read(&path) {
            Ok(json) => json,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StateError::io(format!("reading {}", path.display()), error)),
        };
        let document: Document = serde_json::from_slice(&json)
            .map_err(|_| StateError::damaged(format!("{} cannot be read", path.display())))?;
        if document.format == 0 || document.format > FORMAT {
            return Err(StateError::Format { found: document.format.to_string(), known: "2" });
        }
        Ok(Some(document.contents()))
    }

    pub(super) fn path(&self) -> PathBuf {
        self.directory.join(NAME)
    }
}

impl Document {
    fn of(contents: &Contents) -> Self {
        let channel = |(id, summary): (&ChannelId, &Summary)| {
            let cursors = summary.cursors.iter().map(|(sink, cursor)| (sink.to_string(), cursor.through));
            let channel = Channel {
                cursors: cursors.collect(),
                version: summary.version,
                late_from: summary.late_from,
                late_events: summary.late,
                quarantined: summary.quarantined,
                dead_letters: summary.dead_letters,
                late: BTreeMap::new(),
            };
            (*id, channel)
        };
        let channels = contents.channels.iter().map(channel).collect();
        Self { format: FORMAT, channels, lost: contents.lost.clone() }
    }

    fn contents(self) -> Contents {
        let summary = |(id, channel): (ChannelId, Channel)| {
            let cursors = channel.cursors.into_iter().map(|(sink, through)| (sink.into(), Cursor { through }));
            let in_format_1 = channel.late.keys().next().copied().and_then(Offset::new);
            let summary = Summary {
                version: channel.version,
                cursors: cursors.collect(),
                late_from: channel.late_from.or(in_format_1),
                late: channel.late_events.max(channel.late.len() as u64),
                quarantined: channel.quarantined,
                dead_letters: channel.dead_letters,
            };
            (id, summary)
        };
        Contents { channels: self.channels.into_iter().map(summary).collect(), lost: self.lost }
    }
}
