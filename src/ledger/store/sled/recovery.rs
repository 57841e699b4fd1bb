//! Opens the database, and recovers if it is damaged.
//!
//! The mirror records the expected contents of the database. If entries are missing, or the database does not open, a
//! copy of the database is kept in the form in which it was found. Each cursor restarts from its value in the mirror.
//! If pending events may be missing, it restarts below the lowest pending offset. Therefore no pending event is lost,
//! but some events are delivered again. The numbers of lost quarantined events and dead letters are recorded until an
//! operator acknowledges them.
//!
//! An entry that cannot be read is kept, because another version may have written it. Its channel does not run.

use std::fs;
use std::io;
use std::path::Path;

use super::database::Database;
use super::mirror::{Mirror, MirrorText};
use crate::rules::{decode, encode};
use crate::store::Lease;
use crate::store::directory::{DATABASE, Directory, Used};
use crate::{Cursor, Effects, Entries, Key, Ledger, LostEntries, StateError, Summary, Value};
use net::Chain;
use proof::event::ChannelId;

/// The copy of the database that is made before sled opens the database, because sled truncates a log that it cannot read.
/// The copy stays until a start succeeds, because the next start may find a database that is already truncated.
const COPY: &str = "sled.as-found";
const UNFINISHED: &str = "sled.as-found.new";

/// The computed summaries, the stored summaries, and the unreadable channels.
type FoundChannels = (Mirror, Vec<(ChannelId, Summary)>, Vec<ChannelId>);

/// Refuses an incomplete copy, and a directory whose state has disappeared. An unreadable mirror is no reason to refuse
/// the directory: [`open`] either reports it or works without it.
pub(super) fn check(path: &Path) -> Result<(), StateError> {
    let (shown, mirrored) = (path.display(), Mirror::read(path));
    if let Ok(Some(Mirror { incomplete: true, .. })) = mirrored {
        return Err(StateError::Unusable(format!(
            "the state in {shown} is an incomplete copy: run `channeld state copy --to sled` again, which starts over, or use the other backend"
        )));
    }
    if matches!(mirrored, Ok(None)) && !path.join(DATABASE).exists() && Used::read(path)?.sled {
        return Err(StateError::Unusable(format!(
            "the state that was in {shown} is gone: restore the directory from a backup; or, to start over with every channel at its `start`, remove {}",
            Used::file(path).display()
        )));
    }
    Ok(())
}

/// Removes an incomplete copy, because the next copy starts from the beginning. The mirror is reset last.
pub(super) fn discard_incomplete(directory: &Directory) -> Result<(), StateError> {
    let Ok(Some(Mirror { incomplete: true, .. })) = Mirror::read(&directory.path) else { return Ok(()) };
    remove(&directory.path.join(COPY))?;
    remove(&directory.database())?;
    Mirror { incomplete: true, ..Mirror::default() }.into_text().write(&directory.path)
}

/// Opens the database of a locked directory. Also returns the mirror that is valid from now on.
pub(super) fn open(directory: &Directory) -> Result<(Database, MirrorText), StateError> {
    let (path, copy) = (directory.database(), directory.path.join(COPY));
    let is_new = !path.exists();
    let mirrored = match Mirror::read(&directory.path) {
        Ok(None) if is_new => {
            // The empty mirror records that the database has no cursors yet. If the daemon crashes while it creates the
            // database, the next start therefore does not consider the leftovers a damaged database.
            Mirror::default().into_text().write(&directory.path)?;
            Some(Mirror::default())
        }
        Err(error @ StateError::Damaged(_)) if !is_new => {
            tracing::warn!(error = %Chain(&error), "the mirror cannot be read: if the state database is intact, the mirror is written again");
            None
        }
        mirrored => mirrored?,
    };
    let is_copied = copy.exists() || !is_new && is_copied(&path, &copy);
    match Database::open(&path).and_then(|database| Ok((database.caught(found_in)?, database))) {
        Ok(((mut found, noted, unreadable), database)) => {
            let mut mirrored = mirrored.unwrap_or_default();
            // The database is newer than the mirror if the daemon was killed before it wrote the mirror.
            for (channel, noted) in noted {
                let known = mirrored.channels.entry(channel).or_default();
                if noted.version > known.version {
                    *known = noted;
                }
            }
            // An unreadable channel keeps its entries and its summary. It cannot be claimed, so it changes neither.
            for channel in unreadable {
                found.channels.insert(channel, mirrored.channels.get(&channel).cloned().unwrap_or_default());
            }
            if !mirrored.channels.iter().any(|(channel, known)| is_behind(&found.of(*channel), known)) {
                let mirror = Mirror { lost: mirrored.lost, incomplete: mirrored.incomplete, ..found }.into_text();
                // The mirror exists from the first start on.
                mirror.write(&directory.path).and_then(|()| remove(&copy)).inspect_err(|_| database.abandon())?;
                return Ok((database, mirror));
            }
            let message = if is_new { "it is missing" } else { "entries that were confirmed are missing" };
            restore(directory, database, found, mirrored, message)
        }
        Err(StateError::DamagedDatabase(message)) => {
            let Some(mirrored) = mirrored else {
                return Err(StateError::Unusable(format!(
                    "the state database in {} cannot be opened ({message}), and no readable cursors.json exists from which to restore the cursors: restore the directory from a backup, or move it away and set `start` of each channel",
                    directory.path.display()
                )));
            };
            if is_copied {
                remove(&path)?;
            } else {
                rename(&path, &copy)?;
            }
            restore(directory, Database::open(&path)?, Mirror::default(), mirrored, &message)
        }
        Err(error) => Err(error),
    }
}

