//! `channeld verify`: verifies events of a file, offline.
//!
//! # Invariants
//!
//! * **One verdict per object**, in the same order. Text that is not JSON also gets a verdict: it is rejected.
//! * **A record agrees with its event.** A delivered record, alone or inside a CloudEvents event, contains its event. The
//!   event is verified, and the record is rejected if its own fields differ from the event.
//! * **Bounded.** At most twice [`BATCH`] inputs are in memory, however long the file is.
//! * **No delay.** Inputs are verified as soon as they are read: no verdict waits for further input.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use rayon::prelude::*;

use crate::cli::context::{CommandError, Context, Exit};
use crate::cli::verdict_line;
use crate::config::{load_verifier, verification_from_flags};
use channel::counted;
use proof::verify::Verifier;
use record::ObjectVerdict;

mod input;
#[cfg(test)]
pub(crate) mod tests;

use input::Inputs;

/// Maximum number of inputs that are verified as one batch, on all processors, while the following inputs are read.
const BATCH: usize = 200;

/// Number of inputs that one processor verifies at a time.
const TOGETHER: usize = 50;

/// Verify events offline: raw events or delivered records.
///
/// The input is JSON: one object per line, one array, or one object. Only the verification settings of the
/// configuration are needed.
///
/// Exits with 1 if anything is not verified, otherwise with 0. Unsigned events also count as not verified: they are
/// notices of the service and never have a proof (see --allow-unsigned). Pending events count as not verified too:
/// their proof had not arrived when the events were written to the file.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file to read. Default: standard input, which `-` also means.
    file: Option<PathBuf>,
    /// Use the signers and the owner of this channel in the configuration. Default: the settings that all channels
    /// share.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["valid_signers", "min_required_signatures", "workflow_owner", "org_id"])]
    channel: Option<String>,
    /// Signer addresses, separated by commas [default: the published production set].
    #[arg(long, value_name = "A,B,...")]
    valid_signers: Option<String>,
    /// The number of distinct signers that an event needs [default: 4].
    #[arg(long, value_name = "N")]
    min_required_signatures: Option<String>,
    /// The workflow owner that reports must name. The flags above require this flag or --org-id.
    #[arg(long, value_name = "ADDRESS")]
    workflow_owner: Option<String>,
    /// The organization from which the workflow owner is derived.
    #[arg(long, value_name = "ID")]
    org_id: Option<String>,
    /// The tenant of the organization in --org-id [default: 1].
    #[arg(long, value_name = "ID", requires = "org_id")]
    tenant_id: Option<String>,
    /// Accept notices, which are never signed. The exit code is 0 if all other events are verified.
    #[arg(long)]
    allow_unsigned: bool,
    /// Print one JSON object per event, with `event_id`, status, reason and signers.
    #[arg(long)]
    json: bool,
}

impl Args {
    /// The verifier that the flags describe. Without flags, the verifier of the configuration.
    fn verifier(&self, config: Option<&Path>) -> Result<Verifier, CommandError> {
        let flags = [
            ("--valid-signers", self.valid_signers.as_deref()),
            ("--min-required-signatures", self.min_required_signatures.as_deref()),
            ("--workflow-owner", self.workflow_owner.as_deref()),
            ("--org-id", self.org_id.as_deref()),
            ("--tenant-id", self.tenant_id.as_deref()),
        ];
        if flags.iter().any(|(_, value)| value.is_some()) {
            return verification_from_flags(flags).map_err(|problems| CommandError::usage(problems.to_string()));
        }
        let named = self.channel.as_deref();
        load_verifier(config, named)?
            .ok_or_else(|| CommandError::usage(format!("channel `{}` is not configured", named.unwrap_or_default())))
    }
}

pub(crate) fn run(args: &Args, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    let verifier = args.verifier(cx.file)?;
    match args.file.as_deref().filter(|file| file.as_os_str() != "-") {
        None => verify(BufReader::new(io::stdin()), "standard input", &verifier, args, cx),
        Some(path) => {
            let name = path.display().to_string();
            let file = File::open(path).map_err(CommandError::io(unreadable(&name)))?;
            verify(BufReader::new(file), &name, &verifier, args, cx)
        }
    }
}

fn verify(
    reader: impl BufRead + Send,
    name: &str,
    verifier: &Verifier,
    args: &Args,
    cx: &mut Context<'_>,
) -> Result<Exit, CommandError> {
    let mut file = Inputs::new(reader).map_err(CommandError::io(unreadable(name)))?;
    let (mut number, mut counts) = (0_u64, BTreeMap::<&str, u64>::new());
    std::thread::scope(|scope| {
        let (read, inputs) = mpsc::sync_channel(BATCH);
        // The thread ends at the end of the file, or when the receiver is dropped.
        scope.spawn(move || {
            while let Some(input) = file.next().transpose()
                && read.send(input).is_ok()
            {}
        });
        while let Ok(first) = inputs.recv() {
            let read = iter::once(first).chain(inputs.try_iter().take(BATCH - 1));
            let mut failed = None;
            let batch: Vec<_> = read.map_while(|input| input.map_err(|error| failed = Some(error)).ok()).collect();
            let verified = batch.par_chunks(TOGETHER).flat_map_iter(|some| ObjectVerdict::of_all(some, verifier));
            let verified: Vec<_> = verified.collect();
            cx.say_lines(verified.iter().map(|outcome| {
                number += 1;
                *counts.entry(outcome.status).or_default() += 1;
                if args.json {
                    serde_json::to_string(outcome).expect("an outcome is JSON")
                } else {
                    format!("{number:>8}  {}", line(outcome))
                }
            }))?;
            if let Some(error) = failed {
                return Err(CommandError::io(unreadable(name))(error));
            }
            verifier.prepare();
        }
        Ok::<_, CommandError>(())
    })?;
    let [verified, unsigned, pending, rejected] =
        ["verified", "unsigned", "pending", "rejected"].map(|status| counts.get(status).copied().unwrap_or_default());
    if !args.json {
        let each = format!("{verified} verified, {unsigned} unsigned, {pending} pending, {rejected} rejected");
        cx.say(format!("{}: {each}", counted(number, "event")))?;
    }
    let passed = verified + if args.allow_unsigned { unsigned } else { 0 };
    Ok(if passed == number { Exit::Done } else { Exit::Failed })
}

fn line(ObjectVerdict { event_id, status, reason, signers }: &ObjectVerdict) -> String {
    let said = reason.map_or_else(|| counted(signers.len() as u64, "signer"), str::to_owned);
    format!("{status:8}  {:36}  {said}", verdict_line::id(*event_id))
}

fn unreadable(name: &str) -> String {
    format!("{name} could not be read")
}
