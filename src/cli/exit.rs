//! The exit codes of commands, and the failures that lead to them.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use crate::config::ConfigError;
use api::ApiError;
use channel::ReadError;
use net::Chain;
use operator::Refusal;

/// The exit code, with the numbers of `sysexits.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// Something else went wrong, or the answer is "no".
    Failed = 1,
    /// The command line is invalid.
    Usage = 64,
    /// The service, or every channel, is unavailable.
    Unavailable = 69,
    /// The configuration is invalid.
    Config = 78,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command failed: its exit code, and the message for the operator.
#[derive(Debug, thiserror::Error)]
#[error("{1}")]
pub(super) struct Failure(pub(super) Exit, pub(super) String);

impl Failure {
    /// For [`Result::map_err`] on a request to the service.
    pub(super) fn api(doing: impl Display) -> impl FnOnce(ApiError) -> Self {
        use ApiError::{Malformed, RateLimited, Transient};
        move |error| {
            let unavailable = matches!(error, RateLimited { .. } | Transient { .. } | Malformed(_));
            let exit = if unavailable { Exit::Unavailable } else { Exit::Failed };
            Self(exit, format!("{doing}: {}", Chain(&error)))
        }
    }

    /// For [`Result::map_err`] on reading a channel's history.
    pub(super) fn reading(doing: impl Display) -> impl FnOnce(ReadError) -> Self {
        move |error| match error {
            ReadError::Api(error) => Self::api(doing)(error),
            other => Self(Exit::Failed, Chain(&other).to_string()),
        }
    }

    /// For [`Result::map_err`] on reading or writing a file.
    pub(super) fn io(doing: impl Display) -> impl FnOnce(io::Error) -> Self {
        move |error| {
            // A closed pipe is not an error: the reader of the output has seen enough.
            let exit = if error.kind() == io::ErrorKind::BrokenPipe { Exit::Done } else { Exit::Failed };
            Self(exit, format!("{doing}: {}", Chain(&error)))
        }
    }

    /// For [`Result::map_err`] on writing the output.
    pub(super) fn output(error: io::Error) -> Self {
        Self::io("the output could not be written")(error)
    }
}

impl From<ConfigError> for Failure {
    fn from(problems: ConfigError) -> Self {
        Self(Exit::Config, problems.to_string())
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let exit = match refusal {
            Refusal::Usage(_) => Exit::Usage,
            Refusal::Config(_) => Exit::Config,
            Refusal::Failed(_) | Refusal::Elsewhere { .. } => Exit::Failed,
        };
        Self(exit, refusal.to_string())
    }
}
