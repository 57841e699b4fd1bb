//! `channeld init`: creates a configuration from flags and, on a terminal, from the answers to questions.
//!
//! # Invariants
//!
//! * **Written only if it works.** The configuration is loaded without errors before it is written. Unless `--unchecked` is
//!   given, the service, each channel with its newest events, and the sink are checked too.
//! * **Nothing is overwritten** without `--force`. Existing files of the key and of a token are used, and never changed.
//! * **Secrets stay secret.** The key comes from a file, standard input or a prompt without echo. The token of a feed is random. Each
//!   goes into a file with mode 0600, and is never printed.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;

use crate::cli::context::{CommandError, Context, Exit};
use crate::cli::look::channels::list;
use crate::cli::prove::check;
use crate::cli::terminal::{for_stdout, shell_word};
use crate::config::{self, Config, ConfigText};

mod choices;
mod feed;
mod prompt;
mod simulated;
mod sink;

use api::AccountName;
use choices::Choices;
use feed::Feed;
use sink::Sink;

/// The file that is written by default.
pub(crate) const FILE: &str = "channeld.toml";

const SERVICE: &str = "https://cre-connect.api.chain.link/v1";

/// Write an initial configuration, and check it against the service.
///
/// On a terminal, the command asks for each value that no flag sets, and checks each channel at once. If the API key may
/// read the list of channels, you choose from this list. Without a terminal, a missing value is an error.
///
/// Before the file is written, the command sends a request with the API key to the service, reads and verifies the
/// newest events of each channel, and checks the sink and the address of the feed. If one of these checks fails, nothing is written and the exit
/// code is 69, or 78 if a given value is invalid.
///
/// The API key is read from its file. If that file does not exist, the command asks for the key without showing it, or
/// reads it from standard input with --api-key-stdin. It then writes the key to that file with mode 0600.
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