/// Returns two summaries for each channel: one computed from its entries, and the one stored in the database. Removes
/// quarantined events and dead letters whose body is missing. Also returns the channels that have an unreadable key or
/// value: nothing of them is removed, because another version may have written the entry.
fn found_in(database: &Database) -> Result<FoundChannels, StateError> {
    let (mut found, mut noted, mut unreadable) = (Mirror::default(), Vec::new(), Vec::new());
    for channel in database.channels()? {
        let read = database.entries(channel).and_then(|entries| Ok((summary_of(entries.clone())?, entries)));
        let (mut summary, entries) = match read {
            Err(error @ StateError::UnreadableEntry { .. }) => {
                tracing::error!(%channel, error = %Chain(&error), "the state of a channel cannot be read: the channel does not run");
                unreadable.push(channel);
                continue;
            }
            read => read?,
        };
        if let Some(Value::Bytes(summary)) = entries.get(&Key::Summary) {
            noted.extend(decode(summary).ok().map(|summary| (channel, summary)));
        }
        let has_body = |key: &Key| match key {
            Key::Quarantined(event) => entries.contains_key(&Key::Body(*event)),
            Key::DeadLetter(event, sink) => entries.contains_key(&Key::DeadBody(*event, sink.clone())),
            _ => true,
        };
        let (kept, without_body): (Entries, Entries) = entries.clone().into_iter().partition(|(key, _)| has_body(key));
        if !without_body.is_empty() {
            let events = without_body.len();
            tracing::warn!(%channel, events, "quarantined events or dead letters have lost their bodies, and are removed");
            summary = summary_of(kept)?;
            let changes = without_body.into_keys().map(|key| (key, None)).collect();
            database.apply(&[(Lease::for_ever(channel), Effects { changes, summary: summary.clone() })])?;
        }
        found.channels.insert(channel, summary);
    }
    Ok((found, noted, unreadable))
}

fn summary_of(entries: Entries) -> Result<Summary, StateError> {
    Ok(Ledger::load(entries, usize::MAX)?.0.summary())
}

/// Whether entries of a channel are missing in the database. If the database has a later version than the mirror, nothing
/// is missing.
fn is_behind(found: &Summary, mirrored: &Summary) -> bool {
    if found.version > mirrored.version {
        return false;
    }
    let cursors = mirrored.cursors.iter().any(|(sink, cursor)| found.cursors.get(sink) < Some(cursor));
    // Format 1 has no versions, and its numbers may be one commit old.
    let counted = mirrored.version > 0;
    let fewer = found.late < mirrored.late
        || found.quarantined < mirrored.quarantined
        || found.dead_letters < mirrored.dead_letters
        || found.paused != mirrored.paused;
    let has_lost_replay = mirrored.replays.keys().any(|id| !found.replays.contains_key(id));
    // A mirror of an earlier version has no confirmed positions.
    let unconfirmed = mirrored.confirmed.iter().any(|(sink, confirmed)| found.confirmed.get(sink) != Some(confirmed));
    cursors || counted && (found.version < mirrored.version || fewer || has_lost_replay || unconfirmed)
}

