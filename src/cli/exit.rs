//! How a command ends: exit codes, and the failures that lead to them.

use std::io;
use std::process::ExitCode;

use crate::api::ApiError;

/// The exit code, by the numbers of `sysexits.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// Something else went wrong, or the answer is "no".
    Failed = 1,
    /// The command line cannot be right.
    Usage = 64,
    /// The service, or every channel, is unavailable.
    Unavailable = 69,
    /// The configuration cannot be right.
    Config = 78,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line asks for what cannot be. Says what to write instead.
    #[error("{0}")]
    Usage(String),
    /// The configuration cannot be right.
    #[error("{0}")]
    Config(String),
    /// The service did not give what was asked for.
    #[error("{doing}")]
    Api {
        /// What was being done, and to what.
        doing: String,
        /// What the service said.
        #[source]
        source: ApiError,
    },
    /// A file or a pipe could not be read or written.
    #[error("{doing}")]
    Io {
        /// What was being done, and to what.
        doing: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The service did not say what was asked for.
    #[error("{0}")]
    Unavailable(String),
    /// Anything else that ends a command.
    #[error("{0}")]
    Failed(String),
}

impl Failure {
    /// The exit code of it.
    #[must_use]
    pub fn exit(&self) -> Exit {
        use ApiError::{Malformed, RateLimited, Transient};
        match self {
            Self::Usage(_) => Exit::Usage,
            Self::Config(_) => Exit::Config,
            Self::Unavailable(_) | Self::Api { source: RateLimited { .. } | Transient { .. } | Malformed(_), .. } => {
                Exit::Unavailable
            }
            // The reader of the output has seen enough.
            Self::Io { source, .. } if source.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
            Self::Api { .. } | Self::Io { .. } | Self::Failed(_) => Exit::Failed,
        }
    }

    /// For [`Result::map_err`] on a call of the service.
    pub(super) fn api(doing: impl Into<String>) -> impl FnOnce(ApiError) -> Self {
        |source| Self::Api { doing: doing.into(), source }
    }

    /// For [`Result::map_err`] on reading or writing a file.
    pub(super) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        |source| Self::Io { doing: doing.into(), source }
    }

    /// For [`Result::map_err`] on writing the output.
    pub(super) fn output(source: io::Error) -> Self {
        Self::io("the output could not be written")(source)
    }
}
