//! Failures of the database, with messages for an operator.

use tokio_postgres::error::SqlState;

use super::statements::SUPPRESSED_ROW;
use crate::SinkError;
use crate::table::SUPPRESSED;
use net::http;
use net::postgres::{DatabaseError, ServerSettings, advice_on_standby, advised};

/// The maximum number of characters of a server's message that are shown. A trigger can raise a message of any length.
const SHOWN: usize = 300;

/// The start of the server's message if one value needs more memory than the server allows. The server reports this with
/// the general code for internal errors, so the text is compared.
const TOO_MUCH_MEMORY: &str = "invalid memory alloc request size";

/// The classes of codes that have a temporary cause: the connection, another transaction, a limit of the whole server, or a
/// foreign server. Rows that are refused with another code are narrowed.
const TEMPORARY: [&str; 9] = ["08", "25", "2D", "40", "53", "57", "58", "72", "HV"];

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
    /// The rows, or the tables, are the cause. Offering other rows shows which.
    Narrowed,
    /// The connection, the server or its configuration is the cause.
    Other,
}

impl StatementRefusal {
    /// Whether one of several rows may be the cause.
    pub(super) fn may_be_of_one_row(&self) -> bool {
        matches!(self.detail, Detail::Json | Detail::Narrowed)
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
    if *code == SqlState::UNDEFINED_OBJECT && words.contains(SUPPRESSED_ROW) {
        return StatementRefusal { error: SinkError::unusable(SUPPRESSED.to_owned()), detail: Detail::Narrowed };
    }
    let message = |advice: &str| format!("the database says: {words}; {advice}");
    let is_too_large = *code == SqlState::INTERNAL_ERROR && words.starts_with(TOO_MUCH_MEMORY);
    let advice = match *code {
        // Without a context, the statement itself names the table. Otherwise a trigger does.
        SqlState::UNDEFINED_TABLE | SqlState::UNDEFINED_COLUMN | SqlState::INVALID_COLUMN_REFERENCE
            if said.where_().is_none() =>
        {
            "the table was changed: `channeld check --connect` prints the SQL that repairs it"
        }
        SqlState::DEPENDENT_OBJECTS_STILL_EXIST => {
            "a foreign key or another object of yours uses the old key of the table, which cannot distinguish two events at \
             one offset: drop that object"
        }
        SqlState::CHECK_VIOLATION if said.constraint().is_none() => "create a partition of the table for this row",
        SqlState::FEATURE_NOT_SUPPORTED => "the table or the encoding of the database does not support this statement",
        SqlState::NOT_NULL_VIOLATION => {
            "give each column that you have added to the table a default, or let it be null"
        }
        SqlState::INSUFFICIENT_PRIVILEGE => {
            "the role needs select, insert and update of the column position on the table, and select, insert and update on its _progress, \
             _operations and _consumers tables (`channeld check --connect` prints the SQL), and the policies of the table must \
             allow the row"
        }
        SqlState::DISK_FULL => return SinkError::unusable(message("make room at the server")).into(),
        SqlState::QUERY_CANCELED => {
            let advice = "retrying with fewer rows in each statement; statement_timeout of the role may be too short";
            return SinkError::away(message(advice)).into();
        }
        SqlState::READ_ONLY_SQL_TRANSACTION => {
            return SinkError::away(message(&format!("it is a standby: {}", advice_on_standby(at)))).into();
        }
        _ if *code == SqlState::LOCK_NOT_AVAILABLE || TEMPORARY.contains(&class(code)) => {
            return SinkError::away(message("retrying")).into();
        }
        // These classes concern the login or the database, which no row can cause.
        _ if matches!(class(code), "28" | "3D" | "F0") => {
            return SinkError::unusable(advised(error, server, at)).into();
        }
        _ => "a constraint, a trigger or an index of the table, or a limit of the server, is the cause",
    };
    let detail = match (code, class(code)) {
        (&SqlState::UNDEFINED_TABLE, _) if said.where_().is_none() => Detail::NoTable,
        // A database with the encoding SQL_ASCII cannot store an escaped letter as JSON.
        (&SqlState::FEATURE_NOT_SUPPORTED, _) | (_, "22" | "54") => Detail::Json,
        _ if is_too_large => Detail::Json,
        _ => Detail::Narrowed,
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

/// Whether an error with this code lasts until an operator acts. The cause is then a missing right, a wrong name, a missing
/// object, or a changed table.
fn is_for_an_operator(code: &SqlState) -> bool {
    matches!(class(code), "0A" | "28" | "3D" | "3F" | "42" | "55" | "F0" | "XX")
        && *code != SqlState::LOCK_NOT_AVAILABLE
}
