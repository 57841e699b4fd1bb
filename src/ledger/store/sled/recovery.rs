//! Opening the database, and going on where it is damaged.
//!
//! The mirror says what should be in the database. Where something is missing, or the database does not open, it is kept
//! aside as it was found; cursors go on from the mirror, or from the lowest offset that a lane is owed, so that no late
//! event is lost and events are repeated; and the number of quarantined events and dead letters that are lost is recorded
//! until an operator acknowledges it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::database::Database;
use super::directory::Directory;
use super::mirror::Mirror;
use crate::ledger::entry::encode;
use crate::ledger::store::Lease;
use crate::ledger::{Cursor, Effects, Entries, Key, Ledger, Lost, StateError, Summary, Value};
use crate::telemetry::Chain;

/// Where the database is copied before sled opens it, because sled cuts off what it cannot read.
const COPY: &str = "sled.as-found";

/// Opens the database of a locked directory, with what the mirror has to say of it from now on.
pub(super) fn open(directory: &Directory) -> Result<(Database, Mirror), StateError> {
    let (path, copy) = (directory.database(), directory.path.join(COPY));
    let is_new = !path.exists();
    let mirrored = match Mirror::read(&directory.path) {
        Ok(None) if is_new => {
            // It says that nothing was ever recorded: what a crash leaves of a database that was being created is then not
            // taken for one that knew where we were.
            Mirror::default().write(&directory.path)?;
            Some(Mirror::default())
        }
        Err(error @ StateError::Damaged(_)) if !is_new => {
            tracing::warn!(error = %Chain(&error), "the mirror cannot be read: if the state database is sound, the mirror is written anew");
            None
        }
        mirrored => mirrored?,
    };
    remove(&copy)?;
    let is_copied = !is_new && is_copied(&path, &copy);
    match Database::open(&path).and_then(|database| Ok((found_in(&database)?, database))) {
        Ok((found, database)) => {
            let mirrored = mirrored.unwrap_or_default();
            if !mirrored.channels.iter().any(|(channel, known)| is_behind(&found.of(*channel), known)) {
                return remove(&copy).map(|()| (database, Mirror { lost: mirrored.lost, ..found }));
            }
            let message = if is_new { "it is missing" } else { "entries that were confirmed are missing" };
            let kept = is_copied.then(|| keep(&copy)).transpose()?;
            restore(database, found, mirrored, kept.as_deref(), message)
        }
        Err(StateError::DamagedDatabase(message)) => {
            let Some(mirrored) = mirrored else {
                remove(&copy)?;
                return Err(StateError::Unusable(format!(
                    "the state database in {} cannot be opened ({message}) and there is no cursors.json that can be read, \
                     to restore the cursors from: restore the directory from a backup, or move it away and set `start` of \
                     each channel",
                    directory.path.display()
                )));
            };
            let kept = keep(if is_copied { &copy } else { &path })?;
            remove(&path)?;
            restore(Database::open(&path)?, Mirror::default(), mirrored, Some(&kept), &message)
        }
        Err(error) => Err(error),
    }
}

/// What the database has, channel by channel. Removes what nothing can be done with: entries that cannot be read, and
/// quarantined events and dead letters of which the body is gone.
fn found_in(database: &Database) -> Result<Mirror, StateError> {
    let mut found = Mirror::default();
    for channel in database.channels()? {
        let entries = database.entries(channel)?;
        let is_useful = |(key, value): &(Key, Value)| {
            let has_body = match key {
                Key::Quarantined(offset) => entries.contains_key(&Key::Body(*offset)),
                Key::DeadLetter(offset, sink) => entries.contains_key(&Key::DeadBody(*offset, sink.clone())),
                _ => true,
            };
            has_body && Ledger::load([(key.clone(), value.clone())].into(), usize::MAX).is_ok()
        };
        let (useful, useless): (Entries, Entries) = entries.clone().into_iter().partition(is_useful);
        let summary = Ledger::load(useful, usize::MAX)?.0.summary();
        if !useless.is_empty() {
            let changes = useless.into_keys().map(|key| (key, None)).collect();
            database.apply(&[(Lease::for_ever(channel), Effects { changes, summary: summary.clone() })])?;
        }
        found.channels.insert(channel, summary);
    }
    Ok(found)
}

