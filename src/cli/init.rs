//! `channeld init`: a configuration to begin with, from flags and, on a terminal, from questions.
//!
//! # Invariants
//!
//! * **Written only when it works.** What is written was read without a mistake and, unless told otherwise, asked: the service,
//!   each channel and its newest events, the sink.
//! * **Nothing is overwritten** without `--force`. A key file that is there is used, and never changed.
//! * **The key stays secret.** It comes from a file, standard input or a prompt without echo, goes into a file with mode 0600,
//!   and is never printed.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use serde::Deserialize;

use super::check;
use super::exit::{Exit, Failure};
use super::operate::say;
use crate::config::Config;

/// The service's address where none is given.
const SERVICE: &str = "https://cre-connect.api.chain.link/v1";

const CTRL_C: u8 = 3;
const CTRL_D: u8 = 4;
const BACKSPACE: u8 = 8;
const DELETE: u8 = 127;

/// Write a configuration to begin with, and check it against the service.
///
/// What the flags do not say is asked for on a terminal; elsewhere it is a mistake. The service is asked with the key, the
/// newest events of each channel are read and verified, and the sink is looked at: where one of them fails, nothing is
/// written and the exit code is 69, or 78 for a mistake in what was given. The key is read from its file, or else asked for
/// without showing it, or with --api-key-stdin read from standard input; it is then written to that file with mode 0600.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  channeld init
  channeld init --org-id org_… --channel settlements=7c9e… --sink file --to events.jsonl

A trial, without a service of your own:
  channeld simulate --events 100 --rate 1 > simulated.json &
  channeld init --demo simulated.json
  channeld run --config channeld.toml")]
pub(super) struct Args {
    /// The file to write.
    #[arg(default_value = super::HERE)]
    file: PathBuf,
    /// Overwrite the file.
    #[arg(long)]
    force: bool,
    /// Write it without asking the service and the sink.
    #[arg(long)]
    unchecked: bool,
    /// Take service, key, organisation, signers and channels from what `channeld simulate` has printed: a file, or - for
    /// standard input. The simulator has to run.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["base_url", "org_id", "workflow_owner", "valid_signers", "min_required_signatures", "channel"])]
    demo: Option<PathBuf>,
    /// The service's address, up to and with the version.
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// The file of the API key. Default: api-key beside the configuration.
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Read the API key from standard input.
    #[arg(long)]
    api_key_stdin: bool,
    /// The organisation whose events these are.
    #[arg(long, value_name = "ID", conflicts_with = "workflow_owner")]
    org_id: Option<String>,
    /// The workflow owner's address, in place of the organisation.
    #[arg(long, value_name = "ADDRESS")]
    workflow_owner: Option<String>,
    /// The network's signers. Default: the published production set.
    #[arg(long, value_name = "ADDRESS,…", value_delimiter = ',')]
    valid_signers: Vec<String>,
    /// How many of them have to sign.
    #[arg(long, value_name = "N", requires = "valid_signers")]
    min_required_signatures: Option<u64>,
    /// A channel: a name of your choice and its id. Once for each.
    #[arg(long, value_name = "NAME=ID")]
    channel: Vec<String>,
    /// Where events go: file, stdout, webhook, sqlite or postgres.
    #[arg(long, value_name = "TYPE", value_parser = ["file", "stdout", "webhook", "sqlite", "postgres"])]
    sink: Option<String>,
    /// The sink's path or address. One that holds a secret: --to-file.
    #[arg(long, value_name = "PATH|URL", conflicts_with = "to_file")]
    to: Option<String>,
    /// A file that holds the address of a webhook or a PostgreSQL database.
    #[arg(long, value_name = "FILE")]
    to_file: Option<PathBuf>,
}

/// What `channeld simulate` prints.
#[derive(Deserialize)]
struct Announced {
    base_url: String,
    api_key: String,
    org_id: String,
    valid_signers: Vec<String>,
    min_required_signatures: u64,
    channels: Vec<String>,
}

