//! The console in a program that was built without it. The program cannot open one, and says so.

use std::convert::Infallible;
use std::net::SocketAddr;

use crate::cli::exit::{Exit, Failure};
use crate::config::Config;

/// There is none.
pub(crate) struct Console(Infallible);

impl Console {
    /// Never called, because there is no console.
    pub(crate) fn offer_address(&self) -> String {
        match self.0 {}
    }

    /// Never called, because there is no console.
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
    let why = "this channeld was built without the console: use a released package or image, or build it with `cargo build \
               --release --features console`";
    Err(Failure(Exit::Usage, why.to_owned()))
}
