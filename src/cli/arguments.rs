//! Arguments that several subcommands have.

use std::str::FromStr;

// The arguments of a request whose answers are printed. The request has the help text: a doc comment here would replace
// it.
#[derive(Debug, clap::Args)]
pub(super) struct Printed<R: clap::Args> {
    #[command(flatten)]
    pub(super) request: R,
    /// Print one JSON object per line.
    #[arg(long)]
    pub(super) json: bool,
}

// The arguments of a request that cannot be undone. It has no doc comment for the same reason.
#[derive(Debug, clap::Args)]
pub(super) struct Confirmed<R: clap::Args> {
    #[command(flatten)]
    pub(super) request: R,
    /// Make the change. Without this flag, nothing is changed.
    #[arg(long)]
    pub(super) yes: bool,
}

/// Parses an id of the service.
pub(super) fn id<T: FromStr>(text: &str) -> Result<T, &'static str> {
    text.parse().map_err(|_| "must be a UUID, such as 7c9e6679-7425-40de-944b-e07fc1f90ae7")
}
