//! Failures of the database, with messages for an operator.

use tokio_postgres::error::{DbError, SqlState};

use crate::table::is_own_column;
use crate::{Fault, SinkError};
use net::http;
use net::postgres::{DatabaseError, ServerSettings, advice_on_standby, advised};

/// The maximum number of characters of a server's message that are shown. A trigger can raise a message of any length.
const SHOWN: usize = 300;

/// The start of the server's message if one value needs more memory than the server allows. The server reports this with
/// the general code for internal errors, so the text is compared.
const TOO_MUCH_MEMORY: &str = "invalid memory alloc request size";

/// The classes of the codes that PostgreSQL itself uses (its manual, appendix A).
const CLASSES: [&str; 44] = [
    "00", "01", "02", "03", "08", "09", "0A", "0B", "0F", "0L", "0P", "0Z", "10", "20", "21", "22", "23", "24", "25",
    "26", "27", "28", "2B", "2D", "2F", "34", "38", "39", "3B", "3D", "3F", "40", "42", "44", "53", "54", "55", "57",
    "58", "F0", "72", "HV", "P0", "XX",
];

/// The function of the server that compares a row with the policies of row-level security. Its name is part of the error.
const CHECKS_POLICY: &str = "ExecWithCheckOptions";

/// Why a statement was not executed.
#[derive(Debug)]
pub(super) struct StatementRefusal {
    pub(super) error: SinkError,
    pub(super) detail: Detail,
}

/// A detail of a refusal that this sink handles itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// The event may be accepted without its JSON.
    Json,
    /// A table does not exist. An operator may have dropped it.
    NoTable,
    Other,
}

impl StatementRefusal {
    /// Whether one of several events may be the cause.
    pub(super) fn may_be_of_one_event(&self) -> bool {
        self.error.fault() == Fault::Event || self.detail == Detail::Json
    }
}

impl From<SinkError> for StatementRefusal {
    fn from(error: SinkError) -> Self {
        Self { error, detail: Detail::Other }
    }
}

impl From<StatementRefusal> for SinkError {
    fn from(refusal: StatementRefusal) -> Self {
        refusal.error
    }
}

pub(super) fn of_connection(error: &DatabaseError, server: &ServerSettings, at: &str) -> SinkError {
    let message = advised(error, server, at);
    // Only an operator can change certificates.
    let is_certificate = http::find::<rustls::Error>(error).is_some();
    let is_lasting = matches!(error, DatabaseError::Server(error) if error.code().is_some_and(is_for_an_operator));
    if is_certificate || is_lasting { SinkError::unusable(message) } else { SinkError::away(message) }
}

/// The failure of a statement. Without an answer of the server, the statement may have been executed.
pub(super) fn of_statement(error: &DatabaseError, server: &ServerSettings, at: &str) -> StatementRefusal {
    let DatabaseError::Server(source) = error else { return of_connection(error, server, at).into() };
    let Some(said) = source.as_db_error() else { return of_connection(error, server, at).into() };
    let (code, words) = (said.code(), said.message().chars().take(SHOWN).collect::<String>());
    let message = |advice: &str| format!("the database says: {words}; {advice}");
    let is_too_large = *code == SqlState::INTERNAL_ERROR && words.starts_with(TOO_MUCH_MEMORY);
    if is_of_event(said) || is_too_large {
        let advice = "a constraint, a trigger or an index of the table, or a limit of the server, refuses this event";
        let may_be_json = is_too_large || matches!(class(code), "22" | "54");
        let detail = if may_be_json { Detail::Json } else { Detail::Other };
        return StatementRefusal { error: SinkError::refused(message(advice)), detail };
    }
    let advice = match *code {
        SqlState::UNDEFINED_TABLE | SqlState::UNDEFINED_COLUMN | SqlState::INVALID_COLUMN_REFERENCE => {
            "the table was changed: `channeld check --connect` prints the SQL that repairs it"
        }
        SqlState::DEPENDENT_OBJECTS_STILL_EXIST => {
            "a foreign key or another object of yours uses the old key of the table, which cannot distinguish two events at \
             one offset: drop that object"
        }
        SqlState::CHECK_VIOLATION => "create a partition of the table for this row",
        SqlState::FEATURE_NOT_SUPPORTED => "the table or the encoding of the database does not support this statement",
        SqlState::NOT_NULL_VIOLATION => {
            "give each column that you have added to the table a default, or let it be null"
        }
        SqlState::INSUFFICIENT_PRIVILEGE => {
            "the role needs select and insert on the table, and select, insert and update on its _progress table: \
             `channeld check --connect` prints the SQL"
        }
        SqlState::DISK_FULL => "make room at the server",
        SqlState::QUERY_CANCELED => {
            let advice = "retrying with fewer rows in each statement; statement_timeout of the role may be too short";
            return SinkError::away(message(advice)).into();
        }
        SqlState::READ_ONLY_SQL_TRANSACTION => {
            return SinkError::away(message(&format!("it is a standby: {}", advice_on_standby(at)))).into();
        }
        _ if is_for_an_operator(code) => return SinkError::unusable(advised(error, server, at)).into(),
        _ => return SinkError::away(message("retrying")).into(),
    };
    let detail = match *code {
        SqlState::UNDEFINED_TABLE => Detail::NoTable,
        // A database with the encoding SQL_ASCII cannot store an escaped letter as JSON.
        SqlState::FEATURE_NOT_SUPPORTED => Detail::Json,
        _ => Detail::Other,
    };
    StatementRefusal { error: SinkError::unusable(message(advice)), detail }
}

/// Whether a statement took too long for this process, or for a time limit of the server.
pub(super) fn is_timeout(error: &DatabaseError) -> bool {
    match error {
        DatabaseError::Silent(_) => true,
        DatabaseError::Server(error) => error.code() == Some(&SqlState::QUERY_CANCELED),
    }
}

/// The class of a code: its first two characters.
fn class(code: &SqlState) -> &str {
    code.code().get(..2).unwrap_or_default()
}

/// Whether an error concerns only one event, so that another event may be accepted. The cause is then bad data, a violated
/// constraint, a limit, or the error of a trigger.
fn is_of_event(said: &DbError) -> bool {
    match (said.code(), class(said.code())) {
        // Only this event has no value for a column of channeld. A column that an operator added has no value in any row.
        (&SqlState::NOT_NULL_VIOLATION, _) => said.column().is_some_and(is_own_column),
        // Without the name of a constraint, the table has no partition for the row.
        (&SqlState::CHECK_VIOLATION, _) => said.constraint().is_some(),
        // A policy refuses this row. The other errors with this code are about the rights to the table.
        (&SqlState::INSUFFICIENT_PRIVILEGE, _) => said.routine() == Some(CHECKS_POLICY),
        (_, "22" | "23" | "44" | "54" | "P0") => true,
        // A trigger has raised a code of its own.
        (_, class) => !CLASSES.contains(&class),
    }
}

/// Whether an error with this code lasts until an operator acts. The cause is then a missing right, a wrong name, a missing
/// object, or a changed table.
fn is_for_an_operator(code: &SqlState) -> bool {
    matches!(class(code), "0A" | "28" | "3D" | "3F" | "42" | "55" | "F0" | "XX")
        && *code != SqlState::LOCK_NOT_AVAILABLE
}