/// Everything that was decided.
struct Answers {
    base_url: String,
    key_file: PathBuf,
    /// The key, where its file has to be written.
    key: Option<String>,
    owner: (&'static str, String),
    signers: Vec<String>,
    required: Option<u64>,
    channels: Vec<(String, String)>,
    sink: String,
    /// The key of the sink and its value: none for standard output.
    to: Option<(&'static str, String)>,
    state: PathBuf,
}

pub(super) async fn run(args: Args, out: &mut impl Write) -> Result<Exit, Failure> {
    if !args.force && args.file.exists() {
        let message =
            format!("{} is there already; name another file, or overwrite it with --force", args.file.display());
        return Err(Failure(Exit::Usage, message));
    }
    let (file, force, unchecked) = (args.file.clone(), args.force, args.unchecked);
    let answers = Answers::of(args)?;
    let directory = directory(&file);
    let failed = |error| Failure::io(format!("{} could not be written", file.display()))(error);
    let new_key = answers.write_key()?;
    let ended = write(&answers, &file, &directory, force, unchecked, out).await;
    if !matches!(ended, Ok(Exit::Done)) && new_key {
        fs::remove_file(&answers.key_file).map_err(failed)?;
    }
    ended
}

async fn write(
    answers: &Answers,
    file: &Path,
    directory: &Path,
    force: bool,
    unchecked: bool,
    out: &mut impl Write,
) -> Result<Exit, Failure> {
    let failed = |error| Failure::io(format!("{} could not be written", file.display()))(error);
    let mut written = tempfile::NamedTempFile::new_in(directory).map_err(failed)?;
    written.write_all(answers.text().as_bytes()).map_err(failed)?;
    let config = Config::load(Some(written.path()))?;
    if !unchecked {
        let asked = check::ask(&config).await;
        for asked in &asked {
            say(out, asked.to_string())?;
        }
        if asked.iter().any(|asked| !asked.ok) {
            let message = "nothing was written; correct what failed, or write it all the same with --unchecked";
            return Err(Failure(Exit::Unavailable, message.to_owned()));
        }
    }
    written.as_file().sync_all().map_err(failed)?;
    let persisted = if force { written.persist(file) } else { written.persist_noclobber(file) };
    persisted.map_err(|error| failed(error.error))?;
    let shown = file.display();
    say(out, format!("\n{shown} is written. Read the events:\n  channeld run --config {shown}"))
}

/// Where the file goes, absolute.
fn directory(file: &Path) -> PathBuf {
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    absolute.parent().unwrap_or(Path::new("/")).to_owned()
}

impl Answers {
    fn of(args: Args) -> Result<Self, Failure> {
        let directory = directory(&args.file);
        let key_file = std::path::absolute(args.api_key_file.unwrap_or_else(|| directory.join("api-key")))
            .map_err(Failure::io("the path of the key file"))?;
        let announced = args.demo.as_deref().map(announced).transpose()?;
        let mut missing = Vec::new();
        let is_there = key_file.exists();
        let (base_url, owner, signers, required, channels, key);
        if let Some(it) = announced {
            let named = it.channels.into_iter().enumerate().map(|(number, id)| (format!("simulated-{number}"), id));
            channels = named.collect();
            base_url = it.base_url;
            owner = ("org_id", it.org_id);
            (signers, required) = (it.valid_signers, Some(it.min_required_signatures));
            key = (!is_there).then_some(it.api_key);
        } else {
            base_url = args.base_url.map_or_else(|| ask_or("The service's address", SERVICE), Ok)?;
            owner = match (args.org_id, args.workflow_owner) {
                (_, Some(address)) => ("workflow_owner", address),
                (Some(id), None) => ("org_id", id),
                (None, None) => ("org_id", ask("The organisation's id (org_…)", "--org-id", &mut missing)?),
            };
            (signers, required) = (args.valid_signers, args.min_required_signatures);
            let mut given = args.channel;
            if given.is_empty() {
                given.push(ask("A channel, as NAME=ID", "--channel", &mut missing)?);
            }
            channels =
                given.iter().filter(|text| !text.is_empty()).map(|text| channel(text)).collect::<Result<_, _>>()?;
            key = if is_there {
                None
            } else if args.api_key_stdin {
                let mut text = String::new();
                io::stdin().read_to_string(&mut text).map_err(Failure::io("the key could not be read"))?;
                Some(text.trim().to_owned())
            } else if is_terminal() {
                Some(ask_secret("The API key (not shown)")?)
            } else {
                missing.push("--api-key-file with a file that is there, or --api-key-stdin");
                None
            };
        }
        let sink =
            args.sink.map_or_else(|| ask_or("Where events go: file, stdout, webhook, sqlite, postgres", "file"), Ok)?;
        let to = match (sink.as_str(), args.to, args.to_file) {
            ("stdout", ..) => None,
            ("file" | "sqlite", to, _) => {
                let default = if sink == "file" { "events.jsonl" } else { "events.db" };
                let path = to.unwrap_or_else(|| default.to_owned());
                Some(("path", directory.join(path).display().to_string()))
            }
            (_, _, Some(file)) => Some(("url_file", directory.join(file).display().to_string())),
            (_, Some(url), None) => Some(("url", url)),
            (..) => Some(("url", ask("The sink's address", "--to or --to-file", &mut missing)?)),
        };
        if !missing.is_empty() {
            let message = format!("this is no terminal to ask at; say {}", missing.join(", "));
            return Err(Failure(Exit::Usage, message));
        }
        let state =
            if directory == Path::new("/etc/channeld") { "/var/lib/channeld".into() } else { directory.join("state") };
        Ok(Self { base_url, key_file, key, owner, signers, required, channels, sink, to, state })
    }

    /// Whether it was written.
    fn write_key(&self) -> Result<bool, Failure> {
        let Some(key) = &self.key else { return Ok(false) };
        let failed = || Failure::io(format!("the key could not be written to {}", self.key_file.display()));
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.key_file).map_err(failed())?;
        writeln!(file, "{key}").and_then(|()| file.sync_all()).map_err(failed())?;
        Ok(true)
    }

    fn text(&self) -> String {
        let quoted = |text: &str| toml_edit::Value::from(text).to_string();
        let path = |path: &Path| quoted(&path.display().to_string());
        let mut text = format!(
            "# Made by `channeld init`. What is not set here has its default: `man channeld.toml` has every key.\n\n[api]\n\
             base_url = {}\napi_key_file = {}\n\n[verification]\n# Whose events these are: others' are rejected.\n{} = {}\n",
            quoted(&self.base_url),
            path(&self.key_file),
            self.owner.0,
            quoted(&self.owner.1)
        );
        if !self.signers.is_empty() {
            text.push_str("valid_signers = [\n");
            for signer in &self.signers {
                let _ = writeln!(text, "    {},", quoted(signer));
            }
            text.push_str("]\n");
            if let Some(required) = self.required {
                let _ = writeln!(text, "min_required_signatures = {required}");
            }
        }
        let _ = writeln!(
            text,
            "\n[state]\n# How far it has got. Keep it on a disk that survives a restart.\npath = {}",
            path(&self.state)
        );
        for (name, id) in &self.channels {
            let _ = writeln!(
                text,
                "\n[channels.{name}]\nid = {}\nsinks = [\"events\"]\n# Only where there is no cursor yet: \"earliest\", \
                 \"latest\" or an offset.\nstart = \"earliest\"",
                quoted(id)
            );
        }
        let _ = writeln!(text, "\n[sinks.events]\ntype = {}", quoted(&self.sink));
        if let Some((key, value)) = &self.to {
            let _ = writeln!(text, "{key} = {}", quoted(value));
        }
        text
    }
}

fn channel(text: &str) -> Result<(String, String), Failure> {
    let parts = text.split_once('=').map(|(name, id)| (name.trim().to_owned(), id.trim().to_owned()));
    parts.ok_or_else(|| Failure(Exit::Usage, "a channel is NAME=ID, such as settlements=7c9e6679-…".to_owned()))
}

fn announced(file: &Path) -> Result<Announced, Failure> {
    let failed = || Failure::io(format!("{} could not be read", file.display()));
    let mut text = String::new();
    if file == Path::new("-") {
        io::stdin().lock().read_line(&mut text).map_err(failed())?;
    } else {
        text = fs::read_to_string(file).map_err(failed())?;
    }
    let line = text.lines().next().unwrap_or_default();
    serde_json::from_str(line).map_err(|_| {
        let message = format!("{} does not begin with the line that `channeld simulate` prints", file.display());
        Failure(Exit::Usage, message)
    })
}

fn is_terminal() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

fn ask(what: &str, flag: &'static str, missing: &mut Vec<&'static str>) -> Result<String, Failure> {
    if !is_terminal() {
        missing.push(flag);
        return Ok(String::new());
    }
    loop {
        eprint!("{what}: ");
        let answer = answer()?;
        if !answer.is_empty() {
            return Ok(answer);
        }
    }
}

/// With the default where there is no answer, or no terminal to ask at.
fn ask_or(what: &str, default: &str) -> Result<String, Failure> {
    if !is_terminal() {
        return Ok(default.to_owned());
    }
    eprint!("{what} [{default}]: ");
    let answer = answer()?;
    Ok(if answer.is_empty() { default.to_owned() } else { answer })
}

fn answer() -> Result<String, Failure> {
    let mut line = String::new();
    match io::stdin().lock().read_line(&mut line).map_err(Failure::io("no answer could be read"))? {
        0 => Err(no_answer()),
        _ => Ok(line.trim().to_owned()),
    }
}

fn no_answer() -> Failure {
    Failure(Exit::Usage, "there is no answer; nothing was written".to_owned())
}

/// Without echo.
fn ask_secret(what: &str) -> Result<String, Failure> {
    let failed = || Failure::io("the terminal cannot be told to show nothing");
    let stdin = io::stdin();
    let before = tcgetattr(&stdin).map_err(|error| failed()(error.into()))?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
    tcsetattr(&stdin, OptionalActions::Flush, &silent).map_err(|error| failed()(error.into()))?;
    eprint!("{what}: ");
    let answered = hidden_line();
    tcsetattr(&stdin, OptionalActions::Now, &before).map_err(|error| failed()(error.into()))?;
    eprintln!();
    answered
}

/// A line, read byte by byte. Ctrl-C comes as a byte too, so that the echo is put back before the program ends.
fn hidden_line() -> Result<String, Failure> {
    let mut line = Vec::new();
    for byte in io::stdin().lock().bytes() {
        match byte.map_err(Failure::io("no answer could be read"))? {
            b'\r' | b'\n' => break,
            CTRL_C | CTRL_D => return Err(no_answer()),
            BACKSPACE | DELETE => drop(line.pop()),
            byte => line.push(byte),
        }
    }
    Ok(String::from_utf8_lossy(&line).trim().to_owned())
}
