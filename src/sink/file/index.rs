//! Which closed files hold lines of a channel: what keeps a start from reading years of them.
//!
//! A lane that has delivered nothing for long, or never, would otherwise be looked for in every closed file there is.
//!
//! # Invariants
//!
//! * **A memory, not the truth.** It is made of the files alone, and made again where it is missing or cannot be read. A
//!   file that is newer than what it has seen is always looked into.
//! * **Whole or not there.** It is written beside, synced and renamed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};

use serde::{Deserialize, Serialize};

use super::closed::Shelf;
use super::name::{Stamp, UNFINISHED};
use crate::event::ChannelId;

/// The files up to `seen`, and where each channel's lines stand among them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Index {
    pub(super) seen: Option<Stamp>,
    /// The oldest and the newest file with lines of a channel.
    channels: BTreeMap<ChannelId, (Stamp, Stamp)>,
    /// And with lines that do not say whose they are.
    unnamed: Option<(Stamp, Stamp)>,
}

impl Index {
    /// What was noted last; nothing, where that cannot be read.
    pub(super) fn load(shelf: &Shelf) -> io::Result<Self> {
        match fs::read(shelf.index()) {
            Ok(json) => Ok(serde_json::from_slice(&json).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    pub(super) fn store(&self, shelf: &Shelf) -> io::Result<()> {
        let path = shelf.index();
        let mut beside = path.clone().into_os_string();
        beside.push(UNFINISHED);
        let mut file = File::create(&beside)?;
        serde_json::to_writer(&mut file, self)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(beside, path)
    }

    /// Notes whose lines a file holds. Files come in their order.
    pub(super) fn add(&mut self, stamp: Stamp, channels: &BTreeSet<Option<ChannelId>>) {
        for channel in channels {
            let range = match channel {
                Some(channel) => self.channels.entry(*channel).or_insert((stamp, stamp)),
                None => self.unnamed.get_or_insert((stamp, stamp)),
            };
            range.1 = stamp;
        }
        self.seen = Some(stamp);
    }

    /// Whether the file that was closed then may hold lines of a channel.
    pub(super) fn may_hold(&self, stamp: Stamp, channel: ChannelId) -> bool {
        let within =
            |range: Option<&(Stamp, Stamp)>| range.is_some_and(|(first, last)| (first..=last).contains(&&stamp));
        self.seen.is_none_or(|seen| seen < stamp)
            || within(self.channels.get(&channel))
            || within(self.unnamed.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::sink::file::name::ClosedName;
    use crate::sink::sample::channel;

    fn stamp(second: i64) -> Stamp {
        Stamp::after(None, Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn a_channel_is_looked_for_only_where_it_may_be() {
        let directory = tempfile::tempdir().unwrap();
        let shelf =
            Shelf::beside(&directory.path().join("events.jsonl"), ClosedName::parse("{time}").unwrap()).unwrap();
        let (one, two) = (channel(1).id, channel(2).id);
        assert!(Index::load(&shelf).unwrap().may_hold(stamp(1), one), "nothing is known");

        let mut index = Index::default();
        for (second, channels) in
            [(1, vec![Some(two)]), (2, vec![Some(one), Some(two)]), (3, vec![]), (4, vec![Some(one)])]
        {
            index.add(stamp(second), &channels.into_iter().collect());
        }
        index.store(&shelf).unwrap();
        let index = Index::load(&shelf).unwrap();
        let held = |channel| (1..=5).filter(|second| index.may_hold(stamp(*second), channel)).collect::<Vec<_>>();
        assert_eq!((held(one), held(two), held(channel(3).id)), (vec![2, 3, 4, 5], vec![1, 2, 5], vec![5]));

        fs::write(shelf.index(), "torn").unwrap();
        assert_eq!(Index::load(&shelf).unwrap(), Index::default());
    }
}
