//! `channeld get`: prints one event by its id.

use crate::cli::context::{Connection, Context, Exit, Failure};
use crate::cli::shown;
use operator::SignerNames;
use proof::event::EventId;
use proof::verify::{Address, Verdict};

/// Show one event, and whether its proof is valid.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  channeld get settlements d290f1ee-6c54-4b01-90e6-d701748f0851 --json")]
pub(crate) struct Args {
    /// The channel: its name in the configuration, or its UUID.
    pub(crate) channel: String,
    /// The event's UUID.
    #[arg(value_parser = crate::cli::arguments::id::<EventId>)]
    event_id: EventId,
    /// Print the record as one JSON object.
    #[arg(long)]
    json: bool,
}

/// Fetches the event and writes it. Any verdict is a success: this command shows the verdict, and `verify` decides by it.
pub(crate) async fn run(args: &Args, connection: &Connection, cx: &mut Context<'_>) -> Result<Exit, Failure> {
    let Connection { client, channel, verifier, signer_names } = connection;
    let doing = format!("event {} could not be read from channel {}", args.event_id, channel.name);
    let raw = client.event(channel.id, args.event_id).await.map_err(Failure::api(doing))?;
    for verdict in shown::verified(verifier, vec![raw]).await {
        cx.say(shown::shown(args.json, channel, &verdict))?;
        if !args.json {
            cx.say(details(&verdict, signer_names))?;
        }
    }
    Ok(Exit::Done)
}

/// Details of one event for people: why it was rejected, or the signed text and the signers.
fn details(verdict: &Verdict, names: &SignerNames) -> String {
    match verdict {
        Verdict::Rejected(_, reason) => format!("reason: {reason}"),
        Verdict::Verified(verified) => {
            let proof = verified.proof();
            let signer = |signer: &Address| match names.get(signer) {
                Some(name) => format!("{signer} ({})", shown::printable(name)),
                None => signer.to_string(),
            };
            let signers: Vec<String> = proof.signers.iter().map(signer).collect();
            let decoded = verified.event().payload.signed.as_deref().and_then(record::decode);
            let signed = decoded.map(|decoded| shown::printable(decoded.get()));
            let signed = signed.as_deref().unwrap_or("a text that is not base64 of JSON");
            format!("signers: {} ({} required)\nsigned: {signed}", signers.join(", "), proof.required)
        }
        Verdict::Pending(_) => "its proof has not arrived yet".to_owned(),
        Verdict::Unsigned(_) => "its type and status never carry a proof".to_owned(),
    }
}

#[cfg(test)]
mod tests;
