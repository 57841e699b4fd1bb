//! `channeld check`: prints the channels and sinks that would run, the settings in effect, or every problem of the
//! configuration.
//!
//! # Invariants
//!
//! * **No effects.** Only the configuration with its secrets and certificates is read, and the state directory is examined.
//!   With `--connect`, the service, the sinks and the database of the state are contacted. Nothing is delivered or recorded:
//!   each trial is rolled back, or the target must refuse it. Databases execute the statements of a start and a delivery.
//! * **No secrets** in the output.

use std::io::{self, Write};
use std::path::Path;

use anstyle::Style;
use serde_json::{Map, Value, json};

use crate::cli::context::{CommandError, Context, Exit};
use crate::cli::terminal::{failure_for_stderr, json_for_stdout, width_of, wrapped_and_styled};
use crate::config::settings_list::{SettingsList, object, row};
use crate::config::{Config, ConfigError, SinkSettings};
use ::feed::FeedSettings;
use api::AccountName;
use net::Chain;
use net::shortage::DescriptorLimits;
use sink::Stdout;

mod connect;
mod effective;
mod history;
mod machine;
mod samples;

pub(crate) use connect::ask;
pub(crate) use machine::feed;

use connect::ConnectionCheck;
use effective::Effective;
use history::Selection;

/// Check the configuration without starting anything.
///
/// Prints a summary of the channels and sinks that would run, and warnings. If the configuration is invalid, prints
/// every problem instead and exits with 78. Also checks whether this user can use or create the state directory.
///
/// With --connect, the command sends a request with the API key to the service, and reads and verifies the newest
/// events of each channel. It tries each sink: a row in a transaction that is rolled back, or a message that the server
/// must refuse. Nothing is delivered. If the state is stored in a database, the statements of a start are executed there
/// and rolled back. It also checks whether the daemon could lock its state, create its control socket and listen on
/// admin.listen and feed.listen. Exits with 69 if one of these checks fails.
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
    #[command(flatten)]
    selection: Selection,
}

pub(crate) async fn run(args: &Args, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    match &args.selection.history {
        Some(channel) => history::run(channel, &args.selection, args.json, cx).await,
        None => Ok(check(cx.file, args).await),
    }
}

/// Loads the configuration and prints the result: problems to standard error, the rest to standard output.
async fn check(file: Option<&Path>, args: &Args) -> Exit {
    let (mut out, mut errors) = (anstream::stdout(), anstream::stderr());
    let (mut config, settings) = match Config::load_with_settings(file) {
        Ok(loaded) => loaded,
        Err(error) => {
            let printed = print_problems(&error, args.json, &mut out, &mut errors);
            return if printed.is_ok() { Exit::Config } else { Exit::Failed };
        }
    };
    let state = config.state.examine();
    config.notes.extend(state.as_ref().err().map(|error| format!("state.path: {}", Chain(error))));
    if let Some(limits) = DescriptorLimits::now() {
        config.notes.extend(too_few(config.descriptors(), limits.hard));
        let feed = config.feed.as_ref().map(|feed| &feed.settings);
        config.notes.extend(feed.and_then(|feed| too_few_for_feed(feed, limits.hard)));
    }
    let checks = if args.connect {
        let mut checks = ask(&config, state, args.show_body).await;
        checks.extend(machine::failures(&config).await);
        checks.extend(feed(&config).await);
        Some(checks)
    } else {
        None
    };
    // If standard output cannot be used, the sink `stdout` would fail. The warning goes to standard error, because a text on
    // standard output would be lost.
    let has_stdout = config.sinks.values().any(|sink| matches!(sink.settings, SinkSettings::Stdout));
    if let (true, Err(error)) = (has_stdout, Stdout::new()) {
        let _ = writeln!(errors, "{}", failure_for_stderr("standard output", &error.to_string()));
    }
    let effective = args.effective.then(|| Effective::of(&settings, file));
    match print(&config, effective.as_ref(), checks.as_deref(), args.json, &mut out) {
        Ok(()) if checks.is_some_and(|checks| checks.iter().any(|check| !check.ok)) => Exit::Unavailable,
        Ok(()) => Exit::Done,
        // The output is closed.
        Err(_) => Exit::Failed,
    }
}

/// A note that the configuration can need more descriptors than the limit allows.
fn too_few(needed: usize, limit: u64) -> Option<String> {
    (needed as u64 > limit).then(|| {
        format!(
            "up to {needed} files and connections can be open at the same time, but the hard limit of this user is {limit}: set LimitNOFILE of the service, or `ulimit -Hn`, to at least {needed}"
        )
    })
}

