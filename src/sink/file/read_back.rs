//! Reads the events in the files, and compares them with the recorded state and with the service.
//!
//! # Comparison with the recorded state
//!
//! A file has no table of positions. Its lines are in the order in which they were written. The recorded state names the
//! event that was written last. This event is the anchor of the comparison:
//!
//! * Events of the channel after the anchor are not recorded. The daemon crashed before it recorded these events, or an
//!   operator moved the cursor back. The sink skips these events when they are offered again.
//! * If the active file has recorded events of the channel, but neither the active file nor a closed file has the anchor,
//!   then the active file has lost the lines after these events, because the file was restored from a backup, or replaced.
//!   The position is then the offset of the newest line that remains. Events above this position are offered again. Events
//!   that the files still contain are recognized by offset and id, and skipped. Late deliveries since this position that the
//!   files do not contain are lost: they are below the position, so they are delivered late again.
//! * If the active file has no recorded event of the channel, the anchor cannot be expected in it. The file was just
//!   rotated, moved away by another program, or emptied (`copytruncate`). This is normal, even if an operator has moved the
//!   closed files away: a file that was started after the anchor was written contains no recorded line.
//!
//! # Invariants
//!
//! * **No recorded line follows the anchor.** If the anchor was delivered late, an operator may have replayed it, so that it
//!   has two lines. If a recorded line follows a line of the anchor, this line is the earlier one, and the file has lost the
//!   later one.
//! * **The search ends at the anchor,** and begins with the newest file. A recorded line that is not the anchor does not end
//!   it: a late delivery is recorded, and unrecorded lines can precede it after a cursor was moved back. Without a
//!   confirmation (an operator or a takeover chose the cursor), the search also ends at a closed file in which all events of
//!   the channel are recorded, if no earlier closed file has an event above the cursor. Otherwise each takeover would read all
//!   closed files.
//! * **A line of a replayed event counts only after the anchor.** An earlier line is from an earlier delivery.
//! * **Memory: a few bytes per event that is not recorded.** After a crash, the events of one batch are not recorded. After
//!   an operator has moved a cursor back, all events above the new cursor are not recorded.
//!
//! A comparison with the service only reads, because a daemon may write to the files at the same time. No line is missed:
//! the active file is opened before the closed files are listed, and is read twice if it is closed in between.
//!
//! # Limits
//!
//! * If the active file has no recorded event of the channel at all, it counts as rotated, even if it was restored.
//! * Without a confirmation, an unrecorded late delivery is written again if a later closed file has only recorded events of
//!   the channel. For files that an earlier version has added to the index, this also applies to other unrecorded events.
//! * A file is complete for a lane if it ends with the event that the lane wrote last. If an operator has replayed this event,
//!   a backup that ends with the event's first line looks complete.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;

use super::closed::index::Index;
use super::closed::{ClosedFile, ClosedFiles};
use super::lines::{EventLine, events, events_in, from_start, look_back};
use super::opening::require_regular;
use super::settings::FileSettings;
use crate::system::{IoContext, directory_of, if_there};
use crate::{Confirmed, Oldest, Position, Recorded, Resumed, SinkError};
use proof::event::{ChannelId, EventKey, Offset};

/// The files at one point in time. Lines that are appended later to the active file are not read.
pub(super) struct Snapshot {
    pub(super) active: File,
    pub(super) length: u64,
    pub(super) files: ClosedFiles,
    /// How often the active file had been displaced when the snapshot was taken.
    pub(super) displacements: u64,
}

