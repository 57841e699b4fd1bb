//! `channeld init`: creates a configuration from flags and, on a terminal, from the answers to questions.
//!
//! # Invariants
//!
//! * **Written only if it works.** The configuration is loaded without errors before it is written. Unless `--unchecked` is
//!   given, the service, each channel with its newest events, and the sink are checked too.
//! * **Nothing is overwritten** without `--force`. Existing files of the key and of a token are used, and never changed.
//! * **Nothing is written before the last question is answered.** If the command fails or is interrupted afterwards, it removes the
//!   files that it has written.
//! * **Secrets stay secret.** The key comes from a file, standard input or a prompt without echo. The token of a feed is random. Each
//!   goes into a file with mode 0600, and is never printed.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use futures_util::StreamExt;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook_tokio::Signals;

use crate::cli::context::{CommandError, Context, Exit};
use crate::cli::prove::check;
use crate::cli::terminal::for_stdout;

mod admin;
mod answers;
mod choices;
mod commands;
mod feed;
mod given;
mod new_secrets;
mod prompt;
mod questions;
mod simulated;
mod sink;

use answers::{ConfigAnswers, Key, load};
use feed::Feed;
use new_secrets::NewSecrets;
use questions::Interview;

/// The file that is written by default.
pub(crate) const FILE: &str = "channeld.toml";

/// Write an initial configuration, and check it against the service.
///
/// On a terminal, the command asks for each value that no flag sets, and checks each answer at once. The answer `back`
/// returns to the previous question. If the API key may read the list of channels, you choose from this list. Without a
/// terminal, a missing value is an error.
///
/// Before the file is written, the command sends a request with the API key to the service, reads and verifies the
/// newest events of each channel, and checks the sink and the address of the feed. If one of these checks fails, nothing is written and the exit
/// code is 69, or 78 if a given value is invalid.
///
/// The API key is read from its file. If that file does not exist, the command asks for the key without showing it, or
/// reads it from standard input with --api-key-stdin. At the end it writes the key to that file with mode 0600. An interrupted
/// command leaves no file.
///
/// If the default port for health and metrics is in use on this machine, the configuration gets another port, and the
/// command says so.
///
/// If the events go to a table, the command offers a feed, from which applications read the events over HTTP. If the file
/// feed-token does not exist, it writes a random token for one application, named app, to it, with mode 0600. It prints a
/// curl command that uses the token.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  channeld init
  channeld init --org-id org_… --channel settlements --sink file --to events.jsonl
  channeld init --org-id org_… --channel settlements=7c9e… --sink webhook --to-file hook-url
  channeld init --org-id org_… --channel settlements=7c9e… --sink kafka --to kafka-1:9092,kafka-2:9092
  channeld init --org-id org_… --channel settlements --sink sqlite --feed

A trial, without a service of your own:
  channeld simulate --events 100 --rate 1 > simulated.json &
  channeld init --demo simulated.json
  channeld run --config channeld.toml")]
