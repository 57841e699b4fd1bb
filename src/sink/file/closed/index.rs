//! Records which closed files contain lines of a channel, and the channel's highest offset.
//!
//! Without the index, each start would read all closed files, perhaps of several years, for every channel that has no line
//! in these files.
//!
//! # Invariants
//!
//! * **Derived from the files alone.** If the index is missing or cannot be read, it is built again. A file that is newer
//!   than the newest indexed file is always searched.
//! * **Whole or absent.** The index is written to a temporary file, synced and renamed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::name::{closing_time, unfinished};
use super::{ClosedFile, ClosedFiles};
use crate::SinkError;
use crate::file::lines::EventLine;
use crate::system::{IoContext, if_there};
use proof::event::{ChannelId, Offset};

/// The times of the oldest and the newest file that may contain a line.
type TimeRange = (Timestamp, Timestamp);

/// For each channel, the range of files that may contain its lines. Covers the files that were closed at the time `seen` or
/// earlier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Index {
    pub(crate) seen: Option<Timestamp>,
    channels: BTreeMap<ChannelId, TimeRange>,
    /// The range of files with lines that do not name their channel.
    unnamed: Option<TimeRange>,
    /// The highest offset of each channel. An index of an earlier version does not contain the offsets of its files.
    #[serde(default)]
    highest: BTreeMap<ChannelId, Offset>,
    /// The highest offset of the lines that do not name their channel.
    highest_unnamed: Option<Offset>,
}

impl Index {
    /// Reads the stored index. Returns an empty index if none is stored or it cannot be parsed.
    pub(crate) fn load(files: &ClosedFiles) -> Result<Self, SinkError> {
        let path = files.index_path();
        let json = if_there(fs::read(&path)).doing("reading", &path)?;
        Ok(json.and_then(|json| serde_json::from_slice(&json).ok()).unwrap_or_default())
    }

    pub(crate) fn update(files: &ClosedFiles, stop: &CancellationToken) -> Result<(), SinkError> {
        let (mut index, path) = (Self::load(files)?, files.index_path());
        let seen = index.seen;
        for closed in files.list()?.iter().filter(|closed| Some(closed.time) > seen) {
            if stop.is_cancelled() {
                return Ok(());
            }
            let mut highest = BTreeMap::new();
            for event in files.events(closed) {
                let EventLine { channel, key } = event?;
                let known = highest.entry(channel).or_insert(key.offset);
                *known = key.offset.max(*known);
            }
            index.add(closed.time, highest);
            index.store(&path).doing("writing", &path)?;
        }
        Ok(())
    }

    /// Records which channels have lines in a file, and their highest offsets there. `None` means lines that do not name their
    /// channel. Files must be added in the order in which they were closed.
    fn add(&mut self, time: Timestamp, channels: BTreeMap<Option<ChannelId>, Offset>) {
        for (channel, offset) in channels {
            let (range, highest) = match channel {
                Some(channel) => (
                    self.channels.entry(channel).or_insert((time, time)),
                    self.highest.entry(channel).or_insert(offset),
                ),
                None => (self.unnamed.get_or_insert((time, time)), self.highest_unnamed.get_or_insert(offset)),
            };
            range.1 = time;
            *highest = offset.max(*highest);
        }
        self.seen = Some(time);
    }

    /// The new path of the file that is being closed now. Its time is later than the time of each closed file, including
    /// files that were removed since.
    pub(crate) fn next_path(
        files: &ClosedFiles,
        first: Option<Offset>,
        last: Option<Offset>,
    ) -> Result<PathBuf, SinkError> {
        let newest = files.list()?.last().map(|closed| closed.time);
        let time = closing_time(newest.max(Self::load(files)?.seen), Timestamp::now());
        Ok(files.directory().join(files.name.write(time, first, last)))
    }

    fn store(&self, path: &Path) -> io::Result<()> {
        let unfinished = unfinished(path);
        let mut file = File::create(&unfinished)?;
        let json = serde_json::to_vec(self)?;
        file.write_all(&[&json[..], b"\n"].concat())?;
        file.sync_all()?;
        fs::rename(unfinished, path)
    }

    /// The closed files that may contain lines of a channel, the oldest first.
    pub(crate) fn files_of(&self, channel: ChannelId, files: &ClosedFiles) -> Result<Vec<ClosedFile>, SinkError> {
        let mut closed = files.list()?;
        closed.retain(|closed| self.may_hold(closed.time, channel));
        Ok(closed)
    }

    /// Whether the file that was closed at `time` may contain lines of a channel.
    fn may_hold(&self, time: Timestamp, channel: ChannelId) -> bool {
        let mut ranges = self.channels.get(&channel).into_iter().chain(&self.unnamed);
        Some(time) > self.seen || ranges.any(|(first, last)| (first..=last).contains(&&time))
    }

    /// Whether the file that was closed at `time`, or an earlier one, may contain an event of a channel above an offset.
    pub(crate) fn may_hold_above(&self, offset: Option<Offset>, time: Timestamp, channel: ChannelId) -> bool {
        Some(time) > self.seen || self.highest.get(&channel).copied().max(self.highest_unnamed) > offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::closed::name::ClosedName;
    use crate::tests::{channel, offset};

    fn time(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_channel_is_searched_only_in_files_that_can_contain_it() {
        let directory = tempfile::tempdir().unwrap();
        let name = ClosedName::parse("{time}").unwrap();
        let files = ClosedFiles { active: directory.path().join("events.jsonl"), name };
        let (one, two) = (channel(1).id, channel(2).id);
        assert!(
            Index::load(&files).unwrap().may_hold(time(1), one),
            "without an index, any file may contain the channel"
        );

        let mut index = Index::default();
        for (second, channels) in
            [(1, vec![Some(two)]), (2, vec![Some(one), Some(two)]), (3, vec![]), (4, vec![Some(one)])]
        {
            index.add(time(second), channels.into_iter().map(|channel| (channel, offset(second))).collect());
        }
        index.store(&files.index_path()).unwrap();
        let index = Index::load(&files).unwrap();
        let held = |channel| (1..=5).filter(|second| index.may_hold(time(*second), channel)).collect::<Vec<_>>();
        assert_eq!((held(one), held(two), held(channel(3).id)), (vec![2, 3, 4, 5], vec![1, 2, 5], vec![5]));
        let above = |highest, second, channel| index.may_hold_above(Some(offset(highest)), time(second), channel);
        assert!(above(3, 4, one) && !above(4, 4, one) && !above(2, 4, two) && !above(0, 4, channel(3).id));
        assert!(above(4, 5, one), "a file that is not in the index");

        let written = r#"{"seen":null,"channels":{},"unnamed":null}"#;
        assert_eq!(serde_json::from_str::<Index>(written).unwrap(), Index::default(), "written by an earlier version");
        fs::write(files.index_path(), "torn").unwrap();
        assert_eq!(Index::load(&files).unwrap(), Index::default());
    }
}
