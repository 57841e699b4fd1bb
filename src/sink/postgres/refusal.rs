//! Failures of the database, with messages for an operator.

use tokio_postgres::error::SqlState;

use crate::SinkError;
use net::http;
use net::postgres::{DatabaseError, ServerSettings, advice_on_standby, advised};

/// The maximum number of characters of a server's message that are shown. A trigger can raise a message of any length.
const SHOWN: usize = 300;

/// The start of the server's message if one value needs more memory than the server allows. The server reports this with
/// the general code for internal errors, so the text is compared.
const TOO_MUCH_MEMORY: &str = "invalid memory alloc request size";

/// Why a statement was not executed.
#[derive(Debug)]
pub(super) struct Refusal {
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

impl From<SinkError> for Refusal {
    fn from(error: SinkError) -> Self {
        Self { error, detail: Detail::Other }
    }
}

impl From<Refusal> for SinkError {
    fn from(refusal: Refusal) -> Self {
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
pub(super) fn of_statement(error: &DatabaseError, server: &ServerSettings, at: &str) -> Refusal {
    let DatabaseError::Server(source) = error else { return of_connection(error, server, at).into() };
    let Some(said) = source.as_db_error() else { return of_connection(error, server, at).into() };
    let (code, words) = (said.code(), said.message().chars().take(SHOWN).collect::<String>());
    let message = |advice: &str| format!("the database says: {words}; {advice}");
    let is_too_large = *code == SqlState::INTERNAL_ERROR && words.starts_with(TOO_MUCH_MEMORY);
    if is_of_event(code) || is_too_large {
        let advice = "a constraint, a trigger or an index of the table, or a limit of the server, refuses this event";
        let may_be_json = is_too_large || matches!(class(code), "22" | "54");
        let detail = if may_be_json { Detail::Json } else { Detail::Other };
        return Refusal { error: SinkError::refused(message(advice)), detail };
    }
    let advice = match *code {
        SqlState::UNDEFINED_TABLE | SqlState::UNDEFINED_COLUMN | SqlState::INVALID_COLUMN_REFERENCE => {
            "the table was changed: `channeld check --connect` prints the SQL that repairs it"
        }
        SqlState::DEPENDENT_OBJECTS_STILL_EXIST => {
            "a foreign key or another object of yours uses the old key of the table, which cannot distinguish two events at \
             one offset: drop that object"
        }
        SqlState::NOT_NULL_VIOLATION => {
            "give each column that you have added to the table a default, or let it be null"
        }
        SqlState::INSUFFICIENT_PRIVILEGE => {
            "the role needs select and insert on the table, and select, insert and update on its _progress table: \
             `channeld check --connect` prints the SQL"
        }
        SqlState::DISK_FULL => "make room at the server",
        SqlState::READ_ONLY_SQL_TRANSACTION => {
            return SinkError::away(message(&format!("it is a standby: {}", advice_on_standby(at)))).into();
        }
        _ if is_for_an_operator(code) => return SinkError::unusable(advised(error, server, at)).into(),
        _ => return SinkError::away(message("retrying")).into(),
    };
    let detail = if *code == SqlState::UNDEFINED_TABLE { Detail::NoTable } else { Detail::Other };
    Refusal { error: SinkError::unusable(message(advice)), detail }
}

/// The class of a code: its first two characters.
fn class(code: &SqlState) -> &str {
    code.code().get(..2).unwrap_or_default()
}

/// Whether an error with this code concerns only one event, so that another event may be accepted. The cause is then bad
/// data, a violated constraint, a limit, or the error of a trigger.
fn is_of_event(code: &SqlState) -> bool {
    *code != SqlState::NOT_NULL_VIOLATION && matches!(class(code), "22" | "23" | "44" | "54" | "P0")
}

/// Whether an error with this code lasts until an operator acts. The cause is then a missing right, a wrong name, a missing
/// object, or a changed table.
fn is_for_an_operator(code: &SqlState) -> bool {
    matches!(class(code), "0A" | "28" | "3D" | "3F" | "42" | "55" | "F0" | "XX")
        && *code != SqlState::LOCK_NOT_AVAILABLE
}
