//! The part of `channeld check --connect` that concerns this machine: whether a daemon could lock the state directory, create
//! its control socket, and listen on its admin address and on the address of its feed. If a daemon with this configuration is
//! already running, this is not a failure.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::time::timeout;

use super::connect::ConnectionCheck;
use crate::config::Config;
use crate::daemon::{cannot_listen, feed_cannot_listen};
use feed::FeedListener;
use net::Chain;
use operator::api::GetStatus;
use operator::{Listener, Report, Socket};

/// How long to wait for the status of a running daemon.
const PATIENCE: Duration = Duration::from_secs(5);

/// The daemon that answers on the control socket in the state directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Running {
    None,
    /// It runs a channel of this configuration. The configuration may have changed since it was loaded.
    Own,
    /// All its channels differ from the channels of this configuration.
    Other,
}

/// The checks that fail, except the one of the feed.
pub(super) async fn failures(config: &Config) -> Vec<ConnectionCheck> {
    let (running, path) = (running(config).await, config.state.path.display().to_string());
    let failure = |what, name: &str, message: String| Some(ConnectionCheck::new(what, name, Err(message)));
    let lock = config.state.in_use().filter(|_| running != Running::Own);
    let lock = lock.and_then(|error| failure("state", &path, error.to_string()));
    let control = Socket::path_in(&config.state.path)
        .err()
        .and_then(|error| failure("control socket", &path, format!("commands could not reach the daemon: {error}")));
    let admin = config.listen.and_then(|address| {
        let error = Listener::check(address).err()?;
        let is_own = error.kind() == ErrorKind::AddrInUse && running == Running::Own;
        let message = format!("{}: {}", cannot_listen(address), Chain(&error));
        failure("admin listener", &address.to_string(), message).filter(|_| !is_own)
    });
    [lock, control, admin].into_iter().flatten().collect()
}

/// Checks whether a daemon could listen on the address of the feed. `None` without a feed.
pub(crate) async fn feed(config: &Config) -> Option<ConnectionCheck> {
    let feed = config.feed.as_ref()?;
    let answer = match FeedListener::bind(&feed.listen).await {
        Ok(_) => Ok("a daemon can listen on this address".to_owned()),
        Err(error) if error.kind() == ErrorKind::AddrInUse && running(config).await == Running::Own => {
            Ok("the daemon that is running uses this address".to_owned())
        }
        Err(error) => Err(format!("{}: {}", feed_cannot_listen(&feed.listen, &error), Chain(&error))),
    };
    Some(ConnectionCheck::new("feed", &feed.listen.to_string(), answer))
}

async fn running(config: &Config) -> Running {
    let status = operator::ask(&config.state.path, &GetStatus { here: true }, "");
    let is_own = |report: &Report| {
        let is_configured = |id| config.channels.iter().any(|channel| channel.channel.id == id);
        report.channels.iter().any(|channel| is_configured(channel.channel_id))
    };
    match timeout(PATIENCE, status).await {
        Ok(Ok(None)) => Running::None,
        Ok(Ok(Some(Ok(report)))) if !is_own(&report) => Running::Other,
        // A daemon that listens but does not answer has probably been started with this configuration.
        _ => Running::Own,
    }
}
