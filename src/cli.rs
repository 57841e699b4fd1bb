//! The command line, with one file per subcommand, in a folder for each purpose.
//!
//! # Invariants
//!
//! * **Results on standard output, everything else on standard error**, so that output can be piped.
//! * **Texts from the service cannot control the terminal**: they are printed without control characters.
//! * **A closed pipe ends a command without an error**: the reader has seen enough.

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser, Subcommand};

use crate::config::FILE_VARIABLE;
use crate::version;
use operator::api::SetPaused;
use simulator;

mod arguments;
mod connect;
mod exit;
mod operate;
mod output;
mod run;
mod shown;
mod terminal;

/// Subcommands that show something.
mod look {
    pub(super) mod channels;
    pub(super) mod cluster;
    pub(super) mod console;
    pub(super) mod explain;
    pub(super) mod get;
    pub(super) mod health;
    pub(super) mod search;
    pub(super) mod status;
    pub(super) mod tail;
}

/// Subcommands that change what the daemon does or has recorded.
mod act {
    pub(super) mod cursor;
    pub(super) mod dead_letters;
    pub(super) mod pause;
    pub(super) mod quarantine;
    pub(super) mod reload;
    pub(super) mod replay;
    pub(super) mod state;
}

/// Subcommands whose exit code answers a question.
mod prove {
    pub(super) mod check;
    pub(super) mod test_sink;
    pub(super) mod verify;
    pub(super) mod wait_watcher;
}

/// Subcommands for a first trial.
mod trial {
    pub(super) mod demo;
    pub(super) mod init;
    pub(super) mod simulate;
}

/// Subcommands for those who package channeld.
mod package {
    pub(super) mod completions;
    pub(super) mod man;
    pub(super) mod schema;
}

pub use exit::Exit;

use act::{cursor, dead_letters, pause, quarantine, reload, replay, state};
use connect::Connection;
use exit::Failure;
use look::{channels, cluster, console, explain, get, health, search, status, tail};
use package::{completions, man, schema};
use prove::{check, test_sink, verify, wait_watcher};
use terminal::failure_for_stderr;
use trial::{demo, init, simulate};

/// The configuration file that the package installs. Without `--config`, it is read if it exists.
const INSTALLED: &str = "/etc/channeld/channeld.toml";

/// Deliver verified events of CRE Connect channels, without gaps.
///
/// Exit codes: 0 success, 64 usage error, 78 invalid configuration, 69 the service or every channel is unavailable, 1
/// any other failure.
#[derive(Debug, Parser)]
#[command(name = "channeld", version = version::text(), long_version = version::long(), max_term_width = 100, arg_required_else_help = true)]
pub struct Cli {
    /// The configuration file (TOML). Default: /etc/channeld/channeld.toml, if that file exists. Environment variables
    /// such as `CHANNELD_API__API_KEY` override the file.
    #[arg(short, long, global = true, value_name = "FILE", env = FILE_VARIABLE)]
    config: Option<PathBuf>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon: read the configured channels and deliver events.
    ///
    /// Verified events go to the configured sinks, and logs go to standard error. On SIGTERM or SIGINT, the daemon
    /// finishes and records the current batch, then exits. A second signal ends it at once. On SIGHUP, it reads the
    /// configuration and the secrets again.
    Run,
    Demo(demo::Args),
    Init(Box<init::Args>),
    Check(check::Args),
    TestSink(test_sink::Args),
    #[command(subcommand)]
    Channels(channels::Command),
    Console(console::Args),
    Status(status::Args),
    Cluster(cluster::Args),
    Health(health::Args),
    Explain(explain::Args),
    Reload(reload::Args),
    Tail(Box<tail::Args>),
    Search(Box<search::Args>),
    Get(get::Args),
    Verify(verify::Args),
    #[command(subcommand)]
    Cursor(cursor::Command),
    #[command(subcommand)]
    Quarantine(quarantine::Command),
    #[command(subcommand)]
    DeadLetters(dead_letters::Command),
    Replay(replay::Args),
    #[command(subcommand)]
    State(state::Command),
    Pause(pause::Args),
    /// Resume a channel or sink, and retry a refusing sink.
    ///
    /// With --sink, a sink that refuses events is retried now instead of after its next wait. A webhook that answered
    /// 410 (Gone) is never retried automatically: it stays blocked until this command resumes it or the daemon
    /// restarts.
    Resume(SetPaused),
    WaitWatcher(wait_watcher::Args),
    /// Simulate the channel events service over HTTP.
    ///
    /// Prints one JSON line when it accepts connections: base_url, api_key, org_id, workflow_owner, valid_signers,
    /// min_required_signatures, channels (their ids) and watchers (the watcher ids of each channel). Runs until it is
    /// interrupted.
    #[expect(clippy::doc_markdown, reason = "help texts contain plain names")]
    Simulate(simulator::Options),
    Schema(schema::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    Names(completions::NamesArgs),
    #[command(hide = true)]
    Man(man::Args),
}

/// Parses the arguments. Prints the help and errors.
///
/// # Errors
/// The exit code, if no command is to be run.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, Exit> {
    Cli::try_parse_from(arguments).map_err(|refusal| {
        // The error is ignored: the output may be closed.
        let _ = refusal.print();
        if refusal.use_stderr() { Exit::Usage } else { Exit::Done }
    })
}

