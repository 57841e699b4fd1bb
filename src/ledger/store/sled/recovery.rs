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
use super::mirror::Contents;
use crate::event::ChannelId;
use crate::ledger::store::Lease;
use crate::ledger::{Change, Commit, Cursor, Effects, Key, Ledger, Lost, StateError, Summary, Value};
use crate::telemetry::Chain;

/// Where the database is copied before sled opens it, because sled cuts off what it cannot read.
const COPY: &str = "sled.as-found";

/// Opens the database of a locked directory, with what the mirror has to say of it from now on.
pub(super) fn open(directory: &Directory) -> Result<(Database, Contents), StateError> {
    let (path, mirror) = (directory.database(), directory.mirror());
    let mut mirrored = mirror.read();
    let is_new = !path.exists();
    if is_new && matches!(mirrored, Ok(None)) {
        // It says that nothing was ever recorded: what a crash leaves of a database that was being created is then not
        // taken for one that knew where we were.
        mirror.write(&Contents::default())?;
        mirrored = Ok(Some(Contents::default()));
    }
    let copy = Copy::of(&path, directory.path().join(COPY));
    let opened = Database::open(&path).and_then(|database| Ok((found_in(&database)?, database)));
    let (mut found, database) = match opened {
        Ok(opened) => opened,
        Err(StateError::DamagedDatabase(message)) => return replace(directory, copy, mirrored?, message),
        Err(error) => return Err(error),
    };
    let mirrored = match mirrored {
        Ok(Some(mirrored)) => mirrored,
        Ok(None) => return copy.discard().map(|()| (database, found)),
        Err(error @ StateError::Damaged(_)) if !is_new => {
            tracing::warn!(error = %Chain(&error), "the mirror cannot be read: the state database holds, and the mirror is written anew");
            return copy.discard().map(|()| (database, found));
        }
        Err(error) => return Err(error),
    };
    found.lost.clone_from(&mirrored.lost);
    let damages = damages(&mirrored, &found);
    if damages.is_empty() {
        return copy.discard().map(|()| (database, found));
    }
    let message = if is_new { "it is missing" } else { "entries that were confirmed are missing" };
    restore(directory, copy, database, found, damages, message)
}

/// Begins a new database where the damaged one does not open.
fn replace(
    directory: &Directory,
    copy: Copy,
    mirrored: Option<Contents>,
    message: String,
) -> Result<(Database, Contents), StateError> {
    let Some(mirrored) = mirrored else {
        copy.discard()?;
        return Err(StateError::Lost { path: directory.path().display().to_string(), message });
    };
    let path = directory.database();
    let failed = |error| StateError::io(format!("replacing {}", path.display()), error);
    if copy.made {
        // Also where it is no directory.
        fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path)).map_err(failed)?;
    } else {
        fs::rename(&path, &copy.to).map_err(failed)?;
    }
    let database = Database::open(&path)?;
    let found = Contents { lost: mirrored.lost.clone(), ..Contents::default() };
    let damages = damages(&mirrored, &found);
    restore(directory, Copy { made: true, ..copy }, database, found, damages, &message)
}

/// What is missing of one channel.
struct Damage {
    channel: ChannelId,
    mirrored: Summary,
    found: Summary,
}

/// What the database has, channel by channel.
fn found_in(database: &Database) -> Result<Contents, StateError> {
    let mut contents = Contents::default();
    for channel in database.channels()? {
        let mut entries = database.entries(channel)?;
        let mut unreadable = Vec::new();
        let loaded = Ledger::load(entries.iter().cloned(), usize::MAX).or_else(|_| {
            unreadable.extend(entries.extract_if(.., |entry| !is_readable(entry)).map(|(key, _)| key));
            Ledger::load(entries, usize::MAX)
        });
        let ledger = loaded?.0;
        let useless = without_body(&ledger).chain(unreadable).map(|key| (key, None)).collect::<Vec<_>>();
        let mut summary = ledger.summary();
        if !useless.is_empty() {
            let effects = Effects { changes: useless, summary };
            database.apply(&[(Lease::for_ever(channel), effects)])?;
            summary = Ledger::load(database.entries(channel)?, usize::MAX)?.0.summary();
        }
        contents.channels.insert(channel, summary);
    }
    Ok(contents)
}

fn is_readable((key, value): &(Key, Value)) -> bool {
    Ledger::load([(key.clone(), value.clone())], usize::MAX).is_ok()
}

