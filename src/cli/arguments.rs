//! Arguments that several subcommands have.

// The arguments of a request whose answer is printed. The help text is the doc comment of the request: a doc comment here
// would replace it.
#[derive(Debug, clap::Args)]
pub(super) struct Printed<R: clap::Args> {
    #[command(flatten)]
    pub(super) request: R,
    /// Print one JSON object per line.
    #[arg(long)]
    pub(super) json: bool,
}

// The arguments of a request that cannot be undone. A doc comment here would replace the help text too.
#[derive(Debug, clap::Args)]
pub(super) struct Confirmed<R: clap::Args> {
    #[command(flatten)]
    pub(super) request: R,
    /// Make the change. Without this flag, nothing is changed.
    #[arg(long)]
    pub(super) yes: bool,
}
