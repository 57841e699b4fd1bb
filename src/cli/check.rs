//! `channeld check`: shows what would run, or every problem of the configuration.
//!
//! # Invariants
//!
//! * **No effects.** Only the configuration and its secrets and certificates are read. With `--connect`, the service and the
//!   sinks are contacted; nothing is delivered or recorded.
//! * **No secrets** in the output.

use std::fmt::{self, Write as _};
use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::Exit;
use crate::channel::Start;
use crate::config::{Channel, Config, ConfigError, Sink};

mod connect;

use connect::Asked;

/// Check the configuration without starting anything.
///
/// Prints what would run, or every problem there is, and exits with 78 if there is one. With --connect, the service is
/// asked with the key, the newest events of each channel are read and verified, and each sink is looked at without giving
/// it anything: exits with 69 where one of them fails.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print one JSON object: what would run, or {"valid": false, "problems": […]}
    #[arg(long)]
    json: bool,
    /// Ask the service, each channel and each sink too, and say yes or what to do.
    #[arg(long)]
    connect: bool,
}

/// Loads the configuration and prints the result: problems to standard error, the rest to standard output.
pub async fn run(file: Option<&Path>, args: &Args) -> Exit {
    let loaded = Config::load(file);
    let asked = match &loaded {
        Ok(config) if args.connect => Some(connect::ask(config).await),
        _ => None,
    };
    let (mut out, mut errors) = (anstream::stdout().lock(), anstream::stderr().lock());
    match print(&loaded, asked.as_deref(), args.json, &mut out, &mut errors) {
        Ok(()) if loaded.is_err() => Exit::Config,
        Ok(()) if asked.is_some_and(|asked| asked.iter().any(|asked| !asked.ok)) => Exit::Unavailable,
        Ok(()) => Exit::Done,
        // The output is closed.
        Err(_) => Exit::Failed,
    }
}

fn print(
    loaded: &Result<Config, ConfigError>,
    asked: Option<&[Asked]>,
    json: bool,
    out: &mut impl Write,
    errors: &mut impl Write,
) -> io::Result<()> {
    match loaded {
        Ok(config) if json => {
            let mut shown = json_of(config);
            if let Some(asked) = asked {
                shown["asked"] = json!(asked);
            }
            writeln!(out, "{shown}")
        }
        Ok(config) => {
            write!(out, "{}", Summary(config))?;
            let Some(asked) = asked else { return Ok(()) };
            writeln!(out)?;
            asked.iter().try_for_each(|asked| writeln!(out, "{asked}"))
        }
        Err(error) => {
            writeln!(errors, "{error}")?;
            if json { writeln!(out, "{}", json!({"valid": false, "problems": error.problems})) } else { Ok(()) }
        }
    }
}

/// A configuration for people.
struct Summary<'a>(&'a Config);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = self.0;
        writeln!(f, "The configuration is valid.\n")?;
        writeln!(f, "service  {}", config.api.client.base_url)?;
        writeln!(f, "state    {}", config.state_path.display())?;
        writeln!(f, "admin    {}", config.listen.map_or("off".to_owned(), |listen| listen.to_string()))?;
        for channel in &config.channels {
            write_channel(f, channel)?;
        }
        f.write_char('\n')?;
        for (name, sink) in &config.sinks {
            writeln!(f, "sink {name}: {}", shown_sink(sink))?;
        }
        config.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

fn write_channel(f: &mut fmt::Formatter<'_>, channel: &Channel) -> fmt::Result {
    let verification = &channel.verification;
    let signers = verification.verifier.signers();
    writeln!(f, "\nchannel {} ({})", channel.channel.name, channel.channel.id)?;
    writeln!(f, "  start     {}", shown_start(channel.start))?;
    writeln!(f, "  sinks     {}", channel.sinks.join(", "))?;
    writeln!(f, "  owner     {}", verification.verifier.workflow_owner())?;
    writeln!(f, "  proof     {} of {} signers", signers.required(), signers.addresses().len())?;
    writeln!(f, "  unsigned  {}", <&str>::from(verification.unsigned))?;
    writeln!(f, "  ordering  {}", <&str>::from(verification.ordering))
}

fn shown_start(start: Start) -> String {
    match start {
        Start::Earliest => "earliest".to_owned(),
        Start::Latest => "latest".to_owned(),
        Start::Offset(offset) => format!("offset {offset}"),
    }
}

fn shown_sink(sink: &Sink) -> String {
    let filtered = if sink.filter.is_some() { ", filtered" } else { "" };
    format!("{}, as {}{filtered}", sink.settings.shown(), <&str>::from(sink.shape.format))
}

fn json_of(config: &Config) -> Value {
    let sinks: serde_json::Map<_, _> =
        config.sinks.iter().map(|(name, sink)| (name.clone(), json_sink(sink))).collect();
    json!({
        "valid": true,
        "base_url": config.api.client.base_url.as_str(),
        "state_path": config.state_path.display().to_string(),
        "admin_listen": config.listen,
        "channels": config.channels.iter().map(json_channel).collect::<Vec<_>>(),
        "sinks": sinks,
        "notes": config.notes,
    })
}

fn json_channel(channel: &Channel) -> Value {
    let verification = &channel.verification;
    let signers = verification.verifier.signers();
    let start = match channel.start {
        Start::Offset(offset) => json!(offset),
        word => json!(shown_start(word)),
    };
    json!({
        "name": &*channel.channel.name,
        "id": channel.channel.id,
        "start": start,
        "sinks": channel.sinks,
        "workflow_owner": verification.verifier.workflow_owner(),
        "min_required_signatures": signers.required(),
        "valid_signers": signers.addresses(),
        "unsigned": <&str>::from(verification.unsigned),
        "ordering": <&str>::from(verification.ordering),
    })
}

fn json_sink(sink: &Sink) -> Value {
    let mut shown = sink.settings.json();
    shown["format"] = <&str>::from(sink.shape.format).into();
    shown["include_proof"] = sink.shape.include_proof.into();
    shown["filtered"] = sink.filter.is_some().into();
    shown
}

#[cfg(test)]
mod tests;
