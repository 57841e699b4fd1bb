//! `channeld check`: shows what would run, the settings in effect, or every problem of the configuration.
//!
//! # Invariants
//!
//! * **No effects.** Only the configuration with its secrets and certificates is read, and the state directory is examined.
//!   With `--connect`, the service, the sinks and the database of the state are contacted; nothing is delivered or recorded.
//! * **No secrets** in the output.

use std::io::{self, Write};
use std::path::Path;

use serde_json::json;

use crate::cli::exit::{Exit, Failure};
use crate::cli::terminal::failure_for_stderr;
use crate::config::{Config, ConfigError, SinkSettings};
use net::Chain;
use proof::event::Offset;
use sink::Stdout;

mod connect;
mod effective;
mod history;
mod summary;

pub(crate) use connect::Asked;

use effective::Effective;

/// Contacts everything that a configuration names, like `--connect`.
pub(crate) async fn ask(config: &Config) -> Vec<Asked> {
    connect::ask(config, config.state.examine(), false).await
}

/// Check the configuration without starting anything.
///
/// Prints a summary of the channels and sinks that would run, and warnings. If the configuration is invalid, prints
/// every problem instead and exits with 78. Also checks whether this user can use or create the state directory.
///
/// With --connect, the command sends a request with the API key to the service, and reads and verifies the newest
/// events of each channel. It checks each sink without sending anything to it, and the database if the state is stored
/// in one. Exits with 69 if one of these checks fails.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  channeld check -c channeld.toml
  channeld check --connect
  channeld check --history settlements --since 7d
  channeld check --effective | grep '^sinks.ledger'
  channeld check --effective --json | jq '.effective[] | select(.origin != \"default\")'")]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent flag")]
pub(crate) struct Args {
    /// Print one JSON object: a summary of the configuration, or {"valid": false, "problems": […]}
    #[arg(long)]
    json: bool,
    /// Also check the service, each channel, each sink and the state database. Print ok or the action to take.
    #[arg(long)]
    connect: bool,
    /// With --connect: show the start of the body of each error response. For this, webhook endpoints receive a GET
    /// request.
    #[arg(long, requires = "connect")]
    show_body: bool,
    /// Print each setting in effect and its origin, instead of the summary.
    ///
    /// The origin is a line of the file, an environment variable of this command, or the default. If a channel inherits
    /// a value, the output names the table that contains it. Secrets are hidden, and also values that may be secrets,
    /// such as the values of headers. With --json, the settings are in the member `effective`, each with its key,
    /// value, hidden, origin ("default", "file" or "environment"), file, line, variable and inherits.
    #[arg(long)]
    effective: bool,
    /// Compare all events of this channel (name or UUID) in the service with its sinks, and list missing events.
    ///
    /// Files and the tables of SQLite and PostgreSQL can be compared. Each event is verified and filtered as the daemon
    /// does. An event is missing if a sink should have it but does not, and if it is not pending, quarantined or a dead
    /// letter. A sink is compared from the first event that it contains up to its cursor. Nothing is changed or
    /// delivered, and the daemon may run. Exits with 1 if an event is missing or a sink could not be read.
    #[arg(long, value_name = "CHANNEL", conflicts_with_all = ["connect", "effective"])]
    history: Option<String>,
    /// With --history: only events at this time or later: RFC 3339, Unix seconds, or an age such as 7d.
    #[arg(long, value_name = "TIME", requires = "history", value_parser = net::time::seconds)]
    since: Option<i64>,
    /// With --history: start at this offset, even if the first event in a sink is above it.
    #[arg(long, value_name = "OFFSET", requires = "history", conflicts_with = "since")]
    from: Option<Offset>,
    /// With --history: only this sink.
    #[arg(long, requires = "history")]
    sink: Option<String>,
}

/// The results to print.
struct Found<'a> {
    loaded: &'a Result<Config, ConfigError>,
    /// The settings in effect and the file, if they are requested.
    effective: Option<Effective<'a>>,
    asked: Option<&'a [Asked]>,
}

/// Runs the check that the arguments select.
pub(crate) async fn run(file: Option<&Path>, args: &Args, out: &mut impl Write) -> Result<Exit, Failure> {
    let Args { history, since, from, sink, json, .. } = args;
    match history {
        Some(channel) => {
            let asked = history::Asked { channel, since: *since, from: *from, sink: sink.as_deref(), json: *json };
            history::run(asked, file, out).await
        }
        None => Ok(check(file, args).await),
    }
}

/// Loads the configuration and prints the result: problems to standard error, the rest to standard output.
async fn check(file: Option<&Path>, args: &Args) -> Exit {
    let (mut loaded, settings) = match Config::load_with_settings(file) {
        Ok((config, settings)) => (Ok(config), settings),
        Err(error) => (Err(error), Vec::new()),
    };
    let asked = match &mut loaded {
        Ok(config) => {
            let state = config.state.examine();
            config.notes.extend(state.as_ref().err().map(|error| format!("state.path: {}", Chain(error))));
            if args.connect { Some(connect::ask(config, state, args.show_body).await) } else { None }
        }
        Err(_) => None,
    };
    let (mut out, mut errors) = (anstream::stdout().lock(), anstream::stderr().lock());
    // Text that is printed to an unusable standard output is lost, as the events would be. So this goes to standard error.
    let has_stdout = |config: &Config| config.sinks.values().any(|sink| matches!(sink.settings, SinkSettings::Stdout));
    if let (true, Err(error)) = (loaded.as_ref().is_ok_and(has_stdout), Stdout::new()) {
        let _ = writeln!(errors, "{}", failure_for_stderr("standard output", &error.to_string()));
    }
    let effective = args.effective.then(|| Effective::of(&settings, file));
    let found = Found { loaded: &loaded, effective, asked: asked.as_deref() };
    match print(&found, args.json, &mut out, &mut errors) {
        Ok(()) if loaded.is_err() => Exit::Config,
        Ok(()) if asked.is_some_and(|asked| asked.iter().any(|asked| !asked.ok)) => Exit::Unavailable,
        Ok(()) => Exit::Done,
        // The output is closed.
        Err(_) => Exit::Failed,
    }
}

fn print(
    Found { loaded, effective, asked }: &Found<'_>,
    json: bool,
    out: &mut impl Write,
    errors: &mut impl Write,
) -> io::Result<()> {
    match loaded {
        Ok(config) if json => {
            let mut shown = summary::json(config);
            if let Some(effective) = effective {
                shown["effective"] = json!(effective.settings);
            }
            if let Some(asked) = asked {
                shown["asked"] = json!(asked);
            }
            writeln!(out, "{shown}")
        }
        Ok(config) => {
            match effective {
                Some(effective) => effective.write(out)?,
                None => summary::write(out, config)?,
            }
            let Some(asked) = asked else { return Ok(()) };
            writeln!(out)?;
            asked.iter().try_for_each(|asked| writeln!(out, "{asked}"))
        }
        Err(error) => {
            for problem in &error.problems {
                writeln!(errors, "{}", failure_for_stderr(&problem.key, &problem.to_string()))?;
            }
            if json { writeln!(out, "{}", json!({"valid": false, "problems": error.problems})) } else { Ok(()) }
        }
    }
}

#[cfg(test)]
mod tests;
