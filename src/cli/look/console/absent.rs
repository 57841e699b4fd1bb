//! The console in a program that was built without it. The program cannot open one, and says so.

use std::convert::Infallible;
use std::net::SocketAddr;

use crate::cli::exit::{Exit, Failure};
use crate::config::{Config, built_without};

/// There is none.
pub(crate) struct Console(Infallible);

impl Console {
    /// Never called: `open` always fails.
    pub(crate) fn offer_address(&self) -> String {
        match self.0 {}
    }

    /// Never called: `open` always fails.
    #[expect(clippy::unused_async, reason = "as with the console")]
    pub(crate) async fn serve(self) -> Infallible {
        self.0
    }
}

/// Opens nothing.
pub(crate) async fn open(
    _config: &Config,
    _listen: SocketAddr,
    _from: Option<&str>,
    _read_only: bool,
) -> Result<Console, Failure> {
    Err(Failure(Exit::Usage, built_without("the console", "console")))
}
