//! `channeld verify`: verifies events of a file, offline.
//!
//! # Invariants
//!
//! * **An object in, a verdict out**, in the same order. Text that is not JSON is an input too, and rejected.
//! * **A record agrees with its event.** A delivered record, also inside a CloudEvents event, is verified by the event inside
//!   it, and rejected where its own fields differ from that.
//! * **Bounded.** One input is in memory, however long the file.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use super::connect::Channels;
use super::exit::{Exit, Failure};
use super::shown::Format;
use crate::config::verification_from_flags;
use crate::verify::Verifier;

mod input;
mod outcome;
mod same;
mod scan;
#[cfg(test)]
mod tests;

use input::{Input, Inputs};
use outcome::{Outcome, Summary};

/// Verify events offline: raw events or delivered records, as JSON lines, one JSON array, or one object.
///
/// Exits with 1 if anything is not verified, and that includes events that are unsigned (notices of the service, which
/// never carry a proof) or pending (their proof was still to come when they were written); with 0 otherwise.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The file; standard input where there is none, or for `-`.
    pub file: Option<PathBuf>,
    /// Take the signers and the owner from this channel of the configuration. Without it, from what all channels share.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["valid_signers", "min_required_signatures", "workflow_owner", "org_id"])]
    pub channel: Option<String>,
    /// Signer addresses, separated by commas [default: the published production set].
    #[arg(long, value_name = "A,B,...")]
    pub valid_signers: Option<String>,
    /// How many distinct signers an event needs [default: 4].
    #[arg(long, value_name = "N")]
    pub min_required_signatures: Option<String>,
    /// The workflow owner that reports must name; this or --org-id goes with the flags above.
    #[arg(long, value_name = "ADDRESS")]
    pub workflow_owner: Option<String>,
    /// The organisation that the workflow owner is derived from.
    #[arg(long, value_name = "ID")]
    pub org_id: Option<String>,
    /// The tenant that goes with --org-id [default: 1].
    #[arg(long, value_name = "ID", requires = "org_id")]
    pub tenant_id: Option<String>,
    /// Print one JSON object an event, with `event_id`, status, reason, signers.
    #[arg(long)]
    pub json: bool,
}

impl Args {
    /// The verifier that the flags describe or, where there are none, the configuration's.
    ///
    /// # Errors
    /// [`Failure`], where they describe none that could work.
    pub fn verifier(&self, config: Option<&Path>) -> Result<Verifier, Failure> {
        if self.has_flags() {
            return verification_from_flags(self.flags()).map_err(|problems| Failure::Usage(problems.to_string()));
        }
        let channels = Channels::open(config)?;
        match &self.channel {
            Some(name) => channels.channel(name).map(|(_, verifier)| verifier.clone()),
            None => channels.verifier().cloned(),
        }
    }

    fn has_flags(&self) -> bool {
        let flags = [&self.valid_signers, &self.min_required_signatures, &self.workflow_owner, &self.org_id];
        flags.iter().any(|flag| flag.is_some())
    }

    fn flags(&self) -> [(&'static str, Option<&str>); 5] {
        [
            ("--valid-signers", self.valid_signers.as_deref()),
            ("--min-required-signatures", self.min_required_signatures.as_deref()),
            ("--workflow-owner", self.workflow_owner.as_deref()),
            ("--org-id", self.org_id.as_deref()),
            ("--tenant-id", self.tenant_id.as_deref()),
        ]
    }
}

/// Verifies the file or standard input.
///
/// # Errors
/// [`Failure`], where the input cannot be read or the output not be written.
pub fn run(args: &Args, verifier: &Verifier, out: &mut impl Write) -> Result<Exit, Failure> {
    let format = Format::of(args.json);
    match args.file.as_deref().filter(|file| file.as_os_str() != "-") {
        None => verify(io::stdin().lock(), "standard input", verifier, format, out),
        Some(path) => {
            let name = path.display().to_string();
            let file = File::open(path).map_err(unreadable(&name))?;
            verify(BufReader::new(file), &name, verifier, format, out)
        }
    }
}

fn verify(
    reader: impl BufRead,
    name: &str,
    verifier: &Verifier,
    format: Format,
    out: &mut impl Write,
) -> Result<Exit, Failure> {
    let mut inputs = Inputs::new(reader);
    let mut summary = Summary::default();
    while let Some(input) = inputs.next().map_err(unreadable(name))? {
        let outcome = match input {
            Input::Object(json) => Outcome::of(&json, verifier),
            Input::Garbage => Outcome::malformed(None),
        };
        summary.count(&outcome);
        outcome.write(out, format, summary.events()).map_err(Failure::output)?;
        verifier.prepare();
    }
    if format == Format::Readable {
        writeln!(out, "{summary}").map_err(Failure::output)?;
    }
    out.flush().map_err(Failure::output)?;
    Ok(if summary.all_verified() { Exit::Done } else { Exit::Failed })
}

fn unreadable(name: &str) -> impl FnOnce(io::Error) -> Failure {
    move |source| Failure::Io { doing: format!("{name} could not be read"), source }
}
