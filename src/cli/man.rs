//! `channeld man`: the manual pages, of the command line and of the configuration file, for who makes a package.
//!
//! # Invariants
//!
//! * **Made of what is there.** Commands and options come from their definitions, keys from `config/default.toml`: a page
//!   cannot say what the program does not do.
//! * **The same from the same.** Nothing of the machine or the moment is in a page.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::Roff;

use super::Cli;
use super::exit::{Exit, Failure};
use crate::version;

mod about;
mod keys;

/// Write the manual pages.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The directory that they go to. It is made where it is missing.
    directory: PathBuf,
}

/// What pages say at their lower edge, where nothing is said of it: an argument of roff without text.
const NOTHING: &str = "\"\"";

const MANUAL: &str = "channeld manual";

/// Writes them.
///
/// # Errors
/// [`Failure`], where one cannot be written.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let directory = &args.directory;
    write_all(directory).map_err(|source| Failure::Io {
        doing: format!("the manual pages could not be written to {}", directory.display()),
        source,
    })?;
    Ok(Exit::Done)
}

fn write_all(directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    std::fs::write(directory.join("channeld.1"), about::page(&command)?)?;
    std::fs::write(directory.join("channeld.toml.5"), keys::page()?)?;
    command.get_subcommands().filter(|command| !command.is_hide_set()).try_for_each(|command| of(command, directory))
}

/// Writes the page of a command, and those of its own commands.
fn of(command: &Command, directory: &Path) -> io::Result<()> {
    let mut text = Vec::new();
    let page = page(command);
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if command.has_subcommands() {
        page.render_subcommands_section(&mut text)?;
    }
    about::references(&["channeld(1)", "channeld.toml(5)"]).to_writer(&mut text)?;
    std::fs::write(directory.join(page.get_filename()), text)?;
    command.get_subcommands().try_for_each(|command| of(command, directory))
}

fn page(command: &Command) -> Man {
    let page = Man::new(command.clone());
    page.source(source()).date(date()).manual(MANUAL)
}

fn source() -> String {
    concat!("channeld ", env!("CARGO_PKG_VERSION")).to_owned()
}

fn date() -> String {
    version::date().unwrap_or_else(|| NOTHING.to_owned())
}

/// The head of a page that is of no command.
fn title(roff: &mut Roff, name: &str, section: &str) {
    roff.control("TH", [name, section, &date(), &source(), MANUAL]);
}
