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
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

use crate::cli::context::{CommandError, Exit};
use crate::config::DEFAULTS;
use crate::version;

/// Write the manual pages.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The directory to write the pages to. It is created if it does not exist.
    directory: PathBuf,
}

/// The exit codes, signals, environment variables and files, which are the same for all commands.
const ABOUT: &str = include_str!("man/about.roff");

/// How many paragraphs at the start of `config/default.toml` describe the file itself. The page does not contain them.
const ABOUT_THE_FILE: usize = 2;

const MANUAL: &str = "channeld manual";

const SOURCE: &str = concat!("channeld ", env!("CARGO_PKG_VERSION"));

/// Writes the pages for `command`, which is the whole command line, and its subcommands.
pub(crate) fn run(Args { directory }: &Args, command: Command) -> Result<Exit, CommandError> {
    let doing = format!("the manual pages could not be written to {}", directory.display());
    write_all(directory, command).map(|()| Exit::Done).map_err(CommandError::io(doing))
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
        let (help, mut roff) = (help.to_string(), Roff::new());
        let lines = help.strip_prefix("Examples:\n").unwrap_or(&help).lines();
        verbatim(roff.control("SH", ["EXAMPLES"]), lines.map(str::trim_start));
        roff.to_writer(&mut text)?;
    }
    text.extend_from_slice(about.as_bytes());
    see_also(references).to_writer(&mut text)?;
    std::fs::write(directory.join(page.get_filename()), text)?;
    let mut shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    shown.try_for_each(|command| write_tree(command, directory, "", "channeld(1), channeld.toml(5)"))
}

fn configuration() -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut roff = page("channeld.toml", "configuration of channeld");
    roff.control("SH", ["DESCRIPTION"]).text([
        roman("A TOML file. Every key is listed with its default or, "),
        italic("in this type"),
        roman(", with an example. NAME is a name of your choice."),
    ]);
    write_keys(&mut roff);
    roff.to_writer(&mut text)?;
    see_also("channeld(1), channeld-check(1), channeld-record(5)").to_writer(&mut text)?;
    Ok(text)
}

fn record() -> io::Result<Vec<u8>> {
    let (mut example, mut text) = (Roff::new(), Vec::new());
    page("channeld-record", "the record that channeld delivers for an event").to_writer(&mut text)?;
    text.extend_from_slice(record::MANUAL.as_bytes());
    verbatim(example.control("PP", []), record::EXAMPLE.lines());
    example.to_writer(&mut text)?;
    see_also("channeld(1), channeld.toml(5), channeld-search(1), channeld-verify(1)").to_writer(&mut text)?;
    Ok(text)
}

fn verbatim<'a>(roff: &mut Roff, lines: impl Iterator<Item = &'a str>) {
    roff.control("nf", []);
    for line in lines {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
}

/// The beginning of a page in section 5.
fn page(name: &str, about: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("TH", [name, "5", &date(), SOURCE, MANUAL]);
    roff.control("SH", ["NAME"]).text([roman(format!("{name} - {about}"))]);
    roff
}

fn see_also(pages: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]).text([roman(pages)]);
    roff
}

/// The date of the commit. Without a commit, an empty argument in roff.
fn date() -> String {
    version::date().unwrap_or_else(|| "\"\"".to_owned())
}

fn write_keys(roff: &mut Roff) {
    let keys = DEFAULTS.splitn(ABOUT_THE_FILE + 1, "\n#\n").last().unwrap_or_default();
    let mut paragraph = Paragraph::default();
    for line in keys.lines() {
        paragraph.add(line, roff);
    }
    paragraph.put(roff);
}

/// Lines of `config/default.toml` that were read and not yet written.
#[derive(Default)]
struct Paragraph<'a> {
    /// The text that explains the following keys or the following table.
    text: Vec<&'a str>,
    keys: Vec<Vec<Inline>>,
    /// Further lines of a value that spans several lines.
    more: Vec<&'a str>,
}

impl<'a> Paragraph<'a> {
    fn add(&mut self, line: &'a str, roff: &mut Roff) {
        if let Some(text) = line.strip_prefix("# ") {
            if !self.keys.is_empty() {
                self.put(roff);
            }
            self.text.push(text);
            return;
        }
        // A comment without a space is a key without a default: its value is an example.
        let (line, is_example) = line.strip_prefix('#').map_or((line, false), |line| (line, true));
        if let Some((name, value)) = line.split_once(" = ") {
            let shown = if is_example { italic(value) } else { roman(value) };
            self.keys.push(if value == "[" { vec![bold(name)] } else { vec![bold(name), roman(" = "), shown] });
        } else if line.starts_with('[') {
            let about = std::mem::take(&mut self.text);
            self.put(roff);
            roff.control("SH", [line]);
            if !about.is_empty() {
                roff.text(marked(&about));
            }
        } else if line.is_empty() {
            self.put(roff);
        } else if line != "]" {
            self.more.push(line.trim());
        }
    }

    /// Writes the collected text, or the keys with their explanation.
    fn put(&mut self, roff: &mut Roff) {
        let Self { text, keys, more } = std::mem::take(self);
        if keys.is_empty() && !text.is_empty() {
            roff.control("PP", []);
        }
        for (number, key) in keys.into_iter().enumerate() {
            roff.control(if number == 0 { "TP" } else { "TQ" }, []);
            roff.text(key);
        }
        if !text.is_empty() {
            roff.text(marked(&text));
        }
        if !more.is_empty() {
            verbatim(roff.control("RS", []).control("PP", []), more.into_iter());
            roff.control("RE", []);
        }
    }
}

fn marked(lines: &[&str]) -> Vec<Inline> {
    let text = lines.join("\n");
    let parts = text.split('`').enumerate();
    parts.map(|(number, part)| if number % 2 == 1 { bold(part) } else { roman(part) }).collect()
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

    #[test]
    fn every_key_is_a_term_of_the_manual_page() {
        let (mut roff, mut text) = (Roff::new(), Vec::new());
        write_keys(&mut roff);
        roff.to_writer(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("Each key is also an environment variable") && !text.contains("begins with #"), "{text}");
        for key in [
            "base_url",
            "valid_signers",
            "listen",
            "rotate_size",
            "filter.chain_selector",
            "header_files.X\\-Api\\-Key",
        ] {
            assert!(text.lines().any(|line| line.starts_with(&format!("\\fB{key}\\fR"))), "{key} in\n{text}");
        }
    }
}