pub(crate) struct Args {
    /// The file to write.
    #[arg(default_value = FILE)]
    file: PathBuf,
    /// Overwrite the file.
    #[arg(long)]
    force: bool,
    /// Write the file without checking the service and the sink.
    #[arg(long)]
    unchecked: bool,
    /// Use the service, key, organization, signers and channels that `channeld simulate` printed to this file. With -,
    /// they are read from standard input. The simulator must be running.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["base_url", "org_id", "workflow_owner", "valid_signers", "min_required_signatures", "channel"])]
    demo: Option<PathBuf>,
    /// The address of the service, including the version.
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// The file that contains the API key. Default: api-key in the directory of the configuration.
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Read the API key from standard input.
    #[arg(long)]
    api_key_stdin: bool,
    /// The organization that owns the events.
    #[arg(long, value_name = "ID", conflicts_with = "workflow_owner")]
    org_id: Option<String>,
    /// The address of the workflow owner, instead of the organization.
    #[arg(long, value_name = "ADDRESS")]
    workflow_owner: Option<String>,
    /// The signers of the network. Default: the published production set.
    #[arg(long, value_name = "ADDRESS,…", value_delimiter = ',')]
    valid_signers: Vec<String>,
    /// How many of the signers must sign an event.
    #[arg(long, value_name = "N", requires = "valid_signers")]
    min_required_signatures: Option<u64>,
    /// A channel: a name of your choice and its id, or its name or id in the service's list; repeatable.
    #[arg(long, value_name = "NAME=ID|NAME|ID")]
    channel: Vec<String>,
    /// The type of the sink that receives the events.
    #[arg(long, value_name = "TYPE", value_parser = PossibleValuesParser::new(sink::kinds()))]
    sink: Option<String>,
    /// The path or address of the sink. For kafka, its brokers separated by commas. If the address contains a secret,
    /// use --to-file.
    #[arg(long, value_name = "PATH|URL", conflicts_with = "to_file")]
    to: Option<String>,
    /// A file that contains the address of a webhook or a PostgreSQL database, relative to the configuration.
    #[arg(long, value_name = "FILE")]
    to_file: Option<PathBuf>,
    /// Serve the events to applications over HTTP, at 127.0.0.1:9465 or the given address. The sink must be sqlite, which is
    /// the default with this flag, or postgres.
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true, default_missing_value = feed::LISTEN)]
    feed: Option<String>,
}

pub(crate) async fn run(mut args: Args, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    if !args.force && args.file.exists() {
        let file = args.file.display();
        let message = format!("{file} exists already; choose another file, or overwrite it with --force");
        return Err(CommandError::usage(message));
    }
    if args.feed.is_some() {
        feed::check_file(&args.file)?;
        feed::check_sink(args.sink.get_or_insert_with(|| feed::SINK.to_owned()))?;
    }
    if let Some(kind) = &args.sink {
        sink::check(kind, args.to_file.as_deref())?;
    }
    let (file, force, unchecked) = (args.file.clone(), args.force, args.unchecked);
    let directory = directory(&file);
    let mut answers = Interview::new(args, &directory, cx)?.answers().await?;
    if let Some(used) = answers.avoid_used_address(&file)? {
        cx.say(used)?;
    }
    let mut signals =
        Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(CommandError::io("signals cannot be received"))?;
    tokio::select! {
        written = write(&answers, &file, force, unchecked, cx) => written?,
        _ = signals.next() => return Err(CommandError::failed("interrupted; nothing was written")),
    }
    commands::say(&answers, &file, cx)
}

/// Writes the files with secrets, checks the configuration with them, and writes it. If this fails or is dropped, no file is left.
async fn write(
    answers: &ConfigAnswers,
    file: &Path,
    force: bool,
    unchecked: bool,
    cx: &mut Context<'_>,
) -> Result<(), CommandError> {
    let mut secrets = NewSecrets::default();
    if let Key::New(key) = &answers.key {
        secrets.write(&answers.key_file, key)?;
    }
    if let Some(file) = answers.feed.as_ref().and_then(Feed::missing_token) {
        secrets.write(file, &feed::new_token())?;
    }
    let text = answers.text();
    let config = load(file, &text)?;
    if !unchecked {
        let mut asked = check::ask(&config, config.state.examine(), false).await;
        asked.extend(check::feed(&config).await);
        cx.say_lines(asked.iter().map(|asked| for_stdout(&asked.to_string())))?;
        if asked.iter().any(|asked| !asked.ok) {
            let message = "nothing was written; correct the failed checks, or write it anyway with --unchecked";
            return Err(CommandError(Exit::Unavailable, message.to_owned()));
        }
    }
    let failed = |error| CommandError::io(format!("{} could not be written", file.display()))(error);
    let mut written = tempfile::NamedTempFile::new_in(directory(file)).map_err(failed)?;
    written.write_all(text.as_bytes()).and_then(|()| written.as_file().sync_all()).map_err(failed)?;
    let persisted = if force { written.persist(file) } else { written.persist_noclobber(file) };
    persisted.map_err(|error| failed(error.error))?;
    secrets.keep();
    Ok(())
}

/// The absolute path of the file's directory.
fn directory(file: &Path) -> PathBuf {
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    absolute.parent().unwrap_or(Path::new("/")).to_owned()
}