/// Quarantined events and dead letters of which the body is gone.
fn without_body(ledger: &Ledger) -> impl Iterator<Item = Key> {
    let quarantined = ledger.quarantined().iter().filter(|(_, facts)| facts.bytes == 0);
    let dead = ledger.dead_letters().iter().filter(|(_, facts)| facts.bytes == 0);
    let quarantined = quarantined.map(|(offset, _)| Key::Quarantined(*offset));
    quarantined.chain(dead.map(|((offset, sink), _)| Key::DeadLetter(*offset, sink.clone())))
}

/// The channels of which something is missing that the mirror knows of. The mirror is written last: where the database has
/// seen a later commit, it is right.
fn damages(mirrored: &Contents, found: &Contents) -> Vec<Damage> {
    let damage = |(channel, mirrored): (&ChannelId, &Summary)| {
        let found = found.channels.get(channel).cloned().unwrap_or_default();
        is_behind(&found, mirrored).then(|| Damage { channel: *channel, mirrored: mirrored.clone(), found })
    };
    mirrored.channels.iter().filter_map(damage).collect()
}

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
    directory: &Directory,
    copy: Copy,
    database: Database,
    mut contents: Contents,
    damages: Vec<Damage>,
    message: &str,
) -> Result<(Database, Contents), StateError> {
    let kept = copy.keep()?;
    let mut lost = contents.lost.take().unwrap_or_default();
    for damage in damages {
        lost.late += damage.mirrored.late.saturating_sub(damage.found.late);
        lost.quarantined += damage.mirrored.quarantined.saturating_sub(damage.found.quarantined);
        lost.dead_letters += damage.mirrored.dead_letters.saturating_sub(damage.found.dead_letters);
        let channel = damage.channel;
        let summary = put_back(&database, damage).inspect_err(|_| database.abandon())?;
        contents.channels.insert(channel, summary);
    }
    directory.database_files().sync().inspect_err(|_| database.abandon())?;
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
    contents.lost = Some(lost);
    Ok((database, contents))
}

fn put_back(database: &Database, Damage { channel, mirrored, found }: Damage) -> Result<Summary, StateError> {
    let lowest_owed =
        mirrored.late_from.filter(|_| found.late < mirrored.late).map(|from| Cursor { through: from.before() });
    let cursors = mirrored.cursors.iter().map(|(sink, cursor)| {
        let to = lowest_owed.map_or(*cursor, |lowest| lowest.min(*cursor));
        Change::SetCursor { sink: sink.clone(), to }
    });
    let entries = database.entries(channel)?.into_iter().chain([version(mirrored.version.max(found.version))]);
    let mut ledger = Ledger::load(entries, usize::MAX)?.0;
    let effects =
        ledger.apply(Commit(cursors.collect())).map_err(|refusal| StateError::damaged(refusal.to_string()))?;
    let summary = effects.summary.clone();
    database.apply(&[(Lease::for_ever(channel), effects)])?;
    Ok(summary)
}

fn version(version: u64) -> (Key, Value) {
    (Key::Version, Value::Bytes(version.to_string().into()))
}

/// A copy of the database as it was found.
struct Copy {
    to: PathBuf,
    made: bool,
}

impl Copy {
    /// Without room for one, the database is opened all the same.
    fn of(database: &Path, to: PathBuf) -> Self {
        let copied = remove(&to).and_then(|()| copy(database, &to));
        match copied {
            Ok(()) => Self { made: to.exists(), to },
            Err(error) => {
                tracing::warn!(%error, "the state database could not be copied before it is opened: if it is damaged, only what can be read of it is kept");
                // What there is of it says nothing.
                let _ = remove(&to);
                Self { to, made: false }
            }
        }
    }

    fn discard(self) -> Result<(), StateError> {
        remove(&self.to).map_err(|error| StateError::io(format!("removing {}", self.to.display()), error))
    }

    /// Keeps it for an operator to look at; where, if there is one.
    fn keep(self) -> Result<Option<PathBuf>, StateError> {
        if !self.made || !self.to.exists() {
            return Ok(None);
        }
        let name = format!("sled.damaged-{}", jiff::Timestamp::now().as_millisecond());
        let kept = self.to.with_file_name(name);
        fs::rename(&self.to, &kept)
            .map_err(|error| StateError::io(format!("keeping {} aside", self.to.display()), error))?;
        Ok(Some(kept))
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
    }
}

/// Copies a file, or a directory with what is in it; nothing where there is none.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    match fs::symlink_metadata(from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if found.is_dir() => {
            fs::create_dir(to)?;
            for entry in fs::read_dir(from)? {
                let entry = entry?;
                copy(&entry.path(), &to.join(entry.file_name()))?;
            }
            Ok(())
        }
        Ok(_) => fs::copy(from, to).map(drop),
    }
}
