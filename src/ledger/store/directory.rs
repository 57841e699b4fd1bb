//! The state directory: its lock, its ownership checks, and `state.json`, which records the states that were used with
//! this directory. If a recorded state has disappeared, the daemon therefore refuses to start, instead of starting with
//! an empty state.
//!
//! # Invariants
//!
//! * **Private to its owner.** The directory belongs to this user and has mode 0700. The files that channeld keeps in
//!   it belong to this user, and none of them is a symbolic link. Anything else is an error before any file is opened.
//! * **Never torn.** A file is written under another name, synced, and renamed.
//! * **`state.json` is optional.** If the file is missing, the daemon uses the state that it finds.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, major, minor};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::StateError;

pub(super) const DATABASE: &str = "sled";
pub(super) const MIRROR: &str = "cursors.json";
/// The file name of a new mirror until it is complete and on disk. If the process is killed before that, the next write
/// replaces this file.
pub(super) const MIRROR_NEXT: &str = "cursors.json.new";
pub(super) const DISCOVERED: &str = "discovered.json";
pub(super) const DISCOVERED_NEXT: &str = "discovered.json.new";
const USED: &str = "state.json";
const USED_NEXT: &str = "state.json.new";
const LOCK: &str = "lock";

/// The list of all locks on files that the system shows this process.
const LOCKS: &str = "/proc/locks";

const ROOT: u32 = 0;

const NO_FOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();

/// The locked directory. The operating system releases the lock when the process ends, even after a crash.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) path: PathBuf,
    /// Device and inode of the directory, so that a later change of the path is noticed.
    id: (u64, u64),
    _lock: File,
}

impl Directory {
    /// Creates the directory if it is missing, checks that only this user can access it, and locks it.
    pub(super) fn lock(path: &Path) -> Result<Self, StateError> {
        let failed =
            |doing: &str, error| StateError::io(format!("{doing} the state directory {}", path.display()), error);
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| failed("creating", error))?;
        let metadata = fs::metadata(path).map_err(|error| failed("reading", error))?;
        check_all(path, &metadata, this_user())?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(NO_FOLLOW);
        let mut lock = options.open(path.join(LOCK)).map_err(|error| failed("writing to", error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_use(path, &lock)),
            Err(TryLockError::Error(error)) => return Err(failed("locking", error)),
        }
        lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id())).map_err(|e| failed("writing to", e))?;
        Ok(Self { path: path.to_owned(), id: (metadata.dev(), metadata.ino()), _lock: lock })
    }

    /// Describes what `lock` would find or create, or returns the problem. Creates nothing. If the caller is root, the
    /// checks use the directory's owner instead of root.
    pub(super) fn examine(path: &Path) -> Result<String, StateError> {
        let failed = |error| StateError::io(format!("reading the state directory {}", path.display()), error);
        match fs::metadata(path) {
            Ok(metadata) => {
                let (owner, ours) = (metadata.uid(), this_user());
                check_all(path, &metadata, if ours == ROOT { owner } else { ours })?;
                let may = rustix::fs::access(path, Access::WRITE_OK | Access::EXEC_OK);
                may.map_err(|error| {
                    StateError::io(format!("writing to the state directory {}", path.display()), error.into())
                })?;
                Ok(format!("it exists and belongs to user {owner}"))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let absolute = std::path::absolute(path).map_err(failed)?;
                let parent = absolute.ancestors().find(|parent| parent.exists()).unwrap_or(Path::new("/"));
                let may = rustix::fs::access(parent, Access::WRITE_OK | Access::EXEC_OK);
                if !parent.is_dir() || may.is_err() {
                    let problem = format!("cannot be created: this user may not write to {}", parent.display());
                    return Err(unsafe_to_use(path, &problem));
                }
                Ok(format!("it will be created in {}", parent.display()))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// The error with which `lock` would fail because another process has locked the directory. Does not try to lock it,
    /// because this would disturb a daemon that starts at this moment.
    pub(super) fn in_use(path: &Path) -> Option<StateError> {
        let lock = path.join(LOCK);
        let metadata = fs::symlink_metadata(&lock).ok()?;
        let place = format!("{:02x}:{:02x}:{}", major(metadata.dev()), minor(metadata.dev()), metadata.ino());
        let locks = fs::read_to_string(LOCKS).ok()?;
        let is_it = |line: &str| {
            let fields: Vec<_> = line.split_whitespace().collect();
            matches!(fields[..], [_, "FLOCK", _, _, _, at, ..] if at == place)
        };
        locks.lines().find(|line| is_it(line))?;
        Some(in_use(path, &File::open(&lock).ok()?))
    }

    pub(super) fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }

    /// Checks that the path still leads to the same directory.
    pub(super) fn check(&self) -> Result<(), StateError> {
        let found = fs::metadata(&self.path).map_err(|_| gone(&self.path))?;
        if (found.dev(), found.ino()) == self.id { Ok(()) } else { Err(gone(&self.path)) }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Used {
    /// Whether this directory has contained a sled database.
    #[serde(default)]
    pub(super) sled: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) database: Option<UsedDatabase>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UsedDatabase {
    /// The id of the state, which the database contains too.
    pub(super) id: Uuid,
    pub(super) schema: String,
    pub(super) database: String,
}

impl Used {
    /// The path of the file in a state directory.
    pub(super) fn file(directory: &Path) -> PathBuf {
        directory.join(USED)
    }

    /// Reads the file. If it does not exist, no state was used.
    pub(super) fn read(directory: &Path) -> Result<Self, StateError> {
        let path = Self::file(directory);
        let Some(json) = read(&path)? else { return Ok(Self::default()) };
        serde_json::from_slice(&json).map_err(|_| {
            let path = path.display();
            StateError::Unusable(format!(
                "{path} cannot be read: if the state in this directory is the right one, remove that file"
            ))
        })
    }

    /// Changes the file, and returns when the change is on disk. Only the process that has locked the directory may
    /// call this.
    pub(super) fn change(directory: &Path, change: impl FnOnce(&mut Self)) -> Result<(), StateError> {
        let before = Self::read(directory)?;
        let mut used = before.clone();
        change(&mut used);
        if used == before {
            return Ok(());
        }
        replace(directory, USED, USED_NEXT, &used)
    }
}

/// Replaces the file `name` in a directory with a value as JSON. Returns when the new file is on disk. The value is written
/// to the file `next`, synced, and renamed.
pub(super) fn replace(directory: &Path, name: &str, next: &str, value: &impl Serialize) -> Result<(), StateError> {
    let (path, next) = (directory.join(name), directory.join(next));
    let replaced = || -> io::Result<()> {
        let mut json = serde_json::to_vec_pretty(value)?;
        json.push(b'\n');
        write(&path, &next, &json)?;
        sync_directory(directory)
    };
    replaced().map_err(|error| StateError::io(format!("writing {}", path.display()), error))
}

/// Writes the content to the file `next`, syncs it, and renames it to `path`. The directory is not synced here. Only
/// after [`sync_directory`] is the renaming on disk.
pub(super) fn write(path: &Path, next: &Path, content: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).custom_flags(NO_FOLLOW);
    let mut file = options.open(next)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(next, path)
}

pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Reads a file. `None` if it does not exist.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>, StateError> {
    match fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StateError::io(format!("reading {}", path.display()), error)),
    }
}

