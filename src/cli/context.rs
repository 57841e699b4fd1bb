//! The context in which a command runs: its configuration, its output and the service. Also its result: an exit code or an
//! error.

use std::error::Error;
use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use crate::cli::terminal::{Table, for_stdout, json_for_stdout, width_of_stdout};
use crate::config::{Channel, Config, ConfigError};
use crate::daemon::assembly::{self, AssemblyError};
use api::{ApiError, Client};
use channel::ReadError;
use net::Chain;
use operator::{ConfiguredChannel, Refusal, SignerNames, find, names, verifier_of};
use proof::event::ChannelId;
use proof::verify::Verifier;
use record::{ChannelRef, printable};

/// The context in which a command runs.
pub(super) struct Context<'a> {
    /// The configuration file. `None` if the command line names no file and none is installed.
    pub(super) file: Option<&'a Path>,
    /// Standard output, buffered. The methods below flush it.
    pub(super) out: &'a mut dyn Write,
}

impl Context<'_> {
    pub(super) fn config(&self) -> Result<Config, CommandError> {
        Ok(Config::load(self.file)?)
    }

    /// Prepares access to a channel, which is given by its name or its id. Sends no request to the service.
    pub(super) fn connect(&self, name_or_id: &str) -> Result<Connection, CommandError> {
        let config = self.config()?;
        let (channel, verifier) = verifier_of(&configured(&config.channels), name_or_id)?;
        let client = client(&config, channel.id)?;
        Ok(Connection { client, channel, verifier, signer_names: config.signer_names })
    }

    pub(super) fn say(&mut self, line: impl Display) -> Result<Exit, CommandError> {
        self.say_lines([line])
    }

    pub(super) fn say_json(&mut self, one: &impl Serialize) -> Result<Exit, CommandError> {
        self.say(json_for_stdout(one))
    }

    pub(super) fn say_lines(&mut self, lines: impl IntoIterator<Item = impl Display>) -> Result<Exit, CommandError> {
        let mut lines = lines.into_iter();
        lines
            .try_for_each(|line| writeln!(self.out, "{line}"))
            .and_then(|()| self.out.flush())
            .map_err(CommandError::output)?;
        Ok(Exit::Done)
    }

    /// Writes each item as one line, either as JSON or as formatted by `line`.
    pub(super) fn say_each<T: Serialize>(
        &mut self,
        json: bool,
        each: &[T],
        line: impl Fn(&T) -> String,
    ) -> Result<Exit, CommandError> {
        self.say_lines(each.iter().map(|one| if json { to_json(one) } else { line(one) }))
    }

    /// Writes a list: with `json`, one line of JSON per item; otherwise a table that is not wider than the terminal, or only the line
    /// `none` if the list is empty.
    pub(super) fn say_table<T: Serialize>(
        &mut self,
        json: bool,
        each: &[T],
        none: &str,
        table: impl FnOnce(&[T]) -> Table,
    ) -> Result<Exit, CommandError> {
        if json {
            return self.say_lines(each.iter().map(to_json));
        }
        if each.is_empty() {
            return self.say(none);
        }
        let width = width_of_stdout().unwrap_or(usize::MAX);
        self.say(for_stdout(&table(each).with_wrapped_ends(width, &[])))
    }

    /// Writes a list: with `json`, one line of JSON per item; otherwise `heading` and one line per item, or only the line
    /// `none` if the list is empty.
    pub(super) fn say_list<T: Serialize>(
        &mut self,
        json: bool,
        each: &[T],
        (heading, none): (&str, &str),
        line: impl Fn(&T) -> String,
    ) -> Result<Exit, CommandError> {
        if !json {
            self.say(if each.is_empty() { none } else { heading })?;
        }
        self.say_each(json, each, line)
    }
}

/// One line of JSON, for lists.
fn to_json(one: &impl Serialize) -> String {
    serde_json::to_string(one).expect("an answer is JSON")
}

/// Access to the service and one of its channels.
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) channel: ChannelRef,
    pub(super) verifier: Verifier,
    pub(super) signer_names: SignerNames,
}