impl Snapshot {
    /// Compares the files with the recorded state of a lane. Reads the newest file first.
    pub(super) fn compare(&self, recorded: &Recorded) -> Result<Resumed, SinkError> {
        let search = Search::of(recorded);
        let active = search.read_back(&self.active, self.length).doing("reading", &self.files.active)?;
        let SearchResult { mut held, newest, mut ended } = active;
        let (channel, index) = (recorded.lane.channel.id, Index::load(&self.files)?);
        for closed in index.files_of(channel, &self.files)?.iter().rev() {
            if ended || (search.anchor_is_late && newest.is_some()) {
                break;
            }
            let found = search.read_closed(&self.files, closed)?;
            let is_recorded = found.held.is_empty() && found.newest.is_some();
            held.splice(..0, found.held);
            ended = found.ended;
            if is_recorded
                && recorded.confirmed.is_none()
                && !index.may_hold_above(recorded.through, closed.time, channel)
            {
                break;
            }
        }
        if !ended {
            held.retain(|key| !recorded.replayed.contains(key));
        }
        let Some(Confirmed { mut position, last }) = recorded.confirmed else {
            return Ok(Resumed { position: Position::At(recorded.through), held, ..Resumed::default() });
        };
        let mut lost = BTreeSet::new();
        if let (Some(newest), Some(last), false) = (newest, last, ended) {
            position = Some(newest.offset);
            if !search.anchor_is_late {
                // The state does not name a late delivery of an earlier version, or an older late delivery.
                position = position.min(last.offset.before());
            }
            lost = recorded.late_since(position);
            tracing::warn!(channel = %recorded.lane.channel.name, path = %self.files.active.display(), missing = %last,
                newest = %newest, "file does not contain the event that was written last: the file has lost lines");
            for key in keys(&self.files, Some(&self.active), self.length, channel)? {
                let key = key?;
                lost.remove(&key);
                held.extend(Some(key).filter(|key| Some(key.offset) > position));
            }
        } else {
            // Filtered events can have moved the cursor past a late delivery, and not the position.
            let settled = held.iter().filter(|key| is_settled(recorded, key));
            position = position.max(settled.map(|key| key.offset).max());
        }
        Ok(Resumed { position: Position::At(position), held, lost })
    }

    /// The position of a channel without state: the highest offset in the files that name the channel. They are read from
    /// the newest to the oldest, until a closed file names the channel but has no higher offset than the newer files.
    pub(super) fn position(&self, channel: ChannelId) -> Result<Position, SinkError> {
        let mut highest = highest_in(active_events(&self.files, &self.active, self.length), channel)?;
        for closed in Index::load(&self.files)?.files_of(channel, &self.files)?.iter().rev() {
            let of_file = highest_in(self.files.events(closed), channel)?;
            if of_file.is_some() && of_file <= highest {
                break;
            }
            highest = highest.max(of_file);
        }
        Ok(highest.map_or(Position::Untracked, |highest| Position::At(Some(highest))))
    }
}

/// Whether a lane settles an event that the files have. An event above the cursor is still offered, even if it is pending.
pub(super) fn is_settled(recorded: &Recorded, key: &EventKey) -> bool {
    recorded.pending.contains(key) && Some(key.offset) <= recorded.through
}

/// The first event of a channel in the order of the lines.
pub(super) fn oldest(settings: &FileSettings, channel: ChannelId) -> Result<Oldest, SinkError> {
    let Some((active, files)) = find(settings)? else { return Ok(Oldest::Nothing) };
    let first = keys(&files, active.as_ref(), u64::MAX, channel)?.next().transpose()?;
    Ok(first.map_or(Oldest::Nothing, Oldest::Event))
}

/// The events in `wanted` that have a line. Only one line and the keys of these events are in memory.
pub(super) fn holds(
    settings: &FileSettings,
    channel: ChannelId,
    wanted: &BTreeSet<EventKey>,
) -> Result<BTreeSet<EventKey>, SinkError> {
    let mut held = BTreeSet::new();
    let Some((active, files)) = find(settings)? else { return Ok(held) };
    for key in keys(&files, active.as_ref(), u64::MAX, channel)? {
        held.extend(Some(key?).filter(|key| wanted.contains(key)));
        if held.len() == wanted.len() {
            break;
        }
    }
    Ok(held)
}

/// Finds the active file and the naming scheme of the closed files. No [`Journal`](super::journal::Journal) is needed.
/// Returns `None` if the directory does not exist.
fn find(settings: &FileSettings) -> Result<Option<(Option<File>, ClosedFiles)>, SinkError> {
    let path = &*settings.path;
    // Other types of files are refused: opening a pipe would wait for a writer.
    let open = || require_regular(&fs::metadata(path)?).and_then(|()| File::open(path));
    let file = if_there(open()).doing("reading", path)?;
    let mut active = if_there(fs::canonicalize(path)).doing("examining", path)?;
    if active.is_none() {
        let directory = if_there(fs::canonicalize(directory_of(path))).doing("examining", path)?;
        active = directory.map(|directory| directory.join(path.file_name().unwrap_or_default()));
    }
    Ok(active.map(|active| (file, ClosedFiles { active, name: settings.closed_name() })))
}

