//! Failures of SQLite, with messages for an operator.

use std::io;
use std::path::Path;

use rusqlite::ErrorCode;

use crate::SinkError;

/// A failure: its message and its cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    message: String,
    blame: Blame,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blame {
    /// This event causes it. Another event may be accepted.
    Event,
    /// The database causes it. It can end without an operator.
    Database,
    /// The database causes it, until an operator acts.
    Operator,
}

impl Failure {
    pub(super) fn of(error: &rusqlite::Error, path: &Path) -> Self {
        let path = path.display();
        let (blame, advice) = match error.sqlite_error_code() {
            Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch) => {
                (Blame::Event, "a constraint or a trigger that was added to the table refuses this event")
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                (Blame::Database, "another program holds it locked: end its transaction")
            }
            Some(ErrorCode::DiskFull) => {
                (Blame::Operator, "make room on its file system, or set keep_for or keep_size")
            }
            Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => (
                Blame::Operator,
                "the file and its directory must be channeld's to write, for its log stands beside it",
            ),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => (
                Blame::Operator,
                "it is damaged or no SQLite database: move it away, and a new one is made; `sqlite3 FILE .recover` reads what \
                 is left, and `channeld replay` delivers the rest again",
            ),
            Some(ErrorCode::SystemIoFailure) => (Blame::Operator, "look at its disk and at the system's log"),
            _ => (Blame::Operator, "was its table changed? `channeld check --connect` says what it lacks"),
        };
        Self { message: format!("writing to {path}: {error}; {advice}"), blame }
    }

    pub(super) fn opening(error: &io::Error, path: &Path) -> Self {
        let advice = match error.kind() {
            io::ErrorKind::NotFound => "; make its directory",
            io::ErrorKind::PermissionDenied => "; it and its directory must be channeld's to write",
            _ => "",
        };
        Self { message: format!("opening {}: {error}{advice}", path.display()), blame: Blame::Operator }
    }

    /// The file was moved while it was opened.
    pub(super) fn missing(path: &Path) -> Self {
        Self { message: format!("{} has just been moved away", path.display()), blame: Blame::Database }
    }

    pub(super) fn without_log(path: &Path) -> Self {
        let message = format!(
            "the file system of {} takes no log written ahead, as one of the network: put the database on a local disk",
            path.display()
        );
        Self { message, blame: Blame::Operator }
    }

    /// The log at the path belongs to another file.
    pub(super) fn of_log(path: &Path) -> Self {
        let path = path.display();
        let message = format!(
            "{path}-wal has rows of another file: {path} was moved or replaced while they were only there; if you have that \
             file, move {path}-wal beside it, under its name with -wal at the end; otherwise remove {path}-wal and {path}-shm"
        );
        Self { message, blame: Blame::Operator }
    }

    /// Another program reads the moved file, so the log cannot be written into it.
    pub(super) fn of_reader(path: &Path) -> Self {
        let message = format!(
            "{} was moved or replaced, and the rows in its log cannot be written into the moved file while another program \
             reads it: end its transaction",
            path.display()
        );
        Self { message, blame: Blame::Database }
    }

    /// The table has the key of an older version, which cannot be replaced.
    pub(super) fn of_key(table: &str) -> Self {
        Self::of_table(format!(
            "table {table} is unique over (channel_id, event_offset), so that of two events at one offset the second would be \
             lost, and its definition was changed: make the table again without that key"
        ))
    }

    pub(super) fn of_table(message: String) -> Self {
        Self { message, blame: Blame::Operator }
    }

    /// Whether the failure would also affect every other event.
    pub(super) fn is_of_the_database(&self) -> bool {
        self.blame != Blame::Event
    }
}

impl Failure {
    pub(super) fn error(self) -> SinkError {
        let Self { message, blame } = self;
        match blame {
            Blame::Event => SinkError::refused(message),
            Blame::Database => SinkError::away(message),
            Blame::Operator => SinkError::unusable(message),
        }
    }
}
