//! `cursors.json`: the cursors and late proofs once more, readable, replaced as a whole after every commit.
//!
//! # Invariants
//!
//! * **Never torn.** Written beside, synced, renamed over, and the directory synced: the name always holds one whole
//!   mirror.
//! * **Never ahead.** It is written after the database has been synced, so restoring it repeats at most what was in hand.
//! * **One left over at the most.** What a kill leaves of a new mirror has a name of its own, and the next one replaces it.
//!   One process has the directory locked, and one thread of it writes.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::codec::Late;
use super::store::LateEvents;
use super::{Cursor, LaneKey, StateError};
use crate::event::{ChannelId, Offset};

const NAME: &str = "cursors.json";
/// The next mirror, until it is whole and on disk.
const NEXT: &str = "cursors.json.new";
const FORMAT: u32 = 1;

/// Where the mirror stands.
#[derive(Clone, Debug)]
pub(super) struct Mirror {
    directory: PathBuf,
}

/// What the mirror says.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) cursors: BTreeMap<LaneKey, Cursor>,
    pub(super) late: LateEvents,
}

#[derive(Serialize, Deserialize)]
struct Document {
    format: u32,
    channels: BTreeMap<ChannelId, Channel>,
}

#[derive(Default, Serialize, Deserialize)]
struct Channel {
    /// By sink: the highest processed offset, or null before the first.
    cursors: BTreeMap<String, Option<Offset>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    late: BTreeMap<i64, Late>,
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
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&next)?;
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
        let damaged = |what: &str| StateError::Damaged(format!("{} {what}", path.display()));
        let document: Document = serde_json::from_slice(&json).map_err(|_| damaged("cannot be read"))?;
        if document.format != FORMAT {
            return Err(StateError::Format { found: document.format.to_string(), known: "1" });
        }
        document.contents().map(Some).ok_or_else(|| damaged("holds a negative offset"))
    }

    pub(super) fn path(&self) -> PathBuf {
        self.directory.join(NAME)
    }
}

impl Document {
    fn of(contents: &Contents) -> Self {
        let mut channels: BTreeMap<ChannelId, Channel> = BTreeMap::new();
        for (lane, cursor) in &contents.cursors {
            let channel = channels.entry(lane.channel).or_default();
            channel.cursors.insert(lane.sink.to_string(), cursor.through);
        }
        for ((channel, offset), late) in &contents.late {
            channels.entry(*channel).or_default().late.insert(offset.get(), late.clone());
        }
        Self { format: FORMAT, channels }
    }

    fn contents(self) -> Option<Contents> {
        let mut contents = Contents::default();
        for (id, channel) in self.channels {
            for (sink, through) in channel.cursors {
                contents.cursors.insert(LaneKey { channel: id, sink: sink.into() }, Cursor { through });
            }
            for (offset, late) in channel.late {
                contents.late.insert((id, Offset::new(offset)?), late);
            }
        }
        Some(contents)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_a_kill_left_of_a_mirror_is_replaced_by_the_next_and_nothing_else_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let mirror = Mirror::in_directory(directory.path());
        mirror.write(&Contents::default()).unwrap();
        let whole = std::fs::read(mirror.path()).unwrap();
        // Longer than the next one, so that a rest of it would show.
        std::fs::write(directory.path().join(NEXT), [&whole[..], b"{torn"].concat()).unwrap();
        assert!(mirror.read().unwrap().is_some(), "it is not read");

        mirror.write(&Contents::default()).unwrap();

        assert_eq!(std::fs::read(mirror.path()).unwrap(), whole);
        let names = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(names.collect::<Vec<_>>(), [NAME]);
    }

    #[test]
    fn a_mirror_is_readable_by_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let mirror = Mirror::in_directory(directory.path());
        mirror.write(&Contents::default()).unwrap();
        assert_eq!(std::fs::metadata(mirror.path()).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
