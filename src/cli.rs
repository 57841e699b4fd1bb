//! The command line: one file a subcommand.
//!
//! # Invariants
//!
//! * **Results on standard output, everything else on standard error**, so that output can be piped.
//! * **What the service said is shown, not obeyed**: its texts reach a terminal without control characters.
//! * **A reader that leaves ends a command quietly**: a closed pipe is no failure.

use std::ffi::OsString;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};

use crate::operator::api::SetPaused;
use crate::telemetry::Chain;
use crate::version;

pub mod check;
pub mod completions;
pub mod connect;
mod cursor;
mod dead_letters;
pub mod demo;
pub mod exit;
pub mod get;
mod health;
pub mod man;
mod operate;
mod pause;
mod quarantine;
mod reload;
mod replay;
pub mod run;
pub mod search;
mod shown;
pub mod simulate;
mod state;
pub mod status;
pub mod verify;
pub mod wait_watcher;

pub use exit::Exit;

use connect::Connection;
use exit::Failure;

/// Where the package puts the configuration, and where it is looked for if nobody names another.
const INSTALLED: &str = "/etc/channeld/channeld.toml";

/// Reads the verified events of channels and hands them on: nothing forged, nothing lost.
///
/// Exit codes: 0 done, 64 wrong usage, 78 wrong configuration, 69 the service or every channel unavailable, 1 otherwise.
#[derive(Debug, Parser)]
#[command(name = "channeld", version = version::text(), max_term_width = 100, arg_required_else_help = true)]
pub struct Cli {
    /// The configuration file (TOML). Without it, /etc/channeld/channeld.toml where that is there. Environment variables
    /// such as `CHANNELD_API__API_KEY` come on top of it.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    Demo(demo::Args),
    Check(check::Args),
    Status(status::Args),
    Health(health::Args),
    Reload(reload::Args),
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
    /// Let a channel of the running daemon, or one sink of it, stand still until it is resumed.
    ///
    /// A channel that is paused reads and delivers nothing, and its cursors can be set; of a sink that is paused the others
    /// are not held up. The batch in hand is finished first. It is not remembered: a daemon that starts again goes on with
    /// everything. SIGHUP resumes nothing.
    Pause(SetPaused),
    /// Let go on what was paused, and offer at once what a sink has refused.
    ///
    /// With --sink, a sink that refuses is offered its events now and not after its next wait. A webhook that has answered 410
    /// (Gone) is not asked again by itself at all: it is blocked until it is resumed so, or the daemon starts again.
    Resume(SetPaused),
    WaitWatcher(wait_watcher::Args),
    Simulate(simulate::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    Man(man::Args),
}

/// Reads the arguments. Help and errors are printed here.
///
/// # Errors
/// The exit code, where there is nothing to run.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, Exit> {
    Cli::try_parse_from(arguments).map_err(|refusal| {
        // Nobody may be there to read it.
        let _ = refusal.print();
        if refusal.use_stderr() { Exit::Usage } else { Exit::Done }
    })
}

impl Cli {
    /// Runs the command to its end.
    pub async fn run(self) -> Exit {
        let config = self.config.or_else(installed);
        let ended = match self.command {
            Command::Run(run::Args {}) => return run::run(config).await,
            Command::Demo(args) => return demo::run(args).await,
            Command::Simulate(args) => return simulate::run(args).await,
            Command::Check(args) => return check::run(config.as_deref(), &args).await,
            Command::Status(args) => status::run(&args, config.as_deref()).await,
            Command::Health(args) => health::run(&args, config.as_deref(), &mut output()).await,
            Command::Reload(args) => reload::run(&args, config.as_deref(), &mut output()).await,
            Command::Search(args) => search(&args, config.as_deref()).await,
            Command::Get(args) => get(&args, config.as_deref()).await,
            Command::Verify(args) => verify(&args, config.as_deref()),
            Command::Cursor(args) => cursor::run(args, config.as_deref(), &mut output()).await,
            Command::Quarantine(args) => quarantine::run(args, config.as_deref(), &mut output()).await,
            Command::DeadLetters(args) => dead_letters::run(args, config.as_deref(), &mut output()).await,
            Command::Replay(args) => replay::run(&args, config.as_deref(), &mut output()).await,
            Command::State(args) => state::run(args, config.as_deref(), &mut output()).await,
            Command::Pause(what) => {
                pause::run(SetPaused { paused: true, ..what }, config.as_deref(), &mut output()).await
            }
            Command::Resume(what) => pause::run(what, config.as_deref(), &mut output()).await,
            Command::WaitWatcher(args) => wait_watcher(&args, config.as_deref()).await,
            Command::Completions(args) => completions::run(&args, &mut output()),
            Command::Man(args) => man::run(&args),
        };
        ended.unwrap_or_else(|failure| {
            let exit = failure.exit();
            if exit != Exit::Done {
                anstream::eprintln!("channeld: {}", Chain(&failure));
            }
            exit
        })
    }
}

/// The configuration of this machine, where it has one.
fn installed() -> Option<PathBuf> {
    Path::new(INSTALLED).exists().then(|| INSTALLED.into())
}

async fn search(args: &search::Args, config: Option<&Path>) -> Result<Exit, Failure> {
    let connection = Connection::open(config)?;
    let (channel, verifier) = connection.channels.channel(&args.channel)?;
    search::run(args, &connection.client, &channel, verifier, &mut output()).await
}

async fn get(args: &get::Args, config: Option<&Path>) -> Result<Exit, Failure> {
    let connection = Connection::open(config)?;
    let (channel, verifier) = connection.channels.channel(&args.channel)?;
    get::run(args, &connection.client, &channel, verifier, &mut output()).await
}

async fn wait_watcher(args: &wait_watcher::Args, config: Option<&Path>) -> Result<Exit, Failure> {
    let connection = Connection::open(config)?;
    let (channel, _) = connection.channels.channel(&args.channel)?;
    wait_watcher::run(args, &connection.client, &channel, &mut output()).await
}

fn verify(args: &verify::Args, config: Option<&Path>) -> Result<Exit, Failure> {
    verify::run(args, &args.verifier(config)?, &mut output())
}

/// Standard output, written when a command flushes it or a good deal has come together.
fn output() -> BufWriter<io::Stdout> {
    BufWriter::new(io::stdout())
}