/// Whether something is missing of a channel that the mirror knows of. The mirror is written last: where the database has
/// seen a later commit, it is right.
fn is_behind(found: &Summary, mirrored: &Summary) -> bool {
    if found.version > mirrored.version {
        return false;
    }
    let cursors = mirrored.cursors.iter().any(|(sink, cursor)| found.cursors.get(sink) < Some(cursor));
    // Format 1 has no versions, and its numbers may be those of one commit earlier.
    let counted = mirrored.version > 0;
    let fewer = found.late < mirrored.late
        || found.quarantined < mirrored.quarantined
        || found.dead_letters < mirrored.dead_letters;
    cursors || counted && (found.version < mirrored.version || fewer)
}

/// Puts the cursors where nothing is lost, and records what is.
fn restore(
    database: Database,
    mut found: Mirror,
    mirrored: Mirror,
    kept: Option<&Path>,
    message: &str,
) -> Result<(Database, Mirror), StateError> {
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
    database.apply(&group)?;
    (lost.at, lost.kept) = (jiff::Timestamp::now().to_string(), kept.map(|kept| kept.display().to_string()));
    let Lost { quarantined, dead_letters, late, kept, .. } = &lost;
    tracing::error!(
        error = message,
        kept,
        quarantined,
        dead_letters,
        late,
        "the state database was damaged: these quarantined events and dead letters are lost, the late events are read \
         again, and the cursors go on from cursors.json; acknowledge it with `channeld state acknowledge`"
    );
    found.lost = Some(lost);
    Ok((database, found))
}

/// Puts a channel's cursors where the mirror has them or, where late events may be missing, below each of those.
fn put_back(known: Summary, has: Summary) -> Effects {
    // An older database may have other late events than the newest ones, and as many.
    let may_miss_late = has.late < known.late || has.version < known.version;
    let lowest_owed = known.late_from.filter(|_| may_miss_late).map(|from| Cursor { through: from.before() });
    let mut summary = Summary { version: known.version.max(has.version) + 1, ..has };
    for (sink, cursor) in known.cursors {
        summary.cursors.insert(sink, lowest_owed.map_or(cursor, |lowest| lowest.min(cursor)));
    }
    let cursors = summary.cursors.iter().map(|(sink, cursor)| (Key::Cursor(sink.clone()), Some(encode(cursor))));
    let changes = cursors.chain([(Key::Version, Some(encode(&summary.version)))]).collect();
    Effects { changes, summary }
}

/// Copies the database as it was found. Without room for a copy, the database is opened all the same.
fn is_copied(database: &Path, to: &Path) -> bool {
    let copied = copy(database, to);
    if let Err(error) = &copied {
        tracing::warn!(%error, "the state database could not be copied before it is opened: if it is damaged, only what can be read of it is kept");
        // What there is of it says nothing.
        let _ = remove(to);
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
        }
    }
    Ok(())
}

/// Keeps a damaged database for an operator to look at.
fn keep(from: &Path) -> Result<PathBuf, StateError> {
    let kept = from.with_file_name(format!("sled.damaged-{}", jiff::Timestamp::now().as_millisecond()));
    let failed = |error| StateError::io(format!("keeping {} aside", from.display()), error);
    fs::rename(from, &kept).map(|()| kept).map_err(failed)
}

/// Removes a file, or a directory with what is in it, if there is one.
fn remove(path: &Path) -> Result<(), StateError> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    removed.map_err(|error| StateError::io(format!("removing {}", path.display()), error))
}