/// The error for a directory or file that was opened and has disappeared since.
pub(super) fn gone(path: &Path) -> StateError {
    unsafe_to_use(
        path,
        "is gone: further records would be lost; stop the daemon, and restore the directory or start with a new one",
    )
}

fn unsafe_to_use(path: &Path, problem: &str) -> StateError {
    StateError::Unusable(format!("the state's path {} {problem}", path.display()))
}

fn this_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn check_all(path: &Path, metadata: &Metadata, ours: u32) -> Result<(), StateError> {
    if !metadata.is_dir() {
        return Err(unsafe_to_use(path, "is not a directory: choose another path, or move it away"));
    }
    check_owner(path, metadata, ours)?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode.trailing_zeros() < 6 {
        let remedy = format!("run `chmod 700 {}`", path.display());
        let problem = format!("has mode {mode:04o}, but other users must have no access: {remedy}");
        return Err(unsafe_to_use(path, &problem));
    }
    [LOCK, DATABASE, MIRROR, MIRROR_NEXT, DISCOVERED, DISCOVERED_NEXT, USED, USED_NEXT]
        .iter()
        .try_for_each(|name| check_contents(&path.join(name), ours))
}

fn check_owner(path: &Path, metadata: &Metadata, ours: u32) -> Result<(), StateError> {
    let owner = metadata.uid();
    if owner == ours {
        return Ok(());
    }
    Err(unsafe_to_use(
        path,
        &format!("belongs to user {owner}, but channeld runs as user {ours}: change the owner with chown"),
    ))
}

/// Checks a file of channeld, or a directory and its contents. A missing path is fine.
fn check_contents(path: &Path, ours: u32) -> Result<(), StateError> {
    let failed = |error| StateError::io(format!("reading {}", path.display()), error);
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if metadata.is_symlink() {
        return Err(unsafe_to_use(
            path,
            "is a symbolic link, which channeld never creates: find out who created it, and remove it",
        ));
    }
    check_owner(path, &metadata, ours)?;
    if metadata.is_dir() {
        for entry in fs::read_dir(path).map_err(failed)? {
            check_contents(&entry.map_err(failed)?.path(), ours)?;
        }
    }
    Ok(())
}

fn in_use(path: &Path, lock: &File) -> StateError {
    let holder = io::read_to_string(lock).unwrap_or_default();
    let holder = if holder.trim().is_empty() { "unknown" } else { holder.trim() };
    StateError::InUse { path: path.display().to_string(), holder: holder.to_owned() }
}
