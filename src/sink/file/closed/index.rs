//! Records which closed files contain lines of a channel.
//!
//! Without the index, each start would read all closed files, perhaps of several years, for every channel that has no line
//! in these files.
//!
//! # Invariants
//!
//! * **Derived from the files alone.** If the index is missing or cannot be read, it is built again. A file that is newer
//!   than the newest indexed file is always searched.
//! * **Whole or absent.** The index is written to a temporary file, synced and renamed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::name::{closing_time, unfinished};
use super::{ClosedFile, ClosedFiles};
use crate::SinkError;
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
            let channels = files.events(closed).map(|event| Ok(event?.channel)).collect::<Result<_, SinkError>>()?;
            index.add(closed.time, &channels);
            index.store(&path).doing("writing", &path)?;
        }
        Ok(())
    }

    /// Records which channels have lines in a file. `None` means lines that do not name their channel. Files must be added
    /// in the order in which they were closed.
    fn add(&mut self, time: Timestamp, channels: &BTreeSet<Option<ChannelId>>) {
        for channel in channels {
            let range = match channel {
                Some(channel) => self.channels.entry(*channel).or_insert((time, time)),
                None => self.unnamed.get_or_insert((time, time)),
            };
            range.1 = time;
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
    pub(crate) fn files_of(channel: ChannelId, files: &ClosedFiles) -> Result<Vec<ClosedFile>, SinkError> {
        let index = Self::load(files)?;
        let mut closed = files.list()?;
        closed.retain(|closed| index.may_hold(closed.time, channel));
        Ok(closed)
    }

    /// Whether the file that was closed at `time` may contain lines of a channel.
    fn may_hold(&self, time: Timestamp, channel: ChannelId) -> bool {
        let mut ranges = self.channels.get(&channel).into_iter().chain(&self.unnamed);
        Some(time) > self.seen || ranges.any(|(first, last)| (first..=last).contains(&&time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::closed::name::ClosedName;
    use crate::tests::channel;

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
            index.add(time(second), &channels.into_iter().collect());
        }
        index.store(&files.index_path()).unwrap();
        let index = Index::load(&files).unwrap();
        let held = |channel| (1..=5).filter(|second| index.may_hold(time(*second), channel)).collect::<Vec<_>>();
        assert_eq!((held(one), held(two), held(channel(3).id)), (vec![2, 3, 4, 5], vec![1, 2, 5], vec![5]));

        fs::write(files.index_path(), "torn").unwrap();
        assert_eq!(Index::load(&files).unwrap(), Index::default());
    }
}