/// A note that the limit allows fewer simultaneous requests of the feed than the configuration.
fn too_few_for_feed(feed: &FeedSettings, limit: u64) -> Option<String> {
    let (connections, needed) = (feed.connections, feed.needed_limit_of_files());
    (needed > limit).then(|| {
        format!(
            "feed.connections: the feed serves fewer than {connections} requests at once, because the hard limit of this user is {limit} open files: set LimitNOFILE of the service, or `ulimit -Hn`, to at least {needed}, or decrease feed.connections"
        )
    })
}

fn print_problems(error: &ConfigError, json: bool, out: &mut impl Write, errors: &mut impl Write) -> io::Result<()> {
    for problem in &error.problems {
        writeln!(errors, "{}", failure_for_stderr(&problem.key, &problem.to_string()))?;
    }
    if json {
        writeln!(out, "{}", json_for_stdout(&json!({"valid": false, "problems": error.problems})))
    } else {
        Ok(())
    }
}

/// Prints the summary or the settings in effect, followed by the results of the connection checks, if any.
fn print(
    config: &Config,
    effective: Option<&Effective<'_>>,
    checks: Option<&[ConnectionCheck]>,
    json: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    if json {
        let mut shown = summary_json(config);
        if let Some(effective) = effective {
            shown["effective"] = json!(effective.settings);
        }
        if let Some(checks) = checks {
            shown["asked"] = json!(checks);
        }
        return writeln!(out, "{}", json_for_stdout(&shown));
    }
    match effective {
        Some(effective) => effective.write(out)?,
        None => write_summary(out, config)?,
    }
    let Some(checks) = checks else { return Ok(()) };
    writeln!(out)?;
    checks.iter().try_for_each(|check| writeln!(out, "{check}"))
}

fn summary_json(config: &Config) -> Value {
    let sinks = config.sinks.iter().map(|(name, sink)| (name.clone(), object(sink.shown())));
    let base_url = |account: &AccountName| config.accounts.get(account).map(|account| account.client.base_url.as_str());
    let named = config.accounts.keys().filter_map(|account| Some((account.name()?.to_owned(), account)));
    let accounts: Map<_, _> = named.map(|(name, account)| (name, json!({ "base_url": base_url(account) }))).collect();
    json!({
        "valid": true,
        "base_url": base_url(&AccountName::default()),
        "accounts": accounts,
        "state_path": config.state.path.display().to_string(),
        "admin_listen": config.listen,
        "feed": config.feed.as_ref().map(|feed| object(feed.shown())),
        "descriptors": config.descriptors(),
        "channels": config.channels.iter().map(|channel| object(channel.shown())).collect::<Vec<_>>(),
        "sinks": sinks.collect::<Map<_, _>>(),
        "notes": config.notes,
    })
}

fn write_summary(out: &mut impl Write, config: &Config) -> io::Result<()> {
    let path = config.state.path.display();
    let state = config.state.database.as_ref().map_or_else(
        || path.to_string(),
        |database| {
            let (schema, instance) = (&database.schema, &database.instance);
            format!("schema {schema} of a shared database, as instance {instance} in {path}")
        },
    );
    writeln!(out, "The configuration is valid.\n")?;
    for (name, account) in &config.accounts {
        let of_account = name.name().map_or_else(String::new, |name| format!(" (account {name})"));
        writeln!(out, "service  {}{of_account}", account.client.base_url)?;
    }
    writeln!(out, "state    {state}")?;
    writeln!(out, "admin    {}", config.listen.map_or("off".to_owned(), |listen| listen.to_string()))?;
    writeln!(out, "files    up to {} files and connections open at the same time", config.descriptors())?;
    for channel in &config.channels {
        // The name is in the heading.
        let shown = channel.shown().into_iter().filter(|(name, _)| *name != "name").collect();
        write_block(out, "channel", &channel.channel.name, &shown)?;
    }
    for (name, sink) in &config.sinks {
        write_block(out, "sink", name, &sink.shown())?;
    }
    if let Some(feed) = &config.feed {
        let shown = feed.shown().into_iter().filter(|(name, _)| *name != "sink").collect();
        write_block(out, "feed of sink", &feed.sink, &shown)?;
    }
    if !config.notes.is_empty() {
        writeln!(out)?;
    }
    let width = width_of(&io::stdout()).unwrap_or(usize::MAX);
    let notes = config.notes.iter().map(|note| format!("note: {note}"));
    let mut lines = notes.flat_map(|note| wrapped_and_styled(Style::new(), &note, width));
    lines.try_for_each(|line| writeln!(out, "{line}"))
}

fn write_block(out: &mut impl Write, what: &str, name: &str, shown: &SettingsList) -> io::Result<()> {
    writeln!(out, "\n{what} {name}")?;
    let rows: Vec<_> = shown.iter().filter_map(|(name, value)| row(name, value)).collect();
    let width = rows.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
    rows.iter().try_for_each(|(label, text)| writeln!(out, "  {label:width$}  {text}"))
}

#[cfg(test)]
mod tests;
