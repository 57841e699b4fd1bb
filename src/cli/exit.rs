//! Exit codes, by what whoever started us does next.

use std::process::{ExitCode, Termination};

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done, as asked.
    Done,
    /// The arguments are wrong (`EX_USAGE`).
    Usage,
    /// The configuration is wrong: starting again does not help (`EX_CONFIG`).
    Config,
    /// The service, or every channel, is unavailable (`EX_UNAVAILABLE`).
    Unavailable,
    /// Anything else.
    Failure,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Usage => 64,
            Exit::Config => 78,
            Exit::Unavailable => 69,
            Exit::Failure => 1,
        })
    }
}

impl Termination for Exit {
    fn report(self) -> ExitCode {
        self.into()
    }
}
