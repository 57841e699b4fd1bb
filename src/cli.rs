//! The command line: one file a subcommand.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

pub mod check;
pub mod demo;
pub mod exit;
pub mod run;
pub mod simulate;

pub use exit::Exit;

/// Reads the verified events of channels and hands them on: nothing forged, nothing lost.
#[derive(Debug, Parser)]
#[command(name = "channeld", version, max_term_width = 100, arg_required_else_help = true)]
pub struct Cli {
    /// The configuration file (TOML). Environment variables such as `CHANNELD_API__API_KEY` come on top of it.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    Demo(demo::Args),
    Check(check::Args),
    Simulate(simulate::Args),
}

/// Reads the arguments. Help and errors are printed here.
///
/// # Errors
/// The exit code, where there is nothing to run.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, Exit> {
    Cli::try_parse_from(arguments).map_err(|refusal| {
        // Nobody may be there to read it.
        let _ = refusal.print();
        if refusal.use_stderr() { Exit::Usage } else { Exit::Done }
    })
}

impl Cli {
    /// Runs the command to its end.
    pub async fn run(self) -> Exit {
        match self.command {
            Command::Run(run::Args {}) => run::run(self.config).await,
            Command::Demo(args) => demo::run(args).await,
            Command::Simulate(args) => simulate::run(args).await,
            Command::Check(args) => check::run(self.config.as_deref(), &args),
        }
    }
}
