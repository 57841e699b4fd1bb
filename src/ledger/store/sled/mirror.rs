//! `cursors.json`: a readable file with the cursors of every channel, the positions that its sinks have confirmed, and the
//! numbers of its stored events.
//! The file is replaced completely after every commit. It records the expected contents of the database independently
//! of the database.
//!
//! # Invariants
//!
//! * **Never torn.** The file name always refers to a complete mirror.
//! * **Never ahead.** The mirror is written after the database has been synced. A restart from the mirror therefore
//!   repeats events and skips none. The order is reversed only when the database is restored: the losses are recorded
//!   first, because they cannot be detected afterwards.
//! * **Small.** The size grows with the number of lanes and not with the number of pending events.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::store::directory::{MIRROR, MIRROR_NEXT, read, replace};
use crate::{LostEntries, StateError, Summary};
use proof::event::{ChannelId, Offset};

const FORMAT: u32 = 2;

/// The indentation of a channel's summary in the file.
const INDENT: &str = "    ";

/// A mirror with the summary of each channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mirror<S = Summary> {
    pub(super) format: u32,
    pub(super) channels: BTreeMap<ChannelId, S>,
    /// The losses from damage that no operator has acknowledged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lost: Option<LostEntries>,
    /// Whether a copy to this state was started and not completed. The state then contains only a part of the source.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) incomplete: bool,
}

/// A mirror as it is written. Each summary is already text, because a commit changes few of them.
pub(super) type MirrorText = Mirror<Box<RawValue>>;

impl Default for Mirror {
    fn default() -> Self {
        Self { format: FORMAT, channels: BTreeMap::new(), lost: None, incomplete: false }
    }
}

impl Mirror {
    /// Reads the mirror in a directory. `None` if the file does not exist.
    pub(super) fn read(directory: &Path) -> Result<Option<Self>, StateError> {
        let path = directory.join(MIRROR);
        let Some(json) = read(&path)? else { return Ok(None) };
        let unreadable = |_| StateError::Damaged(format!("{} cannot be read", path.display()));
        let mut mirror: Self = serde_json::from_slice(&json).map_err(unreadable)?;
        match mirror.format {
            1 => mirror.count_late_of_format_1(&serde_json::from_slice(&json).map_err(unreadable)?),
            FORMAT => {}
            other => return Err(StateError::unknown_format(&other.to_string(), &FORMAT.to_string())),
        }
        Ok(Some(mirror))
    }

    /// Counts the pending events, which format 1 lists by offset.
    fn count_late_of_format_1(&mut self, json: &serde_json::Value) {
        self.format = FORMAT;
        for (channel, summary) in &mut self.channels {
            let late = json["channels"][channel.to_string()]["late"].as_object().into_iter().flatten();
            let late = late.filter_map(|(offset, _)| offset.parse().ok().and_then(Offset::new));
            summary.late = late.clone().count() as u64;
            summary.late_from = late.min();
        }
    }

    pub(super) fn of(&self, channel: ChannelId) -> Summary {
        self.channels.get(&channel).cloned().unwrap_or_default()
    }

    pub(super) fn into_text(self) -> MirrorText {
        let Self { format, channels, lost, incomplete } = self;
        let channels = channels.iter().map(|(channel, summary)| (*channel, text_of(summary))).collect();
        Mirror { format, channels, lost, incomplete }
    }
}

impl MirrorText {
    pub(super) fn insert(&mut self, channel: ChannelId, summary: &Summary) {
        self.channels.insert(channel, text_of(summary));
    }

    /// Replaces the mirror in a directory. Returns when the new mirror is on disk.
    pub(super) fn write(&self, directory: &Path) -> Result<(), StateError> {
        replace(directory, MIRROR, MIRROR_NEXT, self)
    }
}

/// A summary as it is written: indented, except for its first line.
fn text_of(summary: &Summary) -> Box<RawValue> {
    let text = serde_json::to_string_pretty(summary).expect("a summary has text keys and no value that can fail");
    let text = text.replace('\n', &format!("\n{INDENT}"));
    RawValue::from_string(text).expect("the text is JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cursor;

    #[test]
    fn the_file_is_indented_like_other_json() {
        let cursors = [("file".into(), Cursor { through: Offset::new(7) })].into();
        let summary = Summary { cursors, version: 3, ..Summary::default() };
        let mirror = Mirror { channels: [(ChannelId::default(), summary)].into(), ..Mirror::default() };
        let text = serde_json::to_string_pretty(&mirror.clone().into_text()).unwrap();
        let expected = r#"{
  "format": 2,
  "channels": {
    "00000000-0000-0000-0000-000000000000": {
      "cursors": {
        "file": 7
      },
      "version": 3,
      "late_events": 0,
      "quarantined": 0,
      "dead_letters": 0
    }
  }
}"#;
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<Mirror>(&text).unwrap(), mirror);
    }
}
