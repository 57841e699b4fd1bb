//! Failures of SQLite, with messages for an operator.

use std::io;
use std::path::Path;

use rusqlite::ErrorCode;

use crate::{Fault, SinkError};

/// The failure of a statement.
pub(super) fn of(error: &rusqlite::Error, path: &Path) -> SinkError {
    let path = path.display();
    let (fault, advice) = match error.sqlite_error_code() {
        Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch) => {
            (Fault::Event, "a constraint or a trigger that was added to the table refuses this event")
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            (Fault::Target, "another program holds it locked: end its transaction")
        }
        Some(ErrorCode::DiskFull) => (Fault::Operator, "make room on its file system, or set keep_for or keep_size"),
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => (
            Fault::Operator,
            "channeld must be able to write to the file and its directory, which also contains its write-ahead log",
        ),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => (
            Fault::Operator,
            "it is damaged or no SQLite database: move it away, and a new one is made; `sqlite3 FILE .recover` reads what \
             is left, and `channeld replay` delivers the rest again",
        ),
        Some(ErrorCode::SystemIoFailure) => (Fault::Operator, "look at its disk and at the system's log"),
        _ => (Fault::Operator, "was its table changed? `channeld check --connect` shows the difference"),
    };
    let message = format!("writing to {path}: {error}; {advice}");
    if fault == Fault::Event { SinkError::refused(message) } else { SinkError::Unavailable { message, fault } }
}

/// The failure to open a file or a directory.
pub(super) fn opening(error: &io::Error, path: &Path) -> SinkError {
    let advice = match error.kind() {
        io::ErrorKind::NotFound => "; make its directory",
        io::ErrorKind::PermissionDenied => "; it and its directory must be channeld's to write",
        _ => "",
    };
    SinkError::unusable(format!("opening {}: {error}{advice}", path.display()))
}

/// The file was moved while it was opened.
pub(super) fn missing(path: &Path) -> SinkError {
    SinkError::away(format!("{} has just been moved away", path.display()))
}

/// The file system does not support write-ahead logging.
pub(super) fn without_log(path: &Path) -> SinkError {
    let message = format!(
        "the file system of {} takes no log written ahead, as one of the network: put the database on a local disk",
        path.display()
    );
    SinkError::unusable(message)
}

/// The log at the path belongs to another file.
pub(super) fn of_log(path: &Path) -> SinkError {
    let path = path.display();
    let message = format!(
        "{path}-wal has rows of another file: {path} was moved or replaced while they were only there; if you have that \
         file, move {path}-wal beside it, under its name with -wal at the end; otherwise remove {path}-wal and {path}-shm"
    );
    SinkError::unusable(message)
}

/// Another program reads the moved file, so the log cannot be written into it.
pub(super) fn of_reader(path: &Path) -> SinkError {
    let message = format!(
        "{} was moved or replaced, and the rows in its log cannot be written into the moved file while another program \
         reads it: end its transaction",
        path.display()
    );
    SinkError::away(message)
}

/// The table has the key of an older version, which cannot be replaced.
pub(super) fn of_key(table: &str) -> SinkError {
    SinkError::unusable(format!(
        "table {table} is unique over (channel_id, event_offset), so that of two events at one offset the second would be \
         lost, and its definition was changed: make the table again without that key"
    ))
}
