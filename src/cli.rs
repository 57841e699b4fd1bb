//! The command line, with one file per subcommand, in a folder for each purpose.
//!
//! # Invariants
//!
//! * **Results on standard output, everything else on standard error**, so that output can be piped.
//! * **Texts from the service cannot control the terminal**: they are printed without control characters.
//! * **A closed pipe ends a command without an error**: the program that reads the output does not need the rest.

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::config::{self, FILE_VARIABLE};
use crate::version;

mod arguments;
mod context;
mod first_event;
mod groups;
mod operate;
mod run;
mod terminal;
mod verdict_line;

/// Subcommands that print information and change nothing.
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

/// Subcommands that change the daemon's work or its recorded state.
mod act {
    pub(super) mod consumers;
    pub(super) mod cursor;
    pub(super) mod dead_letters;
    pub(super) mod list;
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

/// Subcommands that generate files for packages of channeld.
mod package {
    pub(super) mod completions;
    pub(super) mod man;
    pub(super) mod schema;
}

pub use context::Exit;

use context::{CommandError, Context};
use terminal::failure_for_stderr;
use terminal::pager::Pager;

/// The configuration file that the package installs. Without `--config`, this file is read if it exists.
const INSTALLED: &str = "/etc/channeld/channeld.toml";

/// Deliver verified events of CRE Connect channels, without gaps.
///
/// `channeld explain concepts` explains the words that the commands use.
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
    Run(run::Args),
    Demo(trial::demo::Args),
    Init(Box<trial::init::Args>),
    Check(prove::check::Args),
    TestSink(prove::test_sink::Args),
    #[command(subcommand)]
    Channels(look::channels::Command),
    Console(look::console::Args),
    Status(look::status::Args),
    Cluster(look::cluster::Args),
    Health(look::health::Args),
    Explain(look::explain::Args),
    Reload(act::reload::Args),
    Tail(Box<look::tail::Args>),
    Search(Box<look::search::Args>),
    Get(look::get::Args),
    Verify(prove::verify::Args),
    #[command(subcommand)]
    Cursor(act::cursor::Command),
    #[command(subcommand)]
    Consumers(act::consumers::Command),
    #[command(subcommand)]
    Quarantine(act::quarantine::Command),
    #[command(subcommand)]
    DeadLetters(act::dead_letters::Command),
    Replay(act::replay::Args),
    #[command(subcommand)]
    State(act::state::Command),
    Pause(act::pause::Args),
    /// Resume a channel or sink, and retry a refusing sink.
    ///
    /// With --sink, a sink that refuses events is retried now instead of after its next wait. A webhook that answered
    /// 410 (Gone) is never retried automatically: it stays blocked until this command resumes it or the daemon
    /// restarts. If the sink has lost its data, nothing is delivered to it until it is filled again, or accepted as it is
    /// with --accept-loss.
    Resume(act::pause::ResumeArgs),
    WaitWatcher(prove::wait_watcher::Args),
    /// Simulate the channel events service over HTTP.
    ///
    /// Prints one JSON line when the simulated service accepts connections: base_url, api_key, org_id, workflow_owner,
    /// valid_signers, min_required_signatures, channels (their ids) and watchers (the watcher ids of each channel).
    /// Runs until Ctrl-C.
    #[expect(clippy::doc_markdown, reason = "help texts contain plain names")]
    Simulate(simulator::Options),
    Schema(package::schema::Args),
    Completions(package::completions::Args),
    #[command(hide = true)]
    Names(package::completions::NamesArgs),
    #[command(hide = true)]
    Man(package::man::Args),
}

/// Parses the arguments. Prints the help, the version, or an error in the arguments.
///
/// # Errors
/// The exit code, if the help, the version or an error was printed. The program then runs no command.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, Exit> {
    let matches = groups::grouped(Cli::command()).try_get_matches_from(arguments);
    matches.and_then(|matches| Cli::from_arg_matches(&matches)).map_err(|refusal| {
        // The error is ignored: the output may be closed.
        let _ = refusal.print();
        if refusal.use_stderr() { Exit::Usage } else { Exit::Done }
    })
}

impl Cli {
    /// Whether the command runs the daemon.
    pub fn is_daemon(&self) -> bool {
        matches!(self.command, Command::Run(_))
    }