/// The events that may belong to a channel, in the order of the lines. The active file is read up to `length`.
fn keys<'a>(
    files: &'a ClosedFiles,
    active: Option<&'a File>,
    length: u64,
    channel: ChannelId,
) -> Result<impl Iterator<Item = Result<EventKey, SinkError>> + 'a, SinkError> {
    let closed = Index::load(files)?.files_of(channel, files)?.into_iter().flat_map(|closed| files.events(&closed));
    let active = active.into_iter().flat_map(move |active| active_events(files, active, length));
    let of_channel = move |event: EventLine| event.may_be_of(channel).then_some(event.key);
    Ok(closed.chain(active).filter_map(move |event| event.map(of_channel).transpose()))
}

fn active_events<'a>(
    files: &'a ClosedFiles,
    active: &'a File,
    length: u64,
) -> impl Iterator<Item = Result<EventLine, SinkError>> + 'a {
    events(from_start(active, length)).map(|event| event.doing("reading", &files.active))
}

/// The highest offset of events that name the channel. Raw lines do not name their channel. They are left out, because they
/// may belong to an earlier channel.
fn highest_in(
    mut events: impl Iterator<Item = Result<EventLine, SinkError>>,
    channel: ChannelId,
) -> Result<Option<Offset>, SinkError> {
    events.try_fold(None, |highest, event| {
        let EventLine { channel: named, key } = event?;
        Ok(highest.max((named == Some(channel)).then_some(key.offset)))
    })
}

/// Searches a file for the events that were written after the recorded events.
struct Search<'r> {
    recorded: &'r Recorded,
    /// The event that the lane wrote last.
    anchor: Option<EventKey>,
    /// Whether the anchor was delivered late. It may then have an earlier line, and no recorded line follows the later line.
    anchor_is_late: bool,
}

#[derive(Default)]
struct SearchResult {
    /// The events that are not recorded, in the lines after the anchor, in the order of the lines.
    held: Vec<EventKey>,
    /// The last recorded event among the lines that were read.
    newest: Option<EventKey>,
    /// Whether the anchor was found.
    ended: bool,
}

impl<'r> Search<'r> {
    fn of(recorded: &'r Recorded) -> Self {
        let anchor = recorded.confirmed.and_then(|confirmed| confirmed.last);
        let anchor_is_late = recorded.late.iter().any(|delivery| Some(delivery.event) == anchor);
        Self { recorded, anchor, anchor_is_late }
    }

    /// Reads events in the order in which they were written.
    fn read<E>(&self, events: impl Iterator<Item = Result<EventLine, E>>) -> Result<SearchResult, E> {
        let mut found = SearchResult::default();
        for event in events {
            let event = event?;
            if !event.may_be_of(self.recorded.lane.channel.id) {
                continue;
            }
            let (key, is_recorded) = (event.key, self.recorded.covers(&event.key));
            if Some(key) == self.anchor {
                found.held.clear();
                found.ended = true;
            } else if is_recorded && self.anchor_is_late {
                found.ended = false;
            }
            if is_recorded {
                found.newest = Some(key);
            } else if Some(key) != self.anchor || !self.recorded.replayed.contains(&key) {
                found.held.push(key);
            }
        }
        Ok(found)
    }

    /// Reads the first `length` bytes of a file from their end, and no more than necessary.
    fn read_back(&self, file: &File, length: u64) -> io::Result<SearchResult> {
        let mut found = SearchResult::default();
        look_back(file, length, |_, lines| {
            found = self.read(events_in(lines))?;
            Ok(found.ended)
        })?;
        Ok(found)
    }

    /// Reads a closed file, from its end if it is plain.
    fn read_closed(&self, files: &ClosedFiles, closed: &ClosedFile) -> Result<SearchResult, SinkError> {
        let path = files.path(&closed.name, None);
        let plain = if_there(File::open(&path)).doing("reading", &path)?;
        let Some(plain) = plain else { return self.read(files.events(closed)) };
        let length = plain.metadata().map(|metadata| metadata.len());
        length.and_then(|length| self.read_back(&plain, length)).doing("reading", &path)
    }
}
