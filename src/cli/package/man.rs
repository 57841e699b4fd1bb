//! `channeld man`: writes the manual pages of the command line, the configuration file and the record, for packages.
//!
//! # Invariants
//!
//! * **Generated.** Commands and options come from their definitions, keys from `config/default.toml`. Only two texts are
//!   written by hand: `about.roff`, which applies to all commands, and the description of the record, beside its type.
//! * **Reproducible.** A page depends on neither the machine nor the time.

use std::io;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, italic, roman};

use crate::cli::exit::{Exit, Failure};
use crate::version;

mod keys;

/// Write the manual pages.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The directory to write the pages to. It is created if it does not exist.
    directory: PathBuf,
}

/// Exit codes, signals, environment and files: the same for all commands.
const ABOUT: &str = include_str!("man/about.roff");

const MANUAL: &str = "channeld manual";

const SOURCE: &str = concat!("channeld ", env!("CARGO_PKG_VERSION"));

/// Writes the pages for `command`, which is the whole command line, and its subcommands.
pub(crate) fn run(Args { directory }: &Args, command: Command) -> Result<Exit, Failure> {
    let doing = format!("the manual pages could not be written to {}", directory.display());
    write_all(directory, command).map(|()| Exit::Done).map_err(Failure::io(doing))
}

fn write_all(directory: &Path, command: Command) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    std::fs::write(directory.join("channeld.toml.5"), configuration()?)?;
    std::fs::write(directory.join("channeld-record.5"), record()?)?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    write_tree(&command, directory, ABOUT, "channeld.toml(5), channeld-record(5), systemctl(1), journalctl(1)")
}

/// Writes the page of a command and the pages of its subcommands.
fn write_tree(command: &Command, directory: &Path, about: &str, references: &str) -> io::Result<()> {
    let page = Man::new(command.clone()).source(SOURCE).date(date()).manual(MANUAL);
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if command.has_subcommands() {
        page.render_subcommands_section(&mut text)?;
    }
    if let Some(help) = command.get_after_help() {
        examples(&help.to_string()).to_writer(&mut text)?;
    }
    text.extend_from_slice(about.as_bytes());
    see_also(references).to_writer(&mut text)?;
    std::fs::write(directory.join(page.get_filename()), text)?;
    let mut shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    shown.try_for_each(|command| write_tree(command, directory, "", "channeld(1), channeld.toml(5)"))
}

/// The page channeld.toml(5).
fn configuration() -> io::Result<Vec<u8>> {
    let (mut roff, mut text) = (Roff::new(), Vec::new());
    roff.control("TH", ["channeld.toml", "5", &date(), SOURCE, MANUAL]);
    roff.control("SH", ["NAME"]).text([roman("channeld.toml - configuration of channeld")]);
    roff.control("SH", ["DESCRIPTION"]).text([
        roman("A TOML file. Every key is listed with its default or, "),
        italic("in this type"),
        roman(", with an example. NAME is a name of your choice."),
    ]);
    keys::write(&mut roff);
    roff.to_writer(&mut text)?;
    see_also("channeld(1), channeld-check(1), channeld-record(5)").to_writer(&mut text)?;
    Ok(text)
}

/// The page channeld-record(5).
fn record() -> io::Result<Vec<u8>> {
    let (mut roff, mut example, mut text) = (Roff::new(), Roff::new(), Vec::new());
    roff.control("TH", ["channeld-record", "5", &date(), SOURCE, MANUAL]);
    roff.control("SH", ["NAME"]).text([roman("channeld-record - the record that channeld delivers for an event")]);
    roff.to_writer(&mut text)?;
    text.extend_from_slice(record::MANUAL.as_bytes());
    example.control("PP", []).control("nf", []);
    for line in record::EXAMPLE.lines() {
        example.text([roman(line)]);
    }
    example.control("fi", []);
    example.to_writer(&mut text)?;
    see_also("channeld(1), channeld.toml(5), channeld-search(1), channeld-verify(1)").to_writer(&mut text)?;
    Ok(text)
}

/// The section with the examples from the end of the help.
fn examples(help: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["EXAMPLES"]).control("nf", []);
    for line in help.strip_prefix("Examples:\n").unwrap_or(help).lines() {
        roff.text([roman(line.trim_start())]);
    }
    roff.control("fi", []);
    roff
}

/// The section with references to other pages.
fn see_also(pages: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]).text([roman(pages)]);
    roff
}

/// The date of the commit, or an empty roff argument.
fn date() -> String {
    version::date().unwrap_or_else(|| "\"\"".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exit_status_is_documented() {
        let section = ABOUT.split(".SH ").find(|section| section.starts_with("\"EXIT STATUS\"")).expect("it is there");
        let documented: Vec<_> =
            section.lines().filter_map(|line| line.strip_prefix("\\fB")?.strip_suffix("\\fR")).collect();
        let all = [Exit::Done, Exit::Failed, Exit::Usage, Exit::Unavailable, Exit::Config];
        assert_eq!(documented, all.map(|exit| (exit as u8).to_string()));
    }
}