    /// Runs the command to its end.
    pub async fn run(self) -> Exit {
        // A file in a directory that this user may not read exists: opening it names the missing permission.
        let is_installed = Path::new(INSTALLED).try_exists().unwrap_or(true);
        let mut config = self.config.or_else(|| is_installed.then(|| INSTALLED.into()));
        let here = trial::init::FILE;
        if config.is_none() && Path::new(here).exists() {
            if self.command.only_looks() {
                anstream::eprintln!("channeld: using {here} in this directory");
                config = Some(here.into());
            } else if matches!(self.command, Command::Run(_) | Command::Check(_) | Command::TestSink(_)) {
                anstream::eprintln!(
                    "channeld: no configuration file was read; to use the file in this directory, add -c {here}"
                );
            }
        }
        if config.is_none() && self.command.needs_configuration() && !config::is_in_environment() {
            anstream::eprintln!(
                "channeld: No configuration: {INSTALLED} does not exist and {FILE_VARIABLE} is not set. \
                 Use -c FILE or run channeld init."
            );
            return Exit::Config;
        }
        let output: Box<dyn Write> =
            if self.command.is_list() { Box::new(Pager::of_stdout()) } else { Box::new(io::stdout()) };
        // The buffer is written when a command flushes it, when it is full, and at the end.
        let mut out = BufWriter::new(output);
        let ended = self.command.run(&mut Context { file: config.as_deref(), out: &mut out }).await;
        let flushed = out.flush().map_err(CommandError::output);
        // An error is printed after the user has left the pager.
        drop(out);
        ended.and_then(|exit| flushed.map(|()| exit)).unwrap_or_else(|failure| {
            if failure.0 != Exit::Done {
                anstream::eprintln!("{}", failure_for_stderr("channeld:", &format!("channeld: {failure}")));
            }
            failure.0
        })
    }
}

impl Command {
    /// Whether the command only reads. A command that only reads also uses a configuration file in the current
    /// directory.
    fn only_looks(&self) -> bool {
        matches!(
            self,
            Self::Status(_)
                | Self::Tail(_)
                | Self::Search(_)
                | Self::Get(_)
                | Self::Cluster(_)
                | Self::Health(_)
                | Self::Console(_)
        )
    }

    /// Whether the command prints a list for people, which can be longer than a screen.
    fn is_list(&self) -> bool {
        match self {
            Self::Search(args) => args.is_list(),
            Self::Quarantine(command) => command.is_list(),
            Self::DeadLetters(command) => command.is_list(),
            _ => false,
        }
    }

    fn needs_configuration(&self) -> bool {
        !matches!(
            self,
            Self::Demo(_)
                | Self::Init(_)
                | Self::Simulate(_)
                | Self::Explain(_)
                | Self::Verify(_)
                | Self::Schema(_)
                | Self::Completions(_)
                | Self::Names(_)
                | Self::Man(_)
        )
    }

    async fn run(self, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
        match self {
            Self::Run(args) => Ok(run::run(&args, cx.file).await),
            Self::Demo(args) => trial::demo::run(args).await,
            Self::Init(args) => trial::init::run(*args, cx).await,
            Self::Simulate(options) => trial::simulate::run(options, cx).await,
            Self::Check(args) => prove::check::run(&args, cx).await,
            Self::TestSink(args) => prove::test_sink::run(&args, cx).await,
            Self::Channels(command) => look::channels::run(command, cx).await,
            Self::Console(args) => look::console::run(&args, cx).await,
            Self::Status(args) => look::status::run(&args, cx).await,
            Self::Cluster(args) => look::cluster::run(&args, cx).await,
            Self::Health(args) => look::health::run(&args, cx).await,
            Self::Explain(args) => look::explain::run(&args, cx),
            Self::Reload(args) => act::reload::run(&args, cx).await,
            Self::Tail(args) => look::tail::run(&args, cx).await,
            Self::Search(args) => look::search::run(&args, &cx.connect(&args.channel)?, cx).await,
            Self::Get(args) => look::get::run(&args, &cx.connect(&args.channel)?, cx).await,
            Self::Verify(args) => prove::verify::run(&args, cx),
            Self::Cursor(command) => act::cursor::run(command, cx).await,
            Self::Consumers(command) => act::consumers::run(command, cx).await,
            Self::Quarantine(command) => act::quarantine::run(command, cx).await,
            Self::DeadLetters(command) => act::dead_letters::run(command, cx).await,
            Self::Replay(args) => act::replay::run(&args, cx).await,
            Self::State(command) => act::state::run(command, cx).await,
            Self::Pause(args) => act::pause::run(args.request(), cx).await,
            Self::Resume(args) => act::pause::run(args.request(), cx).await,
            Self::WaitWatcher(args) => prove::wait_watcher::run(&args, &cx.connect(&args.channel)?, cx).await,
            Self::Schema(args) => package::schema::run(&args, cx),
            Self::Completions(args) => package::completions::run(&args, Cli::command(), cx),
            Self::Names(args) => package::completions::names(&args, cx),
            Self::Man(args) => package::man::run(&args, Cli::command()),
        }
    }
}
