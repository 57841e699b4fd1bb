//! `channeld get`: prints one event, named by its id or its offset.

use std::str::FromStr;

use crate::cli::context::{CommandError, Connection, Context, Exit};
use crate::cli::verdict_line;
use api::MAX_PAGE;
use channel::{History, unobserved};
use operator::SignerNames;
use proof::event::{EventId, Offset};
use proof::verify::{Address, Verdict};
use record::Confidence;

/// Show one event, and whether its proof is valid.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  channeld get settlements 15520
  channeld get settlements d290f1ee-6c54-4b01-90e6-d701748f0851 --json")]
pub(crate) struct Args {
    /// The channel: its name in the configuration, or its UUID.
    pub(crate) channel: String,
    /// The event: its offset, or its UUID.
    #[arg(value_name = "OFFSET|EVENT_ID")]
    event: EventName,
    /// Print the record as one JSON object.
    #[arg(long)]
    json: bool,
}

/// How the command line names an event.
#[derive(Clone, Copy, Debug)]
enum EventName {
    Offset(Offset),
    Id(EventId),
}

impl FromStr for EventName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse()
            .map(Self::Offset)
            .or_else(|_| text.parse().map(Self::Id))
            .map_err(|_| "must be an offset such as 15520, or a UUID such as 7c9e6679-7425-40de-944b-e07fc1f90ae7")
    }
}

/// Fetches the event and writes it. The exit code does not depend on the verdict: for that, use `channeld verify`.
pub(crate) async fn run(args: &Args, connection: &Connection, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    let Connection { client, channel, verifier, signer_names } = connection;
    let events = match args.event {
        EventName::Id(id) => {
            let doing = format!("event {id} could not be read from channel {}", channel.name);
            vec![client.event(channel.id, id).await.map_err(CommandError::api(doing))?]
        }
        // Several events can have one offset.
        EventName::Offset(offset) => {
            let doing = format!("offset {offset} could not be read from channel {}", channel.name);
            let mut history = History::of(unobserved(client.clone(), channel.id), offset, offset, MAX_PAGE);
            history.next().await.map_err(CommandError::reading(doing))?
        }
    };
    if let (EventName::Offset(offset), []) = (args.event, &*events) {
        return Err(CommandError::failed(format!("channel {} has no event at offset {offset}", channel.name)));
    }
    for verdict in verdict_line::verified(verifier, events).await {
        cx.say(verdict_line::formatted(args.json, channel, &verdict))?;
        if !args.json {
            cx.say(details(&verdict, signer_names))?;
        }
    }
    Ok(Exit::Done)
}

/// The readable details of an event: the reason for its rejection, or its signed text, its signers and its confidence.
fn details(verdict: &Verdict, names: &SignerNames) -> String {
    match verdict {
        Verdict::Rejected(_, reason) => format!("reason: {reason}"),
        Verdict::Verified(verified) => {
            let proof = verified.proof();
            let signer = |signer: &Address| match names.get(signer) {
                Some(name) => format!("{signer} ({})", verdict_line::printable(name)),
                None => signer.to_string(),
            };
            let signers: Vec<String> = proof.signers.iter().map(signer).collect();
            let decoded = verified.event().payload.signed.as_deref().and_then(record::decode);
            let signed = decoded.map(|decoded| verdict_line::printable(decoded.get()));
            let signed = signed.as_deref().unwrap_or("a text that is not base64 of JSON");
            let (confidence, network) = record::confidence_and_network(verified);
            let confidence = confidence.map_or("not signed", Confidence::name);
            let network = network.unwrap_or("unknown");
            // One line each, because a narrow terminal would break the addresses.
            let (signers, required) = (signers.join("\n  "), proof.required);
            format!(
                "confidence: {confidence}\nnetwork: {network}\nsigners, {required} required:\n  {signers}\nsigned: {signed}"
            )
        }
        Verdict::Pending(_) => "the proof has not arrived yet".to_owned(),
        Verdict::Unsigned(_) => "it is a notice: it has no signed text, so no proof is due".to_owned(),
    }
}

#[cfg(test)]
mod tests;
