//! Why the database does not take something, in an operator's words.

use tokio_postgres::error::SqlState;

use crate::SinkError;
use net::http;
use net::postgres::{DatabaseError, ServerSettings, advice_on_standby, advised};

/// The most letters of what a server says that are shown: triggers say what they like.
const SHOWN: usize = 300;

/// How the server says, with the code of an internal error, that it does not give so much memory to one value.
const TOO_MUCH_MEMORY: &str = "invalid memory alloc request size";

/// The advice if the table is not as it was.
const CHANGED: &str = "the table was changed: `channeld check --connect` prints the SQL for what it lacks";

/// What happened, and whose it is.
#[derive(Debug)]
pub(super) enum Failure {
    /// This event's: another may be taken. `is_json`: it may be taken without its JSON.
    Event { message: String, is_json: bool },
    /// The database's, for now.
    Database(String),
    /// The database's, until an operator acts.
    Operator(String),
    /// A table does not exist, which an operator may have dropped.
    NoTable(String),
    /// The lane's row is not what the statement expects: another instance has the lane, or its position is another one.
    Lane(SinkError),
}

impl Failure {
    /// There is no connection, or it was lost.
    pub(super) fn of_connection(error: &DatabaseError, server: &ServerSettings, at: &str) -> Self {
        let message = advised(error, server, at);
        // Certificates stay as they are until an operator changes them.
        let is_certificate = http::find::<rustls::Error>(error).is_some();
        if is_certificate || code(error).is_some_and(is_for_an_operator) {
            Self::Operator(message)
        } else {
            Self::Database(message)
        }
    }

    /// A statement was not carried out, as far as is known.
    pub(super) fn of_statement(error: &DatabaseError, server: &ServerSettings, at: &str) -> Self {
        let DatabaseError::Server(source) = error else { return Self::of_connection(error, server, at) };
        let Some(said) = source.as_db_error() else { return Self::of_connection(error, server, at) };
        let (code, words) = (said.code(), said.message().chars().take(SHOWN).collect::<String>());
        let message = |advice: &str| format!("the database says: {words}; {advice}");
        let is_too_large = *code == SqlState::INTERNAL_ERROR && words.starts_with(TOO_MUCH_MEMORY);
        if is_of_event(code) || is_too_large {
            let advice =
                "a constraint, a trigger or an index of the table, or a limit of the server, refuses this event";
            return Self::Event { message: message(advice), is_json: is_of_json(code) || is_too_large };
        }
        match *code {
            SqlState::UNDEFINED_TABLE => Self::NoTable(message(CHANGED)),
            SqlState::UNDEFINED_COLUMN | SqlState::INVALID_COLUMN_REFERENCE => Self::Operator(message(CHANGED)),
            SqlState::DEPENDENT_OBJECTS_STILL_EXIST => Self::Operator(message(
                "a foreign key or another object of yours uses the old key of the table, which does not tell two events at one \
                 offset apart: drop that object",
            )),
            SqlState::NOT_NULL_VIOLATION => Self::Operator(message(
                "give each column that you have added to the table a default, or let it be null",
            )),
            SqlState::INSUFFICIENT_PRIVILEGE => Self::Operator(message(
                "the role needs select and insert on the table, and select, insert and update on its _progress: \
                 `channeld check --connect` prints the SQL",
            )),
            SqlState::DISK_FULL => Self::Operator(message("make room at the server")),
            SqlState::READ_ONLY_SQL_TRANSACTION => {
                Self::Database(message(&format!("it is a standby: {}", advice_on_standby(at))))
            }
            _ if is_for_an_operator(code) => Self::Operator(advised(error, server, at)),
            _ => Self::Database(message("trying again")),
        }
    }
}

fn code(error: &DatabaseError) -> Option<&SqlState> {
    match error {
        DatabaseError::Server(error) => error.code(),
        DatabaseError::Silent(_) => None,
    }
}

/// The class of a code: its first two characters.
fn class(code: &SqlState) -> &str {
    code.code().get(..2).unwrap_or_default()
}

/// Whether another event might be taken: bad data, a broken constraint, a limit, what a trigger has raised.
fn is_of_event(code: &SqlState) -> bool {
    *code != SqlState::NOT_NULL_VIOLATION && matches!(class(code), "22" | "23" | "44" | "54" | "P0")
}

/// Whether `jsonb` may be what refuses it.
fn is_of_json(code: &SqlState) -> bool {
    matches!(class(code), "22" | "54")
}

/// Whether waiting does not help: rights, names, what is not there, what the table has become.
fn is_for_an_operator(code: &SqlState) -> bool {
    matches!(class(code), "0A" | "28" | "3D" | "3F" | "42" | "55" | "F0" | "XX")
        && *code != SqlState::LOCK_NOT_AVAILABLE
}

impl Failure {
    pub(super) fn error(self) -> SinkError {
        match self {
            Self::Event { message, .. } => SinkError::refused(message),
            Self::Database(message) => SinkError::away(message),
            Self::Operator(message) | Self::NoTable(message) => SinkError::unusable(message),
            Self::Lane(error) => error,
        }
    }
}