/// All values that the written configuration contains.
#[derive(Clone)]
struct ConfigAnswers {
    base_url: String,
    key_file: PathBuf,
    /// The key that names the owner, and its value.
    owner: (&'static str, String),
    signers: Vec<String>,
    required: Option<u64>,
    /// Names and ids.
    channels: Vec<(String, String)>,
    sink: Sink,
    feed: Option<Feed>,
    state: PathBuf,
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
    let mut new_secrets = Vec::new();
    let ended = make(args, &mut new_secrets, cx).await;
    if !matches!(ended, Ok(Exit::Done)) {
        for path in new_secrets {
            fs::remove_file(&path).map_err(CommandError::io(format!("{} could not be removed", path.display())))?;
        }
    }
    ended
}

/// Asks for missing values and writes the file. Adds the paths of newly created files with secrets to `new_secrets`.
async fn make(args: Args, new_secrets: &mut Vec<PathBuf>, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    let (file, force, unchecked) = (args.file.clone(), args.force, args.unchecked);
    let directory = directory(&file);
    let answers = ConfigAnswers::of(args, &directory, new_secrets, cx).await?;
    let text = answers.text();
    let config = load(&file, &text)?;
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
    let mut written = tempfile::NamedTempFile::new_in(&directory).map_err(failed)?;
    written.write_all(text.as_bytes()).and_then(|()| written.as_file().sync_all()).map_err(failed)?;
    let persisted = if force { written.persist(&file) } else { written.persist_noclobber(&file) };
    persisted.map_err(|error| failed(error.error))?;
    let shown = file.display();
    let word = shell_word(&shown.to_string());
    cx.say(format!("\n{shown} is written. Read the events:\n  channeld run --config {word}"))?;
    if let Some(look) = answers.sink.look() {
        cx.say(format!("and look at them:\n  {look}"))?;
    }
    if let (Some(feed), [(channel, _), ..]) = (&answers.feed, &answers.channels[..]) {
        cx.say(format!("and read them from the feed, while channeld runs:\n  {}", feed.look(channel)))?;
    }
    Ok(Exit::Done)
}

/// Loads the configuration from this text and the environment, as if the file already existed.
fn load(file: &Path, text: &str) -> Result<Config, CommandError> {
    let text = ConfigText::written(file, text.to_owned());
    Ok(Config::of(text, std::env::vars_os())?.config)
}

/// The absolute path of the file's directory.
fn directory(file: &Path) -> PathBuf {
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    absolute.parent().unwrap_or(Path::new("/")).to_owned()
}

impl ConfigAnswers {
    async fn of(
        mut args: Args,
        directory: &Path,
        new_secrets: &mut Vec<PathBuf>,
        cx: &mut Context<'_>,
    ) -> Result<Self, CommandError> {
        let key_file = std::path::absolute(args.api_key_file.take().unwrap_or_else(|| directory.join("api-key")))
            .map_err(CommandError::io("the path of the key file"))?;
        let mut key = None;
        if let Some(file) = &args.demo {
            let it = simulated::announced(file)?;
            (key, args.base_url, args.org_id) = (Some(it.api_key), Some(it.base_url), Some(it.org_id));
            (args.valid_signers, args.min_required_signatures) = (it.valid_signers, Some(it.min_required_signatures));
            args.channel = (0..).zip(it.channels).map(|(number, id)| format!("simulated-{number}={id}")).collect();
        }
        let has_key = key.is_some() || key_file.exists() || args.api_key_stdin;
        let missing: Vec<_> = [
            (args.org_id.is_none() && args.workflow_owner.is_none(), "--org-id"),
            (args.channel.is_empty(), "--channel"),
            (!has_key, "--api-key-file with an existing file, or --api-key-stdin"),
        ]
        .into_iter()
        .filter_map(|(is_missing, flag)| (is_missing && !prompt::is_possible()).then_some(flag))
        .chain(sink::without_place(args.sink.as_deref(), args.to.is_some() || args.to_file.is_some()))
        .collect();
        if !missing.is_empty() {
            let message = format!("this is not a terminal, so nothing can be asked; give {}", missing.join(", "));
            return Err(CommandError::usage(message));
        }
        let base_url = args.base_url.map_or_else(|| prompt::ask_or("The service's address", SERVICE), Ok)?;
        if key.is_none() && !key_file.exists() {
            key = Some(if args.api_key_stdin {
                let mut text = String::new();
                io::stdin().read_to_string(&mut text).map_err(CommandError::io("the key could not be read"))?;
                text.trim().to_owned()
            } else {
                prompt::ask_secret("The API key (not shown)")?
            });
        }
        let owner = match (args.org_id, args.workflow_owner) {
            (_, Some(address)) => ("workflow_owner", address),
            (Some(id), None) => ("org_id", id),
            (None, None) => ("org_id", prompt::ask("The organization's id (org_…)")?),
        };
        let (signers, required) = (args.valid_signers, args.min_required_signatures);
        if let Some(key) = key.filter(|_| !key_file.exists()) {
            write_secret(&key_file, &key)?;
            new_secrets.push(key_file.clone());
        }
        let is_installed = directory == Path::new("/etc/channeld");
        let state = if is_installed { "/var/lib/channeld".into() } else { directory.join("state") };
        let (channels, sink) = (Vec::new(), Sink::stdout());
        let mut answers = Self { base_url, key_file, owner, signers, required, channels, sink, feed: None, state };
        if args.channel.is_empty() {
            answers.ask_channels(&args.file, args.unchecked, cx).await?;
        } else {
            answers.channels = answers.named_channels(&args.channel, &args.file).await?;
        }
        answers.sink = Sink::of(args.sink, args.to, args.to_file, directory)?;
        answers.feed = Feed::of(args.feed, &answers.sink, directory)?;
        if let Some(file) = answers.feed.as_ref().and_then(Feed::missing_token) {
            write_secret(file, &feed::new_token())?;
            new_secrets.push(file.to_owned());
        }
        Ok(answers)
    }

    /// The channels that the flags name. The service is asked for its list only if a flag does not contain the id.
    async fn named_channels(&self, flags: &[String], file: &Path) -> Result<Vec<(String, String)>, CommandError> {
        let has_ids = flags.iter().all(|flag| flag.contains('='));
        let choices = if has_ids { Choices::default() } else { self.choices(file).await? };
        flags.iter().map(|flag| choices.one(flag)).collect()
    }

    /// Requests the list of channels.
    async fn choices(&self, file: &Path) -> Result<Choices, CommandError> {
        let service = config::load_service(&ConfigText::written(file, self.text()), &AccountName::default())?;
        Ok(Choices::of(list::listed(service.account.client).await?))
    }

