//! `channeld get`: one event by its id.
//!
//! # Cancellation
//!
//! May be dropped at any point: it changes nothing.

use std::io::Write;

use super::exit::{Exit, Failure};
use super::shown::{self, Format};
use crate::api::Client;
use crate::event::EventId;
use crate::record::{self, ChannelRef};
use crate::verify::{Verdict, Verifier};

/// Show one event, with the verdict on its proof.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The channel: its name in the configuration, or its UUID.
    pub channel: String,
    /// The event's UUID.
    pub event_id: EventId,
    /// Print the record as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Fetches the event and writes it.
///
/// # Errors
/// [`Failure`], where the event cannot be had or not be written. Any verdict is a success: this shows, `verify` decides.
pub async fn run(
    args: &Args,
    client: &Client,
    channel: &ChannelRef,
    verifier: &Verifier,
    out: &mut impl Write,
) -> Result<Exit, Failure> {
    let doing = format!("event {} could not be read from channel {}", args.event_id, channel.name);
    let raw = client.event(channel.id, args.event_id).await.map_err(Failure::api(doing))?;
    for verdict in shown::verified(verifier, vec![raw]).await {
        shown::write(out, Format::of(args.json), channel, &verdict).map_err(Failure::output)?;
        if !args.json {
            write_details(out, &verdict).map_err(Failure::output)?;
        }
    }
    Ok(Exit::Done)
}

/// More about one event for people: why it was rejected, or what was signed, and the signers.
fn write_details(out: &mut impl Write, verdict: &Verdict) -> std::io::Result<()> {
    match verdict {
        Verdict::Rejected(_, reason) => writeln!(out, "reason: {reason}"),
        Verdict::Verified(verified) => {
            let proof = verified.proof();
            let signers: Vec<String> = proof.signers.iter().map(ToString::to_string).collect();
            writeln!(out, "signers: {} ({} required)", signers.join(", "), proof.required)?;
            match verified.event().payload.signed.as_deref().and_then(record::decode) {
                Some(decoded) => writeln!(out, "signed: {}", shown::printable(decoded.get())),
                None => writeln!(out, "signed: a text that is not base64 of JSON"),
            }
        }
        Verdict::Pending(_) => writeln!(out, "its proof has not come yet"),
        Verdict::Unsigned(_) => writeln!(out, "its type and status never carry a proof"),
    }
}

#[cfg(test)]
mod tests;