/// Records the losses, keeps the copy of the damaged database for an operator, and sets the cursors so that no event is
/// lost. The order matters: if a start fails in between, the next start finds either the damage or the record of the
/// losses.
fn restore(
    directory: &Directory,
    database: Database,
    mut found: Mirror,
    mirrored: Mirror,
    message: &str,
) -> Result<(Database, MirrorText), StateError> {
    let (mut lost, mut group) = (mirrored.lost.unwrap_or_default(), Vec::new());
    for (channel, known) in mirrored.channels {
        let has = found.of(channel);
        if is_behind(&has, &known) {
            lost.late += known.late.saturating_sub(has.late);
            lost.quarantined += known.quarantined.saturating_sub(has.quarantined);
            lost.dead_letters += known.dead_letters.saturating_sub(has.dead_letters);
            let effects = put_back(known, has);
            found.channels.insert(channel, effects.summary.clone());
            group.push((Lease::for_ever(channel), effects));
        }
    }
    let (now, copy) = (jiff::Timestamp::now(), directory.path.join(COPY));
    let kept = copy.exists().then(|| directory.path.join(format!("sled.damaged-{}", now.as_millisecond())));
    (lost.at, lost.kept) = (now.to_string(), kept.as_ref().map(|kept| kept.display().to_string()));
    found.lost = Some(lost.clone());
    found.incomplete = mirrored.incomplete;
    let found = found.into_text();
    let recorded = found.write(&directory.path).and_then(|()| kept.map_or(Ok(()), |kept| rename(&copy, &kept)));
    recorded.inspect_err(|_| database.abandon())?;
    database.apply(&group)?;
    let LostEntries { quarantined, dead_letters, late, kept, .. } = &lost;
    tracing::error!(
        error = message,
        kept,
        quarantined,
        dead_letters,
        late,
        "the state database was damaged: these quarantined events and dead letters are lost, pending events are read again, and the cursors come from cursors.json; acknowledge the loss with `channeld state acknowledge`"
    );
    Ok((database, found))
}

/// Sets a channel's cursors, and the positions that the sinks have confirmed, to the values in the mirror. If pending events
/// may be missing, each cursor is limited to the offset before the lowest pending event.
fn put_back(known: Summary, has: Summary) -> Effects {
    // An older database may contain the same number of pending events as the newest one, but different events.
    let may_miss_late = has.late < known.late || has.version < known.version;
    let lowest_owed = known.late_from.filter(|_| may_miss_late).map(|from| Cursor { through: from.before() });
    let mut summary = Summary { version: known.version.max(has.version) + 1, paused: known.paused, ..has };
    // A replay continues at the recorded position. If its last part is lost, a cursor is below the events of this part.
    summary.replays.extend(known.replays);
    let mut confirmed = Vec::new();
    for (sink, cursor) in known.cursors {
        let to = lowest_owed.map_or(cursor, |lowest| lowest.min(cursor));
        if to < cursor {
            // As if an operator had moved the cursor: the sink compares everything above the cursor.
            summary.confirmed.remove(&sink);
            confirmed.push((Key::Confirmed(sink.clone()), None));
        } else if let Some(position) = known.confirmed.get(&sink) {
            // The sink may have lost data together with the database. The lane then delivers it again.
            summary.confirmed.insert(sink.clone(), *position);
            confirmed.push((Key::Confirmed(sink.clone()), Some(encode(position))));
        }
        summary.cursors.insert(sink, to);
    }
    let cursors = summary.cursors.iter().map(|(sink, cursor)| (Key::Cursor(sink.clone()), Some(encode(cursor))));
    let paused = (Key::Paused, Some(encode(&summary.paused)));
    let replays = summary.replays.iter().map(|(id, replay)| (Key::Replay(*id), Some(encode(replay))));
    let changes = cursors.chain(replays).chain([paused]).chain(confirmed).collect();
    summary.effects(changes)
}

/// Copies the database in the form in which it was found. If the copy fails, for example because the disk is full, the
/// database is opened anyway.
fn is_copied(database: &Path, to: &Path) -> bool {
    let unfinished = to.with_file_name(UNFINISHED);
    // A previous process may have been killed while it copied.
    let _ = remove(&unfinished);
    let copied = copy(database, &unfinished).and_then(|()| fs::rename(&unfinished, to));
    if let Err(error) = &copied {
        tracing::warn!(%error, "the state database could not be copied before opening it: if it is damaged, only its readable part is kept");
        // An incomplete copy is useless.
        let _ = remove(&unfinished);
    }
    copied.is_ok()
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy(&from, &to)?;
        } else {
            fs::copy(&from, &to)?;
            fs::File::open(to)?.sync_all()?;
        }
    }
    Ok(())
}

fn rename(from: &Path, to: &Path) -> Result<(), StateError> {
    fs::rename(from, to).map_err(|error| StateError::io(format!("keeping {} aside", from.display()), error))
}

/// Removes a file, or a directory with its contents, if it exists.
fn remove(path: &Path) -> Result<(), StateError> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    removed.map_err(|error| StateError::io(format!("removing {}", path.display()), error))
}