/// The client of the channel's account. Channels that are not configured belong to the default account.
pub(super) fn client(config: &Config, channel: ChannelId) -> Result<Client, CommandError> {
    Ok(assembly::client_of(config, &config.account_of(channel))?)
}

impl From<AssemblyError> for CommandError {
    fn from(error: AssemblyError) -> Self {
        Self(Exit::Config, Chain(&error).to_string())
    }
}

pub(super) fn configured(channels: &[Channel]) -> Vec<ConfiguredChannel> {
    channels.iter().map(Channel::for_operator).collect()
}

/// The channel with this name or id, if it is configured.
pub(super) fn configured_channel<'c>(config: &'c Config, name_or_id: &str) -> Result<&'c Channel, CommandError> {
    let configured = configured(&config.channels);
    let found = find(&configured, name_or_id)?;
    config.channels.iter().find(|channel| channel.channel == found).ok_or_else(|| {
        let (name, names) = (printable(name_or_id), names(&configured));
        CommandError::usage(format!("channel {name} is not configured; the configured channels are: {names}"))
    })
}

/// The exit code, with the numbers of `sysexits.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command succeeded.
    Done = 0,
    /// The command failed for a reason without a code of its own, or the answer to its question is "no".
    Failed = 1,
    /// The command line is invalid.
    Usage = 64,
    /// The service, or every channel, is unavailable.
    Unavailable = 69,
    /// The configuration is invalid.
    Config = 78,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command failed: its exit code, and the message for the operator.
#[derive(Debug, thiserror::Error)]
#[error("{1}")]
pub(super) struct CommandError(pub(super) Exit, pub(super) String);

impl CommandError {
    pub(super) fn usage(why: impl Into<String>) -> Self {
        Self(Exit::Usage, why.into())
    }

    pub(super) fn failed(why: impl Into<String>) -> Self {
        Self(Exit::Failed, why.into())
    }

    /// A failure whose message consists of the error and its causes, without an introduction.
    pub(super) fn by(error: &dyn Error) -> Self {
        Self::failed(Chain(error).to_string())
    }

    /// For [`Result::map_err`] on a request to the service.
    pub(super) fn api(doing: impl Display) -> impl FnOnce(ApiError) -> Self {
        use ApiError::{Malformed, RateLimited, Transient};
        move |error| {
            let unavailable = matches!(error, RateLimited { .. } | Transient { .. } | Malformed(_));
            let exit = if unavailable { Exit::Unavailable } else { Exit::Failed };
            Self(exit, format!("{doing}: {}", Chain(&error)))
        }
    }

    /// For [`Result::map_err`] on reading a channel's history.
    pub(super) fn reading(doing: impl Display) -> impl FnOnce(ReadError) -> Self {
        move |error| match error {
            ReadError::Api(error) => Self::api(doing)(error),
            other => Self::by(&other),
        }
    }

    /// For [`Result::map_err`] on reading or writing a file.
    pub(super) fn io(doing: impl Display) -> impl FnOnce(io::Error) -> Self {
        move |error| {
            // A closed pipe is not an error: the reader of the output needs no more.
            let exit = if error.kind() == io::ErrorKind::BrokenPipe { Exit::Done } else { Exit::Failed };
            Self(exit, format!("{doing}: {}", Chain(&error)))
        }
    }

    /// For [`Result::map_err`] on writing the output.
    pub(super) fn output(error: io::Error) -> Self {
        Self::io("the output could not be written")(error)
    }
}

impl From<ConfigError> for CommandError {
    fn from(problems: ConfigError) -> Self {
        Self(Exit::Config, problems.to_string())
    }
}

impl From<Refusal> for CommandError {
    fn from(refusal: Refusal) -> Self {
        let exit = match refusal {
            Refusal::Usage(_) => Exit::Usage,
            Refusal::Config(_) => Exit::Config,
            Refusal::Failed(_) | Refusal::NotFound(_) | Refusal::Unreadable(_) | Refusal::Elsewhere { .. } => {
                Exit::Failed
            }
        };
        Self(exit, refusal.to_string())
    }
}