    /// Asks for one or more channels, until the answer is empty. Checks each channel immediately, and does not accept a
    /// channel that cannot be read. If `unchecked` is set, channels are accepted without a check.
    async fn ask_channels(&mut self, file: &Path, unchecked: bool, cx: &mut Context<'_>) -> Result<(), CommandError> {
        let listed = if unchecked { Ok(Choices::default()) } else { self.choices(file).await };
        let choices = match listed {
            Ok(choices) => choices,
            Err(failure) => {
                cx.say(failure)?;
                Choices::default()
            }
        };
        cx.say_lines(choices.lines().map(|line| for_stdout(&line)))?;
        loop {
            let answer = match self.channels.len() {
                0 => prompt::ask(choices.question())?,
                _ => prompt::ask_or_nothing("Another channel, or nothing")?,
            };
            if answer.is_empty() {
                return Ok(());
            }
            match choices.chosen(&answer) {
                Ok(chosen) => self.accept(chosen, file, unchecked, cx).await?,
                Err(failure) => cx.say(failure).map(drop)?,
            }
        }
    }

    /// Adds the channels that can be read, and says which cannot.
    async fn accept(
        &mut self,
        chosen: Vec<(String, String)>,
        file: &Path,
        unchecked: bool,
        cx: &mut Context<'_>,
    ) -> Result<(), CommandError> {
        for channel in chosen {
            if self.channels.iter().any(|(_, id)| *id == channel.1) {
                continue;
            }
            let seen = if unchecked { Ok(true) } else { self.look(file, &channel, cx).await };
            match seen {
                Ok(true) => self.channels.push(channel),
                Ok(false) => {
                    cx.say("That channel is not accepted: enter it again, or cancel with Ctrl-D").map(drop)?;
                }
                // The mistake can be in this answer or in an earlier one.
                Err(failure) => cx.say(failure).map(drop)?,
            }
        }
        Ok(())
    }

    /// Checks whether a channel can be read, and prints the result.
    async fn look(&self, file: &Path, channel: &(String, String), cx: &mut Context<'_>) -> Result<bool, CommandError> {
        let (channels, state) = (vec![channel.clone()], directory(file).join("state"));
        let config = load(file, &Self { channels, state, ..self.clone() }.text())?;
        let asked = check::ask(&config, config.state.examine(), false).await;
        let shown = asked.iter().filter(|asked| !asked.ok || asked.what == "channel");
        cx.say_lines(shown.map(|asked| for_stdout(&asked.to_string())))?;
        Ok(asked.iter().all(|asked| asked.ok))
    }

    fn text(&self) -> String {
        let Self { owner: (owner_key, owner), signers, required, channels, sink, feed, .. } = self;
        let quoted = |text: &str| toml_edit::Value::from(text).to_string();
        let path = |path: &Path| quoted(&path.display().to_string());
        let mut text = format!(
            r"# Made by `channeld init`. Every other key has its default: see `man channeld.toml`.

[api]
base_url = {}
api_key_file = {}

[verification]
# The owner of the events. Events of other owners are rejected.
{owner_key} = {}
",
            quoted(&self.base_url),
            path(&self.key_file),
            quoted(owner)
        );
        if !signers.is_empty() {
            let signers: Vec<_> = signers.iter().map(|signer| format!("    {},\n", quoted(signer))).collect();
            text.extend(["valid_signers = [\n", &signers.concat(), "]\n"]);
            text.extend(required.map(|required| format!("min_required_signatures = {required}\n")));
        }
        text += "\n[state]\n# The progress of every channel and sink. Keep it on a disk that survives a restart.\n";
        text.extend(["path = ", &path(&self.state), "\n"]);
        for (name, id) in channels {
            text.extend(["\n[channels.", name, "]\nid = ", &quoted(id), "\nsinks = [\"events\"]\n"]);
            text += "# Used only while no cursor is recorded: \"earliest\", \"latest\", an offset, or a time such as \"7d\".\nstart = \"earliest\"\n";
        }
        let feed = feed.as_ref().map(|feed| feed.text(channels)).unwrap_or_default();
        text + "\n[sinks.events]\n" + &sink.lines() + &feed
    }
}

fn write_secret(file: &Path, secret: &str) -> Result<(), CommandError> {
    let failed = || CommandError::io(format!("the secret could not be written to {}", file.display()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file).map_err(failed())?;
    writeln!(file, "{secret}").and_then(|()| file.sync_all()).map_err(failed())
}
