//! Failures of SQLite, with messages for an operator.

use std::io;
use std::path::Path;

use rusqlite::{ErrorCode, ffi};

use crate::table::SUPPRESSED;
use crate::{Fault, SinkError};
use net::shortage::Shortage;

/// Why the database was not used.
pub(super) enum SqliteError {
    /// SQLite's error, and how many rows of the same lane come before the row that failed. `None` if the transaction failed at
    /// its end, because of a deferred constraint: any of its rows can be the cause.
    Sqlite(rusqlite::Error, Option<usize>),
    /// A failure that SQLite did not report. If it concerns one lane, nothing was written for this lane.
    Other(SinkError),
}

impl SqliteError {
    pub(super) fn at(self, path: &Path) -> SinkError {
        match self {
            Self::Sqlite(error, _) => of(&error, path),
            Self::Other(error) => error,
        }
    }

    /// Whether one of several rows may be the cause.
    pub(super) fn may_be_of_one_row(&self) -> bool {
        let Self::Sqlite(error, _) = self else { return false };
        // An error in the SQL of a trigger has the code `Unknown`.
        let codes = [
            ErrorCode::ConstraintViolation,
            ErrorCode::TooBig,
            ErrorCode::TypeMismatch,
            ErrorCode::OperationAborted,
            ErrorCode::Unknown,
        ];
        error.sqlite_error_code().is_some_and(|code| codes.contains(&code))
    }
}

impl From<rusqlite::Error> for SqliteError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error, Some(0))
    }
}

impl From<SinkError> for SqliteError {
    fn from(error: SinkError) -> Self {
        Self::Other(error)
    }
}

/// The error of a row that a trigger has suppressed with `raise(ignore)`: the same as if it had raised an error.
pub(super) fn suppressed() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CONSTRAINT_TRIGGER), Some(SUPPRESSED.to_owned()))
}

pub(super) fn of(error: &rusqlite::Error, path: &Path) -> SinkError {
    let path = path.display();
    let code = error.sqlite_error_code();
    // SQLite's error does not contain the system's error.
    let is_perhaps_shortage = matches!(code, Some(ErrorCode::CannotOpen | ErrorCode::SystemIoFailure));
    if let Some(shortage) = Shortage::of_descriptors_now().filter(|_| is_perhaps_shortage) {
        return SinkError::away(format!("writing to {path}: {error}{}", shortage.advice()));
    }
    let (fault, advice) = match code {
        Some(ErrorCode::OutOfMemory) => (Fault::Target, "the machine has no free memory"),
        Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch) => {
            (Fault::Operator, "a constraint or a trigger that was added to the table is the cause")
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            (Fault::Target, "another program has locked the database: end the transaction of that program")
        }
        Some(ErrorCode::DiskFull) => (Fault::Operator, "make room on its file system, or set keep_for or keep_size"),
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => (
            Fault::Operator,
            "channeld must be able to write to the file and its directory, which also contains its write-ahead log",
        ),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => (
            Fault::Operator,
            "it is damaged or not an SQLite database: move it away, and channeld creates a new one; `sqlite3 FILE .recover` \
             reads the remaining rows, and `channeld replay` delivers the lost events again",
        ),
        Some(ErrorCode::SystemIoFailure) => {
            (Fault::Operator, "check its disk, the quota, ulimit -f and the system's log")
        }
        _ => (Fault::Operator, "was its table changed? `channeld check --connect` shows the difference"),
    };
    SinkError::Unavailable { message: format!("writing to {path}: {error}; {advice}"), fault }
}

/// The failure to open a file or a directory.
pub(super) fn opening(error: &io::Error, path: &Path) -> SinkError {
    if let Some(shortage) = Shortage::of(error) {
        return SinkError::away(format!("opening {}: {error}{}", path.display(), shortage.advice()));
    }
    let advice = match error.kind() {
        io::ErrorKind::NotFound => "; create its directory",
        io::ErrorKind::PermissionDenied => "; channeld must be able to write to it and to its directory",
        _ => "",
    };
    SinkError::unusable(format!("opening {}: {error}{advice}", path.display()))
}
