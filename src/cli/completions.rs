//! `channeld completions`: completion scripts for shells.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::{Shell, generate};

use super::Cli;
use super::exit::{Exit, Failure};

/// Print what a shell needs to complete the commands and options of channeld.
///
/// bash: channeld completions bash > /usr/share/bash-completion/completions/channeld
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

pub(super) fn run(args: &Args, out: &mut impl Write) -> Result<Exit, Failure> {
    // Into memory first: `generate` panics where it cannot write.
    let mut script = Vec::new();
    generate(args.shell, &mut Cli::command(), "channeld", &mut script);
    out.write_all(&script).map_err(Failure::output)?;
    Ok(Exit::Done)
}