impl Cli {
    /// Whether the command runs the daemon.
    pub fn is_daemon(&self) -> bool {
        matches!(self.command, Command::Run)
    }

    /// Runs the command to its end.
    pub async fn run(self) -> Exit {
        let config = self.config.or_else(|| Path::new(INSTALLED).exists().then(|| INSTALLED.into()));
        if config.is_none() && self.command.is_configured() && Path::new(init::FILE).exists() {
            anstream::eprintln!(
                "channeld: no configuration file was read; for the one in this directory: -c {}",
                init::FILE
            );
        }
        // Written when a command flushes it, when the buffer is full, and at the end.
        let out = &mut BufWriter::new(io::stdout());
        let ended = self.command.run(config.as_deref(), out).await;
        let flushed = out.flush().map_err(Failure::output);
        ended.and_then(|exit| flushed.map(|()| exit)).unwrap_or_else(|failure| {
            if failure.0 != Exit::Done {
                anstream::eprintln!("{}", failure_for_stderr("channeld:", &format!("channeld: {failure}")));
            }
            failure.0
        })
    }
}

impl Command {
    /// Whether the command reads the configuration and can also run without a file in the default location.
    fn is_configured(&self) -> bool {
        matches!(self, Self::Run | Self::Check(_) | Self::TestSink(_))
    }

    async fn run(self, config: Option<&Path>, out: &mut impl Write) -> Result<Exit, Failure> {
        match self {
            Self::Run => Ok(run::run(config).await),
            Self::Demo(args) => demo::run(args).await,
            Self::Init(args) => init::run(*args, out).await,
            Self::Simulate(options) => simulate::run(options, out).await,
            Self::Check(args) => check::run(config, &args, out).await,
            Self::TestSink(args) => test_sink::run(&args, config, out).await,
            Self::Channels(command) => channels::run(command, config, out).await,
            Self::Console(args) => console::run(&args, config, out).await,
            Self::Status(args) => status::run(&args, config).await,
            Self::Cluster(args) => cluster::run(&args, config, out).await,
            Self::Health(args) => health::run(&args, config, out).await,
            Self::Explain(args) => explain::run(&args, out),
            Self::Reload(args) => reload::run(&args, config, out).await,
            Self::Tail(args) => tail::run(&args, config, out).await,
            Self::Search(args) => search::run(&args, &Connection::open(config, &args.channel)?, out).await,
            Self::Get(args) => get::run(&args, &Connection::open(config, &args.channel)?, out).await,
            Self::Verify(args) => verify::run(&args, config, out),
            Self::Cursor(args) => cursor::run(args, config, out).await,
            Self::Quarantine(args) => quarantine::run(args, config, out).await,
            Self::DeadLetters(args) => dead_letters::run(args, config, out).await,
            Self::Replay(args) => replay::run(&args, config, out).await,
            Self::State(args) => state::run(args, config, out).await,
            Self::Pause(args) => pause::run(args.request(), config, out).await,
            Self::Resume(what) => pause::run(what, config, out).await,
            Self::WaitWatcher(args) => wait_watcher::run(&args, &Connection::open(config, &args.channel)?, out).await,
            Self::Schema(args) => schema::run(&args, out),
            Self::Completions(args) => completions::run(&args, Cli::command(), out),
            Self::Names(args) => completions::names(&args, config, out),
            Self::Man(args) => man::run(&args, Cli::command()),
        }
    }
}
