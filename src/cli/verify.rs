//! `channeld verify`: the proofs of records that are already here. Asks nobody.
//!
//! # Invariants
//!
//! * **An object in, a verdict out**, in the same order; what is not JSON is an input too, and rejected.
//! * **A record says what its event says.** One of our own delivered records is as good as the event inside it, and
//!   rejected where its own fields say otherwise.
//! * **Bounded.** One input at a time, however long the file.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::connect::Channels;
use super::exit::{Exit, Failure};
use super::shown::Format;
use crate::verify::{Address, SignerSet, Verifier, workflow_owner};

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
#[derive(Clone, Debug, Args)]
pub struct VerifyArgs {
    /// The file; standard input where there is none, or for `-`.
    pub file: Option<PathBuf>,
    /// Take the signers and the owner from this configuration.
    #[arg(long, conflicts_with_all = ["valid_signers", "min_required_signatures", "workflow_owner", "org_id"])]
    pub config: Option<PathBuf>,
    /// Take them from this channel of the configuration.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["valid_signers", "min_required_signatures", "workflow_owner", "org_id"])]
    pub channel: Option<String>,
    /// Signer addresses, separated by commas.
    #[arg(long, value_name = "A,B,...", value_delimiter = ',', requires = "min_required_signatures")]
    pub valid_signers: Vec<Address>,
    /// How many distinct signers an event needs.
    #[arg(long, value_name = "N", requires = "valid_signers")]
    pub min_required_signatures: Option<usize>,
    /// The workflow owner that reports must name.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "org_id", requires = "valid_signers")]
    pub workflow_owner: Option<Address>,
    /// The organisation that the workflow owner is derived from.
    #[arg(long, value_parser = NonEmptyStringValueParser::new(), requires = "valid_signers")]
    pub org_id: Option<String>,
    /// The tenant that goes with --org-id [default: 1].
    #[arg(long, requires = "org_id", conflicts_with = "workflow_owner")]
    pub tenant_id: Option<String>,
    /// Print one JSON object an event, with `event_id`, status, reason, signers.
    #[arg(long)]
    pub json: bool,
}

impl VerifyArgs {
    /// The verifier that the flags describe; `None` where they leave it to a configuration.
    ///
    /// # Errors
    /// [`Failure::Usage`], where they describe none that could work.
    pub fn verifier(&self) -> Result<Option<Verifier>, Failure> {
        let Some(required) = self.min_required_signatures else { return Ok(None) };
        let owner = match (self.workflow_owner, &self.org_id) {
            (Some(owner), _) => owner,
            (None, Some(org_id)) => workflow_owner(org_id, self.tenant_id.as_deref().unwrap_or_default()),
            (None, None) => {
                return Err(Failure::Usage("--valid-signers needs --workflow-owner or --org-id beside it".to_owned()));
            }
        };
        let signers = SignerSet::new(self.valid_signers.clone(), required);
        let signers = signers.map_err(|error| Failure::Usage(format!("--valid-signers: {error}")))?;
        Ok(Some(Verifier::new(signers, owner)))
    }

    /// The verifier of a configuration: that of `--channel`, or the one that all channels have.
    ///
    /// # Errors
    /// [`Failure::Usage`], where there is none or the configuration does not say which.
    pub fn configured<'a>(&self, channels: &'a Channels) -> Result<&'a Verifier, Failure> {
        match &self.channel {
            Some(name) => channels.channel(name).map(|(_, verifier)| verifier),
            None => channels.verifier(),
        }
    }
}

/// Verifies the file or standard input.
///
/// # Errors
/// [`Failure`], where the input cannot be read or the output not be written.
pub fn run(args: &VerifyArgs, verifier: &Verifier, out: &mut impl Write) -> Result<Exit, Failure> {
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
