//! What commands that read the service need: the client, a channel, and how its events are verified.

use std::path::Path;

use super::exit::Failure;
use crate::api::Client;
use crate::config::{Channel, Config};
use crate::daemon::assembly;
use crate::record::ChannelRef;
use crate::telemetry::Chain;
use crate::verify::Verifier;

/// The service, and one of its channels.
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) channel: ChannelRef,
    pub(super) verifier: Verifier,
}

impl Connection {
    /// To a channel by its name or id. Nothing is asked of the service yet.
    pub(super) fn open(file: Option<&Path>, name_or_id: &str) -> Result<Self, Failure> {
        let config = load(file)?;
        let client = client(&config)?;
        let (channel, verifier) = channel(&config.channels, name_or_id)?;
        Ok(Self { client, channel, verifier })
    }
}

pub(super) fn load(file: Option<&Path>) -> Result<Config, Failure> {
    Config::load(file).map_err(|problems| Failure::Config(problems.to_string()))
}

pub(super) fn client(config: &Config) -> Result<Client, Failure> {
    assembly::client(config).map_err(|error| Failure::Config(Chain(&error).to_string()))
}

/// The channel of that configured name or, failing that, of that id. A channel that is not configured goes by its id, and
/// is verified as all that are configured.
pub(super) fn channel(channels: &[Channel], name_or_id: &str) -> Result<(ChannelRef, Verifier), Failure> {
    let id = name_or_id.parse().ok();
    let named = channels.iter().find(|channel| &*channel.channel.name == name_or_id);
    if let Some(known) = named.or_else(|| channels.iter().find(|channel| Some(channel.channel.id) == id)) {
        return Ok((known.channel.clone(), (*known.verification.verifier).clone()));
    }
    let names = names(channels);
    let id =
        id.ok_or_else(|| Failure::Usage(format!("`{name_or_id}` is neither a configured channel{names} nor a UUID")))?;
    let verifier = common(channels).ok_or_else(|| {
        Failure::Usage(format!(
            "the channel {id} is not configured, and those that are{names} are verified in different ways: nothing says \
             whose events it has"
        ))
    })?;
    Ok((ChannelRef { name: name_or_id.into(), id }, verifier))
}

/// How events are verified that do not say which channel they come from.
pub(super) fn verifier(channels: &[Channel]) -> Result<Verifier, Failure> {
    common(channels).ok_or_else(|| {
        let names = names(channels);
        Failure::Usage(format!("the channels are verified in different ways: say which is meant with --channel{names}"))
    })
}

fn common(channels: &[Channel]) -> Option<Verifier> {
    let first = &channels.first()?.verification.verifier;
    channels.iter().all(|channel| channel.verification.verifier == *first).then(|| (**first).clone())
}

/// The configured names in brackets; a valid configuration has at least one.
fn names(channels: &[Channel]) -> String {
    let names: Vec<&str> = channels.iter().map(|channel| &*channel.channel.name).collect();
    format!(" ({})", names.join(", "))
}

#[cfg(test)]
mod tests;
